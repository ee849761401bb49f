//! Snapshots at earlier sequence numbers: at any one that is still readable, or by name.
//!
//! The manifest contains the name before its creation is reported, and its sequence number stays
//! pinned from before that until the name is dropped.

use crate::core::EngineCore;
use crate::manifest::ManifestEdit;
use crate::snapshot::SnapshotHandle;
use perigee_base::{Error, ErrorKind, Result, SeqNo, limits};
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

fn lock_named(core: &EngineCore) -> MutexGuard<'_, BTreeMap<String, SnapshotHandle>> {
    core.named_snapshots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a snapshot at an earlier sequence number.
///
/// # Errors
/// `NotFound` if a rewrite may have dropped versions that it would read; the message names the
/// oldest readable sequence number. `InvalidArgument` if `seq` is greater than the newest one.
pub fn snapshot_at(core: &EngineCore, seq: SeqNo) -> Result<SnapshotHandle> {
    core.health.check_open()?;
    let visible = core.visible_seq();
    if seq > visible {
        return Err(Error::invalid("this sequence number has not been reached yet")
            .expected(format_args!("at most {visible}"), seq));
    }
    core.snapshots.acquire_at(seq).map_err(|oldest| {
        let text = format!(
            "sequence number {seq} is no longer readable; the oldest readable one is {oldest}. To \
             keep more versions, set the option history or create a named snapshot"
        );
        Error::new(ErrorKind::NotFound, text)
    })
}

/// Creates a named snapshot of the current state, durably; returns its sequence number.
///
/// # Errors
/// `AlreadyExists`; `InvalidArgument` for a name that is empty, too long or contains NUL.
pub fn create_named(core: &EngineCore, name: &str) -> Result<SeqNo> {
    if name.is_empty() || name.len() > limits::FAMILY_NAME_BYTES_MAX || name.contains('\0') {
        return Err(Error::invalid("the name of a snapshot must have 1 to 255 bytes and no NUL")
            .expected("1 to 255 bytes", name.len()));
    }
    // In the commit section the visible sequence number does not change, and no column family is
    // replaced.
    let _commit_section = core.wal.appender();
    core.health.check_writable()?;
    let snapshot = core.snapshots.acquire(&core.visible_seq);
    let seq = snapshot.seq();
    let durable = core.wal.sync(&core.health)?;
    core.manifest.commit_edit(
        &core.health,
        &core.next_file_id,
        |catalog| {
            if catalog.snapshots.contains_key(name) {
                let text = format!("there is already a snapshot {name:?}");
                return Err(Error::new(ErrorKind::AlreadyExists, text));
            }
            let snapshots = vec![(name.to_owned(), seq)];
            Ok((
                ManifestEdit { snapshots, durable_seq: Some(durable), ..ManifestEdit::default() },
                snapshot,
            ))
        },
        |snapshot| drop(lock_named(core).insert(name.to_owned(), snapshot)),
    )?;
    Ok(seq)
}

fn no_such_snapshot_error(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no snapshot {name:?}"))
}

/// Returns a new handle of a named snapshot.
pub fn find_named(core: &EngineCore, name: &str) -> Result<SnapshotHandle> {
    core.health.check_open()?;
    lock_named(core)
        .get(name)
        .map(SnapshotHandle::duplicate)
        .ok_or_else(|| no_such_snapshot_error(name))
}

/// Returns all names with their sequence numbers.
pub fn list_named(core: &EngineCore) -> Vec<(String, SeqNo)> {
    lock_named(core).iter().map(|(name, snapshot)| (name.clone(), snapshot.seq())).collect()
}

/// Drops a named snapshot, durably. Existing handles stay valid.
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
    // Wake compactions that the snapshot blocked.
    core.signal.notify();
    Ok(())
}
