//! `perigee compact`: merges everything, or a key range, into the deepest level.

use crate::database_args::{DatabaseArg, FamilyArg, KeyFormat};
use crate::failure::Result;
use crate::output::Output;
use crate::size;
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::ops::Bound;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  perigee compact ./db                 drops overwritten and deleted entries
  perigee compact ./db --family tides
  perigee compact ./db --range 2026/01 2026/02      a range of keys, both ends included
  perigee compact ./db --range 2026/11 -            from this key to the end (`-`: no bound)";

/// Merge every column family into its deepest level
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompactArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// Compact only this column family
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
    /// Compact only tables with keys from FIRST to LAST (both included; `-`: no bound)
    #[arg(long, num_args = 2, value_names = ["FIRST", "LAST"], allow_hyphen_values = true)]
    range: Option<Vec<OsString>>,
    #[command(flatten)]
    form: KeyFormat,
}

/// Runs the compaction and prints the size before and after.
pub fn run(args: &CompactArgs, out: &mut Output) -> Result<u8> {
    let db = args.database.open_read_write()?;
    let before = db.admin().stats().disk_bytes;
    let started = Instant::now();
    match (&args.range, &args.family) {
        (Some(range), family) => {
            let name = family.clone().unwrap_or_else(|| "default".into());
            FamilyArg { family: name }
                .open_family(&db)?
                .compact_range(parse_bounds(range, args.form)?)?;
        }
        (None, None) => db.admin().compact()?,
        (None, Some(name)) => FamilyArg { family: name.clone() }.open_family(&db)?.compact()?,
    }
    db.admin().wait_idle()?;
    let after = db.admin().stats().disk_bytes;
    db.close()?;
    let elapsed = started.elapsed();
    let text = format!(
        "compacted: {} before, {} after, in {}",
        size::bytes(before),
        size::bytes(after),
        size::micros(elapsed.as_micros() as u64)
    );
    let value =
        json!({"bytes_before": before, "bytes_after": after, "seconds": elapsed.as_secs_f64()});
    out.json_or_text(&value, text)?;
    Ok(0)
}

fn parse_bounds(range: &[OsString], form: KeyFormat) -> Result<(Bound<Vec<u8>>, Bound<Vec<u8>>)> {
    let end = |word: &OsString| {
        if word == "-" { Ok(Bound::Unbounded) } else { form.parse_key(word).map(Bound::Included) }
    };
    Ok((end(&range[0])?, end(&range[1])?))
}
