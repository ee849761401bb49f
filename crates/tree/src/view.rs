//! The view: everything a read needs, immutable, in one object. There are no races between levels
//! because there is only one thing to load.

use crate::txn_overlay::TxnOverlay;
use crate::{Memtable, Version};
use perigee_base::{ExpiryClock, OperandMerger};
use std::sync::{Arc, OnceLock};

/// The sources of a family, newest first: active memtable, sealed memtables, version.
#[derive(Clone, Debug)]
pub struct View {
    /// What the transaction that reads has written itself, before all others.
    pub overlay: Option<TxnOverlay>,
    /// Takes the inserts.
    pub active: Arc<Memtable>,
    /// Wait for their flush, newest first.
    pub immutables: Vec<Arc<Memtable>>,
    /// The tables.
    pub version: Arc<Version>,
    /// Asked where an entry that expires is met.
    pub now: Arc<dyn ExpiryClock>,
    /// Merges operands, if the family has an operator. One that it gets later, which stays, is in
    /// views taken before too: their active memtable takes operands from then on.
    pub merge_operator: Arc<OnceLock<Arc<OperandMerger>>>,
}

impl View {
    /// The view as a transaction sees it that has written `own`.
    #[must_use]
    pub fn with_overlay(&self, own: TxnOverlay) -> View {
        let logs = own.spilled().map(|s| &s.vlogs).filter(|logs| !logs.is_empty());
        let version = match logs {
            None => Arc::clone(&self.version),
            Some(logs) => {
                let mut version = Version::clone(&self.version);
                version.vlogs.extend(logs.iter().map(|(id, log)| (*id, Arc::clone(log))));
                Arc::new(version)
            }
        };
        View { overlay: Some(own), version, ..self.clone() }
    }
    /// All memtables that everybody reads, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.immutables)
    }
}
