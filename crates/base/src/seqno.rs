//! Sequence numbers: one per operation, contiguous over the whole database. A snapshot is a
//! sequence number. The sequence number of an operation is also its position in the log (LSN).

use std::sync::atomic::{AtomicU64, Ordering};

/// Position of an operation in the commit order of the database. 0 precedes every operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SeqNo(pub u64);

impl SeqNo {
    /// Before every operation.
    pub const ZERO: SeqNo = SeqNo(0);
    /// After every operation.
    pub const MAX: SeqNo = SeqNo(u64::MAX);

    /// Returns the sequence number `n` operations later.
    #[must_use]
    #[inline]
    pub fn plus(self, n: u64) -> SeqNo {
        SeqNo(self.0 + n)
    }
    /// Returns the previous sequence number, or 0.
    #[must_use]
    #[inline]
    pub fn prev(self) -> SeqNo {
        SeqNo(self.0.saturating_sub(1))
    }
    /// Returns the sequence number of the operation at `index` of a batch whose first operation has
    /// this one.
    #[must_use]
    #[inline]
    pub fn of_op(self, index: OpIndex) -> SeqNo {
        SeqNo(self.0 + index.0)
    }
    /// Returns the index of the operation with this sequence number in a batch whose first
    /// operation has `base`.
    #[inline]
    pub fn index_from(self, base: SeqNo) -> OpIndex {
        OpIndex(self.0 - base.0)
    }
}

impl std::fmt::Display for SeqNo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Position of an operation in its batch; that of the first operation is 0. See [`SeqNo::of_op`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct OpIndex(pub u64);

/// A sequence number that threads share.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicSeqNo(AtomicU64);

impl AtomicSeqNo {
    /// Creates one with the value `seq`.
    #[inline]
    pub const fn new(seq: SeqNo) -> AtomicSeqNo {
        AtomicSeqNo(AtomicU64::new(seq.0))
    }
    /// Loads the value.
    #[inline]
    pub fn load(&self, ordering: Ordering) -> SeqNo {
        SeqNo(self.0.load(ordering))
    }
    /// Stores a value.
    #[inline]
    pub fn store(&self, seq: SeqNo, ordering: Ordering) {
        self.0.store(seq.0, ordering);
    }
    /// Stores the larger of the value and `seq`; returns the previous value.
    #[inline]
    pub fn fetch_max(&self, seq: SeqNo, ordering: Ordering) -> SeqNo {
        SeqNo(self.0.fetch_max(seq.0, ordering))
    }
}
