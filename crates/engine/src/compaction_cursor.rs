//! What compaction remembers of a family between two plans: how far merges are, and which version
//! needed nothing, so that thousands of families at rest cost nothing. All of it may be lost.

use perigee_tree::Version;
use perigee_tree::compact::pick::{PickerOptions, PickerProgress};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

#[derive(Debug, Default)]
struct CompactionCursorState {
    progress: PickerProgress,
    /// This version needed nothing under these limits.
    idle_version: Option<(Weak<Version>, PickerOptions)>,
    /// The last look for tombstones that scans passed, in vain.
    last_tombstone_check: u64,
}

/// The memory of one family. The mutex guards all of it; no I/O and no other lock inside.
#[derive(Debug, Default)]
pub struct CompactionCursor(Mutex<CompactionCursorState>);

impl CompactionCursor {
    fn state(&self) -> MutexGuard<'_, CompactionCursorState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// How far merges are, or `None` if this version is known to need nothing.
    pub fn pending_progress(
        &self,
        version: &Arc<Version>,
        limits: PickerOptions,
    ) -> Option<PickerProgress> {
        let state = self.state();
        match &state.idle_version {
            Some((known, under)) if known.as_ptr() == Arc::as_ptr(version) && *under == limits => {
                None
            }
            _ => Some(state.progress.clone()),
        }
    }
    /// This version needs nothing.
    pub fn mark_idle(&self, version: &Arc<Version>, limits: PickerOptions) {
        self.state().idle_version = Some((Arc::downgrade(version), limits));
    }
    /// Whether this look for what scans passed is still to be had.
    pub fn needs_tombstone_check(&self, look: u64) -> bool {
        self.state().last_tombstone_check != look
    }
    /// It was had, and nothing was found.
    pub fn mark_tombstone_check_done(&self, look: u64) {
        self.state().last_tombstone_check = look;
    }
    /// A plan was carried out.
    pub fn set_progress(&self, progress: PickerProgress) {
        self.state().progress = progress;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::KeyComparator;

    #[test]
    fn idle_version_is_rechecked_when_limits_change() {
        let limits =
            |level0_runs| PickerOptions { level0_runs, level1_bytes: 1, ratio: 2, table_bytes: 1 };
        let (one, two) = (
            Arc::new(Version::empty(KeyComparator::Bytes)),
            Arc::new(Version::empty(KeyComparator::Bytes)),
        );
        let picked = CompactionCursor::default();
        assert!(picked.pending_progress(&one, limits(4)).is_some());
        picked.mark_idle(&one, limits(4));
        assert!(picked.pending_progress(&one, limits(4)).is_none());
        assert!(
            picked.pending_progress(&one, limits(5)).is_some()
                && picked.pending_progress(&two, limits(4)).is_some()
        );
    }
}
