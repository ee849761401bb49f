//! The leaves of a map and the two levels above them: chunks of leaves, and the list of chunks,
//! each with learned bounds. The height is constant, whatever the keys are.
//!
//! Invariants: no leaf and no chunk is empty; a leaf contains the keys from its bound to the next
//! one; the very first bound is 0, so a bound added by a split is always greater than the bound
//! before it.

use crate::leaf::{ENTRIES_MAX, GapPlacement, InsertResult, Leaf, RelayoutResult};
use crate::learned_bounds::LearnedBounds;

/// Most leaves in a chunk.
const CHUNK_LEAVES_MAX: usize = 256;

#[derive(Clone, Debug)]
struct LeafChunk<V> {
    bounds: LearnedBounds,
    leaves: Vec<Leaf<V>>,
}

/// All leaves of a map.
#[derive(Clone, Debug)]
pub struct Directory<V> {
    bounds: LearnedBounds,
    chunks: Vec<LeafChunk<V>>,
    hint: Option<InsertHint>,
}

/// The leaf that last received an insert at one of its ends, and its key range: sorted input
/// usually continues there.
#[derive(Clone, Copy, Debug)]
struct InsertHint {
    low: u64,
    high: u64,
    chunk: usize,
    leaf: usize,
}

/// Position of an entry; ordered as entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeafPosition {
    chunk: usize,
    leaf: usize,
    /// First slot of the entry.
    pub slot: usize,
}

impl<V> Directory<V> {
    /// Creates an empty directory.
    pub fn new() -> Self {
        Directory { bounds: LearnedBounds::default(), chunks: Vec::new(), hint: None }
    }
    /// Creates a directory of ascending leaves, none empty.
    pub fn from_leaves(leaves: Vec<Leaf<V>>) -> Self {
        let mut all = Directory::new();
        let mut bounds = Vec::new();
        let mut leaves = leaves.into_iter().peekable();
        while leaves.peek().is_some() {
            let leaves: Vec<Leaf<V>> = leaves.by_ref().take(CHUNK_LEAVES_MAX * 3 / 4).collect();
            let mut lows: Vec<u64> = leaves.iter().filter_map(Leaf::first).collect();
            if bounds.is_empty() {
                lows[0] = 0;
            }
            bounds.push(lows[0]);
            all.chunks.push(LeafChunk { bounds: LearnedBounds::new(lows), leaves });
        }
        all.bounds = LearnedBounds::new(bounds);
        all
    }

    #[inline]
    fn locate(&self, key: u64) -> Option<(usize, usize)> {
        let c = self.bounds.find_part(key);
        Some((c, self.chunks.get(c)?.bounds.find_part(key)))
    }
    /// Returns the leaf that the key belongs to.
    #[inline]
    pub fn find_leaf(&self, key: u64) -> Option<&Leaf<V>> {
        self.locate(key).map(|(c, l)| &self.chunks[c].leaves[l])
    }
    /// Returns the leaf that the key belongs to, for modification of values.
    #[inline]
    pub fn find_leaf_mut(&mut self, key: u64) -> Option<&mut Leaf<V>> {
        self.locate(key).map(|(c, l)| &mut self.chunks[c].leaves[l])
    }

    /// Inserts an entry; returns the old value if the key existed.
    pub fn insert(&mut self, key: u64, mut value: V) -> Option<V> {
        loop {
            let hint = self.hint.filter(|h| (h.low..=h.high).contains(&key));
            let position = hint.map(|h| (h.chunk, h.leaf)).or_else(|| self.locate(key));
            let Some((c, l)) = position else {
                *self = Directory::from_leaf(Leaf::with_capacity(GapPlacement::Between, 0));
                continue;
            };
            match self.chunks[c].leaves[l].insert(key, value) {
                InsertResult::Replaced(old) => return Some(old),
                InsertResult::Added { at_end } => {
                    if at_end && hint.is_none() {
                        self.set_hint(c, l);
                    }
                    return None;
                }
                InsertResult::NeedsRelayout(returned) => {
                    value = returned;
                    self.relayout_leaf(c, l, key);
                }
            }
        }
    }
    fn from_leaf(leaf: Leaf<V>) -> Self {
        let chunk = LeafChunk { bounds: LearnedBounds::new(vec![0]), leaves: vec![leaf] };
        Directory { bounds: LearnedBounds::new(vec![0]), chunks: vec![chunk], hint: None }
    }
    fn set_hint(&mut self, c: usize, l: usize) {
        let bounds = &self.chunks[c].bounds;
        let low = bounds.get(l).expect("each leaf has a bound");
        let next = bounds.get(l + 1).or_else(|| self.bounds.get(c + 1));
        self.hint =
            Some(InsertHint { low, high: next.map_or(u64::MAX, |n| n - 1), chunk: c, leaf: l });
    }
    fn relayout_leaf(&mut self, c: usize, l: usize, key: u64) {
        let chunk = &mut self.chunks[c];
        let RelayoutResult::Split(bound, right) = chunk.leaves[l].relayout(key) else { return };
        self.hint = None;
        chunk.bounds.insert(l + 1, bound);
        chunk.leaves.insert(l + 1, right);
        if chunk.leaves.len() > CHUNK_LEAVES_MAX {
            let cut = chunk.leaves.len() / 2;
            let (bounds, leaves) = (chunk.bounds.split_off(cut), chunk.leaves.split_off(cut));
            chunk.leaves.shrink_to_fit();
            self.bounds.insert(c + 1, bounds.get(0).expect("half of a full chunk is not empty"));
            self.chunks.insert(c + 1, LeafChunk { bounds, leaves });
        }
    }

    /// Removes an entry and returns its value.
    pub fn remove(&mut self, key: u64) -> Option<V> {
        let (c, l) = self.locate(key)?;
        let leaf = &mut self.chunks[c].leaves[l];
        let value = leaf.remove(key)?;
        if leaf.len() == 0 || leaf.is_thin() {
            self.hint = None;
            self.rebalance_leaf(c, l);
        }
        Some(value)
    }
    /// Handles an empty or thin leaf: removes it, merges it with a neighbour, or shrinks it.
    fn rebalance_leaf(&mut self, c: usize, l: usize) {
        let chunk = &mut self.chunks[c];
        let n = chunk.leaves[l].len();
        if n == 0 {
            chunk.leaves.remove(l);
            chunk.bounds.remove(l);
            return self.rebalance_chunk(c);
        }
        let can_merge =
            |other: usize| chunk.leaves.get(other).is_some_and(|x| x.len() + n <= ENTRIES_MAX / 2);
        let left =
            if can_merge(l + 1) { Some(l) } else { l.checked_sub(1).filter(|&p| can_merge(p)) };
        let Some(left) = left else { return chunk.leaves[l].shrink() };
        let right = chunk.leaves.remove(left + 1);
        chunk.bounds.remove(left + 1);
        chunk.leaves[left].append_leaf(right);
        self.rebalance_chunk(c);
    }
    /// Handles a chunk that lost a leaf: removes it if empty, or merges it with a neighbour if
    /// small.
    fn rebalance_chunk(&mut self, c: usize) {
        let n = self.chunks[c].leaves.len();
        let small = 2 * n;
        self.chunks[c].leaves.shrink_to(small);
        if n == 0 {
            self.chunks.remove(c);
            self.bounds.remove(c);
            // The former second chunk now starts where the first one started.
            if let (0, Some(first), Some(low)) = (c, self.chunks.first_mut(), self.bounds.get(0)) {
                first.bounds.set_first_bound(low);
            }
            return;
        }
        let can_merge = |other: usize| {
            self.chunks.get(other).is_some_and(|x| x.leaves.len() + n <= CHUNK_LEAVES_MAX / 2)
        };
        let left =
            if can_merge(c + 1) { Some(c) } else { c.checked_sub(1).filter(|&p| can_merge(p)) };
        let Some(left) = left.filter(|_| n < CHUNK_LEAVES_MAX / 8) else { return };
        let right = self.chunks.remove(left + 1);
        self.bounds.remove(left + 1);
        self.chunks[left].bounds.append(right.bounds);
        self.chunks[left].leaves.extend(right.leaves);
    }

    // Positions.

    /// Returns the position of the first entry.
    pub fn begin(&self) -> LeafPosition {
        LeafPosition {
            chunk: 0,
            leaf: 0,
            slot: self.chunks.first().map_or(0, |c| c.leaves[0].begin()),
        }
    }
    /// Returns the position after the last entry.
    pub fn end(&self) -> LeafPosition {
        LeafPosition { chunk: self.chunks.len(), leaf: 0, slot: 0 }
    }
    /// Returns the position of the first entry at or after a key; with `after`, of the first entry
    /// after it.
    pub fn seek(&self, key: u64, after: bool) -> LeafPosition {
        let Some((chunk, leaf)) = self.locate(key) else { return self.end() };
        let inside = &self.chunks[chunk].leaves[leaf];
        let slot = if after { inside.upper_bound(key) } else { inside.lower_bound(key) };
        if slot < inside.end() {
            return LeafPosition { chunk, leaf, slot };
        }
        self.next_leaf(LeafPosition { chunk, leaf, slot })
    }
    /// Returns the leaf of a position that is not the end.
    #[inline]
    pub fn leaf_at(&self, position: LeafPosition) -> &Leaf<V> {
        &self.chunks[position.chunk].leaves[position.leaf]
    }
    /// Returns the first position of the next leaf.
    pub fn next_leaf(&self, position: LeafPosition) -> LeafPosition {
        let (chunk, leaf) = if position.leaf + 1 < self.chunks[position.chunk].leaves.len() {
            (position.chunk, position.leaf + 1)
        } else if position.chunk + 1 < self.chunks.len() {
            (position.chunk + 1, 0)
        } else {
            return self.end();
        };
        LeafPosition { chunk, leaf, slot: self.chunks[chunk].leaves[leaf].begin() }
    }
    /// Returns the end position of the previous leaf, which must exist.
    pub fn previous_leaf(&self, position: LeafPosition) -> LeafPosition {
        let (chunk, leaf) = match position.leaf.checked_sub(1) {
            Some(leaf) => (position.chunk, leaf),
            None => (position.chunk - 1, self.chunks[position.chunk - 1].leaves.len() - 1),
        };
        LeafPosition { chunk, leaf, slot: self.chunks[chunk].leaves[leaf].end() }
    }
    /// Returns all leaves in ascending order.
    pub fn into_leaves(self) -> impl Iterator<Item = Leaf<V>> {
        self.chunks.into_iter().flat_map(|c| c.leaves)
    }

    /// Returns the heap memory that it uses, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let chunk_bytes = |c: &LeafChunk<V>| {
            let leaves: usize = c.leaves.iter().map(Leaf::memory_bytes).sum();
            leaves + c.leaves.capacity() * size_of::<Leaf<V>>() + c.bounds.memory_bytes()
        };
        self.chunks.iter().map(chunk_bytes).sum::<usize>()
            + self.chunks.capacity() * size_of::<LeafChunk<V>>()
            + self.bounds.memory_bytes()
    }

    /// Panics unless the invariants hold.
    #[cfg(test)]
    pub fn check(&self) {
        assert_eq!(self.bounds.len(), self.chunks.len());
        let mut bounds = Vec::new();
        for (c, chunk) in self.chunks.iter().enumerate() {
            assert_eq!(chunk.bounds.len(), chunk.leaves.len());
            assert_eq!(chunk.bounds.get(0), self.bounds.get(c));
            assert!(!chunk.leaves.is_empty() && chunk.leaves.len() <= CHUNK_LEAVES_MAX);
            for (l, leaf) in chunk.leaves.iter().enumerate() {
                leaf.check();
                bounds.push((
                    chunk.bounds.get(l).unwrap(),
                    leaf.first().unwrap(),
                    leaf.last().unwrap(),
                ));
            }
        }
        assert!(bounds.first().is_none_or(|b| b.0 == 0));
        assert!(bounds.iter().all(|b| b.0 <= b.1 && b.1 <= b.2));
        assert!(bounds.windows(2).all(|w| w[0].2 < w[1].0), "a key beyond its leaf");
    }
}
