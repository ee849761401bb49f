//! The range tombstones of a memtable, for readers at any sequence number.
//!
//! A map holds fragments: key ranges that do not overlap, each with the newest tombstone over it.
//! A new tombstone replaces the fragments inside its range, and refers to them: a reader that must
//! not see it goes on with what it replaced.
//!
//! ```text
//! deleted: [a, f) at 1, [c, d) at 2, [b, e) at 3
//!
//! map         [a, b) 1   [b, e) 3                      [e, f) 1
//!                           |
//! replaced               [b, c) 1   [c, d) 2   [d, e) 1
//!                                      |
//! replaced                          [c, d) 1
//! ```
//! A tombstone splits two fragments at most and adds one, and each fragment is replaced once. So
//! `n` tombstones leave at most `3 n` fragments and take `n log n` time, even if each overlaps all
//! others, and the newest tombstone over a key is found in `log n`. A reader at an older sequence
//! number takes one more step for each newer tombstone over the key, of which there are a limited
//! number ([`OVERLAPPING_TOMBSTONES_MAX`]); a scan asks for the fragments of its time instead.
//!
//! Invariants: fragments of the map, and those that one fragment refers to, ascend and do not
//! overlap; what a fragment refers to is older; the fragments with the same sequence number,
//! wherever they are, add up to the range of that tombstone.

#[cfg(doc)]
use crate::limits::OVERLAPPING_TOMBSTONES_MAX;
use crate::mvcc::SnapshotStripes;
use perigee_base::{KeyBoundary, KeyBoundaryRef, KeyComparator, SeqNo};
use perigee_file::{RangeTombstoneFragment, RangeTombstones};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Size of a fragment in memory, approximately: a place in the map, and one among those replaced.
const FRAGMENT_BYTES: usize = 160;
/// Size of a boundary in memory, in addition to its key.
const BOUNDARY_BYTES: usize = 64;

/// A boundary that a map is searched for.
trait OrderedBoundary {
    fn comparator(&self) -> KeyComparator;
    fn boundary(&self) -> KeyBoundaryRef<'_>;
}

impl Ord for dyn OrderedBoundary + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.boundary().cmp(self.comparator(), other.boundary())
    }
}
impl PartialOrd for dyn OrderedBoundary + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for dyn OrderedBoundary + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for dyn OrderedBoundary + '_ {}

/// The start of a fragment of the map.
#[derive(Clone, Debug)]
struct FragmentStart {
    comparator: KeyComparator,
    boundary: Arc<KeyBoundary>,
}

impl OrderedBoundary for FragmentStart {
    fn comparator(&self) -> KeyComparator {
        self.comparator
    }
    fn boundary(&self) -> KeyBoundaryRef<'_> {
        (*self.boundary).as_ref()
    }
}
impl Ord for FragmentStart {
    fn cmp(&self, other: &Self) -> Ordering {
        self.boundary().cmp(self.comparator, other.boundary())
    }
}
impl PartialOrd for FragmentStart {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for FragmentStart {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for FragmentStart {}
impl<'a> Borrow<dyn OrderedBoundary + 'a> for FragmentStart {
    fn borrow(&self) -> &(dyn OrderedBoundary + 'a) {
        self
    }
}

/// A borrowed boundary with its order.
struct SearchedBoundary<'a> {
    comparator: KeyComparator,
    boundary: KeyBoundaryRef<'a>,
}

impl OrderedBoundary for SearchedBoundary<'_> {
    fn comparator(&self) -> KeyComparator {
        self.comparator
    }
    fn boundary(&self) -> KeyBoundaryRef<'_> {
        self.boundary
    }
}

/// The part of a tombstone between two boundaries.
#[derive(Clone, Debug)]
struct Fragment {
    end: Arc<KeyBoundary>,
    seq: SeqNo,
    /// Indexes of the fragments that it replaced. After a split, some may lie outside of it.
    replaced: Range<usize>,
}

impl Fragment {
    fn end(&self) -> KeyBoundaryRef<'_> {
        (*self.end).as_ref()
    }
}

/// A fragment that newer ones have replaced.
#[derive(Debug)]
struct ReplacedFragment {
    begin: Arc<KeyBoundary>,
    fragment: Fragment,
}

impl ReplacedFragment {
    fn begin(&self) -> KeyBoundaryRef<'_> {
        (*self.begin).as_ref()
    }
}

/// A key range around a key in which a reader sees the same tombstone everywhere, or none.
#[derive(Clone, Copy, Debug)]
pub struct VisibleSpan<'a> {
    /// Start of the range.
    pub begin: KeyBoundaryRef<'a>,
    /// End of the range.
    pub end: KeyBoundaryRef<'a>,
    /// The newest visible tombstone over it.
    pub newest: Option<SeqNo>,
    /// Number of newer tombstones over the key that are not visible.
    pub steps: u32,
}

/// A set of range tombstones, added in the order of their sequence numbers.
#[derive(Debug)]
pub struct TombstoneMap {
    comparator: KeyComparator,
    newest: BTreeMap<FragmentStart, Fragment>,
    /// Fragments that are no longer in the map; those that were replaced together are adjacent.
    replaced: Vec<ReplacedFragment>,
    newest_seq: SeqNo,
}

impl TombstoneMap {
    /// Creates an empty set.
    pub fn new(comparator: KeyComparator) -> TombstoneMap {
        TombstoneMap {
            comparator,
            newest: BTreeMap::new(),
            replaced: Vec::new(),
            newest_seq: SeqNo::ZERO,
        }
    }
    /// Adds a tombstone, which must be newer than all before. Returns the memory newly allocated,
    /// in bytes.
    pub fn add(&mut self, keys: Range<KeyBoundaryRef<'_>>, seq: SeqNo) -> usize {
        let comparator = self.comparator;
        if keys.start.cmp(comparator, keys.end) != Ordering::Less {
            return 0;
        }
        check_slow!(
            seq > self.newest_seq,
            "range tombstones are added in the order of their sequence numbers",
            self.newest_seq,
            seq
        );
        self.newest_seq = seq;
        let (begin, end) = (Arc::new(keys.start.to_boundary()), Arc::new(keys.end.to_boundary()));
        let split = usize::from(self.split_at(&begin)) + usize::from(self.split_at(&end));
        let start = FragmentStart { comparator, boundary: begin };
        let inside: Vec<FragmentStart> = self
            .newest
            .range::<FragmentStart, _>(
                &start..&FragmentStart { comparator, boundary: Arc::clone(&end) },
            )
            .map(|(at, _)| at.clone())
            .collect();
        let first_replaced = self.replaced.len();
        for at in inside {
            let Some((at, fragment)) = self.newest.remove_entry(&at) else { continue };
            self.replaced.push(ReplacedFragment { begin: at.boundary, fragment });
        }
        let replaced = first_replaced..self.replaced.len();
        check_slow!(
            self.are_ordered(&self.replaced[replaced.clone()], seq),
            "replaced fragments ascend, do not overlap and are older",
            seq
        );
        let shadowed = self.newest.insert(start, Fragment { end, seq, replaced });
        check!(shadowed.is_none(), "a fragment is replaced before its range is reused", shadowed);
        let boundaries = keys.start.encoded_bytes() + keys.end.encoded_bytes() + 2 * BOUNDARY_BYTES;
        (1 + split) * FRAGMENT_BYTES + boundaries
    }

    /// Splits the fragment around `boundary`. Returns false if there is none.
    fn split_at(&mut self, boundary: &Arc<KeyBoundary>) -> bool {
        let comparator = self.comparator;
        let at = FragmentStart { comparator, boundary: Arc::clone(boundary) };
        let before = self.newest.range_mut::<FragmentStart, _>(..&at).next_back();
        let Some((_, left)) = before else { return false };
        if left.end().cmp(comparator, at.boundary()) != Ordering::Greater {
            return false;
        }
        let right = left.clone();
        left.end = Arc::clone(boundary);
        self.newest.insert(at, right);
        true
    }

    /// Returns true if the fragments ascend, do not overlap, and are older than `seq`.
    fn are_ordered(&self, fragments: &[ReplacedFragment], seq: SeqNo) -> bool {
        let comparator = self.comparator;
        fragments.iter().all(|f| {
            f.begin().cmp(comparator, f.fragment.end()) == Ordering::Less && f.fragment.seq < seq
        }) && fragments
            .windows(2)
            .all(|w| w[0].fragment.end().cmp(comparator, w[1].begin()) != Ordering::Greater)
    }

    /// Returns the fragments of the map from the one around `boundary` on.
    fn fragments_from(
        &self,
        boundary: KeyBoundaryRef<'_>,
    ) -> impl Iterator<Item = (KeyBoundaryRef<'_>, &Fragment)> {
        let comparator = self.comparator;
        let at = SearchedBoundary { comparator, boundary };
        let at: &dyn OrderedBoundary = &at;
        let around = self
            .newest
            .range::<dyn OrderedBoundary, _>((Bound::Unbounded, Bound::Excluded(at)))
            .next_back()
            .filter(|(_, f)| f.end().cmp(comparator, boundary) == Ordering::Greater);
        let rest =
            self.newest.range::<dyn OrderedBoundary, _>((Bound::Included(at), Bound::Unbounded));
        around.into_iter().chain(rest).map(|(begin, f)| (begin.boundary(), f))
    }

    /// Returns the span around `key` of the map, and its fragment.
    fn newest_span(&self, key: &[u8]) -> (Range<KeyBoundaryRef<'_>>, Option<&Fragment>) {
        let at =
            SearchedBoundary { comparator: self.comparator, boundary: KeyBoundaryRef::Before(key) };
        let at: &dyn OrderedBoundary = &at;
        let map = &self.newest;
        let before = map.range::<dyn OrderedBoundary, _>((Bound::Unbounded, Bound::Included(at)));
        let after = || map.range::<dyn OrderedBoundary, _>((Bound::Excluded(at), Bound::Unbounded));
        self.span_between(
            before.map(|(begin, f)| (begin.boundary(), f)).next_back(),
            || after().next().map(|(begin, _)| begin.boundary()),
            key,
        )
    }

    /// Returns the span around `key` among the fragments that `newer` replaced, and its fragment.
    fn replaced_span<'a>(
        &'a self,
        newer: &Fragment,
        key: &[u8],
    ) -> (Range<KeyBoundaryRef<'a>>, Option<&'a Fragment>) {
        let fragments = &self.replaced[newer.replaced.clone()];
        let after = fragments.partition_point(|f| f.begin().is_before(self.comparator, key));
        let before = after.checked_sub(1).map(|i| (fragments[i].begin(), &fragments[i].fragment));
        self.span_between(before, || fragments.get(after).map(ReplacedFragment::begin), key)
    }

    /// Returns the span around `key` that the last fragment which begins before it covers, or
    /// otherwise ends at `after`, the start of the next fragment.
    fn span_between<'a>(
        &self,
        before: Option<(KeyBoundaryRef<'a>, &'a Fragment)>,
        after: impl FnOnce() -> Option<KeyBoundaryRef<'a>>,
        key: &[u8],
    ) -> (Range<KeyBoundaryRef<'a>>, Option<&'a Fragment>) {
        match before {
            Some((begin, f)) if !f.end().is_before(self.comparator, key) => {
                (begin..f.end(), Some(f))
            }
            _ => {
                let begin = before.map_or(KeyBoundaryRef::First, |(_, f)| f.end());
                (begin..after().unwrap_or(KeyBoundaryRef::Last), None)
            }
        }
    }

    /// Returns the newest visible tombstone that covers `key`.
    pub fn newest_covering(&self, key: &[u8], is_visible: impl Fn(SeqNo) -> bool) -> Option<SeqNo> {
        let (_, mut fragment) = self.newest_span(key);
        while let Some(f) = fragment.filter(|f| !is_visible(f.seq)) {
            fragment = self.replaced_span(f, key).1;
        }
        fragment.map(|f| f.seq)
    }

    /// Returns the span around `key` for a reader.
    pub fn span_around(&self, key: &[u8], is_visible: impl Fn(SeqNo) -> bool) -> VisibleSpan<'_> {
        let comparator = self.comparator;
        let (Range { start: mut begin, end: mut last }, mut fragment) = self.newest_span(key);
        let mut steps = 0;
        while let Some(f) = fragment.filter(|f| !is_visible(f.seq)) {
            steps += 1;
            let (inner, older) = self.replaced_span(f, key);
            begin = begin.larger(comparator, inner.start);
            last = last.smaller(comparator, inner.end);
            fragment = older;
        }
        check_slow!(
            begin.is_before(comparator, key) && !last.is_before(comparator, key),
            "the span around a key contains it",
            begin,
            last,
            key
        );
        VisibleSpan { begin, end: last, newest: fragment.map(|f| f.seq), steps }
    }

    /// Returns the ranges whose newest tombstone is newer than `since`, joined where they meet.
    pub fn newer_ranges(&self, since: SeqNo) -> Vec<(KeyBoundary, KeyBoundary)> {
        let mut ranges: Vec<(KeyBoundary, KeyBoundary)> = Vec::new();
        if self.newest_seq <= since {
            return ranges;
        }
        for (begin, f) in self.newest.iter().filter(|(_, f)| f.seq > since) {
            match ranges.last_mut() {
                Some((_, end)) if end.as_ref().cmp(self.comparator, begin.boundary()).is_eq() => {
                    *end = (*f.end).clone();
                }
                _ => ranges.push(((*begin.boundary).clone(), (*f.end).clone())),
            }
        }
        ranges
    }

    /// Returns the start of the first range that overlaps `keys` and whose newest tombstone is
    /// newer than `since`.
    pub fn first_newer(
        &self,
        keys: Range<KeyBoundaryRef<'_>>,
        since: SeqNo,
    ) -> Option<KeyBoundaryRef<'_>> {
        if self.newest_seq <= since {
            return None;
        }
        self.fragments_from(keys.start)
            .take_while(|(begin, _)| begin.cmp(self.comparator, keys.end) == Ordering::Less)
            .find(|(_, f)| f.seq > since)
            .map(|(begin, _)| begin)
    }

    /// Number of fragments that newer ones have replaced: 0 if no tombstones overlap.
    pub fn replaced_fragments(&self) -> usize {
        self.replaced.len()
    }
    /// Returns the parts of all tombstones, in no particular order.
    pub fn parts(&self) -> TombstoneParts {
        let newest = self.newest.iter().map(|(begin, f)| (&begin.boundary, f));
        let replaced = self.replaced.iter().map(|f| (&f.begin, &f.fragment));
        let part = |(begin, f): (&Arc<KeyBoundary>, &Fragment)| TombstonePart {
            begin: Arc::clone(begin),
            end: Arc::clone(&f.end),
            seq: f.seq,
        };
        TombstoneParts {
            comparator: self.comparator,
            parts: newest.chain(replaced).map(part).collect(),
        }
    }
}

/// A part of a tombstone.
#[derive(Debug)]
struct TombstonePart {
    begin: Arc<KeyBoundary>,
    end: Arc<KeyBoundary>,
    seq: SeqNo,
}

/// All tombstones, taken out of a map to be fragmented without its lock.
#[derive(Debug)]
pub struct TombstoneParts {
    comparator: KeyComparator,
    parts: Vec<TombstonePart>,
}

impl TombstoneParts {
    /// Returns the tombstones as fragments with all that readers can tell apart: of each snapshot
    /// stripe the newest one.
    pub fn fragments(&self, stripes: &SnapshotStripes) -> RangeTombstones {
        self.sweep(|covering| newest_of_each_stripe(covering, stripes))
    }
    /// Returns what a reader at `at` sees: fragments with the newest visible tombstone.
    pub fn fragments_at(&self, at: SeqNo) -> RangeTombstones {
        self.sweep(|covering| {
            let newest = covering.range(..=at).next_back();
            newest.map(|(seq, _)| *seq).into_iter().collect()
        })
    }

    /// Sweeps over the boundaries in key order. `choose` returns the sequence numbers, newest
    /// first, to keep of those that cover a fragment, which come with the number of parts.
    fn sweep(&self, choose: impl Fn(&BTreeMap<SeqNo, u32>) -> Vec<SeqNo>) -> RangeTombstones {
        let comparator = self.comparator;
        // Where a part begins (true) and where it ends.
        let mut edges: Vec<(KeyBoundaryRef<'_>, bool, SeqNo)> = self
            .parts
            .iter()
            .flat_map(|p| [((*p.begin).as_ref(), true, p.seq), ((*p.end).as_ref(), false, p.seq)])
            .collect();
        edges.sort_unstable_by(|a, b| a.0.cmp(comparator, b.0).then(b.1.cmp(&a.1)));
        let mut covering: BTreeMap<SeqNo, u32> = BTreeMap::new();
        let mut out: Vec<Arc<RangeTombstoneFragment>> = Vec::new();
        for (i, (boundary, begins, seq)) in edges.iter().enumerate() {
            let parts = covering.entry(*seq).or_default();
            *parts = if *begins { *parts + 1 } else { *parts - 1 };
            if *parts == 0 {
                covering.remove(seq);
            }
            let Some((next, ..)) = edges.get(i + 1) else { break };
            if covering.is_empty() || next.cmp(comparator, *boundary) == Ordering::Equal {
                continue;
            }
            let seqs = choose(&covering);
            check_slow!(
                seqs.iter().all(|seq| covering.contains_key(seq)),
                "a fragment keeps tombstones that cover it",
                seqs
            );
            match out.last_mut().and_then(Arc::get_mut) {
                _ if seqs.is_empty() => {}
                Some(last)
                    if last.seqs == seqs
                        && last.end.as_ref().cmp(comparator, *boundary) == Ordering::Equal =>
                {
                    last.end = next.to_boundary();
                }
                _ => out.push(Arc::new(RangeTombstoneFragment {
                    begin: boundary.to_boundary(),
                    end: next.to_boundary(),
                    seqs,
                })),
            }
        }
        check!(covering.is_empty(), "every tombstone ends", covering.len());
        RangeTombstones::new(out)
    }
}

/// Returns the newest sequence number of each snapshot stripe, newest first.
fn newest_of_each_stripe(seqs: &BTreeMap<SeqNo, u32>, stripes: &SnapshotStripes) -> Vec<SeqNo> {
    let mut newest = Vec::new();
    let mut at = Some(SeqNo::MAX);
    while let Some((seq, _)) = at.and_then(|at| seqs.range(..=at).next_back()) {
        check_slow!(
            newest.last().is_none_or(|newer| newer > seq),
            "older stripes have older tombstones",
            newest,
            seq
        );
        newest.push(*seq);
        at = stripes.newest_of_next_older(*seq);
    }
    newest
}

#[cfg(test)]
#[path = "tombstone_map_tests.rs"]
mod tests;
