//! Walking a map in order, from both ends.

use crate::directory::{Directory, Place};
use crate::key::Key;
use crate::leaf::Leaf;
use std::iter::FusedIterator;
use std::marker::PhantomData;

/// Entries of a map in ascending order.
pub struct Iter<'a, K, V> {
    all: &'a Directory<V>,
    /// The next entry, and its leaf.
    front: Place,
    front_leaf: Option<&'a Leaf<V>>,
    /// The entry behind the last one.
    back: Place,
    keys: PhantomData<K>,
}

impl<'a, K, V> Iter<'a, K, V> {
    pub(super) fn new(all: &'a Directory<V>, front: Place, back: Place) -> Self {
        let front_leaf = (front < back).then(|| all.leaf_at(front));
        Iter { all, front, front_leaf, back, keys: PhantomData }
    }
}

impl<'a, K: Key, V> Iterator for Iter<'a, K, V> {
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
            self.front = self.all.after_leaf(self.front);
            self.front_leaf = (self.front < self.back).then(|| self.all.leaf_at(self.front));
        }
        Some((K::from_bits(key), value))
    }
}

impl<'a, K: Key, V> DoubleEndedIterator for Iter<'a, K, V> {
    fn next_back(&mut self) -> Option<(K, &'a V)> {
        if self.front >= self.back {
            return None;
        }
        if self.back == self.all.end() || self.back.slot == self.all.leaf_at(self.back).begin() {
            self.back = self.all.before_leaf(self.back);
        }
        let leaf = self.all.leaf_at(self.back);
        self.back.slot = leaf.previous(self.back.slot);
        let (key, value) = leaf.entry(self.back.slot);
        Some((K::from_bits(key), value))
    }
}

impl<K: Key, V> FusedIterator for Iter<'_, K, V> {}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Iter { keys: PhantomData, ..*self }
    }
}

/// Entries of a map that is taken apart.
pub struct IntoIter<K, V> {
    leaves: std::vec::IntoIter<Leaf<V>>,
    entries: std::vec::IntoIter<(u64, V)>,
    left: usize,
    keys: PhantomData<K>,
}

impl<K, V> IntoIter<K, V> {
    pub(super) fn new(all: Directory<V>, left: usize) -> Self {
        let leaves: Vec<Leaf<V>> = all.into_leaves().collect();
        IntoIter { leaves: leaves.into_iter(), entries: Vec::new().into_iter(), left, keys: PhantomData }
    }
}

impl<K: Key, V> Iterator for IntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            if let Some((key, value)) = self.entries.next() {
                self.left -= 1;
                return Some((K::from_bits(key), value));
            }
            self.entries = self.leaves.next()?.into_entries().collect::<Vec<_>>().into_iter();
        }
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K: Key, V> ExactSizeIterator for IntoIter<K, V> {}
impl<K: Key, V> FusedIterator for IntoIter<K, V> {}
