//! `perigee-sim crash`: crashes at random I/Os of random histories and at every I/O of all short
//! ones; then the same with transactions (`bank`).

use crate::bank;
use crate::ledger::{Ledger, RequiredCommits};
use crate::rng::Rng;
use crate::runner::{Case, CommonArgs, Tally, print_summary, run_cases};
use crate::session::{Action, CommitSpec, CrashPoint, DbSession, check_final_state};
use crate::settings::Settings;
use perigee::{Compression, Durability, FamilyOptions, HistoryPolicy};
use perigee_env::fs::memory::{Crash, SimDisk};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// First case number of the exhaustive part.
const EXHAUSTIVE_BASE: u64 = 1 << 40;
/// First case number of the part with transactions.
const TRANSACTIONS_BASE: u64 = 1 << 41;

/// Idle time of the log after which the manifest gets a watermark, in microseconds.
const WATERMARK_US: u64 = 1_500_000;

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Shared options.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Skip the exhaustive part.
    #[arg(long)]
    pub random_only: bool,
    /// Length of the longest history of the exhaustive part, in operations.
    #[arg(long, default_value_t = 3)]
    pub depth: u32,
    /// Number of cases of the part with transactions.
    #[arg(long, default_value_t = 500)]
    pub transactions: u64,
    /// Run only the part with transactions, with the number of cases from `--cases`.
    #[arg(long)]
    pub only_transactions: bool,
}

/// Runs the command. Returns true if no case failed.
pub fn run(args: &Args) -> bool {
    let (common, mut tally) = (&args.common, Tally::default());
    let goes_on = |tally: &Tally| tally.violations == 0 || !common.stop;
    if !args.only_transactions {
        tally = run_cases("crash", common, 0, common.case_limit(EXHAUSTIVE_BASE), random_case);
    }
    if goes_on(&tally) && !args.random_only && !args.only_transactions {
        tally.add(&run_exhaustive(args));
    }
    if goes_on(&tally) && !args.random_only {
        let n = if args.only_transactions { common.cases } else { args.transactions };
        let n = if common.case.is_some() { EXHAUSTIVE_BASE } else { n };
        let body = |case: &Case| bank::run_case(case, random_durability);
        tally.add(&run_cases("crash", common, TRANSACTIONS_BASE, n, body));
    }
    let min_cases = if common.case.is_some() { 1 } else { common.cases };
    print_summary(&tally, if goes_on(&tally) { min_cases } else { 0 })
}

/// Returns a random durability, most often `Full`, which guarantees most.
fn random_durability(rng: &mut Rng) -> Durability {
    match rng.below(5) {
        0 => Durability::None,
        1 => Durability::Interval(Duration::from_millis(rng.pick(&[1, 5]))),
        _ => Durability::Full,
    }
}

fn random_script(rng: &mut Rng, writer: usize, n: usize, mixed: bool) -> Vec<Action> {
    let mut script = Vec::new();
    while script.len() < n {
        let next = match rng.weighted(&[80, 3, 3, 1, 4, 4, 1, 1, 1, 4, 3, 4]) {
            1 => Action::Sync,
            2 => Action::Flush,
            3 => Action::Compact,
            4 if writer == 0 => Action::CreateOrDropFamily,
            5 if rng.percent(30) => {
                // A synced commit triggers a watermark, which must not cover the commit after it.
                let commit =
                    |seed, durability| Action::Commit(CommitSpec::Random(seed), Some(durability));
                script.push(commit(rng.next(), Durability::Full));
                script.push(commit(rng.next(), Durability::None));
                Action::Sleep(WATERMARK_US)
            }
            5 => Action::Sleep(rng.log_uniform(4000)),
            6 => Action::WaitIdle,
            7 => Action::CancelCompactions(rng.log_uniform(2000)),
            8 => Action::CompactRange(rng.next()),
            9 if writer == 0 => {
                rng.pick(&[Action::ClearFamily, Action::CloneFamily, Action::RenameFamily])
            }
            11 if writer == 0 => Action::PollChanges,
            10 if rng.percent(40) => Action::PutInParts(rng.next()),
            10 => Action::Load(rng.next(), rng.pick(&[1, 100, 1 << 20])),
            _ => {
                let own =
                    if mixed && rng.percent(30) { Some(random_durability(rng)) } else { None };
                Action::Commit(CommitSpec::Random(rng.next()), own)
            }
        };
        script.push(next);
    }
    script
}

/// Runs a few sessions of one database, each ended by a crash or occasionally by a close.
fn random_case(case: &Case) -> Result<(), String> {
    let mut rng = Rng::new(case.case_seed());
    let writers = rng.pick(&[1, 2, 2, 3]);
    let settings = Settings::random(&mut rng)
        .with_durability(random_durability(&mut rng))
        .with_random_encryption(case.case_seed());
    let (share, mixed) = (rng.percent(60), rng.percent(50));
    let ledger = Arc::new(Mutex::new(Ledger::new(writers)));
    let (mut disk, mut required) = (SimDisk::new(rng.next()), RequiredCommits::Acked);
    let cycles = rng.pick(&[2, 2, 2, 3]);
    let mut opening = 0; // consecutive crashes during open
    let mut cycle = 0;
    while cycle < cycles {
        let n = rng.log_uniform(60) as usize;
        let scripts: Vec<_> = (0..writers).map(|w| random_script(&mut rng, w, n, mixed)).collect();
        let when = match rng.below(10) {
            0 | 1 if opening < 3 => CrashPoint::Io(rng.between(1, 24) as u64),
            2 => CrashPoint::WritersDone,
            3 if cycle > 0 => CrashPoint::CleanClose,
            _ => CrashPoint::IoAfterOpen(1 + rng.below((n * writers * 3 + 10) as u64)),
        };
        let crash = if rng.percent(65) { Crash::Power } else { Crash::Process };
        let verify = rng.percent(50);
        let session = DbSession {
            seed: rng.next(),
            settings: settings.clone(),
            scripts,
            write_shared_key: share,
            crash_point: when,
            crash_kind: crash,
            verify,
        };
        let after = session.run(case, disk, &ledger, required)?;
        let in_open = after.crashed_in_open;
        case.count("sessions", 1);
        case.count("crashes", u64::from(after.crashed));
        case.count("crashes during open", u64::from(in_open));
        // A crash during open is a cycle of its own; the next one is a double crash.
        opening = if in_open { opening + 1 } else { 0 };
        case.count("double crashes", u64::from(in_open && cycle > 0));
        cycle += u64::from(!in_open || opening >= 3);
        (disk, required) = (after.disk, after.required);
    }
    let pattern = DbSession {
        seed: rng.next(),
        settings,
        scripts: vec![Vec::new(); writers],
        write_shared_key: share,
        crash_point: CrashPoint::CleanClose,
        crash_kind: Crash::Power,
        verify: true,
    };
    check_final_state(case, &pattern, disk, &ledger, required)
}

/// Operations of the exhaustive part.
const EXHAUSTIVE_ACTIONS: [Action; 9] = [
    Action::Commit(CommitSpec::OneKey, None),
    Action::Commit(CommitSpec::TwoFamilies, None),
    Action::Commit(CommitSpec::Delete, None),
    Action::Commit(CommitSpec::ChangingFamily, None),
    Action::CreateOrDropFamily,
    Action::ClearFamily,
    Action::Flush,
    Action::Compact,
    Action::Load(5, 60),
];

/// Returns all histories of up to `depth` operations, and the shorter ones with a watermark at the
/// end.
fn all_histories(depth: u32) -> Vec<Vec<Action>> {
    let mut all: Vec<Vec<Action>> = vec![Vec::new()];
    let mut last = all.clone();
    for _ in 0..depth {
        last = last
            .iter()
            .flat_map(|history| {
                EXHAUSTIVE_ACTIONS
                    .iter()
                    .map(move |action| history.iter().copied().chain([*action]).collect())
            })
            .collect();
        all.extend(last.iter().cloned());
    }
    let shorter =
        all.iter().filter(|history| !history.is_empty() && history.len() < depth as usize);
    let idle = |history: &Vec<Action>| [&history[..], &[Action::Sleep(WATERMARK_US)]].concat();
    let idle: Vec<_> = shorter.map(idle).collect();
    all.extend(idle);
    all
}

/// Returns the settings of an exhaustive history; the durability alternates with its number.
fn exhaustive_settings(number: u64) -> Settings {
    let family = FamilyOptions::new()
        .memtable_bytes(4 << 10)
        .block_bytes(256)
        .target_file_bytes(2 << 10)
        .level1_bytes(4 << 10)
        .level_ratio(2)
        .value_threshold(if number.is_multiple_of(3) { 8 } else { 4096 })
        .compression(Compression::None);
    let durability = if number.is_multiple_of(2) { Durability::Full } else { Durability::None };
    Settings {
        family,
        cache_bytes: 0,
        row_cache_bytes: if number % 4 < 2 { 0 } else { 16 << 10 },
        memory_budget: 0,
        min_free_space: 0,
        durability,
        verify_outputs: true,
        log_file_bytes: 0,
        open_files: 4,
        scrub_us: 0,
        encrypted: number % 8 == 3,
        log_retention: if number % 4 < 2 { 0 } else { 1 << 50 },
        history: if number.is_multiple_of(5) {
            HistoryPolicy::Operations(2)
        } else {
            HistoryPolicy::None
        },
    }
}

/// Runs the exhaustive part. One case is one history: every I/O of it, with both kinds of crash.
fn run_exhaustive(args: &Args) -> Tally {
    let all = all_histories(args.depth);
    let n = all.len() as u64;
    let mut tally = run_cases("crash", &args.common, EXHAUSTIVE_BASE, n, |case| {
        let number = case.number - EXHAUSTIVE_BASE;
        let index = usize::try_from(number).map_err(|e| e.to_string())?;
        let history = all.get(index).ok_or("no such history")?;
        crash_at_every_io(case, number, history)
    });
    let points = tally.get("crash points");
    // Each crash point counts as a case.
    tally.cases = if tally.cases > 0 { points.max(1) } else { 0 };
    tally
}

fn crash_at_every_io(case: &Case, number: u64, history: &[Action]) -> Result<(), String> {
    let settings = exhaustive_settings(number);
    let session = |when, crash| DbSession {
        seed: case.case_seed(),
        settings: settings.clone(),
        scripts: vec![history.to_vec()],
        write_shared_key: false,
        crash_point: when,
        crash_kind: crash,
        verify: false,
    };
    let dry = session(CrashPoint::CleanClose, Crash::Process).run(
        case,
        SimDisk::new(case.case_seed()),
        &Arc::new(Mutex::new(Ledger::new(1))),
        RequiredCommits::Acked,
    )?;
    let (all, open) = dry.ios;
    if let Some((Action::Sleep(_), busy)) = history.split_last() {
        let scripts = vec![busy.to_vec()];
        let ledger = Arc::new(Mutex::new(Ledger::new(1)));
        let without = DbSession { scripts, ..session(CrashPoint::CleanClose, Crash::Process) };
        let ios =
            without.run(case, SimDisk::new(case.case_seed()), &ledger, RequiredCommits::Acked)?.ios;
        case.count("histories with a watermark", u64::from(all > ios.0));
    }
    // Creating an empty database makes the same I/Os in every history; the empty history covers
    // them.
    let first = if history.is_empty() { 1 } else { open + 1 };
    for io in first..=all {
        for crash in [Crash::Process, Crash::Power] {
            case.count("crash points", 1);
            let point = || -> Result<(), String> {
                let ledger = Arc::new(Mutex::new(Ledger::new(1)));
                let disk = SimDisk::new(case.case_seed());
                let session = session(CrashPoint::Io(io), crash);
                let after = session.run(case, disk, &ledger, RequiredCommits::Acked)?;
                check_final_state(case, &session, after.disk, &ledger, after.required)
            };
            point()
                .map_err(|e| format!("{history:?}, {crash:?} crash at I/O {io} of {all}: {e}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_action_sequences_are_enumerated() {
        assert_eq!(all_histories(0).len(), 1);
        assert_eq!(
            all_histories(2).len(),
            1 + 9 + 81 + 9,
            "including the histories with a watermark"
        );
    }
}
