//! Installs changes of the catalog: new versions, changes of column families, named snapshots and
//! log segments. Callers describe a change as values ([`CatalogChanges`]); [`install`] is the only
//! function that appends to the manifest and makes the result current.
//!
//! Invariants: added files are opened before the manifest is locked; no code of a caller runs under
//! the lock. Preconditions are checked under the lock, where nothing else is installed. After the
//! edit is durable nothing can fail before it is current.

mod snapshot_change;
mod family_update;
mod changes;
mod opened_files;

pub use changes::{CatalogChanges, LogChanges, VersionChange, VersionSource};
pub use family_update::{FamilyUpdate, check_name_free};
pub use snapshot_change::{SnapshotChange, no_such_snapshot_error};

use crate::catalog::Catalog;
use crate::catalog::manifest::{CatalogState, ManifestEdit};
use crate::catalog::retained_logs::LogSpan;
use crate::runtime::Runtime;
use changes::{InstallEffect, StagedVersion};
use family_update::ReplacedView;
use opened_files::OpenedFiles;
use perigee_base::{FamilyId, FileKind, Result};
use perigee_file::filename;
use perigee_tree::rewrite::CreatedFiles;
use std::collections::HashSet;

/// What was installed.
#[derive(Debug, Default)]
pub struct Installed {
    /// The column families with a new version. Those that were dropped or cleared while a job
    /// worked on them are missing.
    pub families: HashSet<FamilyId>,
    /// Obsolete log segments that the manifest retains for readers.
    pub retained_logs: Vec<LogSpan>,
    /// Log segments that the manifest no longer references, including formerly retained ones.
    pub deleted_logs: Vec<LogSpan>,
}

impl Catalog {
    /// Makes changes durable with one manifest edit and then current, all or none.
    ///
    /// Flushes and compactions of column families that were dropped or cleared in the meantime are
    /// skipped ([`Installed::families`]), unless none is left.
    ///
    /// # Errors
    /// The error of a precondition, of opening an added file, or `NoSpace`: nothing was changed, and
    /// the caller removes the added files ([`discard_outputs`]). `OutcomeUnknown`: the database is
    /// poisoned; the changes may or may not survive a reopen, so no file may be removed.
    pub fn install(&self, mut changes: CatalogChanges) -> Result<Installed> {
        validate(&self.runtime, &mut changes)?;
        let files = OpenedFiles::open(&**self.resources.table_cache(), &changes.versions)?;
        let mut manifest = self.manifest.lock();
        validate(&self.runtime, &mut changes)?;
        changes.check_preconditions(self.families(), &manifest)?;
        let effect = changes.effect();
        let (edit, staged, installed) = stage(&manifest, changes, &files)?;
        check_slow!(
            edit.versions.iter().map(|(id, _)| *id).collect::<HashSet<_>>().len()
                == edit.versions.len(),
            "an edit changes the version of a column family once",
            edit.versions.len()
        );
        manifest.append(edit, &self.runtime.health, &self.next_file_id)?;
        let replaced = swap(self, staged);
        check_slow!(
            replaced.iter().all(|ReplacedView { family, .. }| {
                let files = manifest.data_files();
                family.is_dropped()
                    || family.tree.view().version.file_ids().iter().all(|id| files.contains(id))
            }),
            "the catalog has every file of an installed version",
            replaced.len()
        );
        let rewritten = manifest.rewrite_if_large(&self.runtime.health, &self.next_file_id);
        drop(manifest);
        retire(self, &replaced);
        refresh(self, effect);
        rewritten.map(|()| installed)
    }
}

/// What [`swap`] makes current.
struct StagedChanges {
    versions: Vec<StagedVersion>,
    family: Option<FamilyUpdate>,
    snapshot: Option<SnapshotChange>,
}

/// Checks that the database is writable and that there is something to install. Called without the
/// manifest lock, so that no file is opened needlessly, and again with it.
fn validate(runtime: &Runtime, changes: &mut CatalogChanges) -> Result<()> {
    runtime.health.check_writable()?;
    changes.skip_stale_versions()
}

/// Builds the new versions and the edit that describes all changes. Pure: reads only the catalog,
/// the current views and files that are open already.
fn stage(
    catalog: &CatalogState,
    changes: CatalogChanges,
    files: &OpenedFiles,
) -> Result<(ManifestEdit, StagedChanges, Installed)> {
    let mut edit = changes.base_edit(catalog);
    let (retained_logs, deleted_logs) = changes.logs.add_to(catalog, &mut edit);
    if let Some(update) = &changes.family {
        update.add_to(catalog, &mut edit)?;
    }
    if let Some(snapshot) = &changes.snapshot {
        snapshot.add_to(&mut edit);
    }
    let mut versions = Vec::with_capacity(changes.versions.len());
    for change in changes.versions {
        versions.push(change.stage(files, &mut edit)?);
    }
    let families = versions.iter().map(|v| v.family.id).collect();
    let staged = StagedChanges { versions, family: changes.family, snapshot: changes.snapshot };
    Ok((edit, staged, Installed { families, retained_logs, deleted_logs }))
}

/// Makes current what the manifest contains now; returns the replaced views.
fn swap(catalog: &Catalog, staged: StagedChanges) -> Vec<ReplacedView> {
    let mut replaced: Vec<_> = staged.versions.into_iter().map(StagedVersion::swap).collect();
    if let Some(update) = staged.family {
        replaced.extend(update.swap(catalog.families(), &catalog.snapshots));
    }
    if let Some(snapshot) = staged.snapshot {
        snapshot.swap(&catalog.named_snapshots);
    }
    replaced
}

/// Lists the files that only replaced views reference; they are deleted after their last reader.
fn retire(catalog: &Catalog, replaced: &[ReplacedView]) {
    for ReplacedView { family, view } in replaced {
        catalog.obsolete_files.add_replaced(&view.version, &family.tree.view().version);
    }
}

/// Recomputes the load and the limits where the changes affect them, and wakes the threads that
/// wait for such a change.
fn refresh(catalog: &Catalog, effect: InstallEffect) {
    if effect.limits {
        catalog.refresh_limits();
    }
    if effect.load {
        catalog.refresh_load();
    }
    if effect.wakes {
        catalog.runtime.signal.notify();
    }
}

/// Removes the outputs of a job that were not installed. If the database is poisoned, their edit
/// may have been written, so nothing is removed.
pub fn discard_outputs(catalog: &Catalog, created: &CreatedFiles) {
    let resources = &catalog.resources;
    if resources.runtime.health.poisoned().is_some() {
        return;
    }
    check_slow!(
        perigee_env::panicking()
            || created.0.is_empty()
            || created.0.iter().all(|id| !catalog.manifest.lock().data_files().contains(id)),
        "discarded outputs of a job are not in the catalog",
        created
    );
    for id in &created.0 {
        resources.table_cache().evict(*id);
        for kind in [FileKind::Klog, FileKind::Vlog] {
            let _ = resources.runtime.dir.remove(&filename::file_name(*id, kind));
        }
    }
}

#[cfg(test)]
mod tests;
