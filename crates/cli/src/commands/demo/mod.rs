//! `perigee demo`: imports real files, kills the import halfway, recovers, finishes and compares.
//! This module defines the arguments and runs the stages in order.
//!
//! Submodules: `sources` (selects the files), `import_process` (the importing process, which is
//! killed), `compare` (compares every byte with its source), `report` (the final table).

mod import_process;
mod compare;
mod report;
mod sources;

use crate::database_args::check_existing;
use crate::failure::{EXIT_DAMAGED, Failure, Result, show_path};
use crate::output::Output;
use crate::size;
use clap::Args;
use perigee::value_syntax::parse_bytes;
use perigee::{Db, Options};
use report::DemoReport;
use sources::Sources;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::scan::prefix_bounds;
use super::stats::recovery_text;

const EXAMPLES: &str = "\
Examples:
  perigee demo                         the Rust toolchain and crates on this machine
  perigee demo --dir ~/photos
  perigee demo --db /mnt/disk/demo --keep

The import runs in a child process, which is killed with SIGKILL about halfway (the mean of the \
shares of acknowledged files and bytes). The demo then reopens the database, checks that no \
acknowledged file is missing, finishes the import, compares every file, scans and verifies.";

/// Import a directory tree, kill the import halfway, recover, finish and compare every byte
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Directory tree to import (default: $DEMO_DIR, otherwise files found on this machine)
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Directory of the new database (default: a new directory in the temporary directory)
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// Keep the database afterwards
    #[arg(long)]
    keep: bool,
    /// Maximum number of files, if the tool selects them
    #[arg(long, value_name = "N", default_value_t = 60_000)]
    max_files: u64,
    /// Maximum total size, if the tool selects the files
    #[arg(long, value_name = "BYTES", default_value = "1.5GB", value_parser = parse_bytes)]
    max_bytes: u64,
}

/// Runs the demo. Returns exit code 3 if any byte differs.
pub fn run(args: &DemoArgs, out: &mut Output) -> Result<u8> {
    let started_at = SystemTime::now();
    let sources = choose_sources(args, out)?;
    let db = new_database_path(args)?;
    let mut report =
        DemoReport { files: sources.files, bytes: sources.bytes, ..DemoReport::default() };
    import_and_kill(&db, &sources, &mut report, out)?;
    recover(&db, &sources, &mut report, out)?;
    finish_import(&db, &sources, &mut report, out)?;
    compare_and_verify(&db, &sources, started_at, &mut report, out)?;
    report.print(out)?;
    if report.passed() && !args.keep {
        std::fs::remove_dir_all(&db).map_err(|e| Failure::file("remove", &db, &e))?;
    } else {
        print_status(out, &format!("the database is kept in {}", show_path(&db)))?;
    }
    Ok(if report.passed() { 0 } else { EXIT_DAMAGED })
}

/// Prints a status line. With `--json` only the final document is printed.
fn print_status(out: &mut Output, text: &str) -> Result<()> {
    if !out.json {
        out.line(text)?;
        out.flush()?;
    }
    Ok(())
}

fn choose_sources(args: &DemoArgs, out: &mut Output) -> Result<Sources> {
    let requested = args
        .dir
        .clone()
        .or_else(|| std::env::var_os("DEMO_DIR").filter(|d| !d.is_empty()).map(PathBuf::from));
    let sources = match requested {
        Some(dir) => sources::from_dir(&dir)?,
        None => sources::find_on_machine(args.max_files, args.max_bytes)?,
    };
    for (root, files, bytes) in &sources.roots {
        print_status(
            out,
            &format!(
                "source: {}, {} files, {}",
                show_path(root),
                size::count(*files),
                size::bytes(*bytes)
            ),
        )?;
    }
    Ok(sources)
}

/// Returns the path of the new database; an error if it exists.
fn new_database_path(args: &DemoArgs) -> Result<PathBuf> {
    let db = match &args.db {
        Some(db) => db.clone(),
        None => std::env::temp_dir().join(format!("perigee-demo-{}", std::process::id())),
    };
    if db.exists() {
        return Err(Failure::usage(format!("{} already exists", show_path(&db)))
            .hint("specify a new directory"));
    }
    Ok(db)
}

fn import_and_kill(
    db: &Path,
    sources: &Sources,
    report: &mut DemoReport,
    out: &mut Output,
) -> Result<()> {
    print_status(out, "importing, to be killed about halfway ...")?;
    let killed = import_process::run_import(db, sources, true)?;
    if !killed.killed {
        print_status(out, "the import finished before it could be killed")?;
    }
    print_status(
        out,
        &format!(
            "killed after {} acknowledged files, {}",
            size::count(killed.entries),
            size::bytes(killed.bytes)
        ),
    )?;
    report.acknowledged = killed.entries;
    report.add_import(&killed);
    Ok(())
}

fn open(db: &Path) -> Result<(Db, Duration)> {
    check_existing(db)?;
    let started = Instant::now();
    let db = Db::open(db, Options::new().create_if_missing(false))?;
    Ok((db, started.elapsed()))
}

/// Reopens the database after the kill and checks that every acknowledged file is present.
fn recover(
    path: &Path,
    sources: &Sources,
    report: &mut DemoReport,
    out: &mut Output,
) -> Result<()> {
    let (db, took) = open(path)?;
    let recovery = db.admin().stats().recovery;
    report.reopen = took;
    report.recovery_us = recovery.elapsed_us;
    report.replayed = recovery.replayed_operations;
    print_status(
        out,
        &format!("reopened in {:.3} s: {}", took.as_secs_f64(), recovery_text(&recovery)),
    )?;
    let (present, lost) = compare::count_acknowledged(&db, sources, report.acknowledged)?;
    report.lost = lost;
    print_status(
        out,
        &format!(
            "of {} acknowledged files, {} are present, {lost} missing",
            size::count(report.acknowledged),
            size::count(present)
        ),
    )?;
    db.close()?;
    Ok(())
}

fn finish_import(
    db: &Path,
    sources: &Sources,
    report: &mut DemoReport,
    out: &mut Output,
) -> Result<()> {
    print_status(out, "finishing the import ...")?;
    let rest = import_process::run_import(db, sources, false)?;
    print_status(
        out,
        &format!("imported {} more files, {}", size::count(rest.entries), size::bytes(rest.bytes)),
    )?;
    report.add_import(&rest);
    Ok(())
}

fn compare_and_verify(
    path: &Path,
    sources: &Sources,
    started_at: SystemTime,
    report: &mut DemoReport,
    out: &mut Output,
) -> Result<()> {
    let (db, _) = open(path)?;
    report.disk_bytes = db.admin().stats().disk_bytes;
    print_status(out, "comparing every file with its source ...")?;
    let started = Instant::now();
    report.comparison = compare::compare_all(&db, sources, started_at)?;
    report.compare = started.elapsed();
    report.entries = count_prefix(&db, b"".to_vec())?;
    let prefix = sources.sample_prefix();
    report.prefix_entries = count_prefix(&db, prefix.clone())?;
    report.prefix_files =
        sources.source_files().filter(|(_, key, _)| key.starts_with(&prefix)).count() as u64;
    report.prefix = crate::text::escape(&prefix);
    print_status(out, "verifying ...")?;
    let started = Instant::now();
    let verify = db.admin().verify()?;
    report.verify = started.elapsed();
    report.verified_bytes = verify.bytes;
    report.damaged = verify.errors.len() as u64;
    verify.errors.iter().try_for_each(|e| print_status(out, &format!("damaged: {e}")))?;
    db.close()?;
    Ok(())
}

fn count_prefix(db: &Db, prefix: Vec<u8>) -> Result<u64> {
    let mut cursor = db.default_family().cursor_within(prefix_bounds(prefix))?;
    let mut n = 0;
    cursor.seek_to_first()?;
    while cursor.is_valid() {
        n += 1;
        cursor.next()?;
    }
    Ok(n)
}
