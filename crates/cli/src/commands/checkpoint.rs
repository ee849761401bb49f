//! `perigee checkpoint`: creates a second database with the same contents, using hard links.

use crate::database_args::DatabaseArg;
use crate::failure::Result;
use crate::output::Output;
use crate::size;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  perigee checkpoint ./db ./db-before-upgrade     uses no space until one of the two changes
  perigee checkpoint ./db /mnt/other/db --json    another file system: files are copied";

/// Hint if another program has the database open.
const IN_USE_HINT: &str = "the program that has it open can create a checkpoint while it runs: \
    `db.checkpoint(\"TARGET\")` (in C `tidesdb_checkpoint`); or close it first; \
    `perigee export DB entries.jsonl` exports the entries without the lock";

/// Create a second database with the same contents, using hard links
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CheckpointArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// Directory of the new database: a new or an empty directory
    #[arg(value_name = "TARGET")]
    target: PathBuf,
}

/// Creates the checkpoint.
pub fn run(args: &CheckpointArgs, out: &mut Output) -> Result<u8> {
    let db = args.database.open_read_write().map_err(|e| e.hint_if_locked(IN_USE_HINT))?;
    let created = db.backups().checkpoint(&args.target)?;
    db.close()?;
    let text = format!(
        "checkpoint up to sequence number {}: {} linked ({}), {} copied ({}), {} newly written",
        created.sequence,
        size::plural(created.linked_files, "file", "files"),
        size::bytes(created.linked_bytes),
        created.copied_files,
        size::bytes(created.copied_bytes),
        size::bytes(created.own_bytes),
    );
    let value = json!({
        "sequence": created.sequence,
        "linked_files": created.linked_files, "linked_bytes": created.linked_bytes,
        "copied_files": created.copied_files, "copied_bytes": created.copied_bytes,
        "own_bytes": created.own_bytes,
    });
    out.json_or_text(&value, text)?;
    Ok(0)
}
