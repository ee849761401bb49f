//! Read and write sets of transactions: single keys and key ranges, in forms that can be compared.

use perigee_base::{FamilyId, KeyBoundary, KeyBoundaryRef, KeyComparator};
use perigee_file::log::BatchOp;
use perigee_tree::Memtable;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

/// The target of a read or a write.
#[derive(Clone, Copy, Debug)]
pub enum KeyOrRangeRef<'a> {
    /// A key.
    Key(&'a [u8]),
    /// All keys between two boundaries.
    Range(KeyBoundaryRef<'a>, KeyBoundaryRef<'a>),
}

impl<'a> KeyOrRangeRef<'a> {
    /// Returns the target of `op`, which points into `buf`.
    pub fn of_operation(buf: &'a [u8], op: &BatchOp) -> KeyOrRangeRef<'a> {
        match op.deleted_range_in(buf) {
            Some((begin, end)) => KeyOrRangeRef::Range(begin, end),
            None => KeyOrRangeRef::Key(&buf[op.key.clone()]),
        }
    }
    /// Returns true if both include a common key.
    pub fn overlaps(self, comparator: KeyComparator, other: KeyOrRangeRef<'_>) -> bool {
        match (self, other) {
            (KeyOrRangeRef::Key(a), KeyOrRangeRef::Key(b)) => comparator.keys_equal(a, b),
            (KeyOrRangeRef::Key(key), KeyOrRangeRef::Range(begin, end))
            | (KeyOrRangeRef::Range(begin, end), KeyOrRangeRef::Key(key)) => {
                range_contains(comparator, begin, end, key)
            }
            // A range whose end is not after its beginning is empty.
            (KeyOrRangeRef::Range(a, b), KeyOrRangeRef::Range(c, d)) => {
                let is_nonempty = |from: KeyBoundaryRef<'_>, to: KeyBoundaryRef<'_>| {
                    from.cmp(comparator, to).is_lt()
                };
                is_nonempty(a, b)
                    && is_nonempty(c, d)
                    && KeyBoundaryRef::ranges_overlap(comparator, (a, b), (c, d))
            }
        }
    }
    /// Copies the target.
    pub fn to_owned_target(self) -> KeyOrRange {
        match self {
            KeyOrRangeRef::Key(key) => KeyOrRange::Key(key.to_vec()),
            KeyOrRangeRef::Range(begin, end) => {
                KeyOrRange::Range(begin.to_boundary(), end.to_boundary())
            }
        }
    }
    /// Returns the key, or the beginning of the range.
    pub fn start_key(self) -> &'a [u8] {
        match self {
            KeyOrRangeRef::Key(key) => key,
            KeyOrRangeRef::Range(begin, _) => begin.key().unwrap_or_default(),
        }
    }
}

/// Returns true if `key` lies between the boundaries.
pub(super) fn range_contains(
    comparator: KeyComparator,
    begin: KeyBoundaryRef<'_>,
    end: KeyBoundaryRef<'_>,
    key: &[u8],
) -> bool {
    begin.is_before(comparator, key) && !end.is_before(comparator, key)
}

/// The operations of a batch by column family, as the commit sees them.
pub trait BatchOperations {
    /// Calls `visit` with every operation, its column family and the buffer that it points into.
    fn for_each_operation(&self, visit: &mut dyn FnMut(FamilyId, &[u8], &BatchOp));
}

/// Keys read individually, and key ranges scanned.
#[derive(Clone, Debug, Default)]
pub struct ReadSet {
    bytes: Vec<u8>,
    keys: Vec<(FamilyId, Range<usize>)>,
    /// Hashes of the listed keys: most keys are read repeatedly.
    key_hashes: HashSet<(FamilyId, u64), HashedKeys>,
    ranges: Vec<(FamilyId, KeyBoundary, KeyBoundary)>,
}

/// Hashes numbers of which one is a hash already. With an unpredictable factor, because keys whose
/// hashes share some bits can be constructed.
#[derive(Clone, Copy, Debug)]
struct HashedKeys {
    factor: u64,
    sum: u64,
}

impl Default for HashedKeys {
    fn default() -> HashedKeys {
        HashedKeys { factor: Memtable::hash_seed() | 1, sum: 0 }
    }
}

impl BuildHasher for HashedKeys {
    type Hasher = HashedKeys;
    fn build_hasher(&self) -> HashedKeys {
        *self
    }
}

impl Hasher for HashedKeys {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.sum = self.sum.rotate_left(8) ^ n;
    }
    fn finish(&self) -> u64 {
        self.sum.wrapping_mul(self.factor).rotate_left(32)
    }
}

impl ReadSet {
    /// Adds a key.
    pub fn add_key(&mut self, family: FamilyId, comparator: KeyComparator, key: &[u8]) {
        if self.key_hashes.insert((family, comparator.filter_hash(key)))
            || !comparator.supports_filters()
        {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(key);
            self.keys.push((family, start..self.bytes.len()));
        }
    }
    /// Adds a range; returns the index with which it can be widened.
    pub fn add_range(&mut self, family: FamilyId, range: Range<KeyBoundaryRef<'_>>) -> usize {
        self.ranges.push((family, range.start.to_boundary(), range.end.to_boundary()));
        self.ranges.len() - 1
    }
    /// Widens the range of a scan that has advanced, so that it includes `range`.
    pub fn widen_range(
        &mut self,
        index: usize,
        comparator: KeyComparator,
        range: Range<KeyBoundaryRef<'_>>,
    ) {
        check_slow!(
            index < self.ranges.len(),
            "a scan widens a range that it has recorded",
            index,
            self.ranges.len()
        );
        if let Some((_, from, to)) = self.ranges.get_mut(index) {
            if range.start.cmp(comparator, from.as_ref()).is_lt() {
                *from = range.start.to_boundary();
            }
            if range.end.cmp(comparator, to.as_ref()).is_gt() {
                *to = range.end.to_boundary();
            }
        }
    }
    /// Calls `visit` with every key and range.
    pub fn for_each(&self, visit: &mut dyn FnMut(FamilyId, KeyOrRangeRef<'_>)) {
        self.keys
            .iter()
            .for_each(|(family, at)| visit(*family, KeyOrRangeRef::Key(&self.bytes[at.clone()])));
        self.ranges.iter().for_each(|(family, b, e)| {
            visit(*family, KeyOrRangeRef::Range(b.as_ref(), e.as_ref()))
        });
    }
    /// Returns true if a write to `target` changes what was read; `hash` is the hash of the key.
    pub fn overlaps_write(
        &self,
        family: FamilyId,
        comparator: KeyComparator,
        hash: u64,
        target: KeyOrRangeRef<'_>,
    ) -> bool {
        let ranges = || self.ranges.iter().filter(|(f, ..)| *f == family);
        let in_ranges = || {
            ranges().any(|(_, b, e)| {
                KeyOrRangeRef::Range(b.as_ref(), e.as_ref()).overlaps(comparator, target)
            })
        };
        match target {
            KeyOrRangeRef::Key(_) if comparator.supports_filters() => {
                self.key_hashes.contains(&(family, hash)) || in_ranges()
            }
            KeyOrRangeRef::Key(key) => {
                let mut keys = self.keys.iter().filter(|(f, _)| *f == family);
                keys.any(|(_, at)| comparator.keys_equal(&self.bytes[at.clone()], key))
                    || in_ranges()
            }
            KeyOrRangeRef::Range(begin, end) => {
                let mut keys = self.keys.iter().filter(|(f, _)| *f == family);
                keys.any(|(_, at)| range_contains(comparator, begin, end, &self.bytes[at.clone()]))
                    || in_ranges()
            }
        }
    }
    /// Returns the approximate memory usage in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.bytes.len() + self.keys.len() * 64 + self.ranges.len() * 128) as u64
    }
}

/// What a transaction has written, kept beyond its batch: column family and its comparator, hash of
/// the key, target.
#[derive(Debug, Default)]
pub struct WriteSet(pub Vec<(FamilyId, KeyComparator, u64, KeyOrRange)>);

/// The target of a write, owned.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyOrRange {
    /// One key.
    Key(Vec<u8>),
    /// All keys between two boundaries.
    Range(KeyBoundary, KeyBoundary),
}

impl KeyOrRange {
    /// Borrows the target.
    pub fn borrowed(&self) -> KeyOrRangeRef<'_> {
        match self {
            KeyOrRange::Key(key) => KeyOrRangeRef::Key(key),
            KeyOrRange::Range(begin, end) => KeyOrRangeRef::Range(begin.as_ref(), end.as_ref()),
        }
    }
}

impl WriteSet {
    /// Returns everything that a batch writes. Dropped column families have no comparator and are
    /// skipped: they cannot be read.
    pub fn of_batch(
        batch: &dyn BatchOperations,
        comparator_of: &dyn Fn(FamilyId) -> Option<KeyComparator>,
    ) -> WriteSet {
        let mut all = Vec::new();
        batch.for_each_operation(&mut |family, buf, op| {
            let Some(comparator) = comparator_of(family) else { return };
            let (hash, target) = match KeyOrRangeRef::of_operation(buf, op) {
                KeyOrRangeRef::Key(key) => {
                    (comparator.filter_hash(key), KeyOrRange::Key(key.to_vec()))
                }
                KeyOrRangeRef::Range(begin, end) => {
                    (0, KeyOrRange::Range(begin.to_boundary(), end.to_boundary()))
                }
            };
            all.push((family, comparator, hash, target));
        });
        WriteSet(all)
    }
    /// Returns a write that changes what was read, if any.
    pub fn find_read_conflict(&self, reads: &ReadSet) -> Option<(FamilyId, &KeyOrRange)> {
        let hit = self.0.iter().find(|(family, comparator, hash, p)| {
            reads.overlaps_write(*family, *comparator, *hash, p.borrowed())
        });
        hit.map(|(family, _, _, target)| (*family, target))
    }
    /// Returns the approximate memory usage in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.0.iter().map(|w| 96 + w.3.borrowed().start_key().len() as u64).sum()
    }
}
