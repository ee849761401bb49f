//! The hash-indexed memtable: entries in insertion order, found by hash, and sorted in runs, most
//! of them in the background, the newest when a cursor needs the order. For comparators under which
//! only identical bytes are equal keys.
//!
//! Invariants: 1. one writer; it publishes the count of entries (release) after everything else; 2.
//! `get` takes no lock and never waits; 3. a cursor keeps the sorted runs as of its first
//! positioning: they contain every entry visible to its reader, because a reader's sequence number
//! is older than its cursor.

use super::arena::ArenaSlots;
use super::entries::{Entries, MemtableEntry};
use super::hash::HashIndex;
use super::sorted_entries::{
    EntryKeys, PrefixEncoding, SortItem, SortedEntries, are_versions, gallop, shared_prefix_len,
};
use super::sync::AtomicU32;
use crate::limits::UNSORTED_ENTRIES_MAX;
use crate::touch::touch;
use perigee_base::checksum::seeded_key_hash;
use perigee_base::{EntryKind, Error, KeyComparator, OpIndex, Result, SeqNo, SharedBuffer};
use perigee_file::log::BatchOp;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Number of operations whose index slots are prefetched together, and of entries that a full scan
/// prefetches.
const PREFETCH_ENTRIES: usize = 32;
/// The same for a scan of unknown length, and the number of entries that it reads before.
const SHORT_PREFETCH_ENTRIES: usize = 8;
const ENTRIES_BEFORE_PREFETCH: u32 = 5;
const _: () = assert!(SHORT_PREFETCH_ENTRIES <= PREFETCH_ENTRIES);

/// Batch buffers of a memtable, by slot.
pub type BatchSlots = ArenaSlots<SharedBuffer>;

/// The buffer of a batch and its slot.
#[derive(Clone, Copy, Debug)]
pub struct BatchBuffer<'a> {
    /// The slot.
    pub slot: u32,
    /// The buffer, which the operations point into.
    pub bytes: &'a [u8],
}

/// Seeds the key hashes of memtables created from now on, in the whole process; has no effect if a
/// seed was set before. The seed must be unpredictable: otherwise keys could be chosen that all
/// have the same hash, and each insert would probe all of them.
pub fn seed_key_hashes(seed: u64) {
    let _ = SEED.compare_exchange(UNSEEDED, seed.max(UNSEEDED + 1), Relaxed, Relaxed);
}
/// Returns the seed of the hashes of keys in memory.
pub fn key_hash_seed() -> u64 {
    SEED.load(Relaxed)
}

/// Seed of new memtables. Not set in the simulation, so that runs are reproducible.
static SEED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(UNSEEDED);
const UNSEEDED: u64 = 0;

/// Entries with a hash index.
#[derive(Debug)]
pub struct HashedEntries {
    comparator: KeyComparator,
    seed: u64,
    entries: Entries,
    index: HashIndex,
    /// Number of entries visible to readers.
    published: AtomicU32,
    /// Bytes of the prefix that all keys share; only the writer shortens it.
    common_prefix_len: AtomicU32,
    /// Sorted runs of the first entries. The lock guards the pointer only.
    sorted: RwLock<Arc<SortedEntries>>,
    /// Number of sorted entries.
    sorted_count: AtomicU32,
    /// A background thread was asked to sort.
    sort_requested: AtomicBool,
    /// Held while a thread sorts; other threads that need the order wait for it. No I/O while it is
    /// held.
    sort_lock: Mutex<()>,
}

/// Access to the keys of entries in their batches.
struct BatchKeys<'a>(&'a Entries, &'a BatchSlots);

impl EntryKeys for BatchKeys<'_> {
    #[inline]
    fn key(&self, entry: u32) -> &[u8] {
        let (batch, start, len) = self.0.key_location(entry);
        let buffer =
            self.1.get(batch).expect("an entry's batch is in its slot before the entry is written");
        &buffer[start..start + len]
    }
}

impl HashedEntries {
    /// Creates an empty index; `expected`: estimated number of keys.
    pub fn new(comparator: KeyComparator, expected: u64) -> HashedEntries {
        HashedEntries {
            comparator,
            seed: SEED.load(Relaxed),
            entries: Entries::new(),
            index: HashIndex::new(expected),
            published: AtomicU32::new(0),
            common_prefix_len: AtomicU32::new(0),
            sorted: RwLock::new(Arc::new(SortedEntries::new(comparator))),
            sorted_count: AtomicU32::new(0),
            sort_requested: AtomicBool::new(false),
            sort_lock: Mutex::new(()),
        }
    }

    /// Replaces the hash seed.
    #[cfg(test)]
    pub fn with_seed(self, seed: u64) -> HashedEntries {
        HashedEntries { seed, ..self }
    }
    /// Returns the number of index slots probed when searching for `key`.
    #[cfg(test)]
    pub fn probes(&self, key: &[u8]) -> usize {
        self.index.probes(self.hash(key))
    }
    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        seeded_key_hash(self.seed, key)
    }

    /// Number of distinct keys.
    pub fn distinct_keys(&self) -> u64 {
        self.index.distinct_keys()
    }
    /// Bytes of memory of the entries and of the sorted runs, in addition to those returned by
    /// inserts.
    pub fn memory_bytes(&self) -> u64 {
        let sorted = u64::from(self.sorted_count.load(Relaxed));
        self.entries.memory_bytes() + sorted * size_of::<SortItem>() as u64
    }
    /// Returns entry `i`, which must have been published.
    #[inline]
    pub fn node(&self, i: u32) -> MemtableEntry {
        self.entries.node(i)
    }

    /// Adds the operations of a batch, range operations excepted. Returns the bytes of memory newly allocated.
    pub fn insert(
        &self,
        batch: BatchBuffer<'_>,
        base: SeqNo,
        ops: &[(BatchOp, OpIndex)],
        batches: &BatchSlots,
    ) -> Result<u64> {
        let BatchBuffer { slot, bytes: buf } = batch;
        let mut grown = 0;
        for ops in ops.chunks(PREFETCH_ENTRIES) {
            grown += self.index.reserve(ops.len() as u32)?;
            let mut hashes = [0; PREFETCH_ENTRIES];
            let mut loaded = 0;
            for ((op, _), hash) in ops.iter().zip(&mut hashes) {
                *hash = self.hash(&buf[op.key.clone()]);
                loaded |= self.index.prefetch_slot(*hash);
            }
            std::hint::black_box(loaded);
            let points =
                |((op, _), _): &(&(BatchOp, OpIndex), u64)| op.kind != EntryKind::RangeDelete;
            for ((op, index), hash) in ops.iter().zip(hashes).filter(points) {
                if op.key.end != op.value.start {
                    return Err(Error::internal(
                        "value does not directly follow its key in the batch",
                    ));
                }
                let node = MemtableEntry {
                    batch: slot,
                    key: (op.key.start as u32, op.key.len() as u32),
                    value: (op.value.start as u32, op.value.len() as u32),
                    seq: base.of_op(*index),
                    kind: op.kind,
                };
                self.insert_entry(&node, &buf[op.key.clone()], hash, batches)?;
            }
        }
        check_slow!(
            self.published.load(Relaxed) <= self.entries.count(),
            "published entries stay published",
            self.entries.count()
        );
        self.published.store(self.entries.count(), Release);
        Ok(grown)
    }

    #[inline]
    fn insert_entry(
        &self,
        node: &MemtableEntry,
        key: &[u8],
        hash: u64,
        batches: &BatchSlots,
    ) -> Result<()> {
        let keys = BatchKeys(&self.entries, batches);
        let slot = self.index.find_slot(hash, |e| keys.key(e) == key);
        let entry = self.entries.push(node, slot.older)?;
        self.index.set_slot(slot, hash, entry);
        if entry == 0 {
            self.common_prefix_len.store(
                if PrefixEncoding::can_skip_common(self.comparator) { key.len() as u32 } else { 0 },
                Relaxed,
            );
        }
        let common = self.common_prefix_len.load(Relaxed) as usize;
        if common > 0 && slot.older.is_none() {
            let first = &keys.key(0)[..common];
            if !key.starts_with(first) {
                self.common_prefix_len.store(shared_prefix_len(first, key) as u32, Relaxed);
            }
        }
        Ok(())
    }

    /// Returns the newest version of `key` visible at `at`.
    #[inline]
    pub fn get(&self, key: &[u8], at: SeqNo, batches: &BatchSlots) -> Option<MemtableEntry> {
        self.find_entry(key, at, batches).map(|e| self.entries.node(e))
    }

    /// Like [`HashedEntries::get`], but returns the entry's number, for
    /// [`HashedEntries::older_version`].
    #[inline]
    pub fn find_entry(&self, key: &[u8], at: SeqNo, batches: &BatchSlots) -> Option<u32> {
        if self.index.distinct_keys() == 0 {
            return None;
        }
        let keys = BatchKeys(&self.entries, batches);
        let newest = self.index.find(self.hash(key), |e| keys.key(e) == key)?;
        self.entries.visible_version(newest, at)
    }
    /// Returns the previous version of the key of entry `i`.
    pub fn older_version(&self, i: u32) -> Option<u32> {
        self.entries.older_version(i)
    }

    /// Returns all entries published so far in sorted runs; sorts those that are not sorted yet.
    pub fn sorted_entries(&self, batches: &BatchSlots) -> Arc<SortedEntries> {
        let published = self.published.load(Acquire);
        let current = || Arc::clone(&self.sorted.read().unwrap_or_else(PoisonError::into_inner));
        let sorted = current();
        if sorted.entry_count >= published {
            return sorted;
        }
        drop(sorted);
        let _sort_guard = self.sort_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let before = current();
        if before.entry_count >= published {
            return before;
        }
        let published = self.published.load(Acquire);
        let keys = BatchKeys(&self.entries, batches);
        let extended = Arc::new(before.extend_to(
            published,
            self.common_prefix_len.load(Relaxed) as usize,
            &keys,
        ));
        check!(
            extended.entry_count >= published && extended.entry_count >= before.entry_count,
            "sorted entries include every published one",
            extended.entry_count,
            published
        );
        *self.sorted.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&extended);
        self.sorted_count.store(published, Relaxed);
        extended
    }

    /// Returns true if [`HashedEntries::sort_ahead`] should be called because of the number of
    /// unsorted entries; once until it is.
    #[inline]
    pub fn take_sort_request(&self) -> bool {
        let unsorted = self.published.load(Relaxed).saturating_sub(self.sorted_count.load(Relaxed));
        unsorted >= UNSORTED_ENTRIES_MAX && !self.sort_requested.swap(true, Relaxed)
    }

    /// Sorts the entries that are not sorted yet and merges runs of similar length, so that a
    /// cursor finds few runs and sorts few entries. Readers do not wait for the merges.
    pub fn sort_ahead(&self, batches: &BatchSlots) {
        self.sort_requested.store(false, Relaxed);
        let mut sorted = self.sorted_entries(batches);
        while let Some(pair) = sorted.runs_to_merge() {
            let keys = BatchKeys(&self.entries, batches);
            let merged = pair.merge(&keys);
            let _sort_guard = self.sort_lock.lock().unwrap_or_else(PoisonError::into_inner);
            let mut current = self.sorted.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(replaced) = current.replace_merged(&pair, merged) {
                *current = Arc::new(replaced);
            }
            sorted = Arc::clone(&current);
        }
    }

    /// Sorts all entries into a single run, for a scan of all of them.
    pub fn sort_completely(&self, batches: &BatchSlots) {
        let sorted = self.sorted_entries(batches);
        if sorted.runs.len() <= 1 {
            return;
        }
        let merged = Arc::new(sorted.merge_all(&BatchKeys(&self.entries, batches)));
        let _sort_guard = self.sort_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut current = self.sorted.write().unwrap_or_else(PoisonError::into_inner);
        if current.entry_count == merged.entry_count {
            *current = merged;
        }
    }

    /// Returns the keys of the entries newer than `since`, newest first, without sorting. Returns
    /// `None` if there are more than `limit`.
    pub fn recent_keys<'a>(
        &'a self,
        since: SeqNo,
        limit: usize,
        batches: &'a BatchSlots,
    ) -> Option<impl Iterator<Item = &'a [u8]>> {
        let all = self.published.load(Acquire);
        let last =
            u32::try_from(limit).ok().and_then(|limit| all.checked_sub(limit)?.checked_sub(1));
        if last.is_some_and(|e| self.entries.seq(e) > since) {
            return None;
        }
        let newer = (0..all).rev().take_while(move |e| self.entries.seq(*e) > since);
        Some(newer.map(move |e| {
            let (batch, start, len) = self.entries.key_location(e);
            let buffer =
                batches.get(batch).expect("an entry's batch is in its slot before it is published");
            &buffer[start..start + len]
        }))
    }

    /// Number of entries between two positions in entry order (`None`: unbounded on that side).
    pub fn count_between(
        &self,
        from: Option<(&[u8], SeqNo)>,
        to: Option<(&[u8], SeqNo)>,
        batches: &BatchSlots,
    ) -> u64 {
        let sorted = self.sorted_entries(batches);
        let keys = BatchKeys(&self.entries, batches);
        let rank = |at: Option<(&[u8], SeqNo)>, end: fn(&[SortItem]) -> usize| -> Vec<usize> {
            match at {
                Some((key, seq)) => {
                    sorted.lower_bounds(key, |e| self.entries.seq(e) <= seq, &keys).collect()
                }
                None => sorted.runs.iter().map(|r| end(r)).collect(),
            }
        };
        let (low, high) = (rank(from, |_| 0), rank(to, <[SortItem]>::len));
        low.iter().zip(high).map(|(low, high)| high.saturating_sub(*low) as u64).sum()
    }
}

/// Position in sorted runs. The cursor can step in both directions.
#[derive(Debug)]
pub struct SortedEntriesCursor {
    sorted: Arc<SortedEntries>,
    /// For each run, the first item that is not before the position. After a forward step the
    /// current item is one of these; after a backward step it directly precedes one of these.
    positions: Vec<usize>,
    /// The run of the current item.
    current_run: usize,
    /// The best item of the other runs in the direction of the last step.
    rival: Option<SortItem>,
    forward: bool,
    /// Entries that a forward scan has read, until prefetching begins.
    scanned: u32,
    prefetch: Option<Prefetch>,
}

/// What a forward scan has prefetched.
#[derive(Debug)]
struct Prefetch {
    /// True for a scan of all entries. Others prefetch fewer together, and no older versions of a
    /// key, because most readers skip them.
    all_entries: bool,
    /// For each run, the first item that was not prefetched yet.
    next: Vec<usize>,
}

impl SortedEntriesCursor {
    /// Creates a cursor over all published entries, not positioned.
    pub fn new(table: &HashedEntries, batches: &BatchSlots) -> SortedEntriesCursor {
        let sorted = table.sorted_entries(batches);
        SortedEntriesCursor {
            positions: vec![0; sorted.runs.len()],
            sorted,
            current_run: 0,
            rival: None,
            forward: true,
            scanned: 0,
            prefetch: None,
        }
    }

    /// Prefetches entries from now on, for a full forward scan.
    pub fn enable_prefetch(&mut self) {
        let next = vec![0; self.positions.len()];
        self.prefetch = Some(Prefetch { all_entries: true, next });
    }
    /// Forgets what was prefetched, at the start of a scan.
    fn reset_prefetch(&mut self) {
        self.scanned = 0;
        match &mut self.prefetch {
            Some(prefetch) if prefetch.all_entries => prefetch.next.fill(0),
            short => *short = None,
        }
    }

    /// Touches entries from the current one on, unless that was done: their records, keys and
    /// values. These loads run in parallel, whereas stepping would wait for each in turn. A scan
    /// that was not announced prefetches less, and only after some entries.
    #[inline]
    fn prefetch_ahead(&mut self, keys: &BatchKeys<'_>) {
        let run = self.current_run;
        match &self.prefetch {
            Some(prefetch) if self.positions[run] < prefetch.next[run] => {}
            Some(_) => self.prefetch_run(keys),
            None if self.scanned < ENTRIES_BEFORE_PREFETCH => self.scanned += 1,
            None => {
                let next = self.positions.clone();
                self.prefetch = Some(Prefetch { all_entries: false, next });
                self.prefetch_run(keys);
            }
        }
    }
    #[cold]
    fn prefetch_run(&mut self, BatchKeys(entries, batches): &BatchKeys<'_>) {
        let Some(Prefetch { all_entries, next }) = &mut self.prefetch else { return };
        let run = self.current_run;
        let (by, items, from) = (self.sorted.encoding, &self.sorted.runs[run], self.positions[run]);
        let mut nodes = [None; PREFETCH_ENTRIES];
        let count = if *all_entries { PREFETCH_ENTRIES } else { SHORT_PREFETCH_ENTRIES };
        let (mut at, mut last) = (from, None);
        for node in &mut nodes[..count] {
            if let (false, Some(last)) = (*all_entries, last) {
                at += gallop(&items[at..], |item| are_versions(by, *item, last));
            }
            let Some(item) = items.get(at) else { break };
            *node = Some(entries.node(super::sorted_entries::item_entry(*item)));
            (at, last) = (at + 1, Some(*item));
        }
        check_slow!(
            from <= at && at <= items.len(),
            "entries ahead of the position are prefetched",
            from,
            at
        );
        next[run] = at;
        let mut loaded = 0;
        for n in nodes.iter().flatten() {
            let Some(buffer) = batches.get(n.batch) else { continue };
            let end = n.value.0 as usize + n.value.1 as usize;
            loaded |= touch(&buffer[n.key.0 as usize..end]);
        }
        std::hint::black_box(loaded);
    }

    /// Moves to the first entry at or after (key, seq), or, if not `forward`, to the last one
    /// before it.
    pub fn seek(
        &mut self,
        key: &[u8],
        seq: SeqNo,
        forward: bool,
        table: &HashedEntries,
        batches: &BatchSlots,
    ) -> Option<u32> {
        let keys = BatchKeys(&table.entries, batches);
        let bounds = self.sorted.lower_bounds(key, |e| table.entries.seq(e) <= seq, &keys);
        self.positions.iter_mut().zip(bounds).for_each(|(at, bound)| *at = bound);
        self.reset_prefetch();
        self.select_run(forward, &keys)
    }
    /// Moves to the first entry, or if not `forward` to the last one.
    pub fn seek_end(
        &mut self,
        forward: bool,
        table: &HashedEntries,
        batches: &BatchSlots,
    ) -> Option<u32> {
        self.positions
            .iter_mut()
            .zip(&self.sorted.runs)
            .for_each(|(at, r)| *at = if forward { 0 } else { r.len() });
        self.reset_prefetch();
        self.select_run(forward, &BatchKeys(&table.entries, batches))
    }
    /// Moves to the next entry, or, if not `forward`, to the previous one. The cursor must be on an
    /// entry.
    pub fn step(
        &mut self,
        forward: bool,
        table: &HashedEntries,
        batches: &BatchSlots,
    ) -> Option<u32> {
        // After a change of direction the current item is already on the other side of the
        // position.
        let keys = BatchKeys(&table.entries, batches);
        if self.forward == forward {
            let at = &mut self.positions[self.current_run];
            *at = if forward { *at + 1 } else { *at - 1 };
            // Only the current run has moved: usually it has the next item as well.
            if let Some(item) = self.candidate(self.current_run, forward)
                && self.rival.is_none_or(|rival| self.comes_first(item, rival, &keys))
            {
                if forward {
                    self.prefetch_ahead(&keys);
                }
                return Some(super::sorted_entries::item_entry(item));
            }
        }
        self.select_run(forward, &keys)
    }

    /// Moves forward to the next entry that is not certainly a version of the current key. The
    /// cursor must be on an entry.
    pub fn step_key(&mut self, table: &HashedEntries, batches: &BatchSlots) -> Option<u32> {
        let by = self.sorted.encoding;
        let last = self.candidate(self.current_run, true).filter(|_| self.forward);
        let Some(last) = last.filter(|item| are_versions(by, *item, *item)) else {
            return self.step(true, table, batches);
        };
        let after_versions = |run: usize, from: usize| {
            let items = &self.sorted.runs[run][from..];
            from + gallop(items, |item| are_versions(by, *item, last))
        };
        let run = self.current_run;
        self.positions[run] = after_versions(run, self.positions[run]) - 1;
        if !self.rival.is_some_and(|rival| are_versions(by, rival, last)) {
            return self.step(true, table, batches);
        }
        for run in 0..self.positions.len() {
            self.positions[run] = after_versions(run, self.positions[run]);
        }
        self.select_run(true, &BatchKeys(&table.entries, batches))
    }

    #[inline]
    fn candidate(&self, run: usize, forward: bool) -> Option<SortItem> {
        let i = if forward { self.positions[run] } else { self.positions[run].checked_sub(1)? };
        self.sorted.runs[run].get(i).copied()
    }

    /// Returns true if a scan in the direction of the last step returns `a` before `b`.
    #[inline]
    fn comes_first(&self, a: SortItem, b: SortItem, keys: &impl EntryKeys) -> bool {
        let by = self.sorted.encoding;
        super::sorted_entries::cmp_items(by, keys, a, b).is_lt() == self.forward
    }

    /// Returns the smallest item after the position, or, if not `forward`, the largest before it.
    /// Linear in the number of runs, which is small.
    fn select_run(&mut self, forward: bool, keys: &BatchKeys<'_>) -> Option<u32> {
        self.forward = forward;
        let (mut best, mut rival): (Option<(usize, SortItem)>, Option<SortItem>) = (None, None);
        for run in 0..self.positions.len() {
            let Some(item) = self.candidate(run, forward) else { continue };
            if best.is_none_or(|(_, best)| self.comes_first(item, best, keys)) {
                rival = best.map(|(_, best)| best);
                best = Some((run, item));
            } else if rival.is_none_or(|rival| self.comes_first(item, rival, keys)) {
                rival = Some(item);
            }
        }
        let (run, item) = best?;
        (self.current_run, self.rival) = (run, rival);
        if forward {
            self.prefetch_ahead(keys);
        }
        Some(super::sorted_entries::item_entry(item))
    }
}
