//! `perigee-sim safety`: checkpoints, backups, prunes and restores under crashes at their I/Os; read-only opens that must
//! change nothing; repairs of damaged copies that must not invent anything; directories of other programs (`foreign`);
//! commit hooks among threads (`hooks`).
//!
//! Promises: a generation that was there before a crash restores to exactly what it held; a checkpoint is there whole or
//! not at all, and after its call returned it is there; the source loses nothing; a repaired database holds only
//! what was once written.

use crate::beside;
use crate::contents::read_all;
use crate::engine::PATH;
use crate::foreign;
use crate::hooks;
use crate::ledger::Contents;
use crate::rng::{Rng, mix, value_bytes};
use crate::runner::{Case, Common, conclude, run_cases};
use crate::settings::Settings;
use perigee::env::{Env, OpenDir};
use perigee::{Backups, Compression, Db, Durability, Family, repair_in};
use perigee_base::format::HEADER_BYTES;
use perigee_env::fs::memory::{Crash, SimDisk};
use perigee_env::sim::World;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BACKUP: &str = "/backup";
const COPY: &str = "/copy";
/// Crash points that a case tries for its operation.
const POINTS: u64 = 6;

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Shared options.
    #[command(flatten)]
    pub common: Common,
}

/// Runs the command; whether all went well.
pub fn run(args: &Args) -> bool {
    let tally = run_cases("safety", &args.common, 0, args.common.numbers(u64::MAX), one_case);
    conclude(&tally, if args.common.case.is_some() { 1 } else { args.common.cases })
}

/// What a case knows before the crash.
struct Past {
    settings: Settings,
    /// The open database's disk.
    disk: Arc<SimDisk>,
    now: Contents,
    generations: BTreeMap<u64, Contents>,
    /// Every value that a key ever had.
    ever: BTreeMap<(String, Vec<u8>), BTreeSet<Vec<u8>>>,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Backup,
    Prune,
    Checkpoint,
}

fn one_case(case: &Case) -> Result<(), String> {
    let mut rng = Rng::new(case.mixed());
    let past = history(case, &mut rng)?;
    let act = [Act::Backup, Act::Prune, Act::Checkpoint][(case.number % 3) as usize];
    crashes(case, &past, act, &mut rng)?;
    read_only(case, &past)?;
    beside::one_case(case)?;
    foreign::directories(case)?;
    hooks::threads(case)?;
    repairs(case, &past, &mut rng)
}

/// A few rounds of writes, a generation after each; the database is left open when the disk is cloned.
fn history(case: &Case, rng: &mut Rng) -> Result<Past, String> {
    let mut settings = Settings::random(rng).durability(Durability::Full);
    settings.family.compression = Compression::None;
    let disk = SimDisk::new(rng.next());
    case.keep("history", &disk);
    let (mut generations, mut ever) = (BTreeMap::new(), BTreeMap::new());
    let now = World::new(rng.next()).run(disk.clone(), |env| {
        let db = open(&env, &settings, PATH)?;
        db.create_family("a", settings.family.clone()).map_err(|e| e.to_string())?;
        for _ in 0..rng.between(2, 4) {
            let families = [db.default_family(), db.family("a").map_err(|e| e.to_string())?];
            for _ in 0..rng.between(5, 60) {
                write(&db, &families, rng, &mut ever).map_err(|e| e.to_string())?;
            }
            let made = db.backup(BACKUP).map_err(|e| format!("backup: {e}"))?;
            generations.insert(made.generation, contents(&db)?);
        }
        // Some that are in no generation.
        let families = [db.default_family(), db.family("a").map_err(|e| e.to_string())?];
        for _ in 0..rng.between(1, 20) {
            write(&db, &families, rng, &mut ever).map_err(|e| e.to_string())?;
        }
        let now = contents(&db)?;
        Ok::<_, String>((disk.crash_clone(1, Crash::Process), now))
    })?;
    Ok(Past { settings, disk: now.0, now: now.1, generations, ever })
}

type Ever = BTreeMap<(String, Vec<u8>), BTreeSet<Vec<u8>>>;

fn write(db: &Db, families: &[Family], rng: &mut Rng, ever: &mut Ever) -> perigee::Result<()> {
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
        3 => db.flush(),
        _ => db.compact(),
    }
}

fn open(env: &Env, settings: &Settings, path: &str) -> Result<Db, String> {
    Db::open(path, settings.options(env.clone()).create_if_missing(path == PATH))
        .map_err(|e| format!("open {path}: {e}"))
}

fn contents(db: &Db) -> Result<Contents, String> {
    read_all(db).map_err(|e| format!("reading: {e}"))
}

fn act(act: Act, db: &Db, env: &Env) -> perigee::Result<()> {
    match act {
        Act::Backup => db.backup(BACKUP).map(|_| ()),
        Act::Prune => Backups::open_in(env.clone(), BACKUP).prune(1).map(|_| ()),
        Act::Checkpoint => db.checkpoint(COPY).map(|_| ()),
    }
}

/// The operation, crashed at some of its I/Os, and right after it has returned.
fn crashes(case: &Case, past: &Past, what: Act, rng: &mut Rng) -> Result<(), String> {
    let seed = rng.next();
    let perform = |crash_at: Option<u64>| {
        let disk = past.disk.deep_clone();
        World::new(seed).run(disk.clone(), |env| {
            let db = open(&env, &past.settings, PATH)?;
            db.wait_idle().map_err(|e| e.to_string())?;
            let before = disk.io_count();
            crash_at.iter().for_each(|n| disk.crash_at(*n));
            let done = act(what, &db, &env);
            match done {
                Err(e) if !disk.crashed() => Err(format!("{what:?}: {e}")),
                // Nothing that happens later may be needed: the power goes now.
                done => Ok((disk.io_count() - before, done.is_ok(), disk.crash_clone(seed, Crash::Power))),
            }
        })
    };
    let (ios, _, after) = perform(None)?;
    check(case, past, what, true, after).map_err(|e| format!("a power cut after {what:?}: {e}"))?;
    for _ in 0..POINTS.min(ios) {
        let n = 1 + rng.below(ios);
        let (_, done, left) = perform(Some(n))?;
        case.count("crashes", 1);
        check(case, past, what, done, left)
            .map_err(|e| format!("{what:?} crashed at I/O {n} of {ios}: {e}"))?;
    }
    Ok(())
}

/// What must hold on the disk that a crash left.
fn check(case: &Case, past: &Past, what: Act, done: bool, disk: Arc<SimDisk>) -> Result<(), String> {
    case.keep("after", &disk);
    World::new(mix(case.mixed(), 7)).run(disk, |env| {
        let newest = past.generations.keys().next_back().copied().unwrap_or(0);
        let backups = Backups::open_in(env.clone(), BACKUP);
        let listed: Vec<u64> =
            backups.list().map_err(|e| format!("list: {e}"))?.iter().map(|g| g.generation).collect();
        for (number, expected) in &past.generations {
            let must = matches!(what, Act::Backup | Act::Checkpoint) || *number == newest;
            if must && !listed.contains(number) {
                return Err(format!("generation {number} is gone; there are {listed:?}"));
            }
            if listed.contains(number) {
                restored(case, past, &env, &backups, *number, expected)?;
            }
        }
        if matches!(what, Act::Backup) && done && !listed.contains(&(newest + 1)) {
            return Err("the new generation is gone".into());
        }
        if listed.contains(&(newest + 1)) {
            restored(case, past, &env, &backups, newest + 1, &past.now)?;
        }
        copy(past, &env, done && matches!(what, Act::Checkpoint))?;
        let db = open(&env, &past.settings, PATH)?;
        same("the source", &contents(&db)?, &past.now)?;
        // And all of it goes on.
        db.backup(BACKUP).map_err(|e| format!("the next backup: {e}"))?;
        backups.prune(2).map_err(|e| format!("the next prune: {e}"))?;
        let errors = backups.verify(None).map_err(|e| e.to_string())?.errors;
        errors.first().map_or(Ok(()), |(e, _)| Err(format!("verify: {e}")))?;
        db.close().map_err(|e| e.to_string())
    })
}

fn restored(
    case: &Case,
    past: &Past,
    env: &Env,
    backups: &Backups,
    number: u64,
    expected: &Contents,
) -> Result<(), String> {
    let target = format!("/restored-{number}");
    backups.restore(Some(number), &target).map_err(|e| format!("restore {number}: {e}"))?;
    case.count("restores", 1);
    let db = open(env, &past.settings, &target)?;
    same(&target, &contents(&db)?, expected)?;
    db.close().map_err(|e| e.to_string())
}

/// A checkpoint is there whole or not at all.
fn copy(past: &Past, env: &Env, must: bool) -> Result<(), String> {
    if env.fs.open_dir(Path::new(COPY), OpenDir::Existing).is_err() {
        return if must { Err("the checkpoint is gone".into()) } else { Ok(()) };
    }
    let db = open(env, &past.settings, COPY)?;
    same("the checkpoint", &contents(&db)?, &past.now)?;
    db.close().map_err(|e| e.to_string())
}

fn same(what: &str, got: &Contents, expected: &Contents) -> Result<(), String> {
    if got == expected {
        return Ok(());
    }
    let count = |c: &Contents| c.values().map(BTreeMap::len).sum::<usize>();
    Err(format!("{what} holds {} entries instead of {}, or others", count(got), count(expected)))
}

fn image(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let ours = |p: &PathBuf| p.starts_with(PATH);
    disk.paths().into_iter().filter(ours).map(|p| (p.clone(), disk.read_raw(&p))).collect()
}

/// A read-only open of what a killed writer left, its last append cut short: not a byte may change.
fn read_only(case: &Case, past: &Past) -> Result<(), String> {
    let disk = past.disk.deep_clone();
    let last =
        disk.paths().into_iter().rfind(|p| p.starts_with(PATH) && p.extension().is_some_and(|e| e == "wal"));
    if let Some(log) = last {
        let mut bytes = disk.read_raw(&log);
        // The start of one more record, behind the last: over the zeros of space that was taken ahead, some of which are left.
        let taken = bytes.len();
        // A header may end in a zero, too.
        bytes.truncate(bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1).max(HEADER_BYTES));
        bytes.extend_from_slice(&[7; 20]);
        bytes.resize(bytes.len().max(taken), 0);
        disk.write_raw(&log, bytes);
    }
    let before = image(&disk);
    let (calls, settings) = (disk.io_count(), &past.settings);
    World::new(case.mixed()).run(disk.clone(), |env| {
        let db =
            Db::open(PATH, settings.options(env).read_only(true)).map_err(|e| format!("read-only: {e}"))?;
        same("the read-only database", &contents(&db)?, &past.now)?;
        case.count("read-only opens", 1);
        db.close().map_err(|e| e.to_string())
    })?;
    if image(&disk) != before || disk.io_count() != calls {
        return Err("a read-only open changed the database".into());
    }
    Ok(())
}

/// A byte of a table is flipped: what repair makes may lack something, but not invent anything.
fn repairs(case: &Case, past: &Past, rng: &mut Rng) -> Result<(), String> {
    let tables: Vec<PathBuf> = (past.disk.paths().into_iter())
        .filter(|p| p.starts_with(PATH) && p.extension().is_some_and(|e| e == "klog" || e == "vlog"))
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
        let before = image(&disk);
        World::new(case.mixed()).run(disk.clone(), |env| {
            repair_in(&env, PATH, "/mended", |_, _| {}).map_err(|e| format!("repair: {e}"))?;
            let db = open(&env, &past.settings, "/mended")?;
            for (family, entries) in contents(&db)? {
                for (key, value) in entries {
                    let known = past.ever.get(&(family.clone(), key.clone()));
                    if !known.is_some_and(|values| values.contains(&value)) {
                        let shown = key.escape_ascii();
                        return Err(format!("repair of {} at {at} invented \"{shown}\"", path.display()));
                    }
                }
            }
            case.count("repairs", 1);
            db.close().map_err(|e| e.to_string())
        })?;
        if image(&disk) != before {
            return Err("repair changed its source".into());
        }
    }
    Ok(())
}
