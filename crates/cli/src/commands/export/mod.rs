//! `perigee export`: writes entries to files, JSON lines or CSV, and rows of tables to JSON lines,
//! CSV or Parquet. This module defines the arguments and selects the format.
//!
//! Submodules: `target_file` (the file that is written), `safe_path` (checks whether a key may
//! become a path), `tree` (files), `rows` (JSON lines, CSV), `table` (rows of a table), `parquet`
//! (the same as Parquet).

mod rows;
mod target_file;
mod table;
#[cfg(feature = "parquet")]
mod parquet;
mod safe_path;
mod tree;

use crate::database_args::{DatabaseArg, FamilyArg, KeyFormat};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::size;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::scan::RangeArgs;
use target_file::TargetFile;

const EXAMPLES: &str = "\
Examples:
  perigee export ./db ./out                  each key becomes a file below ./out (new or empty)
  perigee export ./db ./out --prefix photos/
  perigee export ./db backup.jsonl           `perigee import --format entries` reads it back
  perigee export ./db table.csv              non-printable bytes are written as \\xNN
  perigee export ./db | gzip > db.jsonl.gz
  perigee export ./db people.csv --table people    `perigee import --table` reads it back
  perigee export ./db --table people | jq .name
  perigee export ./db people.parquet --table people    if the build supports it

Keys that are not safe as paths (absolute, with .. or NUL) or that collide with another key are \
refused and counted.

With --table the rows of a table are written in key order, to CSV, JSON lines or Parquet. CSV: NULL \
is an empty cell, the empty text is \"\"; times are RFC 3339, bytes base64. Key, indexes and time to \
live are not in the file, types only in Parquet: `perigee tables DB NAME --json` writes them for `import --schema`.";

/// Write entries to files, JSON lines or CSV, or the rows of a table to JSON lines, CSV or Parquet
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// A new or empty directory, a new file, or - for stdout
    #[arg(default_value = "-", value_name = "TARGET")]
    target: PathBuf,
    /// Output format (default: by the extension .jsonl, .csv or .parquet; JSON lines on stdout; else
    /// tree)
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write the rows of this table
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["family", "prefix", "from", "to", "hex", "escaped", "strict"])]
    table: Option<String>,
    #[command(flatten)]
    range: RangeArgs,
    /// Stop at the first key that cannot become a file
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    family: FamilyArg,
    #[command(flatten)]
    form: KeyFormat,
}

/// The formats that `export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One file per key
    Tree,
    /// {"key":...,"value":...} on each line; bytes that are not UTF-8 as ..._base64
    Jsonl,
    /// Columns key and value, with \xNN escapes; with --table its columns
    Csv,
    /// Apache Parquet, only with --table and in builds with the feature `parquet`
    Parquet,
}

/// Counts of an export.
#[derive(Debug, Default)]
struct ExportCounts {
    entries: u64,
    bytes: u64,
    refused: u64,
}

/// Runs the export and prints a summary, unless the entries go to stdout.
pub fn run(args: &ExportArgs, out: &mut Output) -> Result<u8> {
    if let Some(name) = &args.table {
        return table::run(args, name, out);
    }
    let format = args.format.unwrap_or_else(|| format_of_target(&args.target));
    let to_stdout = args.target.as_os_str() == "-";
    if to_stdout && format == Format::Tree {
        return Err(Failure::usage("a tree of files cannot be written to stdout")
            .hint("specify a directory, or --format jsonl"));
    }
    if format == Format::Parquet {
        return Err(Failure::usage("only the rows of a table can be written as Parquet")
            .hint("specify a table with --table NAME, or --format jsonl or csv"));
    }
    let bounds = args.range.bounds(args.form)?;
    let db = args.database.open_read_only()?;
    let mut cursor = args.family.open_family(&db)?.cursor_within(bounds)?;
    cursor.seek_to_first()?;
    let counts = match format {
        Format::Tree => tree::export(&mut cursor, &args.target, args.strict)?,
        Format::Jsonl | Format::Csv | Format::Parquet => {
            write_target(&args.target, out, |writer| {
                rows::export(&mut cursor, format == Format::Csv, writer)
            })?
        }
    };
    db.close()?;
    if to_stdout { Ok(0) } else { print_summary(&counts, out) }
}

fn format_of_target(target: &Path) -> Format {
    let extension =
        target.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "jsonl" | "ndjson" => Format::Jsonl,
        "csv" => Format::Csv,
        "parquet" => Format::Parquet,
        _ if target.as_os_str() == "-" => Format::Jsonl,
        _ => Format::Tree,
    }
}

/// Passes stdout, or the target, to `write`. Returns its result. A file must not exist; it gets its
/// name when it is complete.
fn write_target<T>(
    target: &Path,
    out: &mut Output,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<T>,
) -> Result<T> {
    if target.as_os_str() == "-" {
        out.flush()?;
        // Not `out`, which cannot be sent to another thread, as the Parquet library requires.
        let mut writer = BufWriter::with_capacity(256 << 10, std::io::stdout());
        let written = write(&mut writer)?;
        writer.flush()?;
        return Ok(written);
    }
    let file = TargetFile::create(target)?;
    let mut writer = BufWriter::with_capacity(256 << 10, file.writer());
    let written = write(&mut writer)?;
    writer.flush().map_err(|e| Failure::file("write", target, &e))?;
    drop(writer);
    file.finish()?;
    Ok(written)
}

fn print_summary(counts: &ExportCounts, out: &mut Output) -> Result<u8> {
    let mut text = format!(
        "exported {}, {} of values",
        size::plural(counts.entries, "entry", "entries"),
        size::bytes(counts.bytes)
    );
    if counts.refused > 0 {
        text.push_str(&format!(
            "\nrefused: {} that cannot safely become a file (export to .jsonl keeps every key)",
            size::plural(counts.refused, "key", "keys")
        ));
    }
    let value: Value = json!({"exported": {
        "entries": counts.entries, "bytes": counts.bytes, "refused": counts.refused,
    }});
    out.json_or_text(&value, text)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_follows_target_name() {
        let f = |p: &str| format_of_target(Path::new(p));
        assert_eq!(f("-"), Format::Jsonl);
        assert_eq!(f("a.jsonl"), Format::Jsonl);
        assert_eq!(f("a.CSV"), Format::Csv);
        assert_eq!(f("a.parquet"), Format::Parquet);
        assert_eq!(f("out"), Format::Tree);
        assert_eq!(f("out.d"), Format::Tree);
    }
}
