//! `perigee get`: prints the value of one key, byte for byte.

use crate::database_args::{DatabaseArg, FamilyArg, KeyFormat};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress::Progress;
use crate::text::put_json;
use clap::Args;
use perigee::values::ValueReader;
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  perigee get ./db moon                    prints the value; exit code 1 if there is no such key
  perigee get ./db photos/a.jpg > a.jpg
  perigee get ./db film.mkv --file f.mkv   writes the value to a file
  perigee get ./db film.mkv --offset 1000000 --length 4096 | xxd | head
  perigee get ./db --hex 00ff10 --json     {\"key_base64\":...,\"value\":...}";

/// Print the value of a key, byte for byte
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct GetArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// The key
    key: OsString,
    /// Write the value to this file, which is replaced if it exists
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Begin at this byte of the value
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    offset: u64,
    /// Print at most this many bytes
    #[arg(long, value_name = "BYTES")]
    length: Option<u64>,
    #[command(flatten)]
    family: FamilyArg,
    #[command(flatten)]
    form: KeyFormat,
}

/// Prints the value.
pub fn run(args: &GetArgs, out: &mut Output) -> Result<u8> {
    let key = args.form.parse_key(&args.key)?;
    let db = args.database.open_read_only()?;
    let family = args.family.open_family(&db)?;
    let mut value = family.reader(&key)?.ok_or_else(|| Failure::missing(&key))?;
    let rest = value.len().saturating_sub(args.offset);
    let bytes = args.length.unwrap_or(u64::MAX).min(rest);
    let range = args.offset..args.offset.saturating_add(bytes);
    if let Some(path) = &args.file {
        let mut file = File::create(path).map_err(|e| Failure::file("create", path, &e))?;
        copy_parts(&mut value, range, true, |part| {
            file.write_all(part).map_err(|e| Failure::file("write", path, &e))
        })?;
        if out.json {
            let mut object = Map::new();
            put_json(&mut object, "key", &key);
            object.insert("bytes".into(), bytes.into());
            out.json_line(&Value::Object(object))?;
        }
    } else if out.json {
        let mut contents = Vec::new();
        copy_parts(&mut value, range, false, |part| {
            contents.extend_from_slice(part);
            Ok(())
        })?;
        let mut object = Map::new();
        put_json(&mut object, "key", &key);
        put_json(&mut object, "value", &contents);
        out.json_line(&Value::Object(object))?;
    } else {
        let shows_progress = !std::io::stdout().is_terminal();
        copy_parts(&mut value, range, shows_progress, |part| out.bytes(part))?;
    }
    db.close()?;
    Ok(0)
}

/// Passes the bytes of a range of the value to `write`, in parts.
fn copy_parts(
    value: &mut ValueReader,
    range: Range<u64>,
    shows_progress: bool,
    mut write: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let bytes = range.end - range.start;
    let mut progress = shows_progress.then(|| Progress::bytes("reading", bytes));
    let mut position = range.start;
    while position < range.end {
        let part = value.part_at(position)?;
        let part = &part[..part.len().min((range.end - position) as usize)];
        write(part)?;
        position += part.len() as u64;
        if let Some(progress) = &mut progress {
            progress.set_position(position - range.start);
        }
    }
    Ok(())
}
