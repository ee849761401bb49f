//! What a workload may ask of an engine. Knows neither engines nor workloads.
//!
//! Sessions and cursors are handed to a closure instead of returned: an adapter can then keep its
//! connection, prepared statements and transactions on the stack, borrowed from each other, without
//! copies that its users would not make. Families (column families, tables, keyspaces) are numbered
//! from 0; there are as many as the settings say.

use crate::settings::{Level, Settings};
use std::collections::BTreeMap;
use std::path::Path;

/// What adapters fail with: any error; only its text matters.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What adapters answer with.
pub type Result<T> = std::result::Result<T, Failure>;

/// What an adapter was told and what it did instead, by name: goes into the record.
pub type EffectiveOptions = BTreeMap<String, String>;

/// What becomes of entries whose time to live is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlSupport {
    /// The engine has no time to live.
    None,
    /// No read shows them.
    OnRead,
    /// Reads show them until a compaction has dropped them.
    #[cfg_attr(not(feature = "rocksdb"), expect(dead_code))]
    AtCompaction,
}

/// A transaction that lost to another one: nothing of it happened, and it may be tried again.
#[derive(Debug)]
pub struct TxnConflict;

impl std::fmt::Display for TxnConflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the transaction lost to another")
    }
}

impl std::error::Error for TxnConflict {}

/// An open database of some engine.
pub trait Engine: Sync {
    /// Version of the engine (not of the adapter).
    fn version(&self) -> String;
    /// The options in force, and everything that could not be honoured.
    fn effective_options(&self) -> EffectiveOptions;
    /// Runs `work` with a session of the calling thread.
    fn with_session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()>;
    /// Returns when everything acknowledged is in its final place and no background work is due.
    fn wait_idle(&self) -> Result<()>;
    /// Closes; everything acknowledged must be there when it is opened again.
    fn close(self: Box<Self>) -> Result<()>;
    /// Whether entries get the time to live of the settings.
    fn ttl_support(&self) -> TtlSupport {
        TtlSupport::None
    }
    /// Whether it has transactions that are protected so.
    fn supports_level(&self, _level: Level) -> bool {
        false
    }
    /// Bytes of the largest value that it takes.
    fn max_value_bytes(&self) -> u64 {
        u64::MAX
    }
}

/// A thread's access to an engine.
pub trait Session {
    /// Commits what `fill` puts into the sink, `n` operations, atomically if the engine can.
    fn write(&mut self, n: usize, fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>) -> Result<()>;
    /// Calls `see` once with the newest value of `key`, without a copy where the engine allows.
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;
    /// Fills family 0 with `n` entries in the way that the engine's users are told to; `put` puts
    /// the one of a number.
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
    /// Begins one view that all gets share until it is ended; `false` where each get has its own.
    fn set_shared_view(&mut self, _begin: bool) -> Result<bool> {
        Ok(false)
    }
    /// Runs `work` with a cursor over one view of a family.
    fn with_cursor(
        &mut self,
        family: usize,
        work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>,
    ) -> Result<()>;
    /// Runs `work` in a transaction of the settings' level, once, and commits it.
    ///
    /// # Errors
    /// [`Lost`] if another came first.
    fn run_txn(&mut self, _work: &mut dyn FnMut(&mut dyn TxnOps) -> Result<()>) -> Result<()> {
        Err("the engine has no transactions".into())
    }
}

/// What is done in a transaction; any call may fail with [`Lost`].
pub trait TxnOps {
    /// Calls `see` once with the value of `key`; `change`: the transaction will write it.
    fn get(
        &mut self,
        family: usize,
        key: &[u8],
        change: bool,
        see: &mut dyn FnMut(Option<&[u8]>),
    ) -> Result<()>;
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()>;
}

/// Where a batch's operations go.
pub trait Sink {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()>;
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()>;
}

/// Ordered reads.
pub trait Cursor {
    /// Goes to the first entry at or after `key`, and shows it and its successors until `see` says
    /// `false`.
    fn scan(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()>;
}

/// How an engine is opened.
pub type OpenEngine = fn(&Path, &Settings) -> Result<Box<dyn Engine>>;
