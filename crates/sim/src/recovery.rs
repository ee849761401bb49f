//! `perigee-sim recovery`: opens with a memory budget that is a small part of the log. A database
//! is written with ample memory, so that all of it is in the log, crashes, and is opened with a
//! budget of a tenth. That open is crashed several times; the final one must hold what the ledger
//! requires, within the budget. Read-only opens beside such an open must also show everything,
//! although it copies the end of the log into a new segment and truncates the old one.

use crate::contents::read_all;
use crate::engine_target::PATH;
use crate::ledger::{Ledger, RequiredCommits};
use crate::rng::{Rng, mix};
use crate::runner::{Case, CommonArgs, print_summary, run_cases};
use crate::session::{Action, CommitSpec, CrashPoint, DbSession, check_final_state};
use crate::settings::Settings;
use perigee::{Db, Durability};
use perigee_env::fs::memory::{Crash, SimDisk};
use perigee_env::sim::SimWorld;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Memory budget of the opens.
const MEMORY_BUDGET: u64 = 64 << 10;
/// Maximum size of a commit.
const COMMIT_BYTES_MAX: u64 = 32 << 10;

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Shared options.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Runs the command. Returns true if no case failed.
pub fn run(args: &Args) -> bool {
    let tally = run_cases("recovery", &args.common, 0, args.common.case_limit(u64::MAX), run_case);
    print_summary(&tally, if args.common.case.is_some() { 1 } else { args.common.cases })
}

fn random_durability(rng: &mut Rng) -> Durability {
    rng.pick(&[Durability::None, Durability::None, Durability::Full])
}

fn random_script(rng: &mut Rng, writer: usize, n: usize) -> Vec<Action> {
    let action = |rng: &mut Rng| match rng.weighted(&[200, 4, 1, 1, 1, 1]) {
        1 => Action::Sync,
        2 if writer == 0 => Action::CreateOrDropFamily,
        3 if writer == 0 => {
            rng.pick(&[Action::ClearFamily, Action::CloneFamily, Action::RenameFamily])
        }
        4 if rng.percent(30) => Action::PutInParts(rng.next()),
        4 => Action::Load(rng.next(), 100),
        5 if n < 100 => Action::Flush,
        _ => {
            let own = rng.percent(5).then(|| random_durability(rng));
            Action::Commit(CommitSpec::Random(rng.next()), own)
        }
    };
    (0..n).map(|_| action(rng)).collect()
}

/// Runs one database: written, crashed, opened and crashed several times, opened.
fn run_case(case: &Case) -> Result<(), String> {
    let mut rng = Rng::new(case.case_seed());
    let writers = rng.pick(&[1, 2]);
    let mut settings = Settings::random(&mut rng)
        .with_durability(random_durability(&mut rng))
        .with_random_encryption(case.case_seed());
    settings.family = settings.family.memtable_bytes(4 << 20);
    (settings.memory_budget, settings.min_free_space, settings.scrub_us) = (0, 0, 0);
    let small = Settings { memory_budget: MEMORY_BUDGET, ..settings.clone() };
    let ledger = Arc::new(Mutex::new(Ledger::new(writers)));
    let n = rng.pick(&[60, 300, 1200]) / writers;
    let scripts = (0..writers).map(|w| random_script(&mut rng, w, n)).collect();
    let crash = if rng.percent(50) { Crash::Power } else { Crash::Process };
    let (share, when) = (rng.percent(50), CrashPoint::WritersDone);
    let session = DbSession {
        seed: rng.next(),
        settings,
        scripts,
        write_shared_key: share,
        crash_point: when,
        crash_kind: crash,
        verify: false,
    };
    let after = session.run(case, SimDisk::new(rng.next()), &ledger, RequiredCommits::Acked)?;
    let (mut disk, mut required) = (after.disk, after.required);
    let log = log_bytes(&disk);
    case.count("log bytes", log);
    check_memory_budget(case, &disk.deep_clone(), &small, log)?;
    for _ in 0..4 {
        check_read_only_open(case, &disk.deep_clone(), &small, rng.next())?;
    }
    for round in 0..rng.below(4) {
        let when = if rng.percent(80) {
            CrashPoint::Io(rng.log_uniform(300))
        } else {
            CrashPoint::WritersDone
        };
        let scripts = (0..writers).map(|w| random_script(&mut rng, w, 10)).collect();
        let crash = if rng.percent(65) { Crash::Power } else { Crash::Process };
        let verify = round == 0;
        let session = DbSession {
            seed: rng.next(),
            settings: small.clone(),
            scripts,
            write_shared_key: share,
            crash_point: when,
            crash_kind: crash,
            verify,
        };
        let after = session.run(case, disk, &ledger, required)?;
        case.count("crashes during open", u64::from(after.crashed_in_open));
        case.count("crashes after open", u64::from(!after.crashed_in_open));
        (disk, required) = (after.disk, after.required);
    }
    let pattern = DbSession {
        seed: rng.next(),
        settings: small,
        scripts: vec![Vec::new(); writers],
        write_shared_key: share,
        crash_point: CrashPoint::CleanClose,
        crash_kind: Crash::Power,
        verify: true,
    };
    check_final_state(case, &pattern, disk, &ledger, required)
}

fn log_bytes(disk: &Arc<SimDisk>) -> u64 {
    let logs = disk.paths().into_iter().filter(|p| p.extension().is_some_and(|e| e == "wal"));
    logs.map(|p| disk.read_raw(&p).iter().rposition(|b| *b != 0).map_or(0, |at| at as u64)).sum()
}

/// Checks that a read-only open shows the same before, during and after an open that replays the
/// log.
fn check_read_only_open(
    case: &Case,
    disk: &Arc<SimDisk>,
    settings: &Settings,
    seed: u64,
) -> Result<(), String> {
    let mut world = SimWorld::new(seed);
    world.lock_switch_probability(0.5);
    world.run(disk.clone(), |env| -> Result<(), String> {
        let read = || -> perigee::Result<_> {
            let db = Db::open(PATH, settings.options(env.clone()).read_only(true))?;
            let all = read_all(&db)?;
            db.close().map(|()| all)
        };
        let read = || read().map_err(|e| format!("read-only open beside an open: {e}"));
        let before = read()?;
        let options = settings.options(env.clone());
        let open = move || drop(Db::open(PATH, options).and_then(|db| db.close()));
        let opener = env.spawn.spawn("opener", Box::new(open)).map_err(|e| e.to_string())?;
        for _ in 0..4 {
            let beside = read()?;
            case.count("read-only opens beside an open", 1);
            if beside != before {
                return Err(
                    "a read-only open beside an open lacks commits or shows wrong ones".to_owned()
                );
            }
        }
        opener.join().map_err(|panic| format!("the open panicked: {panic}"))
    })
}

/// Checks that the memory accounted for during the open, and what remains afterwards, is within the
/// budget plus the one commit that may exceed it.
fn check_memory_budget(
    case: &Case,
    disk: &Arc<SimDisk>,
    settings: &Settings,
    log: u64,
) -> Result<(), String> {
    let seed = mix(case.case_seed(), 9);
    SimWorld::new(seed).run(disk.clone(), |env| -> Result<(), String> {
        let db =
            Db::open(Path::new(PATH), settings.options(env)).map_err(|e| format!("open: {e}"))?;
        let stats = db.admin().stats();
        let (peak, most) = (stats.recovery.peak_bytes, MEMORY_BUDGET + MEMORY_BUDGET / 10);
        let memtables = stats.memory.iter().filter(|m| m.owner.contains("memtables"));
        let left: u64 = memtables.map(|m| m.bytes).sum();
        case.count("opens of ten budgets", u64::from(log >= 10 * MEMORY_BUDGET));
        case.count("highest peak, summed", peak);
        if peak > most.max(COMMIT_BYTES_MAX) || left > MEMORY_BUDGET / 2 + COMMIT_BYTES_MAX {
            return Err(format!(
                "with a budget of {MEMORY_BUDGET}, opening a log of {log} bytes used up to {peak} \
                 bytes, and {left} remained"
            ));
        }
        db.close().map_err(|e| format!("close: {e}"))
    })
}
