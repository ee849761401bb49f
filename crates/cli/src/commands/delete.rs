//! `perigee delete`: remove one key, durably.

use crate::failure::{Failure, Result};
use crate::output::Out;
use crate::place::{FamilyArg, KeyForm, Place};
use crate::text::put_json;
use clap::Args;
use serde_json::{Map, Value};
use std::ffi::OsString;

const EXAMPLES: &str = "\
Examples:
  perigee delete ./db moon                 no error if it is not there
  perigee delete ./db moon --must-exist    exit code 1 if it is not there";

/// Remove a key
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeleteArgs {
    #[command(flatten)]
    place: Place,
    /// The key
    key: OsString,
    /// Exit with 1 if the key is not there
    #[arg(long)]
    must_exist: bool,
    #[command(flatten)]
    family: FamilyArg,
    #[command(flatten)]
    form: KeyForm,
}

/// Removes the key.
pub fn run(args: &DeleteArgs, out: &mut Out) -> Result<u8> {
    let key = args.form.read(&args.key)?;
    let db = args.place.open()?;
    let family = args.family.of(&db)?;
    let existed = family.contains(&key)?;
    if !existed && args.must_exist {
        return Err(Failure::missing(&key));
    }
    if existed {
        family.delete(&key)?;
    }
    db.close()?;
    if out.json {
        let mut object = Map::new();
        put_json(&mut object, "deleted", &key);
        object.insert("existed".into(), existed.into());
        out.value(&Value::Object(object))?;
    }
    Ok(0)
}
