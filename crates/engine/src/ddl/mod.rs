//! Creates, drops, renames, clears and clones column families, and creates named snapshots, with
//! one manifest edit each. The log is made durable first, so that the manifest is never ahead of
//! it: a power failure cannot keep the change and lose the writes before it.

use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::catalog::install::{self, CatalogChanges, FamilyUpdate, SnapshotChange};
use crate::catalog::manifest::{FamilyEvent, FamilyEventKind};
use crate::log::Log;
use crate::log::commit::{publish_up_to, sequence};
use crate::settings::FamilySettings;
use crate::txn::TxnManager;
use crate::txn::prepared_txns::display_gid;
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, FamilyId, Result, SeqNo, limits};
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
pub fn create_family(log: &Log, name: &str, settings: FamilySettings) -> Result<Arc<FamilyState>> {
    settings.check()?;
    settings.comparator.check_registered(&log.catalog.comparators())?;
    log.runtime.settings.merge_operators.check_registered(settings.merge_operator.as_ref())?;
    let mut commit_section = log.commit_section();
    log.runtime.health.check_writable()?;
    check_new_family(&log.catalog, name)?;
    let filter = log.runtime.settings.compaction_filters.check_filter_name(name, "")?;
    let seq = sequence::reserve_sequence_numbers(log, &mut commit_section, 1)?;
    let family = log.catalog.new_family(name, settings);
    let operators = &log.runtime.settings.merge_operators;
    let merger = operators.merger(family.settings().merge_operator.as_ref());
    family.tree.set_merge_operator(merger);
    family.set_filter(log.runtime.settings.compaction_filters.filter_of_family(name));
    let changes = CatalogChanges {
        family: Some(FamilyUpdate::Create { family: Arc::clone(&family), filter, seq }),
        ..family_changes(seq, family.id, FamilyEventKind::Created { name: name.to_owned() })
    };
    install_and_publish(log, changes, seq)?;
    check_slow!(
        log.catalog.families().by_name(name).is_some_and(|f| Arc::ptr_eq(&f, &family)),
        "a column family that was created is open",
        family
    );
    Ok(family)
}

/// Returns changes that record an event with sequence number `seq`, up to which the log is durable.
fn family_changes(seq: SeqNo, family: FamilyId, kind: FamilyEventKind) -> CatalogChanges {
    CatalogChanges {
        events: vec![FamilyEvent { seq, family, kind }],
        durable_seq: Some(seq),
        ..CatalogChanges::default()
    }
}

/// Installs the changes and makes their sequence number visible, even after a failure: it is then
/// unused.
fn install_and_publish(log: &Log, changes: CatalogChanges, seq: SeqNo) -> Result<()> {
    check_slow!(
        changes.events.iter().all(|e| e.seq == seq) && log.durable_seq() >= seq,
        "the log is durable up to an event before the manifest contains it",
        log.durable_seq(),
        seq
    );
    let installed = log.catalog.install(changes);
    publish_up_to(log, seq, Vec::new());
    installed.map(|_| ())
}

/// Returns the column family with this name.
fn find_family(catalog: &Catalog, name: &str) -> Result<Arc<FamilyState>> {
    let missing = || Error::new(ErrorKind::NotFound, format!("there is no column family {name:?}"));
    catalog.families().by_name(name).ok_or_else(missing)
}

/// Returns an error if the name is taken or invalid.
fn check_new_name(catalog: &Catalog, name: &str) -> Result<()> {
    check_family_name(name)?;
    install::check_name_free(catalog.families(), name)
}

/// Returns an error if a new column family with this name cannot be created.
pub fn check_new_family(catalog: &Catalog, name: &str) -> Result<()> {
    check_new_name(catalog, name)?;
    if catalog.families().count() >= limits::FAMILIES_MAX {
        return Err(Error::invalid("there are too many column families").expected(
            format_args!("at most {}", limits::FAMILIES_MAX),
            catalog.families().count(),
        ));
    }
    Ok(())
}

/// Renames a column family, durably. Handles and batches made before stay valid: they hold its id.
pub fn rename_family(log: &Log, name: &str, to: &str) -> Result<()> {
    let mut commit_section = log.commit_section();
    log.runtime.health.check_writable()?;
    let family = find_family(&log.catalog, name)?;
    if family.id == FamilyId::DEFAULT {
        return Err(Error::invalid("the column family \"default\" cannot be renamed"));
    }
    if name == to {
        return Ok(());
    }
    check_new_name(&log.catalog, to)?;
    if bug::is_active(Bug::RenameInMemory) {
        log.catalog.families().rename(&family, to);
        return Ok(());
    }
    let seq = sequence::reserve_sequence_numbers(log, &mut commit_section, 1)?;
    let kind = FamilyEventKind::Renamed { from: name.to_owned(), to: to.to_owned() };
    let changes = family_changes(seq, family.id, kind);
    let update = FamilyUpdate::Rename { family, to: to.to_owned() };
    let renamed = install_and_publish(log, CatalogChanges { family: Some(update), ..changes }, seq);
    check_slow!(
        renamed.is_err()
            || log.catalog.families().by_name(name).is_none()
                && log.catalog.families().by_name(to).is_some(),
        "a renamed column family has the new name only",
        name,
        to
    );
    renamed
}

/// Returns `Busy` if a prepared transaction writes to the column family or depends on it.
fn check_no_prepared_txn(txns: &TxnManager, family: &FamilyState) -> Result<()> {
    match txns.prepared_txns().find_by_family(family.id) {
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

/// Removes all contents of a column family, durably and at once. The log up to here is marked as
/// flushed, so replaying it restores nothing.
pub fn clear_family(log: &Log, name: &str) -> Result<()> {
    let mut commit_section = log.commit_section();
    log.runtime.health.check_writable()?;
    let family = find_family(&log.catalog, name)?;
    check_no_prepared_txn(&log.txns, &family)?;
    let seq = sequence::reserve_sequence_numbers(log, &mut commit_section, 1)?;
    // Before the contents are replaced, which happens before the sequence number is visible.
    family.row_cache_epoch.advance(seq);
    let update = FamilyUpdate::Clear {
        family: Arc::clone(&family),
        seq,
        flushed_up_to: (!bug::is_active(Bug::ClearReplays)).then_some(seq),
    };
    let changes = family_changes(seq, family.id, FamilyEventKind::Cleared);
    let cleared = install_and_publish(log, CatalogChanges { family: Some(update), ..changes }, seq);
    check_slow!(
        cleared.is_err() || {
            let view = family.tree.view();
            view.version.file_ids().is_empty() && view.memtables().all(|m| m.is_empty())
        },
        "a column family that was cleared is empty",
        family
    );
    drop(commit_section);
    cleared?;
    release_memory_and_files(log, family.id);
    Ok(())
}

/// Creates the column family `name` from the current tables of `source`, in one edit. The files are
/// shared until a compaction in either column family replaces them.
pub fn clone_family(log: &Log, source: &Arc<FamilyState>, name: &str) -> Result<Arc<FamilyState>> {
    let mut commit_section = log.commit_section();
    log.runtime.health.check_writable()?;
    check_new_family(&log.catalog, name)?;
    source.check_not_dropped()?;
    let seq = sequence::reserve_sequence_numbers(log, &mut commit_section, 1)?;
    let family = log.catalog.new_family(name, source.settings());
    let kind = FamilyEventKind::Cloned { name: name.to_owned(), source: source.id };
    let (added, source) = (Arc::clone(&family), Arc::clone(source));
    let changes = CatalogChanges {
        family: Some(FamilyUpdate::Clone { family: added, source, seq }),
        ..family_changes(seq, family.id, kind)
    };
    install_and_publish(log, changes, seq)?;
    check_slow!(
        log.catalog.families().by_name(name).is_some_and(|f| Arc::ptr_eq(&f, &family)),
        "a clone is open",
        family
    );
    Ok(family)
}

/// Changes the settings of a column family, durably. They apply to files written from now on;
/// existing files stay as they are.
pub fn set_family_settings(
    catalog: &Catalog,
    family: &Arc<FamilyState>,
    settings: FamilySettings,
) -> Result<()> {
    settings.check()?;
    catalog.runtime.settings.merge_operators.check_registered(settings.merge_operator.as_ref())?;
    catalog.runtime.health.check_writable()?;
    let merger = catalog.runtime.settings.merge_operators.merger(settings.merge_operator.as_ref());
    let (family, settings) = (Arc::clone(family), Arc::new(settings));
    let update = FamilyUpdate::Configure { family, settings, merger };
    catalog.install(CatalogChanges { family: Some(update), ..CatalogChanges::default() })?;
    Ok(())
}

/// Deletes the files that are no longer referenced, and removes the cached rows of the column
/// family. Called outside the commit section: there may be thousands of files, and writers must not
/// wait.
fn release_memory_and_files(log: &Log, family: FamilyId) {
    let _ = log.catalog.delete_unreferenced();
    if let Some(cache) = log.resources.row_cache() {
        cache.remove_family(family);
    }
}

/// Drops a column family with all its contents, durably.
pub fn drop_family(log: &Log, name: &str) -> Result<()> {
    let mut commit_section = log.commit_section();
    log.runtime.health.check_writable()?;
    let family = find_family(&log.catalog, name)?;
    if family.id == FamilyId::DEFAULT {
        return Err(Error::invalid(
            "the column family \"default\" cannot be dropped: clear it instead",
        ));
    }
    check_no_prepared_txn(&log.txns, &family)?;
    let seq = sequence::reserve_sequence_numbers(log, &mut commit_section, 1)?;
    let changes =
        family_changes(seq, family.id, FamilyEventKind::Dropped { name: name.to_owned() });
    let id = family.id;
    let update = FamilyUpdate::Drop { family };
    let dropped = install_and_publish(log, CatalogChanges { family: Some(update), ..changes }, seq);
    check_slow!(
        dropped.is_err() || log.catalog.families().by_name(name).is_none(),
        "the name of a dropped column family is free",
        name
    );
    drop(commit_section);
    dropped?;
    release_memory_and_files(log, id);
    Ok(())
}

/// Creates a named snapshot of the current state, durably; returns its sequence number.
///
/// # Errors
/// `AlreadyExists`; `InvalidArgument` for a name that is empty, too long or contains NUL.
pub fn create_named_snapshot(log: &Log, name: &str) -> Result<SeqNo> {
    if name.is_empty() || name.len() > limits::FAMILY_NAME_BYTES_MAX || name.contains('\0') {
        return Err(Error::invalid("the name of a snapshot must have 1 to 255 bytes and no NUL")
            .expected("1 to 255 bytes", name.len()));
    }
    // In the commit section the visible sequence number does not change, and no column family is
    // replaced.
    let _commit_section = log.commit_section();
    log.runtime.health.check_writable()?;
    let snapshot = log.catalog.acquire_snapshot();
    let seq = snapshot.seq();
    let durable = log.sync_before_edit()?;
    check!(seq <= durable, "a named snapshot shows only what is durable", seq, durable);
    let changes = CatalogChanges {
        snapshot: Some(SnapshotChange::Create { name: name.to_owned(), snapshot }),
        durable_seq: Some(durable),
        ..CatalogChanges::default()
    };
    log.catalog.install(changes)?;
    Ok(seq)
}
