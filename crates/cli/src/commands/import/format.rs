//! Determines the format of an input from the user's choice, its file type and its extension.

use crate::failure::{Failure, Result, show_path};
use clap::ValueEnum;
use std::path::Path;

/// The formats that `import` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A directory (or one file): path -> bytes
    Tree,
    /// Comma-separated, with a header line
    Csv,
    /// Tab-separated, with a header line
    Tsv,
    /// One JSON object on each line: the key field -> the line
    Jsonl,
    /// Apache Parquet, only with --table and in builds with the feature `parquet`
    Parquet,
    /// Output of `scan --json` and `export`: {"key":...,"value":...}, or ..._base64
    Entries,
}

/// Returns the format of `path`: the requested one, otherwise by its type or extension.
pub fn format_of(path: &Path, requested: Option<Format>) -> Result<Format> {
    if let Some(format) = requested {
        return Ok(format);
    }
    if path.as_os_str() == "-" {
        return Err(Failure::usage("stdin has no file extension that determines its format")
            .hint("add --format csv, tsv, jsonl or entries"));
    }
    let meta = std::fs::metadata(path).map_err(|e| Failure::file("import", path, &e))?;
    if meta.is_dir() {
        return Ok(Format::Tree);
    }
    format_by_extension(path).ok_or_else(|| {
        Failure::usage(format!(
            "the extension of {} does not determine its format",
            show_path(path)
        ))
        .hint(
            "add --format csv, tsv, jsonl, parquet or entries, or --format tree to import the \
             file itself",
        )
    })
}

fn format_by_extension(path: &Path) -> Option<Format> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    match extension.as_str() {
        "csv" => Some(Format::Csv),
        "tsv" | "tab" => Some(Format::Tsv),
        "jsonl" | "ndjson" => Some(Format::Jsonl),
        "parquet" => Some(Format::Parquet),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_selects_the_format() {
        let f = |p: &str| format_by_extension(Path::new(p));
        assert_eq!(f("a.csv"), Some(Format::Csv));
        assert_eq!(f("a.TSV"), Some(Format::Tsv));
        assert_eq!(f("x/a.b.jsonl"), Some(Format::Jsonl));
        assert_eq!(f("a.ndjson"), Some(Format::Jsonl));
        assert_eq!(f("a.Parquet"), Some(Format::Parquet));
        assert_eq!(f("a.txt"), None);
        assert_eq!(f("csv"), None);
    }

    #[test]
    fn explicit_format_wins() {
        assert_eq!(format_of(Path::new("a.csv"), Some(Format::Tsv)).unwrap(), Format::Tsv);
        assert!(format_of(Path::new("-"), None).is_err());
        assert_eq!(format_of(&std::env::temp_dir(), None).unwrap(), Format::Tree);
        assert!(format_of(Path::new("/nothing/here.csv"), None).is_err());
    }
}
