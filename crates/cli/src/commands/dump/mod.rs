//! `perigee dump`: prints one file of a database as text. This module defines the arguments, finds
//! the file and selects the decoder.
//!
//! Submodules: `source` (positional reads of one file), `dump_writer` (the output), `frames` (klog
//! and vlog), `log` (log segments and manifest), `manifest_edit` (the fields of a manifest edit).
//!
//! Takes no lock, opens no engine and writes nothing, so it works on damaged files and while
//! another process has the database open. Damage is reported at its offset; decoding continues
//! after it.

pub mod manifest_edit;
mod frames;
mod log;
mod dump_writer;
mod source;

use crate::database_args::{DatabaseArg, KeyFormat};
use crate::failure::{EXIT_DAMAGED, Failure, Result, show_path};
use crate::output::{Output, table};
use crate::size;
use clap::Args;
use dump_writer::DumpWriter;
use perigee_base::{FileId, FileKind};
use perigee_file::filename;
use serde_json::json;
use source::DumpSource;
use std::fs;
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  perigee dump ./db                       lists the files
  perigee dump ./db 000007.klog           all entries, block by block
  perigee dump ./db 7                     the same file by its number
  perigee dump ./db MANIFEST
  perigee dump ./db 000004.wal --limit 20 --values
  perigee dump ./db 7 --json              one JSON line per frame, record or entry

Decodes damaged files as far as possible (exit code 3 if there is damage). Works while another \
process has the database open: takes no lock and writes nothing.";

/// Decode a database file to text, even if it is damaged or in use
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DumpArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// Name or number of a file in the database; without it, the files are listed
    file: Option<String>,
    /// Print at most N entries (the whole file is checked for damage)
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print values in full
    #[arg(long)]
    values: bool,
    /// Print keys as hexadecimal digits
    #[arg(long)]
    hex: bool,
}

/// Dumps one file, or lists them.
pub fn run(args: &DumpArgs, out: &mut Output) -> Result<u8> {
    let dir = &args.database.db;
    let files = list_files(dir)?;
    let Some(wanted) = &args.file else { return print_list(&files, out) };
    let file = find_file(dir, &files, wanted)?;
    let form = KeyFormat { hex: args.hex, escaped: false };
    let mut writer = DumpWriter::new(out, form, args.values, args.limit);
    let source = DumpSource::open(&dir.join(&file.name), &file.name)?;
    writer.write_file_line(&file.name, kind_name(file.kind), source.bytes())?;
    match file.kind {
        FileKind::Wal | FileKind::Manifest => {
            log::dump_log(&source, file.kind, file.id, &mut writer)?
        }
        FileKind::Backup => {
            return Err(Failure::usage("use `perigee backup list DIR` to list a backup"));
        }
        FileKind::Klog | FileKind::Vlog => {
            frames::dump_table(&source, file.kind, file.id, &mut writer)?
        }
    }
    Ok(if writer.finish()? { EXIT_DAMAGED } else { 0 })
}

/// A file of a database.
struct DatabaseFile {
    name: String,
    kind: FileKind,
    /// The file id in its name; `None` for the manifest, which has it only in its header.
    id: Option<FileId>,
    bytes: u64,
}

fn list_files(dir: &Path) -> Result<Vec<DatabaseFile>> {
    let entries = fs::read_dir(dir).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotADirectory => {
            Failure::usage(format!("{} is a file", show_path(dir)))
                .hint("specify the database directory first, then the name of a file in it")
        }
        std::io::ErrorKind::NotFound => {
            Failure::other("not found", format!("{} does not exist", show_path(dir)))
                .hint("check the path")
        }
        _ => Failure::file("open", dir, &e),
    })?;
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| Failure::file("read", dir, &e))?;
        let Ok(file_name) = entry.file_name().into_string() else { continue };
        let (id, kind) = match filename::parse_file_name(&file_name) {
            Some((id, kind)) => (Some(id), kind),
            None if [filename::MANIFEST, filename::MANIFEST_TMP].contains(&file_name.as_str()) => {
                (None, FileKind::Manifest)
            }
            None => continue,
        };
        // If the database is in use, the file may have been removed since it was listed.
        let Ok(meta) = entry.metadata() else { continue };
        files.push(DatabaseFile { name: file_name, kind, id, bytes: meta.len() });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn find_file<'a>(dir: &Path, files: &'a [DatabaseFile], wanted: &str) -> Result<&'a DatabaseFile> {
    let number = wanted.parse::<u64>().ok().map(FileId);
    let named = files.iter().find(|f| f.name == wanted);
    named.or_else(|| files.iter().find(|f| number.is_some() && f.id == number)).ok_or_else(|| {
        Failure::other(
            "not found",
            format!("there is no klog, vlog, log or manifest {wanted:?} in {}", show_path(dir)),
        )
        .hint("`perigee dump DB` lists the files")
    })
}

fn print_list(files: &[DatabaseFile], out: &mut Output) -> Result<u8> {
    if out.json {
        let value: Vec<_> = files
            .iter()
            .map(|f| json!({"file": f.name, "kind": kind_name(f.kind), "bytes": f.bytes}))
            .collect();
        out.json_line(&json!({"files": value}))?;
        return Ok(0);
    }
    let mut t = table(&["file", "kind", ">size"]);
    for f in files {
        t.add_row([&f.name, kind_name(f.kind), &size::bytes(f.bytes)]);
    }
    out.line(t.trim_fmt())?;
    Ok(0)
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Wal => "write-ahead log",
        FileKind::Manifest => "manifest",
        FileKind::Klog => "klog",
        FileKind::Vlog => "vlog",
        FileKind::Backup => "backup record",
    }
}
