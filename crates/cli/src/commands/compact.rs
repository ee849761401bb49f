//! `perigee compact`: merge everything down.

use crate::failure::Result;
use crate::output::Out;
use crate::place::Place;
use crate::size;
use clap::Args;
use serde_json::json;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  perigee compact ./db                 drops what later writes and deletes hide
  perigee compact ./db --family tides";

/// Merge every family into its deepest level
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompactArgs {
    #[command(flatten)]
    place: Place,
    /// Only this family
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
}

/// Compacts.
pub fn run(args: &CompactArgs, out: &mut Out) -> Result<u8> {
    let db = args.place.open()?;
    let before = db.stats().disk_bytes;
    let started = Instant::now();
    match &args.family {
        None => db.compact()?,
        Some(name) => crate::place::FamilyArg { family: name.clone() }.of(&db)?.compact()?,
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
