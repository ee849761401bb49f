//! `perigee-sim faults`: runs a fixed history on a failing device. Covers every kind of fault at
//! every mutating I/O, once and until healed; failing reads; a disk that repeatedly fills up and is
//! freed; reopening a database whose log is larger than the free space, on a disk that is or was
//! full; and a process with few open files.
//!
//! Whatever fails: no acknowledged commit is lost (in the running database, after a reopen, after a
//! crash of the process or the machine), no refused commit appears, reads go on, and after an
//! unknown outcome no commit is acknowledged.

use crate::contents::read_all;
use crate::engine_target::PATH;
use crate::ledger::{Ledger, RequiredCommits};
use crate::rng::{Rng, mix};
use crate::runner::{Case, CommonArgs, Tally, lock_mutex, print_summary, run_cases};
use crate::session::{
    Action, CommitSpec, CrashPoint, DbSession, SessionState, SessionWriter, check_final_state,
};
use crate::settings::Settings;
use perigee::env::Env;
use perigee::{Db, Durability, Error, ErrorKind};
use perigee_env::Fs;
use perigee_env::fs::memory::{Crash, Fault, SimDisk};
use perigee_env::sim::SimWorld;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Shared options; histories are added until this many cases have run.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Stop after this many fault points of each history.
    #[arg(long)]
    pub limit: Option<u64>,
}

/// Number of case numbers reserved for each history.
const CASES_PER_HISTORY: u64 = 1_000_000;
/// First case number within a history of the cases with few open files, failing reads and full
/// disks.
const FEW_FILES_BASE: u64 = 850_000;
const FEW_FILES_CASES: u64 = 6;
const FAILING_READS_BASE: u64 = 900_000;
const FULL_DISK_BASE: u64 = 950_000;
const FAILING_READS_CASES: u64 = 12;
const FULL_DISK_CASES: u64 = 4;
/// First case number within a history of the cases with a log larger than the free space.
const LARGE_LOG_BASE: u64 = 970_000;
const LARGE_LOG_CASES: u64 = 8;
const FAULTS: [Fault; 4] = [Fault::Eio, Fault::Enospc, Fault::ShortWrite, Fault::SyncFails];
/// Maximum number of times that a write is retried after space was freed.
const RESUME_ATTEMPTS_MAX: usize = 150;

/// Runs the command. Returns true if no case failed.
pub fn run(args: &Args) -> bool {
    let common = &args.common;
    let mut tally = Tally::default();
    let mut history = common.case.map_or(0, |k| k / CASES_PER_HISTORY);
    loop {
        let first = history * CASES_PER_HISTORY;
        tally.add(&run_cases(
            "faults",
            common,
            first + FEW_FILES_BASE,
            FEW_FILES_CASES,
            few_files_case,
        ));
        tally.add(&run_cases(
            "faults",
            common,
            first + FAILING_READS_BASE,
            FAILING_READS_CASES,
            failing_reads_case,
        ));
        tally.add(&run_cases(
            "faults",
            common,
            first + FULL_DISK_BASE,
            FULL_DISK_CASES,
            full_disk_case,
        ));
        tally.add(&run_cases(
            "faults",
            common,
            first + LARGE_LOG_BASE,
            LARGE_LOG_CASES,
            large_log_case,
        ));
        let order = shuffled(
            FaultPlan::new(common.seed, history).count_ios() * FAULTS.len() as u64 * 2,
            history,
        );
        let points = args.limit.unwrap_or(u64::MAX).min(order.len() as u64);
        if tally.violations == 0 || !common.stop {
            tally.add(&run_cases("faults", common, first, points, |case| {
                let index = (case.number % CASES_PER_HISTORY) as usize;
                fault_case(case, *order.get(index).ok_or("no such case")?)
            }));
        }
        history += 1;
        let stopped = tally.violations > 0 && (common.stop || tally.violations > 50);
        if common.case.is_some() || stopped || tally.cases >= common.cases {
            break;
        }
    }
    print_summary(&tally, if common.case.is_some() { 1 } else { common.cases })
}

/// Returns the numbers below `n` in random order, so that a short run covers a bit of everything.
fn shuffled(n: u64, seed: u64) -> Vec<u64> {
    let (mut all, mut rng): (Vec<u64>, _) = ((0..n).collect(), Rng::new(seed));
    for i in (1..all.len()).rev() {
        all.swap(i, rng.index(i + 1));
    }
    all
}

/// A history with its settings and scripts.
struct FaultPlan {
    seed: u64,
    settings: Settings,
    script: Vec<Action>,
}

impl FaultPlan {
    fn new(seed: u64, history: u64) -> FaultPlan {
        let mut rng = Rng::new(mix(seed, history));
        let settings = Settings::random(&mut rng).with_durability(Durability::Full);
        let script = (0..40)
            .map(|i| match i % 10 {
                3 => Action::Flush,
                5 => rng.pick(&[
                    Action::CreateOrDropFamily,
                    Action::CreateOrDropFamily,
                    Action::ClearFamily,
                    Action::CloneFamily,
                    Action::RenameFamily,
                ]),
                7 if i > 20 => Action::Compact,
                8 => Action::Sync,
                4 if i == 34 => Action::PutInParts(rng.next()),
                4 if i > 10 => Action::Load(rng.next(), 100),
                6 => Action::Commit(CommitSpec::Random(rng.next()), Some(Durability::None)),
                _ => Action::Commit(CommitSpec::Random(rng.next()), None),
            })
            .collect();
        FaultPlan { seed: rng.next(), settings, script }
    }

    fn of_case(case: &Case) -> FaultPlan {
        let mut plan = FaultPlan::new(case.seed, case.number / CASES_PER_HISTORY);
        // With and without encryption or row cache, the same history makes nearly the same I/Os.
        plan.settings.encrypted = case.number % 4 == 1;
        plan.settings.row_cache_bytes = if case.number % 2 == 0 { 0 } else { 16 << 10 };
        plan
    }

    /// Returns the number of mutating I/Os of the history when nothing fails, or 0 if the history
    /// cannot run; then the cases report the reason.
    fn count_ios(&self) -> u64 {
        let run = || {
            let disk = SimDisk::new(self.seed);
            SimWorld::new(self.seed).run(disk.clone(), |env| {
                if let Ok(state) = self.open_db(env, &disk, &Arc::new(Mutex::new(Ledger::new(1)))) {
                    let mut writer = SessionWriter::new(&state, 0);
                    for action in &self.script {
                        let _ = writer.perform(*action);
                    }
                    let _ = state.db.close();
                }
                disk.mutating_calls()
            })
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or(0).max(1)
    }

    /// Opens the database with its permanent column families.
    fn open_db(
        &self,
        env: Env,
        disk: &Arc<SimDisk>,
        ledger: &Arc<Mutex<Ledger>>,
    ) -> Result<SessionState, Error> {
        let db = Db::open(Path::new(PATH), self.settings.options(env.clone()))?;
        let state = SessionState {
            db,
            env,
            disk: disk.clone(),
            ledger: ledger.clone(),
            settings: self.settings.clone(),
            write_shared_key: true,
            failure: Mutex::new(None),
        };
        if let Err(e) = state.create_steady_families() {
            let _ = state.db.close();
            return Err(e);
        }
        Ok(state)
    }

    /// Returns the session that checks a disk afterwards.
    fn check_session(&self) -> DbSession {
        DbSession {
            seed: self.seed,
            settings: self.settings.clone(),
            scripts: vec![Vec::new()],
            write_shared_key: true,
            crash_point: CrashPoint::CleanClose,
            crash_kind: Crash::Power,
            verify: true,
        }
    }
}

/// The disks to check, each with the ledger as of then and the commits that must be there.
type DisksToCheck = Vec<(&'static str, Arc<SimDisk>, Ledger, RequiredCommits)>;

fn fault_case(case: &Case, number: u64) -> Result<(), String> {
    let plan = FaultPlan::of_case(case);
    let (fault, sticky, io) = (FAULTS[(number % 4) as usize], number / 4 % 2 == 1, number / 8 + 1);
    let fault_point =
        format!("{fault:?}{} at I/O {io}", if sticky { " (until healed)" } else { "" });
    let ledger = Arc::new(Mutex::new(Ledger::new(1)));
    let disk = SimDisk::new(plan.seed);
    case.keep_disk("faulty", &disk);
    disk.fail_at(io, fault, sticky);
    let leftovers = SimWorld::new(plan.seed).run(disk.clone(), |env| {
        let mut leftovers = DisksToCheck::new();
        run_faulty(case, &plan, env, &disk, &ledger, (fault, io), &mut leftovers)
            .map(|()| leftovers)
    });
    let leftovers = leftovers.map_err(|e| format!("{fault_point}: {e}"))?;
    for (what, disk, ledger, required) in leftovers {
        let ledger = Arc::new(Mutex::new(ledger));
        check_final_state(case, &plan.check_session(), disk, &ledger, required)
            .map_err(|e| format!("{fault_point}, {what}: {e}"))?;
    }
    Ok(())
}

fn run_faulty(
    case: &Case,
    plan: &FaultPlan,
    env: Env,
    disk: &Arc<SimDisk>,
    ledger: &Arc<Mutex<Ledger>>,
    (fault, io): (Fault, u64),
    leftovers: &mut DisksToCheck,
) -> Result<(), String> {
    let state = match plan.open_db(env.clone(), disk, ledger) {
        Ok(state) => state,
        Err(e) => {
            case.count("failed opens", 1);
            check_error_kind("open or create_family", &e)?;
            disk.clear_faults();
            plan.open_db(env.clone(), disk, ledger)
                .map_err(|e| format!("open after the fault was cleared: {e}"))?
        }
    };
    let durable = RequiredCommits::Durable { before_us: 0 };
    let take = |what, crash, required| {
        (what, disk.crash_clone(plan.seed, crash), lock_mutex(ledger).clone(), required)
    };
    let mut soon = None;
    let failures = run_script(&plan.script, &state, || {
        if soon.is_none() && disk.mutating_calls() >= io {
            soon = Some(take("after a power cut soon after", Crash::Power, durable));
        }
    })?;
    leftovers.extend(soon);
    case.count("failed calls", failures);
    check_reads(&state)?;
    // A failed sync or write may lose pages that were only in the kernel's cache.
    let kernel_lies = matches!(fault, Fault::Eio | Fault::SyncFails);
    let after_process = if kernel_lies {
        RequiredCommits::Durable { before_us: 0 }
    } else {
        RequiredCommits::Acked
    };
    leftovers.push(take("after a crash of the process", Crash::Process, after_process));
    leftovers.push(take("after a power cut", Crash::Power, durable));
    disk.clear_faults();
    if fault == Fault::Enospc {
        commit_until_accepted(&state)?;
        check_reads(&state)?;
        leftovers.push(take("healed, then a power cut", Crash::Power, durable));
    }
    let closed = close(&state);
    if let (Err(e), Fault::Enospc) = (&closed, fault) {
        return Err(format!("close after space came back: {e}"));
    }
    let required =
        if closed.is_ok() && !kernel_lies { RequiredCommits::Acked } else { after_process };
    leftovers.push(take("after closing", Crash::Process, required));
    Ok(())
}

/// Performs the script despite failures and calls `between` after each action. Returns the number
/// of failures.
fn run_script(
    script: &[Action],
    state: &SessionState,
    mut between: impl FnMut(),
) -> Result<u64, String> {
    let mut writer = SessionWriter::new(state, 0);
    let (mut failures, mut unknown) = (0, false);
    for action in script {
        let acked = lock_mutex(&state.ledger).acked_count();
        let result = writer.perform(*action);
        between();
        if unknown && lock_mutex(&state.ledger).acked_count() > acked {
            return Err("a commit was acknowledged after one with an unknown outcome".into());
        }
        if let Err((doing, e)) = result {
            check_error_kind(doing, &e)?;
            unknown |= doing == "commit" && e.kind() == ErrorKind::OutcomeUnknown;
            failures += 1;
            if failures <= 2 {
                check_reads(state)?;
            }
        }
    }
    Ok(failures)
}

/// Checks that the error is of a kind that a failing device may cause.
fn check_error_kind(doing: &str, e: &Error) -> Result<(), String> {
    use ErrorKind::{AlreadyExists, Busy, Io, NoSpace, NotFound, OutcomeUnknown, Poisoned};
    match e.kind() {
        Io | NoSpace | OutcomeUnknown | Poisoned | Busy => Ok(()),
        // A create or drop whose result was lost may have happened.
        AlreadyExists | NotFound if doing.ends_with("family") => Ok(()),
        _ => Err(format!("{doing}: unexpected error of a failing device: {e}")),
    }
}

/// Checks that reads work and show all acknowledged commits and no refused one.
fn check_reads(state: &SessionState) -> Result<(), String> {
    let found = read_all(&state.db).map_err(|e| format!("reading the running database: {e}"))?;
    lock_mutex(&state.ledger)
        .check_recovered(&found, RequiredCommits::Acked)
        .map(drop)
        .map_err(|e| format!("in the running database: {e}"))
}

/// Checks that writes resume without intervention soon after space was freed.
fn commit_until_accepted(state: &SessionState) -> Result<(), String> {
    let mut writer = SessionWriter::new(state, 0);
    for attempt in 0..RESUME_ATTEMPTS_MAX {
        match writer.perform(Action::Commit(CommitSpec::OneKey, None)) {
            Ok(()) => return Ok(()),
            Err((_, e)) if e.is_retryable() && attempt + 1 < RESUME_ATTEMPTS_MAX => {
                state.env.clock.sleep_us(100_000)
            }
            Err((_, e)) => return Err(format!("a commit failed after space was freed: {e}")),
        }
    }
    Err("no commit succeeded after space was freed".into())
}

/// Runs a case with failing reads: every read returns an error or the right answer, and afterwards
/// everything is there.
fn failing_reads_case(case: &Case) -> Result<(), String> {
    let mut plan = FaultPlan::of_case(case);
    plan.settings.cache_bytes = 0;
    let number = case.number % CASES_PER_HISTORY - FAILING_READS_BASE;
    let suffix = [".klog", ".vlog", ".klog"][(number % 3) as usize];
    let times = [1, 2, 5, u64::MAX][(number / 3) as usize % 4];
    let ledger = Arc::new(Mutex::new(Ledger::new(1)));
    let disk = SimDisk::new(plan.seed);
    case.keep_disk("failing-reads", &disk);
    SimWorld::new(mix(plan.seed, number)).run(disk.clone(), |env| -> Result<(), String> {
        let state = plan.open_db(env, &disk, &ledger).map_err(|e| e.to_string())?;
        run_script(&plan.script, &state, || {})?;
        state.db.admin().flush().map_err(|e| format!("flush: {e}"))?;
        let good = read_all(&state.db).map_err(|e| format!("before the fault: {e}"))?;
        disk.fail_reads(suffix, times);
        let failed = read_through_errors(&state.db, &good)?;
        case.count("failed reads", failed);
        if number % 2 == 1 {
            // Files that could not be read must not be deleted.
            let _ = state.db.admin().compact();
        }
        disk.clear_faults();
        check_reads(&state)?;
        close(&state).map_err(|e| format!("close: {e}"))
    })?;
    check_final_state(
        case,
        &plan.check_session(),
        disk.crash_clone(1, Crash::Power),
        &ledger,
        RequiredCommits::Acked,
    )
}

/// Closes the database and checks that no file stays open, although handles still exist.
fn close(state: &SessionState) -> Result<(), Error> {
    let closed = state.db.close();
    match state.disk.open_handles() {
        0 => closed,
        n => Err(Error::internal(format!("{n} files are still open after the close"))),
    }
}

/// Runs a case in which the process may have few files open, because its limit is low or the
/// application uses the rest. While no job holds files, every read succeeds, and idle files are
/// closed to make that possible. Beside jobs, an operation that needs more files at once than
/// allowed fails, and only that operation.
fn few_files_case(case: &Case) -> Result<(), String> {
    let mut plan = FaultPlan::of_case(case);
    let number = case.number % CASES_PER_HISTORY - FEW_FILES_BASE;
    plan.settings.open_files = [0, 1000][(number % 2) as usize];
    (plan.settings.cache_bytes, plan.settings.scrub_us) = (0, 0);
    let ledger = Arc::new(Mutex::new(Ledger::new(1)));
    let disk = SimDisk::new(plan.seed);
    case.keep_disk("few-files", &disk);
    SimWorld::new(mix(plan.seed, number)).run(disk.clone(), |env| -> Result<(), String> {
        // The database derives its share from this limit.
        disk.set_open_file_limit(Some(24));
        let state = plan.open_db(env, &disk, &ledger).map_err(|e| e.to_string())?;
        disk.set_open_file_limit(None);
        run_script(&plan.script, &state, || {})?;
        let quiet = state.db.admin().pause_background_work().map_err(|e| format!("pause: {e}"))?;
        // The application takes all but two of the files.
        disk.open_file_limiter().close_idle_files(usize::MAX);
        disk.set_open_file_limit(Some(disk.open_handles() + 2));
        check_reads(&state)?;
        drop(quiet);
        let mut writer = SessionWriter::new(&state, 0);
        for action in &plan.script {
            if let Err((doing, e)) = writer.perform(*action) {
                check_error_kind(doing, &e)?;
                case.count("failed calls", 1);
            }
        }
        disk.set_open_file_limit(None);
        check_reads(&state)?;
        case.count("idle files closed", disk.open_file_limiter().reclaimed_files());
        close_or_poisoned(&state)
    })?;
    check_final_state(
        case,
        &plan.check_session(),
        disk.crash_clone(1, Crash::Power),
        &ledger,
        RequiredCommits::Acked,
    )
}

/// Closes after failures. An unknown outcome may have poisoned the database, but no file may stay
/// open.
fn close_or_poisoned(state: &SessionState) -> Result<(), String> {
    match close(state) {
        Err(e) if e.kind() != ErrorKind::Poisoned => Err(format!("close: {e}")),
        _ => Ok(()),
    }
}

fn read_through_errors(db: &Db, good: &crate::ledger::Contents) -> Result<u64, String> {
    let mut failed = 0;
    for (name, map) in good {
        let family = db.family(name).map_err(|e| e.to_string())?;
        for (key, value) in map {
            match family.get(key) {
                Ok(found) if found.as_ref() == Some(value) => {}
                Ok(found) => {
                    let got = found.map_or("nothing".into(), |v| format!("{} bytes", v.len()));
                    return Err(format!("a failing read of \"{}\" gave {got}", key.escape_ascii()));
                }
                Err(e) => {
                    check_error_kind("get", &e)?;
                    failed += 1;
                }
            }
        }
        let whole: Result<Vec<_>, Error> = family.iter().and_then(Iterator::collect);
        match whole {
            Ok(entries) if entries.len() == map.len() => {}
            Ok(entries) => {
                return Err(format!(
                    "a failing scan gave {} of {} entries",
                    entries.len(),
                    map.len()
                ));
            }
            Err(e) => {
                check_error_kind("scan", &e)?;
                failed += 1;
            }
        }
    }
    Ok(failed)
}

/// Runs a case in which the disk fills up and is freed five times.
fn full_disk_case(case: &Case) -> Result<(), String> {
    let mut plan = FaultPlan::of_case(case);
    let mut rng = Rng::new(case.case_seed());
    // Half of the disks reserve enough for a ballast file that an open can use.
    plan.settings.min_free_space =
        if case.number % 2 == 1 { 64 << 10 } else { plan.settings.min_free_space };
    let ledger = Arc::new(Mutex::new(Ledger::new(1)));
    let disk = SimDisk::new(plan.seed);
    case.keep_disk("full", &disk);
    SimWorld::new(rng.next()).run(disk.clone(), |env| -> Result<(), String> {
        let state = plan.open_db(env, &disk, &ledger).map_err(|e| e.to_string())?;
        for _ in 0..5 {
            disk.set_capacity(disk.total_bytes() + rng.between(200, 30_000) as u64);
            fill_disk(&state, &mut rng)?;
            check_reads(&state)?;
            disk.set_capacity(u64::MAX);
            commit_until_accepted(&state)?;
            check_reads(&state)?;
            case.count("filled and freed", 1);
        }
        // The ballast file is created after a flush with enough free space.
        flush_after_space_freed(&state)?;
        state.db.close().map_err(|e| format!("close: {e}"))?;
        open_on_full_disk(case, &plan, &state.env, &disk)
    })?;
    check_final_state(
        case,
        &plan.check_session(),
        disk.crash_clone(1, Crash::Power),
        &ledger,
        RequiredCommits::Acked,
    )
}

/// Flushes. A job that began while the disk was full may still report its failure once.
fn flush_after_space_freed(state: &SessionState) -> Result<(), String> {
    for _ in 1..RESUME_ATTEMPTS_MAX {
        match state.db.admin().flush() {
            Err(e) if e.kind() == ErrorKind::NoSpace => state.env.clock.sleep_us(100_000),
            other => return other.map_err(|e| format!("flush: {e}")),
        }
    }
    Err("no flush succeeded after space was freed".into())
}

/// Opens on a disk without free space, once completely and once with a crash at some I/O. The
/// ledger then checks what is left.
fn open_on_full_disk(
    case: &Case,
    plan: &FaultPlan,
    env: &Env,
    disk: &Arc<SimDisk>,
) -> Result<(), String> {
    for (n, dies) in [true, false].into_iter().enumerate() {
        disk.set_capacity(disk.total_bytes());
        if dies {
            disk.fail_at(1 + case.number % 17, Fault::Eio, true);
        }
        match Db::open(Path::new(PATH), plan.settings.options(env.clone())) {
            Ok(db) => {
                case.count("opened without a byte free", u64::from(!dies));
                let _ = db.close();
            }
            Err(e) => check_error_kind("open", &e).map_err(|e| format!("attempt {n}: {e}"))?,
        }
        disk.clear_faults();
    }
    disk.set_capacity(u64::MAX);
    Ok(())
}

/// Runs a case in which the log is larger than the free space and the ballast together when the
/// process is killed. Either the disk is full at that time, or it was and other files have been
/// deleted since. The open must then succeed without loss.
fn large_log_case(case: &Case) -> Result<(), String> {
    let mut plan = FaultPlan::of_case(case);
    let mut rng = Rng::new(case.case_seed());
    let freed = case.number % 2 == 1;
    plan.settings = plan.settings.with_durability(rng.pick(&[Durability::None, Durability::Full]));
    plan.settings.family = plan.settings.family.memtable_bytes(1 << 20);
    (plan.settings.memory_budget, plan.settings.log_retention) = (0, 0);
    // Without a reserve there is no ballast file; a disk that stays full needs one.
    plan.settings.min_free_space = if freed { 0 } else { 8 << 10 };
    let ledger = Arc::new(Mutex::new(Ledger::new(1)));
    let disk = SimDisk::new(plan.seed);
    case.keep_disk("large-log", &disk);
    // An open writes a log segment and a manifest. The header of an encrypted file takes 4 KiB.
    let other = rng.between(12 << 10, 24 << 10) as u64;
    SimWorld::new(rng.next()).run(disk.clone(), |env| -> Result<(), String> {
        let state = plan.open_db(env, &disk, &ledger).map_err(|e| e.to_string())?;
        // The ballast file is created after a flush.
        commit_until_accepted(&state)?;
        flush_after_space_freed(&state)?;
        state.db.admin().wait_idle().map_err(|e| format!("wait_idle: {e}"))?;
        state.env.clock.sleep_us(1000);
        let capacity = disk.total_bytes() + other + 64 * 1024;
        disk.set_capacity(capacity - other);
        fill_disk(&state, &mut rng)?;
        check_reads(&state)?;
        disk.set_capacity(if freed { capacity } else { disk.total_bytes() });
        Ok(())
    })?;
    let killed = disk.crash_clone(rng.next(), Crash::Process);
    let cut =
        SimWorld::new(rng.next()).run(killed.clone(), |env| -> Result<Arc<SimDisk>, String> {
            killed.set_capacity(if freed {
                killed.total_bytes() + other
            } else {
                killed.total_bytes()
            });
            let options = plan.settings.options(env);
            let db = Db::open(Path::new(PATH), options)
                .map_err(|e| format!("open, freed: {freed}: {e}"))?;
            let found = read_all(&db).map_err(|e| e.to_string())?;
            lock_mutex(&ledger)
                .check_recovered(&found, RequiredCommits::Acked)
                .map_err(|e| format!("after open, freed: {freed}: {e}"))?;
            case.count("opened with a log larger than the free space", 1);
            let cut = killed.crash_clone(case.number, Crash::Power);
            let _ = db.close();
            Ok(cut)
        })?;
    let known = Arc::new(Mutex::new(lock_mutex(&ledger).clone()));
    check_final_state(case, &plan.check_session(), cut, &known, RequiredCommits::Acked)
        .map_err(|e| format!("power cut: {e}"))?;
    check_final_state(
        case,
        &plan.check_session(),
        killed.crash_clone(1, Crash::Process),
        &ledger,
        RequiredCommits::Acked,
    )
}

/// Commits until the disk is full, and a few times more.
fn fill_disk(state: &SessionState, rng: &mut Rng) -> Result<(), String> {
    let mut writer = SessionWriter::new(state, 0);
    let mut refused = 0;
    for _ in 0..3000 {
        if let Err((_, e)) = writer.perform(Action::Commit(CommitSpec::Random(rng.next()), None)) {
            if e.kind() != ErrorKind::NoSpace {
                return Err(format!("unexpected error on a full disk: {e}"));
            }
            refused += 1;
            if refused == 5 {
                return Ok(());
            }
        }
    }
    Err("3000 commits did not fill the disk".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_device_causes_only_io_error_kinds() {
        assert!(check_error_kind("commit", &Error::new(ErrorKind::NoSpace, "x")).is_ok());
        assert!(check_error_kind("commit", &Error::new(ErrorKind::NotFound, "x")).is_err());
        assert!(check_error_kind("drop_family", &Error::new(ErrorKind::NotFound, "x")).is_ok());
    }
}
