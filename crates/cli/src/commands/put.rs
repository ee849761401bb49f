//! `perigee put`: sets one key, durably.

use crate::database_args::{DatabaseArg, FamilyArg, KeyFormat};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::size;
use crate::text::put_json;
use clap::Args;
use perigee::value_syntax::parse_seconds;
use perigee::{Durability, limits};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  perigee put ./db moon full               creates the database if it does not exist
  perigee put ./db photos/a.jpg - < a.jpg  reads the value from stdin
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
    #[arg(allow_hyphen_values = true)]
    value: OsString,
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
    let value = if args.value == "-" { read_stdin()? } else { args.value.as_bytes().to_vec() };
    let db = args.database.open_or_create(Durability::Full)?;
    let family = args.family.open_family(&db)?;
    match args.ttl {
        Some(ttl) => family.put_with_ttl(&key, &value, ttl)?,
        None => family.put(&key, &value)?,
    }
    db.close()?;
    if out.json {
        let mut object = Map::new();
        put_json(&mut object, "put", &key);
        object.insert("bytes".into(), value.len().into());
        out.json_line(&Value::Object(object))?;
    }
    Ok(0)
}

fn read_stdin() -> Result<Vec<u8>> {
    let mut value = Vec::new();
    let limit = limits::VALUE_BYTES_MAX as u64;
    std::io::stdin()
        .lock()
        .take(limit + 1)
        .read_to_end(&mut value)
        .map_err(|e| Failure::file("read", Path::new("stdin"), &e))?;
    if value.len() as u64 > limit {
        return Err(Failure::usage(format!("the value is larger than {}", size::bytes(limit))));
    }
    Ok(value)
}
