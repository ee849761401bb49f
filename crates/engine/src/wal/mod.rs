//! The write-ahead log: one for all families. Appends in one order, syncs in that order, knows what
//! is durable.
//!
//! Locks: `appender` is the commit section, held by one committer for a whole group; `sync_lock`
//! serialises every sync of log files, so that no failure can be answered to one caller and a
//! success to another; `tail` holds no I/O.

mod spare_segment;
mod retain;
mod retention_check;
mod segments;

pub use retain::{LogSpan, split_retained, trim_segment};
pub use segments::{Appender, LogSegment};
pub use spare_segment::SpareSegment;

use crate::health::Health;
use crate::signal::Signal;
use perigee_base::bug::{self, Bug};
use perigee_base::io_stats::IoActivity;
use perigee_base::latency::Operation;
use perigee_base::stats::Counters;
use perigee_base::{Error, ErrorKind, FileId, Result};
use perigee_env::WritableFile;
use perigee_env::clock::Clock;
use perigee_env::sync::{Mutex, MutexGuard};
use perigee_file::log::batch::EncodedRecord;
use perigee_file::log::{LogWriter, RecordStamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex as Short, PoisonError};

/// What a sync has to cover.
#[derive(Debug, Default)]
struct UnsyncedTail {
    last_lsn: u64,
    /// Appends so far: a close mark has no LSN of its own, and must be synced all the same.
    appends: u64,
    /// Files with appends that no sync has covered, oldest first.
    unsynced: Vec<(FileId, Arc<dyn WritableFile>)>,
}

/// The log.
#[derive(Debug)]
pub struct Wal {
    appender: Mutex<Appender>,
    spare: SpareSegment,
    sync_lock: Mutex<()>,
    tail: Short<UnsyncedTail>,
    durable: AtomicU64,
    /// Rings after each sync, while somebody watches.
    sync_signal: Signal,
    watchers: AtomicUsize,
    /// Segments are to be dropped, though nothing is flushed.
    drop_requested: AtomicBool,
    counters: Arc<Counters>,
    /// Times syncs; `None` measures nothing.
    clock: Option<Arc<dyn Clock>>,
}

impl Wal {
    /// The log with the segments `older`, oldest first, and `writer`, which is appended to;
    /// everything in them is durable. Segments will be of about `expected` bytes.
    pub fn new(
        older: Vec<LogSegment>,
        writer: LogWriter,
        (first_lsn, next_lsn): (u64, u64),
        expected: u64,
        counters: Arc<Counters>,
        clock: Option<Arc<dyn Clock>>,
    ) -> Wal {
        Wal {
            appender: Mutex::new(Appender::new(
                older.into(),
                writer,
                (first_lsn, next_lsn),
                expected,
            )),
            spare: SpareSegment::new(),
            sync_lock: Mutex::new(()),
            tail: Short::new(UnsyncedTail { last_lsn: next_lsn - 1, ..UnsyncedTail::default() }),
            durable: AtomicU64::new(next_lsn - 1),
            sync_signal: Signal::new(),
            watchers: AtomicUsize::new(0),
            drop_requested: AtomicBool::new(false),
            counters,
            clock,
        }
    }

    /// Enters the commit section.
    pub fn appender(&self) -> MutexGuard<'_, Appender> {
        self.appender.lock()
    }
    /// Enters it if nobody is inside.
    pub fn try_appender(&self) -> Option<MutexGuard<'_, Appender>> {
        self.appender.try_lock()
    }
    /// The segment that comes next.
    pub fn spare(&self) -> &SpareSegment {
        &self.spare
    }
    /// Whether segments that nobody needs are to be dropped although nothing is flushed.
    pub fn is_drop_requested(&self) -> bool {
        self.drop_requested.load(SeqCst)
    }
    /// Says so.
    pub fn set_drop_requested(&self, due: bool) {
        self.drop_requested.store(due, SeqCst);
    }
    /// Everything up to here is on stable storage.
    pub fn durable(&self) -> u64 {
        self.durable.load(SeqCst)
    }

    /// Rings after a sync, for whoever [watches](Wal::watch).
    pub fn sync_signal(&self) -> &Signal {
        &self.sync_signal
    }
    /// As long as what is returned lives, syncs ring.
    pub fn watch_syncs(&self) -> SyncWatcher<'_> {
        self.watchers.fetch_add(1, SeqCst);
        SyncWatcher(self)
    }

    fn lock_tail(&self) -> std::sync::MutexGuard<'_, UnsyncedTail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends records in the commit section; returns the LSN of the first.
    ///
    /// # Errors
    /// `NoSpace`: nothing was added, for certain. `OutcomeUnknown`: anything may have been added;
    /// the log is poisoned.
    pub fn append(
        &self,
        appender: &mut Appender,
        edits: u64,
        records: &mut [&mut EncodedRecord],
        health: &Health,
    ) -> Result<u64> {
        health.check_writable()?;
        self.append_at_close(appender, edits, records, health)
    }

    /// The same for a database that is closed to everybody but its closer.
    pub fn append_at_close(
        &self,
        appender: &mut Appender,
        edits: u64,
        records: &mut [&mut EncodedRecord],
        health: &Health,
    ) -> Result<u64> {
        let lsn = appender.next_lsn;
        let stamp = RecordStamp { lsn, durable_lsn: self.durable(), manifest_edits: edits };
        let before = appender.writer.offset();
        if let Err(e) = appender.writer.append(stamp, records) {
            return Err(self.handle_append_failure(appender, e, health));
        }
        appender.next_lsn += records.iter().map(|r| u64::from(r.lsn_count)).sum::<u64>();
        let bytes = appender.writer.offset() - before;
        appender.logged_bytes += bytes;
        self.counters.wal_bytes_written.add(bytes);
        self.counters.io.record_writes(IoActivity::Wal, 1, bytes);
        let mut tail = self.lock_tail();
        tail.last_lsn = appender.next_lsn - 1;
        tail.appends += 1;
        let id = appender.writer.id();
        if !tail.unsynced.iter().any(|(known, _)| *known == id) {
            tail.unsynced.push((id, Arc::clone(appender.writer.file())));
        }
        Ok(lsn)
    }

    fn handle_append_failure(&self, appender: &mut Appender, e: Error, health: &Health) -> Error {
        if bug::is_active(Bug::AppendAfterFailure) {
            return e;
        }
        if e.kind() == ErrorKind::NoSpace {
            let _no_other_sync = self.sync_lock.lock();
            let rolled_back = appender.writer.roll_back_append();
            if rolled_back.is_ok() && health.poisoned().is_none() {
                return e;
            }
        }
        let unknown = e.wrap(
            ErrorKind::OutcomeUnknown,
            "a log write failed, the commit may or may not survive",
        );
        health.poison(&unknown);
        unknown
    }

    /// Makes everything appended so far durable, and returns how far that is.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a sync fails; the database is poisoned, and no file is ever synced
    /// again.
    pub fn sync(&self, health: &Health) -> Result<u64> {
        let _one_at_a_time = self.sync_lock.lock();
        if let Some(cause) = health.poisoned() {
            return Err(cause.clone().wrap(ErrorKind::OutcomeUnknown, "the log cannot be synced"));
        }
        let (last, appends, files) = {
            let tail = self.lock_tail();
            (tail.last_lsn, tail.appends, tail.unsynced.clone())
        };
        for (_, file) in &files {
            self.counters.wal_syncs.add(1);
            let started = self.clock.as_ref().map(|c| c.monotonic_ns());
            let mut synced = file.sync();
            if let (Some(started), Some(clock)) = (started, &self.clock) {
                let took = clock.monotonic_ns().saturating_sub(started);
                self.counters.latency.histogram(Operation::WalSync).record(took);
            }
            if synced.is_err() && bug::is_active(Bug::RetryFailedSync) {
                synced = file.sync();
            }
            if let Err(e) = synced {
                let unknown = e.wrap(
                    ErrorKind::OutcomeUnknown,
                    "a log sync failed, the commit may or may not survive",
                );
                health.poison(&unknown);
                return Err(unknown);
            }
        }
        // The newest of them may have grown meanwhile: it stays on the list until a sync finds
        // nothing new.
        let mut tail = self.lock_tail();
        let grown = tail.appends != appends;
        let newest = files.last().map(|(id, _)| *id);
        tail.unsynced.retain(|(id, _)| {
            !files.iter().any(|(f, _)| f == id) || (grown && Some(*id) == newest)
        });
        self.durable.fetch_max(last, SeqCst);
        drop(tail);
        if self.watchers.load(SeqCst) > 0 {
            self.sync_signal.notify();
        }
        Ok(last)
    }
}

/// Somebody waits for syncs.
#[derive(Debug)]
pub struct SyncWatcher<'a>(&'a Wal);

impl Drop for SyncWatcher<'_> {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, SeqCst);
    }
}
