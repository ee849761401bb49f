//! The LSM tree, the public interface of this crate: holds the current view and replaces it.
//! Everything else is a function of a view.

use crate::striped_arc::{StripedArc, StripedGuard};
use crate::version::FileOpener;
use crate::{Memtable, Version, VersionEdit, View};
use perigee_base::{ExpiryClock, KeyComparator, OperandMerger, Result};
use std::sync::Arc;

/// The LSM tree of one column family.
///
/// A view is replaced, never changed. Readers take it by incrementing a reference count, point
/// reads without contention between threads ([`LsmTree::pin`]). The callers serialize replacements:
/// memtables are sealed in the commit section, versions installed under the manifest lock, both
/// through [`StripedArc::replace`], whose closure does no I/O.
#[derive(Debug)]
pub struct LsmTree {
    comparator: KeyComparator,
    now: Arc<dyn ExpiryClock>,
    view: StripedArc<View>,
}

impl LsmTree {
    /// Creates a tree with these tables and an empty memtable; `now` is read at entries with an
    /// expiry.
    pub fn new(version: Version, now: Arc<dyn ExpiryClock>) -> LsmTree {
        let comparator = version.comparator;
        let view = View {
            overlay: None,
            active: Arc::new(Memtable::new(comparator)),
            immutables: Vec::new(),
            version: Arc::new(version),
            installs: 0,
            now: Arc::clone(&now),
            merge_operator: Arc::default(),
        };
        LsmTree { comparator, now, view: StripedArc::new(Arc::new(view)) }
    }
    /// Returns the comparator.
    pub fn comparator(&self) -> KeyComparator {
        self.comparator
    }
    /// Returns the current view.
    pub fn view(&self) -> Arc<View> {
        self.view.get()
    }
    /// Pins the current view for the duration of one read.
    #[inline]
    pub fn pin(&self) -> StripedGuard<View> {
        self.view.pin()
    }

    /// Sets the merge operator, including in views taken before. If one is set already, it is kept.
    pub fn set_merge_operator(&self, merger: Option<Arc<OperandMerger>>) {
        if let Some(merger) = merger {
            // A second operator has the same rule: option changes reject a different one.
            let _ = self.view().merge_operator.set(merger);
        }
    }

    /// Returns the active memtable.
    pub fn active(&self) -> Arc<Memtable> {
        self.view.with_value(|v| Arc::clone(&v.active))
    }
    /// Returns true if the active memtable should be flushed: it has at least `bytes`, or many
    /// range tombstones that overlap each other.
    pub fn is_active_full(&self, bytes: u64) -> bool {
        self.view.with_value(|v| {
            v.active.bytes() >= bytes || v.active.range_tombstones().has_many_overlapping()
        })
    }
    /// Calls `visit` with the current view, which is not replaced meanwhile; for short reads of
    /// many column families. `visit` must be short.
    pub fn with_view<R>(&self, visit: impl FnOnce(&View) -> R) -> R {
        self.view.with_value(visit)
    }
    /// Returns the memory of the stripes of the view pointer, in bytes; see [`StripedArc`].
    pub fn stripe_bytes(&self) -> u64 {
        self.view.stripe_bytes()
    }

    fn replace_view(&self, change: impl FnOnce(&View) -> View) {
        self.view.replace(change);
    }

    /// Makes the active memtable immutable and starts a new one, unless it is empty. Returns true
    /// if it did.
    pub fn seal_memtable(&self) -> bool {
        let mut sealed = false;
        self.replace_view(|v| {
            sealed = !v.active.is_empty();
            if !sealed {
                return v.clone();
            }
            let successor = self.successor_of(v).with_empty_ranges_of(&v.active);
            View { active: Arc::new(successor), immutables: sealed_memtables(v), ..v.clone() }
        });
        sealed
    }

    /// Starts a new memtable even if the active one is empty, before tables with new entries are
    /// added. Holders of an older view see no inserts from here on.
    pub fn force_new_memtable(&self) {
        self.replace_view(|v| {
            let successor = self.successor_of(v).without_empty_ranges();
            View { active: Arc::new(successor), immutables: sealed_memtables(v), ..v.clone() }
        });
    }

    fn successor_of(&self, view: &View) -> Memtable {
        Memtable::with_expected_keys(self.comparator, view.active.distinct_keys())
            .with_predecessor(&view.active)
    }

    /// Drops all memtables: recovery is about to fill them again, from the first record of the log.
    pub fn reset_memtables(&self) {
        self.replace_view(|v| View {
            overlay: None,
            active: Arc::new(Memtable::new(self.comparator)),
            immutables: Vec::new(),
            ..v.clone()
        });
    }

    /// Returns the version after `edit`, not installed. The caller must hold the manifest lock
    /// until [`LsmTree::install_version`].
    pub fn apply_edit(&self, edit: &VersionEdit, open: &dyn FileOpener) -> Result<Version> {
        self.view().version.apply(edit, open)
    }

    /// Makes a prepared version current; `flushed`: the memtable whose entries it now contains.
    pub fn install_version(&self, version: Version, flushed: Option<&Arc<Memtable>>) {
        let version = Arc::new(version);
        self.replace_view(|v| {
            check!(
                flushed.is_none_or(|f| !Arc::ptr_eq(f, &v.active)),
                "a memtable is sealed before it is flushed"
            );
            let keep = |m: &&Arc<Memtable>| !flushed.is_some_and(|f| Arc::ptr_eq(f, m));
            check!(
                flushed.is_none_or(|f| {
                    v.immutables.iter().rposition(|m| Arc::ptr_eq(f, m)).unwrap_or(usize::MAX)
                        >= v.immutables.len().saturating_sub(1)
                }),
                "the oldest memtable is flushed first",
                v.immutables.len()
            );
            check!(
                v.version.comparator == version.comparator,
                "a tree keeps its comparator",
                version.comparator
            );
            let sealed = v.immutables.iter().filter(keep).cloned().collect();
            View {
                overlay: None,
                immutables: sealed,
                version: Arc::clone(&version),
                installs: v.installs + 1,
                ..v.clone()
            }
        });
    }

    /// Drops all data, because the column family was dropped. Views taken before stay complete.
    pub fn clear(&self) {
        self.replace_view(|v| View {
            overlay: None,
            active: Arc::new(Memtable::new(self.comparator).with_predecessor(&v.active)),
            immutables: Vec::new(),
            version: Arc::new(Version::empty(self.comparator)),
            installs: v.installs + 1,
            now: Arc::clone(&self.now),
            merge_operator: v.merge_operator.clone(),
        });
    }
}

/// Returns the immutable memtables after the active one was sealed, unless it is empty.
fn sealed_memtables(v: &View) -> Vec<Arc<Memtable>> {
    check!(
        v.immutables.first().is_none_or(|m| m.last_seq() < v.active.first_seq())
            || v.active.is_empty(),
        "a memtable is newer than those sealed before it",
        v.active.first_seq()
    );
    let active = Some(&v.active).filter(|active| !active.is_empty());
    active.into_iter().chain(&v.immutables).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::{FixedClock, MergeOperators, MergeRule};

    #[test]
    fn older_views_get_merge_operator() {
        let tree = LsmTree::new(Version::empty(KeyComparator::Bytes), Arc::new(FixedClock(0)));
        let (view, pinned) = (tree.view(), tree.pin());
        tree.set_merge_operator(None);
        assert!(view.merge_operator.get().is_none());
        tree.set_merge_operator(MergeOperators::default().merger(Some(&MergeRule::Counter)));
        tree.set_merge_operator(None);
        let rules = [&*view, &*pinned, &*tree.view()]
            .map(|v| v.merge_operator.get().map(|m| m.rule().clone()));
        assert_eq!(rules, [const { Some(MergeRule::Counter) }; 3]);
    }
}
