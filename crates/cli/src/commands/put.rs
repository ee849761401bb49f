//! `perigee put`: sets one key, durably.

use crate::database_args::{DatabaseArg, FamilyArg, KeyFormat};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress::Progress;
use crate::size;
use crate::text::put_json;
use clap::Args;
use perigee::value_syntax::parse_seconds;
use perigee::values::ValueWriter;
use perigee::{Durability, limits};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes that are read at a time.
const PART_BYTES: usize = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  perigee put ./db moon full               creates the database if it does not exist
  perigee put ./db photos/a.jpg - < a.jpg  reads the value from stdin, up to 4 GiB
  perigee put ./db film.mkv --file f.mkv   reads the value from a file, up to 4 GiB
  perigee put ./db session x --ttl 1h      expires in an hour
  perigee put ./db --escaped 'a\\0b' x      a key with a NUL byte";

/// Set a key to a value
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PutArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// The key
    key: OsString,
    /// The value, or - to read it from stdin
    #[arg(allow_hyphen_values = true, required_unless_present = "file", conflicts_with = "file")]
    value: Option<OsString>,
    /// Read the value from this file
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Time after which the key expires, such as 90s, 1h or 7d; a number without a unit is seconds
    #[arg(long, value_name = "DURATION", value_parser = parse_seconds)]
    ttl: Option<Duration>,
    #[command(flatten)]
    family: FamilyArg,
    #[command(flatten)]
    form: KeyFormat,
}

/// Sets the key. When this returns, the write survives a power failure.
pub fn run(args: &PutArgs, out: &mut Output) -> Result<u8> {
    let key = args.form.parse_key(&args.key)?;
    let source = Source::open(args)?;
    let db = args.database.open_or_create(Durability::Full)?;
    let family = args.family.open_family(&db)?;
    let mut writer = family.writer(&key)?;
    source.copy_to(&mut writer)?;
    if let Some(ttl) = args.ttl {
        writer.set_ttl(ttl);
    }
    let bytes = writer.finish()?;
    db.close()?;
    if out.json {
        let mut object = Map::new();
        put_json(&mut object, "put", &key);
        object.insert("bytes".into(), bytes.into());
        out.json_line(&Value::Object(object))?;
    }
    Ok(0)
}

/// Where the value comes from.
enum Source<'a> {
    Argument(&'a [u8]),
    Stdin,
    File(&'a Path, File),
}

impl<'a> Source<'a> {
    /// Opens the source, before the database is created.
    fn open(args: &'a PutArgs) -> Result<Source<'a>> {
        match (&args.file, &args.value) {
            (Some(path), _) => {
                let file = File::open(path).map_err(|e| Failure::file("open", path, &e))?;
                Ok(Source::File(path, file))
            }
            (None, Some(value)) if value == "-" => Ok(Source::Stdin),
            (None, value) => {
                Ok(Source::Argument(value.as_ref().map_or(&[][..], |v| v.as_encoded_bytes())))
            }
        }
    }
    /// Writes the whole source, with a progress bar.
    fn copy_to(self, writer: &mut ValueWriter<'_>) -> Result<()> {
        match self {
            Source::Argument(value) => Ok(writer.append(value)?),
            Source::Stdin => {
                copy_parts(&mut std::io::stdin().lock(), Path::new("stdin"), 0, writer)
            }
            Source::File(path, mut file) => {
                let bytes = file.metadata().map_or(0, |m| m.len());
                check_value_bytes(bytes)?;
                copy_parts(&mut file, path, bytes, writer)
            }
        }
    }
}

fn check_value_bytes(bytes: u64) -> Result<()> {
    let limit = limits::STREAMED_VALUE_BYTES_MAX;
    if bytes > limit {
        return Err(Failure::usage(format!("the value is larger than {}", size::bytes(limit))));
    }
    Ok(())
}

/// Copies all of `source`, of `total` bytes (0: unknown).
fn copy_parts(
    source: &mut impl Read,
    path: &Path,
    total: u64,
    writer: &mut ValueWriter<'_>,
) -> Result<()> {
    let mut progress = Progress::bytes("writing", total);
    let mut part = Vec::with_capacity(PART_BYTES);
    loop {
        part.clear();
        source
            .take(PART_BYTES as u64)
            .read_to_end(&mut part)
            .map_err(|e| Failure::file("read", path, &e))?;
        if part.is_empty() {
            return Ok(());
        }
        check_value_bytes(writer.len() + part.len() as u64)?;
        writer.append(&part)?;
        progress.set_position(writer.len());
    }
}
