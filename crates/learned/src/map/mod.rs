//! The ordered map, the public interface to the updatable structures.

pub mod entry;
pub mod iter;
#[cfg(test)]
mod tests;

use crate::directory::Directory;
use crate::key::Key;
use crate::leaf::{ENTRIES_MAX, Leaf};
use entry::MapEntry;
use iter::{MapIntoIter, MapIter};
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

/// An ordered map that stores keys near the positions that linear models predict.
///
/// Leaves are arrays with gaps, after ALEX (Ding et al., SIGMOD 2020): a line fitted to the keys of
/// a leaf predicts the position of a key, and an exponential search starts there. A leaf whose keys
/// do not follow a line uses binary search and evenly spread gaps, so the worst keys cost what a
/// B-tree costs. There are always two levels above the leaves.
///
/// - Reads and iteration do not allocate. `insert` and `remove` cost amortised constant work in
///   addition to the search; the largest single step lays out a leaf of at most 2048 slots.
/// - [`memory_bytes`](Map::memory_bytes) is at most `3 * len * (10 + size of V) + 8 KiB + 16 * size
///   of V`, whatever was inserted and removed; a random load needs about half of it. Memory owned
///   by values is not counted.
///
/// ```
/// use perigee_learned::Map;
///
/// let mut tides: Map<i64, &str> = Map::new();
/// tides.insert(612, "high");
/// tides.insert(-90, "low");
/// tides.insert(1231, "low");
/// assert_eq!(tides.get(612), Some(&"high"));
/// assert_eq!(tides.range(..1000).map(|(k, _)| k).collect::<Vec<_>>(), [-90, 612]);
/// assert_eq!(tides.iter().next_back(), Some((1231, &"low")));
/// assert_eq!(tides.remove(612), Some("high"));
/// *tides.entry(5).or_insert("slack") = "turn";
/// assert_eq!(tides.len(), 3);
/// ```
#[derive(Clone)]
pub struct Map<K, V> {
    directory: Directory<V>,
    len: usize,
    keys: PhantomData<K>,
}

/// Number of entries per leaf after a bulk load: leaves space for a third more.
const BULK_LEAF_ENTRIES: usize = ENTRIES_MAX * 3 / 4;

impl<K: Key, V> Map<K, V> {
    /// Creates an empty map; allocates nothing.
    pub fn new() -> Self {
        Map { directory: Directory::new(), len: 0, keys: PhantomData }
    }

    /// Creates a map from entries in ascending order, faster than by inserting them. From the first
    /// entry out of order on, entries are inserted one by one; of equal keys the last one wins.
    pub fn from_sorted(entries: impl IntoIterator<Item = (K, V)>) -> Self {
        let mut entries = entries.into_iter().map(|(k, v)| (k.to_bits(), v));
        let (mut leaves, mut pending, mut len) =
            (Vec::new(), Vec::with_capacity(BULK_LEAF_ENTRIES), 0);
        let (mut last, mut first_unsorted) = (None, None);
        for (key, value) in entries.by_ref() {
            if last.is_some_and(|l| l >= key) {
                first_unsorted = Some((key, value));
                break;
            }
            last = Some(key);
            len += 1;
            pending.push((key, value));
            if pending.len() == BULK_LEAF_ENTRIES {
                leaves.push(Leaf::build(pending.drain(..), BULK_LEAF_ENTRIES));
            }
        }
        if !pending.is_empty() {
            let n = pending.len();
            leaves.push(Leaf::build(pending.into_iter(), n));
        }
        let mut map = Map { directory: Directory::from_leaves(leaves), len, keys: PhantomData };
        first_unsorted.into_iter().chain(entries).for_each(|(k, v)| {
            map.insert(K::from_bits(k), v);
        });
        map
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Returns true if the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Returns the value of `key`.
    #[inline]
    pub fn get(&self, key: K) -> Option<&V> {
        self.directory.find_leaf(key.to_bits())?.get(key.to_bits())
    }
    /// Returns the value of `key` for modification.
    #[inline]
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.directory.find_leaf_mut(key.to_bits())?.get_mut(key.to_bits())
    }
    /// Returns true if the map contains `key`.
    #[inline]
    pub fn contains(&self, key: K) -> bool {
        self.get(key).is_some()
    }

    /// Inserts `value` under `key`; returns the old value, if any.
    #[inline]
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let old = self.directory.insert(key.to_bits(), value);
        self.len += usize::from(old.is_none());
        old
    }
    /// Removes `key` and returns its value.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let old = self.directory.remove(key.to_bits());
        self.len -= usize::from(old.is_some());
        old
    }
    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Map::new();
    }
    /// Returns the entry of `key`, for inspection and modification.
    pub fn entry(&mut self, key: K) -> MapEntry<'_, K, V> {
        MapEntry { map: self, key }
    }

    /// Returns a double-ended iterator over all entries in ascending order of keys.
    pub fn iter(&self) -> MapIter<'_, K, V> {
        MapIter::new(&self.directory, self.directory.begin(), self.directory.end())
    }
    /// Returns a double-ended iterator over the entries of a range. A range whose start is after
    /// its end is empty.
    pub fn range(&self, range: impl RangeBounds<K>) -> MapIter<'_, K, V> {
        let from = match range.start_bound() {
            Bound::Included(k) => self.directory.seek(k.to_bits(), false),
            Bound::Excluded(k) => self.directory.seek(k.to_bits(), true),
            Bound::Unbounded => self.directory.begin(),
        };
        let to = match range.end_bound() {
            Bound::Included(k) => self.directory.seek(k.to_bits(), true),
            Bound::Excluded(k) => self.directory.seek(k.to_bits(), false),
            Bound::Unbounded => self.directory.end(),
        };
        MapIter::new(&self.directory, from, to.max(from))
    }
    /// Returns the entry with the smallest key.
    pub fn first(&self) -> Option<(K, &V)> {
        self.iter().next()
    }
    /// Returns the entry with the largest key.
    pub fn last(&self) -> Option<(K, &V)> {
        self.iter().next_back()
    }

    /// Returns the memory that it uses in bytes, excluding memory owned by values. Visits every
    /// leaf.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.directory.memory_bytes()
    }
}

impl<K: Key, V> Default for Map<K, V> {
    fn default() -> Self {
        Map::new()
    }
}
impl<K: Key + std::fmt::Debug, V: std::fmt::Debug> std::fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
impl<K: Key, V> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Map::from_sorted(entries)
    }
}
impl<K: Key, V> Extend<(K, V)> for Map<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        entries.into_iter().for_each(|(k, v)| {
            self.insert(k, v);
        });
    }
}
impl<'a, K: Key, V> IntoIterator for &'a Map<K, V> {
    type Item = (K, &'a V);
    type IntoIter = MapIter<'a, K, V>;
    fn into_iter(self) -> MapIter<'a, K, V> {
        self.iter()
    }
}
impl<K: Key, V> IntoIterator for Map<K, V> {
    type Item = (K, V);
    type IntoIter = MapIntoIter<K, V>;
    fn into_iter(self) -> MapIntoIter<K, V> {
        MapIntoIter::new(self.directory, self.len)
    }
}
