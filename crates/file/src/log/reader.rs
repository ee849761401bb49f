//! Reads records in order, and searches for records after a bad one.

use super::layout::{self, ALIGNMENT, RECORD_HEADER_BYTES, RECORD_MAGIC, RecordHeader, padded_len};
use crate::limits::LOG_SCAN_WINDOW_BYTES;
use perigee_base::{
    Bytes, Error, ErrorKind, FileHeader, FileId, FileKind, HEADER_BYTES, Result, checksum,
};
use perigee_env::fs::DataEnd;
use perigee_env::{Dir, RandomAccessFile};
use std::sync::Arc;

/// Reads one log file from its start.
#[derive(Debug)]
pub struct LogReader {
    file: Arc<dyn RandomAccessFile>,
    name: String,
    checksum_seed: FileId,
    header: FileHeader,
    offset: u64,
    end: u64,
    /// What follows, up to `end`, may never have been written (see [`DataEnd`]).
    written_end: u64,
    previous_checksum: u64,
    expected_lsn: Option<u64>,
}

/// A complete, verified record.
#[derive(Debug)]
pub struct LogRecord {
    /// Its header.
    pub header: RecordHeader,
    /// Payload without padding.
    pub payload: Vec<u8>,
    /// Offset of the record.
    pub offset: u64,
}

/// Result of reading the next record.
#[derive(Debug)]
pub enum NextLogRecord {
    /// A valid record.
    Record(LogRecord),
    /// The exact end of the log.
    End,
    /// Bytes that are not the expected record.
    Bad(BadLogRecord),
}

/// An offset without the expected record.
#[derive(Debug)]
pub struct BadLogRecord {
    /// Offset of the bad record.
    pub offset: u64,
    /// The log ends inside the record, as it does after a process died while writing; otherwise
    /// bytes are wrong.
    pub is_truncated: bool,
    /// The error.
    pub error: Error,
}

impl LogReader {
    /// Opens a log and reads its header. Reading stops after `end` bytes, or at the end of the file without
    /// its trailing zeros if `end` is `None`.
    pub fn open(
        dir: &dyn Dir,
        name: &str,
        kind: FileKind,
        id: Option<FileId>,
        database: Option<u64>,
        end: Option<Bytes>,
    ) -> Result<LogReader> {
        let file = dir.open(name)?;
        let len = file.len()?;
        let (end, given) = (end.map_or(len, |end| end.0), end.is_some());
        if len < end || len < HEADER_BYTES as u64 {
            return Err(Error::corruption("the log is shorter than expected")
                .at(name, len)
                .expected(format_args!("{} bytes", end.max(HEADER_BYTES as u64)), len));
        }
        let mut bytes = [0u8; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        let header = FileHeader::decode(&bytes, kind, id, database).map_err(|e| e.at(name, 0))?;
        let previous = u64::from_le_bytes([
            bytes[64], bytes[65], bytes[66], bytes[67], bytes[68], bytes[69], bytes[70], bytes[71],
        ]);
        let end = match given {
            true => DataEnd { written: end, readable: end },
            false => file.data_end(HEADER_BYTES as u64)?,
        };
        Ok(LogReader {
            file,
            name: name.to_owned(),
            checksum_seed: layout::checksum_seed(header.database, header.file),
            header,
            offset: HEADER_BYTES as u64,
            end: end.readable,
            written_end: end.written,
            previous_checksum: previous,
            expected_lsn: Some(header.a).filter(|lsn| *lsn > 0),
        })
    }

    /// Opens a log to salvage what is readable, even if its header is damaged; call
    /// [`LogReader::resume_after_bad_record`] to find the first record. `id` and `database` are
    /// those its records were written with.
    pub fn open_for_salvage(
        dir: &dyn Dir,
        name: &str,
        kind: FileKind,
        id: FileId,
        database: u64,
    ) -> Result<LogReader> {
        let file = dir.open(name)?;
        let len = file.len()?;
        let DataEnd { written, readable: end } = file.data_end(len.min(HEADER_BYTES as u64))?;
        let header = FileHeader { kind, database, file: id, a: 0, b: 0 };
        Ok(LogReader {
            file,
            name: name.to_owned(),
            checksum_seed: layout::checksum_seed(database, id),
            header,
            offset: (HEADER_BYTES - ALIGNMENT).min(end as usize) as u64,
            end,
            written_end: written,
            previous_checksum: 0,
            expected_lsn: None,
        })
    }

    /// Continues at the first valid record after the bad one, skipping everything between. Returns
    /// its offset; `None` if there is none.
    pub fn resume_after_bad_record(&mut self) -> Result<Option<u64>> {
        let Some(found) = self.find_records_after_bad()? else { return Ok(None) };
        check!(
            found.first_offset > self.offset,
            "reading resumes after the bad record",
            found.first_offset,
            self.offset
        );
        let mut head = [0u8; RECORD_HEADER_BYTES];
        self.file.read_exact_at(&mut head, found.first_offset)?;
        let (header, _) = RecordHeader::decode(&head, self.checksum_seed, found.first_offset)?;
        (self.offset, self.previous_checksum, self.expected_lsn) =
            (found.first_offset, header.previous_checksum, None);
        Ok(Some(found.first_offset))
    }

    /// Returns the file header.
    pub fn header(&self) -> &FileHeader {
        &self.header
    }
    /// Returns the end offset of the last record read.
    pub fn offset(&self) -> u64 {
        self.offset
    }
    /// Returns the offset at which reading stops.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Sets the expected LSN of the first record, for a segment that was created before its first
    /// LSN was known.
    pub fn expect_lsn(&mut self, lsn: u64) {
        self.expected_lsn = Some(lsn);
    }
    /// Returns the LSN of the next record, if its header is valid and follows the previous record.
    pub fn peek_lsn(&self) -> Result<Option<u64>> {
        let mut head = [0u8; RECORD_HEADER_BYTES];
        if self.end - self.offset < RECORD_HEADER_BYTES as u64 {
            return Ok(None);
        }
        self.file.read_exact_at(&mut head, self.offset)?;
        let header =
            RecordHeader::decode(&head, self.checksum_seed, self.offset).ok().map(|(h, _)| h);
        Ok(header.filter(|h| h.previous_checksum == self.previous_checksum).map(|h| h.lsn))
    }
    /// Opens the log that a writer of this process is appending to, to read records that are known
    /// to be written. Does not search for the end of the log: see
    /// [`LogReader::extend_to_file_end`].
    pub fn open_while_writing(
        dir: &dyn Dir,
        name: &str,
        id: FileId,
        database: u64,
    ) -> Result<LogReader> {
        let header = Some(Bytes(HEADER_BYTES as u64));
        LogReader::open(dir, name, FileKind::Wal, Some(id), Some(database), header)
    }
    /// Extends reading to the current end of the file, including trailing zeros.
    pub fn extend_to_file_end(&mut self) -> Result<()> {
        // The file may have become shorter: trailing zeros may have been trimmed.
        self.end = self.file.len()?.max(self.offset);
        self.written_end = self.end;
        Ok(())
    }
    /// Searches for the current end of the log, which a concurrent writer may have moved; returns
    /// true if it has grown.
    pub fn refresh_end(&mut self) -> Result<bool> {
        let end = self.file.data_end(self.end)?;
        let grown = end.readable > self.end;
        self.end = self.end.max(end.readable);
        self.written_end = self.written_end.max(end.written);
        Ok(grown)
    }

    /// Reads the next record. Fails only for failures of the operating system and formats too new
    /// to read.
    pub fn next_record(&mut self) -> Result<NextLogRecord> {
        check!(
            self.offset <= self.end,
            "a reader is inside its log",
            self.name,
            self.offset,
            self.end
        );
        if self.offset == self.end {
            return Ok(NextLogRecord::End);
        }
        match self.read_record() {
            Ok((record, sum)) => {
                self.offset += record.header.record_bytes();
                check!(
                    self.offset <= self.end,
                    "a record ends inside its log",
                    self.offset,
                    self.end
                );
                self.previous_checksum = sum;
                self.expected_lsn = Some(record.header.lsn + u64::from(record.header.lsn_count));
                Ok(NextLogRecord::Record(record))
            }
            Err(e) if e.kind() == ErrorKind::Corruption => {
                let is_truncated = self.is_record_truncated()?;
                Ok(NextLogRecord::Bad(BadLogRecord {
                    offset: self.offset,
                    is_truncated,
                    error: e.at(&self.name, self.offset),
                }))
            }
            Err(e) => Err(e.at(&self.name, self.offset)),
        }
    }

    /// Returns true if the log ends inside the record at the current offset.
    fn is_record_truncated(&self) -> Result<bool> {
        let left = self.written_end.saturating_sub(self.offset);
        if left < RECORD_HEADER_BYTES as u64 {
            return Ok(true);
        }
        let mut head = [0u8; RECORD_HEADER_BYTES];
        self.file.read_exact_at(&mut head, self.offset)?;
        let header = RecordHeader::decode(&head, self.checksum_seed, self.offset);
        Ok(header.is_ok_and(|(h, _)| h.record_bytes() > left))
    }

    fn read_record(&self) -> Result<(LogRecord, u64)> {
        let left = self.end - self.offset;
        if left < RECORD_HEADER_BYTES as u64 {
            return Err(Error::corruption("the log ends inside a record header"));
        }
        let mut head = [0u8; RECORD_HEADER_BYTES];
        self.file.read_exact_at(&mut head, self.offset)?;
        let (header, sum) = RecordHeader::decode(&head, self.checksum_seed, self.offset)?;
        if header.previous_checksum != self.previous_checksum {
            return Err(Error::corruption("a log record does not follow the one before it")
                .expected(
                    format_args!("{:#018x}", self.previous_checksum),
                    format_args!("{:#018x}", header.previous_checksum),
                ));
        }
        if let Some(lsn) = self.expected_lsn.filter(|&lsn| lsn != header.lsn) {
            return Err(
                Error::corruption("a log record is out of sequence").expected(lsn, header.lsn)
            );
        }
        if header.record_bytes() > left {
            return Err(Error::corruption("the log ends inside a record")
                .expected(format_args!("{} bytes", header.record_bytes()), left));
        }
        let mut payload = alloc_zeroed(padded_len(header.payload_bytes as usize))?;
        self.file.read_exact_at(&mut payload, self.offset + RECORD_HEADER_BYTES as u64)?;
        let computed = || checksum::payload_checksum(&payload);
        let got = seeded!(IgnoreLogChecksum, computed(), header.payload_checksum);
        if got != header.payload_checksum {
            return Err(Error::corruption("log payload checksum differs").expected(
                format_args!("{:#018x}", header.payload_checksum),
                format_args!("{got:#018x}"),
            ));
        }
        payload.truncate(header.payload_bytes as usize);
        Ok((LogRecord { header, payload, offset: self.offset }, sum))
    }

    /// Searches for records after the bad one at [`LogReader::offset`]: returns the offset of the
    /// first valid record header, and the highest durable LSN and edit number in any of them. If
    /// the header of the bad record is valid, its payload is skipped.
    pub fn find_records_after_bad(&self) -> Result<Option<RecordsAfterBad>> {
        let mut found: Option<RecordsAfterBad> = None;
        let mut start = self.offset + self.bad_record_bytes()?;
        let mut buf = Vec::new();
        while start + (RECORD_HEADER_BYTES as u64) <= self.end {
            let take = (self.end - start).min((LOG_SCAN_WINDOW_BYTES + RECORD_HEADER_BYTES) as u64)
                as usize;
            buf.resize(take, 0);
            self.file.read_exact_at(&mut buf, start).map_err(|e| e.at(&self.name, start))?;
            let last = take - RECORD_HEADER_BYTES;
            for at in (0..=last).step_by(ALIGNMENT) {
                if buf[at + 8..at + 12] != RECORD_MAGIC.to_le_bytes() {
                    continue;
                }
                let offset = start + at as u64;
                if let Ok((h, _)) = RecordHeader::decode(
                    &buf[at..at + RECORD_HEADER_BYTES],
                    self.checksum_seed,
                    offset,
                ) {
                    let b = found.get_or_insert(RecordsAfterBad {
                        first_offset: offset,
                        durable_lsn: 0,
                        manifest_edits: 0,
                    });
                    b.durable_lsn = b.durable_lsn.max(h.durable_lsn);
                    b.manifest_edits = b.manifest_edits.max(h.manifest_edits);
                }
            }
            start += (last - last % ALIGNMENT + ALIGNMENT) as u64;
        }
        Ok(found)
    }
}

impl LogReader {
    fn bad_record_bytes(&self) -> Result<u64> {
        let mut head = [0u8; RECORD_HEADER_BYTES];
        if self.end - self.offset >= RECORD_HEADER_BYTES as u64 {
            self.file.read_exact_at(&mut head, self.offset)?;
            if let Ok((h, _)) = RecordHeader::decode(&head, self.checksum_seed, self.offset) {
                return Ok(h.record_bytes());
            }
        }
        Ok(ALIGNMENT as u64)
    }
}

/// Valid records found after a bad one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsAfterBad {
    /// Offset of the first valid record header.
    pub first_offset: u64,
    /// Highest durable LSN in any of them.
    pub durable_lsn: u64,
    /// Highest manifest edit number in any of them.
    pub manifest_edits: u64,
}

fn alloc_zeroed(n: usize) -> Result<Vec<u8>> {
    let mut v = Vec::new();
    v.try_reserve_exact(n).map_err(|_| {
        Error::new(ErrorKind::NoMemory, format!("no memory for a log record of {n} bytes"))
    })?;
    v.resize(n, 0);
    Ok(v)
}
