//! From the hash of a key to its newest entry: open addressing in a table that doubles. One writer,
//! lock-free readers.
//!
//! ```text
//! slot, 64 bits:  entry number + 1, 32 | tag 32     0: empty
//! ```
//! The tag is the upper half of the key's hash; its low bits choose the first slot, so that
//! doubling needs no key.
//!
//! Invariants: 1. slots are stored with release, after the entry they name; they never become empty
//! again; 2. a larger table holds everything before it is made current (release); the smaller ones
//! stay until the memtable goes, because a reader may be in one: what that reader may see was in it
//! when the reader came; 3. a table is never full.
//!
//! Whether two keys are the same is asked of the caller: this room knows no keys.

use super::entries::index_memory_exhausted;
use super::sync::{AtomicU32, AtomicU64, zeroed_words};
use perigee_base::Result;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Tables of doubling size.
const TABLES: usize = 26;

/// The hash index.
#[derive(Debug)]
pub struct HashIndex {
    tables: [OnceLock<Box<[AtomicU64]>>; TABLES],
    /// Which table is current.
    current: AtomicU32,
    /// The first table has so many slots, as a power of two.
    first_log2: u32,
    /// Slots in use.
    used: AtomicU32,
}

/// Where an entry goes, and the entry that was there.
#[derive(Clone, Copy, Debug)]
pub struct IndexSlot {
    slot: usize,
    /// The newest entry of the same key.
    pub older: Option<u32>,
}

impl HashIndex {
    /// Empty, with room for `expected` keys before it grows.
    pub fn new(expected: u64) -> HashIndex {
        let slots = (expected.min(1 << 26) * 10 / 7 + 1).next_power_of_two();
        HashIndex {
            tables: [const { OnceLock::new() }; TABLES],
            current: AtomicU32::new(0),
            first_log2: slots.trailing_zeros().max(2),
            used: AtomicU32::new(0),
        }
    }

    /// Different keys in it.
    pub fn distinct_keys(&self) -> u64 {
        u64::from(self.used.load(Relaxed))
    }

    #[inline]
    fn table(&self) -> Option<&[AtomicU64]> {
        self.tables[self.current.load(Acquire) as usize].get().map(|t| &t[..])
    }

    /// The newest entry of a key; `same`: whether an entry is of it.
    #[inline]
    pub fn find(&self, hash: u64, mut same: impl FnMut(u32) -> bool) -> Option<u32> {
        let table = self.table()?;
        let mask = table.len() - 1;
        let tag = hash >> 32;
        let mut i = tag as usize & mask;
        loop {
            let slot = table[i].load(Acquire);
            if slot == 0 {
                return None;
            }
            if slot >> 32 == tag && same(slot as u32 - 1) {
                return Some(slot as u32 - 1);
            }
            i = (i + 1) & mask;
        }
    }

    /// Slots that a search for a key that is not there looks at.
    #[cfg(test)]
    pub fn probes(&self, hash: u64) -> usize {
        let Some(table) = self.table() else { return 0 };
        let first = (hash >> 32) as usize;
        (0..table.len())
            .take_while(|i| table[(first + i) & (table.len() - 1)].load(Relaxed) != 0)
            .count()
    }

    /// Makes room for `n` more keys, by the writer; returns the bytes of memory newly taken.
    pub fn reserve(&self, n: u32) -> Result<u64> {
        let mut grown = 0;
        let used = u64::from(self.used.load(Relaxed)) + u64::from(n);
        while used * 10 > self.table().map_or(0, <[_]>::len) as u64 * 7 {
            grown += self.grow()?;
        }
        Ok(grown)
    }

    /// The next table, with everything in it.
    fn grow(&self) -> Result<u64> {
        let old = self.table().unwrap_or_default();
        let next = if old.is_empty() { 1 } else { self.current.load(Relaxed) + 1 };
        let len = if old.is_empty() { 1usize << self.first_log2 } else { old.len() * 2 };
        let cell = self.tables.get(next as usize).ok_or_else(index_memory_exhausted)?;
        let new = zeroed_words(len).ok_or_else(index_memory_exhausted)?;
        for slot in old.iter().map(|s| s.load(Relaxed)).filter(|s| *s != 0) {
            let mut i = (slot >> 32) as usize & (len - 1);
            while new[i].load(Relaxed) != 0 {
                i = (i + 1) & (len - 1);
            }
            new[i].store(slot, Relaxed);
        }
        let _ = cell.set(new);
        self.current.store(next, Release);
        Ok(len as u64 * 8)
    }

    /// What lies in the first slot of a hash: many calls in a row fetch their cache lines side by
    /// side.
    #[inline]
    pub fn prefetch_slot(&self, hash: u64) -> u64 {
        self.table().map_or(0, |t| t[(hash >> 32) as usize & (t.len() - 1)].load(Relaxed))
    }

    /// Where the next entry of a key goes, by the writer, after [`HashIndex::reserve`].
    #[inline]
    pub fn find_slot(&self, hash: u64, mut same: impl FnMut(u32) -> bool) -> IndexSlot {
        let table = self.table().expect("room was reserved");
        let mask = table.len() - 1;
        let tag = hash >> 32;
        let mut i = tag as usize & mask;
        loop {
            let slot = table[i].load(Relaxed);
            if slot == 0 {
                return IndexSlot { slot: i, older: None };
            }
            if slot >> 32 == tag && same(slot as u32 - 1) {
                return IndexSlot { slot: i, older: Some(slot as u32 - 1) };
            }
            i = (i + 1) & mask;
        }
    }

    /// Puts an entry, which is written, in its place, by the writer.
    #[inline]
    pub fn set_slot(&self, spot: IndexSlot, hash: u64, entry: u32) {
        let table = self.table().expect("room was reserved");
        table[spot.slot].store(hash >> 32 << 32 | (u64::from(entry) + 1), Release);
        if spot.older.is_none() {
            self.used.store(self.used.load(Relaxed) + 1, Relaxed);
        }
    }
}
