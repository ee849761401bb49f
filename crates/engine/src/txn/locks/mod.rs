//! Locks on keys and key ranges, for transactions that wait for each other instead of failing with
//! a conflict. Other transactions never use this module.
//!
//! Compatibility of a held lock and a request of different owners on common keys:
//!
//! ```text
//!            | shared | exclusive | gap | insert
//! shared     |   -    |   waits   |  -  |  waits
//! exclusive  | waits  |   waits   |  -  |  waits
//! gap        |   -    |     -     |  -  |  waits
//! insert     | waits  |   waits   |waits|  waits
//! ```
//! Requests are granted in the order of arrival, except those of an owner that already holds a lock
//! on the key (an upgrade): they wait for holders only. A request that would wait for its own
//! owner, through others, is detected at once (a deadlock): the youngest transaction of the cycle
//! is the victim.

mod lock_mode;
mod family_locks;
mod deadlocks;

use crate::txn::read_write_sets::KeyOrRange;
use deadlocks::{abort_deadlocks, may_close_cycle};
pub use family_locks::LockOwner;
use family_locks::{FamilyLocks, GrantedLock, LockRequest, LockRequestState};
pub use lock_mode::LockMode;
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, FamilyId, KeyComparator, Result};
use perigee_env::{Clock, Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The column family in which a lock is acquired.
#[derive(Clone, Copy, Debug)]
pub struct LockScope<'a> {
    /// Its id.
    pub family: FamilyId,
    /// Its name, for error messages.
    pub name: &'a str,
    /// Its comparator.
    pub comparator: KeyComparator,
}

/// All locks of a database.
#[derive(Debug, Default)]
pub struct LockManager {
    last_owner: AtomicU64,
    families: Mutex<HashMap<FamilyId, FamilyLocks>>,
    /// Once set, no request waits. Set while `families` is locked.
    closed: AtomicBool,
}

/// The locks of one transaction, by number. Numbers ascend in the order in which the locks were
/// granted and are not used again, so that a savepoint is a number, whatever is unlocked later.
#[derive(Debug, Default)]
pub struct TxnLocks {
    next_number: u64,
    targets: BTreeMap<u64, (FamilyId, KeyOrRange)>,
}

impl TxnLocks {
    /// Adds the lock that was granted with the next number.
    fn add(&mut self, family: FamilyId, target: KeyOrRange) {
        self.targets.insert(self.next_number, (family, target));
        self.next_number += 1;
    }
    /// Returns the number of the next lock: the position of a savepoint.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }
    /// Returns how many locks there are.
    pub fn count(&self) -> usize {
        self.targets.len()
    }
}

/// Ends the waiting requests for which `should_end` is true, without granting them: they get this
/// state. Returns true if there was one.
fn end_requests(
    families: &mut HashMap<FamilyId, FamilyLocks>,
    state: LockRequestState,
    should_end: impl Fn(&LockRequest) -> bool,
) -> bool {
    let mut any = false;
    let requests = families.values_mut().flat_map(|g| &mut g.requests);
    for request in requests.filter(|r| r.state == LockRequestState::Waiting && should_end(r)) {
        request.state = state;
        request.wakeup.notify_one();
        any = true;
    }
    any
}

impl LockManager {
    /// Creates a lock manager without locks.
    pub fn new() -> LockManager {
        LockManager::default()
    }

    /// Returns a new owner number, larger than all before.
    pub fn next_owner(&self) -> LockOwner {
        self.last_owner.fetch_add(1, Relaxed) + 1
    }

    /// Acquires a lock, waiting at most `timeout_us` microseconds.
    ///
    /// # Errors
    /// `Busy` if it could not be acquired in that time; `Interrupted` if another thread ended the
    /// wait; `Conflict` if waiting would never have ended (a deadlock) and this transaction is the
    /// victim.
    #[allow(clippy::too_many_arguments)]
    pub fn lock(
        &self,
        clock: &dyn Clock,
        scope: LockScope<'_>,
        owner: LockOwner,
        mine: &mut TxnLocks,
        target: KeyOrRange,
        mode: LockMode,
        timeout_us: u64,
    ) -> Result<()> {
        let LockScope { family, name, comparator } = scope;
        let mut families = self.families.lock();
        check_slow!(
            !families.values().flat_map(|g| &g.requests).any(|r| r.owner == owner),
            "an owner waits for one lock at a time",
            owner
        );
        let locks = families.entry(family).or_insert_with(|| FamilyLocks::new(comparator));
        locks.check_comparator(comparator);
        if locks.holds(owner, mode, &target) {
            locks.count_request(owner, &target);
            return Ok(());
        }
        if locks.blockers(owner, mode, &target, &locks.requests).next().is_none() {
            let held = GrantedLock { owner, mode, number: mine.next_number, requests: 1 };
            locks.insert(held, target.clone());
            mine.add(family, target);
            return Ok(());
        }
        let wakeup = Arc::new(Condvar::new());
        locks.requests.push(LockRequest {
            owner,
            mode,
            target: target.clone(),
            number: mine.next_number,
            state: LockRequestState::Waiting,
            wakeup: Arc::clone(&wakeup),
        });
        // A request that does not wait cannot close a cycle.
        if timeout_us > 0 && may_close_cycle(&families, family) {
            abort_deadlocks(&mut families);
        }
        let timeout_us = if self.closed.load(Relaxed) { 0 } else { timeout_us };
        let until = clock.monotonic_us().saturating_add(timeout_us);
        loop {
            let state = request_state(&families, family, &wakeup);
            let now = clock.monotonic_us();
            if state != LockRequestState::Waiting || now >= until {
                return finish_request(families, family, name, mine, &wakeup, target, state);
            }
            families = wakeup.wait_timeout_us(families, until - now).0;
        }
    }

    /// Ends the waiting requests of an owner without granting them: they fail with `Conflict`.
    pub fn abort_waits(&self, owner: LockOwner) {
        end_requests(&mut self.families.lock(), LockRequestState::Victim, |r| r.owner == owner);
    }
    /// Ends the waiting request of an owner with `Interrupted`. Returns false if none waits.
    pub fn cancel_wait(&self, owner: LockOwner) -> bool {
        end_requests(&mut self.families.lock(), LockRequestState::Cancelled, |r| r.owner == owner)
    }
    /// Called when the database closes: ends all waiting requests; later ones do not wait.
    pub fn close(&self) {
        let mut families = self.families.lock();
        self.closed.store(true, Relaxed);
        end_requests(&mut families, LockRequestState::Victim, |_| true);
    }

    /// Undoes the newest request of an owner for one key. Returns true if that releases a lock: no
    /// other request needs it.
    pub fn unlock(
        &self,
        family: FamilyId,
        owner: LockOwner,
        mine: &mut TxnLocks,
        key: &[u8],
    ) -> bool {
        let mut families = self.families.lock();
        let Some(number) = families.get_mut(&family).and_then(|l| l.unlock_key(owner, key)) else {
            return false;
        };
        check!(
            mine.targets.remove(&number).is_some(),
            "a lock in the lock table is in the list of its owner",
            owner,
            number
        );
        grant_released(&mut families, family);
        true
    }

    /// Releases the locks of an owner from number `from` on; 0 releases all of them.
    pub fn release(&self, owner: LockOwner, mine: &mut TxnLocks, from: u64) {
        let released = mine.targets.split_off(&from);
        if released.is_empty() {
            return;
        }
        let mut families = self.families.lock();
        let (mut touched, mut with_ranges) = (BTreeSet::new(), BTreeSet::new());
        for (family, target) in released.into_values() {
            let Some(locks) = families.get_mut(&family) else { continue };
            match target {
                KeyOrRange::Key(key) => locks.release_key(owner, from, &key),
                KeyOrRange::Range(..) => {
                    with_ranges.insert(family);
                }
            }
            touched.insert(family);
        }
        for family in with_ranges {
            if let Some(locks) = families.get_mut(&family) {
                locks.release_ranges(owner, from);
            }
        }
        for family in touched {
            grant_released(&mut families, family);
        }
    }

    /// Returns the locks of an owner.
    pub fn locks_of(
        &self,
        owner: LockOwner,
        mine: &TxnLocks,
    ) -> Vec<(FamilyId, KeyOrRange, LockMode)> {
        let families = self.families.lock();
        let mode = |(number, (family, target)): (&u64, &(FamilyId, KeyOrRange))| {
            let locks = families.get(family)?;
            let held = locks
                .locks_overlapping(target)
                .find(|h| h.owner == owner && h.number == *number)?;
            Some((*family, target.clone(), held.mode))
        };
        let held: Vec<_> = mine.targets.iter().filter_map(mode).collect();
        // A lock on an empty range excludes nothing, and is not found.
        check_slow!(
            held.len() == mine.targets.len()
                || mine.targets.values().any(|(_, t)| matches!(t, KeyOrRange::Range(..))),
            "each lock of a transaction is in the lock table",
            held.len(),
            mine.targets.len()
        );
        held
    }
    /// Gives an owner a lock that it held before, without checking for conflicts.
    pub fn restore_lock(
        &self,
        family: FamilyId,
        comparator: KeyComparator,
        owner: LockOwner,
        mine: &mut TxnLocks,
        target: KeyOrRange,
        mode: LockMode,
    ) {
        let mut families = self.families.lock();
        let locks = families.entry(family).or_insert_with(|| FamilyLocks::new(comparator));
        let held = GrantedLock { owner, mode, number: mine.next_number, requests: 1 };
        locks.insert(held, target.clone());
        mine.add(family, target);
    }

    /// Returns the number of locks held and of waiting requests.
    pub fn count(&self) -> (usize, usize) {
        let families = self.families.lock();
        let requests = families.values().map(|g| g.requests.len()).sum();
        (families.values().map(FamilyLocks::count).sum(), requests)
    }
}

/// Grants the requests that waited for released locks of a column family.
fn grant_released(families: &mut HashMap<FamilyId, FamilyLocks>, family: FamilyId) {
    let Some(locks) = families.get_mut(&family) else { return };
    if !bug::is_active(Bug::WaiterNotWoken) {
        locks.grant_requests();
    }
    if locks.is_empty() {
        families.remove(&family);
    }
}

/// Removes a request from the list and returns its outcome.
fn finish_request(
    mut families: MutexGuard<'_, HashMap<FamilyId, FamilyLocks>>,
    family: FamilyId,
    name: &str,
    mine: &mut TxnLocks,
    wakeup: &Arc<Condvar>,
    target: KeyOrRange,
    state: LockRequestState,
) -> Result<()> {
    if let Some(locks) = families.get_mut(&family) {
        let before = locks.requests.len();
        locks.requests.retain(|r| !Arc::ptr_eq(&r.wakeup, wakeup));
        check!(
            locks.requests.len() + 1 == before,
            "a request is in the list until its thread removes it",
            before,
            state
        );
        if state == LockRequestState::Granted {
            check_slow!(
                locks.locks_overlapping(&target).any(|h| h.number == mine.next_number),
                "a granted request holds its lock",
                target
            );
            mine.add(family, target);
            return Ok(());
        }
        // Other requests may have waited behind it.
        locks.grant_requests();
    }
    let key = target.borrowed().start_key();
    if state == LockRequestState::Victim {
        return Err(Error::conflict(
            name,
            key,
            "deadlock: this transaction is the victim, retry it",
        ));
    }
    if state == LockRequestState::Cancelled {
        let cancelled = Error::conflict(name, key, "the lock was not acquired");
        return Err(cancelled.wrap(ErrorKind::Interrupted, "another thread ended the wait"));
    }
    let timed_out = Error::conflict(name, key, "the lock was not acquired in time");
    Err(timed_out.wrap(ErrorKind::Busy, "another transaction holds the lock"))
}

fn request_state(
    families: &HashMap<FamilyId, FamilyLocks>,
    family: FamilyId,
    wakeup: &Arc<Condvar>,
) -> LockRequestState {
    let request = families
        .get(&family)
        .and_then(|g| g.requests.iter().find(|r| Arc::ptr_eq(&r.wakeup, wakeup)));
    request.map_or(LockRequestState::Waiting, |r| r.state)
}

#[cfg(test)]
mod tests;
