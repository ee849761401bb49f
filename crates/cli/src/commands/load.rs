//! `perigee load`: reads the same inputs as `import` as one bulk load, which bypasses the log and
//! becomes visible and durable atomically.

use crate::commands::import::loader::{Loader, LoaderSettings};
use crate::commands::import::{InputArgs, summary_json, summary_text};
use crate::database_args::DatabaseArg;
use crate::failure::Result;
use crate::output::Output;
use clap::Args;
use perigee::Durability;
use perigee::value_syntax::parse_bytes;
use serde_json::json;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  perigee load ./db events.jsonl --key id --family events
  perigee load ./db entries.jsonl --format entries    output of `scan --json` and `export`
  perigee load ./db people.csv --key email
  zcat big.tsv.gz | perigee load ./db - --format tsv --memory 1GiB

The load is atomic: all entries become visible when it finishes, or none do, so a killed load can \
simply be run again. Input sorted by key is written once; other input is first sorted in the \
database directory, which needs free space of the size of the input. If a key occurs twice, its \
last value is kept. To commit in many batches, use `import`.";

/// Read files, CSV, TSV or JSON lines into a database as one atomic bulk load
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LoadArgs {
    #[command(flatten)]
    database: DatabaseArg,
    #[command(flatten)]
    input: InputArgs,
    /// Memory to collect and sort entries in, at most an eighth of the memory budget
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = parse_bytes)]
    memory: u64,
    /// Stop at the first file or row that cannot be loaded, and load nothing
    #[arg(long)]
    strict: bool,
}

/// Loads all inputs and prints a summary.
pub fn run(args: &LoadArgs, out: &mut Output) -> Result<u8> {
    let inputs = args.input.entry_paths()?;
    let started = Instant::now();
    let db = args.database.open_or_create(Durability::None)?;
    let family = args.input.family.open_or_create_family(&db)?;
    let settings = LoaderSettings {
        batch_bytes: 1,
        batch_ops: 1,
        prefix: args.input.prefix(),
        skip_existing: false,
        strict: args.strict,
        progress_lines: false,
    };
    let memory = usize::try_from(args.memory).unwrap_or(usize::MAX);
    let mut loader = Loader::new(&db, family, settings, out).with_bulk_load(memory)?;
    args.input.read_inputs(&inputs, &mut loader)?;
    let counts = loader.finish()?;
    let stats = db.admin().stats();
    db.close()?;
    let seconds = started.elapsed().as_secs_f64();
    if out.json {
        let mut summary = summary_json(&counts, seconds, &stats);
        out.json_line(&json!({"loaded": summary["imported"].take()}))?;
    } else {
        out.line(
            summary_text(&counts, seconds, stats.disk_bytes).replacen("imported", "loaded", 1),
        )?;
    }
    Ok(0)
}
