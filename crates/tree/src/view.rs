//! The view: everything that a read needs, immutable, in one object. A reader loads a single
//! pointer, so there are no races between levels.

use crate::txn_overlay::TxnOverlay;
use crate::{Memtable, Version};
use perigee_base::{ExpiryClock, OperandMerger};
use std::sync::{Arc, OnceLock};

/// The sources of a column family, newest first: active memtable, immutable memtables, version.
#[derive(Clone, Debug)]
pub struct View {
    /// Own writes of the transaction that reads, newer than all other sources.
    pub overlay: Option<TxnOverlay>,
    /// Active memtable.
    pub active: Arc<Memtable>,
    /// Immutable memtables that wait for their flush, newest first.
    pub immutables: Vec<Arc<Memtable>>,
    /// The tables.
    pub version: Arc<Version>,
    /// Number of versions installed before: a rewrite may drop what only readers of earlier views
    /// still see.
    pub installs: u64,
    /// Clock, read at entries with an expiry.
    pub now: Arc<dyn ExpiryClock>,
    /// Merges operands, if the column family has an operator. An operator set later also applies to
    /// views taken before, as their active memtable takes operands from then on.
    pub merge_operator: Arc<OnceLock<Arc<OperandMerger>>>,
}

impl View {
    /// Returns the view as seen by a transaction with the writes in `overlay`.
    #[must_use]
    pub fn with_overlay(&self, overlay: TxnOverlay) -> View {
        let vlogs = overlay.spilled().map(|s| &s.vlogs).filter(|vlogs| !vlogs.is_empty());
        let version = match vlogs {
            None => Arc::clone(&self.version),
            Some(vlogs) => {
                let mut version = Version::clone(&self.version);
                version.vlogs.extend(vlogs.iter().map(|(id, vlog)| (*id, Arc::clone(vlog))));
                Arc::new(version)
            }
        };
        View { overlay: Some(overlay), version, ..self.clone() }
    }
    /// Returns all memtables except the transaction's own, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.immutables)
    }
}
