//! What a transaction is asked to be.

use std::time::Duration;

/// What a transaction is protected from, weakest first. `docs/transactions.md` has the table of
/// anomalies, and says when to choose which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isolation {
    /// Served as [`Isolation::ReadCommitted`]: nobody ever sees what was not committed.
    ReadUncommitted,
    /// Each read sees what was committed when it began. Never a conflict.
    ReadCommitted,
    /// All reads see the moment at which the transaction began. At commit, keys that were read by
    /// themselves or written must be as they were then.
    RepeatableRead,
    /// All reads see the moment at which the transaction began. At commit, keys that were written
    /// must be as they were then: of two transactions that write the same key, the first to commit
    /// wins.
    #[default]
    Snapshot,
    /// As if transactions ran one after the other, in an order that real time allows: ranges that
    /// were read must be as they were, too.
    Serializable,
}

impl Isolation {
    /// All, weakest first.
    pub const ALL: [Isolation; 5] = [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Snapshot,
        Isolation::Serializable,
    ];
    /// Its name, as in an options file.
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
    /// What it is protected from (default: what the options of the family or of the database say,
    /// and those say snapshot).
    pub isolation: Option<Isolation>,
    /// It refuses to write, tracks nothing and never conflicts (default: no).
    pub read_only: bool,
    /// What it writes it locks first, and waits for others that hold it (default: no; it writes at
    /// once, and the later of two that wrote the same has a conflict at commit).
    pub pessimistic: bool,
    /// It waits for a lock no longer than that; then the answer is `Busy` (default: a second).
    pub lock_timeout: Duration,
    /// When it is older than that every call is answered by `Aborted` (default: never).
    pub timeout: Option<Duration>,
    /// Writes beyond so many bytes are refused (default: none are).
    pub max_bytes: Option<u64>,
    /// What it has written stays in memory up to so many bytes, and goes to files beyond (default,
    /// and at most: a sixteenth of the memory budget, no more than 64 MiB). A smaller one saves
    /// memory where many are open, and makes larger ones slower.
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
    /// The defaults.
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
