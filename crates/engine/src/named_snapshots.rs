//! Readers of the past: at a number that is still readable, or by a name that holds one.
//!
//! A name is in the manifest before anybody hears that it is made, and its number is held from
//! before that until it is dropped.

use crate::core::EngineCore;
use crate::manifest::ManifestEdit;
use crate::snapshot::SnapshotHandle;
use perigee_base::{Error, ErrorKind, Result, SeqNo, limits};
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

fn lock_named(core: &EngineCore) -> MutexGuard<'_, BTreeMap<String, SnapshotHandle>> {
    core.named_snapshots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds on to a number of the past.
///
/// # Errors
/// `NotFound` if a rewrite may have dropped what it would read, naming the oldest number;
/// `InvalidArgument` if there is no such number yet.
pub fn snapshot_at(core: &EngineCore, seq: SeqNo) -> Result<SnapshotHandle> {
    core.health.check_open()?;
    let visible = core.visible_seq();
    if seq > visible {
        return Err(Error::invalid("there is no such operation yet")
            .expected(format_args!("at most {visible}"), seq));
    }
    core.snapshots.acquire_at(seq).map_err(|oldest| {
        let text = format!(
            "what operation {seq} would read may be gone: the oldest number that can be read is {oldest}; the option \
             history keeps more, a named snapshot keeps one"
        );
        Error::new(ErrorKind::NotFound, text)
    })
}

/// Gives the present a name, durably; its number.
///
/// # Errors
/// `AlreadyExists`; `InvalidArgument` for a name that is empty, too long or contains NUL.
pub fn create_named(core: &EngineCore, name: &str) -> Result<SeqNo> {
    if name.is_empty() || name.len() > limits::FAMILY_NAME_BYTES_MAX || name.contains('\0') {
        return Err(Error::invalid("a snapshot's name has 1 to 255 bytes and no NUL")
            .expected("1 to 255 bytes", name.len()));
    }
    // In the commit section the present stands still, and nobody replaces a family.
    let _commit_section = core.wal.appender();
    core.health.check_writable()?;
    let held = core.snapshots.acquire(&core.visible_seq);
    let seq = held.seq();
    let durable = core.wal.sync(&core.health)?;
    core.manifest.commit_edit(
        &core.health,
        &core.next_file_id,
        |catalog| {
            if catalog.snapshots.contains_key(name) {
                let text = format!("there is a snapshot {name:?} already");
                return Err(Error::new(ErrorKind::AlreadyExists, text));
            }
            let snapshots = vec![(name.to_owned(), seq)];
            Ok((
                ManifestEdit { snapshots, durable_seq: Some(durable), ..ManifestEdit::default() },
                held,
            ))
        },
        |held| drop(lock_named(core).insert(name.to_owned(), held)),
    )?;
    Ok(seq)
}

fn no_such_snapshot_error(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no snapshot {name:?}"))
}

/// Holds on to what a name holds.
pub fn find_named(core: &EngineCore, name: &str) -> Result<SnapshotHandle> {
    core.health.check_open()?;
    lock_named(core)
        .get(name)
        .map(SnapshotHandle::duplicate)
        .ok_or_else(|| no_such_snapshot_error(name))
}

/// All names with their numbers.
pub fn list_named(core: &EngineCore) -> Vec<(String, SeqNo)> {
    lock_named(core).iter().map(|(name, held)| (name.clone(), held.seq())).collect()
}

/// Forgets a name, durably. Whoever reads by it goes on.
pub fn drop_named(core: &EngineCore, name: &str) -> Result<()> {
    core.manifest.commit_edit(
        &core.health,
        &core.next_file_id,
        |catalog| {
            if !catalog.snapshots.contains_key(name) {
                return Err(no_such_snapshot_error(name));
            }
            Ok((
                ManifestEdit {
                    snapshots_dropped: vec![name.to_owned()],
                    ..ManifestEdit::default()
                },
                (),
            ))
        },
        |()| drop(lock_named(core).remove(name)),
    )?;
    // Compactions that waited for it look again.
    core.signal.notify();
    Ok(())
}
