//! Files that nothing names: outputs of jobs that did not finish, segments and tables whose removal
//! did not. They go to `trash/`, and only after the manifest was read whole and a new one is
//! durable.

use crate::manifest::Catalog;
use perigee_base::Result;
use perigee_base::file_header::FileKind;
use perigee_env::Dir;
use perigee_file::filename;

/// The directory of orphans.
pub const TRASH_DIR: &str = "trash";

/// A file id larger than any in use: ids are never used twice, also not after a crash that left
/// files behind.
pub fn next_unused_id(dir: &dyn Dir, catalog: &Catalog) -> Result<u64> {
    let mut names = dir.list()?;
    names.extend(dir.subdir(TRASH_DIR)?.list()?);
    // A stray file with an absurd number is not ours.
    let ids = names
        .iter()
        .filter_map(|n| filename::parse_file_name(n))
        .map(|(id, _)| id.0)
        .filter(|id| *id < 1 << 60);
    Ok(catalog.next_ids.0.max(ids.max().unwrap_or(0) + 1))
}

/// Empties the trash of earlier opens, unless something was cut from a log just now, and moves new
/// orphans into it. Returns how many.
pub fn move_to_trash(dir: &dyn Dir, catalog: &Catalog, edits: u64, cut: bool) -> Result<u64> {
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

fn unknown_files(dir: &dyn Dir, catalog: &Catalog) -> Result<Vec<String>> {
    let data = catalog.data_files();
    let named = |file: &String| match filename::parse_file_name(file) {
        Some((id, FileKind::Wal)) => {
            let mut logs = catalog.logs.iter().map(|(log, _)| *log);
            logs.any(|log| log == id) || catalog.retained.iter().any(|s| s.id == id)
        }
        Some((id, FileKind::Klog | FileKind::Vlog)) => data.contains(&id),
        _ => true,
    };
    Ok(dir.list()?.into_iter().filter(|f| !named(f)).collect())
}

/// On a full disk, when everything was read and nothing was cut: removes what an open that was cut
/// short left behind, and what lies in the trash; whether there was anything.
///
/// Unless the manifest that was read is certainly `durable`, only those of the unknown files go
/// whose number it had not given out yet: its rename may never have reached the disk, and a power
/// cut would bring back an older one, which names older files.
pub fn remove_orphans(dir: &dyn Dir, catalog: &Catalog, durable: bool) -> Result<bool> {
    let later = |file: &String| {
        durable || filename::parse_file_name(file).is_some_and(|(id, _)| id.0 >= catalog.next_ids.0)
    };
    let (unknown, trash) = (unknown_files(dir, catalog)?, dir.subdir(TRASH_DIR)?);
    let (left, old): (Vec<_>, _) = (unknown.into_iter().filter(later).collect(), trash.list()?);
    left.iter().try_for_each(|file| dir.remove(file))?;
    old.iter().try_for_each(|file| trash.remove(file))?;
    if dir.file_len(filename::MANIFEST_TMP)?.is_some() {
        dir.remove(filename::MANIFEST_TMP)?;
    }
    trash.sync()?;
    dir.sync()?;
    Ok(!left.is_empty() || !old.is_empty())
}

/// The seeded bug: remove first, check later.
pub fn remove_all_unknown(dir: &dyn Dir, catalog: &Catalog) -> Result<()> {
    unknown_files(dir, catalog)?.iter().try_for_each(|file| dir.remove(file))
}
