//! One thread's part of a workload. Works with any engine and checks every answer.
//!
//! Each thread owns a contiguous part of the keys and is their only writer, so it knows their exact
//! versions. A key of another thread must hold one whole value of that key, at any version.

use super::replay::TraceReplay;
use super::txns::CommittedSums;
use super::{KeyDistribution, OpKind, Workload};
use crate::engine::{Result, Session};
use crate::keys::{KeyFormat, mix};
use crate::meter::Meter;
use crate::random::{Rng, Zipf};
use crate::values::ValueFormat;
use std::time::Instant;

/// Version of a key that is absent.
pub const ABSENT: u16 = 0;
/// Number of seeks with one cursor before it is renewed.
const SEEKS_PER_CURSOR: u64 = 1000;
/// Number of iterated entries that count as one call.
const ENTRIES_PER_CALL: u64 = 1000;
/// Length of each thread's queue.
const QUEUE_LEN: u64 = 100;

/// Shared by all threads and unchanged while they run.
#[derive(Debug)]
pub struct WorkloadPlan {
    pub workload: Workload,
    pub keys: KeyFormat,
    pub values: ValueFormat,
    /// Keys with numbers below this form the database.
    pub n: u64,
    pub ops: u64,
    pub threads: u64,
    pub batch: usize,
    pub seed: u64,
    pub zipf: Option<Zipf>,
    /// Number of hot keys, in workloads that have a few.
    pub hot_keys: u64,
    /// Largest key id of the database.
    pub last_key_id: u64,
    pub families: u64,
    /// Time to live of entries, in seconds.
    pub ttl: Option<u64>,
    pub replay: Option<TraceReplay>,
    /// Sums over what transactions have committed.
    pub committed: CommittedSums,
}

impl WorkloadPlan {
    /// Returns the family of the key of `i`.
    pub fn family(&self, i: u64) -> usize {
        (i % self.families) as usize
    }
    /// Returns the bytes of a key and a value.
    pub fn entry_bytes(&self) -> u64 {
        (self.keys.bytes + self.values.bytes) as u64
    }
}

/// State of one thread, including what it knows of its keys.
#[derive(Debug)]
pub struct WorkerThread<'p> {
    pub(super) plan: &'p WorkloadPlan,
    pub(super) t: u64,
    pub(super) rng: Rng,
    pub(super) first_key: u64,
    /// Versions of the keys from `first` on.
    pub(super) versions: Vec<u16>,
    /// Number of keys inserted beyond the database, numbered by `inserted_key`.
    pub(super) inserted: u64,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) scratch: Vec<u8>,
}

/// Returns the part of `total` that thread `t` of `threads` owns.
fn partition(total: u64, threads: u64, t: u64) -> (u64, u64) {
    (total * t / threads, total * (t + 1) / threads)
}

impl<'p> WorkerThread<'p> {
    pub fn new(plan: &'p WorkloadPlan, t: u64) -> Self {
        let (first, end) = partition(plan.n, plan.threads, t);
        let version = if plan.workload.preloaded { 1 } else { ABSENT };
        WorkerThread {
            plan,
            t,
            rng: Rng::new(plan.seed ^ mix(t + 1)),
            first_key: first,
            versions: vec![version; (end - first) as usize],
            inserted: 0,
            key: Vec::new(),
            value: Vec::new(),
            scratch: Vec::new(),
        }
    }
    /// Returns the plan shared by all threads.
    pub fn plan(&self) -> &'p WorkloadPlan {
        self.plan
    }
    pub(super) fn ops(&self) -> u64 {
        let (from, to) = partition(self.plan.ops, self.plan.threads, self.t);
        to - from
    }
    /// Maps a number in another thread's part to the same position in this thread's part.
    fn own_key(&self, i: u64) -> u64 {
        self.first_key + i % (self.versions.len() as u64).max(1)
    }
    /// Returns the exact version, if this thread owns `i`.
    fn known_version(&self, i: u64) -> Option<u16> {
        if !self.plan.workload.is_writing() {
            return Some(1);
        }
        i.checked_sub(self.first_key).and_then(|slot| self.versions.get(slot as usize).copied())
    }
    fn set_version(&mut self, i: u64, version: u16) {
        let slot = (i - self.first_key) as usize;
        self.versions[slot] = version;
    }
    /// Returns the `k`-th key that this thread inserts. The numbers of the threads interleave, so
    /// no two coincide.
    fn inserted_key(&self, k: u64) -> u64 {
        self.plan.n + k * self.plan.threads + self.t
    }
    pub(super) fn pick_key(&mut self, op: u64) -> u64 {
        let n = self.plan.n;
        match (self.plan.workload.distribution, &self.plan.zipf) {
            (KeyDistribution::Zipf, Some(zipf)) => zipf.scattered_rank(&mut self.rng),
            (KeyDistribution::Latest, Some(zipf)) => {
                let back = zipf.rank(&mut self.rng);
                if back < self.inserted {
                    self.inserted_key(self.inserted - 1 - back)
                } else {
                    n - 1 - (back - self.inserted) % n
                }
            }
            (KeyDistribution::Hot, _) => mix(self.rng.below(self.plan.hot_keys) + 1) % n,
            (KeyDistribution::InOrder, _) => {
                self.first_key + op % (self.versions.len() as u64).max(1)
            }
            _ => self.rng.below(n),
        }
    }

    /// Runs the measured phase.
    pub fn run(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>) -> Result<()> {
        if let Some(replay) = &self.plan.replay {
            self.replay(replay, session, meter);
            return Ok(());
        }
        if self.versions.is_empty() {
            return Ok(());
        }
        match self.plan.workload.op_kind {
            OpKind::Write => self.write(session, meter, false),
            OpKind::Bulk => self.bulk_load(session, meter),
            OpKind::Delete => self.write(session, meter, true),
            OpKind::Read => self.for_each_op(meter, |part, meter, op| {
                let i = part.pick_key(op);
                part.read(session, meter, i);
            }),
            OpKind::ReadSharedView => self.read_in_view(session, meter)?,
            OpKind::ReadMissing => self.for_each_op(meter, |part, meter, op| {
                let i = part.plan.n + part.pick_key(op);
                part.read_missing(session, meter, i);
            }),
            OpKind::Seek => self.seek(session, meter)?,
            OpKind::Range(len) => self.for_each_op(meter, |part, meter, op| {
                let i = part.pick_key(op);
                part.range(session, meter, i, len);
            }),
            OpKind::Iterate => self.iterate(session, meter)?,
            OpKind::Mix { read, update, insert, scan } => {
                let below =
                    [read, read + update, read + update + insert, read + update + insert + scan];
                self.for_each_op(meter, |part, meter, op| part.mixed_op(session, meter, op, below));
            }
            OpKind::Queue => {
                self.for_each_op(meter, |part, meter, op| part.queue_op(session, meter, op))
            }
            OpKind::Series => {
                self.run_series(session, meter, self.plan.ttl.unwrap_or(u64::MAX / 2))
            }
            OpKind::Txn(kind) => self.run_txns(kind, session, meter),
            OpKind::Replay => {}
        }
        Ok(())
    }

    /// Runs `call` for every operation, or until the time limit.
    pub(super) fn for_each_op<'c>(
        &mut self,
        meter: &mut Meter<'c>,
        mut one: impl FnMut(&mut Self, &mut Meter<'c>, u64),
    ) {
        for op in 0..self.ops() {
            if meter.time_up {
                return;
            }
            one(self, meter, op);
        }
    }

    fn write(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, delete: bool) {
        let total = if self.plan.workload.distribution == KeyDistribution::InOrder {
            self.ops().min(self.versions.len() as u64)
        } else {
            self.ops()
        };
        let mut op = 0;
        while op < total && !meter.time_up {
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
            let picked = self.pick_key(op);
            new.push(if self.plan.workload.distribution == KeyDistribution::InOrder {
                picked
            } else {
                self.own_key(picked)
            });
        }
        let plan = self.plan;
        let (keys, values) = (plan.keys, plan.values);
        let (mut key, mut value) = (std::mem::take(&mut self.key), std::mem::take(&mut self.value));
        let versions = &mut self.versions;
        let first = self.first_key;
        meter.time_call(n, || {
            session.write(n as usize, &mut |sink| {
                for i in &new {
                    let slot = &mut versions[(i - first) as usize];
                    keys.write_key(*i, &mut key);
                    if delete {
                        *slot = ABSENT;
                        sink.delete(plan.family(*i), &key)?;
                    } else {
                        *slot = slot.wrapping_add(1).max(1);
                        sink.put(plan.family(*i), &key, values.write_value(*i, *slot, &mut value))?;
                    }
                }
                Ok(())
            })
        });
        meter.written_bytes += n * if delete { keys.bytes as u64 } else { plan.entry_bytes() };
        (self.key, self.value) = (key, value);
    }

    pub(super) fn read(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, i: u64) {
        let expected = if i >= self.plan.n { Some(1) } else { self.known_version(i) };
        let (values, scratch, family) = (self.plan.values, &mut self.scratch, self.plan.family(i));
        let key = self.plan.keys.write_key(i, &mut self.key);
        let mut right = None;
        meter.time_call(1, || {
            session.get(family, key, &mut |found| {
                right = Some(found.is_some_and(|v| values.matches(v, i, expected, scratch)));
            })
        });
        meter.read_bytes += self.plan.entry_bytes();
        if right == Some(false) {
            meter.record_wrong(|| {
                format!("get of key {i} returned no value or another one than version {expected:?}")
            });
        }
    }

    fn read_missing(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, i: u64) {
        let family = self.plan.family(i);
        let key = self.plan.keys.write_key(i, &mut self.key);
        let mut found_one = false;
        meter.time_call(1, || session.get(family, key, &mut |found| found_one = found.is_some()));
        if found_one {
            meter.record_wrong(|| format!("get of key {i}, which is absent, returned a value"));
        }
    }

    fn seek(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>) -> Result<()> {
        let mut op = 0;
        let ops = self.ops();
        while op < ops && !meter.time_up {
            session.with_cursor(0, &mut |cursor| {
                for _ in 0..SEEKS_PER_CURSOR.min(ops - op) {
                    let i = self.pick_key(op);
                    let expected = self.known_version(i);
                    let (values, scratch) = (self.plan.values, &mut self.scratch);
                    let key = self.plan.keys.write_key(i, &mut self.key);
                    let mut right = false;
                    let errors = meter.errors;
                    meter.time_call(1, || {
                        cursor.scan(key, &mut |k, v| {
                            right = k == key && values.matches(v, i, expected, scratch);
                            false
                        })
                    });
                    if !right && meter.errors == errors {
                        meter.record_wrong(|| {
                            format!("seek to key {i} found another key, another value or nothing")
                        });
                    }
                    meter.read_bytes += self.plan.entry_bytes();
                    op += 1;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Reads entries from key `i` on. The first must be that key, keys must ascend, every value
    /// must belong to its key, and fewer than `len` entries are allowed only at the end. In
    /// ascending layout each next key is known exactly.
    fn range(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, i: u64, len: usize) {
        let plan = self.plan;
        let key = plan.keys.write_key(i, &mut self.key);
        let (scratch, last) = (&mut self.scratch, &mut self.value);
        let (mut count, mut right) = (0usize, true);
        let errors = meter.errors;
        last.clear();
        meter.time_call(1, || {
            session.with_cursor(0, &mut |cursor| {
                cursor.scan(key, &mut |k, v| {
                    let number = plan.keys.parse_key(k, scratch);
                    right &= if count == 0 { k == key } else { k > &last[..] };
                    right &= number.is_some_and(|j| plan.values.matches(v, j, None, scratch));
                    last.clear();
                    last.extend_from_slice(k);
                    count += 1;
                    count < len
                })
            })
        });
        meter.read_bytes += count as u64 * plan.entry_bytes();
        if meter.errors > errors {
            return;
        }
        let ended =
            last.first_chunk().is_some_and(|id| u64::from_be_bytes(*id) >= plan.last_key_id);
        if !right || (count < len && !ended) {
            meter.record_wrong(|| {
                format!("range of {len} from key {i}: {count} entries, or wrong ones")
            });
        }
    }

    /// Reads everything in order; a thousand entries count as one call.
    fn iterate(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>) -> Result<()> {
        let plan = self.plan;
        let (mut count, mut sum, mut wrong) = (0u64, 0u64, 0u64);
        let (scratch, number, last) = (&mut self.scratch, &mut self.key, &mut self.value);
        last.clear();
        session.with_cursor(0, &mut |cursor| {
            let mut lap = Instant::now();
            cursor.scan(&[], &mut |k, v| {
                let i = plan.keys.parse_key(k, number);
                let right = i.is_some_and(|i| plan.values.matches(v, i, Some(1), scratch));
                wrong += u64::from(!right || (count > 0 && k <= &last[..]));
                sum = sum.wrapping_add(i.unwrap_or(0));
                last.clear();
                last.extend_from_slice(k);
                count += 1;
                if count.is_multiple_of(ENTRIES_PER_CALL) {
                    meter.record_since(&mut lap, ENTRIES_PER_CALL);
                }
                true
            })?;
            meter.record_since(&mut lap, count % ENTRIES_PER_CALL);
            Ok(())
        })?;
        meter.read_bytes += count * plan.entry_bytes();
        if wrong > 0 || count != plan.n || sum != plan.n * (plan.n - 1) / 2 {
            meter.record_wrong(|| {
                format!("iteration: {count} entries of {}, {wrong} wrong", plan.n)
            });
        }
        Ok(())
    }

    fn mixed_op(
        &mut self,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
        op: u64,
        below: [u8; 4],
    ) {
        let dice = self.rng.below(100) as u8;
        let i = self.pick_key(op);
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

    fn update(
        &mut self,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
        i: u64,
        read_first: bool,
    ) {
        let i = self.own_key(i);
        if read_first {
            let ops = meter.ops;
            self.read(session, meter, i);
            meter.ops = ops; // the two calls are one operation
        }
        let version = self.known_version(i).unwrap_or(ABSENT).wrapping_add(1).max(1);
        let family = self.plan.family(i);
        let key = self.plan.keys.write_key(i, &mut self.key);
        let value = self.plan.values.write_value(i, version, &mut self.value);
        meter.time_write(1, || session.write(1, &mut |sink| sink.put(family, key, value)));
        meter.written_bytes += self.plan.entry_bytes();
        self.set_version(i, version);
    }

    fn insert(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>) {
        let i = self.inserted_key(self.inserted);
        let key = self.plan.keys.write_key(i, &mut self.key);
        let value = self.plan.values.write_value(i, 1, &mut self.value);
        let (errors, family) = (meter.errors, self.plan.family(i));
        meter.time_write(1, || session.write(1, &mut |sink| sink.put(family, key, value)));
        meter.written_bytes += self.plan.entry_bytes();
        self.inserted += u64::from(meter.errors == errors);
    }

    /// Runs one step of this thread's queue, whose keys are ascending and used by no other thread.
    fn queue_op(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, op: u64) {
        let base = (self.t + 1) << 40;
        let (plan, tail) = (self.plan, base + op);
        let key = plan.keys.write_key(tail, &mut self.key);
        let value = plan.values.write_value(tail, 1, &mut self.value);
        let head =
            plan.keys.write_key(base + op.saturating_sub(QUEUE_LEN), &mut self.scratch).to_vec();
        let mut right = op < QUEUE_LEN;
        meter.time_call(1, || {
            session.write(1, &mut |sink| sink.put(0, key, value))?;
            if op < QUEUE_LEN {
                return Ok(());
            }
            let start = base.to_be_bytes();
            session.with_cursor(0, &mut |cursor| {
                cursor.scan(&start, &mut |k, _| {
                    right = k == &head[..];
                    false
                })
            })?;
            session.write(1, &mut |sink| sink.delete(0, &head))
        });
        meter.written_bytes += plan.entry_bytes() + plan.keys.bytes as u64;
        if !right {
            meter.record_wrong(|| format!("the head of the queue is not entry {}", op - QUEUE_LEN));
        }
    }

    /// Returns the bytes of the keys and values that this thread left in the database.
    pub fn live_bytes(&self) -> u64 {
        match (&self.plan.replay, self.plan.workload.op_kind) {
            (Some(replay), _) => return if self.t == 0 { replay.live_totals().1 } else { 0 },
            (_, OpKind::Series | OpKind::Txn(_)) => return 0,
            _ => {}
        }
        let live = self.versions.iter().filter(|v| **v != ABSENT).count() as u64 + self.inserted;
        live * self.plan.entry_bytes()
    }

    /// Checks, after reopening, that a sample of this thread's keys is as it left them.
    pub fn check_sample(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, samples: u64) {
        if let Some(replay) = &self.plan.replay {
            return self.check_final_entries(replay, session, meter, samples);
        }
        if matches!(self.plan.workload.op_kind, OpKind::Queue | OpKind::Series | OpKind::Txn(_)) {
            return;
        }
        for _ in 0..samples.min(self.versions.len() as u64) {
            let i = self.first_key + self.rng.below(self.versions.len() as u64);
            match self.versions[(i - self.first_key) as usize] {
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
