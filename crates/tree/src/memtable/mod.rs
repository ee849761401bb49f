//! The memtable: the newest entries of a column family, in memory.
//!
//! Batches are kept in the buffers that were logged, small ones are copied into chunks; entries
//! point into them. One writer at a time (in the commit section), any number of lock-free readers.
//! Two kinds of index, hidden behind one interface: if only identical bytes are equal keys, a hash
//! index, sorted in the background and when a cursor needs the order; otherwise a skip list.

mod sync;
mod shared_batch;
mod arena;
mod entries;
mod hash;
mod sorted_entries;
mod hashed_entries;
mod copied_batches;
mod skiplist;
mod range_tombstones;
mod empty_ranges;
mod combined_operands;
mod cursor;
mod key_versions;

pub use combined_operands::CombinedOperand;
pub use cursor::MemtableCursor;
pub use empty_ranges::SkippedRange;
pub use hashed_entries::seed_key_hashes;
pub use shared_batch::{BatchShare, SharedBatch};

use crate::limits::{RECENT_ENTRIES_MAX, SCAN_STEPS_MIN};
use arena::ArenaSlots;
use combined_operands::CombinedOperands;
use copied_batches::CopiedBatches;
use empty_ranges::EmptyRanges;
use entries::MemtableEntry;
use hashed_entries::{BatchBuffer, BatchSlots, HashedEntries, SortedEntriesCursor};
use perigee_base::{
    AtomicSeqNo, EntryKind, Expiry, KeyComparator, OpIndex, PinnedSlice, Result, SeqNo,
    SharedBuffer, ValueRef,
};
use perigee_file::EntryValue;
use perigee_file::log::BatchOp;
use range_tombstones::MemtableRangeTombstones;
use shared_batch::BatchShares;
use skiplist::SkipList;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, OnceLock};

/// Bytes charged per batch, in addition to its buffer and its slot.
const BATCH_OVERHEAD: u64 = 56;

/// Index over the entries.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // nearly all are hash indexes
enum MemtableIndex {
    Hash(HashedEntries),
    SkipList(SkipList),
}

/// Batches and the index over their entries. They take about 2 KB and are allocated by the first
/// insert, because a database may have thousands of column families with an empty memtable.
#[derive(Debug)]
struct MemtableContents {
    batches: BatchSlots,
    index: MemtableIndex,
    combined: CombinedOperands,
    scan_steps: ScanSteps,
}

/// Number of steps that scans have taken in a memtable. Readers write it, so it has a cache line of
/// its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct ScanSteps(AtomicU64);

/// Entries of one column family in write order, newest last.
///
/// Invariants: 1. sequence numbers of inserts only grow; 2. an entry is linked after its batch is
/// in its slot.
#[derive(Debug)]
pub struct Memtable {
    comparator: KeyComparator,
    /// Expected number of distinct keys.
    expected_keys: u64,
    contents: OnceLock<Box<MemtableContents>>,
    copied: CopiedBatches,
    range_tombstones: MemtableRangeTombstones,
    empty_ranges: EmptyRanges,
    batch_shares: BatchShares,
    // Stored by the single writer, loaded by any thread.
    bytes: AtomicU64,
    entries: AtomicU64,
    first_seq: AtomicSeqNo,
    last_seq: AtomicSeqNo,
    tombstones: AtomicU64,
    key_bytes: AtomicU64,
    value_bytes: AtomicU64,
    /// Bytes of keys and values in the preceding memtables.
    written_before: u64,
    /// Number of tombstones that scans have skipped.
    skipped_tombstones: AtomicU64,
}

/// Adds to a counter that only this thread writes, so that no concurrent addition can be lost.
fn add_relaxed(cell: &AtomicU64, n: u64) {
    cell.store(cell.load(Relaxed) + n, Relaxed);
}

/// Returns the number of the quarter of an octave that contains `n`: it grows by four when `n`
/// doubles.
fn quarter_octave(n: u64) -> u32 {
    let n = n.max(4);
    let octave = n.ilog2();
    octave * 4 + (n >> (octave - 2) & 3) as u32
}

impl Memtable {
    /// Creates an empty memtable.
    pub fn new(comparator: KeyComparator) -> Memtable {
        Memtable::with_expected_keys(comparator, 0)
    }

    /// Creates an empty memtable for about `keys` distinct keys, for example
    /// [`Memtable::distinct_keys`] of the previous one.
    pub fn with_expected_keys(comparator: KeyComparator, keys: u64) -> Memtable {
        Memtable {
            comparator,
            expected_keys: keys,
            contents: OnceLock::new(),
            copied: CopiedBatches::default(),
            range_tombstones: MemtableRangeTombstones::default(),
            empty_ranges: EmptyRanges::default(),
            batch_shares: BatchShares::default(),
            bytes: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            first_seq: AtomicSeqNo::default(),
            last_seq: AtomicSeqNo::default(),
            tombstones: AtomicU64::new(0),
            key_bytes: AtomicU64::new(0),
            value_bytes: AtomicU64::new(0),
            written_before: 0,
            skipped_tombstones: AtomicU64::new(0),
        }
    }

    /// Returns the contents; allocates them at the first insert.
    #[inline]
    fn init_contents(&self) -> &MemtableContents {
        self.contents.get_or_init(|| {
            let index = if self.comparator.has_bytewise_equality() {
                MemtableIndex::Hash(HashedEntries::new(self.comparator, self.expected_keys))
            } else {
                MemtableIndex::SkipList(SkipList::new())
            };
            Box::new(MemtableContents {
                batches: ArenaSlots::new(),
                index,
                combined: CombinedOperands::default(),
                scan_steps: ScanSteps::default(),
            })
        })
    }
    /// Returns the contents of a memtable that has an entry.
    #[inline]
    fn existing_contents(&self) -> &MemtableContents {
        self.contents.get().expect("a memtable with an entry has contents")
    }

    /// Continues the count of [`Memtable::user_bytes_written`] of the preceding memtable.
    pub fn with_predecessor(self, before: &Memtable) -> Memtable {
        Memtable { written_before: before.user_bytes_written(), ..self }
    }

    /// Takes over the empty ranges of the preceding memtable, into which nothing is written any
    /// more.
    pub fn with_empty_ranges_of(self, before: &Memtable) -> Memtable {
        Memtable { empty_ranges: before.empty_ranges.for_successor(), ..self }
    }
    /// Never notes an empty range: tables with entries of any sequence number may be added below.
    pub fn without_empty_ranges(self) -> Memtable {
        Memtable { empty_ranges: EmptyRanges::refusing(), ..self }
    }
    /// Returns the end of a range around `key` in which this memtable and all that is below it have
    /// no live entry for a reader at `at`.
    pub fn end_of_empty_range(&self, key: &[u8], at: SeqNo, installs: u64) -> Option<Vec<u8>> {
        self.empty_ranges.end_of(self.comparator, key, at, installs)
    }
    /// Notes that a scan of this memtable and all that is below it found no live entry in a range,
    /// and no entry newer than its sequence number.
    pub fn add_empty_range(&self, skipped: &SkippedRange<'_>) {
        let inside = |key: &[u8]| {
            self.comparator.cmp(skipped.begin, key).is_le()
                && self.comparator.cmp(key, skipped.end).is_lt()
        };
        // So many are checked in less time than the scan took.
        let limit = RECENT_ENTRIES_MAX.max(skipped.tombstones as usize / 8);
        self.empty_ranges.add(self.comparator, skipped, || {
            self.recent_keys(skipped.at, limit).is_none_or(|mut keys| keys.any(inside))
        });
    }

    /// Returns the unpredictable seed of the hash tables of memtables, for other hash tables of keys
    /// in memory.
    pub fn hash_seed() -> u64 {
        hashed_entries::key_hash_seed()
    }

    /// Adds to the number of tombstones that scans have skipped.
    pub fn add_skipped_tombstones(&self, tombstones: u64) {
        self.skipped_tombstones.fetch_add(tombstones, Relaxed);
    }
    /// Number of tombstones that scans have skipped, counted once per skip.
    pub fn skipped_tombstones(&self) -> u64 {
        self.skipped_tombstones.load(Relaxed)
    }
    /// Adds to the number of steps that scans have taken here. Returns true if it should be checked
    /// whether to flush the memtable: there are as many steps as entries, and an eighth to a quarter
    /// more than at the previous check.
    pub fn add_scan_steps(&self, steps: u64) -> bool {
        let Some(contents) = self.contents.get() else { return false };
        let before = contents.scan_steps.0.fetch_add(steps, Relaxed);
        let after = before.saturating_add(steps);
        after >= SCAN_STEPS_MIN.max(self.entries())
            && quarter_octave(before) < quarter_octave(after)
    }
    /// Number of steps that scans have taken here.
    pub fn scan_steps(&self) -> u64 {
        self.contents.get().map_or(0, |contents| contents.scan_steps.0.load(Relaxed))
    }

    /// Adds operations of one batch, whose buffer no other memtable holds. The sequence number of
    /// each is `base` plus its index. Only one thread at a time may call this.
    ///
    /// # Errors
    /// `NoMemory` if the memtable's address space (4 Gi entries) is exhausted.
    pub fn insert(
        &self,
        batch: &Arc<Vec<u8>>,
        base: SeqNo,
        ops: &[(BatchOp, OpIndex)],
    ) -> Result<()> {
        self.insert_shared(batch, base, ops, None)
    }

    /// Like [`Memtable::insert`]. If other memtables hold the buffer too, `share` is the part of it
    /// that this memtable is charged for.
    pub fn insert_shared(
        &self,
        batch: &Arc<Vec<u8>>,
        base: SeqNo,
        ops: &[(BatchOp, OpIndex)],
        share: Option<BatchShare<'_>>,
    ) -> Result<()> {
        if ops.is_empty() {
            return Ok(());
        }
        let slot = self.init_contents().batches.push(SharedBuffer::Vector(Arc::clone(batch)))?;
        let grown = match share {
            None => batch.capacity() as u64 + BATCH_OVERHEAD,
            Some(share) => share.bytes + self.batch_shares.add(share),
        };
        self.link_entries(BatchBuffer { slot, bytes: batch }, base, ops, grown)?;
        self.remove_written_ranges(batch, ops);
        Ok(())
    }

    /// Adds operations of a small batch by copying them; the batch's buffer is not kept.
    ///
    /// # Errors
    /// Same as [`Memtable::insert`].
    pub fn insert_copied(
        &self,
        batch: &[u8],
        base: SeqNo,
        ops: &[(BatchOp, OpIndex)],
    ) -> Result<()> {
        let bytes = ops.iter().map(|(op, _)| op.value.end - op.key.start).sum();
        let batches = &self.init_contents().batches;
        let (slot, chunk, mut grown) = self.copied.chunk_with_space(bytes, batches)?;
        for (op, index) in ops {
            let bytes = &batch[op.key.start..op.value.end];
            let at = chunk.append(bytes).ok_or_else(copied_batches::concurrent_writers_error)?;
            // The value directly follows the key, as it does in a batch.
            let (value, end) = (at + op.key.len(), at + bytes.len());
            let copied_op =
                BatchOp { kind: op.kind, family: op.family, key: at..value, value: value..end };
            self.link_entries(
                BatchBuffer { slot, bytes: chunk.bytes() },
                base,
                &[(copied_op, *index)],
                std::mem::take(&mut grown),
            )?;
        }
        self.remove_written_ranges(batch, ops);
        Ok(())
    }

    /// Removes the empty ranges into which the linked operations of a batch have written.
    fn remove_written_ranges(&self, batch: &[u8], ops: &[(BatchOp, OpIndex)]) {
        let written = ops.iter().filter(|(op, _)| !op.kind.is_delete());
        let keys = written.map(|(op, _)| &batch[op.key.start..op.key.end]);
        self.empty_ranges.remove_written(self.comparator, keys);
    }

    /// Links entries whose keys and values are in `batch`; `grown`:
    /// bytes allocated for it.
    fn link_entries(
        &self,
        batch: BatchBuffer<'_>,
        base: SeqNo,
        ops: &[(BatchOp, OpIndex)],
        mut grown: u64,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (ops.first(), ops.last()) else { return Ok(()) };
        let (mut keys, mut values, mut tombstones) = (0, 0, 0);
        let MemtableContents { batches, index: by_key, .. } = self.existing_contents();
        for (op, index) in ops {
            if let Some((begin, end)) = op.deleted_range_in(batch.bytes) {
                let seq = base.of_op(*index);
                grown += self.range_tombstones.add(self.comparator, begin..end, seq);
            }
            keys += op.key.len() as u64;
            values += op.user_value_bytes();
            tombstones += u64::from(op.kind.is_tombstone());
        }
        check_slow!(
            self.last_seq.load(Relaxed) < base.of_op(first.1) && first.1 <= last.1,
            "operations are inserted in commit order",
            self.last_seq,
            base,
            first.1,
            last.1
        );
        check_slow!(
            ops.iter().all(|(op, _)| op.value.end <= batch.bytes.len()),
            "operations lie inside their batch",
            batch.bytes.len()
        );
        grown += match by_key {
            MemtableIndex::Hash(table) => table.insert(batch, base, ops, batches)?,
            MemtableIndex::SkipList(list) => {
                self.insert_into_skiplist(list, batch.slot, base, ops)?
            }
        };
        if self.first_seq.load(Relaxed) == SeqNo::ZERO {
            self.first_seq.store(base.of_op(first.1), Relaxed);
        }
        self.last_seq.store(base.of_op(last.1), Release);
        add_relaxed(&self.entries, ops.len() as u64);
        add_relaxed(&self.bytes, grown);
        add_relaxed(&self.key_bytes, keys);
        add_relaxed(&self.value_bytes, values);
        add_relaxed(&self.tombstones, tombstones);
        check_slow!(
            self.tombstones() <= self.entries() && self.distinct_keys() <= self.entries(),
            "tombstones and keys are among the entries",
            self.tombstones(),
            self.distinct_keys(),
            self.entries()
        );
        Ok(())
    }

    fn insert_into_skiplist(
        &self,
        list: &SkipList,
        slot: u32,
        base: SeqNo,
        ops: &[(BatchOp, OpIndex)],
    ) -> Result<u64> {
        let mut grown = 0;
        for (op, index) in ops.iter().filter(|(op, _)| op.kind != EntryKind::RangeDelete) {
            let node = MemtableEntry {
                batch: slot,
                key: (op.key.start as u32, op.key.len() as u32),
                value: (op.value.start as u32, op.value.len() as u32),
                seq: base.of_op(*index),
                kind: op.kind,
            };
            grown += list.insert(&node, |n| self.key_of(n), self.comparator)?;
        }
        Ok(grown)
    }

    fn buffer(&self, batch: u32) -> &SharedBuffer {
        self.existing_contents()
            .batches
            .get(batch)
            .expect("a linked entry's batch is in its slot (invariant 2)")
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

    /// Returns the newest version of `key` visible at `at`.
    pub fn get(&self, key: &[u8], at: SeqNo) -> Option<(SeqNo, EntryValue)> {
        let MemtableContents { batches, index, .. } = &**self.contents.get()?;
        let node = match index {
            MemtableIndex::Hash(table) => table.get(key, at, batches)?,
            MemtableIndex::SkipList(list) => {
                let node = list.node(list.seek(key, at, |n| self.key_of(n), self.comparator)?);
                self.comparator.keys_equal(self.key_of(&node), key).then_some(node)?
            }
        };
        Some((node.seq, self.entry_value(&node)))
    }

    /// Returns the keys of the entries newer than `since`, newest first, once per write. Returns
    /// `None` if there are more than `limit`, or if the index cannot list them without a full scan:
    /// use a cursor instead.
    pub fn recent_keys(&self, since: SeqNo, limit: usize) -> Option<impl Iterator<Item = &[u8]>> {
        let newer = match self.contents.get().map(|c| (&c.index, &c.batches)) {
            Some((MemtableIndex::Hash(table), batches)) => {
                Some(table.recent_keys(since, limit, batches)?)
            }
            Some((MemtableIndex::SkipList(_), _)) => return None,
            None => None,
        };
        Some(newer.into_iter().flatten())
    }

    /// Returns the combined operand of `key`, if there is one.
    pub fn combined_operand(&self, key: &[u8]) -> Option<Arc<CombinedOperand>> {
        self.contents.get()?.combined.get(key)
    }
    /// Remembers a combined operand of `key` for later readers.
    pub fn remember_combined(&self, key: &[u8], combined: &Arc<CombinedOperand>) {
        self.existing_contents().combined.remember(key, combined);
    }

    /// Number of entries between two positions in entry order (`None`: unbounded on that side).
    /// With the hash index the result is exact; with the skip list it is exact up to a few hundred
    /// entries, and beyond that has a standard error of 6 %.
    pub fn count_between(&self, from: Option<(&[u8], SeqNo)>, to: Option<(&[u8], SeqNo)>) -> u64 {
        let Some(contents) = self.contents.get() else { return 0 };
        let n = match &contents.index {
            MemtableIndex::Hash(table) => table.count_between(from, to, &contents.batches),
            MemtableIndex::SkipList(list) => {
                list.count_between(from, to, |n| self.key_of(n), self.comparator)
            }
        };
        n.min(self.entries())
    }

    /// Number of distinct keys, 0 if unknown; an estimate for the next memtable.
    pub fn distinct_keys(&self) -> u64 {
        match self.contents.get().map(|c| &c.index) {
            Some(MemtableIndex::Hash(table)) => table.distinct_keys(),
            _ => 0,
        }
    }

    /// Returns the range tombstones.
    pub fn range_tombstones(&self) -> &MemtableRangeTombstones {
        &self.range_tombstones
    }
    /// Returns the newest range tombstone that covers `key` and is visible at `at`.
    pub fn covering_tombstone(&self, key: &[u8], at: SeqNo) -> Option<SeqNo> {
        self.range_tombstones.newest_covering(key, |seq| seq <= at)
    }
    /// Bytes of memory that the entries take.
    #[inline]
    pub fn bytes(&self) -> u64 {
        let Some(contents) = self.contents.get() else { return self.bytes.load(Relaxed) };
        let index =
            if let MemtableIndex::Hash(table) = &contents.index { table.memory_bytes() } else { 0 };
        let readers = contents.combined.memory_bytes();
        self.bytes.load(Relaxed) + contents.batches.memory_bytes() + index + readers
    }
    /// Bytes of memory that the first insert allocated, in addition to [`Memtable::bytes`]; 0
    /// before the first insert.
    pub fn contents_bytes(&self) -> u64 {
        if self.contents.get().is_some() { Memtable::CONTENTS_BYTES } else { 0 }
    }
    /// Size of the memory that the first insert allocates.
    pub const CONTENTS_BYTES: u64 = size_of::<MemtableContents>() as u64;
    /// Bytes of memory in buffers shared with memtables of other column families.
    pub fn shared_batch_bytes(&self) -> u64 {
        self.batch_shares.bytes()
    }
    /// Size of an empty memtable.
    pub const EMPTY_BYTES: u64 = size_of::<Memtable>() as u64;
    /// Number of entries.
    pub fn entries(&self) -> u64 {
        self.entries.load(Relaxed)
    }
    /// Number of tombstones, range tombstones excluded.
    pub fn tombstones(&self) -> u64 {
        self.tombstones.load(Relaxed)
    }
    /// Bytes of all keys, and of all values as the user wrote them.
    pub fn raw_bytes(&self) -> (u64, u64) {
        (self.key_bytes.load(Relaxed), self.value_bytes.load(Relaxed))
    }
    /// Bytes of keys and values in this memtable and all that precede it.
    pub fn user_bytes_written(&self) -> u64 {
        let (keys, values) = self.raw_bytes();
        self.written_before + keys + values
    }
    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0
    }
    /// Sequence number of the first operation (0: none).
    pub fn first_seq(&self) -> SeqNo {
        self.first_seq.load(Relaxed)
    }
    /// Sequence number of the last operation (0: none).
    pub fn last_seq(&self) -> SeqNo {
        self.last_seq.load(Acquire)
    }
    /// Creates a cursor, not positioned.
    pub fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor::new(Arc::clone(self))
    }

    /// Returns the hash index, if there is one, and the batches.
    fn hashed_entries(&self) -> Option<(&HashedEntries, &BatchSlots)> {
        let contents = self.contents.get()?;
        match &contents.index {
            MemtableIndex::Hash(table) => Some((table, &contents.batches)),
            MemtableIndex::SkipList(_) => None,
        }
    }
    /// Returns true if [`Memtable::sort_ahead`] should be called; once until it is.
    #[inline]
    pub fn take_sort_request(&self) -> bool {
        self.hashed_entries().is_some_and(|(table, _)| table.take_sort_request())
    }
    /// Sorts entries before a cursor needs their order. Called in a background thread.
    pub fn sort_ahead(&self) {
        if let Some((table, batches)) = self.hashed_entries() {
            table.sort_ahead(batches);
        }
    }
    /// Sorts all entries for a scan of all of them.
    pub fn sort_completely(&self) {
        if let Some((table, batches)) = self.hashed_entries() {
            table.sort_completely(batches);
        }
    }

    // Primitives of the cursor. `sorted_cursor` is its position in the sorted runs, created on
    // first use.

    fn node(&self, i: u32) -> MemtableEntry {
        match &self.existing_contents().index {
            MemtableIndex::Hash(table) => table.node(i),
            MemtableIndex::SkipList(list) => list.node(i),
        }
    }
    fn seek(
        &self,
        sorted_cursor: &mut Option<SortedEntriesCursor>,
        key: &[u8],
        seq: SeqNo,
        forward: bool,
    ) -> Option<u32> {
        let comparator = self.comparator;
        let MemtableContents { batches, index, .. } = &**self.contents.get()?;
        match index {
            MemtableIndex::Hash(t) => {
                let sorted_cursor =
                    sorted_cursor.get_or_insert_with(|| SortedEntriesCursor::new(t, batches));
                sorted_cursor.seek(key, seq, forward, t, batches)
            }
            MemtableIndex::SkipList(list) if forward => {
                list.seek(key, seq, |n| self.key_of(n), comparator)
            }
            MemtableIndex::SkipList(list) => {
                list.seek_before(key, seq, |n| self.key_of(n), comparator)
            }
        }
    }
    /// Enables prefetching of entries for a full forward scan.
    fn enable_prefetch(&self, sorted_cursor: &mut Option<SortedEntriesCursor>) {
        let Some((t, batches)) = self.hashed_entries() else { return };
        sorted_cursor.get_or_insert_with(|| SortedEntriesCursor::new(t, batches)).enable_prefetch();
    }
    fn seek_end(
        &self,
        sorted_cursor: &mut Option<SortedEntriesCursor>,
        forward: bool,
    ) -> Option<u32> {
        let MemtableContents { batches, index, .. } = &**self.contents.get()?;
        match index {
            MemtableIndex::Hash(t) => {
                let sorted_cursor =
                    sorted_cursor.get_or_insert_with(|| SortedEntriesCursor::new(t, batches));
                sorted_cursor.seek_end(forward, t, batches)
            }
            MemtableIndex::SkipList(list) if forward => list.first(),
            MemtableIndex::SkipList(list) => list.last(),
        }
    }
    fn step(
        &self,
        sorted_cursor: &mut Option<SortedEntriesCursor>,
        from: u32,
        forward: bool,
    ) -> Option<u32> {
        let MemtableContents { batches, index, .. } = self.existing_contents();
        match index {
            MemtableIndex::Hash(t) => sorted_cursor.as_mut()?.step(forward, t, batches),
            MemtableIndex::SkipList(list) if forward => list.next(from),
            MemtableIndex::SkipList(_) => {
                let node = self.node(from);
                self.seek(sorted_cursor, self.key_of(&node), node.seq, false)
            }
        }
    }
    /// Steps forward past versions of the key of entry `from`, as far as that is cheap.
    fn step_key(&self, sorted_cursor: &mut Option<SortedEntriesCursor>, from: u32) -> Option<u32> {
        match self.hashed_entries() {
            Some((table, batches)) => sorted_cursor.as_mut()?.step_key(table, batches),
            None => self.step(sorted_cursor, from, true),
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
