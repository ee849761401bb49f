//! The memtable that does not pay for order: entries in the order of their arrival, found by hash,
//! sorted when a cursor first asks. For orders in which only identical bytes are the same key.
//!
//! Invariants: 1. one writer; it publishes the count of entries (release) after all else; 2.
//! readers of `get` take no lock and wait for nobody; 3. a cursor holds the order as of its first
//! positioning: every entry that its reader may see was there, because a reader's sequence number
//! is older than its cursor.

use super::arena::ArenaSlots;
use super::entries::{Entries, MemtableEntry};
use super::hash::HashIndex;
use super::sorted_entries::{
    EntryKeys, PrefixEncoding, SortItem, SortedEntries, shared_prefix_len,
};
use super::sync::{AtomicU32, AtomicU64};
use perigee_base::checksum::seeded_key_hash;
use perigee_base::pinned_slice::SharedBuffer;
use perigee_base::{EntryKind, Error, KeyComparator, Result, SeqNo};
use perigee_file::log::BatchOp;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Operations whose slots are fetched side by side, and entries on a way through all of them.
const PREFETCH_ENTRIES: usize = 32;
/// Of a long value so many bytes are fetched; the rest follows by itself.
const PREFETCH_BYTES_MAX: usize = 512;
/// Bytes that come from memory together.
const CACHE_LINE_BYTES: usize = 64;

/// The batches of a memtable.
pub type BatchSlots = ArenaSlots<SharedBuffer>;

/// Seeds the hash of keys in memtables that are made from now on, in the whole process, unless that
/// was done before. A number that nobody can guess: keys could be made that all have one hash, and
/// then each insert would pass all others.
pub fn seed_key_hashes(seed: u64) {
    let _ = SEED.compare_exchange(UNSEEDED, seed.max(UNSEEDED + 1), Relaxed, Relaxed);
}

/// The seed of new memtables. Not set in the simulation, so that runs are reproducible.
static SEED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(UNSEEDED);
const UNSEEDED: u64 = 0;

/// Entries found by hash.
#[derive(Debug)]
pub struct HashedEntries {
    comparator: KeyComparator,
    seed: u64,
    entries: Entries,
    index: HashIndex,
    /// Entries that readers may look at.
    published: AtomicU32,
    /// Bytes that all keys have in common; only the writer narrows it.
    common_prefix_len: AtomicU32,
    /// The order of the first entries. The lock guards the pointer only.
    sorted: RwLock<Arc<SortedEntries>>,
    sorted_bytes: AtomicU64,
    /// Held while somebody sorts: whoever also wants order waits for that. No I/O inside.
    sort_lock: Mutex<()>,
}

/// The keys of entries, in their batches.
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
    /// Empty; `expected`: keys that it will hold, as far as one can tell.
    pub fn new(order: KeyComparator, expected: u64) -> HashedEntries {
        HashedEntries {
            comparator: order,
            seed: SEED.load(Relaxed),
            entries: Entries::new(),
            index: HashIndex::new(expected),
            published: AtomicU32::new(0),
            common_prefix_len: AtomicU32::new(0),
            sorted: RwLock::new(Arc::new(SortedEntries::new(order))),
            sorted_bytes: AtomicU64::new(0),
            sort_lock: Mutex::new(()),
        }
    }

    /// The same with a seed of its own.
    #[cfg(test)]
    pub fn with_seed(self, seed: u64) -> HashedEntries {
        HashedEntries { seed, ..self }
    }
    /// Slots of the index that a search for `key` looks at.
    #[cfg(test)]
    pub fn probes(&self, key: &[u8]) -> usize {
        self.index.probes(self.hash(key))
    }
    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        seeded_key_hash(self.seed, key)
    }

    /// Different keys in it.
    pub fn distinct_keys(&self) -> u64 {
        self.index.distinct_keys()
    }
    /// Bytes of memory beside what inserts have returned: of its entries, and of its order, which
    /// readers made.
    pub fn memory_bytes(&self) -> u64 {
        self.entries.memory_bytes() + self.sorted_bytes.load(Relaxed)
    }
    /// Entry `i`, whose number a reader was given.
    #[inline]
    pub fn node(&self, i: u32) -> MemtableEntry {
        self.entries.node(i)
    }

    /// Adds operations, without those on ranges, of the batch in slot `slot`, whose buffer is
    /// `buf`; returns the bytes of memory newly taken.
    pub fn insert(
        &self,
        (slot, buf): (u32, &[u8]),
        base: u64,
        ops: &[(BatchOp, SeqNo)],
        batches: &BatchSlots,
    ) -> Result<u64> {
        let mut grown = 0;
        for ops in ops.chunks(PREFETCH_ENTRIES) {
            grown += self.index.reserve(ops.len() as u32)?;
            let mut hashes = [0; PREFETCH_ENTRIES];
            let mut seen = 0;
            for ((op, _), hash) in ops.iter().zip(&mut hashes) {
                *hash = self.hash(&buf[op.key.clone()]);
                seen |= self.index.prefetch_slot(*hash);
            }
            std::hint::black_box(seen);
            let points =
                |((op, _), _): &(&(BatchOp, SeqNo), u64)| op.kind != EntryKind::RangeDelete;
            for ((op, seq), hash) in ops.iter().zip(hashes).filter(points) {
                if op.key.end != op.value.start {
                    return Err(Error::internal("a value does not lie behind its key"));
                }
                let node = MemtableEntry {
                    batch: slot,
                    key: (op.key.start as u32, op.key.len() as u32),
                    value: (op.value.start as u32, op.value.len() as u32),
                    seq: seq.plus(base),
                    kind: op.kind,
                };
                self.insert_entry(&node, &buf[op.key.clone()], hash, batches)?;
            }
        }
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
        let spot = self.index.find_slot(hash, |e| keys.key(e) == key);
        let entry = self.entries.push(node, spot.older)?;
        self.index.set_slot(spot, hash, entry);
        if entry == 0 {
            self.common_prefix_len.store(
                if PrefixEncoding::can_skip_common(self.comparator) { key.len() as u32 } else { 0 },
                Relaxed,
            );
        }
        let common = self.common_prefix_len.load(Relaxed) as usize;
        if common > 0 && spot.older.is_none() {
            let first = &keys.key(0)[..common];
            if !key.starts_with(first) {
                self.common_prefix_len.store(shared_prefix_len(first, key) as u32, Relaxed);
            }
        }
        Ok(())
    }

    /// The newest version of `key` that a reader at `at` sees.
    #[inline]
    pub fn get(&self, key: &[u8], at: SeqNo, batches: &BatchSlots) -> Option<MemtableEntry> {
        self.find_entry(key, at, batches).map(|e| self.entries.node(e))
    }

    /// The same by its number; [`Hashed::older`] leads on from there.
    #[inline]
    pub fn find_entry(&self, key: &[u8], at: SeqNo, batches: &BatchSlots) -> Option<u32> {
        if self.index.distinct_keys() == 0 {
            return None;
        }
        let keys = BatchKeys(&self.entries, batches);
        let newest = self.index.find(self.hash(key), |e| keys.key(e) == key)?;
        self.entries.visible_version(newest, at)
    }
    /// The version of its key before entry `i`.
    pub fn older_version(&self, i: u32) -> Option<u32> {
        self.entries.older_version(i)
    }

    /// All entries published so far, in order: what is not yet sorted is sorted now.
    pub fn sorted_entries(&self, batches: &BatchSlots) -> Arc<SortedEntries> {
        let upto = self.published.load(Acquire);
        let known = || Arc::clone(&self.sorted.read().unwrap_or_else(PoisonError::into_inner));
        let at_hand = known();
        if at_hand.entry_count >= upto {
            return at_hand;
        }
        drop(at_hand);
        let _one_at_a_time = self.sort_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known();
        if before.entry_count >= upto {
            return before;
        }
        let upto = self.published.load(Acquire);
        let keys = BatchKeys(&self.entries, batches);
        let now =
            Arc::new(before.extend_to(upto, self.common_prefix_len.load(Relaxed) as usize, &keys));
        *self.sorted.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&now);
        self.sorted_bytes.store(u64::from(upto) * size_of::<SortItem>() as u64, Relaxed);
        now
    }

    /// The keys of the entries newer than `since`, the newest first, if there are at most `most`:
    /// without a sort.
    pub fn recent_keys<'a>(
        &'a self,
        since: SeqNo,
        most: usize,
        batches: &'a BatchSlots,
    ) -> Option<impl Iterator<Item = &'a [u8]>> {
        let all = self.published.load(Acquire);
        let last = u32::try_from(most).ok().and_then(|most| all.checked_sub(most)?.checked_sub(1));
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

    /// How many entries lie between two places in entry order (`None`: to that end).
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

/// A position in the order of a [`Hashed`]. Either way may be gone from any place.
#[derive(Debug)]
pub struct SortedEntriesCursor {
    sorted: Arc<SortedEntries>,
    /// For each run, the first item that is not before the place. Going forward the current item is
    /// one of these, going backward it is right before one of these.
    positions: Vec<usize>,
    /// The run of the current item.
    current_run: usize,
    forward: bool,
    /// On a way through everything: for each run, the first item that was not fetched yet.
    prefetched: Option<Vec<usize>>,
}

impl SortedEntriesCursor {
    /// Over everything, not positioned.
    pub fn new(table: &HashedEntries, batches: &BatchSlots) -> SortedEntriesCursor {
        let sorted = table.sorted_entries(batches);
        SortedEntriesCursor {
            positions: vec![0; sorted.runs.len()],
            sorted,
            current_run: 0,
            forward: true,
            prefetched: None,
        }
    }

    /// From now on entries are fetched ahead: it goes forward, through all of them.
    pub fn enable_prefetch(&mut self) {
        self.prefetched = Some(vec![0; self.positions.len()]);
    }

    /// Touches the next entries of a run, their keys and values: loads from memory that do not wait
    /// for each other, where stepping would wait for each in turn.
    #[cold]
    fn prefetch_run(&mut self, run: usize, table: &HashedEntries, batches: &BatchSlots) {
        let (Some(fetched), items) = (&mut self.prefetched, &self.sorted.runs[run]) else { return };
        let from = self.positions[run];
        let items = &items[from..items.len().min(from + PREFETCH_ENTRIES)];
        fetched[run] = from + items.len();
        let mut nodes = [None; PREFETCH_ENTRIES];
        nodes
            .iter_mut()
            .zip(items)
            .for_each(|(n, i)| *n = Some(table.node(super::sorted_entries::item_entry(*i))));
        let mut seen = 0;
        for n in nodes.iter().flatten() {
            let Some(buffer) = batches.get(n.batch) else { continue };
            let (start, end) = (n.key.0 as usize, n.value.0 as usize + n.value.1 as usize);
            let end = end.min(start + PREFETCH_BYTES_MAX);
            (start..end).step_by(CACHE_LINE_BYTES).for_each(|at| seen |= buffer[at]);
            seen |= end.checked_sub(1).map_or(0, |last| buffer[last]);
        }
        std::hint::black_box(seen);
    }

    /// To the first entry at or behind (key, seq), or (not `forward`) to the last before it.
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
        self.select_run(forward, &keys)
    }
    /// To the first entry, or (not `forward`) to the last.
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
        if self.prefetched.is_some() && forward {
            (0..self.positions.len()).for_each(|run| self.prefetch_run(run, table, batches));
        }
        self.select_run(forward, &BatchKeys(&table.entries, batches))
    }
    /// To the next entry, or (not `forward`) to the one before; it is on an entry.
    pub fn step(
        &mut self,
        forward: bool,
        table: &HashedEntries,
        batches: &BatchSlots,
    ) -> Option<u32> {
        // On turning round the current item already lies on the other side of the place.
        if self.forward == forward {
            let at = &mut self.positions[self.current_run];
            *at = if forward { *at + 1 } else { *at - 1 };
            let next = *at;
            if self.prefetched.as_ref().is_some_and(|f| next >= f[self.current_run]) {
                self.prefetch_run(self.current_run, table, batches);
            }
        }
        self.select_run(forward, &BatchKeys(&table.entries, batches))
    }

    #[inline]
    fn candidate(&self, run: usize, forward: bool) -> Option<SortItem> {
        let i = if forward { self.positions[run] } else { self.positions[run].checked_sub(1)? };
        self.sorted.runs[run].get(i).copied()
    }

    /// The smallest item behind the place, or (not `forward`) the largest before it. Linear: there
    /// are few runs.
    #[inline]
    fn select_run(&mut self, forward: bool, keys: &impl EntryKeys) -> Option<u32> {
        self.forward = forward;
        let mut best: Option<(usize, SortItem)> = None;
        for run in 0..self.positions.len() {
            let Some(item) = self.candidate(run, forward) else { continue };
            let better = best.is_none_or(|(_, b)| {
                super::sorted_entries::cmp_items(self.sorted.encoding.comparator, keys, item, b)
                    .is_lt()
                    == forward
            });
            if better {
                best = Some((run, item));
            }
        }
        let (run, item) = best?;
        self.current_run = run;
        Some(super::sorted_entries::item_entry(item))
    }
}
