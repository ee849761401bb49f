//! The rules of flush and compaction: which versions of a key are written, dropped or changed.
//! Pure, and the only file that may decide to drop or change an entry.
//!
//! [`CompactionIterator`](super::compaction_iterator) reads the versions of a key newest first. The
//! snapshots divide them into stripes: readers at sequence number 6 see `a.6` and older versions,
//! readers of the present see all. A reader sees at most the newest version of a stripe, so a
//! version only has to be compared with newer versions of the same stripe. [`reduce`] decides on
//! one version, from what the newer ones of its stripe were ([`NewerVersions`]).
//!
//! Two kinds of versions are *undecided* when they are read, because what is written depends on the
//! next older version: a single delete, and merge operands. They are held until a version ends
//! them; `reduce` is then called twice for that version, first for the undecided ones
//! ([`ReducedOutput::NewerVersions`]), then for the version itself.
//!
//! In the examples an entry is `KEY.KIND.SEQ:VALUE`; a value that expires ends in `@TIME`, and
//! `a-d.RANGEDEL.7` deletes the keys from `a` to before `d`. The present is 10, time is 50.
//! *Bottom* means bottommost: no older version of a key of the inputs exists below the output. The
//! oldest stripe then hides nothing.
//!
//! **Puts.** The newest version of a stripe hides the older ones.
//! ```text
//! a.PUT.8:x a.PUT.7:y a.PUT.5:z                            -> a.PUT.8:x
//! a.PUT.8:x a.PUT.7:y a.PUT.5:z      | snapshots 6         -> a.PUT.8:x a.PUT.5:z
//! ```
//! **Deletes.** A tombstone hides like a put. At the bottom it is dropped from the oldest stripe
//! only: in a newer stripe it hides older stripes from newer readers.
//! ```text
//! a.DEL.8 a.PUT.5:z                                        -> a.DEL.8
//! a.DEL.8 a.PUT.5:z                  | bottom              ->
//! a.DEL.8 a.PUT.5:z                  | bottom, snapshots 6 -> a.DEL.8 a.PUT.5:z
//! ```
//! **Range deletes.** A range tombstone hides the older versions of its own stripe. Without
//! snapshots it hides them from every reader, and a long sequence of them is not even read.
//! ```text
//! a-d.RANGEDEL.7 b.PUT.8:x c.PUT.5:y                       -> a-d.RANGEDEL.7 b.PUT.8:x
//! a-d.RANGEDEL.7 b.PUT.8:x c.PUT.5:y | snapshots 6         -> a-d.RANGEDEL.7 b.PUT.8:x c.PUT.5:y
//! a-d.RANGEDEL.7 b.PUT.8:x c.PUT.5:y | bottom              -> b.PUT.8:x
//! ```
//! **Expiry.** An expired value counts as a tombstone. It is converted to one, not dropped, as long
//! as it hides older versions.
//! ```text
//! a.PUT.8:x@40 a.PUT.5:y                                   -> a.DEL.8
//! a.PUT.8:x@40 a.PUT.5:y             | bottom              ->
//! a.PUT.8:x@60 a.PUT.5:y             | bottom              -> a.PUT.8:x@60
//! ```
//! **Single deletes.** A single delete (SDEL) cancels itself and the next older put of its stripe,
//! also above the bottom: the application promises one put per single delete. It is held until the
//! next version is known. A put does not hide an older single delete, whose own put may be deeper
//! in the tree and would reappear. Below a pair that was cancelled, further puts are hidden: they
//! break the promise. Operands below turn it into a delete, which hides all of them.
//! ```text
//! a.SDEL.8 a.PUT.5:z                                       ->
//! a.SDEL.8 a.PUT.5:z                 | snapshots 6         -> a.SDEL.8 a.PUT.5:z
//! a.SDEL.8 a.DEL.5                                         -> a.DEL.5
//! a.PUT.8:x a.SDEL.7                                       -> a.PUT.8:x a.SDEL.7
//! a.SDEL.8 a.MERGE.5:z                                     -> a.DEL.8
//! ```
//! **Merge operands.** Operands of one stripe become one entry: a value if their base is known (the
//! value below, or a tombstone or the bottom, which mean that there is none), else one operand.
//! Nothing is merged onto a value that will expire. If the operator fails, or there is none, the
//! operands are written as they are, and the key is not changed any further: what lies below is not
//! what readers see.
//! ```text
//! a.MERGE.8:x a.MERGE.7:y a.PUT.5:z                        -> a.PUT.8:z,y,x
//! a.MERGE.8:x a.MERGE.7:y                                  -> a.MERGE.8:y,x
//! a.MERGE.8:x a.MERGE.7:y            | bottom              -> a.PUT.8:y,x
//! a.MERGE.8:x a.DEL.5                                      -> a.PUT.8:x
//! a.MERGE.8:x a.MERGE.7:y a.PUT.5:z  | snapshots 7         -> a.MERGE.8:x a.PUT.7:z,y
//! a.MERGE.8:x a.PUT.5:z@60                                 -> a.MERGE.8:x a.PUT.5:z@60
//! ```
//! **Compaction filter.** It decides on values that no snapshot sees, after the other rules. A
//! value that it drops becomes a tombstone as long as it hides older versions.
//! ```text
//! a.PUT.8:drop                       | filter              -> a.DEL.8
//! a.PUT.8:drop                       | bottom, filter      ->
//! ```
//! **Sequence numbers.** At the bottom, a value of the oldest stripe may get a sequence number that
//! all such values share.
//!
//! **Copies.** A repair may read a version several times; operands must not be applied twice.
//! **Rolled back** versions of a transaction are dropped; undecided newer ones are written as they
//! are.

use super::counts::{DropReason, RangeTombstoneCounts};
use super::filter::FilterDecision;
use crate::mvcc::SnapshotStripes;
use perigee_base::SeqNo;
use perigee_file::{RangeTombstoneFragment, RangeTombstones};
use std::sync::Arc;

/// Kind of a version, as far as the rules distinguish kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionKind {
    /// A value that does not expire.
    Value,
    /// A value that will expire.
    ExpiringValue,
    /// A value that has expired.
    ExpiredValue,
    /// A tombstone.
    Delete,
    /// A single delete.
    SingleDelete,
    /// A merge operand.
    Operand,
}

impl VersionKind {
    /// Returns true for a value that readers see.
    pub fn is_live_value(self) -> bool {
        matches!(self, VersionKind::Value | VersionKind::ExpiringValue)
    }
}

/// What the rules need to know of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyVersion {
    /// Kind, at the time of the rewrite.
    pub kind: VersionKind,
    /// Snapshot stripe; 0 is the oldest.
    pub stripe: usize,
    /// Stripe of the oldest range tombstone that covers the key and is newer than the version.
    pub covering_stripe: Option<usize>,
    /// True if an operand with the same sequence number was read just before.
    pub is_copy: bool,
    /// True if the transaction that wrote it has rolled it back.
    pub is_rolled_back: bool,
}

/// Effect of the newer versions of a stripe on an older version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewerEffect {
    /// There are none, or none that matters.
    None,
    /// A value, which hides all versions but single deletes.
    Value,
    /// A tombstone, or a version that counts as one: it hides all versions.
    Tombstone,
    /// A single delete, which waits for its put.
    SingleDelete,
    /// A single delete and its put, dropped together.
    CancelledPair,
    /// Operands, which wait for their base.
    Operands,
    /// Operands that were merged onto the version to come.
    MergedOperands,
}

/// Versions of the current key that were read and neither written nor dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndecidedVersions {
    /// There are none.
    None,
    /// One single delete.
    SingleDelete,
    /// Operands of one stripe.
    Operands,
}

/// The newer versions of a key, as far as they matter for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewerVersions {
    /// Stripe of the last of them.
    pub stripe: usize,
    /// Their effect within that stripe.
    pub effect: NewerEffect,
    /// Those that are undecided, all of that stripe.
    pub undecided: UndecidedVersions,
}

impl NewerVersions {
    /// What precedes the first version of a key.
    pub const NONE: NewerVersions =
        NewerVersions { stripe: 0, effect: NewerEffect::None, undecided: UndecidedVersions::None };
}

/// What a rewrite knows of everything outside its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReduceContext {
    /// True if no older version of any input key exists below the output.
    pub bottommost: bool,
    /// Sequence number that values may share which every reader sees, if there is one. It is at
    /// least that of every entry (see `compact/bottom_seq.rs`). Only if `bottommost`.
    pub bottom_seq: Option<SeqNo>,
}

impl ReduceContext {
    /// Returns true if a tombstone in this stripe would hide nothing.
    #[inline]
    pub fn hides_nothing(&self, stripe: usize) -> bool {
        self.bottommost && stripe == 0
    }
    /// Returns what lies below the oldest version of a key.
    pub fn base_below_inputs(&self) -> OperandBase {
        if self.bottommost { OperandBase::Absent } else { OperandBase::Unknown }
    }
    /// Returns the sequence number to write a value with. Below operands that were written, the
    /// value keeps its own, which must be smaller than theirs.
    #[inline]
    pub fn output_seq(&self, seq: SeqNo, stripe: usize, is_below_operands: bool) -> SeqNo {
        match self.bottom_seq {
            Some(shared) if stripe == 0 && !is_below_operands => shared,
            _ => seq,
        }
    }
}

/// What operands are merged onto.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandBase {
    /// The version being reduced.
    Version,
    /// Nothing, for every reader that sees the operands.
    Absent,
    /// Not known in this rewrite: they are merged into one operand.
    Unknown,
}

/// What is written because of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReducedOutput {
    /// Nothing.
    Nothing,
    /// The version, unless the compaction filter decides otherwise.
    Version,
    /// A tombstone in place of the version.
    Tombstone,
    /// Nothing yet: the version is undecided.
    Undecided,
    /// Nothing yet: the undecided single delete is to be written as a delete.
    UndecidedAsDelete,
    /// The undecided newer versions; operands are merged onto this base. The version is then
    /// reduced again.
    NewerVersions(OperandBase),
}

/// Versions dropped because of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedVersions {
    /// The version itself.
    pub version: Option<DropReason>,
    /// The undecided version that was read last.
    pub undecided: Option<DropReason>,
}

/// Result of [`reduce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduced {
    /// What is written.
    pub output: ReducedOutput,
    /// What is dropped.
    pub dropped: DroppedVersions,
    /// Effect on older versions of the stripe; unchanged if newer versions are written.
    pub effect: NewerEffect,
}

const NOTHING_DROPPED: DroppedVersions = DroppedVersions { version: None, undecided: None };

impl Reduced {
    #[inline]
    fn write(output: ReducedOutput, effect: NewerEffect) -> Reduced {
        Reduced { output, dropped: NOTHING_DROPPED, effect }
    }
    #[inline]
    fn drop(reason: DropReason, effect: NewerEffect) -> Reduced {
        let dropped = DroppedVersions { version: Some(reason), undecided: None };
        Reduced { output: ReducedOutput::Nothing, dropped, effect }
    }
    fn write_newer(base: OperandBase, newer: &NewerVersions) -> Reduced {
        Reduced::write(ReducedOutput::NewerVersions(base), newer.effect)
    }
    /// Also drops the undecided version that was read last.
    fn and_drop_undecided(self, reason: DropReason) -> Reduced {
        let dropped = DroppedVersions { undecided: Some(reason), ..self.dropped };
        Reduced { dropped, ..self }
    }
}

/// Decides on the next older version of a key.
#[inline]
pub fn reduce(newer: &NewerVersions, version: &KeyVersion, context: &ReduceContext) -> Reduced {
    check_slow!(
        match newer.undecided {
            UndecidedVersions::None => true,
            UndecidedVersions::Operands => newer.effect == NewerEffect::Operands,
            UndecidedVersions::SingleDelete =>
                matches!(newer.effect, NewerEffect::SingleDelete | NewerEffect::Tombstone),
        },
        "undecided versions have the effect of their kind",
        newer
    );
    if version.is_rolled_back {
        return match newer.undecided {
            UndecidedVersions::None => Reduced::drop(DropReason::RolledBack, newer.effect),
            _ => Reduced::write_newer(OperandBase::Unknown, newer),
        };
    }
    let same_stripe = newer.stripe == version.stripe;
    let effect = if same_stripe { newer.effect } else { NewerEffect::None };
    if effect == NewerEffect::None && newer.undecided == UndecidedVersions::None {
        return reduce_alone(version, context);
    }
    reduce_below(effect, version).unwrap_or_else(|| match newer.undecided {
        UndecidedVersions::None => reduce_alone(version, context),
        UndecidedVersions::SingleDelete => Reduced::write_newer(OperandBase::Unknown, newer),
        UndecidedVersions::Operands => reduce_below_operands(newer, version, context),
    })
}

/// Applies the rules for a version below newer ones of its stripe that hide or replace it. Returns
/// `None` if they do not.
fn reduce_below(effect: NewerEffect, version: &KeyVersion) -> Option<Reduced> {
    use VersionKind as Kind;
    let is_covered = version.covering_stripe == Some(version.stripe);
    Some(match (effect, version.kind) {
        (NewerEffect::Tombstone, _) => Reduced::drop(DropReason::Shadowed, effect),
        (NewerEffect::Value, Kind::SingleDelete) => return None,
        (NewerEffect::Value, _) => Reduced::drop(DropReason::Shadowed, effect),
        (NewerEffect::SingleDelete, Kind::SingleDelete) => {
            Reduced::drop(DropReason::Shadowed, effect)
        }
        (NewerEffect::SingleDelete, Kind::Delete) => {
            Reduced::write(ReducedOutput::Version, NewerEffect::Tombstone)
                .and_drop_undecided(DropReason::Cancelled)
        }
        (NewerEffect::SingleDelete, Kind::Operand) => Reduced {
            output: ReducedOutput::UndecidedAsDelete,
            ..Reduced::drop(DropReason::Shadowed, NewerEffect::Tombstone)
        },
        (NewerEffect::SingleDelete, _) => {
            Reduced::drop(DropReason::Cancelled, NewerEffect::CancelledPair)
                .and_drop_undecided(DropReason::Cancelled)
        }
        (NewerEffect::CancelledPair, Kind::Delete | Kind::SingleDelete) => return None,
        (NewerEffect::CancelledPair, _) => Reduced::drop(DropReason::Shadowed, effect),
        (NewerEffect::MergedOperands, Kind::Value) if !is_covered => {
            Reduced::drop(DropReason::Merged, NewerEffect::Value)
        }
        (NewerEffect::MergedOperands, Kind::Delete | Kind::ExpiredValue) if !is_covered => {
            Reduced::drop(DropReason::Merged, NewerEffect::Tombstone)
        }
        _ => return None,
    })
}

/// Applies the rules for a version below undecided operands: it joins them, or it is their base.
fn reduce_below_operands(
    newer: &NewerVersions,
    version: &KeyVersion,
    context: &ReduceContext,
) -> Reduced {
    use VersionKind as Kind;
    let same_stripe = newer.stripe == version.stripe;
    let base = match version.kind {
        _ if version.covering_stripe == Some(version.stripe) => OperandBase::Absent,
        Kind::Operand if same_stripe => return reduce_alone(version, context),
        Kind::Value if same_stripe && version.is_copy => {
            // The value was merged from a copy of the operand, which must not be applied again.
            return Reduced::write_newer(OperandBase::Version, newer)
                .and_drop_undecided(DropReason::Shadowed);
        }
        Kind::Value if same_stripe => OperandBase::Version,
        Kind::Delete | Kind::ExpiredValue
            if same_stripe || context.hides_nothing(version.stripe) =>
        {
            OperandBase::Absent
        }
        Kind::SingleDelete => OperandBase::Absent,
        _ => OperandBase::Unknown,
    };
    Reduced::write_newer(base, newer)
}

/// Applies the rules for a version by itself.
#[inline]
fn reduce_alone(version: &KeyVersion, context: &ReduceContext) -> Reduced {
    use VersionKind as Kind;
    if version.covering_stripe == Some(version.stripe) {
        return Reduced::drop(DropReason::Covered, NewerEffect::Tombstone);
    }
    let hides_nothing = context.hides_nothing(version.stripe);
    match version.kind {
        Kind::Value | Kind::ExpiringValue => {
            Reduced::write(ReducedOutput::Version, NewerEffect::Value)
        }
        Kind::ExpiredValue if hides_nothing => {
            Reduced::drop(DropReason::Expired, NewerEffect::Tombstone)
        }
        Kind::ExpiredValue => Reduced::write(ReducedOutput::Tombstone, NewerEffect::Tombstone),
        Kind::Delete | Kind::SingleDelete if hides_nothing => {
            Reduced::drop(DropReason::ObsoleteTombstone, NewerEffect::Tombstone)
        }
        Kind::Delete => Reduced::write(ReducedOutput::Version, NewerEffect::Tombstone),
        Kind::SingleDelete => Reduced::write(ReducedOutput::Undecided, NewerEffect::SingleDelete),
        Kind::Operand if version.is_copy => {
            Reduced::drop(DropReason::Shadowed, NewerEffect::Operands)
        }
        Kind::Operand => Reduced::write(ReducedOutput::Undecided, NewerEffect::Operands),
    }
}

/// What is written in place of a value after the decision of the compaction filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilteredOutput {
    /// The value, unchanged.
    Unchanged,
    /// Another value; the expiry stays.
    Changed(Vec<u8>),
    /// A tombstone.
    Tombstone,
    /// Nothing.
    Dropped(DropReason),
}

/// Returns true if the compaction filter may decide on a version that would be written: it is a
/// value, no snapshot sees it, and it is what readers see.
pub fn may_filter(kind: VersionKind, is_above_snapshots: bool, is_below_operands: bool) -> bool {
    kind.is_live_value() && is_above_snapshots && !is_below_operands
}

/// Applies the decision of the compaction filter on a value in this stripe.
pub fn apply_filter(
    decision: FilterDecision,
    stripe: usize,
    context: &ReduceContext,
) -> FilteredOutput {
    match decision {
        FilterDecision::Keep => FilteredOutput::Unchanged,
        FilterDecision::Change(value) => FilteredOutput::Changed(value),
        FilterDecision::Drop if context.hides_nothing(stripe) => {
            FilteredOutput::Dropped(DropReason::Filtered)
        }
        FilterDecision::Drop => FilteredOutput::Tombstone,
    }
}

/// Returns the range tombstones to write: of each fragment the newest one per stripe, without those
/// that hide nothing any more.
pub fn reduce_range_tombstones(
    ranges: &RangeTombstones,
    stripes: &SnapshotStripes,
    context: &ReduceContext,
) -> (RangeTombstones, RangeTombstoneCounts) {
    let read = ranges.tombstone_count();
    let mut counts = RangeTombstoneCounts { read, ..RangeTombstoneCounts::default() };
    let mut kept = Vec::new();
    for fragment in ranges.fragments() {
        let (mut seqs, mut newer_stripe) = (Vec::new(), None);
        for seq in &fragment.seqs {
            let stripe = stripes.stripe_of(*seq);
            if newer_stripe.replace(stripe) == Some(stripe) {
                counts.shadowed += 1;
            } else if context.hides_nothing(stripe) {
                counts.obsolete += 1;
            } else {
                seqs.push(*seq);
            }
        }
        if !seqs.is_empty() {
            let (begin, end) = (fragment.begin.clone(), fragment.end.clone());
            kept.push(Arc::new(RangeTombstoneFragment { begin, end, seqs }));
        }
    }
    (RangeTombstones::new(kept), counts)
}

/// Returns the newest tombstone of a fragment that hides everything older within the fragment from
/// every reader, so that it need not be read: in the oldest stripe, everything older is in the same
/// stripe.
pub fn tombstone_hiding_all_older(
    fragment: &RangeTombstoneFragment,
    stripes: &SnapshotStripes,
) -> Option<SeqNo> {
    fragment.seqs.iter().copied().find(|seq| stripes.is_in_oldest_stripe(*seq))
}
