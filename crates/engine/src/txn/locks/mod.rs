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
//!
//! Each column family has a lock table with a mutex of its own ([`txn_locks::LockTable`]), which is
//! held for one request at a time: a hash table of key locks ([`key_locks`]) and an ordered tree of
//! range locks ([`interval_tree`]). The owner's list ([`TxnLocks`]) refers to the entries of the
//! tables by position. Only what waits is known beyond its table: [`LockManager`] has the list of
//! waiting owners, and a deadlock is searched with the tables of all of them locked.

mod lock_mode;
mod granted_lock;
mod interval_tree;
mod key_locks;
mod family_locks;
mod txn_locks;
mod lock_reports;
mod deadlocks;

use crate::txn::read_write_sets::{KeyOrRange, KeyOrRangeRef};
use deadlocks::{RequestIndex, abort_deadlocks};
use family_locks::{Acquired, FamilyLocks, LockRequest, LockRequestState, LockTarget, WaitEdge};
pub use granted_lock::LockOwner;
use granted_lock::Requester;
pub use lock_mode::LockMode;
pub use lock_reports::{Deadlock, LockListener, LockWait};
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, FamilyId, KeyComparator, Result};
use perigee_env::{Clock, Condvar, Mutex};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use txn_locks::LockTable;
pub use txn_locks::TxnLocks;

/// Number of locks released before other threads get the lock table in between.
const RELEASED_AT_ONCE: usize = 256;
/// Number of lock tables above which those of dropped column families are removed.
const TABLES_KEPT: usize = 256;

/// The column family in which a lock is acquired.
#[derive(Clone, Copy)]
pub struct LockScope<'a> {
    /// Its id.
    pub family: FamilyId,
    /// Its name, for error messages.
    pub name: &'a dyn Display,
    /// Its comparator.
    pub comparator: KeyComparator,
}

/// How long a request may wait.
#[derive(Clone, Copy)]
pub struct LockWaitLimits<'a> {
    /// The clock.
    pub clock: &'a dyn Clock,
    /// The longest wait in microseconds; 0: none.
    pub timeout_us: u64,
    /// Monotonic time at which the wait ends in any case; 0: never.
    pub deadline_us: u64,
    /// Called once the request is in the list of waiting requests, and so can be ended by other
    /// threads: false ends it at once.
    pub may_wait: &'a dyn Fn() -> bool,
}

impl<'a> LockWaitLimits<'a> {
    /// Returns limits with a timeout only.
    pub fn new(clock: &'a dyn Clock, timeout_us: u64) -> LockWaitLimits<'a> {
        LockWaitLimits { clock, timeout_us, deadline_us: 0, may_wait: &|| true }
    }
}

/// The lock tables by column family.
#[derive(Debug, Default)]
struct LockTables {
    by_family: HashMap<FamilyId, Arc<LockTable>>,
    /// Number of tables at which unused ones are removed.
    removal_due: usize,
}

/// All locks of a database.
#[derive(Default)]
pub struct LockManager {
    last_owner: AtomicU64,
    tables: Mutex<LockTables>,
    /// The table in which an owner waits. Locked after a table, never before.
    waits: Mutex<BTreeMap<LockOwner, Arc<LockTable>>>,
    /// Serializes the detection of deadlocks. Locked before all others.
    detection: Mutex<()>,
    /// Once set, no request waits.
    closed: AtomicBool,
    listener: OnceLock<Arc<dyn LockListener>>,
}

/// Prints the numbers of locks and of waiting requests.
impl std::fmt::Debug for LockManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LockManager({:?})", self.count())
    }
}

/// A request in the list of its table.
struct ListedRequest {
    wakeup: Arc<Condvar>,
    blockers: Vec<LockOwner>,
    since_us: u64,
}

/// Ends the waiting request of an owner in a table, without granting it: it gets this state.
/// Returns false if there is none.
fn end_request(table: &LockTable, owner: LockOwner, state: LockRequestState) -> bool {
    let mut locks = table.locks.lock();
    let mut waiting = locks.requests.iter_mut().filter(|r| r.is_waiting() && r.owner == owner);
    let Some(request) = waiting.next() else { return false };
    request.state = state;
    request.wakeup.notify_one();
    true
}

/// Creates a request that has to wait from now on.
#[cold]
fn waiting_request(
    limits: LockWaitLimits<'_>,
    scope: LockScope<'_>,
    who: Requester,
    target: LockTarget<'_>,
    number: u64,
) -> LockRequest {
    let hash = if let LockTarget::Key(hash, _) = target { hash } else { 0 };
    LockRequest {
        owner: who.owner,
        mode: who.mode,
        target: target.unhashed().to_owned_target(),
        hash,
        number,
        state: LockRequestState::Waiting,
        wakeup: Arc::new(Condvar::new()),
        since_us: limits.clock.monotonic_us(),
        family_name: scope.name.to_string(),
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
    /// Sets the listener. Returns false if there is one already.
    pub fn set_listener(&self, listener: Arc<dyn LockListener>) -> bool {
        self.listener.set(listener).is_ok()
    }
    /// Returns the index of the table of a column family in the list of a transaction.
    #[inline]
    fn table_index(
        &self,
        mine: &mut TxnLocks,
        family: FamilyId,
        comparator: KeyComparator,
    ) -> usize {
        match mine.find_table(family) {
            Some(at) => at,
            None => mine.add_table(self.open_table(family, comparator)),
        }
    }
    #[cold]
    fn open_table(&self, family: FamilyId, comparator: KeyComparator) -> Arc<LockTable> {
        let mut tables = self.tables.lock();
        if let Some(table) = tables.by_family.get(&family) {
            return Arc::clone(table);
        }
        if tables.by_family.len() >= tables.removal_due.max(TABLES_KEPT) {
            // A table that is referenced from here only has no locks, and cannot get one.
            tables.by_family.retain(|_, table| Arc::strong_count(table) > 1);
            tables.removal_due = tables.by_family.len() * 2;
        }
        let table = Arc::new(LockTable::new(family, comparator));
        tables.by_family.insert(family, Arc::clone(&table));
        table
    }
    /// Reports new waits. The caller holds no lock.
    fn report_waits(&self, edges: Vec<WaitEdge>) {
        if let Some(listener) = self.listener.get() {
            edges.into_iter().for_each(|(waiting, owner)| listener.wait_began(waiting, &[owner]));
        }
    }

    /// Acquires a lock, waiting within the limits.
    ///
    /// # Errors
    /// `Busy` if it could not be acquired in that time; `Interrupted` if another thread ended the
    /// wait; `Conflict` if waiting would never have ended (a deadlock) and this transaction is the
    /// victim.
    #[inline]
    pub fn lock(
        &self,
        limits: LockWaitLimits<'_>,
        scope: LockScope<'_>,
        owner: LockOwner,
        mine: &mut TxnLocks,
        target: KeyOrRangeRef<'_>,
        mode: LockMode,
    ) -> Result<()> {
        check_slow!(owner != 0, "a lock has an owner", scope.family, mode);
        let hashed = LockTarget::new(scope.comparator, target);
        let (at, number) =
            (self.table_index(mine, scope.family, scope.comparator), mine.next_number());
        let (mut edges, mut listed) = (Vec::new(), None);
        let acquired = {
            let table = &mine.tables()[at];
            let mut locks = table.locks.lock();
            locks.check_comparator(scope.comparator);
            let acquired = locks.acquire(owner, mode, hashed, number);
            match acquired {
                Acquired::Covered => return Ok(()),
                Acquired::Granted(_) if locks.requests.is_empty() => {}
                Acquired::Granted(_) => {
                    let before = locks.requests.len();
                    locks.add_new_edges(Requester { owner, mode }, target, before, &mut edges);
                }
                Acquired::Blocked if limits.timeout_us == 0 || self.closed.load(Relaxed) => {}
                Acquired::Blocked => {
                    let who = Requester { owner, mode };
                    let request = waiting_request(limits, scope, who, hashed, number);
                    listed = Some(self.list_request(table, &mut locks, request));
                }
            }
            acquired
        };
        if let Acquired::Granted(position) = acquired {
            mine.add(at, position);
            if !edges.is_empty() {
                self.report_waits(edges);
            }
            return Ok(());
        }
        let outcome = match listed {
            Some(listed) => self.wait(limits, owner, Arc::clone(&mine.tables()[at]), listed),
            None => LockRequestState::Waiting,
        };
        match outcome {
            LockRequestState::Granted(position) => {
                mine.add(at, position);
                Ok(())
            }
            failed => Err(lock_error(failed, scope, target)),
        }
    }
    /// Adds a request to the list of its table, which is locked.
    #[cold]
    fn list_request(
        &self,
        table: &Arc<LockTable>,
        locks: &mut FamilyLocks,
        request: LockRequest,
    ) -> ListedRequest {
        let replaced = self.waits.lock().insert(request.owner, Arc::clone(table));
        check!(replaced.is_none(), "an owner waits for one lock at a time", request.owner);
        let (wakeup, since_us) = (Arc::clone(&request.wakeup), request.since_us);
        locks.requests.push(request);
        ListedRequest { wakeup, blockers: locks.blockers(locks.requests.len() - 1), since_us }
    }
    /// Waits for a request that is in the list, and removes it. Returns its last state.
    #[cold]
    fn wait(
        &self,
        limits: LockWaitLimits<'_>,
        owner: LockOwner,
        table: Arc<LockTable>,
        listed: ListedRequest,
    ) -> LockRequestState {
        let ListedRequest { wakeup, blockers, since_us } = listed;
        self.resolve_deadlocks(limits.clock, owner, &blockers);
        if let Some(listener) = self.listener.get() {
            listener.wait_began(owner, &blockers);
        }
        // A thread that ends waits from now on finds the request; an earlier one is noticed here.
        if !(limits.may_wait)() {
            end_request(&table, owner, LockRequestState::Cancelled);
        }
        let mut until = since_us.saturating_add(limits.timeout_us);
        if limits.deadline_us != 0 {
            until = until.min(limits.deadline_us);
        }
        if self.closed.load(SeqCst) {
            until = 0;
        }
        let mut locks = table.locks.lock();
        loop {
            let at = locks.requests.iter().position(|r| Arc::ptr_eq(&r.wakeup, &wakeup));
            check!(at.is_some(), "a request is in the list until its thread removes it", owner);
            let Some(at) = at else { return LockRequestState::Cancelled };
            let (state, now) = (locks.requests[at].state, limits.clock.monotonic_us());
            if state == LockRequestState::Waiting && now < until {
                locks = wakeup.wait_timeout_us(locks, until - now).0;
                continue;
            }
            locks.requests.remove(at);
            let waited = self.waits.lock().remove(&owner);
            check!(waited.is_some(), "a waiting owner is in the list of waits", owner);
            if !matches!(state, LockRequestState::Granted(_)) {
                // Other requests may have waited behind it.
                let mut edges = Vec::new();
                locks.grant_requests(&mut edges);
                drop(locks);
                self.report_waits(edges);
            }
            return state;
        }
    }
    /// Aborts victims of the deadlocks that the newest request of an owner closes.
    fn resolve_deadlocks(&self, clock: &dyn Clock, owner: LockOwner, blockers: &[LockOwner]) {
        let is_waiting = {
            let waits = self.waits.lock();
            blockers.iter().any(|blocker| waits.contains_key(blocker))
        };
        if !is_waiting {
            return;
        }
        let mut found = Vec::new();
        {
            let _detection = self.detection.lock();
            let mut tables: Vec<Arc<LockTable>> = self.waits.lock().values().cloned().collect();
            tables.sort_by_key(|table| table.family);
            tables.dedup_by_key(|table| table.family);
            check_slow!(
                tables.is_sorted_by(|a, b| a.family < b.family),
                "several lock tables are locked in the order of their column families",
                tables.len()
            );
            let mut locked: Vec<_> = tables.iter().map(|table| table.locks.lock()).collect();
            let now_us = clock.monotonic_us();
            abort_deadlocks(&mut locked, owner, |locked, cycle, victim| {
                let describe = |at: &RequestIndex| {
                    let (locks, at) = (&locked[at.table], at.request);
                    LockWait::new(&locks.requests[at], locks.blockers(at), now_us)
                };
                found.push(Deadlock { waits: cycle.iter().map(describe).collect(), victim });
            });
        }
        if let Some(listener) = self.listener.get() {
            found.iter().for_each(|deadlock| listener.deadlock_resolved(deadlock));
        }
    }
    fn end_wait(&self, owner: LockOwner, state: LockRequestState) -> bool {
        let table = self.waits.lock().get(&owner).cloned();
        table.is_some_and(|table| end_request(&table, owner, state))
    }

    /// Ends the waiting request of an owner without granting it: it fails with `Conflict`.
    pub fn abort_waits(&self, owner: LockOwner) {
        self.end_wait(owner, LockRequestState::Victim);
    }
    /// Ends the waiting request of an owner with `Interrupted`. Returns false if none waits.
    pub fn cancel_wait(&self, owner: LockOwner) -> bool {
        self.end_wait(owner, LockRequestState::Cancelled)
    }
    /// Called when the database closes: ends all waiting requests; later ones do not wait.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
        let waits = self.waits.lock().clone();
        for (owner, table) in waits {
            end_request(&table, owner, LockRequestState::Victim);
        }
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
        let Some(at) = mine.find_table(family) else { return false };
        let mut edges = Vec::new();
        let mut locks = mine.tables()[at].locks.lock();
        let Some(number) = locks.unlock_key(owner, key) else { return false };
        grant_released(&mut locks, &mut edges);
        drop(locks);
        check!(
            mine.remove(number),
            "a lock in the lock table is in the list of its owner",
            owner,
            number
        );
        self.report_waits(edges);
        true
    }

    /// Releases the locks of an owner from number `from` on; 0 releases all of them.
    pub fn release(&self, owner: LockOwner, mine: &mut TxnLocks, from: u64) {
        let (held, first) = mine.take_from(from);
        let mut edges = Vec::new();
        if first < held.len() {
            for (at, table) in mine.tables().iter().enumerate() {
                // The newest first: upgrades before their locks.
                let here = held[first..].iter().rev().filter(|lock| lock.table == at as u32);
                let mut positions = here.filter_map(|lock| lock.position).peekable();
                while positions.peek().is_some() {
                    let mut locks = table.locks.lock();
                    for position in positions.by_ref().take(RELEASED_AT_ONCE) {
                        locks.release(owner, position);
                    }
                    grant_released(&mut locks, &mut edges);
                }
            }
        }
        mine.put_back(held, first);
        check_slow!(
            from > 0 || mine.count() == 0,
            "a transaction that has released its locks holds none",
            owner,
            mine.count()
        );
        if !edges.is_empty() {
            self.report_waits(edges);
        }
    }

    /// Returns the locks of an owner.
    pub fn locks_of(
        &self,
        owner: LockOwner,
        mine: &TxnLocks,
    ) -> Vec<(FamilyId, KeyOrRange, LockMode)> {
        let mut all = Vec::with_capacity(mine.count());
        for (at, table) in mine.tables().iter().enumerate() {
            let locks = table.locks.lock();
            let here = mine.iter().filter(|(held, _)| held.table == at as u32);
            all.extend(here.filter_map(|(_, position)| {
                let (target, mode) = locks.describe(position)?;
                Some((table.family, target, mode))
            }));
        }
        check_slow!(
            all.len() == mine.count(),
            "each lock of a transaction is in the lock table",
            owner,
            all.len(),
            mine.count()
        );
        all
    }
    /// Gives an owner a lock that it held before, without checking for conflicts.
    pub fn restore_lock(
        &self,
        family: FamilyId,
        comparator: KeyComparator,
        owner: LockOwner,
        mine: &mut TxnLocks,
        target: KeyOrRangeRef<'_>,
        mode: LockMode,
    ) {
        let at = self.table_index(mine, family, comparator);
        let (target, number) = (LockTarget::new(comparator, target), mine.next_number());
        let position = mine.tables()[at].locks.lock().grant(owner, mode, target, number);
        mine.add(at, position);
    }

    fn all_tables(&self) -> Vec<Arc<LockTable>> {
        self.tables.lock().by_family.values().cloned().collect()
    }
    /// Returns the number of locks held and of waiting requests.
    pub fn count(&self) -> (usize, usize) {
        let (mut held, mut requests) = (0, 0);
        for table in self.all_tables() {
            let locks = table.locks.lock();
            held += locks.count();
            requests += locks.requests.len();
        }
        (held, requests)
    }
    /// Returns the requests that wait. Requests of different column families are not read at the
    /// same moment.
    pub fn lock_waits(&self, clock: &dyn Clock) -> Vec<LockWait> {
        let mut tables: Vec<Arc<LockTable>> = self.waits.lock().values().cloned().collect();
        tables.sort_by_key(|table| table.family);
        tables.dedup_by_key(|table| table.family);
        let (mut all, now_us) = (Vec::new(), clock.monotonic_us());
        for table in tables {
            let locks = table.locks.lock();
            let waiting = locks.requests.iter().enumerate().filter(|(_, r)| r.is_waiting());
            all.extend(waiting.map(|(at, r)| LockWait::new(r, locks.blockers(at), now_us)));
        }
        all
    }
    /// Returns the number of locks that each owner holds, in ascending order of owners.
    pub fn lock_counts(&self) -> Vec<(LockOwner, u64)> {
        let mut counts: BTreeMap<LockOwner, u64> = BTreeMap::new();
        for table in self.all_tables() {
            let locks = table.locks.lock();
            locks.for_each_owner(&mut |owner| *counts.entry(owner).or_default() += 1);
        }
        counts.into_iter().collect()
    }
}

/// Grants the requests that waited for released locks of a column family.
#[inline]
fn grant_released(locks: &mut FamilyLocks, edges: &mut Vec<WaitEdge>) {
    if !locks.requests.is_empty() && !bug::is_active(Bug::WaiterNotWoken) {
        locks.grant_requests(edges);
    }
}

/// Returns the error of a request that was not granted, by its last state.
#[cold]
fn lock_error(state: LockRequestState, scope: LockScope<'_>, target: KeyOrRangeRef<'_>) -> Error {
    let (name, key) = (scope.name.to_string(), target.start_key());
    match state {
        LockRequestState::Victim => {
            Error::conflict(&name, key, "deadlock: this transaction is the victim, retry it")
        }
        LockRequestState::Cancelled => {
            let cancelled = Error::conflict(&name, key, "the lock was not acquired");
            cancelled.wrap(ErrorKind::Interrupted, "another thread ended the wait")
        }
        LockRequestState::Waiting | LockRequestState::Granted(_) => {
            let timed_out = Error::conflict(&name, key, "the lock was not acquired in time");
            timed_out.wrap(ErrorKind::Busy, "another transaction holds the lock")
        }
    }
}

#[cfg(test)]
mod tests;
