//! Tests that the assertions of this crate fail when their invariant is violated.

use crate::bulk::LoadBuffer;
use crate::compact::{
    CompactionPlan, CompactionReason, OverlapGroup, TableShape, TreeShape, boundaries,
};
use crate::memtable::SharedBatch;
use crate::rewrite::TableSplitter;
use crate::txn_overlay::{TXN_SEQ_BASE, TxnOverlay, VisibleSeqs};
use crate::{LsmTree, Memtable, Version};
use perigee_base::{
    Bytes, EntryKind, FamilyId, FileId, FixedClock, KeyBoundary, KeyBoundaryRef, KeyComparator,
    LevelNo, OpIndex, SeqNo, limits, violation,
};
use perigee_file::log::BatchOp;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn insert(memtable: &Memtable, seq: u64) {
    let (kind, family) = (EntryKind::Put, FamilyId(0));
    let op = BatchOp { kind, family, key: 0..1, value: 1..2 };
    memtable.insert(&Arc::new(b"kv".to_vec()), SeqNo(seq), &[(op, OpIndex(0))]).unwrap();
}

fn tree() -> LsmTree {
    LsmTree::new(Version::empty(KeyComparator::Bytes), Arc::new(FixedClock(0)))
}

/// Inserts and seals an entry for each sequence number.
fn seal(tree: &LsmTree, seqs: &[u64]) {
    for seq in seqs {
        insert(&tree.active(), *seq);
        tree.seal_memtable();
    }
}

fn overlay(end_seq: SeqNo, rolled_back: &[Range<SeqNo>]) {
    let memtable = Arc::new(Memtable::new(KeyComparator::Bytes));
    TxnOverlay::new(memtable, VisibleSeqs { end_seq, rolled_back });
}

fn flush_newest_first() {
    let tree = tree();
    seal(&tree, &[5, 6]);
    let newest = Arc::clone(&tree.view().immutables[0]);
    tree.install_version(Version::empty(KeyComparator::Bytes), Some(&newest));
}

fn drop_uncounted_batch() {
    let live = Arc::new(AtomicU64::new(0));
    let batch = SharedBatch::new(100, &live);
    live.store(50, Relaxed);
    drop(batch);
}

fn list_descending_boundaries() {
    let table = |id: u64, first: &[u8], last: &[u8]| {
        let (first, last) = (KeyBoundary::Before(first.into()), KeyBoundary::After(last.into()));
        TableShape::new(FileId(id), first, last, 100)
    };
    let mut shape = TreeShape { levels: vec![Vec::new(); limits::LEVELS], ..TreeShape::default() };
    shape.levels[limits::LEVELS - 1] = vec![vec![table(1, b"c", b"d"), table(2, b"a", b"b")]];
    boundaries(&shape, KeyBoundaryRef::First..KeyBoundaryRef::Last, Bytes(1 << 30), 1);
}

#[test]
fn assertions_detect_violations() {
    let at = |n: u64| TXN_SEQ_BASE.plus(n);
    let (first, last) = (KeyBoundaryRef::First, KeyBoundaryRef::Last);
    let cases: [(&str, &dyn Fn()); 14] = [
        ("operations are inserted in commit order", &|| {
            let memtable = Memtable::new(KeyComparator::Bytes);
            insert(&memtable, 5);
            insert(&memtable, 5);
        }),
        ("operations lie inside their batch", &|| {
            let op = BatchOp { kind: EntryKind::Put, family: FamilyId(0), key: 0..1, value: 1..9 };
            let memtable = Memtable::new(KeyComparator::Bytes);
            let _ = memtable.insert(&Arc::new(b"kv".to_vec()), SeqNo(1), &[(op, OpIndex(0))]);
        }),
        ("a memtable is newer than those sealed before it", &|| seal(&tree(), &[5, 3])),
        ("the oldest memtable is flushed first", &flush_newest_first),
        ("a tree keeps its comparator", &|| {
            tree().install_version(Version::empty(KeyComparator::Reverse), None);
        }),
        ("operations of a transaction have private sequence numbers", &|| {
            overlay(SeqNo(7), &[]);
        }),
        ("ranges that were rolled back ascend and do not overlap", &|| {
            overlay(at(9), &[at(3)..at(5), at(4)..at(6)]);
        }),
        ("live batches include this one", &drop_uncounted_batch),
        ("a memtable is sealed before it is flushed", &|| {
            let tree = tree();
            let active = tree.active();
            tree.install_version(Version::empty(KeyComparator::Bytes), Some(&active));
        }),
        ("a plan merges tables into their level or a deeper one", &|| {
            let inputs = vec![(LevelNo(3), FileId(1))];
            CompactionPlan::merge(CompactionReason::LevelBytes, inputs, LevelNo(2));
        }),
        ("the boundaries between tables ascend", &|| {
            let cuts = [b"b", b"a"].map(|key| KeyBoundary::Before(key.to_vec()));
            TableSplitter::new(KeyComparator::Bytes, 100, cuts.to_vec());
        }),
        ("the tables of the last level ascend", &list_descending_boundaries),
        ("entries are written in key order", &|| {
            let mut buffer = LoadBuffer::new(KeyComparator::Bytes);
            buffer.push(b"b", b"", None).unwrap();
            buffer.push(b"a", b"", None).unwrap();
            let _ = buffer.divide(1)[0].entries(SeqNo(1)).count();
        }),
        ("a group has at least one table", &|| {
            let empty = || OverlapGroup { tables: Vec::new(), first, last, bytes: 0 };
            empty().join(&empty());
        }),
    ];
    for (invariant, work) in cases {
        let message = violation(work);
        assert!(message.contains(invariant), "{invariant}: {message}");
    }
}
