//! `perigee purge`: reclaims the space of all deleted and overwritten entries.

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

Like `compact`, but also rewrites every value log that contains garbage: it costs more, and no \
garbage remains.";

/// Reclaim all space used by deleted and overwritten entries
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PurgeArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// Purge only this column family
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
}

/// Runs the purge and prints the size before and after.
pub fn run(args: &PurgeArgs, out: &mut Output) -> Result<u8> {
    let db = args.database.open_read_write()?;
    let before = db.admin().stats().disk_bytes;
    let started = Instant::now();
    match &args.family {
        None => db.admin().purge()?,
        Some(name) => FamilyArg { family: name.clone() }.open_family(&db)?.purge()?,
    }
    let after = db.admin().stats().disk_bytes;
    db.close()?;
    let seconds = started.elapsed().as_secs_f64();
    let value = json!({"bytes_before": before, "bytes_after": after, "seconds": seconds});
    let (before, after) = (size::bytes(before), size::bytes(after));
    out.json_or_text(&value, format!("purged: {before} before, {after} after, in {seconds:.1} s"))?;
    Ok(0)
}
