//! One repetition of the workloads of tables, in the process of the job.

use super::dataset::{Dataset, RowKey};
use super::operations::{CALL_OPS, Operations, Preparation, TXN_ROWS};
use super::perigee::encode_row_key;
use super::store::{EngineReader, RowStore};
use super::{GetKeys, RowWorkload, find_workload, perigee, redb, sqlite};
use crate::engine::Result;
use crate::job::{Job, ReadStep, add_meters};
use crate::meter::{Meter, Pace, ProgressCounter};
use crate::random::{Rng, Zipf};
use crate::record::Record;
use crate::report::summary::spread;
use crate::settings::{RowKeys, Settings};
use crate::sys;
use perigee_tables::Uuid;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Number of rows compared after a reopen.
const ROWS_CHECKED: u64 = 2000;
/// Repetitions of an open.
const OPENS: u32 = 7;
/// Largest number of gets of a workload that reads, unless the user gives one.
const READS_MAX: u64 = 500_000;
/// Largest number of single-row commits.
const COMMITS_MAX: u64 = 400_000;

/// Runs the job and passes on each record as it is completed.
pub fn run(job: &Job, tell: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
    let dir = job.dir(std::process::id());
    std::fs::create_dir_all(&job.settings.dir)?;
    let _ = std::fs::remove_dir_all(&dir);
    let result = match job.settings.rows.row_keys {
        RowKeys::Ascending | RowKeys::Random => run_with_keys::<u64>(job, &dir, tell),
        RowKeys::Uuid4 | RowKeys::Uuid7 => run_with_keys::<Uuid>(job, &dir, tell),
    };
    let _ = std::fs::remove_dir_all(&dir);
    result
}

fn run_with_keys<K: RowKey>(
    job: &Job,
    dir: &Path,
    tell: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let s = &job.settings;
    let n = s.num.clamp(1, u64::from(u32::MAX));
    let data = Dataset::<K>::new(&s.rows, n, s.value_bytes.unwrap_or(16), s.seed);
    let open = find_open::<K>(&job.engine).ok_or("the engine has no tables")?;
    let mut state = TableRun {
        dir,
        settings: s,
        open,
        store: Some(open(dir, s)?),
        versions: vec![1; data.n as usize],
        zipf: Zipf::new(data.n),
        data: &data,
    };
    let first = ReadStep { workload: job.workload.clone(), ops: s.ops };
    let mut unusable: Option<String> = None;
    for step in std::iter::once(&first).chain(&job.read_steps) {
        let mut record = job.empty_record(&step.workload);
        record.settings = Some(s.clone());
        record.host = sys::host(&s.dir);
        (record.num, record.key_bytes) = (data.n, std::mem::size_of::<K>());
        record.value_bytes = data.value_bytes;
        match &unusable {
            Some(why) => record.skipped = Some(why.clone()),
            None => state.run_step(step, &mut record)?,
        }
        if unusable.is_none() && record.errors + record.wrong > 0 {
            unusable = Some(format!("{} failed", step.workload));
        }
        let is_partly_filled = step.workload == "rows_txn_1000" && record.cut_short.is_some();
        if is_partly_filled && !job.read_steps.is_empty() && unusable.is_none() {
            state.insert_remaining(record.ops)?;
        }
        tell(record)?;
    }
    if let Some(store) = state.store.take() {
        store.close()?;
    }
    Ok(())
}

/// What a thread has measured.
struct ThreadDone<'m> {
    meter: Meter<'m>,
    preparation: Preparation,
    time: std::ops::Range<Instant>,
}

/// Opens one of the databases.
type OpenRows<K> = fn(&Path, &Settings) -> Result<Box<dyn RowStore<K>>>;

/// Returns the function that opens a database of an engine, by its name in
/// [`ENGINES`](super::ENGINES).
pub fn find_open<K: RowKey>(engine: &str) -> Option<OpenRows<K>> {
    match engine {
        "perigee" => Some(perigee::open::<K>),
        "sqlite" => Some(sqlite::open::<K>),
        "redb" => Some(redb::open::<K>),
        _ => None,
    }
}

/// An open table and what it contains.
struct TableRun<'d, K> {
    dir: &'d Path,
    settings: &'d Settings,
    open: OpenRows<K>,
    /// `None` only while it is being reopened.
    store: Option<Box<dyn RowStore<K>>>,
    data: &'d Dataset<K>,
    /// Version of each row.
    versions: Vec<u16>,
    zipf: Zipf,
}

impl<K: RowKey> TableRun<'_, K> {
    fn store(&self) -> Result<&dyn RowStore<K>> {
        Ok(self.store.as_deref().ok_or("the database is closed")?)
    }
    fn run_step(&mut self, step: &ReadStep, record: &mut Record) -> Result<()> {
        let workload = find_workload(&step.workload).ok_or("no such workload")?;
        (record.options, record.engine_version) =
            (self.store()?.effective_options(), self.store()?.version());
        match workload {
            RowWorkload::Load { sorted } => self.load(sorted, record),
            RowWorkload::Open => self.measure_open(record),
            _ => self.measure(workload, step.ops, record),
        }
    }
    fn load(&mut self, sorted: bool, record: &mut Record) -> Result<()> {
        let (cpu, start) = (sys::cpu(), Instant::now());
        self.store()?.load(self.data, sorted)?;
        record.seconds = start.elapsed().as_secs_f64();
        record.ops = self.data.n;
        record.batch = self.data.n as usize;
        record.ops_per_sec = record.ops as f64 / record.seconds;
        record.cpu_asked_us_per_op = (sys::cpu().total_us - cpu.total_us) / record.ops as f64;
        self.settle(cpu, 0.0, record)?;
        self.check_after_reopen(0, record)
    }
    /// Waits until idle, and records the CPU time per operation until then.
    fn settle(&self, before: sys::Cpu, prepared_us: f64, record: &mut Record) -> Result<()> {
        let settling = Instant::now();
        self.store()?.wait_idle()?;
        record.settle_seconds = settling.elapsed().as_secs_f64();
        let (now, ops) = (sys::cpu(), record.ops.max(1) as f64);
        record.cpu_us_per_op = (now.total_us - before.total_us - prepared_us) / ops;
        record.cpu_system_us_per_op = (now.system_us - before.system_us) / ops;
        record.peak_rss_mb = sys::resident().0 as f64 / 1e6;
        Ok(())
    }
    fn number_of_ops(&self, workload: RowWorkload, ops: Option<u64>) -> u64 {
        let n = self.data.n;
        match workload {
            RowWorkload::Transactions => n,
            RowWorkload::Range { rows } => ops.unwrap_or(n.min(READS_MAX) / (rows / 4)).max(1),
            RowWorkload::Mixed { .. } => ops.unwrap_or(n.min(READS_MAX) / 2).max(1),
            RowWorkload::Commits => ops.unwrap_or(n.min(COMMITS_MAX)).max(1),
            _ => ops.unwrap_or(n.min(READS_MAX)),
        }
    }
    /// Runs a workload of operations.
    fn measure(
        &mut self,
        workload: RowWorkload,
        ops: Option<u64>,
        record: &mut Record,
    ) -> Result<()> {
        let s = self.settings;
        let ops = self.number_of_ops(workload, ops);
        let threads = if workload == RowWorkload::Commits { s.threads.max(1) as u64 } else { 1 };
        if workload == RowWorkload::Commits {
            let start = Instant::now();
            self.store()?.load(self.data, true)?;
            self.store()?.wait_idle()?;
            record.load_seconds = start.elapsed().as_secs_f64();
        }
        record.batch = match workload {
            RowWorkload::Transactions | RowWorkload::Get { in_txn: true, .. } => TXN_ROWS,
            RowWorkload::Get { .. } | RowWorkload::Mixed { .. } => CALL_OPS,
            _ => 1,
        };
        let is_read = matches!(workload, RowWorkload::Get { .. } | RowWorkload::Range { .. });
        if is_read {
            // Warm: the same reads, unmeasured.
            self.run_threads(workload, ops, threads, &mut Record::default())?;
        }
        let (before, prepared_us) = self.run_threads(workload, ops, threads, record)?;
        if record.ops < ops && record.errors == 0 {
            record.cut_short = Some(record.ops as f64 / ops as f64);
        }
        if workload == (RowWorkload::Get { keys: GetKeys::Uniform, in_txn: false }) {
            record.parts = self.break_down_get()?;
        }
        if is_read {
            record.cpu_us_per_op = record.cpu_asked_us_per_op;
            record.peak_rss_mb = sys::resident().0 as f64 / 1e6;
            return Ok(());
        }
        self.settle(before, prepared_us, record)?;
        let new_rows = if workload == RowWorkload::Commits { record.ops } else { 0 };
        if record.cut_short.is_none() || workload != RowWorkload::Transactions {
            self.check_after_reopen(new_rows, record)?;
        }
        Ok(())
    }
    /// Inserts the rows that a phase left out at its time limit, for the phases that follow.
    fn insert_remaining(&mut self, inserted: u64) -> Result<()> {
        let counter = ProgressCounter::default();
        let mut meter = Meter::new(&counter, Pace::default());
        let mut work = Operations {
            data: self.data,
            workload: RowWorkload::Transactions,
            first: inserted,
            ops: self.data.n,
            thread: 0,
            threads: 1,
            seed: self.settings.seed,
            zipf: None,
            versions: &mut [],
            preparation: Default::default(),
        };
        self.store()?.with_session(&mut |session| work.run(session, &mut meter))?;
        match meter.first_failure.take() {
            Some(e) => Err(e.into()),
            None => self.store()?.wait_idle(),
        }
    }
    /// Runs the operations on threads that start together. Returns the CPU time before, and that of
    /// preparations.
    fn run_threads(
        &mut self,
        workload: RowWorkload,
        ops: u64,
        threads: u64,
        record: &mut Record,
    ) -> Result<(sys::Cpu, f64)> {
        let s = self.settings;
        let pace = Pace { time_limit: s.seconds.map(Duration::from_secs), ..Pace::default() };
        let counters: Vec<_> = (0..threads).map(|_| ProgressCounter::default()).collect();
        let (store, gate) = (
            self.store.as_deref().ok_or("the database is closed")?,
            &Barrier::new(threads as usize + 1),
        );
        let mut lent: Vec<&mut [u16]> = vec![&mut self.versions];
        lent.resize_with(threads as usize, Default::default);
        let (data, zipf, seed) = (self.data, &self.zipf, s.seed);
        let (before, threads_done) = std::thread::scope(|scope| {
            let handles: Vec<_> = (counters.iter().zip(lent).enumerate())
                .map(|(thread, (counter, versions))| {
                    let mut work = Operations {
                        data,
                        workload,
                        first: 0,
                        ops: ops / threads + u64::from((thread as u64) < ops % threads),
                        thread: thread as u64,
                        threads,
                        seed,
                        zipf: Some(zipf),
                        versions,
                        preparation: Default::default(),
                    };
                    scope.spawn(move || {
                        let mut meter = Meter::new(counter, pace);
                        let mut started = None;
                        let done = store.with_session(&mut |session| {
                            gate.wait();
                            started = Some(Instant::now());
                            meter.begin(pace);
                            work.run(session, &mut meter)
                        });
                        let ended = Instant::now();
                        if started.is_none() {
                            gate.wait();
                        }
                        if let Err(e) = done {
                            meter.record_error(&e.to_string());
                        }
                        // By the clock of the thread that works: another thread may notice the
                        // start late, and preparations would then seem to be longer than all.
                        let time = started.unwrap_or(ended)..ended;
                        ThreadDone { meter, preparation: work.preparation, time }
                    })
                })
                .collect();
            // Sessions are open once all threads have arrived.
            let before = sys::cpu();
            gate.wait();
            let done: Vec<ThreadDone<'_>> = handles
                .into_iter()
                .map(|h| h.join().expect("a measuring thread panicked"))
                .collect();
            (before, done)
        });
        let used = sys::cpu().total_us - before.total_us;
        let prepared: Duration = threads_done.iter().map(|t| t.preparation.wall).sum();
        let prepared_us: f64 = threads_done.iter().map(|t| t.preparation.cpu_us).sum();
        let start = threads_done.iter().map(|t| t.time.start).min().ok_or("no threads")?;
        let end = threads_done.iter().map(|t| t.time.end).max().ok_or("no threads")?;
        record.seconds = (end - start).saturating_sub(prepared / threads as u32).as_secs_f64();
        let used = used - prepared_us;
        let meters: Vec<Meter<'_>> = threads_done.into_iter().map(|t| t.meter).collect();
        add_meters(record, &meters);
        record.cpu_asked_us_per_op = used / record.ops.max(1) as f64;
        Ok((before, prepared_us))
    }
    /// Closes and reopens the database, records its size and the time of the open, and compares a
    /// sample of the rows, including `new_rows` rows after those of the data set.
    fn check_after_reopen(&mut self, new_rows: u64, record: &mut Record) -> Result<()> {
        let closing = Instant::now();
        self.store.take().ok_or("the database is closed")?.close()?;
        record.close_ms = closing.elapsed().as_secs_f64() * 1e3;
        record.db_bytes = sys::disk_bytes(self.dir);
        let opening = Instant::now();
        self.store = Some((self.open)(self.dir, self.settings)?);
        record.open_ms = opening.elapsed().as_secs_f64() * 1e3;
        let mut rng = Rng::new(self.settings.seed ^ 0x5eed);
        let (data, versions) = (self.data, &self.versions);
        // Threads may end at different times: only the first rows of each are certain.
        let certain = if record.cut_short.is_some() { 0 } else { new_rows };
        self.store()?.with_session(&mut |session| {
            for _ in 0..ROWS_CHECKED {
                let i = rng.below(data.n + certain);
                let version = versions.get(i as usize).copied().unwrap_or(1);
                let mut right = false;
                session.get(data.key(i), &mut |got| {
                    right = got.is_some_and(|got| data.matches(got, i, version));
                })?;
                if !right {
                    record.wrong += 1;
                    let failure = format!("wrong: after reopening, row {i}");
                    record.first_failure.get_or_insert(failure);
                }
            }
            Ok(())
        })
    }
    /// Measures opening the database and getting a row.
    fn measure_open(&mut self, record: &mut Record) -> Result<()> {
        let cpu = sys::cpu();
        let mut times = Vec::new();
        let mut used = 0.0;
        for at in 0..OPENS {
            self.store.take().ok_or("the database is closed")?.close()?;
            let (i, before) = (self.data.shuffled(u64::from(at) % self.data.n), sys::cpu());
            let start = Instant::now();
            self.store = Some((self.open)(self.dir, self.settings)?);
            let mut right = false;
            self.store()?.with_session(&mut |session| {
                session.get(self.data.key(i), &mut |got| {
                    let version = self.versions[i as usize];
                    right = got.is_some_and(|got| self.data.matches(got, i, version));
                })
            })?;
            times.push(start.elapsed().as_secs_f64());
            used += sys::cpu().total_us - before.total_us;
            record.wrong += u64::from(!right);
        }
        let median = spread(times).median;
        (record.ops, record.batch) = (u64::from(OPENS), 1);
        (record.seconds, record.ops_per_sec) = (median * f64::from(OPENS), 1.0 / median);
        (record.open_ms, record.p50_us) = (median * 1e3, median * 1e6);
        record.cpu_us_per_op = used / f64::from(OPENS);
        record.cpu_system_us_per_op = (sys::cpu().system_us - cpu.system_us) / f64::from(OPENS);
        Ok(())
    }
    /// Measures the parts of a warm get, in microseconds: medians over interleaved rounds. With a
    /// row cache, all of them are in it.
    fn break_down_get(&self) -> Result<Vec<(String, f64)>> {
        const ROUNDS: usize = 100;
        const KEYS: usize = 2000;
        let Some(reader) = self.store()?.engine_reader() else { return Ok(Vec::new()) };
        let reader: &dyn EngineReader<K> = &*reader;
        let has_row_cache = self.settings.rows.row_cache > 0;
        let mut rng = Rng::new(self.settings.seed);
        let mut times: [Vec<f64>; 4] = Default::default();
        let (mut keys, mut encoded) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            if keys.is_empty() || !has_row_cache {
                keys.clear();
                keys.extend((0..KEYS).map(|_| self.data.key(rng.below(self.data.n))));
            }
            encoded.clear();
            encoded.extend(keys.iter().map(|key| {
                let mut out = Vec::new();
                encode_row_key(*key, &mut out);
                out
            }));
            let mut found = true;
            let mut time = |part: usize, call: &mut dyn FnMut(usize) -> Result<bool>| {
                let start = Instant::now();
                for at in 0..KEYS {
                    found &= call(at)?;
                }
                times[part].push(start.elapsed().as_secs_f64() * 1e6 / KEYS as f64);
                Result::Ok(())
            };
            // Unmeasured, so that the first part does not have a colder cache than the others.
            keys.iter().try_for_each(|key| reader.get_row(*key).map(|_| ()))?;
            time(0, &mut |at| reader.find_encoded(&encoded[at]))?;
            time(1, &mut |at| reader.find_row(keys[at]))?;
            time(2, &mut |at| reader.get_encoded(&encoded[at]))?;
            time(3, &mut |at| Ok(reader.get_row(keys[at])? == self.data.value_bytes))?;
            if !found {
                return Err("a part of a get did not find a row".into());
            }
        }
        let [find_encoded, find_row, engine, whole] = times.map(|t| spread(t).median);
        let encode = (find_row - find_encoded).max(0.0);
        let engine_part =
            if has_row_cache { "get of the row, cached" } else { "get of the row, not cached" };
        let parts = [
            ("encode the key", encode),
            (engine_part, engine),
            ("decode the row", whole - engine - encode),
            ("whole get", whole),
        ];
        Ok(parts.map(|(name, us)| (name.to_owned(), us)).to_vec())
    }
}
