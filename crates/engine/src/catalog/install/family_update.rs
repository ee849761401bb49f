//! Changes of a column family as a whole: their preconditions, their part of the manifest edit, and
//! how they become current. All but [`FamilyUpdate::Configure`] are made in the commit section.

use crate::catalog::family::{Families, FamilyState};
use crate::catalog::manifest::{CatalogFamily, CatalogState, ManifestEdit, NextIdsEdit};
use crate::catalog::snapshot::SnapshotList;
use crate::settings::FamilySettings;
use perigee_base::{Error, ErrorKind, OperandMerger, Result, SeqNo};
use perigee_tree::{VersionEdit, View};
use std::sync::Arc;

/// A change of a column family.
#[derive(Debug)]
pub enum FamilyUpdate {
    /// Adds an empty column family.
    Create {
        /// The column family; its id is the next one of the catalog.
        family: Arc<FamilyState>,
        /// Name of its compaction filter (empty: none).
        filter: String,
        /// Sequence number of the change.
        seq: SeqNo,
    },
    /// Adds a column family with the current tables and settings of another.
    Clone {
        /// The column family, empty so far; its id is the next one of the catalog.
        family: Arc<FamilyState>,
        /// The source.
        source: Arc<FamilyState>,
        /// Sequence number of the change.
        seq: SeqNo,
    },
    /// Changes the name.
    Rename {
        /// The column family.
        family: Arc<FamilyState>,
        /// The new name, which must be free.
        to: String,
    },
    /// Removes all contents.
    Clear {
        /// The column family.
        family: Arc<FamilyState>,
        /// Sequence number of the change.
        seq: SeqNo,
        /// Replay skips operations up to here.
        flushed_up_to: Option<SeqNo>,
    },
    /// Removes the column family with all contents.
    Drop {
        /// The column family.
        family: Arc<FamilyState>,
    },
    /// Changes the settings.
    Configure {
        /// The column family.
        family: Arc<FamilyState>,
        /// The new settings; those that cannot change must be the same as before.
        settings: Arc<FamilySettings>,
        /// The merge operator that the settings name.
        merger: Option<Arc<OperandMerger>>,
    },
}

/// A view that was replaced.
#[derive(Debug)]
pub struct ReplacedView {
    /// The column family.
    pub family: Arc<FamilyState>,
    /// Its view before the change.
    pub view: Arc<View>,
}

/// Returns `AlreadyExists` if a column family has this name.
pub fn check_name_free(families: &Families, name: &str) -> Result<()> {
    if families.by_name(name).is_none() {
        return Ok(());
    }
    let text = format!("the column family {name:?} already exists");
    Err(Error::new(ErrorKind::AlreadyExists, text))
}

impl FamilyUpdate {
    /// Returns true if tables or memtables appear or disappear.
    pub fn changes_contents(&self) -> bool {
        match self {
            FamilyUpdate::Clone { .. } | FamilyUpdate::Clear { .. } | FamilyUpdate::Drop { .. } => {
                true
            }
            FamilyUpdate::Create { .. }
            | FamilyUpdate::Rename { .. }
            | FamilyUpdate::Configure { .. } => false,
        }
    }

    /// Returns true if the limits that depend on all settings may change.
    pub fn changes_limits(&self) -> bool {
        !matches!(self, FamilyUpdate::Rename { .. })
    }

    /// Checks the preconditions.
    pub fn check(&self, families: &Families, catalog: &CatalogState) -> Result<()> {
        match self {
            FamilyUpdate::Create { family, .. } => check_new(families, catalog, family),
            FamilyUpdate::Clone { family, source, .. } => {
                source.check_not_dropped()?;
                check_new(families, catalog, family)
            }
            FamilyUpdate::Rename { family, to } => {
                family.check_not_dropped()?;
                check_name_free(families, to)
            }
            FamilyUpdate::Clear { family, .. } | FamilyUpdate::Drop { family } => {
                family.check_not_dropped()
            }
            FamilyUpdate::Configure { family, settings, .. } => {
                family.check_not_dropped()?;
                let entry = catalog_entry(catalog, family)?;
                entry.settings.check_change(settings, &entry.name)
            }
        }
    }

    /// Adds the change to `edit`.
    pub fn add_to(&self, catalog: &CatalogState, edit: &mut ManifestEdit) -> Result<()> {
        match self {
            FamilyUpdate::Create { family, filter, seq } => {
                let version = VersionEdit { flushed_up_to: Some(*seq), ..VersionEdit::default() };
                add_new(edit, family, family.settings().as_ref().clone(), version);
                if !filter.is_empty() {
                    edit.filters = vec![(family.id, filter.clone())];
                }
            }
            FamilyUpdate::Clone { family, source, seq } => {
                let of = catalog_entry(catalog, source)?;
                let version = VersionEdit {
                    added: of.added_tables(),
                    vlogs_added: of.vlogs.values().cloned().collect(),
                    flushed_up_to: Some(of.flushed),
                    ..VersionEdit::default()
                };
                add_new(edit, family, of.settings.clone(), version);
                edit.contents_start = vec![(family.id, *seq)];
            }
            FamilyUpdate::Rename { family, to } => {
                let settings = catalog_entry(catalog, family)?.settings.clone();
                edit.families = vec![(family.id, to.clone(), settings)];
            }
            FamilyUpdate::Clear { family, seq, flushed_up_to } => {
                let entry = catalog_entry(catalog, family)?;
                let version = VersionEdit {
                    removed: entry.tables.values().map(|t| (t.level, t.meta.id)).collect(),
                    vlogs_removed: entry.vlogs.keys().copied().collect(),
                    flushed_up_to: *flushed_up_to,
                    ..VersionEdit::default()
                };
                edit.versions = vec![(family.id, version)];
                edit.contents_start = vec![(family.id, *seq)];
            }
            FamilyUpdate::Drop { family } => edit.dropped = vec![family.id],
            FamilyUpdate::Configure { family, settings, .. } => {
                let name = catalog_entry(catalog, family)?.name.clone();
                edit.families = vec![(family.id, name, settings.as_ref().clone())];
            }
        }
        Ok(())
    }

    /// Makes the change current; returns the view that it replaces.
    pub fn swap(&self, families: &Families, snapshots: &SnapshotList) -> Option<ReplacedView> {
        // Older snapshots must not read contents that they do not know. The epoch begins after the
        // contents are current, and before any later step of the installation can fail.
        let epoch = snapshots.epoch() + 1;
        match self {
            FamilyUpdate::Create { family, .. } => families.insert(Arc::clone(family)),
            FamilyUpdate::Clone { family, source, seq } => {
                let of = source.tree.view();
                family.set_settings(source.settings());
                family.tree.set_merge_operator(of.merge_operator.get().cloned());
                family.tree.install_version((*of.version).clone(), None);
                family.set_contents_epoch(epoch);
                family.set_contents_start(*seq);
                families.insert(Arc::clone(family));
                snapshots.begin_epoch(epoch);
            }
            FamilyUpdate::Rename { family, to } => families.rename(family, to),
            FamilyUpdate::Clear { family, seq, .. } => {
                let view = family.tree.view();
                family.set_contents_epoch(epoch);
                family.set_contents_start(*seq);
                family.tree.clear();
                snapshots.begin_epoch(epoch);
                return Some(ReplacedView { family: Arc::clone(family), view });
            }
            FamilyUpdate::Drop { family } => {
                let view = family.tree.view();
                family.mark_dropped();
                families.remove(family.id);
                family.tree.clear();
                return Some(ReplacedView { family: Arc::clone(family), view });
            }
            FamilyUpdate::Configure { family, settings, merger } => {
                // The manifest names the operator before any operand is written.
                family.tree.set_merge_operator(merger.clone());
                family.set_settings(Arc::clone(settings));
            }
        }
        None
    }
}

/// Fails if the name of a new column family is taken, or its id is not the next one.
fn check_new(families: &Families, catalog: &CatalogState, family: &FamilyState) -> Result<()> {
    check_name_free(families, &family.name())?;
    if family.id != catalog.next_ids.family {
        return Err(Error::internal("the id of a new column family is not the next one")
            .expected(catalog.next_ids.family, family.id));
    }
    Ok(())
}

fn add_new(
    edit: &mut ManifestEdit,
    family: &FamilyState,
    settings: FamilySettings,
    version: VersionEdit,
) {
    let run = edit.next_ids.unwrap_or_default().run;
    edit.next_ids = Some(NextIdsEdit { run, ..NextIdsEdit::after_family(family.id) });
    edit.families = vec![(family.id, family.name().to_string(), settings)];
    edit.versions = vec![(family.id, version)];
}

fn catalog_entry<'a>(catalog: &'a CatalogState, family: &FamilyState) -> Result<&'a CatalogFamily> {
    let id = family.id;
    catalog
        .families
        .get(&id)
        .ok_or_else(|| Error::internal(format!("column family {id} is missing from the catalog")))
}
