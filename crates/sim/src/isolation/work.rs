//! What clients do: transactions over registers, appended lists and ranges that others insert into and erase, each with few keys
//! and many rivals; with locks or without, with savepoints gone back to, ended by others, begun anew.

use super::history::{Did, End, GROUP, History, Key, RANGES, Record};
use super::store::{Handle, Kind, Scan, Session, Stop, Store, Value, version};
use crate::rng::Rng;
use crate::runner::held;
use perigee::env::Env;
use perigee::{Isolation, LockMode};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Registers, then lists, then keys that are inserted once.
const REGISTERS: Key = 6;
const LISTS: Key = 6;
/// Ranges reach so far at first; beyond there is always something to insert.
const REACH: Key = 12;

/// A run in the making.
pub struct Run {
    /// What is examined.
    pub store: Box<dyn Store>,
    env: Env,
    plan: Plan,
    clock: AtomicU64,
    versions: AtomicU32,
    inserted: AtomicU32,
    records: Mutex<Vec<(Record, Arc<AtomicBool>)>>,
    lists: Mutex<BTreeMap<u32, Value>>,
    running: Vec<Mutex<Option<(Handle, Arc<AtomicBool>)>>>,
    wrong: Mutex<Option<String>>,
}

/// How a run is made.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The level of its transactions.
    pub level: Isolation,
    /// Half of them are of any level.
    pub mixed: bool,
    /// In a hundred so many lock what they read and write.
    pub locking: u64,
    /// Clients at the same time.
    pub actors: u64,
    /// Transactions of all together.
    pub txns: u64,
    /// Longest pause between two operations, in microseconds.
    pub pause_us: u64,
    /// Chances of an operation to be about registers, lists, ranges.
    pub weights: [u32; 3],
}

const LEVELS: [Isolation; 5] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Snapshot,
    Isolation::Serializable,
];

impl Plan {
    /// A random one.
    pub fn random(rng: &mut Rng, level: Isolation, txns: u64) -> Plan {
        let weights = rng.pick(&[[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [2, 1, 2], [1, 0, 2]]);
        let (mixed, locking) = (rng.percent(20), rng.pick(&[0, 0, 20, 60, 100]));
        let (actors, pause_us) = (rng.between(2, 6) as u64, rng.between(0, 20) as u64);
        Plan { level, mixed, locking, actors, txns, pause_us, weights }
    }
}

impl Run {
    /// Nothing done yet.
    pub fn new(store: Box<dyn Store>, env: Env, plan: Plan) -> Run {
        Run {
            store,
            env,
            plan,
            clock: AtomicU64::new(1),
            versions: AtomicU32::new(1),
            inserted: AtomicU32::new(0),
            records: Mutex::default(),
            lists: Mutex::default(),
            running: (0..plan.actors).map(|_| Mutex::default()).collect(),
            wrong: Mutex::default(),
        }
    }

    /// Lets the clients work, and returns what they saw.
    pub fn perform(run: &Arc<Run>, rng: &mut Rng) -> Result<History, String> {
        let (mut joins, plan) = (Vec::new(), run.plan);
        for actor in 0..plan.actors {
            let (client, seed) = (Arc::clone(run), rng.next());
            let mine = plan.txns / plan.actors + u64::from(actor < plan.txns % plan.actors);
            let body = Box::new(move || {
                let (mut rng, mut left) = (Rng::new(seed), mine as i64);
                while left > 0 && held(&client.wrong).is_none() {
                    match client.one(actor as usize, &mut rng) {
                        Ok(n) => left -= n,
                        Err(e) => drop(held(&client.wrong).get_or_insert(format!("{e:?}"))),
                    }
                }
            });
            joins.push(run.env.spawn.spawn(&format!("client-{actor}"), body).map_err(|e| e.to_string())?);
        }
        for join in joins {
            join.join().map_err(|panic| format!("a client panicked: {panic}"))?;
        }
        if let Some(wrong) = held(&run.wrong).take() {
            return Err(wrong);
        }
        let records = std::mem::take(&mut *held(&run.records));
        if let Some((r, _)) = records.iter().find(|(r, ended)| r.committed() && ended.load(SeqCst)) {
            return Err(format!("ended from outside, and committed: {r:?}"));
        }
        let mut history = History {
            records: records.into_iter().map(|(r, _)| r).collect(),
            heard: run.store.heard(),
            lists: std::mem::take(&mut *held(&run.lists)),
            end: run.store.end().map_err(|e| format!("{e:?}"))?,
            ..History::default()
        };
        history.line_up();
        Ok(history)
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }
    fn number(&self) -> u32 {
        self.versions.fetch_add(1, SeqCst)
    }
    fn pause(&self, rng: &mut Rng) {
        if self.plan.pause_us > 0 && rng.percent(60) {
            self.env.clock.sleep_us(rng.below(self.plan.pause_us));
        }
    }

    /// One thing that a client does; how many transactions it was.
    fn one(&self, actor: usize, rng: &mut Rng) -> Result<i64, Stop> {
        match rng.below(40) {
            0 => return self.store.maintain(rng.next()).map(|()| 1),
            1 | 2 if self.plan.weights[0] > 0 => return self.plain(rng).map(|()| 1),
            3 => {
                let other = held(&self.running[rng.index(self.running.len())]).take();
                if let Some((handle, ended)) = other {
                    ended.fetch_or(handle(), SeqCst);
                }
                return Ok(0);
            }
            _ => {}
        }
        let level = if self.plan.mixed && rng.percent(50) { rng.pick(&LEVELS) } else { self.plan.level };
        let locks = rng.percent(self.plan.locking);
        let kind = Kind { level, locks, read_only: !locks && rng.percent(15) };
        let mut began = self.tick();
        let mut session = self.store.begin(kind)?;
        for again in 1..=3 {
            self.whole(actor, rng, kind, &mut *session, began)?;
            if rng.percent(80) {
                return Ok(again);
            }
            began = self.tick();
            session.reset()?;
        }
        Ok(3)
    }

    /// A transaction from its beginning to its end.
    fn whole(
        &self,
        actor: usize,
        rng: &mut Rng,
        kind: Kind,
        session: &mut dyn Session,
        began: u64,
    ) -> Result<(), Stop> {
        let (snapshot, ended) = (session.snapshot(), Arc::new(AtomicBool::new(false)));
        *held(&self.running[actor]) = Some((session.handle(), Arc::clone(&ended)));
        let mut txn = Transaction { run: self, session: &mut *session, kind, ops: Vec::new(), depth: 0 };
        let done = (0..rng.between(1, 5)).try_for_each(|_| txn.step(rng));
        self.pause(rng);
        let gives_up = rng.percent(5);
        let ops = txn.ops;
        let done = done.and_then(|()| if gives_up { Ok(None) } else { session.commit().map(Some) });
        let end = match done {
            Ok(Some(seq)) => End::Committed(seq),
            Ok(None) => End::GaveUp,
            Err(Stop::Conflict) => End::Refused(self.store.present()),
            Err(Stop::Locked | Stop::Ended) => End::GaveUp,
            Err(wrong) => return Err(wrong),
        };
        held(&self.running[actor]).take();
        let Kind { level, locks, .. } = kind;
        let span = (began, self.tick());
        let record = Record { level, locks, snapshot, ops, end, span };
        held(&self.records).push((record, ended));
        Ok(())
    }

    /// A batch without a transaction.
    fn plain(&self, rng: &mut Rng) -> Result<(), Stop> {
        let began = self.tick();
        let (a, b) = (rng.below(u64::from(REGISTERS)) as Key, rng.below(u64::from(REGISTERS)) as Key);
        let mut all = vec![(a, vec![self.number()])];
        if a != b {
            all.push((b, vec![self.number()]));
        }
        let end = End::Committed(self.store.write(&all)?);
        let ops = all.iter().map(|(key, value)| Did::Wrote(*key, version(value))).collect();
        let (level, span) = (Isolation::ReadUncommitted, (began, self.tick()));
        let record = Record { level, locks: false, snapshot: None, ops, end, span };
        held(&self.records).push((record, Arc::default()));
        Ok(())
    }
}

struct Transaction<'a> {
    run: &'a Run,
    session: &'a mut dyn Session,
    kind: Kind,
    ops: Vec<Did>,
    depth: usize,
}

impl Transaction<'_> {
    fn step(&mut self, rng: &mut Rng) -> Result<(), Stop> {
        self.run.pause(rng);
        if self.depth < 2 && rng.percent(12) {
            return self.behind_a_savepoint(rng);
        }
        match rng.weighted(&self.run.plan.weights) {
            0 => self.register(rng),
            1 => self.list(rng),
            _ => self.range(rng),
        }
    }
    fn behind_a_savepoint(&mut self, rng: &mut Rng) -> Result<(), Stop> {
        let (name, from) = (self.depth, self.ops.len());
        self.session.savepoint(name)?;
        self.depth += 1;
        (0..rng.between(1, 2)).try_for_each(|_| self.step(rng))?;
        self.depth -= 1;
        if rng.percent(70) {
            self.session.roll_back(name)?;
            self.ops.push(Did::TookBack(from));
        }
        Ok(())
    }
    /// The lock to read one key with.
    fn lock(&self, rng: &mut Rng) -> Option<LockMode> {
        let share = if self.kind.locks { 60 } else { 8 };
        rng.percent(share).then(|| rng.pick(&[LockMode::Shared, LockMode::Exclusive]))
    }
    fn read(&mut self, key: Key, rng: &mut Rng) -> Result<Value, Stop> {
        let lock = self.lock(rng).filter(|_| !self.kind.read_only);
        let value = self.session.get(key, lock);
        if lock.is_some() && value == Err(Stop::Conflict) {
            self.ops.push(Did::Asked(key));
        }
        let value = value?;
        self.ops.push(Did::Read(key, version(&value), lock.is_some()));
        Ok(value)
    }
    fn write(&mut self, key: Key, value: &[u32]) -> Result<(), Stop> {
        // Before it is done: a toy may show it at once.
        self.ops.push(Did::Wrote(key, version(value)));
        self.session.put(key, value)
    }
    fn erase(&mut self, from: Key, to: Key) -> Result<(), Stop> {
        (from..to).for_each(|key| self.ops.push(Did::Erased(key, self.run.number())));
        self.session.erase(from, to)
    }
    fn register(&mut self, rng: &mut Rng) -> Result<(), Stop> {
        let key = rng.below(u64::from(REGISTERS)) as Key;
        if self.kind.read_only || rng.percent(60) {
            self.read(key, rng)?;
        }
        if self.kind.read_only || rng.percent(40) {
            return Ok(());
        }
        if rng.percent(15) {
            return self.erase(key, key + 1);
        }
        self.write(key, &[self.run.number()])
    }
    fn list(&mut self, rng: &mut Rng) -> Result<(), Stop> {
        let key = REGISTERS + rng.below(u64::from(LISTS)) as Key;
        let mut list = self.read(key, rng)?;
        if self.kind.read_only || rng.percent(50) {
            return Ok(());
        }
        // An own append is part of the same write.
        if self.ops.iter().any(|did| matches!(did, Did::Wrote(k, _) if *k == key)) {
            return Ok(());
        }
        list.push(self.run.number());
        held(&self.run.lists).insert(version(&list), list.clone());
        self.write(key, &list)
    }
    fn range(&mut self, rng: &mut Rng) -> Result<(), Stop> {
        let next = RANGES + self.run.inserted.load(SeqCst) as Key;
        let recent = |rng: &mut Rng| next.saturating_sub(rng.below(u64::from(REACH)) as Key).max(RANGES);
        if self.kind.read_only || rng.percent(60) {
            self.scan(recent(rng), next + rng.between(1, REACH as usize) as Key, rng)?;
        }
        if self.kind.read_only || rng.percent(40) {
            return Ok(());
        }
        match rng.below(8) {
            0 => {
                let key = recent(rng);
                self.erase(key, key + 1)
            }
            1 => {
                let (from, n) = (recent(rng), rng.between(2, 4) as Key);
                if rng.percent(30) {
                    return self.erase(from / GROUP * GROUP, (from / GROUP + 1) * GROUP);
                }
                self.erase(from, from + n)
            }
            _ => {
                let key = RANGES + self.run.inserted.fetch_add(1, SeqCst) as Key;
                self.write(key, &[self.run.number()])
            }
        }
    }
    fn scan(&mut self, from: Key, to: Key, rng: &mut Rng) -> Result<(), Stop> {
        let lock = (self.kind.locks && rng.percent(50))
            .then(|| rng.pick(&[LockMode::Gap, LockMode::Shared, LockMode::Exclusive]));
        let limit = if rng.percent(30) { rng.between(1, 3) } else { usize::MAX - rng.index(2) };
        let mut scan = Scan { from, to, prefix: false, backward: rng.percent(40), limit };
        if rng.percent(30) {
            let from = from / GROUP * GROUP;
            scan = Scan { from, to: from + GROUP, prefix: true, ..scan };
        }
        let seen = self.session.scan(scan, lock)?;
        let mut seen: Vec<_> = seen.iter().map(|(key, value)| (*key, version(value))).collect();
        seen.sort_unstable();
        let (mut from, mut to) = (scan.from, scan.to);
        // What it was not asked for it has not read.
        if seen.len() >= scan.limit {
            match (scan.backward, seen.first(), seen.last()) {
                (true, Some(first), _) => from = first.0,
                (false, _, Some(last)) => to = last.0 + 1,
                _ => {}
            }
        }
        self.ops.push(Did::Scanned(from, to, seen, lock.is_some()));
        Ok(())
    }
}
