//! Hash index from keys to their newest entries: open addressing in a table that doubles. One
//! writer, lock-free readers.
//!
//! ```text
//! slot, 64 bits:  entry number + 1, 32 | tag 32     0: empty
//! ```
//! The tag is the upper half of the key's hash; its low bits choose the first slot, so that
//! doubling does not need the keys.
//!
//! Invariants: 1. a slot is stored with release, after the entry that it refers to, and never
//! becomes empty again; 2. a larger table is filled before it is made current (release). Smaller
//! tables stay until the memtable is dropped, because a reader may still use one: everything
//! visible to that reader was in the table when it started; 3. a table is never full.
//!
//! Key equality is decided by the caller: the index has no access to keys.

use super::entries::index_memory_exhausted;
use super::sync::{AtomicU32, AtomicU64, zeroed_words};
use perigee_base::Result;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Maximum number of tables, of doubling size.
const TABLES: usize = 26;

/// The hash index.
#[derive(Debug)]
pub struct HashIndex {
    tables: [OnceLock<Box<[AtomicU64]>>; TABLES],
    /// Number of the current table.
    current: AtomicU32,
    /// Size of the first table in slots, as a power of two.
    first_log2: u32,
    /// Slots in use.
    used: AtomicU32,
}

/// Slot for a key's new entry, and the entry that it holds.
#[derive(Clone, Copy, Debug)]
pub struct IndexSlot {
    slot: usize,
    /// Newest existing entry of the same key.
    pub older: Option<u32>,
}

impl HashIndex {
    /// Creates an empty index that holds `expected` keys before it grows.
    pub fn new(expected: u64) -> HashIndex {
        let slots = (expected.min(1 << 26) * 10 / 7 + 1).next_power_of_two();
        HashIndex {
            tables: [const { OnceLock::new() }; TABLES],
            current: AtomicU32::new(0),
            first_log2: slots.trailing_zeros().max(2),
            used: AtomicU32::new(0),
        }
    }

    /// Number of distinct keys.
    pub fn distinct_keys(&self) -> u64 {
        u64::from(self.used.load(Relaxed))
    }

    #[inline]
    fn table(&self) -> Option<&[AtomicU64]> {
        self.tables[self.current.load(Acquire) as usize].get().map(|t| &t[..])
    }

    /// Returns the newest entry of a key. `same` returns true if an entry has that key.
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

    /// Returns the number of slots probed when searching for an absent key with this hash.
    #[cfg(test)]
    pub fn probes(&self, hash: u64) -> usize {
        let Some(table) = self.table() else { return 0 };
        let first = (hash >> 32) as usize;
        (0..table.len())
            .take_while(|i| table[(first + i) & (table.len() - 1)].load(Relaxed) != 0)
            .count()
    }

    /// Makes space for `n` more keys; returns the bytes of memory newly allocated. Writer only.
    pub fn reserve(&self, n: u32) -> Result<u64> {
        let mut grown = 0;
        let used = u64::from(self.used.load(Relaxed)) + u64::from(n);
        while used * 10 > self.table().map_or(0, <[_]>::len) as u64 * 7 {
            grown += self.grow()?;
        }
        Ok(grown)
    }

    /// Creates the next table, with all entries of the current one, and makes it current.
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
        let is_first = cell.set(new).is_ok();
        check!(is_first, "one thread at a time grows an index", next);
        self.current.store(next, Release);
        Ok(len as u64 * 8)
    }

    /// Loads the first slot of a hash. Consecutive calls let the CPU fetch their cache lines in
    /// parallel.
    #[inline]
    pub fn prefetch_slot(&self, hash: u64) -> u64 {
        self.table().map_or(0, |t| t[(hash >> 32) as usize & (t.len() - 1)].load(Relaxed))
    }

    /// Returns the slot for the next entry of a key. Writer only, after [`HashIndex::reserve`].
    #[inline]
    pub fn find_slot(&self, hash: u64, mut same: impl FnMut(u32) -> bool) -> IndexSlot {
        let table = self.table().expect("reserve() has created a table");
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

    /// Stores the number of an entry, already written, in its slot. Writer only.
    #[inline]
    pub fn set_slot(&self, slot: IndexSlot, hash: u64, entry: u32) {
        let table = self.table().expect("reserve() has created a table");
        check_slow!(
            u64::from(self.used.load(Relaxed)) * 10 < table.len() as u64 * 7 + 10,
            "an index always has empty slots",
            table.len()
        );
        check_slow!(
            (table[slot.slot].load(Relaxed) == 0) == slot.older.is_none(),
            "a slot is empty, or has the older version of its key",
            slot.slot,
            slot.older
        );
        table[slot.slot].store(hash >> 32 << 32 | (u64::from(entry) + 1), Release);
        if slot.older.is_none() {
            self.used.store(self.used.load(Relaxed) + 1, Relaxed);
        }
    }
}
