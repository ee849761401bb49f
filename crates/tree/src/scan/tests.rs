//! Tests of visible cursors over several memtables against a model, in both directions and at every
//! sequence number.

use super::*;
use crate::limits::{EMPTY_RANGE_TOMBSTONES_MIN, RECENT_ENTRIES_MAX};
use crate::{LsmTree, Memtable, Version, View};
use perigee_base::{FamilyId, KeyComparator, OpIndex, SeqNo};
use perigee_file::log::{Batch, BatchOps};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

fn next_random(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x
}

fn view_with(ops: &[(u64, Vec<u8>, Option<Vec<u8>>)], memtables: usize) -> Arc<View> {
    let tables: Vec<Arc<Memtable>> =
        (0..memtables).map(|_| Arc::new(Memtable::new(KeyComparator::Bytes))).collect();
    for (i, (seq, k, v)) in ops.iter().enumerate() {
        let mut b = Batch::new();
        match v {
            Some(v) => b.put(FamilyId(0), k, v).unwrap(),
            None => b.delete(FamilyId(0), k).unwrap(),
        }
        let f = b.finish();
        let parsed: Vec<_> =
            BatchOps::new(&f.buf, f.payload_range()).map(|op| (op.unwrap(), OpIndex(0))).collect();
        tables[i * memtables / ops.len()].insert(&Arc::new(f.buf), SeqNo(*seq), &parsed).unwrap();
    }
    Arc::new(View {
        overlay: None,
        active: Arc::clone(&tables[memtables - 1]),
        immutables: tables[..memtables - 1].iter().rev().cloned().collect(),
        installs: 0,
        version: Arc::new(Version::empty(KeyComparator::Bytes)),
        now: Arc::new(perigee_base::FixedClock(0)),
        merge_operator: Arc::default(),
    })
}

fn check(c: &VisibleCursor, want: Option<(&Vec<u8>, &Vec<u8>)>) {
    assert_eq!(c.key(), want.map(|(k, _)| &k[..]));
    assert_eq!(c.value().unwrap().map(|v| v.to_vec()), want.map(|(_, v)| v.clone()));
}

#[test]
fn random_moves_match_sorted_map() {
    let mut x = 99;
    for round in 0..60u64 {
        let ops: Vec<_> = (1..=120u64)
            .map(|seq| {
                let k =
                    vec![(next_random(&mut x) % 12) as u8; 1 + (next_random(&mut x) % 2) as usize];
                (seq, k, (next_random(&mut x) % 3 > 0).then(|| vec![seq as u8; 3]))
            })
            .collect();
        let view = view_with(&ops, 1 + (round % 4) as usize);
        let at = SeqNo(next_random(&mut x) % 130);
        let bound = |x: &mut u64| match next_random(x) % 3 {
            0 => Bound::Unbounded,
            1 => Bound::Included(vec![(next_random(x) % 12) as u8]),
            _ => Bound::Excluded(vec![(next_random(x) % 12) as u8]),
        };
        let bounds = ScanBounds { lower: bound(&mut x), upper: bound(&mut x) };
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (seq, k, v) in &ops {
            let inside = !bounds.is_before_lower(KeyComparator::Bytes, k)
                && !bounds.is_after_upper(KeyComparator::Bytes, k);
            if SeqNo(*seq) <= at && inside {
                match v {
                    Some(v) => model.insert(k.clone(), v.clone()),
                    None => model.remove(k),
                };
            }
        }
        let mut c = VisibleCursor::new(view, at, bounds, true);
        let mut current: Option<Vec<u8>> = None;
        for _ in 0..300 {
            let target =
                vec![(next_random(&mut x) % 13) as u8; 1 + (next_random(&mut x) % 2) as usize];
            current = match (next_random(&mut x) % 8, current) {
                (0, _) => {
                    c.seek_to_first().unwrap();
                    model.keys().next().cloned()
                }
                (1, _) => {
                    c.seek_to_last().unwrap();
                    model.keys().next_back().cloned()
                }
                (2, _) => {
                    c.seek(&target).unwrap();
                    model.range(target..).next().map(|(k, _)| k.clone())
                }
                (3, _) => {
                    c.seek_for_prev(&target).unwrap();
                    model.range(..=target).next_back().map(|(k, _)| k.clone())
                }
                (4 | 5, h) => {
                    c.next().unwrap();
                    h.and_then(|k| {
                        model
                            .range((Bound::Excluded(k), Bound::Unbounded))
                            .next()
                            .map(|(k, _)| k.clone())
                    })
                }
                (_, h) => {
                    c.prev().unwrap();
                    h.and_then(|k| model.range(..k).next_back().map(|(k, _)| k.clone()))
                }
            };
            check(&c, current.as_ref().map(|k| (k, &model[k])));
        }
    }
}

/// A tree with a live entry at the key 0, and tombstones at the following keys up to the live entry
/// `end`, at sequence numbers up to that of the result.
fn tree_with_tombstones(end: u64) -> (LsmTree, u64) {
    let now = Arc::new(perigee_base::FixedClock(0));
    let tree = LsmTree::new(Version::empty(KeyComparator::Bytes), now);
    let mut seq = 0;
    for i in 0..=end {
        seq += 1;
        insert(&tree, i, seq, i == 0 || i == end);
    }
    (tree, seq)
}

fn insert(tree: &LsmTree, key: u64, seq: u64, live: bool) {
    let (mut batch, key) = (Batch::new(), key.to_be_bytes());
    if live {
        batch.put(FamilyId(0), &key, b"v").unwrap();
    } else {
        batch.delete(FamilyId(0), &key).unwrap();
    }
    let record = batch.finish();
    let ops: Vec<_> = BatchOps::new(&record.buf, record.payload_range())
        .map(|op| (op.unwrap(), OpIndex(0)))
        .collect();
    tree.active().insert(&Arc::new(record.buf), SeqNo(seq), &ops).unwrap();
}

fn scan(tree: &LsmTree, at: u64) -> VisibleCursor {
    let bounds = ScanBounds { lower: Bound::Unbounded, upper: Bound::Unbounded };
    let mut cursor = VisibleCursor::new(tree.view(), SeqNo(at), bounds, true);
    cursor.seek_to_first().unwrap();
    assert_eq!(cursor.key(), Some(&0u64.to_be_bytes()[..]));
    cursor
}

fn empty_until(tree: &LsmTree, key: u64, at: u64) -> Option<u64> {
    let end =
        tree.active().end_of_empty_range(&key.to_be_bytes(), SeqNo(at), tree.view().installs)?;
    Some(u64::from_be_bytes(end.try_into().unwrap()))
}

#[test]
fn a_scan_notes_no_range_into_which_was_written_since_it_began() {
    let end = EMPTY_RANGE_TOMBSTONES_MIN + 10;
    for written in [None, Some(1), Some(end / 2), Some(end - 1)] {
        let (tree, last) = tree_with_tombstones(end);
        let mut cursor = scan(&tree, last);
        // The cursor does not see entries that are inserted from here on.
        written.into_iter().for_each(|key| insert(&tree, key, last + 1, true));
        cursor.next().unwrap();
        assert_eq!(cursor.key(), Some(&end.to_be_bytes()[..]));
        let noted = if written.is_none() { Some(end) } else { None };
        assert_eq!(empty_until(&tree, 5, last + 1), noted, "{written:?}");
        let mut later = scan(&tree, last + 1);
        later.next().unwrap();
        assert_eq!(later.key(), Some(&written.unwrap_or(end).to_be_bytes()[..]));
    }
}

#[test]
fn a_write_into_an_empty_range_is_found() {
    let end = EMPTY_RANGE_TOMBSTONES_MIN + 10;
    let (tree, last) = tree_with_tombstones(end);
    scan(&tree, last).next().unwrap();
    assert_eq!(empty_until(&tree, 5, last), Some(end));
    insert(&tree, 30, last + 1, true);
    let mut later = scan(&tree, last + 1);
    later.next().unwrap();
    assert_eq!(later.key(), Some(&30u64.to_be_bytes()[..]));
}

/// Checking what was written during a long scan costs less than the scan: also more entries than
/// those of a short one.
#[test]
fn a_long_scan_notes_its_range_although_much_was_written_elsewhere() {
    let end = 16 * RECENT_ENTRIES_MAX as u64;
    for (written, noted) in [(end / 10, true), (end / 4, false)] {
        let (tree, last) = tree_with_tombstones(end);
        let mut cursor = scan(&tree, last);
        (1..=written).for_each(|i| insert(&tree, end + i, last + i, true));
        cursor.next().unwrap();
        let found = empty_until(&tree, 5, last + written);
        assert_eq!(found, noted.then_some(end), "{written} entries written");
    }
}

#[test]
fn a_new_memtable_takes_over_empty_ranges_unless_tables_are_added() {
    let end = EMPTY_RANGE_TOMBSTONES_MIN + 10;
    let (tree, last) = tree_with_tombstones(end);
    scan(&tree, last).next().unwrap();
    tree.seal_memtable();
    assert_eq!(empty_until(&tree, 5, last), Some(end));
    // A reader may scan between this and the installation of the tables.
    tree.force_new_memtable();
    scan(&tree, last).next().unwrap();
    assert_eq!(empty_until(&tree, 5, last), None);
    insert(&tree, end + 1, last + 1, true);
    tree.seal_memtable();
    scan(&tree, last + 1).next().unwrap();
    assert_eq!(empty_until(&tree, 5, last + 1), Some(end));
}
