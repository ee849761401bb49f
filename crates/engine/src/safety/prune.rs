//! Forgets old generations. Records go first and their going is made durable; only then files that no record names any
//! more. A crash at any point leaves the kept generations whole, and the next prune removes the rest.

use super::store::{Store, generation_name, stored_name};
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, Result};
use perigee_env::Env;
use std::collections::BTreeSet;
use std::path::Path;

/// What went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Generations that went.
    pub removed: Vec<u64>,
    /// Generations that are left.
    pub kept: Vec<u64>,
    /// Files that nothing needed any more.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Keeps the newest `keep` generations.
///
/// # Errors
/// `Corruption` if any record cannot be read: what it needs is unknown, so nothing is removed.
pub fn prune(env: &Env, backup: &Path, keep: usize) -> Result<Pruned> {
    if keep == 0 {
        return Err(Error::invalid("at least one generation is kept; to remove all, delete the directory"));
    }
    Store::open(env, backup)?;
    let (store, _lock) = Store::open_to_write(env, backup)?;
    let mut all = Vec::new();
    for number in store.numbers()? {
        all.push(store.read(number).map_err(|e| {
            let kind = e.kind();
            e.wrap(kind, "nothing was removed, because what this generation needs is unknown")
        })?);
    }
    let going = all.len().saturating_sub(keep);
    let mut out = Pruned::default();
    for g in &all[..going] {
        store.dir.remove(&generation_name(g.number))?;
        out.removed.push(g.number);
    }
    out.kept = all[going..].iter().map(|g| g.number).collect();
    if going > 0 {
        store.dir.sync()?;
    }
    let names =
        |g: &super::Generation| g.files.iter().map(|f| stored_name(g.database, f)).collect::<Vec<_>>();
    let needed: BTreeSet<String> = all[going..].iter().flat_map(names).collect();
    let mut unneeded: Vec<String> = store.stored()?.into_iter().filter(|f| !needed.contains(f)).collect();
    if bug::on(Bug::PruneDropsShared) {
        unneeded = all[..going].iter().flat_map(names).collect();
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
