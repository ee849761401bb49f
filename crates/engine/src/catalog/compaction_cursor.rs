//! State that compaction keeps for a column family between two plans: the picker's progress, and
//! the version found to need no compaction, so that thousands of idle column families cost nothing.
//! It is a cache: all of it may be lost.

use perigee_tree::Version;
use perigee_tree::compact::{PickerOptions, PickerProgress};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

#[derive(Debug, Default)]
struct CompactionCursorState {
    progress: PickerProgress,
    /// This version needed no compaction under these limits.
    idle_version: Option<(Weak<Version>, PickerOptions)>,
    /// The last check for skipped tombstones that found nothing to do.
    last_tombstone_check: u64,
}

/// The compaction cursor of one column family. The mutex guards all of it; no I/O and no other lock
/// while it is held.
#[derive(Debug, Default)]
pub struct CompactionCursor(Mutex<CompactionCursorState>);

impl CompactionCursor {
    fn state(&self) -> MutexGuard<'_, CompactionCursorState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Returns the picker's progress, or `None` if this version is known to need no compaction
    /// under these limits.
    pub fn pending_progress(
        &self,
        version: &Arc<Version>,
        limits: PickerOptions,
    ) -> Option<PickerProgress> {
        let state = self.state();
        match &state.idle_version {
            Some((idle, under)) if idle.as_ptr() == Arc::as_ptr(version) && *under == limits => {
                None
            }
            _ => Some(state.progress.clone()),
        }
    }
    /// Records that this version needs no compaction under these limits.
    pub fn mark_idle(&self, version: &Arc<Version>, limits: PickerOptions) {
        self.state().idle_version = Some((Arc::downgrade(version), limits));
    }
    /// Returns true if tombstone check `check` has not been done for this column family.
    pub fn needs_tombstone_check(&self, check: u64) -> bool {
        self.state().last_tombstone_check != check
    }
    /// Records that tombstone check `check` found nothing to do.
    pub fn mark_tombstone_check_done(&self, check: u64) {
        self.state().last_tombstone_check = check;
    }
    /// Sets the progress after a plan has been carried out.
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
        let limits = |level0_runs| PickerOptions {
            level0_runs,
            level1_bytes: 1,
            ratio: 2,
            table_bytes: 1,
            vlog_garbage_percent: 0,
        };
        let (one, two) = (
            Arc::new(Version::empty(KeyComparator::Bytes)),
            Arc::new(Version::empty(KeyComparator::Bytes)),
        );
        let cursor = CompactionCursor::default();
        assert!(cursor.pending_progress(&one, limits(4)).is_some());
        cursor.mark_idle(&one, limits(4));
        assert!(cursor.pending_progress(&one, limits(4)).is_none());
        assert!(
            cursor.pending_progress(&one, limits(5)).is_some()
                && cursor.pending_progress(&two, limits(4)).is_some()
        );
    }
}
