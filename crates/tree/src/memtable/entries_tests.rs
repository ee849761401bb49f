//! Single-threaded tests of entries and versions; with a concurrent reader:
//! `tests/memtable_loom.rs`.

use super::entries::*;
use perigee_base::{EntryKind, SeqNo};

fn node(n: u32) -> MemtableEntry {
    MemtableEntry {
        batch: n,
        key: (n.wrapping_mul(7), n % 65_537),
        value: (n.wrapping_mul(7).wrapping_add(n % 65_537), n ^ 0xFFFF_FFFF),
        seq: SeqNo(u64::from(n) * 3 + 1),
        kind: EntryKind::decode((n % 7 + 1) as u8).unwrap(),
    }
}

#[test]
fn pushed_entries_read_back() {
    let e = Entries::new();
    for n in 0..200_000u32 {
        assert_eq!(e.push(&node(n), None).unwrap(), n);
    }
    assert!(
        (0..200_000).all(|n| e.node(n) == node(n) && e.key_location(n).2 as u32 == node(n).key.1)
    );
}

#[test]
fn old_version_is_found_in_logarithmic_steps() {
    let e = Entries::new();
    let mut last = None;
    for n in 0..5000u32 {
        last = Some(e.push(&node(n), last).unwrap());
        // For an old reader, following the versions one by one would take minutes at this scale.
        for at in [0, 1, u64::from(n), u64::from(n) * 3, u64::from(n) * 3 + 1, u64::MAX] {
            let want = at.checked_sub(1).map(|a| ((a / 3) as u32).min(n));
            assert_eq!(e.visible_version(n, SeqNo(at)), want, "{n} {at}");
        }
    }
    let mut steps = 0;
    let (mut i, at) = (4999u32, 1u64);
    while e.seq(i).0 > at {
        let jump = e.jump(i);
        i = if e.seq(jump).0 > at { jump } else { i - 1 };
        steps += 1;
    }
    assert!(steps < 40, "{steps} steps over 5000 versions");
}
