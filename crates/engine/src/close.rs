//! The end of an open database: jobs end, the log and the manifest leave their marks about each
//! other, every file is closed, the lock is released. What is alive then (transactions, cursors,
//! snapshots, handles) answers `Closed`, and touches the directory no more.

use crate::engine::Engine;
use crate::events::EngineEvent;
use crate::manifest::{CleanClose, ManifestEdit};
use perigee_base::file_header::FileKind;
use perigee_base::{Error, ErrorKind, Result};
use perigee_file::filename;
use perigee_file::log::RecordKind;
use perigee_file::log::batch::EncodedRecord;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

impl Engine {
    /// Closes: jobs end, the log is synced and marked, the manifest knows its exact end, every file
    /// is closed, the lock is released.
    ///
    /// # Errors
    /// `Closed` in a forked child, which leaves everything as it is. `InvalidArgument` from inside
    /// the log listener: it may run on a thread that this waits for.
    pub fn close(&self) -> Result<()> {
        if self.core.health.is_forked() {
            return Err(perigee_env::fork::forked_error());
        }
        if self.core.listener_queue.is_inside_listener() {
            return Err(Error::invalid(
                "a log listener cannot close the database that it listens to",
            ));
        }
        let closed = self.shut_down();
        // When this returns nobody is told anything any more, nor is another thread inside the
        // listener.
        while !self.core.listener_queue.finish_delivery() {
            self.core.signal.wait_timeout_us(self.core.signal.generation(), 1_000);
        }
        closed
    }

    fn shut_down(&self) -> Result<()> {
        // A second closer waits for the first: when close returns, the lock is free.
        let mut lock = self.lock.lock();
        if !self.core.health.close() {
            return Ok(());
        }
        self.core.closing.store(true, SeqCst);
        self.core.locks.close();
        self.core.signal.notify();
        if let Some(workers) = self.workers.lock().take() {
            workers.join();
        }
        self.wait_for_loads();
        // A compaction on a caller's thread gives up at its next look; until then it owns file ids
        // and outputs.
        let _last_job = self.core.compaction_lock.lock();
        if self.core.health.is_read_only() {
            self.core.report_event(&EngineEvent::Closed { error: None });
            self.close_files();
            return Ok(());
        }
        let marked = self.write_clean_close();
        self.core.report_event(&EngineEvent::Closed { error: marked.as_ref().err() });
        let _ = self.core.obsolete_files.delete_unreferenced(&self.core.table_cache);
        self.close_files();
        drop(lock.take());
        marked
    }

    /// No file stays open, even while handles, snapshots or iterators exist.
    fn close_files(&self) {
        self.core.table_cache.file_handles().close_all();
        self.dir.close();
    }

    /// Loads on callers' threads see `closing` at their next look; until then they own file ids and
    /// outputs.
    fn wait_for_loads(&self) {
        loop {
            let seen = self.core.signal.generation();
            if self.core.running_loads.load(SeqCst) == 0 {
                return;
            }
            self.core.signal.wait_timeout_us(seen, 50_000);
        }
    }

    /// First the log names the last edit, then the manifest names the log's end: each proves the
    /// other whole.
    fn write_clean_close(&self) -> Result<()> {
        let core = &self.core;
        let mut appender = core.wal.appender();
        if let Some(cause) = core.health.poisoned() {
            return Err(cause.clone().wrap(ErrorKind::Poisoned, "closed without a clean mark"));
        }
        let edits = core.manifest.last_edit();
        let mut mark = EncodedRecord::from_payload(RecordKind::Close, &edits.to_le_bytes(), 0);
        core.wal.append_at_close(&mut appender, edits, &mut [&mut mark], &core.health)?;
        appender.writer.trim_preallocated()?;
        let durable = core.wal.sync(&core.health)?;
        let clean = CleanClose {
            log: appender.writer.id(),
            bytes: appender.writer.offset(),
            last_seq: appender.next_lsn - 1,
        };
        let next = Some((core.next_file_id.load(SeqCst), 0, core.next_run_id.load(SeqCst)));
        let unused = core.wal.spare().lock_writer().take().map(|spare| spare.id());
        let logs_removed = unused.into_iter().collect();
        let (durable, clean) = (Some(durable), Some(clean));
        let floor = Some(core.snapshots.oldest_readable());
        let edit = ManifestEdit {
            next_ids: next,
            logs_removed,
            oldest_readable: floor,
            durable_seq: durable,
            clean_close: clean,
            ..ManifestEdit::default()
        };
        core.manifest.append_clean_close(&edit, &core.health)?;
        if let Some(id) = unused {
            // What cannot be removed is an orphan of the next open.
            let _ = core.dir.remove(&filename::file_name(id, FileKind::Wal));
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.core.health.is_forked() {
            // The threads are the parent's, and so are the files: nothing is waited for, and
            // nothing is dropped that could do more than free memory.
            std::mem::forget(self.workers.try_lock().and_then(|mut workers| workers.take()));
            std::mem::forget(self.lock.try_lock().and_then(|mut lock| lock.take()));
            std::mem::forget(Arc::clone(&self.core));
            return;
        }
        if self.core.listener_queue.is_inside_listener() {
            // The log listener had the last handle. Nobody can wait for the threads here: they end
            // by themselves, and the directory stays locked.
            self.core.health.close();
            self.core.closing.store(true, SeqCst);
            self.core.signal.notify();
            std::mem::forget(self.lock.lock().take());
            return;
        }
        // Nobody is left to hear of a failure; whatever it was, recovery deals with it.
        let _ = self.close();
    }
}
