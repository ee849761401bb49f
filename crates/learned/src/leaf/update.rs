//! Inserts and removes single entries: how a new key finds a gap, and what a removed key leaves.

use super::Leaf;

/// Result of an insert.
pub enum InsertResult<V> {
    /// The key existed: its old value.
    Replaced(V),
    /// A new entry; `at_end` is true if it is the first or the last of the leaf.
    Added { at_end: bool },
    /// Nothing was inserted, because the leaf must be laid out first; contains the value.
    NeedsRelayout(V),
}

/// Most gaps that a key fills to be closer to its predicted slot.
const GAP_REACH_MAX: usize = 16;

impl<V> Leaf<V> {
    /// Inserts an entry.
    pub fn insert(&mut self, key: u64, value: V) -> InsertResult<V> {
        let upper = self.upper_bound(key);
        if upper > self.first_slot as usize && self.keys[upper - 1] == key {
            return InsertResult::Replaced(std::mem::replace(
                &mut self.values[self.value_index[upper - 1] as usize],
                value,
            ));
        }
        if self.values.len() >= self.limit as usize
            || self.insert_stats.work > self.insert_stats.work_limit
        {
            return InsertResult::NeedsRelayout(value);
        }
        let value_index = self.values.len() as u16;
        self.values.push(value);
        if upper == self.keys.len() && upper < self.slots as usize {
            self.keys.push(key);
            self.value_index.push(value_index);
            self.insert_stats.back += 1;
            return InsertResult::Added { at_end: true };
        }
        if upper == self.first_slot as usize && upper > 0 {
            self.first_slot -= 1;
            (self.keys[upper - 1], self.value_index[upper - 1]) = (key, value_index);
            self.insert_stats.front += 1;
            return InsertResult::Added { at_end: true };
        }
        let counter = if upper == self.first_slot as usize {
            &mut self.insert_stats.front
        } else {
            &mut self.insert_stats.between
        };
        *counter += 1;
        self.insert_between(upper, key, value_index);
        InsertResult::Added { at_end: false }
    }

    /// Stores a key between slots `upper - 1` and `upper`. The leaf must have a gap, or a free slot
    /// at an end.
    fn insert_between(&mut self, upper: usize, key: u64, value_index: u16) {
        let predicted = if self.use_binary_search {
            upper
        } else {
            self.model.predict(key, self.slots as usize)
        };
        let error = predicted.abs_diff(upper) as u32;
        if error > 16 {
            self.insert_stats.work += 2 * error.ilog2();
        }
        if self.left_is_gap(upper) {
            let left = self.keys[upper - 1];
            let (mut from, min_slot) =
                (upper - 1, predicted.max(upper.saturating_sub(GAP_REACH_MAX)));
            while from > min_slot
                && from - 1 > self.first_slot as usize
                && self.keys[from - 2] == left
            {
                from -= 1;
            }
            self.fill_slots(from..upper, key, value_index);
        } else if self.right_is_gap(upper) {
            let right = self.keys[upper];
            let (mut to, max_slot) =
                (upper + 1, predicted.saturating_add(1).min(upper + GAP_REACH_MAX));
            while to < max_slot && to + 1 < self.keys.len() && self.keys[to + 1] == right {
                to += 1;
            }
            self.fill_slots(upper..to, key, value_index);
        } else {
            self.shift_to_gap(upper, key, value_index);
        }
    }
    fn left_is_gap(&self, upper: usize) -> bool {
        upper >= self.first_slot as usize + 2 && self.keys[upper - 2] == self.keys[upper - 1]
    }
    fn right_is_gap(&self, upper: usize) -> bool {
        upper + 1 < self.keys.len() && self.keys[upper] == self.keys[upper + 1]
    }
    fn fill_slots(&mut self, slots: std::ops::Range<usize>, key: u64, value_index: u16) {
        self.keys[slots.clone()].fill(key);
        self.value_index[slots].fill(value_index);
    }

    /// Shifts the keys between `upper` and the nearest gap by one slot.
    fn shift_to_gap(&mut self, upper: usize, key: u64, value_index: u16) {
        let (mut left, mut right) = (upper, upper);
        loop {
            // Slots left..upper can move left if left - 1 is a gap; slots upper..=right can move
            // right if right is a gap.
            if left > 0 && (left == self.first_slot as usize || self.left_is_gap(left)) {
                self.first_slot -= u32::from(left == self.first_slot as usize);
                self.keys.copy_within(left..upper, left - 1);
                self.value_index.copy_within(left..upper, left - 1);
                (self.keys[upper - 1], self.value_index[upper - 1]) = (key, value_index);
                self.insert_stats.work += ((upper - left) / 8) as u32;
                return;
            }
            left -= usize::from(left > self.first_slot as usize);
            if right == self.keys.len() && right < self.slots as usize {
                self.keys.insert(upper, key);
                self.value_index.insert(upper, value_index);
                self.insert_stats.work += ((right - upper) / 8) as u32;
                return;
            }
            if self.right_is_gap(right) {
                self.keys.copy_within(upper..right + 1, upper + 1);
                self.value_index.copy_within(upper..right + 1, upper + 1);
                (self.keys[upper], self.value_index[upper]) = (key, value_index);
                self.insert_stats.work += ((right - upper) / 8) as u32;
                return;
            }
            right += usize::from(right < self.keys.len());
        }
    }

    /// Removes an entry and returns its value.
    pub fn remove(&mut self, key: u64) -> Option<V> {
        let last = self.find_slot(key)?;
        let (start, end) = (self.run_start(last), last + 1);
        let value_index = self.value_index[start];
        if end == self.keys.len() {
            self.keys.truncate(start);
            self.value_index.truncate(start);
        } else if start == self.first_slot as usize {
            self.first_slot = end as u32;
        } else {
            self.fill_slots(start..end, self.keys[start - 1], self.value_index[start - 1]);
        }
        if self.first_slot as usize == self.keys.len() {
            self.first_slot = 0;
            self.keys.clear();
            self.value_index.clear();
        }
        // The last value moves to the position of the removed one.
        let moved = (self.values.len() - 1) as u16;
        let value = self.values.swap_remove(value_index as usize);
        if moved != value_index {
            self.move_value_index(moved, value_index);
        }
        Some(value)
    }

    /// Changes the value index of the run whose index is `from` to `to`.
    fn move_value_index(&mut self, from: u16, to: u16) {
        let first_slot = self.first_slot as usize;
        // Skips whole chunks: the inner loop has no early exit, so it is vectorized.
        let mut start = first_slot;
        for chunk in self.value_index[first_slot..].chunks(64) {
            if chunk.iter().fold(false, |found, &a| found | (a == from)) {
                break;
            }
            start += chunk.len();
        }
        let first = start
            + self.value_index[start..]
                .iter()
                .position(|&a| a == from)
                .expect("each value has a run");
        self.value_index[first..].iter_mut().take_while(|a| **a == from).for_each(|a| *a = to);
    }
}
