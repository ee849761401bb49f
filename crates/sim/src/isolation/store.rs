//! What is examined: anything with transactions. Perigee behind that door.

use super::history::{Key, RANGES, Version};
use crate::rng::mix;
use perigee::{
    CommitOperation, Db, ErrorKind, Family, FamilyOptions, Isolation, Txn, TxnOptions, WriteBatch,
};
use perigee_env::clock::Clock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// What stands under a key: the versions appended to a list, or one version. The last one names the write.
pub type Value = Vec<Version>;

/// The version that a value was written as.
pub fn version(value: &[Version]) -> Version {
    value.last().copied().unwrap_or(0)
}

/// A transaction; `Err` says what went wrong, and that is no conflict.
pub trait Session {
    /// The value of a key; empty if it is not there. `None`: a conflict ended the transaction.
    fn get(&mut self, key: Key) -> Result<Option<Value>, String>;
    /// The keys from the first to before the second.
    fn scan(&mut self, from: Key, to: Key, backward: bool) -> Result<Option<Vec<(Key, Value)>>, String>;
    /// Writes a key.
    fn put(&mut self, key: Key, value: &[Version]) -> Result<bool, String>;
    /// Whether it was committed, and not refused as a conflict.
    fn commit(self: Box<Self>) -> Result<bool, String>;
}

/// A store with transactions.
pub trait Store: Send + Sync {
    /// Begins one.
    fn begin(&self, level: Isolation, read_only: bool) -> Result<Box<dyn Session + '_>, String>;
    /// Writes without a transaction, all at once.
    fn write(&self, all: &[(Key, Value)]) -> Result<(), String>;
    /// Work that changes nothing for readers.
    fn maintain(&self, what: u64) -> Result<(), String>;
    /// Of each key the versions in the order of commits.
    fn order(&self) -> BTreeMap<Key, Vec<Version>>;
    /// What is there now.
    fn end(&self) -> Result<BTreeMap<Key, Version>, String>;
}

/// Keys of different families lie side by side, so that transactions are about both; from [`RANGES`] on they lie in one, so that a
/// range of them is one scan.
const FAMILIES: usize = 2;

/// Perigee.
pub struct Perigee {
    db: Db,
    families: Vec<Family>,
    heard: Arc<Mutex<Vec<(u64, Key, Version)>>>,
    /// Transactions begun: every fourth has no memory, and is committed as a load.
    begun: AtomicU64,
    two_phase: Option<TwoPhase>,
}

/// How some transactions are prepared first and decided later, most of them for the commit.
struct TwoPhase {
    clock: Arc<dyn Clock>,
    seed: u64,
    turns: AtomicU64,
}

impl TwoPhase {
    /// A number of the next transaction, if it is one of them, and noise.
    fn turn(&self) -> Option<(u64, u64)> {
        let turn = self.turns.fetch_add(1, Relaxed);
        let noise = mix(self.seed, turn);
        (noise % 5 < 2).then_some((turn, noise / 5))
    }
}

fn encode(value: &[Version]) -> Vec<u8> {
    value.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn decode(value: &[u8]) -> Value {
    value.chunks_exact(4).map(|c| Version::from_le_bytes(c.try_into().expect("four bytes"))).collect()
}

fn decode_key(key: &[u8]) -> Key {
    Key::from_be_bytes([key[0], key[1]])
}

fn say(e: perigee::Error) -> String {
    e.to_string()
}

impl Perigee {
    /// With its families, in an open database.
    pub fn new(db: Db, options: &FamilyOptions) -> Result<Perigee, String> {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let mut families = Vec::new();
        for i in 0..FAMILIES {
            let family = db.create_family(&format!("f{i}"), options.clone()).map_err(say)?;
            let heard = Arc::clone(&heard);
            family.on_commit(move |commit| {
                // Of what a commit writes to a key the last stands.
                let mut last = BTreeMap::new();
                for operation in commit.operations() {
                    if let CommitOperation::Put { sequence, key, value } = operation {
                        last.insert(decode_key(key), (sequence, version(&decode(value))));
                    }
                }
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                heard.extend(last.into_iter().map(|(key, (sequence, v))| (sequence, key, v)));
            });
            families.push(family);
        }
        Ok(Perigee { db, families, heard, begun: AtomicU64::new(0), two_phase: None })
    }
    /// The same with two-phase commit here and there.
    #[must_use]
    pub fn in_two_phases(mut self, clock: Arc<dyn Clock>, seed: u64) -> Perigee {
        self.two_phase = Some(TwoPhase { clock, seed, turns: AtomicU64::new(0) });
        self
    }
    fn family(&self, key: Key) -> &Family {
        &self.families[usize::from(key.min(RANGES)) % FAMILIES]
    }
}

struct PerigeeSession<'a> {
    store: &'a Perigee,
    txn: Txn,
    /// What it has put, if it has no memory, and how often: of such a commit a hook hears no operations.
    put: Option<(BTreeMap<Key, Version>, usize)>,
}

fn conflict<T>(result: perigee::Result<T>) -> Result<Option<T>, String> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind() == ErrorKind::Conflict => Ok(None),
        Err(e) => Err(say(e)),
    }
}

impl Session for PerigeeSession<'_> {
    fn get(&mut self, key: Key) -> Result<Option<Value>, String> {
        let value = conflict(self.txn.get(self.store.family(key), key.to_be_bytes()))?;
        Ok(value.map(|v| v.as_deref().map(decode).unwrap_or_default()))
    }
    fn scan(&mut self, from: Key, to: Key, backward: bool) -> Result<Option<Vec<(Key, Value)>>, String> {
        let range = from.to_be_bytes()..to.to_be_bytes();
        let Some(iter) = conflict(self.txn.range(self.store.family(from), range))? else { return Ok(None) };
        let entries: Vec<_> = if backward { iter.rev().collect() } else { iter.collect() };
        let entries = conflict(entries.into_iter().collect::<perigee::Result<Vec<_>>>())?;
        let decoded = |(key, value): &(perigee::Slice, perigee::Slice)| (decode_key(key), decode(value));
        Ok(entries.map(|all| all.iter().map(decoded).collect()))
    }
    fn put(&mut self, key: Key, value: &[Version]) -> Result<bool, String> {
        let done = self.txn.put(self.store.family(key), key.to_be_bytes(), encode(value));
        let done = conflict(done)?.is_some();
        if let Some((put, n)) = self.put.as_mut().filter(|_| done) {
            put.insert(key, version(value));
            *n += 1;
        }
        Ok(done)
    }
    fn commit(self: Box<Self>) -> Result<bool, String> {
        // A single write is in memory: the next would have gone to a file.
        if let Some((put, 2..)) = self.put {
            let Some(sequence) = conflict(self.txn.commit())? else { return Ok(false) };
            let mut heard = self.store.heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.extend(put.into_iter().map(|(key, v)| (sequence, key, v)));
            return Ok(true);
        }
        let Some(two) = &self.store.two_phase else { return Ok(conflict(self.txn.commit())?.is_some()) };
        let Some((turn, noise)) = two.turn() else { return Ok(conflict(self.txn.commit())?.is_some()) };
        let (db, gid) = (&self.store.db, turn.to_le_bytes());
        if conflict(self.txn.prepare(gid))?.is_none() {
            return Ok(false);
        }
        two.clock.sleep_us(noise % 90);
        let commits = noise % 7 > 0;
        if commits { db.commit_prepared(gid).map(drop) } else { db.rollback_prepared(gid) }.map_err(say)?;
        Ok(commits)
    }
}

impl Store for Perigee {
    fn begin(&self, level: Isolation, read_only: bool) -> Result<Box<dyn Session + '_>, String> {
        let options = TxnOptions::new().isolation(level).read_only(read_only);
        let in_files = self.begun.fetch_add(1, Relaxed) % 4 == 3;
        let options = if in_files { options.spill_bytes(1) } else { options };
        let txn = self.db.begin(options).map_err(say)?;
        Ok(Box::new(PerigeeSession { store: self, txn, put: in_files.then(Default::default) }))
    }
    fn write(&self, all: &[(Key, Value)]) -> Result<(), String> {
        let mut batch = WriteBatch::new();
        for (key, value) in all {
            batch.put(self.family(*key), key.to_be_bytes(), encode(value)).map_err(say)?;
        }
        match (&self.two_phase, self.db.write(batch.clone())) {
            // Something of it is prepared.
            (Some(two), Err(e)) if e.kind() == ErrorKind::Conflict => {
                two.clock.sleep_us(20);
                self.write(all)
            }
            (_, done) => done.map(drop).map_err(say),
        }
    }
    fn maintain(&self, what: u64) -> Result<(), String> {
        if what % 2 == 0 { self.db.flush() } else { self.db.compact() }.map_err(say)
    }
    fn order(&self) -> BTreeMap<Key, Vec<Version>> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
        heard.sort_unstable();
        let mut order: BTreeMap<Key, Vec<(u64, Version)>> = BTreeMap::new();
        heard.into_iter().for_each(|(sequence, key, v)| order.entry(key).or_default().push((sequence, v)));
        order.into_iter().map(|(key, all)| (key, all.into_iter().map(|(_, v)| v).collect())).collect()
    }
    fn end(&self) -> Result<BTreeMap<Key, Version>, String> {
        let mut all = BTreeMap::new();
        for family in &self.families {
            for entry in family.iter().map_err(say)? {
                let (key, value) = entry.map_err(say)?;
                all.insert(decode_key(&key), version(&decode(&value)));
            }
        }
        Ok(all)
    }
}
