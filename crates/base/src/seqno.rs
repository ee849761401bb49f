//! Sequence numbers: one per operation, contiguous over the whole database. A snapshot is a
//! sequence number.

/// Position of an operation in the commit order of the database. 0 precedes every operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqNo(pub u64);

impl SeqNo {
    /// Before every operation.
    pub const ZERO: SeqNo = SeqNo(0);
    /// After every operation.
    pub const MAX: SeqNo = SeqNo(u64::MAX);

    /// Returns the sequence number `n` operations later.
    #[must_use]
    pub fn plus(self, n: u64) -> SeqNo {
        SeqNo(self.0 + n)
    }
    /// Returns the previous sequence number, or 0.
    #[must_use]
    pub fn prev(self) -> SeqNo {
        SeqNo(self.0.saturating_sub(1))
    }
}

impl std::fmt::Display for SeqNo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}
