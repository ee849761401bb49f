//! How a leaf is laid out: how many slots, where its keys go, when it is split and when two become
//! one. All costs are in units of about a nanosecond.

use super::{InsertStats, Leaf};
use crate::linear_model::LinearModel;

/// Slots of the largest leaf.
pub const SLOTS_MAX: usize = 2048;
/// Entries from which on a leaf with gaps is split.
pub const ENTRIES_MAX: usize = SLOTS_MAX * 4 / 5;
/// Slots of the smallest leaf.
const SLOTS_MIN: usize = 16;
/// Average distance between keys and the line, in entries, above which keys count as not following
/// it.
const ERROR_MAX: f64 = 24.0;
/// Entries below which a leaf is not split because of its line.
const SPLIT_MIN: usize = 512;

/// Where the free slots are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapPlacement {
    /// Between the keys.
    Between,
    /// All behind: the keys came in ascending order.
    AtEnd,
    /// All before: they came in descending order.
    AtStart,
}

/// What mending did to a leaf.
pub enum RelayoutResult<V> {
    /// It has room.
    InPlace,
    /// It was split: this is its right part, and the smallest key that belongs there.
    Split(u64, Leaf<V>),
}

/// Slots, and the limit of entries, for `n` entries.
fn slots_and_limit(lean: GapPlacement, n: usize) -> (usize, usize) {
    if lean == GapPlacement::Between {
        let slots = (n * 5 / 3 + 1).clamp(SLOTS_MIN, SLOTS_MAX);
        (slots, (slots * 4 / 5).max(n))
    } else {
        let slots = (2 * n).clamp(SLOTS_MIN, SLOTS_MAX);
        (slots, slots)
    }
}

/// Where to split: in the middle, or where a wide gap between keys is not far from it.
fn split_point(keys: &[u64]) -> usize {
    let n = keys.len();
    let gap = |i: &usize| keys[*i] - keys[*i - 1];
    let widest = (n / 4 + 1..n * 3 / 4).max_by_key(gap);
    widest.filter(|i| gap(i) > (keys[n - 1] - keys[0]) / 8).unwrap_or(n / 2)
}

impl<V> Leaf<V> {
    /// A leaf for keys that come in this way.
    pub fn with_capacity(lean: GapPlacement, expected: usize) -> Leaf<V> {
        let (slots, limit) = slots_and_limit(lean, expected / 2);
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

    /// A leaf of entries that ascend strictly, at most [`ENTRIES_MAX`].
    pub fn build(entries: impl Iterator<Item = (u64, V)>, n: usize) -> Leaf<V> {
        let mut leaf = Leaf::with_capacity(GapPlacement::Between, 0);
        let mut keys = Vec::with_capacity(n);
        leaf.values.reserve_exact(slots_and_limit(GapPlacement::Between, n).1);
        for (key, value) in entries.take(n) {
            keys.push(key);
            leaf.values.push(value);
        }
        let at = (0..keys.len() as u16).collect();
        leaf.lay_out(keys, at, GapPlacement::Between);
        leaf
    }

    fn choose_gap_placement(&self) -> GapPlacement {
        let InsertStats { back, front, between, .. } = self.insert_stats;
        let most = (back + front + between) / 8 * 7;
        if back > most.max(4) {
            GapPlacement::AtEnd
        } else if front > most.max(4) {
            GapPlacement::AtStart
        } else {
            GapPlacement::Between
        }
    }

    /// Makes room for `key`.
    pub fn relayout(&mut self, key: u64) -> RelayoutResult<V> {
        let lean = self.choose_gap_placement();
        let n = self.len();
        if lean == GapPlacement::AtEnd && n >= ENTRIES_MAX && self.last().is_some_and(|k| k < key) {
            self.insert_stats =
                InsertStats { work_limit: self.insert_stats.work_limit, ..InsertStats::default() };
            return RelayoutResult::Split(
                key,
                Leaf::with_capacity(GapPlacement::AtEnd, SLOTS_MAX / 8),
            );
        }
        if let (GapPlacement::AtStart, Some(first)) =
            (lean, self.first().filter(|&k| n >= ENTRIES_MAX && key < k))
        {
            self.insert_stats =
                InsertStats { work_limit: self.insert_stats.work_limit, ..InsertStats::default() };
            let before =
                Leaf { first_slot: 0, ..Leaf::with_capacity(GapPlacement::AtStart, SLOTS_MAX / 8) };
            return RelayoutResult::Split(first, std::mem::replace(self, before));
        }
        let (keys, at) = self.keys_and_value_indexes();
        let cut = split_point(&keys);
        if n >= ENTRIES_MAX || self.should_split(&keys, cut) {
            return self.split(keys, at, cut);
        }
        self.lay_out(keys, at, lean);
        RelayoutResult::InPlace
    }

    /// Whether inserts are dear because the keys do not follow one line, but both parts do.
    fn should_split(&self, keys: &[u64], cut: usize) -> bool {
        if self.insert_stats.work <= self.insert_stats.work_limit || keys.len() < SPLIT_MIN {
            return false;
        }
        let error = |keys: &[u64]| LinearModel::fit(keys).mean_error(keys);
        let whole = error(keys);
        let (left, right) = keys.split_at(cut);
        whole > ERROR_MAX / 2.0 && (error(left) + error(right)) / 2.0 < whole / 3.0
    }

    /// Entries from number `cut` on go to a new leaf.
    fn split(&mut self, mut keys: Vec<u64>, mut at: Vec<u16>, cut: usize) -> RelayoutResult<V> {
        let n = keys.len();
        let mut goes_right = vec![false; n];
        at[cut..].iter().for_each(|&a| goes_right[a as usize] = true);
        let mut left = Vec::with_capacity(slots_and_limit(GapPlacement::Between, cut).1);
        let mut right = Vec::with_capacity(slots_and_limit(GapPlacement::Between, n - cut).1);
        let mut now = vec![0u16; n];
        for (old, value) in std::mem::take(&mut self.values).into_iter().enumerate() {
            let side = if goes_right[old] { &mut right } else { &mut left };
            now[old] = side.len() as u16;
            side.push(value);
        }
        at.iter_mut().for_each(|a| *a = now[*a as usize]);
        let (right_keys, right_at) = (keys.split_off(cut), at.split_off(cut));
        let bound = right_keys[0];
        self.values = left;
        self.lay_out(keys, at, GapPlacement::Between);
        let mut other = Leaf::with_capacity(GapPlacement::Between, 0);
        other.values = right;
        other.lay_out(right_keys, right_at, GapPlacement::Between);
        RelayoutResult::Split(bound, other)
    }

    /// Whether it holds much less than its slots could.
    pub fn is_thin(&self) -> bool {
        let slots = self.slots as usize;
        self.len() * 5 < slots * 2
    }
    /// Gives back what it does not need.
    pub fn shrink(&mut self) {
        if self.slots as usize <= SLOTS_MIN {
            return;
        }
        let (keys, at) = self.keys_and_value_indexes();
        self.lay_out(keys, at, GapPlacement::Between);
    }
    /// Takes over the entries of the leaf to its right.
    pub fn append_leaf(&mut self, right: Leaf<V>) {
        let (mut keys, mut at) = self.keys_and_value_indexes();
        let (right_keys, right_at) = right.keys_and_value_indexes();
        let offset = self.values.len() as u16;
        keys.extend(right_keys);
        at.extend(right_at.into_iter().map(|a| a + offset));
        self.values.reserve_exact(right.values.len());
        self.values.extend(right.values);
        self.lay_out(keys, at, GapPlacement::Between);
    }

    /// Lays all entries out anew: `keys` ascend, and their values are `at` the places in `values`.
    fn lay_out(&mut self, keys: Vec<u64>, at: Vec<u16>, lean: GapPlacement) {
        let n = keys.len();
        let (slots, limit) = slots_and_limit(lean, n);
        self.values.reserve_exact(limit - n);
        self.values.shrink_to(limit);
        (self.slots, self.limit, self.first_slot, self.use_binary_search) =
            (slots as u32, limit as u32, 0, false);
        if n == 0 {
            *self = Leaf::with_capacity(lean, 0);
            return;
        }
        let line = LinearModel::fit(&keys);
        let fits = line.mean_error(&keys) <= ERROR_MAX;
        self.keys = Vec::with_capacity(slots);
        self.value_index = Vec::with_capacity(slots);
        match lean {
            GapPlacement::AtEnd => self.pack_keys(0, line, &keys, &at),
            GapPlacement::AtStart => self.pack_keys(slots - n, line, &keys, &at),
            GapPlacement::Between => {
                let factor = slots as f64 / n as f64;
                self.model = line.scaled(factor, 0);
                let line = self.model;
                if fits {
                    self.spread_keys(&keys, &at, |_, key| line.predict(key, slots));
                } else {
                    self.spread_keys(&keys, &at, |i, _| i * slots / n);
                }
            }
        }
        self.use_binary_search = !fits;
        // Work that did not help is not done again soon.
        let patience = if fits { 8 * n } else { 32 * n } as u32;
        self.insert_stats = InsertStats { work_limit: patience.max(256), ..InsertStats::default() };
    }

    /// All keys side by side, from slot `head` on.
    fn pack_keys(&mut self, head: usize, line: LinearModel, keys: &[u64], at: &[u16]) {
        self.keys.resize(head, 0);
        self.value_index.resize(head, 0);
        self.keys.extend_from_slice(keys);
        self.value_index.extend_from_slice(at);
        self.first_slot = head as u32;
        self.model = line.scaled(1.0, head);
    }

    /// Each key as near as can be to the slot that `place` wants for it; the slots between repeat
    /// the key before.
    fn spread_keys(&mut self, keys: &[u64], at: &[u16], place: impl Fn(usize, u64) -> usize) {
        let (n, slots) = (keys.len(), self.slots as usize);
        for (i, (&key, &a)) in keys.iter().zip(at).enumerate() {
            let want = place(i, key).min(slots - (n - i));
            if i > 0 && want > self.keys.len() {
                self.keys.resize(want, keys[i - 1]);
                self.value_index.resize(want, at[i - 1]);
            }
            self.keys.push(key);
            self.value_index.push(a);
        }
    }
}
