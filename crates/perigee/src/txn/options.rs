//! Options of transactions. Plain data.

use perigee_engine::{Isolation, TxnSettings};
use std::time::Duration;

/// Options of a transaction.
///
/// ```
/// use perigee::{Isolation, TxnOptions};
/// let careful = TxnOptions::new().isolation(Isolation::Serializable);
/// let report = TxnOptions::new().read_only(true);
/// assert_eq!((careful.isolation, report.read_only), (Some(Isolation::Serializable), true));
/// ```
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
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
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let options = TxnOptions::new().isolation(Isolation::Snapshot).read_only(true);
    /// let txn = db.begin(options)?;
    /// assert!(txn.put(&db.default_family(), "moon", "full").is_err());
    /// # Ok::<(), Error>(())
    /// ```
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
    /// Returns the engine's settings; `default` is the isolation level if the options set none.
    pub(crate) fn to_settings(&self, default: Isolation) -> TxnSettings {
        TxnSettings {
            isolation: self.isolation.unwrap_or(default),
            read_only: self.read_only,
            pessimistic: self.pessimistic,
            lock_timeout_us: to_micros(self.lock_timeout),
            // 0 means no limit in the engine, so a limit of 0 becomes 1.
            timeout_us: self.timeout.map_or(0, |t| to_micros(t).max(1)),
            max_bytes: self.max_bytes.map_or(0, |n| n.max(1)),
            spill_bytes: self.spill_bytes.map_or(0, |n| n.max(1)),
        }
    }
}

/// Converts to microseconds, rounded up, so that only zero becomes zero.
pub(crate) fn to_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}
