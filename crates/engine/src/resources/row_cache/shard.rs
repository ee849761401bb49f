//! [`RowShard`]: a part of the row cache, under one lock. Finds rows by the hash of their key: of
//! two keys with the same 64-bit hash only one is cached, and a change of one removes the other.

use super::ghosts::RowGhosts;
use super::{CachedRow, RowCacheTotals, RowKey};
use crate::limits::{ROW_CACHE_COMPACT_MIN, ROW_CACHE_WINDOW_LOOKUPS};
use perigee_base::{Expiry, FamilyId, PinnedSlice, SeqNo};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Memory of a cached row besides its bytes: its slot in a vector that may be half empty, the entry
/// of the map, and the header and rounding of the allocation.
const ROW_BYTES: u64 = size_of::<Option<RowEntry>>() as u64 * 3 / 2 + 28 + 24;
/// Below this hit rate, in percent, most lookups of a full shard are skipped: a miss then costs
/// more than the hits save.
const HIT_PERCENT_LOW: u64 = 12;
/// From this hit rate on, in percent, all lookups are served again.
const HIT_PERCENT_HIGH: u64 = 20;
/// A row takes at most this part of the shard.
const ROWS_PER_SHARD_MIN: u64 = 8;

/// A cached row.
#[derive(Debug)]
struct RowEntry {
    hash: u64,
    /// The key, then the value.
    bytes: Arc<[u8]>,
    key_len: u32,
    family: FamilyId,
    /// The result is valid from here on.
    seq: SeqNo,
    expiry: Option<Expiry>,
    exists: bool,
    /// The CLOCK reference bit: it was found since the hand last passed.
    referenced: bool,
}

impl RowEntry {
    fn charge(bytes: usize) -> u64 {
        bytes as u64 + ROW_BYTES
    }
    #[inline]
    fn has_key(&self, key: &RowKey<'_>) -> bool {
        self.family == key.family
            && self.key_len as usize == key.key.len()
            && self.bytes[..self.key_len as usize] == *key.key
    }
}

/// Passes on hashes as they are.
#[derive(Default)]
struct PassHash(u64);

impl Hasher for PassHash {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, b| hash.rotate_left(8) ^ u64::from(*b));
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// See the module.
#[derive(Debug)]
pub struct RowShard {
    /// Bytes of the shard.
    bytes: u64,
    /// Those for rows; the others are for ghosts.
    budget: u64,
    /// Bytes of the rows.
    used: u64,
    /// The newest operation on a key of this shard that may be visible.
    last_write: SeqNo,
    /// Positions of the rows in `rows`, by hash.
    positions: HashMap<u64, u32, BuildHasherDefault<PassHash>>,
    /// The ring of the CLOCK.
    rows: Vec<Option<RowEntry>>,
    free: Vec<u32>,
    clock_hand: usize,
    ghosts: RowGhosts,
    /// Rows were evicted: from then on, rows are admitted at their second access.
    is_full: bool,
    /// Lookups and hits since the hit rate was last evaluated.
    window: (u64, u64),
    totals: RowCacheTotals,
}

impl RowShard {
    /// Creates an empty shard of `bytes` bytes, of which the ghosts take some.
    pub fn new(bytes: u64) -> RowShard {
        RowShard {
            bytes,
            budget: bytes.saturating_sub(RowGhosts::bytes_for(bytes)),
            used: 0,
            last_write: SeqNo::ZERO,
            positions: HashMap::default(),
            rows: Vec::new(),
            free: Vec::new(),
            clock_hand: 0,
            ghosts: RowGhosts::default(),
            is_full: false,
            window: (0, 0),
            totals: RowCacheTotals::default(),
        }
    }
    /// Returns the bytes in use.
    pub fn used(&self) -> u64 {
        self.used + self.ghosts.used_bytes()
    }
    /// Changes the bytes of the shard; evicts rows if they shrink.
    pub fn set_budget(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.budget = bytes.saturating_sub(RowGhosts::bytes_for(bytes));
        (self.ghosts, self.is_full) = (RowGhosts::default(), false);
        while self.used > self.budget {
            self.evict_next();
        }
    }
    /// Returns the sequence number of the last write to a key of the shard.
    pub fn last_write(&self) -> SeqNo {
        self.last_write
    }
    /// Adds the statistics to `sum`.
    pub fn add_to(&self, sum: &mut RowCacheTotals) {
        sum.rows += self.positions.len() as u64;
        sum.used += self.used();
        sum.hits += self.totals.hits;
        sum.misses += self.totals.misses;
        sum.invalidations += self.totals.invalidations;
        sum.evictions += self.totals.evictions;
    }

    /// Returns the row of a key for a reader at `at`, if it is cached and valid.
    #[inline]
    pub fn find(&mut self, key: &RowKey<'_>, oldest_valid: SeqNo, at: SeqNo) -> Option<CachedRow> {
        let position = *self.positions.get(&key.hash)?;
        let row = self.rows[position as usize].as_mut()?;
        if row.seq < oldest_valid || row.seq > at || !row.has_key(key) {
            return None;
        }
        row.referenced = true;
        let range = row.key_len as usize..row.bytes.len();
        let value = row.exists.then(|| PinnedSlice::new(Arc::clone(&row.bytes), range));
        Some(CachedRow { value, expiry: row.expiry })
    }
    /// Counts a lookup. Returns, from time to time, whether the hit rate of a full shard is low;
    /// between the two limits it stays as it is.
    #[inline]
    pub fn count_lookup(&mut self, hit: bool) -> Option<bool> {
        self.totals.hits += u64::from(hit);
        self.totals.misses += u64::from(!hit);
        self.window.0 += 1;
        self.window.1 += u64::from(hit);
        if self.window.0 < ROW_CACHE_WINDOW_LOOKUPS { None } else { self.evaluate_hit_rate() }
    }
    fn evaluate_hit_rate(&mut self) -> Option<bool> {
        let (lookups, hits) = std::mem::take(&mut self.window);
        if self.is_full && hits * 100 < lookups * HIT_PERCENT_LOW {
            return Some(true);
        }
        (!self.is_full || hits * 100 >= lookups * HIT_PERCENT_HIGH).then_some(false)
    }

    /// Caches a row, evicting others if necessary. A full shard does so at the second access.
    pub fn insert(
        &mut self,
        key: &RowKey<'_>,
        seq: SeqNo,
        value: Option<&[u8]>,
        expiry: Option<Expiry>,
    ) {
        let data = value.unwrap_or_default();
        let charge = RowEntry::charge(key.key.len() + data.len());
        if charge > self.budget / ROWS_PER_SHARD_MIN {
            return;
        }
        let replaced = self.remove_hash(key.hash);
        if !replaced && self.is_full && !self.ghosts.record_access(key.hash, self.bytes) {
            return;
        }
        while self.used + charge > self.budget {
            self.evict_next();
        }
        let row = RowEntry {
            hash: key.hash,
            bytes: key.key.iter().chain(data).copied().collect(),
            key_len: key.key.len() as u32,
            family: key.family,
            seq,
            expiry,
            exists: value.is_some(),
            referenced: false,
        };
        let position = match self.free.pop() {
            Some(position) => {
                self.rows[position as usize] = Some(row);
                position
            }
            None => {
                self.rows.push(Some(row));
                (self.rows.len() - 1) as u32
            }
        };
        self.positions.insert(key.hash, position);
        self.used += charge;
        check!(
            self.used <= self.budget,
            "a shard of the row cache holds at most the bytes of its budget",
            self.used,
            self.budget
        );
    }
    /// Removes the row of a key that an operation at `seq` changes, and prevents older readers from
    /// caching it.
    pub fn invalidate(&mut self, key: &RowKey<'_>, seq: SeqNo) {
        self.last_write = self.last_write.max(seq);
        self.totals.invalidations += u64::from(self.remove_hash(key.hash));
    }
    /// Removes the row of a key.
    pub fn remove(&mut self, key: &RowKey<'_>) {
        self.remove_hash(key.hash);
    }
    /// Removes the rows of a column family.
    pub fn remove_family(&mut self, family: FamilyId) {
        let of = |row: &RowEntry| (row.family == family).then_some(row.hash);
        let hashes: Vec<u64> = self.rows.iter().flatten().filter_map(of).collect();
        for hash in hashes {
            self.remove_hash(hash);
        }
    }
    fn remove_hash(&mut self, hash: u64) -> bool {
        let Some(position) = self.positions.remove(&hash) else { return false };
        let row = self.rows[position as usize].take();
        self.free.push(position);
        let charge = row.map_or(0, |row| RowEntry::charge(row.bytes.len()));
        check!(
            self.used >= charge && charge > 0,
            "the bytes of a shard of the row cache are the sum of those of its rows",
            self.used,
            charge
        );
        self.used -= charge;
        if self.rows.len() >= ROW_CACHE_COMPACT_MIN && self.positions.len() < self.rows.len() / 4 {
            self.compact_ring();
        }
        true
    }
    /// Evicts the first row without a reference bit. Requires at least one row.
    fn evict_next(&mut self) {
        check!(!self.positions.is_empty(), "a shard over its budget holds a row", self.used);
        self.is_full = true;
        loop {
            self.clock_hand = (self.clock_hand + 1) % self.rows.len();
            if let Some(row) = &mut self.rows[self.clock_hand]
                && !std::mem::take(&mut row.referenced)
            {
                let hash = row.hash;
                self.totals.evictions += 1;
                self.remove_hash(hash);
                return;
            }
        }
    }
    /// Removes the empty entries of the ring, which may have grown large while the shard held many
    /// small rows.
    fn compact_ring(&mut self) {
        self.rows.retain(Option::is_some);
        self.rows.shrink_to_fit();
        self.positions.shrink_to_fit();
        for (position, row) in self.rows.iter().flatten().enumerate() {
            self.positions.insert(row.hash, position as u32);
        }
        (self.free, self.clock_hand) = (Vec::new(), 0);
    }
}
