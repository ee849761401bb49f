//! The tree: the door of this crate. Holds the current view and swaps it; everything else is a function of a view.

use crate::current::{Current, Pin};
use crate::version::Opener;
use crate::{Memtable, Version, VersionEdit, View};
use perigee_base::{KeyOrder, Merger, Now, Result};
use std::sync::Arc;

/// One family's sorted map.
///
/// The view is replaced, never changed. Readers take it in a critical section of one reference count, a point read in one
/// that no other thread meets ([`Tree::pin`]); replacing is serialised by the callers: sealing under the commit lock, installing under the manifest lock, both through
/// [`Tree::swap`], whose closure does no I/O.
#[derive(Debug)]
pub struct Tree {
    order: KeyOrder,
    now: Arc<dyn Now>,
    view: Current<View>,
}

impl Tree {
    /// A tree with these tables and an empty memtable; `now` is asked where an entry expires.
    pub fn new(version: Version, now: Arc<dyn Now>) -> Tree {
        let order = version.order;
        let view = View {
            own: None,
            active: Arc::new(Memtable::new(order)),
            sealed: Vec::new(),
            version: Arc::new(version),
            now: Arc::clone(&now),
            merger: Arc::default(),
        };
        Tree { order, now, view: Current::new(Arc::new(view)) }
    }
    /// The order of keys.
    pub fn order(&self) -> KeyOrder {
        self.order
    }
    /// The current view.
    pub fn view(&self) -> Arc<View> {
        self.view.get()
    }
    /// The current view for the time of one read.
    #[inline]
    pub fn pin(&self) -> Pin<View> {
        self.view.pin()
    }

    /// Operands are merged by `merger` from now on, in views taken before too. The first one stays.
    pub fn set_merger(&self, merger: Option<Arc<Merger>>) {
        if let Some(merger) = merger {
            // A second one has the same rule: another is refused where settings change.
            let _ = self.pin().merger.set(merger);
        }
    }

    /// The active memtable.
    pub fn active(&self) -> Arc<Memtable> {
        Arc::clone(&self.pin().active)
    }
    /// Its bytes.
    pub fn active_bytes(&self) -> u64 {
        self.pin().active.bytes()
    }

    fn swap(&self, change: impl FnOnce(&View) -> View) {
        self.view.replace(change);
    }

    /// Seals the active memtable, if it holds anything, and starts another.
    pub fn seal(&self) -> bool {
        let mut sealed = false;
        self.swap(|v| {
            if v.active.is_empty() {
                return v.clone();
            }
            sealed = true;
            let mut all = vec![Arc::clone(&v.active)];
            all.extend(v.sealed.iter().cloned());
            let active = Arc::new(Memtable::expecting(self.order, v.active.keys()).following(&v.active));
            View { own: None, active, sealed: all, ..v.clone() }
        });
        sealed
    }

    /// Starts another memtable even if the active one is empty. Whoever holds the old view sees no insert from here on.
    pub fn renew(&self) {
        if !self.seal() {
            self.swap(|v| View { active: self.next(v), ..v.clone() });
        }
    }

    fn next(&self, view: &View) -> Arc<Memtable> {
        Arc::new(Memtable::new(self.order).following(&view.active))
    }

    /// Drops all memtables: recovery is about to fill them again, from the first record of the log.
    pub fn reset_memtables(&self) {
        self.swap(|v| View {
            own: None,
            active: Arc::new(Memtable::new(self.order)),
            sealed: Vec::new(),
            ..v.clone()
        });
    }

    /// The version after `edit`, not installed. The caller holds the manifest lock until [`Tree::install`].
    pub fn prepare(&self, edit: &VersionEdit, open: &dyn Opener) -> Result<Version> {
        self.view().version.apply(edit, open)
    }

    /// Makes a prepared version current; `flushed` is the memtable whose entries it now holds.
    pub fn install(&self, version: Version, flushed: Option<&Arc<Memtable>>) {
        let version = Arc::new(version);
        self.swap(|v| {
            let keep = |m: &&Arc<Memtable>| !flushed.is_some_and(|f| Arc::ptr_eq(f, m));
            let sealed = v.sealed.iter().filter(keep).cloned().collect();
            View { own: None, sealed, version: Arc::clone(&version), ..v.clone() }
        });
    }

    /// Lets go of everything: the family was dropped. Views taken before stay whole.
    pub fn clear(&self) {
        self.swap(|v| View {
            own: None,
            active: self.next(v),
            sealed: Vec::new(),
            version: Arc::new(Version::empty(self.order)),
            now: Arc::clone(&self.now),
            merger: v.merger.clone(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::MergeRule;
    use perigee_base::expiry::Frozen;
    use perigee_base::merge::Operators;

    #[test]
    fn a_view_taken_before_knows_the_operator() {
        let tree = Tree::new(Version::empty(KeyOrder::Bytes), Arc::new(Frozen(0)));
        let (view, pinned) = (tree.view(), tree.pin());
        tree.set_merger(None);
        assert!(view.merger.get().is_none());
        tree.set_merger(Operators::default().merger(Some(&MergeRule::Counter)));
        tree.set_merger(None);
        let rules = [&*view, &*pinned, &*tree.view()].map(|v| v.merger.get().map(|m| m.rule().clone()));
        assert_eq!(rules, [const { Some(MergeRule::Counter) }; 3]);
    }
}
