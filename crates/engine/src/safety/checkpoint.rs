//! A second database with the same contents, at the price of names: immutable files are linked
//! (copied where the file system cannot link), the manifest and the log are its own. What is not in
//! tables yet travels in the copied log: nothing is flushed, nobody waits.

use super::database_image::DatabaseImage;
use super::directory_builder::DirectoryBuilder;
use super::file_copy;
use crate::core::EngineCore;
use perigee_base::bug::{self, Bug};
use perigee_base::file_header::FileKind;
use perigee_base::{FileId, Result};
use perigee_env::Dir;
use perigee_file::filename;
use std::path::Path;

/// What was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// The last operation in it.
    pub last_seq: u64,
    /// Files that share their bytes with the source.
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

/// Makes a checkpoint in `target`.
pub fn create_checkpoint(core: &EngineCore, target: &Path) -> Result<CheckpointSummary> {
    core.health.check_log_readable()?;
    let building = DirectoryBuilder::begin(&core.env, target)?;
    building.fill(|dir| {
        let mut picture = DatabaseImage::capture(core)?;
        let mut out =
            CheckpointSummary { last_seq: picture.last_seq, ..CheckpointSummary::default() };
        for file in picture.files() {
            core.health.check_open()?;
            let called = filename::file_name(file.id, file.kind);
            if core.dir.link_into(&called, &**dir)? {
                out.linked_files += 1;
                out.linked_bytes += file.bytes;
            } else {
                file_copy::copy_file(
                    (&*core.dir, &called),
                    (&**dir, &called),
                    file.id,
                    (file.bytes, file.checksum),
                )?;
                out.copied_files += 1;
                out.copied_bytes += file.bytes;
            }
        }
        out.own_bytes = write_log_and_manifest(&mut picture, &**dir)?;
        Ok(out)
    })
}

/// Log, names synced, then the manifest under its temporary name, renamed, names synced.
fn write_log_and_manifest(picture: &mut DatabaseImage, dir: &dyn Dir) -> Result<u64> {
    let temporary = "000000.wal";
    let (id, log) = picture.write_log(dir, temporary)?;
    dir.rename(temporary, &wal_file_name(id))?;
    let (_, manifest) = picture.write_manifest(dir, filename::MANIFEST_TMP)?;
    dir.rename(filename::MANIFEST_TMP, filename::MANIFEST)?;
    if !bug::is_active(Bug::CheckpointSkipsDirSync) {
        dir.sync()?;
    }
    Ok(log + manifest)
}

fn wal_file_name(id: FileId) -> String {
    filename::file_name(id, FileKind::Wal)
}
