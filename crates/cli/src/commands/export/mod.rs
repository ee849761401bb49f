//! `perigee export`: writes entries to files, JSON lines or CSV. This module defines the arguments
//! and selects the format.
//!
//! Submodules: `safe_path` (checks whether a key may become a path), `tree` (files), `rows` (JSON
//! lines, CSV).

mod rows;
mod safe_path;
mod tree;

use crate::database_args::{DatabaseArg, FamilyArg, KeyFormat};
use crate::failure::{Failure, Result, show_path};
use crate::output::Output;
use crate::size;
use clap::{Args, ValueEnum};
use perigee::Cursor;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

use super::scan::RangeArgs;

const EXAMPLES: &str = "\
Examples:
  perigee export ./db ./out                  each key becomes a file below ./out (new or empty)
  perigee export ./db ./out --prefix photos/
  perigee export ./db backup.jsonl           `perigee import --format entries` reads it back
  perigee export ./db table.csv              non-printable bytes are written as \\xNN
  perigee export ./db | gzip > db.jsonl.gz

Keys that are not safe as paths (absolute, with .. or NUL) or that collide with another key are \
refused and counted.";

/// Write entries to files, JSON lines or CSV
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// A new or empty directory, a new file, or - for stdout
    #[arg(default_value = "-", value_name = "TARGET")]
    target: PathBuf,
    /// Output format (default: by the extension .jsonl or .csv; JSON lines on stdout; else tree)
    #[arg(long, value_enum)]
    format: Option<Format>,
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
    /// Columns key and value, with \xNN escapes
    Csv,
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
    let format = args.format.unwrap_or_else(|| format_of_target(&args.target));
    let to_stdout = args.target.as_os_str() == "-";
    if to_stdout && format == Format::Tree {
        return Err(Failure::usage("a tree of files cannot be written to stdout")
            .hint("specify a directory, or --format jsonl"));
    }
    let bounds = args.range.bounds(args.form)?;
    let db = args.database.open_read_only()?;
    let mut cursor = args.family.open_family(&db)?.cursor_within(bounds)?;
    cursor.seek_to_first()?;
    let counts = match format {
        Format::Tree => tree::export(&mut cursor, &args.target, args.strict)?,
        Format::Jsonl | Format::Csv => export_rows(&mut cursor, args, format, out)?,
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
        _ if target.as_os_str() == "-" => Format::Jsonl,
        _ => Format::Tree,
    }
}

fn export_rows(
    cursor: &mut Cursor,
    args: &ExportArgs,
    format: Format,
    out: &mut Output,
) -> Result<ExportCounts> {
    if args.target.as_os_str() == "-" {
        return rows::export(cursor, format == Format::Csv, out);
    }
    let create_failure = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::usage(format!("{} already exists", show_path(&args.target)))
                .hint("specify a new file")
        }
        _ => Failure::file("create", &args.target, &e),
    };
    let file = std::fs::File::create_new(&args.target).map_err(create_failure)?;
    let mut writer = std::io::BufWriter::with_capacity(256 << 10, file);
    let counts = rows::export(cursor, format == Format::Csv, &mut writer)?;
    writer.into_inner().map_err(|e| Failure::file("write", &args.target, e.error()))?;
    Ok(counts)
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
        assert_eq!(f("out"), Format::Tree);
        assert_eq!(f("out.d"), Format::Tree);
    }
}
