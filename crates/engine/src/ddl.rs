//! Creating, dropping, renaming, clearing and cloning families: one manifest edit each. The log is
//! made durable first, so that the manifest never overtakes it: a power cut cannot keep the change
//! and lose the writes before it.

use crate::commit::{publish_up_to, sequence};
use crate::core::EngineCore;
use crate::family::FamilyState;
use crate::manifest::{Catalog, CatalogFamily, FamilyEvent, FamilyEventKind, ManifestEdit};
use crate::prepared_txns::display_gid;
use crate::settings::FamilySettings;
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, FamilyId, Result, SeqNo, limits};
use perigee_tree::{LsmTree, Version, VersionEdit};
use std::sync::Arc;

/// Refuses a name that no family can have.
pub fn check_family_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > limits::FAMILY_NAME_BYTES_MAX || name.contains('\0') {
        return Err(Error::invalid("a family's name has 1 to 255 bytes and no NUL")
            .expected("1 to 255 bytes", name.len()));
    }
    Ok(())
}

/// Creates a family, durably, under a number of its own.
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
            let id = FamilyId(catalog.next_ids.1);
            let version = VersionEdit { flushed_up_to: Some(seq), ..VersionEdit::default() };
            let edit = ManifestEdit {
                next_ids: Some((0, id.0 + 1, 0)),
                families: vec![(id, name.to_owned(), settings.clone())],
                filters: if filter.is_empty() { Vec::new() } else { vec![(id, filter)] },
                versions: vec![(id, version)],
                events: family_event(seq, id, FamilyEventKind::Created { name: name.to_owned() }),
                durable_seq: Some(seq.0),
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
    // Also after a failure: then the number is one that nothing has.
    publish_up_to(core, seq, Vec::new());
    created?;
    core.refresh_limits();
    made.ok_or_else(|| Error::internal("a family was created but not installed"))
}

/// The family of that name.
fn find_family(core: &EngineCore, name: &str) -> Result<Arc<FamilyState>> {
    let missing = || Error::new(ErrorKind::NotFound, format!("there is no family {name:?}"));
    core.families.by_name(name).ok_or_else(missing)
}

/// Refuses a name that is taken, or that no family can have.
fn check_name_free(core: &EngineCore, name: &str) -> Result<()> {
    check_family_name(name)?;
    if core.families.by_name(name).is_some() {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            format!("the family {name:?} exists already"),
        ));
    }
    Ok(())
}

/// Refuses a new family of that name.
pub fn check_new_family(core: &EngineCore, name: &str) -> Result<()> {
    check_name_free(core, name)?;
    if core.families.count() >= limits::FAMILIES_MAX {
        return Err(Error::invalid("there are too many families")
            .expected(format_args!("at most {}", limits::FAMILIES_MAX), core.families.count()));
    }
    Ok(())
}

/// Gives a family another name, durably. Handles and batches made before go on working: they hold
/// its number.
pub fn rename_family(core: &EngineCore, name: &str, to: &str) -> Result<()> {
    let mut commit_section = core.wal.appender();
    core.health.check_writable()?;
    let family = find_family(core, name)?;
    if family.id == FamilyId::DEFAULT {
        return Err(Error::invalid("the family \"default\" cannot be renamed"));
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
            let befell = FamilyEventKind::Renamed { from: name.to_owned(), to: to.to_owned() };
            let events = family_event(seq, family.id, befell);
            Ok((
                ManifestEdit {
                    families: vec![renamed],
                    events,
                    durable_seq: Some(seq.0),
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

/// Refuses to take away what a prepared transaction writes, or depends on.
fn check_no_prepared_txn(core: &EngineCore, family: &FamilyState) -> Result<()> {
    match core.prepared_txns.find_by_family(family.id) {
        None => Ok(()),
        Some(undecided) => Err(Error::new(
            ErrorKind::Busy,
            format!(
                "the transaction prepared as {} is about the family {:?}: decide it first",
                display_gid(&undecided.gid),
                family.name()
            ),
        )),
    }
}

fn family_event(at: SeqNo, family: FamilyId, what: FamilyEventKind) -> Vec<FamilyEvent> {
    vec![FamilyEvent { seq: at, family, kind: what }]
}

/// Removes everything in a family, durably and at once. The log is spent up to here, so replaying
/// it brings nothing back.
pub fn clear_family(core: &EngineCore, name: &str) -> Result<()> {
    let mut commit_section = core.wal.appender();
    core.health.check_writable()?;
    let family = find_family(core, name)?;
    check_no_prepared_txn(core, &family)?;
    let seq = sequence::reserve_sequence_numbers(core, &mut commit_section, 1)?;
    let era = core.snapshots.epoch() + 1;
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
                durable_seq: Some(seq.0),
                ..ManifestEdit::default()
            };
            Ok((edit, family.tree.view()))
        },
        |view| {
            family.set_contents_epoch(era);
            family.set_contents_start(seq);
            family.tree.clear();
            core.obsolete_files
                .add_replaced(&view.version, &Version::empty(family.tree.comparator()));
            // Here, not behind the commit: that may fail after this, and the family would be older
            // than all snapshots to come.
            core.snapshots.begin_epoch(era);
        },
    );
    publish_up_to(core, seq, Vec::new());
    drop(commit_section);
    cleared?;
    delete_removed_files(core);
    Ok(())
}

/// Makes the family `name` of the tables that `source` has now, in one edit. The files are shared
/// until a compaction of either replaces them.
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
    let era = core.snapshots.epoch() + 1;
    let mut made = None;
    let cloned = core.manifest.commit_edit(
        &core.health,
        &core.next_file_id,
        |catalog| {
            let (id, of) = (FamilyId(catalog.next_ids.1), catalog_entry(catalog, source.id)?);
            let version = VersionEdit {
                added: of.added_tables(),
                vlogs_added: of.vlogs.values().cloned().collect(),
                flushed_up_to: Some(of.flushed),
                ..VersionEdit::default()
            };
            let edit = ManifestEdit {
                next_ids: Some((0, id.0 + 1, 0)),
                families: vec![(id, name.to_owned(), of.settings.clone())],
                versions: vec![(id, version)],
                contents_start: vec![(id, seq)],
                events: family_event(
                    seq,
                    id,
                    FamilyEventKind::Cloned { name: name.to_owned(), source: source.id },
                ),
                durable_seq: Some(seq.0),
                ..ManifestEdit::default()
            };
            // Installing happens under this same lock: the version is what the catalog says.
            let of_source = source.tree.view();
            let tree = LsmTree::new((*of_source.version).clone(), core.logical_clock.clone());
            tree.set_merge_operator(of_source.merge_operator.get().cloned());
            Ok((edit, Arc::new(FamilyState::new(id, name.to_owned(), of.settings.clone(), tree))))
        },
        |family| {
            family.set_contents_epoch(era);
            family.set_contents_start(seq);
            core.families.insert(Arc::clone(&family));
            core.snapshots.begin_epoch(era);
            made = Some(family);
        },
    );
    publish_up_to(core, seq, Vec::new());
    cloned?;
    core.refresh_limits();
    core.refresh_load();
    core.signal.notify();
    made.ok_or_else(|| Error::internal("a family was cloned but not installed"))
}

fn catalog_entry(catalog: &Catalog, id: FamilyId) -> Result<&CatalogFamily> {
    catalog
        .families
        .get(&id)
        .ok_or_else(|| Error::internal(format!("the catalog has lost family {id}")))
}

/// Gives a family other settings, durably. Files written from now on follow them; the others stay
/// as they are.
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
            // In the manifest before any operand is.
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

/// After files went: what depends on them is counted again, and they are deleted if nobody holds
/// them. Outside the commit section: there may be thousands, and no writer has to wait for that.
fn delete_removed_files(core: &EngineCore) {
    core.refresh_limits();
    core.refresh_load();
    core.signal.notify();
    let _ = core.obsolete_files.delete_unreferenced(&core.table_cache);
}

/// Drops a family with everything in it, durably.
pub fn drop_family(core: &EngineCore, name: &str) -> Result<()> {
    let mut commit_section = core.wal.appender();
    core.health.check_writable()?;
    let family = find_family(core, name)?;
    if family.id == FamilyId::DEFAULT {
        return Err(Error::invalid("the family \"default\" cannot be dropped: clear it"));
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
                    durable_seq: Some(seq.0),
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
