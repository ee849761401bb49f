//! Range tombstones as fragments: key ranges that do not overlap, each with the sequence numbers of
//! the tombstones that cover it. Kept in memory with an open klog, and on disk as the raw form of
//! the ranges frame.
//!
//! ```text
//! for each fragment: varint length, begin | varint length, end | varint n | varint newest | n - 1
//! varints: differences
//! ```
//! Invariants: fragments ascend and do not overlap; none is empty; each has at least one sequence
//! number, newest first.

use perigee_base::codec::{Decoder, put_bytes, put_varint};
use perigee_base::limits::KEY_BYTES_MAX;
use perigee_base::{Error, KeyBoundary, KeyBoundaryRef, KeyComparator, Result, SeqNo};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::Arc;

/// A key range and the tombstones that cover it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstoneFragment {
    /// Start of the range.
    pub begin: KeyBoundary,
    /// End of the range.
    pub end: KeyBoundary,
    /// Sequence numbers of the tombstones, newest first.
    pub seqs: Vec<SeqNo>,
}

impl RangeTombstoneFragment {
    fn new(
        begin: KeyBoundaryRef<'_>,
        end: KeyBoundaryRef<'_>,
        seqs: &[SeqNo],
    ) -> Arc<RangeTombstoneFragment> {
        Arc::new(RangeTombstoneFragment {
            begin: begin.to_boundary(),
            end: end.to_boundary(),
            seqs: seqs.to_vec(),
        })
    }
    /// Returns the newest tombstone visible to a reader at `at`.
    pub fn newest_visible(&self, at: SeqNo) -> Option<SeqNo> {
        newest_visible_seq(&self.seqs, at)
    }
    /// Returns the oldest tombstone that is newer than an entry at `seq`.
    pub fn oldest_newer_than(&self, seq: SeqNo) -> Option<SeqNo> {
        self.seqs.iter().rev().copied().find(|s| *s > seq)
    }
}

fn newest_visible_seq(seqs: &[SeqNo], at: SeqNo) -> Option<SeqNo> {
    seqs.get(seqs.partition_point(|s| *s > at)).copied()
}

/// The key range around a key: a fragment, or the gap between two fragments.
#[derive(Clone, Copy, Debug)]
pub struct TombstoneSpan<'a> {
    /// Start of the range.
    pub begin: KeyBoundaryRef<'a>,
    /// End of the range.
    pub end: KeyBoundaryRef<'a>,
    /// Sequence numbers of the tombstones that cover it, newest first; empty in a gap.
    pub seqs: &'a [SeqNo],
}

impl TombstoneSpan<'_> {
    /// Returns the newest tombstone visible to a reader at `at`.
    pub fn newest_visible(&self, at: SeqNo) -> Option<SeqNo> {
        newest_visible_seq(self.seqs, at)
    }
}

/// A set of range tombstones as fragments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeTombstones(Vec<Arc<RangeTombstoneFragment>>);

impl RangeTombstones {
    /// Wraps fragments that satisfy the invariants.
    pub fn new(list: Vec<Arc<RangeTombstoneFragment>>) -> RangeTombstones {
        RangeTombstones(list)
    }
    /// Returns the fragments, ascending.
    pub fn fragments(&self) -> &[Arc<RangeTombstoneFragment>] {
        &self.0
    }
    /// Returns true if there is no range tombstone.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Returns the number of tombstones, counted once for each fragment.
    pub fn tombstone_count(&self) -> u64 {
        self.0.iter().map(|f| f.seqs.len() as u64).sum()
    }
    /// Returns the start of the first fragment and the end of the last.
    pub fn extent(&self) -> Option<(KeyBoundaryRef<'_>, KeyBoundaryRef<'_>)> {
        Some((self.0.first()?.begin.as_ref(), self.0.last()?.end.as_ref()))
    }
    /// Returns the smallest and the largest sequence number.
    pub fn seq_range(&self) -> Option<(SeqNo, SeqNo)> {
        let oldest = self.0.iter().filter_map(|f| f.seqs.last()).min()?;
        let newest = self.0.iter().filter_map(|f| f.seqs.first()).max()?;
        Some((*oldest, *newest))
    }
    /// Returns the approximate memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let one = |f: &Arc<RangeTombstoneFragment>| {
            f.begin.as_ref().encoded_bytes()
                + f.end.as_ref().encoded_bytes()
                + 8 * f.seqs.len()
                + 112
        };
        self.0.iter().map(|f| one(f) as u64).sum()
    }

    /// Returns the index of the first fragment that ends after `boundary`.
    fn first_ending_after(&self, comparator: KeyComparator, boundary: KeyBoundaryRef<'_>) -> usize {
        self.0.partition_point(|f| f.end.as_ref().cmp(comparator, boundary) != Greater)
    }
    /// Returns the fragment or gap around `key`.
    pub fn span_at(&self, comparator: KeyComparator, key: &[u8]) -> TombstoneSpan<'_> {
        let i = self.first_ending_after(comparator, KeyBoundaryRef::Before(key));
        let before = i.checked_sub(1).map_or(KeyBoundaryRef::First, |i| self.0[i].end.as_ref());
        match self.0.get(i) {
            None => TombstoneSpan { begin: before, end: KeyBoundaryRef::Last, seqs: &[] },
            Some(f) if f.begin.as_ref().is_before(comparator, key) => {
                TombstoneSpan { begin: f.begin.as_ref(), end: f.end.as_ref(), seqs: &f.seqs }
            }
            Some(f) => TombstoneSpan { begin: before, end: f.begin.as_ref(), seqs: &[] },
        }
    }
    /// Returns the fragment that covers `key`.
    pub fn fragment_covering(
        &self,
        comparator: KeyComparator,
        key: &[u8],
    ) -> Option<&Arc<RangeTombstoneFragment>> {
        let f = self.0.get(self.first_ending_after(comparator, KeyBoundaryRef::Before(key)))?;
        f.begin.as_ref().is_before(comparator, key).then_some(f)
    }

    /// Adds a tombstone.
    pub fn add(
        &mut self,
        comparator: KeyComparator,
        begin: KeyBoundaryRef<'_>,
        end: KeyBoundaryRef<'_>,
        seq: SeqNo,
    ) {
        if begin.cmp(comparator, end) != Less {
            return;
        }
        let from = self.first_ending_after(comparator, begin);
        let to = from
            + self.0[from..].partition_point(|f| f.begin.as_ref().cmp(comparator, end) == Less);
        let touched = RangeTombstones(self.0[from..to].to_vec());
        let one = RangeTombstones(vec![RangeTombstoneFragment::new(begin, end, &[seq])]);
        let merged = touched.merge(comparator, &one).0;
        check!(!merged.is_empty(), "a range tombstone that is not empty has a fragment", seq);
        self.0.splice(from..to, merged);
        check_slow!(self.is_ordered(comparator), "fragments ascend and do not overlap", self);
    }

    /// Merges two sets by a sweep over both lists.
    pub fn merge(&self, comparator: KeyComparator, other: &RangeTombstones) -> RangeTombstones {
        let (mut i, mut j) = (0, 0);
        let mut at = KeyBoundaryRef::First;
        let mut out = Vec::with_capacity(self.0.len() + other.0.len());
        loop {
            let (a, b) = (self.0.get(i), other.0.get(j));
            let (only, index) = match (a, b) {
                (None, None) => {
                    let merged = RangeTombstones(out);
                    check_slow!(
                        merged.is_ordered(comparator),
                        "merged fragments ascend and do not overlap",
                        self,
                        other
                    );
                    return merged;
                }
                (Some(a), None) => (a, &mut i),
                (None, Some(b)) => (b, &mut j),
                (Some(a), Some(b)) => {
                    let (a_begin, b_begin) = (
                        a.begin.as_ref().larger(comparator, at),
                        b.begin.as_ref().larger(comparator, at),
                    );
                    let (a_end, b_end) = (a.end.as_ref(), b.end.as_ref());
                    if a_end.cmp(comparator, b_begin) != Greater {
                        (a, &mut i)
                    } else if b_end.cmp(comparator, a_begin) != Greater {
                        (b, &mut j)
                    } else {
                        at = match a_begin.cmp(comparator, b_begin) {
                            Less => push_fragment(&mut out, a_begin, b_begin, &a.seqs),
                            Greater => push_fragment(&mut out, b_begin, a_begin, &b.seqs),
                            Equal => {
                                let end = a_end.smaller(comparator, b_end);
                                i += usize::from(a_end.cmp(comparator, end) == Equal);
                                j += usize::from(b_end.cmp(comparator, end) == Equal);
                                push_fragment(&mut out, a_begin, end, &merge_seqs(&a.seqs, &b.seqs))
                            }
                        };
                        continue;
                    }
                }
            };
            let (begin, end) = (only.begin.as_ref().larger(comparator, at), only.end.as_ref());
            if begin == only.begin.as_ref() {
                out.push(Arc::clone(only));
            } else {
                push_fragment(&mut out, begin, end, &only.seqs);
            }
            at = end;
            *index += 1;
        }
    }

    /// Returns the part between two boundaries, and the number of tombstones (counted once for each
    /// fragment) that extend beyond `end`.
    pub fn clip_to_range(
        &self,
        comparator: KeyComparator,
        begin: KeyBoundaryRef<'_>,
        end: KeyBoundaryRef<'_>,
    ) -> (RangeTombstones, u64) {
        let from = self.first_ending_after(comparator, begin);
        let (mut out, mut over) = (Vec::new(), 0);
        for f in self.0[from..].iter().take_while(|f| f.begin.as_ref().cmp(comparator, end) == Less)
        {
            let (b, e) = (
                f.begin.as_ref().larger(comparator, begin),
                f.end.as_ref().smaller(comparator, end),
            );
            if e != f.end.as_ref() {
                over += f.seqs.len() as u64;
            }
            if (b, e) == (f.begin.as_ref(), f.end.as_ref()) {
                out.push(Arc::clone(f));
            } else {
                push_fragment(&mut out, b, e, &f.seqs);
            }
        }
        let clipped = RangeTombstones(out);
        check_slow!(clipped.is_ordered(comparator), "clipped fragments ascend", clipped);
        check_slow!(
            clipped.extent().is_none_or(|(first, last)| {
                first.cmp(comparator, begin) != Less && last.cmp(comparator, end) != Greater
            }),
            "clipped fragments lie inside the range",
            clipped,
            begin,
            end
        );
        (clipped, over)
    }
    /// Returns true if the invariants of the module documentation hold.
    fn is_ordered(&self, comparator: KeyComparator) -> bool {
        let is_range = |f: &RangeTombstoneFragment| {
            f.begin.as_ref().cmp(comparator, f.end.as_ref()) == Less
                && !f.seqs.is_empty()
                && f.seqs.windows(2).all(|w| w[0] > w[1])
        };
        let is_before = |w: &[Arc<RangeTombstoneFragment>]| {
            w[0].end.as_ref().cmp(comparator, w[1].begin.as_ref()) != Greater
        };
        self.0.iter().all(|f| is_range(f)) && self.0.windows(2).all(is_before)
    }

    /// Joins adjacent fragments with the same sequence numbers.
    #[must_use]
    pub fn coalesce(self, comparator: KeyComparator) -> RangeTombstones {
        check_slow!(self.is_ordered(comparator), "fragments ascend and do not overlap", self);
        let mut out: Vec<Arc<RangeTombstoneFragment>> = Vec::with_capacity(self.0.len());
        for f in self.0 {
            match out.last_mut() {
                Some(last)
                    if last.seqs == f.seqs
                        && last.end.as_ref().cmp(comparator, f.begin.as_ref()) == Equal =>
                {
                    Arc::make_mut(last).end = f.end.clone();
                }
                _ => out.push(f),
            }
        }
        RangeTombstones(out)
    }

    /// Replaces all sequence numbers with `seq`.
    #[must_use]
    pub fn with_seq(&self, seq: SeqNo) -> RangeTombstones {
        let one = |f: &Arc<RangeTombstoneFragment>| {
            Arc::new(RangeTombstoneFragment {
                begin: f.begin.clone(),
                end: f.end.clone(),
                seqs: vec![seq],
            })
        };
        RangeTombstones(self.0.iter().map(one).collect())
    }
    /// Removes the tombstones whose sequence numbers lie in `removed`, which is ascending and
    /// disjoint.
    #[must_use]
    pub fn without_seqs(&self, removed: &[std::ops::Range<SeqNo>]) -> RangeTombstones {
        let is_kept = |seq: &SeqNo| {
            let at = removed.partition_point(|r| r.end <= *seq);
            !removed.get(at).is_some_and(|r| r.contains(seq))
        };
        let one = |f: &Arc<RangeTombstoneFragment>| {
            let seqs: Vec<SeqNo> = f.seqs.iter().copied().filter(is_kept).collect();
            (!seqs.is_empty()).then(|| {
                Arc::new(RangeTombstoneFragment { seqs, ..RangeTombstoneFragment::clone(f) })
            })
        };
        RangeTombstones(self.0.iter().filter_map(one).collect())
    }

    /// Encodes the raw form.
    pub fn encode(&self) -> Vec<u8> {
        let (mut out, mut boundary) = (Vec::new(), Vec::new());
        for f in &self.0 {
            for end in [&f.begin, &f.end] {
                boundary.clear();
                end.as_ref().encode(&mut boundary);
                put_bytes(&mut out, &boundary);
            }
            put_varint(&mut out, f.seqs.len() as u64);
            let mut last = None;
            for s in &f.seqs {
                put_varint(&mut out, last.map_or(s.0, |l: u64| l - s.0));
                last = Some(s.0);
            }
        }
        out
    }

    /// Decodes the raw form; fails if there is no fragment.
    pub fn decode(raw: &[u8], comparator: KeyComparator) -> Result<RangeTombstones> {
        let mut d = Decoder::new(raw);
        let mut out: Vec<Arc<RangeTombstoneFragment>> = Vec::new();
        while !d.is_empty() {
            let begin = KeyBoundaryRef::decode(d.bytes(KEY_BYTES_MAX + 1)?)?;
            let end = KeyBoundaryRef::decode(d.bytes(KEY_BYTES_MAX + 1)?)?;
            let ascending =
                out.last().is_none_or(|l| l.end.as_ref().cmp(comparator, begin) != Greater);
            if !ascending || begin.cmp(comparator, end) != Less {
                return Err(Error::corruption("range tombstone fragments are out of order"));
            }
            out.push(RangeTombstoneFragment::new(begin, end, &decode_seqs(&mut d)?));
        }
        if out.is_empty() {
            return Err(Error::corruption("a ranges frame contains no range tombstones"));
        }
        Ok(RangeTombstones(out))
    }
}

fn push_fragment<'a>(
    out: &mut Vec<Arc<RangeTombstoneFragment>>,
    begin: KeyBoundaryRef<'_>,
    end: KeyBoundaryRef<'a>,
    seqs: &[SeqNo],
) -> KeyBoundaryRef<'a> {
    out.push(RangeTombstoneFragment::new(begin, end, seqs));
    end
}

/// Merges two lists of sequence numbers, newest first.
fn merge_seqs(a: &[SeqNo], b: &[SeqNo]) -> Vec<SeqNo> {
    let mut all = [a, b].concat();
    all.sort_unstable_by(|x, y| y.cmp(x));
    all.dedup();
    all
}

fn decode_seqs(d: &mut Decoder<'_>) -> Result<Vec<SeqNo>> {
    let n = d.varint()?;
    if n == 0 || n > d.remaining() as u64 {
        return Err(Error::corruption("invalid range tombstone count")
            .expected(format_args!("1 to {}", d.remaining()), n));
    }
    let mut out = vec![SeqNo(d.varint()?)];
    for _ in 1..n {
        let difference = d.varint()?;
        match out[out.len() - 1].0.checked_sub(difference) {
            Some(seq) if difference > 0 => out.push(SeqNo(seq)),
            _ => {
                return Err(Error::corruption("range tombstone sequence numbers do not descend"));
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const O: KeyComparator = KeyComparator::Bytes;

    fn test_boundary(n: u64) -> KeyBoundary {
        match n {
            0 => KeyBoundary::First,
            21 => KeyBoundary::Last,
            n if n % 2 == 1 => KeyBoundary::Before(vec![n as u8 / 2]),
            n => KeyBoundary::After(vec![(n as u8 - 1) / 2]),
        }
    }

    fn check_fragments(f: &RangeTombstones, all: &[(u64, u64, u64)]) {
        for key in 0..10u64 {
            let mut want: Vec<SeqNo> = all
                .iter()
                .filter(|(b, e, _)| *b <= 2 * key + 1 && *e >= 2 * key + 2)
                .map(|t| SeqNo(t.2))
                .collect();
            want.sort_by(|a, b| b.cmp(a));
            let w = f.span_at(O, &[key as u8]);
            assert_eq!(w.seqs, want, "key {key}");
            assert!(w.begin.is_before(O, &[key as u8]) && !w.end.is_before(O, &[key as u8]));
            assert_eq!(f.fragment_covering(O, &[key as u8]).map_or(&[][..], |f| &f.seqs), want);
        }
        assert!(
            f.fragments()
                .windows(2)
                .all(|w| w[0].end.as_ref().cmp(O, w[1].begin.as_ref()) != Greater)
        );
        assert!(f.fragments().iter().all(|f| f.begin.as_ref().cmp(O, f.end.as_ref()) == Less));
    }

    #[test]
    fn fragments_match_their_tombstones() {
        let mut x = 7u64;
        let mut random = |n: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x % n
        };
        for _ in 0..300 {
            let (mut f, mut all) = (RangeTombstones::default(), Vec::new());
            for seq in 1..=random(12) {
                let (a, b) = (random(22), random(22));
                f.add(O, test_boundary(a).as_ref(), test_boundary(b).as_ref(), SeqNo(seq));
                if a < b {
                    all.push((a, b, seq));
                }
                check_fragments(&f, &all);
            }
            if !f.is_empty() {
                assert_eq!(RangeTombstones::decode(&f.encode(), O).unwrap(), f);
                check_fragments(&f.clone().coalesce(O), &all);
            }
            let at = test_boundary(random(22));
            let (left, over) = f.clip_to_range(O, KeyBoundaryRef::First, at.as_ref());
            let (right, none) = f.clip_to_range(O, at.as_ref(), KeyBoundaryRef::Last);
            assert_eq!(
                (left.tombstone_count() + right.tombstone_count(), none),
                (f.tombstone_count() + over, 0)
            );
            check_fragments(&left.merge(O, &right), &all);
            check_fragments(&left.merge(O, &f).coalesce(O), &all);
        }
    }

    #[test]
    fn malformed_range_tombstones_are_errors() {
        let mut f = RangeTombstones::default();
        f.add(O, KeyBoundaryRef::Before(b"a"), KeyBoundaryRef::Last, SeqNo(9));
        f.add(O, KeyBoundaryRef::After(b"c"), KeyBoundaryRef::Before(b"k"), SeqNo(12));
        let good = f.encode();
        for i in 0..good.len() {
            let _ = RangeTombstones::decode(&good[..i], O);
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[i] ^= 1 << bit;
                let _ = RangeTombstones::decode(&bad, O);
            }
        }
        assert!(RangeTombstones::decode(b"", O).is_err());
    }
}
