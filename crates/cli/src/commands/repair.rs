//! `perigee repair`: creates a new database from everything readable in a damaged one.

use crate::failure::{EXIT_DAMAGED, Result};
use crate::output::Output;
use crate::progress::Progress;
use crate::size;
use crate::text::escape;
use clap::Args;
use perigee::env::Env;
use perigee::recovery::{DataLoss, LostSequences, RepairReport, RepairedFamily};
use perigee::repair_in;
use serde_json::{Value, json};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  perigee repair ./db ./repaired         exit code 0: nothing was lost; 3: losses are listed
  perigee repair ./db ./repaired --json

The source is never changed. If there is a backup, prefer `perigee restore`.";

/// Create a new database from everything readable in a damaged one
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RepairArgs {
    /// Directory of the damaged database
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// Directory of the new database: a new or an empty directory
    #[arg(value_name = "DST")]
    target: PathBuf,
}

/// Runs the repair and prints what was recovered and lost.
pub fn run(args: &RepairArgs, out: &mut Output) -> Result<u8> {
    let mut progress = Progress::bytes("reading", 0);
    let report = repair_in(&Env::real(), &args.source, &args.target, |done, total| {
        progress.set_total(total);
        progress.set_position(done);
    })?;
    drop(progress);
    if out.json {
        out.json_line(&report_json(&report))?
    } else {
        print_report(&report, out)?
    }
    Ok(if report.lost.is_empty() { 0 } else { EXIT_DAMAGED })
}

fn print_report(report: &RepairReport, out: &mut Output) -> Result<()> {
    for loss in &report.lost {
        out.line(format!("lost: {}{}", loss.error, loss_details(loss)))?;
    }
    for warning in &report.warnings {
        out.line(format!("warning: {warning}"))?;
    }
    for RepairedFamily { name, entries, .. } in &report.families {
        out.line(format!(
            "{}: {}",
            escape(name.as_bytes()),
            size::plural(*entries, "entry", "entries")
        ))?;
    }
    out.line(format!(
        "read {} and {}; {}",
        size::plural(report.tables, "table", "tables"),
        size::plural(report.log_records, "log record", "log records"),
        match report.lost.len() as u64 {
            0 => "nothing was lost".to_owned(),
            n => format!("{}, listed above", size::plural(n, "loss", "losses")),
        }
    ))
}

fn loss_details(loss: &DataLoss) -> String {
    let mut text = String::new();
    if let Some(family) = &loss.family {
        text += &format!("; column family {}", escape(family.as_bytes()));
    }
    if let Some(bytes) = loss.bytes {
        text += &format!("; {}", size::bytes(bytes));
    }
    if let Some(entries) = loss.entries {
        text += &format!("; {}", size::plural(entries, "entry", "entries"));
    }
    if let Some(LostSequences { first, last, .. }) = loss.sequences {
        let last = last.map_or_else(|| "the end".to_owned(), |last| last.to_string());
        text += &format!("; sequence numbers {first} to {last}");
    }
    if loss.first_key.is_some() || loss.last_key.is_some() {
        let show = |key: &Option<Vec<u8>>| key.as_ref().map_or_else(|| "?".into(), |k| escape(k));
        text += &format!("; keys {} to {}", show(&loss.first_key), show(&loss.last_key));
    }
    text
}

fn report_json(report: &RepairReport) -> Value {
    let key = |k: &Option<Vec<u8>>| k.as_ref().map(|k| escape(k).to_string());
    let lost = |p: &DataLoss| {
        json!({
            "file": p.file, "offset": p.offset, "bytes": p.bytes, "family": p.family, "entries": p.entries,
            "first_key": key(&p.first_key), "last_key": key(&p.last_key),
            "first_sequence": p.sequences.map(|s| s.first), "last_sequence": p.sequences.and_then(|s| s.last),
            "message": p.error.message(),
        })
    };
    let family = |f: &RepairedFamily| json!({"name": f.name, "entries": f.entries});
    json!({
        "families": report.families.iter().map(family).collect::<Vec<_>>(), "tables": report.tables,
        "entries_found": report.entries_found, "log_records": report.log_records, "sequence": report.sequence,
        "lost": report.lost.iter().map(lost).collect::<Vec<_>>(), "warnings": report.warnings,
    })
}
