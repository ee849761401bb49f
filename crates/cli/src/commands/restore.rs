//! `perigee restore`: a generation of a backup as a database.

use crate::failure::Result;
use crate::output::Output;
use crate::progress::Progress;
use crate::size;
use clap::Args;
use perigee::Backups;
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  perigee restore /backup/db ./db2                     the newest generation
  perigee restore /backup/db ./db2 --generation 3      `perigee backup list` shows which there are";

/// Make a database of a generation of a backup
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RestoreArgs {
    /// Directory of the backup
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Where to make the database: a directory that does not exist or is empty
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// Which generation (default: the newest)
    #[arg(long, value_name = "N")]
    generation: Option<u64>,
}

/// Restores it. Every byte is compared with its checksum on the way.
pub fn run(args: &RestoreArgs, out: &mut Output) -> Result<u8> {
    let mut progress = Progress::bytes("restoring", 0);
    let backups = Backups::open(&args.backup);
    let done = backups.restore_with(args.generation, &args.target, |done, total| {
        progress.set_total(total);
        progress.set_position(done);
    })?;
    drop(progress);
    let text = format!(
        "restored generation {} up to operation {}: {}, {}",
        done.generation,
        done.sequence,
        size::plural(done.files, "file", "files"),
        size::bytes(done.bytes)
    );
    let value = json!({
        "generation": done.generation, "sequence": done.sequence, "files": done.files, "bytes": done.bytes,
    });
    out.json_or_text(&value, text)?;
    Ok(0)
}
