//! Iterators over a map in key order, from both ends.

use crate::directory::{Directory, LeafPosition};
use crate::key::Key;
use crate::leaf::Leaf;
use std::iter::FusedIterator;
use std::marker::PhantomData;

/// Iterator over the entries of a map in ascending order.
pub struct MapIter<'a, K, V> {
    directory: &'a Directory<V>,
    /// Position and leaf of the next entry.
    front: LeafPosition,
    front_leaf: Option<&'a Leaf<V>>,
    /// Position after the last remaining entry.
    back: LeafPosition,
    keys: PhantomData<K>,
}

impl<'a, K, V> MapIter<'a, K, V> {
    pub(super) fn new(all: &'a Directory<V>, front: LeafPosition, back: LeafPosition) -> Self {
        let front_leaf = (front < back).then(|| all.leaf_at(front));
        MapIter { directory: all, front, front_leaf, back, keys: PhantomData }
    }
}

impl<'a, K: Key, V> Iterator for MapIter<'a, K, V> {
    type Item = (K, &'a V);

    #[inline]
    fn next(&mut self) -> Option<(K, &'a V)> {
        if self.front >= self.back {
            return None;
        }
        let leaf = self.front_leaf?;
        let (key, value) = leaf.entry(self.front.slot);
        self.front.slot = leaf.next(self.front.slot);
        if self.front.slot == leaf.end() {
            self.front = self.directory.next_leaf(self.front);
            self.front_leaf = (self.front < self.back).then(|| self.directory.leaf_at(self.front));
        }
        Some((K::from_bits(key), value))
    }
}

impl<'a, K: Key, V> DoubleEndedIterator for MapIter<'a, K, V> {
    fn next_back(&mut self) -> Option<(K, &'a V)> {
        if self.front >= self.back {
            return None;
        }
        if self.back == self.directory.end()
            || self.back.slot == self.directory.leaf_at(self.back).begin()
        {
            self.back = self.directory.previous_leaf(self.back);
        }
        let leaf = self.directory.leaf_at(self.back);
        self.back.slot = leaf.previous(self.back.slot);
        let (key, value) = leaf.entry(self.back.slot);
        Some((K::from_bits(key), value))
    }
}

impl<K: Key, V> FusedIterator for MapIter<'_, K, V> {}

impl<K, V> Clone for MapIter<'_, K, V> {
    fn clone(&self) -> Self {
        MapIter { keys: PhantomData, ..*self }
    }
}

/// Owning iterator over the entries of a map in ascending order.
pub struct MapIntoIter<K, V> {
    leaves: std::vec::IntoIter<Leaf<V>>,
    entries: std::vec::IntoIter<(u64, V)>,
    remaining: usize,
    keys: PhantomData<K>,
}

impl<K, V> MapIntoIter<K, V> {
    pub(super) fn new(all: Directory<V>, remaining: usize) -> Self {
        let leaves: Vec<Leaf<V>> = all.into_leaves().collect();
        MapIntoIter {
            leaves: leaves.into_iter(),
            entries: Vec::new().into_iter(),
            remaining,
            keys: PhantomData,
        }
    }
}

impl<K: Key, V> Iterator for MapIntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            if let Some((key, value)) = self.entries.next() {
                self.remaining -= 1;
                return Some((K::from_bits(key), value));
            }
            self.entries = self.leaves.next()?.into_entries().collect::<Vec<_>>().into_iter();
        }
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl<K: Key, V> ExactSizeIterator for MapIntoIter<K, V> {}
impl<K: Key, V> FusedIterator for MapIntoIter<K, V> {}
