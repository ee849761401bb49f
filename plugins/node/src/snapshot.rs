//! Snapshots.

use crate::error;
use crate::state::{Shared, SnapshotCell};
use crate::view::{NativeView, Source};
use napi::Env;
use napi_derive::napi;
use perigee::Snapshot;
use std::sync::Arc;

/// A snapshot of all column families.
#[napi]
pub struct NativeSnapshot {
    cell: Arc<SnapshotCell>,
    // Last: keeps the database open until the snapshot is dropped.
    #[allow(dead_code)]
    shared: Arc<Shared>,
}

impl NativeSnapshot {
    /// Returns the object for `snapshot`.
    pub fn new(snapshot: Snapshot, shared: &Arc<Shared>) -> NativeSnapshot {
        NativeSnapshot { cell: SnapshotCell::new(snapshot), shared: Arc::clone(shared) }
    }
}

#[napi]
impl NativeSnapshot {
    /// Returns the sequence number of the last operation that the snapshot sees.
    #[napi]
    pub fn sequence(&self, env: Env) -> napi::Result<f64> {
        let snapshot = self.cell.get().map_err(|e| error::to_js(&env, &e))?;
        Ok(snapshot.sequence() as f64)
    }
    /// Returns a column family as of the snapshot.
    #[napi]
    pub fn view(&self, family: &NativeView) -> NativeView {
        family.in_source(Source::Snapshot(Arc::clone(&self.cell)))
    }
    /// Closes the snapshot. Reads that are running finish first.
    #[napi]
    pub fn close(&self) {
        self.cell.close();
    }
}
