//! A sorted list of lower bounds with a line over it: which part holds a key.
//!
//! Invariants: the bounds ascend strictly; a key below the first belongs to the first part.

use crate::linear_model::LinearModel;
use crate::search::upper_bound_from;

/// Lower bounds of the parts of a map.
#[derive(Clone, Debug, Default)]
pub struct LearnedBounds {
    bounds: Vec<u64>,
    model: LinearModel,
    /// The line is too far off: halving the whole list is faster.
    use_binary_search: bool,
    /// Bounds that came or went since the line was fitted.
    changes: usize,
}

/// Average distance above which a line does not pay, in positions.
const ERROR_MAX: f64 = 24.0;

impl LearnedBounds {
    /// A guide over bounds that ascend.
    pub fn new(bounds: Vec<u64>) -> LearnedBounds {
        let mut guide = LearnedBounds { bounds, ..LearnedBounds::default() };
        guide.fit_model();
        guide
    }

    /// The part that holds `key`.
    #[inline]
    pub fn find_part(&self, key: u64) -> usize {
        let after = if self.use_binary_search {
            self.bounds.partition_point(|&b| b <= key)
        } else {
            upper_bound_from(&self.bounds, self.model.predict(key, usize::MAX), key)
        };
        after.saturating_sub(1)
    }
    /// Number of parts.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.bounds.len()
    }
    /// Lower bound of part `i`, if there is one.
    #[inline]
    pub fn get(&self, i: usize) -> Option<u64> {
        self.bounds.get(i).copied()
    }
    /// Bytes it holds.
    pub fn memory_bytes(&self) -> usize {
        self.bounds.capacity() * 8
    }

    /// A new part `i` from `bound` on.
    pub fn insert(&mut self, i: usize, bound: u64) {
        debug_assert!(i == 0 || self.bounds[i - 1] < bound);
        debug_assert!(self.bounds.get(i).is_none_or(|&b| bound < b));
        self.bounds.insert(i, bound);
        self.note_change();
    }
    /// Part `i` is gone: its keys belong to the part before it, those of the first to the part
    /// after it.
    pub fn remove(&mut self, i: usize) {
        self.bounds.remove(if i == 0 && self.bounds.len() > 1 { 1 } else { i });
        self.bounds.shrink_to(2 * self.bounds.len());
        self.note_change();
    }
    /// Parts from `i` on, taken away.
    pub fn split_off(&mut self, i: usize) -> LearnedBounds {
        let bounds = self.bounds.split_off(i);
        self.bounds.shrink_to_fit();
        self.fit_model();
        LearnedBounds::new(bounds)
    }

    /// The first part begins at `bound` now, which is not after where it began.
    pub fn set_first_bound(&mut self, bound: u64) {
        self.bounds[0] = bound;
        self.note_change();
    }
    /// Takes over the parts of the next guide.
    pub fn append(&mut self, next: LearnedBounds) {
        self.bounds.extend(next.bounds);
        self.fit_model();
    }

    fn note_change(&mut self) {
        self.changes += 1;
        if self.changes > 4 + self.bounds.len() / 32 {
            self.fit_model();
        }
    }
    fn fit_model(&mut self) {
        self.changes = 0;
        if self.bounds.is_empty() {
            return;
        }
        self.model = LinearModel::fit(&self.bounds);
        self.use_binary_search = self.model.mean_error(&self.bounds) > ERROR_MAX;
    }
}
