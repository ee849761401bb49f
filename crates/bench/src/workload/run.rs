//! One thread's part of a workload. Knows no engine; checks every answer.
//!
//! Each thread owns a contiguous part of the keys and alone writes them, so it knows their exact versions; what another
//! thread owns is checked to be one whole value of that key, at any version.

use super::replay::Replay;
use super::txns::Tally;
use super::{Act, Pick, Workload};
use crate::engine::{Result, Session};
use crate::keys::{Keys, mix};
use crate::meter::Meter;
use crate::pick::{Rng, Zipf};
use crate::values::Values;
use std::time::Instant;

/// A key that is not there.
pub const ABSENT: u16 = 0;
/// Seeks with one cursor before it is renewed.
const SEEKS: u64 = 1000;
/// Entries of an iteration that count as one call.
const LAP: u64 = 1000;
/// Entries in each thread's queue.
const QUEUE: u64 = 100;

/// What all threads share, unchanged while they run.
#[derive(Debug)]
pub struct Plan {
    pub workload: Workload,
    pub keys: Keys,
    pub values: Values,
    /// Keys numbered below this are the database.
    pub n: u64,
    pub ops: u64,
    pub threads: u64,
    pub batch: usize,
    pub seed: u64,
    pub zipf: Option<Zipf>,
    /// Keys that are hot, in workloads with a few such.
    pub hot: u64,
    /// The largest key id of the database.
    pub last: u64,
    pub families: u64,
    /// Seconds that entries live.
    pub ttl: Option<u64>,
    pub replay: Option<Replay>,
    /// What transactions have committed.
    pub tally: Tally,
}

impl Plan {
    /// The family that holds the key of `i`.
    pub fn family(&self, i: u64) -> usize {
        (i % self.families) as usize
    }
    /// Bytes of a key and a value.
    pub fn entry_bytes(&self) -> u64 {
        (self.keys.bytes + self.values.bytes) as u64
    }
}

/// A thread: its place and what it knows of its keys.
#[derive(Debug)]
pub struct Part<'p> {
    pub(super) plan: &'p Plan,
    pub(super) t: u64,
    pub(super) rng: Rng,
    pub(super) first: u64,
    /// Versions of the keys from `first` on.
    pub(super) versions: Vec<u16>,
    /// Keys added beyond the database, numbered by `inserted_key`.
    pub(super) inserted: u64,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) scratch: Vec<u8>,
}

/// The part of `total` that thread `t` of `threads` has.
fn share(total: u64, threads: u64, t: u64) -> (u64, u64) {
    (total * t / threads, total * (t + 1) / threads)
}

impl<'p> Part<'p> {
    pub fn new(plan: &'p Plan, t: u64) -> Self {
        let (first, end) = share(plan.n, plan.threads, t);
        let version = if plan.workload.loaded { 1 } else { ABSENT };
        Part {
            plan,
            t,
            rng: Rng::new(plan.seed ^ mix(t + 1)),
            first,
            versions: vec![version; (end - first) as usize],
            inserted: 0,
            key: Vec::new(),
            value: Vec::new(),
            scratch: Vec::new(),
        }
    }
    /// What it is part of.
    pub fn plan(&self) -> &'p Plan {
        self.plan
    }
    pub(super) fn ops(&self) -> u64 {
        let (from, to) = share(self.plan.ops, self.plan.threads, self.t);
        to - from
    }
    /// A number in another thread's part moves to the same place in ours.
    fn own(&self, i: u64) -> u64 {
        self.first + i % (self.versions.len() as u64).max(1)
    }
    /// The exact version, if `i` is ours.
    fn version(&self, i: u64) -> Option<u16> {
        if !self.plan.workload.writes() {
            return Some(1);
        }
        i.checked_sub(self.first).and_then(|slot| self.versions.get(slot as usize).copied())
    }
    fn set_version(&mut self, i: u64, version: u16) {
        let slot = (i - self.first) as usize;
        self.versions[slot] = version;
    }
    /// The `k`-th key this thread inserts: numbers of threads alternate, so no two meet.
    fn inserted_key(&self, k: u64) -> u64 {
        self.plan.n + k * self.plan.threads + self.t
    }
    pub(super) fn pick(&mut self, op: u64) -> u64 {
        let n = self.plan.n;
        match (self.plan.workload.pick, &self.plan.zipf) {
            (Pick::Zipf, Some(zipf)) => zipf.scattered(&mut self.rng),
            (Pick::Latest, Some(zipf)) => {
                let back = zipf.rank(&mut self.rng);
                if back < self.inserted {
                    self.inserted_key(self.inserted - 1 - back)
                } else {
                    n - 1 - (back - self.inserted) % n
                }
            }
            (Pick::Hot, _) => mix(self.rng.below(self.plan.hot) + 1) % n,
            (Pick::InOrder, _) => self.first + op % (self.versions.len() as u64).max(1),
            _ => self.rng.below(n),
        }
    }

    /// The measured phase.
    pub fn run(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>) -> Result<()> {
        if let Some(replay) = &self.plan.replay {
            self.replay(replay, session, meter);
            return Ok(());
        }
        if self.versions.is_empty() {
            return Ok(());
        }
        match self.plan.workload.act {
            Act::Write => self.write(session, meter, false),
            Act::Bulk => self.bulk(session, meter),
            Act::Delete => self.write(session, meter, true),
            Act::Read => self.each(meter, |part, meter, op| {
                let i = part.pick(op);
                part.read(session, meter, i);
            }),
            Act::ReadView => self.in_view(session, meter)?,
            Act::ReadMissing => self.each(meter, |part, meter, op| {
                let i = part.plan.n + part.pick(op);
                part.read_missing(session, meter, i);
            }),
            Act::Seek => self.seek(session, meter)?,
            Act::Range(len) => self.each(meter, |part, meter, op| {
                let i = part.pick(op);
                part.range(session, meter, i, len);
            }),
            Act::Iterate => self.iterate(session, meter)?,
            Act::Mix { read, update, insert, scan } => {
                let below = [read, read + update, read + update + insert, read + update + insert + scan];
                self.each(meter, |part, meter, op| part.one_of(session, meter, op, below));
            }
            Act::Queue => self.each(meter, |part, meter, op| part.queue(session, meter, op)),
            Act::Series => self.series(session, meter, self.plan.ttl.unwrap_or(u64::MAX / 2)),
            Act::Txn(kind) => self.transact(kind, session, meter),
            Act::Replay => {}
        }
        Ok(())
    }

    /// Every operation, or those that there is time for.
    pub(super) fn each<'c>(
        &mut self,
        meter: &mut Meter<'c>,
        mut one: impl FnMut(&mut Self, &mut Meter<'c>, u64),
    ) {
        for op in 0..self.ops() {
            if meter.over {
                return;
            }
            one(self, meter, op);
        }
    }

    fn write(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, delete: bool) {
        let total = if self.plan.workload.pick == Pick::InOrder {
            self.ops().min(self.versions.len() as u64)
        } else {
            self.ops()
        };
        let mut op = 0;
        while op < total && !meter.over {
            let n = (total - op).min(self.plan.batch as u64);
            self.batch(session, meter, op..op + n, delete);
            op += n;
        }
    }

    fn batch(
        &mut self,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
        ops: std::ops::Range<u64>,
        delete: bool,
    ) {
        let n = ops.end - ops.start;
        let mut new = Vec::with_capacity(n as usize);
        for op in ops {
            let picked = self.pick(op);
            new.push(if self.plan.workload.pick == Pick::InOrder { picked } else { self.own(picked) });
        }
        let plan = self.plan;
        let (keys, values) = (plan.keys, plan.values);
        let (mut key, mut value) = (std::mem::take(&mut self.key), std::mem::take(&mut self.value));
        let versions = &mut self.versions;
        let first = self.first;
        meter.call(n, || {
            session.write(n as usize, &mut |sink| {
                for i in &new {
                    let slot = &mut versions[(i - first) as usize];
                    keys.write(*i, &mut key);
                    if delete {
                        *slot = ABSENT;
                        sink.delete(plan.family(*i), &key)?;
                    } else {
                        *slot = slot.wrapping_add(1).max(1);
                        sink.put(plan.family(*i), &key, values.write(*i, *slot, &mut value))?;
                    }
                }
                Ok(())
            })
        });
        meter.given += n * if delete { keys.bytes as u64 } else { plan.entry_bytes() };
        (self.key, self.value) = (key, value);
    }

    pub(super) fn read(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, i: u64) {
        let expected = if i >= self.plan.n { Some(1) } else { self.version(i) };
        let (values, scratch, family) = (self.plan.values, &mut self.scratch, self.plan.family(i));
        let key = self.plan.keys.write(i, &mut self.key);
        let mut right = None;
        meter.call(1, || {
            session.get(family, key, &mut |found| {
                right = Some(found.is_some_and(|v| values.is(v, i, expected, scratch)));
            })
        });
        meter.seen += self.plan.entry_bytes();
        if right == Some(false) {
            meter.wrong(|| format!("get of key {i} gave another value than version {expected:?}, or none"));
        }
    }

    fn read_missing(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, i: u64) {
        let family = self.plan.family(i);
        let key = self.plan.keys.write(i, &mut self.key);
        let mut found_one = false;
        meter.call(1, || session.get(family, key, &mut |found| found_one = found.is_some()));
        if found_one {
            meter.wrong(|| format!("get of key {i}, never written or deleted, gave a value"));
        }
    }

    fn seek(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>) -> Result<()> {
        let mut op = 0;
        let ops = self.ops();
        while op < ops && !meter.over {
            session.cursor(0, &mut |cursor| {
                for _ in 0..SEEKS.min(ops - op) {
                    let i = self.pick(op);
                    let expected = self.version(i);
                    let (values, scratch) = (self.plan.values, &mut self.scratch);
                    let key = self.plan.keys.write(i, &mut self.key);
                    let mut right = false;
                    let errors = meter.errors;
                    meter.call(1, || {
                        cursor.scan(key, &mut |k, v| {
                            right = k == key && values.is(v, i, expected, scratch);
                            false
                        })
                    });
                    if !right && meter.errors == errors {
                        meter
                            .wrong(|| format!("seek to key {i} found another key, another value or nothing"));
                    }
                    meter.seen += self.plan.entry_bytes();
                    op += 1;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Entries from key `i` on: the first must be it, keys ascend, every value belongs to its key, and fewer than `len` come
    /// only at the end. In ascending layout each next key is known exactly.
    fn range(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, i: u64, len: usize) {
        let plan = self.plan;
        let key = plan.keys.write(i, &mut self.key);
        let (scratch, last) = (&mut self.scratch, &mut self.value);
        let (mut count, mut right) = (0usize, true);
        let errors = meter.errors;
        last.clear();
        meter.call(1, || {
            session.cursor(0, &mut |cursor| {
                cursor.scan(key, &mut |k, v| {
                    let number = plan.keys.read(k, scratch);
                    right &= if count == 0 { k == key } else { k > &last[..] };
                    right &= number.is_some_and(|j| plan.values.is(v, j, None, scratch));
                    last.clear();
                    last.extend_from_slice(k);
                    count += 1;
                    count < len
                })
            })
        });
        meter.seen += count as u64 * plan.entry_bytes();
        if meter.errors > errors {
            return;
        }
        let ended = last.first_chunk().is_some_and(|id| u64::from_be_bytes(*id) >= plan.last);
        if !right || (count < len && !ended) {
            meter.wrong(|| format!("range of {len} from key {i}: {count} entries, or wrong ones"));
        }
    }

    /// One walk through everything, which a thousand entries at a time count as a call.
    fn iterate(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>) -> Result<()> {
        let plan = self.plan;
        let (mut count, mut sum, mut wrong) = (0u64, 0u64, 0u64);
        let (scratch, number, last) = (&mut self.scratch, &mut self.key, &mut self.value);
        last.clear();
        session.cursor(0, &mut |cursor| {
            let mut lap = Instant::now();
            cursor.scan(&[], &mut |k, v| {
                let i = plan.keys.read(k, number);
                let right = i.is_some_and(|i| plan.values.is(v, i, Some(1), scratch));
                wrong += u64::from(!right || (count > 0 && k <= &last[..]));
                sum = sum.wrapping_add(i.unwrap_or(0));
                last.clear();
                last.extend_from_slice(k);
                count += 1;
                if count.is_multiple_of(LAP) {
                    meter.lap(&mut lap, LAP);
                }
                true
            })?;
            meter.lap(&mut lap, count % LAP);
            Ok(())
        })?;
        meter.seen += count * plan.entry_bytes();
        if wrong > 0 || count != plan.n || sum != plan.n * (plan.n - 1) / 2 {
            meter.wrong(|| format!("iteration: {count} entries of {}, {wrong} wrong", plan.n));
        }
        Ok(())
    }

    fn one_of(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, op: u64, below: [u8; 4]) {
        let dice = self.rng.below(100) as u8;
        let i = self.pick(op);
        if dice < below[0] {
            self.read(session, meter, i);
        } else if dice < below[1] {
            self.update(session, meter, i, false);
        } else if dice < below[2] {
            self.insert(session, meter);
        } else if dice < below[3] {
            let len = 1 + self.rng.below(100) as usize;
            self.range(session, meter, i, len);
        } else {
            self.update(session, meter, i, true);
        }
    }

    fn update(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, i: u64, read_first: bool) {
        let i = self.own(i);
        if read_first {
            let ops = meter.ops;
            self.read(session, meter, i);
            meter.ops = ops; // the two calls are one operation
        }
        let version = self.version(i).unwrap_or(ABSENT).wrapping_add(1).max(1);
        let family = self.plan.family(i);
        let key = self.plan.keys.write(i, &mut self.key);
        let value = self.plan.values.write(i, version, &mut self.value);
        meter.write(1, || session.write(1, &mut |sink| sink.put(family, key, value)));
        meter.given += self.plan.entry_bytes();
        self.set_version(i, version);
    }

    fn insert(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>) {
        let i = self.inserted_key(self.inserted);
        let key = self.plan.keys.write(i, &mut self.key);
        let value = self.plan.values.write(i, 1, &mut self.value);
        let (errors, family) = (meter.errors, self.plan.family(i));
        meter.write(1, || session.write(1, &mut |sink| sink.put(family, key, value)));
        meter.given += self.plan.entry_bytes();
        self.inserted += u64::from(meter.errors == errors);
    }

    /// One turn of this thread's queue; its keys are ascending and its own.
    fn queue(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, op: u64) {
        let base = (self.t + 1) << 40;
        let (plan, tail) = (self.plan, base + op);
        let key = plan.keys.write(tail, &mut self.key);
        let value = plan.values.write(tail, 1, &mut self.value);
        let head = plan.keys.write(base + op.saturating_sub(QUEUE), &mut self.scratch).to_vec();
        let mut right = op < QUEUE;
        meter.call(1, || {
            session.write(1, &mut |sink| sink.put(0, key, value))?;
            if op < QUEUE {
                return Ok(());
            }
            let start = base.to_be_bytes();
            session.cursor(0, &mut |cursor| {
                cursor.scan(&start, &mut |k, _| {
                    right = k == &head[..];
                    false
                })
            })?;
            session.write(1, &mut |sink| sink.delete(0, &head))
        });
        meter.given += plan.entry_bytes() + plan.keys.bytes as u64;
        if !right {
            meter.wrong(|| format!("the head of the queue is not entry {}", op - QUEUE));
        }
    }

    /// Bytes of the keys and values that this thread left in the database.
    pub fn live_bytes(&self) -> u64 {
        match (&self.plan.replay, self.plan.workload.act) {
            (Some(replay), _) => return if self.t == 0 { replay.live().1 } else { 0 },
            (_, Act::Series | Act::Txn(_)) => return 0,
            _ => {}
        }
        let live = self.versions.iter().filter(|v| **v != ABSENT).count() as u64 + self.inserted;
        live * self.plan.entry_bytes()
    }

    /// After reopening: a sample of this thread's keys must be as it left them.
    pub fn check(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, samples: u64) {
        if let Some(replay) = &self.plan.replay {
            return self.recheck(replay, session, meter, samples);
        }
        if matches!(self.plan.workload.act, Act::Queue | Act::Series | Act::Txn(_)) {
            return;
        }
        for _ in 0..samples.min(self.versions.len() as u64) {
            let i = self.first + self.rng.below(self.versions.len() as u64);
            match self.versions[(i - self.first) as usize] {
                ABSENT => self.read_missing(session, meter, i),
                _ => self.read(session, meter, i),
            }
        }
        for k in 0..self.inserted.min(samples) {
            let i = self.inserted_key(self.inserted - 1 - k);
            self.read(session, meter, i);
        }
    }
}
