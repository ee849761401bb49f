//! Determines what the rules need to know of a version: its kind at this time, its snapshot stripe,
//! and whether a range tombstone covers it or its transaction has rolled it back.

use super::range_tombstone_cursor::RangeTombstoneCursor;
use super::reduce::{KeyVersion, VersionKind};
use crate::mvcc::SnapshotStripes;
use crate::scan::MergeCursor;
use perigee_base::bug::Bug;
use perigee_base::{EntryKind, Expiry, ExpiryClock, KeyBoundaryRef, SeqNo, ValueRef, bug};
use std::ops::Range;
use std::sync::Arc;

/// Classifies the versions of a rewrite; keys must come in ascending order.
#[derive(Debug)]
pub struct VersionClassifier<'a> {
    stripes: SnapshotStripes,
    range_tombstones: RangeTombstoneCursor,
    /// Sequence numbers that a transaction has rolled back, ascending and disjoint.
    rolled_back: Arc<[Range<SeqNo>]>,
    clock: &'a dyn ExpiryClock,
    /// Time of the clock, read once, at the first entry with an expiry.
    now_ms: Option<u64>,
}

impl<'a> VersionClassifier<'a> {
    /// Creates a classifier. `range_tombstones`: those of all sources, except rolled-back ones.
    pub fn new(
        stripes: SnapshotStripes,
        range_tombstones: RangeTombstoneCursor,
        rolled_back: Arc<[Range<SeqNo>]>,
        clock: &'a dyn ExpiryClock,
    ) -> VersionClassifier<'a> {
        check!(
            rolled_back.windows(2).all(|w| w[0].end <= w[1].start),
            "ranges that were rolled back ascend and do not overlap",
            rolled_back
        );
        VersionClassifier { stripes, range_tombstones, rolled_back, clock, now_ms: None }
    }
    /// Returns the snapshot stripes.
    #[inline]
    pub fn stripes(&self) -> &SnapshotStripes {
        &self.stripes
    }
    /// Returns the range tombstones.
    pub fn range_tombstones(&mut self) -> &mut RangeTombstoneCursor {
        &mut self.range_tombstones
    }

    /// Returns true if the transaction that wrote this sequence number has rolled it back.
    #[inline]
    pub fn is_rolled_back(&self, seq: SeqNo) -> bool {
        if self.rolled_back.is_empty() {
            return false;
        }
        let at = self.rolled_back.partition_point(|r| r.end <= seq);
        self.rolled_back.get(at).is_some_and(|r| r.contains(&seq))
    }

    /// Classifies the current entry of the source, whose key is `key`.
    #[inline]
    pub fn classify(&mut self, source: &MergeCursor, key: &[u8]) -> KeyVersion {
        let seq = source.seq();
        let kind = match source.kind() {
            EntryKind::Put | EntryKind::PutPointer => VersionKind::Value,
            _ => self.kind_of(&source.value()),
        };
        let covering = self.range_tombstones.oldest_newer_than(key, seq);
        KeyVersion {
            kind,
            stripe: self.stripes.stripe_of(seq),
            covering_stripe: covering.map(|tombstone| self.stripes.stripe_of(tombstone)),
            is_copy: false,
            is_rolled_back: false,
        }
    }

    fn kind_of(&mut self, value: &ValueRef<'_>) -> VersionKind {
        match (value, value.expiry()) {
            (ValueRef::Tombstone, _) => VersionKind::Delete,
            (ValueRef::SingleDelete, _) => VersionKind::SingleDelete,
            (ValueRef::Operand(_) | ValueRef::OperandPointer(_), _) => VersionKind::Operand,
            (_, None) => VersionKind::Value,
            (_, Some(expiry)) if self.is_expired(expiry) => VersionKind::ExpiredValue,
            (_, Some(_)) => VersionKind::ExpiringValue,
        }
    }

    fn is_expired(&mut self, expiry: Expiry) -> bool {
        let clock = self.clock;
        let now = *self.now_ms.get_or_insert_with(|| {
            if bug::is_active(Bug::ExpireDespiteClockJump) {
                clock.now_ms()
            } else {
                clock.confirmed_ms()
            }
        });
        expiry.is_expired(now)
    }

    /// Counts an entry that a range tombstone covers. Once it is worthwhile, returns a boundary and
    /// a sequence number: no reader sees an older entry before that boundary.
    pub fn count_covered(&mut self) -> Option<(KeyBoundaryRef<'_>, SeqNo)> {
        self.range_tombstones.count_hidden(&self.stripes)
    }
}
