//! `perigee checkpoint`: a second database by hard links.

use crate::database_args::DatabaseArg;
use crate::failure::Result;
use crate::output::Output;
use crate::size;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  perigee checkpoint ./db ./db-before-upgrade     takes no space until one of the two changes
  perigee checkpoint ./db /mnt/other/db --json    another file system: files are copied";

/// What to do about a database that a program has open.
const IN_USE_HINT: &str = "the program that has it open can make one while it runs: `db.checkpoint(\"TARGET\")` (in C \
                      `tidesdb_checkpoint`); or close it first; `perigee export DB entries.jsonl` writes the entries out meanwhile";

/// Make a second database with the same contents, by hard links
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CheckpointArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// Where to make it: a directory that does not exist or is empty
    #[arg(value_name = "TARGET")]
    target: PathBuf,
}

/// Makes it.
pub fn run(args: &CheckpointArgs, out: &mut Output) -> Result<u8> {
    let db = args.database.open_read_write().map_err(|e| e.hint_if_locked(IN_USE_HINT))?;
    let made = db.checkpoint(&args.target)?;
    db.close()?;
    let text = format!(
        "checkpoint up to operation {}: {} linked ({}), {} copied ({}), {} of its own",
        made.sequence,
        size::plural(made.linked_files, "file", "files"),
        size::bytes(made.linked_bytes),
        made.copied_files,
        size::bytes(made.copied_bytes),
        size::bytes(made.own_bytes),
    );
    let value = json!({
        "sequence": made.sequence, "linked_files": made.linked_files, "linked_bytes": made.linked_bytes,
        "copied_files": made.copied_files, "copied_bytes": made.copied_bytes, "own_bytes": made.own_bytes,
    });
    out.json_or_text(&value, text)?;
    Ok(0)
}
