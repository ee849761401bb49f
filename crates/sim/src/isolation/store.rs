//! Interface of a transactional store under test, and its implementation for Perigee.

use super::history::{KEYS_PER_GROUP, Key, RANGE_KEYS_START, Version};
use crate::rng::mix;
use perigee::changes::CommitOperation;
use perigee::{
    Cursor, Db, ErrorKind, Family, FamilyOptions, Isolation, Iter, LockMode, Slice, Txn, TxnHandle,
    TxnOptions, WriteBatch,
};
use perigee_env::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Value of a key: the versions appended to a list, or one version. The last one identifies the
/// write.
pub type Value = Vec<Version>;

/// Returns the version that identifies a value's write; 0 if the key is absent.
pub fn last_version(value: &[Version]) -> Version {
    value.last().copied().unwrap_or(0)
}

/// Why a call of a transaction failed. The transaction has ended, unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnError {
    /// Another transaction committed a conflicting change first.
    Conflict,
    /// The wait for a lock timed out or would have been a deadlock.
    LockTimeout,
    /// The transaction was aborted by another thread.
    Aborted,
    /// Another thread ended the wait for a lock. The call had no effect, and the transaction goes
    /// on.
    Interrupted,
    /// The store itself failed.
    StoreFailure(String),
}

/// Options of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct TxnSpec {
    /// Isolation level.
    pub level: Isolation,
    /// True if it only reads.
    pub read_only: bool,
    /// True if it locks what it writes.
    pub locks: bool,
}

/// Options of a scan.
#[derive(Clone, Copy, Debug)]
pub struct ScanSpec {
    /// First key, inclusive.
    pub from: Key,
    /// Last key, exclusive.
    pub to: Key,
    /// True to scan by common prefix: the keys are one group.
    pub prefix: bool,
    /// True to scan backwards.
    pub backward: bool,
    /// Maximum number of keys; keys beyond it count as not read.
    pub limit: usize,
}

/// Acts on a transaction from another thread.
pub trait SessionHandle: Send + Sync {
    /// Aborts the transaction. Returns true if it was still active.
    fn abort(&self) -> bool;
    /// Ends its wait for a lock. Returns true if it waited.
    fn cancel_wait(&self) -> bool;
}

/// A transaction.
pub trait TxnSession {
    /// Returns the value of a key, empty if absent. With a lock, reads for update.
    fn get(&mut self, key: Key, lock: Option<LockMode>) -> Result<Value, TxnError>;
    /// Returns the keys of a range, in any order. With a lock, the range is locked first.
    fn scan(
        &mut self,
        scan: ScanSpec,
        lock: Option<LockMode>,
    ) -> Result<Vec<(Key, Value)>, TxnError>;
    /// Writes a key.
    fn put(&mut self, key: Key, value: &[Version]) -> Result<(), TxnError>;
    /// Deletes the keys from the first to before the second.
    fn delete_range(&mut self, from: Key, to: Key) -> Result<(), TxnError>;
    /// Undoes the lock of a locked read of a key. Returns true if the key is no longer locked.
    fn unlock(&mut self, key: Key) -> Result<bool, TxnError>;
    /// Sets a savepoint.
    fn savepoint(&mut self, name: usize) -> Result<(), TxnError>;
    /// Rolls back to a savepoint.
    fn rollback_to_savepoint(&mut self, name: usize) -> Result<(), TxnError>;
    /// Commits and returns the sequence number.
    fn commit(&mut self) -> Result<u64, TxnError>;
    /// Restarts the transaction.
    fn reset(&mut self) -> Result<(), TxnError>;
    /// Returns the sequence number of its snapshot, if it reads from one.
    fn snapshot(&self) -> Option<u64>;
    /// Returns a handle for other threads.
    fn handle(&self) -> Arc<dyn SessionHandle>;
}

/// A store with transactions.
pub trait TxnStore: Send + Sync {
    /// Begins a transaction.
    fn begin(&self, kind: TxnSpec) -> Result<Box<dyn TxnSession + '_>, TxnError>;
    /// Writes atomically without a transaction. Returns the sequence number.
    fn write_batch(&self, all: &[(Key, Value)]) -> Result<u64, TxnError>;
    /// Runs maintenance that changes nothing for readers.
    fn run_maintenance(&self, what: u64) -> Result<(), TxnError>;
    /// Returns the sequence number of the last commit.
    fn latest_seq(&self) -> u64;
    /// Returns the versions put under each key, in commit order, as reported to hooks.
    fn hook_puts(&self) -> BTreeMap<Key, Vec<Version>>;
    /// Returns the current contents.
    fn final_versions(&self) -> Result<BTreeMap<Key, Version>, TxnError>;
}

/// Neighbouring keys are in different column families, so that transactions span both. From
/// [`RANGE_KEYS_START`] on they are in one, so that a range of them is one scan.
const FAMILIES: usize = 2;
/// Lock timeout. Reached only if a lock was never granted.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3600);

/// Perigee as a [`TxnStore`].
pub struct PerigeeStore {
    db: Db,
    families: Vec<Family>,
    hook_puts: Arc<Mutex<Vec<(u64, Key, Version)>>>,
    two_phase: Option<TwoPhaseMode>,
    /// Number of transactions begun. Every fourth below serializable spills at once and is
    /// committed as a load.
    begun_txns: AtomicU64,
}

/// Makes some transactions use two-phase commit; most of them commit in the end.
struct TwoPhaseMode {
    clock: Arc<dyn Clock>,
    seed: u64,
    txn_counter: AtomicU64,
}

impl TwoPhaseMode {
    /// Returns a number and a random value if the next transaction uses two-phase commit.
    fn next_two_phase(&self) -> Option<(u64, u64)> {
        let turn = self.txn_counter.fetch_add(1, Relaxed);
        let noise = mix(self.seed, turn);
        (noise % 5 < 2).then_some((turn, noise / 5))
    }
}

fn encode(value: &[Version]) -> Vec<u8> {
    value.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn decode(value: &[u8]) -> Value {
    value
        .chunks_exact(4)
        .map(|c| Version::from_le_bytes(c.try_into().expect("four bytes")))
        .collect()
}

fn encode_key(key: Key) -> [u8; 2] {
    [(key / KEYS_PER_GROUP) as u8, (key % KEYS_PER_GROUP) as u8]
}

/// Encodes a range bound. At group boundaries it is the prefix, so that a range and the group after
/// it do not overlap.
fn encode_bound(key: Key) -> Vec<u8> {
    let bytes = encode_key(key);
    if key % KEYS_PER_GROUP == 0 { bytes[..1].to_vec() } else { bytes.to_vec() }
}

fn decode_key(key: &[u8]) -> Key {
    Key::from(key[0]) * KEYS_PER_GROUP + Key::from(key[1])
}

fn to_txn_error(e: perigee::Error) -> TxnError {
    match e.kind() {
        // A deadlock is a conflict that the commit order does not explain.
        ErrorKind::Conflict if e.message().contains("deadlock") => TxnError::LockTimeout,
        ErrorKind::Conflict => TxnError::Conflict,
        ErrorKind::Aborted => TxnError::Aborted,
        ErrorKind::Interrupted => TxnError::Interrupted,
        _ => TxnError::StoreFailure(e.to_string()),
    }
}

/// Returns the last put of each key that a commit wrote to a column family; a delete cancels
/// earlier puts of the same commit.
fn last_puts<'a>(
    operations: impl Iterator<Item = CommitOperation<'a>>,
) -> BTreeMap<Key, (u64, Version)> {
    let mut last = BTreeMap::new();
    let cut = |bound: Bound<&[u8]>| match bound {
        // Half a key is the start of its group.
        Bound::Included(k) | Bound::Excluded(k) => decode_key(&[k, &[0]].concat()),
        Bound::Unbounded => 0,
    };
    for operation in operations {
        match operation {
            CommitOperation::Put { sequence, key, value, .. } => {
                last.insert(decode_key(key), (sequence, last_version(&decode(value))));
            }
            CommitOperation::Delete { key, .. } => drop(last.remove(&decode_key(key))),
            CommitOperation::DeleteRange { start, end, .. } => {
                last.retain(|key, _| *key < cut(start) || *key >= cut(end));
            }
            _ => {}
        }
    }
    last
}

impl PerigeeStore {
    /// Creates the store in an open database, with its column families.
    pub fn new(db: Db, options: &FamilyOptions) -> Result<PerigeeStore, String> {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let mut families = Vec::new();
        for i in 0..FAMILIES {
            let family =
                db.create_family(&format!("f{i}"), options.clone()).map_err(|e| e.to_string())?;
            let reported = Arc::clone(&reported);
            family.on_commit(move |commit| {
                let last = last_puts(commit.operations());
                let mut reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
                reported.extend(last.into_iter().map(|(key, (sequence, v))| (sequence, key, v)));
            });
            families.push(family);
        }
        Ok(PerigeeStore {
            db,
            families,
            hook_puts: reported,
            two_phase: None,
            begun_txns: AtomicU64::new(0),
        })
    }
    /// Uses two-phase commit for some transactions.
    #[must_use]
    pub fn with_two_phase_commit(mut self, clock: Arc<dyn Clock>, seed: u64) -> PerigeeStore {
        self.two_phase = Some(TwoPhaseMode { clock, seed, txn_counter: AtomicU64::new(0) });
        self
    }
    fn family(&self, key: Key) -> &Family {
        &self.families[usize::from(key.min(RANGE_KEYS_START)) % FAMILIES]
    }
}

struct PerigeeSession<'a> {
    store: &'a PerigeeStore,
    txn: Txn,
    /// Versions put by a spilling transaction: hooks are not given the operations of its commit.
    unreported_puts: Option<BTreeSet<(Key, Version)>>,
}

impl PerigeeSession<'_> {
    /// Commits, and records the puts that hooks do not report.
    fn commit_one_phase(&mut self) -> Result<u64, TxnError> {
        let mut last = Vec::new();
        for (key, v) in self.unreported_puts.iter().flatten() {
            let value = self
                .txn
                .get_untracked(self.store.family(*key), encode_key(*key))
                .map_err(to_txn_error)?;
            if value.is_some_and(|value| last_version(&decode(&value)) == *v) {
                last.push((*key, *v));
            }
        }
        let sequence = self.txn.commit_in_place(None).map_err(to_txn_error)?;
        let mut reported = self.store.hook_puts.lock().unwrap_or_else(PoisonError::into_inner);
        reported.extend(last.into_iter().map(|(key, v)| (sequence, key, v)));
        Ok(sequence)
    }
}

fn scan_iter(iter: Iter, scan: ScanSpec) -> perigee::Result<Vec<(Slice, Slice)>> {
    let mut iter = iter;
    let mut all = Vec::new();
    while all.len() < scan.limit {
        let Some(entry) = (if scan.backward { iter.next_back() } else { iter.next() }) else {
            break;
        };
        all.push(entry?);
    }
    Ok(all)
}

/// Scans with a cursor, which may be used further after it was moved.
fn scan_cursor(mut cursor: Cursor, scan: ScanSpec) -> perigee::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut all = Vec::new();
    if scan.backward {
        cursor.seek_to_last()?
    } else {
        cursor.seek_to_first()?
    }
    while cursor.is_valid() && all.len() < scan.limit {
        all.push((cursor.key().to_vec(), cursor.value()?.to_vec()));
        // Moved only if another entry is wanted: the move counts as a read.
        if all.len() < scan.limit {
            if scan.backward { cursor.prev()? } else { cursor.next()? }
        }
    }
    Ok(all)
}

impl TxnSession for PerigeeSession<'_> {
    fn get(&mut self, key: Key, lock: Option<LockMode>) -> Result<Value, TxnError> {
        let family = self.store.family(key);
        let value = match lock {
            Some(mode) => self.txn.get_for_update(family, encode_key(key), mode),
            None => self.txn.get_pinned(family, encode_key(key)),
        };
        Ok(value.map_err(to_txn_error)?.map(|v| decode(&v)).unwrap_or_default())
    }
    fn scan(
        &mut self,
        scan: ScanSpec,
        lock: Option<LockMode>,
    ) -> Result<Vec<(Key, Value)>, TxnError> {
        let family = self.store.family(scan.from);
        let range = || encode_bound(scan.from)..encode_bound(scan.to);
        if let Some(mode) = lock {
            self.txn.lock_range(family, range(), mode).map_err(to_txn_error)?;
        }
        let decoded = |(k, v): &(Vec<u8>, Vec<u8>)| (decode_key(k), decode(v));
        if !scan.prefix && scan.limit % 2 == 0 {
            let cursor = self.txn.cursor_within(family, range()).map_err(to_txn_error)?;
            return Ok(scan_cursor(cursor, scan)
                .map_err(to_txn_error)?
                .iter()
                .map(decoded)
                .collect());
        }
        let iter = match scan.prefix {
            true => self.txn.prefix(family, [(scan.from / KEYS_PER_GROUP) as u8]),
            false => self.txn.range(family, range()),
        };
        let all = iter.and_then(|iter| scan_iter(iter, scan)).map_err(to_txn_error)?;
        Ok(all.iter().map(|(k, v)| (decode_key(k), decode(v))).collect())
    }
    fn put(&mut self, key: Key, value: &[Version]) -> Result<(), TxnError> {
        let (family, bytes) = (self.store.family(key), encode(value));
        let day = Duration::from_secs(24 * 3600);
        if let Some(put) = &mut self.unreported_puts {
            put.insert((key, last_version(value)));
        }
        match last_version(value) % 6 {
            0 => self.txn.put_with_ttl(family, encode_key(key), bytes, day),
            _ => self.txn.put(family, encode_key(key), bytes),
        }
        .map_err(to_txn_error)
    }
    fn delete_range(&mut self, from: Key, to: Key) -> Result<(), TxnError> {
        let family = self.store.family(from);
        match to - from {
            1 => self.txn.delete(family, encode_key(from)),
            KEYS_PER_GROUP if from % KEYS_PER_GROUP == 0 => {
                self.txn.delete_prefix(family, [(from / KEYS_PER_GROUP) as u8])
            }
            _ => self.txn.delete_range(family, encode_bound(from)..encode_bound(to)),
        }
        .map_err(to_txn_error)
    }
    fn unlock(&mut self, key: Key) -> Result<bool, TxnError> {
        self.txn.unlock(self.store.family(key), encode_key(key)).map_err(to_txn_error)
    }
    fn savepoint(&mut self, name: usize) -> Result<(), TxnError> {
        self.txn.savepoint(name.to_string()).map_err(to_txn_error)
    }
    fn rollback_to_savepoint(&mut self, name: usize) -> Result<(), TxnError> {
        self.txn.rollback_to(name.to_string()).map_err(to_txn_error)
    }
    fn commit(&mut self) -> Result<u64, TxnError> {
        let two_phase = self.store.two_phase.as_ref().filter(|_| self.unreported_puts.is_none());
        let turn = two_phase.and_then(|two| Some((two, two.next_two_phase()?)));
        let Some((two, (turn, noise))) = turn else { return self.commit_one_phase() };
        let (db, gid) = (&self.store.db, turn.to_le_bytes());
        self.txn.prepare(gid).map_err(to_txn_error)?;
        two.clock.sleep_us(noise % 90);
        if noise % 7 > 0 {
            return db.two_phase().commit(gid).map_err(to_txn_error);
        }
        db.two_phase().rollback(gid).map_err(to_txn_error)?;
        Err(TxnError::Aborted)
    }
    fn reset(&mut self) -> Result<(), TxnError> {
        self.unreported_puts.iter_mut().for_each(BTreeSet::clear);
        self.txn.reset().map_err(to_txn_error)
    }
    fn snapshot(&self) -> Option<u64> {
        self.txn.sequence()
    }
    fn handle(&self) -> Arc<dyn SessionHandle> {
        Arc::new(self.txn.handle())
    }
}

impl SessionHandle for TxnHandle {
    fn abort(&self) -> bool {
        TxnHandle::abort(self)
    }
    fn cancel_wait(&self) -> bool {
        TxnHandle::cancel_wait(self)
    }
}

impl TxnStore for PerigeeStore {
    fn begin(&self, kind: TxnSpec) -> Result<Box<dyn TxnSession + '_>, TxnError> {
        let options = TxnOptions::new().isolation(kind.level).read_only(kind.read_only);
        // A spilled serializable transaction tracks key ranges, which causes more conflicts than
        // the commit order explains.
        let in_files =
            kind.level < Isolation::Serializable && self.begun_txns.fetch_add(1, Relaxed) % 4 == 3;
        let options = if in_files { options.spill_bytes(1) } else { options };
        let txn = self
            .db
            .begin(options.pessimistic(kind.locks).lock_timeout(LOCK_TIMEOUT))
            .map_err(to_txn_error)?;
        Ok(Box::new(PerigeeSession {
            store: self,
            txn,
            unreported_puts: in_files.then(BTreeSet::new),
        }))
    }
    fn write_batch(&self, all: &[(Key, Value)]) -> Result<u64, TxnError> {
        let mut batch = WriteBatch::new();
        for (key, value) in all {
            batch.put(self.family(*key), encode_key(*key), encode(value)).map_err(to_txn_error)?;
        }
        match (&self.two_phase, self.db.write(batch.clone())) {
            // The batch conflicts with a prepared transaction.
            (Some(two), Err(e)) if e.kind() == ErrorKind::Conflict => {
                two.clock.sleep_us(20);
                self.write_batch(all)
            }
            (_, done) => done.map_err(to_txn_error),
        }
    }
    fn run_maintenance(&self, what: u64) -> Result<(), TxnError> {
        if what % 2 == 0 { self.db.admin().flush() } else { self.db.admin().compact() }
            .map_err(to_txn_error)
    }
    fn latest_seq(&self) -> u64 {
        self.db.history().latest_seq()
    }
    fn hook_puts(&self) -> BTreeMap<Key, Vec<Version>> {
        let mut reported = self.hook_puts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        reported.sort_unstable();
        let mut all: BTreeMap<Key, Vec<Version>> = BTreeMap::new();
        reported.into_iter().for_each(|(_, key, v)| all.entry(key).or_default().push(v));
        // A spilling transaction that stayed in memory was reported twice.
        all.values_mut().for_each(Vec::dedup);
        all
    }
    fn final_versions(&self) -> Result<BTreeMap<Key, Version>, TxnError> {
        let mut all = BTreeMap::new();
        for family in &self.families {
            for entry in family.iter().map_err(to_txn_error)? {
                let (key, value) = entry.map_err(to_txn_error)?;
                all.insert(decode_key(&key), last_version(&decode(&value)));
            }
        }
        Ok(all)
    }
}
