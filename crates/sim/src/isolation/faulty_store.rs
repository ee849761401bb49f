//! A transactional reference store with deliberate mistakes, to prove that the checker can fail.
//! Without a mistake it is correct.

use super::history::{Key, Version};
use super::store::{
    ScanSpec, SessionHandle, TxnError, TxnSession, TxnSpec, TxnStore, Value, last_version,
};
use perigee::{Isolation, LockMode};
use perigee_env::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The mistake that a [`FaultyStore`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Nothing.
    None,
    /// Uncommitted writes are visible.
    DirtyReads,
    /// Written keys are not validated.
    NoWriteCheck,
    /// Snapshots are slightly old.
    StaleSnapshot,
    /// A commit becomes visible key by key.
    PartlyVisible,
    /// Keys that were read are not validated.
    NoReadCheck,
    /// Ranges that were read are not validated.
    NoRangeCheck,
    /// Locks are not taken.
    NoLocks,
    /// Keys read for update are not validated.
    NoGuardCheck,
    /// Deleted keys are not validated.
    NoDeleteCheck,
    /// Writes that were rolled back are committed.
    RolledBackWritesKept,
    /// Writes that were rolled back are validated.
    FalseConflict,
    /// A range read does not see the transaction's own deletes.
    OwnDeletesUnseen,
    /// A transaction aborted by another thread commits.
    AbortIgnored,
}

/// All mistakes, each with a level at which it must be detected.
pub const MISTAKES: &[(Mistake, Isolation)] = &[
    (Mistake::DirtyReads, Isolation::ReadCommitted),
    (Mistake::NoWriteCheck, Isolation::Snapshot),
    (Mistake::StaleSnapshot, Isolation::Snapshot),
    (Mistake::PartlyVisible, Isolation::Snapshot),
    (Mistake::NoReadCheck, Isolation::RepeatableRead),
    (Mistake::NoRangeCheck, Isolation::Serializable),
    (Mistake::NoLocks, Isolation::ReadCommitted),
    (Mistake::NoGuardCheck, Isolation::Snapshot),
    (Mistake::NoDeleteCheck, Isolation::Snapshot),
    (Mistake::RolledBackWritesKept, Isolation::ReadCommitted),
    (Mistake::FalseConflict, Isolation::Snapshot),
    (Mistake::OwnDeletesUnseen, Isolation::Snapshot),
    (Mistake::AbortIgnored, Isolation::Snapshot),
];

#[derive(Default)]
struct StoreState {
    latest_seq: u64,
    sessions: u64,
    /// Versions of each key with the commit that wrote them; an empty value means deleted.
    versions: BTreeMap<Key, Vec<(u64, Value)>>,
    /// Uncommitted writes (for the mistake that shows them).
    dirty: BTreeMap<Key, Value>,
    /// Holders of the lock of each key, with true for an exclusive lock. There is no waiting: a
    /// transaction that would have to wait is rolled back.
    locks: BTreeMap<Key, Vec<(u64, bool)>>,
}

/// The store with one mistake.
pub struct FaultyStore {
    state: Mutex<StoreState>,
    mistake: Mistake,
    clock: Arc<dyn Clock>,
}

impl FaultyStore {
    /// Creates a store that makes this mistake.
    pub fn new(mistake: Mistake, clock: Arc<dyn Clock>) -> FaultyStore {
        FaultyStore { state: Mutex::default(), mistake, clock }
    }
    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreState {
    fn read(&self, key: Key, at: u64) -> Value {
        let versions = self.versions.get(&key).map_or(&[][..], |v| v);
        versions
            .iter()
            .rev()
            .find(|(commit, _)| *commit <= at)
            .map(|(_, v)| v.clone())
            .unwrap_or_default()
    }
    fn changed_since(&self, key: Key, since: u64) -> bool {
        self.versions.get(&key).and_then(|v| v.last()).is_some_and(|(commit, _)| *commit > since)
    }
}

struct FaultySession<'a> {
    store: &'a FaultyStore,
    kind: TxnSpec,
    owner: u64,
    snapshot_seq: u64,
    aborted: Arc<AtomicBool>,
    writes: BTreeMap<Key, Value>,
    /// Writes as of each savepoint.
    saved: Vec<BTreeMap<Key, Value>>,
    rolled_back: BTreeSet<Key>,
    reads: BTreeSet<Key>,
    guarded: BTreeSet<Key>,
    ranges: Vec<(Key, Key)>,
}

impl FaultySession<'_> {
    fn read_visible(&self, state: &StoreState, key: Key) -> Value {
        if let Some(own) = self.writes.get(&key) {
            return own.clone();
        }
        if let Some(dirty) = state.dirty.get(&key) {
            return dirty.clone();
        }
        state.read(
            key,
            if self.kind.level <= Isolation::ReadCommitted {
                state.latest_seq
            } else {
                self.snapshot_seq
            },
        )
    }
    fn has_conflict(&self, state: &StoreState) -> bool {
        let checked =
            |level: Isolation, mistake| self.kind.level >= level && self.store.mistake != mistake;
        let changed = |key: &Key| state.changed_since(*key, self.snapshot_seq);
        let one_moment = self.kind.level >= Isolation::RepeatableRead;
        let unchecked =
            |value: &Value| self.store.mistake == Mistake::NoDeleteCheck && value.is_empty();
        let wrote = self.writes.iter().any(|(key, value)| changed(key) && !unchecked(value));
        let reads = self.kind.level != Isolation::Snapshot
            && checked(Isolation::RepeatableRead, Mistake::NoReadCheck);
        let taken_back = one_moment && self.store.mistake == Mistake::FalseConflict;
        (checked(Isolation::RepeatableRead, Mistake::NoWriteCheck) && wrote)
            || (reads && self.reads.iter().any(changed))
            || (checked(Isolation::RepeatableRead, Mistake::NoGuardCheck)
                && self.guarded.iter().any(changed))
            || (taken_back && self.rolled_back.iter().any(changed))
            || (checked(Isolation::Serializable, Mistake::NoRangeCheck)
                && self.ranges.iter().any(|(from, to)| (*from..*to).any(|key| changed(&key))))
    }
    fn check_not_aborted(&self) -> Result<(), TxnError> {
        let ended = self.aborted.load(SeqCst) && self.store.mistake != Mistake::AbortIgnored;
        if ended { Err(TxnError::Aborted) } else { Ok(()) }
    }
    /// Takes locks, or fails without waiting.
    fn take_locks(
        &self,
        state: &mut StoreState,
        keys: impl Iterator<Item = Key>,
        alone: bool,
    ) -> Result<(), TxnError> {
        for key in keys.filter(|_| self.store.mistake != Mistake::NoLocks) {
            let held = state.locks.entry(key).or_default();
            if held.iter().any(|(owner, a)| *owner != self.owner && (*a || alone)) {
                return Err(TxnError::LockTimeout);
            }
            held.push((self.owner, alone));
        }
        Ok(())
    }
    fn write(&mut self, key: Key, value: Value) -> Result<(), TxnError> {
        self.check_not_aborted()?;
        let mut state = self.store.state();
        if self.kind.locks {
            self.take_locks(&mut state, [key].into_iter(), true)?;
        }
        if self.store.mistake == Mistake::DirtyReads {
            state.dirty.insert(key, value.clone());
        }
        drop(state);
        self.writes.insert(key, value);
        Ok(())
    }
    fn release_locks(&mut self) {
        let mut state = self.store.state();
        self.writes.keys().for_each(|key| drop(state.dirty.remove(key)));
        state.locks.values_mut().for_each(|held| held.retain(|(owner, _)| *owner != self.owner));
    }
}

impl Drop for FaultySession<'_> {
    fn drop(&mut self) {
        self.release_locks();
    }
}

struct FaultyHandle(Arc<AtomicBool>);

impl SessionHandle for FaultyHandle {
    fn abort(&self) -> bool {
        !self.0.swap(true, SeqCst)
    }
    fn cancel_wait(&self) -> bool {
        false
    }
}

impl TxnSession for FaultySession<'_> {
    fn get(&mut self, key: Key, lock: Option<LockMode>) -> Result<Value, TxnError> {
        self.check_not_aborted()?;
        let mut state = self.store.state();
        if let Some(mode) = lock {
            self.take_locks(&mut state, [key].into_iter(), mode == LockMode::Exclusive)?;
        }
        let value = self.read_visible(&state, key);
        if lock.is_some() && self.kind.level != Isolation::Serializable {
            self.guarded.insert(key);
        }
        if !self.writes.contains_key(&key) {
            self.reads.insert(key);
        }
        Ok(value)
    }
    fn scan(
        &mut self,
        scan: ScanSpec,
        lock: Option<LockMode>,
    ) -> Result<Vec<(Key, Value)>, TxnError> {
        self.check_not_aborted()?;
        self.ranges.push((scan.from, scan.to));
        let mut state = self.store.state();
        if let Some(mode) = lock {
            self.take_locks(&mut state, scan.from..scan.to, mode == LockMode::Exclusive)?;
        }
        let blind = |key: &Key| {
            self.store.mistake == Mistake::OwnDeletesUnseen
                && self.writes.get(key).is_some_and(Vec::is_empty)
        };
        let see = |key: Key| {
            if blind(&key) {
                state.read(key, self.snapshot_seq)
            } else {
                self.read_visible(&state, key)
            }
        };
        let mut all: Vec<_> = (scan.from..scan.to).map(|key| (key, see(key))).collect();
        all.retain(|(_, value)| !value.is_empty());
        if scan.backward {
            all.reverse();
        }
        all.truncate(scan.limit);
        Ok(all)
    }
    fn put(&mut self, key: Key, value: &[Version]) -> Result<(), TxnError> {
        self.write(key, value.to_vec())
    }
    fn delete_range(&mut self, from: Key, to: Key) -> Result<(), TxnError> {
        (from..to).try_for_each(|key| self.write(key, Value::new()))
    }
    fn unlock(&mut self, _: Key) -> Result<bool, TxnError> {
        // Its locks are not counted.
        self.check_not_aborted().map(|()| false)
    }
    fn savepoint(&mut self, name: usize) -> Result<(), TxnError> {
        self.saved.truncate(name);
        self.saved.push(self.writes.clone());
        self.check_not_aborted()
    }
    fn rollback_to_savepoint(&mut self, name: usize) -> Result<(), TxnError> {
        let before = self.saved[name].clone();
        self.rolled_back.extend(self.writes.keys().filter(|key| !before.contains_key(key)));
        if self.store.mistake != Mistake::RolledBackWritesKept {
            let mut state = self.store.state();
            self.writes.keys().for_each(|key| drop(state.dirty.remove(key)));
            drop(state);
            self.writes = before;
        }
        self.check_not_aborted()
    }
    fn commit(&mut self) -> Result<u64, TxnError> {
        self.check_not_aborted()?;
        let mut state = self.store.state();
        self.writes.keys().for_each(|key| drop(state.dirty.remove(key)));
        // From here on the transaction can no longer be aborted.
        let ended = self.aborted.swap(true, SeqCst);
        if ended && self.store.mistake != Mistake::AbortIgnored {
            return Err(TxnError::Aborted);
        }
        if self.writes.is_empty() {
            return Ok(state.latest_seq);
        }
        if self.has_conflict(&state) {
            return Err(TxnError::Conflict);
        }
        let commit = state.latest_seq + 1;
        state.latest_seq = commit;
        let slowly = self.store.mistake == Mistake::PartlyVisible;
        for (key, value) in &self.writes {
            state.versions.entry(*key).or_default().push((commit, value.clone()));
            if slowly {
                drop(state);
                self.store.clock.sleep_us(3);
                state = self.store.state();
            }
        }
        drop(state);
        self.release_locks();
        Ok(commit)
    }
    fn reset(&mut self) -> Result<(), TxnError> {
        self.release_locks();
        (self.writes, self.saved, self.rolled_back) = Default::default();
        (self.reads, self.guarded, self.ranges) = Default::default();
        self.aborted = Arc::default();
        self.snapshot_seq = self.store.new_snapshot_seq();
        Ok(())
    }
    fn snapshot(&self) -> Option<u64> {
        (self.kind.level >= Isolation::RepeatableRead).then_some(self.snapshot_seq)
    }
    fn handle(&self) -> Arc<dyn SessionHandle> {
        Arc::new(FaultyHandle(Arc::clone(&self.aborted)))
    }
}

impl FaultyStore {
    fn new_snapshot_seq(&self) -> u64 {
        let now = self.state().latest_seq;
        if self.mistake == Mistake::StaleSnapshot { now.saturating_sub(3) } else { now }
    }
}

impl TxnStore for FaultyStore {
    fn begin(&self, kind: TxnSpec) -> Result<Box<dyn TxnSession + '_>, TxnError> {
        let mut state = self.state();
        state.sessions += 1;
        let owner = state.sessions;
        drop(state);
        Ok(Box::new(FaultySession {
            store: self,
            kind,
            owner,
            snapshot_seq: self.new_snapshot_seq(),
            aborted: Arc::default(),
            writes: BTreeMap::new(),
            saved: Vec::new(),
            rolled_back: BTreeSet::new(),
            reads: BTreeSet::new(),
            guarded: BTreeSet::new(),
            ranges: Vec::new(),
        }))
    }
    fn write_batch(&self, all: &[(Key, Value)]) -> Result<u64, TxnError> {
        let mut state = self.state();
        state.latest_seq += 1;
        let commit = state.latest_seq;
        for (key, value) in all {
            state.versions.entry(*key).or_default().push((commit, value.clone()));
        }
        Ok(commit)
    }
    fn run_maintenance(&self, _: u64) -> Result<(), TxnError> {
        Ok(())
    }
    fn latest_seq(&self) -> u64 {
        self.state().latest_seq
    }
    fn hook_puts(&self) -> BTreeMap<Key, Vec<Version>> {
        let state = self.state();
        let puts = |all: &Vec<(u64, Value)>| {
            all.iter().map(|(_, v)| last_version(v)).filter(|v| *v != 0).collect()
        };
        let all = state.versions.iter().map(|(key, all)| (*key, puts(all)));
        all.filter(|(_, puts): &(Key, Vec<Version>)| !puts.is_empty()).collect()
    }
    fn final_versions(&self) -> Result<BTreeMap<Key, Version>, TxnError> {
        let state = self.state();
        let last =
            |(key, all): (&Key, &Vec<(u64, Value)>)| Some((*key, last_version(&all.last()?.1)));
        Ok(state.versions.iter().filter_map(last).filter(|(_, v)| *v != 0).collect())
    }
}
