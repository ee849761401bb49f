//! `perigee restore`: creates a database from a backup generation.

use crate::failure::Result;
use crate::output::Output;
use crate::progress::Progress;
use crate::size;
use clap::Args;
use perigee::backup::BackupDir;
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  perigee restore /backup/db ./db2                     the newest generation
  perigee restore /backup/db ./db2 --generation 3      `perigee backup list` lists generations";

/// Create a database from a backup generation
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RestoreArgs {
    /// Directory of the backup
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Directory of the new database: a new or an empty directory
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// Generation to restore (default: the newest)
    #[arg(long, value_name = "N")]
    generation: Option<u64>,
}

/// Restores the generation; checks every file against its checksum while copying.
pub fn run(args: &RestoreArgs, out: &mut Output) -> Result<u8> {
    let mut progress = Progress::bytes("restoring", 0);
    let backups = BackupDir::open(&args.backup);
    let restored = backups.restore_with(args.generation, &args.target, |done, total| {
        progress.set_total(total);
        progress.set_position(done);
    })?;
    drop(progress);
    let text = format!(
        "restored generation {} up to sequence number {}: {}, {}",
        restored.generation,
        restored.sequence,
        size::plural(restored.files, "file", "files"),
        size::bytes(restored.bytes)
    );
    let value = json!({
        "generation": restored.generation, "sequence": restored.sequence,
        "files": restored.files, "bytes": restored.bytes,
    });
    out.json_or_text(&value, text)?;
    Ok(0)
}
