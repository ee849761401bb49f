//! Makes names durable. A failed directory sync cannot be repeated and believed: it poisons, and no
//! sync of the directory may succeed between the failure of another and the poison.

use crate::health::Health;
use perigee_base::Result;
use perigee_env::Dir;
use perigee_env::sync::Mutex;
use std::sync::Arc;

/// The only door to the directory's sync once the database is open. The lock is held across the
/// sync.
#[derive(Debug)]
pub struct DirSync {
    dir: Arc<dyn Dir>,
    sync_lock: Mutex<()>,
}

impl DirSync {
    /// For `dir`.
    pub fn new(dir: Arc<dyn Dir>) -> DirSync {
        DirSync { dir, sync_lock: Mutex::new(()) }
    }
    /// Makes creations, renames and removals durable, or poisons.
    pub fn sync(&self, health: &Health) -> Result<()> {
        let _one_at_a_time = self.sync_lock.lock();
        if let Some(cause) = health.poisoned() {
            return Err(cause.clone());
        }
        self.dir.sync().inspect_err(|e| health.poison(e))
    }
}
