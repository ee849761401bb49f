//! Creates a second database with the same contents cheaply: immutable files are hard-linked
//! (copied where the file system does not support links); manifest and log are new. Data that is
//! not in tables is contained in the copied log: nothing is flushed, and writers do not wait.

use super::database_image::DatabaseImage;
use super::directory_builder::DirectoryBuilder;
use super::file_copy::{self, DirEntry, RecordedFile};
use crate::core::EngineCore;
use perigee_base::bug::{self, Bug};
use perigee_base::file_header::FileKind;
use perigee_base::{FileId, Result, SeqNo};
use perigee_env::Dir;
use perigee_file::filename;
use std::path::Path;

/// Summary of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// Sequence number of the last operation in it.
    pub last_seq: SeqNo,
    /// Files linked to those of the source.
    pub linked_files: u64,
    /// Their bytes.
    pub linked_bytes: u64,
    /// Files that had to be copied.
    pub copied_files: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Bytes of its own log and manifest.
    pub own_bytes: u64,
}

/// Creates a checkpoint in `target`.
pub fn create_checkpoint(core: &EngineCore, target: &Path) -> Result<CheckpointSummary> {
    core.health.check_log_readable()?;
    let builder = DirectoryBuilder::begin(&core.env, target)?;
    builder.fill(|dir| {
        let mut image = DatabaseImage::capture(core)?;
        let mut out =
            CheckpointSummary { last_seq: image.last_seq, ..CheckpointSummary::default() };
        for file in image.files() {
            core.health.check_open()?;
            let name = filename::file_name(file.id, file.kind);
            if core.dir.link_into(&name, &**dir)? {
                out.linked_files += 1;
                out.linked_bytes += file.bytes;
            } else {
                file_copy::copy_file(
                    DirEntry { dir: &*core.dir, name: &name },
                    DirEntry { dir: &**dir, name: &name },
                    RecordedFile { id: file.id, bytes: file.bytes, checksum: file.checksum },
                )?;
                out.copied_files += 1;
                out.copied_bytes += file.bytes;
            }
        }
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
