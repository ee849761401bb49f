//! Decides which entries a rewrite drops. No other file may drop an entry.

use crate::mvcc::SnapshotStripes;
use perigee_base::bug::{self, Bug};
use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::{EntryRef, Expiry, ExpiryClock, KeyComparator, SeqNo, ValueRef};
use perigee_file::{RangeTombstoneFragment, RangeTombstones};
use std::ops::Range;
use std::sync::Arc;

/// Number of entries hidden by one range tombstone that are read before the rewrite seeks past the
/// rest.
const HIDDEN_BEFORE_SEEK: u32 = 16;

/// Verdict on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryVerdict {
    /// The entry is written.
    Keep,
    /// A newer version hides it from every reader.
    Shadowed,
    /// A tombstone that no longer hides anything.
    SpentTombstone,
    /// The entry has expired and hides nothing.
    Expired,
    /// The entry has expired: it is written as a tombstone.
    ConvertToTombstone,
    /// A range tombstone hides it.
    Covered,
    /// A single delete: it is held until the next entry, and written unless that is the put that it
    /// cancels.
    HoldSingleDelete,
    /// The put that the held single delete cancels: both are dropped.
    CancelPair,
    /// A tombstone that hides at least what the held single delete does: only the tombstone is
    /// written.
    ReplaceHeld,
    /// The entry's transaction has rolled it back: it is dropped.
    RolledBack,
    /// An operand: it is held until its base is known.
    Operand,
    /// The value that held operands are merged onto.
    MergeBase,
    /// A tombstone, or an expired value: held operands have no base.
    NoMergeBase,
    /// An operand below a held single delete, which must hide all operands: the single delete is
    /// written as a delete.
    HeldBecomesDelete,
}

/// Counts of range tombstones, one per fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeTombstoneCounts {
    /// Range tombstones of the source.
    pub read: u64,
    /// Hidden by a newer range tombstone.
    pub shadowed: u64,
    /// Range tombstones that no longer hide anything.
    pub obsolete: u64,
}

/// Effect of the previous entry on older versions of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PreviousVersion {
    /// Hides all versions in its stripe, and the deeper versions that those hide.
    Hides(usize),
    /// A value: hides those in its stripe except single deletes, whose puts may be deeper and would
    /// reappear.
    Put(usize),
    /// A single delete of that stripe, which is held.
    SingleDeleteHeld(usize),
    /// A single delete and its put were dropped together; another put directly below is one too
    /// many, and is hidden as well.
    Cancelled(usize),
    /// An operand of that stripe, which is held.
    Operand(usize),
}

/// Decides on each entry; entries must come in entry order.
#[derive(Debug)]
pub struct VersionCollapser<'a> {
    comparator: KeyComparator,
    stripes: SnapshotStripes,
    bottommost: bool,
    /// Sequence number for values that every reader sees; only at the bottommost level.
    bottom_seq: Option<SeqNo>,
    /// Clock, read once, at the first entry with an expiry.
    now: &'a dyn ExpiryClock,
    now_ms: Option<u64>,
    /// Sequence numbers that a transaction has rolled back, ascending and disjoint.
    rolled_back: Arc<[Range<SeqNo>]>,
    /// All range tombstones of the source, and the index of the current fragment.
    ranges: RangeTombstones,
    near_range: usize,
    /// Number of entries hidden by the current fragment since it became current, or since the last
    /// seek.
    hidden_entries: u32,
    /// The last key, and the effect of its last version on older ones; `None` before the first
    /// entry.
    last_version: Option<(Vec<u8>, PreviousVersion)>,
}

impl<'a> VersionCollapser<'a> {
    /// Creates a collapser; `bottommost`: no older version of any input key exists below the
    /// output.
    pub fn new(
        comparator: KeyComparator,
        stripes: SnapshotStripes,
        bottommost: bool,
        now: &'a dyn ExpiryClock,
    ) -> VersionCollapser<'a> {
        VersionCollapser {
            stripes,
            bottommost: bottommost || bug::is_active(Bug::DropTombstoneEarly),
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
                comparator
            },
            last_version: None,
        }
    }
    /// Sets a sequence number for values that every reader sees. It must be at least that of every
    /// entry (see `compact/bottom_seq.rs`).
    #[must_use]
    pub fn with_bottom_seq(self, seq: Option<SeqNo>) -> VersionCollapser<'a> {
        VersionCollapser { bottom_seq: seq.filter(|_| self.bottommost), ..self }
    }
    /// Sets the sequence numbers that a transaction has rolled back, for a rewrite of its own
    /// entries.
    #[must_use]
    pub fn without_rolled_back(self, rolled_back: Arc<[Range<SeqNo>]>) -> VersionCollapser<'a> {
        if rolled_back.is_empty() {
            return self;
        }
        VersionCollapser { ranges: self.ranges.without_seqs(&rolled_back), rolled_back, ..self }
    }
    /// Returns the stripe of a version.
    pub fn stripe_of(&self, seq: SeqNo) -> usize {
        self.stripes.stripe_of(seq)
    }
    /// Returns the comparator.
    pub fn comparator(&self) -> KeyComparator {
        self.comparator
    }
    /// Sets the range tombstones of the source.
    #[must_use]
    pub fn with_ranges(self, ranges: RangeTombstones) -> VersionCollapser<'a> {
        VersionCollapser { ranges, ..self }
    }

    /// Returns the range tombstones to write: of each fragment the newest one per stripe, without
    /// those that no longer hide anything.
    pub fn output_ranges(&self) -> (RangeTombstones, RangeTombstoneCounts) {
        let mut counts = RangeTombstoneCounts {
            read: self.ranges.tombstone_count(),
            ..RangeTombstoneCounts::default()
        };
        let mut kept = Vec::new();
        for f in self.ranges.fragments() {
            let (mut seqs, mut last) = (Vec::new(), None);
            for seq in &f.seqs {
                let stripe = self.stripes.stripe_of(*seq);
                if last.replace(stripe) == Some(stripe) {
                    counts.shadowed += 1;
                } else if stripe == 0
                    && (self.bottommost || bug::is_active(Bug::DropRangeTombstoneEarly))
                {
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

    /// Returns true if a range tombstone hides the entry from every reader that could see it. Keys
    /// must come in order.
    fn is_covered(&mut self, key: &[u8], seq: SeqNo, stripe: usize) -> bool {
        let list = self.ranges.fragments();
        while list
            .get(self.near_range)
            .is_some_and(|f| f.end.as_ref().is_before(self.comparator, key))
        {
            (self.near_range, self.hidden_entries) = (self.near_range + 1, 0);
        }
        let fragment =
            list.get(self.near_range).filter(|f| f.begin.as_ref().is_before(self.comparator, key));
        fragment
            .and_then(|f| f.oldest_newer_than(seq))
            .is_some_and(|t| self.stripes.stripe_of(t) == stripe)
    }

    /// Returns true if neither the previous entries nor a range tombstone affect the keys from
    /// `first` to `last`. Keys must come in order.
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
    /// Records that values of distinct keys were written without a verdict, the last of them with
    /// this key and sequence number.
    pub fn record_passed_through(&mut self, key: &[u8], seq: SeqNo) {
        let stripe = self.stripes.stripe_of(seq);
        let e = EntryRef { key, seq, value: ValueRef::Inline(&[]) };
        self.record_version(&e, true, EntryVerdict::Keep, stripe);
    }
    /// To be called after [`EntryVerdict::Covered`]. Returns the end and the sequence number of the
    /// hiding tombstone once seeking there is worthwhile. All entries before that end and older
    /// than that number are hidden from every reader.
    pub fn seek_past_tombstone(&mut self) -> Option<(KeyBoundaryRef<'_>, SeqNo)> {
        self.hidden_entries += 1;
        if self.hidden_entries < HIDDEN_BEFORE_SEEK {
            return None;
        }
        self.hidden_entries = 0;
        let fragment = self.ranges.fragments().get(self.near_range)?;
        // In the oldest stripe, everything older is in the same stripe.
        let seq =
            fragment.seqs.iter().copied().find(|seq| self.stripes.is_in_oldest_stripe(*seq))?;
        Some((fragment.end.as_ref(), seq))
    }

    fn is_expired(&mut self, expiry: Expiry) -> bool {
        let now = self.now;
        let read_clock = || {
            if bug::is_active(Bug::ExpireDespiteClockJump) {
                now.now_ms()
            } else {
                now.confirmed_ms()
            }
        };
        expiry.is_expired(*self.now_ms.get_or_insert_with(read_clock))
    }

    /// Returns true if the entry may be passed to the compaction filter: it is a value, and no
    /// snapshot sees it.
    pub fn is_filterable(&self, e: &EntryRef<'_>) -> bool {
        let is_put = !matches!(e.value, ValueRef::Tombstone | ValueRef::SingleDelete)
            && !e.value.is_operand();
        is_put
            && (self.stripes.is_above_snapshots(e.seq) || bug::is_active(Bug::FilterUnderSnapshot))
    }
    /// Returns true if a tombstone instead of the entry would hide nothing.
    pub fn can_drop_tombstone(&self, e: &EntryRef<'_>) -> bool {
        self.bottommost && self.stripes.is_in_oldest_stripe(e.seq)
    }

    /// Returns the sequence number to write an entry with: the common one, if it is a value that
    /// every reader sees.
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
    /// Returns true if values may be written with a common sequence number.
    pub fn rewrites_seqs(&self) -> bool {
        self.bottom_seq.is_some()
    }

    /// Returns the verdict on the next entry, and true if it starts a new key. `known_new_key`: the
    /// caller knows that it does.
    pub fn classify(&mut self, e: &EntryRef<'_>, known_new_key: bool) -> (EntryVerdict, bool) {
        if !self.rolled_back.is_empty() {
            let at = self.rolled_back.partition_point(|r| r.end <= e.seq);
            if self.rolled_back.get(at).is_some_and(|r| r.contains(&e.seq)) {
                return (EntryVerdict::RolledBack, false);
            }
        }
        let stripe = self.stripes.stripe_of(e.seq);
        let new_key = known_new_key
            || !self
                .last_version
                .as_ref()
                .is_some_and(|(key, _)| self.comparator.keys_equal(key, e.key));
        let hides_nothing = self.bottommost && stripe == 0;
        let verdict = match self
            .last_version
            .as_ref()
            .filter(|_| !new_key)
            .map(|(_, effect)| *effect)
        {
            Some(PreviousVersion::Hides(s)) if s == stripe => EntryVerdict::Shadowed,
            Some(PreviousVersion::Put(s)) if s == stripe && e.value != ValueRef::SingleDelete => {
                EntryVerdict::Shadowed
            }
            Some(PreviousVersion::SingleDeleteHeld(s))
                if s == stripe && e.value == ValueRef::Tombstone =>
            {
                EntryVerdict::ReplaceHeld
            }
            Some(PreviousVersion::SingleDeleteHeld(s))
                if s == stripe && e.value == ValueRef::SingleDelete =>
            {
                EntryVerdict::Shadowed
            }
            Some(PreviousVersion::SingleDeleteHeld(s)) if s == stripe && e.value.is_operand() => {
                EntryVerdict::HeldBecomesDelete
            }
            Some(PreviousVersion::SingleDeleteHeld(s)) if s == stripe => EntryVerdict::CancelPair,
            Some(PreviousVersion::Cancelled(s)) if s == stripe && !e.value.is_tombstone() => {
                EntryVerdict::Shadowed
            }
            _ if self.is_covered(e.key, e.seq, stripe) => EntryVerdict::Covered,
            _ if e.value.is_operand() => EntryVerdict::Operand,
            Some(PreviousVersion::Operand(s))
                if s == stripe && e.value != ValueRef::SingleDelete =>
            {
                match e.value.expiry() {
                    Some(x) if self.is_expired(x) => EntryVerdict::NoMergeBase,
                    // Operands are not merged permanently onto a value that will expire.
                    Some(_) => EntryVerdict::Keep,
                    None if e.value == ValueRef::Tombstone => EntryVerdict::NoMergeBase,
                    None => EntryVerdict::MergeBase,
                }
            }
            _ => match e.value.expiry() {
                Some(x) if self.is_expired(x) => {
                    if hides_nothing {
                        EntryVerdict::Expired
                    } else {
                        EntryVerdict::ConvertToTombstone
                    }
                }
                _ if e.value.is_tombstone() && hides_nothing => EntryVerdict::SpentTombstone,
                _ if e.value == ValueRef::SingleDelete && bug::is_active(Bug::SingleDeleteLost) => {
                    EntryVerdict::SpentTombstone
                }
                _ if e.value == ValueRef::SingleDelete => EntryVerdict::HoldSingleDelete,
                _ => EntryVerdict::Keep,
            },
        };
        self.record_version(e, new_key, verdict, stripe);
        (verdict, new_key)
    }

    fn record_version(
        &mut self,
        e: &EntryRef<'_>,
        new_key: bool,
        verdict: EntryVerdict,
        stripe: usize,
    ) {
        let effect = match (verdict, &self.last_version) {
            (EntryVerdict::Shadowed, Some((_, effect))) => *effect,
            (EntryVerdict::HoldSingleDelete, _) => PreviousVersion::SingleDeleteHeld(stripe),
            (EntryVerdict::CancelPair, _) => PreviousVersion::Cancelled(stripe),
            (EntryVerdict::Keep | EntryVerdict::MergeBase, _) if !e.value.is_tombstone() => {
                PreviousVersion::Put(stripe)
            }
            (EntryVerdict::Operand, _) => PreviousVersion::Operand(stripe),
            _ => PreviousVersion::Hides(stripe),
        };
        match &mut self.last_version {
            Some((_, last)) if !new_key => *last = effect,
            Some((key, last)) => {
                key.clear();
                key.extend_from_slice(e.key);
                *last = effect;
            }
            none => *none = Some((e.key.to_vec(), effect)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::expiry::FixedClock;

    fn collapse_all(bottom: bool, snapshots: &[u64], entries: &[(&str, u64, bool)]) -> String {
        let stripes =
            SnapshotStripes::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
        let mut c = VersionCollapser::new(KeyComparator::Bytes, stripes, bottom, &FixedClock(50));
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
        let output_seq = |bottom, snapshots: &[u64], seq, value| {
            let stripes =
                SnapshotStripes::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
            let c = VersionCollapser::new(KeyComparator::Bytes, stripes, bottom, &FixedClock(50))
                .with_bottom_seq(Some(SeqNo(70)));
            c.output_seq(&EntryRef { key: b"a", seq: SeqNo(seq), value }).0
        };
        let value = ValueRef::Inline(b"v");
        assert_eq!((output_seq(true, &[], 9, value), output_seq(true, &[80], 9, value)), (70, 70));
        assert_eq!(output_seq(true, &[8, 80], 9, value), 9, "a snapshot does not see it");
        assert_eq!(
            (output_seq(false, &[], 9, value), output_seq(true, &[], 9, ValueRef::Tombstone)),
            (9, 9)
        );
    }

    #[test]
    fn expired_version_hides_older_versions() {
        let verdicts = |bottom, snapshots: &[u64], entries: &[(&[u8], u64, ValueRef<'_>)]| {
            let stripes =
                SnapshotStripes::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
            let mut c =
                VersionCollapser::new(KeyComparator::Bytes, stripes, bottom, &FixedClock(50));
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
            "a snapshot sees the older version"
        );
    }
}
