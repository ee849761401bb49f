//! Readers of the past: at a number that is still readable, or by a name that holds one.
//!
//! A name is in the manifest before anybody hears that it is made, and its number is held from before that until it is dropped.

use crate::core::Core;
use crate::manifest::Edit;
use crate::snapshot::Held;
use perigee_base::{Error, ErrorKind, Result, SeqNo, limits};
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

fn named(core: &Core) -> MutexGuard<'_, BTreeMap<String, Held>> {
    core.named.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds on to a number of the past.
///
/// # Errors
/// `NotFound` if a rewrite may have dropped what it would read, naming the oldest number; `InvalidArgument` if there is no
/// such number yet.
pub fn at(core: &Core, seq: SeqNo) -> Result<Held> {
    core.health.check_open()?;
    let visible = core.visible();
    if seq > visible {
        return Err(
            Error::invalid("there is no such operation yet").expected(format_args!("at most {visible}"), seq)
        );
    }
    core.snapshots.take_at(seq).map_err(|oldest| {
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
pub fn create(core: &Core, name: &str) -> Result<SeqNo> {
    if name.is_empty() || name.len() > limits::FAMILY_NAME_BYTES_MAX || name.contains('\0') {
        return Err(Error::invalid("a snapshot's name has 1 to 255 bytes and no NUL")
            .expected("1 to 255 bytes", name.len()));
    }
    // In the commit section the present stands still, and nobody replaces a family.
    let _commit_section = core.wal.appender();
    core.health.check_writable()?;
    let held = core.snapshots.take(&core.visible);
    let seq = held.seq();
    let durable = core.wal.sync(&core.health)?;
    core.manifest.commit(
        &core.health,
        &core.ids,
        |catalog| {
            if catalog.snapshots.contains_key(name) {
                let text = format!("there is a snapshot {name:?} already");
                return Err(Error::new(ErrorKind::AlreadyExists, text));
            }
            let snapshots = vec![(name.to_owned(), seq)];
            Ok((Edit { snapshots, durable: Some(durable), ..Edit::default() }, held))
        },
        |held| drop(named(core).insert(name.to_owned(), held)),
    )?;
    Ok(seq)
}

fn missing(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no snapshot {name:?}"))
}

/// Holds on to what a name holds.
pub fn find(core: &Core, name: &str) -> Result<Held> {
    core.health.check_open()?;
    named(core).get(name).map(Held::again).ok_or_else(|| missing(name))
}

/// All names with their numbers.
pub fn all(core: &Core) -> Vec<(String, SeqNo)> {
    named(core).iter().map(|(name, held)| (name.clone(), held.seq())).collect()
}

/// Forgets a name, durably. Whoever reads by it goes on.
pub fn drop_named(core: &Core, name: &str) -> Result<()> {
    core.manifest.commit(
        &core.health,
        &core.ids,
        |catalog| {
            if !catalog.snapshots.contains_key(name) {
                return Err(missing(name));
            }
            Ok((Edit { snapshots_dropped: vec![name.to_owned()], ..Edit::default() }, ()))
        },
        |()| drop(named(core).remove(name)),
    )?;
    // Compactions that waited for it look again.
    core.signal.ring();
    Ok(())
}
