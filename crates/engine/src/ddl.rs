//! Creating, dropping, renaming, clearing and cloning families: one manifest edit each. The log is made durable first, so that the manifest never overtakes it: a power cut
//! cannot keep the change and lose the writes before it.

use crate::commit::{number, publish_up_to};
use crate::core::Core;
use crate::family::Family;
use crate::manifest::{Befell, Catalog, Edit, FamilyEntry, FamilyEvent};
use crate::prepared::shown;
use crate::settings::FamilySettings;
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, FamilyId, Result, SeqNo, limits};
use perigee_tree::{Tree, Version, VersionEdit};
use std::sync::Arc;

/// Refuses a name that no family can have.
pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > limits::FAMILY_NAME_BYTES_MAX || name.contains('\0') {
        return Err(Error::invalid("a family's name has 1 to 255 bytes and no NUL")
            .expected("1 to 255 bytes", name.len()));
    }
    Ok(())
}

/// Creates a family, durably, under a number of its own.
pub fn create(core: &Core, name: &str, settings: FamilySettings) -> Result<Arc<Family>> {
    settings.check()?;
    settings.order.check_known(&core.orders())?;
    core.settings.operators.check_known(settings.merge_operator.as_ref())?;
    let mut commit_section = core.wal.appender();
    core.health.check_writable()?;
    check_new(core, name)?;
    let filter = core.settings.filters.adopt(name, "")?;
    let seq = number::take(core, &mut commit_section, 1)?;
    let mut made = None;
    let created = core.manifest.commit(
        &core.health,
        &core.ids,
        |catalog| {
            let id = FamilyId(catalog.next.1);
            let version = VersionEdit { flushed: Some(seq), ..VersionEdit::default() };
            let edit = Edit {
                next: Some((0, id.0 + 1, 0)),
                families: vec![(id, name.to_owned(), settings.clone())],
                filters: if filter.is_empty() { Vec::new() } else { vec![(id, filter)] },
                versions: vec![(id, version)],
                events: event(seq, id, Befell::Created { name: name.to_owned() }),
                durable: Some(seq.0),
                ..Edit::default()
            };
            let tree = Tree::new(Version::empty(settings.order), core.now.clone());
            tree.set_merger(core.settings.operators.merger(settings.merge_operator.as_ref()));
            let family = Arc::new(Family::new(id, name.to_owned(), settings, tree));
            family.set_filter(core.settings.filters.of(name));
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
fn find(core: &Core, name: &str) -> Result<Arc<Family>> {
    let missing = || Error::new(ErrorKind::NotFound, format!("there is no family {name:?}"));
    core.families.by_name(name).ok_or_else(missing)
}

/// Refuses a name that is taken, or that no family can have.
fn check_free(core: &Core, name: &str) -> Result<()> {
    check_name(name)?;
    if core.families.by_name(name).is_some() {
        return Err(Error::new(ErrorKind::AlreadyExists, format!("the family {name:?} exists already")));
    }
    Ok(())
}

/// Refuses a new family of that name.
pub fn check_new(core: &Core, name: &str) -> Result<()> {
    check_free(core, name)?;
    if core.families.count() >= limits::FAMILIES_MAX {
        return Err(Error::invalid("there are too many families")
            .expected(format_args!("at most {}", limits::FAMILIES_MAX), core.families.count()));
    }
    Ok(())
}

/// Gives a family another name, durably. Handles and batches made before go on working: they hold its number.
pub fn rename(core: &Core, name: &str, to: &str) -> Result<()> {
    let mut commit_section = core.wal.appender();
    core.health.check_writable()?;
    let family = find(core, name)?;
    if family.id == FamilyId::DEFAULT {
        return Err(Error::invalid("the family \"default\" cannot be renamed"));
    }
    if name == to {
        return Ok(());
    }
    check_free(core, to)?;
    if bug::on(Bug::RenameInMemory) {
        core.families.rename(&family, to);
        return Ok(());
    }
    let seq = number::take(core, &mut commit_section, 1)?;
    let renamed = core.manifest.commit(
        &core.health,
        &core.ids,
        |catalog| {
            let entry = entry(catalog, family.id)?;
            let renamed = (family.id, to.to_owned(), entry.settings.clone());
            let befell = Befell::Renamed { from: name.to_owned(), to: to.to_owned() };
            let events = event(seq, family.id, befell);
            Ok((Edit { families: vec![renamed], events, durable: Some(seq.0), ..Edit::default() }, ()))
        },
        |()| core.families.rename(&family, to),
    );
    publish_up_to(core, seq, Vec::new());
    renamed
}

/// Refuses to take away what a prepared transaction writes, or depends on.
fn check_undecided(core: &Core, family: &Family) -> Result<()> {
    match core.prepared.about(family.id) {
        None => Ok(()),
        Some(undecided) => Err(Error::new(
            ErrorKind::Busy,
            format!(
                "the transaction prepared as {} is about the family {:?}: decide it first",
                shown(&undecided.gid),
                family.name()
            ),
        )),
    }
}

fn event(at: SeqNo, family: FamilyId, what: Befell) -> Vec<FamilyEvent> {
    vec![FamilyEvent { at, family, what }]
}

/// Removes everything in a family, durably and at once. The log is spent up to here, so replaying it
/// brings nothing back.
pub fn clear(core: &Core, name: &str) -> Result<()> {
    let mut commit_section = core.wal.appender();
    core.health.check_writable()?;
    let family = find(core, name)?;
    check_undecided(core, &family)?;
    let seq = number::take(core, &mut commit_section, 1)?;
    let era = core.snapshots.era() + 1;
    let cleared = core.manifest.commit(
        &core.health,
        &core.ids,
        |catalog| {
            let entry = entry(catalog, family.id)?;
            let version = VersionEdit {
                removed: entry.tables.values().map(|t| (t.level, t.meta.id)).collect(),
                vlogs_removed: entry.vlogs.keys().copied().collect(),
                flushed: (!bug::on(Bug::ClearReplays)).then_some(seq),
                ..VersionEdit::default()
            };
            let edit = Edit {
                versions: vec![(family.id, version)],
                begun: vec![(family.id, seq)],
                events: event(seq, family.id, Befell::Cleared),
                durable: Some(seq.0),
                ..Edit::default()
            };
            Ok((edit, family.tree.view()))
        },
        |view| {
            family.set_since(era);
            family.set_begun(seq);
            family.tree.clear();
            core.retire.difference(&view.version, &Version::empty(family.tree.order()));
            // Here, not behind the commit: that may fail after this, and the family would be older than all snapshots to come.
            core.snapshots.begin(era);
        },
    );
    publish_up_to(core, seq, Vec::new());
    drop(commit_section);
    cleared?;
    tidy(core);
    Ok(())
}

/// Makes the family `name` of the tables that `source` has now, in one edit. The files are shared until a compaction of
/// either replaces them.
pub fn clone(core: &Core, source: &Arc<Family>, name: &str) -> Result<Arc<Family>> {
    let mut commit_section = core.wal.appender();
    core.health.check_writable()?;
    check_new(core, name)?;
    source.check()?;
    let seq = number::take(core, &mut commit_section, 1)?;
    let era = core.snapshots.era() + 1;
    let mut made = None;
    let cloned = core.manifest.commit(
        &core.health,
        &core.ids,
        |catalog| {
            let (id, of) = (FamilyId(catalog.next.1), entry(catalog, source.id)?);
            let version = VersionEdit {
                added: of.added(),
                vlogs_added: of.vlogs.values().cloned().collect(),
                flushed: Some(of.flushed),
                ..VersionEdit::default()
            };
            let edit = Edit {
                next: Some((0, id.0 + 1, 0)),
                families: vec![(id, name.to_owned(), of.settings.clone())],
                versions: vec![(id, version)],
                begun: vec![(id, seq)],
                events: event(seq, id, Befell::Cloned { name: name.to_owned(), source: source.id }),
                durable: Some(seq.0),
                ..Edit::default()
            };
            // Installing happens under this same lock: the version is what the catalog says.
            let of_source = source.tree.view();
            let tree = Tree::new((*of_source.version).clone(), core.now.clone());
            tree.set_merger(of_source.merger.get().cloned());
            Ok((edit, Arc::new(Family::new(id, name.to_owned(), of.settings.clone(), tree))))
        },
        |family| {
            family.set_since(era);
            family.set_begun(seq);
            core.families.insert(Arc::clone(&family));
            core.snapshots.begin(era);
            made = Some(family);
        },
    );
    publish_up_to(core, seq, Vec::new());
    cloned?;
    core.refresh_limits();
    core.refresh_load();
    core.signal.ring();
    made.ok_or_else(|| Error::internal("a family was cloned but not installed"))
}

fn entry(catalog: &Catalog, id: FamilyId) -> Result<&FamilyEntry> {
    catalog.families.get(&id).ok_or_else(|| Error::internal(format!("the catalog has lost family {id}")))
}

/// Gives a family other settings, durably. Files written from now on follow them; the others stay as they are.
pub fn set_settings(core: &Core, family: &Family, settings: FamilySettings) -> Result<()> {
    settings.check()?;
    core.settings.operators.check_known(settings.merge_operator.as_ref())?;
    core.health.check_writable()?;
    core.manifest.commit(
        &core.health,
        &core.ids,
        |catalog| {
            family.check()?;
            let entry = entry(catalog, family.id)?;
            entry.settings.may_become(&settings, &entry.name)?;
            let changed = (family.id, entry.name.clone(), settings.clone());
            Ok((Edit { families: vec![changed], ..Edit::default() }, settings))
        },
        |settings| {
            // In the manifest before any operand is.
            family.tree.set_merger(core.settings.operators.merger(settings.merge_operator.as_ref()));
            family.set_settings(settings);
        },
    )?;
    core.refresh_limits();
    core.signal.ring();
    Ok(())
}

/// After files went: what depends on them is counted again, and they are deleted if nobody holds them. Outside the commit
/// section: there may be thousands, and no writer has to wait for that.
fn tidy(core: &Core) {
    core.refresh_limits();
    core.refresh_load();
    core.signal.ring();
    let _ = core.retire.sweep(&core.shelf);
}

/// Drops a family with everything in it, durably.
pub fn drop_family(core: &Core, name: &str) -> Result<()> {
    let mut commit_section = core.wal.appender();
    core.health.check_writable()?;
    let family = find(core, name)?;
    if family.id == FamilyId::DEFAULT {
        return Err(Error::invalid("the family \"default\" cannot be dropped: clear it"));
    }
    check_undecided(core, &family)?;
    let seq = number::take(core, &mut commit_section, 1)?;
    let dropped = core.manifest.commit(
        &core.health,
        &core.ids,
        |_| {
            let events = event(seq, family.id, Befell::Dropped { name: name.to_owned() });
            Ok((Edit { dropped: vec![family.id], events, durable: Some(seq.0), ..Edit::default() }, ()))
        },
        |()| {
            family.drop_it();
            core.families.remove(family.id);
            core.retire.difference(&family.tree.view().version, &Version::empty(family.tree.order()));
            family.tree.clear();
        },
    );
    publish_up_to(core, seq, Vec::new());
    drop(commit_section);
    dropped?;
    tidy(core);
    Ok(())
}
