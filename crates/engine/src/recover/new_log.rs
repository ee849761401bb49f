//! Writes the log that an opened database continues with, and the manifest that references it.
//!
//! What is not in tables is copied into a new segment. Syncing the old file would not make its
//! bytes durable: a sync that failed in an earlier process may now report success. Where copying
//! everything would cost too much (the log is larger than memory, or the disk is full), old
//! segments are kept up to the point to which they are known to be synced, and only the rest is
//! copied. If there is no space even for that, the rest is rewritten in place, so that a sync of
//! the old file covers it.
//!
//! Invariant: segments synced, directory synced, then the manifest. A failure before that leaves no
//! files behind.

use super::manifest_reader::RecoveredManifest;
use super::replay_result::ReplayResult;
use crate::catalog::allocate_file_id;
use crate::catalog::manifest::{
    CatalogState, Manifest, ManifestEdit, NextIdsEdit, manifest_not_durable, write_snapshot,
};
use crate::catalog::retained_logs::{LogSpan, split_retained, trim_segment};
use crate::limits::LOG_REWRITE_CHUNK_BYTES;
use crate::log::wal::LogSegment;
use crate::runtime::DatabaseIdentity;
use crate::runtime::dir_sync::DirSync;
use crate::runtime::logical_clock::ClockHighWater;
use perigee_base::bug::Bug;
use perigee_base::{Counters, Error, ErrorKind, FileHeader, FileId, FileKind, Result, SeqNo, bug};
use perigee_env::Dir;
use perigee_file::filename;
use perigee_file::log::{
    EncodedRecord, LogReader, LogRecord, LogWriter, NextLogRecord, RecordKind, RecordStamp,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// How much of the log is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogCopyMode {
    /// Everything that is not in tables.
    All,
    /// The part of old segments after the last operation that is known to be synced.
    Unsynced,
    /// Nothing: that part is rewritten in place.
    RewriteInPlace,
}

/// The log segments of the opened database.
#[derive(Debug)]
pub struct NewLog {
    /// Old segments that are kept, up to their valid end.
    pub retained_segments: Vec<LogSpan>,
    /// New segments that are complete.
    copied_segments: Vec<LogSegment>,
    /// The newest segment, which the database appends to.
    pub writer: LogWriter,
    /// First LSN of the newest segment.
    pub first_lsn: SeqNo,
    /// Old segments that are no longer needed.
    obsolete: Vec<LogSpan>,
}

impl NewLog {
    /// Creates a log without records, for read-only opens.
    pub fn without_records(writer: LogWriter, first: SeqNo) -> NewLog {
        NewLog {
            retained_segments: Vec::new(),
            copied_segments: Vec::new(),
            writer,
            first_lsn: first,
            obsolete: Vec::new(),
        }
    }
    /// Returns all segments but the newest.
    pub fn older(&self) -> Vec<LogSegment> {
        let kept = self.retained_segments.iter().map(|s| LogSegment {
            id: s.id,
            first_lsn: s.first_lsn,
            bytes: s.bytes,
        });
        kept.chain(self.copied_segments.iter().copied()).collect()
    }
    fn manifest_entries(&self) -> Vec<(FileId, SeqNo)> {
        let older = self.older().into_iter().map(|s| (s.id, s.first_lsn));
        older.chain([(self.writer.id(), self.first_lsn)]).collect()
    }
}

/// Input of [`write_new_log`].
#[derive(Clone, Copy)]
pub struct NewLogInput<'a> {
    /// The directory.
    pub dir: &'a Arc<dyn Dir>,
    /// The manifest that was read.
    pub manifest: &'a RecoveredManifest,
    /// The current boot id.
    pub boot: u64,
    /// The result of the replay.
    pub replayed: &'a ReplayResult,
    /// The end of the log was truncated: the file concerned is left as it is, for the trash.
    pub is_cut: bool,
    /// Bytes of the log to retain for readers.
    pub retention_bytes: u64,
    /// Segment size for copies of a large log: smaller segments can be removed one by one as
    /// memtables are flushed.
    pub segment_bytes: u64,
    /// The next file id.
    pub ids: &'a AtomicU64,
}

/// Writes the log, then the manifest that references it. On failure no new files are left behind.
pub fn write_new_log(
    input: NewLogInput<'_>,
    mode: LogCopyMode,
    clocks: (&Arc<Counters>, Arc<ClockHighWater>),
) -> Result<(NewLog, (Manifest, Arc<DirSync>))> {
    let first_id = input.ids.load(SeqCst);
    let written = match mode {
        LogCopyMode::All => copy_all(input),
        LogCopyMode::Unsynced => copy_unsynced(input),
        LogCopyMode::RewriteInPlace => rewrite_unsynced(input),
    };
    let written = written.and_then(|log| {
        let manifest = new_manifest(input, &log, clocks.0, clocks.1)?;
        Ok((log, manifest))
    });
    written.inspect_err(|e| remove_new_files(input, first_id, e))
}

/// Removes the new files of a failed open: on a full disk the next attempt needs their space. If
/// the rename of the manifest was not synced, it is unknown whether it references the log; then
/// both stay.
fn remove_new_files(input: NewLogInput<'_>, first_id: u64, e: &Error) {
    if e.kind() != ErrorKind::OutcomeUnknown {
        let _ = input.dir.remove(filename::MANIFEST_TMP);
        for id in first_id..input.ids.load(SeqCst) {
            let _ = input.dir.remove(&filename::file_name(FileId(id), FileKind::Wal));
        }
    }
}

/// Copies records into new segments.
struct LogCopier<'a> {
    input: NewLogInput<'a>,
    segment_bytes: u64,
    complete_segments: Vec<LogSegment>,
    /// The newest segment and its first LSN.
    newest: Option<(LogWriter, SeqNo)>,
    /// The LSN after the last copied record.
    next_lsn: SeqNo,
}

impl LogCopier<'_> {
    fn new(input: NewLogInput<'_>, segment_bytes: u64) -> LogCopier<'_> {
        LogCopier {
            input,
            segment_bytes,
            complete_segments: Vec::new(),
            newest: None,
            next_lsn: SeqNo::ZERO,
        }
    }

    fn begin_segment(&self, first: SeqNo) -> Result<LogWriter> {
        let NewLogInput { dir, manifest: found, boot, ids, .. } = self.input;
        let id = allocate_file_id(ids);
        let header = FileHeader {
            kind: FileKind::Wal,
            database: found.database,
            file: id,
            a: first.0,
            b: boot,
        };
        LogWriter::create(&**dir, &filename::file_name(id, FileKind::Wal), &header)
    }

    fn copy_record(&mut self, kind: RecordKind, payload: &[u8], seqs: Range<SeqNo>) -> Result<()> {
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
            self.newest = Some((self.begin_segment(seqs.start)?, seqs.start));
        }
        let Some((writer, _)) = &mut self.newest else {
            return Err(Error::internal("no log segment"));
        };
        // Records no manifest edit: the last edits may have been read from the page cache of a
        // killed process, and a power failure during this open may still lose them.
        check!(
            self.next_lsn <= seqs.start && seqs.start < seqs.end,
            "records are copied in the order of the log",
            self.next_lsn,
            seqs
        );
        let (lsn, count) = (seqs.start.0, (seqs.end.0 - seqs.start.0) as u32);
        let stamp = RecordStamp { lsn, durable_lsn: lsn - 1, manifest_edits: 0 };
        writer.append(stamp, &mut [&mut EncodedRecord::from_payload(kind, payload, count)])?;
        self.next_lsn = seqs.end;
        Ok(())
    }

    /// Makes the copies durable. The newest segment exists in any case: the database appends to it.
    fn finish(mut self, kept: Vec<LogSpan>, obsolete: Vec<LogSpan>) -> Result<NewLog> {
        let next = self.input.replayed.next_lsn;
        let (mut writer, first) = match self.newest.take() {
            Some(newest) if self.next_lsn == next => newest,
            None => (self.begin_segment(next)?, next),
            Some(_) => {
                let text = format!("the copied log ends at {} instead of {next}", self.next_lsn);
                return Err(Error::internal(text));
            }
        };
        writer.file().sync()?;
        self.input.dir.sync()?;
        writer.preallocate(0)?;
        let begin = self.complete_segments.first().map_or(first, |s| s.first_lsn);
        check_slow!(
            kept.windows(2).all(|w| w[0].end_lsn == w[1].first_lsn)
                && kept.last().is_none_or(|s| s.end_lsn == begin),
            "the new segments continue where the kept ones end",
            kept,
            begin
        );
        Ok(NewLog {
            retained_segments: kept,
            copied_segments: self.complete_segments,
            writer,
            first_lsn: first,
            obsolete,
        })
    }
}

/// Copies everything that is not in tables, from memory, into one segment.
fn copy_all(input: NewLogInput<'_>) -> Result<NewLog> {
    let mut copies = LogCopier::new(input, u64::MAX);
    for record in &input.replayed.records {
        copies.copy_record(record.kind, record.payload(), record.seqs())?;
    }
    copies.finish(Vec::new(), input.replayed.complete.clone())
}

/// Keeps the old segments up to the last operation that is known to be synced, and copies the rest
/// from the files.
fn copy_unsynced(input: NewLogInput<'_>) -> Result<NewLog> {
    let replayed = input.replayed;
    let synced = if bug::is_active(Bug::KeepUnsyncedLog) {
        replayed.next_lsn.prev()
    } else {
        replayed.synced_lsn
    };
    let (mut kept, mut obsolete) = (Vec::new(), Vec::new());
    let mut copies = LogCopier::new(input, input.segment_bytes);
    for (i, span) in replayed.segments.iter().enumerate().filter(|(_, s)| s.first_lsn < s.end_lsn) {
        let is_cut = input.is_cut && i + 1 == replayed.segments.len();
        let synced = if is_cut { span.first_lsn.prev() } else { synced };
        if span.end_lsn <= replayed.first_lsn {
            obsolete.push(*span);
        } else if span.end_lsn.prev() <= synced {
            kept.push(*span);
        } else {
            let before = copy_unsynced_tail(input, span, synced, &mut copies)?;
            let list = if before.end_lsn <= replayed.first_lsn { &mut obsolete } else { &mut kept };
            list.extend((before.first_lsn < before.end_lsn).then_some(before));
        }
    }
    copies.finish(kept, obsolete)
}

/// Copies the part of a segment that is needed but not known to be synced. Returns the span before
/// it.
fn copy_unsynced_tail(
    input: NewLogInput<'_>,
    span: &LogSpan,
    synced: SeqNo,
    copies: &mut LogCopier<'_>,
) -> Result<LogSpan> {
    let file = filename::file_name(span.id, FileKind::Wal);
    let mut log = reopen_segment(&**input.dir, input.manifest.database, span.id, span.first_lsn)?;
    let mut before = LogSpan { end_lsn: span.first_lsn, bytes: log.offset(), ..*span };
    let mut next = span.first_lsn;
    while next < span.end_lsn {
        let r = read_record(&mut log, &file)?;
        next = r.header.end_seq();
        if r.header.first_seq() < input.replayed.first_lsn || next.prev() <= synced {
            (before.end_lsn, before.bytes) = (next, log.offset());
        } else if r.header.lsn_count > 0 {
            copies.copy_record(r.header.kind, &r.payload, r.header.first_seq()..next)?;
        }
    }
    Ok(before)
}

/// Keeps the old segments and ensures that they are on stable storage. A sync alone is not enough:
/// after a failed sync in an earlier process, pages may be marked clean that were never written.
/// Rewriting the same bytes marks them dirty again.
fn rewrite_unsynced(input: NewLogInput<'_>) -> Result<NewLog> {
    let replayed = input.replayed;
    let all = replayed.segments.iter().filter(|s| s.first_lsn < s.end_lsn).copied();
    let (obsolete, kept): (Vec<_>, Vec<_>) = all.partition(|s| s.end_lsn <= replayed.first_lsn);
    for span in kept
        .iter()
        .filter(|s| s.end_lsn.prev() > replayed.synced_lsn && !bug::is_active(Bug::KeepUnsyncedLog))
    {
        rewrite_segment(&**input.dir, input.manifest.database, span)?;
    }
    LogCopier::new(input, 0).finish(kept, obsolete)
}

/// Rewrites a segment in place, verifies it and syncs it. Verified after the write: a page whose
/// sync failed may have been dropped from the page cache since the replay, and then older bytes
/// were read from disk.
fn rewrite_segment(dir: &dyn Dir, database: u64, span: &LogSpan) -> Result<()> {
    let file = filename::file_name(span.id, FileKind::Wal);
    let (from, to) = (dir.open(&file)?, dir.append_to(&file)?);
    let mut buf = vec![0; LOG_REWRITE_CHUNK_BYTES];
    let mut at = 0;
    while at < span.bytes {
        let part = &mut buf[..(span.bytes - at).min(LOG_REWRITE_CHUNK_BYTES as u64) as usize];
        from.read_exact_at(part, at)?;
        to.overwrite(at, part)?;
        at += part.len() as u64;
    }
    let mut log = reopen_segment(dir, database, span.id, span.first_lsn)?;
    let mut next = span.first_lsn;
    while next < span.end_lsn {
        let record = read_record(&mut log, &file)?;
        next = record.header.end_seq();
    }
    to.sync()
}

/// Reopens a segment that was read before.
pub fn reopen_segment(dir: &dyn Dir, database: u64, id: FileId, first: SeqNo) -> Result<LogReader> {
    let file = filename::file_name(id, FileKind::Wal);
    let mut log = LogReader::open(dir, &file, FileKind::Wal, Some(id), Some(database), None)?;
    log.expect_lsn(first.0);
    Ok(log)
}

/// Reads the next record of a log that was verified before.
pub fn read_record(log: &mut LogReader, file: &str) -> Result<LogRecord> {
    match log.next_record()? {
        NextLogRecord::Record(r) => Ok(r),
        NextLogRecord::Bad(bad) => Err(bad.error),
        NextLogRecord::End => {
            Err(Error::corruption("the log was truncated while it was read").at(file, log.offset()))
        }
    }
}

fn new_manifest(
    input: NewLogInput<'_>,
    log: &NewLog,
    counters: &Arc<Counters>,
    clock: Arc<ClockHighWater>,
) -> Result<(Manifest, Arc<DirSync>)> {
    let NewLogInput {
        dir, manifest: found, boot, replayed, retention_bytes: retention, ids, ..
    } = input;
    let id: FileId = allocate_file_id(ids);
    let mut catalog = found.catalog.clone();
    catalog.logs = log.manifest_entries();
    (catalog.retained, _) = split_retained(&catalog.retained, &log.obsolete, retention);
    catalog.discard_old_events();
    let next = ManifestEdit {
        next_ids: Some(NextIdsEdit { file: Some(FileId(id.0 + 1)), ..NextIdsEdit::default() }),
        durable_seq: Some(replayed.next_lsn.prev()),
        ..ManifestEdit::default()
    };
    catalog.apply(&next)?;
    let edit = found.last_edit + 1;
    check_slow!(
        catalog.validate(edit).is_ok(),
        "the next open accepts the manifest of a new log",
        catalog.logs,
        catalog.retained
    );
    let identity = DatabaseIdentity { database: found.database, boot };
    let file = write_snapshot(&**dir, identity, id, edit, &catalog)?;
    dir.sync().map_err(manifest_not_durable)?;
    let dir_sync = Arc::new(DirSync::new(Arc::clone(dir)));
    let manifest = Manifest::new(
        Arc::clone(dir),
        Arc::clone(&dir_sync),
        identity,
        file,
        edit,
        catalog,
        Arc::clone(counters),
        clock,
    );
    Ok((manifest, dir_sync))
}

/// Removes the old segments whose operations are in tables or in a new segment. Segments kept for
/// recovery or for readers are trimmed to their valid bytes. (After a truncation all of this goes
/// to the trash or stays as it is, for inspection.)
pub fn remove_old_segments(dir: &dyn Dir, old: &CatalogState, new: &CatalogState) {
    let before = old.retained.iter().map(|s| s.id).chain(old.logs.iter().map(|(id, _)| *id));
    let stays = |id: FileId| {
        new.retained.iter().any(|s| s.id == id) || new.logs.iter().any(|(log, _)| *log == id)
    };
    for id in before.filter(|id| !stays(*id)) {
        let _ = dir.remove(&filename::file_name(id, FileKind::Wal));
    }
    trim_segments(dir, &new.retained);
}

/// Truncates old segments that are kept to their valid bytes.
pub fn trim_segments(dir: &dyn Dir, spans: &[LogSpan]) {
    for span in spans {
        let _ = trim_segment(dir, span);
    }
}
