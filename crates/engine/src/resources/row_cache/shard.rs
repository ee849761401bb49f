//! [`RowShard`]: a part of the row cache, under one lock. A hash table with linear probing, whose
//! slots refer to the rows; what is compared and returned is in the row, next to its key. So a hit
//! reads two places in memory, which matters when they are not in the caches of the processor.
//!
//! Rows are found by the hash of their key: of two keys with the same hash only one is cached, and
//! a change of one removes the other.

use super::ghosts::RowGhosts;
use super::{CachedRow, RowCacheTotals, RowKey};
use crate::limits::{ROW_CACHE_ROWS_PER_SHARD_MIN, ROW_CACHE_SLOTS_MIN, ROW_CACHE_WINDOW_LOOKUPS};
use perigee_base::{Bytes, Expiry, FamilyId, PinnedSlice, SeqNo};
use std::sync::Arc;

/// Size of the header and the rounding of the allocation of a row.
const ALLOCATION_BYTES: u64 = 24;
/// Below this hit rate, in percent, most lookups of a full shard are skipped: misses then cost more
/// than the hits save.
const HIT_PERCENT_LOW: u64 = 20;
/// From this hit rate on, in percent, all lookups are served again.
const HIT_PERCENT_HIGH: u64 = 30;
/// The bit of a hash that a slot uses as the CLOCK reference bit: the row was found since the hand
/// last passed.
const REFERENCED: u64 = 1;

/// Encoded before the key of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowHeader {
    /// The result is valid from here on.
    seq: SeqNo,
    expiry: Option<Expiry>,
    family: FamilyId,
    key_len: u32,
    /// False: the key does not exist.
    exists: bool,
}

/// Bits of the encoded key length.
const EXISTS: u32 = 1 << 31;
const EXPIRES: u32 = 1 << 30;

impl RowHeader {
    const BYTES: usize = 24;

    fn encode(&self) -> [u8; Self::BYTES] {
        let flags =
            (u32::from(self.exists) * EXISTS) | (u32::from(self.expiry.is_some()) * EXPIRES);
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&self.seq.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.expiry.map_or(0, |x| x.0).to_le_bytes());
        out[16..20].copy_from_slice(&self.family.0.to_le_bytes());
        out[20..].copy_from_slice(&(self.key_len | flags).to_le_bytes());
        out
    }
    #[inline]
    fn decode(row: &[u8]) -> Option<RowHeader> {
        let (seq, rest) = row.split_first_chunk()?;
        let (expiry, rest) = rest.split_first_chunk()?;
        let (family, rest) = rest.split_first_chunk()?;
        let key_len = u32::from_le_bytes(*rest.first_chunk()?);
        let expiry = Expiry(u64::from_le_bytes(*expiry));
        Some(RowHeader {
            seq: SeqNo(u64::from_le_bytes(*seq)),
            expiry: (key_len & EXPIRES != 0).then_some(expiry),
            family: FamilyId(u32::from_le_bytes(*family)),
            key_len: key_len & !(EXISTS | EXPIRES),
            exists: key_len & EXISTS != 0,
        })
    }
    /// Returns the position of the value in the row.
    fn value_start(&self) -> usize {
        Self::BYTES + self.key_len as usize
    }
}

/// A slot of the hash table.
#[derive(Clone, Debug, Default)]
struct RowSlot {
    /// The hash of the key, with the bit [`REFERENCED`].
    hash: u64,
    /// Header, key and value.
    row: Option<Arc<[u8]>>,
}

/// Lookups since the hit rate was last evaluated.
#[derive(Debug, Default)]
struct LookupWindow {
    lookups: u64,
    hits: u64,
}

/// See the module.
#[derive(Debug)]
pub struct RowShard {
    /// Bytes of the shard.
    bytes: u64,
    /// Those for slots and rows; the others are for ghosts.
    budget: u64,
    /// Bytes of slots and rows.
    used: u64,
    /// The newest operation on a key of this shard that may be visible.
    last_write: SeqNo,
    /// A power of two, or none.
    slots: Vec<RowSlot>,
    rows: usize,
    clock_hand: usize,
    ghosts: RowGhosts,
    /// Rows were evicted: from then on, rows are admitted at their second access.
    is_full: bool,
    window: LookupWindow,
    totals: RowCacheTotals,
    /// A row that is being encoded.
    buffer: Vec<u8>,
}

impl RowShard {
    /// Creates an empty shard of `bytes` bytes, of which the ghosts take some.
    pub fn new(bytes: u64) -> RowShard {
        RowShard {
            bytes,
            budget: bytes.saturating_sub(RowGhosts::bytes_for(bytes)),
            used: 0,
            last_write: SeqNo::ZERO,
            slots: Vec::new(),
            rows: 0,
            clock_hand: 0,
            ghosts: RowGhosts::default(),
            is_full: false,
            window: LookupWindow::default(),
            totals: RowCacheTotals::default(),
            buffer: Vec::new(),
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
        // Slots do not shrink: it is better to start again than to have slots and no rows.
        if slot_bytes(self.slots.len()) > self.budget / 2 {
            self.totals.evictions += self.rows as u64;
            (self.slots, self.rows, self.used) = (Vec::new(), 0, 0);
        }
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
        sum.rows += self.rows as u64;
        sum.used += self.used();
        sum.hits += self.totals.hits;
        sum.misses += self.totals.misses;
        sum.invalidations += self.totals.invalidations;
        sum.evictions += self.totals.evictions;
    }

    #[inline]
    fn home_of(&self, hash: u64) -> usize {
        // The lowest bit is not part of the hash.
        (hash >> 1) as usize & (self.slots.len() - 1)
    }
    /// Returns the slot with a hash.
    #[inline]
    fn position_of(&self, hash: u64) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home_of(hash);
        loop {
            let slot = &self.slots[at];
            slot.row.as_ref()?;
            if (slot.hash ^ hash) & !REFERENCED == 0 {
                return Some(at);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }
    /// Returns the row of a key for a reader at `at`, if it is cached and valid.
    #[inline]
    pub fn find(&mut self, key: &RowKey<'_>, oldest_valid: SeqNo, at: SeqNo) -> Option<CachedRow> {
        let position = self.position_of(key.hash)?;
        let slot = &mut self.slots[position];
        let row = slot.row.as_ref()?;
        let header = RowHeader::decode(row)?;
        let is_valid = header.seq >= oldest_valid && header.seq <= at;
        let start = header.value_start();
        if !is_valid
            || header.family != key.family
            || row.get(RowHeader::BYTES..start) != Some(key.key)
        {
            return None;
        }
        slot.hash |= REFERENCED;
        let value = header.exists.then(|| PinnedSlice::new(Arc::clone(row), start..row.len()));
        Some(CachedRow { value, expiry: header.expiry })
    }
    /// Counts a lookup. Returns true if the hit rate is to be evaluated.
    #[inline]
    pub fn count_lookup(&mut self, hit: bool) -> bool {
        self.totals.hits += u64::from(hit);
        self.totals.misses += u64::from(!hit);
        self.window.lookups += 1;
        self.window.hits += u64::from(hit);
        self.window.lookups >= ROW_CACHE_WINDOW_LOOKUPS
    }
    /// Returns whether the hit rate since the last evaluation is so low that lookups are useless;
    /// between the two limits it stays as it is. Until the shard is full, misses are useful, except
    /// for `uncached` ones.
    pub fn evaluate_hit_rate(&mut self, uncached: u64) -> Option<bool> {
        let LookupWindow { lookups, hits } = std::mem::take(&mut self.window);
        let is_filling = !self.is_full && uncached < lookups / 2;
        if !is_filling && hits * 100 < lookups * HIT_PERCENT_LOW {
            return Some(true);
        }
        (is_filling || hits * 100 >= lookups * HIT_PERCENT_HIGH).then_some(false)
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
        let charge = row_charge(RowHeader::BYTES + key.key.len() + data.len());
        if charge > self.budget / ROW_CACHE_ROWS_PER_SHARD_MIN {
            return;
        }
        let replaced = self.remove_hash(key.hash);
        if !replaced && self.is_full && !self.ghosts.record_access(key.hash, Bytes(self.bytes)) {
            return;
        }
        if !self.make_room(charge) {
            return;
        }
        let (family, key_len) = (key.family, key.key.len() as u32);
        let header = RowHeader { seq, expiry, family, key_len, exists: value.is_some() };
        let mut row = std::mem::take(&mut self.buffer);
        row.clear();
        [&header.encode()[..], key.key, data].iter().for_each(|part| row.extend_from_slice(part));
        self.place(RowSlot { hash: key.hash & !REFERENCED, row: Some(Arc::from(&row[..])) });
        self.rows += 1;
        self.used += charge;
        check!(
            self.used <= self.budget,
            "a shard of the row cache holds at most the bytes of its budget",
            self.used,
            self.budget
        );
        row.shrink_to(4 << 10);
        self.buffer = row;
    }
    /// Makes room for a row of `charge` bytes and its slot; at least a quarter of the slots stay
    /// empty. Returns false if there cannot be any.
    fn make_room(&mut self, charge: u64) -> bool {
        let is_crowded = (self.rows + 1) * 4 > self.slots.len() * 3;
        let more = self.slots.len().max(ROW_CACHE_SLOTS_MIN);
        if is_crowded && self.used + slot_bytes(more) + charge <= self.budget {
            let slots = vec![RowSlot::default(); self.slots.len() + more];
            let before = std::mem::replace(&mut self.slots, slots);
            before.into_iter().filter(|slot| slot.row.is_some()).for_each(|slot| self.place(slot));
            self.used += slot_bytes(more);
        } else if is_crowded && self.rows == 0 {
            return false;
        } else if is_crowded {
            self.evict_next();
        }
        while self.used + charge > self.budget && self.rows > 0 {
            self.evict_next();
        }
        self.used + charge <= self.budget
    }
    /// Puts a row into the first empty slot from its home on.
    fn place(&mut self, slot: RowSlot) {
        let mut at = self.home_of(slot.hash);
        while self.slots[at].row.is_some() {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = slot;
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
        let is_of = |slot: &&RowSlot| {
            let header = slot.row.as_ref().and_then(|row| RowHeader::decode(row));
            header.is_some_and(|header| header.family == family)
        };
        let hashes: Vec<u64> = self.slots.iter().filter(is_of).map(|slot| slot.hash).collect();
        for hash in hashes {
            self.remove_hash(hash);
        }
    }
    fn remove_hash(&mut self, hash: u64) -> bool {
        let position = self.position_of(hash);
        position.inspect(|at| self.remove_at(*at)).is_some()
    }
    /// Empties a slot, and moves the rows behind it so that each can be found from its home.
    fn remove_at(&mut self, at: usize) {
        let bytes = self.slots[at].row.take().map_or(0, |row| row.len());
        let charge = row_charge(bytes);
        check!(
            self.used >= charge && bytes > 0,
            "the bytes of a shard of the row cache include those of its rows",
            self.used,
            charge
        );
        self.used -= charge;
        self.rows -= 1;
        let mask = self.slots.len() - 1;
        let (mut empty, mut next) = (at, (at + 1) & mask);
        while self.slots[next].row.is_some() {
            let home = self.home_of(self.slots[next].hash);
            // The row may move if its home is not between the empty slot and its own.
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(empty) & mask {
                self.slots.swap(empty, next);
                empty = next;
            }
            next = (next + 1) & mask;
        }
    }
    /// Evicts the first row without a reference bit. Requires at least one row.
    fn evict_next(&mut self) {
        check!(self.rows > 0, "a shard over its budget holds a row", self.used);
        self.is_full = true;
        loop {
            self.clock_hand = (self.clock_hand + 1) & (self.slots.len() - 1);
            let slot = &mut self.slots[self.clock_hand];
            if slot.row.is_some() {
                if slot.hash & REFERENCED == 0 {
                    self.totals.evictions += 1;
                    return self.remove_at(self.clock_hand);
                }
                slot.hash &= !REFERENCED;
            }
        }
    }
}

fn slot_bytes(slots: usize) -> u64 {
    (slots * size_of::<RowSlot>()) as u64
}

fn row_charge(bytes: usize) -> u64 {
    bytes as u64 + ALLOCATION_BYTES
}
