//! The only file that may drop an entry.

use crate::mvcc::SnapshotStripes;
use perigee_base::bug::{self, Bug};
use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::{EntryRef, Expiry, ExpiryClock, KeyComparator, SeqNo, ValueRef};
use perigee_file::{RangeTombstoneFragment, RangeTombstones};
use std::ops::Range;
use std::sync::Arc;

/// So many entries that one range tombstone hides are read before the rest of them is sought over.
const HIDDEN_BEFORE_SEEK: u32 = 16;

/// What becomes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryVerdict {
    /// It goes on.
    Keep,
    /// A newer version hides it from every reader.
    Shadowed,
    /// A tombstone with nothing left to hide.
    SpentTombstone,
    /// Its time has passed, and there is nothing left to hide.
    Expired,
    /// Its time has passed: it goes on as a tombstone.
    ConvertToTombstone,
    /// A range tombstone hides it.
    Covered,
    /// A single delete: it waits for the next entry, and goes on if that is not the put it cancels.
    HoldSingleDelete,
    /// The put that the waiting single delete cancels: both go.
    CancelPair,
    /// A tombstone that hides at least what the waiting single delete does: it goes on alone.
    ReplaceHeld,
    /// Its transaction has taken it back: it never was.
    RolledBack,
    /// An operand: it waits for what lies below it.
    Operand,
    /// The value that waiting operands are about.
    MergeBase,
    /// A tombstone, or a value whose time has passed: waiting operands are about nothing.
    NoMergeBase,
    /// An operand below a waiting single delete, which must hide all of them: it goes on as a
    /// delete.
    HeldBecomesDelete,
}

/// What became of range tombstones, counted once for each fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeTombstoneCounts {
    /// Those of the source.
    pub read: u64,
    /// Hidden by a newer one.
    pub shadowed: u64,
    /// With nothing left to hide.
    pub obsolete: u64,
}

/// What the last entry left behind for the older versions of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PreviousVersion {
    /// It hides those of its stratum, and those below them too.
    Hides(usize),
    /// It is a value: it hides those of its stratum but single deletes, whose puts may lie deeper
    /// and would come back.
    Put(usize),
    /// It is a single delete of that stratum, and waits.
    SingleDeleteHeld(usize),
    /// A single delete and its put went together; another put right below is one too many, and
    /// hidden all the same.
    Cancelled(usize),
    /// It is an operand of that stratum, and waits.
    Operand(usize),
}

/// Decides entry by entry; entries come in entry order.
#[derive(Debug)]
pub struct VersionCollapser<'a> {
    comparator: KeyComparator,
    stripes: SnapshotStripes,
    bottommost: bool,
    /// The number of settled entries; at the bottom only.
    bottom_seq: Option<SeqNo>,
    /// Asked once, at the first entry that expires.
    now: &'a dyn ExpiryClock,
    now_ms: Option<u64>,
    /// Numbers that a transaction has taken back, ascending and apart.
    rolled_back: Arc<[Range<u64>]>,
    /// All range tombstones of the source, and which of them is near.
    ranges: RangeTombstones,
    near_range: usize,
    /// Entries that the near one has hidden, since it was near or was left.
    hidden_entries: u32,
    /// The last key and what its last version means for older ones; `None` before the first.
    last_version: Option<(Vec<u8>, PreviousVersion)>,
}

impl<'a> VersionCollapser<'a> {
    /// `bottom`: below the output lies no older version of any key of the input.
    pub fn new(
        order: KeyComparator,
        strata: SnapshotStripes,
        bottom: bool,
        now: &'a dyn ExpiryClock,
    ) -> VersionCollapser<'a> {
        VersionCollapser {
            stripes: strata,
            bottommost: bottom || bug::is_active(Bug::DropTombstoneEarly),
            bottom_seq: None,
            now,
            now_ms: None,
            rolled_back: Arc::default(),
            ranges: RangeTombstones::default(),
            near_range: 0,
            hidden_entries: 0,
            comparator: if bug::is_active(Bug::CollapseByBytes) {
                KeyComparator::Bytes
            } else {
                order
            },
            last_version: None,
        }
    }
    /// With a number for values that every reader sees; it is at least that of every entry (see
    /// `compact/settle.rs`).
    #[must_use]
    pub fn with_bottom_seq(self, number: Option<SeqNo>) -> VersionCollapser<'a> {
        VersionCollapser { bottom_seq: number.filter(|_| self.bottommost), ..self }
    }
    /// Of a transaction's own entries, with the numbers that it has taken back.
    #[must_use]
    pub fn without_rolled_back(self, taken_back: Arc<[Range<u64>]>) -> VersionCollapser<'a> {
        if taken_back.is_empty() {
            return self;
        }
        VersionCollapser {
            ranges: self.ranges.without_seqs(&taken_back),
            rolled_back: taken_back,
            ..self
        }
    }
    /// The stratum of a version.
    pub fn stripe_of(&self, seq: SeqNo) -> usize {
        self.stripes.stripe_of(seq)
    }
    /// The order of keys.
    pub fn comparator(&self) -> KeyComparator {
        self.comparator
    }
    /// With the range tombstones of the source.
    #[must_use]
    pub fn with_ranges(self, ranges: RangeTombstones) -> VersionCollapser<'a> {
        VersionCollapser { ranges, ..self }
    }

    /// The range tombstones that go on: of each fragment the newest of each stratum, and none that
    /// is spent.
    pub fn output_ranges(&self) -> (RangeTombstones, RangeTombstoneCounts) {
        let mut counts = RangeTombstoneCounts {
            read: self.ranges.tombstone_count(),
            ..RangeTombstoneCounts::default()
        };
        let mut kept = Vec::new();
        for f in self.ranges.fragments() {
            let (mut seqs, mut last) = (Vec::new(), None);
            for seq in &f.seqs {
                let stratum = self.stripes.stripe_of(*seq);
                if last.replace(stratum) == Some(stratum) {
                    counts.shadowed += 1;
                } else if stratum == 0 && (self.bottommost || bug::is_active(Bug::DropRangeEarly)) {
                    counts.obsolete += 1;
                } else {
                    seqs.push(*seq);
                }
            }
            if !seqs.is_empty() {
                let (begin, end) = (f.begin.clone(), f.end.clone());
                kept.push(Arc::new(RangeTombstoneFragment { begin, end, seqs }));
            }
        }
        (RangeTombstones::new(kept), counts)
    }

    /// Whether a range tombstone hides an entry from every reader that could see it. Keys come in
    /// order.
    fn is_covered(&mut self, key: &[u8], seq: SeqNo, stratum: usize) -> bool {
        let list = self.ranges.fragments();
        while list
            .get(self.near_range)
            .is_some_and(|f| f.end.as_ref().is_before(self.comparator, key))
        {
            (self.near_range, self.hidden_entries) = (self.near_range + 1, 0);
        }
        let over =
            list.get(self.near_range).filter(|f| f.begin.as_ref().is_before(self.comparator, key));
        over.and_then(|f| f.oldest_newer_than(seq))
            .is_some_and(|t| self.stripes.stripe_of(t) == stratum)
    }

    /// Whether nothing that was judged so far, and no range tombstone, has a say about the keys
    /// from `first` to `last`. Keys come in order.
    pub fn does_not_affect(&mut self, first: &[u8], last: &[u8]) -> bool {
        if self.last_version.as_ref().is_some_and(|(key, _)| self.comparator.keys_equal(key, first))
        {
            return false;
        }
        let list = self.ranges.fragments();
        while list
            .get(self.near_range)
            .is_some_and(|f| f.end.as_ref().is_before(self.comparator, first))
        {
            self.near_range += 1;
        }
        !list
            .get(self.near_range)
            .is_some_and(|f| f.begin.as_ref().is_before(self.comparator, last))
    }
    /// Values of different keys went on unjudged, the last of them this one.
    pub fn record_passed_through(&mut self, key: &[u8], seq: SeqNo) {
        let stratum = self.stripes.stripe_of(seq);
        let e = EntryRef { key, seq, value: ValueRef::Inline(&[]) };
        self.record_version(&e, true, EntryVerdict::Keep, stratum);
    }
    /// After a verdict of [`Verdict::Covered`]: where the tombstone ends that hides the entry, and
    /// its number, once it is worth to seek there. Everything older than that number and before
    /// that place is hidden from every reader.
    pub fn seek_past_tombstone(&mut self) -> Option<(KeyBoundaryRef<'_>, SeqNo)> {
        self.hidden_entries += 1;
        if self.hidden_entries < HIDDEN_BEFORE_SEEK {
            return None;
        }
        self.hidden_entries = 0;
        let over = self.ranges.fragments().get(self.near_range)?;
        // In the oldest stratum all that is older is in the same one.
        let seq = over.seqs.iter().copied().find(|seq| self.stripes.is_in_oldest_stripe(*seq))?;
        Some((over.end.as_ref(), seq))
    }

    fn is_expired(&mut self, expiry: Expiry) -> bool {
        let now = self.now;
        let ask = || {
            if bug::is_active(Bug::ExpireDespiteJump) { now.now_ms() } else { now.confirmed_ms() }
        };
        expiry.is_expired(*self.now_ms.get_or_insert_with(ask))
    }

    /// Whether a filter may be asked about the entry: it has a value that no snapshot sees.
    pub fn is_filterable(&self, e: &EntryRef<'_>) -> bool {
        let is_put = !matches!(e.value, ValueRef::Tombstone | ValueRef::SingleDelete)
            && !e.value.is_operand();
        is_put
            && (self.stripes.is_above_snapshots(e.seq) || bug::is_active(Bug::FilterUnderSnapshot))
    }
    /// Whether a tombstone in the place of the entry would have nothing to hide.
    pub fn can_drop_tombstone(&self, e: &EntryRef<'_>) -> bool {
        self.bottommost && self.stripes.is_in_oldest_stripe(e.seq)
    }

    /// The number that an entry goes on under: that of all settled ones, if every reader sees it
    /// and it is a value.
    pub fn output_seq(&self, e: &EntryRef<'_>) -> SeqNo {
        match self.bottom_seq {
            Some(number)
                if self.stripes.is_in_oldest_stripe(e.seq)
                    && !e.value.is_tombstone()
                    && !e.value.is_operand() =>
            {
                number
            }
            _ => e.seq,
        }
    }
    /// Whether entries go on under one number.
    pub fn rewrites_seqs(&self) -> bool {
        self.bottom_seq.is_some()
    }

    /// The verdict on the next entry, and whether it starts a new key; `another`: it is known to.
    pub fn classify(&mut self, e: &EntryRef<'_>, another: bool) -> (EntryVerdict, bool) {
        if !self.rolled_back.is_empty() {
            let at = self.rolled_back.partition_point(|r| r.end <= e.seq.0);
            if self.rolled_back.get(at).is_some_and(|r| r.contains(&e.seq.0)) {
                return (EntryVerdict::RolledBack, false);
            }
        }
        let stratum = self.stripes.stripe_of(e.seq);
        let new_key = another
            || !self
                .last_version
                .as_ref()
                .is_some_and(|(key, _)| self.comparator.keys_equal(key, e.key));
        let spent = self.bottommost && stratum == 0;
        let verdict = match self.last_version.as_ref().filter(|_| !new_key).map(|(_, wake)| *wake) {
            Some(PreviousVersion::Hides(s)) if s == stratum => EntryVerdict::Shadowed,
            Some(PreviousVersion::Put(s)) if s == stratum && e.value != ValueRef::SingleDelete => {
                EntryVerdict::Shadowed
            }
            Some(PreviousVersion::SingleDeleteHeld(s))
                if s == stratum && e.value == ValueRef::Tombstone =>
            {
                EntryVerdict::ReplaceHeld
            }
            Some(PreviousVersion::SingleDeleteHeld(s))
                if s == stratum && e.value == ValueRef::SingleDelete =>
            {
                EntryVerdict::Shadowed
            }
            Some(PreviousVersion::SingleDeleteHeld(s)) if s == stratum && e.value.is_operand() => {
                EntryVerdict::HeldBecomesDelete
            }
            Some(PreviousVersion::SingleDeleteHeld(s)) if s == stratum => EntryVerdict::CancelPair,
            Some(PreviousVersion::Cancelled(s)) if s == stratum && !e.value.is_tombstone() => {
                EntryVerdict::Shadowed
            }
            _ if self.is_covered(e.key, e.seq, stratum) => EntryVerdict::Covered,
            _ if e.value.is_operand() => EntryVerdict::Operand,
            Some(PreviousVersion::Operand(s))
                if s == stratum && e.value != ValueRef::SingleDelete =>
            {
                match e.value.expiry() {
                    Some(x) if self.is_expired(x) => EntryVerdict::NoMergeBase,
                    // Onto what will end nothing is merged for good.
                    Some(_) => EntryVerdict::Keep,
                    None if e.value == ValueRef::Tombstone => EntryVerdict::NoMergeBase,
                    None => EntryVerdict::MergeBase,
                }
            }
            _ => match e.value.expiry() {
                Some(x) if self.is_expired(x) => {
                    if spent {
                        EntryVerdict::Expired
                    } else {
                        EntryVerdict::ConvertToTombstone
                    }
                }
                _ if e.value.is_tombstone() && spent => EntryVerdict::SpentTombstone,
                _ if e.value == ValueRef::SingleDelete && bug::is_active(Bug::SingleDeleteLost) => {
                    EntryVerdict::SpentTombstone
                }
                _ if e.value == ValueRef::SingleDelete => EntryVerdict::HoldSingleDelete,
                _ => EntryVerdict::Keep,
            },
        };
        self.record_version(e, new_key, verdict, stratum);
        (verdict, new_key)
    }

    fn record_version(
        &mut self,
        e: &EntryRef<'_>,
        new_key: bool,
        verdict: EntryVerdict,
        stratum: usize,
    ) {
        let wake = match (verdict, &self.last_version) {
            (EntryVerdict::Shadowed, Some((_, wake))) => *wake,
            (EntryVerdict::HoldSingleDelete, _) => PreviousVersion::SingleDeleteHeld(stratum),
            (EntryVerdict::CancelPair, _) => PreviousVersion::Cancelled(stratum),
            (EntryVerdict::Keep | EntryVerdict::MergeBase, _) if !e.value.is_tombstone() => {
                PreviousVersion::Put(stratum)
            }
            (EntryVerdict::Operand, _) => PreviousVersion::Operand(stratum),
            _ => PreviousVersion::Hides(stratum),
        };
        match &mut self.last_version {
            Some((_, last)) if !new_key => *last = wake,
            Some((key, last)) => {
                key.clear();
                key.extend_from_slice(e.key);
                *last = wake;
            }
            none => *none = Some((e.key.to_vec(), wake)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::expiry::FixedClock;

    fn collapse_all(bottom: bool, snapshots: &[u64], entries: &[(&str, u64, bool)]) -> String {
        let strata =
            SnapshotStripes::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
        let mut c = VersionCollapser::new(KeyComparator::Bytes, strata, bottom, &FixedClock(50));
        let mut out = String::new();
        for (k, s, put) in entries {
            let value = if *put { ValueRef::Inline(b"") } else { ValueRef::Tombstone };
            let verdict =
                c.classify(&EntryRef { key: k.as_bytes(), seq: SeqNo(*s), value }, false).0;
            out.push_str(&format!("{k}{s}:{verdict:?} "));
        }
        out.trim_end().to_owned()
    }

    #[test]
    fn only_invisible_versions_are_dropped() {
        let entries =
            [("a", 9, true), ("a", 5, true), ("a", 3, false), ("b", 8, false), ("b", 2, true)];
        assert_eq!(
            collapse_all(false, &[], &entries),
            "a9:Keep a5:Shadowed a3:Shadowed b8:Keep b2:Shadowed"
        );
        assert_eq!(
            collapse_all(true, &[], &entries),
            "a9:Keep a5:Shadowed a3:Shadowed b8:SpentTombstone b2:Shadowed"
        );
        assert_eq!(
            collapse_all(false, &[6, 3], &entries),
            "a9:Keep a5:Keep a3:Keep b8:Keep b2:Keep"
        );
        assert_eq!(
            collapse_all(true, &[6, 3], &entries),
            "a9:Keep a5:Keep a3:SpentTombstone b8:Keep b2:Keep"
        );
        assert_eq!(
            collapse_all(true, &[8], &entries),
            "a9:Keep a5:Keep a3:Shadowed b8:SpentTombstone b2:Shadowed"
        );
    }

    #[test]
    fn bottommost_visible_values_share_one_seq() {
        let settled = |bottom, snapshots: &[u64], seq, value| {
            let strata =
                SnapshotStripes::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
            let c = VersionCollapser::new(KeyComparator::Bytes, strata, bottom, &FixedClock(50))
                .with_bottom_seq(Some(SeqNo(70)));
            c.output_seq(&EntryRef { key: b"a", seq: SeqNo(seq), value }).0
        };
        let value = ValueRef::Inline(b"v");
        assert_eq!((settled(true, &[], 9, value), settled(true, &[80], 9, value)), (70, 70));
        assert_eq!(settled(true, &[8, 80], 9, value), 9, "a snapshot does not see it");
        assert_eq!(
            (settled(false, &[], 9, value), settled(true, &[], 9, ValueRef::Tombstone)),
            (9, 9)
        );
    }

    #[test]
    fn expired_version_hides_older_versions() {
        let verdicts = |bottom, snapshots: &[u64], entries: &[(&[u8], u64, ValueRef<'_>)]| {
            let strata =
                SnapshotStripes::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
            let mut c =
                VersionCollapser::new(KeyComparator::Bytes, strata, bottom, &FixedClock(50));
            entries
                .iter()
                .map(|(key, seq, value)| {
                    c.classify(&EntryRef { key, seq: SeqNo(*seq), value: *value }, false).0
                })
                .collect::<Vec<_>>()
        };
        let until = |ms| ValueRef::InlineExpiring(b"v", Expiry(ms));
        let old = ValueRef::Inline(b"old");
        let entries =
            [(&b"a"[..], 9, until(50)), (b"a", 5, old), (b"b", 8, until(51)), (b"b", 2, old)];
        use EntryVerdict::*;
        assert_eq!(verdicts(false, &[], &entries), [ConvertToTombstone, Shadowed, Keep, Shadowed]);
        assert_eq!(verdicts(true, &[], &entries), [Expired, Shadowed, Keep, Shadowed]);
        assert_eq!(
            verdicts(true, &[6], &entries),
            [ConvertToTombstone, Keep, Keep, Keep],
            "a reader sees the older one"
        );
    }
}
