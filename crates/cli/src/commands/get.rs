//! `perigee get`: prints the value of one key, byte for byte.

use crate::database_args::{DatabaseArg, FamilyArg, KeyFormat};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::text::put_json;
use clap::Args;
use serde_json::{Map, Value};
use std::ffi::OsString;

const EXAMPLES: &str = "\
Examples:
  perigee get ./db moon                    prints the value; exit code 1 if there is no such key
  perigee get ./db photos/a.jpg > a.jpg
  perigee get ./db --hex 00ff10 --json     {\"key_base64\":...,\"value\":...}";

/// Print the value of a key, byte for byte
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct GetArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// The key
    key: OsString,
    #[command(flatten)]
    family: FamilyArg,
    #[command(flatten)]
    form: KeyFormat,
}

/// Prints the value.
pub fn run(args: &GetArgs, out: &mut Output) -> Result<u8> {
    let key = args.form.parse_key(&args.key)?;
    let db = args.database.open_read_only()?;
    let value =
        args.family.open_family(&db)?.get_pinned(&key)?.ok_or_else(|| Failure::missing(&key))?;
    if out.json {
        let mut object = Map::new();
        put_json(&mut object, "key", &key);
        put_json(&mut object, "value", &value);
        out.json_line(&Value::Object(object))?;
    } else {
        out.bytes(&value)?;
    }
    db.close()?;
    Ok(0)
}
