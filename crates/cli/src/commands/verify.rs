//! `perigee verify`: reads every byte and lists all damage.

use crate::database_args::DatabaseArg;
use crate::failure::{EXIT_DAMAGED, Failure, Result};
use crate::output::Output;
use crate::progress::Progress;
use crate::size;
use clap::Args;
use perigee::Error;
use perigee::stats::VerifyReport;
use serde_json::{Value, json};
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  perigee verify ./db       exit code 0: no damage; 3: the damage is listed
  perigee verify ./db --json";

/// Read and check every byte of every file
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArgs {
    #[command(flatten)]
    database: DatabaseArg,
}

/// Verifies the database. Damage that prevents the open yields the same exit code.
pub fn run(args: &VerifyArgs, out: &mut Output) -> Result<u8> {
    let started = Instant::now();
    let db = args.database.open_read_only().map_err(replace_open_hint)?;
    let mut progress = Progress::bytes("verifying", 0);
    let report = db.admin().verify_with(|done, total| {
        progress.set_total(total);
        progress.set_position(done);
    })?;
    drop(progress);
    let seconds = started.elapsed().as_secs_f64();
    if out.json {
        out.json_line(&report_json(&report, seconds))?
    } else {
        print_report(&report, seconds, out)?
    }
    // A damaged database may fail to close cleanly; the errors found take precedence.
    let closed = db.close();
    if !report.errors.is_empty() {
        return Ok(EXIT_DAMAGED);
    }
    closed?;
    Ok(0)
}

/// Replaces the default hint for corruption, which would recommend `verify` itself.
fn replace_open_hint(failure: Failure) -> Failure {
    match &failure {
        Failure::Reported(report) if report.is_damage() => failure.hint(
            "the database cannot be opened, so no further file was checked; nothing was changed; \
             `perigee dump DB FILE` shows what can still be read; restore a backup",
        ),
        _ => failure,
    }
}

fn report_json(report: &VerifyReport, seconds: f64) -> Value {
    json!({
        "ok": report.errors.is_empty(), "files": report.files, "bytes": report.bytes,
        "entries": report.entries, "seconds": seconds,
        "errors": report.errors.iter().map(error_json).collect::<Vec<_>>(),
    })
}

fn error_json(e: &Error) -> Value {
    json!({
        "kind": e.kind().name(), "message": e.message(), "file": e.file(), "offset": e.offset(),
        "expected": e.expected_value(), "got": e.got_value(),
    })
}

fn print_report(report: &VerifyReport, seconds: f64, out: &mut Output) -> Result<()> {
    for error in &report.errors {
        out.line(format!("damaged: {error}"))?;
    }
    let read = format!(
        "{}, {}, {} read in {seconds:.1} s",
        size::plural(report.files, "file", "files"),
        size::plural(report.entries, "entry", "entries"),
        size::bytes(report.bytes),
    );
    match report.errors.len() as u64 {
        0 => out.line(format!("ok: every byte is as it was written ({read})")),
        n => out.line(format!(
            "{}, listed above ({read})",
            size::plural(n, "damaged file", "damaged files")
        )),
    }
}
