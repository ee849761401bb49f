//! Appends records. The caller serialises; [`LogWriter::file`] may be synced beside an append.

use super::batch::EncodedRecord;
use super::layout::{self, RECORD_HEADER_BYTES, RecordHeader};
use perigee_base::bug::{self, Bug};
use perigee_base::file_header::{FileHeader, HEADER_BYTES};
use perigee_base::{Error, ErrorKind, FileId, Result};
use perigee_env::fs::read_only_dir::ReadOnlyFile;
use perigee_env::{Dir, WritableFile};
use std::sync::Arc;

/// Writes one log file.
///
/// Invariant: while whole, `offset` is the end of the last record, and behind it the file holds
/// nothing but zeros, if anything.
#[derive(Debug)]
pub struct LogWriter {
    file: Arc<dyn WritableFile>,
    id: FileId,
    offset: u64,
    previous_checksum: u64,
    checksum_seed: FileId,
    state: LogWriterState,
    scratch: Vec<u8>,
    /// The file is at most so long, with zeros behind the last record; 0: nothing was allocated.
    allocated_len: u64,
    /// Whether space is allocated ahead.
    preallocates: bool,
}

/// So much is allocated ahead of the records: as much as there is already, within these bounds.
const PREALLOCATE_BYTES_MIN: u64 = 4 << 10;
const PREALLOCATE_BYTES_MAX: u64 = 8 << 20;

/// How long a file becomes whose records will end at `end`.
fn preallocation_end(end: u64) -> u64 {
    (end + end.clamp(PREALLOCATE_BYTES_MIN, PREALLOCATE_BYTES_MAX))
        .next_multiple_of(PREALLOCATE_BYTES_MIN)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogWriterState {
    Clean,
    /// A full disk cut an append short: [`LogWriter::roll_back`] must come before anything else.
    PartialAppend,
    Failed,
}

/// What every record of one append carries besides its payload.
#[derive(Clone, Copy, Debug)]
pub struct RecordStamp {
    /// LSN of the first.
    pub lsn: u64,
    /// Everything up to here is durable.
    pub durable_lsn: u64,
    /// Synced edits of the manifest.
    pub manifest_edits: u64,
}

impl LogWriter {
    /// Creates the file and writes its header; nothing is synced.
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

    /// A writer that writes nothing: a read-only database's.
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

    /// The file, for syncing.
    pub fn file(&self) -> &Arc<dyn WritableFile> {
        &self.file
    }
    /// Its id.
    pub fn id(&self) -> FileId {
        self.id
    }
    /// The end of its last record.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// From now on takes space ahead of the records, where the file system can: a sync need not
    /// write a new length each time. `bytes` are taken now.
    ///
    /// # Errors
    /// As an append; the writer is as it was, but for zeros at the end of the file.
    pub fn preallocate(&mut self, bytes: u64) -> Result<()> {
        self.preallocates = true;
        if bytes > self.offset { self.extend_file(bytes) } else { Ok(()) }
    }

    /// Makes the file so long. A full disk ends it: what is left of the space is for the records.
    fn extend_file(&mut self, bytes: u64) -> Result<()> {
        // After an error, too, the file may be longer.
        self.allocated_len = self.allocated_len.max(bytes);
        match self.file.allocate(bytes) {
            Ok(true) => {}
            Ok(false) => self.preallocates = false,
            Err(e) if e.kind() == ErrorKind::NoSpace => self.preallocates = false,
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Whether there are zeros behind the last record.
    pub fn has_preallocated_space(&self) -> bool {
        self.allocated_len > self.offset
    }
    /// Takes the zeros at the end away.
    pub fn trim_preallocated(&mut self) -> Result<()> {
        self.preallocates = false;
        if std::mem::take(&mut self.allocated_len) > self.offset
            && self.state == LogWriterState::Clean
        {
            self.file.truncate(self.offset)?;
        }
        Ok(())
    }

    /// Seals the records with consecutive LSNs and appends them in one call.
    ///
    /// # Errors
    /// `NoSpace`: call [`LogWriter::roll_back`]; if that succeeds nothing was added and the writer
    /// goes on. Anything else: the file may hold any prefix, and the writer refuses further
    /// records.
    pub fn append(&mut self, stamp: RecordStamp, records: &mut [&mut EncodedRecord]) -> Result<()> {
        if self.state != LogWriterState::Clean {
            return Err(Error::new(ErrorKind::Poisoned, "an earlier append to this log failed"));
        }
        let (mut at, mut lsn, mut previous) = (self.offset, stamp.lsn, self.previous_checksum);
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
            let sealed = header.encode(self.checksum_seed, at);
            r.buf[..RECORD_HEADER_BYTES].copy_from_slice(&sealed);
            previous = u64::from_le_bytes([
                sealed[0], sealed[1], sealed[2], sealed[3], sealed[4], sealed[5], sealed[6],
                sealed[7],
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

    /// Takes back, for certain, what a full disk let through of the last append. The caller holds
    /// off other syncs of this file, so that their failure cannot hide behind the success of this
    /// one.
    pub fn roll_back_append(&mut self) -> Result<()> {
        if self.state != LogWriterState::PartialAppend {
            return Err(Error::internal("there is nothing to roll back"));
        }
        self.state = LogWriterState::Failed;
        (self.allocated_len, self.preallocates) = (0, false);
        self.file.truncate(self.offset)?;
        self.file.sync()?;
        self.state = LogWriterState::Clean;
        Ok(())
    }
}
