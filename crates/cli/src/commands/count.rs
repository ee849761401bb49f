//! `perigee count`: how many entries there are, without reading separated values.

use crate::failure::Result;
use crate::output::Out;
use crate::place::{FamilyArg, KeyForm, Place};
use crate::progress::Progress;
use clap::Args;
use serde_json::json;

use super::scan::RangeArgs;

const EXAMPLES: &str = "\
Examples:
  perigee count ./db
  perigee count ./db --prefix photos/ --json     {\"count\":1234,\"key_bytes\":56789}";

/// Entries between two looks at the clock.
const STRIDE: u64 = 4096;

/// Count entries
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CountArgs {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    range: RangeArgs,
    #[command(flatten)]
    family: FamilyArg,
    #[command(flatten)]
    form: KeyForm,
}

/// Counts.
pub fn run(args: &CountArgs, out: &mut Out) -> Result<u8> {
    let bounds = args.range.bounds(args.form)?;
    let db = args.place.open_read_only()?;
    let mut cursor = args.family.of(&db)?.cursor_within(bounds)?;
    let mut progress = Progress::items("counting", 0);
    let (mut count, mut key_bytes) = (0u64, 0u64);
    cursor.seek_to_first()?;
    while cursor.valid() {
        count += 1;
        key_bytes += cursor.key().len() as u64;
        if count.is_multiple_of(STRIDE) {
            progress.at(count);
        }
        cursor.next()?;
    }
    drop(progress);
    db.close()?;
    out.either(&json!({"count": count, "key_bytes": key_bytes}), count.to_string())?;
    Ok(0)
}
