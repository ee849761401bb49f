//! The memtable: the newest entries of a family, in memory.
//!
//! Batches are kept as the buffers that were logged, small ones copied into chunks; entries point into them. One writer at a time
//! (the commit section), any number of readers without a lock. How entries are found, nothing outside sees: by hash, and
//! sorted when a cursor asks, where only identical bytes are the same key; in a skip list where that is not so.

mod sync;
mod part;
pub mod arena;
pub mod entries;
pub mod hash;
pub mod sorted;
pub mod hashed;
mod copied;
pub mod skiplist;
pub mod ranges;
mod cursor;

pub use cursor::MemCursor;
pub use part::{Part, SharedBatch};

use arena::Slots;
use copied::Copied;
use entries::Node;
use hashed::{Batches, Hashed, Walk};
use part::Parts;
use perigee_base::shared::Buffer;
use perigee_base::{EntryKind, Expiry, KeyOrder, Result, SeqNo, Shared, ValueRef};
use perigee_file::Found;
use perigee_file::log::Op;
use ranges::MemRanges;
use skiplist::SkipList;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Bytes charged for each batch beside its buffer and its slot.
const BATCH_OVERHEAD: u64 = 56;

/// How entries are found.
#[derive(Debug)]
enum Index {
    Hashed(Box<Hashed>),
    Listed(Box<SkipList>),
}

/// Entries of one family, newest last.
///
/// Invariants: 1. sequence numbers of inserts only grow; 2. an entry is linked after its batch is in its slot.
#[derive(Debug)]
pub struct Memtable {
    order: KeyOrder,
    batches: Batches,
    copied: Copied,
    index: Index,
    ranges: MemRanges,
    parts: Parts,
    // Stored by the one writer, loaded by anybody.
    bytes: AtomicU64,
    entries: AtomicU64,
    first_seq: AtomicU64,
    last_seq: AtomicU64,
    tombstones: AtomicU64,
    key_bytes: AtomicU64,
    value_bytes: AtomicU64,
    /// Bytes of keys and values in the memtables before this one.
    before: u64,
    /// Tombstones in it that scans passed.
    passed: AtomicU64,
}

/// Adds to what only this thread writes just now: no other addition is lost.
fn add(cell: &AtomicU64, n: u64) {
    cell.store(cell.load(Relaxed) + n, Relaxed);
}

impl Memtable {
    /// An empty memtable.
    pub fn new(order: KeyOrder) -> Memtable {
        Memtable::expecting(order, 0)
    }

    /// An empty memtable that will hold about `keys` different keys: so many as [`Memtable::keys`] of the one before.
    pub fn expecting(order: KeyOrder, keys: u64) -> Memtable {
        let index = if order.is_bytewise() {
            Index::Hashed(Box::new(Hashed::new(order, keys)))
        } else {
            Index::Listed(Box::new(SkipList::new()))
        };
        Memtable {
            order,
            batches: Slots::new(),
            copied: Copied::default(),
            index,
            ranges: MemRanges::default(),
            parts: Parts::default(),
            bytes: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            first_seq: AtomicU64::new(0),
            last_seq: AtomicU64::new(0),
            tombstones: AtomicU64::new(0),
            key_bytes: AtomicU64::new(0),
            value_bytes: AtomicU64::new(0),
            before: 0,
            passed: AtomicU64::new(0),
        }
    }

    /// The same, counting [`Memtable::written`] on from where another is.
    pub fn following(self, before: &Memtable) -> Memtable {
        Memtable { before: before.written(), ..self }
    }

    /// Scans passed so many more tombstones in it.
    pub fn pass(&self, tombstones: u64) {
        self.passed.fetch_add(tombstones, Relaxed);
    }
    /// Tombstones in it that scans passed, each as often as it was.
    pub fn passed(&self) -> u64 {
        self.passed.load(Relaxed)
    }

    /// Adds operations of one batch, whose buffer no other memtable holds; each has the sequence number `base` plus the one
    /// beside it. Called by one thread at a time.
    ///
    /// # Errors
    /// `NoMemory` if the memtable's address space (4 Gi entries) is exhausted.
    pub fn insert(&self, batch: &Arc<Vec<u8>>, base: u64, ops: &[(Op, SeqNo)]) -> Result<()> {
        self.insert_part(batch, base, ops, None)
    }

    /// The same; if other memtables hold the buffer too, `part` says which part of it this one is charged.
    pub fn insert_part(
        &self,
        batch: &Arc<Vec<u8>>,
        base: u64,
        ops: &[(Op, SeqNo)],
        part: Option<Part<'_>>,
    ) -> Result<()> {
        if ops.is_empty() {
            return Ok(());
        }
        let slot = self.batches.push(Buffer::Grown(Arc::clone(batch)))?;
        let grown = match part {
            None => batch.capacity() as u64 + BATCH_OVERHEAD,
            Some(part) => part.bytes + self.parts.add(part),
        };
        self.link((slot, batch), base, ops, grown)
    }

    /// Adds operations of a small batch by copying them: its buffer is not kept.
    ///
    /// # Errors
    /// As [`Memtable::insert`].
    pub fn insert_copied(&self, batch: &[u8], base: u64, ops: &[(Op, SeqNo)]) -> Result<()> {
        let bytes = ops.iter().map(|(op, _)| op.value.end - op.key.start).sum();
        let (slot, chunk, mut grown) = self.copied.with_room(bytes, &self.batches)?;
        for (op, seq) in ops {
            let bytes = &batch[op.key.start..op.value.end];
            let at = chunk.append(bytes).ok_or_else(copied::two_writers)?;
            // In a batch the value lies right behind the key, and so it does here.
            let (value, end) = (at + op.key.len(), at + bytes.len());
            let moved = Op { kind: op.kind, family: op.family, key: at..value, value: value..end };
            self.link((slot, chunk.bytes()), base, &[(moved, *seq)], std::mem::take(&mut grown))?;
        }
        Ok(())
    }

    /// Links entries that lie in the buffer of slot `slot`, which is `batch`; `grown`: bytes taken for it.
    fn link(
        &self,
        (slot, batch): (u32, &[u8]),
        base: u64,
        ops: &[(Op, SeqNo)],
        mut grown: u64,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (ops.first(), ops.last()) else { return Ok(()) };
        let (mut keys, mut values, mut tombstones) = (0, 0, 0);
        for (op, seq) in ops {
            if let Some(range) = op.range_in(batch) {
                grown += self.ranges.add(self.order, range, seq.plus(base));
            }
            keys += op.key.len() as u64;
            values += op.user_value_bytes();
            tombstones += u64::from(op.kind.is_tombstone());
        }
        grown += match &self.index {
            Index::Hashed(table) => table.insert((slot, batch), base, ops, &self.batches)?,
            Index::Listed(list) => self.insert_in_order(list, slot, base, ops)?,
        };
        if self.first_seq.load(Relaxed) == 0 {
            self.first_seq.store(first.1.0 + base, Relaxed);
        }
        self.last_seq.store(last.1.0 + base, Release);
        add(&self.entries, ops.len() as u64);
        add(&self.bytes, grown);
        add(&self.key_bytes, keys);
        add(&self.value_bytes, values);
        add(&self.tombstones, tombstones);
        Ok(())
    }

    fn insert_in_order(&self, list: &SkipList, slot: u32, base: u64, ops: &[(Op, SeqNo)]) -> Result<u64> {
        let mut grown = 0;
        for (op, seq) in ops.iter().filter(|(op, _)| op.kind != EntryKind::RangeDelete) {
            let node = Node {
                batch: slot,
                key: (op.key.start as u32, op.key.len() as u32),
                value: (op.value.start as u32, op.value.len() as u32),
                seq: seq.plus(base),
                kind: op.kind,
            };
            grown += list.insert(&node, |n| self.key_of(n), self.order)?;
        }
        Ok(grown)
    }

    fn buffer(&self, batch: u32) -> &Buffer {
        self.batches.get(batch).expect("a linked entry's batch is in its slot (invariant 2)")
    }

    #[inline]
    fn key_of(&self, n: &Node) -> &[u8] {
        &self.buffer(n.batch)[n.key.0 as usize..n.key.0 as usize + n.key.1 as usize]
    }

    fn found(&self, n: &Node) -> Found {
        let start = n.value.0 as usize;
        let value = || Shared::new(self.buffer(n.batch).clone(), start..start + n.value.1 as usize);
        match self.value_of(n) {
            ValueRef::None | ValueRef::Single => Found::Tombstone,
            ValueRef::InlineUntil(_, x) => Found::ValueUntil(value().skip(Expiry::BYTES), x),
            ValueRef::Operand(_) => Found::Operand(value()),
            _ => Found::Value(value()),
        }
    }

    #[inline]
    fn value_of(&self, n: &Node) -> ValueRef<'_> {
        let start = n.value.0 as usize;
        let stored = &self.buffer(n.batch)[start..start + n.value.1 as usize];
        ValueRef::decode(n.kind, stored).expect("the batch was decoded before it was inserted")
    }

    /// The newest version of `key` that a reader at `at` sees.
    pub fn get(&self, key: &[u8], at: SeqNo) -> Option<(SeqNo, Found)> {
        let node = match &self.index {
            Index::Hashed(table) => table.get(key, at, &self.batches)?,
            Index::Listed(list) => {
                let node = list.node(list.seek(key, at, |n| self.key_of(n), self.order)?);
                self.order.equal(self.key_of(&node), key).then_some(node)?
            }
        };
        Some((node.seq, self.found(&node)))
    }

    /// The keys of the entries newer than `since`, each as often as it was written, the newest first. `None` if there are more
    /// than `most`, or if they cannot be told without going through all: then a cursor is the way.
    pub fn lately(&self, since: SeqNo, most: usize) -> Option<impl Iterator<Item = &[u8]>> {
        match &self.index {
            Index::Hashed(table) => table.lately(since, most, &self.batches),
            Index::Listed(_) => None,
        }
    }

    /// Shows `show` the versions of `key` that a reader at `at` sees, the newest first, until it has seen enough (false).
    pub fn versions(&self, key: &[u8], at: SeqNo, mut show: impl FnMut(SeqNo, Found) -> bool) {
        match &self.index {
            Index::Hashed(table) => {
                let mut next = table.find(key, at, &self.batches);
                while let Some(i) = next {
                    let node = table.node(i);
                    if !show(node.seq, self.found(&node)) {
                        return;
                    }
                    next = table.older(i);
                }
            }
            Index::Listed(list) => {
                let mut next = list.seek(key, at, |n| self.key_of(n), self.order);
                while let Some(i) = next {
                    let node = list.node(i);
                    let same = self.order.equal(self.key_of(&node), key);
                    if !same || !show(node.seq, self.found(&node)) {
                        return;
                    }
                    next = list.next(i);
                }
            }
        }
    }

    /// How many entries lie between two places in entry order (`None`: to that end). Where only identical bytes are the
    /// same key, exactly; else exactly up to a few hundred, then with a standard error of 6 %.
    pub fn count(&self, from: Option<(&[u8], SeqNo)>, to: Option<(&[u8], SeqNo)>) -> u64 {
        let n = match &self.index {
            Index::Hashed(table) => table.count(from, to, &self.batches),
            Index::Listed(list) => list.count(from, to, |n| self.key_of(n), self.order),
        };
        n.min(self.entries())
    }

    /// Different keys in it, if that is known: what the next memtable may expect.
    pub fn keys(&self) -> u64 {
        if let Index::Hashed(table) = &self.index { table.keys() } else { 0 }
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
        let index = if let Index::Hashed(table) = &self.index { table.memory_bytes() } else { 0 };
        self.bytes.load(Relaxed) + self.batches.memory_bytes() + index
    }
    /// Those of them that lie in buffers which memtables of other families hold as well.
    pub fn part_bytes(&self) -> u64 {
        self.parts.bytes()
    }
    /// Bytes of an empty one.
    pub const EMPTY_BYTES: u64 = (size_of::<Memtable>() + size_of::<Hashed>()) as u64;
    /// Entries in it.
    pub fn entries(&self) -> u64 {
        self.entries.load(Relaxed)
    }
    /// Tombstones among them, without those on ranges.
    pub fn tombstones(&self) -> u64 {
        self.tombstones.load(Relaxed)
    }
    /// Bytes of their keys, and of their values as they were given.
    pub fn raw_bytes(&self) -> (u64, u64) {
        (self.key_bytes.load(Relaxed), self.value_bytes.load(Relaxed))
    }
    /// Both together, and those of all memtables that this one follows.
    pub fn written(&self) -> u64 {
        let (keys, values) = self.raw_bytes();
        self.before + keys + values
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
        MemCursor::new(Arc::clone(self))
    }

    // What a cursor needs. `walk` is its way through the order, which begins here.

    fn node(&self, i: u32) -> Node {
        match &self.index {
            Index::Hashed(table) => table.node(i),
            Index::Listed(list) => list.node(i),
        }
    }
    fn seek(&self, walk: &mut Option<Walk>, key: &[u8], seq: SeqNo, forward: bool) -> Option<u32> {
        let order = self.order;
        match &self.index {
            Index::Hashed(t) => {
                let walk = walk.get_or_insert_with(|| Walk::new(t, &self.batches));
                walk.seek(key, seq, forward, t, &self.batches)
            }
            Index::Listed(list) if forward => list.seek(key, seq, |n| self.key_of(n), order),
            Index::Listed(list) => list.seek_before(key, seq, |n| self.key_of(n), order),
        }
    }
    /// From now on entries are fetched ahead.
    fn walk_through(&self, walk: &mut Option<Walk>) {
        if let Index::Hashed(t) = &self.index {
            walk.get_or_insert_with(|| Walk::new(t, &self.batches)).through();
        }
    }
    fn end(&self, walk: &mut Option<Walk>, forward: bool) -> Option<u32> {
        match &self.index {
            Index::Hashed(t) => {
                let walk = walk.get_or_insert_with(|| Walk::new(t, &self.batches));
                walk.end(forward, t, &self.batches)
            }
            Index::Listed(list) if forward => list.first(),
            Index::Listed(list) => list.last(),
        }
    }
    fn step(&self, walk: &mut Option<Walk>, from: u32, forward: bool) -> Option<u32> {
        match &self.index {
            Index::Hashed(t) => walk.as_mut()?.step(forward, t, &self.batches),
            Index::Listed(list) if forward => list.next(from),
            Index::Listed(_) => {
                let node = self.node(from);
                self.seek(walk, self.key_of(&node), node.seq, false)
            }
        }
    }
}

#[cfg(test)]
mod arena_tests;
#[cfg(test)]
mod entries_tests;
#[cfg(test)]
mod hash_tests;
#[cfg(test)]
mod tests;
