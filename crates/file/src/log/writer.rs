//! Appends records. The caller serialises; [`LogWriter::file`] may be synced beside an append.

use super::batch::Finished;
use super::layout::{self, RECORD_HEADER_BYTES, RecordHeader};
use perigee_base::bug::{self, Bug};
use perigee_base::format::{FileHeader, HEADER_BYTES};
use perigee_base::{Error, ErrorKind, FileId, Result};
use perigee_env::fs::readonly::Refusing;
use perigee_env::{Append, Dir};
use std::sync::Arc;

/// Writes one log file.
///
/// Invariant: while whole, `offset` is the end of the last record, and behind it the file holds nothing but zeros, if anything.
#[derive(Debug)]
pub struct LogWriter {
    file: Arc<dyn Append>,
    id: FileId,
    offset: u64,
    previous: u64,
    seal: FileId,
    state: State,
    scratch: Vec<u8>,
    /// The file is at most so long, with zeros behind the last record; 0: nothing was allocated.
    allocated: u64,
    /// Whether space is allocated ahead.
    ahead: bool,
}

/// So much is allocated ahead of the records: as much as there is already, within these bounds.
const AHEAD_MIN: u64 = 4 << 10;
const AHEAD_MAX: u64 = 8 << 20;

/// How long a file becomes whose records will end at `end`.
fn allocation(end: u64) -> u64 {
    (end + end.clamp(AHEAD_MIN, AHEAD_MAX)).next_multiple_of(AHEAD_MIN)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Whole,
    /// A full disk cut an append short: [`LogWriter::roll_back`] must come before anything else.
    Ragged,
    Broken,
}

/// What every record of one append carries besides its payload.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// LSN of the first.
    pub lsn: u64,
    /// Everything up to here is durable.
    pub durable: u64,
    /// Synced edits of the manifest.
    pub edits: u64,
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
            seal: layout::seal(header.database, header.file),
            state: State::Whole,
            scratch: Vec::new(),
            allocated: 0,
            ahead: false,
        })
    }

    /// A writer that writes nothing: a read-only database's.
    pub fn refusing(id: FileId, database: u64) -> LogWriter {
        LogWriter {
            file: Arc::new(Refusing),
            id,
            offset: 0,
            previous: 0,
            seal: layout::seal(database, id),
            state: State::Broken,
            scratch: Vec::new(),
            allocated: 0,
            ahead: false,
        }
    }

    /// The file, for syncing.
    pub fn file(&self) -> &Arc<dyn Append> {
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

    /// From now on takes space ahead of the records, where the file system can: a sync need not write a new length each time.
    /// `bytes` are taken now.
    ///
    /// # Errors
    /// As an append; the writer is as it was, but for zeros at the end of the file.
    pub fn allocate_ahead(&mut self, bytes: u64) -> Result<()> {
        self.ahead = true;
        if bytes > self.offset { self.allocate(bytes) } else { Ok(()) }
    }

    /// Makes the file so long. A full disk ends it: what is left of the space is for the records.
    fn allocate(&mut self, bytes: u64) -> Result<()> {
        // After an error, too, the file may be longer.
        self.allocated = self.allocated.max(bytes);
        match self.file.allocate(bytes) {
            Ok(true) => {}
            Ok(false) => self.ahead = false,
            Err(e) if e.kind() == ErrorKind::NoSpace => self.ahead = false,
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Whether there are zeros behind the last record.
    pub fn has_ahead(&self) -> bool {
        self.allocated > self.offset
    }
    /// Takes the zeros at the end away.
    pub fn trim(&mut self) -> Result<()> {
        self.ahead = false;
        if std::mem::take(&mut self.allocated) > self.offset && self.state == State::Whole {
            self.file.truncate(self.offset)?;
        }
        Ok(())
    }

    /// Seals the records with consecutive LSNs and appends them in one call.
    ///
    /// # Errors
    /// `NoSpace`: call [`LogWriter::roll_back`]; if that succeeds nothing was added and the writer goes on. Anything
    /// else: the file may hold any prefix, and the writer refuses further records.
    pub fn append(&mut self, stamp: Stamp, records: &mut [&mut Finished]) -> Result<()> {
        if self.state != State::Whole {
            return Err(Error::new(ErrorKind::Poisoned, "an earlier append to this log failed"));
        }
        let (mut at, mut lsn, mut previous) = (self.offset, stamp.lsn, self.previous);
        for r in records.iter_mut() {
            let header = RecordHeader {
                kind: r.kind,
                payload_bytes: r.payload_bytes,
                count: r.count,
                lsn,
                durable: stamp.durable,
                edits: stamp.edits,
                previous,
                payload_checksum: r.payload_checksum,
            };
            let sealed = header.encode(self.seal, at);
            r.buf[..RECORD_HEADER_BYTES].copy_from_slice(&sealed);
            previous = u64::from_le_bytes([
                sealed[0], sealed[1], sealed[2], sealed[3], sealed[4], sealed[5], sealed[6], sealed[7],
            ]);
            at += r.buf.len() as u64;
            lsn += u64::from(r.count);
        }
        if self.ahead && at > self.allocated {
            self.allocate(allocation(at)).inspect_err(|_| self.state = State::Broken)?;
        }
        self.write_out(records)?;
        self.offset = at;
        self.previous = previous;
        Ok(())
    }

    fn write_out(&mut self, records: &[&mut Finished]) -> Result<()> {
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
        self.state = if e.kind() == ErrorKind::NoSpace { State::Ragged } else { State::Broken };
        Err(e)
    }

    /// Takes back, for certain, what a full disk let through of the last append. The caller holds off other syncs
    /// of this file, so that their failure cannot hide behind the success of this one.
    pub fn roll_back(&mut self) -> Result<()> {
        if self.state != State::Ragged {
            return Err(Error::internal("there is nothing to roll back"));
        }
        self.state = State::Broken;
        (self.allocated, self.ahead) = (0, false);
        self.file.truncate(self.offset)?;
        self.file.sync()?;
        self.state = State::Whole;
        Ok(())
    }
}
