//! A new segment of the log: the one that a background thread has made meanwhile, or, if there is
//! none, one that is made now.
//!
//! Invariant: file, header synced, directory synced, edit synced; only then may a record go there.
//! One that is made ahead does not know where it begins: its header and the manifest say 0, and the
//! next edit that has to do with segments says it.

use crate::core::{EngineCore, allocate_file_id};
use crate::events::EngineEvent;
use crate::manifest::ManifestEdit;
use crate::wal::Appender;
use perigee_base::bug::{self, Bug};
use perigee_base::file_header::{FileHeader, FileKind};
use perigee_base::{ErrorKind, FileId, Result};
use perigee_file::filename;
use perigee_file::log::LogWriter;

/// Space for a segment is taken ahead only where this many times as much is free.
const FREE_SPACE_RATIO: u64 = 8;

/// Begins a new segment, in the commit section.
pub fn begin_segment(core: &EngineCore, appender: &mut Appender) -> Result<()> {
    let mut spare = core.wal.spare().lock_writer();
    let writer = match spare.take() {
        Some(writer) => writer,
        None => create_segment(core, appender.next_lsn, &appender.segment_first_lsns(), 0)?,
    };
    appender.switch_segment(writer);
    Ok(())
}

/// Asks for the next one when it is time, in the commit section.
pub fn request_spare_segment(core: &EngineCore, appender: &mut Appender) {
    if let Some(bytes) = appender.take_spare_request() {
        core.wal.spare().request_segment(bytes);
        core.signal.notify();
    }
}

/// Makes the segment that was asked for, on a background thread. If that fails, a rotation tries
/// again and says why.
pub fn make_spare_segment(core: &EngineCore) -> Result<()> {
    let Some(bytes) = core.wal.spare().take_request() else { return Ok(()) };
    let mut spare = core.wal.spare().lock_writer();
    if spare.is_some() {
        return Ok(());
    }
    let free = core.dir.free_space().unwrap_or(0).saturating_sub(2 * core.settings.min_free_space);
    match create_segment(core, 0, &[], if free / FREE_SPACE_RATIO >= bytes { bytes } else { 0 }) {
        Ok(writer) => {
            *spare = Some(writer);
            Ok(())
        }
        Err(e) if core.health.poisoned().is_some() => Err(e),
        Err(e) => {
            core.report_event(&EngineEvent::Failed {
                what: "making a log segment ahead",
                error: &e,
            });
            Ok(())
        }
    }
}

/// On a full disk: gives back what the log has taken ahead; whether that was anything.
pub fn release_preallocated(core: &EngineCore) -> bool {
    let mut appender = core.wal.appender();
    let mut spare = core.wal.spare().lock_writer();
    let mut given = appender.writer.has_preallocated_space();
    let trimmed = appender.writer.trim_preallocated();
    if let Some(writer) = spare.as_mut() {
        given |= writer.has_preallocated_space();
        // What stays is taken back by the next open.
        let _ = writer.trim_preallocated();
    }
    for older in &appender.older_segments {
        let name = filename::file_name(older.id, FileKind::Wal);
        if core.dir.file_len(&name).ok().flatten().is_some_and(|len| len > older.bytes) {
            given |= core.dir.append_to(&name).and_then(|file| file.truncate(older.bytes)).is_ok();
        }
    }
    given && trimmed.is_ok()
}

/// Makes a segment that begins at `first` (0: not known yet), with so many bytes allocated. The
/// edit also says where those that are `known` begin, if the manifest does not know.
fn create_segment(
    core: &EngineCore,
    first: u64,
    known: &[(FileId, u64)],
    bytes: u64,
) -> Result<LogWriter> {
    let id = allocate_file_id(&core.next_file_id);
    let header = FileHeader {
        kind: FileKind::Wal,
        database: core.database_id,
        file: id,
        a: first,
        b: core.boot_id,
    };
    let made = create_segment_file(core, id, &header, bytes).and_then(|writer| {
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
    made.inspect_err(|e| {
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
