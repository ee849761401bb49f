//! Reads every byte of every file and checks it.

use crate::core::EngineCore;
use crate::wal::LogSpan;
use perigee_base::file_header::FileKind;
use perigee_base::{Error, ErrorKind, FileId, Result};
use perigee_file::filename;
use perigee_file::log::{LogReader, NextLogRecord};
use perigee_tree::{Version, View};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What was read, and everything wrong.
#[derive(Clone, Debug, Default)]
pub struct VerifyResult {
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Entries in tables.
    pub entries: u64,
    /// One error for each damaged file.
    pub errors: Vec<Error>,
}

/// Verifies the database as it is now; `progress` is told (bytes done, bytes in all).
///
/// # Errors
/// Only for what stops the whole pass (`Closed`); damage goes into the result.
pub fn verify(core: &EngineCore, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyResult> {
    core.health.check_open()?;
    let views: Vec<Arc<View>> = core.families.all().iter().map(|f| f.tree.view()).collect();
    let read_only = core.health.is_read_only();
    let logs = if read_only { retained_segments(core) } else { log_files(core) };
    let mut counted = BTreeSet::new();
    let tables = views.iter().map(|v| data_bytes(&v.version, &mut counted)).sum::<u64>();
    let mut seen = BTreeSet::new();
    let total = tables + logs.iter().map(|l| l.end).sum::<u64>();
    // A read-only open has read its manifest and the log segments that recovery needs, and checked
    // every byte of them; the writer may have changed them since.
    let mut out = if read_only { count_files_read_at_open(core) } else { VerifyResult::default() };
    let total = total + out.bytes;
    for log in logs {
        let checked = check_log(core, &log);
        count_file(&mut out, log.end, checked)?;
        progress(out.bytes, total);
    }
    for view in &views {
        for (_, _, t) in view.version.tables().filter(|(_, _, t)| seen.insert(t.meta.id)) {
            core.health.check_open()?;
            let before = out.bytes;
            let checked = t
                .reader
                .verify(t.meta.summary.checksum, &mut |done| progress(before + done, total));
            out.entries += t.meta.summary.entries;
            count_file(&mut out, t.meta.summary.bytes, checked)?;
        }
        for v in view.version.vlogs.values().filter(|v| seen.insert(v.meta.id)) {
            core.health.check_open()?;
            let before = out.bytes;
            let checked =
                v.reader.verify(v.meta.checksum, &mut |done| progress(before + done, total));
            count_file(&mut out, v.meta.bytes, checked)?;
        }
    }
    progress(total, total);
    Ok(out)
}

/// Counts a file and its error. A database that was closed meanwhile ends the pass: its files are
/// not damaged.
fn count_file(out: &mut VerifyResult, bytes: u64, checked: Result<()>) -> Result<()> {
    out.files += 1;
    out.bytes += bytes;
    match checked {
        Err(e) if e.kind() == ErrorKind::Closed => return Err(e),
        Err(e) => out.errors.push(e),
        Ok(()) => {}
    }
    Ok(())
}

/// Bytes of a version's files but for those `seen` already: clones share files.
fn data_bytes(v: &Version, seen: &mut BTreeSet<FileId>) -> u64 {
    let tables = v.tables().map(|(_, _, t)| (t.meta.id, t.meta.summary.bytes));
    let all = tables.chain(v.vlogs.values().map(|v| (v.meta.id, v.meta.bytes)));
    all.filter(|(id, _)| seen.insert(*id)).map(|(_, bytes)| bytes).sum()
}

/// A log file and how far it is to be read: what is appended later is not our business.
struct LogFile {
    name: String,
    kind: FileKind,
    id: Option<perigee_base::FileId>,
    end: u64,
    /// The manifest's own file id when the pass began: a rewrite changes it.
    manifest: perigee_base::FileId,
}

fn log_files(core: &EngineCore) -> Vec<LogFile> {
    let (manifest, manifest_end) = core.manifest.file_and_bytes();
    let appender = core.wal.appender();
    let wal = |id: perigee_base::FileId, end| LogFile {
        name: filename::file_name(id, FileKind::Wal),
        kind: FileKind::Wal,
        id: Some(id),
        end,
        manifest,
    };
    let mut all: Vec<LogFile> =
        appender.older_segments.iter().map(|s| wal(s.id, s.bytes)).collect();
    all.push(wal(appender.writer.id(), appender.writer.offset()));
    let kept = core.manifest.with_catalog(|catalog| catalog.retained.clone());
    let known = |id| all.iter().any(|l| l.id == Some(id));
    let kept: Vec<LogFile> =
        kept.iter().filter(|s| !known(s.id)).map(|s| wal(s.id, s.bytes)).collect();
    all.extend(kept);
    all.push(LogFile {
        name: filename::MANIFEST.into(),
        kind: FileKind::Manifest,
        id: None,
        end: manifest_end,
        manifest,
    });
    all
}

/// Complete segments that stay for readers of the log; recovery, and so a read-only open, does not
/// read them.
fn retained_segments(core: &EngineCore) -> Vec<LogFile> {
    let (manifest, _) = core.manifest.file_and_bytes();
    let kept = core.manifest.with_catalog(|catalog| catalog.retained.clone());
    let segment = |s: &LogSpan| LogFile {
        name: filename::file_name(s.id, FileKind::Wal),
        kind: FileKind::Wal,
        id: Some(s.id),
        end: s.bytes,
        manifest,
    };
    kept.iter().map(segment).collect()
}

/// Manifest and log segments as they are counted for a read-only database.
fn count_files_read_at_open(core: &EngineCore) -> VerifyResult {
    let segments = core.manifest.with_catalog(|catalog| catalog.logs.clone());
    let names = segments.iter().map(|(id, _)| filename::file_name(*id, FileKind::Wal));
    let lengths =
        names.chain([filename::MANIFEST.to_owned()]).map(|n| core.dir.file_len(&n).ok().flatten());
    let lengths: Vec<u64> = lengths.flatten().collect();
    VerifyResult {
        files: lengths.len() as u64,
        bytes: lengths.iter().sum(),
        ..VerifyResult::default()
    }
}

fn check_log(core: &EngineCore, file: &LogFile) -> Result<()> {
    match read_log(core, file) {
        // A flush removed the segment, or a new manifest took the old one's place, while we were
        // reading.
        Err(e) if file.kind == FileKind::Wal && e.kind() == ErrorKind::NotFound => Ok(()),
        Err(_)
            if file.kind == FileKind::Manifest
                && core.manifest.file_and_bytes().0 != file.manifest =>
        {
            Ok(())
        }
        read => read,
    }
}

fn read_log(core: &EngineCore, file: &LogFile) -> Result<()> {
    let mut log = LogReader::open(
        &*core.dir,
        &file.name,
        file.kind,
        file.id,
        Some(core.database_id),
        Some(file.end),
    )?;
    loop {
        match log.next_record()? {
            NextLogRecord::Record(_) => {}
            NextLogRecord::End => return Ok(()),
            NextLogRecord::Bad(bad) => return Err(bad.error),
        }
    }
}
