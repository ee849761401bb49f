//! `perigee-sim bugs`: enables every seeded bug in turn and proves that a harness detects it, and
//! that each harness passes with no bug enabled. Each run is a process of its own, because a bug is
//! enabled for a whole process.

use perigee_base::bug::{ALL, Bug};
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::runner::lock_mutex;

/// Environment variable that enables a seeded bug in a process of this program.
pub const BUG_VARIABLE: &str = "PERIGEE_BUG";

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Seed of all runs.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of runs at the same time.
    #[arg(long, default_value_t = 2)]
    pub jobs: usize,
    /// Run only bugs whose name contains this.
    #[arg(long, default_value = "")]
    pub only: String,
    /// List the bugs and exit.
    #[arg(long)]
    pub list: bool,
    /// Multiplies the cases of every run.
    #[arg(long, default_value_t = 1)]
    pub effort: u64,
}

/// A harness: command, cases with a bug enabled, cases of the clean control, and further arguments.
struct Harness {
    command: &'static str,
    cases: u64,
    control_cases: u64,
    extra_args: &'static [&'static str],
}

const CRASH: Harness =
    Harness { command: "crash", cases: 3000, control_cases: 400, extra_args: &["--random-only"] };
const MODEL: Harness = Harness { command: "model", cases: 200, control_cases: 16, extra_args: &[] };
const FAULTS: Harness =
    Harness { command: "faults", cases: 0, control_cases: 0, extra_args: &["--limit", "1500"] };
const FLIPS: Harness =
    Harness { command: "flips", cases: 0, control_cases: 0, extra_args: &["--limit", "4000"] };
const SAFETY: Harness =
    Harness { command: "safety", cases: 200, control_cases: 30, extra_args: &[] };
const BANK: Harness = Harness {
    command: "crash",
    cases: 3000,
    control_cases: 200,
    extra_args: &["--only-transactions"],
};
const ISOLATION: Harness =
    Harness { command: "isolation", cases: 1000, control_cases: 100, extra_args: &[] };
const PREPARED: Harness =
    Harness { command: "prepared", cases: 120, control_cases: 3, extra_args: &[] };
const RECOVERY: Harness =
    Harness { command: "recovery", cases: 300, control_cases: 40, extra_args: &[] };
const ALL_HARNESSES: [&Harness; 9] =
    [&MODEL, &CRASH, &FAULTS, &FLIPS, &SAFETY, &BANK, &ISOLATION, &PREPARED, &RECOVERY];
/// A run that takes longer than this, even on a busy machine, has hung; a hang does not count as
/// detection.
const RUN_TIMEOUT: Duration = Duration::from_secs(3600);

/// Returns the harnesses that should detect a bug, the most likely one first.
fn harnesses_for(bug: Bug) -> &'static [&'static Harness] {
    match bug {
        Bug::TruncateDamagedLog
        | Bug::IgnoreLogChecksum
        | Bug::IgnoreBlockChecksum
        | Bug::RepairIgnoresCleanClose
        | Bug::SalvageTrustsTombstone
        | Bug::ZerosBelowWatermarkAccepted
        | Bug::DeleteUnknownFiles => &[&FLIPS],
        Bug::CheckpointSkipsDirSync
        | Bug::PruneDropsShared
        | Bug::ReadOnlyTruncatesLog
        | Bug::ReaderSkipsManifestCheck
        | Bug::ReaderRereadsManifest
        | Bug::ReaderKeepsPendingSeqNo
        | Bug::ForeignFilesIgnored
        | Bug::HooksOnAnyThread
        | Bug::RepairUsesBadBlock => &[&SAFETY],
        Bug::PrepareNotSynced
        | Bug::DecisionNotSynced
        | Bug::PrepareLostWithSegment
        | Bug::DecisionLostWithSegment
        | Bug::PreparedTablesOrphaned
        | Bug::DecisionForgetsTables
        | Bug::PreparedBeforeDirSync
        | Bug::WriterIgnoresPreparedTables
        | Bug::WriterIgnoresPrepared => &[&PREPARED],
        Bug::ReplayIgnoresMemoryBudget
        | Bug::ReplayRemovesLogEarly
        | Bug::KeepUnsyncedLog
        | Bug::ReaderTrustsTruncatedLog => &[&RECOVERY],
        Bug::FullDiskCopiesLog => &[&FAULTS],
        Bug::UnwrittenSpaceIsLog => &[&CRASH],
        Bug::GenerationNotRecorded => &[&FAULTS],
        Bug::NoFilesReclaimed | Bug::CloseKeepsFiles => &[&FAULTS],
        Bug::AppendAfterFailure | Bug::RetryFailedSync | Bug::ErrorIsNotFound => &[&FAULTS],
        Bug::DropTombstoneEarly
        | Bug::IgnoreSnapshots
        | Bug::WrongRunOrder
        | Bug::SkipOnDirectionChange
        | Bug::PublishEarly
        | Bug::DropDeletesShared
        | Bug::CloneOmitsMemtables
        | Bug::RenameInMemory
        | Bug::MultiGetResultsSorted
        | Bug::LoadWithoutSeqNo
        | Bug::LoadUnderMemtables
        | Bug::LoadFirstWins
        | Bug::FilterUnderSnapshot
        | Bug::ExpiredExposesOlderVersion
        | Bug::ExpireDespiteClockJump
        | Bug::RangeLostAtTableEnd
        | Bug::SingleDeleteLost
        | Bug::RangeCoversNewer
        | Bug::DropTableIgnoresSnapshot
        | Bug::DropRangeTombstoneEarly
        | Bug::BottomSeqUnderSnapshot
        | Bug::ReverseScanOvershoots
        | Bug::LoseLastEntry
        | Bug::ShortSeparator
        | Bug::FilterHashesRawKey
        | Bug::CollapseByBytes
        | Bug::InstallCancelled
        | Bug::ResumedIsFailure
        | Bug::OldestReadableNotRaised
        | Bug::FeedSkipsEnd
        | Bug::LoadEventsShareSeqNo
        | Bug::LoseNamedSnapshot
        | Bug::MergeAcrossSnapshot
        | Bug::OneOperandPerSource
        | Bug::CombinedOperandsUnderSnapshot
        | Bug::NarrowManualRange => &[&MODEL, &CRASH],
        Bug::LosePartOfCommit
        | Bug::CursorMissesOwnWrites
        | Bug::SavepointNotRolledBack
        | Bug::UpgradeIgnoresHolder
        | Bug::WaiterNotWoken
        | Bug::RangeLockHidden
        | Bug::RollbackKeepsLock => &[&BANK, &ISOLATION],
        Bug::SpilledNotRolledBack => &[&BANK],
        Bug::StaleConditions
        | Bug::SpilledUnchecked
        | Bug::SkipLastCheck
        | Bug::StaleSnapshot
        | Bug::RangeNotTracked
        | Bug::PrepareOverwritten
        | Bug::ReadOnlyTxnIgnored => &[&ISOLATION, &BANK],
        _ => &[&CRASH, &FAULTS],
    }
}

/// Enables the bug that the environment variable names.
pub fn plant_from_environment() -> Result<(), String> {
    let Ok(name) = std::env::var(BUG_VARIABLE) else { return Ok(()) };
    let found = ALL.iter().find(|(_, n, _)| *n == name);
    let (bug, _, _) =
        found.ok_or_else(|| format!("{BUG_VARIABLE}: there is no seeded bug {name}"))?;
    perigee_base::bug::activate(Some(*bug));
    Ok(())
}

/// Outcome of one harness run.
struct HarnessResult {
    passed: bool,
    /// First violation, with the number of cases run until then.
    caught: Option<(String, u64)>,
    last_line: String,
}

/// Runs the command. Returns true if every bug was detected and every control passed.
pub fn run(args: &Args) -> bool {
    let bugs: Vec<_> = ALL.iter().filter(|(_, name, _)| name.contains(&args.only)).collect();
    if args.list {
        for (_, name, what) in &bugs {
            println!("{name:24}{what}");
        }
        return true;
    }
    println!("{:24}{:10}{:>8}  what it breaks", "seeded bug", "caught by", "cases");
    let (next, caught) = (AtomicUsize::new(0), Mutex::new(0));
    let controls = Mutex::new(true);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Relaxed);
                    if let Some(harness) = ALL_HARNESSES.get(job) {
                        *lock_mutex(&controls) &= run_control(args, harness);
                    } else if let Some((bug, name, what)) = bugs.get(job - ALL_HARNESSES.len()) {
                        *lock_mutex(&caught) +=
                            usize::from(run_until_caught(args, *bug, name, what));
                    } else {
                        break;
                    }
                }
            });
        }
    });
    let (caught, controls) = (*lock_mutex(&caught), *lock_mutex(&controls));
    println!("bugs {} caught {caught}", bugs.len());
    caught == bugs.len() && controls
}

fn run_control(args: &Args, harness: &Harness) -> bool {
    let ended = run_harness(args, harness, None);
    let word = if ended.passed { "passes" } else { "FAILS" };
    println!("{:24}{:10}{word}: {}", "(clean control)", harness.command, ended.last_line);
    if let Some((violation, _)) = ended.caught {
        println!("  {violation}");
    }
    ended.passed
}

fn run_until_caught(args: &Args, bug: Bug, name: &str, what: &str) -> bool {
    for harness in harnesses_for(bug) {
        if let Some((_, cases)) = run_harness(args, harness, Some(name)).caught {
            println!("{name:24}{:10}{cases:>8}  {}", harness.command, what.trim());
            return true;
        }
    }
    println!("{name:24}{:10}{:>8}  {}", "NOTHING", "-", what.trim());
    false
}

fn run_harness(args: &Args, harness: &Harness, bug: Option<&str>) -> HarnessResult {
    let mut command = match std::env::current_exe() {
        Ok(program) => Command::new(program),
        Err(e) => return HarnessResult { passed: false, caught: None, last_line: e.to_string() },
    };
    let cases = if bug.is_some() { harness.cases * args.effort } else { harness.control_cases };
    command.arg(harness.command).args(["--stop", "--jobs", "1", "--seed", &args.seed.to_string()]);
    command.args(["--cases", &cases.to_string()]).args(harness.extra_args);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .env_remove(BUG_VARIABLE);
    if let Some(bug) = bug {
        command.env(BUG_VARIABLE, bug);
    }
    let text = run_process(&mut command);
    let (text, success) = text.unwrap_or_else(|e| (e, false));
    let violation = text.lines().skip_while(|line| !line.starts_with("VIOLATION")).take(2);
    let violation: Vec<&str> = violation.collect();
    let last_line = text.lines().last().unwrap_or_default().to_string();
    let cases = last_line.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let caught = (!violation.is_empty()).then(|| (violation.join("\n"), cases));
    HarnessResult { passed: success && caught.is_none(), caught, last_line }
}

/// Runs a process. Returns its output and whether it succeeded; kills it after the timeout.
fn run_process(command: &mut Command) -> Result<(String, bool), String> {
    let mut process = command.spawn().map_err(|e| e.to_string())?;
    let mut out = process.stdout.take().ok_or("no output")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = out.read_to_string(&mut text);
        text
    });
    let deadline = Instant::now() + RUN_TIMEOUT;
    let status = loop {
        match process.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => {
                let _ = process.kill();
                let _ = process.wait();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let mut text = reader.join().map_err(|_| "the reader panicked".to_string())?;
    if status.is_none() {
        text.push_str("hung");
    }
    Ok((text, status.is_some_and(|s| s.success())))
}
