//! What compaction remembers of a family between two plans: how far merges are, and which version needed nothing, so that
//! thousands of families at rest cost nothing. All of it may be lost.

use perigee_tree::Version;
use perigee_tree::compact::pick::{Limits, Progress};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

#[derive(Debug, Default)]
struct State {
    progress: Progress,
    /// This version needed nothing under these limits.
    at_rest: Option<(Weak<Version>, Limits)>,
    /// The last look for tombstones that scans passed, in vain.
    look: u64,
}

/// The memory of one family. The mutex guards all of it; no I/O and no other lock inside.
#[derive(Debug, Default)]
pub struct Picked(Mutex<State>);

impl Picked {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// How far merges are, or `None` if this version is known to need nothing.
    pub fn look(&self, version: &Arc<Version>, limits: Limits) -> Option<Progress> {
        let state = self.state();
        match &state.at_rest {
            Some((known, under)) if known.as_ptr() == Arc::as_ptr(version) && *under == limits => None,
            _ => Some(state.progress.clone()),
        }
    }
    /// This version needs nothing.
    pub fn rest(&self, version: &Arc<Version>, limits: Limits) {
        self.state().at_rest = Some((Arc::downgrade(version), limits));
    }
    /// Whether this look for what scans passed is still to be had.
    pub fn may_have_passed(&self, look: u64) -> bool {
        self.state().look != look
    }
    /// It was had, and nothing was found.
    pub fn looked(&self, look: u64) {
        self.state().look = look;
    }
    /// A plan was carried out.
    pub fn advance(&self, progress: Progress) {
        self.state().progress = progress;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::KeyOrder;

    #[test]
    fn a_version_is_asked_again_only_under_other_limits() {
        let limits = |level0_runs| Limits { level0_runs, level1_bytes: 1, ratio: 2, table_bytes: 1 };
        let (one, two) =
            (Arc::new(Version::empty(KeyOrder::Bytes)), Arc::new(Version::empty(KeyOrder::Bytes)));
        let picked = Picked::default();
        assert!(picked.look(&one, limits(4)).is_some());
        picked.rest(&one, limits(4));
        assert!(picked.look(&one, limits(4)).is_none());
        assert!(picked.look(&one, limits(5)).is_some() && picked.look(&two, limits(4)).is_some());
    }
}
