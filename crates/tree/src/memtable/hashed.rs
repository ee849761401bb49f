//! The memtable that does not pay for order: entries in the order of their arrival, found by hash, sorted when a cursor
//! first asks. For orders in which only identical bytes are the same key.
//!
//! Invariants: 1. one writer; it publishes the count of entries (release) after all else; 2. readers of `get` take no lock
//! and wait for nobody; 3. a cursor holds the order as of its first positioning: every entry that its reader may see was
//! there, because a reader's sequence number is older than its cursor.

use super::arena::Slots;
use super::entries::{Entries, Node};
use super::hash::HashIndex;
use super::sorted::{Item, Keys, Prefix, Sorted, shared};
use super::sync::{AtomicU32, AtomicU64};
use perigee_base::checksum::seeded_key_hash;
use perigee_base::shared::Buffer;
use perigee_base::{EntryKind, Error, KeyOrder, Result, SeqNo};
use perigee_file::log::Op;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Operations whose slots are fetched side by side, and entries on a way through all of them.
const AHEAD: usize = 32;
/// Of a long value so many bytes are fetched; the rest follows by itself.
const FETCHED_MAX: usize = 512;
/// Bytes that come from memory together.
const LINE: usize = 64;

/// The batches of a memtable.
pub type Batches = Slots<Buffer>;

/// Seeds the hash of keys in memtables that are made from now on, in the whole process, unless that was done before. A number
/// that nobody can guess: keys could be made that all have one hash, and then each insert would pass all others.
pub fn seed_hashes(seed: u64) {
    let _ = SEED.compare_exchange(UNSEEDED, seed.max(UNSEEDED + 1), Relaxed, Relaxed);
}

/// The seed of new memtables. Not set in the simulation, so that runs are reproducible.
static SEED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(UNSEEDED);
const UNSEEDED: u64 = 0;

/// Entries found by hash.
#[derive(Debug)]
pub struct Hashed {
    order: KeyOrder,
    seed: u64,
    entries: Entries,
    index: HashIndex,
    /// Entries that readers may look at.
    published: AtomicU32,
    /// Bytes that all keys have in common; only the writer narrows it.
    common: AtomicU32,
    /// The order of the first entries. The lock guards the pointer only.
    sorted: RwLock<Arc<Sorted>>,
    sorted_bytes: AtomicU64,
    /// Held while somebody sorts: whoever also wants order waits for that. No I/O inside.
    sorting: Mutex<()>,
}

/// The keys of entries, in their batches.
struct KeysOf<'a>(&'a Entries, &'a Batches);

impl Keys for KeysOf<'_> {
    #[inline]
    fn key(&self, entry: u32) -> &[u8] {
        let (batch, start, len) = self.0.key(entry);
        let buffer = self.1.get(batch).expect("an entry's batch is in its slot before the entry is written");
        &buffer[start..start + len]
    }
}

impl Hashed {
    /// Empty; `expected`: keys that it will hold, as far as one can tell.
    pub fn new(order: KeyOrder, expected: u64) -> Hashed {
        Hashed {
            order,
            seed: SEED.load(Relaxed),
            entries: Entries::new(),
            index: HashIndex::new(expected),
            published: AtomicU32::new(0),
            common: AtomicU32::new(0),
            sorted: RwLock::new(Arc::new(Sorted::new(order))),
            sorted_bytes: AtomicU64::new(0),
            sorting: Mutex::new(()),
        }
    }

    /// The same with a seed of its own.
    #[cfg(test)]
    pub fn seeded(self, seed: u64) -> Hashed {
        Hashed { seed, ..self }
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
    pub fn keys(&self) -> u64 {
        self.index.keys()
    }
    /// Bytes of memory beside what inserts have returned: of its entries, and of its order, which readers made.
    pub fn memory_bytes(&self) -> u64 {
        self.entries.memory_bytes() + self.sorted_bytes.load(Relaxed)
    }
    /// Entry `i`, whose number a reader was given.
    #[inline]
    pub fn node(&self, i: u32) -> Node {
        self.entries.node(i)
    }

    /// Adds operations, without those on ranges, of the batch in slot `slot`, whose buffer is `buf`; returns the bytes of
    /// memory newly taken.
    pub fn insert(
        &self,
        (slot, buf): (u32, &[u8]),
        base: u64,
        ops: &[(Op, SeqNo)],
        batches: &Batches,
    ) -> Result<u64> {
        let mut grown = 0;
        for ops in ops.chunks(AHEAD) {
            grown += self.index.reserve(ops.len() as u32)?;
            let mut hashes = [0; AHEAD];
            let mut seen = 0;
            for ((op, _), hash) in ops.iter().zip(&mut hashes) {
                *hash = self.hash(&buf[op.key.clone()]);
                seen |= self.index.touch(*hash);
            }
            std::hint::black_box(seen);
            let points = |((op, _), _): &(&(Op, SeqNo), u64)| op.kind != EntryKind::RangeDelete;
            for ((op, seq), hash) in ops.iter().zip(hashes).filter(points) {
                if op.key.end != op.value.start {
                    return Err(Error::internal("a value does not lie behind its key"));
                }
                let node = Node {
                    batch: slot,
                    key: (op.key.start as u32, op.key.len() as u32),
                    value: (op.value.start as u32, op.value.len() as u32),
                    seq: seq.plus(base),
                    kind: op.kind,
                };
                self.insert_one(&node, &buf[op.key.clone()], hash, batches)?;
            }
        }
        self.published.store(self.entries.count(), Release);
        Ok(grown)
    }

    #[inline]
    fn insert_one(&self, node: &Node, key: &[u8], hash: u64, batches: &Batches) -> Result<()> {
        let keys = KeysOf(&self.entries, batches);
        let spot = self.index.spot(hash, |e| keys.key(e) == key);
        let entry = self.entries.push(node, spot.older)?;
        self.index.put(spot, hash, entry);
        if entry == 0 {
            self.common.store(if Prefix::skips(self.order) { key.len() as u32 } else { 0 }, Relaxed);
        }
        let common = self.common.load(Relaxed) as usize;
        if common > 0 && spot.older.is_none() {
            let first = &keys.key(0)[..common];
            if !key.starts_with(first) {
                self.common.store(shared(first, key) as u32, Relaxed);
            }
        }
        Ok(())
    }

    /// The newest version of `key` that a reader at `at` sees.
    #[inline]
    pub fn get(&self, key: &[u8], at: SeqNo, batches: &Batches) -> Option<Node> {
        self.find(key, at, batches).map(|e| self.entries.node(e))
    }

    /// The same by its number; [`Hashed::older`] leads on from there.
    #[inline]
    pub fn find(&self, key: &[u8], at: SeqNo, batches: &Batches) -> Option<u32> {
        if self.index.keys() == 0 {
            return None;
        }
        let keys = KeysOf(&self.entries, batches);
        let newest = self.index.find(self.hash(key), |e| keys.key(e) == key)?;
        self.entries.visible(newest, at)
    }
    /// The version of its key before entry `i`.
    pub fn older(&self, i: u32) -> Option<u32> {
        self.entries.older(i)
    }

    /// All entries published so far, in order: what is not yet sorted is sorted now.
    pub fn sorted(&self, batches: &Batches) -> Arc<Sorted> {
        let upto = self.published.load(Acquire);
        let known = || Arc::clone(&self.sorted.read().unwrap_or_else(PoisonError::into_inner));
        let at_hand = known();
        if at_hand.upto >= upto {
            return at_hand;
        }
        drop(at_hand);
        let _one_at_a_time = self.sorting.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known();
        if before.upto >= upto {
            return before;
        }
        let upto = self.published.load(Acquire);
        let keys = KeysOf(&self.entries, batches);
        let now = Arc::new(before.extend(upto, self.common.load(Relaxed) as usize, &keys));
        *self.sorted.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&now);
        self.sorted_bytes.store(u64::from(upto) * size_of::<Item>() as u64, Relaxed);
        now
    }

    /// The keys of the entries newer than `since`, the newest first, if there are at most `most`: without a sort.
    pub fn lately<'a>(
        &'a self,
        since: SeqNo,
        most: usize,
        batches: &'a Batches,
    ) -> Option<impl Iterator<Item = &'a [u8]>> {
        let all = self.published.load(Acquire);
        let last = u32::try_from(most).ok().and_then(|most| all.checked_sub(most)?.checked_sub(1));
        if last.is_some_and(|e| self.entries.seq(e) > since) {
            return None;
        }
        let newer = (0..all).rev().take_while(move |e| self.entries.seq(*e) > since);
        Some(newer.map(move |e| {
            let (batch, start, len) = self.entries.key(e);
            let buffer = batches.get(batch).expect("an entry's batch is in its slot before it is published");
            &buffer[start..start + len]
        }))
    }

    /// How many entries lie between two places in entry order (`None`: to that end).
    pub fn count(&self, from: Option<(&[u8], SeqNo)>, to: Option<(&[u8], SeqNo)>, batches: &Batches) -> u64 {
        let sorted = self.sorted(batches);
        let keys = KeysOf(&self.entries, batches);
        let rank = |at: Option<(&[u8], SeqNo)>, end: fn(&[Item]) -> usize| -> Vec<usize> {
            match at {
                Some((key, seq)) => sorted.bound(key, |e| self.entries.seq(e) <= seq, &keys).collect(),
                None => sorted.runs.iter().map(|r| end(r)).collect(),
            }
        };
        let (low, high) = (rank(from, |_| 0), rank(to, <[Item]>::len));
        low.iter().zip(high).map(|(low, high)| high.saturating_sub(*low) as u64).sum()
    }
}

/// A position in the order of a [`Hashed`]. Either way may be gone from any place.
#[derive(Debug)]
pub struct Walk {
    sorted: Arc<Sorted>,
    /// For each run, the first item that is not before the place. Going forward the current item is one of these, going
    /// backward it is right before one of these.
    at: Vec<usize>,
    /// The run of the current item.
    current: usize,
    forward: bool,
    /// On a way through everything: for each run, the first item that was not fetched yet.
    fetched: Option<Vec<usize>>,
}

impl Walk {
    /// Over everything, not positioned.
    pub fn new(table: &Hashed, batches: &Batches) -> Walk {
        let sorted = table.sorted(batches);
        Walk { at: vec![0; sorted.runs.len()], sorted, current: 0, forward: true, fetched: None }
    }

    /// From now on entries are fetched ahead: it goes forward, through all of them.
    pub fn through(&mut self) {
        self.fetched = Some(vec![0; self.at.len()]);
    }

    /// Touches the next entries of a run, their keys and values: loads from memory that do not wait for each other, where
    /// stepping would wait for each in turn.
    #[cold]
    fn fetch(&mut self, run: usize, table: &Hashed, batches: &Batches) {
        let (Some(fetched), items) = (&mut self.fetched, &self.sorted.runs[run]) else { return };
        let from = self.at[run];
        let items = &items[from..items.len().min(from + AHEAD)];
        fetched[run] = from + items.len();
        let mut nodes = [None; AHEAD];
        nodes.iter_mut().zip(items).for_each(|(n, i)| *n = Some(table.node(super::sorted::entry(*i))));
        let mut seen = 0;
        for n in nodes.iter().flatten() {
            let Some(buffer) = batches.get(n.batch) else { continue };
            let (start, end) = (n.key.0 as usize, n.value.0 as usize + n.value.1 as usize);
            let end = end.min(start + FETCHED_MAX);
            (start..end).step_by(LINE).for_each(|at| seen |= buffer[at]);
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
        table: &Hashed,
        batches: &Batches,
    ) -> Option<u32> {
        let keys = KeysOf(&table.entries, batches);
        let bounds = self.sorted.bound(key, |e| table.entries.seq(e) <= seq, &keys);
        self.at.iter_mut().zip(bounds).for_each(|(at, bound)| *at = bound);
        self.choose(forward, &keys)
    }
    /// To the first entry, or (not `forward`) to the last.
    pub fn end(&mut self, forward: bool, table: &Hashed, batches: &Batches) -> Option<u32> {
        self.at.iter_mut().zip(&self.sorted.runs).for_each(|(at, r)| *at = if forward { 0 } else { r.len() });
        if self.fetched.is_some() && forward {
            (0..self.at.len()).for_each(|run| self.fetch(run, table, batches));
        }
        self.choose(forward, &KeysOf(&table.entries, batches))
    }
    /// To the next entry, or (not `forward`) to the one before; it is on an entry.
    pub fn step(&mut self, forward: bool, table: &Hashed, batches: &Batches) -> Option<u32> {
        // On turning round the current item already lies on the other side of the place.
        if self.forward == forward {
            let at = &mut self.at[self.current];
            *at = if forward { *at + 1 } else { *at - 1 };
            let next = *at;
            if self.fetched.as_ref().is_some_and(|f| next >= f[self.current]) {
                self.fetch(self.current, table, batches);
            }
        }
        self.choose(forward, &KeysOf(&table.entries, batches))
    }

    #[inline]
    fn candidate(&self, run: usize, forward: bool) -> Option<Item> {
        let i = if forward { self.at[run] } else { self.at[run].checked_sub(1)? };
        self.sorted.runs[run].get(i).copied()
    }

    /// The smallest item behind the place, or (not `forward`) the largest before it. Linear: there are few runs.
    #[inline]
    fn choose(&mut self, forward: bool, keys: &impl Keys) -> Option<u32> {
        self.forward = forward;
        let mut best: Option<(usize, Item)> = None;
        for run in 0..self.at.len() {
            let Some(item) = self.candidate(run, forward) else { continue };
            let better = best.is_none_or(|(_, b)| {
                super::sorted::cmp(self.sorted.by.order, keys, item, b).is_lt() == forward
            });
            if better {
                best = Some((run, item));
            }
        }
        let (run, item) = best?;
        self.current = run;
        Some(super::sorted::entry(item))
    }
}
