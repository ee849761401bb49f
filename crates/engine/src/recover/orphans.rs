//! Files that nothing names: outputs of jobs that did not finish, segments and tables whose removal did not. They go to
//! `trash/`, and only after the manifest was read whole and a new one is durable.

use crate::manifest::Catalog;
use perigee_base::Result;
use perigee_base::format::FileKind;
use perigee_env::Dir;
use perigee_file::name;

/// The directory of orphans.
pub const TRASH: &str = "trash";

/// A file id larger than any in use: ids are never used twice, also not after a crash that left files behind.
pub fn next_id(dir: &dyn Dir, catalog: &Catalog) -> Result<u64> {
    let mut names = dir.list()?;
    names.extend(dir.subdir(TRASH)?.list()?);
    // A stray file with an absurd number is not ours.
    let ids = names.iter().filter_map(|n| name::parse(n)).map(|(id, _)| id.0).filter(|id| *id < 1 << 60);
    Ok(catalog.next.0.max(ids.max().unwrap_or(0) + 1))
}

/// Empties the trash of earlier opens, unless something was cut from a log just now, and moves new orphans into it.
/// Returns how many.
pub fn tidy(dir: &dyn Dir, catalog: &Catalog, edits: u64, cut: bool) -> Result<u64> {
    let trash = dir.subdir(TRASH)?;
    if !cut && edits > 1 {
        for old in trash.list()? {
            trash.remove(&old)?;
        }
    }
    let mut moved = 0;
    for file in unknown(dir, catalog)? {
        dir.move_into(&file, TRASH)?;
        moved += 1;
    }
    Ok(moved)
}

fn unknown(dir: &dyn Dir, catalog: &Catalog) -> Result<Vec<String>> {
    let data = catalog.data_files();
    let named = |file: &String| match name::parse(file) {
        Some((id, FileKind::Wal)) => catalog.logs.iter().any(|(log, _)| *log == id),
        Some((id, FileKind::Klog | FileKind::Vlog)) => data.contains(&id),
        _ => true,
    };
    Ok(dir.list()?.into_iter().filter(|f| !named(f)).collect())
}

/// On a full disk, when everything was read and nothing was cut: removes what no manifest names and what lies in the trash;
/// whether there was anything. (An open that was cut short on a full disk leaves its copy of the log behind.)
///
/// The manifest that was read may be one whose rename an earlier open could not sync: a power cut would bring back the one before,
/// and that must find its files. So only those go whose numbers the manifest had not given out yet.
pub fn make_room(dir: &dyn Dir, catalog: &Catalog) -> Result<bool> {
    let newer = |file: &String| name::parse(file).is_some_and(|(id, _)| id.0 >= catalog.next.0);
    let unknown: Vec<_> = unknown(dir, catalog)?.into_iter().filter(newer).collect();
    let trash = dir.subdir(TRASH)?;
    let old = trash.list()?;
    unknown.iter().try_for_each(|file| dir.remove(file))?;
    old.iter().try_for_each(|file| trash.remove(file))?;
    if dir.file_len(name::MANIFEST_TMP)?.is_some() {
        dir.remove(name::MANIFEST_TMP)?;
    }
    trash.sync()?;
    dir.sync()?;
    Ok(!unknown.is_empty() || !old.is_empty())
}

/// The seeded bug: remove first, check later.
pub fn remove_all_unknown(dir: &dyn Dir, catalog: &Catalog) -> Result<()> {
    unknown(dir, catalog)?.iter().try_for_each(|file| dir.remove(file))
}
