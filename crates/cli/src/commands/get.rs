//! `perigee get`: the value of one key, byte for byte.

use crate::failure::{Failure, Result};
use crate::output::Out;
use crate::place::{FamilyArg, KeyForm, Place};
use crate::text::put_json;
use clap::Args;
use serde_json::{Map, Value};
use std::ffi::OsString;

const EXAMPLES: &str = "\
Examples:
  perigee get ./db moon                    the bytes go to stdout; exit code 1 if there are none
  perigee get ./db photos/a.jpg > a.jpg
  perigee get ./db --hex 00ff10 --json     {\"key_base64\":...,\"value\":...}";

/// Print the value of a key, as it is
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct GetArgs {
    #[command(flatten)]
    place: Place,
    /// The key
    key: OsString,
    #[command(flatten)]
    family: FamilyArg,
    #[command(flatten)]
    form: KeyForm,
}

/// Prints the value.
pub fn run(args: &GetArgs, out: &mut Out) -> Result<u8> {
    let key = args.form.read(&args.key)?;
    let db = args.place.open_read_only()?;
    let value = args.family.of(&db)?.get_pinned(&key)?.ok_or_else(|| Failure::missing(&key))?;
    if out.json {
        let mut object = Map::new();
        put_json(&mut object, "key", &key);
        put_json(&mut object, "value", &value);
        out.value(&Value::Object(object))?;
    } else {
        out.bytes(&value)?;
    }
    db.close()?;
    Ok(0)
}
