//! Creating and dropping families. The log is made durable first, so that the manifest never overtakes it: a power cut
//! cannot keep the drop and lose the writes before it.

use crate::core::Core;
use crate::family::Family;
use crate::manifest::Edit;
use crate::settings::FamilySettings;
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

/// Creates a family, durably.
pub fn create(core: &Core, name: &str, settings: FamilySettings) -> Result<Arc<Family>> {
    check_name(name)?;
    settings.check()?;
    settings.order.check_known(&core.settings.orders)?;
    let _commit_section = core.wal.appender();
    core.health.check_writable()?;
    if core.families.by_name(name).is_some() {
        return Err(Error::new(ErrorKind::AlreadyExists, format!("the family {name:?} exists already")));
    }
    if core.families.count() >= limits::FAMILIES_MAX {
        return Err(Error::invalid("there are too many families")
            .expected(format_args!("at most {}", limits::FAMILIES_MAX), core.families.count()));
    }
    let flushed = core.wal.sync(&core.health)?;
    let mut made = None;
    core.manifest.commit(
        &core.health,
        &core.ids,
        |catalog| {
            let id = FamilyId(catalog.next.1);
            let version = VersionEdit { flushed: Some(SeqNo(flushed)), ..VersionEdit::default() };
            let edit = Edit {
                next: Some((0, id.0 + 1, 0)),
                families: vec![(id, name.to_owned(), settings.clone())],
                versions: vec![(id, version)],
                durable: Some(flushed),
                ..Edit::default()
            };
            let tree = Tree::new(Version::empty(settings.order), core.now.clone());
            Ok((edit, Arc::new(Family::new(id, name.to_owned(), settings, tree))))
        },
        |family| {
            core.families.insert(Arc::clone(&family));
            made = Some(family);
        },
    )?;
    core.refresh_limits();
    made.ok_or_else(|| Error::internal("a family was created but not installed"))
}

/// Gives a family other settings, durably. Files written from now on follow them; the others stay as they are.
pub fn set_settings(core: &Core, family: &Family, settings: FamilySettings) -> Result<()> {
    settings.check()?;
    core.health.check_writable()?;
    core.manifest.commit(
        &core.health,
        &core.ids,
        |catalog| {
            family.check()?;
            let entry = catalog.families.get(&family.id);
            let entry = entry.ok_or_else(|| Error::internal("the catalog has lost a family"))?;
            entry.settings.may_become(&settings, &entry.name)?;
            let changed = (family.id, entry.name.clone(), settings.clone());
            Ok((Edit { families: vec![changed], ..Edit::default() }, settings))
        },
        |settings| family.set_settings(settings),
    )?;
    core.refresh_limits();
    core.signal.ring();
    Ok(())
}

/// Drops a family with everything in it, durably.
pub fn drop_family(core: &Core, name: &str) -> Result<()> {
    let _commit_section = core.wal.appender();
    core.health.check_writable()?;
    let family = core
        .families
        .by_name(name)
        .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no family {name:?}")))?;
    if family.id == FamilyId::DEFAULT {
        return Err(Error::invalid("the family \"default\" cannot be dropped"));
    }
    let durable = core.wal.sync(&core.health)?;
    core.manifest.commit(
        &core.health,
        &core.ids,
        |_| Ok((Edit { dropped: vec![family.id], durable: Some(durable), ..Edit::default() }, ())),
        |()| {
            family.drop_it();
            core.families.remove(family.id);
        },
    )?;
    let empty = Version::empty(family.tree.order());
    core.retire.difference(&family.tree.view().version, &empty);
    family.tree.clear();
    core.refresh_limits();
    core.refresh_load();
    core.signal.ring();
    let _ = core.retire.sweep(&core.shelf);
    Ok(())
}
