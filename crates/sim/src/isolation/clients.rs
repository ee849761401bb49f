//! Client transactions: over registers, appended lists, and ranges that others insert into and
//! delete from, each with few keys and much contention; with and without locks, with rollbacks to
//! savepoints, aborted by other threads, and retried.

use super::history::{
    ClientOp, KEYS_PER_GROUP, Key, RANGE_KEYS_START, TxnEnd, TxnHistory, TxnRecord, live_writes,
};
use super::store::{
    ScanSpec, SessionHandle, TxnError, TxnSession, TxnSpec, TxnStore, Value, last_version,
};
use crate::rng::Rng;
use crate::runner::lock_mutex;
use perigee::env::Env;
use perigee::{Isolation, LockMode};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// The key space: registers, then lists, then keys that are inserted once.
const REGISTERS: Key = 6;
const LISTS: Key = 6;
/// Initial length of the range of inserted keys; clients insert beyond it.
const INITIAL_RANGE_LEN: Key = 12;

/// State of one run.
pub struct ClientRun {
    /// Store under test.
    pub store: Box<dyn TxnStore>,
    env: Env,
    plan: RunPlan,
    clock: AtomicU64,
    versions: AtomicU32,
    inserted: AtomicU32,
    records: Mutex<Vec<(TxnRecord, Arc<AtomicBool>)>>,
    lists: Mutex<BTreeMap<u32, Value>>,
    running_txns: Vec<Mutex<Option<RunningTxn>>>,
    failure: Mutex<Option<String>>,
}

/// A running transaction: its handle, and whether another thread has aborted it.
type RunningTxn = (Arc<dyn SessionHandle>, Arc<AtomicBool>);

/// Parameters of one run.
#[derive(Clone, Copy, Debug)]
pub struct RunPlan {
    /// Isolation level of its transactions.
    pub level: Isolation,
    /// If set, half of the transactions use a random level.
    pub mixed: bool,
    /// Percentage of transactions that lock what they read and write.
    pub locking: u64,
    /// Number of concurrent clients.
    pub clients: u64,
    /// Number of transactions of all clients together.
    pub txns: u64,
    /// Longest pause between two operations, in microseconds.
    pub pause_us: u64,
    /// Weights of register, list and range operations.
    pub weights: [u32; 3],
}

const LEVELS: [Isolation; 5] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Snapshot,
    Isolation::Serializable,
];

impl RunPlan {
    /// Returns a random plan.
    pub fn random(rng: &mut Rng, level: Isolation, txns: u64) -> RunPlan {
        let weights = rng.pick(&[[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [2, 1, 2], [1, 0, 2]]);
        let (mixed, locking) = (rng.percent(20), rng.pick(&[0, 0, 20, 60, 100]));
        let (actors, pause_us) = (rng.between(2, 6) as u64, rng.between(0, 20) as u64);
        RunPlan { level, mixed, locking, clients: actors, txns, pause_us, weights }
    }
}

impl ClientRun {
    /// Creates a run that has not started.
    pub fn new(store: Box<dyn TxnStore>, env: Env, plan: RunPlan) -> ClientRun {
        ClientRun {
            store,
            env,
            plan,
            clock: AtomicU64::new(1),
            versions: AtomicU32::new(1),
            inserted: AtomicU32::new(0),
            records: Mutex::default(),
            lists: Mutex::default(),
            running_txns: (0..plan.clients).map(|_| Mutex::default()).collect(),
            failure: Mutex::default(),
        }
    }

    /// Runs the clients and returns their history.
    pub fn run_clients(run: &Arc<ClientRun>, rng: &mut Rng) -> Result<TxnHistory, String> {
        let (mut joins, plan) = (Vec::new(), run.plan);
        for actor in 0..plan.clients {
            let (client, seed) = (Arc::clone(run), rng.next());
            let mine = plan.txns / plan.clients + u64::from(actor < plan.txns % plan.clients);
            let body = Box::new(move || {
                let (mut rng, mut left) = (Rng::new(seed), mine as i64);
                while left > 0 && lock_mutex(&client.failure).is_none() {
                    match client.run_client_op(actor as usize, &mut rng) {
                        Ok(n) => left -= n,
                        Err(e) => drop(lock_mutex(&client.failure).get_or_insert(format!("{e:?}"))),
                    }
                }
            });
            joins.push(
                run.env.spawn.spawn(&format!("client-{actor}"), body).map_err(|e| e.to_string())?,
            );
        }
        for join in joins {
            join.join().map_err(|panic| format!("a client panicked: {panic}"))?;
        }
        if let Some(wrong) = lock_mutex(&run.failure).take() {
            return Err(wrong);
        }
        let records = std::mem::take(&mut *lock_mutex(&run.records));
        if let Some((r, _)) = records.iter().find(|(r, ended)| r.committed() && ended.load(SeqCst))
        {
            return Err(format!("committed although another thread had aborted it: {r:?}"));
        }
        let mut history = TxnHistory {
            records: records.into_iter().map(|(r, _)| r).collect(),
            hook_puts: run.store.hook_puts(),
            lists: std::mem::take(&mut *lock_mutex(&run.lists)),
            final_versions: run.store.final_versions().map_err(|e| format!("{e:?}"))?,
            ..TxnHistory::default()
        };
        history.build_version_order();
        Ok(history)
    }

    fn advance_clock(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }
    fn next_version(&self) -> u32 {
        self.versions.fetch_add(1, SeqCst)
    }
    fn pause(&self, rng: &mut Rng) {
        if self.plan.pause_us > 0 && rng.percent(60) {
            self.env.clock.sleep_us(rng.below(self.plan.pause_us));
        }
    }

    /// Runs one client step. Returns the number of transactions in it.
    fn run_client_op(&self, actor: usize, rng: &mut Rng) -> Result<i64, TxnError> {
        match rng.below(40) {
            0 => return self.store.run_maintenance(rng.next()).map(|()| 1),
            1 | 2 if self.plan.weights[0] > 0 => return self.write_batch(rng).map(|()| 1),
            3 => {
                let other =
                    lock_mutex(&self.running_txns[rng.index(self.running_txns.len())]).take();
                if let Some((handle, ended)) = other {
                    ended.fetch_or(handle.abort(), SeqCst);
                }
                return Ok(0);
            }
            4..=6 => {
                let other =
                    lock_mutex(&self.running_txns[rng.index(self.running_txns.len())]).clone();
                if let Some((handle, _)) = other {
                    handle.cancel_wait();
                }
                return Ok(0);
            }
            _ => {}
        }
        let level =
            if self.plan.mixed && rng.percent(50) { rng.pick(&LEVELS) } else { self.plan.level };
        let locks = rng.percent(self.plan.locking);
        let kind = TxnSpec { level, locks, read_only: !locks && rng.percent(15) };
        let mut began = self.advance_clock();
        let mut session = self.store.begin(kind)?;
        for again in 1..=3 {
            self.run_txn(actor, rng, kind, &mut *session, began)?;
            if rng.percent(80) {
                return Ok(again);
            }
            began = self.advance_clock();
            session.reset()?;
        }
        Ok(3)
    }

    /// Runs one transaction.
    fn run_txn(
        &self,
        actor: usize,
        rng: &mut Rng,
        kind: TxnSpec,
        session: &mut dyn TxnSession,
        began: u64,
    ) -> Result<(), TxnError> {
        let (snapshot, ended) = (session.snapshot(), Arc::new(AtomicBool::new(false)));
        *lock_mutex(&self.running_txns[actor]) = Some((session.handle(), Arc::clone(&ended)));
        let mut txn =
            ClientTxn { run: self, session: &mut *session, kind, ops: Vec::new(), depth: 0 };
        let done = (0..rng.between(1, 5)).try_for_each(|_| txn.run_op(rng));
        self.pause(rng);
        let gives_up = rng.percent(5);
        let ops = txn.ops;
        let done = done.and_then(|()| if gives_up { Ok(None) } else { session.commit().map(Some) });
        let end = match done {
            Ok(Some(seq)) => TxnEnd::Committed(seq),
            Ok(None) => TxnEnd::RolledBack,
            Err(TxnError::Conflict) => TxnEnd::Conflict(self.store.latest_seq()),
            Err(TxnError::LockTimeout | TxnError::Aborted | TxnError::Interrupted) => {
                TxnEnd::RolledBack
            }
            Err(wrong) => return Err(wrong),
        };
        lock_mutex(&self.running_txns[actor]).take();
        let TxnSpec { level, locks, .. } = kind;
        let span = (began, self.advance_clock());
        let record = TxnRecord { level, locks, snapshot, ops, end, span };
        lock_mutex(&self.records).push((record, ended));
        Ok(())
    }

    /// Writes a batch without a transaction.
    fn write_batch(&self, rng: &mut Rng) -> Result<(), TxnError> {
        let began = self.advance_clock();
        let (a, b) =
            (rng.below(u64::from(REGISTERS)) as Key, rng.below(u64::from(REGISTERS)) as Key);
        let mut all = vec![(a, vec![self.next_version()])];
        if a != b {
            all.push((b, vec![self.next_version()]));
        }
        let end = TxnEnd::Committed(self.store.write_batch(&all)?);
        let ops =
            all.iter().map(|(key, value)| ClientOp::Write(*key, last_version(value))).collect();
        let (level, span) = (Isolation::ReadUncommitted, (began, self.advance_clock()));
        let record = TxnRecord { level, locks: false, snapshot: None, ops, end, span };
        lock_mutex(&self.records).push((record, Arc::default()));
        Ok(())
    }
}

struct ClientTxn<'a> {
    run: &'a ClientRun,
    session: &'a mut dyn TxnSession,
    kind: TxnSpec,
    ops: Vec<ClientOp>,
    depth: usize,
}

impl ClientTxn<'_> {
    fn run_op(&mut self, rng: &mut Rng) -> Result<(), TxnError> {
        self.run.pause(rng);
        if self.depth < 2 && rng.percent(12) {
            return self.run_in_savepoint(rng);
        }
        let done = match rng.weighted(&self.run.plan.weights) {
            0 => self.register_op(rng),
            1 => self.list_op(rng),
            _ => self.range_op(rng),
        };
        match done {
            // Only the call that waited for a lock has failed.
            Err(TxnError::Interrupted) => {
                self.ops.push(ClientOp::Interrupted);
                Ok(())
            }
            done => done,
        }
    }
    /// Runs a call that writes what `ops` records. They are recorded before: a faulty store may
    /// make them visible at once.
    fn record_writes(
        &mut self,
        ops: impl IntoIterator<Item = ClientOp>,
        write: impl FnOnce(&mut dyn TxnSession) -> Result<(), TxnError>,
    ) -> Result<(), TxnError> {
        let before = self.ops.len();
        self.ops.extend(ops);
        let done = write(self.session);
        if done == Err(TxnError::Interrupted) {
            self.ops.truncate(before);
        }
        done
    }
    /// Undoes the lock of a locked read.
    fn unlock(&mut self, key: Key) -> Result<(), TxnError> {
        if !self.session.unlock(key)? {
            return Ok(());
        }
        if live_writes(&self.ops).contains_key(&key) {
            return Err(TxnError::StoreFailure(format!("unlocked {key}, which it has written")));
        }
        self.ops.push(ClientOp::Unlocked(key));
        Ok(())
    }
    fn run_in_savepoint(&mut self, rng: &mut Rng) -> Result<(), TxnError> {
        let (name, from) = (self.depth, self.ops.len());
        self.session.savepoint(name)?;
        self.depth += 1;
        (0..rng.between(1, 2)).try_for_each(|_| self.run_op(rng))?;
        self.depth -= 1;
        if rng.percent(70) {
            self.session.rollback_to_savepoint(name)?;
            self.ops.push(ClientOp::RolledBack(from));
        }
        Ok(())
    }
    /// Returns the lock with which to read a key.
    fn random_lock(&self, rng: &mut Rng) -> Option<LockMode> {
        let share = if self.kind.locks { 60 } else { 8 };
        rng.percent(share).then(|| rng.pick(&[LockMode::Shared, LockMode::Exclusive]))
    }
    fn read(&mut self, key: Key, rng: &mut Rng) -> Result<Value, TxnError> {
        let lock = self.random_lock(rng).filter(|_| !self.kind.read_only);
        let value = self.session.get(key, lock);
        if lock.is_some() && value == Err(TxnError::Conflict) {
            self.ops.push(ClientOp::LockRefused(key));
        }
        let value = value?;
        self.ops.push(ClientOp::Read(key, last_version(&value), lock.is_some()));
        if lock.is_some() && rng.percent(30) {
            self.unlock(key)?;
        }
        Ok(value)
    }
    fn write(&mut self, key: Key, value: &[u32]) -> Result<(), TxnError> {
        let op = ClientOp::Write(key, last_version(value));
        self.record_writes([op], |session| session.put(key, value))
    }
    fn delete_range(&mut self, from: Key, to: Key) -> Result<(), TxnError> {
        let run = self.run;
        let ops = (from..to).map(|key| ClientOp::Delete(key, run.next_version()));
        self.record_writes(ops, |session| session.delete_range(from, to))
    }
    fn register_op(&mut self, rng: &mut Rng) -> Result<(), TxnError> {
        let key = rng.below(u64::from(REGISTERS)) as Key;
        if self.kind.read_only || rng.percent(60) {
            self.read(key, rng)?;
        }
        if self.kind.read_only || rng.percent(40) {
            return Ok(());
        }
        if rng.percent(15) {
            return self.delete_range(key, key + 1);
        }
        self.write(key, &[self.run.next_version()])
    }
    fn list_op(&mut self, rng: &mut Rng) -> Result<(), TxnError> {
        let key = REGISTERS + rng.below(u64::from(LISTS)) as Key;
        let mut list = self.read(key, rng)?;
        if self.kind.read_only || rng.percent(50) {
            return Ok(());
        }
        // A second append of the same transaction belongs to its first write.
        if self.ops.iter().any(|did| matches!(did, ClientOp::Write(k, _) if *k == key)) {
            return Ok(());
        }
        list.push(self.run.next_version());
        lock_mutex(&self.run.lists).insert(last_version(&list), list.clone());
        self.write(key, &list)
    }
    fn range_op(&mut self, rng: &mut Rng) -> Result<(), TxnError> {
        let next = RANGE_KEYS_START + self.run.inserted.load(SeqCst) as Key;
        let recent = |rng: &mut Rng| {
            next.saturating_sub(rng.below(u64::from(INITIAL_RANGE_LEN)) as Key)
                .max(RANGE_KEYS_START)
        };
        if self.kind.read_only || rng.percent(60) {
            self.scan(recent(rng), next + rng.between(1, INITIAL_RANGE_LEN as usize) as Key, rng)?;
        }
        if self.kind.read_only || rng.percent(40) {
            return Ok(());
        }
        match rng.below(8) {
            0 => {
                let key = recent(rng);
                self.delete_range(key, key + 1)
            }
            1 => {
                let (from, n) = (recent(rng), rng.between(2, 4) as Key);
                if rng.percent(30) {
                    return self.delete_range(
                        from / KEYS_PER_GROUP * KEYS_PER_GROUP,
                        (from / KEYS_PER_GROUP + 1) * KEYS_PER_GROUP,
                    );
                }
                self.delete_range(from, from + n)
            }
            _ => {
                let key = RANGE_KEYS_START + self.run.inserted.fetch_add(1, SeqCst) as Key;
                self.write(key, &[self.run.next_version()])
            }
        }
    }
    fn scan(&mut self, from: Key, to: Key, rng: &mut Rng) -> Result<(), TxnError> {
        let lock = (self.kind.locks && rng.percent(50))
            .then(|| rng.pick(&[LockMode::Gap, LockMode::Shared, LockMode::Exclusive]));
        let limit = if rng.percent(30) { rng.between(1, 3) } else { usize::MAX - rng.index(2) };
        let mut scan = ScanSpec { from, to, prefix: false, backward: rng.percent(40), limit };
        if rng.percent(30) {
            let from = from / KEYS_PER_GROUP * KEYS_PER_GROUP;
            scan = ScanSpec { from, to: from + KEYS_PER_GROUP, prefix: true, ..scan };
        }
        let seen = self.session.scan(scan, lock)?;
        let mut seen: Vec<_> =
            seen.iter().map(|(key, value)| (*key, last_version(value))).collect();
        seen.sort_unstable();
        let (mut from, mut to) = (scan.from, scan.to);
        // The transaction has not read keys beyond the limit.
        if seen.len() >= scan.limit {
            match (scan.backward, seen.first(), seen.last()) {
                (true, Some(first), _) => from = first.0,
                (false, _, Some(last)) => to = last.0 + 1,
                _ => {}
            }
        }
        self.ops.push(ClientOp::Scan(from, to, seen, lock.is_some()));
        Ok(())
    }
}
