//! A leaf: keys in an array with gaps, placed near the slots that a linear model predicts, and
//! their values in a second array.
//!
//! Invariants:
//! 1. `keys[first_slot..]` ascends; earlier slots are unused. `keys.len()` is at most `slots`.
//! 2. A run of equal keys is one entry: one slot of it is the key, the others are gaps. Equal keys
//!    have equal `value_index`.
//! 3. `value_index[i]` is the position of the value of slot `i` in `values`. Values are stored in
//!    the order of insertion: they do not move when keys do, and each belongs to exactly one run.
//!
//! Gaps therefore need no flag, searches need not detect them, and every slot of a run leads to the
//! value.

mod layout;
mod update;

use crate::linear_model::LinearModel;
use crate::search::upper_bound_from;
pub use layout::{ENTRIES_MAX, GapPlacement, RelayoutResult};
pub use update::InsertResult;

/// A range of neighbouring entries of a map.
#[derive(Clone, Debug)]
pub struct Leaf<V> {
    keys: Vec<u64>,
    value_index: Vec<u16>,
    values: Vec<V>,
    /// Predicts the position of a key in `keys`.
    model: LinearModel,
    /// The keys do not follow a line: binary search is used.
    use_binary_search: bool,
    first_slot: u32,
    slots: u32,
    /// Number of entries at which the leaf is laid out again.
    limit: u32,
    insert_stats: InsertStats,
}

/// Insert statistics since the last layout.
#[derive(Clone, Copy, Debug, Default)]
struct InsertStats {
    /// Inserts after all keys, before all keys, and between keys.
    back: u32,
    front: u32,
    between: u32,
    /// Work of inserts that a new layout would save; at `work_limit` the leaf is laid out again.
    work: u32,
    work_limit: u32,
}

impl<V> Leaf<V> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.values.len()
    }
    /// Returns the heap memory that it uses, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.keys.capacity() * 8
            + self.value_index.capacity() * 2
            + self.values.capacity() * size_of::<V>()
    }

    /// Returns the first slot whose key is greater than `key`.
    #[inline]
    pub fn upper_bound(&self, key: u64) -> usize {
        let first_slot = self.first_slot as usize;
        let used_keys = &self.keys[first_slot..];
        if self.use_binary_search {
            return first_slot + used_keys.partition_point(|&k| k <= key);
        }
        first_slot
            + upper_bound_from(
                used_keys,
                self.model.predict(key, self.slots as usize).saturating_sub(first_slot),
                key,
            )
    }
    /// Returns the last slot of the run of `key`.
    #[inline]
    fn find_slot(&self, key: u64) -> Option<usize> {
        let upper = self.upper_bound(key);
        (upper > self.first_slot as usize && self.keys[upper - 1] == key).then(|| upper - 1)
    }
    /// Returns the value of `key`.
    #[inline]
    pub fn get(&self, key: u64) -> Option<&V> {
        self.find_slot(key).map(|s| &self.values[self.value_index[s] as usize])
    }
    /// Returns the value of `key` for modification.
    #[inline]
    pub fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.find_slot(key).map(|s| &mut self.values[self.value_index[s] as usize])
    }

    /// Returns the smallest key.
    pub fn first(&self) -> Option<u64> {
        self.keys.get(self.first_slot as usize).copied()
    }
    /// Returns the largest key.
    pub fn last(&self) -> Option<u64> {
        if self.values.is_empty() { None } else { self.keys.last().copied() }
    }

    // Positions of entries: the first slot of each run. The end position follows the last entry.

    /// Returns the position of the first entry.
    pub fn begin(&self) -> usize {
        self.first_slot as usize
    }
    /// Returns the position after the last entry.
    pub fn end(&self) -> usize {
        self.keys.len()
    }
    /// Returns the position of the first entry whose key is at least `key`.
    pub fn lower_bound(&self, key: u64) -> usize {
        match self.find_slot(key) {
            Some(s) => self.run_start(s),
            None => self.upper_bound(key),
        }
    }
    /// Returns key and value of the entry at a position.
    #[inline]
    pub fn entry(&self, position: usize) -> (u64, &V) {
        (self.keys[position], &self.values[self.value_index[position] as usize])
    }
    /// Returns the position after an entry.
    #[inline]
    pub fn next(&self, position: usize) -> usize {
        let key = self.keys[position];
        let mut next = position + 1;
        while next < self.keys.len() && self.keys[next] == key {
            next += 1;
        }
        next
    }
    /// Returns the position before one that is not the first.
    #[inline]
    pub fn previous(&self, position: usize) -> usize {
        self.run_start(position - 1)
    }
    fn run_start(&self, slot: usize) -> usize {
        let (key, first_slot) = (self.keys[slot], self.first_slot as usize);
        let mut start = slot;
        while start > first_slot && self.keys[start - 1] == key {
            start -= 1;
        }
        start
    }

    /// Returns all keys, and the positions of their values.
    fn keys_and_value_indexes(&self) -> (Vec<u64>, Vec<u16>) {
        let (mut keys, mut value_indexes) =
            (Vec::with_capacity(self.len()), Vec::with_capacity(self.len()));
        if self.values.is_empty() {
            return (keys, value_indexes);
        }
        for (i, &key) in self.keys.iter().enumerate().skip(self.first_slot as usize) {
            if keys.last() != Some(&key) {
                keys.push(key);
                value_indexes.push(self.value_index[i]);
            }
        }
        (keys, value_indexes)
    }

    /// Returns its entries in ascending order.
    pub fn into_entries(self) -> impl DoubleEndedIterator<Item = (u64, V)> {
        let (keys, value_indexes) = self.keys_and_value_indexes();
        let mut values: Vec<Option<V>> = self.values.into_iter().map(Some).collect();
        let take = move |(key, index): (u64, u16)| Some((key, values[index as usize].take()?));
        keys.into_iter().zip(value_indexes).filter_map(take)
    }

    /// Panics unless the invariants hold.
    #[cfg(test)]
    pub fn check(&self) {
        let first_slot = self.first_slot as usize;
        assert!(
            self.keys.len() <= self.slots as usize && self.keys.len() == self.value_index.len()
        );
        assert!(self.slots as usize <= layout::SLOTS_MAX && first_slot <= self.keys.len());
        assert_eq!(self.values.is_empty(), first_slot == self.keys.len());
        for i in first_slot + 1..self.keys.len() {
            assert!(self.keys[i - 1] <= self.keys[i]);
            assert!(
                self.keys[i - 1] < self.keys[i] || self.value_index[i - 1] == self.value_index[i]
            );
        }
        let mut value_indexes = self.keys_and_value_indexes().1;
        value_indexes.sort_unstable();
        assert!(
            value_indexes.iter().map(|&a| a as usize).eq(0..self.values.len()),
            "a value without a key"
        );
    }
}
