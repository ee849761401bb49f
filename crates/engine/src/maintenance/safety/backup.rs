//! Creates a backup generation: copies the files that the backup does not contain yet, verifying
//! their recorded checksums, writes a new log and manifest, and finally the record. Until the
//! record has its name there is no new generation; earlier generations are never changed.

use super::backup_store::{BackupStore, INCOMING_PREFIX, generation_name, stored_name};
use super::database_image::DatabaseImage;
use super::file_copy::{self, DirEntry, RecordedFile};
use super::generation::{BackupGeneration, StoredFile};
use super::reports::BackupReport;
use crate::log::Log;
use crate::runtime::Runtime;
use perigee_base::{ErrorKind, FileId, FileKind, Result};
use perigee_file::filename;
use std::path::Path;

/// Creates a generation in the backup directory `path`; calls `progress` with the bytes done and
/// the total bytes.
pub fn create_backup(
    log: &Log,
    path: &Path,
    reread: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BackupReport> {
    log.runtime.health.check_log_readable()?;
    let (store, _lock) = BackupStore::open_for_writing(&log.runtime.env, path)?;
    store.clear_incoming()?;
    let number = store.generation_numbers()?.last().map_or(1, |n| n + 1);
    let mut image = DatabaseImage::capture(log)?;
    let database = image.database();
    let mut out =
        BackupReport { generation: number, sequence: image.last_seq.0, ..BackupReport::default() };
    let mut files = Vec::new();
    let data = image.files();
    let total = data.iter().map(|f| f.bytes).sum();
    let mut done = 0;
    for f in data {
        log.runtime.health.check_open()?;
        let file = StoredFile { kind: f.kind, id: f.id, bytes: f.bytes, checksum: f.checksum };
        let (files_counted, bytes_counted) = match store.contains_file(database, &file)? {
            true => (&mut out.shared_files, &mut out.shared_bytes),
            false => (&mut out.new_files, &mut out.new_bytes),
        };
        *files_counted += 1;
        *bytes_counted += f.bytes;
        copy_data_file(&log.runtime, &store, database, &file, reread)?;
        files.push(file);
        done += f.bytes;
        progress(done, total);
    }
    let incoming = format!("{INCOMING_PREFIX}.log");
    check!(
        out.new_files + out.shared_files == files.len() as u64 && done == total,
        "a backup has every file of the database",
        out.new_files,
        out.shared_files,
        done,
        total
    );
    let (id, bytes) = image.write_log(&*store.dir, &incoming)?;
    files.push(name_by_checksum(&store, database, &incoming, FileKind::Wal, id, bytes)?);
    let incoming = format!("{INCOMING_PREFIX}.manifest");
    let (manifest, bytes) = image.write_manifest(&*store.dir, &incoming)?;
    files.push(name_by_checksum(&store, database, &incoming, FileKind::Manifest, manifest, bytes)?);
    files.sort_by_key(|f| (f.kind as u8, f.id));
    store.dir.sync()?;
    let created_ms = log.runtime.env.clock.wall_ms();
    let generation =
        BackupGeneration { number, database, last_seq: image.last_seq, created_ms, files };
    write_record(&store, &generation)?;
    Ok(out)
}

/// Copies a data file, unless the backup contains it.
fn copy_data_file(
    runtime: &Runtime,
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
    let (from, to) = (
        DirEntry { dir: &*runtime.dir, name: &name },
        DirEntry { dir: &*store.dir, name: &incoming },
    );
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
    let record = generation.encode();
    check_slow!(
        BackupGeneration::decode(&record, generation.number).is_ok_and(|g| g == *generation),
        "the record of a backup can be read back",
        generation
    );
    let out = store.dir.create(&incoming)?;
    out.append(&[&record])?;
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
