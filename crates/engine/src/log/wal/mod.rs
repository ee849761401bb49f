//! The write-ahead log, shared by all column families. Appends and syncs in LSN order, and tracks
//! what is durable.
//!
//! Locks: `appender` is the commit section, held by one committer for a whole group. `sync_lock`
//! serializes every sync of log files, so that no failure can be reported to one caller and success
//! to another. `tail` is not held during I/O.

mod spare_segment;
mod retention_check;
mod segments;

pub use retention_check::LogLimit;
pub use segments::{Appender, LogSegment};
pub use spare_segment::SpareSegment;

use crate::runtime::health::Health;
use crate::runtime::signal::Signal;
use perigee_base::bug::Bug;
use perigee_base::{
    AtomicSeqNo, Bytes, Counters, Error, ErrorKind, FileId, IoActivity, Operation, Result, SeqNo,
    bug,
};
use perigee_env::{Clock, Mutex, MutexGuard, WritableFile};
use perigee_file::log::{EncodedRecord, LogWriter, RecordStamp};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex as StdMutex, PoisonError};

/// The appends that the next sync has to cover.
#[derive(Debug, Default)]
struct UnsyncedTail {
    last_lsn: SeqNo,
    /// Number of appends: a close record has no LSN of its own, but must be synced as well.
    appends: u64,
    /// Files with appends that no sync has covered, oldest first.
    unsynced: Vec<(FileId, Arc<dyn WritableFile>)>,
}

/// The write-ahead log.
#[derive(Debug)]
pub struct Wal {
    appender: Mutex<Appender>,
    spare: SpareSegment,
    sync_lock: Mutex<()>,
    tail: StdMutex<UnsyncedTail>,
    durable: AtomicSeqNo,
    /// Notified after each sync while there are watchers.
    sync_signal: Signal,
    watchers: AtomicUsize,
    counters: Arc<Counters>,
    /// Measures the duration of syncs; `None` disables that.
    clock: Option<Arc<dyn Clock>>,
}

impl Wal {
    /// Creates the log from the segments `older`, oldest first, and the open segment `writer`, which
    /// holds the operations `lsns`; all of their contents are durable. Segments are expected to
    /// grow to about `expected_bytes`.
    pub fn new(
        older: Vec<LogSegment>,
        writer: LogWriter,
        lsns: Range<SeqNo>,
        expected_bytes: u64,
        counters: Arc<Counters>,
        clock: Option<Arc<dyn Clock>>,
    ) -> Wal {
        let last_lsn = lsns.end.prev();
        check!(lsns.start <= lsns.end, "the newest segment ends after its beginning", lsns);
        check_slow!(
            older.windows(2).all(|w| w[0].id < w[1].id && w[0].first_lsn <= w[1].first_lsn)
                && older.last().is_none_or(|s| s.id < writer.id() && s.first_lsn <= lsns.start),
            "the segments of the log are in the order of their operations",
            older,
            lsns
        );
        Wal {
            appender: Mutex::new(Appender::new(older.into(), writer, lsns, expected_bytes)),
            spare: SpareSegment::new(),
            sync_lock: Mutex::new(()),
            tail: StdMutex::new(UnsyncedTail { last_lsn, ..UnsyncedTail::default() }),
            durable: AtomicSeqNo::new(last_lsn),
            sync_signal: Signal::new(),
            watchers: AtomicUsize::new(0),
            counters,
            clock,
        }
    }

    /// Enters the commit section.
    pub fn appender(&self) -> MutexGuard<'_, Appender> {
        self.appender.lock()
    }
    /// Enters the commit section if it is free.
    pub fn try_appender(&self) -> Option<MutexGuard<'_, Appender>> {
        self.appender.try_lock()
    }
    /// Returns the spare segment.
    pub fn spare(&self) -> &SpareSegment {
        &self.spare
    }
    /// Returns the LSN up to which the log is durable.
    pub fn durable(&self) -> SeqNo {
        self.durable.load(SeqCst)
    }

    /// Returns the LSN of the newest record.
    pub fn last_appended(&self) -> SeqNo {
        self.lock_tail().last_lsn
    }

    /// Returns the signal that is notified after a sync, while a [watcher](Wal::watch_syncs)
    /// exists.
    pub fn sync_signal(&self) -> &Signal {
        &self.sync_signal
    }
    /// Enables sync notifications as long as the returned guard lives.
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
    ) -> Result<SeqNo> {
        let lsn = appender.next_lsn;
        let stamp =
            RecordStamp { lsn: lsn.0, durable_lsn: self.durable().0, manifest_edits: edits };
        let before = appender.writer.offset();
        if let Err(e) = appender.writer.append(stamp, records) {
            let e = self.handle_append_failure(appender, e, health);
            check!(
                e.kind() != ErrorKind::NoSpace || appender.writer.offset() == before,
                "an append without space leaves the log as it was",
                before,
                appender.writer.offset()
            );
            return Err(e);
        }
        appender.next_lsn = lsn.plus(records.iter().map(|r| u64::from(r.lsn_count)).sum::<u64>());
        let bytes = appender.writer.offset() - before;
        appender.logged_bytes += bytes;
        self.counters.wal_bytes_written.add(bytes);
        self.counters.io.record_writes(IoActivity::Wal, 1, Bytes(bytes));
        let mut tail = self.lock_tail();
        check_slow!(
            tail.last_lsn <= appender.next_lsn.prev() && self.durable() <= tail.last_lsn,
            "the log only grows, and what is durable was appended",
            tail.last_lsn,
            appender.next_lsn
        );
        tail.last_lsn = appender.next_lsn.prev();
        tail.appends += 1;
        let id = appender.writer.id();
        if !tail.unsynced.iter().any(|(known, _)| *known == id) {
            tail.unsynced.push((id, Arc::clone(appender.writer.file())));
        }
        check_slow!(
            tail.unsynced.windows(2).all(|w| w[0].0 < w[1].0),
            "unsynced segments are in the order in which they were written",
            id
        );
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
            "a log write failed; the commit may or may not survive",
        );
        health.poison(&unknown);
        unknown
    }

    /// Syncs everything appended so far. Returns the LSN up to which the log is durable.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a sync fails; the database is poisoned, and no file is ever synced
    /// again.
    pub fn sync(&self, health: &Health) -> Result<SeqNo> {
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
                    "a log sync failed; the commit may or may not survive",
                );
                health.poison(&unknown);
                return Err(unknown);
            }
        }
        // The newest file may have grown meanwhile: it stays on the list until a sync finds no new
        // appends.
        let mut tail = self.lock_tail();
        let grown = tail.appends != appends;
        let newest = files.last().map(|(id, _)| *id);
        tail.unsynced.retain(|(id, _)| {
            !files.iter().any(|(f, _)| f == id) || (grown && Some(*id) == newest)
        });
        check!(last <= tail.last_lsn, "what is durable was appended", last, tail.last_lsn);
        check!(self.durable() <= last, "the durable position only grows", self.durable(), last);
        self.durable.fetch_max(last, SeqCst);
        drop(tail);
        if self.watchers.load(SeqCst) > 0 {
            self.sync_signal.notify();
        }
        Ok(last)
    }
}

/// Enables sync notifications while it lives.
#[derive(Debug)]
pub struct SyncWatcher<'a>(&'a Wal);

impl Drop for SyncWatcher<'_> {
    fn drop(&mut self) {
        let watchers = self.0.watchers.fetch_sub(1, SeqCst);
        check!(watchers > 0, "a watcher is counted until it is dropped");
    }
}
