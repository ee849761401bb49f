//! Tests of the memtable's arenas: items and word runs keep their index.

use super::arena::*;

#[test]
fn items_keep_their_index() {
    let s = ArenaSlots::new();
    for i in 0..1000u32 {
        assert_eq!(s.push(i * 3).unwrap(), i);
    }
    assert!((0..1000).all(|i| s.get(i) == Some(&(i * 3))));
    assert_eq!(s.get(1000), None);
}

#[test]
fn word_runs_never_straddle_a_bucket() {
    let w = ArenaWords::new();
    for n in 0..5000 {
        let (i, _) = w.allocate(7 + n % 13).unwrap();
        assert_eq!(w.word_slice(i, (7 + n % 13) as usize).len(), (7 + n % 13) as usize);
    }
}
