//! Closing a database: ends the jobs, writes the clean-close records of the log and the manifest,
//! which refer to each other, closes every file and releases the lock. Objects that are still alive
//! (transactions, cursors, snapshots, handles) return `Closed` from then on and no longer access
//! the directory.

use crate::engine::Engine;
use crate::events::EngineEvent;
use crate::manifest::{CleanClose, ManifestEdit, NextIdsEdit};
use perigee_base::file_header::FileKind;
use perigee_base::{Error, ErrorKind, FileId, Result, RunId};
use perigee_file::filename;
use perigee_file::log::RecordKind;
use perigee_file::log::batch::EncodedRecord;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

impl Engine {
    /// Closes the database: ends the jobs, syncs the log, writes its close record, records the
    /// exact end of the log in the manifest, closes every file and releases the lock.
    ///
    /// # Errors
    /// `Closed` in a forked child, which changes nothing. `InvalidArgument` from inside the log
    /// listener: it may run on a thread that this call would wait for.
    pub fn close(&self) -> Result<()> {
        if self.core.health.is_forked() {
            return Err(perigee_env::fork::forked_error());
        }
        if self.core.listener_queue.is_inside_listener() {
            return Err(Error::invalid(
                "a log listener cannot close the database whose log it receives",
            ));
        }
        let closed = self.shut_down();
        // When this returns, no thread is inside the listener and it is not called again.
        while !self.core.listener_queue.finish_delivery() {
            self.core.signal.wait_timeout_us(self.core.signal.generation(), 1_000);
        }
        closed
    }

    fn shut_down(&self) -> Result<()> {
        // A second call of `close` waits for the first: the lock is free when either returns.
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
        // A compaction on a caller's thread stops at its next check of `closing`; until then it
        // owns file ids and output files.
        let _compactions_done = self.core.compaction_lock.lock();
        if self.core.health.is_read_only() {
            self.core.report_event(&EngineEvent::Closed { error: None });
            self.close_files();
            return Ok(());
        }
        let close_result = self.write_clean_close();
        self.core.report_event(&EngineEvent::Closed { error: close_result.as_ref().err() });
        let _ = self.core.obsolete_files.delete_unreferenced(&self.core.table_cache);
        self.close_files();
        drop(lock.take());
        close_result
    }

    /// Closes every file, even if handles, snapshots or iterators still exist.
    fn close_files(&self) {
        self.core.table_cache.file_handles().close_all();
        self.dir.close();
    }

    /// Waits for bulk loads on callers' threads. They stop at their next check of `closing`; until
    /// then they own file ids and output files.
    fn wait_for_loads(&self) {
        loop {
            let seen = self.core.signal.generation();
            if self.core.running_loads.load(SeqCst) == 0 {
                return;
            }
            self.core.signal.wait_timeout_us(seen, 50_000);
        }
    }

    /// Writes the close record of the log, which names the last manifest edit, then the manifest
    /// edit that names the end of the log: each proves that the other is complete.
    fn write_clean_close(&self) -> Result<()> {
        let core = &self.core;
        let mut appender = core.wal.appender();
        if let Some(cause) = core.health.poisoned() {
            return Err(cause
                .clone()
                .wrap(ErrorKind::Poisoned, "closed without a clean-close record"));
        }
        let edits = core.manifest.last_edit();
        let mut close_record =
            EncodedRecord::from_payload(RecordKind::Close, &edits.to_le_bytes(), 0);
        core.wal.append_at_close(&mut appender, edits, &mut [&mut close_record], &core.health)?;
        appender.writer.trim_preallocated()?;
        let durable = core.wal.sync(&core.health)?;
        let clean = CleanClose {
            log: appender.writer.id(),
            bytes: appender.writer.offset(),
            last_seq: appender.next_lsn.prev(),
        };
        let next = Some(NextIdsEdit {
            file: Some(FileId(core.next_file_id.load(SeqCst))),
            run: Some(RunId(core.next_run_id.load(SeqCst))),
            ..NextIdsEdit::default()
        });
        let unused = core.wal.spare().lock_writer().take().map(|spare| spare.id());
        let logs_removed = unused.into_iter().collect();
        let (durable, clean) = (Some(durable), Some(clean));
        let oldest_readable = Some(core.snapshots.oldest_readable());
        let edit = ManifestEdit {
            next_ids: next,
            logs_removed,
            oldest_readable,
            durable_seq: durable,
            clean_close: clean,
            ..ManifestEdit::default()
        };
        core.manifest.append_clean_close(&edit, &core.health)?;
        if let Some(id) = unused {
            // If the removal fails, the next open deletes the file as an orphan.
            let _ = core.dir.remove(&filename::file_name(id, FileKind::Wal));
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.core.health.is_forked() {
            // The threads and the files belong to the parent process: wait for nothing, and drop
            // nothing whose drop does more than free memory.
            std::mem::forget(self.workers.try_lock().and_then(|mut workers| workers.take()));
            std::mem::forget(self.lock.try_lock().and_then(|mut lock| lock.take()));
            std::mem::forget(Arc::clone(&self.core));
            return;
        }
        if self.core.listener_queue.is_inside_listener() {
            // The log listener dropped the last handle. The threads cannot be joined here: they end
            // by themselves, and the directory stays locked.
            self.core.health.close();
            self.core.closing.store(true, SeqCst);
            self.core.signal.notify();
            std::mem::forget(self.lock.lock().take());
            return;
        }
        // Drop cannot return an error; recovery handles whatever failed.
        let _ = self.close();
    }
}
