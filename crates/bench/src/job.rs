//! One repetition of one workload on one engine, in a process of its own: load, measure, settle, close, reopen, check.
//!
//! Knows neither which engine nor which workload it is.

use crate::engine::{Engine, Expiry, Open, Result};
use crate::engines::{self, recorder};
use crate::keys::{KeyChoice, Keys, Order};
use crate::meter::{Counter, Meter, histogram};
use crate::pick::Zipf;
use crate::record::{Record, Sample};
use crate::settings::Settings;
use crate::sys;
use crate::trace;
use crate::values::Values;
use crate::workload::run::{Part, Plan};
use crate::workload::{self, Act, Layout, Pick, Replay, Workload};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often memory and progress are looked at.
const SAMPLE: Duration = Duration::from_millis(100);
/// Keys that each thread compares after reopening.
const CHECKED: u64 = 2000;

/// What the parent process asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub engine: String,
    pub workload: String,
    pub rep: u32,
    pub settings: Settings,
}

/// What was seen while threads ran.
#[derive(Debug, Default)]
struct Seen {
    peak_rss: AtomicU64,
    peak_anon: AtomicU64,
    stop: AtomicBool,
}

impl Seen {
    fn look(&self) {
        let (rss, anon) = sys::resident();
        self.peak_rss.fetch_max(rss, Ordering::Relaxed);
        self.peak_anon.fetch_max(anon, Ordering::Relaxed);
    }
    /// Looks until told to stop: the operations of each interval.
    fn watch(&self, counters: &[Counter], amplification: &mut Option<Amplification<'_>>) -> Vec<u64> {
        let start = Instant::now();
        let (mut timeline, mut before) = (Vec::new(), 0);
        while !self.stop.load(Ordering::Acquire) {
            let due = SAMPLE * (timeline.len() as u32 + 1);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
            self.look();
            let now = counters.iter().map(Counter::get).sum();
            timeline.push(now - before);
            before = now;
            if let Some(a) = amplification.as_mut().filter(|_| timeline.len().is_multiple_of(10)) {
                a.sample(start.elapsed(), now);
            }
        }
        timeline
    }
}

/// Follows amplification second by second.
struct Amplification<'d> {
    dir: &'d Path,
    /// Bytes given with each operation, and bytes of keys and values that are there throughout.
    given: f64,
    live: f64,
    ops: u64,
    io: sys::Io,
    samples: Vec<Sample>,
}

impl<'d> Amplification<'d> {
    /// For workloads that overwrite what is there; in others the live bytes are not known at every moment.
    fn of(plan: &Plan, dir: &'d Path) -> Option<Self> {
        let share = match plan.workload.act {
            Act::Write if plan.workload.loaded => 1.0,
            Act::Mix { read, insert: 0, scan, .. } if read + scan < 100 => {
                f64::from(100 - read - scan) / 100.0
            }
            _ => return None,
        };
        let given = plan.entry_bytes() as f64 * share;
        let live = plan.entry_bytes() as f64 * plan.n as f64;
        Some(Amplification { dir, given, live, ops: 0, io: sys::io(), samples: Vec::new() })
    }
    fn sample(&mut self, at: Duration, ops: u64) {
        // A moment at the end is too short to say anything.
        if self.samples.last().is_some_and(|s| at.as_secs_f64() - s.seconds < 0.5) {
            return;
        }
        let (io, given) = (sys::io(), (ops - self.ops) as f64 * self.given);
        let since = io.since(self.io);
        // Without a write in this time there is nothing to divide by: what was written counts for the next.
        if given <= 0.0 {
            return;
        }
        self.samples.push(Sample {
            seconds: at.as_secs_f64(),
            write: since.wchar.max(since.written) as f64 / given,
            read: since.rchar.max(since.read) as f64 / given,
            space: sys::disk_bytes(self.dir) as f64 / self.live,
        });
        (self.ops, self.io) = (ops, io);
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
        zipf: matches!(workload.pick, Pick::Zipf | Pick::Latest).then(|| Zipf::new(n)),
        last: (0..n).map(|i| keys.id(i)).max().unwrap_or(0),
        families: match (&replay, workload.families) {
            (Some(replay), _) => replay.families as u64,
            (None, true) => s.many_families.max(1) as u64,
            (None, false) => 1,
        },
        ttl: (workload.act == Act::Series).then_some(s.ttl_seconds),
        replay,
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

/// Why the machine cannot run this: giant values need memory for copies, and disk.
fn lacking(plan: &Plan, dir: &Path) -> Option<String> {
    const COPIES: u64 = 6;
    let value = plan.values.bytes as u64;
    if !plan.workload.giant || value < 1 << 20 {
        return None;
    }
    let (memory, disk) = (plan.threads * COPIES * value, 4 * plan.n * value);
    let (have, free) = (sys::available_memory(), sys::free_disk(dir));
    let say = |what: &str, need: u64, have: u64| {
        Some(format!("needs {} MB of {what}, {} MB are free; see --giant-bytes", need >> 20, have >> 20))
    };
    match () {
        () if have < memory => say("memory", memory, have),
        () if free < disk => say("disk", disk, free),
        () => None,
    }
}

/// Why the engine cannot run this.
fn unable(engine: &dyn Engine, plan: &Plan) -> Option<String> {
    if plan.ttl.is_some() && engine.expiry() == Expiry::None {
        return Some("the engine has no time to live".into());
    }
    let (most, need) = (engine.largest_value(), plan.values.bytes as u64);
    (need > most).then(|| format!("the engine takes values of {most} bytes at most, not {need}"))
}

/// Runs `work` of every part on a thread of its own.
fn on_threads<'p, 'c>(
    engine: &dyn Engine,
    parts: &mut [Part<'p>],
    counters: &'c [Counter],
    between: Option<Duration>,
    work: impl Fn(&mut Part<'p>, &mut dyn crate::engine::Session, &mut Meter<'c>) -> Result<()> + Sync,
) -> Vec<Meter<'c>> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (parts.iter_mut().zip(counters))
            .map(|(part, counter)| {
                scope.spawn(move || {
                    let mut meter = Meter::new(counter, between);
                    if let Err(e) = engine.session(&mut |session| work(part, session, &mut meter)) {
                        meter.error(&e.to_string());
                    }
                    meter
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("a measuring thread panicked")).collect()
    })
}

/// Runs the job in this process.
pub fn run(job: &Job) -> Result<Record> {
    let workload = workload::find(&job.workload).ok_or("no such workload")?;
    let open = engines::find(&job.engine).ok_or("no such engine")?.open;
    let mut settings = job.settings.clone();
    settings.sync = workload.sync.unwrap_or(settings.sync);
    let mut record =
        Record { engine: job.engine.clone(), workload: job.workload.clone(), ..Record::default() };
    if let Some(limit) = settings.memory {
        record.notes.push(match sys::limit_memory(limit) {
            Ok(group) => format!("memory limited to {limit} bytes with page cache by {group}"),
            Err(why) => format!("memory NOT limited, cgroups are not permitted here: {why}"),
        });
    }
    let dir = settings.dir.join(format!("{}-{}-{}", job.engine, job.workload, std::process::id()));
    std::fs::create_dir_all(&settings.dir)?;
    let _ = std::fs::remove_dir_all(&dir);
    record.host = sys::host(&settings.dir);
    (record.rep, record.threads) = (job.rep, settings.threads);
    let plan = plan(workload, &settings)?;
    settings.shape.families = (plan.families > 1).then_some(plan.families as usize);
    settings.shape.ttl = plan.ttl;
    record.skipped = lacking(&plan, &settings.dir);
    let done = match record.skipped {
        Some(_) => Ok(()),
        None => measure(open, &dir, &settings, &plan, &mut record),
    };
    let _ = std::fs::remove_dir_all(&dir);
    record.settings = Some(settings);
    done.map(|()| record)
}

fn measure(open: Open, dir: &Path, s: &Settings, plan: &Plan, record: &mut Record) -> Result<()> {
    let mut engine = open(dir, s)?;
    record.skipped = unable(&*engine, plan);
    if record.skipped.is_some() {
        record.options = engine.told();
        record.engine_version = engine.version();
        return engine.close();
    }
    if let Some(file) = &s.shape.record {
        engine = recorder::record(engine, trace::Writer::create(file)?, plan.workload.loaded);
    }
    if plan.workload.loaded {
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
    let counters: Vec<_> = parts.iter().map(|_| Counter::default()).collect();
    let seen = Seen::default();
    seen.look();
    let between = s.rate.map(|r| Duration::from_secs_f64(plan.threads as f64 / r.max(1) as f64));
    let mut amplification = Amplification::of(plan, dir);
    let (io, cpu, start) = (sys::io(), sys::cpu(), Instant::now());
    let meters = std::thread::scope(|scope| {
        let watch = scope.spawn(|| seen.watch(&counters, &mut amplification));
        let meters = on_threads(&*engine, &mut parts, &counters, between, |p, s, m| p.run(s, m));
        record.seconds = start.elapsed().as_secs_f64();
        seen.stop.store(true, Ordering::Release);
        record.timeline = watch.join().expect("the watching thread panicked");
        meters
    });
    let asked = sys::cpu();
    let read = sys::io().since(io);
    if let Some(mut a) = amplification {
        a.sample(Duration::from_secs_f64(record.seconds), counters.iter().map(Counter::get).sum());
        record.amplification = a.samples;
    }
    let settling = Instant::now();
    if plan.workload.writes() {
        engine.settle()?;
    }
    record.settle_seconds = settling.elapsed().as_secs_f64();
    seen.look();
    let settled = sys::cpu();
    sum(record, &meters);
    let ops = record.ops.max(1) as f64;
    record.cpu_us_per_op = (settled.total_us - cpu.total_us) / ops;
    record.cpu_system_us_per_op = (settled.system_us - cpu.system_us) / ops;
    record.cpu_asked_us_per_op = (asked.total_us - cpu.total_us) / ops;
    record.peak_rss_mb = seen.peak_rss.load(Ordering::Relaxed) as f64 / 1e6;
    record.peak_anon_mb = seen.peak_anon.load(Ordering::Relaxed) as f64 / 1e6;
    if let Some(ttl) = plan.ttl {
        expire(&*engine, ttl, record)?;
    }
    let closing = Instant::now();
    engine.close()?;
    record.close_ms = closing.elapsed().as_secs_f64() * 1e3;
    record.read_bytes = read.rchar.max(read.read);
    written(record, plan, sys::io().since(io));
    record.db_bytes = sys::disk_bytes(dir);
    let live: u64 = parts.iter().map(Part::live_bytes).sum();
    record.space_amp = if live > 0 { record.db_bytes as f64 / live as f64 } else { 0.0 };
    reopen(open, dir, s, &mut parts, record)
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
    let check = |p: &mut Part<'_>, s: &mut dyn crate::engine::Session, m: &mut Meter<'_>| {
        p.check(s, m, CHECKED);
        Ok(())
    };
    for meter in on_threads(&*engine, parts, &counters, None, check) {
        // Where writes were refused, what should be there is not known; the run has failed already.
        if !refused {
            record.errors += meter.errors;
            record.wrong += meter.wrong;
            let failure = meter.first_failure.map(|f| format!("after reopening, {f}"));
            record.first_failure = record.first_failure.take().or(failure);
        }
    }
    engine.close()
}

fn sum(record: &mut Record, meters: &[Meter<'_>]) {
    let mut latency = histogram();
    for m in meters {
        latency.add(&m.latency).expect("all histograms have the same bounds");
        record.ops += m.ops;
        record.errors += m.errors;
        record.wrong += m.wrong;
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
    (record.p50_us, record.p95_us, record.p99_us) = (us(0.5), us(0.95), us(0.99));
    (record.p999_us, record.p9999_us, record.max_us) = (us(0.999), us(0.9999), latency.max() as f64 / 1e3);
    record.cv = if latency.mean() > 0.0 { latency.stdev() / latency.mean() } else { 0.0 };
    let curve = [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999, 100.0];
    record.curve = curve.iter().map(|p| (*p, us(p / 100.0))).collect();
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
