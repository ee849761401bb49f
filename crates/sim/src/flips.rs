//! `perigee-sim flips`: damages every byte of a small database and checks that the damage is
//! detected.
//!
//! An outcome is one of: refused at open, naming the file, with no byte changed; an error on
//! reading or from `verify`, naming the file; exactly the right contents. Anything else is silent
//! corruption, and a bug. The only exception is what no engine can detect: damage at the very end
//! of a log that was not closed, which must be reported. The damaged image is then repaired and
//! salvaged: see `loss_check`.

use crate::contents::read_all;
use crate::engine_target::PATH;
use crate::image::{ENCRYPTION_HEADER_BYTES, Image, ImageEnd};
use crate::ledger::{Contents, compare_families};
use crate::loss_check;
use crate::rng::{Rng, mix};
use crate::runner::{Case, CommonArgs, Tally, run_cases};
use perigee::recovery::RecoveryReport;
use perigee::{Db, Error};
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::SimWorld;
use perigee_env::{DirOpenMode, Fs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Shared options; here `--cases` is a minimum, because every kind of damage is done.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Flip all eight bits of each byte instead of one.
    #[arg(long)]
    pub all_bits: bool,
    /// Truncate at every k-th length.
    #[arg(long, default_value_t = 7)]
    pub truncate_step: usize,
    /// Stop after this many cases of each image.
    #[arg(long)]
    pub limit: Option<u64>,
    /// List the damage that had no effect.
    #[arg(long)]
    pub explain: bool,
}

/// One kind of damage to an image.
#[derive(Clone, Debug)]
enum Damage {
    Flip { file: usize, offset: usize, bit: u8 },
    Truncate { file: usize, len: usize },
    SwapSectors { file: usize, a: usize, b: usize },
    SwapFiles { a: usize, b: usize },
    Delete { file: usize },
    Append { file: usize, bytes: usize },
    Zero { file: usize, from: usize },
}

const SECTOR: usize = 512;
/// The disk-space reserve: half of the bytes of an image, and no open reads it.
const BALLAST_FILE: &str = "BALLAST";
/// Damages every such byte of a file that is never read.
const UNREAD_FILE_STEP: usize = 64;
/// Bytes of the header of an encrypted file that an image does not use.
const UNUSED_HEADER: std::ops::Range<usize> = 96..ENCRYPTION_HEADER_BYTES;
/// One in this number of the damages to log segments and the manifest is also repaired and
/// salvaged: a repair costs far more than an open, and neighbouring bytes give the same result.
const LOG_REPAIR_INTERVAL: u64 = 4;
/// Like `LOG_REPAIR_INTERVAL`, for tables and value logs.
const TABLE_REPAIR_INTERVAL: u64 = 64;

/// Runs the command. Returns true if no damage was silent.
pub fn run(args: &Args) -> bool {
    let mut tally = Tally::default();
    let mut first = 0;
    for (salt, end, encrypted) in [
        (1, ImageEnd::Closed, false),
        (0, ImageEnd::Killed, false),
        (2, ImageEnd::KilledIdle, false),
        (3, ImageEnd::Closed, true),
        (4, ImageEnd::Killed, true),
    ] {
        let image = match Image::build(mix(args.common.seed, salt), end, encrypted) {
            Ok(image) => image,
            Err(e) => {
                println!("VIOLATION {e}");
                println!("cases 0 silent 0 panics 0 hangs 0");
                return false;
            }
        };
        print_image(&image);
        let plan = plan_damages(&image, args);
        let n = args.limit.unwrap_or(u64::MAX).min(plan.len() as u64);
        tally.add(&run_cases("flips", &args.common, first, n, |case| {
            let index = usize::try_from(case.number - first).map_err(|e| e.to_string())?;
            run_case(case, &image, plan.get(index).ok_or("no such case")?, args.explain)
        }));
        if tally.violations > 0 && args.common.stop {
            break;
        }
        first += 10_000_000;
    }
    println!("{}", tally.counts_line());
    let other = tally.violations - tally.panics - tally.hangs;
    println!("cases {} silent {other} panics {} hangs {}", tally.cases, tally.panics, tally.hangs);
    let min_cases = if args.common.case.is_some() { 1 } else { args.common.cases };
    tally.violations == 0 && tally.cases >= min_cases
}

fn print_image(image: &Image) {
    let mut kinds: Vec<String> = Vec::new();
    for path in image.disk.paths() {
        kinds.push(format!("{} {}", path.display(), image.disk.read_raw(&path).len()));
    }
    println!("image ({:?}), {} bytes: {}", image.end, image.disk.total_bytes(), kinds.join(", "));
}

/// Returns all damages to do to an image.
fn plan_damages(image: &Image, args: &Args) -> Vec<Damage> {
    let mut rng = Rng::new(args.common.seed);
    let paths = image.disk.paths();
    let lens: Vec<usize> = paths.iter().map(|p| image.disk.read_raw(p).len()).collect();
    let mut plan = Vec::new();
    for (file, &len) in lens.iter().enumerate() {
        // The other images cover damage to tables.
        if image.end == ImageEnd::KilledIdle && !is_log_or_manifest(&paths[file]) {
            continue;
        }
        let unread = paths[file].ends_with(BALLAST_FILE);
        let unused = if image.encrypted { UNUSED_HEADER } else { 0..0 };
        for offset in (0..len).step_by(if unread { UNREAD_FILE_STEP } else { 1 }) {
            if unused.contains(&offset) && offset % UNREAD_FILE_STEP > 0 {
                continue;
            }
            if args.all_bits {
                plan.extend((0..8).map(|bit| Damage::Flip { file, offset, bit }));
            } else {
                plan.push(Damage::Flip { file, offset, bit: rng.below(8) as u8 });
            }
        }
        let step = args.truncate_step.max(1) * if unread { UNREAD_FILE_STEP } else { 1 };
        plan.extend((rng.index(step)..len).step_by(step).map(|len| Damage::Truncate { file, len }));
        plan.extend(
            [0, len / 4, len / 2, len.saturating_sub(1)].map(|len| Damage::Truncate { file, len }),
        );
        if is_log_or_manifest(&paths[file]) {
            // Zeros up to the end, as lost pages leave them: they look like preallocated space.
            plan.extend(
                (rng.index(step)..len).step_by(step).map(|from| Damage::Zero { file, from }),
            );
        }
        for a in (0..len / SECTOR).map(|i| i * SECTOR) {
            let b = rng.index(len / SECTOR) * SECTOR;
            plan.push(Damage::SwapSectors { file, a, b });
        }
        plan.push(Damage::Delete { file });
        plan.extend([1, 8, 56, 700].map(|bytes| Damage::Append { file, bytes }));
        plan.extend((file + 1..lens.len()).map(|b| Damage::SwapFiles { a: file, b }));
    }
    // In random order, so that a short run covers a bit of everything.
    for i in (1..plan.len()).rev() {
        plan.swap(i, rng.index(i + 1));
    }
    plan
}

/// Returns true for log segments, the manifest and other files that describe the database or hold
/// its newest writes.
fn is_log_or_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "wal")
        || path.file_name().is_some_and(|n| n == "MANIFEST")
}

/// Returns the damaged disk and the damaged file; `None` if no byte changed.
fn apply_damage(image: &Image, damage: &Damage, seed: u64) -> Option<(Arc<SimDisk>, PathBuf)> {
    let (disk, paths) = (image.disk.deep_clone(), image.disk.paths());
    let read = |file: usize| image.disk.read_raw(&paths[file]);
    let change = |file: usize, f: &dyn Fn(&mut Vec<u8>)| {
        let before = read(file);
        let mut bytes = before.clone();
        f(&mut bytes);
        let changed = bytes != before;
        disk.write_raw(&paths[file], bytes);
        changed.then(|| paths[file].clone())
    };
    let path = match damage {
        Damage::Flip { file, offset, bit } => change(*file, &|b| b[*offset] ^= 1 << bit)?,
        Damage::Truncate { file, len } => change(*file, &|b| b.truncate(*len))?,
        Damage::Zero { file, from } => change(*file, &|b| b[*from..].fill(0))?,
        Damage::SwapSectors { file, a, b } => change(*file, &|bytes| {
            for i in 0..SECTOR {
                bytes.swap(a + i, b + i);
            }
        })?,
        Damage::Append { file, bytes } => {
            change(*file, &|b| b.extend(crate::rng::value_bytes(seed | 1, *bytes)))?
        }
        Damage::SwapFiles { a, b } => {
            let (first, second) = (read(*a), read(*b));
            if first == second {
                return None;
            }
            disk.write_raw(&paths[*a], second);
            disk.write_raw(&paths[*b], first);
            paths[*a].clone()
        }
        Damage::Delete { file } => {
            let path = paths[*file].clone();
            let (dir, name) = (path.parent()?, path.file_name()?.to_str()?);
            let dir = disk.open_dir(dir, DirOpenMode::Existing).ok()?;
            dir.remove(name).ok()?;
            dir.sync().ok()?;
            path
        }
    };
    Some((disk, path))
}

/// Result of opening and reading.
enum OpenOutcome {
    OpenFailed(Error),
    ReadError(Error),
    Contents(Contents, RecoveryReport),
}

fn run_case(case: &Case, image: &Image, what: &Damage, explain: bool) -> Result<(), String> {
    let Some((disk, path)) = apply_damage(image, what, case.case_seed()) else {
        case.count("no change", 1);
        return Ok(());
    };
    case.keep_disk("damaged", &disk.deep_clone());
    let before = read_files(&disk);
    // Only some of the other files' damages are repaired, to save time.
    let one_in =
        if is_log_or_manifest(&path) { LOG_REPAIR_INTERVAL } else { TABLE_REPAIR_INTERVAL };
    if case.number % one_in == 0 {
        let now = before.iter().find(|(p, _)| *p == path).map(|(_, bytes)| &bytes[..]);
        let cut = image.contents_after_cut(&path, now).map(|(cut, _)| cut);
        loss_check::check(case, image, &disk, cut)
            .map_err(|e| format!("{what:?} of {}: {e}", path.display()))?;
    }
    let seen = SimWorld::new(case.case_seed()).run(disk.clone(), |env| open_and_read(image, env));
    if explain && matches!(&seen, OpenOutcome::Contents(contents, _) if *contents == image.contents)
    {
        println!("no effect: {what:?} of {} ({:?})", path.display(), image.end);
    }
    check_outcome(case, image, &disk, &before, &path, seen)
        .map_err(|e| format!("{what:?} of {}: {e}", path.display()))
}

fn open_and_read(image: &Image, env: perigee::env::Env) -> OpenOutcome {
    let db = match Db::open(Path::new(PATH), image.options(env)) {
        Ok(db) => db,
        Err(e) => return OpenOutcome::OpenFailed(e),
    };
    let recovery = db.admin().stats().recovery;
    let found = read_all(&db);
    let report = db.admin().verify();
    let _ = db.close();
    match (found, report) {
        (Ok(contents), Ok(report)) => match report.errors.into_iter().next() {
            // Wrong contents are a failure even if verify reports damage.
            Some(e) if contents == image.contents => OpenOutcome::ReadError(e),
            _ => OpenOutcome::Contents(contents, recovery),
        },
        (Err(e), _) | (Ok(_), Err(e)) => OpenOutcome::ReadError(e),
    }
}

fn check_outcome(
    case: &Case,
    image: &Image,
    disk: &SimDisk,
    before: &[(PathBuf, Vec<u8>)],
    path: &Path,
    seen: OpenOutcome,
) -> Result<(), String> {
    match seen {
        OpenOutcome::OpenFailed(e) => {
            check_names_file(&e)?;
            case.count("refused at open", 1);
            check_unchanged(before, &read_files(disk)).map_err(|e| format!("open refused, but {e}"))
        }
        OpenOutcome::ReadError(e) => {
            case.count("detected on reading", 1);
            check_names_file(&e)
        }
        OpenOutcome::Contents(contents, recovery) if contents == image.contents => {
            let reported = recovery.truncated_bytes > 0 && !recovery.reason.is_empty();
            case.count(if reported { "cut and reported, nothing lost" } else { "no effect" }, 1);
            Ok(())
        }
        OpenOutcome::Contents(contents, recovery) => {
            let now = before.iter().find(|(p, _)| p == path).map(|(_, bytes)| &bytes[..]);
            match image.contents_after_cut(path, now) {
                Some((cut, report)) if *cut == contents => {
                    if report && (recovery.truncated_bytes == 0 || recovery.reason.is_empty()) {
                        return Err(format!("a cut log was not reported: {recovery:?}"));
                    }
                    case.count("cut at the end of an unclosed log", 1);
                    Ok(())
                }
                _ => Err(format!("silent: {}", describe_difference(&image.contents, &contents))),
            }
        }
    }
}

fn check_names_file(e: &Error) -> Result<(), String> {
    let text = e.to_string();
    let internal = e.kind() == perigee::ErrorKind::Internal;
    let named =
        ["MANIFEST", ".wal", ".klog", ".vlog", "LOCK"].iter().any(|kind| text.contains(kind));
    if internal || !(named || e.file().is_some()) {
        return Err(format!("the error does not name a file: {e}"));
    }
    Ok(())
}

fn describe_difference(expected: &Contents, found: &Contents) -> String {
    if expected.keys().ne(found.keys()) {
        let names = |c: &Contents| c.keys().cloned().collect::<Vec<_>>().join(" ");
        return format!("column families {} instead of {}", names(found), names(expected));
    }
    let different =
        expected.iter().find_map(|(name, map)| compare_families(name, map, &found[name]).err());
    different.unwrap_or_default()
}

fn read_files(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.paths().into_iter().map(|path| (path.clone(), disk.read_raw(path))).collect()
}

/// Checks that a refused open changed and removed nothing. (It may create an empty lock file.)
fn check_unchanged(
    before: &[(PathBuf, Vec<u8>)],
    after: &[(PathBuf, Vec<u8>)],
) -> Result<(), String> {
    for (path, bytes) in before {
        match after.iter().find(|(p, _)| p == path) {
            None => return Err(format!("{} was removed", path.display())),
            Some((_, now)) if now != bytes => {
                return Err(format!("{} was changed", path.display()));
            }
            Some(_) => {}
        }
    }
    let lock = |path: &Path| path.file_name().is_some_and(|n| n == "LOCK");
    match after.iter().find(|(path, _)| !lock(path) && !before.iter().any(|(p, _)| p == path)) {
        Some((path, _)) => Err(format!("{} was created", path.display())),
        None => Ok(()),
    }
}
