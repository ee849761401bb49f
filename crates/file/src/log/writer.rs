//! Appends records. The caller serialises; [`LogWriter::file`] may be synced beside an append.

use super::batch::Finished;
use super::layout::{RECORD_HEADER_BYTES, RecordHeader, RecordKind};
use perigee_base::bug::{self, Bug};
use perigee_base::format::{FileHeader, HEADER_BYTES};
use perigee_base::{Error, ErrorKind, FileId, Result};
use perigee_env::{Append, Dir};
use std::sync::Arc;

/// Writes one log file.
///
/// Invariant: `offset` is the length of the file and the end of its last whole record, unless the writer is broken.
#[derive(Debug)]
pub struct LogWriter {
    file: Arc<dyn Append>,
    id: FileId,
    offset: u64,
    previous: u64,
    broken: bool,
    scratch: Vec<u8>,
}

impl LogWriter {
    /// Creates the file and writes its header; nothing is synced.
    pub fn create(dir: &dyn Dir, name: &str, header: &FileHeader) -> Result<LogWriter> {
        let file = dir.create(name)?;
        let bytes = header.encode();
        file.append(&[&bytes])?;
        let sum = [bytes[64], bytes[65], bytes[66], bytes[67], bytes[68], bytes[69], bytes[70], bytes[71]];
        Ok(LogWriter {
            file,
            id: header.file,
            offset: HEADER_BYTES as u64,
            previous: u64::from_le_bytes(sum),
            broken: false,
            scratch: Vec::new(),
        })
    }

    /// The file, for syncing.
    pub fn file(&self) -> &Arc<dyn Append> {
        &self.file
    }
    /// Its id.
    pub fn id(&self) -> FileId {
        self.id
    }
    /// Its length.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Seals the records with consecutive LSNs from `lsn` and appends them in one call.
    ///
    /// # Errors
    /// `NoSpace`: nothing was added, and that is durable; the writer goes on. Anything else: the file may hold
    /// any prefix, and the writer refuses further records.
    pub fn append(&mut self, kind: RecordKind, lsn: u64, durable: u64, records: &mut [Finished]) -> Result<()> {
        if self.broken {
            return Err(Error::new(ErrorKind::Poisoned, "an earlier append to this log failed"));
        }
        let (mut at, mut next, mut previous) = (self.offset, lsn, self.previous);
        for r in records.iter_mut() {
            let header = RecordHeader {
                kind,
                payload_bytes: r.payload_bytes,
                count: r.count,
                lsn: next,
                durable,
                previous,
                payload_checksum: r.payload_checksum,
            };
            let sealed = header.encode(self.id, at);
            r.buf[..RECORD_HEADER_BYTES].copy_from_slice(&sealed);
            previous = u64::from_le_bytes([
                sealed[0], sealed[1], sealed[2], sealed[3], sealed[4], sealed[5], sealed[6], sealed[7],
            ]);
            at += r.buf.len() as u64;
            next += u64::from(r.count);
        }
        self.write_out(records)?;
        self.offset = at;
        self.previous = previous;
        Ok(())
    }

    fn write_out(&mut self, records: &[Finished]) -> Result<()> {
        let written = match records {
            [one] => self.file.append(&[&one.buf]),
            many => {
                self.scratch.clear();
                many.iter().for_each(|r| self.scratch.extend_from_slice(&r.buf));
                self.file.append(&[&self.scratch])
            }
        };
        let Err(e) = written else { return Ok(()) };
        if bug::on(Bug::AppendAfterFailure) {
            self.offset = self.file.len();
            return Err(e);
        }
        // A full disk is no disaster if what was partly written can be taken back for certain.
        if e.kind() == ErrorKind::NoSpace && self.file.truncate(self.offset).is_ok() && self.file.sync().is_ok() {
            return Err(e);
        }
        self.broken = true;
        Err(if e.kind() == ErrorKind::NoSpace { e.wrap(ErrorKind::Io, "the log could not be rolled back") } else { e })
    }
}
