//! `perigee purge`: reclaim everything that can be reclaimed.

use crate::database_args::{DatabaseArg, FamilyArg};
use crate::failure::Result;
use crate::output::Output;
use crate::size;
use clap::Args;
use serde_json::json;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  perigee purge ./db
  perigee purge ./db --family tides --json

As `compact`, and every value log that holds any garbage is rewritten: it costs more and leaves nothing.";

/// Reclaim everything that deletes and overwrites left behind
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PurgeArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// Only this family
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
}

/// Purges.
pub fn run(args: &PurgeArgs, out: &mut Output) -> Result<u8> {
    let db = args.database.open_read_write()?;
    let before = db.stats().disk_bytes;
    let started = Instant::now();
    match &args.family {
        None => db.purge()?,
        Some(name) => FamilyArg { family: name.clone() }.open_family(&db)?.purge()?,
    }
    let after = db.stats().disk_bytes;
    db.close()?;
    let seconds = started.elapsed().as_secs_f64();
    let (was, is) = (size::bytes(before), size::bytes(after));
    let value = json!({"bytes_before": before, "bytes_after": after, "seconds": seconds});
    out.json_or_text(&value, format!("purged: {was} before, {is} after, in {seconds:.1} s"))?;
    Ok(0)
}
