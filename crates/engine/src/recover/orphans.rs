//! Orphans: unreferenced files, such as outputs of unfinished jobs, and segments and tables whose
//! removal failed. They are moved to `trash/`, but only after the whole manifest was read and a new
//! one is durable.

use crate::catalog::manifest::{CatalogState, PreparedFiles};
use perigee_base::bug::{self, Bug};
use perigee_base::{FileKind, Result};
use perigee_env::Dir;
use perigee_file::filename;

/// Name of the directory for orphans.
pub const TRASH_DIR: &str = "trash";

/// Returns a file id larger than any in use. Ids are never reused, not even after a crash that left
/// files behind.
pub fn next_unused_id(dir: &dyn Dir, catalog: &CatalogState) -> Result<u64> {
    let mut names = dir.list()?;
    names.extend(dir.subdir(TRASH_DIR)?.list()?);
    // A stray file with an implausible number was not created by the engine.
    let ids = names
        .iter()
        .filter_map(|n| filename::parse_file_name(n))
        .map(|(id, _)| id.0)
        .filter(|id| *id < 1 << 60);
    let next = catalog.next_ids.file.0.max(ids.max().unwrap_or(0) + 1);
    check_slow!(
        catalog.data_files().last().is_none_or(|id| id.0 < next)
            && catalog.logs.iter().all(|(id, _)| id.0 < next),
        "a new file has a new id",
        next
    );
    Ok(next)
}

/// Deletes the trash of earlier opens, unless a log was just truncated, and moves new orphans into
/// it. Returns the number of files moved.
pub fn move_to_trash(dir: &dyn Dir, catalog: &CatalogState, edits: u64, cut: bool) -> Result<u64> {
    let trash = dir.subdir(TRASH_DIR)?;
    if !cut && edits > 1 {
        for old in trash.list()? {
            trash.remove(&old)?;
        }
    }
    let mut moved = 0;
    for file in unknown_files(dir, catalog)? {
        dir.move_into(&file, TRASH_DIR)?;
        moved += 1;
    }
    Ok(moved)
}

fn unknown_files(dir: &dyn Dir, catalog: &CatalogState) -> Result<Vec<String>> {
    let mut data = catalog.data_files();
    if bug::is_active(Bug::PreparedTablesOrphaned) {
        let prepared: Vec<_> = catalog.prepared_files().flat_map(PreparedFiles::ids).collect();
        data.retain(|id| !prepared.contains(id));
    }
    let is_referenced = |file: &String| match filename::parse_file_name(file) {
        Some((id, FileKind::Wal)) => {
            let mut logs = catalog.logs.iter().map(|(log, _)| *log);
            logs.any(|log| log == id) || catalog.retained.iter().any(|s| s.id == id)
        }
        Some((id, FileKind::Klog | FileKind::Vlog)) => data.contains(&id),
        _ => true,
    };
    Ok(dir.list()?.into_iter().filter(|f| !is_referenced(f)).collect())
}

/// Frees space on a full disk, after everything was read and nothing was truncated: removes the
/// leftovers of an interrupted open and the contents of the trash. Returns true if there were any.
///
/// Unless the manifest that was read is certainly `durable`, only unreferenced files with ids that
/// it had not yet allocated are removed: its rename may not have reached the disk, and a power
/// failure would bring back an older manifest that references older files.
pub fn remove_orphans(dir: &dyn Dir, catalog: &CatalogState, durable: bool) -> Result<bool> {
    let is_removable = |file: &String| {
        durable
            || filename::parse_file_name(file).is_some_and(|(id, _)| id >= catalog.next_ids.file)
    };
    let (unknown, trash) = (unknown_files(dir, catalog)?, dir.subdir(TRASH_DIR)?);
    let (left, old): (Vec<_>, _) =
        (unknown.into_iter().filter(is_removable).collect(), trash.list()?);
    left.iter().try_for_each(|file| dir.remove(file))?;
    old.iter().try_for_each(|file| trash.remove(file))?;
    if dir.file_len(filename::MANIFEST_TMP)?.is_some() {
        dir.remove(filename::MANIFEST_TMP)?;
    }
    trash.sync()?;
    dir.sync()?;
    Ok(!left.is_empty() || !old.is_empty())
}

/// Seeded bug: removes unknown files before anything is validated.
pub fn remove_all_unknown(dir: &dyn Dir, catalog: &CatalogState) -> Result<()> {
    unknown_files(dir, catalog)?.iter().try_for_each(|file| dir.remove(file))
}
