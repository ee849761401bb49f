//! Locks on keys and on stretches of keys, for transactions that would rather wait than lose. Who
//! takes none never comes here.
//!
//! ```text
//!            | shared | exclusive | gap | insert        a lock and a request, of different owners, on keys in common:
//! shared     |   -    |   waits   |  -  |  waits        "waits" where one of them has to
//! exclusive  | waits  |   waits   |  -  |  waits
//! gap        |   -    |     -     |  -  |  waits
//! insert     | waits  |   waits   |waits|  waits
//! ```
//! Requests are granted in the order in which they came, but for those of an owner that holds the
//! key already (an upgrade): they wait for holders only. Who would wait for itself, over others, is
//! told so at once (a deadlock): the youngest transaction of the circle is the victim.

use crate::read_write_sets::KeyOrRange;
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, FamilyId, KeyComparator, Result};
use perigee_env::clock::Clock;
use perigee_env::sync::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Whose a lock is: the number of a transaction. A larger one is younger.
pub type LockOwner = u64;

/// What a lock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// Others may read it under a lock, too.
    Shared,
    /// Nobody else holds it but for gaps.
    Exclusive,
    /// Nobody inserts there.
    Gap,
    /// A new key comes there: exclusive, and no gap of others around it.
    Insert,
}

use LockMode::{Exclusive, Gap, Insert, Shared};

impl LockMode {
    /// Its number in a log record; 0 is none.
    pub fn code(self) -> u8 {
        match self {
            Shared => 1,
            Exclusive => 2,
            Gap => 3,
            Insert => 4,
        }
    }
    /// The mode of a number.
    pub fn decode(code: u8) -> Option<LockMode> {
        [Shared, Exclusive, Gap, Insert].into_iter().find(|mode| mode.code() == code)
    }
}

/// Whether two locks of different owners get in each other's way.
fn conflicts(a: LockMode, b: LockMode) -> bool {
    match (a, b) {
        (Gap, Insert) | (Insert, Gap) => true,
        (Gap, _) | (_, Gap) | (Shared, Shared) => false,
        _ => true,
    }
}

/// Whether who holds `held` needs nothing more for `wanted`.
fn covers(held: LockMode, wanted: LockMode) -> bool {
    held == wanted || matches!((held, wanted), (Exclusive, Shared) | (Insert, Shared | Exclusive))
}

/// A lock that somebody holds.
#[derive(Clone, Debug)]
struct GrantedLock {
    owner: LockOwner,
    mode: LockMode,
    /// Of its owner's locks the how manyeth: a savepoint keeps those before it.
    number: u64,
}

/// How a request ended.
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

/// The locks of a family. Keys by a number that equal keys share; stretches are few.
#[derive(Debug)]
struct FamilyLocks {
    order: KeyComparator,
    keys: HashMap<u64, Vec<(Vec<u8>, GrantedLock)>>,
    ranges: Vec<(KeyOrRange, GrantedLock)>,
    requests: Vec<LockRequest>,
}

/// All locks of a database.
#[derive(Debug, Default)]
pub struct LockManager {
    last_owner: AtomicU64,
    families: Mutex<HashMap<FamilyId, FamilyLocks>>,
    /// Nobody waits any more; set while `grounds` is held.
    closed: AtomicBool,
}

impl FamilyLocks {
    fn new(order: KeyComparator) -> FamilyLocks {
        FamilyLocks { order, keys: HashMap::new(), ranges: Vec::new(), requests: Vec::new() }
    }
    /// Every lock on keys in common with a place.
    fn locks_overlapping<'a>(
        &'a self,
        place: &'a KeyOrRange,
    ) -> Box<dyn Iterator<Item = &'a GrantedLock> + 'a> {
        let order = self.order;
        let stretches = self
            .ranges
            .iter()
            .filter(move |(p, _)| p.borrowed().overlaps(order, place.borrowed()))
            .map(|(_, h)| h);
        match place {
            KeyOrRange::Key(key) => {
                let same = self.keys.get(&order.equality_hash(key)).into_iter().flatten();
                Box::new(
                    same.filter(move |(k, _)| order.keys_equal(k, key))
                        .map(|(_, h)| h)
                        .chain(stretches),
                )
            }
            KeyOrRange::Range(begin, end) => {
                let inside = move |k: &[u8]| {
                    begin.as_ref().is_before(order, k) && !end.as_ref().is_before(order, k)
                };
                let keys =
                    self.keys.values().flatten().filter(move |(k, _)| inside(k)).map(|(_, h)| h);
                Box::new(keys.chain(stretches))
            }
        }
    }
    /// Who holds what a request would have to wait for.
    fn conflicting_holders<'a>(
        &'a self,
        owner: LockOwner,
        mode: LockMode,
        place: &'a KeyOrRange,
    ) -> impl Iterator<Item = LockOwner> + 'a {
        self.locks_overlapping(place)
            .filter(move |h| h.owner != owner && conflicts(h.mode, mode))
            .map(|h| h.owner)
    }
    /// Whether an owner holds something there already.
    fn is_upgrade(&self, owner: LockOwner, place: &KeyOrRange) -> bool {
        self.locks_overlapping(place).any(|h| h.owner == owner)
    }
    /// Whom a request would wait for: holders, and those of `before` that collide with it.
    fn blockers<'a>(
        &'a self,
        (owner, mode, place): (LockOwner, LockMode, &'a KeyOrRange),
        before: &'a [LockRequest],
    ) -> impl Iterator<Item = LockOwner> + 'a {
        let upgrades = self.is_upgrade(owner, place);
        let forgets = upgrades && bug::is_active(Bug::UpgradeForgetsHolder);
        let rivals = before.iter().filter(move |w| {
            !upgrades
                && w.state == LockRequestState::Waiting
                && w.owner != owner
                && conflicts(w.mode, mode)
                && w.target.borrowed().overlaps(self.order, place.borrowed())
        });
        let holders = self.conflicting_holders(owner, mode, place).filter(move |_| !forgets);
        holders.chain(rivals.map(|w| w.owner))
    }
    /// Whom request number `at` waits for.
    fn blockers_of_request(&self, at: usize) -> impl Iterator<Item = LockOwner> + '_ {
        let r = &self.requests[at];
        self.blockers((r.owner, r.mode, &r.target), &self.requests[..at])
    }
    fn insert(&mut self, held: GrantedLock, place: KeyOrRange) {
        match place {
            KeyOrRange::Key(key) => {
                self.keys.entry(self.order.equality_hash(&key)).or_default().push((key, held))
            }
            stretch => self.ranges.push((stretch, held)),
        }
    }
    /// Lets go of an owner's locks from a number on.
    fn release_from(&mut self, owner: LockOwner, from: u64) {
        let stays = |h: &GrantedLock| h.owner != owner || h.number < from;
        self.ranges.retain(|(_, h)| stays(h));
        self.keys.retain(|_, all| {
            all.retain(|(_, h)| stays(h));
            !all.is_empty()
        });
    }
    /// Lets go of one key's lock.
    fn release_key(&mut self, owner: LockOwner, from: u64, key: &[u8]) {
        let hash = self.order.equality_hash(key);
        if let Some(all) = self.keys.get_mut(&hash) {
            all.retain(|(_, h)| h.owner != owner || h.number < from);
            if all.is_empty() {
                self.keys.remove(&hash);
            }
        }
    }
    /// Grants what nobody stands against any more.
    fn grant_requests(&mut self) {
        for at in 0..self.requests.len() {
            if self.requests[at].state == LockRequestState::Waiting
                && self.blockers_of_request(at).next().is_none()
            {
                self.requests[at].state = LockRequestState::Granted;
                self.requests[at].wakeup.notify_one();
                let r = &self.requests[at];
                let (held, place) = (
                    GrantedLock { owner: r.owner, mode: r.mode, number: r.number },
                    r.target.clone(),
                );
                self.insert(held, place);
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
    /// How many.
    pub fn count(&self) -> u64 {
        self.lock_count
    }
}

/// Tells those that wait, of whom `whose` is true, that they do not get it.
fn abort_requests(
    grounds: &mut HashMap<FamilyId, FamilyLocks>,
    whose: impl Fn(&LockRequest) -> bool,
) {
    let requests = grounds.values_mut().flat_map(|g| &mut g.requests);
    for request in requests.filter(|r| r.state == LockRequestState::Waiting && whose(r)) {
        request.state = LockRequestState::Victim;
        request.wakeup.notify_one();
    }
}

impl LockManager {
    /// None held.
    pub fn new() -> LockManager {
        LockManager::default()
    }

    /// A number for a transaction, larger than all before.
    pub fn next_owner(&self) -> LockOwner {
        self.last_owner.fetch_add(1, Relaxed) + 1
    }

    /// Takes a lock, waiting for it no longer than `patience_us`.
    ///
    /// # Errors
    /// `Busy` if it was not to be had in that time; `Conflict` if waiting would have been for ever
    /// (a deadlock) and this is the transaction to give way.
    #[allow(clippy::too_many_arguments)]
    pub fn lock(
        &self,
        clock: &dyn Clock,
        (family, name, order): (FamilyId, &str, KeyComparator),
        (owner, mine): (LockOwner, &mut TxnLocks),
        place: KeyOrRange,
        mode: LockMode,
        patience_us: u64,
    ) -> Result<()> {
        let mut grounds = self.families.lock();
        let ground = grounds.entry(family).or_insert_with(|| FamilyLocks::new(order));
        if ground.locks_overlapping(&place).any(|h| h.owner == owner && covers(h.mode, mode))
            && covers_whole_target(ground, owner, mode, &place)
        {
            return Ok(());
        }
        if ground.blockers((owner, mode, &place), &ground.requests).next().is_none() {
            ground.insert(GrantedLock { owner, mode, number: mine.lock_count }, place.clone());
            mine.lock_count += 1;
            mine.targets.push((family, place));
            return Ok(());
        }
        let bell = Arc::new(Condvar::new());
        let (place_of, number) = (place.clone(), mine.lock_count);
        let (answer, rings) = (LockRequestState::Waiting, Arc::clone(&bell));
        ground.requests.push(LockRequest {
            owner,
            mode,
            target: place_of,
            number,
            state: answer,
            wakeup: rings,
        });
        // Who does not wait closes no circle.
        if patience_us > 0 && may_close_cycle(&grounds, family) {
            abort_deadlocks(&mut grounds);
        }
        let patience_us = if self.closed.load(Relaxed) { 0 } else { patience_us };
        let until = clock.monotonic_us().saturating_add(patience_us);
        loop {
            let answer = request_state(&grounds, family, &bell);
            let now = clock.monotonic_us();
            if answer != LockRequestState::Waiting || now >= until {
                return finish_request(grounds, (family, name), mine, &bell, place, answer);
            }
            grounds = bell.wait_timeout_us(grounds, until - now).0;
        }
    }

    /// Whatever an owner waits for, it does not get it.
    pub fn abort_waits(&self, owner: LockOwner) {
        abort_requests(&mut self.families.lock(), |r| r.owner == owner);
    }
    /// The database closes: whoever waits is told no, and nobody waits from now on.
    pub fn close(&self) {
        let mut grounds = self.families.lock();
        self.closed.store(true, Relaxed);
        abort_requests(&mut grounds, |_| true);
    }

    /// Lets go of an owner's locks from a number on: all of them from 0.
    pub fn release(&self, owner: LockOwner, mine: &mut TxnLocks, from: u64) {
        if mine.lock_count <= from {
            return;
        }
        let mut grounds = self.families.lock();
        let mut touched = BTreeSet::new();
        for (family, place) in mine.targets.drain(from as usize..) {
            let Some(ground) = grounds.get_mut(&family) else { continue };
            match place {
                KeyOrRange::Key(key) => ground.release_key(owner, from, &key),
                KeyOrRange::Range(..) => ground.release_from(owner, from),
            }
            touched.insert(family);
        }
        mine.lock_count = from;
        for family in touched {
            if let Some(ground) = grounds.get_mut(&family) {
                if !bug::is_active(Bug::WaiterForgotten) {
                    ground.grant_requests();
                }
                if ground.keys.is_empty() && ground.ranges.is_empty() && ground.requests.is_empty()
                {
                    grounds.remove(&family);
                }
            }
        }
    }

    /// The locks of an owner, as they are.
    pub fn locks_of(
        &self,
        owner: LockOwner,
        mine: &TxnLocks,
    ) -> Vec<(FamilyId, KeyOrRange, LockMode)> {
        let grounds = self.families.lock();
        let mode = |(number, (family, place)): (usize, &(FamilyId, KeyOrRange))| {
            let ground = grounds.get(family)?;
            let held = ground
                .locks_overlapping(place)
                .find(|h| h.owner == owner && h.number == number as u64)?;
            Some((*family, place.clone(), held.mode))
        };
        mine.targets.iter().enumerate().filter_map(mode).collect()
    }
    /// Gives an owner a lock that it held before, whoever else has one.
    pub fn restore_lock(
        &self,
        (family, order): (FamilyId, KeyComparator),
        (owner, mine): (LockOwner, &mut TxnLocks),
        place: KeyOrRange,
        mode: LockMode,
    ) {
        let mut grounds = self.families.lock();
        let ground = grounds.entry(family).or_insert_with(|| FamilyLocks::new(order));
        ground.insert(GrantedLock { owner, mode, number: mine.lock_count }, place.clone());
        mine.lock_count += 1;
        mine.targets.push((family, place));
    }

    /// Locks held and requests that wait.
    pub fn count(&self) -> (usize, usize) {
        let grounds = self.families.lock();
        let held = |g: &FamilyLocks| g.keys.values().map(Vec::len).sum::<usize>() + g.ranges.len();
        (grounds.values().map(held).sum(), grounds.values().map(|g| g.requests.len()).sum())
    }
}

/// Whether an owner's own locks cover all of a place: of a stretch only the very same one does.
fn covers_whole_target(
    ground: &FamilyLocks,
    owner: LockOwner,
    mode: LockMode,
    place: &KeyOrRange,
) -> bool {
    match place {
        KeyOrRange::Key(_) => true,
        stretch => ground
            .ranges
            .iter()
            .any(|(p, h)| p == stretch && h.owner == owner && covers(h.mode, mode)),
    }
}

/// Takes a request from the list and says how it ended.
fn finish_request(
    mut grounds: MutexGuard<'_, HashMap<FamilyId, FamilyLocks>>,
    (family, name): (FamilyId, &str),
    mine: &mut TxnLocks,
    bell: &Arc<Condvar>,
    place: KeyOrRange,
    answer: LockRequestState,
) -> Result<()> {
    if let Some(ground) = grounds.get_mut(&family) {
        ground.requests.retain(|r| !Arc::ptr_eq(&r.wakeup, bell));
        if answer == LockRequestState::Granted {
            mine.lock_count += 1;
            mine.targets.push((family, place));
            return Ok(());
        }
        // Others may have waited behind it.
        ground.grant_requests();
    }
    let key = place.borrowed().start_key();
    if answer == LockRequestState::Victim {
        return Err(Error::conflict(
            name,
            key,
            "a deadlock, and this transaction gives way: begin it anew",
        ));
    }
    let late = Error::conflict(name, key, "the lock was not to be had in time");
    Err(late.wrap(ErrorKind::Busy, "another transaction holds it"))
}

fn request_state(
    grounds: &HashMap<FamilyId, FamilyLocks>,
    family: FamilyId,
    bell: &Arc<Condvar>,
) -> LockRequestState {
    let request =
        grounds.get(&family).and_then(|g| g.requests.iter().find(|r| Arc::ptr_eq(&r.wakeup, bell)));
    request.map_or(LockRequestState::Waiting, |r| r.state)
}

/// Whether the newest request of a family may close a circle: only one who waits for somebody that
/// waits can.
///
/// Every new edge of the graph is its own, or leads to an owner that was granted something and so
/// waits for nobody.
fn may_close_cycle(grounds: &HashMap<FamilyId, FamilyLocks>, family: FamilyId) -> bool {
    let waits = |owner: LockOwner| {
        let requests = grounds.values().flat_map(|g| &g.requests);
        requests.filter(|r| r.state == LockRequestState::Waiting).any(|r| r.owner == owner)
    };
    grounds.get(&family).is_some_and(|g| {
        !g.requests.is_empty() && g.blockers_of_request(g.requests.len() - 1).any(waits)
    })
}

/// Chooses a victim of every circle of transactions that wait for each other.
fn abort_deadlocks(grounds: &mut HashMap<FamilyId, FamilyLocks>) {
    while let Some(victim) = find_deadlock_victim(grounds) {
        for ground in grounds.values_mut() {
            for request in ground.requests.iter_mut().filter(|r| r.owner == victim) {
                request.state = LockRequestState::Victim;
                request.wakeup.notify_one();
            }
        }
    }
}

/// The youngest transaction of a circle, if there is one.
fn find_deadlock_victim(grounds: &HashMap<FamilyId, FamilyLocks>) -> Option<LockOwner> {
    let mut waits: HashMap<LockOwner, BTreeSet<LockOwner>> = HashMap::new();
    for ground in grounds.values() {
        for (at, request) in
            ground.requests.iter().enumerate().filter(|(_, r)| r.state == LockRequestState::Waiting)
        {
            waits.entry(request.owner).or_default().extend(ground.blockers_of_request(at));
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
