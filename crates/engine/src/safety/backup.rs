//! Creates a backup generation: copies the files that the backup does not contain yet, verifying
//! their recorded checksums, writes a new log and manifest, and finally the record. Until the
//! record has its name there is no new generation; earlier generations are never changed.

use super::backup_store::{BackupStore, INCOMING_PREFIX, generation_name, stored_name};
use super::database_image::DatabaseImage;
use super::file_copy::{self, DirEntry, RecordedFile};
use super::generation::{BackupGeneration, StoredFile};
use crate::core::EngineCore;
use perigee_base::file_header::FileKind;
use perigee_base::{ErrorKind, FileId, Result, SeqNo};
use perigee_file::filename;
use std::path::Path;

/// A number of files and their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupFileTotals {
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Summary of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupSummary {
    /// The new generation.
    pub generation: u64,
    /// Sequence number of the last operation in it.
    pub last_seq: SeqNo,
    /// Files that were copied.
    pub copied: BackupFileTotals,
    /// Files already contained in earlier generations.
    pub reused: BackupFileTotals,
}

/// Creates a generation in the backup directory `path`; calls `progress` with the bytes done and
/// the total bytes.
pub fn create_backup(
    core: &EngineCore,
    path: &Path,
    reread: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BackupSummary> {
    core.health.check_log_readable()?;
    let (store, _lock) = BackupStore::open_for_writing(&core.env, path)?;
    store.clear_incoming()?;
    let number = store.generation_numbers()?.last().map_or(1, |n| n + 1);
    let mut image = DatabaseImage::capture(core)?;
    let database = image.database();
    let mut out =
        BackupSummary { generation: number, last_seq: image.last_seq, ..BackupSummary::default() };
    let mut files = Vec::new();
    let data = image.files();
    let total = data.iter().map(|f| f.bytes).sum();
    let mut done = 0;
    for f in data {
        core.health.check_open()?;
        let file = StoredFile { kind: f.kind, id: f.id, bytes: f.bytes, checksum: f.checksum };
        let count =
            if store.contains_file(database, &file)? { &mut out.reused } else { &mut out.copied };
        (count.files, count.bytes) = (count.files + 1, count.bytes + f.bytes);
        copy_data_file(core, &store, database, &file, reread)?;
        files.push(file);
        done += f.bytes;
        progress(done, total);
    }
    let incoming = format!("{INCOMING_PREFIX}.log");
    let (log, bytes) = image.write_log(&*store.dir, &incoming)?;
    files.push(name_by_checksum(&store, database, &incoming, FileKind::Wal, log, bytes)?);
    let incoming = format!("{INCOMING_PREFIX}.manifest");
    let (manifest, bytes) = image.write_manifest(&*store.dir, &incoming)?;
    files.push(name_by_checksum(&store, database, &incoming, FileKind::Manifest, manifest, bytes)?);
    files.sort_by_key(|f| (f.kind as u8, f.id));
    store.dir.sync()?;
    let created_ms = core.env.clock.wall_ms();
    let generation =
        BackupGeneration { number, database, last_seq: image.last_seq, created_ms, files };
    write_record(&store, &generation)?;
    Ok(out)
}

/// Copies a data file, unless the backup contains it.
fn copy_data_file(
    core: &EngineCore,
    store: &BackupStore,
    database: u64,
    file: &StoredFile,
    reread: bool,
) -> Result<()> {
    if store.contains_file(database, file)? {
        return Ok(());
    }
    let incoming = format!("{INCOMING_PREFIX}.data");
    let name = filename::file_name(file.id, file.kind);
    let recorded = RecordedFile { id: file.id, bytes: file.bytes, checksum: file.checksum };
    let (from, to) =
        (DirEntry { dir: &*core.dir, name: &name }, DirEntry { dir: &*store.dir, name: &incoming });
    file_copy::copy_file(from, to, recorded)?;
    if reread {
        file_copy::verify_file(&*store.dir, &incoming, recorded, |_| Ok(()))?;
    }
    store.dir.rename(&incoming, &stored_name(database, file))
}

/// Reads back a file that was just written, and renames it according to its checksum.
fn name_by_checksum(
    store: &BackupStore,
    database: u64,
    incoming: &str,
    kind: FileKind,
    id: FileId,
    bytes: u64,
) -> Result<StoredFile> {
    let checksum = file_copy::read_file(&*store.dir, incoming, id, bytes, |_| Ok(()))?;
    let file = StoredFile { kind, id, bytes, checksum };
    store.dir.rename(incoming, &stored_name(database, &file))?;
    Ok(file)
}

/// Writes the record: syncs its contents, renames it, then syncs the directory.
fn write_record(store: &BackupStore, generation: &BackupGeneration) -> Result<()> {
    let incoming = format!("{INCOMING_PREFIX}.generation");
    let out = store.dir.create(&incoming)?;
    out.append(&[&generation.encode()])?;
    out.sync()?;
    store.dir.rename(&incoming, &generation_name(generation.number))?;
    let synced = store.dir.sync();
    synced.map_err(|e| {
        e.wrap(
            ErrorKind::OutcomeUnknown,
            "the new generation may or may not survive a power failure",
        )
    })
}
