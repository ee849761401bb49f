//! The memtable: the newest entries of a family, in memory, in order.
//!
//! Batches are kept as the buffers that were logged; entries point into them. One writer at a time
//! (the commit section), any number of readers without a lock. This room is the seam for the faster
//! structures of the speed work: nothing outside sees how entries are found.

pub mod arena;
pub mod skiplist;
pub mod ranges;

use arena::Slots;
use perigee_base::{EntryRef, Expiry, KeyOrder, Result, SeqNo, Shared, ValueRef};
use perigee_file::Found;
use perigee_file::log::Op;
use ranges::MemRanges;
use skiplist::{Node, SkipList};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Bytes charged for each batch beside its buffer.
const BATCH_OVERHEAD: u64 = 64;

/// Entries of one family, newest last.
///
/// Invariants: 1. sequence numbers of inserts only grow; 2. an entry is linked after its batch is in its slot.
#[derive(Debug)]
pub struct Memtable {
    order: KeyOrder,
    batches: Slots<Arc<Vec<u8>>>,
    list: SkipList,
    ranges: MemRanges,
    bytes: AtomicU64,
    entries: AtomicU64,
    first_seq: AtomicU64,
    last_seq: AtomicU64,
}

impl Memtable {
    /// An empty memtable.
    pub fn new(order: KeyOrder) -> Memtable {
        Memtable {
            order,
            batches: Slots::new(),
            list: SkipList::new(),
            ranges: MemRanges::default(),
            bytes: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            first_seq: AtomicU64::new(0),
            last_seq: AtomicU64::new(0),
        }
    }

    /// Adds operations of one batch; each has the sequence number `base` plus the one beside it. Called by one thread at a
    /// time.
    ///
    /// # Errors
    /// `NoMemory` if the memtable's address space (4 Gi entries) is exhausted.
    pub fn insert(&self, batch: &Arc<Vec<u8>>, base: u64, ops: &[(Op, SeqNo)]) -> Result<()> {
        let (Some(first), Some(last)) = (ops.first(), ops.last()) else { return Ok(()) };
        let slot = self.batches.push(Arc::clone(batch))?;
        let mut grown = batch.capacity() as u64 + BATCH_OVERHEAD;
        for (op, seq) in ops {
            if let Some(range) = op.range_in(batch) {
                grown += self.ranges.add(self.order, range, seq.plus(base));
                continue;
            }
            let node = Node {
                batch: slot,
                key: (op.key.start as u32, op.key.len() as u32),
                value: (op.value.start as u32, op.value.len() as u32),
                seq: seq.plus(base),
                kind: op.kind,
            };
            grown += self.list.insert(&node, |n| self.key_of(n), self.order)?;
        }
        let _ = self.first_seq.compare_exchange(0, first.1.0 + base, Relaxed, Relaxed);
        self.last_seq.store(last.1.0 + base, Release);
        self.entries.fetch_add(ops.len() as u64, Relaxed);
        self.bytes.fetch_add(grown, Relaxed);
        Ok(())
    }

    fn buffer(&self, batch: u32) -> &Arc<Vec<u8>> {
        self.batches.get(batch).expect("a linked entry's batch is in its slot (invariant 2)")
    }

    fn key_of(&self, n: &Node) -> &[u8] {
        &self.buffer(n.batch)[n.key.0 as usize..n.key.0 as usize + n.key.1 as usize]
    }

    fn found(&self, n: &Node) -> Found {
        let start = n.value.0 as usize;
        let value = || Shared::new(Arc::clone(self.buffer(n.batch)), start..start + n.value.1 as usize);
        match self.value_of(n) {
            ValueRef::None | ValueRef::Single => Found::Tombstone,
            ValueRef::InlineUntil(_, x) => Found::ValueUntil(value().skip(Expiry::BYTES), x),
            _ => Found::Value(value()),
        }
    }

    fn value_of(&self, n: &Node) -> ValueRef<'_> {
        let start = n.value.0 as usize;
        let stored = &self.buffer(n.batch)[start..start + n.value.1 as usize];
        ValueRef::decode(n.kind, stored).expect("the batch was decoded before it was inserted")
    }

    /// The newest version of `key` that a reader at `at` sees.
    pub fn get(&self, key: &[u8], at: SeqNo) -> Option<(SeqNo, Found)> {
        let at = self.list.seek(key, at, |n| self.key_of(n), self.order)?;
        let node = self.list.node(at);
        self.order.equal(self.key_of(&node), key).then(|| (node.seq, self.found(&node)))
    }

    /// About how many entries lie between two places in entry order (`None`: to that end): exact up to a few hundred, then
    /// with a standard error of 6 %.
    pub fn count(&self, from: Option<(&[u8], SeqNo)>, to: Option<(&[u8], SeqNo)>) -> u64 {
        self.list.count(from, to, |n| self.key_of(n), self.order).min(self.entries())
    }

    /// Its range tombstones.
    pub fn ranges(&self) -> &MemRanges {
        &self.ranges
    }
    /// The newest range tombstone over `key` that a reader at `at` sees.
    pub fn cover(&self, key: &[u8], at: SeqNo) -> Option<SeqNo> {
        self.ranges.with(|list| list.covering(self.order, key)?.newest(at)).flatten()
    }
    /// Bytes of memory it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
    /// Entries in it.
    pub fn entries(&self) -> u64 {
        self.entries.load(Relaxed)
    }
    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0
    }
    /// Sequence number of the first operation in it (0: none).
    pub fn first_seq(&self) -> SeqNo {
        SeqNo(self.first_seq.load(Relaxed))
    }
    /// Sequence number of the last operation in it (0: none).
    pub fn last_seq(&self) -> SeqNo {
        SeqNo(self.last_seq.load(Acquire))
    }
    /// A cursor, not positioned.
    pub fn cursor(self: &Arc<Self>) -> MemCursor {
        MemCursor { table: Arc::clone(self), at: None }
    }
}

/// A position in a memtable.
#[derive(Debug)]
pub struct MemCursor {
    table: Arc<Memtable>,
    at: Option<(u32, Node)>,
}

impl MemCursor {
    fn set(&mut self, at: Option<u32>) {
        self.at = at.map(|i| (i, self.table.list.node(i)));
    }
    /// To the first entry at or after (key, seq) in entry order.
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) {
        let t = &self.table;
        let at = t.list.seek(key, seq, |n| t.key_of(n), t.order);
        self.set(at);
    }
    /// To the last entry before (key, seq) in entry order.
    pub fn seek_before(&mut self, key: &[u8], seq: SeqNo) {
        let t = &self.table;
        let at = t.list.seek_before(key, seq, |n| t.key_of(n), t.order);
        self.set(at);
    }
    /// To the first entry.
    pub fn seek_first(&mut self) {
        let at = self.table.list.first();
        self.set(at);
    }
    /// To the last entry.
    pub fn seek_last(&mut self) {
        let at = self.table.list.last();
        self.set(at);
    }
    /// To the next entry.
    pub fn next(&mut self) {
        let at = self.at.as_ref().and_then(|(i, _)| self.table.list.next(*i));
        self.set(at);
    }
    /// To the previous entry.
    pub fn prev(&mut self) {
        let Some((_, node)) = self.at else { return };
        let t = &self.table;
        let at = t.list.seek_before(t.key_of(&node), node.seq, |n| t.key_of(n), t.order);
        self.set(at);
    }
    /// The newest sequence number in the memtable.
    pub fn newest(&self) -> SeqNo {
        self.table.last_seq()
    }
    /// Whether it is on an entry.
    pub fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn node(&self) -> &Node {
        &self.at.as_ref().expect("entry() is called on a valid cursor").1
    }
    /// The entry it is on.
    pub fn entry(&self) -> EntryRef<'_> {
        let n = self.node();
        EntryRef { key: self.table.key_of(n), seq: n.seq, value: self.table.value_of(n) }
    }
    /// The entry's value, pinned.
    pub fn found(&self) -> Found {
        self.table.found(self.node())
    }
}

#[cfg(test)]
mod tests;
