//! The isolation levels, with their codes in files. How they are enforced is defined elsewhere.

/// Isolation level of a transaction, weakest first. `docs/transactions.md` lists the anomalies that
/// each prevents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IsolationLevel {
    /// Treated as read committed.
    ReadUncommitted,
    /// Each read sees the data committed when it began.
    ReadCommitted,
    /// All reads see one snapshot; keys read individually must not have changed at commit.
    RepeatableRead,
    /// All reads see one snapshot; keys written must not have changed at commit.
    Snapshot,
    /// As if transactions ran one after the other, in an order consistent with real time: see
    /// [`crate::serializable_txns`].
    Serializable,
}

impl IsolationLevel {
    /// Returns its code in files.
    pub fn code(self) -> u8 {
        match self {
            IsolationLevel::ReadUncommitted => 0,
            IsolationLevel::ReadCommitted => 1,
            IsolationLevel::RepeatableRead => 2,
            IsolationLevel::Snapshot => 3,
            IsolationLevel::Serializable => 4,
        }
    }
    /// Returns the level with this code.
    pub fn decode(code: u8) -> Option<IsolationLevel> {
        use IsolationLevel::*;
        let all = [ReadUncommitted, ReadCommitted, RepeatableRead, Snapshot, Serializable];
        all.into_iter().find(|level| level.code() == code)
    }
    /// Returns true if all reads see the snapshot taken at the beginning of the transaction.
    pub fn uses_snapshot(self) -> bool {
        self >= IsolationLevel::RepeatableRead
    }
    /// Returns true if keys that were read must not have changed at commit.
    pub fn checks_reads(self) -> bool {
        self == IsolationLevel::RepeatableRead
    }
}
