//! `perigee-sim safety`: checkpoints, backups, prunes and restores crashed at their I/Os; read-only
//! opens that must change nothing; repairs of damaged copies that must not invent anything;
//! directories of other programs (`foreign_directory`); commit hooks under concurrency
//! (`commit_hooks`).
//!
//! Guarantees: a generation that existed before a crash restores to exactly what it held; a
//! checkpoint is complete or absent, and complete once its call has returned; the source loses
//! nothing; a repaired database holds only what was once written.

use crate::commit_hooks;
use crate::contents::read_all;
use crate::engine_target::PATH;
use crate::foreign_directory;
use crate::ledger::Contents;
use crate::read_only_open;
use crate::rng::{Rng, mix, value_bytes};
use crate::runner::{Case, CommonArgs, print_summary, run_cases};
use crate::settings::Settings;
use perigee::backup::BackupDir;
use perigee::env::{DirOpenMode, Env};
use perigee::{Compression, Db, Durability, Family, repair_in};
use perigee_base::HEADER_BYTES;
use perigee_env::fs::memory::{Crash, SimDisk};
use perigee_env::sim::SimWorld;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BACKUP_DIR: &str = "/backup";
const CHECKPOINT_DIR: &str = "/copy";
/// Number of crash points that a case tries for its operation.
const CRASH_POINTS: u64 = 6;

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Shared options.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Runs the command. Returns true if no case failed.
pub fn run(args: &Args) -> bool {
    let tally = run_cases("safety", &args.common, 0, args.common.case_limit(u64::MAX), run_case);
    print_summary(&tally, if args.common.case.is_some() { 1 } else { args.common.cases })
}

/// State of a case before the crash.
struct PreCrashState {
    settings: Settings,
    /// Disk of the open database.
    disk: Arc<SimDisk>,
    contents: Contents,
    generations: BTreeMap<u64, Contents>,
    /// Every value that a key ever had.
    values_ever: BTreeMap<(String, Vec<u8>), BTreeSet<Vec<u8>>>,
}

#[derive(Clone, Copy, Debug)]
enum SafetyOp {
    Backup,
    Prune,
    Checkpoint,
}

fn run_case(case: &Case) -> Result<(), String> {
    let mut rng = Rng::new(case.case_seed());
    let past = build_history(case, &mut rng)?;
    let act = [SafetyOp::Backup, SafetyOp::Prune, SafetyOp::Checkpoint][(case.number % 3) as usize];
    crash_during(case, &past, act, &mut rng)?;
    check_read_only_open(case, &past)?;
    read_only_open::run_case(case)?;
    foreign_directory::foreign_directory_case(case)?;
    commit_hooks::hook_threads_case(case)?;
    check_repair(case, &past, &mut rng)
}

/// Runs a few rounds of writes with a generation after each. The database is still open when the
/// disk is cloned.
fn build_history(case: &Case, rng: &mut Rng) -> Result<PreCrashState, String> {
    let mut settings = Settings::random(rng).with_durability(Durability::Full);
    settings.family.compression = Compression::None;
    let disk = SimDisk::new(rng.next());
    case.keep_disk("history", &disk);
    let (mut generations, mut ever) = (BTreeMap::new(), BTreeMap::new());
    let now = SimWorld::new(rng.next()).run(disk.clone(), |env| {
        let db = open(&env, &settings, PATH)?;
        db.create_family("a", settings.family.clone()).map_err(|e| e.to_string())?;
        for _ in 0..rng.between(2, 4) {
            let families = [db.default_family(), db.family("a").map_err(|e| e.to_string())?];
            for _ in 0..rng.between(5, 60) {
                write_random(&db, &families, rng, &mut ever).map_err(|e| e.to_string())?;
            }
            let made = db.backups().create(BACKUP_DIR).map_err(|e| format!("backup: {e}"))?;
            generations.insert(made.generation, read_contents(&db)?);
        }
        // Writes that are in no generation.
        let families = [db.default_family(), db.family("a").map_err(|e| e.to_string())?];
        for _ in 0..rng.between(1, 20) {
            write_random(&db, &families, rng, &mut ever).map_err(|e| e.to_string())?;
        }
        let now = read_contents(&db)?;
        Ok::<_, String>((disk.crash_clone(1, Crash::Process), now))
    })?;
    Ok(PreCrashState { settings, disk: now.0, contents: now.1, generations, values_ever: ever })
}

type ValuesEver = BTreeMap<(String, Vec<u8>), BTreeSet<Vec<u8>>>;

fn write_random(
    db: &Db,
    families: &[Family],
    rng: &mut Rng,
    ever: &mut ValuesEver,
) -> perigee::Result<()> {
    let family = &families[rng.index(families.len())];
    let key = format!("{:03}", rng.below(40)).into_bytes();
    match rng.weighted(&[70, 15, 5, 5, 2]) {
        0 => {
            let (seed, len) = (rng.next(), rng.between(1, 120));
            let value = value_bytes(seed, len);
            ever.entry((family.name().to_owned(), key.clone())).or_default().insert(value.clone());
            family.put(&key, &value)
        }
        1 => family.delete(&key),
        2 => family.delete_prefix(&key[..2]),
        3 => db.admin().flush(),
        _ => db.admin().compact(),
    }
}

fn open(env: &Env, settings: &Settings, path: &str) -> Result<Db, String> {
    Db::open(path, settings.options(env.clone()).create_if_missing(path == PATH))
        .map_err(|e| format!("open {path}: {e}"))
}

fn read_contents(db: &Db) -> Result<Contents, String> {
    read_all(db).map_err(|e| format!("reading: {e}"))
}

fn run_op(act: SafetyOp, db: &Db, env: &Env) -> perigee::Result<()> {
    match act {
        SafetyOp::Backup => db.backups().create(BACKUP_DIR).map(|_| ()),
        SafetyOp::Prune => BackupDir::open_in(env.clone(), BACKUP_DIR).prune(1).map(|_| ()),
        SafetyOp::Checkpoint => db.backups().checkpoint(CHECKPOINT_DIR).map(|_| ()),
    }
}

/// Runs the operation with a crash at some of its I/Os and with one right after it has returned.
fn crash_during(
    case: &Case,
    past: &PreCrashState,
    what: SafetyOp,
    rng: &mut Rng,
) -> Result<(), String> {
    let seed = rng.next();
    let perform = |crash_at: Option<u64>| {
        let disk = past.disk.deep_clone();
        SimWorld::new(seed).run(disk.clone(), |env| {
            let db = open(&env, &past.settings, PATH)?;
            db.admin().wait_idle().map_err(|e| e.to_string())?;
            let before = disk.mutating_calls();
            crash_at.iter().for_each(|n| disk.crash_at(*n));
            let done = run_op(what, &db, &env);
            match done {
                Err(e) if !disk.crashed() => Err(format!("{what:?}: {e}")),
                // The operation has returned: a power cut now must not undo it.
                done => Ok((
                    disk.mutating_calls() - before,
                    done.is_ok(),
                    disk.crash_clone(seed, Crash::Power),
                )),
            }
        })
    };
    let (ios, _, after) = perform(None)?;
    check_after_crash(case, past, what, true, after)
        .map_err(|e| format!("a power cut after {what:?}: {e}"))?;
    for _ in 0..CRASH_POINTS.min(ios) {
        let n = 1 + rng.below(ios);
        let (_, done, left) = perform(Some(n))?;
        case.count("crashes", 1);
        check_after_crash(case, past, what, done, left)
            .map_err(|e| format!("{what:?} crashed at I/O {n} of {ios}: {e}"))?;
    }
    Ok(())
}

/// Checks what must hold on the disk that a crash left.
fn check_after_crash(
    case: &Case,
    past: &PreCrashState,
    what: SafetyOp,
    done: bool,
    disk: Arc<SimDisk>,
) -> Result<(), String> {
    case.keep_disk("after", &disk);
    SimWorld::new(mix(case.case_seed(), 7)).run(disk, |env| {
        let newest = past.generations.keys().next_back().copied().unwrap_or(0);
        let backups = BackupDir::open_in(env.clone(), BACKUP_DIR);
        let listed: Vec<u64> = backups
            .list()
            .map_err(|e| format!("list: {e}"))?
            .iter()
            .map(|g| g.generation)
            .collect();
        for (number, expected) in &past.generations {
            let must = matches!(what, SafetyOp::Backup | SafetyOp::Checkpoint) || *number == newest;
            if must && !listed.contains(number) {
                return Err(format!("generation {number} is gone; there are {listed:?}"));
            }
            if listed.contains(number) {
                check_restore(case, past, &env, &backups, *number, expected)?;
            }
        }
        if matches!(what, SafetyOp::Backup) && done && !listed.contains(&(newest + 1)) {
            return Err("the new generation is gone".into());
        }
        if listed.contains(&(newest + 1)) {
            check_restore(case, past, &env, &backups, newest + 1, &past.contents)?;
        }
        check_checkpoint(past, &env, done && matches!(what, SafetyOp::Checkpoint))?;
        let db = open(&env, &past.settings, PATH)?;
        check_equal("the source", &read_contents(&db)?, &past.contents)?;
        // Later operations must succeed as well.
        db.backups().create(BACKUP_DIR).map_err(|e| format!("the next backup: {e}"))?;
        backups.prune(2).map_err(|e| format!("the next prune: {e}"))?;
        let errors = backups.verify(None).map_err(|e| e.to_string())?.errors;
        errors.first().map_or(Ok(()), |d| Err(format!("verify: {}", d.error)))?;
        db.close().map_err(|e| e.to_string())
    })
}

fn check_restore(
    case: &Case,
    past: &PreCrashState,
    env: &Env,
    backups: &BackupDir,
    number: u64,
    expected: &Contents,
) -> Result<(), String> {
    let target = format!("/restored-{number}");
    backups.restore(Some(number), &target).map_err(|e| format!("restore {number}: {e}"))?;
    case.count("restores", 1);
    let db = open(env, &past.settings, &target)?;
    check_equal(&target, &read_contents(&db)?, expected)?;
    db.close().map_err(|e| e.to_string())
}

/// Checks that a checkpoint is complete or absent.
fn check_checkpoint(past: &PreCrashState, env: &Env, must: bool) -> Result<(), String> {
    if env.fs.open_dir(Path::new(CHECKPOINT_DIR), DirOpenMode::Existing).is_err() {
        return if must { Err("the checkpoint is gone".into()) } else { Ok(()) };
    }
    let db = open(env, &past.settings, CHECKPOINT_DIR)?;
    check_equal("the checkpoint", &read_contents(&db)?, &past.contents)?;
    db.close().map_err(|e| e.to_string())
}

fn check_equal(what: &str, got: &Contents, expected: &Contents) -> Result<(), String> {
    if got == expected {
        return Ok(());
    }
    let count = |c: &Contents| c.values().map(BTreeMap::len).sum::<usize>();
    Err(format!("{what} differs: it holds {} entries, expected {}", count(got), count(expected)))
}

fn read_files(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let ours = |p: &PathBuf| p.starts_with(PATH);
    disk.paths().into_iter().filter(ours).map(|p| (p.clone(), disk.read_raw(&p))).collect()
}

/// Checks that a read-only open of what a killed writer left, with its last append cut short,
/// changes no byte.
fn check_read_only_open(case: &Case, past: &PreCrashState) -> Result<(), String> {
    let disk = past.disk.deep_clone();
    let last = disk
        .paths()
        .into_iter()
        .rfind(|p| p.starts_with(PATH) && p.extension().is_some_and(|e| e == "wal"));
    if let Some(log) = last {
        let mut bytes = disk.read_raw(&log);
        // Appends the start of one more record after the last one, over part of the preallocated
        // zeros.
        let taken = bytes.len();
        // A record header may end in a zero, too.
        bytes.truncate(
            bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1).max(HEADER_BYTES),
        );
        bytes.extend_from_slice(&[7; 20]);
        bytes.resize(bytes.len().max(taken), 0);
        disk.write_raw(&log, bytes);
    }
    let before = read_files(&disk);
    let (calls, settings) = (disk.mutating_calls(), &past.settings);
    SimWorld::new(case.case_seed()).run(disk.clone(), |env| {
        let db = Db::open(PATH, settings.options(env).read_only(true))
            .map_err(|e| format!("read-only: {e}"))?;
        check_equal("the read-only database", &read_contents(&db)?, &past.contents)?;
        case.count("read-only opens", 1);
        db.close().map_err(|e| e.to_string())
    })?;
    if read_files(&disk) != before || disk.mutating_calls() != calls {
        return Err("a read-only open changed the database".into());
    }
    Ok(())
}

/// Flips a byte of a table: the repaired database may lack entries, but must not contain any that
/// were never written.
fn check_repair(case: &Case, past: &PreCrashState, rng: &mut Rng) -> Result<(), String> {
    let tables: Vec<PathBuf> = (past.disk.paths().into_iter())
        .filter(|p| {
            p.starts_with(PATH) && p.extension().is_some_and(|e| e == "klog" || e == "vlog")
        })
        .collect();
    for path in &tables {
        let disk = past.disk.deep_clone();
        let mut bytes = disk.read_raw(path);
        let at = 72 + rng.index(bytes.len().saturating_sub(72).max(1));
        if at >= bytes.len() {
            continue;
        }
        bytes[at] ^= 1 << rng.below(8);
        disk.write_raw(path, bytes);
        let before = read_files(&disk);
        SimWorld::new(case.case_seed()).run(disk.clone(), |env| {
            repair_in(&env, PATH, "/repaired", |_, _| {}).map_err(|e| format!("repair: {e}"))?;
            let db = open(&env, &past.settings, "/repaired")?;
            for (family, entries) in read_contents(&db)? {
                for (key, value) in entries {
                    let known = past.values_ever.get(&(family.clone(), key.clone()));
                    if !known.is_some_and(|values| values.contains(&value)) {
                        let shown = key.escape_ascii();
                        return Err(format!(
                            "repair of {} at {at} invented \"{shown}\"",
                            path.display()
                        ));
                    }
                }
            }
            case.count("repairs", 1);
            db.close().map_err(|e| e.to_string())
        })?;
        if read_files(&disk) != before {
            return Err("repair changed its source".into());
        }
    }
    Ok(())
}
