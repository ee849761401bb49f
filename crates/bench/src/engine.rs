//! Interface between workloads and engines. Depends on neither.
//!
//! Sessions and cursors are passed to a closure instead of being returned: an adapter can then keep
//! its connection, prepared statements and transactions on the stack, borrowed from each other,
//! without copies that its users would not make. Families (column families, tables, keyspaces) are
//! numbered from 0; the settings say how many there are.

use crate::settings::{Level, Settings};
use std::collections::BTreeMap;
use std::path::Path;

/// Error of an adapter; only its text is used.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Result of an adapter's call.
pub type Result<T> = std::result::Result<T, Failure>;

/// Options in effect, by name, including settings that could not be honoured. Stored in the record.
pub type EffectiveOptions = BTreeMap<String, String>;

/// Handling of expired entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlSupport {
    /// The engine has no time to live.
    None,
    /// Reads do not return expired entries.
    OnRead,
    /// Reads return expired entries until a compaction has dropped them.
    #[cfg_attr(not(feature = "rocksdb"), expect(dead_code))]
    AtCompaction,
}

/// Error of a transaction that lost a conflict: it had no effect and may be retried.
#[derive(Debug)]
pub struct TxnConflict;

impl std::fmt::Display for TxnConflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the transaction conflicted with another one")
    }
}

impl std::error::Error for TxnConflict {}

/// An open database of one engine.
pub trait Engine: Sync {
    /// Returns the version of the engine (not of the adapter).
    fn version(&self) -> String;
    /// Returns the options in effect, and every setting that could not be honoured.
    fn effective_options(&self) -> EffectiveOptions;
    /// Runs `work` with a session for the calling thread.
    fn with_session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()>;
    /// Returns when everything acknowledged is in its final location and no background work is
    /// pending.
    fn wait_idle(&self) -> Result<()>;
    /// Closes the database; everything acknowledged must be there when it is reopened.
    fn close(self: Box<Self>) -> Result<()>;
    /// Returns how the engine applies the time to live of the settings.
    fn ttl_support(&self) -> TtlSupport {
        TtlSupport::None
    }
    /// Returns true if the engine has transactions of this level.
    fn supports_level(&self, _level: Level) -> bool {
        false
    }
    /// Returns the size in bytes of the largest supported value.
    fn max_value_bytes(&self) -> u64 {
        u64::MAX
    }
}

/// One thread's access to an engine.
pub trait Session {
    /// Commits what `fill` writes to the sink, `n` operations, atomically if the engine can.
    fn write(&mut self, n: usize, fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>) -> Result<()>;
    /// Calls `see` once with the newest value of `key`, without a copy if the engine allows it.
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;
    /// Fills family 0 with `n` entries in the way that the engine's documentation recommends; `put`
    /// writes the entry of a given number.
    fn bulk_load(
        &mut self,
        n: u64,
        put: &mut dyn FnMut(u64, &mut dyn Sink) -> Result<()>,
    ) -> Result<()> {
        const BATCH: u64 = 10_000;
        for from in (0..n).step_by(BATCH as usize) {
            let to = n.min(from + BATCH);
            self.write((to - from) as usize, &mut |sink| {
                (from..to).try_for_each(|i| put(i, sink))
            })?;
        }
        Ok(())
    }
    /// Begins or ends one view shared by all gets. Returns `false` if the engine has none and each
    /// get has its own view.
    fn set_shared_view(&mut self, _begin: bool) -> Result<bool> {
        Ok(false)
    }
    /// Runs `work` with a cursor over one view of a family.
    fn with_cursor(
        &mut self,
        family: usize,
        work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>,
    ) -> Result<()>;
    /// Runs `work` once, in a transaction of the settings' level, and commits it.
    ///
    /// # Errors
    /// [`TxnConflict`] if it lost to another transaction.
    fn run_txn(&mut self, _work: &mut dyn FnMut(&mut dyn TxnOps) -> Result<()>) -> Result<()> {
        Err("the engine has no transactions".into())
    }
}

/// Operations within a transaction; any call may fail with [`TxnConflict`].
pub trait TxnOps {
    /// Calls `see` once with the value of `key`. `change` announces that the transaction will write
    /// it.
    fn get(
        &mut self,
        family: usize,
        key: &[u8],
        change: bool,
        see: &mut dyn FnMut(Option<&[u8]>),
    ) -> Result<()>;
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()>;
}

/// Receives the operations of a batch.
pub trait Sink {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()>;
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()>;
}

/// Ordered reads.
pub trait Cursor {
    /// Seeks to the first entry at or after `key`, and passes it and its successors to `see` until
    /// that returns `false`.
    fn scan(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()>;
}

/// Function that opens an engine.
pub type OpenEngine = fn(&Path, &Settings) -> Result<Box<dyn Engine>>;
