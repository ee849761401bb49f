//! Creates a second database with the same contents cheaply: immutable files are hard-linked
//! (copied where the file system does not support links); manifest and log are new. Data that is
//! not in tables is contained in the copied log: nothing is flushed, and writers do not wait.

use super::database_image::DatabaseImage;
use super::directory_builder::DirectoryBuilder;
use super::file_copy::{self, DirEntry, RecordedFile};
use super::reports::CheckpointReport;
use crate::log::Log;
use perigee_base::bug::Bug;
use perigee_base::{FileId, FileKind, Result, bug};
use perigee_env::Dir;
use perigee_file::filename;
use std::path::Path;

/// Creates a checkpoint in `target`.
pub fn create_checkpoint(log: &Log, target: &Path) -> Result<CheckpointReport> {
    log.runtime.health.check_log_readable()?;
    let builder = DirectoryBuilder::begin(&log.runtime.env, target)?;
    builder.fill(|dir| {
        let mut image = DatabaseImage::capture(log)?;
        let mut out =
            CheckpointReport { sequence: image.last_seq.0, ..CheckpointReport::default() };
        for file in image.files() {
            log.runtime.health.check_open()?;
            let name = filename::file_name(file.id, file.kind);
            if log.runtime.dir.link_into(&name, &**dir)? {
                out.linked_files += 1;
                out.linked_bytes += file.bytes;
            } else {
                file_copy::copy_file(
                    DirEntry { dir: &*log.runtime.dir, name: &name },
                    DirEntry { dir: &**dir, name: &name },
                    RecordedFile { id: file.id, bytes: file.bytes, checksum: file.checksum },
                )?;
                out.copied_files += 1;
                out.copied_bytes += file.bytes;
            }
        }
        check!(
            out.linked_files + out.copied_files == image.files().len() as u64,
            "a checkpoint has every file of the database",
            out.linked_files,
            out.copied_files
        );
        out.own_bytes = write_log_and_manifest(&mut image, &**dir)?;
        Ok(out)
    })
}

/// Writes the log, syncs the directory, writes the manifest under its temporary name, renames it
/// and syncs the directory.
fn write_log_and_manifest(image: &mut DatabaseImage, dir: &dyn Dir) -> Result<u64> {
    let temporary = "000000.wal";
    let (id, log) = image.write_log(dir, temporary)?;
    dir.rename(temporary, &wal_file_name(id))?;
    let (_, manifest) = image.write_manifest(dir, filename::MANIFEST_TMP)?;
    dir.rename(filename::MANIFEST_TMP, filename::MANIFEST)?;
    if !bug::is_active(Bug::CheckpointSkipsDirSync) {
        dir.sync()?;
    }
    Ok(log + manifest)
}

fn wal_file_name(id: FileId) -> String {
    filename::file_name(id, FileKind::Wal)
}
