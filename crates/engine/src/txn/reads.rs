//! What a transaction has read, for its check at commit.

use perigee_base::cut::{Cut, CutRef};
use perigee_base::{FamilyId, KeyOrder};
use std::collections::HashSet;
use std::ops::Range;

/// Keys read by themselves, and stretches walked through.
#[derive(Debug, Default)]
pub struct Reads {
    bytes: Vec<u8>,
    keys: Vec<(FamilyId, Range<usize>)>,
    /// Hashes of the keys that are listed: most are read again and again.
    seen: HashSet<(FamilyId, u64)>,
    ranges: Vec<(FamilyId, Cut, Cut)>,
}

impl Reads {
    /// Remembers a key.
    pub fn key(&mut self, family: FamilyId, order: KeyOrder, key: &[u8]) {
        if self.seen.insert((family, order.filter_hash(key))) {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(key);
            self.keys.push((family, start..self.bytes.len()));
        }
    }
    /// Remembers a stretch; the number under which it can be widened.
    pub fn range(&mut self, family: FamilyId, begin: Cut, end: Cut) -> usize {
        self.ranges.push((family, begin, end));
        self.ranges.len() - 1
    }
    /// A walk has gone on: its stretch reaches at least from and to these places.
    pub fn widen(&mut self, number: usize, order: KeyOrder, (begin, end): (CutRef<'_>, CutRef<'_>)) {
        if let Some((_, from, to)) = self.ranges.get_mut(number) {
            if begin.cmp(order, from.as_ref()).is_lt() {
                *from = begin.to_cut();
            }
            if end.cmp(order, to.as_ref()).is_gt() {
                *to = end.to_cut();
            }
        }
    }
    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = (FamilyId, &[u8])> {
        self.keys.iter().map(|(family, at)| (*family, &self.bytes[at.clone()]))
    }
    /// The stretches.
    pub fn ranges(&self) -> impl Iterator<Item = (FamilyId, CutRef<'_>, CutRef<'_>)> {
        self.ranges.iter().map(|(family, begin, end)| (*family, begin.as_ref(), end.as_ref()))
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }
    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> u64 {
        (self.bytes.len() + self.keys.len() * 64 + self.ranges.len() * 128) as u64
    }
}
