//! A second database with the same contents, at the price of names: immutable files are linked (copied where the file
//! system cannot link), the manifest and the log are its own. What is not in tables yet travels in the copied log: nothing
//! is flushed, nobody waits.

use super::build::Building;
use super::copy;
use super::picture::Picture;
use crate::core::Core;
use perigee_base::bug::{self, Bug};
use perigee_base::format::FileKind;
use perigee_base::{FileId, Result};
use perigee_env::Dir;
use perigee_file::name;
use std::path::Path;

/// What was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpointed {
    /// The last operation in it.
    pub sequence: u64,
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
pub fn checkpoint(core: &Core, target: &Path) -> Result<Checkpointed> {
    core.health.check_readable_log()?;
    let building = Building::begin(&core.env, target)?;
    building.fill(|dir| {
        let mut picture = Picture::take(core)?;
        let mut out = Checkpointed { sequence: picture.last, ..Checkpointed::default() };
        for file in picture.files() {
            core.health.check_open()?;
            let called = name::file_name(file.id, file.kind);
            if core.dir.link_into(&called, &**dir)? {
                out.linked_files += 1;
                out.linked_bytes += file.bytes;
            } else {
                copy::copy((&*core.dir, &called), (&**dir, &called), file.id, (file.bytes, file.checksum))?;
                out.copied_files += 1;
                out.copied_bytes += file.bytes;
            }
        }
        out.own_bytes = write_own(&mut picture, &**dir)?;
        Ok(out)
    })
}

/// Log, names synced, then the manifest under its temporary name, renamed, names synced.
fn write_own(picture: &mut Picture, dir: &dyn Dir) -> Result<u64> {
    let temporary = "000000.wal";
    let (id, log) = picture.write_log(dir, temporary)?;
    dir.rename(temporary, &wal_name(id))?;
    let (_, manifest) = picture.write_manifest(dir, name::MANIFEST_TMP)?;
    dir.rename(name::MANIFEST_TMP, name::MANIFEST)?;
    if !bug::on(Bug::CheckpointSkipsDirSync) {
        dir.sync()?;
    }
    Ok(log + manifest)
}

fn wal_name(id: FileId) -> String {
    name::file_name(id, FileKind::Wal)
}
