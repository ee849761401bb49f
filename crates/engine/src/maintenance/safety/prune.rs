//! Removes old generations. Their records are removed first, durably; only then the files that no
//! record references any more. A crash at any point leaves the kept generations complete, and the
//! next prune removes the rest.

use super::backup_store::{BackupStore, generation_name, stored_name};
use super::generation::BackupGeneration;
use super::reports::PruneReport;
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, Result};
use perigee_env::Env;
use std::collections::BTreeSet;
use std::path::Path;

/// Keeps the newest `keep` generations of each database and removes the others.
///
/// # Errors
/// `Corruption` if a record cannot be read: the files it needs are unknown, so nothing is removed.
pub fn prune_generations(env: &Env, backup: &Path, keep: usize) -> Result<PruneReport> {
    if keep == 0 {
        return Err(Error::invalid(
            "at least one generation must be kept: to remove all, delete the directory",
        ));
    }
    BackupStore::open(env, backup)?;
    let (store, _lock) = BackupStore::open_for_writing(env, backup)?;
    let mut all = Vec::new();
    for number in store.generation_numbers()? {
        all.push(store.read_generation(number).map_err(|e| {
            let kind = e.kind();
            e.wrap(kind, "nothing was removed, because the files of this generation are unknown")
        })?);
    }
    let mut out = PruneReport::default();
    let (removed, kept) = split_generations(all, keep);
    for g in &removed {
        store.dir.remove(&generation_name(g.number))?;
        out.removed.push(g.number);
    }
    out.kept = kept.iter().map(|g| g.number).collect();
    if !removed.is_empty() {
        store.dir.sync()?;
    }
    let names = |g: &BackupGeneration| {
        g.files.iter().map(|f| stored_name(g.database, f)).collect::<Vec<_>>()
    };
    let needed: BTreeSet<String> = kept.iter().flat_map(names).collect();
    let mut unneeded: Vec<String> =
        store.stored_file_names()?.into_iter().filter(|f| !needed.contains(f)).collect();
    if bug::is_active(Bug::PruneDropsShared) {
        unneeded = removed.iter().flat_map(names).collect();
    }
    check_slow!(
        unneeded.iter().all(|file| !needed.contains(file)),
        "no file of a kept generation is removed",
        out.kept
    );
    for file in unneeded {
        out.bytes += store.dir.file_len(&file)?.unwrap_or(0);
        out.files += 1;
        store.dir.remove(&file)?;
    }
    store.clear_incoming()?;
    store.dir.sync()?;
    Ok(out)
}

/// Splits generations into those to remove and those to keep; a directory may hold generations of
/// several databases.
fn split_generations(
    all: Vec<BackupGeneration>,
    keep: usize,
) -> (Vec<BackupGeneration>, Vec<BackupGeneration>) {
    let newer = |g: &BackupGeneration| {
        all.iter().filter(|other| other.database == g.database && other.number > g.number).count()
    };
    let stays: BTreeSet<u64> = all.iter().filter(|g| newer(g) < keep).map(|g| g.number).collect();
    let databases: BTreeSet<u64> = all.iter().map(|g| g.database).collect();
    let (removed, kept): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|g| !stays.contains(&g.number));
    check_slow!(
        databases.iter().all(|database| kept.iter().any(|g| g.database == *database)),
        "the newest generation of each database is kept",
        kept.len(),
        databases
    );
    (removed, kept)
}
