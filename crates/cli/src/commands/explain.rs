//! `perigee explain`: shows which memtables, files, filters and blocks a `get` of one key reads,
//! with the cost of each.

use crate::database_args::{DatabaseArg, FamilyArg, KeyFormat};
use crate::failure::{EXIT_MISSING, Result};
use crate::output::{Output, table};
use crate::size::{bytes, count};
use clap::Args;
use perigee::stats::{ExplainStep, Explanation};
use serde_json::{Value, json};
use std::ffi::OsString;

const EXAMPLES: &str = "\
Examples:
  perigee explain ./db moon
  perigee explain ./db --family tides 06:12 --json
  perigee explain ./db --hex 00ff10 --warm    with the blocks already in the cache

Exit code 1 if the key does not exist.";

/// Show which memtables, files, filters and blocks a get of a key reads, and the cost of each
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// The key
    key: OsString,
    #[command(flatten)]
    family: FamilyArg,
    #[command(flatten)]
    form: KeyFormat,
    /// Read the key once beforehand, so that its blocks are in the cache
    #[arg(long)]
    warm: bool,
}

/// Prints the steps of the lookup.
pub fn run(args: &ExplainArgs, out: &mut Output) -> Result<u8> {
    let key = args.form.parse_key(&args.key)?;
    let db = args.database.open_read_only()?;
    let family = args.family.open_family(&db)?;
    if args.warm {
        family.get_pinned(&key)?;
    }
    let e = family.explain(&key)?;
    db.close()?;
    if out.json {
        out.json_line(&explanation_json(&e))?;
    } else {
        print_explanation(&e, out)?;
    }
    match e.error {
        Some(error) => Err(error.into()),
        None => Ok(if e.value_bytes.is_some() { 0 } else { EXIT_MISSING }),
    }
}

fn explanation_json(e: &Explanation) -> Value {
    let step = |s: &ExplainStep| {
        json!({
            "source": s.source, "name": s.name, "level": s.level, "run": s.run, "filter": s.filter,
            "block": s.block.map(|b| json!({"number": b.index, "offset": b.offset, "bytes": b.bytes})),
            "cached": s.cached, "outcome": s.outcome, "sequence": s.sequence,
            "bytes_read": s.bytes_read, "elapsed_ns": s.elapsed_ns,
        })
    };
    json!({
        "value_bytes": e.value_bytes,
        "error": e.error.as_ref().map(ToString::to_string),
        "bytes_read": e.steps.iter().map(|s| s.bytes_read).sum::<u64>(),
        "elapsed_ns": e.elapsed_ns,
        "steps": e.steps.iter().map(step).collect::<Vec<_>>(),
    })
}

fn print_explanation(e: &Explanation, out: &mut Output) -> Result<()> {
    let mut t =
        table(&[">", "source", ">level", ">run", "filter", "block", ">read", "outcome", ">time"]);
    for (i, s) in e.steps.iter().enumerate() {
        let number = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
        let block = match s.block {
            None => String::new(),
            Some(block) => {
                let (number, offset) = (block.index, block.offset);
                format!("{number} at {offset}{}", if s.cached { " (cached)" } else { "" })
            }
        };
        t.add_row([
            (i + 1).to_string(),
            format!("{} {}", s.source, s.name),
            number(s.level.map(u64::from)),
            number(s.run),
            s.filter.unwrap_or_default().to_owned(),
            block,
            if s.bytes_read > 0 { bytes(s.bytes_read) } else { String::new() },
            s.sequence.map_or(s.outcome.to_owned(), |seq| {
                format!("{} (sequence {})", s.outcome, count(seq))
            }),
            format!("{}.{} us", s.elapsed_ns / 1000, s.elapsed_ns % 1000 / 100),
        ]);
    }
    out.line(t.trim_fmt())?;
    let read: u64 = e.steps.iter().map(|s| s.bytes_read).sum();
    let result = e.value_bytes.map_or("not found".to_owned(), |n| format!("a value of {n} bytes"));
    out.line(format!("{result}; {} read from files", bytes(read)))
}
