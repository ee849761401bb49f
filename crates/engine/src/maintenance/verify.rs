//! Reads and verifies every byte of every file.

use crate::catalog::retained_logs::LogSpan;
use crate::catalog::{Catalog, RecordedFiles};
use crate::log::Log;
use crate::runtime::Runtime;
use crate::stats::VerifyReport;
use perigee_base::{Bytes, ErrorKind, FileId, FileKind, Result};
use perigee_file::filename;
use perigee_file::log::{LogReader, NextLogRecord};
use perigee_tree::{Version, View};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Verifies the database as of now; `progress` is called with the bytes done and the total bytes.
///
/// # Errors
/// Only those that stop the whole pass (`Closed`); damage is reported in the result.
pub fn verify(log: &Log, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
    log.runtime.health.check_open()?;
    let views: Vec<Arc<View>> =
        log.catalog.families().all().iter().map(|f| f.tree.view()).collect();
    let read_only = log.runtime.health.is_read_only();
    let logs = if read_only { retained_segments(&log.catalog) } else { log_files(log) };
    let mut counted = BTreeSet::new();
    let tables = views.iter().map(|v| data_bytes(&v.version, &mut counted)).sum::<u64>();
    // Of prepared transactions; commits may have added their files to a version since.
    let prepared = log.txns.prepared_txns().all();
    let spilled = || prepared.iter().filter_map(|p| p.spilled());
    let spilled_tables: Vec<_> =
        spilled().flat_map(|s| s.tables()).filter(|t| counted.insert(t.meta.id)).collect();
    let mut spilled_vlogs = spilled().flat_map(|s| &s.vlogs).map(|(_, v)| v).collect::<Vec<_>>();
    spilled_vlogs.retain(|v| counted.insert(v.meta.id));
    let tables = tables
        + spilled_tables.iter().map(|t| t.meta.summary.bytes).sum::<u64>()
        + spilled_vlogs.iter().map(|v| v.meta.bytes).sum::<u64>();
    let mut seen = BTreeSet::new();
    let total = tables + logs.iter().map(|l| l.end).sum::<u64>();
    // A read-only open has read the manifest and the log segments that recovery needs, and verified
    // every byte of them; the writer may have changed them since.
    let mut out =
        if read_only { count_files_read_at_open(&log.catalog) } else { VerifyReport::default() };
    let total = total + out.bytes;
    for file in logs {
        let checked = check_log(&log.catalog, &file);
        count_file(&mut out, file.end, checked)?;
        progress(out.bytes, total);
    }
    let in_versions = views.iter().flat_map(|v| v.version.tables()).map(|(_, _, t)| t);
    for t in in_versions.chain(spilled_tables).filter(|t| seen.insert(t.meta.id)) {
        log.runtime.health.check_open()?;
        let before = out.bytes;
        let checked =
            t.reader.verify(t.meta.summary.checksum, &mut |done| progress(before + done, total));
        out.entries += t.meta.summary.entries;
        count_file(&mut out, t.meta.summary.bytes, checked)?;
    }
    let in_versions = views.iter().flat_map(|v| v.version.vlogs.values());
    for v in in_versions.chain(spilled_vlogs).filter(|v| seen.insert(v.meta.id)) {
        log.runtime.health.check_open()?;
        let before = out.bytes;
        let checked = v.reader.verify(v.meta.checksum, &mut |done| progress(before + done, total));
        count_file(&mut out, v.meta.bytes, checked)?;
    }
    check_slow!(
        out.bytes == total,
        "a verification reads every byte that it has counted",
        out.bytes,
        total
    );
    progress(total, total);
    Ok(out)
}

/// Counts a file and its error. If the database was closed meanwhile the pass ends: its files are
/// not damaged.
fn count_file(out: &mut VerifyReport, bytes: u64, checked: Result<()>) -> Result<()> {
    out.files += 1;
    out.bytes += bytes;
    match checked {
        Err(e) if e.kind() == ErrorKind::Closed => return Err(e),
        Err(e) => out.errors.push(e),
        Ok(()) => {}
    }
    Ok(())
}

/// Returns the bytes of a version's files, except those already `seen`: clones share files.
fn data_bytes(v: &Version, seen: &mut BTreeSet<FileId>) -> u64 {
    let tables = v.tables().map(|(_, _, t)| (t.meta.id, t.meta.summary.bytes));
    let all = tables.chain(v.vlogs.values().map(|v| (v.meta.id, v.meta.bytes)));
    all.filter(|(id, _)| seen.insert(*id)).map(|(_, bytes)| bytes).sum()
}

/// A log file and the offset up to which it is verified: what is appended later is not read.
struct LogFile {
    name: String,
    kind: FileKind,
    id: Option<FileId>,
    end: u64,
    /// File id of the manifest when the pass began: a rewrite changes it.
    manifest: FileId,
}

fn log_files(log: &Log) -> Vec<LogFile> {
    let recorded = log.catalog.recorded_files();
    let wal = |id: FileId, end| LogFile {
        name: filename::file_name(id, FileKind::Wal),
        kind: FileKind::Wal,
        id: Some(id),
        end,
        manifest: recorded.manifest,
    };
    let mut all: Vec<LogFile> =
        log.commit_section().segments().map(|s| wal(s.id, s.bytes)).collect();
    let retained = log.catalog.recorded_files().retained;
    let is_listed = |id| all.iter().any(|l| l.id == Some(id));
    let retained: Vec<LogFile> =
        retained.iter().filter(|s| !is_listed(s.id)).map(|s| wal(s.id, s.bytes)).collect();
    all.extend(retained);
    all.push(LogFile {
        name: filename::MANIFEST.into(),
        kind: FileKind::Manifest,
        id: None,
        end: recorded.manifest_bytes,
        manifest: recorded.manifest,
    });
    all
}

/// Returns the complete segments retained for log readers; recovery, and so a read-only open, does
/// not read them.
fn retained_segments(catalog: &Catalog) -> Vec<LogFile> {
    let RecordedFiles { manifest, retained, .. } = catalog.recorded_files();
    let segment = |s: &LogSpan| LogFile {
        name: filename::file_name(s.id, FileKind::Wal),
        kind: FileKind::Wal,
        id: Some(s.id),
        end: s.bytes,
        manifest,
    };
    retained.iter().map(segment).collect()
}

/// Counts the manifest and log segments for a read-only database.
fn count_files_read_at_open(catalog: &Catalog) -> VerifyReport {
    let segments = catalog.recorded_files().logs;
    let names = segments.iter().map(|(id, _)| filename::file_name(*id, FileKind::Wal));
    let lengths = names
        .chain([filename::MANIFEST.to_owned()])
        .map(|n| catalog.runtime.dir.file_len(&n).ok().flatten());
    let lengths: Vec<u64> = lengths.flatten().collect();
    VerifyReport {
        files: lengths.len() as u64,
        bytes: lengths.iter().sum(),
        ..VerifyReport::default()
    }
}

fn check_log(catalog: &Catalog, file: &LogFile) -> Result<()> {
    match read_log(&catalog.runtime, file) {
        // A flush removed the segment, or a new manifest replaced the old one, while this thread
        // was reading.
        Err(e) if file.kind == FileKind::Wal && e.kind() == ErrorKind::NotFound => Ok(()),
        Err(_)
            if file.kind == FileKind::Manifest
                && catalog.recorded_files().manifest != file.manifest =>
        {
            Ok(())
        }
        read => read,
    }
}

fn read_log(runtime: &Runtime, file: &LogFile) -> Result<()> {
    let mut log = LogReader::open(
        &*runtime.dir,
        &file.name,
        file.kind,
        file.id,
        Some(runtime.identity.database),
        Some(Bytes(file.end)),
    )?;
    loop {
        match log.next_record()? {
            NextLogRecord::Record(_) => {}
            NextLogRecord::End => return Ok(()),
            NextLogRecord::Bad(bad) => return Err(bad.error),
        }
    }
}
