//! Closing a database: ends the jobs, writes the clean-close records of the log and the manifest,
//! which refer to each other, closes every file and releases the lock. Objects that are still alive
//! (transactions, cursors, snapshots, handles) return `Closed` from then on and no longer access
//! the directory.

use super::Engine;
use crate::runtime::events::EngineEvent;
use perigee_base::{Error, Result};
use std::sync::Arc;

impl Engine {
    /// Closes the database: ends the jobs, syncs the log, writes its close record, records the
    /// exact end of the log in the manifest, closes every file and releases the lock.
    ///
    /// # Errors
    /// `Closed` in a forked child, which changes nothing. `InvalidArgument` from inside the log
    /// listener: it may run on a thread that this call would wait for.
    pub fn close(&self) -> Result<()> {
        if self.runtime.health.is_forked() {
            return Err(perigee_env::forked_error());
        }
        if self.runtime.listener_queue().is_inside_listener() {
            return Err(Error::invalid(
                "a log listener cannot close the database whose log it receives",
            ));
        }
        let closed = self.shut_down();
        // When this returns, no thread is inside the listener and it is not called again.
        while !self.runtime.listener_queue().finish_delivery() {
            self.runtime.signal.wait_timeout_us(self.runtime.signal.generation(), 1_000);
        }
        closed
    }

    fn shut_down(&self) -> Result<()> {
        // A second call of `close` waits for the first: the lock is free when either returns.
        let mut lock = self.lock.lock();
        if !self.runtime.health.close() {
            return Ok(());
        }
        self.runtime.begin_closing();
        self.txns.close();
        self.runtime.signal.notify();
        if let Some(workers) = self.workers.lock().take() {
            workers.join();
        }
        self.wait_for_loads();
        // A compaction on a caller's thread stops at its next check of `closing`; until then it
        // owns file ids and output files.
        let _compactions_done = self.maintenance.lock_compactions();
        if self.runtime.health.is_read_only() {
            self.runtime.report_event(&EngineEvent::Closed { error: None });
            self.close_files();
            return Ok(());
        }
        let close_result = self.log.write_clean_close();
        self.runtime.report_event(&EngineEvent::Closed { error: close_result.as_ref().err() });
        let _ = self.catalog.delete_unreferenced();
        self.close_files();
        drop(lock.take());
        close_result
    }

    /// Closes every file, even if handles, snapshots or iterators still exist.
    fn close_files(&self) {
        self.resources.table_cache().file_handles().close_all();
        self.dir.close();
    }

    /// Waits for bulk loads on callers' threads. They stop at their next check of `closing`; until
    /// then they own file ids and output files.
    fn wait_for_loads(&self) {
        loop {
            let seen = self.runtime.signal.generation();
            if !self.maintenance.has_running_loads() {
                return;
            }
            self.runtime.signal.wait_timeout_us(seen, 50_000);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.runtime.health.is_forked() {
            // The threads and the files belong to the parent process: wait for nothing, and drop
            // nothing whose drop does more than free memory.
            std::mem::forget(self.workers.try_lock().and_then(|mut workers| workers.take()));
            std::mem::forget(self.lock.try_lock().and_then(|mut lock| lock.take()));
            std::mem::forget(Arc::clone(&self.maintenance));
            return;
        }
        if self.runtime.listener_queue().is_inside_listener() {
            // The log listener dropped the last handle. The threads cannot be joined here: they end
            // by themselves, and the directory stays locked.
            self.runtime.health.close();
            self.runtime.begin_closing();
            self.runtime.signal.notify();
            std::mem::forget(self.lock.lock().take());
            return;
        }
        // Drop cannot return an error; recovery handles whatever failed.
        let _ = self.close();
    }
}
