//! The leaves of a map in two levels above them: chunks of leaves, and the chunks, each with its
//! guide. The height is always the same, so nothing is ever deep, whatever the keys are.
//!
//! Invariants: no leaf and no chunk is empty; a leaf holds the keys from its bound to the next one;
//! the very first bound is 0. So a bound that a split adds is always greater than the bound before
//! it.

use crate::leaf::{ENTRIES_MAX, GapPlacement, InsertResult, Leaf, RelayoutResult};
use crate::learned_bounds::LearnedBounds;

/// Leaves of the largest chunk.
const CHUNK_LEAVES_MAX: usize = 256;

#[derive(Clone, Debug)]
struct LeafChunk<V> {
    guide: LearnedBounds,
    leaves: Vec<Leaf<V>>,
}

/// All leaves.
#[derive(Clone, Debug)]
pub struct Directory<V> {
    guide: LearnedBounds,
    chunks: Vec<LeafChunk<V>>,
    hint: Option<InsertHint>,
}

/// The leaf that was added to at one of its ends last, and the keys that belong to it: where sorted
/// input goes on.
#[derive(Clone, Copy, Debug)]
struct InsertHint {
    low: u64,
    high: u64,
    chunk: usize,
    leaf: usize,
}

/// Where an entry is; ordered as entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeafPosition {
    chunk: usize,
    leaf: usize,
    /// First slot of the entry.
    pub slot: usize,
}

impl<V> Directory<V> {
    /// Nothing.
    pub fn new() -> Self {
        Directory { guide: LearnedBounds::default(), chunks: Vec::new(), hint: None }
    }
    /// Leaves that ascend, none empty.
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
            all.chunks.push(LeafChunk { guide: LearnedBounds::new(lows), leaves });
        }
        all.guide = LearnedBounds::new(bounds);
        all
    }

    #[inline]
    fn locate(&self, key: u64) -> Option<(usize, usize)> {
        let c = self.guide.find_part(key);
        Some((c, self.chunks.get(c)?.guide.find_part(key)))
    }
    /// The leaf that the key belongs to.
    #[inline]
    pub fn find_leaf(&self, key: u64) -> Option<&Leaf<V>> {
        self.locate(key).map(|(c, l)| &self.chunks[c].leaves[l])
    }
    /// The same, to change values.
    #[inline]
    pub fn find_leaf_mut(&mut self, key: u64) -> Option<&mut Leaf<V>> {
        self.locate(key).map(|(c, l)| &mut self.chunks[c].leaves[l])
    }

    /// Puts an entry in its place; the old value, if the key was there.
    pub fn insert(&mut self, key: u64, mut value: V) -> Option<V> {
        loop {
            let hint = self.hint.filter(|h| (h.low..=h.high).contains(&key));
            let place = hint.map(|h| (h.chunk, h.leaf)).or_else(|| self.locate(key));
            let Some((c, l)) = place else {
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
                InsertResult::NeedsRelayout(back) => {
                    value = back;
                    self.relayout_leaf(c, l, key);
                }
            }
        }
    }
    fn from_leaf(leaf: Leaf<V>) -> Self {
        let chunk = LeafChunk { guide: LearnedBounds::new(vec![0]), leaves: vec![leaf] };
        Directory { guide: LearnedBounds::new(vec![0]), chunks: vec![chunk], hint: None }
    }
    fn set_hint(&mut self, c: usize, l: usize) {
        let guide = &self.chunks[c].guide;
        let low = guide.get(l).expect("each leaf has a bound");
        let next = guide.get(l + 1).or_else(|| self.guide.get(c + 1));
        self.hint =
            Some(InsertHint { low, high: next.map_or(u64::MAX, |n| n - 1), chunk: c, leaf: l });
    }
    fn relayout_leaf(&mut self, c: usize, l: usize, key: u64) {
        let chunk = &mut self.chunks[c];
        let RelayoutResult::Split(bound, right) = chunk.leaves[l].relayout(key) else { return };
        self.hint = None;
        chunk.guide.insert(l + 1, bound);
        chunk.leaves.insert(l + 1, right);
        if chunk.leaves.len() > CHUNK_LEAVES_MAX {
            let cut = chunk.leaves.len() / 2;
            let (guide, leaves) = (chunk.guide.split_off(cut), chunk.leaves.split_off(cut));
            chunk.leaves.shrink_to_fit();
            self.guide.insert(c + 1, guide.get(0).expect("half a chunk is not empty"));
            self.chunks.insert(c + 1, LeafChunk { guide, leaves });
        }
    }

    /// Takes an entry out.
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
    /// A leaf is empty or thin: it goes, or joins a neighbour, or gives memory back.
    fn rebalance_leaf(&mut self, c: usize, l: usize) {
        let chunk = &mut self.chunks[c];
        let n = chunk.leaves[l].len();
        if n == 0 {
            chunk.leaves.remove(l);
            chunk.guide.remove(l);
            return self.rebalance_chunk(c);
        }
        let joins =
            |other: usize| chunk.leaves.get(other).is_some_and(|x| x.len() + n <= ENTRIES_MAX / 2);
        let left = if joins(l + 1) { Some(l) } else { l.checked_sub(1).filter(|&p| joins(p)) };
        let Some(left) = left else { return chunk.leaves[l].shrink() };
        let right = chunk.leaves.remove(left + 1);
        chunk.guide.remove(left + 1);
        chunk.leaves[left].append_leaf(right);
        self.rebalance_chunk(c);
    }
    /// A chunk has lost a leaf.
    fn rebalance_chunk(&mut self, c: usize) {
        let n = self.chunks[c].leaves.len();
        let small = 2 * n;
        self.chunks[c].leaves.shrink_to(small);
        if n == 0 {
            self.chunks.remove(c);
            self.guide.remove(c);
            // What was the second chunk begins where the first began.
            if let (0, Some(first), Some(low)) = (c, self.chunks.first_mut(), self.guide.get(0)) {
                first.guide.set_first_bound(low);
            }
            return;
        }
        let joins = |other: usize| {
            self.chunks.get(other).is_some_and(|x| x.leaves.len() + n <= CHUNK_LEAVES_MAX / 2)
        };
        let left = if joins(c + 1) { Some(c) } else { c.checked_sub(1).filter(|&p| joins(p)) };
        let Some(left) = left.filter(|_| n < CHUNK_LEAVES_MAX / 8) else { return };
        let right = self.chunks.remove(left + 1);
        self.guide.remove(left + 1);
        self.chunks[left].guide.append(right.guide);
        self.chunks[left].leaves.extend(right.leaves);
    }

    // Places.

    /// The place of the first entry.
    pub fn begin(&self) -> LeafPosition {
        LeafPosition {
            chunk: 0,
            leaf: 0,
            slot: self.chunks.first().map_or(0, |c| c.leaves[0].begin()),
        }
    }
    /// The place behind the last entry.
    pub fn end(&self) -> LeafPosition {
        LeafPosition { chunk: self.chunks.len(), leaf: 0, slot: 0 }
    }
    /// The place of the first entry at or after a key; or behind it, with `after`.
    pub fn seek(&self, key: u64, after: bool) -> LeafPosition {
        let Some((chunk, leaf)) = self.locate(key) else { return self.end() };
        let inside = &self.chunks[chunk].leaves[leaf];
        let slot = if after { inside.upper_bound(key) } else { inside.lower_bound(key) };
        if slot < inside.end() {
            return LeafPosition { chunk, leaf, slot };
        }
        self.next_leaf(LeafPosition { chunk, leaf, slot })
    }
    /// The leaf of a place that is not the end.
    #[inline]
    pub fn leaf_at(&self, place: LeafPosition) -> &Leaf<V> {
        &self.chunks[place.chunk].leaves[place.leaf]
    }
    /// The first place of the next leaf.
    pub fn next_leaf(&self, place: LeafPosition) -> LeafPosition {
        let (chunk, leaf) = if place.leaf + 1 < self.chunks[place.chunk].leaves.len() {
            (place.chunk, place.leaf + 1)
        } else if place.chunk + 1 < self.chunks.len() {
            (place.chunk + 1, 0)
        } else {
            return self.end();
        };
        LeafPosition { chunk, leaf, slot: self.chunks[chunk].leaves[leaf].begin() }
    }
    /// The end of the leaf before, as a place in it; there is one.
    pub fn previous_leaf(&self, place: LeafPosition) -> LeafPosition {
        let (chunk, leaf) = match place.leaf.checked_sub(1) {
            Some(leaf) => (place.chunk, leaf),
            None => (place.chunk - 1, self.chunks[place.chunk - 1].leaves.len() - 1),
        };
        LeafPosition { chunk, leaf, slot: self.chunks[chunk].leaves[leaf].end() }
    }
    /// All leaves in order.
    pub fn into_leaves(self) -> impl Iterator<Item = Leaf<V>> {
        self.chunks.into_iter().flat_map(|c| c.leaves)
    }

    /// Bytes it holds outside of itself.
    pub fn memory_bytes(&self) -> usize {
        let of = |c: &LeafChunk<V>| {
            let leaves: usize = c.leaves.iter().map(Leaf::memory_bytes).sum();
            leaves + c.leaves.capacity() * size_of::<Leaf<V>>() + c.guide.memory_bytes()
        };
        self.chunks.iter().map(of).sum::<usize>()
            + self.chunks.capacity() * size_of::<LeafChunk<V>>()
            + self.guide.memory_bytes()
    }

    /// Panics unless the invariants hold.
    #[cfg(test)]
    pub fn check(&self) {
        assert_eq!(self.guide.len(), self.chunks.len());
        let mut bounds = Vec::new();
        for (c, chunk) in self.chunks.iter().enumerate() {
            assert_eq!(chunk.guide.len(), chunk.leaves.len());
            assert_eq!(chunk.guide.get(0), self.guide.get(c));
            assert!(!chunk.leaves.is_empty() && chunk.leaves.len() <= CHUNK_LEAVES_MAX);
            for (l, leaf) in chunk.leaves.iter().enumerate() {
                leaf.check();
                bounds.push((
                    chunk.guide.get(l).unwrap(),
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
