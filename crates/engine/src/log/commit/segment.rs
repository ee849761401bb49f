//! Starts log segments: uses the spare segment that a background thread has prepared, or creates
//! one if there is none.
//!
//! Invariant: file and header synced, directory synced, manifest edit synced; only then may a
//! record be appended. The first LSN of a spare segment is not known when it is created: its header
//! and the manifest say 0, and the next edit that concerns segments records it.

use crate::catalog::install::{CatalogChanges, LogChanges};
use crate::log::Log;
use crate::log::wal::Appender;
use crate::runtime::Runtime;
use crate::runtime::events::EngineEvent;
use perigee_base::bug::Bug;
use perigee_base::{ErrorKind, FileHeader, FileId, FileKind, Result, SeqNo, bug};
use perigee_file::filename;
use perigee_file::log::LogWriter;

/// Space for a segment is preallocated only if at least this many times its size is free.
const FREE_SPACE_RATIO: u64 = 8;

/// Starts a new segment. Called in the commit section.
pub fn begin_segment(log: &Log, appender: &mut Appender) -> Result<()> {
    let mut spare = log.wal.spare().lock_writer();
    let writer = match spare.take() {
        Some(writer) => writer,
        None => create_segment(log, appender.next_lsn, &appender.segment_first_lsns(), 0)?,
    };
    check_slow!(
        log.catalog.recorded_files().logs.iter().any(|(id, _)| *id == writer.id()),
        "the manifest lists a log segment before a record is appended to it",
        writer.id()
    );
    appender.switch_segment(writer);
    Ok(())
}

/// Requests a spare segment once the current one is full enough. Called in the commit section.
pub fn request_spare_segment(log: &Log, appender: &mut Appender) {
    if let Some(bytes) = appender.take_spare_request() {
        log.wal.spare().request_segment(bytes);
        log.runtime.signal.notify();
    }
}

/// Creates the requested spare segment, on a background thread. After a failure the next rotation
/// tries again and returns the error.
pub fn make_spare_segment(log: &Log) -> Result<()> {
    let Some(bytes) = log.wal.spare().take_request() else { return Ok(()) };
    let mut spare = log.wal.spare().lock_writer();
    if spare.is_some() {
        return Ok(());
    }
    let free = log
        .runtime
        .dir
        .free_space()
        .unwrap_or(0)
        .saturating_sub(2 * log.runtime.settings.min_free_space);
    match create_segment(
        log,
        SeqNo::ZERO,
        &[],
        if free / FREE_SPACE_RATIO >= bytes { bytes } else { 0 },
    ) {
        Ok(writer) => {
            *spare = Some(writer);
            Ok(())
        }
        Err(e) if log.runtime.health.poisoned().is_some() => Err(e),
        Err(e) => {
            log.runtime.report_event(&EngineEvent::Failed {
                what: "creating a spare log segment",
                error: &e,
            });
            Ok(())
        }
    }
}

/// Releases the preallocated space of the log, for a full disk. Returns true if any was released.
pub fn release_preallocated(log: &Log) -> bool {
    let mut appender = log.commit_section();
    let mut spare = log.wal.spare().lock_writer();
    let mut released = appender.writer.has_preallocated_space();
    let trimmed = appender.writer.trim_preallocated();
    if let Some(writer) = spare.as_mut() {
        released |= writer.has_preallocated_space();
        // What remains is trimmed at the next open.
        let _ = writer.trim_preallocated();
    }
    for older in &appender.older_segments {
        let name = filename::file_name(older.id, FileKind::Wal);
        if log.runtime.dir.file_len(&name).ok().flatten().is_some_and(|len| len > older.bytes) {
            released |= log
                .runtime
                .dir
                .append_to(&name)
                .and_then(|file| file.truncate(older.bytes))
                .is_ok();
        }
    }
    released && trimmed.is_ok()
}

/// Creates a segment with `bytes` preallocated that starts at LSN `first` (0: not known yet). The
/// manifest edit also records the first LSNs of the `known` segments where the manifest lacks them.
fn create_segment(
    log: &Log,
    first: SeqNo,
    known: &[(FileId, SeqNo)],
    bytes: u64,
) -> Result<LogWriter> {
    let id = log.catalog.allocate_file_id();
    let header = FileHeader {
        kind: FileKind::Wal,
        database: log.runtime.identity.database,
        file: id,
        a: first.0,
        b: log.runtime.identity.boot,
    };
    let created = create_segment_file(&log.runtime, id, &header, bytes).and_then(|writer| {
        let logs = LogChanges {
            added: Some((id, first)),
            segment_starts: known.to_vec(),
            ..LogChanges::default()
        };
        let durable_seq = Some(log.durable_seq());
        log.catalog.install(CatalogChanges { logs, durable_seq, ..CatalogChanges::default() })?;
        Ok(writer)
    });
    created.inspect_err(|e| {
        if log.runtime.health.poisoned().is_none() && e.kind() != ErrorKind::AlreadyExists {
            let _ = log.runtime.dir.remove(&filename::file_name(id, FileKind::Wal));
        }
    })
}

fn create_segment_file(
    runtime: &Runtime,
    id: FileId,
    header: &FileHeader,
    bytes: u64,
) -> Result<LogWriter> {
    let mut writer =
        LogWriter::create(&*runtime.dir, &filename::file_name(id, FileKind::Wal), header)?;
    writer.preallocate(bytes)?;
    writer.file().sync()?;
    if !bug::is_active(Bug::SkipDirSync) {
        runtime.sync_dir()?;
    }
    Ok(writer)
}
