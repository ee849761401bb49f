//! Single entries in and out of a leaf: where a new key finds a gap, what stays where one was.

use super::Leaf;

/// What became of an insert.
pub enum InsertResult<V> {
    /// The key was there: its old value.
    Replaced(V),
    /// A new entry; whether it is the first or the last of the leaf.
    Added { at_end: bool },
    /// Nothing: the leaf has to be laid out first. The value comes back.
    NeedsRelayout(V),
}

/// Gaps that a key takes at most, to be nearer to where it is expected.
const GAP_REACH_MAX: usize = 16;

impl<V> Leaf<V> {
    /// Puts an entry in its place.
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
        let at = self.values.len() as u16;
        self.values.push(value);
        if upper == self.keys.len() && upper < self.slots as usize {
            self.keys.push(key);
            self.value_index.push(at);
            self.insert_stats.back += 1;
            return InsertResult::Added { at_end: true };
        }
        if upper == self.first_slot as usize && upper > 0 {
            self.first_slot -= 1;
            (self.keys[upper - 1], self.value_index[upper - 1]) = (key, at);
            self.insert_stats.front += 1;
            return InsertResult::Added { at_end: true };
        }
        let side = if upper == self.first_slot as usize {
            &mut self.insert_stats.front
        } else {
            &mut self.insert_stats.between
        };
        *side += 1;
        self.insert_between(upper, key, at);
        InsertResult::Added { at_end: false }
    }

    /// Finds a slot for a key between `upper - 1` and `upper`. There is a gap somewhere, or room at
    /// an end.
    fn insert_between(&mut self, upper: usize, key: u64, at: u16) {
        let want = if self.use_binary_search {
            upper
        } else {
            self.model.predict(key, self.slots as usize)
        };
        let error = want.abs_diff(upper) as u32;
        if error > 16 {
            self.insert_stats.work += 2 * error.ilog2();
        }
        if self.left_is_gap(upper) {
            let left = self.keys[upper - 1];
            let (mut from, least) = (upper - 1, want.max(upper.saturating_sub(GAP_REACH_MAX)));
            while from > least && from - 1 > self.first_slot as usize && self.keys[from - 2] == left
            {
                from -= 1;
            }
            self.fill_slots(from..upper, key, at);
        } else if self.right_is_gap(upper) {
            let right = self.keys[upper];
            let (mut to, most) = (upper + 1, want.saturating_add(1).min(upper + GAP_REACH_MAX));
            while to < most && to + 1 < self.keys.len() && self.keys[to + 1] == right {
                to += 1;
            }
            self.fill_slots(upper..to, key, at);
        } else {
            self.shift_to_gap(upper, key, at);
        }
    }
    fn left_is_gap(&self, upper: usize) -> bool {
        upper >= self.first_slot as usize + 2 && self.keys[upper - 2] == self.keys[upper - 1]
    }
    fn right_is_gap(&self, upper: usize) -> bool {
        upper + 1 < self.keys.len() && self.keys[upper] == self.keys[upper + 1]
    }
    fn fill_slots(&mut self, slots: std::ops::Range<usize>, key: u64, at: u16) {
        self.keys[slots.clone()].fill(key);
        self.value_index[slots].fill(at);
    }

    /// Moves the keys between `upper` and the nearest gap by one slot.
    fn shift_to_gap(&mut self, upper: usize, key: u64, at: u16) {
        let (mut left, mut right) = (upper, upper);
        loop {
            // Slots left..upper can move left if left - 1 is a gap; slots upper..=right right, if
            // right is one.
            if left > 0 && (left == self.first_slot as usize || self.left_is_gap(left)) {
                self.first_slot -= u32::from(left == self.first_slot as usize);
                self.keys.copy_within(left..upper, left - 1);
                self.value_index.copy_within(left..upper, left - 1);
                (self.keys[upper - 1], self.value_index[upper - 1]) = (key, at);
                self.insert_stats.work += ((upper - left) / 8) as u32;
                return;
            }
            left -= usize::from(left > self.first_slot as usize);
            if right == self.keys.len() && right < self.slots as usize {
                self.keys.insert(upper, key);
                self.value_index.insert(upper, at);
                self.insert_stats.work += ((right - upper) / 8) as u32;
                return;
            }
            if self.right_is_gap(right) {
                self.keys.copy_within(upper..right + 1, upper + 1);
                self.value_index.copy_within(upper..right + 1, upper + 1);
                (self.keys[upper], self.value_index[upper]) = (key, at);
                self.insert_stats.work += ((right - upper) / 8) as u32;
                return;
            }
            right += usize::from(right < self.keys.len());
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: u64) -> Option<V> {
        let last = self.find_slot(key)?;
        let (start, end) = (self.run_start(last), last + 1);
        let at = self.value_index[start];
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
        // The last value moves into the place of this one.
        let moved = (self.values.len() - 1) as u16;
        let value = self.values.swap_remove(at as usize);
        if moved != at {
            self.move_value_index(moved, at);
        }
        Some(value)
    }

    /// The run whose value was at `from` finds it at `to`.
    fn move_value_index(&mut self, from: u16, to: u16) {
        let head = self.first_slot as usize;
        // Whole stretches at a time: the inner test has no early end, so it runs on many slots at
        // once.
        let mut start = head;
        for stretch in self.value_index[head..].chunks(64) {
            if stretch.iter().fold(false, |found, &a| found | (a == from)) {
                break;
            }
            start += stretch.len();
        }
        let first = start
            + self.value_index[start..]
                .iter()
                .position(|&a| a == from)
                .expect("each value has a run");
        self.value_index[first..].iter_mut().take_while(|a| **a == from).for_each(|a| *a = to);
    }
}
