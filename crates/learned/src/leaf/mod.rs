//! A leaf: keys in an array with gaps, placed where a line predicts them, and their values beside
//! it.
//!
//! Invariants:
//! 1. `keys[head..]` ascends; what is before `head` is unused. `keys.len()` is at most `slots`.
//! 2. A run of equal keys is one entry: one slot of it is the key, the others are gaps. Equal keys
//!    have equal `at`.
//! 3. `at[i]` is the position of the value of slot `i` in `values`. Values lie in the order of
//!    their arrival: they never move when keys do, and each belongs to exactly one run.
//!
//! So a gap needs no mark, a search needs no look at one, and every slot of a run leads to the
//! value.

mod layout;
mod update;

use crate::linear_model::LinearModel;
use crate::search::upper_bound_from;
pub use layout::{ENTRIES_MAX, GapPlacement, RelayoutResult};
pub use update::InsertResult;

/// Some neighbouring entries of a map.
#[derive(Clone, Debug)]
pub struct Leaf<V> {
    keys: Vec<u64>,
    value_index: Vec<u16>,
    values: Vec<V>,
    /// Where the line says a key is, as a position in `keys`.
    model: LinearModel,
    /// The keys do not follow a line: they are searched by halving.
    use_binary_search: bool,
    first_slot: u32,
    slots: u32,
    /// Entries from which on it is laid out anew.
    limit: u32,
    insert_stats: InsertStats,
}

/// What happened since the last layout.
#[derive(Clone, Copy, Debug, Default)]
struct InsertStats {
    /// Inserts behind all keys, before all keys, and between.
    back: u32,
    front: u32,
    between: u32,
    /// Effort of inserts that a new layout would save; at `patience` it is made.
    work: u32,
    work_limit: u32,
}

impl<V> Leaf<V> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.values.len()
    }
    /// Bytes it holds outside of itself.
    pub fn memory_bytes(&self) -> usize {
        self.keys.capacity() * 8
            + self.value_index.capacity() * 2
            + self.values.capacity() * size_of::<V>()
    }

    /// The first slot whose key is greater.
    #[inline]
    pub fn upper_bound(&self, key: u64) -> usize {
        let head = self.first_slot as usize;
        let live = &self.keys[head..];
        if self.use_binary_search {
            return head + live.partition_point(|&k| k <= key);
        }
        head + upper_bound_from(
            live,
            self.model.predict(key, self.slots as usize).saturating_sub(head),
            key,
        )
    }
    /// The last slot of the key's run.
    #[inline]
    fn find_slot(&self, key: u64) -> Option<usize> {
        let upper = self.upper_bound(key);
        (upper > self.first_slot as usize && self.keys[upper - 1] == key).then(|| upper - 1)
    }
    /// The value under `key`.
    #[inline]
    pub fn get(&self, key: u64) -> Option<&V> {
        self.find_slot(key).map(|s| &self.values[self.value_index[s] as usize])
    }
    /// The same, to change it.
    #[inline]
    pub fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.find_slot(key).map(|s| &mut self.values[self.value_index[s] as usize])
    }

    /// The smallest key.
    pub fn first(&self) -> Option<u64> {
        self.keys.get(self.first_slot as usize).copied()
    }
    /// The largest key.
    pub fn last(&self) -> Option<u64> {
        if self.values.is_empty() { None } else { self.keys.last().copied() }
    }

    // Places of entries: the first slot of each run; behind the last one, the end.

    /// The place of the first entry.
    pub fn begin(&self) -> usize {
        self.first_slot as usize
    }
    /// The place behind the last entry.
    pub fn end(&self) -> usize {
        self.keys.len()
    }
    /// The place of the first entry whose key is at least `key`.
    pub fn lower_bound(&self, key: u64) -> usize {
        match self.find_slot(key) {
            Some(s) => self.run_start(s),
            None => self.upper_bound(key),
        }
    }
    /// Key and value of the entry at a place.
    #[inline]
    pub fn entry(&self, place: usize) -> (u64, &V) {
        (self.keys[place], &self.values[self.value_index[place] as usize])
    }
    /// The place after that of an entry.
    #[inline]
    pub fn next(&self, place: usize) -> usize {
        let key = self.keys[place];
        let mut next = place + 1;
        while next < self.keys.len() && self.keys[next] == key {
            next += 1;
        }
        next
    }
    /// The place before one that is not the first.
    #[inline]
    pub fn previous(&self, place: usize) -> usize {
        self.run_start(place - 1)
    }
    fn run_start(&self, slot: usize) -> usize {
        let (key, head) = (self.keys[slot], self.first_slot as usize);
        let mut start = slot;
        while start > head && self.keys[start - 1] == key {
            start -= 1;
        }
        start
    }

    /// All keys, and where their values are.
    fn keys_and_value_indexes(&self) -> (Vec<u64>, Vec<u16>) {
        let (mut keys, mut at) = (Vec::with_capacity(self.len()), Vec::with_capacity(self.len()));
        if self.values.is_empty() {
            return (keys, at);
        }
        for (i, &key) in self.keys.iter().enumerate().skip(self.first_slot as usize) {
            if keys.last() != Some(&key) {
                keys.push(key);
                at.push(self.value_index[i]);
            }
        }
        (keys, at)
    }

    /// Its entries in order.
    pub fn into_entries(self) -> impl DoubleEndedIterator<Item = (u64, V)> {
        let (keys, at) = self.keys_and_value_indexes();
        let mut values: Vec<Option<V>> = self.values.into_iter().map(Some).collect();
        let take = move |(key, at): (u64, u16)| Some((key, values[at as usize].take()?));
        keys.into_iter().zip(at).filter_map(take)
    }

    /// Panics unless the invariants hold.
    #[cfg(test)]
    pub fn check(&self) {
        let head = self.first_slot as usize;
        assert!(
            self.keys.len() <= self.slots as usize && self.keys.len() == self.value_index.len()
        );
        assert!(self.slots as usize <= layout::SLOTS_MAX && head <= self.keys.len());
        assert_eq!(self.values.is_empty(), head == self.keys.len());
        for i in head + 1..self.keys.len() {
            assert!(self.keys[i - 1] <= self.keys[i]);
            assert!(
                self.keys[i - 1] < self.keys[i] || self.value_index[i - 1] == self.value_index[i]
            );
        }
        let mut at = self.keys_and_value_indexes().1;
        at.sort_unstable();
        assert!(at.iter().map(|&a| a as usize).eq(0..self.values.len()), "a value without a key");
    }
}
