//! How a leaf is laid out: how many slots, where its keys go, when it is split and when two become one. All costs are
//! in units of about a nanosecond.

use super::{Lately, Leaf};
use crate::line::Line;

/// Slots of the largest leaf.
pub const SLOTS_MAX: usize = 2048;
/// Entries from which on a leaf with gaps is split.
pub const ENTRIES_MAX: usize = SLOTS_MAX * 4 / 5;
/// Slots of the smallest leaf.
const SLOTS_MIN: usize = 16;
/// Average distance between keys and the line, in entries, above which keys count as not following it.
const ERROR_MAX: f64 = 24.0;
/// Entries below which a leaf is not split because of its line.
const SPLIT_MIN: usize = 512;

/// Where the free slots are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lean {
    /// Between the keys.
    Even,
    /// All behind: the keys came in ascending order.
    Back,
    /// All before: they came in descending order.
    Front,
}

/// What mending did to a leaf.
pub enum Mended<V> {
    /// It has room.
    Itself,
    /// It was split: this is its right part, and the smallest key that belongs there.
    Split(u64, Leaf<V>),
}

/// Slots, and the limit of entries, for `n` entries.
fn room(lean: Lean, n: usize) -> (usize, usize) {
    if lean == Lean::Even {
        let slots = (n * 5 / 3 + 1).clamp(SLOTS_MIN, SLOTS_MAX);
        (slots, (slots * 4 / 5).max(n))
    } else {
        let slots = (2 * n).clamp(SLOTS_MIN, SLOTS_MAX);
        (slots, slots)
    }
}

/// Where to split: in the middle, or where a wide gap between keys is not far from it.
fn cut(keys: &[u64]) -> usize {
    let n = keys.len();
    let gap = |i: &usize| keys[*i] - keys[*i - 1];
    let widest = (n / 4 + 1..n * 3 / 4).max_by_key(gap);
    widest.filter(|i| gap(i) > (keys[n - 1] - keys[0]) / 8).unwrap_or(n / 2)
}

impl<V> Leaf<V> {
    /// A leaf for keys that come in this way.
    pub fn empty(lean: Lean, expected: usize) -> Leaf<V> {
        let (slots, limit) = room(lean, expected / 2);
        Leaf {
            keys: Vec::with_capacity(slots),
            at: Vec::with_capacity(slots),
            values: Vec::with_capacity(limit),
            line: Line::default(),
            plain: false,
            head: 0,
            slots: slots as u32,
            limit: limit as u32,
            lately: Lately { patience: u32::MAX, ..Lately::default() },
        }
    }

    /// A leaf of entries that ascend strictly, at most [`ENTRIES_MAX`].
    pub fn build(entries: impl Iterator<Item = (u64, V)>, n: usize) -> Leaf<V> {
        let mut leaf = Leaf::empty(Lean::Even, 0);
        let mut keys = Vec::with_capacity(n);
        leaf.values.reserve_exact(room(Lean::Even, n).1);
        for (key, value) in entries.take(n) {
            keys.push(key);
            leaf.values.push(value);
        }
        let at = (0..keys.len() as u16).collect();
        leaf.lay(keys, at, Lean::Even);
        leaf
    }

    fn lean(&self) -> Lean {
        let Lately { back, front, between, .. } = self.lately;
        let most = (back + front + between) / 8 * 7;
        if back > most.max(4) {
            Lean::Back
        } else if front > most.max(4) {
            Lean::Front
        } else {
            Lean::Even
        }
    }

    /// Makes room for `key`.
    pub fn mend(&mut self, key: u64) -> Mended<V> {
        let lean = self.lean();
        let n = self.len();
        if lean == Lean::Back && n >= ENTRIES_MAX && self.last().is_some_and(|k| k < key) {
            self.lately = Lately { patience: self.lately.patience, ..Lately::default() };
            return Mended::Split(key, Leaf::empty(Lean::Back, SLOTS_MAX / 8));
        }
        if let (Lean::Front, Some(first)) = (lean, self.first().filter(|&k| n >= ENTRIES_MAX && key < k)) {
            self.lately = Lately { patience: self.lately.patience, ..Lately::default() };
            let before = Leaf { head: 0, ..Leaf::empty(Lean::Front, SLOTS_MAX / 8) };
            return Mended::Split(first, std::mem::replace(self, before));
        }
        let (keys, at) = self.runs();
        let cut = cut(&keys);
        if n >= ENTRIES_MAX || self.splitting_pays(&keys, cut) {
            return self.split(keys, at, cut);
        }
        self.lay(keys, at, lean);
        Mended::Itself
    }

    /// Whether inserts are dear because the keys do not follow one line, but both parts do.
    fn splitting_pays(&self, keys: &[u64], cut: usize) -> bool {
        if self.lately.work <= self.lately.patience || keys.len() < SPLIT_MIN {
            return false;
        }
        let error = |keys: &[u64]| Line::fit(keys).error(keys);
        let whole = error(keys);
        let (left, right) = keys.split_at(cut);
        whole > ERROR_MAX / 2.0 && (error(left) + error(right)) / 2.0 < whole / 3.0
    }

    /// Entries from number `cut` on go to a new leaf.
    fn split(&mut self, mut keys: Vec<u64>, mut at: Vec<u16>, cut: usize) -> Mended<V> {
        let n = keys.len();
        let mut goes_right = vec![false; n];
        at[cut..].iter().for_each(|&a| goes_right[a as usize] = true);
        let mut left = Vec::with_capacity(room(Lean::Even, cut).1);
        let mut right = Vec::with_capacity(room(Lean::Even, n - cut).1);
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
        self.lay(keys, at, Lean::Even);
        let mut other = Leaf::empty(Lean::Even, 0);
        other.values = right;
        other.lay(right_keys, right_at, Lean::Even);
        Mended::Split(bound, other)
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
        let (keys, at) = self.runs();
        self.lay(keys, at, Lean::Even);
    }
    /// Takes over the entries of the leaf to its right.
    pub fn absorb(&mut self, right: Leaf<V>) {
        let (mut keys, mut at) = self.runs();
        let (right_keys, right_at) = right.runs();
        let offset = self.values.len() as u16;
        keys.extend(right_keys);
        at.extend(right_at.into_iter().map(|a| a + offset));
        self.values.reserve_exact(right.values.len());
        self.values.extend(right.values);
        self.lay(keys, at, Lean::Even);
    }

    /// Lays all entries out anew: `keys` ascend, and their values are `at` the places in `values`.
    fn lay(&mut self, keys: Vec<u64>, at: Vec<u16>, lean: Lean) {
        let n = keys.len();
        let (slots, limit) = room(lean, n);
        self.values.reserve_exact(limit - n);
        self.values.shrink_to(limit);
        (self.slots, self.limit, self.head, self.plain) = (slots as u32, limit as u32, 0, false);
        if n == 0 {
            *self = Leaf::empty(lean, 0);
            return;
        }
        let line = Line::fit(&keys);
        let fits = line.error(&keys) <= ERROR_MAX;
        self.keys = Vec::with_capacity(slots);
        self.at = Vec::with_capacity(slots);
        match lean {
            Lean::Back => self.pack(0, line, &keys, &at),
            Lean::Front => self.pack(slots - n, line, &keys, &at),
            Lean::Even => {
                let factor = slots as f64 / n as f64;
                self.line = line.stretched(factor, 0);
                let line = self.line;
                if fits {
                    self.spread(&keys, &at, |_, key| line.at(key, slots));
                } else {
                    self.spread(&keys, &at, |i, _| i * slots / n);
                }
            }
        }
        self.plain = !fits;
        // Work that did not help is not done again soon.
        let patience = if fits { 8 * n } else { 32 * n } as u32;
        self.lately = Lately { patience: patience.max(256), ..Lately::default() };
    }

    /// All keys side by side, from slot `head` on.
    fn pack(&mut self, head: usize, line: Line, keys: &[u64], at: &[u16]) {
        self.keys.resize(head, 0);
        self.at.resize(head, 0);
        self.keys.extend_from_slice(keys);
        self.at.extend_from_slice(at);
        self.head = head as u32;
        self.line = line.stretched(1.0, head);
    }

    /// Each key as near as can be to the slot that `place` wants for it; the slots between repeat the key before.
    fn spread(&mut self, keys: &[u64], at: &[u16], place: impl Fn(usize, u64) -> usize) {
        let (n, slots) = (keys.len(), self.slots as usize);
        for (i, (&key, &a)) in keys.iter().zip(at).enumerate() {
            let want = place(i, key).min(slots - (n - i));
            if i > 0 && want > self.keys.len() {
                self.keys.resize(want, keys[i - 1]);
                self.at.resize(want, at[i - 1]);
            }
            self.keys.push(key);
            self.at.push(a);
        }
    }
}
