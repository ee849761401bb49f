//! `perigee compact`: merge everything, or a range, down.

use crate::failure::Result;
use crate::output::Out;
use crate::place::{FamilyArg, KeyForm, Place};
use crate::size;
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::ops::Bound;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  perigee compact ./db                 drops what later writes and deletes hide
  perigee compact ./db --family tides
  perigee compact ./db --range 2026/01 2026/02      the keys from here to there, both included
  perigee compact ./db --range 2026/11 -            from here to the end (`-`: no bound)";

/// Merge every family into its deepest level
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompactArgs {
    #[command(flatten)]
    place: Place,
    /// Only this family
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
    /// Only the tables that hold keys from FIRST to LAST (both included; `-`: no bound)
    #[arg(long, num_args = 2, value_names = ["FIRST", "LAST"], allow_hyphen_values = true)]
    range: Option<Vec<OsString>>,
    #[command(flatten)]
    form: KeyForm,
}

/// Compacts.
pub fn run(args: &CompactArgs, out: &mut Out) -> Result<u8> {
    let db = args.place.open_to_change()?;
    let before = db.stats().disk_bytes;
    let started = Instant::now();
    match (&args.range, &args.family) {
        (Some(range), family) => {
            let name = family.clone().unwrap_or_else(|| "default".into());
            FamilyArg { family: name }.of(&db)?.compact_range(bounds(range, args.form)?)?;
        }
        (None, None) => db.compact()?,
        (None, Some(name)) => FamilyArg { family: name.clone() }.of(&db)?.compact()?,
    }
    db.wait_idle()?;
    let after = db.stats().disk_bytes;
    db.close()?;
    let elapsed = started.elapsed();
    let text = format!(
        "compacted: {} before, {} after, in {}",
        size::bytes(before),
        size::bytes(after),
        size::micros(elapsed.as_micros() as u64)
    );
    let value = json!({"bytes_before": before, "bytes_after": after, "seconds": elapsed.as_secs_f64()});
    out.either(&value, text)?;
    Ok(0)
}

fn bounds(range: &[OsString], form: KeyForm) -> Result<(Bound<Vec<u8>>, Bound<Vec<u8>>)> {
    let end = |word: &OsString| {
        if word == "-" { Ok(Bound::Unbounded) } else { form.read(word).map(Bound::Included) }
    };
    Ok((end(&range[0])?, end(&range[1])?))
}
