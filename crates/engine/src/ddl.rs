//! Creates, drops, renames, clears and clones column families, with one manifest edit each. The log
//! is made durable first, so that the manifest is never ahead of it: a power failure cannot keep
//! the change and lose the writes before it.

use crate::commit::{publish_up_to, sequence};
use crate::core::EngineCore;
use crate::family::FamilyState;
use crate::manifest::{
    Catalog, CatalogFamily, FamilyEvent, FamilyEventKind, ManifestEdit, NextIdsEdit,
};
use crate::prepared_txns::display_gid;
use crate::settings::FamilySettings;
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, FamilyId, Result, SeqNo, limits};
use perigee_tree::{LsmTree, Version, VersionEdit};
use std::sync::Arc;

/// Returns an error if no column family can have this name.
pub fn check_family_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > limits::FAMILY_NAME_BYTES_MAX || name.contains('\0') {
        return Err(Error::invalid(
            "the name of a column family must have 1 to 255 bytes and no NUL",
        )
        .expected("1 to 255 bytes", name.len()));
    }
    Ok(())
}

/// Creates a column family, durably, with a sequence number of its own.
pub fn create_family(
    core: &EngineCore,
    name: &str,
    settings: FamilySettings,
) -> Result<Arc<FamilyState>> {
    settings.check()?;
    settings.comparator.check_registered(&core.comparators())?;
    core.settings.merge_operators.check_registered(settings.merge_operator.as_ref())?;
    let mut commit_section = core.wal.appender();
    core.health.check_writable()?;
    check_new_family(core, name)?;
    let filter = core.settings.compaction_filters.check_filter_name(name, "")?;
    let seq = sequence::reserve_sequence_numbers(core, &mut commit_section, 1)?;
    let mut made = None;
    let created = core.manifest.commit_edit(
        &core.health,
        &core.next_file_id,
        |catalog| {
            let id = catalog.next_ids.family;
            let version = VersionEdit { flushed_up_to: Some(seq), ..VersionEdit::default() };
            let edit = ManifestEdit {
                next_ids: Some(NextIdsEdit::after_family(id)),
                families: vec![(id, name.to_owned(), settings.clone())],
                filters: if filter.is_empty() { Vec::new() } else { vec![(id, filter)] },
                versions: vec![(id, version)],
                events: family_event(seq, id, FamilyEventKind::Created { name: name.to_owned() }),
                durable_seq: Some(seq),
                ..ManifestEdit::default()
            };
            let tree =
                LsmTree::new(Version::empty(settings.comparator), core.logical_clock.clone());
            tree.set_merge_operator(
                core.settings.merge_operators.merger(settings.merge_operator.as_ref()),
            );
            let family = Arc::new(FamilyState::new(id, name.to_owned(), settings, tree));
            family.set_filter(core.settings.compaction_filters.filter_of_family(name));
            Ok((edit, family))
        },
        |family| {
            core.families.insert(Arc::clone(&family));
            made = Some(family);
        },
    );
    // Also after a failure: the sequence number is then unused.
    publish_up_to(core, seq, Vec::new());
    created?;
    core.refresh_limits();
    made.ok_or_else(|| Error::internal("a column family was created but not installed"))
}

/// Returns the column family with this name.
fn find_family(core: &EngineCore, name: &str) -> Result<Arc<FamilyState>> {
    let missing = || Error::new(ErrorKind::NotFound, format!("there is no column family {name:?}"));
    core.families.by_name(name).ok_or_else(missing)
}

/// Returns an error if the name is taken or invalid.
fn check_name_free(core: &EngineCore, name: &str) -> Result<()> {
    check_family_name(name)?;
    if core.families.by_name(name).is_some() {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            format!("the column family {name:?} exists already"),
        ));
    }
    Ok(())
}

/// Returns an error if a new column family with this name cannot be created.
pub fn check_new_family(core: &EngineCore, name: &str) -> Result<()> {
    check_name_free(core, name)?;
    if core.families.count() >= limits::FAMILIES_MAX {
        return Err(Error::invalid("there are too many column families")
            .expected(format_args!("at most {}", limits::FAMILIES_MAX), core.families.count()));
    }
    Ok(())
}

/// Renames a column family, durably. Handles and batches made before stay valid: they hold its id.
pub fn rename_family(core: &EngineCore, name: &str, to: &str) -> Result<()> {
    let mut commit_section = core.wal.appender();
    core.health.check_writable()?;
    let family = find_family(core, name)?;
    if family.id == FamilyId::DEFAULT {
        return Err(Error::invalid("the column family \"default\" cannot be renamed"));
    }
    if name == to {
        return Ok(());
    }
    check_name_free(core, to)?;
    if bug::is_active(Bug::RenameInMemory) {
        core.families.rename(&family, to);
        return Ok(());
    }
    let seq = sequence::reserve_sequence_numbers(core, &mut commit_section, 1)?;
    let renamed = core.manifest.commit_edit(
        &core.health,
        &core.next_file_id,
        |catalog| {
            let entry = catalog_entry(catalog, family.id)?;
            let renamed = (family.id, to.to_owned(), entry.settings.clone());
            let kind = FamilyEventKind::Renamed { from: name.to_owned(), to: to.to_owned() };
            let events = family_event(seq, family.id, kind);
            Ok((
                ManifestEdit {
                    families: vec![renamed],
                    events,
                    durable_seq: Some(seq),
                    ..ManifestEdit::default()
                },
                (),
            ))
        },
        |()| core.families.rename(&family, to),
    );
    publish_up_to(core, seq, Vec::new());
    renamed
}

/// Returns `Busy` if a prepared transaction writes to the column family or depends on it.
fn check_no_prepared_txn(core: &EngineCore, family: &FamilyState) -> Result<()> {
    match core.prepared_txns.find_by_family(family.id) {
        None => Ok(()),
        Some(prepared) => Err(Error::new(
            ErrorKind::Busy,
            format!(
                "the prepared transaction {} involves the column family {:?}: commit or roll it \
                back first",
                display_gid(&prepared.gid),
                family.name()
            ),
        )),
    }
}

fn family_event(at: SeqNo, family: FamilyId, what: FamilyEventKind) -> Vec<FamilyEvent> {
    vec![FamilyEvent { seq: at, family, kind: what }]
}

/// Removes all contents of a column family, durably and at once. The log up to here is marked as
/// flushed, so replaying it restores nothing.
pub fn clear_family(core: &EngineCore, name: &str) -> Result<()> {
    let mut commit_section = core.wal.appender();
    core.health.check_writable()?;
    let family = find_family(core, name)?;
    check_no_prepared_txn(core, &family)?;
    let seq = sequence::reserve_sequence_numbers(core, &mut commit_section, 1)?;
    let epoch = core.snapshots.epoch() + 1;
    let cleared = core.manifest.commit_edit(
        &core.health,
        &core.next_file_id,
        |catalog| {
            let entry = catalog_entry(catalog, family.id)?;
            let version = VersionEdit {
                removed: entry.tables.values().map(|t| (t.level, t.meta.id)).collect(),
                vlogs_removed: entry.vlogs.keys().copied().collect(),
                flushed_up_to: (!bug::is_active(Bug::ClearReplays)).then_some(seq),
                ..VersionEdit::default()
            };
            let edit = ManifestEdit {
                versions: vec![(family.id, version)],
                contents_start: vec![(family.id, seq)],
                events: family_event(seq, family.id, FamilyEventKind::Cleared),
                durable_seq: Some(seq),
                ..ManifestEdit::default()
            };
            Ok((edit, family.tree.view()))
        },
        |view| {
            family.set_contents_epoch(epoch);
            family.set_contents_start(seq);
            family.tree.clear();
            core.obsolete_files
                .add_replaced(&view.version, &Version::empty(family.tree.comparator()));
            // Here, not after the commit returns: it may still fail then, and the contents would
            // belong to an epoch older than all later snapshots.
            core.snapshots.begin_epoch(epoch);
        },
    );
    publish_up_to(core, seq, Vec::new());
    drop(commit_section);
    cleared?;
    delete_removed_files(core);
    Ok(())
}

/// Creates the column family `name` from the current tables of `source`, in one edit. The files are
/// shared until a compaction in either column family replaces them.
pub fn clone_family(
    core: &EngineCore,
    source: &Arc<FamilyState>,
    name: &str,
) -> Result<Arc<FamilyState>> {
    let mut commit_section = core.wal.appender();
    core.health.check_writable()?;
    check_new_family(core, name)?;
    source.check_not_dropped()?;
    let seq = sequence::reserve_sequence_numbers(core, &mut commit_section, 1)?;
    let epoch = core.snapshots.epoch() + 1;
    let mut made = None;
    let cloned = core.manifest.commit_edit(
        &core.health,
        &core.next_file_id,
        |catalog| {
            let (id, of) = (catalog.next_ids.family, catalog_entry(catalog, source.id)?);
            let version = VersionEdit {
                added: of.added_tables(),
                vlogs_added: of.vlogs.values().cloned().collect(),
                flushed_up_to: Some(of.flushed),
                ..VersionEdit::default()
            };
            let edit = ManifestEdit {
                next_ids: Some(NextIdsEdit::after_family(id)),
                families: vec![(id, name.to_owned(), of.settings.clone())],
                versions: vec![(id, version)],
                contents_start: vec![(id, seq)],
                events: family_event(
                    seq,
                    id,
                    FamilyEventKind::Cloned { name: name.to_owned(), source: source.id },
                ),
                durable_seq: Some(seq),
                ..ManifestEdit::default()
            };
            // Versions are installed under this same lock, so this version matches the catalog.
            let of_source = source.tree.view();
            let tree = LsmTree::new((*of_source.version).clone(), core.logical_clock.clone());
            tree.set_merge_operator(of_source.merge_operator.get().cloned());
            Ok((edit, Arc::new(FamilyState::new(id, name.to_owned(), of.settings.clone(), tree))))
        },
        |family| {
            family.set_contents_epoch(epoch);
            family.set_contents_start(seq);
            core.families.insert(Arc::clone(&family));
            core.snapshots.begin_epoch(epoch);
            made = Some(family);
        },
    );
    publish_up_to(core, seq, Vec::new());
    cloned?;
    core.refresh_limits();
    core.refresh_load();
    core.signal.notify();
    made.ok_or_else(|| Error::internal("a column family was cloned but not installed"))
}

fn catalog_entry(catalog: &Catalog, id: FamilyId) -> Result<&CatalogFamily> {
    catalog
        .families
        .get(&id)
        .ok_or_else(|| Error::internal(format!("column family {id} is missing in the catalog")))
}

/// Changes the settings of a column family, durably. They apply to files written from now on;
/// existing files stay as they are.
pub fn set_family_settings(
    core: &EngineCore,
    family: &FamilyState,
    settings: FamilySettings,
) -> Result<()> {
    settings.check()?;
    core.settings.merge_operators.check_registered(settings.merge_operator.as_ref())?;
    core.health.check_writable()?;
    core.manifest.commit_edit(
        &core.health,
        &core.next_file_id,
        |catalog| {
            family.check_not_dropped()?;
            let entry = catalog_entry(catalog, family.id)?;
            entry.settings.check_change(&settings, &entry.name)?;
            let changed = (family.id, entry.name.clone(), settings.clone());
            Ok((ManifestEdit { families: vec![changed], ..ManifestEdit::default() }, settings))
        },
        |settings| {
            // The manifest names the operator before any operand is written.
            family.tree.set_merge_operator(
                core.settings.merge_operators.merger(settings.merge_operator.as_ref()),
            );
            family.set_settings(settings);
        },
    )?;
    core.refresh_limits();
    core.signal.notify();
    Ok(())
}

/// Recomputes limits and load after files were removed, and deletes the files that are no longer
/// referenced. Called outside the commit section: there may be thousands of files, and writers must
/// not wait.
fn delete_removed_files(core: &EngineCore) {
    core.refresh_limits();
    core.refresh_load();
    core.signal.notify();
    let _ = core.obsolete_files.delete_unreferenced(&core.table_cache);
}

/// Drops a column family with all its contents, durably.
pub fn drop_family(core: &EngineCore, name: &str) -> Result<()> {
    let mut commit_section = core.wal.appender();
    core.health.check_writable()?;
    let family = find_family(core, name)?;
    if family.id == FamilyId::DEFAULT {
        return Err(Error::invalid(
            "the column family \"default\" cannot be dropped: clear it instead",
        ));
    }
    check_no_prepared_txn(core, &family)?;
    let seq = sequence::reserve_sequence_numbers(core, &mut commit_section, 1)?;
    let dropped = core.manifest.commit_edit(
        &core.health,
        &core.next_file_id,
        |_| {
            let events =
                family_event(seq, family.id, FamilyEventKind::Dropped { name: name.to_owned() });
            Ok((
                ManifestEdit {
                    dropped: vec![family.id],
                    events,
                    durable_seq: Some(seq),
                    ..ManifestEdit::default()
                },
                (),
            ))
        },
        |()| {
            family.mark_dropped();
            core.families.remove(family.id);
            core.obsolete_files.add_replaced(
                &family.tree.view().version,
                &Version::empty(family.tree.comparator()),
            );
            family.tree.clear();
        },
    );
    publish_up_to(core, seq, Vec::new());
    drop(commit_section);
    dropped?;
    delete_removed_files(core);
    Ok(())
}
