//! The end of an open database: jobs end, the log and the manifest leave their marks about each other, every file is closed, the
//! lock is released. What is alive then (transactions, cursors, snapshots, handles) answers `Closed`, and touches the directory no more.

use crate::engine::Engine;
use crate::events::Event;
use crate::manifest::{CleanClose, Edit};
use perigee_base::format::FileKind;
use perigee_base::{Error, ErrorKind, Result};
use perigee_file::log::RecordKind;
use perigee_file::log::batch::Finished;
use perigee_file::name;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

impl Engine {
    /// Closes: jobs end, the log is synced and marked, the manifest knows its exact end, every file is closed, the lock is
    /// released.
    ///
    /// # Errors
    /// `Closed` in a forked child, which leaves everything as it is. `InvalidArgument` from inside the log listener: it may run on a thread that this waits for.
    pub fn close(&self) -> Result<()> {
        if self.core.health.is_forked() {
            return Err(perigee_env::fork::refusal());
        }
        if self.core.audience.is_caller() {
            return Err(Error::invalid("a log listener cannot close the database that it listens to"));
        }
        let closed = self.close_quietly();
        // When this returns nobody is told anything any more, nor is another thread inside the listener.
        while !self.core.audience.finish() {
            self.core.signal.wait_us(self.core.signal.now(), 1_000);
        }
        closed
    }

    fn close_quietly(&self) -> Result<()> {
        // A second closer waits for the first: when close returns, the lock is free.
        let mut lock = self.lock.lock();
        if !self.core.health.close() {
            return Ok(());
        }
        self.core.closing.store(true, SeqCst);
        self.core.locks.close();
        self.core.signal.ring();
        if let Some(workers) = self.workers.lock().take() {
            workers.join();
        }
        self.wait_for_loads();
        // A compaction on a caller's thread gives up at its next look; until then it owns file ids and outputs.
        let _last_job = self.core.compacting.lock();
        if self.core.health.is_read_only() {
            self.core.tell(&Event::Closed { error: None });
            self.close_files();
            return Ok(());
        }
        let marked = self.mark_clean();
        self.core.tell(&Event::Closed { error: marked.as_ref().err() });
        let _ = self.core.retire.sweep(&self.core.shelf);
        self.close_files();
        drop(lock.take());
        marked
    }

    /// No file stays open, even while handles, snapshots or iterators exist.
    fn close_files(&self) {
        self.core.shelf.handles().close();
        self.dir.close();
    }

    /// Loads on callers' threads see `closing` at their next look; until then they own file ids and outputs.
    fn wait_for_loads(&self) {
        loop {
            let seen = self.core.signal.now();
            if self.core.loads.load(SeqCst) == 0 {
                return;
            }
            self.core.signal.wait_us(seen, 50_000);
        }
    }

    /// First the log names the last edit, then the manifest names the log's end: each proves the other whole.
    fn mark_clean(&self) -> Result<()> {
        let core = &self.core;
        let mut appender = core.wal.appender();
        if let Some(cause) = core.health.poisoned() {
            return Err(cause.clone().wrap(ErrorKind::Poisoned, "closed without a clean mark"));
        }
        let edits = core.manifest.edits();
        let mut mark = Finished::around(RecordKind::Close, &edits.to_le_bytes(), 0);
        core.wal.append_last(&mut appender, edits, &mut [&mut mark], &core.health)?;
        appender.writer.trim()?;
        let durable = core.wal.sync(&core.health)?;
        let clean = CleanClose {
            log: appender.writer.id(),
            bytes: appender.writer.offset(),
            last: appender.next_lsn - 1,
        };
        let next = Some((core.ids.load(SeqCst), 0, core.runs.load(SeqCst)));
        let unused = core.wal.spare().hold().take().map(|spare| spare.id());
        let logs_removed = unused.into_iter().collect();
        let (durable, clean) = (Some(durable), Some(clean));
        let floor = Some(core.snapshots.floor());
        let edit = Edit { next, logs_removed, floor, durable, clean, ..Edit::default() };
        core.manifest.close(&edit, &core.health)?;
        if let Some(id) = unused {
            // What cannot be removed is an orphan of the next open.
            let _ = core.dir.remove(&name::file_name(id, FileKind::Wal));
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.core.health.is_forked() {
            // The threads are the parent's, and so are the files: nothing is waited for, and nothing is dropped that could do more
            // than free memory.
            std::mem::forget(self.workers.try_lock().and_then(|mut workers| workers.take()));
            std::mem::forget(self.lock.try_lock().and_then(|mut lock| lock.take()));
            std::mem::forget(Arc::clone(&self.core));
            return;
        }
        if self.core.audience.is_caller() {
            // The log listener had the last handle. Nobody can wait for the threads here: they end by themselves, and the directory
            // stays locked.
            self.core.health.close();
            self.core.closing.store(true, SeqCst);
            self.core.signal.ring();
            std::mem::forget(self.lock.lock().take());
            return;
        }
        // Nobody is left to hear of a failure; whatever it was, recovery deals with it.
        let _ = self.close();
    }
}
