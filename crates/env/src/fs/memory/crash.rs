//! Crashes: the state of the disk at the next start.

use super::SimDisk;
use crate::rand::SeededRng;
use std::sync::Arc;

/// What crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process (kill -9): everything handed to the kernel is kept, and can still be lost later.
    Process,
    /// The machine: each unsynced part is kept or lost, chosen by the seed.
    Power,
}

/// Probabilities with which an unsynced part survives a power failure.
const SURVIVAL_CHANCES: [f64; 5] = [0.0, 0.1, 0.5, 0.9, 1.0];

impl SimDisk {
    /// Returns the disk as it would be after a crash now: without locks, planned faults or a
    /// capacity limit. This disk is not changed.
    pub fn crash_clone(&self, seed: u64, crash: Crash) -> Arc<SimDisk> {
        let state = self.core.state();
        let mut rng = SeededRng::new(seed);
        let mut tree = state.tree.deep_clone();
        let mut boot_id = state.boot_id;
        if crash == Crash::Power {
            // Always differs from the old boot id.
            boot_id = boot_id.wrapping_add(rng.next_u64() | 1);
            check!(boot_id != state.boot_id, "a power failure changes the boot id", boot_id);
            let common = SURVIVAL_CHANCES[rng.index(SURVIVAL_CHANCES.len())];
            tree.cut_power(&mut rng, common);
            let same_for_all = rng.chance(0.5);
            for file in tree.distinct_files() {
                let p = if same_for_all {
                    common
                } else {
                    SURVIVAL_CHANCES[rng.index(SURVIVAL_CHANCES.len())]
                };
                let mut pages = file.pages();
                let left = pages.after_power_cut(&mut rng, p);
                *pages = left;
            }
        }
        SimDisk::from_parts(rng, boot_id, tree)
    }

    /// Returns an independent copy with the same boot id, without locks, planned faults or a
    /// capacity limit.
    pub fn deep_clone(&self) -> Arc<SimDisk> {
        let state = self.core.state();
        SimDisk::from_parts(state.rng.clone(), state.boot_id, state.tree.deep_clone())
    }
}
