//! Reads records in order, and looks behind a bad one.

use super::layout::{self, ALIGNMENT, RECORD_HEADER_BYTES, RECORD_MAGIC, RecordHeader, padded};
use perigee_base::bug::{self, Bug};
use perigee_base::format::{FileHeader, FileKind, HEADER_BYTES};
use perigee_base::{Error, ErrorKind, FileId, Result, checksum};
use perigee_env::{Dir, ReadAt};
use std::sync::Arc;

/// How much is looked through at a time.
const WINDOW: usize = 1 << 20;

/// Reads one log file from its start.
#[derive(Debug)]
pub struct LogReader {
    file: Arc<dyn ReadAt>,
    name: String,
    seal: FileId,
    header: FileHeader,
    offset: u64,
    end: u64,
    previous: u64,
    lsn: Option<u64>,
}

/// A whole, verified record.
#[derive(Debug)]
pub struct Record {
    /// Its header.
    pub header: RecordHeader,
    /// Its payload without padding.
    pub payload: Vec<u8>,
    /// Where it starts.
    pub offset: u64,
}

/// What comes next in a log.
#[derive(Debug)]
pub enum Step {
    /// A record.
    Record(Record),
    /// The exact end of the log.
    End,
    /// Something that is not the expected record.
    Bad(Bad),
}

/// A place where the expected record is not.
#[derive(Debug)]
pub struct Bad {
    /// Its offset.
    pub offset: u64,
    /// The end of the log cuts it short, as a process that dies while writing leaves it; otherwise bytes are wrong.
    pub cut_short: bool,
    /// What is wrong.
    pub why: Error,
}

impl LogReader {
    /// Opens a log and reads its header. `end`: stop there instead of at the end of the file, zeros at which do not count.
    pub fn open(
        dir: &dyn Dir,
        name: &str,
        kind: FileKind,
        id: Option<FileId>,
        database: Option<u64>,
        end: Option<u64>,
    ) -> Result<LogReader> {
        let file = dir.open(name)?;
        let len = file.len()?;
        let (end, given) = (end.unwrap_or(len), end.is_some());
        if len < end || len < HEADER_BYTES as u64 {
            return Err(Error::corruption("the log is shorter than it was")
                .at(name, len)
                .expected(format_args!("{} bytes", end.max(HEADER_BYTES as u64)), len));
        }
        let mut bytes = [0u8; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        let header = FileHeader::decode(&bytes, kind, id, database).map_err(|e| e.at(name, 0))?;
        let previous = u64::from_le_bytes([
            bytes[64], bytes[65], bytes[66], bytes[67], bytes[68], bytes[69], bytes[70], bytes[71],
        ]);
        let end = if given { end } else { without_zeros(&*file, HEADER_BYTES as u64, len)? };
        Ok(LogReader {
            file,
            name: name.to_owned(),
            seal: layout::seal(header.database, header.file),
            header,
            offset: HEADER_BYTES as u64,
            end,
            previous,
            lsn: Some(header.a).filter(|lsn| *lsn > 0),
        })
    }

    /// Opens a log for what can be read of it, also behind a damaged header; then [`LogReader::resume`] finds the first
    /// record. `id` and `database` are what its records were sealed with.
    pub fn salvage(
        dir: &dyn Dir,
        name: &str,
        kind: FileKind,
        id: FileId,
        database: u64,
    ) -> Result<LogReader> {
        let file = dir.open(name)?;
        let len = file.len()?;
        let end = without_zeros(&*file, len.min(HEADER_BYTES as u64), len)?;
        let header = FileHeader { kind, database, file: id, a: 0, b: 0 };
        Ok(LogReader {
            file,
            name: name.to_owned(),
            seal: layout::seal(database, id),
            header,
            offset: (HEADER_BYTES - ALIGNMENT).min(end as usize) as u64,
            end,
            previous: 0,
            lsn: None,
        })
    }

    /// Goes on at the first record behind the bad one, whatever was between them. Its offset; `None` if there is none.
    pub fn resume(&mut self) -> Result<Option<u64>> {
        let Some(behind) = self.look_behind()? else { return Ok(None) };
        let mut head = [0u8; RECORD_HEADER_BYTES];
        self.file.read_exact_at(&mut head, behind.first)?;
        let (header, _) = RecordHeader::decode(&head, self.seal, behind.first)?;
        (self.offset, self.previous, self.lsn) = (behind.first, header.previous, None);
        Ok(Some(behind.first))
    }

    /// The file's header.
    pub fn header(&self) -> &FileHeader {
        &self.header
    }
    /// The end of the last record that was read.
    pub fn offset(&self) -> u64 {
        self.offset
    }
    /// Where the log stops being read.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// From now on the first record must have this LSN: its segment was made before anybody knew it.
    pub fn expect(&mut self, lsn: u64) {
        self.lsn = Some(lsn);
    }
    /// The LSN of the next record, if its header is whole and follows the record before.
    pub fn peek(&self) -> Result<Option<u64>> {
        let mut head = [0u8; RECORD_HEADER_BYTES];
        if self.end - self.offset < RECORD_HEADER_BYTES as u64 {
            return Ok(None);
        }
        self.file.read_exact_at(&mut head, self.offset)?;
        let header = RecordHeader::decode(&head, self.seal, self.offset).ok().map(|(h, _)| h);
        Ok(header.filter(|h| h.previous == self.previous).map(|h| h.lsn))
    }
    /// Opens the log that a writer of this process appends to, for records that are known to be there. Where it ends is not
    /// looked for: see [`LogReader::reach_end`].
    pub fn open_beside_writer(dir: &dyn Dir, name: &str, id: FileId, database: u64) -> Result<LogReader> {
        let header = Some(HEADER_BYTES as u64);
        LogReader::open(dir, name, FileKind::Wal, Some(id), Some(database), header)
    }
    /// Reads on to the end that the file has now, zeros or not.
    pub fn reach_end(&mut self) -> Result<()> {
        // Zeros at its end may have been taken away.
        self.end = self.file.len()?.max(self.offset);
        Ok(())
    }
    /// Looks again where the log ends; whether it has grown. (Beside a writer it may.)
    pub fn has_grown(&mut self) -> Result<bool> {
        let end = without_zeros(&*self.file, self.end, self.file.len()?)?;
        let grown = end > self.end;
        self.end = self.end.max(end);
        Ok(grown)
    }

    /// The next record. `Err` only for failures of the operating system and formats too new to read.
    pub fn next_record(&mut self) -> Result<Step> {
        if self.offset == self.end {
            return Ok(Step::End);
        }
        match self.read_record() {
            Ok((record, sum)) => {
                self.offset += record.header.record_bytes();
                self.previous = sum;
                self.lsn = Some(record.header.lsn + u64::from(record.header.count));
                Ok(Step::Record(record))
            }
            Err(e) if e.kind() == ErrorKind::Corruption => {
                let cut_short = self.cut_short()?;
                Ok(Step::Bad(Bad { offset: self.offset, cut_short, why: e.at(&self.name, self.offset) }))
            }
            Err(e) => Err(e.at(&self.name, self.offset)),
        }
    }

    /// Whether the record here is a beginning that the end of the log cuts.
    fn cut_short(&self) -> Result<bool> {
        let left = self.end - self.offset;
        if left < RECORD_HEADER_BYTES as u64 {
            return Ok(true);
        }
        let mut head = [0u8; RECORD_HEADER_BYTES];
        self.file.read_exact_at(&mut head, self.offset)?;
        let header = RecordHeader::decode(&head, self.seal, self.offset);
        Ok(header.is_ok_and(|(h, _)| h.record_bytes() > left))
    }

    fn read_record(&self) -> Result<(Record, u64)> {
        let left = self.end - self.offset;
        if left < RECORD_HEADER_BYTES as u64 {
            return Err(Error::corruption("the log ends inside a record header"));
        }
        let mut head = [0u8; RECORD_HEADER_BYTES];
        self.file.read_exact_at(&mut head, self.offset)?;
        let (header, sum) = RecordHeader::decode(&head, self.seal, self.offset)?;
        if header.previous != self.previous {
            return Err(Error::corruption("a log record does not follow the one before it").expected(
                format_args!("{:#018x}", self.previous),
                format_args!("{:#018x}", header.previous),
            ));
        }
        if let Some(lsn) = self.lsn.filter(|&lsn| lsn != header.lsn) {
            return Err(Error::corruption("a log record is out of sequence").expected(lsn, header.lsn));
        }
        if header.record_bytes() > left {
            return Err(Error::corruption("the log ends inside a record")
                .expected(format_args!("{} bytes", header.record_bytes()), left));
        }
        let mut payload = zeroed(padded(header.payload_bytes as usize))?;
        self.file.read_exact_at(&mut payload, self.offset + RECORD_HEADER_BYTES as u64)?;
        let got = checksum::checksum_placeless(&payload);
        if got != header.payload_checksum && !bug::on(Bug::IgnoreLogChecksum) {
            return Err(Error::corruption("log payload checksum differs")
                .expected(format_args!("{:#018x}", header.payload_checksum), format_args!("{got:#018x}")));
        }
        payload.truncate(header.payload_bytes as usize);
        Ok((Record { header, payload, offset: self.offset }, sum))
    }

    /// Looks for records behind the bad one at [`LogReader::offset`]: the first record header that is valid in its place,
    /// and the highest durable LSN and edit number that any of them carries. If the bad record's own header is
    /// valid, its payload is skipped.
    pub fn look_behind(&self) -> Result<Option<Behind>> {
        let mut found: Option<Behind> = None;
        let mut start = self.offset + self.bad_record_bytes()?;
        let mut buf = Vec::new();
        while start + (RECORD_HEADER_BYTES as u64) <= self.end {
            let take = (self.end - start).min((WINDOW + RECORD_HEADER_BYTES) as u64) as usize;
            buf.resize(take, 0);
            self.file.read_exact_at(&mut buf, start).map_err(|e| e.at(&self.name, start))?;
            let last = take - RECORD_HEADER_BYTES;
            for at in (0..=last).step_by(ALIGNMENT) {
                if buf[at + 8..at + 12] != RECORD_MAGIC.to_le_bytes() {
                    continue;
                }
                let place = start + at as u64;
                if let Ok((h, _)) = RecordHeader::decode(&buf[at..at + RECORD_HEADER_BYTES], self.seal, place)
                {
                    let b = found.get_or_insert(Behind { first: place, durable: 0, edits: 0 });
                    b.durable = b.durable.max(h.durable);
                    b.edits = b.edits.max(h.edits);
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
            if let Ok((h, _)) = RecordHeader::decode(&head, self.seal, self.offset) {
                return Ok(h.record_bytes());
            }
        }
        Ok(ALIGNMENT as u64)
    }
}

/// What lies behind a bad record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Offset of the first valid record header.
    pub first: u64,
    /// Highest durable LSN in any of them.
    pub durable: u64,
    /// Highest number of manifest edits in any of them.
    pub edits: u64,
}

/// Where a file ends if zeros at its end do not count (no record ends with one), but for `from` bytes.
fn without_zeros(file: &dyn ReadAt, from: u64, len: u64) -> Result<u64> {
    let mut buf = vec![0u8; WINDOW.min(len.saturating_sub(from) as usize)];
    let mut end = len;
    while end > from {
        let take = buf.len().min((end - from) as usize);
        file.read_exact_at(&mut buf[..take], end - take as u64)?;
        if let Some(last) = buf[..take].iter().rposition(|b| *b != 0) {
            return Ok(end - (take - last - 1) as u64);
        }
        end -= take as u64;
    }
    Ok(from)
}

fn zeroed(n: usize) -> Result<Vec<u8>> {
    let mut v = Vec::new();
    v.try_reserve_exact(n)
        .map_err(|_| Error::new(ErrorKind::NoMemory, format!("no memory for a log record of {n} bytes")))?;
    v.resize(n, 0);
    Ok(v)
}
