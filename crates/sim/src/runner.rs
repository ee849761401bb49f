//! Runs numbered cases on a few threads, catches panics, prints the command that replays a failure,
//! and counts. Cases are independent: each has its own simulated environments.

use perigee_env::fs::memory::SimDisk;
use std::io::{IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Options shared by all commands.
#[derive(Clone, Debug, clap::Args)]
pub struct CommonArgs {
    /// Number of cases to run.
    #[arg(long, default_value_t = 1000)]
    pub cases: u64,
    /// Seed; the same seed gives the same cases.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Replay this one case only.
    #[arg(long)]
    pub case: Option<u64>,
    /// Number of cases that run at the same time.
    #[arg(long, default_value_t = 2)]
    pub jobs: usize,
    /// Stop at the first violation.
    #[arg(long)]
    pub stop: bool,
    /// Write the simulated disks of a failing replayed case below this directory.
    #[arg(long)]
    pub image: Option<PathBuf>,
}

/// One case.
pub struct Case {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the case.
    pub number: u64,
    image: Option<PathBuf>,
    disks: Mutex<Vec<(String, Arc<SimDisk>)>>,
    counts: Mutex<Vec<(&'static str, u64)>>,
}

impl CommonArgs {
    /// Returns the number of case numbers: `--cases`, or on a replay `max`.
    pub fn case_limit(&self, max: u64) -> u64 {
        if self.case.is_some() { max } else { self.cases.min(max) }
    }
}

impl Case {
    fn new(common: &CommonArgs, number: u64) -> Self {
        let image = common.image.clone().filter(|_| common.case.is_some());
        Case { seed: common.seed, number, image, disks: Mutex::default(), counts: Mutex::default() }
    }
    /// Keeps a disk, to be written out if the case fails.
    pub fn keep_disk(&self, name: &str, disk: &Arc<SimDisk>) {
        if self.image.is_some() {
            lock_mutex(&self.disks).push((name.to_string(), disk.clone()));
        }
    }
    /// Adds to a counter that is printed at the end.
    pub fn count(&self, what: &'static str, n: u64) {
        lock_mutex(&self.counts).push((what, n));
    }
    /// Returns the seed of this case.
    pub fn case_seed(&self) -> u64 {
        crate::rng::mix(self.seed, self.number)
    }
    fn write_disks(&self) {
        let Some(dir) = &self.image else { return };
        for (name, disk) in lock_mutex(&self.disks).iter() {
            match disk.to_real_dir(&dir.join(name)) {
                Ok(()) => println!("image: {}", dir.join(name).display()),
                Err(e) => println!("image: {e}"),
            }
        }
    }
}

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Number of cases run.
    pub cases: u64,
    /// Number of cases that violated a guarantee.
    pub violations: u64,
    /// Violations that were panics.
    pub panics: u64,
    /// Violations that were deadlocks or reached the step limit.
    pub hangs: u64,
    /// Other counters.
    pub counts: Vec<(&'static str, u64)>,
}

impl Tally {
    /// Returns a counter by name.
    pub fn get(&self, what: &str) -> u64 {
        self.counts.iter().find(|(name, _)| *name == what).map_or(0, |(_, n)| *n)
    }
    /// Returns all counters on one line.
    pub fn counts_line(&self) -> String {
        let all: Vec<String> = self.counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
        all.join(", ")
    }
    /// Adds the results of another run.
    pub fn add(&mut self, other: &Tally) {
        self.cases += other.cases;
        self.violations += other.violations;
        self.panics += other.panics;
        self.hangs += other.hangs;
        for (what, n) in &other.counts {
            self.add_count(what, *n);
        }
    }
    fn add_count(&mut self, what: &'static str, n: u64) {
        match self.counts.iter_mut().find(|(name, _)| *name == what) {
            Some((_, sum)) => *sum += n,
            None => self.counts.push((what, n)),
        }
    }
}

/// Panic messages of all threads since they were last taken.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Collects panic messages for the report instead of printing them. With `PERIGEE_SIM_PANICS` set
/// they are also printed.
pub fn catch_panics() {
    let before = std::panic::take_hook();
    let loud = std::env::var_os("PERIGEE_SIM_PANICS").is_some();
    std::panic::set_hook(Box::new(move |info| {
        lock_mutex(&PANICS).push(info.to_string());
        if loud {
            before(info);
        }
    }));
}

/// Runs cases `first..first + n` of `command`, or only the one to replay.
pub fn run_cases(
    command: &str,
    common: &CommonArgs,
    first: u64,
    n: u64,
    body: impl Fn(&Case) -> Result<(), String> + Sync,
) -> Tally {
    if let Some(number) = common.case {
        let tally = Mutex::new(Tally::default());
        if (first..first.saturating_add(n)).contains(&number) {
            run_one(command, common, number, &body, &tally);
        }
        return tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    }
    let (next, stop) = (AtomicU64::new(first), AtomicBool::new(false));
    let (tally, progress) = (Mutex::new(Tally::default()), Progress::new(command, n));
    std::thread::scope(|scope| {
        for _ in 0..common.jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= first.saturating_add(n) {
                        break;
                    }
                    let failed = run_one(command, common, number, &body, &tally);
                    stop.fetch_or(failed && common.stop, Relaxed);
                    progress.tick(&lock_mutex(&tally));
                }
            });
        }
    });
    progress.clear_line();
    tally.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run_one(
    command: &str,
    common: &CommonArgs,
    number: u64,
    body: &(impl Fn(&Case) -> Result<(), String> + Sync),
    tally: &Mutex<Tally>,
) -> bool {
    let case = Case::new(common, number);
    let result = catch_unwind(AssertUnwindSafe(|| body(&case)));
    let panics = std::mem::take(&mut *lock_mutex(&PANICS));
    let failure = match (result, panics.first()) {
        (Ok(Ok(())), None) => None,
        (Ok(Ok(())), Some(panic)) => {
            Some(format!("a thread panicked (of this case or of one running beside it): {panic}"))
        }
        (Ok(Err(violation)), _) => Some(violation),
        (Err(_), panic) => Some(format!("panic: {}", panic.map_or("without a message", |p| p))),
    };
    let mut tally = lock_mutex(tally);
    tally.cases += 1;
    for (what, n) in lock_mutex(&case.counts).iter() {
        tally.add_count(what, *n);
    }
    let Some(failure) = failure else { return false };
    tally.violations += 1;
    let hang =
        ["deadlock", "step limit", "no thread can"].iter().any(|word| failure.contains(word));
    tally.hangs += u64::from(hang);
    tally.panics += u64::from(!hang && failure.contains("panic"));
    println!(
        "VIOLATION perigee-sim {command} --seed {} --case {number}\n  {}",
        common.seed,
        crate::driver::cut(&failure, 1500)
    );
    case.write_disks();
    true
}

/// A progress line on the terminal, updated at most ten times a second.
struct Progress {
    command: String,
    total: u64,
    started: Instant,
    last_drawn: Mutex<Instant>,
    enabled: bool,
}

impl Progress {
    fn new(command: &str, total: u64) -> Self {
        let started = Instant::now();
        let on = std::io::stderr().is_terminal();
        Progress {
            command: command.to_string(),
            total,
            started,
            last_drawn: Mutex::new(started),
            enabled: on,
        }
    }
    fn tick(&self, tally: &Tally) {
        let mut shown = lock_mutex(&self.last_drawn);
        if !self.enabled || shown.elapsed() < Duration::from_millis(100) {
            return;
        }
        *shown = Instant::now();
        let rate = tally.cases as f64 / self.started.elapsed().as_secs_f64();
        let left = self.total.saturating_sub(tally.cases) as f64 / rate;
        let (done, total, bad) = (tally.cases, self.total, tally.violations);
        eprint!(
            "\r{}: {done} of {total}, {bad} violations, {rate:.0}/s, {left:.0} s left   ",
            self.command
        );
        let _ = std::io::stderr().flush();
    }
    fn clear_line(&self) {
        if self.enabled {
            eprint!("\r{:90}\r", "");
        }
    }
}

/// Locks a mutex and ignores poisoning, because a panicking case leaves no shared state that
/// matters.
pub fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints the last line. Returns true if no case failed and enough cases were run.
pub fn print_summary(tally: &Tally, min_cases: u64) -> bool {
    if !tally.counts.is_empty() {
        println!("{}", tally.counts_line());
    }
    if tally.cases < min_cases {
        println!("only {} of {min_cases} cases were run", tally.cases);
    }
    println!("cases {} violations {}", tally.cases, tally.violations);
    tally.violations == 0 && tally.cases >= min_cases
}
