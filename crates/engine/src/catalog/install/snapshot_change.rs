//! Changes of named snapshots: their preconditions, their part of the manifest edit, and how they
//! become current.

use crate::catalog::manifest::{CatalogState, ManifestEdit};
use crate::catalog::snapshot::SnapshotHandle;
use perigee_base::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A change of a named snapshot.
#[derive(Debug)]
pub enum SnapshotChange {
    /// Names a snapshot.
    Create {
        /// The name, which must be free.
        name: String,
        /// The snapshot, which keeps its sequence number pinned.
        snapshot: SnapshotHandle,
    },
    /// Removes a name, which must exist. Existing handles stay valid.
    Drop {
        /// The name.
        name: String,
    },
}

/// Returns the error for a name that does not exist.
pub fn no_such_snapshot_error(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no snapshot {name:?}"))
}

impl SnapshotChange {
    /// Checks the preconditions.
    pub fn check(&self, catalog: &CatalogState) -> Result<()> {
        match self {
            SnapshotChange::Create { name, .. } if catalog.snapshots.contains_key(name) => {
                let text = format!("there is already a snapshot {name:?}");
                Err(Error::new(ErrorKind::AlreadyExists, text))
            }
            SnapshotChange::Drop { name } if !catalog.snapshots.contains_key(name) => {
                Err(no_such_snapshot_error(name))
            }
            _ => Ok(()),
        }
    }

    /// Adds the change to `edit`.
    pub fn add_to(&self, edit: &mut ManifestEdit) {
        match self {
            SnapshotChange::Create { name, snapshot } => {
                edit.snapshots = vec![(name.clone(), snapshot.seq())];
            }
            SnapshotChange::Drop { name } => edit.snapshots_dropped = vec![name.clone()],
        }
    }

    /// Makes the change current.
    pub fn swap(self, named: &Mutex<BTreeMap<String, SnapshotHandle>>) {
        let mut named = named.lock().unwrap_or_else(PoisonError::into_inner);
        match self {
            SnapshotChange::Create { name, snapshot } => {
                let before = named.insert(name, snapshot);
                check!(before.is_none(), "a name pins one sequence number", before);
            }
            SnapshotChange::Drop { name } => {
                let pinned = named.remove(&name);
                check!(pinned.is_some(), "each name in the manifest pins a snapshot", name);
            }
        }
    }
}
