//! `perigee count`: counts entries without reading values in value logs.

use crate::database_args::{DatabaseArg, FamilyArg, KeyFormat};
use crate::failure::Result;
use crate::output::Output;
use crate::progress::Progress;
use clap::Args;
use serde_json::json;

use super::scan::RangeArgs;

const EXAMPLES: &str = "\
Examples:
  perigee count ./db
  perigee count ./db --prefix photos/ --json     {\"count\":1234,\"key_bytes\":56789}";

/// Count entries
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CountArgs {
    #[command(flatten)]
    database: DatabaseArg,
    #[command(flatten)]
    range: RangeArgs,
    #[command(flatten)]
    family: FamilyArg,
    #[command(flatten)]
    form: KeyFormat,
}

/// Counts the entries.
pub fn run(args: &CountArgs, out: &mut Output) -> Result<u8> {
    let bounds = args.range.bounds(args.form)?;
    let db = args.database.open_read_only()?;
    let mut cursor = args.family.open_family(&db)?.cursor_within(bounds)?;
    let mut progress = Progress::items("counting", 0);
    let (mut count, mut key_bytes) = (0u64, 0u64);
    cursor.seek_to_first()?;
    while cursor.is_valid() {
        count += 1;
        key_bytes += cursor.key().len() as u64;
        progress.count_item();
        cursor.next()?;
    }
    drop(progress);
    db.close()?;
    out.json_or_text(&json!({"count": count, "key_bytes": key_bytes}), count.to_string())?;
    Ok(0)
}
