//! The chunk against a vector, and with threads. (Its model test compiles `chunk.rs` with atomics
//! of its own, so these are apart.)

use crate::append_buffer::AppendBuffer;

#[test]
fn appends_match_a_vector_and_old_reads_stay_valid() {
    let (chunk, mut twin) = (AppendBuffer::new(1000), Vec::new());
    let first = chunk.bytes();
    for n in 0..100 {
        let piece = vec![n as u8; n % 30];
        let before = chunk.bytes();
        let at = chunk.append(&piece);
        if twin.len() + piece.len() > 1000 {
            assert_eq!(at, None);
            continue;
        }
        assert_eq!((at, before), (Some(twin.len()), &twin[..]));
        twin.extend_from_slice(&piece);
        assert_eq!(chunk.bytes(), twin);
    }
    assert!(first.is_empty() && twin.len() > 900);
    assert_eq!(chunk.append(&[0; 200]), None);
    assert_eq!(AppendBuffer::new(0).append(&[]), Some(0));
    assert_eq!(AppendBuffer::new(0).append(&[1]), None);
}

#[test]
fn concurrent_appends_are_read_whole() {
    let chunk = AppendBuffer::new(20_000);
    std::thread::scope(|s| {
        for writer in 1..3u8 {
            let chunk = &chunk;
            s.spawn(move || (0..2000).filter(|_| chunk.append(&[writer; 5]).is_some()).count());
        }
        for _ in 0..200 {
            assert!(chunk.bytes().chunks(5).all(|p| p.len() == 5 && p.iter().all(|b| *b == p[0])));
        }
    });
    assert!(chunk.bytes().len() >= 10_000 && chunk.bytes().iter().all(|b| *b == 1 || *b == 2));
}
