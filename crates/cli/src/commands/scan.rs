//! `perigee scan`: prints entries in key order, within bounds, in either direction.

use crate::database_args::{DatabaseArg, FamilyArg, KeyFormat};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::text::{escape, prefix_end, put_json};
use clap::Args;
use perigee::Cursor;
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::ops::Bound;

const EXAMPLES: &str = "\
Examples:
  perigee scan ./db --limit 5                     the first five, long values shortened
  perigee scan ./db --prefix photos/ --keys-only
  perigee scan ./db --from 2026-01 --to 2026-02   --to is exclusive
  perigee scan ./db --reverse --limit 1           the last entry
  perigee scan ./db --json > entries.jsonl        `perigee import --format entries` reads it back

Non-printable bytes are shown as \\xNN; --escaped accepts the same notation for keys.";

/// Bytes of a value that are shown without `--values`.
const PREVIEW_BYTES: usize = 64;

/// List entries in key order
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ScanArgs {
    #[command(flatten)]
    database: DatabaseArg,
    #[command(flatten)]
    range: RangeArgs,
    /// Print at most N entries
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print entries in reverse order
    #[arg(long)]
    reverse: bool,
    /// Print only keys; does not read values in value logs
    #[arg(long, conflicts_with = "values")]
    keys_only: bool,
    /// Print values in full
    #[arg(long)]
    values: bool,
    #[command(flatten)]
    family: FamilyArg,
    #[command(flatten)]
    form: KeyFormat,
}

/// The range of keys.
#[derive(Args, Debug)]
pub struct RangeArgs {
    /// Only keys with this prefix
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["from", "to"])]
    pub prefix: Option<OsString>,
    /// First key, included
    #[arg(long, value_name = "KEY")]
    pub from: Option<OsString>,
    /// End of the range, excluded
    #[arg(long, value_name = "KEY")]
    pub to: Option<OsString>,
}

/// Lower and upper bound of keys.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl RangeArgs {
    /// Returns the bounds that the arguments describe.
    pub fn bounds(&self, form: KeyFormat) -> Result<Bounds> {
        if let Some(prefix) = &self.prefix {
            return Ok(prefix_bounds(form.parse_key(prefix)?));
        }
        let parse = |arg: &Option<OsString>| arg.as_ref().map(|k| form.parse_key(k)).transpose();
        let (from, to) = (parse(&self.from)?, parse(&self.to)?);
        if from.is_some() && to.is_some() && from > to {
            return Err(Failure::usage("--from is greater than --to"));
        }
        Ok((
            from.map_or(Bound::Unbounded, Bound::Included),
            to.map_or(Bound::Unbounded, Bound::Excluded),
        ))
    }
}

/// Returns the bounds of all keys with a prefix.
pub fn prefix_bounds(prefix: Vec<u8>) -> Bounds {
    let end = prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix), end)
}

/// Prints the entries.
pub fn run(args: &ScanArgs, out: &mut Output) -> Result<u8> {
    let bounds = args.range.bounds(args.form)?;
    let db = args.database.open_read_only()?;
    let mut cursor = args.family.open_family(&db)?.cursor_within(bounds)?;
    let mut left = args.limit.unwrap_or(u64::MAX);
    if args.reverse {
        cursor.seek_to_last()?
    } else {
        cursor.seek_to_first()?
    }
    while cursor.is_valid() && left > 0 {
        print_entry(&cursor, args, out)?;
        left -= 1;
        if left > 0 {
            if args.reverse { cursor.prev()? } else { cursor.next()? }
        }
    }
    db.close()?;
    Ok(0)
}

fn print_entry(cursor: &Cursor, args: &ScanArgs, out: &mut Output) -> Result<()> {
    let key = cursor.key();
    if out.json {
        let mut object = Map::new();
        put_json(&mut object, "key", key);
        if !args.keys_only {
            put_json(&mut object, "value", &cursor.value()?);
        }
        return out.json_line(&Value::Object(object));
    }
    let key = args.form.format_key(key);
    if args.keys_only {
        return out.line(key);
    }
    let value = cursor.value()?;
    let value = if args.values { escape(&value) } else { preview(&value) };
    out.line(format!("{key}\t{value}"))
}

/// Returns the escaped beginning of a value, with its length if it was shortened.
pub fn preview(value: &[u8]) -> String {
    match value.get(..PREVIEW_BYTES) {
        Some(start) if value.len() > PREVIEW_BYTES => {
            // Do not split a character, which would show as invalid bytes.
            let shown = match std::str::from_utf8(start) {
                Err(e) if e.error_len().is_none() => &start[..e.valid_up_to()],
                _ => start,
            };
            format!("{}... ({} bytes)", escape(shown), value.len())
        }
        _ => escape(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_at_character_boundaries() {
        assert_eq!(preview(b"short"), "short");
        assert_eq!(preview(&[b'a'; 64]), "a".repeat(64));
        assert_eq!(preview(&[b'a'; 65]), format!("{}... (65 bytes)", "a".repeat(64)));
        let text = format!("{}潮水", "a".repeat(63));
        assert_eq!(preview(text.as_bytes()), format!("{}... (69 bytes)", "a".repeat(63)));
    }

    #[test]
    fn bounds_follow_the_arguments() {
        let form = KeyFormat::default();
        let args = |prefix: Option<&str>, from: Option<&str>, to: Option<&str>| RangeArgs {
            prefix: prefix.map(Into::into),
            from: from.map(Into::into),
            to: to.map(Into::into),
        };
        let all = (Bound::Unbounded, Bound::Unbounded);
        assert_eq!(args(None, None, None).bounds(form).unwrap(), all);
        let ab = (Bound::Included(b"ab".to_vec()), Bound::Excluded(b"ac".to_vec()));
        assert_eq!(args(Some("ab"), None, None).bounds(form).unwrap(), ab);
        assert_eq!(args(None, Some("ab"), Some("ac")).bounds(form).unwrap(), ab);
        assert!(args(None, Some("b"), Some("a")).bounds(form).is_err());
    }
}
