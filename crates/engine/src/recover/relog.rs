//! The log that an opened database goes on with, and the manifest that names it.
//!
//! What is not in tables is copied into a fresh segment. Old bytes are not made durable by syncing the old file: a sync that
//! failed in an earlier process may now be answered with success. Where copying all would cost too much (the log is larger
//! than memory, or the disk is full), old segments stay up to where they are known to be synced, and only what follows
//! is copied; or, if there is no room even for that, written over itself, so that a sync of the old file covers it.
//!
//! Invariant: segments synced, directory synced, manifest; what fails before that leaves nothing behind.

use super::manifest::Found;
use super::replayed::Replayed;
use crate::core::next_file;
use crate::dirsync::DirSync;
use crate::manifest::{Catalog, Edit, Manifest, Place, write_snapshot};
use crate::now::HighWater;
use crate::wal::{LogSpan, Segment, keep, trim};
use perigee_base::bug::{self, Bug};
use perigee_base::format::{FileHeader, FileKind};
use perigee_base::stats::Counters;
use perigee_base::{Error, ErrorKind, FileId, Result};
use perigee_env::Dir;
use perigee_file::log::batch::Finished;
use perigee_file::log::{LogReader, LogWriter, Record, RecordKind, Stamp, Step};
use perigee_file::name;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// How much of the log is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// All that is not in tables.
    All,
    /// What old segments hold behind the last operation that is known to be synced.
    Unsynced,
    /// Nothing: that is written over itself.
    Nothing,
}

/// Bytes of a segment that are read and written back at a time.
const REWRITTEN_BYTES: usize = 256 << 10;

/// The segments of the opened database.
#[derive(Debug)]
pub struct NewLog {
    /// Old segments that stay, as far as they count.
    pub kept: Vec<LogSpan>,
    /// Fresh ones that are complete.
    copied: Vec<Segment>,
    /// The newest segment, which the database appends to.
    pub writer: LogWriter,
    /// First LSN of the newest segment.
    pub first: u64,
    /// Old segments that are not needed any more.
    spent: Vec<LogSpan>,
}

impl NewLog {
    /// A log without a writer, for read-only opens.
    pub fn none(writer: LogWriter, first: u64) -> NewLog {
        NewLog { kept: Vec::new(), copied: Vec::new(), writer, first, spent: Vec::new() }
    }
    /// All but the newest.
    pub fn older(&self) -> Vec<Segment> {
        let kept = self.kept.iter().map(|s| Segment { id: s.id, first_lsn: s.first, bytes: s.bytes });
        kept.chain(self.copied.iter().copied()).collect()
    }
    fn named(&self) -> Vec<(FileId, u64)> {
        let older = self.older().into_iter().map(|s| (s.id, s.first_lsn));
        older.chain([(self.writer.id(), self.first)]).collect()
    }
}

/// Input of [`write_anew`].
#[derive(Clone, Copy)]
pub struct Anew<'a> {
    /// The directory.
    pub dir: &'a Arc<dyn Dir>,
    /// What the old manifest said.
    pub found: &'a Found,
    /// The boot id now.
    pub boot: u64,
    /// What the log held.
    pub replayed: &'a Replayed,
    /// Something was cut from its end: the file that it was cut from is left as it is, for the trash.
    pub cut: bool,
    /// Bytes of the log that stay for readers.
    pub retention: u64,
    /// Copies of a large log are cut into segments of this size, which are removed one by one as memtables are flushed.
    pub segment_bytes: u64,
    /// The next file id.
    pub ids: &'a AtomicU64,
}

/// Writes the log, then the manifest that names it. What fails leaves nothing behind.
pub fn write_anew(
    anew: Anew<'_>,
    copying: Copying,
    clocks: (&Arc<Counters>, Arc<HighWater>),
) -> Result<(NewLog, (Manifest, Arc<DirSync>))> {
    let first_id = anew.ids.load(SeqCst);
    let written = match copying {
        Copying::All => copy_all(anew),
        Copying::Unsynced => copy_unsynced(anew),
        Copying::Nothing => rewrite_unsynced(anew),
    };
    let written = written.and_then(|log| {
        let made = new_manifest(anew, &log, clocks)?;
        Ok((log, made))
    });
    written.inspect_err(|e| undo(anew, first_id, e))
}

/// An open that fails leaves no new files behind: on a full disk the next attempt needs their space. Whether a manifest
/// whose rename was not synced names the log is unknown; then both stay.
fn undo(anew: Anew<'_>, first_id: u64, e: &Error) {
    if e.kind() != ErrorKind::OutcomeUnknown {
        let _ = anew.dir.remove(name::MANIFEST_TMP);
        for id in first_id..anew.ids.load(SeqCst) {
            let _ = anew.dir.remove(&name::file_name(FileId(id), FileKind::Wal));
        }
    }
}

/// Fresh segments in the making.
struct Copies<'a> {
    anew: Anew<'a>,
    segment_bytes: u64,
    done: Vec<Segment>,
    /// The newest and its first LSN.
    newest: Option<(LogWriter, u64)>,
    /// The LSN behind the last copied record.
    next: u64,
}

impl Copies<'_> {
    fn new(anew: Anew<'_>, segment_bytes: u64) -> Copies<'_> {
        Copies { anew, segment_bytes, done: Vec::new(), newest: None, next: 0 }
    }

    fn begin(&self, first: u64) -> Result<LogWriter> {
        let Anew { dir, found, boot, ids, .. } = self.anew;
        let id = next_file(ids);
        let header =
            FileHeader { kind: FileKind::Wal, database: found.database, file: id, a: first, b: boot };
        LogWriter::create(&**dir, &name::file_name(id, FileKind::Wal), &header)
    }

    fn copy(&mut self, kind: RecordKind, payload: &[u8], (lsn, count): (u64, u32)) -> Result<()> {
        if let Some((full, first)) = self.newest.take_if(|(w, _)| w.offset() >= self.segment_bytes) {
            full.file().sync()?;
            self.done.push(Segment { id: full.id(), first_lsn: first, bytes: full.offset() });
        }
        if self.newest.is_none() {
            self.newest = Some((self.begin(lsn)?, lsn));
        }
        let Some((writer, _)) = &mut self.newest else { return Err(Error::internal("no log segment")) };
        // No edit is vouched for: the last ones may have been read from the page cache of a process that was killed, and
        // a power cut during this open may still lose them.
        let stamp = Stamp { lsn, durable: lsn - 1, edits: 0 };
        writer.append(stamp, &mut [&mut Finished::around(kind, payload, count)])?;
        self.next = lsn + u64::from(count);
        Ok(())
    }

    /// Makes the copies durable. The newest segment is there in any case: the database appends to it.
    fn finish(mut self, kept: Vec<LogSpan>, spent: Vec<LogSpan>) -> Result<NewLog> {
        let next = self.anew.replayed.next;
        let (mut writer, first) = match self.newest.take() {
            Some(newest) if self.next == next => newest,
            None => (self.begin(next)?, next),
            Some(_) => {
                let text = format!("the copied log ends at {} instead of {next}", self.next);
                return Err(Error::internal(text));
            }
        };
        writer.file().sync()?;
        self.anew.dir.sync()?;
        writer.allocate_ahead(0)?;
        Ok(NewLog { kept, copied: self.done, writer, first, spent })
    }
}

/// Copies all that is not in tables, from memory, into one segment.
fn copy_all(anew: Anew<'_>) -> Result<NewLog> {
    let mut copies = Copies::new(anew, u64::MAX);
    for record in &anew.replayed.records {
        copies.copy(record.kind, record.payload(), (record.lsn, record.count))?;
    }
    copies.finish(Vec::new(), anew.replayed.complete.clone())
}

/// Keeps the old segments up to the last operation that is known to be synced, and copies what follows, from the files.
fn copy_unsynced(anew: Anew<'_>) -> Result<NewLog> {
    let replayed = anew.replayed;
    let synced = if bug::on(Bug::KeepUnsyncedLog) { replayed.next - 1 } else { replayed.synced };
    let (mut kept, mut spent) = (Vec::new(), Vec::new());
    let mut copies = Copies::new(anew, anew.segment_bytes);
    for (i, span) in replayed.segments.iter().enumerate().filter(|(_, s)| s.first < s.end) {
        let is_cut = anew.cut && i + 1 == replayed.segments.len();
        let synced = if is_cut { span.first - 1 } else { synced };
        if span.end <= replayed.first {
            spent.push(*span);
        } else if span.end <= synced + 1 {
            kept.push(*span);
        } else {
            let before = divide(anew, span, synced, &mut copies)?;
            let list = if before.end <= replayed.first { &mut spent } else { &mut kept };
            list.extend((before.first < before.end).then_some(before));
        }
    }
    copies.finish(kept, spent)
}

/// Copies what must survive of a segment and is not known to be synced. The part before that.
fn divide(anew: Anew<'_>, span: &LogSpan, synced: u64, copies: &mut Copies<'_>) -> Result<LogSpan> {
    let file = name::file_name(span.id, FileKind::Wal);
    let mut log = open_to_read(&**anew.dir, anew.found.database, span.id, span.first)?;
    let mut before = LogSpan { end: span.first, bytes: log.offset(), ..*span };
    let mut next = span.first;
    while next < span.end {
        let r = read(&mut log, &file)?;
        next = r.header.lsn + u64::from(r.header.count);
        if r.header.lsn < anew.replayed.first || next <= synced + 1 {
            (before.end, before.bytes) = (next, log.offset());
        } else if r.header.count > 0 {
            copies.copy(r.header.kind, &r.payload, (r.header.lsn, r.header.count))?;
        }
    }
    Ok(before)
}

/// Keeps the old segments, and makes certain that all of them is on stable storage. Syncing them would not: a sync that failed
/// in an earlier process may have marked pages as written that were not. Writing the same bytes again marks them as not written.
fn rewrite_unsynced(anew: Anew<'_>) -> Result<NewLog> {
    let replayed = anew.replayed;
    let all = replayed.segments.iter().filter(|s| s.first < s.end).copied();
    let (spent, kept): (Vec<_>, Vec<_>) = all.partition(|s| s.end <= replayed.first);
    for span in kept.iter().filter(|s| s.end > replayed.synced + 1 && !bug::on(Bug::KeepUnsyncedLog)) {
        rewrite(&**anew.dir, anew.found.database, span)?;
    }
    Copies::new(anew, 0).finish(kept, spent)
}

/// Writes a segment over itself, verifies it, and syncs it. Verified after it is written: a page whose sync had failed may have been
/// dropped from the page cache since the replay, and then the disk's older bytes were read.
fn rewrite(dir: &dyn Dir, database: u64, span: &LogSpan) -> Result<()> {
    let file = name::file_name(span.id, FileKind::Wal);
    let (from, to) = (dir.open(&file)?, dir.append_to(&file)?);
    let mut buf = vec![0; REWRITTEN_BYTES];
    let mut at = 0;
    while at < span.bytes {
        let part = &mut buf[..(span.bytes - at).min(REWRITTEN_BYTES as u64) as usize];
        from.read_exact_at(part, at)?;
        to.rewrite(at, part)?;
        at += part.len() as u64;
    }
    let mut log = open_to_read(dir, database, span.id, span.first)?;
    let mut next = span.first;
    while next < span.end {
        let record = read(&mut log, &file)?;
        next = record.header.lsn + u64::from(record.header.count);
    }
    to.sync()
}

/// A segment that was read before, to be read again.
pub fn open_to_read(dir: &dyn Dir, database: u64, id: FileId, first: u64) -> Result<LogReader> {
    let file = name::file_name(id, FileKind::Wal);
    let mut log = LogReader::open(dir, &file, FileKind::Wal, Some(id), Some(database), None)?;
    log.expect(first);
    Ok(log)
}

/// The next record, which was there before.
pub fn read(log: &mut LogReader, file: &str) -> Result<Record> {
    match log.next_record()? {
        Step::Record(r) => Ok(r),
        Step::Bad(bad) => Err(bad.why),
        Step::End => {
            Err(Error::corruption("the log has become shorter while it was read").at(file, log.offset()))
        }
    }
}

fn new_manifest(
    anew: Anew<'_>,
    log: &NewLog,
    (counters, clock): (&Arc<Counters>, Arc<HighWater>),
) -> Result<(Manifest, Arc<DirSync>)> {
    let Anew { dir, found, boot, replayed, retention, ids, .. } = anew;
    let id: FileId = next_file(ids);
    let mut catalog = found.catalog.clone();
    catalog.logs = log.named();
    (catalog.retained, _) = keep(&catalog.retained, &log.spent, retention);
    catalog.forget_events();
    let next = Edit { next: Some((id.0 + 1, 0, 0)), durable: Some(replayed.next - 1), ..Edit::default() };
    catalog.apply(&next)?;
    let edit = found.edits + 1;
    let place = Place { database: found.database, boot };
    let file = write_snapshot(&**dir, place, id, edit, &catalog, || dir.sync())?;
    let dir_sync = Arc::new(DirSync::new(Arc::clone(dir)));
    let manifest = Manifest::new(
        Arc::clone(dir),
        Arc::clone(&dir_sync),
        place,
        file,
        edit,
        catalog,
        Arc::clone(counters),
        clock,
    );
    Ok((manifest, dir_sync))
}

/// Removes the old segments whose operations are in tables or in a fresh one. Those that stay, for recovery or for readers, lose what
/// does not count any more. (After a cut all this goes to the trash, or stays as it is, so that it can be looked at.)
pub fn remove_old(dir: &dyn Dir, old: &Catalog, new: &Catalog) {
    let before = old.retained.iter().map(|s| s.id).chain(old.logs.iter().map(|(id, _)| *id));
    let stays =
        |id: FileId| new.retained.iter().any(|s| s.id == id) || new.logs.iter().any(|(log, _)| *log == id);
    for id in before.filter(|id| !stays(*id)) {
        let _ = dir.remove(&name::file_name(id, FileKind::Wal));
    }
    trim_all(dir, &new.retained);
}

/// Takes away what does not count behind the end of old segments that stay.
pub fn trim_all(dir: &dyn Dir, spans: &[LogSpan]) {
    for span in spans {
        let _ = trim(dir, span);
    }
}
