//! Locks on keys and on stretches of keys, for transactions that would rather wait than lose. Who takes none never comes here.
//!
//! ```text
//!            | shared | exclusive | gap | insert        a lock and a request, of different owners, on keys in common:
//! shared     |   -    |   waits   |  -  |  waits        "waits" where one of them has to
//! exclusive  | waits  |   waits   |  -  |  waits
//! gap        |   -    |     -     |  -  |  waits
//! insert     | waits  |   waits   |waits|  waits
//! ```
//! Requests are granted in the order in which they came, but for those of an owner that holds the key already (an upgrade):
//! they wait for holders only. Who would wait for itself, over others, is told so at once (a deadlock): the youngest
//! transaction of the circle is the victim.

use crate::footprint::Place;
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, FamilyId, KeyOrder, Result};
use perigee_env::clock::Clock;
use perigee_env::sync::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Whose a lock is: the number of a transaction. A larger one is younger.
pub type Owner = u64;

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
fn collide(a: LockMode, b: LockMode) -> bool {
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
struct Held {
    owner: Owner,
    mode: LockMode,
    /// Of its owner's locks the how manyeth: a savepoint keeps those before it.
    number: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Waiting,
    Granted,
    Victim,
}

#[derive(Debug)]
struct Request {
    owner: Owner,
    mode: LockMode,
    place: Place,
    number: u64,
    answer: Answer,
    bell: Arc<Condvar>,
}

/// The locks of a family. Keys by a number that equal keys share; stretches are few.
#[derive(Debug)]
struct Ground {
    order: KeyOrder,
    keys: HashMap<u64, Vec<(Vec<u8>, Held)>>,
    stretches: Vec<(Place, Held)>,
    waiting: Vec<Request>,
}

/// All locks of a database.
#[derive(Debug, Default)]
pub struct Locks {
    newcomers: AtomicU64,
    grounds: Mutex<HashMap<FamilyId, Ground>>,
    /// Nobody waits any more; set while `grounds` is held.
    closed: AtomicBool,
}

impl Ground {
    fn new(order: KeyOrder) -> Ground {
        Ground { order, keys: HashMap::new(), stretches: Vec::new(), waiting: Vec::new() }
    }
    /// Every lock on keys in common with a place.
    fn on<'a>(&'a self, place: &'a Place) -> Box<dyn Iterator<Item = &'a Held> + 'a> {
        let order = self.order;
        let stretches = self
            .stretches
            .iter()
            .filter(move |(p, _)| p.target().meets(order, place.target()))
            .map(|(_, h)| h);
        match place {
            Place::Key(key) => {
                let same = self.keys.get(&order.equal_hash(key)).into_iter().flatten();
                Box::new(same.filter(move |(k, _)| order.equal(k, key)).map(|(_, h)| h).chain(stretches))
            }
            Place::Stretch(begin, end) => {
                let inside =
                    move |k: &[u8]| begin.as_ref().is_before(order, k) && !end.as_ref().is_before(order, k);
                let keys = self.keys.values().flatten().filter(move |(k, _)| inside(k)).map(|(_, h)| h);
                Box::new(keys.chain(stretches))
            }
        }
    }
    /// Who holds what a request would have to wait for.
    fn holders<'a>(
        &'a self,
        owner: Owner,
        mode: LockMode,
        place: &'a Place,
    ) -> impl Iterator<Item = Owner> + 'a {
        self.on(place).filter(move |h| h.owner != owner && collide(h.mode, mode)).map(|h| h.owner)
    }
    /// Whether an owner holds something there already.
    fn upgrades(&self, owner: Owner, place: &Place) -> bool {
        self.on(place).any(|h| h.owner == owner)
    }
    /// Whom a request would wait for: holders, and those of `before` that collide with it.
    fn in_the_way<'a>(
        &'a self,
        (owner, mode, place): (Owner, LockMode, &'a Place),
        before: &'a [Request],
    ) -> impl Iterator<Item = Owner> + 'a {
        let upgrades = self.upgrades(owner, place);
        let forgets = upgrades && bug::on(Bug::UpgradeForgetsHolder);
        let rivals = before.iter().filter(move |w| {
            !upgrades
                && w.answer == Answer::Waiting
                && w.owner != owner
                && collide(w.mode, mode)
                && w.place.target().meets(self.order, place.target())
        });
        let holders = self.holders(owner, mode, place).filter(move |_| !forgets);
        holders.chain(rivals.map(|w| w.owner))
    }
    /// Whom request number `at` waits for.
    fn awaited(&self, at: usize) -> impl Iterator<Item = Owner> + '_ {
        let r = &self.waiting[at];
        self.in_the_way((r.owner, r.mode, &r.place), &self.waiting[..at])
    }
    fn take(&mut self, held: Held, place: Place) {
        match place {
            Place::Key(key) => self.keys.entry(self.order.equal_hash(&key)).or_default().push((key, held)),
            stretch => self.stretches.push((stretch, held)),
        }
    }
    /// Lets go of an owner's locks from a number on.
    fn release(&mut self, owner: Owner, from: u64) {
        let stays = |h: &Held| h.owner != owner || h.number < from;
        self.stretches.retain(|(_, h)| stays(h));
        self.keys.retain(|_, all| {
            all.retain(|(_, h)| stays(h));
            !all.is_empty()
        });
    }
    /// Lets go of one key's lock.
    fn release_key(&mut self, owner: Owner, from: u64, key: &[u8]) {
        let hash = self.order.equal_hash(key);
        if let Some(all) = self.keys.get_mut(&hash) {
            all.retain(|(_, h)| h.owner != owner || h.number < from);
            if all.is_empty() {
                self.keys.remove(&hash);
            }
        }
    }
    /// Grants what nobody stands against any more.
    fn grant(&mut self) {
        for at in 0..self.waiting.len() {
            if self.waiting[at].answer == Answer::Waiting && self.awaited(at).next().is_none() {
                self.waiting[at].answer = Answer::Granted;
                self.waiting[at].bell.notify_one();
                let r = &self.waiting[at];
                let (held, place) =
                    (Held { owner: r.owner, mode: r.mode, number: r.number }, r.place.clone());
                self.take(held, place);
            }
        }
    }
}

/// The locks of one transaction.
#[derive(Debug, Default)]
pub struct Mine {
    taken: u64,
    places: Vec<(FamilyId, Place)>,
}

impl Mine {
    /// How many.
    pub fn count(&self) -> u64 {
        self.taken
    }
}

/// Tells those that wait, of whom `whose` is true, that they do not get it.
fn refuse(grounds: &mut HashMap<FamilyId, Ground>, whose: impl Fn(&Request) -> bool) {
    let requests = grounds.values_mut().flat_map(|g| &mut g.waiting);
    for request in requests.filter(|r| r.answer == Answer::Waiting && whose(r)) {
        request.answer = Answer::Victim;
        request.bell.notify_one();
    }
}

impl Locks {
    /// None held.
    pub fn new() -> Locks {
        Locks::default()
    }

    /// A number for a transaction, larger than all before.
    pub fn newcomer(&self) -> Owner {
        self.newcomers.fetch_add(1, Relaxed) + 1
    }

    /// Takes a lock, waiting for it no longer than `patience_us`.
    ///
    /// # Errors
    /// `Busy` if it was not to be had in that time; `Conflict` if waiting would have been for ever (a deadlock) and this is
    /// the transaction to give way.
    #[allow(clippy::too_many_arguments)]
    pub fn lock(
        &self,
        clock: &dyn Clock,
        (family, name, order): (FamilyId, &str, KeyOrder),
        (owner, mine): (Owner, &mut Mine),
        place: Place,
        mode: LockMode,
        patience_us: u64,
    ) -> Result<()> {
        let mut grounds = self.grounds.lock();
        let ground = grounds.entry(family).or_insert_with(|| Ground::new(order));
        if ground.on(&place).any(|h| h.owner == owner && covers(h.mode, mode))
            && is_whole(ground, owner, mode, &place)
        {
            return Ok(());
        }
        if ground.in_the_way((owner, mode, &place), &ground.waiting).next().is_none() {
            ground.take(Held { owner, mode, number: mine.taken }, place.clone());
            mine.taken += 1;
            mine.places.push((family, place));
            return Ok(());
        }
        let bell = Arc::new(Condvar::new());
        let (place_of, number) = (place.clone(), mine.taken);
        let (answer, rings) = (Answer::Waiting, Arc::clone(&bell));
        ground.waiting.push(Request { owner, mode, place: place_of, number, answer, bell: rings });
        // Who does not wait closes no circle.
        if patience_us > 0 && closes_circle(&grounds, family) {
            break_circles(&mut grounds);
        }
        let patience_us = if self.closed.load(Relaxed) { 0 } else { patience_us };
        let until = clock.monotonic_us().saturating_add(patience_us);
        loop {
            let answer = answer_of(&grounds, family, &bell);
            let now = clock.monotonic_us();
            if answer != Answer::Waiting || now >= until {
                return settle(grounds, (family, name), mine, &bell, place, answer);
            }
            grounds = bell.wait_timeout_us(grounds, until - now).0;
        }
    }

    /// Whatever an owner waits for, it does not get it.
    pub fn give_way(&self, owner: Owner) {
        refuse(&mut self.grounds.lock(), |r| r.owner == owner);
    }
    /// The database closes: whoever waits is told no, and nobody waits from now on.
    pub fn close(&self) {
        let mut grounds = self.grounds.lock();
        self.closed.store(true, Relaxed);
        refuse(&mut grounds, |_| true);
    }

    /// Lets go of an owner's locks from a number on: all of them from 0.
    pub fn release(&self, owner: Owner, mine: &mut Mine, from: u64) {
        if mine.taken <= from {
            return;
        }
        let mut grounds = self.grounds.lock();
        let mut touched = BTreeSet::new();
        for (family, place) in mine.places.drain(from as usize..) {
            let Some(ground) = grounds.get_mut(&family) else { continue };
            match place {
                Place::Key(key) => ground.release_key(owner, from, &key),
                Place::Stretch(..) => ground.release(owner, from),
            }
            touched.insert(family);
        }
        mine.taken = from;
        for family in touched {
            if let Some(ground) = grounds.get_mut(&family) {
                if !bug::on(Bug::WaiterForgotten) {
                    ground.grant();
                }
                if ground.keys.is_empty() && ground.stretches.is_empty() && ground.waiting.is_empty() {
                    grounds.remove(&family);
                }
            }
        }
    }

    /// The locks of an owner, as they are.
    pub fn of(&self, owner: Owner, mine: &Mine) -> Vec<(FamilyId, Place, LockMode)> {
        let grounds = self.grounds.lock();
        let mode = |(number, (family, place)): (usize, &(FamilyId, Place))| {
            let ground = grounds.get(family)?;
            let held = ground.on(place).find(|h| h.owner == owner && h.number == number as u64)?;
            Some((*family, place.clone(), held.mode))
        };
        mine.places.iter().enumerate().filter_map(mode).collect()
    }
    /// Gives an owner a lock that it held before, whoever else has one.
    pub fn restore(
        &self,
        (family, order): (FamilyId, KeyOrder),
        (owner, mine): (Owner, &mut Mine),
        place: Place,
        mode: LockMode,
    ) {
        let mut grounds = self.grounds.lock();
        let ground = grounds.entry(family).or_insert_with(|| Ground::new(order));
        ground.take(Held { owner, mode, number: mine.taken }, place.clone());
        mine.taken += 1;
        mine.places.push((family, place));
    }

    /// Locks held and requests that wait.
    pub fn count(&self) -> (usize, usize) {
        let grounds = self.grounds.lock();
        let held = |g: &Ground| g.keys.values().map(Vec::len).sum::<usize>() + g.stretches.len();
        (grounds.values().map(held).sum(), grounds.values().map(|g| g.waiting.len()).sum())
    }
}

/// Whether an owner's own locks cover all of a place: of a stretch only the very same one does.
fn is_whole(ground: &Ground, owner: Owner, mode: LockMode, place: &Place) -> bool {
    match place {
        Place::Key(_) => true,
        stretch => {
            ground.stretches.iter().any(|(p, h)| p == stretch && h.owner == owner && covers(h.mode, mode))
        }
    }
}

/// Takes a request from the list and says how it ended.
fn settle(
    mut grounds: MutexGuard<'_, HashMap<FamilyId, Ground>>,
    (family, name): (FamilyId, &str),
    mine: &mut Mine,
    bell: &Arc<Condvar>,
    place: Place,
    answer: Answer,
) -> Result<()> {
    if let Some(ground) = grounds.get_mut(&family) {
        ground.waiting.retain(|r| !Arc::ptr_eq(&r.bell, bell));
        if answer == Answer::Granted {
            mine.taken += 1;
            mine.places.push((family, place));
            return Ok(());
        }
        // Others may have waited behind it.
        ground.grant();
    }
    let key = place.target().key();
    if answer == Answer::Victim {
        return Err(Error::conflict(name, key, "a deadlock, and this transaction gives way: begin it anew"));
    }
    let late = Error::conflict(name, key, "the lock was not to be had in time");
    Err(late.wrap(ErrorKind::Busy, "another transaction holds it"))
}

fn answer_of(grounds: &HashMap<FamilyId, Ground>, family: FamilyId, bell: &Arc<Condvar>) -> Answer {
    let request = grounds.get(&family).and_then(|g| g.waiting.iter().find(|r| Arc::ptr_eq(&r.bell, bell)));
    request.map_or(Answer::Waiting, |r| r.answer)
}

/// Whether the newest request of a family may close a circle: only one who waits for somebody that waits can.
///
/// Every new edge of the graph is its own, or leads to an owner that was granted something and so waits for nobody.
fn closes_circle(grounds: &HashMap<FamilyId, Ground>, family: FamilyId) -> bool {
    let waits = |owner: Owner| {
        let requests = grounds.values().flat_map(|g| &g.waiting);
        requests.filter(|r| r.answer == Answer::Waiting).any(|r| r.owner == owner)
    };
    grounds.get(&family).is_some_and(|g| !g.waiting.is_empty() && g.awaited(g.waiting.len() - 1).any(waits))
}

/// Chooses a victim of every circle of transactions that wait for each other.
fn break_circles(grounds: &mut HashMap<FamilyId, Ground>) {
    while let Some(victim) = find_circle(grounds) {
        for ground in grounds.values_mut() {
            for request in ground.waiting.iter_mut().filter(|r| r.owner == victim) {
                request.answer = Answer::Victim;
                request.bell.notify_one();
            }
        }
    }
}

/// The youngest transaction of a circle, if there is one.
fn find_circle(grounds: &HashMap<FamilyId, Ground>) -> Option<Owner> {
    let mut waits: HashMap<Owner, BTreeSet<Owner>> = HashMap::new();
    for ground in grounds.values() {
        for (at, request) in ground.waiting.iter().enumerate().filter(|(_, r)| r.answer == Answer::Waiting) {
            waits.entry(request.owner).or_default().extend(ground.awaited(at));
        }
    }
    let mut done = BTreeSet::new();
    let mut starts: Vec<Owner> = waits.keys().copied().collect();
    starts.sort_unstable();
    for start in starts {
        let mut path = Vec::new();
        if let Some(victim) = walk(start, &waits, &mut path, &mut done) {
            return Some(victim);
        }
    }
    None
}

fn walk(
    at: Owner,
    waits: &HashMap<Owner, BTreeSet<Owner>>,
    path: &mut Vec<Owner>,
    done: &mut BTreeSet<Owner>,
) -> Option<Owner> {
    if let Some(from) = path.iter().position(|o| *o == at) {
        return path[from..].iter().max().copied();
    }
    if done.contains(&at) {
        return None;
    }
    path.push(at);
    let found = waits.get(&at).into_iter().flatten().find_map(|next| walk(*next, waits, path, done));
    path.pop();
    done.insert(at);
    found
}

#[cfg(test)]
mod tests;
