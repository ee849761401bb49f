//! The only file that may drop an entry.

use crate::mvcc::Strata;
use perigee_base::bug::{self, Bug};
use perigee_base::cut::CutRef;
use perigee_base::{EntryRef, Expiry, KeyOrder, Now, SeqNo, ValueRef};
use perigee_file::{Fragment, Fragments};
use std::ops::Range;
use std::sync::Arc;

/// So many entries that one range tombstone hides are read before the rest of them is sought over.
const PATIENCE: u32 = 16;

/// What becomes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Keep,
    /// A newer version hides it from every reader.
    Shadowed,
    /// A tombstone with nothing left to hide.
    SpentTombstone,
    /// Its time has passed, and there is nothing left to hide.
    Expired,
    /// Its time has passed: it goes on as a tombstone.
    Bury,
    /// A range tombstone hides it.
    Covered,
    /// A single delete: it waits for the next entry, and goes on if that is not the put it cancels.
    Hold,
    /// The put that the waiting single delete cancels: both go.
    Cancel,
    /// A tombstone that hides at least what the waiting single delete does: it goes on alone.
    Replace,
    /// Its transaction has taken it back: it never was.
    TakenBack,
    /// An operand: it waits for what lies below it.
    Operand,
    /// The value that waiting operands are about.
    Base,
    /// A tombstone, or a value whose time has passed: waiting operands are about nothing.
    NoBase,
    /// An operand below a waiting single delete, which must hide all of them: it goes on as a delete.
    Deletes,
}

/// What became of range tombstones, counted once for each fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeCounts {
    /// Those of the source.
    pub read: u64,
    /// Hidden by a newer one.
    pub shadowed: u64,
    /// With nothing left to hide.
    pub spent: u64,
}

/// What the last entry left behind for the older versions of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// It hides those of its stratum, and those below them too.
    Hides(usize),
    /// It is a value: it hides those of its stratum but single deletes, whose puts may lie deeper and would come back.
    Put(usize),
    /// It is a single delete of that stratum, and waits.
    Waits(usize),
    /// A single delete and its put went together; another put right below is one too many, and hidden all the same.
    Cancelled(usize),
    /// It is an operand of that stratum, and waits.
    Operand(usize),
}

/// Decides entry by entry; entries come in entry order.
#[derive(Debug)]
pub struct Collapse<'a> {
    order: KeyOrder,
    strata: Strata,
    bottom: bool,
    /// The number of settled entries; at the bottom only.
    settle: Option<SeqNo>,
    /// Asked once, at the first entry that expires.
    now: &'a dyn Now,
    now_ms: Option<u64>,
    /// Numbers that a transaction has taken back, ascending and apart.
    taken_back: Arc<[Range<u64>]>,
    /// All range tombstones of the source, and which of them is near.
    ranges: Fragments,
    near: usize,
    /// Entries that the near one has hidden, since it was near or was left.
    hidden: u32,
    /// The last key and what its last version means for older ones; `None` before the first.
    last: Option<(Vec<u8>, Wake)>,
}

impl<'a> Collapse<'a> {
    /// `bottom`: below the output lies no older version of any key of the input.
    pub fn new(order: KeyOrder, strata: Strata, bottom: bool, now: &'a dyn Now) -> Collapse<'a> {
        Collapse {
            strata,
            bottom: bottom || bug::on(Bug::DropTombstoneEarly),
            settle: None,
            now,
            now_ms: None,
            taken_back: Arc::default(),
            ranges: Fragments::default(),
            near: 0,
            hidden: 0,
            order: if bug::on(Bug::CollapseByBytes) { KeyOrder::Bytes } else { order },
            last: None,
        }
    }
    /// With a number for values that every reader sees; it is at least that of every entry (see `compact/settle.rs`).
    #[must_use]
    pub fn settling(self, number: Option<SeqNo>) -> Collapse<'a> {
        Collapse { settle: number.filter(|_| self.bottom), ..self }
    }
    /// Of a transaction's own entries, with the numbers that it has taken back.
    #[must_use]
    pub fn without(self, taken_back: Arc<[Range<u64>]>) -> Collapse<'a> {
        if taken_back.is_empty() {
            return self;
        }
        Collapse { ranges: self.ranges.without(&taken_back), taken_back, ..self }
    }
    /// The stratum of a version.
    pub fn stratum(&self, seq: SeqNo) -> usize {
        self.strata.of(seq)
    }
    /// The order of keys.
    pub fn order(&self) -> KeyOrder {
        self.order
    }
    /// With the range tombstones of the source.
    #[must_use]
    pub fn with_ranges(self, ranges: Fragments) -> Collapse<'a> {
        Collapse { ranges, ..self }
    }

    /// The range tombstones that go on: of each fragment the newest of each stratum, and none that is spent.
    pub fn ranges(&self) -> (Fragments, RangeCounts) {
        let mut counts = RangeCounts { read: self.ranges.pairs(), ..RangeCounts::default() };
        let mut kept = Vec::new();
        for f in self.ranges.list() {
            let (mut seqs, mut last) = (Vec::new(), None);
            for seq in &f.seqs {
                let stratum = self.strata.of(*seq);
                if last.replace(stratum) == Some(stratum) {
                    counts.shadowed += 1;
                } else if stratum == 0 && (self.bottom || bug::on(Bug::DropRangeEarly)) {
                    counts.spent += 1;
                } else {
                    seqs.push(*seq);
                }
            }
            if !seqs.is_empty() {
                let (begin, end) = (f.begin.clone(), f.end.clone());
                kept.push(Arc::new(Fragment { begin, end, seqs }));
            }
        }
        (Fragments::new(kept), counts)
    }

    /// Whether a range tombstone hides an entry from every reader that could see it. Keys come in order.
    fn covered(&mut self, key: &[u8], seq: SeqNo, stratum: usize) -> bool {
        let list = self.ranges.list();
        while list.get(self.near).is_some_and(|f| f.end.as_ref().is_before(self.order, key)) {
            (self.near, self.hidden) = (self.near + 1, 0);
        }
        let over = list.get(self.near).filter(|f| f.begin.as_ref().is_before(self.order, key));
        over.and_then(|f| f.hiding(seq)).is_some_and(|t| self.strata.of(t) == stratum)
    }

    /// Whether nothing that was judged so far, and no range tombstone, has a say about the keys from `first` to `last`. Keys
    /// come in order.
    pub fn leaves_alone(&mut self, first: &[u8], last: &[u8]) -> bool {
        if self.last.as_ref().is_some_and(|(key, _)| self.order.equal(key, first)) {
            return false;
        }
        let list = self.ranges.list();
        while list.get(self.near).is_some_and(|f| f.end.as_ref().is_before(self.order, first)) {
            self.near += 1;
        }
        !list.get(self.near).is_some_and(|f| f.begin.as_ref().is_before(self.order, last))
    }
    /// Values of different keys went on unjudged, the last of them this one.
    pub fn went_on(&mut self, key: &[u8], seq: SeqNo) {
        let stratum = self.strata.of(seq);
        let e = EntryRef { key, seq, value: ValueRef::Inline(&[]) };
        self.remember(&e, true, Verdict::Keep, stratum);
    }
    /// After a verdict of [`Verdict::Covered`]: where the tombstone ends that hides the entry, and its number, once it is worth to
    /// seek there. Everything older than that number and before that place is hidden from every reader.
    pub fn way_out(&mut self) -> Option<(CutRef<'_>, SeqNo)> {
        self.hidden += 1;
        if self.hidden < PATIENCE {
            return None;
        }
        self.hidden = 0;
        let over = self.ranges.list().get(self.near)?;
        // In the oldest stratum all that is older is in the same one.
        let seq = over.seqs.iter().copied().find(|seq| self.strata.oldest(*seq))?;
        Some((over.end.as_ref(), seq))
    }

    fn passed(&mut self, expiry: Expiry) -> bool {
        let now = self.now;
        let ask = || if bug::on(Bug::ExpireDespiteJump) { now.now_ms() } else { now.settled_ms() };
        expiry.passed(*self.now_ms.get_or_insert_with(ask))
    }

    /// Whether a filter may be asked about the entry: it has a value that no snapshot sees.
    pub fn may_filter(&self, e: &EntryRef<'_>) -> bool {
        let is_put = !matches!(e.value, ValueRef::None | ValueRef::Single) && !e.value.is_operand();
        is_put && (self.strata.newest(e.seq) || bug::on(Bug::FilterUnderSnapshot))
    }
    /// Whether a tombstone in the place of the entry would have nothing to hide.
    pub fn spends(&self, e: &EntryRef<'_>) -> bool {
        self.bottom && self.strata.oldest(e.seq)
    }

    /// The number that an entry goes on under: that of all settled ones, if every reader sees it and it is a value.
    pub fn settled(&self, e: &EntryRef<'_>) -> SeqNo {
        match self.settle {
            Some(number) if self.strata.oldest(e.seq) && !e.value.is_tombstone() && !e.value.is_operand() => {
                number
            }
            _ => e.seq,
        }
    }
    /// Whether entries go on under one number.
    pub fn settles(&self) -> bool {
        self.settle.is_some()
    }

    /// The verdict on the next entry, and whether it starts a new key; `another`: it is known to.
    pub fn judge(&mut self, e: &EntryRef<'_>, another: bool) -> (Verdict, bool) {
        if !self.taken_back.is_empty() {
            let at = self.taken_back.partition_point(|r| r.end <= e.seq.0);
            if self.taken_back.get(at).is_some_and(|r| r.contains(&e.seq.0)) {
                return (Verdict::TakenBack, false);
            }
        }
        let stratum = self.strata.of(e.seq);
        let new_key = another || !self.last.as_ref().is_some_and(|(key, _)| self.order.equal(key, e.key));
        let spent = self.bottom && stratum == 0;
        let verdict = match self.last.as_ref().filter(|_| !new_key).map(|(_, wake)| *wake) {
            Some(Wake::Hides(s)) if s == stratum => Verdict::Shadowed,
            Some(Wake::Put(s)) if s == stratum && e.value != ValueRef::Single => Verdict::Shadowed,
            Some(Wake::Waits(s)) if s == stratum && e.value == ValueRef::None => Verdict::Replace,
            Some(Wake::Waits(s)) if s == stratum && e.value == ValueRef::Single => Verdict::Shadowed,
            Some(Wake::Waits(s)) if s == stratum && e.value.is_operand() => Verdict::Deletes,
            Some(Wake::Waits(s)) if s == stratum => Verdict::Cancel,
            Some(Wake::Cancelled(s)) if s == stratum && !e.value.is_tombstone() => Verdict::Shadowed,
            _ if self.covered(e.key, e.seq, stratum) => Verdict::Covered,
            _ if e.value.is_operand() => Verdict::Operand,
            Some(Wake::Operand(s)) if s == stratum && e.value != ValueRef::Single => match e.value.expiry() {
                Some(x) if self.passed(x) => Verdict::NoBase,
                // Onto what will end nothing is merged for good.
                Some(_) => Verdict::Keep,
                None if e.value == ValueRef::None => Verdict::NoBase,
                None => Verdict::Base,
            },
            _ => match e.value.expiry() {
                Some(x) if self.passed(x) => {
                    if spent {
                        Verdict::Expired
                    } else {
                        Verdict::Bury
                    }
                }
                _ if e.value.is_tombstone() && spent => Verdict::SpentTombstone,
                _ if e.value == ValueRef::Single && bug::on(Bug::SingleDeleteLost) => Verdict::SpentTombstone,
                _ if e.value == ValueRef::Single => Verdict::Hold,
                _ => Verdict::Keep,
            },
        };
        self.remember(e, new_key, verdict, stratum);
        (verdict, new_key)
    }

    fn remember(&mut self, e: &EntryRef<'_>, new_key: bool, verdict: Verdict, stratum: usize) {
        let wake = match (verdict, &self.last) {
            (Verdict::Shadowed, Some((_, wake))) => *wake,
            (Verdict::Hold, _) => Wake::Waits(stratum),
            (Verdict::Cancel, _) => Wake::Cancelled(stratum),
            (Verdict::Keep | Verdict::Base, _) if !e.value.is_tombstone() => Wake::Put(stratum),
            (Verdict::Operand, _) => Wake::Operand(stratum),
            _ => Wake::Hides(stratum),
        };
        match &mut self.last {
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
    use perigee_base::expiry::Frozen;

    fn run(bottom: bool, snapshots: &[u64], entries: &[(&str, u64, bool)]) -> String {
        let strata = Strata::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
        let mut c = Collapse::new(KeyOrder::Bytes, strata, bottom, &Frozen(50));
        let mut out = String::new();
        for (k, s, put) in entries {
            let value = if *put { ValueRef::Inline(b"") } else { ValueRef::None };
            let verdict = c.judge(&EntryRef { key: k.as_bytes(), seq: SeqNo(*s), value }, false).0;
            out.push_str(&format!("{k}{s}:{verdict:?} "));
        }
        out.trim_end().to_owned()
    }

    #[test]
    fn only_what_nobody_can_see_is_dropped() {
        let entries = [("a", 9, true), ("a", 5, true), ("a", 3, false), ("b", 8, false), ("b", 2, true)];
        assert_eq!(run(false, &[], &entries), "a9:Keep a5:Shadowed a3:Shadowed b8:Keep b2:Shadowed");
        assert_eq!(run(true, &[], &entries), "a9:Keep a5:Shadowed a3:Shadowed b8:SpentTombstone b2:Shadowed");
        assert_eq!(run(false, &[6, 3], &entries), "a9:Keep a5:Keep a3:Keep b8:Keep b2:Keep");
        assert_eq!(run(true, &[6, 3], &entries), "a9:Keep a5:Keep a3:SpentTombstone b8:Keep b2:Keep");
        assert_eq!(run(true, &[8], &entries), "a9:Keep a5:Keep a3:Shadowed b8:SpentTombstone b2:Shadowed");
    }

    #[test]
    fn at_the_bottom_values_that_every_reader_sees_settle() {
        let settled = |bottom, snapshots: &[u64], seq, value| {
            let strata = Strata::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
            let c = Collapse::new(KeyOrder::Bytes, strata, bottom, &Frozen(50)).settling(Some(SeqNo(70)));
            c.settled(&EntryRef { key: b"a", seq: SeqNo(seq), value }).0
        };
        let value = ValueRef::Inline(b"v");
        assert_eq!((settled(true, &[], 9, value), settled(true, &[80], 9, value)), (70, 70));
        assert_eq!(settled(true, &[8, 80], 9, value), 9, "a snapshot does not see it");
        assert_eq!((settled(false, &[], 9, value), settled(true, &[], 9, ValueRef::None)), (9, 9));
    }

    #[test]
    fn an_expired_version_hides_older_ones_until_there_is_nothing_to_hide() {
        let verdicts = |bottom, snapshots: &[u64], entries: &[(&[u8], u64, ValueRef<'_>)]| {
            let strata = Strata::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
            let mut c = Collapse::new(KeyOrder::Bytes, strata, bottom, &Frozen(50));
            entries
                .iter()
                .map(|(key, seq, value)| c.judge(&EntryRef { key, seq: SeqNo(*seq), value: *value }, false).0)
                .collect::<Vec<_>>()
        };
        let until = |ms| ValueRef::InlineUntil(b"v", Expiry(ms));
        let old = ValueRef::Inline(b"old");
        let entries = [(&b"a"[..], 9, until(50)), (b"a", 5, old), (b"b", 8, until(51)), (b"b", 2, old)];
        use Verdict::*;
        assert_eq!(verdicts(false, &[], &entries), [Bury, Shadowed, Keep, Shadowed]);
        assert_eq!(verdicts(true, &[], &entries), [Expired, Shadowed, Keep, Shadowed]);
        assert_eq!(verdicts(true, &[6], &entries), [Bury, Keep, Keep, Keep], "a reader sees the older one");
    }
}
