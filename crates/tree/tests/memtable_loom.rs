//! Runs the memtable's lock-free modules under `loom`, which explores every interleaving of a
//! writer and a reader and every reordering that the memory model allows. The modules are compiled
//! here again, with loom's atomics.
#![allow(clippy::unwrap_used, dead_code, missing_docs)]

#[macro_use(check, check_slow)]
extern crate perigee_base;

mod sync {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64};
    pub type EntryRecord = [AtomicU64; 4];
    pub fn zeroed_words(n: usize) -> Option<Box<[AtomicU64]>> {
        Some((0..n).map(|_| AtomicU64::new(0)).collect())
    }
    pub fn zeroed_records(n: usize) -> Option<Box<[EntryRecord]>> {
        Some((0..n).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect())
    }
}
#[path = "../src/memtable/entries.rs"]
mod entries;
#[path = "../src/memtable/arena.rs"]
mod arena;
#[path = "../src/memtable/hash.rs"]
mod hash;
#[path = "../src/memtable/skiplist.rs"]
mod skiplist;

use entries::{Entries, MemtableEntry};
use hash::HashIndex;
use loom::sync::Arc;
use perigee_base::{EntryKind, KeyComparator, SeqNo};
use skiplist::SkipList;
use std::sync::atomic::Ordering::{Acquire, Release};

struct LoomHashMemtable {
    entries: Entries,
    index: HashIndex,
    visible: sync::AtomicU64,
}

impl LoomHashMemtable {
    fn new() -> Arc<LoomHashMemtable> {
        Arc::new(LoomHashMemtable {
            entries: Entries::new(),
            index: HashIndex::new(0),
            visible: sync::AtomicU64::new(0),
        })
    }
    /// Inserts as the memtable does; the key is the record's batch number.
    fn insert(&self, key: u32, seq: u64) {
        let hash = u64::from(key) << 32;
        self.index.reserve(1).unwrap();
        let slot = self.index.find_slot(hash, |e| self.entries.node(e).batch == key);
        let node = MemtableEntry {
            batch: key,
            key: (key, 1),
            value: (key + 1, 2),
            seq: SeqNo(seq),
            kind: EntryKind::Put,
        };
        let entry = self.entries.push(&node, slot.older).unwrap();
        self.index.set_slot(slot, hash, entry);
        self.visible.store(seq, Release);
    }
    fn get(&self, key: u32, at: u64) -> Option<MemtableEntry> {
        let newest =
            self.index.find(u64::from(key) << 32, |e| self.entries.node(e).batch == key)?;
        self.entries.visible_version(newest, SeqNo(at)).map(|e| self.entries.node(e))
    }
}

/// Three keys in a table of four slots: the last one makes it grow while the reader runs. Two of
/// them hash to the same slot.
const WRITES: [(u32, u64); 5] = [(4, 1), (8, 2), (4, 3), (5, 4), (4, 5)];

fn check_reads(table: &LoomHashMemtable, already: usize) {
    let at = table.visible.load(Acquire);
    assert!(at >= already as u64);
    for key in [4, 8, 5, 12] {
        let want = WRITES.iter().rev().find(|(k, seq)| *k == key && *seq <= at);
        let got = table.get(key, at);
        assert_eq!(got.map(|n| (n.batch, n.seq.0)), want.copied(), "key {key} at {at}");
        if let Some(n) = got {
            assert_eq!((n.key, n.value, n.kind), ((key, 1), (key + 1, 2), EntryKind::Put));
        }
    }
}

/// The reader starts after the first `already` writes; the writer does the others up to `until`.
fn run_model(already: usize, until: usize) {
    loom::model(move || {
        let table = LoomHashMemtable::new();
        WRITES[..already].iter().for_each(|(key, seq)| table.insert(*key, *seq));
        let writer = {
            let table = Arc::clone(&table);
            loom::thread::spawn(move || {
                WRITES[already..until].iter().for_each(|(key, seq)| table.insert(*key, *seq));
            })
        };
        check_reads(&table, already);
        writer.join().unwrap();
        check_reads(&table, until);
    });
}

#[test]
fn reader_sees_consistent_state_during_first_insert() {
    run_model(0, 1);
}

#[test]
fn reader_sees_consistent_state_during_overwrite() {
    run_model(2, 3);
}

#[test]
fn reader_sees_consistent_state_during_index_growth() {
    run_model(2, 4);
}

#[test]
fn reader_sees_consistent_state_during_overwrite_after_growth() {
    run_model(3, 5);
}

/// Keys of the skip list, by batch number.
const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

fn key_of(n: &MemtableEntry) -> &'static [u8] {
    KEYS[n.batch as usize]
}

struct LoomListMemtable {
    list: SkipList,
    visible: sync::AtomicU64,
}

impl LoomListMemtable {
    fn insert(&self, key: u32, seq: u64) {
        let node = MemtableEntry {
            batch: key,
            key: (0, 1),
            value: (1, 0),
            seq: SeqNo(seq),
            kind: EntryKind::Put,
        };
        self.list.insert(&node, key_of, KeyComparator::Bytes).unwrap();
        self.visible.store(seq, Release);
    }
}

/// Neither a node inserted directly before a key, nor a newer version of it, hides the key.
#[test]
fn skiplist_reader_sees_consistent_state_during_insert() {
    const WRITES: [(u32, u64); 4] = [(0, 1), (2, 2), (1, 3), (2, 4)];
    loom::model(|| {
        let t =
            Arc::new(LoomListMemtable { list: SkipList::new(), visible: sync::AtomicU64::new(0) });
        WRITES[..2].iter().for_each(|(key, seq)| t.insert(*key, *seq));
        let writer = {
            let t = Arc::clone(&t);
            loom::thread::spawn(move || {
                WRITES[2..].iter().for_each(|(key, seq)| t.insert(*key, *seq))
            })
        };
        let at = t.visible.load(Acquire);
        for key in [2, 1] {
            let want = WRITES.iter().rev().find(|(k, seq)| *k == key && *seq <= at);
            let found = t.list.seek(KEYS[key as usize], SeqNo(at), key_of, KeyComparator::Bytes);
            let found = found.map(|i| t.list.node(i)).filter(|n| n.batch == key);
            assert_eq!(found.map(|n| (n.batch, n.seq.0)), want.copied(), "key {key} at {at}");
        }
        writer.join().unwrap();
    });
}
