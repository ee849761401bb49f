//! The levels of isolation, by name and by number. Must not know how they are kept.

/// Isolation of a transaction, weakest first. `docs/transactions.md` says what each forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IsolationLevel {
    /// Served as read committed.
    ReadUncommitted,
    /// Each read sees what was committed when it began.
    ReadCommitted,
    /// All reads see one moment; keys that were read by themselves must not have changed at commit.
    RepeatableRead,
    /// All reads see one moment; keys that were written must not have changed at commit.
    Snapshot,
    /// As if transactions ran one after the other, in an order that real time allows: see
    /// [`crate::serial`].
    Serializable,
}

impl IsolationLevel {
    /// Its number in files.
    pub fn code(self) -> u8 {
        match self {
            IsolationLevel::ReadUncommitted => 0,
            IsolationLevel::ReadCommitted => 1,
            IsolationLevel::RepeatableRead => 2,
            IsolationLevel::Snapshot => 3,
            IsolationLevel::Serializable => 4,
        }
    }
    /// The level of a number.
    pub fn decode(code: u8) -> Option<IsolationLevel> {
        use IsolationLevel::*;
        let all = [ReadUncommitted, ReadCommitted, RepeatableRead, Snapshot, Serializable];
        all.into_iter().find(|level| level.code() == code)
    }
    /// Whether all reads see the moment at which the transaction began.
    pub fn uses_snapshot(self) -> bool {
        self >= IsolationLevel::RepeatableRead
    }
    /// Whether keys that were read must not have changed at commit.
    pub fn checks_reads(self) -> bool {
        self == IsolationLevel::RepeatableRead
    }
}
