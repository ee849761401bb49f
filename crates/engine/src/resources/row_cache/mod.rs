//! The row cache: results of point reads, values as well as "not found", within a byte budget. A
//! hit saves the search of memtables and tables. Independent of column families and views; it reads
//! nothing itself.
//!
//! **Why no read returns a stale row.** An entry is the result of reading key `k` as of sequence
//! number `s`. Invariant: while the entry `(k, s)` can be found, no visible operation on `k` has a
//! sequence number above `s`. So it is the result for every reader as of `s` or later.
//! 1. *Writers invalidate before their operations are visible.* In the commit section, before the
//!    visible sequence number reaches an operation `w` on `k`, the writer locks the shard of `k`,
//!    raises its `last_write` to `w` and removes the entry ([`RowCache::invalidate`]). Operations
//!    that change many keys (range deletes, bulk loads, transactions larger than memory, clearing a
//!    column family) raise the oldest valid sequence number of the column family to `w` instead
//!    ([`RowCacheEpoch`]); entries below it are not found.
//! 2. *A reader fills only what no writer has touched since.* It notes a sequence number `s` that
//!    is visible *before* it pins its view (a snapshot: its own), so its view contains everything
//!    up to `s`. With the shard locked, it inserts the entry `(k, s)` only if `last_write` and the
//!    epoch are at most `s` ([`RowCache::fill`]). By 1, any operation on `k` above `s` is then not
//!    visible yet, so the reader has not seen it, and its writer will find the entry and remove it.
//! 3. *A reader uses only entries that are not newer than itself*: a reader as of `S` finds
//!    `(k, s)` only if `s <= S`. Everything up to `S` is visible, so by the invariant no operation
//!    on `k` is in `(s, S]`.
//!
//! Not cached: results that can change without an operation. These are expired rows and merge
//! operands, column families with a compaction filter, and those whose comparator treats different
//! bytes as one key. A cached row that has expired since counts as a miss.
//!
//! **What is cached.** Only gets fill the cache, scans do not. A full shard admits a row at its
//! second access ([`ghosts`]) and evicts by CLOCK, so rows that are read once do not displace rows
//! that are read repeatedly. A full shard with a low hit rate ([`shard`]) skips most lookups: reads
//! without a hot set then cost as much as without the cache. Absent keys are cached if a tombstone
//! or a search of tables without filters says so; a filter answers faster than the cache.

mod ghosts;
mod shard;

use crate::limits::{ROW_CACHE_SHARD_BYTES_MIN, ROW_CACHE_SHARDS_MAX};
use perigee_base::{Bytes, Expiry, FamilyId, PinnedSlice, SeqNo};
use shard::RowShard;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A shard with low hit rate serves one lookup in this many.
const LOOKUPS_PER_SAMPLE: u32 = 16;

/// The oldest valid sequence number of the cached rows of a column family.
#[derive(Debug, Default)]
pub struct RowCacheEpoch(AtomicU64);

impl RowCacheEpoch {
    /// Invalidates all cached rows of the column family that were read before `seq`. Called in the
    /// commit section, before `seq` is visible.
    pub fn advance(&self, seq: SeqNo) {
        self.0.fetch_max(seq.0, SeqCst);
    }
    /// Returns the oldest valid sequence number.
    #[inline]
    fn oldest_valid(&self) -> SeqNo {
        SeqNo(self.0.load(SeqCst))
    }
}

/// A key of a column family, with its hash.
#[derive(Clone, Copy, Debug)]
pub struct RowKey<'a> {
    family: FamilyId,
    key: &'a [u8],
    hash: u64,
}

impl<'a> RowKey<'a> {
    /// Combines the hash of a key with its column family.
    #[inline]
    pub fn new(family: FamilyId, key: &'a [u8], key_hash: u64) -> RowKey<'a> {
        let hash = key_hash ^ u64::from(family.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let hash = (hash ^ hash >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        RowKey { family, key, hash: hash ^ hash >> 32 }
    }
}

/// A read of a row, or the result of one.
#[derive(Clone, Copy, Debug)]
pub struct RowRead<'a> {
    /// The key.
    pub key: RowKey<'a>,
    /// The sequence number of the reader: see the module.
    pub seq: SeqNo,
    /// The epoch of its column family.
    pub epoch: &'a RowCacheEpoch,
}

/// A cached result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedRow {
    /// The value; `None`: the key does not exist.
    pub value: Option<PinnedSlice>,
    /// When it expires; `None`: never.
    pub expiry: Option<Expiry>,
}

/// The result of a lookup.
#[derive(Debug)]
pub enum RowLookup {
    /// The row is cached.
    Hit(CachedRow),
    /// The row is not cached. The reader should [`fill`](RowCache::fill) it.
    Miss,
    /// The cache was not searched, because its hit rate is low.
    Skipped,
}

/// Statistics of the row cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCacheTotals {
    /// Cached rows, including keys that do not exist.
    pub rows: u64,
    /// Bytes in use.
    pub used: u64,
    /// Lookups that found a row.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Rows removed because a writer changed them.
    pub invalidations: u64,
    /// Rows removed to make room.
    pub evictions: u64,
}

/// A shard with its flags, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct AlignedShard {
    shard: Mutex<RowShard>,
    /// The hit rate is low: most lookups are skipped.
    is_sampling: AtomicBool,
    /// Lookups skipped since the last sample. Concurrent updates may be lost.
    skipped: AtomicU32,
    /// Lookups of absent keys since the hit rate was last evaluated, whose results were not cached.
    uncached: AtomicU32,
}

/// Results of point reads within a byte budget.
#[derive(Debug)]
pub struct RowCache {
    shards: Box<[AlignedShard]>,
    /// The most bytes that the settings allow.
    capacity_max: u64,
    capacity: AtomicU64,
    /// Serializes changes of the capacity, so that the budgets of the shards and `capacity` agree.
    resize_lock: Mutex<()>,
    used: AtomicU64,
    /// Value of `used` at the last rebalancing of the memory budget.
    charged: AtomicU64,
    /// Change of `used` after which the memory budget is rebalanced.
    charge_step: u64,
}

impl RowCache {
    /// Creates a cache of `capacity` bytes, whose users rebalance the memory budget after changes
    /// of `charge_step` bytes.
    pub fn new(capacity: Bytes, charge_step: u64) -> RowCache {
        let capacity = capacity.0;
        let wanted = (capacity / ROW_CACHE_SHARD_BYTES_MIN).clamp(1, ROW_CACHE_SHARDS_MAX);
        let count = if wanted.is_power_of_two() { wanted } else { wanted.next_power_of_two() / 2 };
        let slot = || AlignedShard {
            shard: Mutex::new(RowShard::new(capacity / count)),
            is_sampling: AtomicBool::new(false),
            skipped: AtomicU32::new(0),
            uncached: AtomicU32::new(0),
        };
        let shards = (0..count).map(|_| slot()).collect();
        let (used, charged) = Default::default();
        let (capacity_max, capacity) = (capacity, AtomicU64::new(capacity));
        let resize_lock = Mutex::default();
        RowCache { shards, capacity_max, capacity, resize_lock, used, charged, charge_step }
    }
    #[inline]
    fn slot(&self, hash: u64) -> &AlignedShard {
        // The low bits choose the bucket of the map in the shard.
        &self.shards[(hash >> 48) as usize & (self.shards.len() - 1)]
    }
    /// Returns the cached result for a reader, if there is one.
    #[inline]
    pub fn lookup(&self, read: &RowRead<'_>) -> RowLookup {
        let slot = self.slot(read.key.hash);
        if slot.is_sampling.load(Relaxed) && slot.skip() {
            return RowLookup::Skipped;
        }
        let oldest_valid = read.epoch.oldest_valid();
        let mut shard = slot.lock();
        let found = shard.find(&read.key, oldest_valid, read.seq);
        if shard.count_lookup(found.is_some()) {
            let uncached = u64::from(slot.uncached.swap(0, Relaxed));
            if let Some(is_low) = shard.evaluate_hit_rate(uncached) {
                slot.is_sampling.store(is_low, Relaxed);
            }
        }
        found.map_or(RowLookup::Miss, RowLookup::Hit)
    }
    /// Caches what a reader has found, unless a writer has changed the row since. Returns true if
    /// the memory budget must be rebalanced.
    pub fn fill(&self, read: &RowRead<'_>, value: Option<&[u8]>, expiry: Option<Expiry>) -> bool {
        self.change(self.slot(read.key.hash), |shard| {
            // Loaded under the lock: see the module, 2.
            if shard.last_write() <= read.seq && read.epoch.oldest_valid() <= read.seq {
                shard.insert(&read.key, read.seq, value, expiry);
            }
        })
    }
    /// Counts a lookup that missed and whose result is not worth caching.
    pub fn count_uncached(&self, key: &RowKey<'_>) {
        self.slot(key.hash).uncached.fetch_add(1, Relaxed);
    }
    /// Removes the row of a key that a writer changes with an operation at `seq`. Called in the
    /// commit section, before `seq` is visible.
    pub fn invalidate(&self, key: &RowKey<'_>, seq: SeqNo) {
        self.change(self.slot(key.hash), |shard| shard.invalidate(key, seq));
    }
    /// Removes an expired row.
    pub fn remove_expired(&self, key: &RowKey<'_>) {
        self.change(self.slot(key.hash), |shard| shard.remove(key));
    }
    /// Removes the rows of a column family that was dropped or cleared, to free their memory.
    pub fn remove_family(&self, family: FamilyId) {
        for slot in &self.shards {
            self.change(slot, |shard| shard.remove_family(family));
        }
    }
    /// Changes a shard. Returns true if the bytes in use have changed so much that the memory budget
    /// must be rebalanced.
    fn change(&self, slot: &AlignedShard, change: impl FnOnce(&mut RowShard)) -> bool {
        let mut shard = slot.lock();
        let before = shard.used();
        change(&mut shard);
        let now = shard.used();
        if now == before {
            return false;
        }
        let used = if now > before {
            self.used.fetch_add(now - before, Relaxed) + (now - before)
        } else {
            self.used.fetch_sub(before - now, Relaxed) - (before - now)
        };
        let changed = used.abs_diff(self.charged.load(Relaxed)) >= self.charge_step;
        if changed {
            self.charged.store(used, Relaxed);
        }
        changed
    }
    /// Changes the number of bytes that may be in use; evicts rows if it shrinks.
    pub fn set_capacity(&self, capacity: u64) {
        let _one_at_a_time = self.resize_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if self.capacity.swap(capacity, Relaxed) == capacity {
            return;
        }
        for slot in &self.shards {
            self.change(slot, |shard| shard.set_budget(capacity / self.shards.len() as u64));
        }
    }
    /// Returns the number of bytes that may be in use.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Relaxed)
    }
    /// Returns the number of bytes that the settings allow.
    pub fn capacity_max(&self) -> u64 {
        self.capacity_max
    }
    /// Returns the bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Relaxed)
    }
    /// Returns the statistics.
    pub fn totals(&self) -> RowCacheTotals {
        let mut sum = RowCacheTotals::default();
        for slot in &self.shards {
            slot.lock().add_to(&mut sum);
        }
        sum
    }
}

impl AlignedShard {
    // Ignoring poisoning is sound: an entry of the map is added last and removed first, so a panic
    // leaves no row that can be found and is not valid.
    fn lock(&self) -> MutexGuard<'_, RowShard> {
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Returns true if this lookup is to be skipped.
    #[inline]
    fn skip(&self) -> bool {
        let skipped = self.skipped.load(Relaxed) + 1;
        let is_sample = skipped >= LOOKUPS_PER_SAMPLE;
        self.skipped.store(if is_sample { 0 } else { skipped }, Relaxed);
        !is_sample
    }
}

#[cfg(test)]
mod tests;
