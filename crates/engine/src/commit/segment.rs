//! Starts log segments: uses the spare segment that a background thread has prepared, or creates
//! one if there is none.
//!
//! Invariant: file and header synced, directory synced, manifest edit synced; only then may a
//! record be appended. The first LSN of a spare segment is not known when it is created: its header
//! and the manifest say 0, and the next edit that concerns segments records it.

use crate::core::{EngineCore, allocate_file_id};
use crate::events::EngineEvent;
use crate::manifest::ManifestEdit;
use crate::wal::Appender;
use perigee_base::bug::{self, Bug};
use perigee_base::file_header::{FileHeader, FileKind};
use perigee_base::{ErrorKind, FileId, Result, SeqNo};
use perigee_file::filename;
use perigee_file::log::LogWriter;

/// Space for a segment is preallocated only if at least this many times its size is free.
const FREE_SPACE_RATIO: u64 = 8;

/// Starts a new segment. Called in the commit section.
pub fn begin_segment(core: &EngineCore, appender: &mut Appender) -> Result<()> {
    let mut spare = core.wal.spare().lock_writer();
    let writer = match spare.take() {
        Some(writer) => writer,
        None => create_segment(core, appender.next_lsn, &appender.segment_first_lsns(), 0)?,
    };
    appender.switch_segment(writer);
    Ok(())
}

/// Requests a spare segment once the current one is full enough. Called in the commit section.
pub fn request_spare_segment(core: &EngineCore, appender: &mut Appender) {
    if let Some(bytes) = appender.take_spare_request() {
        core.wal.spare().request_segment(bytes);
        core.signal.notify();
    }
}

/// Creates the requested spare segment, on a background thread. After a failure the next rotation
/// tries again and returns the error.
pub fn make_spare_segment(core: &EngineCore) -> Result<()> {
    let Some(bytes) = core.wal.spare().take_request() else { return Ok(()) };
    let mut spare = core.wal.spare().lock_writer();
    if spare.is_some() {
        return Ok(());
    }
    let free = core.dir.free_space().unwrap_or(0).saturating_sub(2 * core.settings.min_free_space);
    match create_segment(
        core,
        SeqNo::ZERO,
        &[],
        if free / FREE_SPACE_RATIO >= bytes { bytes } else { 0 },
    ) {
        Ok(writer) => {
            *spare = Some(writer);
            Ok(())
        }
        Err(e) if core.health.poisoned().is_some() => Err(e),
        Err(e) => {
            core.report_event(&EngineEvent::Failed {
                what: "creating a spare log segment",
                error: &e,
            });
            Ok(())
        }
    }
}

/// Releases the preallocated space of the log, for a full disk. Returns true if any was released.
pub fn release_preallocated(core: &EngineCore) -> bool {
    let mut appender = core.wal.appender();
    let mut spare = core.wal.spare().lock_writer();
    let mut released = appender.writer.has_preallocated_space();
    let trimmed = appender.writer.trim_preallocated();
    if let Some(writer) = spare.as_mut() {
        released |= writer.has_preallocated_space();
        // What remains is trimmed at the next open.
        let _ = writer.trim_preallocated();
    }
    for older in &appender.older_segments {
        let name = filename::file_name(older.id, FileKind::Wal);
        if core.dir.file_len(&name).ok().flatten().is_some_and(|len| len > older.bytes) {
            released |=
                core.dir.append_to(&name).and_then(|file| file.truncate(older.bytes)).is_ok();
        }
    }
    released && trimmed.is_ok()
}

/// Creates a segment with `bytes` preallocated that starts at LSN `first` (0: not known yet). The
/// manifest edit also records the first LSNs of the `known` segments where the manifest lacks them.
fn create_segment(
    core: &EngineCore,
    first: SeqNo,
    known: &[(FileId, SeqNo)],
    bytes: u64,
) -> Result<LogWriter> {
    let id = allocate_file_id(&core.next_file_id);
    let header = FileHeader {
        kind: FileKind::Wal,
        database: core.database_id,
        file: id,
        a: first.0,
        b: core.boot_id,
    };
    let created = create_segment_file(core, id, &header, bytes).and_then(|writer| {
        let prepare = |catalog: &crate::manifest::Catalog| {
            let mut logs_added = catalog.missing_log_starts(known);
            logs_added.push((id, first));
            Ok((
                ManifestEdit {
                    logs_added,
                    durable_seq: Some(core.wal.durable()),
                    ..ManifestEdit::default()
                },
                (),
            ))
        };
        core.manifest.commit_edit(&core.health, &core.next_file_id, prepare, |()| {})?;
        Ok(writer)
    });
    created.inspect_err(|e| {
        if core.health.poisoned().is_none() && e.kind() != ErrorKind::AlreadyExists {
            let _ = core.dir.remove(&filename::file_name(id, FileKind::Wal));
        }
    })
}

fn create_segment_file(
    core: &EngineCore,
    id: FileId,
    header: &FileHeader,
    bytes: u64,
) -> Result<LogWriter> {
    let mut writer =
        LogWriter::create(&*core.dir, &filename::file_name(id, FileKind::Wal), header)?;
    writer.preallocate(bytes)?;
    writer.file().sync()?;
    if !bug::is_active(Bug::SkipDirSync) {
        core.sync_dir()?;
    }
    Ok(writer)
}
