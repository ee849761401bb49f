//! Reports of lock waits and deadlocks: [`LockWait`], [`Deadlock`] and [`LockListener`].

use super::family_locks::LockRequest;
use super::lock_mode::LockMode;
use crate::txn::read_write_sets::KeyOrRange;
use std::time::Duration;

/// A request for a lock that waits. Transactions are identified by the numbers that
/// `Txn::lock_owner` returns.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockWait {
    /// The transaction that waits.
    pub waiting: u64,
    /// The transactions that it waits for: they hold conflicting locks, or requested them before.
    pub blocking: Vec<u64>,
    /// Name of the column family when the wait began.
    pub family: String,
    /// The key, or the key at which the range begins (empty: at the first key).
    pub key: Vec<u8>,
    /// The key at which the range ends (empty: after the last key); `None` for a single key.
    pub range_end: Option<Vec<u8>>,
    /// The requested mode.
    pub mode: LockMode,
    /// How long it has waited.
    pub waited: Duration,
}

impl LockWait {
    /// Describes a request.
    pub fn new(request: &LockRequest, blocking: Vec<u64>, now_us: u64) -> LockWait {
        check_slow!(
            !request.is_waiting() || !blocking.is_empty() && !blocking.contains(&request.owner),
            "other transactions block a request that waits",
            request.owner,
            blocking
        );
        let range_end = match &request.target {
            KeyOrRange::Key(_) => None,
            KeyOrRange::Range(_, end) => {
                Some(end.as_ref().key().map(<[u8]>::to_vec).unwrap_or_default())
            }
        };
        LockWait {
            waiting: request.owner,
            blocking,
            family: request.family_name.clone(),
            key: request.target.borrowed().start_key().to_vec(),
            range_end,
            mode: request.mode,
            waited: Duration::from_micros(now_us.saturating_sub(request.since_us)),
        }
    }
}

/// A deadlock that was resolved.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Deadlock {
    /// The waits: each transaction waits for the next one, and the last one for the first.
    pub waits: Vec<LockWait>,
    /// The transaction whose request failed with `Conflict`: the youngest one.
    pub victim: u64,
}

/// Learns of lock waits and deadlocks, on the threads of the transactions and while no lock of the
/// engine is held. A slow listener delays them. It must not use the transactions, and when it acts
/// they may have ended.
pub trait LockListener: Send + Sync {
    /// A transaction waits, or is about to, for locks of others. Also called when a transaction that
    /// waits already has to wait for one more.
    fn wait_began(&self, waiting: u64, blocking: &[u64]);
    /// A deadlock was resolved.
    fn deadlock_resolved(&self, deadlock: &Deadlock) {
        let _ = deadlock;
    }
}
