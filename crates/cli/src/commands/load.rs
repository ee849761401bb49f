//! `perigee load`: the same inputs as `import`, as one bulk load: past the log, visible and durable
//! all at once.

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
  perigee load ./db entries.jsonl --format entries    what `scan --json` and `export` wrote
  perigee load ./db people.csv --key email
  zcat big.tsv.gz | perigee load ./db - --format tsv --memory 1GiB

Everything becomes visible at once when the load ends, or nothing does: a load that is killed is simply run again. Input \
sorted by key is written once; other input is sorted in the database directory first, which needs its size again as free \
space. Of a key that comes twice the last value stays. `import` is the command for many commits on the way.";

/// Read files, CSV, TSV or JSON lines into a database, all at once
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LoadArgs {
    #[command(flatten)]
    database: DatabaseArg,
    #[command(flatten)]
    input: InputArgs,
    /// Memory in which entries are gathered and sorted, at most an eighth of the memory budget
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = parse_bytes)]
    memory: u64,
    /// Stop at the first file or row that cannot be loaded; nothing is loaded then
    #[arg(long)]
    strict: bool,
}

/// Loads everything, tells what was done.
pub fn run(args: &LoadArgs, out: &mut Output) -> Result<u8> {
    let inputs = args.input.paths_with_formats()?;
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
    let tally = loader.finish()?;
    let stats = db.stats();
    db.close()?;
    let seconds = started.elapsed().as_secs_f64();
    if out.json {
        let mut summary = summary_json(&tally, seconds, &stats);
        out.json_line(&json!({"loaded": summary["imported"].take()}))?;
    } else {
        out.line(
            summary_text(&tally, seconds, stats.disk_bytes).replacen("imported", "loaded", 1),
        )?;
    }
    Ok(0)
}
