//! `perigee verify`: read every byte, name all damage.

use crate::failure::{EXIT_DAMAGED, Failure, Result};
use crate::output::Out;
use crate::place::Place;
use crate::progress::Progress;
use crate::size;
use clap::Args;
use perigee::{Error, VerifyReport};
use serde_json::{Value, json};
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  perigee verify ./db       exit code 0: every byte is as it was written; 3: the damage is listed
  perigee verify ./db --json";

/// Read every byte of every file and check it
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArgs {
    #[command(flatten)]
    place: Place,
}

/// Verifies. Damage that already stops the database from opening ends with the same exit code.
pub fn run(args: &VerifyArgs, out: &mut Out) -> Result<u8> {
    let started = Instant::now();
    let db = args.place.open_read_only().map_err(open_hint)?;
    let mut progress = Progress::bytes("verifying", 0);
    let report = db.verify_with(|done, total| {
        progress.total(total);
        progress.at(done);
    })?;
    drop(progress);
    let seconds = started.elapsed().as_secs_f64();
    if out.json {
        out.value(&as_json(&report, seconds))?
    } else {
        as_text(&report, seconds, out)?
    }
    // A damaged database may fail to close cleanly; what verify found is the answer.
    let closed = db.close();
    if !report.errors.is_empty() {
        return Ok(EXIT_DAMAGED);
    }
    closed?;
    Ok(0)
}

/// The usual hint would send the user in a circle.
fn open_hint(failure: Failure) -> Failure {
    match &failure {
        Failure::Told(told) if told.is_damage() => failure.hint(
            "the database refuses to open, so no further file was checked; nothing was changed; \
             `perigee dump DB FILE` shows what can still be read; restore a backup",
        ),
        _ => failure,
    }
}

fn as_json(report: &VerifyReport, seconds: f64) -> Value {
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

fn as_text(report: &VerifyReport, seconds: f64, out: &mut Out) -> Result<()> {
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
        n => out.line(format!("{}, listed above ({read})", size::plural(n, "damaged file", "damaged files"))),
    }
}
