//! What clients do: transactions over registers, appended lists and ranges that others insert into, each with few keys and many
//! rivals.

use super::history::{Did, History, Key, RANGES, Record};
use super::store::{Store, Value, version};
use crate::rng::Rng;
use crate::runner::held;
use perigee::Isolation;
use perigee::env::Env;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Registers, then lists, then keys that are inserted once.
const REGISTERS: Key = 6;
const LISTS: Key = RANGES - REGISTERS;
/// Ranges reach so far at first; beyond there is always something to insert.
const REACH: Key = 12;

/// A run in the making.
pub struct Run {
    /// What is examined.
    pub store: Box<dyn Store>,
    /// The level of its transactions.
    pub level: Isolation,
    env: Env,
    clock: AtomicU64,
    versions: AtomicU32,
    inserted: AtomicU32,
    records: Mutex<Vec<Record>>,
    lists: Mutex<BTreeMap<u32, Value>>,
    wrong: Mutex<Option<String>>,
}

/// How a run is made.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Clients at the same time.
    pub actors: u64,
    /// Transactions of all together.
    pub txns: u64,
    /// Longest pause between two operations, in microseconds.
    pub pause_us: u64,
    /// Chances of an operation to be about registers, lists, ranges.
    pub weights: [u32; 3],
}

impl Plan {
    /// A random one.
    pub fn random(rng: &mut Rng, txns: u64) -> Plan {
        let weights = rng.pick(&[[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [2, 1, 2], [1, 0, 2]]);
        Plan { actors: rng.between(2, 6) as u64, txns, pause_us: rng.between(0, 20) as u64, weights }
    }
}

impl Run {
    /// Nothing done yet.
    pub fn new(store: Box<dyn Store>, level: Isolation, env: Env) -> Run {
        Run {
            store,
            level,
            env,
            clock: AtomicU64::new(1),
            versions: AtomicU32::new(1),
            inserted: AtomicU32::new(0),
            records: Mutex::default(),
            lists: Mutex::default(),
            wrong: Mutex::default(),
        }
    }

    /// Lets the clients work, and returns what they saw.
    pub fn perform(run: &Arc<Run>, plan: Plan, rng: &mut Rng) -> Result<History, String> {
        let mut joins = Vec::new();
        for actor in 0..plan.actors {
            let (client, seed) = (Arc::clone(run), rng.next());
            let mine = plan.txns / plan.actors + u64::from(actor < plan.txns % plan.actors);
            let body = Box::new(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..mine {
                    if let Err(e) = client.one(&plan, &mut rng) {
                        held(&client.wrong).get_or_insert(e);
                        return;
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
        Ok(History {
            records: std::mem::take(&mut *held(&run.records)),
            order: run.store.order(),
            lists: std::mem::take(&mut *held(&run.lists)),
            end: run.store.end()?,
        })
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }
    fn number(&self) -> u32 {
        self.versions.fetch_add(1, SeqCst)
    }
    fn pause(&self, plan: &Plan, rng: &mut Rng) {
        if plan.pause_us > 0 && rng.percent(60) {
            self.env.clock.sleep_us(rng.below(plan.pause_us));
        }
    }

    fn one(&self, plan: &Plan, rng: &mut Rng) -> Result<(), String> {
        match rng.below(40) {
            0 => return self.store.maintain(rng.next()),
            1 | 2 if plan.weights[0] > 0 => return self.plain(rng),
            _ => {}
        }
        let read_only = rng.percent(15);
        let began = self.tick();
        let mut txn =
            Transaction { run: self, session: self.store.begin(self.level, read_only)?, ops: Vec::new() };
        let mut goes_on = true;
        for _ in 0..rng.between(1, 5) {
            self.pause(plan, rng);
            goes_on = match rng.weighted(&plan.weights) {
                0 => txn.register(rng, read_only)?,
                1 => txn.list(rng, read_only)?,
                _ => txn.range(rng, read_only)?,
            };
            if !goes_on {
                break;
            }
        }
        self.pause(plan, rng);
        let Transaction { session, ops, .. } = txn;
        let abandoned = !goes_on || rng.percent(5);
        let committed = !abandoned && session.commit()?;
        held(&self.records).push(Record { ops, committed, span: (began, self.tick()) });
        Ok(())
    }

    /// A batch without a transaction.
    fn plain(&self, rng: &mut Rng) -> Result<(), String> {
        let began = self.tick();
        let (a, b) = (rng.below(u64::from(REGISTERS)) as Key, rng.below(u64::from(REGISTERS)) as Key);
        let mut all = vec![(a, vec![self.number()])];
        if a != b {
            all.push((b, vec![self.number()]));
        }
        self.store.write(&all)?;
        let ops = all.iter().map(|(key, value)| Did::Wrote(*key, version(value))).collect();
        held(&self.records).push(Record { ops, committed: true, span: (began, self.tick()) });
        Ok(())
    }
}

struct Transaction<'a> {
    run: &'a Run,
    session: Box<dyn super::store::Session + 'a>,
    ops: Vec<Did>,
}

/// Each says whether the transaction goes on.
impl Transaction<'_> {
    fn read(&mut self, key: Key) -> Result<Option<Value>, String> {
        let value = self.session.get(key)?;
        if let Some(value) = &value {
            self.ops.push(Did::Read(key, version(value)));
        }
        Ok(value)
    }
    fn write(&mut self, key: Key, value: &[u32]) -> Result<bool, String> {
        // Before it is done: a toy may show it at once.
        self.ops.push(Did::Wrote(key, version(value)));
        self.session.put(key, value)
    }
    fn register(&mut self, rng: &mut Rng, read_only: bool) -> Result<bool, String> {
        let key = rng.below(u64::from(REGISTERS)) as Key;
        if (read_only || rng.percent(60)) && self.read(key)?.is_none() {
            return Ok(false);
        }
        if read_only || rng.percent(40) {
            return Ok(true);
        }
        let number = self.run.number();
        self.write(key, &[number])
    }
    fn list(&mut self, rng: &mut Rng, read_only: bool) -> Result<bool, String> {
        let key = REGISTERS + rng.below(u64::from(LISTS)) as Key;
        let Some(mut list) = self.read(key)? else { return Ok(false) };
        if read_only || rng.percent(50) {
            return Ok(true);
        }
        // An own append is part of the same write.
        if self.ops.iter().any(|did| matches!(did, Did::Wrote(k, _) if *k == key)) {
            return Ok(true);
        }
        list.push(self.run.number());
        held(&self.run.lists).insert(version(&list), list.clone());
        self.write(key, &list)
    }
    fn range(&mut self, rng: &mut Rng, read_only: bool) -> Result<bool, String> {
        let next = RANGES + self.run.inserted.load(SeqCst) as Key;
        let from = next.saturating_sub(rng.below(u64::from(REACH)) as Key).max(RANGES);
        let to = next + rng.between(1, REACH as usize) as Key;
        if read_only || rng.percent(60) {
            let Some(seen) = self.session.scan(from, to, rng.percent(40))? else { return Ok(false) };
            let mut seen: Vec<_> = seen.iter().map(|(key, value)| (*key, version(value))).collect();
            seen.sort_unstable();
            self.ops.push(Did::Scanned(from, to, seen));
        }
        if read_only || rng.percent(40) {
            return Ok(true);
        }
        let key = RANGES + self.run.inserted.fetch_add(1, SeqCst) as Key;
        let number = self.run.number();
        self.write(key, &[number])
    }
}
