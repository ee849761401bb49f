//! What is examined: anything with transactions. Perigee behind that door.

use super::history::{KEYS_PER_GROUP, Key, RANGE_KEYS_START, Version};
use crate::rng::mix;
use perigee::{
    CommitOperation, Cursor, Db, ErrorKind, Family, FamilyOptions, Isolation, Iter, LockMode,
    Slice, Txn, TxnOptions, WriteBatch,
};
use perigee_env::clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What stands under a key: the versions appended to a list, or one version. The last one names the
/// write.
pub type Value = Vec<Version>;

/// The version that a value was written as.
pub fn last_version(value: &[Version]) -> Version {
    value.last().copied().unwrap_or(0)
}

/// Why a call of a transaction did nothing: it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnError {
    /// Another came first.
    Conflict,
    /// It would have had to wait longer for a lock, or for ever.
    LockTimeout,
    /// It was ended from outside.
    Aborted,
    /// Something is wrong with the store.
    StoreFailure(String),
}

/// What a transaction is asked to be.
#[derive(Clone, Copy, Debug)]
pub struct TxnSpec {
    /// Its level.
    pub level: Isolation,
    /// It only reads.
    pub read_only: bool,
    /// It locks what it writes.
    pub locks: bool,
}

/// What a scan reads.
#[derive(Clone, Copy, Debug)]
pub struct ScanSpec {
    /// From here.
    pub from: Key,
    /// To before here.
    pub to: Key,
    /// By their common prefix: the keys are one group.
    pub prefix: bool,
    /// From the end.
    pub backward: bool,
    /// Only so many; then what is behind them was not read.
    pub limit: usize,
}

/// Ends a transaction from outside; whether that was in time.
pub type AbortHandle = Box<dyn Fn() -> bool + Send>;

/// A transaction.
pub trait TxnSession {
    /// The value of a key; empty if it is not there. With a lock: for update.
    fn get(&mut self, key: Key, lock: Option<LockMode>) -> Result<Value, TxnError>;
    /// The keys of a range, in any order; locked before they are read.
    fn scan(
        &mut self,
        scan: ScanSpec,
        lock: Option<LockMode>,
    ) -> Result<Vec<(Key, Value)>, TxnError>;
    /// Writes a key.
    fn put(&mut self, key: Key, value: &[Version]) -> Result<(), TxnError>;
    /// Removes the keys from the first to before the second.
    fn delete_range(&mut self, from: Key, to: Key) -> Result<(), TxnError>;
    /// Sets a savepoint.
    fn savepoint(&mut self, name: usize) -> Result<(), TxnError>;
    /// Goes back to it.
    fn rollback_to_savepoint(&mut self, name: usize) -> Result<(), TxnError>;
    /// The number of the commit.
    fn commit(&mut self) -> Result<u64, TxnError>;
    /// Begins anew.
    fn reset(&mut self) -> Result<(), TxnError>;
    /// The moment that it reads, if it is one.
    fn snapshot(&self) -> Option<u64>;
    /// To end it.
    fn abort_handle(&self) -> AbortHandle;
}

/// A store with transactions.
pub trait TxnStore: Send + Sync {
    /// Begins one.
    fn begin(&self, kind: TxnSpec) -> Result<Box<dyn TxnSession + '_>, TxnError>;
    /// Writes without a transaction, all at once; the number of the commit.
    fn write_batch(&self, all: &[(Key, Value)]) -> Result<u64, TxnError>;
    /// Work that changes nothing for readers.
    fn run_maintenance(&self, what: u64) -> Result<(), TxnError>;
    /// The number of the last commit.
    fn latest_seq(&self) -> u64;
    /// Of each key the versions that were put, in the order of commits, as hooks heard it.
    fn hook_puts(&self) -> BTreeMap<Key, Vec<Version>>;
    /// What is there now.
    fn final_versions(&self) -> Result<BTreeMap<Key, Version>, TxnError>;
}

/// Keys of different families lie side by side, so that transactions are about both; from
/// [`RANGES`] on they lie in one, so that a range of them is one scan.
const FAMILIES: usize = 2;
/// Nobody waits that long but who was forgotten.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3600);

/// Perigee.
pub struct PerigeeStore {
    db: Db,
    families: Vec<Family>,
    hook_puts: Arc<Mutex<Vec<(u64, Key, Version)>>>,
    two_phase: Option<TwoPhaseMode>,
    /// Transactions begun: every fourth has no memory, and is committed as a load.
    begun_txns: AtomicU64,
}

/// How some transactions are prepared first and decided later, most of them for the commit.
struct TwoPhaseMode {
    clock: Arc<dyn Clock>,
    seed: u64,
    txn_counter: AtomicU64,
}

impl TwoPhaseMode {
    /// A number of the next transaction, if it is one of them, and noise.
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

/// Where a range begins or ends: between groups at the prefix, so that a range and the group behind
/// it have no place in common.
fn encode_bound(key: Key) -> Vec<u8> {
    let bytes = encode_key(key);
    if key % KEYS_PER_GROUP == 0 { bytes[..1].to_vec() } else { bytes.to_vec() }
}

fn decode_key(key: &[u8]) -> Key {
    Key::from(key[0]) * KEYS_PER_GROUP + Key::from(key[1])
}

fn to_txn_error(e: perigee::Error) -> TxnError {
    match e.kind() {
        // A deadlock is a conflict that the order of commits does not explain.
        ErrorKind::Conflict if e.message().contains("deadlock") => TxnError::LockTimeout,
        ErrorKind::Conflict => TxnError::Conflict,
        ErrorKind::Aborted => TxnError::Aborted,
        _ => TxnError::StoreFailure(e.to_string()),
    }
}

/// What a commit wrote to a family, the last of each key: deletes take back what was put in the
/// same commit.
fn last_puts<'a>(
    operations: impl Iterator<Item = CommitOperation<'a>>,
) -> BTreeMap<Key, (u64, Version)> {
    let mut last = BTreeMap::new();
    let cut = |bound: Bound<&[u8]>| match bound {
        // Half a key is where its group begins.
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
    /// With its families, in an open database.
    pub fn new(db: Db, options: &FamilyOptions) -> Result<PerigeeStore, String> {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let mut families = Vec::new();
        for i in 0..FAMILIES {
            let family =
                db.create_family(&format!("f{i}"), options.clone()).map_err(|e| e.to_string())?;
            let heard = Arc::clone(&heard);
            family.on_commit(move |commit| {
                let last = last_puts(commit.operations());
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                heard.extend(last.into_iter().map(|(key, (sequence, v))| (sequence, key, v)));
            });
            families.push(family);
        }
        Ok(PerigeeStore {
            db,
            families,
            hook_puts: heard,
            two_phase: None,
            begun_txns: AtomicU64::new(0),
        })
    }
    /// The same with two-phase commit here and there.
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
    /// What it has put, if it has no memory: of such a commit a hook hears no operations.
    unreported_puts: Option<BTreeSet<(Key, Version)>>,
}

impl PerigeeSession<'_> {
    /// Commits; what a hook does not hear is put on its list here.
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
        let sequence = self.txn.commit().map_err(to_txn_error)?;
        let mut heard = self.store.hook_puts.lock().unwrap_or_else(PoisonError::into_inner);
        heard.extend(last.into_iter().map(|(key, v)| (sequence, key, v)));
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

/// The same by a cursor, which may be asked to go on after it was moved.
fn scan_cursor(mut cursor: Cursor, scan: ScanSpec) -> perigee::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut all = Vec::new();
    if scan.backward {
        cursor.seek_to_last()?
    } else {
        cursor.seek_to_first()?
    }
    while cursor.valid() && all.len() < scan.limit {
        all.push((cursor.key().to_vec(), cursor.value()?.to_vec()));
        // Moved only if it is to be read: the step is a read, too.
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
            return db.commit_prepared(gid).map_err(to_txn_error);
        }
        db.rollback_prepared(gid).map_err(to_txn_error)?;
        Err(TxnError::Aborted)
    }
    fn reset(&mut self) -> Result<(), TxnError> {
        self.unreported_puts.iter_mut().for_each(BTreeSet::clear);
        self.txn.reset().map_err(to_txn_error)
    }
    fn snapshot(&self) -> Option<u64> {
        self.txn.sequence()
    }
    fn abort_handle(&self) -> AbortHandle {
        let handle = self.txn.handle();
        Box::new(move || handle.abort())
    }
}

impl TxnStore for PerigeeStore {
    fn begin(&self, kind: TxnSpec) -> Result<Box<dyn TxnSession + '_>, TxnError> {
        let options = TxnOptions::new().isolation(kind.level).read_only(kind.read_only);
        // Serializable ones would know it by stretches: more conflicts than the order of commits
        // explains.
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
            // Something of it is prepared.
            (Some(two), Err(e)) if e.kind() == ErrorKind::Conflict => {
                two.clock.sleep_us(20);
                self.write_batch(all)
            }
            (_, done) => done.map_err(to_txn_error),
        }
    }
    fn run_maintenance(&self, what: u64) -> Result<(), TxnError> {
        if what % 2 == 0 { self.db.flush() } else { self.db.compact() }.map_err(to_txn_error)
    }
    fn latest_seq(&self) -> u64 {
        self.db.latest_seq()
    }
    fn hook_puts(&self) -> BTreeMap<Key, Vec<Version>> {
        let mut heard = self.hook_puts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        heard.sort_unstable();
        let mut all: BTreeMap<Key, Vec<Version>> = BTreeMap::new();
        heard.into_iter().for_each(|(_, key, v)| all.entry(key).or_default().push(v));
        // One that had no memory, and needed none, was heard twice.
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
