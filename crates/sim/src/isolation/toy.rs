//! A toy with transactions and deliberate mistakes, to prove that the checker can fail. Without a mistake it is what it says.

use super::history::{Key, Version};
use super::store::{Session, Store, Value, version};
use perigee::Isolation;
use perigee_env::clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
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
}

/// All mistakes, each with a level at which it is one.
pub const MISTAKES: &[(Mistake, Isolation)] = &[
    (Mistake::DirtyReads, Isolation::ReadCommitted),
    (Mistake::NoWriteCheck, Isolation::Snapshot),
    (Mistake::StaleSnapshot, Isolation::Snapshot),
    (Mistake::PartlyVisible, Isolation::Snapshot),
    (Mistake::NoReadCheck, Isolation::RepeatableRead),
    (Mistake::NoRangeCheck, Isolation::Serializable),
];

#[derive(Default)]
struct State {
    now: u64,
    /// Of each key the versions, with the commit that made them.
    versions: BTreeMap<Key, Vec<(u64, Value)>>,
    /// What is not committed yet (of the toy that shows it).
    dirty: BTreeMap<Key, Value>,
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
    level: Isolation,
    at: u64,
    writes: BTreeMap<Key, Value>,
    reads: BTreeSet<Key>,
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
        state.read(key, if self.level <= Isolation::ReadCommitted { state.now } else { self.at })
    }
    fn conflicts(&self, state: &State) -> bool {
        let checked = |level: Isolation, mistake| self.level >= level && self.toy.mistake != mistake;
        let changed = |key: &Key| state.changed(*key, self.at);
        let reads =
            self.level != Isolation::Snapshot && checked(Isolation::RepeatableRead, Mistake::NoReadCheck);
        (checked(Isolation::RepeatableRead, Mistake::NoWriteCheck) && self.writes.keys().any(changed))
            || (reads && self.reads.iter().any(changed))
            || (checked(Isolation::Serializable, Mistake::NoRangeCheck)
                && self.ranges.iter().any(|(from, to)| (*from..*to).any(|key| changed(&key))))
    }
}

impl Session for ToySession<'_> {
    fn get(&mut self, key: Key) -> Result<Option<Value>, String> {
        let value = self.see(&self.toy.state(), key);
        if !self.writes.contains_key(&key) {
            self.reads.insert(key);
        }
        Ok(Some(value))
    }
    fn scan(&mut self, from: Key, to: Key, _: bool) -> Result<Option<Vec<(Key, Value)>>, String> {
        self.ranges.push((from, to));
        let state = self.toy.state();
        let all = (from..to).map(|key| (key, self.see(&state, key)));
        Ok(Some(all.filter(|(_, value)| !value.is_empty()).collect()))
    }
    fn put(&mut self, key: Key, value: &[Version]) -> Result<bool, String> {
        if self.toy.mistake == Mistake::DirtyReads {
            self.toy.state().dirty.insert(key, value.to_vec());
        }
        self.writes.insert(key, value.to_vec());
        Ok(true)
    }
    fn commit(self: Box<Self>) -> Result<bool, String> {
        let mut state = self.toy.state();
        self.writes.keys().for_each(|key| drop(state.dirty.remove(key)));
        if self.writes.is_empty() {
            return Ok(true);
        }
        if self.conflicts(&state) {
            return Ok(false);
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
        Ok(true)
    }
}

impl Store for Toy {
    fn begin(&self, level: Isolation, _: bool) -> Result<Box<dyn Session + '_>, String> {
        let now = self.state().now;
        let at = if self.mistake == Mistake::StaleSnapshot { now.saturating_sub(3) } else { now };
        let (writes, reads, ranges) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        Ok(Box::new(ToySession { toy: self, level, at, writes, reads, ranges }))
    }
    fn write(&self, all: &[(Key, Value)]) -> Result<(), String> {
        let mut state = self.state();
        state.now += 1;
        let commit = state.now;
        for (key, value) in all {
            state.versions.entry(*key).or_default().push((commit, value.clone()));
        }
        Ok(())
    }
    fn maintain(&self, _: u64) -> Result<(), String> {
        Ok(())
    }
    fn order(&self) -> BTreeMap<Key, Vec<Version>> {
        let state = self.state();
        state
            .versions
            .iter()
            .map(|(key, all)| (*key, all.iter().map(|(_, v)| version(v)).collect()))
            .collect()
    }
    fn end(&self) -> Result<BTreeMap<Key, Version>, String> {
        Ok(self.order().into_iter().filter_map(|(key, all)| Some((key, *all.last()?))).collect())
    }
}
