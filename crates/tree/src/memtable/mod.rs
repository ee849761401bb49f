//! The memtable: the newest entries of a family, in memory.
//!
//! Batches are kept as the buffers that were logged, small ones copied into chunks; entries point
//! into them. One writer at a time (the commit section), any number of readers without a lock. How
//! entries are found, nothing outside sees: by hash, and sorted when a cursor asks, where only
//! identical bytes are the same key; in a skip list where that is not so.

mod sync;
mod shared_batch;
pub mod arena;
pub mod entries;
pub mod hash;
pub mod sorted_entries;
pub mod hashed_entries;
mod copied_batches;
pub mod skiplist;
pub mod range_tombstones;
mod cursor;

pub use cursor::MemtableCursor;
pub use shared_batch::{BatchShare, SharedBatch};

use arena::ArenaSlots;
use copied_batches::CopiedBatches;
use entries::MemtableEntry;
use hashed_entries::{BatchSlots, HashedEntries, SortedEntriesCursor};
use perigee_base::pinned_slice::SharedBuffer;
use perigee_base::{EntryKind, Expiry, KeyComparator, PinnedSlice, Result, SeqNo, ValueRef};
use perigee_file::EntryValue;
use perigee_file::log::BatchOp;
use range_tombstones::MemtableRangeTombstones;
use shared_batch::BatchShares;
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
enum MemtableIndex {
    Hash(Box<HashedEntries>),
    SkipList(Box<SkipList>),
}

/// Entries of one family, newest last.
///
/// Invariants: 1. sequence numbers of inserts only grow; 2. an entry is linked after its batch is
/// in its slot.
#[derive(Debug)]
pub struct Memtable {
    comparator: KeyComparator,
    batches: BatchSlots,
    copied: CopiedBatches,
    index: MemtableIndex,
    range_tombstones: MemtableRangeTombstones,
    batch_shares: BatchShares,
    // Stored by the one writer, loaded by anybody.
    bytes: AtomicU64,
    entries: AtomicU64,
    first_seq: AtomicU64,
    last_seq: AtomicU64,
    tombstones: AtomicU64,
    key_bytes: AtomicU64,
    value_bytes: AtomicU64,
    /// Bytes of keys and values in the memtables before this one.
    written_before: u64,
    /// Tombstones in it that scans passed.
    skipped_tombstones: AtomicU64,
}

/// Adds to what only this thread writes just now: no other addition is lost.
fn add_relaxed(cell: &AtomicU64, n: u64) {
    cell.store(cell.load(Relaxed) + n, Relaxed);
}

impl Memtable {
    /// An empty memtable.
    pub fn new(order: KeyComparator) -> Memtable {
        Memtable::with_expected_keys(order, 0)
    }

    /// An empty memtable that will hold about `keys` different keys: so many as [`Memtable::keys`]
    /// of the one before.
    pub fn with_expected_keys(order: KeyComparator, keys: u64) -> Memtable {
        let index = if order.has_bytewise_equality() {
            MemtableIndex::Hash(Box::new(HashedEntries::new(order, keys)))
        } else {
            MemtableIndex::SkipList(Box::new(SkipList::new()))
        };
        Memtable {
            comparator: order,
            batches: ArenaSlots::new(),
            copied: CopiedBatches::default(),
            index,
            range_tombstones: MemtableRangeTombstones::default(),
            batch_shares: BatchShares::default(),
            bytes: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            first_seq: AtomicU64::new(0),
            last_seq: AtomicU64::new(0),
            tombstones: AtomicU64::new(0),
            key_bytes: AtomicU64::new(0),
            value_bytes: AtomicU64::new(0),
            written_before: 0,
            skipped_tombstones: AtomicU64::new(0),
        }
    }

    /// The same, counting [`Memtable::written`] on from where another is.
    pub fn with_predecessor(self, before: &Memtable) -> Memtable {
        Memtable { written_before: before.user_bytes_written(), ..self }
    }

    /// Scans passed so many more tombstones in it.
    pub fn add_skipped_tombstones(&self, tombstones: u64) {
        self.skipped_tombstones.fetch_add(tombstones, Relaxed);
    }
    /// Tombstones in it that scans passed, each as often as it was.
    pub fn skipped_tombstones(&self) -> u64 {
        self.skipped_tombstones.load(Relaxed)
    }

    /// Adds operations of one batch, whose buffer no other memtable holds; each has the sequence
    /// number `base` plus the one beside it. Called by one thread at a time.
    ///
    /// # Errors
    /// `NoMemory` if the memtable's address space (4 Gi entries) is exhausted.
    pub fn insert(&self, batch: &Arc<Vec<u8>>, base: u64, ops: &[(BatchOp, SeqNo)]) -> Result<()> {
        self.insert_shared(batch, base, ops, None)
    }

    /// The same; if other memtables hold the buffer too, `part` says which part of it this one is
    /// charged.
    pub fn insert_shared(
        &self,
        batch: &Arc<Vec<u8>>,
        base: u64,
        ops: &[(BatchOp, SeqNo)],
        part: Option<BatchShare<'_>>,
    ) -> Result<()> {
        if ops.is_empty() {
            return Ok(());
        }
        let slot = self.batches.push(SharedBuffer::Vector(Arc::clone(batch)))?;
        let grown = match part {
            None => batch.capacity() as u64 + BATCH_OVERHEAD,
            Some(part) => part.bytes + self.batch_shares.add(part),
        };
        self.link_entries((slot, batch), base, ops, grown)
    }

    /// Adds operations of a small batch by copying them: its buffer is not kept.
    ///
    /// # Errors
    /// As [`Memtable::insert`].
    pub fn insert_copied(&self, batch: &[u8], base: u64, ops: &[(BatchOp, SeqNo)]) -> Result<()> {
        let bytes = ops.iter().map(|(op, _)| op.value.end - op.key.start).sum();
        let (slot, chunk, mut grown) = self.copied.chunk_with_room(bytes, &self.batches)?;
        for (op, seq) in ops {
            let bytes = &batch[op.key.start..op.value.end];
            let at = chunk.append(bytes).ok_or_else(copied_batches::concurrent_writers_error)?;
            // In a batch the value lies right behind the key, and so it does here.
            let (value, end) = (at + op.key.len(), at + bytes.len());
            let moved =
                BatchOp { kind: op.kind, family: op.family, key: at..value, value: value..end };
            self.link_entries(
                (slot, chunk.bytes()),
                base,
                &[(moved, *seq)],
                std::mem::take(&mut grown),
            )?;
        }
        Ok(())
    }

    /// Links entries that lie in the buffer of slot `slot`, which is `batch`; `grown`: bytes taken
    /// for it.
    fn link_entries(
        &self,
        (slot, batch): (u32, &[u8]),
        base: u64,
        ops: &[(BatchOp, SeqNo)],
        mut grown: u64,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (ops.first(), ops.last()) else { return Ok(()) };
        let (mut keys, mut values, mut tombstones) = (0, 0, 0);
        for (op, seq) in ops {
            if let Some(range) = op.deleted_range_in(batch) {
                grown += self.range_tombstones.add(self.comparator, range, seq.plus(base));
            }
            keys += op.key.len() as u64;
            values += op.user_value_bytes();
            tombstones += u64::from(op.kind.is_tombstone());
        }
        grown += match &self.index {
            MemtableIndex::Hash(table) => table.insert((slot, batch), base, ops, &self.batches)?,
            MemtableIndex::SkipList(list) => self.insert_into_skiplist(list, slot, base, ops)?,
        };
        if self.first_seq.load(Relaxed) == 0 {
            self.first_seq.store(first.1.0 + base, Relaxed);
        }
        self.last_seq.store(last.1.0 + base, Release);
        add_relaxed(&self.entries, ops.len() as u64);
        add_relaxed(&self.bytes, grown);
        add_relaxed(&self.key_bytes, keys);
        add_relaxed(&self.value_bytes, values);
        add_relaxed(&self.tombstones, tombstones);
        Ok(())
    }

    fn insert_into_skiplist(
        &self,
        list: &SkipList,
        slot: u32,
        base: u64,
        ops: &[(BatchOp, SeqNo)],
    ) -> Result<u64> {
        let mut grown = 0;
        for (op, seq) in ops.iter().filter(|(op, _)| op.kind != EntryKind::RangeDelete) {
            let node = MemtableEntry {
                batch: slot,
                key: (op.key.start as u32, op.key.len() as u32),
                value: (op.value.start as u32, op.value.len() as u32),
                seq: seq.plus(base),
                kind: op.kind,
            };
            grown += list.insert(&node, |n| self.key_of(n), self.comparator)?;
        }
        Ok(grown)
    }

    fn buffer(&self, batch: u32) -> &SharedBuffer {
        self.batches.get(batch).expect("a linked entry's batch is in its slot (invariant 2)")
    }

    #[inline]
    fn key_of(&self, n: &MemtableEntry) -> &[u8] {
        &self.buffer(n.batch)[n.key.0 as usize..n.key.0 as usize + n.key.1 as usize]
    }

    fn entry_value(&self, n: &MemtableEntry) -> EntryValue {
        let start = n.value.0 as usize;
        let value =
            || PinnedSlice::new(self.buffer(n.batch).clone(), start..start + n.value.1 as usize);
        match self.value_of(n) {
            ValueRef::Tombstone | ValueRef::SingleDelete => EntryValue::Tombstone,
            ValueRef::InlineExpiring(_, x) => {
                EntryValue::ValueExpiring(value().skip_first(Expiry::BYTES), x)
            }
            ValueRef::Operand(_) => EntryValue::Operand(value()),
            _ => EntryValue::Value(value()),
        }
    }

    #[inline]
    fn value_of(&self, n: &MemtableEntry) -> ValueRef<'_> {
        let start = n.value.0 as usize;
        let stored = &self.buffer(n.batch)[start..start + n.value.1 as usize];
        ValueRef::decode(n.kind, stored).expect("the batch was decoded before it was inserted")
    }

    /// The newest version of `key` that a reader at `at` sees.
    pub fn get(&self, key: &[u8], at: SeqNo) -> Option<(SeqNo, EntryValue)> {
        let node = match &self.index {
            MemtableIndex::Hash(table) => table.get(key, at, &self.batches)?,
            MemtableIndex::SkipList(list) => {
                let node = list.node(list.seek(key, at, |n| self.key_of(n), self.comparator)?);
                self.comparator.keys_equal(self.key_of(&node), key).then_some(node)?
            }
        };
        Some((node.seq, self.entry_value(&node)))
    }

    /// The keys of the entries newer than `since`, each as often as it was written, the newest
    /// first. `None` if there are more than `most`, or if they cannot be told without going through
    /// all: then a cursor is the way.
    pub fn recent_keys(&self, since: SeqNo, most: usize) -> Option<impl Iterator<Item = &[u8]>> {
        match &self.index {
            MemtableIndex::Hash(table) => table.recent_keys(since, most, &self.batches),
            MemtableIndex::SkipList(_) => None,
        }
    }

    /// Shows `show` the versions of `key` that a reader at `at` sees, the newest first, until it
    /// has seen enough (false).
    pub fn for_each_version(
        &self,
        key: &[u8],
        at: SeqNo,
        mut show: impl FnMut(SeqNo, EntryValue) -> bool,
    ) {
        match &self.index {
            MemtableIndex::Hash(table) => {
                let mut next = table.find_entry(key, at, &self.batches);
                while let Some(i) = next {
                    let node = table.node(i);
                    if !show(node.seq, self.entry_value(&node)) {
                        return;
                    }
                    next = table.older_version(i);
                }
            }
            MemtableIndex::SkipList(list) => {
                let mut next = list.seek(key, at, |n| self.key_of(n), self.comparator);
                while let Some(i) = next {
                    let node = list.node(i);
                    let same = self.comparator.keys_equal(self.key_of(&node), key);
                    if !same || !show(node.seq, self.entry_value(&node)) {
                        return;
                    }
                    next = list.next(i);
                }
            }
        }
    }

    /// How many entries lie between two places in entry order (`None`: to that end). Where only
    /// identical bytes are the same key, exactly; else exactly up to a few hundred, then with a
    /// standard error of 6 %.
    pub fn count_between(&self, from: Option<(&[u8], SeqNo)>, to: Option<(&[u8], SeqNo)>) -> u64 {
        let n = match &self.index {
            MemtableIndex::Hash(table) => table.count_between(from, to, &self.batches),
            MemtableIndex::SkipList(list) => {
                list.count_between(from, to, |n| self.key_of(n), self.comparator)
            }
        };
        n.min(self.entries())
    }

    /// Different keys in it, if that is known: what the next memtable may expect.
    pub fn distinct_keys(&self) -> u64 {
        if let MemtableIndex::Hash(table) = &self.index { table.distinct_keys() } else { 0 }
    }

    /// Its range tombstones.
    pub fn range_tombstones(&self) -> &MemtableRangeTombstones {
        &self.range_tombstones
    }
    /// The newest range tombstone over `key` that a reader at `at` sees.
    pub fn covering_tombstone(&self, key: &[u8], at: SeqNo) -> Option<SeqNo> {
        self.range_tombstones
            .with_fragments(|list| list.fragment_covering(self.comparator, key)?.newest_visible(at))
            .flatten()
    }
    /// Bytes of memory it holds.
    pub fn bytes(&self) -> u64 {
        let index =
            if let MemtableIndex::Hash(table) = &self.index { table.memory_bytes() } else { 0 };
        self.bytes.load(Relaxed) + self.batches.memory_bytes() + index
    }
    /// Those of them that lie in buffers which memtables of other families hold as well.
    pub fn shared_batch_bytes(&self) -> u64 {
        self.batch_shares.bytes()
    }
    /// Bytes of an empty one.
    pub const EMPTY_BYTES: u64 = (size_of::<Memtable>() + size_of::<HashedEntries>()) as u64;
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
    pub fn user_bytes_written(&self) -> u64 {
        let (keys, values) = self.raw_bytes();
        self.written_before + keys + values
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
    pub fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor::new(Arc::clone(self))
    }

    // What a cursor needs. `walk` is its way through the order, which begins here.

    fn node(&self, i: u32) -> MemtableEntry {
        match &self.index {
            MemtableIndex::Hash(table) => table.node(i),
            MemtableIndex::SkipList(list) => list.node(i),
        }
    }
    fn seek(
        &self,
        walk: &mut Option<SortedEntriesCursor>,
        key: &[u8],
        seq: SeqNo,
        forward: bool,
    ) -> Option<u32> {
        let order = self.comparator;
        match &self.index {
            MemtableIndex::Hash(t) => {
                let walk = walk.get_or_insert_with(|| SortedEntriesCursor::new(t, &self.batches));
                walk.seek(key, seq, forward, t, &self.batches)
            }
            MemtableIndex::SkipList(list) if forward => {
                list.seek(key, seq, |n| self.key_of(n), order)
            }
            MemtableIndex::SkipList(list) => list.seek_before(key, seq, |n| self.key_of(n), order),
        }
    }
    /// From now on entries are fetched ahead.
    fn enable_prefetch(&self, walk: &mut Option<SortedEntriesCursor>) {
        if let MemtableIndex::Hash(t) = &self.index {
            walk.get_or_insert_with(|| SortedEntriesCursor::new(t, &self.batches))
                .enable_prefetch();
        }
    }
    fn seek_end(&self, walk: &mut Option<SortedEntriesCursor>, forward: bool) -> Option<u32> {
        match &self.index {
            MemtableIndex::Hash(t) => {
                let walk = walk.get_or_insert_with(|| SortedEntriesCursor::new(t, &self.batches));
                walk.seek_end(forward, t, &self.batches)
            }
            MemtableIndex::SkipList(list) if forward => list.first(),
            MemtableIndex::SkipList(list) => list.last(),
        }
    }
    fn step(
        &self,
        walk: &mut Option<SortedEntriesCursor>,
        from: u32,
        forward: bool,
    ) -> Option<u32> {
        match &self.index {
            MemtableIndex::Hash(t) => walk.as_mut()?.step(forward, t, &self.batches),
            MemtableIndex::SkipList(list) if forward => list.next(from),
            MemtableIndex::SkipList(_) => {
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
