//! Snapshots at earlier sequence numbers: at any one that is still readable, or by name.
//!
//! The manifest contains the name before its creation is reported, and its sequence number stays
//! pinned from before that until the name is dropped.

use super::Catalog;
use super::install::{CatalogChanges, SnapshotChange, no_such_snapshot_error};
use super::snapshot::SnapshotHandle;
use perigee_base::{Error, ErrorKind, Result, SeqNo};
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

impl Catalog {
    /// Takes a snapshot at an earlier sequence number.
    ///
    /// # Errors
    /// `NotFound` if a rewrite may have dropped versions that it would read; the message names the
    /// oldest readable sequence number. `InvalidArgument` if `seq` is greater than the newest one.
    pub fn snapshot_at(&self, seq: SeqNo) -> Result<SnapshotHandle> {
        self.runtime.health.check_open()?;
        let visible = self.visible_seq();
        if seq > visible {
            return Err(Error::invalid("this sequence number has not been reached yet")
                .expected(format_args!("at most {visible}"), seq));
        }
        self.snapshots.acquire_at(seq).map_err(|oldest| {
            let text = format!(
                "sequence number {seq} is no longer readable; the oldest readable one is {oldest}. \
                 To keep more versions, set the option history or create a named snapshot"
            );
            Error::new(ErrorKind::NotFound, text)
        })
    }
    /// Returns a new handle of a named snapshot.
    pub fn named_snapshot(&self, name: &str) -> Result<SnapshotHandle> {
        self.runtime.health.check_open()?;
        let named = self.lock_named_snapshots();
        named.get(name).map(SnapshotHandle::duplicate).ok_or_else(|| no_such_snapshot_error(name))
    }
    /// Returns the names of all named snapshots with their sequence numbers.
    pub fn named_snapshots(&self) -> Vec<(String, SeqNo)> {
        let named = self.lock_named_snapshots();
        named.iter().map(|(name, snapshot)| (name.clone(), snapshot.seq())).collect()
    }
    /// Drops a named snapshot, durably. Existing handles stay valid.
    pub fn drop_named_snapshot(&self, name: &str) -> Result<()> {
        let snapshot = Some(SnapshotChange::Drop { name: name.to_owned() });
        self.install(CatalogChanges { snapshot, ..CatalogChanges::default() }).map(|_| ())
    }
    fn lock_named_snapshots(&self) -> MutexGuard<'_, BTreeMap<String, SnapshotHandle>> {
        self.named_snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
