//! A sorted list of lower bounds with a linear model over it: finds the part that contains a key.
//!
//! Invariants: the bounds ascend strictly; a key below the first bound belongs to the first part.

use crate::linear_model::LinearModel;
use crate::search::upper_bound_from;

/// Lower bounds of the parts of a map.
#[derive(Clone, Debug, Default)]
pub struct LearnedBounds {
    bounds: Vec<u64>,
    model: LinearModel,
    /// The model is too inaccurate: binary search over the whole list is faster.
    use_binary_search: bool,
    /// Bounds added or removed since the model was fitted.
    changes: usize,
}

/// Mean error above which the model does not pay off, in positions.
const ERROR_MAX: f64 = 24.0;

impl LearnedBounds {
    /// Creates the list from ascending bounds.
    pub fn new(bounds: Vec<u64>) -> LearnedBounds {
        let mut learned = LearnedBounds { bounds, ..LearnedBounds::default() };
        learned.fit_model();
        learned
    }

    /// Returns the part that contains `key`.
    #[inline]
    pub fn find_part(&self, key: u64) -> usize {
        let after = if self.use_binary_search {
            self.bounds.partition_point(|&b| b <= key)
        } else {
            upper_bound_from(&self.bounds, self.model.predict(key, usize::MAX), key)
        };
        after.saturating_sub(1)
    }
    /// Returns the number of parts.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.bounds.len()
    }
    /// Returns the lower bound of part `i`, if it exists.
    #[inline]
    pub fn get(&self, i: usize) -> Option<u64> {
        self.bounds.get(i).copied()
    }
    /// Returns the heap memory that it uses, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bounds.capacity() * 8
    }

    /// Inserts a part `i` that starts at `bound`.
    pub fn insert(&mut self, i: usize, bound: u64) {
        debug_assert!(i == 0 || self.bounds[i - 1] < bound);
        debug_assert!(self.bounds.get(i).is_none_or(|&b| bound < b));
        self.bounds.insert(i, bound);
        self.note_change();
    }
    /// Removes part `i`: its keys then belong to the part before it, those of the first part to the
    /// part after it.
    pub fn remove(&mut self, i: usize) {
        self.bounds.remove(if i == 0 && self.bounds.len() > 1 { 1 } else { i });
        self.bounds.shrink_to(2 * self.bounds.len());
        self.note_change();
    }
    /// Splits off the parts from `i` on.
    pub fn split_off(&mut self, i: usize) -> LearnedBounds {
        let bounds = self.bounds.split_off(i);
        self.bounds.shrink_to_fit();
        self.fit_model();
        LearnedBounds::new(bounds)
    }

    /// Lowers the bound of the first part to `bound`.
    pub fn set_first_bound(&mut self, bound: u64) {
        self.bounds[0] = bound;
        self.note_change();
    }
    /// Appends the parts of `next`, whose bounds are all greater.
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
