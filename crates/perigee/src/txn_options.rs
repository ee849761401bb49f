//! Options of transactions. Plain data.

use std::time::Duration;

/// Isolation levels, weakest first. `docs/transactions.md` lists the anomalies that each permits,
/// and when to choose which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isolation {
    /// Same as [`Isolation::ReadCommitted`]: uncommitted writes of others are never visible.
    ReadUncommitted,
    /// Each read sees what is committed when it starts. A commit never conflicts.
    ReadCommitted,
    /// All reads see what was committed when the transaction began. The commit conflicts if another
    /// commit has since changed a key that this transaction wrote, or read with a get.
    RepeatableRead,
    /// All reads see what was committed when the transaction began. The commit conflicts if another
    /// commit has since changed a key that this transaction wrote: the first committer wins.
    #[default]
    Snapshot,
    /// Equivalent to running the transactions one after the other, in an order that agrees with
    /// real time. Gets and scanned ranges are tracked. There are no anomalies, but some commits
    /// fail with a false conflict.
    Serializable,
}

impl Isolation {
    /// All levels, weakest first.
    pub const ALL: [Isolation; 5] = [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Snapshot,
        Isolation::Serializable,
    ];
    /// Returns its name as written in an options file.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::ReadUncommitted => "read uncommitted",
            Isolation::ReadCommitted => "read committed",
            Isolation::RepeatableRead => "repeatable read",
            Isolation::Snapshot => "snapshot",
            Isolation::Serializable => "serializable",
        }
    }
}

/// Options of a transaction.
///
/// ```
/// use perigee::{Isolation, TxnOptions};
/// let careful = TxnOptions::new().isolation(Isolation::Serializable);
/// let report = TxnOptions::new().read_only(true);
/// assert_eq!((careful.isolation, report.read_only), (Some(Isolation::Serializable), true));
/// ```
#[derive(Clone, Debug)]
pub struct TxnOptions {
    /// Isolation level (default `None`: the level in the options of the column family or of the
    /// database, which is snapshot by default).
    pub isolation: Option<Isolation>,
    /// Rejects writes, tracks no reads and never conflicts (default false).
    pub read_only: bool,
    /// Locks every key before writing it, and waits for other holders of the lock (default false:
    /// writes do not wait, and of two transactions that wrote the same key the later one to commit
    /// gets `Conflict`).
    pub pessimistic: bool,
    /// Longest wait for a lock, after which the call fails with `Busy` (default 1 s).
    pub lock_timeout: Duration,
    /// Longest duration of the transaction, after which all calls fail with `Aborted` (default:
    /// unlimited).
    pub timeout: Option<Duration>,
    /// Limit in bytes for its writes; a write beyond it fails with `InvalidArgument` (default:
    /// unlimited).
    pub max_bytes: Option<u64>,
    /// Bytes of writes kept in memory; beyond that they are spilled to files (default and maximum:
    /// 1/16 of the memory budget, at most 64 MiB). A lower value saves memory if many transactions
    /// are open, and slows large ones down.
    pub spill_bytes: Option<u64>,
}

impl Default for TxnOptions {
    fn default() -> TxnOptions {
        TxnOptions {
            isolation: None,
            read_only: false,
            pessimistic: false,
            lock_timeout: Duration::from_secs(1),
            timeout: None,
            max_bytes: None,
            spill_bytes: None,
        }
    }
}

impl TxnOptions {
    /// Returns the default options.
    pub fn new() -> TxnOptions {
        TxnOptions::default()
    }
    /// Sets [`TxnOptions::isolation`].
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> TxnOptions {
        self.isolation = Some(isolation);
        self
    }
    /// Sets [`TxnOptions::read_only`].
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> TxnOptions {
        self.read_only = read_only;
        self
    }
    /// Sets [`TxnOptions::pessimistic`].
    #[must_use]
    pub fn pessimistic(mut self, pessimistic: bool) -> TxnOptions {
        self.pessimistic = pessimistic;
        self
    }
    /// Sets [`TxnOptions::lock_timeout`].
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> TxnOptions {
        self.lock_timeout = timeout;
        self
    }
    /// Sets [`TxnOptions::timeout`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> TxnOptions {
        self.timeout = Some(timeout);
        self
    }
    /// Sets [`TxnOptions::spill_bytes`].
    #[must_use]
    pub fn spill_bytes(mut self, bytes: u64) -> TxnOptions {
        self.spill_bytes = Some(bytes);
        self
    }
    /// Sets [`TxnOptions::max_bytes`].
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> TxnOptions {
        self.max_bytes = Some(bytes);
        self
    }
}
