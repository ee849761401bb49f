//! Forgets old generations. Records go first and their going is made durable; only then files that
//! no record names any more. A crash at any point leaves the kept generations whole, and the next
//! prune removes the rest.

use super::backup_store::{BackupStore, generation_name, stored_name};
use super::generation::BackupGeneration;
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, Result};
use perigee_env::Env;
use std::collections::BTreeSet;
use std::path::Path;

/// What went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneSummary {
    /// Generations that went.
    pub removed: Vec<u64>,
    /// Generations that are left.
    pub kept: Vec<u64>,
    /// Files that nothing needed any more.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Keeps the newest `keep` generations of each database.
///
/// # Errors
/// `Corruption` if any record cannot be read: what it needs is unknown, so nothing is removed.
pub fn prune_generations(env: &Env, backup: &Path, keep: usize) -> Result<PruneSummary> {
    if keep == 0 {
        return Err(Error::invalid(
            "at least one generation is kept; to remove all, delete the directory",
        ));
    }
    BackupStore::open(env, backup)?;
    let (store, _lock) = BackupStore::open_for_writing(env, backup)?;
    let mut all = Vec::new();
    for number in store.generation_numbers()? {
        all.push(store.read_generation(number).map_err(|e| {
            let kind = e.kind();
            e.wrap(kind, "nothing was removed, because what this generation needs is unknown")
        })?);
    }
    let mut out = PruneSummary::default();
    let (going, staying) = split_generations(all, keep);
    for g in &going {
        store.dir.remove(&generation_name(g.number))?;
        out.removed.push(g.number);
    }
    out.kept = staying.iter().map(|g| g.number).collect();
    if !going.is_empty() {
        store.dir.sync()?;
    }
    let names = |g: &BackupGeneration| {
        g.files.iter().map(|f| stored_name(g.database, f)).collect::<Vec<_>>()
    };
    let needed: BTreeSet<String> = staying.iter().flat_map(names).collect();
    let mut unneeded: Vec<String> =
        store.stored_file_names()?.into_iter().filter(|f| !needed.contains(f)).collect();
    if bug::is_active(Bug::PruneDropsShared) {
        unneeded = going.iter().flat_map(names).collect();
    }
    for file in unneeded {
        out.bytes += store.dir.file_len(&file)?.unwrap_or(0);
        out.files += 1;
        store.dir.remove(&file)?;
    }
    store.clear_incoming()?;
    store.dir.sync()?;
    Ok(out)
}

/// Those that go and those that stay; a directory may hold generations of several databases.
fn split_generations(
    all: Vec<BackupGeneration>,
    keep: usize,
) -> (Vec<BackupGeneration>, Vec<BackupGeneration>) {
    let newer = |g: &BackupGeneration| {
        all.iter().filter(|other| other.database == g.database && other.number > g.number).count()
    };
    let stays: BTreeSet<u64> = all.iter().filter(|g| newer(g) < keep).map(|g| g.number).collect();
    all.into_iter().partition(|g| !stays.contains(&g.number))
}
