//! One repetition of one workload on one engine, in a process of its own: load, measure, wait until
//! idle, close, reopen, check; then the same for the read-only workloads on the same database.
//!
//! Depends on no particular engine or workload.

use crate::engine::{Engine, OpenEngine, Result, TtlSupport};
use crate::engines::{self, recorder};
use crate::keys::{KeyChoice, KeyFormat, KeySequence};
use crate::meter::{Meter, Pace, ProgressCounter, histogram};
use crate::random::Zipf;
use crate::record::{Record, TailLatency};
use crate::resource_sampler::{AmplificationTracker, ResourceSampler};
use crate::settings::{Level, Settings};
use crate::sys;
use crate::trace;
use crate::values::ValueFormat;
use crate::workload::txns::{self, CommittedSums};
use crate::workload::worker::{WorkerThread, WorkloadPlan};
use crate::workload::{self, KeyDistribution, KeyLayout, OpKind, TraceReplay, Workload};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Cache bytes reserved per hot key: its block, within reason for any engine.
const HOT_KEY_CACHE_BYTES: u64 = 16 << 10;
/// Number of keys that each thread compares after reopening.
const KEYS_CHECKED: u64 = 2000;

/// What the parent process requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Suite of the job, or empty.
    pub suite: String,
    pub engine: String,
    pub workload: String,
    /// Read-only workloads to run afterwards on the resulting database.
    pub read_steps: Vec<ReadStep>,
    pub rep: u32,
    pub settings: Settings,
}

/// A read-only workload on the database that another workload left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadStep {
    pub workload: String,
    /// Number of operations, if not the workload's own.
    pub ops: Option<u64>,
}

impl Job {
    /// Returns an empty record of one of the job's workloads.
    pub fn empty_record(&self, workload: &str) -> Record {
        Record {
            suite: self.suite.clone(),
            engine: self.engine.clone(),
            workload: workload.to_owned(),
            rep: self.rep,
            threads: self.settings.threads,
            ..Record::default()
        }
    }
    /// Returns the directory in which the process `pid` keeps its database.
    pub fn dir(&self, pid: u32) -> std::path::PathBuf {
        self.settings.dir.join(format!("{}-{}-{pid}", self.engine, self.workload))
    }
}

fn make_plan(workload: &Workload, s: &Settings) -> Result<WorkloadPlan> {
    let mut workload = workload.with_pattern(s.pattern);
    if let (OpKind::Range(_), Some(entries), false) = (workload.op_kind, s.range, workload.giant) {
        workload.op_kind = OpKind::Range(entries.max(1));
    }
    let order = match (workload.layout, s.keys) {
        (KeyLayout::Sequential, _) => KeySequence::Ascending,
        (KeyLayout::Timestamp, _) => KeySequence::Timestamp,
        (KeyLayout::Reverse, _) => KeySequence::Descending,
        (KeyLayout::Scattered, KeyChoice::Counter) => KeySequence::Swapped,
        (KeyLayout::Scattered, KeyChoice::Random) => KeySequence::Mixed,
    };
    let keys = KeyFormat { order, bytes: s.key_bytes.unwrap_or(workload.key_bytes).max(8) };
    let value_bytes = match workload.giant {
        true => usize::try_from(s.giant_bytes)?,
        false => s.value_bytes.unwrap_or(workload.value_bytes),
    };
    let replay = match (workload.op_kind, &s.trace) {
        (OpKind::Replay, Some(file)) => Some(TraceReplay::new(&trace::read(file)?, s.values)?),
        (OpKind::Replay, None) => return Err("the workload `replay` needs --trace FILE".into()),
        _ => None,
    };
    let n = if replay.is_some() { 0 } else { (workload.keys)(s.num).max(1) };
    Ok(WorkloadPlan {
        workload,
        keys,
        values: ValueFormat { choice: s.values, bytes: value_bytes.max(8) },
        n,
        ops: s.ops.unwrap_or_else(|| (workload.ops)(s.num)).max(1),
        threads: if replay.is_some() { 1 } else { s.threads.max(1) as u64 },
        batch: if workload.batch > 1 { s.batch.unwrap_or(workload.batch).max(1) } else { 1 },
        seed: s.seed,
        hot_keys: (s.cache / HOT_KEY_CACHE_BYTES).clamp(1, n.max(1)),
        zipf: matches!(workload.distribution, KeyDistribution::Zipf | KeyDistribution::Latest)
            .then(|| Zipf::new(n)),
        last_key_id: (0..n).map(|i| keys.key_id(i)).max().unwrap_or(0),
        families: match (&replay, workload.op_kind) {
            (Some(replay), _) => replay.families as u64,
            (None, OpKind::Txn(kind)) => kind.families(),
            (None, _) if workload.families => s.many_families.max(1) as u64,
            (None, _) => 1,
        },
        ttl: (workload.op_kind == OpKind::Series).then_some(s.ttl_seconds),
        replay,
        committed: CommittedSums::default(),
    })
}

/// Fills the database with every key at version 1, or with the initial entries of a trace, and
/// waits until it is idle.
fn load_database(engine: &dyn Engine, plan: &WorkloadPlan) -> Result<()> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let batch = (16_000_000 / plan.entry_bytes()).clamp(1, 1000);
    engine.with_session(&mut |session| {
        if let Some(replay) = &plan.replay {
            return replay.load(session);
        }
        if let OpKind::Txn(kind) = plan.workload.op_kind {
            return txns::load(kind, plan, session);
        }
        let mut i = 0;
        while i < plan.n {
            let end = plan.n.min(i + batch);
            session.write((end - i) as usize, &mut |sink| {
                for j in i..end {
                    let value = plan.values.write_value(j, 1, &mut value);
                    sink.put(plan.family(j), plan.keys.write_key(j, &mut key), value)?;
                }
                Ok(())
            })?;
            i = end;
        }
        Ok(())
    })?;
    engine.wait_idle()
}

/// Returns the reason why the machine cannot run this, if any: giant values need memory for copies,
/// and everything needs disk space.
fn missing_resources(plan: &WorkloadPlan, dir: &Path) -> Option<String> {
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

/// Returns the reason why the engine cannot run this, if any.
fn unsupported_reason(
    engine: &dyn Engine,
    plan: &WorkloadPlan,
    level: Option<Level>,
) -> Option<String> {
    if plan.ttl.is_some() && engine.ttl_support() == TtlSupport::None {
        return Some("the engine has no time to live".into());
    }
    if let Some(level) = level.filter(|level| !engine.supports_level(*level)) {
        return Some(format!("the engine has no transactions of this kind ({level:?})"));
    }
    let (most, need) = (engine.max_value_bytes(), plan.values.bytes as u64);
    (need > most).then(|| format!("the engine takes values of {most} bytes at most, not {need}"))
}

/// Runs `work` for every worker on a thread and session of its own. All threads start together
/// after `ready` has returned, which is called when every thread has a session and has done what
/// `before` says.
fn run_on_threads<'p, 'c>(
    engine: &dyn Engine,
    parts: &mut [WorkerThread<'p>],
    counters: &'c [ProgressCounter],
    pace: Pace,
    (before, work): (ThreadWork<'_, 'p, 'c>, ThreadWork<'_, 'p, 'c>),
    ready: impl FnOnce(),
) -> Vec<Meter<'c>> {
    let gate = &Barrier::new(parts.len() + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (parts.iter_mut().zip(counters))
            .map(|(part, counter)| {
                scope.spawn(move || {
                    let mut meter = Meter::new(counter, pace);
                    let mut there = false;
                    let done = engine.with_session(&mut |session| {
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
                        meter.record_error(&e.to_string());
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

/// Work of one thread in its session.
type ThreadWork<'w, 'p, 'c> = &'w (
        dyn Fn(&mut WorkerThread<'p>, &mut dyn crate::engine::Session, &mut Meter<'c>) -> Result<()>
            + Sync
    );

/// Runs the job in this process and passes on each record as it is completed.
pub fn run(job: &Job, tell: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
    let limited = job.settings.memory.map(|limit| match sys::limit_memory(limit) {
        Ok(group) => format!("memory limited to {limit} bytes with page cache by {group}"),
        Err(why) => format!("memory NOT limited, cgroups are not permitted here: {why}"),
    });
    let dir = job.dir(std::process::id());
    std::fs::create_dir_all(&job.settings.dir)?;
    let _ = std::fs::remove_dir_all(&dir);
    let first = ReadStep { workload: job.workload.clone(), ops: job.settings.ops };
    let mut filled = Ok(false);
    for at in std::iter::once(&first).chain(&job.read_steps) {
        let mut record = job.empty_record(&at.workload);
        record.notes.extend(limited.clone());
        let done = match &filled {
            Ok(filled) => run_step(job, at, &dir, *filled, &mut record),
            Err(why) => {
                record.skipped = Some(String::clone(why));
                Ok(())
            }
        };
        if let Err(e) = done {
            let _ = std::fs::remove_dir_all(&dir);
            return Err(e);
        }
        let whole = record.skipped.is_none()
            && record.errors + record.wrong == 0
            && record.cut_short.is_none();
        if filled == Ok(false) {
            filled = if whole {
                Ok(true)
            } else {
                Err(format!("{} did not fill the database", at.workload))
            };
        }
        tell(record)?;
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}

/// Runs one workload of a job, on a database that is `filled` already or that it fills itself.
fn run_step(job: &Job, at: &ReadStep, dir: &Path, filled: bool, record: &mut Record) -> Result<()> {
    let workload = workload::find_workload(&at.workload).ok_or("no such workload")?;
    let open = engines::find_engine(&job.engine).ok_or("no such engine")?.open;
    if filled && (workload.is_writing() || !workload.preloaded) {
        return Err(format!("{} does not only read", workload.name).into());
    }
    let mut settings = Settings { ops: at.ops, ..job.settings.clone() };
    settings.sync = workload.sync.unwrap_or(settings.sync);
    record.host = sys::host(&settings.dir);
    let plan = make_plan(workload, &settings)?;
    settings.shape.families = (plan.families > 1).then_some(plan.families as usize);
    settings.shape.ttl = plan.ttl;
    settings.shape.level =
        matches!(plan.workload.op_kind, OpKind::Txn(_)).then_some(settings.level);
    record.skipped = if filled { None } else { missing_resources(&plan, &settings.dir) };
    if record.skipped.is_none() {
        measure_workload(open, dir, &settings, &plan, filled, record)?;
    }
    // The report groups by the settings of the whole job; a step that ran fewer operations says so
    // in its record.
    record.settings = Some(Settings { ops: job.settings.ops, ..settings });
    Ok(())
}

fn measure_workload(
    open: OpenEngine,
    dir: &Path,
    s: &Settings,
    plan: &WorkloadPlan,
    filled: bool,
    record: &mut Record,
) -> Result<()> {
    let mut engine = open(dir, s)?;
    record.skipped = unsupported_reason(&*engine, plan, s.shape.level);
    if record.skipped.is_some() {
        record.options = engine.effective_options();
        record.engine_version = engine.version();
        return engine.close();
    }
    if let Some(file) = &s.shape.record {
        engine =
            recorder::record(engine, trace::TraceWriter::create(file)?, plan.workload.preloaded);
    }
    if plan.workload.preloaded && !filled {
        let start = Instant::now();
        load_database(&*engine, plan)?;
        record.load_seconds = start.elapsed().as_secs_f64();
    }
    if s.cold && s.shape.record.is_none() {
        engine.close()?;
        let dropped = sys::drop_page_cache();
        record.notes.push(
            if dropped {
                "page cache dropped, reopened"
            } else {
                "page cache NOT dropped: not permitted"
            }
            .into(),
        );
        engine = open(dir, s)?;
    }
    record.options = engine.effective_options();
    record.engine_version = engine.version();
    let mut parts: Vec<_> = (0..plan.threads).map(|t| WorkerThread::new(plan, t)).collect();
    let seen = ResourceSampler::default();
    let (begun, amplification) =
        run_measured_phase(&*engine, dir, s, plan, &mut parts, &seen, record);
    if let Some(mut a) = amplification {
        a.sample(Duration::from_secs_f64(record.seconds), record.ops, true);
        (record.amplification, record.space_peak) = (a.samples, a.space_peak);
    }
    let settling = Instant::now();
    if plan.workload.is_writing() {
        engine.wait_idle()?;
    }
    record.settle_seconds = settling.elapsed().as_secs_f64();
    seen.sample_memory();
    let (settled, ops) = (sys::cpu(), record.ops.max(1) as f64);
    record.cpu_us_per_op = (settled.total_us - begun.cpu.total_us) / ops;
    record.cpu_system_us_per_op = (settled.system_us - begun.cpu.system_us) / ops;
    record.peak_rss_mb = seen.peak_rss.load(Ordering::Relaxed) as f64 / 1e6;
    record.peak_anon_mb = seen.peak_anon.load(Ordering::Relaxed) as f64 / 1e6;
    if let Some(ttl) = plan.ttl {
        wait_for_expiry(&*engine, ttl, record)?;
    }
    let closing = Instant::now();
    engine.close()?;
    record.close_ms = closing.elapsed().as_secs_f64() * 1e3;
    set_write_amp(record, plan, sys::io().since(begun.io));
    record.db_bytes = sys::disk_bytes(dir);
    let live: u64 = parts.iter().map(WorkerThread::live_bytes).sum();
    record.space_amp = if live > 0 { record.db_bytes as f64 / live as f64 } else { 0.0 };
    check_after_reopen(open, dir, s, &mut parts, record)
}

/// Resource usage at the start of the measured phase.
struct UsageBaseline {
    io: sys::Io,
    cpu: sys::Cpu,
    started_at: Instant,
}

/// Runs the measured phase.
fn run_measured_phase<'d>(
    engine: &dyn Engine,
    dir: &'d Path,
    s: &Settings,
    plan: &WorkloadPlan,
    parts: &mut [WorkerThread<'_>],
    seen: &ResourceSampler,
    record: &mut Record,
) -> (UsageBaseline, Option<AmplificationTracker<'d>>) {
    let counters: Vec<_> = parts.iter().map(|_| ProgressCounter::default()).collect();
    let pace = Pace {
        interval: s.rate.map(|r| Duration::from_secs_f64(plan.threads as f64 / r.max(1) as f64)),
        time_limit: s.seconds.map(Duration::from_secs),
        mixed: plan.workload.is_mixed(),
    };
    let warm = s.warm && !plan.workload.is_writing();
    let before: ThreadWork<'_, '_, '_> =
        &|p, session, meter| if warm { p.run(session, meter) } else { Ok(()) };
    let mut amplification = AmplificationTracker::for_plan(plan, dir);
    let mut begun = UsageBaseline { io: sys::io(), cpu: sys::cpu(), started_at: Instant::now() };
    let meters = std::thread::scope(|scope| {
        let mut watch = None;
        let (watched, counted) = (&mut amplification, &counters);
        let ready = || {
            begun = UsageBaseline { io: sys::io(), cpu: sys::cpu(), started_at: Instant::now() };
            watch = Some(scope.spawn(move || seen.run(counted, watched)));
        };
        let meters =
            run_on_threads(engine, parts, &counters, pace, (before, &|p, s, m| p.run(s, m)), ready);
        record.seconds = begun.started_at.elapsed().as_secs_f64();
        seen.stop();
        let timeline =
            watch.take().and_then(|w| w.join().ok()).expect("the sampler thread panicked");
        (record.timeline, record.worst) = (timeline.ops, timeline.worst);
        meters
    });
    let measured_cpu = sys::cpu();
    let read = sys::io().since(begun.io);
    record.read_bytes = read.rchar.max(read.read);
    add_meters(record, &meters);
    record.cpu_asked_us_per_op =
        (measured_cpu.total_us - begun.cpu.total_us) / record.ops.max(1) as f64;
    if meters.iter().any(|m| m.time_up)
        && record.ops < plan.ops
        && plan.workload.op_kind != OpKind::Iterate
    {
        record.cut_short = Some(record.ops as f64 / plan.ops as f64);
    }
    (begun, amplification)
}

/// Waits until every entry has expired, and counts the entries that are still visible.
fn wait_for_expiry(engine: &dyn Engine, ttl: u64, record: &mut Record) -> Result<()> {
    std::thread::sleep(Duration::from_secs(ttl + 2));
    let shown = workload::count_visible(engine)?;
    let all = record.ops;
    record.notes.push(format!(
        "{} s after the last write {shown} of about {all} entries were still visible",
        ttl + 2
    ));
    if shown > 0 && engine.ttl_support() == TtlSupport::OnRead {
        record.wrong += 1;
        let failure = format!("wrong: {shown} entries were visible after their expiry");
        record.first_failure.get_or_insert(failure);
    }
    engine.wait_idle()
}

/// Reopens the database and compares a sample of the expected entries.
fn check_after_reopen(
    open: OpenEngine,
    dir: &Path,
    s: &Settings,
    parts: &mut [WorkerThread<'_>],
    record: &mut Record,
) -> Result<()> {
    let opening = Instant::now();
    let engine = open(dir, s)?;
    record.open_ms = opening.elapsed().as_secs_f64() * 1e3;
    let refused = record.errors > 0;
    let counters: Vec<_> = parts.iter().map(|_| ProgressCounter::default()).collect();
    let nothing: ThreadWork<'_, '_, '_> = &|_, _, _| Ok(());
    let check: ThreadWork<'_, '_, '_> = &|p, s, m| {
        p.check_sample(s, m, KEYS_CHECKED);
        Ok(())
    };
    for meter in
        run_on_threads(&*engine, parts, &counters, Pace::default(), (nothing, check), || ())
    {
        // After refused writes the expected contents are unknown; the run has failed already.
        if !refused {
            record.errors += meter.errors;
            record.wrong += meter.wrong;
            let failure = meter.first_failure.map(|f| format!("after reopening, {f}"));
            record.first_failure = record.first_failure.take().or(failure);
        }
    }
    if let Some(plan) = parts.first().map(|p| p.plan())
        && let OpKind::Txn(kind) = plan.workload.op_kind
        && let Some(why) = txns::check_sums(kind, plan, &*engine)?.filter(|_| !refused)
    {
        record.wrong += 1;
        record.first_failure.get_or_insert(format!("wrong: {why}"));
    }
    engine.close()
}

/// Adds the measurements of all threads to a record whose duration is set.
pub fn add_meters(record: &mut Record, meters: &[Meter<'_>]) {
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
        record.user_bytes += m.written_bytes;
        record.seen_bytes += m.read_bytes;
        record.first_failure = record.first_failure.take().or_else(|| m.first_failure.clone());
    }
    record.threads = meters.len();
    record.ops_per_sec = record.ops as f64 / record.seconds;
    // The last interval is incomplete.
    let whole = record.timeline.len().saturating_sub(1);
    record.stalls = record.timeline[..whole].iter().filter(|n| **n == 0).count() as u64;
    let us = |q: f64| latency.value_at_quantile(q) as f64 / 1e3;
    record.avg_us = latency.mean() / 1e3;
    (record.p95_us, record.p9999_us) = (us(0.95), us(0.9999));
    let of = tail_latency(&latency);
    (record.p50_us, record.p99_us, record.p999_us, record.max_us) =
        (of.p50_us, of.p99_us, of.p999_us, of.max_us);
    record.writes = (!writes.is_empty()).then(|| tail_latency(&writes));
    record.cv = if latency.mean() > 0.0 { latency.stdev() / latency.mean() } else { 0.0 };
    let curve =
        [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999, 100.0];
    record.curve = curve.iter().map(|p| (*p, us(p / 100.0))).collect();
}

fn tail_latency(latency: &Histogram<u64>) -> TailLatency {
    let us = |q: f64| latency.value_at_quantile(q) as f64 / 1e3;
    TailLatency {
        p50_us: us(0.5),
        p99_us: us(0.99),
        p999_us: us(0.999),
        max_us: latency.max() as f64 / 1e3,
    }
}

fn set_write_amp(record: &mut Record, plan: &WorkloadPlan, io: sys::Io) {
    // In an iteration, a thousand entries count as a call.
    (record.num, record.batch) =
        (plan.n, if plan.workload.op_kind == OpKind::Iterate { 1000 } else { plan.batch });
    (record.key_bytes, record.value_bytes) = (plan.keys.bytes, plan.values.bytes);
    // Mapped files are written without a system call, cached ones without device I/O: the larger
    // number is closer to the truth.
    record.written_bytes = io.wchar.max(io.written);
    if record.user_bytes > 0 {
        record.write_amp = record.written_bytes as f64 / record.user_bytes as f64;
    }
    if record.seen_bytes > 0 {
        record.read_amp = record.read_bytes as f64 / record.seen_bytes as f64;
    }
}
