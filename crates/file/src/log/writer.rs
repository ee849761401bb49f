//! Appends records. The caller serializes appends; [`LogWriter::file`] may be synced concurrently.

use super::batch::EncodedRecord;
use super::layout::{self, RECORD_HEADER_BYTES, RecordHeader};
use crate::limits::{LOG_PREALLOCATE_BYTES_MAX, LOG_PREALLOCATE_BYTES_MIN};
use perigee_base::bug::Bug;
use perigee_base::{Error, ErrorKind, FileHeader, FileId, HEADER_BYTES, Result, bug};
use perigee_env::fs::ReadOnlyFile;
use perigee_env::{Dir, WritableFile};
use std::sync::Arc;

/// Writes one log file.
///
/// Invariant: in state `Clean`, `offset` is the end of the last record, and the file has at most
/// zeros after it.
#[derive(Debug)]
pub struct LogWriter {
    file: Arc<dyn WritableFile>,
    id: FileId,
    offset: u64,
    previous_checksum: u64,
    checksum_seed: FileId,
    state: LogWriterState,
    scratch: Vec<u8>,
    /// The file length is at most this, with zeros after the last record; 0: nothing was
    /// preallocated.
    allocated_len: u64,
    /// Space is preallocated.
    preallocates: bool,
}

/// Returns the file length to preallocate when the records will end at `end`.
fn preallocation_end(end: u64) -> u64 {
    (end + end.clamp(LOG_PREALLOCATE_BYTES_MIN, LOG_PREALLOCATE_BYTES_MAX))
        .next_multiple_of(LOG_PREALLOCATE_BYTES_MIN)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogWriterState {
    Clean,
    /// A full disk interrupted an append: only [`LogWriter::roll_back_append`] may follow.
    PartialAppend,
    Failed,
}

/// Fields of the record headers of one append.
#[derive(Clone, Copy, Debug)]
pub struct RecordStamp {
    /// LSN of the first record.
    pub lsn: u64,
    /// Highest LSN known to be durable.
    pub durable_lsn: u64,
    /// Number of synced manifest edits.
    pub manifest_edits: u64,
}

impl LogWriter {
    /// Creates the file and writes its header; syncs nothing.
    pub fn create(dir: &dyn Dir, name: &str, header: &FileHeader) -> Result<LogWriter> {
        let file = dir.create(name)?;
        let bytes = header.encode();
        file.append(&[&bytes])?;
        let sum = [
            bytes[64], bytes[65], bytes[66], bytes[67], bytes[68], bytes[69], bytes[70], bytes[71],
        ];
        Ok(LogWriter {
            file,
            id: header.file,
            offset: HEADER_BYTES as u64,
            previous_checksum: u64::from_le_bytes(sum),
            checksum_seed: layout::checksum_seed(header.database, header.file),
            state: LogWriterState::Clean,
            scratch: Vec::new(),
            allocated_len: 0,
            preallocates: false,
        })
    }

    /// Creates a writer for a read-only database; every append fails.
    pub fn read_only(id: FileId, database: u64) -> LogWriter {
        LogWriter {
            file: Arc::new(ReadOnlyFile),
            id,
            offset: 0,
            previous_checksum: 0,
            checksum_seed: layout::checksum_seed(database, id),
            state: LogWriterState::Failed,
            scratch: Vec::new(),
            allocated_len: 0,
            preallocates: false,
        }
    }

    /// Returns the file, for syncing.
    pub fn file(&self) -> &Arc<dyn WritableFile> {
        &self.file
    }
    /// Returns the file number.
    pub fn id(&self) -> FileId {
        self.id
    }
    /// Returns the end offset of the last record.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Enables preallocation where the file system supports it, so that a sync does not have to
    /// update the file length each time. Allocates up to `bytes` now.
    ///
    /// # Errors
    /// As for an append; the writer is unchanged, except for zeros at the end of the file.
    pub fn preallocate(&mut self, bytes: u64) -> Result<()> {
        self.preallocates = true;
        if bytes > self.offset { self.extend_file(bytes) } else { Ok(()) }
    }

    /// Extends the file to this length. On a full disk preallocation is turned off: the remaining
    /// space is left for the records.
    fn extend_file(&mut self, bytes: u64) -> Result<()> {
        // Set first: even after an error the file may be longer.
        check!(bytes > self.offset, "space is allocated beyond the end", bytes, self.offset);
        self.allocated_len = self.allocated_len.max(bytes);
        match self.file.allocate(bytes) {
            Ok(true) => {}
            Ok(false) => self.preallocates = false,
            Err(e) if e.kind() == ErrorKind::NoSpace => self.preallocates = false,
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Returns true if there may be zeros after the last record.
    pub fn has_preallocated_space(&self) -> bool {
        self.allocated_len > self.offset
    }
    /// Turns preallocation off and truncates the file after the last record.
    pub fn trim_preallocated(&mut self) -> Result<()> {
        self.preallocates = false;
        if std::mem::take(&mut self.allocated_len) > self.offset
            && self.state == LogWriterState::Clean
        {
            self.file.truncate(self.offset)?;
        }
        Ok(())
    }

    /// Encodes the record headers with consecutive LSNs and appends the records in one call.
    ///
    /// # Errors
    /// `NoSpace`: call [`LogWriter::roll_back_append`]; if it succeeds, nothing was added and the
    /// writer can be used again. Any other error: the file may hold any prefix of the records, and
    /// every further append fails.
    pub fn append(&mut self, stamp: RecordStamp, records: &mut [&mut EncodedRecord]) -> Result<()> {
        if self.state != LogWriterState::Clean {
            return Err(Error::new(ErrorKind::Poisoned, "an earlier append to this log failed"));
        }
        let (mut at, mut lsn, mut previous) = (self.offset, stamp.lsn, self.previous_checksum);
        check_slow!(
            at % layout::ALIGNMENT as u64 == 0,
            "a record starts at an aligned offset",
            self.id,
            at
        );
        for r in records.iter_mut() {
            let header = RecordHeader {
                kind: r.kind,
                payload_bytes: r.payload_bytes,
                lsn_count: r.lsn_count,
                lsn,
                durable_lsn: stamp.durable_lsn,
                manifest_edits: stamp.manifest_edits,
                previous_checksum: previous,
                payload_checksum: r.payload_checksum,
            };
            check_slow!(
                r.buf.len() as u64 == header.record_bytes(),
                "a record is as long as its header says",
                r.buf.len(),
                header
            );
            let encoded = header.encode(self.checksum_seed, at);
            r.buf[..RECORD_HEADER_BYTES].copy_from_slice(&encoded);
            previous = u64::from_le_bytes([
                encoded[0], encoded[1], encoded[2], encoded[3], encoded[4], encoded[5], encoded[6],
                encoded[7],
            ]);
            at += r.buf.len() as u64;
            lsn += u64::from(r.lsn_count);
        }
        if self.preallocates && at > self.allocated_len {
            self.extend_file(preallocation_end(at))
                .inspect_err(|_| self.state = LogWriterState::Failed)?;
        }
        self.append_encoded(records)?;
        self.offset = at;
        self.previous_checksum = previous;
        Ok(())
    }

    fn append_encoded(&mut self, records: &[&mut EncodedRecord]) -> Result<()> {
        let written = match records {
            [one] => self.file.append(&[&one.buf]),
            many => {
                self.scratch.clear();
                many.iter().for_each(|r| self.scratch.extend_from_slice(&r.buf));
                self.file.append(&[&self.scratch])
            }
        };
        let Err(e) = written else { return Ok(()) };
        if bug::is_active(Bug::AppendAfterFailure) {
            self.offset = self.file.len();
            return Err(e);
        }
        self.state = if e.kind() == ErrorKind::NoSpace {
            LogWriterState::PartialAppend
        } else {
            LogWriterState::Failed
        };
        Err(e)
    }

    /// Durably removes what an append on a full disk left behind. The caller must prevent other
    /// syncs of this file, so that their failure cannot be hidden by the success of this one.
    pub fn roll_back_append(&mut self) -> Result<()> {
        if self.state != LogWriterState::PartialAppend {
            return Err(Error::internal("no interrupted append to roll back"));
        }
        self.state = LogWriterState::Failed;
        (self.allocated_len, self.preallocates) = (0, false);
        self.file.truncate(self.offset)?;
        self.file.sync()?;
        check!(
            [0, self.offset].contains(&self.file.len()), // 0: the database was closed
            "a log that was rolled back ends with its last complete record",
            self.file.len(),
            self.offset
        );
        self.state = LogWriterState::Clean;
        Ok(())
    }
}
