//! The clean close of the log.

use super::Log;
use crate::catalog::manifest::CleanClose;
use perigee_base::{ErrorKind, FileKind, Result};
use perigee_file::filename;
use perigee_file::log::{EncodedRecord, RecordKind};

impl Log {
    /// Writes the close record of the log, which names the last manifest edit, then the manifest
    /// edit that names the end of the log: each proves that the other is complete. Called when the
    /// database is closed for all other threads.
    pub fn write_clean_close(&self) -> Result<()> {
        let mut appender = self.commit_section();
        if let Some(cause) = self.runtime.health.poisoned() {
            return Err(cause
                .clone()
                .wrap(ErrorKind::Poisoned, "closed without a clean-close record"));
        }
        check_slow!(
            self.resources.job_control().is_idle(None),
            "no job runs when the end of the log is recorded",
            self.resources.job_control().running_jobs()
        );
        let edits = self.catalog.manifest_edits();
        let mut record = EncodedRecord::from_payload(RecordKind::Close, &edits.to_le_bytes(), 0);
        self.wal.append(&mut appender, edits, &mut [&mut record], &self.runtime.health)?;
        appender.writer.trim_preallocated()?;
        let durable = self.sync_before_edit()?;
        check!(
            durable.plus(1) == appender.next_lsn,
            "a clean close has synced the whole log",
            durable,
            appender.next_lsn
        );
        let clean = CleanClose {
            log: appender.writer.id(),
            bytes: appender.writer.offset(),
            last_seq: appender.next_lsn.prev(),
        };
        let unused = self.wal.spare().lock_writer().take().map(|spare| spare.id());
        check!(
            unused.is_none_or(|id| id > appender.writer.id()),
            "the spare segment is newer than the segment in use",
            unused,
            appender.writer.id()
        );
        self.catalog.record_clean_close(clean, durable, unused)?;
        if let Some(id) = unused {
            // If the removal fails, the next open deletes the file as an orphan.
            let _ = self.runtime.dir.remove(&filename::file_name(id, FileKind::Wal));
        }
        Ok(())
    }
}
