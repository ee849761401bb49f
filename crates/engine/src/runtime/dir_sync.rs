//! Syncs of the database directory, which make file names durable. After a failed directory sync a
//! later success proves nothing, so the first failure poisons the database; no sync of the
//! directory may succeed between the failure and the poisoning.

use crate::runtime::health::Health;
use perigee_base::Result;
use perigee_env::{Dir, Mutex};
use std::sync::Arc;

/// The only way to sync the directory while the database is open. The lock is held across the sync.
#[derive(Debug)]
pub struct DirSync {
    dir: Arc<dyn Dir>,
    sync_lock: Mutex<()>,
}

impl DirSync {
    /// Creates the sync of `dir`.
    pub fn new(dir: Arc<dyn Dir>) -> DirSync {
        DirSync { dir, sync_lock: Mutex::new(()) }
    }
    /// Makes file creations, renames and removals durable; poisons the database if that fails.
    pub fn sync(&self, health: &Health) -> Result<()> {
        let _one_at_a_time = self.sync_lock.lock();
        if let Some(cause) = health.poisoned() {
            return Err(cause.clone());
        }
        self.dir.sync().inspect_err(|e| health.poison(e))
    }
}
