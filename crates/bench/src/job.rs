//! One repetition of one workload on one engine, in a process of its own: load, measure, settle, close, reopen, check; then,
//! on the same database, of the workloads that only read.
//!
//! Knows neither which engine nor which workload it is.

use crate::engine::{Engine, Expiry, Open, Result};
use crate::engines::{self, recorder};
use crate::keys::{KeyChoice, Keys, Order};
use crate::meter::{Counter, Meter, Pace, histogram};
use crate::pick::Zipf;
use crate::record::{Record, Tail};
use crate::settings::{Level, Settings};
use crate::sys;
use crate::trace;
use crate::values::Values;
use crate::watch::{Amplification, Seen};
use crate::workload::run::{Part, Plan};
use crate::workload::txns::{self, Tally};
use crate::workload::{self, Act, Layout, Pick, Replay, Workload};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes of cache for each hot key: its block, however large an engine makes it, within reason.
const HOT: u64 = 16 << 10;
/// Keys that each thread compares after reopening.
const CHECKED: u64 = 2000;

/// What the parent process asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The suite that it belongs to, or nothing.
    pub suite: String,
    pub engine: String,
    pub workload: String,
    /// Reads of what the workload left, after it.
    pub then: Vec<Step>,
    pub rep: u32,
    pub settings: Settings,
}

/// A workload that only reads, on the database that another left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    pub workload: String,
    /// Operations, if not the workload's own number.
    pub ops: Option<u64>,
}

impl Job {
    /// A record of one of its workloads, with nothing in it yet.
    pub fn blank(&self, workload: &str) -> Record {
        Record {
            suite: self.suite.clone(),
            engine: self.engine.clone(),
            workload: workload.to_owned(),
            rep: self.rep,
            threads: self.settings.threads,
            ..Record::default()
        }
    }
    /// Where the process `pid` keeps the database.
    pub fn dir(&self, pid: u32) -> std::path::PathBuf {
        self.settings.dir.join(format!("{}-{}-{pid}", self.engine, self.workload))
    }
}

fn plan(workload: &Workload, s: &Settings) -> Result<Plan> {
    let mut workload = workload.with(s.pattern);
    if let (Act::Range(_), Some(entries), false) = (workload.act, s.range, workload.giant) {
        workload.act = Act::Range(entries.max(1));
    }
    let order = match (workload.layout, s.keys) {
        (Layout::Sequential, _) => Order::Ascending,
        (Layout::Timestamp, _) => Order::Timestamp,
        (Layout::Reverse, _) => Order::Descending,
        (Layout::Scattered, KeyChoice::Counter) => Order::Swapped,
        (Layout::Scattered, KeyChoice::Random) => Order::Mixed,
    };
    let keys = Keys { order, bytes: s.key_bytes.unwrap_or(workload.key_bytes).max(8) };
    let value_bytes = match workload.giant {
        true => usize::try_from(s.giant_bytes)?,
        false => s.value_bytes.unwrap_or(workload.value_bytes),
    };
    let replay = match (workload.act, &s.trace) {
        (Act::Replay, Some(file)) => Some(Replay::new(&trace::read(file)?, s.values)?),
        (Act::Replay, None) => return Err("the workload `replay` needs --trace FILE".into()),
        _ => None,
    };
    let n = if replay.is_some() { 0 } else { (workload.keys)(s.num).max(1) };
    Ok(Plan {
        workload,
        keys,
        values: Values { choice: s.values, bytes: value_bytes.max(8) },
        n,
        ops: s.ops.unwrap_or_else(|| (workload.ops)(s.num)).max(1),
        threads: if replay.is_some() { 1 } else { s.threads.max(1) as u64 },
        batch: if workload.batch > 1 { s.batch.unwrap_or(workload.batch).max(1) } else { 1 },
        seed: s.seed,
        hot: (s.cache / HOT).clamp(1, n.max(1)),
        zipf: matches!(workload.pick, Pick::Zipf | Pick::Latest).then(|| Zipf::new(n)),
        last: (0..n).map(|i| keys.id(i)).max().unwrap_or(0),
        families: match (&replay, workload.act) {
            (Some(replay), _) => replay.families as u64,
            (None, Act::Txn(kind)) => kind.families(),
            (None, _) if workload.families => s.many_families.max(1) as u64,
            (None, _) => 1,
        },
        ttl: (workload.act == Act::Series).then_some(s.ttl_seconds),
        replay,
        tally: Tally::default(),
    })
}

/// Fills the database with every key at version 1, or with what a trace begins from, and lets it settle.
fn load(engine: &dyn Engine, plan: &Plan) -> Result<()> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let batch = (16_000_000 / plan.entry_bytes()).clamp(1, 1000);
    engine.session(&mut |session| {
        if let Some(replay) = &plan.replay {
            return replay.load(session);
        }
        if let Act::Txn(kind) = plan.workload.act {
            return txns::load(kind, plan, session);
        }
        let mut i = 0;
        while i < plan.n {
            let end = plan.n.min(i + batch);
            session.write((end - i) as usize, &mut |sink| {
                for j in i..end {
                    let value = plan.values.write(j, 1, &mut value);
                    sink.put(plan.family(j), plan.keys.write(j, &mut key), value)?;
                }
                Ok(())
            })?;
            i = end;
        }
        Ok(())
    })?;
    engine.settle()
}

/// Why the machine cannot run this: giant values need memory for copies, and everything needs disk.
fn lacking(plan: &Plan, dir: &Path) -> Option<String> {
    const COPIES: u64 = 6;
    let value = plan.values.bytes as u64;
    let giant = plan.workload.giant && value >= 1 << 20;
    let memory = if giant { plan.threads * COPIES * value } else { 0 };
    let disk = 3 * plan.n * plan.entry_bytes();
    let (have, free) = (sys::available_memory(), sys::free_disk(dir));
    let say = |what: &str, need: u64, have: u64| {
        Some(format!("needs {} MB of {what}, {} MB are free", need >> 20, have >> 20))
    };
    match () {
        () if have < memory => say("memory", memory, have),
        () if free < disk => say("disk", disk, free),
        () => None,
    }
}

/// Why the engine cannot run this.
fn unable(engine: &dyn Engine, plan: &Plan, level: Option<Level>) -> Option<String> {
    if plan.ttl.is_some() && engine.expiry() == Expiry::None {
        return Some("the engine has no time to live".into());
    }
    if let Some(level) = level.filter(|level| !engine.transactions(*level)) {
        return Some(format!("the engine has no transactions of this kind ({level:?})"));
    }
    let (most, need) = (engine.largest_value(), plan.values.bytes as u64);
    (need > most).then(|| format!("the engine takes values of {most} bytes at most, not {need}"))
}

/// Runs `work` of every part on a thread of its own, in a session of its own. All begin together, after `ready` has
/// returned, which is called when every thread has its session and has done what `before` says.
fn on_threads<'p, 'c>(
    engine: &dyn Engine,
    parts: &mut [Part<'p>],
    counters: &'c [Counter],
    pace: Pace,
    (before, work): (Work<'_, 'p, 'c>, Work<'_, 'p, 'c>),
    ready: impl FnOnce(),
) -> Vec<Meter<'c>> {
    let gate = &Barrier::new(parts.len() + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (parts.iter_mut().zip(counters))
            .map(|(part, counter)| {
                scope.spawn(move || {
                    let mut meter = Meter::new(counter, pace);
                    let mut there = false;
                    let done = engine.session(&mut |session| {
                        before(part, session, &mut meter)?;
                        there = true;
                        gate.wait();
                        gate.wait();
                        meter.begin(pace);
                        work(part, session, &mut meter)
                    });
                    if !there {
                        gate.wait();
                        gate.wait();
                    }
                    if let Err(e) = done {
                        meter.error(&e.to_string());
                    }
                    meter
                })
            })
            .collect();
        gate.wait();
        ready();
        gate.wait();
        threads.into_iter().map(|t| t.join().expect("a measuring thread panicked")).collect()
    })
}

/// What a thread does in its session.
type Work<'w, 'p, 'c> =
    &'w (dyn Fn(&mut Part<'p>, &mut dyn crate::engine::Session, &mut Meter<'c>) -> Result<()> + Sync);

/// Runs the job in this process, and hands over each record as it is made.
pub fn run(job: &Job, tell: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
    let limited = job.settings.memory.map(|limit| match sys::limit_memory(limit) {
        Ok(group) => format!("memory limited to {limit} bytes with page cache by {group}"),
        Err(why) => format!("memory NOT limited, cgroups are not permitted here: {why}"),
    });
    let dir = job.dir(std::process::id());
    std::fs::create_dir_all(&job.settings.dir)?;
    let _ = std::fs::remove_dir_all(&dir);
    let first = Step { workload: job.workload.clone(), ops: job.settings.ops };
    let mut filled = Ok(false);
    for at in std::iter::once(&first).chain(&job.then) {
        let mut record = job.blank(&at.workload);
        record.notes.extend(limited.clone());
        let done = match &filled {
            Ok(filled) => step(job, at, &dir, *filled, &mut record),
            Err(why) => {
                record.skipped = Some(String::clone(why));
                Ok(())
            }
        };
        if let Err(e) = done {
            let _ = std::fs::remove_dir_all(&dir);
            return Err(e);
        }
        let whole =
            record.skipped.is_none() && record.errors + record.wrong == 0 && record.cut_short.is_none();
        if filled == Ok(false) {
            filled = if whole { Ok(true) } else { Err(format!("{} did not fill the database", at.workload)) };
        }
        tell(record)?;
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}

/// One workload of a job, on a database that is `filled` already or that it fills itself.
fn step(job: &Job, at: &Step, dir: &Path, filled: bool, record: &mut Record) -> Result<()> {
    let workload = workload::find(&at.workload).ok_or("no such workload")?;
    let open = engines::find(&job.engine).ok_or("no such engine")?.open;
    if filled && (workload.writes() || !workload.loaded) {
        return Err(format!("{} does not only read", workload.name).into());
    }
    let mut settings = Settings { ops: at.ops, ..job.settings.clone() };
    settings.sync = workload.sync.unwrap_or(settings.sync);
    record.host = sys::host(&settings.dir);
    let plan = plan(workload, &settings)?;
    settings.shape.families = (plan.families > 1).then_some(plan.families as usize);
    settings.shape.ttl = plan.ttl;
    settings.shape.level = matches!(plan.workload.act, Act::Txn(_)).then_some(settings.level);
    record.skipped = if filled { None } else { lacking(&plan, &settings.dir) };
    if record.skipped.is_none() {
        measure(open, dir, &settings, &plan, filled, record)?;
    }
    // Facets of the report are of the whole job: what one step did less of is in its record all the same.
    record.settings = Some(Settings { ops: job.settings.ops, ..settings });
    Ok(())
}

fn measure(
    open: Open,
    dir: &Path,
    s: &Settings,
    plan: &Plan,
    filled: bool,
    record: &mut Record,
) -> Result<()> {
    let mut engine = open(dir, s)?;
    record.skipped = unable(&*engine, plan, s.shape.level);
    if record.skipped.is_some() {
        record.options = engine.told();
        record.engine_version = engine.version();
        return engine.close();
    }
    if let Some(file) = &s.shape.record {
        engine = recorder::record(engine, trace::Writer::create(file)?, plan.workload.loaded);
    }
    if plan.workload.loaded && !filled {
        let start = Instant::now();
        load(&*engine, plan)?;
        record.load_seconds = start.elapsed().as_secs_f64();
    }
    if s.cold && s.shape.record.is_none() {
        engine.close()?;
        let dropped = sys::drop_page_cache();
        record.notes.push(
            if dropped { "page cache dropped, reopened" } else { "page cache NOT dropped: not permitted" }
                .into(),
        );
        engine = open(dir, s)?;
    }
    record.options = engine.told();
    record.engine_version = engine.version();
    let mut parts: Vec<_> = (0..plan.threads).map(|t| Part::new(plan, t)).collect();
    let seen = Seen::default();
    let (begun, amplification) = ask(&*engine, dir, s, plan, &mut parts, &seen, record);
    if let Some(mut a) = amplification {
        a.look(Duration::from_secs_f64(record.seconds), record.ops, true);
        (record.amplification, record.space_peak) = (a.samples, a.peak);
    }
    let settling = Instant::now();
    if plan.workload.writes() {
        engine.settle()?;
    }
    record.settle_seconds = settling.elapsed().as_secs_f64();
    seen.look();
    let (settled, ops) = (sys::cpu(), record.ops.max(1) as f64);
    record.cpu_us_per_op = (settled.total_us - begun.cpu.total_us) / ops;
    record.cpu_system_us_per_op = (settled.system_us - begun.cpu.system_us) / ops;
    record.peak_rss_mb = seen.peak_rss.load(Ordering::Relaxed) as f64 / 1e6;
    record.peak_anon_mb = seen.peak_anon.load(Ordering::Relaxed) as f64 / 1e6;
    if let Some(ttl) = plan.ttl {
        expire(&*engine, ttl, record)?;
    }
    let closing = Instant::now();
    engine.close()?;
    record.close_ms = closing.elapsed().as_secs_f64() * 1e3;
    written(record, plan, sys::io().since(begun.io));
    record.db_bytes = sys::disk_bytes(dir);
    let live: u64 = parts.iter().map(Part::live_bytes).sum();
    record.space_amp = if live > 0 { record.db_bytes as f64 / live as f64 } else { 0.0 };
    reopen(open, dir, s, &mut parts, record)
}

/// What had been used when the measured part began.
struct Begun {
    io: sys::Io,
    cpu: sys::Cpu,
    at: Instant,
}

/// The measured part.
fn ask<'d>(
    engine: &dyn Engine,
    dir: &'d Path,
    s: &Settings,
    plan: &Plan,
    parts: &mut [Part<'_>],
    seen: &Seen,
    record: &mut Record,
) -> (Begun, Option<Amplification<'d>>) {
    let counters: Vec<_> = parts.iter().map(|_| Counter::default()).collect();
    let pace = Pace {
        between: s.rate.map(|r| Duration::from_secs_f64(plan.threads as f64 / r.max(1) as f64)),
        at_most: s.seconds.map(Duration::from_secs),
        mixed: plan.workload.mixed(),
    };
    let warm = s.warm && !plan.workload.writes();
    let before: Work<'_, '_, '_> = &|p, session, meter| if warm { p.run(session, meter) } else { Ok(()) };
    let mut amplification = Amplification::of(plan, dir);
    let mut begun = Begun { io: sys::io(), cpu: sys::cpu(), at: Instant::now() };
    let meters = std::thread::scope(|scope| {
        let mut watch = None;
        let (watched, counted) = (&mut amplification, &counters);
        let ready = || {
            begun = Begun { io: sys::io(), cpu: sys::cpu(), at: Instant::now() };
            watch = Some(scope.spawn(move || seen.watch(counted, watched)));
        };
        let meters = on_threads(engine, parts, &counters, pace, (before, &|p, s, m| p.run(s, m)), ready);
        record.seconds = begun.at.elapsed().as_secs_f64();
        seen.stop();
        let timeline = watch.take().and_then(|w| w.join().ok()).expect("the watching thread panicked");
        (record.timeline, record.worst) = (timeline.ops, timeline.worst);
        meters
    });
    let asked = sys::cpu();
    let read = sys::io().since(begun.io);
    record.read_bytes = read.rchar.max(read.read);
    sum(record, &meters);
    record.cpu_asked_us_per_op = (asked.total_us - begun.cpu.total_us) / record.ops.max(1) as f64;
    if meters.iter().any(|m| m.over) && record.ops < plan.ops && plan.workload.act != Act::Iterate {
        record.cut_short = Some(record.ops as f64 / plan.ops as f64);
    }
    (begun, amplification)
}

/// Waits until every entry is past its time, and looks at what is still shown.
fn expire(engine: &dyn Engine, ttl: u64, record: &mut Record) -> Result<()> {
    std::thread::sleep(Duration::from_secs(ttl + 2));
    let shown = workload::visible(engine)?;
    let all = record.ops;
    record
        .notes
        .push(format!("{} s after the last write {shown} of about {all} entries were still shown", ttl + 2));
    if shown > 0 && engine.expiry() == Expiry::OnRead {
        record.wrong += 1;
        let failure = format!("wrong: {shown} entries were shown after their time");
        record.first_failure.get_or_insert(failure);
    }
    engine.settle()
}

/// Opens again and compares a sample of what should be there.
fn reopen(open: Open, dir: &Path, s: &Settings, parts: &mut [Part<'_>], record: &mut Record) -> Result<()> {
    let opening = Instant::now();
    let engine = open(dir, s)?;
    record.open_ms = opening.elapsed().as_secs_f64() * 1e3;
    let refused = record.errors > 0;
    let counters: Vec<_> = parts.iter().map(|_| Counter::default()).collect();
    let nothing: Work<'_, '_, '_> = &|_, _, _| Ok(());
    let check: Work<'_, '_, '_> = &|p, s, m| {
        p.check(s, m, CHECKED);
        Ok(())
    };
    for meter in on_threads(&*engine, parts, &counters, Pace::default(), (nothing, check), || ()) {
        // Where writes were refused, what should be there is not known; the run has failed already.
        if !refused {
            record.errors += meter.errors;
            record.wrong += meter.wrong;
            let failure = meter.first_failure.map(|f| format!("after reopening, {f}"));
            record.first_failure = record.first_failure.take().or(failure);
        }
    }
    if let Some(plan) = parts.first().map(|p| p.plan())
        && let Act::Txn(kind) = plan.workload.act
        && let Some(why) = txns::broken(kind, plan, &*engine)?.filter(|_| !refused)
    {
        record.wrong += 1;
        record.first_failure.get_or_insert(format!("wrong: {why}"));
    }
    engine.close()
}

fn sum(record: &mut Record, meters: &[Meter<'_>]) {
    let (mut latency, mut writes) = (histogram(), histogram());
    for m in meters {
        latency.add(&m.latency).expect("all histograms have the same bounds");
        if let Some(w) = &m.writes {
            writes.add(w).expect("all histograms have the same bounds");
        }
        record.ops += m.ops;
        record.errors += m.errors;
        record.wrong += m.wrong;
        record.aborts += m.aborts;
        record.user_bytes += m.given;
        record.seen_bytes += m.seen;
        record.first_failure = record.first_failure.take().or_else(|| m.first_failure.clone());
    }
    record.threads = meters.len();
    record.ops_per_sec = record.ops as f64 / record.seconds;
    // The last interval is not a whole one.
    let whole = record.timeline.len().saturating_sub(1);
    record.stalls = record.timeline[..whole].iter().filter(|n| **n == 0).count() as u64;
    let us = |q: f64| latency.value_at_quantile(q) as f64 / 1e3;
    record.avg_us = latency.mean() / 1e3;
    (record.p95_us, record.p9999_us) = (us(0.95), us(0.9999));
    let of = tail(&latency);
    (record.p50_us, record.p99_us, record.p999_us, record.max_us) =
        (of.p50_us, of.p99_us, of.p999_us, of.max_us);
    record.writes = (!writes.is_empty()).then(|| tail(&writes));
    record.cv = if latency.mean() > 0.0 { latency.stdev() / latency.mean() } else { 0.0 };
    let curve = [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999, 100.0];
    record.curve = curve.iter().map(|p| (*p, us(p / 100.0))).collect();
}

fn tail(latency: &Histogram<u64>) -> Tail {
    let us = |q: f64| latency.value_at_quantile(q) as f64 / 1e3;
    Tail { p50_us: us(0.5), p99_us: us(0.99), p999_us: us(0.999), max_us: latency.max() as f64 / 1e3 }
}

fn written(record: &mut Record, plan: &Plan, io: sys::Io) {
    // Of a walk a thousand entries count as a call.
    (record.num, record.batch) = (plan.n, if plan.workload.act == Act::Iterate { 1000 } else { plan.batch });
    (record.key_bytes, record.value_bytes) = (plan.keys.bytes, plan.values.bytes);
    // Mapped files are written without a system call, cached ones without the device: the larger is nearer the truth.
    record.written_bytes = io.wchar.max(io.written);
    if record.user_bytes > 0 {
        record.write_amp = record.written_bytes as f64 / record.user_bytes as f64;
    }
    if record.seen_bytes > 0 {
        record.read_amp = record.read_bytes as f64 / record.seen_bytes as f64;
    }
}
