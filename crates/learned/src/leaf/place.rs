//! Single entries in and out of a leaf: where a new key finds a gap, what stays where one was.

use super::Leaf;

/// What became of an insert.
pub enum Placed<V> {
    /// The key was there: its old value.
    Replaced(V),
    /// A new entry; whether it is the first or the last of the leaf.
    Added { at_end: bool },
    /// Nothing: the leaf has to be laid out first. The value comes back.
    Later(V),
}

/// Gaps that a key takes at most, to be nearer to where it is expected.
const REACH: usize = 16;

impl<V> Leaf<V> {
    /// Puts an entry in its place.
    pub fn insert(&mut self, key: u64, value: V) -> Placed<V> {
        let upper = self.upper(key);
        if upper > self.head as usize && self.keys[upper - 1] == key {
            return Placed::Replaced(std::mem::replace(&mut self.values[self.at[upper - 1] as usize], value));
        }
        if self.values.len() >= self.limit as usize || self.lately.work > self.lately.patience {
            return Placed::Later(value);
        }
        let at = self.values.len() as u16;
        self.values.push(value);
        if upper == self.keys.len() && upper < self.slots as usize {
            self.keys.push(key);
            self.at.push(at);
            self.lately.back += 1;
            return Placed::Added { at_end: true };
        }
        if upper == self.head as usize && upper > 0 {
            self.head -= 1;
            (self.keys[upper - 1], self.at[upper - 1]) = (key, at);
            self.lately.front += 1;
            return Placed::Added { at_end: true };
        }
        let side =
            if upper == self.head as usize { &mut self.lately.front } else { &mut self.lately.between };
        *side += 1;
        self.insert_between(upper, key, at);
        Placed::Added { at_end: false }
    }

    /// Finds a slot for a key between `upper - 1` and `upper`. There is a gap somewhere, or room at an end.
    fn insert_between(&mut self, upper: usize, key: u64, at: u16) {
        let want = if self.plain { upper } else { self.line.at(key, self.slots as usize) };
        let error = want.abs_diff(upper) as u32;
        if error > 16 {
            self.lately.work += 2 * error.ilog2();
        }
        if self.left_is_gap(upper) {
            let left = self.keys[upper - 1];
            let (mut from, least) = (upper - 1, want.max(upper.saturating_sub(REACH)));
            while from > least && from - 1 > self.head as usize && self.keys[from - 2] == left {
                from -= 1;
            }
            self.fill(from..upper, key, at);
        } else if self.right_is_gap(upper) {
            let right = self.keys[upper];
            let (mut to, most) = (upper + 1, want.saturating_add(1).min(upper + REACH));
            while to < most && to + 1 < self.keys.len() && self.keys[to + 1] == right {
                to += 1;
            }
            self.fill(upper..to, key, at);
        } else {
            self.shift(upper, key, at);
        }
    }
    fn left_is_gap(&self, upper: usize) -> bool {
        upper >= self.head as usize + 2 && self.keys[upper - 2] == self.keys[upper - 1]
    }
    fn right_is_gap(&self, upper: usize) -> bool {
        upper + 1 < self.keys.len() && self.keys[upper] == self.keys[upper + 1]
    }
    fn fill(&mut self, slots: std::ops::Range<usize>, key: u64, at: u16) {
        self.keys[slots.clone()].fill(key);
        self.at[slots].fill(at);
    }

    /// Moves the keys between `upper` and the nearest gap by one slot.
    fn shift(&mut self, upper: usize, key: u64, at: u16) {
        let (mut left, mut right) = (upper, upper);
        loop {
            // Slots left..upper can move left if left - 1 is a gap; slots upper..=right right, if right is one.
            if left > 0 && (left == self.head as usize || self.left_is_gap(left)) {
                self.head -= u32::from(left == self.head as usize);
                self.keys.copy_within(left..upper, left - 1);
                self.at.copy_within(left..upper, left - 1);
                (self.keys[upper - 1], self.at[upper - 1]) = (key, at);
                self.lately.work += ((upper - left) / 8) as u32;
                return;
            }
            left -= usize::from(left > self.head as usize);
            if right == self.keys.len() && right < self.slots as usize {
                self.keys.insert(upper, key);
                self.at.insert(upper, at);
                self.lately.work += ((right - upper) / 8) as u32;
                return;
            }
            if self.right_is_gap(right) {
                self.keys.copy_within(upper..right + 1, upper + 1);
                self.at.copy_within(upper..right + 1, upper + 1);
                (self.keys[upper], self.at[upper]) = (key, at);
                self.lately.work += ((right - upper) / 8) as u32;
                return;
            }
            right += usize::from(right < self.keys.len());
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: u64) -> Option<V> {
        let last = self.slot(key)?;
        let (start, end) = (self.run_start(last), last + 1);
        let at = self.at[start];
        if end == self.keys.len() {
            self.keys.truncate(start);
            self.at.truncate(start);
        } else if start == self.head as usize {
            self.head = end as u32;
        } else {
            self.fill(start..end, self.keys[start - 1], self.at[start - 1]);
        }
        if self.head as usize == self.keys.len() {
            self.head = 0;
            self.keys.clear();
            self.at.clear();
        }
        // The last value moves into the place of this one.
        let moved = (self.values.len() - 1) as u16;
        let value = self.values.swap_remove(at as usize);
        if moved != at {
            self.redirect(moved, at);
        }
        Some(value)
    }

    /// The run whose value was at `from` finds it at `to`.
    fn redirect(&mut self, from: u16, to: u16) {
        let head = self.head as usize;
        // Whole stretches at a time: the inner test has no early end, so it runs on many slots at once.
        let mut start = head;
        for stretch in self.at[head..].chunks(64) {
            if stretch.iter().fold(false, |found, &a| found | (a == from)) {
                break;
            }
            start += stretch.len();
        }
        let first = start + self.at[start..].iter().position(|&a| a == from).expect("each value has a run");
        self.at[first..].iter_mut().take_while(|a| **a == from).for_each(|a| *a = to);
    }
}
