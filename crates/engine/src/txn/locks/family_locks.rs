//! The locks of one column family, [`FamilyLocks`], and the requests that wait for them.

use super::granted_lock::{GrantedLock, LockOwner, Requester};
use super::interval_tree::IntervalTree;
use super::key_locks::{KeyLock, KeyLocks, LockUpgrade};
use super::lock_mode::{LockMode, conflicts, covers};
use crate::txn::read_write_sets::{KeyOrRange, KeyOrRangeRef};
use perigee_base::bug::{self, Bug};
use perigee_base::{KeyBoundary, KeyBoundaryRef, KeyComparator};
use perigee_env::Condvar;
use std::sync::Arc;

/// What a request locks; a key with its hash, which is computed once.
#[derive(Clone, Copy, Debug)]
pub enum LockTarget<'a> {
    /// A key.
    Key(u64, &'a [u8]),
    /// All keys between two boundaries.
    Range(KeyBoundaryRef<'a>, KeyBoundaryRef<'a>),
}

impl<'a> LockTarget<'a> {
    /// Computes the hash of a key.
    #[inline]
    pub fn new(comparator: KeyComparator, target: KeyOrRangeRef<'a>) -> LockTarget<'a> {
        match target {
            KeyOrRangeRef::Key(key) => LockTarget::Key(comparator.equality_hash(key), key),
            KeyOrRangeRef::Range(begin, end) => LockTarget::Range(begin, end),
        }
    }
    /// Returns the target without the hash.
    pub fn unhashed(self) -> KeyOrRangeRef<'a> {
        match self {
            LockTarget::Key(_, key) => KeyOrRangeRef::Key(key),
            LockTarget::Range(begin, end) => KeyOrRangeRef::Range(begin, end),
        }
    }
}

/// Where a lock of an owner is in the tables of its column family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockPosition {
    /// A lock on a key.
    Key(u32),
    /// A lock on a range.
    Range(u32),
    /// An exclusive lock on a key that became one for an insert.
    Upgrade(u32),
}

/// Result of a request that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// Locks of the owner cover it.
    Covered,
    /// It was granted.
    Granted(LockPosition),
    /// It has to wait.
    Blocked,
}

/// State of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRequestState {
    /// Others hold conflicting locks or have requested them before.
    Waiting,
    /// The lock is held.
    Granted(LockPosition),
    /// It ends without the lock: its transaction is the victim of a deadlock or is aborted.
    Victim,
    /// It ends without the lock: another thread ended the wait.
    Cancelled,
}

/// A request that had to wait.
#[derive(Debug)]
pub struct LockRequest {
    /// The transaction that waits.
    pub owner: LockOwner,
    /// The requested mode.
    pub mode: LockMode,
    /// The requested key or range, and the hash of a key.
    pub target: KeyOrRange,
    /// The hash of the key.
    pub hash: u64,
    /// The number that the lock will have.
    pub number: u64,
    /// Its state.
    pub state: LockRequestState,
    /// Notified when the state changes.
    pub wakeup: Arc<Condvar>,
    /// Monotonic time at which the wait began, in microseconds.
    pub since_us: u64,
    /// Name of the column family at that time.
    pub family_name: String,
}

impl LockRequest {
    fn lock_target(&self) -> LockTarget<'_> {
        match &self.target {
            KeyOrRange::Key(key) => LockTarget::Key(self.hash, key),
            KeyOrRange::Range(begin, end) => LockTarget::Range(begin.as_ref(), end.as_ref()),
        }
    }
    /// Returns true if it waits.
    pub fn is_waiting(&self) -> bool {
        self.state == LockRequestState::Waiting
    }
}

/// The owner of a waiting request, and an owner that blocks it.
pub type WaitEdge = (LockOwner, LockOwner);

/// The locks of a column family.
#[derive(Debug)]
pub struct FamilyLocks {
    comparator: KeyComparator,
    keys: KeyLocks,
    ranges: IntervalTree,
    /// Number of locks on keys for an insert, and those keys in order: requests for gaps conflict
    /// with no other locks on keys. Filled by the first request for a gap, and maintained until the
    /// last of these locks is released.
    inserts: usize,
    insert_keys: IntervalTree,
    has_insert_keys: bool,
    /// Waiting requests in the order of arrival, and those whose thread has not resumed yet.
    pub requests: Vec<LockRequest>,
}

impl FamilyLocks {
    /// Creates the locks of a column family; none is held.
    pub fn new(comparator: KeyComparator) -> FamilyLocks {
        FamilyLocks {
            comparator,
            keys: KeyLocks::default(),
            ranges: IntervalTree::new(),
            inserts: 0,
            insert_keys: IntervalTree::new(),
            has_insert_keys: false,
            requests: Vec::new(),
        }
    }
    /// Returns the locks on a key that are locks on that key only.
    #[inline]
    fn key_locks<'a>(
        &'a self,
        hash: u64,
        key: &'a [u8],
    ) -> impl Iterator<Item = (u32, &'a KeyLock)> + 'a {
        let comparator = self.comparator;
        self.keys.with_hash(hash).filter(move |(_, l)| comparator.keys_equal(l.key(), key))
    }
    /// Calls `visit` for the locks that overlap a target, until it returns true; locks that cannot
    /// conflict with the mode `wanted` may be left out. Returns true if it did.
    fn visit_overlapping(
        &self,
        target: LockTarget<'_>,
        wanted: Option<LockMode>,
        visit: &mut dyn FnMut(&GrantedLock) -> bool,
    ) -> bool {
        let comparator = self.comparator;
        match target {
            LockTarget::Key(hash, key) => {
                let (begin, end) = (KeyBoundaryRef::Before(key), KeyBoundaryRef::After(key));
                self.key_locks(hash, key).any(|(_, l)| visit(&l.held))
                    || self.ranges.visit_overlapping(comparator, begin, end, visit)
            }
            LockTarget::Range(begin, end) => {
                let only_inserts = wanted == Some(LockMode::Gap);
                let on_keys = if only_inserts && (self.inserts == 0 || self.has_insert_keys) {
                    self.insert_keys.visit_overlapping(comparator, begin, end, visit)
                } else {
                    let is_inside = |key: &[u8]| {
                        begin.is_before(comparator, key) && !end.is_before(comparator, key)
                    };
                    self.keys.iter().any(|(_, l)| is_inside(l.key()) && visit(&l.held))
                };
                on_keys || self.ranges.visit_overlapping(comparator, begin, end, visit)
            }
        }
    }
    /// Returns true if the owner already holds a lock that overlaps the target.
    fn is_upgrade(&self, owner: LockOwner, target: LockTarget<'_>) -> bool {
        self.visit_overlapping(target, None, &mut |held| held.owner == owner)
    }
    /// Calls `visit` for the owners of locks that conflict with a request, until it returns true.
    /// Returns true if it did.
    fn visit_conflicting_holders(
        &self,
        Requester { owner, mode }: Requester,
        target: LockTarget<'_>,
        visit: &mut dyn FnMut(LockOwner) -> bool,
    ) -> bool {
        self.visit_overlapping(target, Some(mode), &mut |held| {
            held.owner != owner && conflicts(held.mode, mode) && visit(held.owner)
        })
    }
    /// Calls `visit` for the owners of conflicting requests in `before`, until it returns true.
    /// Returns true if it did.
    fn visit_earlier_requests(
        &self,
        Requester { owner, mode }: Requester,
        target: LockTarget<'_>,
        before: &[LockRequest],
        visit: &mut dyn FnMut(LockOwner) -> bool,
    ) -> bool {
        before.iter().any(|w| {
            w.is_waiting()
                && w.owner != owner
                && conflicts(w.mode, mode)
                && w.target.borrowed().overlaps(self.comparator, target.unhashed())
                && visit(w.owner)
        })
    }
    /// Calls `visit` for the owners that the request at index `at` waits for, until it returns true:
    /// holders, and conflicting requests before it. Returns true if it did.
    pub fn visit_blockers(&self, at: usize, visit: &mut dyn FnMut(LockOwner) -> bool) -> bool {
        let r = &self.requests[at];
        let who = Requester { owner: r.owner, mode: r.mode };
        let (target, before) = (r.lock_target(), &self.requests[..at]);
        let upgrades = self.is_upgrade(r.owner, target);
        let ignore_holders = upgrades && bug::is_active(Bug::UpgradeIgnoresHolder);
        !ignore_holders && self.visit_conflicting_holders(who, target, visit)
            || !upgrades && self.visit_earlier_requests(who, target, before, visit)
    }
    /// Returns the owners that the request at index `at` waits for.
    pub fn blockers(&self, at: usize) -> Vec<LockOwner> {
        let mut all = Vec::new();
        self.visit_blockers(at, &mut |owner| {
            all.push(owner);
            false
        });
        all.sort_unstable();
        all.dedup();
        all
    }
    /// Acquires a lock if its owner does not have to wait.
    #[inline]
    pub fn acquire(
        &mut self,
        owner: LockOwner,
        mode: LockMode,
        target: LockTarget<'_>,
        number: u64,
    ) -> Acquired {
        let who = Requester { owner, mode };
        match target {
            LockTarget::Key(hash, key) => self.acquire_key(who, hash, key, number),
            LockTarget::Range(begin, end) => self.acquire_range(who, begin, end, number),
        }
    }
    fn acquire_key(&mut self, who: Requester, hash: u64, key: &[u8], number: u64) -> Acquired {
        let Requester { owner, mode } = who;
        let (mut newest, mut is_covered, mut is_blocked) = (None::<(u64, u32)>, false, false);
        for (at, lock) in self.key_locks(hash, key) {
            if lock.held.owner == owner {
                is_covered |= covers(lock.held.mode, mode);
                newest = newest.max(Some((lock.newest_number(), at)));
            } else {
                is_blocked |= conflicts(lock.held.mode, mode);
            }
        }
        let mut is_upgrade = newest.is_some();
        if !self.ranges.is_empty() {
            let (begin, end) = (KeyBoundaryRef::Before(key), KeyBoundaryRef::After(key));
            self.ranges.visit_overlapping(self.comparator, begin, end, &mut |held| {
                if held.owner == owner {
                    is_upgrade = true;
                    is_covered |= covers(held.mode, mode);
                } else {
                    is_blocked |= conflicts(held.mode, mode);
                }
                is_covered
            });
        }
        if is_covered {
            if let Some((_, at)) = newest {
                self.keys.get_mut(at).count_request();
            }
            return Acquired::Covered;
        }
        let target = LockTarget::Key(hash, key);
        if is_blocked && !(is_upgrade && bug::is_active(Bug::UpgradeIgnoresHolder))
            || !is_upgrade
                && !self.requests.is_empty()
                && self.visit_earlier_requests(who, target, &self.requests, &mut |_| true)
        {
            return Acquired::Blocked;
        }
        Acquired::Granted(self.grant(owner, mode, target, number))
    }
    fn acquire_range(
        &mut self,
        who: Requester,
        begin: KeyBoundaryRef<'_>,
        end: KeyBoundaryRef<'_>,
        number: u64,
    ) -> Acquired {
        let Requester { owner, mode } = who;
        let comparator = self.comparator;
        if begin.cmp(comparator, end).is_ge() {
            return Acquired::Covered; // An empty range has no keys to lock.
        }
        let covers_it = &mut |held: &GrantedLock| covers(held.mode, mode);
        if self.ranges.visit_exact(comparator, (begin, end), owner, covers_it) {
            return Acquired::Covered;
        }
        if mode == LockMode::Gap {
            self.index_insert_keys();
        }
        let target = LockTarget::Range(begin, end);
        let ignores_holders =
            || bug::is_active(Bug::UpgradeIgnoresHolder) && self.is_upgrade(owner, target);
        let (before, stop) = (&self.requests, &mut |_| true);
        if self.visit_conflicting_holders(who, target, stop) && !ignores_holders()
            || self.visit_earlier_requests(who, target, before, stop)
                && !self.is_upgrade(owner, target)
        {
            return Acquired::Blocked;
        }
        Acquired::Granted(self.grant(owner, mode, target, number))
    }
    /// Fills the index of keys that are locked for an insert.
    fn index_insert_keys(&mut self) {
        if self.inserts == 0 || self.has_insert_keys {
            return;
        }
        self.has_insert_keys = true;
        let is_insert = |(_, l): &(u32, &KeyLock)| l.held.mode == LockMode::Insert;
        let all: Vec<u32> = self.keys.iter().filter(is_insert).map(|(at, _)| at).collect();
        check!(
            all.len() == self.inserts,
            "the locks for inserts are counted",
            all.len(),
            self.inserts
        );
        all.into_iter().for_each(|at| self.add_insert_key(at));
    }
    fn add_insert_key(&mut self, at: u32) {
        let lock = self.keys.get_mut(at);
        let key = lock.key().to_vec();
        let (begin, end) = (KeyBoundary::Before(key.clone()), KeyBoundary::After(key));
        lock.insert_node = Some(self.insert_keys.insert(self.comparator, begin, end, lock.held));
    }
    /// Counts the lock at a position as one for an insert.
    fn note_insert(&mut self, at: u32) {
        self.inserts += 1;
        if self.has_insert_keys {
            self.add_insert_key(at);
        }
    }
    /// Undoes [`FamilyLocks::note_insert`].
    fn forget_insert(&mut self, at: u32) {
        check_slow!(
            self.inserts > 0 && (self.insert_keys.is_empty() || self.has_insert_keys),
            "the locks for inserts are counted",
            self.inserts
        );
        self.inserts -= 1;
        if let Some(node) = self.keys.get_mut(at).insert_node.take() {
            self.insert_keys.remove(self.comparator, node);
        }
        self.has_insert_keys &= self.inserts > 0;
    }
    /// Adds a granted lock. Returns where it is.
    pub fn grant(
        &mut self,
        owner: LockOwner,
        mode: LockMode,
        target: LockTarget<'_>,
        number: u64,
    ) -> LockPosition {
        check_slow!(
            !self.visit_conflicting_holders(Requester { owner, mode }, target, &mut |_| true),
            "no two transactions hold conflicting locks",
            owner,
            mode,
            target
        );
        let held = GrantedLock { owner, mode, number, requests: 1 };
        let (hash, key) = match target {
            LockTarget::Key(hash, key) => (hash, key),
            LockTarget::Range(begin, end) => {
                let (begin, end) = (begin.to_boundary(), end.to_boundary());
                return LockPosition::Range(self.ranges.insert(self.comparator, begin, end, held));
            }
        };
        if mode == LockMode::Insert {
            let mine = |(_, l): &(u32, &KeyLock)| {
                l.held.owner == owner && l.held.mode == LockMode::Exclusive
            };
            let exclusive = self.key_locks(hash, key).find(mine).map(|(at, _)| at);
            if let Some(at) = exclusive {
                let lock = self.keys.get_mut(at);
                lock.held.mode = LockMode::Insert;
                lock.upgrade = Some(LockUpgrade { number, requests: 1 });
                self.note_insert(at);
                return LockPosition::Upgrade(at);
            }
        }
        let at = self.keys.insert(hash, key, held);
        if mode == LockMode::Insert {
            self.note_insert(at);
        }
        LockPosition::Key(at)
    }
    /// Undoes the newest request of an owner for one key. Returns the number of the lock, or of its
    /// upgrade, if that releases it.
    pub fn unlock_key(&mut self, owner: LockOwner, key: &[u8]) -> Option<u64> {
        let hash = self.comparator.equality_hash(key);
        let mine = self.key_locks(hash, key).filter(|(_, l)| l.held.owner == owner);
        let (number, at) = mine.map(|(at, l)| (l.newest_number(), at)).max()?;
        let lock = self.keys.get_mut(at);
        let is_upgraded = lock.upgrade.is_some();
        let requests = match &mut lock.upgrade {
            Some(upgrade) => &mut upgrade.requests,
            None => &mut lock.held.requests,
        };
        check_slow!(*requests > 0, "a lock was requested until it is released", number);
        *requests -= 1;
        if *requests > 0 {
            return None;
        }
        self.release(
            owner,
            if is_upgraded { LockPosition::Upgrade(at) } else { LockPosition::Key(at) },
        );
        Some(number)
    }
    /// Releases a lock of an owner. Upgrades are released before their locks.
    #[inline]
    pub fn release(&mut self, owner: LockOwner, position: LockPosition) {
        match position {
            LockPosition::Key(at) => {
                if self.keys.get(at).held.mode == LockMode::Insert {
                    self.forget_insert(at);
                }
                self.keys.remove(at, owner);
            }
            LockPosition::Range(node) => {
                check!(
                    self.ranges.lock(node).owner == owner,
                    "a range lock belongs to the owner that releases it",
                    owner
                );
                self.ranges.remove(self.comparator, node);
            }
            LockPosition::Upgrade(at) => {
                self.forget_insert(at);
                let lock = self.keys.get_mut(at);
                check!(
                    lock.held.owner == owner && lock.upgrade.is_some(),
                    "an upgrade is undone before its lock",
                    lock.held,
                    owner
                );
                (lock.held.mode, lock.upgrade) = (LockMode::Exclusive, None);
            }
        }
    }
    /// Returns the target and the mode of a lock; `None` for an upgrade.
    pub fn describe(&self, position: LockPosition) -> Option<(KeyOrRange, LockMode)> {
        match position {
            LockPosition::Key(at) => {
                let lock = self.keys.get(at);
                Some((KeyOrRange::Key(lock.key().to_vec()), lock.held.mode))
            }
            LockPosition::Range(node) => {
                let (begin, end) = self.ranges.range(node);
                let range = KeyOrRange::Range(begin.to_boundary(), end.to_boundary());
                Some((range, self.ranges.lock(node).mode))
            }
            LockPosition::Upgrade(_) => None,
        }
    }
    /// Adds the waiting requests that a lock, which was just granted, blocks, and that it did not
    /// wait for: the first `before` of them.
    pub fn add_new_edges(
        &self,
        Requester { owner, mode }: Requester,
        target: KeyOrRangeRef<'_>,
        before: usize,
        edges: &mut Vec<WaitEdge>,
    ) {
        let waiting = self.requests[..before].iter().filter(|w| {
            w.is_waiting()
                && w.owner != owner
                && conflicts(w.mode, mode)
                && w.target.borrowed().overlaps(self.comparator, target)
        });
        edges.extend(waiting.map(|w| (w.owner, owner)));
    }
    /// Grants the requests that are no longer blocked. Adds the waits for them that did not exist
    /// before to `edges`.
    pub fn grant_requests(&mut self, edges: &mut Vec<WaitEdge>) {
        for at in 0..self.requests.len() {
            if self.requests[at].is_waiting() && !self.visit_blockers(at, &mut |_| true) {
                let r = &mut self.requests[at];
                let (owner, mode, hash, number) = (r.owner, r.mode, r.hash, r.number);
                // Taken out while it is granted: then it is no conflict with itself.
                let target = std::mem::replace(&mut r.target, KeyOrRange::Key(Vec::new()));
                r.state = LockRequestState::Victim;
                let lock_target = match &target {
                    KeyOrRange::Key(key) => LockTarget::Key(hash, key),
                    KeyOrRange::Range(b, e) => LockTarget::Range(b.as_ref(), e.as_ref()),
                };
                let position = self.grant(owner, mode, lock_target, number);
                self.add_new_edges(Requester { owner, mode }, target.borrowed(), at, edges);
                let r = &mut self.requests[at];
                (r.target, r.state) = (target, LockRequestState::Granted(position));
                r.wakeup.notify_one();
            }
        }
        check_slow!(
            (0..self.requests.len()).all(|at| {
                !self.requests[at].is_waiting() || self.visit_blockers(at, &mut |_| true)
            }),
            "a request waits only while another owner blocks it",
            self.requests
        );
    }
    /// Asserts that the locks of the column family are compared in the order of its keys.
    pub fn check_comparator(&self, comparator: KeyComparator) {
        check_slow!(
            self.comparator == comparator,
            "all locks of a column family use its comparator",
            self.comparator,
            comparator
        );
    }
    /// Returns the number of locks held.
    pub fn count(&self) -> usize {
        self.keys.len() + self.ranges.len()
    }
    /// Calls `visit` with the owner of every lock.
    pub fn for_each_owner(&self, visit: &mut dyn FnMut(LockOwner)) {
        self.keys.iter().for_each(|(_, l)| visit(l.held.owner));
        self.ranges.iter().for_each(|held| visit(held.owner));
    }
}
