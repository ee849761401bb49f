//! Tests `AppendBuffer` against a vector, and with concurrent threads. They are separate from
//! `append_buffer.rs` because the loom test compiles that file again with its own atomics.

use crate::append_buffer::AppendBuffer;

#[test]
fn appends_match_a_vector_and_old_reads_stay_valid() {
    let (buffer, mut expected) = (AppendBuffer::new(1000), Vec::new());
    let first = buffer.bytes();
    for n in 0..100 {
        let part = vec![n as u8; n % 30];
        let before = buffer.bytes();
        let at = buffer.append(&part);
        if expected.len() + part.len() > 1000 {
            assert_eq!(at, None);
            continue;
        }
        assert_eq!((at, before), (Some(expected.len()), &expected[..]));
        expected.extend_from_slice(&part);
        assert_eq!(buffer.bytes(), expected);
    }
    assert!(first.is_empty() && expected.len() > 900);
    assert_eq!(buffer.append(&[0; 200]), None);
    assert_eq!(AppendBuffer::new(0).append(&[]), Some(0));
    assert_eq!(AppendBuffer::new(0).append(&[1]), None);
}

#[test]
fn concurrent_appends_are_read_whole() {
    let buffer = AppendBuffer::new(20_000);
    std::thread::scope(|s| {
        for writer in 1..3u8 {
            let buffer = &buffer;
            s.spawn(move || {
                for _ in 0..2000 {
                    // Refused while the other thread, perhaps preempted, is appending.
                    while buffer.append(&[writer; 5]).is_none() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        for _ in 0..200 {
            assert!(buffer.bytes().chunks(5).all(|p| p.len() == 5 && p.iter().all(|b| *b == p[0])));
        }
    });
    let bytes_of = |writer| buffer.bytes().iter().filter(|b| **b == writer).count();
    assert_eq!((bytes_of(1), bytes_of(2)), (10_000, 10_000));
}
