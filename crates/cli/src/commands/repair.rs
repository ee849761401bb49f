//! `perigee repair`: a new database of what can be read of a damaged one.

use crate::failure::{EXIT_DAMAGED, Result};
use crate::output::Output;
use crate::progress::Progress;
use crate::size;
use crate::text::escape;
use clap::Args;
use perigee::env::Env;
use perigee::{DataLoss, RepairReport, repair_in};
use serde_json::{Value, json};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  perigee repair ./db ./mended           exit code 0: nothing was lost; 3: what was lost is listed
  perigee repair ./db ./mended --json

The source is never changed. A backup (`perigee restore`) is better, where there is one.";

/// Make a new database of everything that can be read of a damaged one
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RepairArgs {
    /// Directory of the damaged database
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// Where to make the new one: a directory that does not exist or is empty
    #[arg(value_name = "DST")]
    target: PathBuf,
}

/// Repairs.
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
    for piece in &report.lost {
        out.line(format!("lost: {}{}", piece.error, piece_details(piece)))?;
    }
    for warning in &report.warnings {
        out.line(format!("warning: {warning}"))?;
    }
    for (name, entries) in &report.families {
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
            n => format!("{}, listed above", size::plural(n, "damaged place", "damaged places")),
        }
    ))
}

fn piece_details(piece: &DataLoss) -> String {
    let mut text = String::new();
    if let Some(family) = &piece.family {
        text += &format!("; family {}", escape(family.as_bytes()));
    }
    if let Some(bytes) = piece.bytes {
        text += &format!("; {}", size::bytes(bytes));
    }
    if let Some(entries) = piece.entries {
        text += &format!("; {}", size::plural(entries, "entry", "entries"));
    }
    if let Some((first, last)) = piece.sequences {
        let last = last.map_or_else(|| "the end".to_owned(), |last| last.to_string());
        text += &format!("; operations {first} to {last}");
    }
    if piece.first_key.is_some() || piece.last_key.is_some() {
        let show = |key: &Option<Vec<u8>>| key.as_ref().map_or_else(|| "?".into(), |k| escape(k));
        text += &format!("; keys {} to {}", show(&piece.first_key), show(&piece.last_key));
    }
    text
}

fn report_json(report: &RepairReport) -> Value {
    let key = |k: &Option<Vec<u8>>| k.as_ref().map(|k| escape(k).to_string());
    let lost = |p: &DataLoss| {
        json!({
            "file": p.file, "offset": p.offset, "bytes": p.bytes, "family": p.family, "entries": p.entries,
            "first_key": key(&p.first_key), "last_key": key(&p.last_key),
            "first_sequence": p.sequences.map(|s| s.0), "last_sequence": p.sequences.and_then(|s| s.1),
            "message": p.error.message(),
        })
    };
    let family = |(name, entries): &(String, u64)| json!({"name": name, "entries": entries});
    json!({
        "families": report.families.iter().map(family).collect::<Vec<_>>(), "tables": report.tables,
        "entries_found": report.entries_found, "log_records": report.log_records, "sequence": report.sequence,
        "lost": report.lost.iter().map(lost).collect::<Vec<_>>(), "warnings": report.warnings,
    })
}
