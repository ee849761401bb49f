//! The memtable's lock-free rooms under `loom`, which runs every interleaving of a writer and a reader and every
//! reordering that the memory model allows. The rooms are compiled here once more, with loom's atomics.
#![allow(clippy::unwrap_used, dead_code, missing_docs)]

mod sync {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64};
    pub type Record = [AtomicU64; 4];
    pub fn words(n: usize) -> Option<Box<[AtomicU64]>> {
        Some((0..n).map(|_| AtomicU64::new(0)).collect())
    }
    pub fn records(n: usize) -> Option<Box<[Record]>> {
        Some((0..n).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect())
    }
}
#[path = "../src/memtable/entries.rs"]
mod entries;
#[path = "../src/memtable/hash.rs"]
mod hash;

use entries::{Entries, Node};
use hash::HashIndex;
use loom::sync::Arc;
use perigee_base::{EntryKind, SeqNo};
use std::sync::atomic::Ordering::{Acquire, Release};

struct Table {
    entries: Entries,
    index: HashIndex,
    visible: sync::AtomicU64,
}

impl Table {
    fn new() -> Arc<Table> {
        Arc::new(Table {
            entries: Entries::new(),
            index: HashIndex::new(0),
            visible: sync::AtomicU64::new(0),
        })
    }
    /// As the memtable does it; the key is the record's batch number.
    fn insert(&self, key: u32, seq: u64) {
        let hash = u64::from(key) << 32;
        self.index.reserve(1).unwrap();
        let spot = self.index.spot(hash, |e| self.entries.node(e).batch == key);
        let node =
            Node { batch: key, key: (key, 1), value: (key + 1, 2), seq: SeqNo(seq), kind: EntryKind::Put };
        let entry = self.entries.push(&node, spot.older).unwrap();
        self.index.put(spot, hash, entry);
        self.visible.store(seq, Release);
    }
    fn get(&self, key: u32, at: u64) -> Option<Node> {
        let newest = self.index.find(u64::from(key) << 32, |e| self.entries.node(e).batch == key)?;
        self.entries.visible(newest, SeqNo(at)).map(|e| self.entries.node(e))
    }
}

/// Three keys in a table of four slots: the last of them makes it grow beside the reader. Two of them share a slot's place.
const WRITES: [(u32, u64); 5] = [(4, 1), (8, 2), (4, 3), (5, 4), (4, 5)];

fn check(table: &Table, already: usize) {
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

/// The reader comes with the first `already` writes done, the writer does the others up to `until`.
fn model(already: usize, until: usize) {
    loom::model(move || {
        let table = Table::new();
        WRITES[..already].iter().for_each(|(key, seq)| table.insert(*key, *seq));
        let writer = {
            let table = Arc::clone(&table);
            loom::thread::spawn(move || {
                WRITES[already..until].iter().for_each(|(key, seq)| table.insert(*key, *seq));
            })
        };
        check(&table, already);
        writer.join().unwrap();
        check(&table, until);
    });
}

#[test]
fn a_reader_beside_the_first_insert() {
    model(0, 1);
}

#[test]
fn a_reader_beside_an_overwrite() {
    model(2, 3);
}

#[test]
fn a_reader_beside_a_table_that_grows() {
    model(2, 4);
}

#[test]
fn a_reader_beside_an_overwrite_in_a_table_that_grew() {
    model(3, 5);
}
