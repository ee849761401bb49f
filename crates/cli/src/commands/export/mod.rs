//! `perigee export`: entries out into files, JSON lines or CSV. This file: the arguments and the
//! choice.
//!
//! Rooms: `safe_path` (which keys may become paths; pure), `tree` (files), `rows` (JSON lines,
//! CSV).

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
  perigee export ./db ./out                  every key becomes a file below ./out, new or empty
  perigee export ./db ./out --prefix photos/
  perigee export ./db backup.jsonl           `perigee import --format entries` reads it back
  perigee export ./db table.csv              bytes that do not print as \\xNN
  perigee export ./db | gzip > db.jsonl.gz

Keys that would leave the directory (absolute, with .. or NUL) or collide with another are refused and counted.";

/// Write entries out as files, JSON lines or CSV
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// A new or empty directory, a new file, or - for stdout
    #[arg(default_value = "-", value_name = "TARGET")]
    target: PathBuf,
    /// What to write (default: by the ending .jsonl or .csv; JSON lines on stdout; else files)
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

/// The forms that `export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A file for each key
    Tree,
    /// {"key":...,"value":...} on each line; bytes that are no text as ..._base64
    Jsonl,
    /// Columns key and value, with \xNN escapes
    Csv,
}

/// What was done.
#[derive(Debug, Default)]
struct ExportCounts {
    entries: u64,
    bytes: u64,
    refused: u64,
}

/// Exports.
pub fn run(args: &ExportArgs, out: &mut Output) -> Result<u8> {
    let format = args.format.unwrap_or_else(|| format_of_target(&args.target));
    let to_stdout = args.target.as_os_str() == "-";
    if to_stdout && format == Format::Tree {
        return Err(
            Failure::usage("files cannot go to stdout").hint("give a directory, or --format jsonl")
        );
    }
    let bounds = args.range.bounds(args.form)?;
    let db = args.database.open_read_only()?;
    let mut cursor = args.family.open_family(&db)?.cursor_within(bounds)?;
    cursor.seek_to_first()?;
    let tally = match format {
        Format::Tree => tree::export(&mut cursor, &args.target, args.strict)?,
        Format::Jsonl | Format::Csv => export_rows(&mut cursor, args, format, out)?,
    };
    db.close()?;
    if to_stdout { Ok(0) } else { print_summary(&tally, out) }
}

fn format_of_target(target: &Path) -> Format {
    let ending =
        target.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    match ending.as_str() {
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
    let refuse = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::usage(format!("{} exists already", show_path(&args.target)))
                .hint("give a new file")
        }
        _ => Failure::file("create", &args.target, &e),
    };
    let file = std::fs::File::create_new(&args.target).map_err(refuse)?;
    let mut writer = std::io::BufWriter::with_capacity(256 << 10, file);
    let tally = rows::export(cursor, format == Format::Csv, &mut writer)?;
    writer.into_inner().map_err(|e| Failure::file("write", &args.target, e.error()))?;
    Ok(tally)
}

fn print_summary(tally: &ExportCounts, out: &mut Output) -> Result<u8> {
    let mut text = format!(
        "exported {}, {} of values",
        size::plural(tally.entries, "entry", "entries"),
        size::bytes(tally.bytes)
    );
    if tally.refused > 0 {
        text.push_str(&format!(
            "\nrefused: {} that cannot safely become a file (export to .jsonl keeps every key)",
            size::plural(tally.refused, "key", "keys")
        ));
    }
    let value: Value = json!({"exported": {"entries": tally.entries, "bytes": tally.bytes, "refused": tally.refused}});
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
