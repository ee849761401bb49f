//! What an input is, by its ending or by what the user says. Pure but for one look whether it is a
//! directory.

use crate::failure::{Failure, Result, show_path};
use clap::ValueEnum;
use std::path::Path;

/// The forms that `import` reads.
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
    /// What `scan --json` and `export` print: {"key":...,"value":...}, or ..._base64
    Entries,
}

/// The format of `path`: as asked, else by what it is.
pub fn format_of(path: &Path, asked: Option<Format>) -> Result<Format> {
    if let Some(format) = asked {
        return Ok(format);
    }
    if path.as_os_str() == "-" {
        return Err(Failure::usage("stdin has no ending that tells its format")
            .hint("add --format csv, tsv, jsonl or entries"));
    }
    let meta = std::fs::metadata(path).map_err(|e| Failure::file("import", path, &e))?;
    if meta.is_dir() {
        return Ok(Format::Tree);
    }
    format_by_extension(path).ok_or_else(|| {
        Failure::usage(format!("cannot tell what {} is by its ending", show_path(path))).hint(
            "add --format csv, tsv, jsonl or entries, or --format tree to import the file itself",
        )
    })
}

fn format_by_extension(path: &Path) -> Option<Format> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    match ending.as_str() {
        "csv" => Some(Format::Csv),
        "tsv" | "tab" => Some(Format::Tsv),
        "jsonl" | "ndjson" => Some(Format::Jsonl),
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
