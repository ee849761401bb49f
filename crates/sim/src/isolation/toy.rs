//! A toy with transactions and deliberate mistakes, to prove that the checker can fail. Without a mistake it is what it says.

use super::history::{Key, Version};
use super::store::{Handle, Kind, Scan, Session, Stop, Store, Value, version};
use perigee::{Isolation, LockMode};
use perigee_env::clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the toy does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Nothing.
    None,
    /// Writes are seen before they are committed.
    DirtyReads,
    /// Writes are not checked.
    NoWriteCheck,
    /// A snapshot is a little old.
    StaleSnapshot,
    /// A commit becomes visible key by key.
    PartlyVisible,
    /// Keys that were read are not checked.
    NoReadCheck,
    /// Ranges that were read are not checked.
    NoRangeCheck,
    /// Locks are not taken.
    NoLocks,
    /// Keys read for update are not checked.
    NoGuardCheck,
    /// What was erased is not checked.
    NoEraseCheck,
    /// What was taken back is written all the same.
    SavepointLeaks,
    /// What was taken back is checked all the same.
    FalseConflict,
    /// A range read does not see own deletes.
    OwnDeletesUnseen,
    /// Who was ended from outside commits.
    EndIgnored,
}

/// All mistakes, each with a level at which it is one.
pub const MISTAKES: &[(Mistake, Isolation)] = &[
    (Mistake::DirtyReads, Isolation::ReadCommitted),
    (Mistake::NoWriteCheck, Isolation::Snapshot),
    (Mistake::StaleSnapshot, Isolation::Snapshot),
    (Mistake::PartlyVisible, Isolation::Snapshot),
    (Mistake::NoReadCheck, Isolation::RepeatableRead),
    (Mistake::NoRangeCheck, Isolation::Serializable),
    (Mistake::NoLocks, Isolation::ReadCommitted),
    (Mistake::NoGuardCheck, Isolation::Snapshot),
    (Mistake::NoEraseCheck, Isolation::Snapshot),
    (Mistake::SavepointLeaks, Isolation::ReadCommitted),
    (Mistake::FalseConflict, Isolation::Snapshot),
    (Mistake::OwnDeletesUnseen, Isolation::Snapshot),
    (Mistake::EndIgnored, Isolation::Snapshot),
];

#[derive(Default)]
struct State {
    now: u64,
    sessions: u64,
    /// Of each key the versions, with the commit that made them; empty: it was erased.
    versions: BTreeMap<Key, Vec<(u64, Value)>>,
    /// What is not committed yet (of the toy that shows it).
    dirty: BTreeMap<Key, Value>,
    /// Of each key who holds it, and whether alone. Nobody waits: who would have to gives way.
    locks: BTreeMap<Key, Vec<(u64, bool)>>,
}

/// The toy.
pub struct Toy {
    state: Mutex<State>,
    mistake: Mistake,
    clock: Arc<dyn Clock>,
}

impl Toy {
    /// One that makes a mistake.
    pub fn new(mistake: Mistake, clock: Arc<dyn Clock>) -> Toy {
        Toy { state: Mutex::default(), mistake, clock }
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn read(&self, key: Key, at: u64) -> Value {
        let versions = self.versions.get(&key).map_or(&[][..], |v| v);
        versions.iter().rev().find(|(commit, _)| *commit <= at).map(|(_, v)| v.clone()).unwrap_or_default()
    }
    fn changed(&self, key: Key, since: u64) -> bool {
        self.versions.get(&key).and_then(|v| v.last()).is_some_and(|(commit, _)| *commit > since)
    }
}

struct ToySession<'a> {
    toy: &'a Toy,
    kind: Kind,
    owner: u64,
    at: u64,
    ended: Arc<AtomicBool>,
    writes: BTreeMap<Key, Value>,
    /// Writes before savepoints.
    saved: Vec<BTreeMap<Key, Value>>,
    taken_back: BTreeSet<Key>,
    reads: BTreeSet<Key>,
    guarded: BTreeSet<Key>,
    ranges: Vec<(Key, Key)>,
}

impl ToySession<'_> {
    fn see(&self, state: &State, key: Key) -> Value {
        if let Some(own) = self.writes.get(&key) {
            return own.clone();
        }
        if let Some(dirty) = state.dirty.get(&key) {
            return dirty.clone();
        }
        state.read(key, if self.kind.level <= Isolation::ReadCommitted { state.now } else { self.at })
    }
    fn conflicts(&self, state: &State) -> bool {
        let checked = |level: Isolation, mistake| self.kind.level >= level && self.toy.mistake != mistake;
        let changed = |key: &Key| state.changed(*key, self.at);
        let one_moment = self.kind.level >= Isolation::RepeatableRead;
        let unchecked = |value: &Value| self.toy.mistake == Mistake::NoEraseCheck && value.is_empty();
        let wrote = self.writes.iter().any(|(key, value)| changed(key) && !unchecked(value));
        let reads = self.kind.level != Isolation::Snapshot
            && checked(Isolation::RepeatableRead, Mistake::NoReadCheck);
        let taken_back = one_moment && self.toy.mistake == Mistake::FalseConflict;
        (checked(Isolation::RepeatableRead, Mistake::NoWriteCheck) && wrote)
            || (reads && self.reads.iter().any(changed))
            || (checked(Isolation::RepeatableRead, Mistake::NoGuardCheck) && self.guarded.iter().any(changed))
            || (taken_back && self.taken_back.iter().any(changed))
            || (checked(Isolation::Serializable, Mistake::NoRangeCheck)
                && self.ranges.iter().any(|(from, to)| (*from..*to).any(|key| changed(&key))))
    }
    fn check(&self) -> Result<(), Stop> {
        let ended = self.ended.load(SeqCst) && self.toy.mistake != Mistake::EndIgnored;
        if ended { Err(Stop::Ended) } else { Ok(()) }
    }
    /// Takes locks, or gives way.
    fn lock(&self, state: &mut State, keys: impl Iterator<Item = Key>, alone: bool) -> Result<(), Stop> {
        for key in keys.filter(|_| self.toy.mistake != Mistake::NoLocks) {
            let held = state.locks.entry(key).or_default();
            if held.iter().any(|(owner, a)| *owner != self.owner && (*a || alone)) {
                return Err(Stop::Locked);
            }
            held.push((self.owner, alone));
        }
        Ok(())
    }
    fn write(&mut self, key: Key, value: Value) -> Result<(), Stop> {
        self.check()?;
        let mut state = self.toy.state();
        if self.kind.locks {
            self.lock(&mut state, [key].into_iter(), true)?;
        }
        if self.toy.mistake == Mistake::DirtyReads {
            state.dirty.insert(key, value.clone());
        }
        drop(state);
        self.writes.insert(key, value);
        Ok(())
    }
    fn let_go(&mut self) {
        let mut state = self.toy.state();
        self.writes.keys().for_each(|key| drop(state.dirty.remove(key)));
        state.locks.values_mut().for_each(|held| held.retain(|(owner, _)| *owner != self.owner));
    }
}

impl Drop for ToySession<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Session for ToySession<'_> {
    fn get(&mut self, key: Key, lock: Option<LockMode>) -> Result<Value, Stop> {
        self.check()?;
        let mut state = self.toy.state();
        if let Some(mode) = lock {
            self.lock(&mut state, [key].into_iter(), mode == LockMode::Exclusive)?;
        }
        let value = self.see(&state, key);
        if lock.is_some() && self.kind.level != Isolation::Serializable {
            self.guarded.insert(key);
        }
        if !self.writes.contains_key(&key) {
            self.reads.insert(key);
        }
        Ok(value)
    }
    fn scan(&mut self, scan: Scan, lock: Option<LockMode>) -> Result<Vec<(Key, Value)>, Stop> {
        self.check()?;
        self.ranges.push((scan.from, scan.to));
        let mut state = self.toy.state();
        if let Some(mode) = lock {
            self.lock(&mut state, scan.from..scan.to, mode == LockMode::Exclusive)?;
        }
        let blind = |key: &Key| {
            self.toy.mistake == Mistake::OwnDeletesUnseen && self.writes.get(key).is_some_and(Vec::is_empty)
        };
        let see = |key: Key| if blind(&key) { state.read(key, self.at) } else { self.see(&state, key) };
        let mut all: Vec<_> = (scan.from..scan.to).map(|key| (key, see(key))).collect();
        all.retain(|(_, value)| !value.is_empty());
        if scan.backward {
            all.reverse();
        }
        all.truncate(scan.limit);
        Ok(all)
    }
    fn put(&mut self, key: Key, value: &[Version]) -> Result<(), Stop> {
        self.write(key, value.to_vec())
    }
    fn erase(&mut self, from: Key, to: Key) -> Result<(), Stop> {
        (from..to).try_for_each(|key| self.write(key, Value::new()))
    }
    fn savepoint(&mut self, name: usize) -> Result<(), Stop> {
        self.saved.truncate(name);
        self.saved.push(self.writes.clone());
        self.check()
    }
    fn roll_back(&mut self, name: usize) -> Result<(), Stop> {
        let before = self.saved[name].clone();
        self.taken_back.extend(self.writes.keys().filter(|key| !before.contains_key(key)));
        if self.toy.mistake != Mistake::SavepointLeaks {
            let mut state = self.toy.state();
            self.writes.keys().for_each(|key| drop(state.dirty.remove(key)));
            drop(state);
            self.writes = before;
        }
        self.check()
    }
    fn commit(&mut self) -> Result<u64, Stop> {
        self.check()?;
        let mut state = self.toy.state();
        self.writes.keys().for_each(|key| drop(state.dirty.remove(key)));
        // From here on it is too late to end it.
        let ended = self.ended.swap(true, SeqCst);
        if ended && self.toy.mistake != Mistake::EndIgnored {
            return Err(Stop::Ended);
        }
        if self.writes.is_empty() {
            return Ok(state.now);
        }
        if self.conflicts(&state) {
            return Err(Stop::Conflict);
        }
        let commit = state.now + 1;
        state.now = commit;
        let slowly = self.toy.mistake == Mistake::PartlyVisible;
        for (key, value) in &self.writes {
            state.versions.entry(*key).or_default().push((commit, value.clone()));
            if slowly {
                drop(state);
                self.toy.clock.sleep_us(3);
                state = self.toy.state();
            }
        }
        drop(state);
        self.let_go();
        Ok(commit)
    }
    fn reset(&mut self) -> Result<(), Stop> {
        self.let_go();
        (self.writes, self.saved, self.taken_back) = Default::default();
        (self.reads, self.guarded, self.ranges) = Default::default();
        self.ended = Arc::default();
        self.at = self.toy.moment();
        Ok(())
    }
    fn snapshot(&self) -> Option<u64> {
        (self.kind.level >= Isolation::RepeatableRead).then_some(self.at)
    }
    fn handle(&self) -> Handle {
        let ended = Arc::clone(&self.ended);
        Box::new(move || !ended.swap(true, SeqCst))
    }
}

impl Toy {
    fn moment(&self) -> u64 {
        let now = self.state().now;
        if self.mistake == Mistake::StaleSnapshot { now.saturating_sub(3) } else { now }
    }
}

impl Store for Toy {
    fn begin(&self, kind: Kind) -> Result<Box<dyn Session + '_>, Stop> {
        let mut state = self.state();
        state.sessions += 1;
        let owner = state.sessions;
        drop(state);
        Ok(Box::new(ToySession {
            toy: self,
            kind,
            owner,
            at: self.moment(),
            ended: Arc::default(),
            writes: BTreeMap::new(),
            saved: Vec::new(),
            taken_back: BTreeSet::new(),
            reads: BTreeSet::new(),
            guarded: BTreeSet::new(),
            ranges: Vec::new(),
        }))
    }
    fn write(&self, all: &[(Key, Value)]) -> Result<u64, Stop> {
        let mut state = self.state();
        state.now += 1;
        let commit = state.now;
        for (key, value) in all {
            state.versions.entry(*key).or_default().push((commit, value.clone()));
        }
        Ok(commit)
    }
    fn maintain(&self, _: u64) -> Result<(), Stop> {
        Ok(())
    }
    fn present(&self) -> u64 {
        self.state().now
    }
    fn heard(&self) -> BTreeMap<Key, Vec<Version>> {
        let state = self.state();
        let puts =
            |all: &Vec<(u64, Value)>| all.iter().map(|(_, v)| version(v)).filter(|v| *v != 0).collect();
        let all = state.versions.iter().map(|(key, all)| (*key, puts(all)));
        all.filter(|(_, puts): &(Key, Vec<Version>)| !puts.is_empty()).collect()
    }
    fn end(&self) -> Result<BTreeMap<Key, Version>, Stop> {
        let state = self.state();
        let last = |(key, all): (&Key, &Vec<(u64, Value)>)| Some((*key, version(&all.last()?.1)));
        Ok(state.versions.iter().filter_map(last).filter(|(_, v)| *v != 0).collect())
    }
}
