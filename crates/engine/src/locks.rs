//! Locks on keys and key ranges, for transactions that prefer waiting to conflicts. Other
//! transactions never use this module.
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

use crate::read_write_sets::KeyOrRange;
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, FamilyId, KeyComparator, Result};
use perigee_env::clock::Clock;
use perigee_env::sync::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The owner of a lock: the number of a transaction. A larger one is younger.
pub type LockOwner = u64;

/// The mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// Other shared locks are allowed.
    Shared,
    /// No other owner has a lock, except gap locks.
    Exclusive,
    /// Prevents inserts in the range.
    Gap,
    /// For inserting a new key: exclusive, and conflicts with gap locks of others around it.
    Insert,
}

use LockMode::{Exclusive, Gap, Insert, Shared};

impl LockMode {
    /// Returns its code in a log record; 0 is none.
    pub fn code(self) -> u8 {
        match self {
            Shared => 1,
            Exclusive => 2,
            Gap => 3,
            Insert => 4,
        }
    }
    /// Returns the mode with this code.
    pub fn decode(code: u8) -> Option<LockMode> {
        [Shared, Exclusive, Gap, Insert].into_iter().find(|mode| mode.code() == code)
    }
}

/// Returns true if two locks of different owners conflict.
fn conflicts(a: LockMode, b: LockMode) -> bool {
    match (a, b) {
        (Gap, Insert) | (Insert, Gap) => true,
        (Gap, _) | (_, Gap) | (Shared, Shared) => false,
        _ => true,
    }
}

/// Returns true if the owner of a lock with mode `held` needs no further lock for `wanted`.
fn covers(held: LockMode, wanted: LockMode) -> bool {
    held == wanted || matches!((held, wanted), (Exclusive, Shared) | (Insert, Shared | Exclusive))
}

/// A granted lock.
#[derive(Clone, Debug)]
struct GrantedLock {
    owner: LockOwner,
    mode: LockMode,
    /// Its index among its owner's locks: rolling back to a savepoint keeps those before it.
    number: u64,
}

/// State of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockRequestState {
    Waiting,
    Granted,
    Victim,
}

#[derive(Debug)]
struct LockRequest {
    owner: LockOwner,
    mode: LockMode,
    target: KeyOrRange,
    number: u64,
    state: LockRequestState,
    wakeup: Arc<Condvar>,
}

/// The locks of a column family. Key locks are grouped by a hash that equal keys share; range locks
/// are few.
#[derive(Debug)]
struct FamilyLocks {
    comparator: KeyComparator,
    keys: HashMap<u64, Vec<(Vec<u8>, GrantedLock)>>,
    ranges: Vec<(KeyOrRange, GrantedLock)>,
    requests: Vec<LockRequest>,
}

/// The column family in which a lock is acquired.
#[derive(Clone, Copy, Debug)]
pub struct LockScope<'a> {
    /// Its ID.
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

impl FamilyLocks {
    fn new(comparator: KeyComparator) -> FamilyLocks {
        FamilyLocks { comparator, keys: HashMap::new(), ranges: Vec::new(), requests: Vec::new() }
    }
    /// Returns every lock that overlaps a target.
    fn locks_overlapping<'a>(
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
    fn blockers<'a>(
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
    fn blockers_of_request(&self, at: usize) -> impl Iterator<Item = LockOwner> + '_ {
        let r = &self.requests[at];
        self.blockers(r.owner, r.mode, &r.target, &self.requests[..at])
    }
    fn insert(&mut self, held: GrantedLock, target: KeyOrRange) {
        match target {
            KeyOrRange::Key(key) => {
                self.keys.entry(self.comparator.equality_hash(&key)).or_default().push((key, held))
            }
            range => self.ranges.push((range, held)),
        }
    }
    /// Releases the locks of an owner from number `from` on.
    fn release_from(&mut self, owner: LockOwner, from: u64) {
        let is_kept = |h: &GrantedLock| h.owner != owner || h.number < from;
        self.ranges.retain(|(_, h)| is_kept(h));
        self.keys.retain(|_, all| {
            all.retain(|(_, h)| is_kept(h));
            !all.is_empty()
        });
    }
    /// Releases the lock of an owner on one key, if its number is at least `from`.
    fn release_key(&mut self, owner: LockOwner, from: u64, key: &[u8]) {
        let hash = self.comparator.equality_hash(key);
        if let Some(all) = self.keys.get_mut(&hash) {
            all.retain(|(_, h)| h.owner != owner || h.number < from);
            if all.is_empty() {
                self.keys.remove(&hash);
            }
        }
    }
    /// Grants the requests that are no longer blocked.
    fn grant_requests(&mut self) {
        for at in 0..self.requests.len() {
            if self.requests[at].state == LockRequestState::Waiting
                && self.blockers_of_request(at).next().is_none()
            {
                self.requests[at].state = LockRequestState::Granted;
                self.requests[at].wakeup.notify_one();
                let r = &self.requests[at];
                let (held, target) = (
                    GrantedLock { owner: r.owner, mode: r.mode, number: r.number },
                    r.target.clone(),
                );
                self.insert(held, target);
            }
        }
    }
}

/// The locks of one transaction.
#[derive(Debug, Default)]
pub struct TxnLocks {
    lock_count: u64,
    targets: Vec<(FamilyId, KeyOrRange)>,
}

impl TxnLocks {
    /// Returns the number of locks.
    pub fn count(&self) -> u64 {
        self.lock_count
    }
}

/// Ends the waiting requests for which `should_abort` is true, without granting them.
fn abort_requests(
    families: &mut HashMap<FamilyId, FamilyLocks>,
    should_abort: impl Fn(&LockRequest) -> bool,
) {
    let requests = families.values_mut().flat_map(|g| &mut g.requests);
    for request in requests.filter(|r| r.state == LockRequestState::Waiting && should_abort(r)) {
        request.state = LockRequestState::Victim;
        request.wakeup.notify_one();
    }
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
    /// `Busy` if it could not be acquired in that time; `Conflict` if waiting would never have
    /// ended (a deadlock) and this transaction is the victim.
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
        let locks = families.entry(family).or_insert_with(|| FamilyLocks::new(comparator));
        if locks.locks_overlapping(&target).any(|h| h.owner == owner && covers(h.mode, mode))
            && covers_whole_target(locks, owner, mode, &target)
        {
            return Ok(());
        }
        if locks.blockers(owner, mode, &target, &locks.requests).next().is_none() {
            locks.insert(GrantedLock { owner, mode, number: mine.lock_count }, target.clone());
            mine.lock_count += 1;
            mine.targets.push((family, target));
            return Ok(());
        }
        let wakeup = Arc::new(Condvar::new());
        locks.requests.push(LockRequest {
            owner,
            mode,
            target: target.clone(),
            number: mine.lock_count,
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

    /// Ends the waiting requests of an owner without granting them.
    pub fn abort_waits(&self, owner: LockOwner) {
        abort_requests(&mut self.families.lock(), |r| r.owner == owner);
    }
    /// Called when the database closes: ends all waiting requests; later ones do not wait.
    pub fn close(&self) {
        let mut families = self.families.lock();
        self.closed.store(true, Relaxed);
        abort_requests(&mut families, |_| true);
    }

    /// Releases the locks of an owner from number `from` on; 0 releases all of them.
    pub fn release(&self, owner: LockOwner, mine: &mut TxnLocks, from: u64) {
        if mine.lock_count <= from {
            return;
        }
        let mut families = self.families.lock();
        let mut touched = BTreeSet::new();
        for (family, target) in mine.targets.drain(from as usize..) {
            let Some(locks) = families.get_mut(&family) else { continue };
            match target {
                KeyOrRange::Key(key) => locks.release_key(owner, from, &key),
                KeyOrRange::Range(..) => locks.release_from(owner, from),
            }
            touched.insert(family);
        }
        mine.lock_count = from;
        for family in touched {
            if let Some(locks) = families.get_mut(&family) {
                if !bug::is_active(Bug::WaiterNotWoken) {
                    locks.grant_requests();
                }
                if locks.keys.is_empty() && locks.ranges.is_empty() && locks.requests.is_empty() {
                    families.remove(&family);
                }
            }
        }
    }

    /// Returns the locks of an owner.
    pub fn locks_of(
        &self,
        owner: LockOwner,
        mine: &TxnLocks,
    ) -> Vec<(FamilyId, KeyOrRange, LockMode)> {
        let families = self.families.lock();
        let mode = |(number, (family, target)): (usize, &(FamilyId, KeyOrRange))| {
            let locks = families.get(family)?;
            let held = locks
                .locks_overlapping(target)
                .find(|h| h.owner == owner && h.number == number as u64)?;
            Some((*family, target.clone(), held.mode))
        };
        mine.targets.iter().enumerate().filter_map(mode).collect()
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
        locks.insert(GrantedLock { owner, mode, number: mine.lock_count }, target.clone());
        mine.lock_count += 1;
        mine.targets.push((family, target));
    }

    /// Returns the number of locks held and of waiting requests.
    pub fn count(&self) -> (usize, usize) {
        let families = self.families.lock();
        let held = |g: &FamilyLocks| g.keys.values().map(Vec::len).sum::<usize>() + g.ranges.len();
        (families.values().map(held).sum(), families.values().map(|g| g.requests.len()).sum())
    }
}

/// Returns true if an owner's own locks cover the whole target: a range is covered only by a lock
/// on exactly the same range.
fn covers_whole_target(
    locks: &FamilyLocks,
    owner: LockOwner,
    mode: LockMode,
    target: &KeyOrRange,
) -> bool {
    match target {
        KeyOrRange::Key(_) => true,
        range => {
            locks.ranges.iter().any(|(p, h)| p == range && h.owner == owner && covers(h.mode, mode))
        }
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
        locks.requests.retain(|r| !Arc::ptr_eq(&r.wakeup, wakeup));
        if state == LockRequestState::Granted {
            mine.lock_count += 1;
            mine.targets.push((family, target));
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

/// Returns true if the newest request of a column family may close a cycle: only if it waits for an
/// owner that itself waits.
///
/// Every new edge of the wait graph starts at the owner of this request, or leads to an owner that
/// was just granted a lock and so does not wait.
fn may_close_cycle(families: &HashMap<FamilyId, FamilyLocks>, family: FamilyId) -> bool {
    let waits = |owner: LockOwner| {
        let requests = families.values().flat_map(|g| &g.requests);
        requests.filter(|r| r.state == LockRequestState::Waiting).any(|r| r.owner == owner)
    };
    families.get(&family).is_some_and(|g| {
        !g.requests.is_empty() && g.blockers_of_request(g.requests.len() - 1).any(waits)
    })
}

/// Aborts a victim of every cycle of transactions that wait for each other.
fn abort_deadlocks(families: &mut HashMap<FamilyId, FamilyLocks>) {
    while let Some(victim) = find_deadlock_victim(families) {
        for locks in families.values_mut() {
            for request in locks.requests.iter_mut().filter(|r| r.owner == victim) {
                request.state = LockRequestState::Victim;
                request.wakeup.notify_one();
            }
        }
    }
}

/// Returns the youngest transaction of a cycle, if there is one.
fn find_deadlock_victim(families: &HashMap<FamilyId, FamilyLocks>) -> Option<LockOwner> {
    let mut waits: HashMap<LockOwner, BTreeSet<LockOwner>> = HashMap::new();
    for locks in families.values() {
        for (at, request) in
            locks.requests.iter().enumerate().filter(|(_, r)| r.state == LockRequestState::Waiting)
        {
            waits.entry(request.owner).or_default().extend(locks.blockers_of_request(at));
        }
    }
    let mut done = BTreeSet::new();
    let mut starts: Vec<LockOwner> = waits.keys().copied().collect();
    starts.sort_unstable();
    for start in starts {
        let mut path = Vec::new();
        if let Some(victim) = search_cycle(start, &waits, &mut path, &mut done) {
            return Some(victim);
        }
    }
    None
}

fn search_cycle(
    at: LockOwner,
    waits: &HashMap<LockOwner, BTreeSet<LockOwner>>,
    path: &mut Vec<LockOwner>,
    done: &mut BTreeSet<LockOwner>,
) -> Option<LockOwner> {
    if let Some(from) = path.iter().position(|o| *o == at) {
        return path[from..].iter().max().copied();
    }
    if done.contains(&at) {
        return None;
    }
    path.push(at);
    let found = waits
        .get(&at)
        .into_iter()
        .flatten()
        .find_map(|next| search_cycle(*next, waits, path, done));
    path.pop();
    done.insert(at);
    found
}

#[cfg(test)]
mod tests;
