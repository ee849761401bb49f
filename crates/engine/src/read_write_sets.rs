//! What transactions have read and written, in forms that can be compared: keys by themselves, and
//! stretches of keys.

use perigee_base::key_boundary::{KeyBoundary, KeyBoundaryRef};
use perigee_base::{FamilyId, KeyComparator};
use perigee_file::log::BatchOp;
use std::collections::HashSet;
use std::ops::Range;

/// What a read or a write is about.
#[derive(Clone, Copy, Debug)]
pub enum KeyOrRangeRef<'a> {
    /// A key.
    Key(&'a [u8]),
    /// All keys between two places.
    Range(KeyBoundaryRef<'a>, KeyBoundaryRef<'a>),
}

impl<'a> KeyOrRangeRef<'a> {
    /// What `op`, which points into `buf`, is about.
    pub fn of_operation(buf: &'a [u8], op: &BatchOp) -> KeyOrRangeRef<'a> {
        match op.deleted_range_in(buf) {
            Some((begin, end)) => KeyOrRangeRef::Range(begin, end),
            None => KeyOrRangeRef::Key(&buf[op.key.clone()]),
        }
    }
    /// Whether both are about a key in common.
    pub fn overlaps(self, order: KeyComparator, other: KeyOrRangeRef<'_>) -> bool {
        match (self, other) {
            (KeyOrRangeRef::Key(a), KeyOrRangeRef::Key(b)) => order.keys_equal(a, b),
            (KeyOrRangeRef::Key(key), KeyOrRangeRef::Range(begin, end))
            | (KeyOrRangeRef::Range(begin, end), KeyOrRangeRef::Key(key)) => {
                range_contains(order, begin, end, key)
            }
            // A stretch whose ends are the wrong way round holds nothing.
            (KeyOrRangeRef::Range(a, b), KeyOrRangeRef::Range(c, d)) => {
                let holds =
                    |from: KeyBoundaryRef<'_>, to: KeyBoundaryRef<'_>| from.cmp(order, to).is_lt();
                holds(a, b) && holds(c, d) && KeyBoundaryRef::ranges_overlap(order, (a, b), (c, d))
            }
        }
    }
    /// The key, or where the stretch begins.
    pub fn start_key(self) -> &'a [u8] {
        match self {
            KeyOrRangeRef::Key(key) => key,
            KeyOrRangeRef::Range(begin, _) => begin.key().unwrap_or_default(),
        }
    }
}

fn range_contains(
    order: KeyComparator,
    begin: KeyBoundaryRef<'_>,
    end: KeyBoundaryRef<'_>,
    key: &[u8],
) -> bool {
    begin.is_before(order, key) && !end.is_before(order, key)
}

/// The operations of a batch by family, as the commit has them.
pub trait BatchOperations {
    /// Every operation with its family; the buffer that it points into.
    fn for_each_operation(&self, visit: &mut dyn FnMut(FamilyId, &[u8], &BatchOp));
}

/// Keys read by themselves, and stretches walked through.
#[derive(Clone, Debug, Default)]
pub struct ReadSet {
    bytes: Vec<u8>,
    keys: Vec<(FamilyId, Range<usize>)>,
    /// Hashes of the keys that are listed: most are read again and again.
    key_hashes: HashSet<(FamilyId, u64)>,
    ranges: Vec<(FamilyId, KeyBoundary, KeyBoundary)>,
}

impl ReadSet {
    /// Remembers a key.
    pub fn add_key(&mut self, family: FamilyId, order: KeyComparator, key: &[u8]) {
        if self.key_hashes.insert((family, order.filter_hash(key))) || !order.supports_filters() {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(key);
            self.keys.push((family, start..self.bytes.len()));
        }
    }
    /// Remembers a stretch; the number under which it can be widened.
    pub fn add_range(
        &mut self,
        family: FamilyId,
        (begin, end): (KeyBoundaryRef<'_>, KeyBoundaryRef<'_>),
    ) -> usize {
        self.ranges.push((family, begin.to_boundary(), end.to_boundary()));
        self.ranges.len() - 1
    }
    /// A walk has gone on: its stretch reaches at least from and to these places.
    pub fn widen_range(
        &mut self,
        number: usize,
        order: KeyComparator,
        (begin, end): (KeyBoundaryRef<'_>, KeyBoundaryRef<'_>),
    ) {
        if let Some((_, from, to)) = self.ranges.get_mut(number) {
            if begin.cmp(order, from.as_ref()).is_lt() {
                *from = begin.to_boundary();
            }
            if end.cmp(order, to.as_ref()).is_gt() {
                *to = end.to_boundary();
            }
        }
    }
    /// Everything, as what it is about.
    pub fn for_each(&self, visit: &mut dyn FnMut(FamilyId, KeyOrRangeRef<'_>)) {
        self.keys
            .iter()
            .for_each(|(family, at)| visit(*family, KeyOrRangeRef::Key(&self.bytes[at.clone()])));
        self.ranges.iter().for_each(|(family, b, e)| {
            visit(*family, KeyOrRangeRef::Range(b.as_ref(), e.as_ref()))
        });
    }
    /// Whether a write to `target`, a key of which has `hash`, changes what was read.
    pub fn overlaps_write(
        &self,
        family: FamilyId,
        order: KeyComparator,
        hash: u64,
        target: KeyOrRangeRef<'_>,
    ) -> bool {
        let ranges = || self.ranges.iter().filter(|(f, ..)| *f == family);
        let in_ranges = || {
            ranges().any(|(_, b, e)| {
                KeyOrRangeRef::Range(b.as_ref(), e.as_ref()).overlaps(order, target)
            })
        };
        match target {
            KeyOrRangeRef::Key(_) if order.supports_filters() => {
                self.key_hashes.contains(&(family, hash)) || in_ranges()
            }
            KeyOrRangeRef::Key(key) => {
                let mut keys = self.keys.iter().filter(|(f, _)| *f == family);
                keys.any(|(_, at)| order.keys_equal(&self.bytes[at.clone()], key)) || in_ranges()
            }
            KeyOrRangeRef::Range(begin, end) => {
                let mut keys = self.keys.iter().filter(|(f, _)| *f == family);
                keys.any(|(_, at)| range_contains(order, begin, end, &self.bytes[at.clone()]))
                    || in_ranges()
            }
        }
    }
    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> u64 {
        (self.bytes.len() + self.keys.len() * 64 + self.ranges.len() * 128) as u64
    }
}

/// What a transaction has written, kept beyond its batch: family and its order, hash of the key,
/// place.
#[derive(Debug, Default)]
pub struct WriteSet(pub Vec<(FamilyId, KeyComparator, u64, KeyOrRange)>);

/// What a write was about, owned.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyOrRange {
    /// One key.
    Key(Vec<u8>),
    /// All keys between two places.
    Range(KeyBoundary, KeyBoundary),
}

impl KeyOrRange {
    /// Borrowed.
    pub fn borrowed(&self) -> KeyOrRangeRef<'_> {
        match self {
            KeyOrRange::Key(key) => KeyOrRangeRef::Key(key),
            KeyOrRange::Range(begin, end) => KeyOrRangeRef::Range(begin.as_ref(), end.as_ref()),
        }
    }
}

impl WriteSet {
    /// All that a batch writes; families that are gone have no order, and nobody reads them.
    pub fn of_batch(
        parts: &dyn BatchOperations,
        order_of: &dyn Fn(FamilyId) -> Option<KeyComparator>,
    ) -> WriteSet {
        let mut all = Vec::new();
        parts.for_each_operation(&mut |family, buf, op| {
            let Some(order) = order_of(family) else { return };
            let (hash, place) = match KeyOrRangeRef::of_operation(buf, op) {
                KeyOrRangeRef::Key(key) => (order.filter_hash(key), KeyOrRange::Key(key.to_vec())),
                KeyOrRangeRef::Range(begin, end) => {
                    (0, KeyOrRange::Range(begin.to_boundary(), end.to_boundary()))
                }
            };
            all.push((family, order, hash, place));
        });
        WriteSet(all)
    }
    /// Something of it that changes what was read.
    pub fn find_read_conflict(&self, reads: &ReadSet) -> Option<(FamilyId, &KeyOrRange)> {
        let hit = self.0.iter().find(|(family, order, hash, p)| {
            reads.overlaps_write(*family, *order, *hash, p.borrowed())
        });
        hit.map(|(family, _, _, place)| (*family, place))
    }
    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> u64 {
        self.0.iter().map(|w| 96 + w.3.borrowed().start_key().len() as u64).sum()
    }
}
