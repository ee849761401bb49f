//! Layout of a leaf: number of slots, slots of its keys, when it is split and when two leaves are
//! merged. All costs are in units of about a nanosecond.

use super::{InsertStats, Leaf};
use crate::linear_model::LinearModel;

/// Slots of the largest leaf.
pub const SLOTS_MAX: usize = 2048;
/// Number of entries at which a leaf with gaps between its keys is split.
pub const ENTRIES_MAX: usize = SLOTS_MAX * 4 / 5;
/// Slots of the smallest leaf.
const SLOTS_MIN: usize = 16;
/// Mean error of the line, in entries, above which the keys count as not linear.
const ERROR_MAX: f64 = 24.0;
/// Number of entries below which a leaf is not split because of its line.
const SPLIT_MIN: usize = 512;

/// Where the free slots of a leaf are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapPlacement {
    /// Between the keys.
    Between,
    /// After all keys: the keys arrived in ascending order.
    AtEnd,
    /// Before all keys: the keys arrived in descending order.
    AtStart,
}

/// Result of a new layout of a leaf.
pub enum RelayoutResult<V> {
    /// The leaf has free slots again.
    InPlace,
    /// The leaf was split: the lower bound of the new leaf to its right, and that leaf.
    Split(u64, Leaf<V>),
}

/// Returns the number of slots, and the limit of entries, for `n` entries.
fn slots_and_limit(placement: GapPlacement, n: usize) -> (usize, usize) {
    if placement == GapPlacement::Between {
        let slots = (n * 5 / 3 + 1).clamp(SLOTS_MIN, SLOTS_MAX);
        (slots, (slots * 4 / 5).max(n))
    } else {
        let slots = (2 * n).clamp(SLOTS_MIN, SLOTS_MAX);
        (slots, slots)
    }
}

/// Returns the index at which to split: the widest gap near the middle if it is wide enough, else
/// the middle.
fn split_point(keys: &[u64]) -> usize {
    let n = keys.len();
    let gap = |i: &usize| keys[*i] - keys[*i - 1];
    let widest = (n / 4 + 1..n * 3 / 4).max_by_key(gap);
    widest.filter(|i| gap(i) > (keys[n - 1] - keys[0]) / 8).unwrap_or(n / 2)
}

impl<V> Leaf<V> {
    /// Creates an empty leaf for keys that arrive in this order.
    pub fn with_capacity(placement: GapPlacement, expected: usize) -> Leaf<V> {
        let (slots, limit) = slots_and_limit(placement, expected / 2);
        Leaf {
            keys: Vec::with_capacity(slots),
            value_index: Vec::with_capacity(slots),
            values: Vec::with_capacity(limit),
            model: LinearModel::default(),
            use_binary_search: false,
            first_slot: 0,
            slots: slots as u32,
            limit: limit as u32,
            insert_stats: InsertStats { work_limit: u32::MAX, ..InsertStats::default() },
        }
    }

    /// Creates a leaf from `n` strictly ascending entries, at most [`ENTRIES_MAX`].
    pub fn build(entries: impl Iterator<Item = (u64, V)>, n: usize) -> Leaf<V> {
        let mut leaf = Leaf::with_capacity(GapPlacement::Between, 0);
        let mut keys = Vec::with_capacity(n);
        leaf.values.reserve_exact(slots_and_limit(GapPlacement::Between, n).1);
        for (key, value) in entries.take(n) {
            keys.push(key);
            leaf.values.push(value);
        }
        let value_indexes = (0..keys.len() as u16).collect();
        leaf.lay_out(keys, value_indexes, GapPlacement::Between);
        leaf
    }

    fn choose_gap_placement(&self) -> GapPlacement {
        let InsertStats { back, front, between, .. } = self.insert_stats;
        let threshold = (back + front + between) / 8 * 7;
        if back > threshold.max(4) {
            GapPlacement::AtEnd
        } else if front > threshold.max(4) {
            GapPlacement::AtStart
        } else {
            GapPlacement::Between
        }
    }

    /// Lays the leaf out again or splits it, to make space for `key`.
    pub fn relayout(&mut self, key: u64) -> RelayoutResult<V> {
        let placement = self.choose_gap_placement();
        let n = self.len();
        if placement == GapPlacement::AtEnd
            && n >= ENTRIES_MAX
            && self.last().is_some_and(|k| k < key)
        {
            self.insert_stats =
                InsertStats { work_limit: self.insert_stats.work_limit, ..InsertStats::default() };
            return RelayoutResult::Split(
                key,
                Leaf::with_capacity(GapPlacement::AtEnd, SLOTS_MAX / 8),
            );
        }
        if let (GapPlacement::AtStart, Some(first)) =
            (placement, self.first().filter(|&k| n >= ENTRIES_MAX && key < k))
        {
            self.insert_stats =
                InsertStats { work_limit: self.insert_stats.work_limit, ..InsertStats::default() };
            let before =
                Leaf { first_slot: 0, ..Leaf::with_capacity(GapPlacement::AtStart, SLOTS_MAX / 8) };
            return RelayoutResult::Split(first, std::mem::replace(self, before));
        }
        let (keys, value_indexes) = self.keys_and_value_indexes();
        let cut = split_point(&keys);
        if n >= ENTRIES_MAX || self.should_split(&keys, cut) {
            return self.split(keys, value_indexes, cut);
        }
        self.lay_out(keys, value_indexes, placement);
        RelayoutResult::InPlace
    }

    /// Returns true if inserts are expensive because the keys do not follow one line while both
    /// halves follow lines of their own.
    fn should_split(&self, keys: &[u64], cut: usize) -> bool {
        if self.insert_stats.work <= self.insert_stats.work_limit || keys.len() < SPLIT_MIN {
            return false;
        }
        let error = |keys: &[u64]| LinearModel::fit(keys).mean_error(keys);
        let error_of_all = error(keys);
        let (left, right) = keys.split_at(cut);
        error_of_all > ERROR_MAX / 2.0 && (error(left) + error(right)) / 2.0 < error_of_all / 3.0
    }

    /// Moves the entries from index `cut` on to a new leaf.
    fn split(
        &mut self,
        mut keys: Vec<u64>,
        mut value_indexes: Vec<u16>,
        cut: usize,
    ) -> RelayoutResult<V> {
        let n = keys.len();
        let mut moves_right = vec![false; n];
        value_indexes[cut..].iter().for_each(|&a| moves_right[a as usize] = true);
        let mut left = Vec::with_capacity(slots_and_limit(GapPlacement::Between, cut).1);
        let mut right = Vec::with_capacity(slots_and_limit(GapPlacement::Between, n - cut).1);
        let mut new_index = vec![0u16; n];
        for (old, value) in std::mem::take(&mut self.values).into_iter().enumerate() {
            let target = if moves_right[old] { &mut right } else { &mut left };
            new_index[old] = target.len() as u16;
            target.push(value);
        }
        value_indexes.iter_mut().for_each(|a| *a = new_index[*a as usize]);
        let (right_keys, right_value_indexes) = (keys.split_off(cut), value_indexes.split_off(cut));
        let bound = right_keys[0];
        self.values = left;
        self.lay_out(keys, value_indexes, GapPlacement::Between);
        let mut other = Leaf::with_capacity(GapPlacement::Between, 0);
        other.values = right;
        other.lay_out(right_keys, right_value_indexes, GapPlacement::Between);
        RelayoutResult::Split(bound, other)
    }

    /// Returns true if it contains far fewer entries than its slots could.
    pub fn is_thin(&self) -> bool {
        let slots = self.slots as usize;
        self.len() * 5 < slots * 2
    }
    /// Lays the leaf out again to release memory.
    pub fn shrink(&mut self) {
        if self.slots as usize <= SLOTS_MIN {
            return;
        }
        let (keys, value_indexes) = self.keys_and_value_indexes();
        self.lay_out(keys, value_indexes, GapPlacement::Between);
    }
    /// Appends the entries of the leaf to its right.
    pub fn append_leaf(&mut self, right: Leaf<V>) {
        let (mut keys, mut value_indexes) = self.keys_and_value_indexes();
        let (right_keys, right_value_indexes) = right.keys_and_value_indexes();
        let offset = self.values.len() as u16;
        keys.extend(right_keys);
        value_indexes.extend(right_value_indexes.into_iter().map(|a| a + offset));
        self.values.reserve_exact(right.values.len());
        self.values.extend(right.values);
        self.lay_out(keys, value_indexes, GapPlacement::Between);
    }

    /// Lays out all entries again. `keys` ascend; `value_indexes` are the positions of their values
    /// in `values`.
    fn lay_out(&mut self, keys: Vec<u64>, value_indexes: Vec<u16>, placement: GapPlacement) {
        let n = keys.len();
        let (slots, limit) = slots_and_limit(placement, n);
        self.values.reserve_exact(limit - n);
        self.values.shrink_to(limit);
        (self.slots, self.limit, self.first_slot, self.use_binary_search) =
            (slots as u32, limit as u32, 0, false);
        if n == 0 {
            *self = Leaf::with_capacity(placement, 0);
            return;
        }
        let line = LinearModel::fit(&keys);
        let is_linear = line.mean_error(&keys) <= ERROR_MAX;
        self.keys = Vec::with_capacity(slots);
        self.value_index = Vec::with_capacity(slots);
        match placement {
            GapPlacement::AtEnd => self.pack_keys(0, line, &keys, &value_indexes),
            GapPlacement::AtStart => self.pack_keys(slots - n, line, &keys, &value_indexes),
            GapPlacement::Between => {
                let factor = slots as f64 / n as f64;
                self.model = line.scaled(factor, 0);
                let line = self.model;
                if is_linear {
                    self.spread_keys(&keys, &value_indexes, |_, key| line.predict(key, slots));
                } else {
                    self.spread_keys(&keys, &value_indexes, |i, _| i * slots / n);
                }
            }
        }
        self.use_binary_search = !is_linear;
        // A layout that did not help is not repeated soon.
        let patience = if is_linear { 8 * n } else { 32 * n } as u32;
        self.insert_stats = InsertStats { work_limit: patience.max(256), ..InsertStats::default() };
    }

    /// Stores all keys without gaps, from slot `first_slot` on.
    fn pack_keys(
        &mut self,
        first_slot: usize,
        line: LinearModel,
        keys: &[u64],
        value_indexes: &[u16],
    ) {
        self.keys.resize(first_slot, 0);
        self.value_index.resize(first_slot, 0);
        self.keys.extend_from_slice(keys);
        self.value_index.extend_from_slice(value_indexes);
        self.first_slot = first_slot as u32;
        self.model = line.scaled(1.0, first_slot);
    }

    /// Stores each key as close as possible to the slot that `desired_slot` returns for it; the
    /// slots between repeat the previous key.
    fn spread_keys(
        &mut self,
        keys: &[u64],
        value_indexes: &[u16],
        desired_slot: impl Fn(usize, u64) -> usize,
    ) {
        let (n, slots) = (keys.len(), self.slots as usize);
        for (i, (&key, &a)) in keys.iter().zip(value_indexes).enumerate() {
            let slot = desired_slot(i, key).min(slots - (n - i));
            if i > 0 && slot > self.keys.len() {
                self.keys.resize(slot, keys[i - 1]);
                self.value_index.resize(slot, value_indexes[i - 1]);
            }
            self.keys.push(key);
            self.value_index.push(a);
        }
    }
}
