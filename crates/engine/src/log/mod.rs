//! The log, [`Log`]: the write-ahead log, the commit pipeline that appends to it, the hooks that
//! run after commits, and the change feed that reads it. A commit takes effect only here.

pub mod wal;
pub mod commit_hooks;
pub mod watermark_timer;
pub mod commit;
pub mod change_feed;
mod clean_close;
mod due_sync;
mod sync_queue;

use crate::catalog::Catalog;
use crate::resources::Resources;
use crate::runtime::Runtime;
use crate::stats::WalStats;
use crate::txn::TxnManager;
use commit::CommitPipeline;
use commit_hooks::CommitHooks;
use perigee_base::{AtomicSeqNo, FileKind, Result, SeqNo};
use perigee_env::MutexGuard;
use perigee_file::filename;
use perigee_file::log::EncodedRecord;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use sync_queue::SyncQueue;
use wal::{Appender, Wal};
use watermark_timer::WatermarkTimer;

/// The log of an open database, and everything that commits to it.
#[derive(Debug)]
pub struct Log {
    /// The runtime.
    pub runtime: Arc<Runtime>,
    /// The limited resources.
    pub resources: Arc<Resources>,
    /// The catalog.
    pub catalog: Arc<Catalog>,
    /// Transactions.
    pub txns: Arc<TxnManager>,
    wal: Wal,
    pipeline: CommitPipeline,
    sync_queue: SyncQueue,
    commit_hooks: CommitHooks,
    /// When the log is due to be synced for a write with interval durability (monotonic
    /// microseconds; `u64::MAX`: not due).
    sync_due_us: AtomicU64,
    /// When the manifest is due to record the durable position of the log.
    watermark_timer: WatermarkTimer,
    /// Obsolete segments are to be dropped without a flush.
    drop_requested: AtomicBool,
    /// Sequence number of the first operation that recovery has yet to replay: its log segment must
    /// stay. `u64::MAX` once recovery is done.
    replay_position: AtomicSeqNo,
}

impl Log {
    /// Creates the log of a recovered database.
    pub fn new(txns: Arc<TxnManager>, wal: Wal) -> Log {
        Log {
            runtime: Arc::clone(&txns.runtime),
            resources: Arc::clone(&txns.resources),
            catalog: Arc::clone(&txns.catalog),
            txns,
            wal,
            pipeline: CommitPipeline::new(),
            sync_queue: SyncQueue::default(),
            commit_hooks: CommitHooks::default(),
            sync_due_us: AtomicU64::new(u64::MAX),
            watermark_timer: WatermarkTimer::default(),
            drop_requested: AtomicBool::new(false),
            replay_position: AtomicSeqNo::new(SeqNo::MAX),
        }
    }
    /// Enters the commit section.
    pub fn commit_section(&self) -> MutexGuard<'_, Appender> {
        self.wal.appender()
    }
    /// Appends records in the commit section; returns the LSN of the first.
    ///
    /// # Errors
    /// `NoSpace`: nothing was added, for certain. `OutcomeUnknown`: anything may have been added;
    /// the log is poisoned.
    fn append(&self, appender: &mut Appender, records: &mut [&mut EncodedRecord]) -> Result<SeqNo> {
        let edits = self.catalog.manifest_edits();
        self.runtime.health.check_writable()?;
        self.wal.append(appender, edits, records, &self.runtime.health)
    }
    /// Runs the commit hooks that are pending on this thread.
    pub fn run_commit_hooks(&self) {
        self.commit_hooks.run_pending();
    }
    /// Returns the number of commit hooks that panicked.
    pub fn hook_panics(&self) -> u64 {
        self.commit_hooks.panic_count()
    }
    /// Returns the sequence number up to which the log is durable.
    pub fn durable_seq(&self) -> SeqNo {
        self.wal.durable()
    }
    /// Syncs the log for a manifest edit that will record the returned sequence number, up to which
    /// it is durable.
    pub fn sync_before_edit(&self) -> Result<SeqNo> {
        self.wal.sync(&self.runtime.health)
    }
    /// Syncs the log and returns the last durable sequence number; the watermark is recorded in the
    /// background.
    pub fn sync(&self) -> Result<SeqNo> {
        let durable = self.wal.sync(&self.runtime.health)?;
        if self.watermark_timer.schedule(|| self.runtime.env.clock.monotonic_us()) {
            self.runtime.signal.notify();
        }
        Ok(durable)
    }
    /// Returns when the sync thread has something to do (monotonic microseconds): a sync or a
    /// watermark; `u64::MAX`: never.
    pub fn next_due_us(&self) -> u64 {
        self.sync_due_us.load(SeqCst).min(self.watermark_timer.due_us())
    }
    /// Returns true if the flush thread is to drop obsolete segments without a flush.
    pub fn is_drop_requested(&self) -> bool {
        self.drop_requested.load(SeqCst)
    }
    /// Sets or clears that request.
    pub fn set_drop_requested(&self, requested: bool) {
        self.drop_requested.store(requested, SeqCst);
    }
    /// Returns the number and the bytes of the segments that recovery needs. A read-only database
    /// does not write the log: it uses the lengths of the files.
    pub fn stats(&self) -> WalStats {
        let (segments, newest) = if self.runtime.health.is_read_only() {
            let logs = self.catalog.recorded_files().logs;
            let name = |id| filename::file_name(id, FileKind::Wal);
            let length = |id| self.runtime.dir.file_len(&name(id)).ok().flatten().unwrap_or(0);
            let lengths: Vec<u64> = logs.iter().map(|(id, _)| length(*id)).collect();
            (lengths, logs.last().map_or(0, |(id, _)| id.0))
        } else {
            let appender = self.commit_section();
            (appender.segments().map(|s| s.bytes).collect(), appender.writer.id().0)
        };
        WalStats { segments: segments.len(), bytes: segments.iter().sum(), newest_segment: newest }
    }
    /// Returns the sequence number of the first operation that recovery has yet to replay.
    pub fn replay_position(&self) -> SeqNo {
        self.replay_position.load(SeqCst)
    }
    /// Sets the sequence number of the first operation that recovery has yet to replay.
    pub fn set_replay_position(&self, seq: SeqNo) {
        self.replay_position.store(seq, SeqCst);
    }
}
