//! `perigee import`: imports files and rows as entries. This module defines the arguments, the
//! stages and the summary.
//!
//! Submodules: `format` (the format of a path), `loader` (batches and counts), `tree`
//! (directories), `cells` and `rows` (CSV, TSV), `json_lines`, `trace` (records the operations for
//! the benchmark), `input` (arguments shared with `load`), `foreign` (databases of other engines),
//! `table` (rows of tables, SQLite databases).

pub mod format;
mod json_lines;
mod trace;
pub mod loader;
mod cells;
mod rows;
pub mod tree;
mod input;
#[cfg(unix)]
mod foreign;
#[cfg(not(unix))]
#[path = "no_foreign.rs"]
mod foreign;
mod table;

use crate::database_args;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::size;
use clap::Args;
use foreign::ForeignArgs;
pub use input::InputArgs;
use loader::{ImportCounts, Loader, LoaderSettings};
use perigee::Durability;
use perigee::value_syntax::parse_bytes;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;
use table::TableArgs;
use trace::TraceWriter;

const EXAMPLES: &str = "\
Examples:
  perigee import ./db ~/photos                        path below ~/photos -> contents of the file
  perigee import ./db src docs --with-name            keys start with src/ and docs/
  perigee import ./db people.csv --key email          email -> the row as JSON
  perigee import ./db events.jsonl --key id --family events
  perigee import ./db entries.jsonl --format entries  output of `scan --json` and `export`
  zcat big.tsv.gz | perigee import ./db - --format tsv
  perigee import ./db --table people people.csv --key id --index by_name=name
  perigee import ./db --table visits visits.jsonl --key 'person,at desc' --columns 'note:text?'
  perigee import ./db --table trips trips.parquet --key 'vehicle,at'     if the build supports it
  perigee import ./db --from-sqlite app.db            all tables, with keys and indexes
  perigee import --from-tidesdb ./old --tidesdb-lib /usr/local/lib/libtidesdb.so.9 --to ./db
  perigee import --from-lmdb ./old --to ./db          or --from-rocksdb; if the build supports it

A repeated import overwrites existing keys, so an interrupted import can simply be run again; with \
--skip-existing it skips existing keys. Symbolic links are counted and skipped; files that cannot \
be read and values over 1 GiB are also reported. With --strict the first such file ends the import.

A database of another engine is copied first (next to the target, or into --scratch DIR), because \
opening it may replay its log, flush and compact; --in-place avoids the copy, and these changes \
are then made to the source. All column families are imported into a new database, with all \
settings that have a counterpart. The new database is called DB.importing until both sides have \
been read again and compared. docs/import.md lists what is preserved.

With --table the rows become rows of a table with typed columns, in one atomic bulk load: all or, \
after an error or a kill, none. Types are inferred from all rows, or are those of the Parquet file; \
--columns overrides them. An \
empty cell of CSV is NULL, an empty cell in quotes the empty text. Numbers with leading zeros and \
mixed columns become text; times are RFC 3339, bytes base64. The key is --key, else the first \
column or the field `id` or `key`.

--from-sqlite reads a SQLite database in one read transaction, also while it is in use. A column \
gets the type of its values, the widest if they differ (i64, f64, text, bytes), or an error with \
--strict; what has no counterpart, such as views and triggers, is listed. docs/tables.md has the \
rules.";

fn parse_durability(text: &str) -> std::result::Result<Durability, String> {
    text.parse().map_err(|e: perigee::Error| e.message().to_owned())
}

/// Read files, CSV, TSV, JSON lines, Parquet or a SQLite database into entries or tables
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(mut_arg("paths", |a| a.required(false).required_unless_present_any(["foreign", "from_sqlite"])))]
pub struct ImportArgs {
    /// Directory of the database
    #[arg(value_name = "DB", required_unless_present = "foreign")]
    db: Option<PathBuf>,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    foreign: ForeignArgs,
    #[command(flatten)]
    tables: TableArgs,
    /// Skip keys that already exist
    #[arg(long)]
    skip_existing: bool,
    /// Durability of each batch: full, none, or interval:100ms. With none, the default, a crash of
    /// the tool loses nothing, and one sync at the end makes everything survive a power failure
    #[arg(long, value_name = "MODE", default_value = "none", value_parser = parse_durability)]
    durability: Durability,
    /// Size of a batch, which is written atomically
    #[arg(long, value_name = "BYTES", default_value = "4MiB", value_parser = parse_bytes)]
    batch_bytes: u64,
    /// Maximum number of entries in a batch
    #[arg(long, value_name = "N", default_value = "10000")]
    batch_ops: usize,
    /// Stop at the first file or row that cannot be imported
    #[arg(long)]
    strict: bool,
    /// Print progress as JSON lines on stdout after each batch
    #[arg(long)]
    progress_lines: bool,
    /// Record the operations in this file, for `perigee-bench trace replay` (keys and value
    /// lengths)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Imports all inputs, flushes, syncs and prints a summary.
pub fn run(args: &ImportArgs, out: &mut Output) -> Result<u8> {
    let Some(db) = &args.db else { return foreign::run(&args.foreign, out) };
    if let Some(file) = &args.tables.from_sqlite {
        return table::run_sqlite(file, db, &args.tables.table, args.strict, out);
    }
    if !args.tables.table.is_empty() {
        let inputs = args.input.paths_with_formats()?;
        return table::run(&args.tables, db, args.input.key(), &inputs, out);
    }
    let inputs = args.input.entry_paths()?;
    let started = Instant::now();
    let db = database_args::open_or_create(db, args.durability)?;
    let family = args.input.family.open_or_create_family(&db)?;
    let trace = args.trace.as_deref().map(TraceWriter::create).transpose()?;
    let mut loader = Loader::new(&db, family, loader_settings(args), out).with_trace(trace);
    args.input.read_inputs(&inputs, &mut loader)?;
    let counts = loader.finish()?;
    // Flush to tables, so that the next command does not have to replay the log.
    db.admin().flush()?;
    db.sync()?;
    let stats = db.admin().stats();
    db.close()?;
    let summary = summary_json(&counts, started.elapsed().as_secs_f64(), &stats);
    let text = summary_text(&counts, started.elapsed().as_secs_f64(), stats.disk_bytes);
    if out.json || args.progress_lines {
        out.json_line(&summary)?
    } else {
        out.line(text)?
    }
    Ok(0)
}

fn loader_settings(args: &ImportArgs) -> LoaderSettings {
    LoaderSettings {
        batch_bytes: args.batch_bytes.clamp(1, 1 << 30) as usize,
        batch_ops: args.batch_ops.max(1),
        prefix: args.input.prefix(),
        skip_existing: args.skip_existing,
        strict: args.strict,
        progress_lines: args.progress_lines,
    }
}

/// Opens an input file, or stdin for `-`.
fn open_input(path: &Path) -> Result<Box<dyn std::io::Read>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let file = std::fs::File::open(path).map_err(|e| Failure::file("open", path, &e))?;
    Ok(Box::new(file))
}

pub fn summary_json(t: &ImportCounts, seconds: f64, stats: &perigee::stats::Stats) -> Value {
    let counters: serde_json::Map<String, Value> =
        stats.counters.iter().map(|c| (c.name.to_owned(), json!(c.value))).collect();
    json!({"imported": {
        "entries": t.entries, "bytes": t.bytes, "key_bytes": t.key_bytes, "batches": t.batches,
        "existing_keys": t.existing_keys, "links": t.links, "special_files": t.special_files,
        "too_large": t.too_large, "failed": t.failed, "seconds": seconds,
        "disk_bytes": stats.disk_bytes, "counters": counters, "process": crate::process::read_usage("self").json(),
    }})
}

pub fn summary_text(t: &ImportCounts, seconds: f64, disk_bytes: u64) -> String {
    let rate = if seconds > 0.0 { (t.bytes + t.key_bytes) as f64 / 1e6 / seconds } else { 0.0 };
    let mut text = format!(
        "imported {}, {} of values, in {seconds:.2} s ({rate:.1} MB/s); {} on disk",
        size::plural(t.entries, "entry", "entries"),
        size::bytes(t.bytes),
        size::bytes(disk_bytes),
    );
    let skipped = [
        (t.existing_keys, "existing keys"),
        (t.links, "symbolic links"),
        (t.special_files, "devices, sockets and pipes"),
        (t.too_large, "too large"),
        (t.failed, "failed"),
    ];
    for (n, what) in skipped.iter().filter(|(n, _)| *n > 0) {
        text.push_str(&format!("\nskipped: {} {what}", size::count(*n)));
    }
    text
}
