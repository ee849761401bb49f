//! `perigee backup`: creates, lists, verifies and prunes backup generations of a database.

use crate::database_args::DatabaseArg;
use crate::failure::{EXIT_DAMAGED, Result};
use crate::output::{Output, table};
use crate::progress::Progress;
use crate::size;
use crate::table_formats::rfc3339::{EPOCH_DAY, date_of_day};
use clap::{Args, Subcommand};
use perigee::backup::{BackupDamage, BackupDir, BackupInfo, BackupOptions};
use serde_json::{Value, json};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  perigee backup create ./db /backup/db      a new generation; copies only new files
  perigee backup list /backup/db
  perigee backup verify /backup/db           exit code 3: the damage is listed
  perigee backup prune /backup/db --keep 7
  perigee restore /backup/db ./db2           the newest generation as a database";

/// Hint if another program has the database open.
const IN_USE_HINT: &str = "the program that has it open can create a backup while it runs: \
    `db.backup(\"BACKUP\")` (in C `tidesdb_backup`); or close it first; \
    `perigee export DB entries.jsonl` exports the entries without the lock";

/// Create, list, verify and prune backups
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BackupArgs {
    #[command(subcommand)]
    command: BackupCommand,
}

#[derive(Debug, Subcommand)]
enum BackupCommand {
    /// Create a new generation from a database
    #[command(after_help = "Example: perigee backup create ./db /backup/db")]
    Create(CreateArgs),
    /// List the generations
    #[command(after_help = "Example: perigee backup list /backup/db --json")]
    List(ListArgs),
    /// Read every file of the backup and check its checksum
    #[command(after_help = "Example: perigee backup verify /backup/db --generation 3")]
    Verify(VerifyArgs),
    /// Remove old generations and the files that only they use
    #[command(after_help = "Example: perigee backup prune /backup/db --keep 7")]
    Prune(PruneArgs),
}

#[derive(Args, Debug)]
struct CreateArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// Directory of the backup, created if it does not exist
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Read every copied file back and check it before the generation is committed
    #[arg(long)]
    reread: bool,
}

#[derive(Args, Debug)]
struct ListArgs {
    /// Directory of the backup
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
}

#[derive(Args, Debug)]
struct VerifyArgs {
    /// Directory of the backup
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Verify only this generation
    #[arg(long, value_name = "N")]
    generation: Option<u64>,
}

#[derive(Args, Debug)]
struct PruneArgs {
    /// Directory of the backup
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Number of newest generations to keep
    #[arg(long, value_name = "N")]
    keep: usize,
}

/// Runs the subcommand.
pub fn run(args: &BackupArgs, out: &mut Output) -> Result<u8> {
    match &args.command {
        BackupCommand::Create(args) => create(args, out),
        BackupCommand::List(args) => list(args, out),
        BackupCommand::Verify(args) => verify(args, out),
        BackupCommand::Prune(args) => prune(args, out),
    }
}

fn create(args: &CreateArgs, out: &mut Output) -> Result<u8> {
    let db = args.database.open_read_write().map_err(|e| e.hint_if_locked(IN_USE_HINT))?;
    let mut progress = Progress::bytes("backing up", 0);
    let created = db.backups().create_with(
        &args.backup,
        BackupOptions::new().reread(args.reread),
        |done, total| {
            progress.set_total(total);
            progress.set_position(done);
        },
    )?;
    drop(progress);
    db.close()?;
    let text = format!(
        "generation {} up to sequence number {}: {} copied ({}), {} shared with earlier \
         generations ({})",
        created.generation,
        created.sequence,
        size::plural(created.new_files, "file", "files"),
        size::bytes(created.new_bytes),
        created.shared_files,
        size::bytes(created.shared_bytes),
    );
    let value = json!({
        "generation": created.generation, "sequence": created.sequence,
        "new_files": created.new_files, "new_bytes": created.new_bytes,
        "shared_files": created.shared_files, "shared_bytes": created.shared_bytes,
    });
    out.json_or_text(&value, text)?;
    Ok(0)
}

fn list(args: &ListArgs, out: &mut Output) -> Result<u8> {
    let all = BackupDir::open(&args.backup).list_readable()?;
    if out.json {
        let errors: Vec<_> = all.errors.iter().map(ToString::to_string).collect();
        out.json_line(&json!({"generations": all.generations.iter().map(info_json).collect::<Vec<_>>(), "errors": errors}))?;
    } else {
        let mut t = table(&[">generation", ">sequence", ">created", ">files", ">size", "database"]);
        for g in &all.generations {
            t.add_row([
                g.generation.to_string(),
                g.sequence.to_string(),
                utc_date(g.created_ms),
                g.files.len().to_string(),
                size::bytes(g.bytes),
                format!("{:016x}", g.database),
            ]);
        }
        out.line(t.trim_fmt())?;
        for e in &all.errors {
            out.line(format!("damaged: {e}"))?;
        }
    }
    Ok(if all.errors.is_empty() { 0 } else { EXIT_DAMAGED })
}

fn info_json(g: &BackupInfo) -> Value {
    let file = |f: &perigee::backup::BackupFile| json!({"name": f.name, "bytes": f.bytes});
    json!({
        "generation": g.generation, "sequence": g.sequence, "created_ms": g.created_ms, "bytes": g.bytes,
        "database": format!("{:016x}", g.database), "files": g.files.iter().map(file).collect::<Vec<_>>(),
    })
}

/// Formats a time, in milliseconds since the Unix epoch, as `2026-11-21 05:21:47 UTC`, in the
/// proleptic Gregorian calendar.
fn utc_date(ms: u64) -> String {
    let (days, second) = ((ms / 86_400_000) as i64, ms / 1000 % 86_400);
    let (year, month, day) = date_of_day(days + EPOCH_DAY);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

fn verify(args: &VerifyArgs, out: &mut Output) -> Result<u8> {
    let mut progress = Progress::bytes("verifying", 0);
    let report = BackupDir::open(&args.backup).verify_with(args.generation, |done, total| {
        progress.set_total(total);
        progress.set_position(done);
    })?;
    drop(progress);
    if out.json {
        let error = |d: &BackupDamage| json!({"message": d.error.message(), "file": d.error.file(), "generations": d.generations});
        out.json_line(&json!({
            "ok": report.errors.is_empty(), "generations": report.generations, "files": report.files,
            "bytes": report.bytes, "errors": report.errors.iter().map(error).collect::<Vec<_>>(),
        }))?;
    } else {
        for damage in &report.errors {
            let needed: Vec<_> = damage.generations.iter().map(ToString::to_string).collect();
            out.line(format!(
                "damaged: {}; used by generation {}",
                damage.error,
                needed.join(", ")
            ))?;
        }
        let read = format!(
            "{}, {}, {} read",
            size::plural(report.generations, "generation", "generations"),
            size::plural(report.files, "file", "files"),
            size::bytes(report.bytes)
        );
        match report.errors.len() as u64 {
            0 => out.line(format!("ok: every byte is as it was written ({read})"))?,
            n => {
                out.line(format!("{}, listed above ({read})", size::plural(n, "error", "errors")))?
            }
        }
    }
    Ok(if report.errors.is_empty() { 0 } else { EXIT_DAMAGED })
}

fn prune(args: &PruneArgs, out: &mut Output) -> Result<u8> {
    let pruned = BackupDir::open(&args.backup).prune(args.keep)?;
    let text = format!(
        "{} removed, {} kept; {} no longer used removed ({})",
        size::plural(pruned.removed.len() as u64, "generation", "generations"),
        pruned.kept.len(),
        size::plural(pruned.files, "file", "files"),
        size::bytes(pruned.bytes),
    );
    let value = json!({
        "removed": pruned.removed, "kept": pruned.kept, "files": pruned.files, "bytes": pruned.bytes,
    });
    out.json_or_text(&value, text)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_dates_are_formatted() {
        assert_eq!(utc_date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc_date(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc_date(1_795_238_507_000), "2026-11-21 05:21:47 UTC");
    }
}
