//! The log that an opened database goes on with, and the manifest that names it.
//!
//! What is not in tables is copied into a fresh segment. Old bytes are not made durable by syncing
//! the old file: a sync that failed in an earlier process may now be answered with success. Where
//! copying all would cost too much (the log is larger than memory, or the disk is full), old
//! segments stay up to where they are known to be synced, and only what follows is copied; or, if
//! there is no room even for that, written over itself, so that a sync of the old file covers it.
//!
//! Invariant: segments synced, directory synced, manifest; what fails before that leaves nothing
//! behind.

use super::manifest_reader::RecoveredManifest;
use super::replay_result::ReplayResult;
use crate::core::allocate_file_id;
use crate::dir_sync::DirSync;
use crate::logical_clock::ClockHighWater;
use crate::manifest::{Catalog, DatabaseIdentity, Manifest, ManifestEdit, write_snapshot};
use crate::wal::{LogSegment, LogSpan, split_retained, trim_segment};
use perigee_base::bug::{self, Bug};
use perigee_base::file_header::{FileHeader, FileKind};
use perigee_base::stats::Counters;
use perigee_base::{Error, ErrorKind, FileId, Result};
use perigee_env::Dir;
use perigee_file::filename;
use perigee_file::log::batch::EncodedRecord;
use perigee_file::log::{LogReader, LogRecord, LogWriter, NextLogRecord, RecordKind, RecordStamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// How much of the log is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogCopyMode {
    /// All that is not in tables.
    All,
    /// What old segments hold behind the last operation that is known to be synced.
    Unsynced,
    /// Nothing: that is written over itself.
    RewriteInPlace,
}

/// Bytes of a segment that are read and written back at a time.
const REWRITE_CHUNK_BYTES: usize = 256 << 10;

/// The segments of the opened database.
#[derive(Debug)]
pub struct NewLog {
    /// Old segments that stay, as far as they count.
    pub retained_segments: Vec<LogSpan>,
    /// Fresh ones that are complete.
    copied_segments: Vec<LogSegment>,
    /// The newest segment, which the database appends to.
    pub writer: LogWriter,
    /// First LSN of the newest segment.
    pub first_lsn: u64,
    /// Old segments that are not needed any more.
    obsolete: Vec<LogSpan>,
}

impl NewLog {
    /// A log without a writer, for read-only opens.
    pub fn without_records(writer: LogWriter, first: u64) -> NewLog {
        NewLog {
            retained_segments: Vec::new(),
            copied_segments: Vec::new(),
            writer,
            first_lsn: first,
            obsolete: Vec::new(),
        }
    }
    /// All but the newest.
    pub fn older(&self) -> Vec<LogSegment> {
        let kept = self.retained_segments.iter().map(|s| LogSegment {
            id: s.id,
            first_lsn: s.first_lsn,
            bytes: s.bytes,
        });
        kept.chain(self.copied_segments.iter().copied()).collect()
    }
    fn manifest_entries(&self) -> Vec<(FileId, u64)> {
        let older = self.older().into_iter().map(|s| (s.id, s.first_lsn));
        older.chain([(self.writer.id(), self.first_lsn)]).collect()
    }
}

/// Input of [`write_anew`].
#[derive(Clone, Copy)]
pub struct NewLogInput<'a> {
    /// The directory.
    pub dir: &'a Arc<dyn Dir>,
    /// What the old manifest said.
    pub manifest: &'a RecoveredManifest,
    /// The boot id now.
    pub boot: u64,
    /// What the log held.
    pub replayed: &'a ReplayResult,
    /// Something was cut from its end: the file that it was cut from is left as it is, for the
    /// trash.
    pub is_cut: bool,
    /// Bytes of the log that stay for readers.
    pub retention_bytes: u64,
    /// Copies of a large log are cut into segments of this size, which are removed one by one as
    /// memtables are flushed.
    pub segment_bytes: u64,
    /// The next file id.
    pub ids: &'a AtomicU64,
}

/// Writes the log, then the manifest that names it. What fails leaves nothing behind.
pub fn write_new_log(
    anew: NewLogInput<'_>,
    copying: LogCopyMode,
    clocks: (&Arc<Counters>, Arc<ClockHighWater>),
) -> Result<(NewLog, (Manifest, Arc<DirSync>))> {
    let first_id = anew.ids.load(SeqCst);
    let written = match copying {
        LogCopyMode::All => copy_all(anew),
        LogCopyMode::Unsynced => copy_unsynced(anew),
        LogCopyMode::RewriteInPlace => rewrite_unsynced(anew),
    };
    let written = written.and_then(|log| {
        let made = new_manifest(anew, &log, clocks)?;
        Ok((log, made))
    });
    written.inspect_err(|e| remove_new_files(anew, first_id, e))
}

/// An open that fails leaves no new files behind: on a full disk the next attempt needs their
/// space. Whether a manifest whose rename was not synced names the log is unknown; then both stay.
fn remove_new_files(anew: NewLogInput<'_>, first_id: u64, e: &Error) {
    if e.kind() != ErrorKind::OutcomeUnknown {
        let _ = anew.dir.remove(filename::MANIFEST_TMP);
        for id in first_id..anew.ids.load(SeqCst) {
            let _ = anew.dir.remove(&filename::file_name(FileId(id), FileKind::Wal));
        }
    }
}

/// Fresh segments in the making.
struct LogCopier<'a> {
    anew: NewLogInput<'a>,
    segment_bytes: u64,
    complete_segments: Vec<LogSegment>,
    /// The newest and its first LSN.
    newest: Option<(LogWriter, u64)>,
    /// The LSN behind the last copied record.
    next_lsn: u64,
}

impl LogCopier<'_> {
    fn new(anew: NewLogInput<'_>, segment_bytes: u64) -> LogCopier<'_> {
        LogCopier { anew, segment_bytes, complete_segments: Vec::new(), newest: None, next_lsn: 0 }
    }

    fn begin_segment(&self, first: u64) -> Result<LogWriter> {
        let NewLogInput { dir, manifest: found, boot, ids, .. } = self.anew;
        let id = allocate_file_id(ids);
        let header = FileHeader {
            kind: FileKind::Wal,
            database: found.database,
            file: id,
            a: first,
            b: boot,
        };
        LogWriter::create(&**dir, &filename::file_name(id, FileKind::Wal), &header)
    }

    fn copy_record(
        &mut self,
        kind: RecordKind,
        payload: &[u8],
        (lsn, count): (u64, u32),
    ) -> Result<()> {
        if let Some((full, first)) = self.newest.take_if(|(w, _)| w.offset() >= self.segment_bytes)
        {
            full.file().sync()?;
            self.complete_segments.push(LogSegment {
                id: full.id(),
                first_lsn: first,
                bytes: full.offset(),
            });
        }
        if self.newest.is_none() {
            self.newest = Some((self.begin_segment(lsn)?, lsn));
        }
        let Some((writer, _)) = &mut self.newest else {
            return Err(Error::internal("no log segment"));
        };
        // No edit is vouched for: the last ones may have been read from the page cache of a process
        // that was killed, and a power cut during this open may still lose them.
        let stamp = RecordStamp { lsn, durable_lsn: lsn - 1, manifest_edits: 0 };
        writer.append(stamp, &mut [&mut EncodedRecord::from_payload(kind, payload, count)])?;
        self.next_lsn = lsn + u64::from(count);
        Ok(())
    }

    /// Makes the copies durable. The newest segment is there in any case: the database appends to
    /// it.
    fn finish(mut self, kept: Vec<LogSpan>, spent: Vec<LogSpan>) -> Result<NewLog> {
        let next = self.anew.replayed.next_lsn;
        let (mut writer, first) = match self.newest.take() {
            Some(newest) if self.next_lsn == next => newest,
            None => (self.begin_segment(next)?, next),
            Some(_) => {
                let text = format!("the copied log ends at {} instead of {next}", self.next_lsn);
                return Err(Error::internal(text));
            }
        };
        writer.file().sync()?;
        self.anew.dir.sync()?;
        writer.preallocate(0)?;
        Ok(NewLog {
            retained_segments: kept,
            copied_segments: self.complete_segments,
            writer,
            first_lsn: first,
            obsolete: spent,
        })
    }
}

/// Copies all that is not in tables, from memory, into one segment.
fn copy_all(anew: NewLogInput<'_>) -> Result<NewLog> {
    let mut copies = LogCopier::new(anew, u64::MAX);
    for record in &anew.replayed.records {
        copies.copy_record(record.kind, record.payload(), (record.lsn, record.count))?;
    }
    copies.finish(Vec::new(), anew.replayed.complete.clone())
}

/// Keeps the old segments up to the last operation that is known to be synced, and copies what
/// follows, from the files.
fn copy_unsynced(anew: NewLogInput<'_>) -> Result<NewLog> {
    let replayed = anew.replayed;
    let synced = if bug::is_active(Bug::KeepUnsyncedLog) {
        replayed.next_lsn - 1
    } else {
        replayed.synced_lsn
    };
    let (mut kept, mut spent) = (Vec::new(), Vec::new());
    let mut copies = LogCopier::new(anew, anew.segment_bytes);
    for (i, span) in replayed.segments.iter().enumerate().filter(|(_, s)| s.first_lsn < s.end_lsn) {
        let is_cut = anew.is_cut && i + 1 == replayed.segments.len();
        let synced = if is_cut { span.first_lsn - 1 } else { synced };
        if span.end_lsn <= replayed.first_lsn {
            spent.push(*span);
        } else if span.end_lsn <= synced + 1 {
            kept.push(*span);
        } else {
            let before = copy_unsynced_tail(anew, span, synced, &mut copies)?;
            let list = if before.end_lsn <= replayed.first_lsn { &mut spent } else { &mut kept };
            list.extend((before.first_lsn < before.end_lsn).then_some(before));
        }
    }
    copies.finish(kept, spent)
}

/// Copies what must survive of a segment and is not known to be synced. The part before that.
fn copy_unsynced_tail(
    anew: NewLogInput<'_>,
    span: &LogSpan,
    synced: u64,
    copies: &mut LogCopier<'_>,
) -> Result<LogSpan> {
    let file = filename::file_name(span.id, FileKind::Wal);
    let mut log = reopen_segment(&**anew.dir, anew.manifest.database, span.id, span.first_lsn)?;
    let mut before = LogSpan { end_lsn: span.first_lsn, bytes: log.offset(), ..*span };
    let mut next = span.first_lsn;
    while next < span.end_lsn {
        let r = read_record(&mut log, &file)?;
        next = r.header.lsn + u64::from(r.header.lsn_count);
        if r.header.lsn < anew.replayed.first_lsn || next <= synced + 1 {
            (before.end_lsn, before.bytes) = (next, log.offset());
        } else if r.header.lsn_count > 0 {
            copies.copy_record(r.header.kind, &r.payload, (r.header.lsn, r.header.lsn_count))?;
        }
    }
    Ok(before)
}

/// Keeps the old segments, and makes certain that all of them is on stable storage. Syncing them
/// would not: a sync that failed in an earlier process may have marked pages as written that were
/// not. Writing the same bytes again marks them as not written.
fn rewrite_unsynced(anew: NewLogInput<'_>) -> Result<NewLog> {
    let replayed = anew.replayed;
    let all = replayed.segments.iter().filter(|s| s.first_lsn < s.end_lsn).copied();
    let (spent, kept): (Vec<_>, Vec<_>) = all.partition(|s| s.end_lsn <= replayed.first_lsn);
    for span in kept
        .iter()
        .filter(|s| s.end_lsn > replayed.synced_lsn + 1 && !bug::is_active(Bug::KeepUnsyncedLog))
    {
        rewrite_segment(&**anew.dir, anew.manifest.database, span)?;
    }
    LogCopier::new(anew, 0).finish(kept, spent)
}

/// Writes a segment over itself, verifies it, and syncs it. Verified after it is written: a page
/// whose sync had failed may have been dropped from the page cache since the replay, and then the
/// disk's older bytes were read.
fn rewrite_segment(dir: &dyn Dir, database: u64, span: &LogSpan) -> Result<()> {
    let file = filename::file_name(span.id, FileKind::Wal);
    let (from, to) = (dir.open(&file)?, dir.append_to(&file)?);
    let mut buf = vec![0; REWRITE_CHUNK_BYTES];
    let mut at = 0;
    while at < span.bytes {
        let part = &mut buf[..(span.bytes - at).min(REWRITE_CHUNK_BYTES as u64) as usize];
        from.read_exact_at(part, at)?;
        to.overwrite(at, part)?;
        at += part.len() as u64;
    }
    let mut log = reopen_segment(dir, database, span.id, span.first_lsn)?;
    let mut next = span.first_lsn;
    while next < span.end_lsn {
        let record = read_record(&mut log, &file)?;
        next = record.header.lsn + u64::from(record.header.lsn_count);
    }
    to.sync()
}

/// A segment that was read before, to be read again.
pub fn reopen_segment(dir: &dyn Dir, database: u64, id: FileId, first: u64) -> Result<LogReader> {
    let file = filename::file_name(id, FileKind::Wal);
    let mut log = LogReader::open(dir, &file, FileKind::Wal, Some(id), Some(database), None)?;
    log.expect_lsn(first);
    Ok(log)
}

/// The next record, which was there before.
pub fn read_record(log: &mut LogReader, file: &str) -> Result<LogRecord> {
    match log.next_record()? {
        NextLogRecord::Record(r) => Ok(r),
        NextLogRecord::Bad(bad) => Err(bad.error),
        NextLogRecord::End => {
            Err(Error::corruption("the log has become shorter while it was read")
                .at(file, log.offset()))
        }
    }
}

fn new_manifest(
    anew: NewLogInput<'_>,
    log: &NewLog,
    (counters, clock): (&Arc<Counters>, Arc<ClockHighWater>),
) -> Result<(Manifest, Arc<DirSync>)> {
    let NewLogInput {
        dir, manifest: found, boot, replayed, retention_bytes: retention, ids, ..
    } = anew;
    let id: FileId = allocate_file_id(ids);
    let mut catalog = found.catalog.clone();
    catalog.logs = log.manifest_entries();
    (catalog.retained, _) = split_retained(&catalog.retained, &log.obsolete, retention);
    catalog.discard_old_events();
    let next = ManifestEdit {
        next_ids: Some((id.0 + 1, 0, 0)),
        durable_seq: Some(replayed.next_lsn - 1),
        ..ManifestEdit::default()
    };
    catalog.apply(&next)?;
    let edit = found.last_edit + 1;
    let place = DatabaseIdentity { database: found.database, boot };
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

/// Removes the old segments whose operations are in tables or in a fresh one. Those that stay, for
/// recovery or for readers, lose what does not count any more. (After a cut all this goes to the
/// trash, or stays as it is, so that it can be looked at.)
pub fn remove_old_segments(dir: &dyn Dir, old: &Catalog, new: &Catalog) {
    let before = old.retained.iter().map(|s| s.id).chain(old.logs.iter().map(|(id, _)| *id));
    let stays = |id: FileId| {
        new.retained.iter().any(|s| s.id == id) || new.logs.iter().any(|(log, _)| *log == id)
    };
    for id in before.filter(|id| !stays(*id)) {
        let _ = dir.remove(&filename::file_name(id, FileKind::Wal));
    }
    trim_segments(dir, &new.retained);
}

/// Takes away what does not count behind the end of old segments that stay.
pub fn trim_segments(dir: &dyn Dir, spans: &[LogSpan]) {
    for span in spans {
        let _ = trim_segment(dir, span);
    }
}
