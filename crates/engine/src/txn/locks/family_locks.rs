//! The locks of one column family, [`FamilyLocks`], and the requests that wait for them.

use super::lock_mode::{LockMode, conflicts, covers};
use crate::txn::read_write_sets::KeyOrRange;
use perigee_base::KeyComparator;
use perigee_base::bug::{self, Bug};
use perigee_env::Condvar;
use std::collections::HashMap;
use std::sync::Arc;

/// The owner of a lock: the number of a transaction. A larger one is younger.
pub type LockOwner = u64;

/// A granted lock.
#[derive(Clone, Debug)]
pub struct GrantedLock {
    /// The transaction that holds it.
    pub owner: LockOwner,
    /// Its mode.
    pub mode: LockMode,
    /// Its number among its owner's locks, ascending in the order in which they were granted:
    /// rolling back to a savepoint keeps those before it.
    pub number: u64,
    /// Number of requests that it has served: as many unlocks release it.
    pub requests: u32,
}

/// State of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRequestState {
    /// Others hold conflicting locks or have requested them before.
    Waiting,
    /// The lock is held.
    Granted,
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
    /// The requested key or range.
    pub target: KeyOrRange,
    /// The number that the lock will have.
    pub number: u64,
    /// Its state.
    pub state: LockRequestState,
    /// Notified when the state changes.
    pub wakeup: Arc<Condvar>,
}

/// The locks of a column family. Key locks are grouped by a hash that equal keys share; range locks
/// are few.
#[derive(Debug)]
pub struct FamilyLocks {
    comparator: KeyComparator,
    keys: HashMap<u64, Vec<(Vec<u8>, GrantedLock)>>,
    ranges: Vec<(KeyOrRange, GrantedLock)>,
    /// Waiting requests in the order of arrival, and those whose thread has not resumed yet.
    pub requests: Vec<LockRequest>,
}

impl FamilyLocks {
    /// Creates the locks of a column family; none is held.
    pub fn new(comparator: KeyComparator) -> FamilyLocks {
        FamilyLocks { comparator, keys: HashMap::new(), ranges: Vec::new(), requests: Vec::new() }
    }
    /// Returns every lock that overlaps a target.
    pub fn locks_overlapping<'a>(
        &'a self,
        target: &'a KeyOrRange,
    ) -> Box<dyn Iterator<Item = &'a GrantedLock> + 'a> {
        let comparator = self.comparator;
        let ranges = self
            .ranges
            .iter()
            .filter(move |(p, _)| p.borrowed().overlaps(comparator, target.borrowed()))
            .map(|(_, h)| h);
        match target {
            KeyOrRange::Key(key) => {
                let same = self.keys.get(&comparator.equality_hash(key)).into_iter().flatten();
                Box::new(
                    same.filter(move |(k, _)| comparator.keys_equal(k, key))
                        .map(|(_, h)| h)
                        .chain(ranges),
                )
            }
            KeyOrRange::Range(begin, end) => {
                let inside = move |k: &[u8]| {
                    begin.as_ref().is_before(comparator, k)
                        && !end.as_ref().is_before(comparator, k)
                };
                let keys =
                    self.keys.values().flatten().filter(move |(k, _)| inside(k)).map(|(_, h)| h);
                Box::new(keys.chain(ranges))
            }
        }
    }
    /// Returns true if locks of the owner cover the whole target: a range is covered only by a lock
    /// on exactly the same range.
    pub fn holds(&self, owner: LockOwner, mode: LockMode, target: &KeyOrRange) -> bool {
        let is_mine = |h: &GrantedLock| h.owner == owner && covers(h.mode, mode);
        let is_whole = || match target {
            KeyOrRange::Key(_) => true,
            range => self.ranges.iter().any(|(p, h)| p == range && is_mine(h)),
        };
        self.locks_overlapping(target).any(is_mine) && is_whole()
    }
    /// Returns the owners of the locks that conflict with a request.
    fn conflicting_holders<'a>(
        &'a self,
        owner: LockOwner,
        mode: LockMode,
        target: &'a KeyOrRange,
    ) -> impl Iterator<Item = LockOwner> + 'a {
        self.locks_overlapping(target)
            .filter(move |h| h.owner != owner && conflicts(h.mode, mode))
            .map(|h| h.owner)
    }
    /// Returns true if the owner already holds a lock that overlaps the target.
    fn is_upgrade(&self, owner: LockOwner, target: &KeyOrRange) -> bool {
        self.locks_overlapping(target).any(|h| h.owner == owner)
    }
    /// Returns the owners that a request would wait for: holders, and conflicting requests in
    /// `before`.
    pub fn blockers<'a>(
        &'a self,
        owner: LockOwner,
        mode: LockMode,
        target: &'a KeyOrRange,
        before: &'a [LockRequest],
    ) -> impl Iterator<Item = LockOwner> + 'a {
        let upgrades = self.is_upgrade(owner, target);
        let ignore_holders = upgrades && bug::is_active(Bug::UpgradeIgnoresHolder);
        let earlier = before.iter().filter(move |w| {
            !upgrades
                && w.state == LockRequestState::Waiting
                && w.owner != owner
                && conflicts(w.mode, mode)
                && w.target.borrowed().overlaps(self.comparator, target.borrowed())
        });
        let holders =
            self.conflicting_holders(owner, mode, target).filter(move |_| !ignore_holders);
        holders.chain(earlier.map(|w| w.owner))
    }
    /// Returns the owners that the request at index `at` waits for.
    pub fn blockers_of_request(&self, at: usize) -> impl Iterator<Item = LockOwner> + '_ {
        let r = &self.requests[at];
        self.blockers(r.owner, r.mode, &r.target, &self.requests[..at])
    }
    /// Adds a granted lock.
    pub fn insert(&mut self, held: GrantedLock, target: KeyOrRange) {
        check_slow!(
            self.conflicting_holders(held.owner, held.mode, &target).next().is_none(),
            "no two transactions hold conflicting locks",
            held.owner,
            held.mode,
            target
        );
        match target {
            KeyOrRange::Key(key) => {
                self.keys.entry(self.comparator.equality_hash(&key)).or_default().push((key, held))
            }
            range => self.ranges.push((range, held)),
        }
    }
    /// Returns the newest lock of an owner on one key, with the hash of the key and the index of
    /// the lock in the list of that hash.
    fn newest_key_lock(&self, owner: LockOwner, key: &[u8]) -> Option<(u64, usize)> {
        let hash = self.comparator.equality_hash(key);
        let same = self.keys.get(&hash)?.iter().enumerate();
        let mine =
            same.filter(|(_, (k, h))| h.owner == owner && self.comparator.keys_equal(k, key));
        mine.max_by_key(|(_, (_, h))| h.number).map(|(at, _)| (hash, at))
    }
    /// Counts a request that the owner's locks cover already, if it is for a key that has a lock of
    /// its own.
    pub fn count_request(&mut self, owner: LockOwner, target: &KeyOrRange) {
        let KeyOrRange::Key(key) = target else { return };
        let Some((hash, at)) = self.newest_key_lock(owner, key) else { return };
        if let Some((_, held)) = self.keys.get_mut(&hash).and_then(|all| all.get_mut(at)) {
            held.requests = held.requests.saturating_add(1);
        }
    }
    /// Undoes the newest request of an owner for one key. Returns the number of the lock if
    /// that releases it.
    pub fn unlock_key(&mut self, owner: LockOwner, key: &[u8]) -> Option<u64> {
        let (hash, at) = self.newest_key_lock(owner, key)?;
        let all = self.keys.get_mut(&hash)?;
        let held = &mut all[at].1;
        check_slow!(held.requests > 0, "a lock was requested until it is released", held);
        held.requests -= 1;
        if held.requests > 0 {
            return None;
        }
        let number = held.number;
        all.swap_remove(at);
        if all.is_empty() {
            self.keys.remove(&hash);
        }
        Some(number)
    }
    /// Releases the locks of an owner on key ranges from number `from` on.
    pub fn release_ranges(&mut self, owner: LockOwner, from: u64) {
        self.ranges.retain(|(_, h)| h.owner != owner || h.number < from);
    }
    /// Releases the lock of an owner on one key, if its number is at least `from`.
    pub fn release_key(&mut self, owner: LockOwner, from: u64, key: &[u8]) {
        let hash = self.comparator.equality_hash(key);
        if let Some(all) = self.keys.get_mut(&hash) {
            all.retain(|(_, h)| h.owner != owner || h.number < from);
            if all.is_empty() {
                self.keys.remove(&hash);
            }
        }
    }
    /// Grants the requests that are no longer blocked.
    pub fn grant_requests(&mut self) {
        for at in 0..self.requests.len() {
            if self.requests[at].state == LockRequestState::Waiting
                && self.blockers_of_request(at).next().is_none()
            {
                self.requests[at].state = LockRequestState::Granted;
                self.requests[at].wakeup.notify_one();
                let r = &self.requests[at];
                let (held, target) = (
                    GrantedLock { owner: r.owner, mode: r.mode, number: r.number, requests: 1 },
                    r.target.clone(),
                );
                self.insert(held, target);
            }
        }
        check_slow!(
            (0..self.requests.len()).all(|at| {
                self.requests[at].state != LockRequestState::Waiting
                    || self.blockers_of_request(at).next().is_some()
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
        self.keys.values().map(Vec::len).sum::<usize>() + self.ranges.len()
    }
    /// Returns true if there are neither locks nor requests.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty() && self.requests.is_empty()
    }
}
