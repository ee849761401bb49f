//! `perigee delete`: removes a key, a prefix or a key range, durably.

use crate::database_args::{DatabaseArg, FamilyArg, KeyFormat};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::text::put_json;
use clap::Args;
use perigee::{Db, Family};
use serde_json::{Map, Value};
use std::ffi::OsString;

const EXAMPLES: &str = "\
Examples:
  perigee delete ./db moon                 no error if the key does not exist
  perigee delete ./db moon --must-exist    exit code 1 if the key does not exist
  perigee delete ./db 2025- --prefix       all keys with this prefix, in one operation
  perigee delete ./db a --to n             all keys from a (included) to n (excluded)";

/// Remove a key, or a range of keys
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeleteArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// The key
    key: OsString,
    /// Exit with code 1 if the key does not exist
    #[arg(long)]
    must_exist: bool,
    /// Remove every key that starts with KEY
    #[arg(long, conflicts_with_all = ["must_exist", "to", "single"])]
    prefix: bool,
    /// Remove every key from KEY up to, but not including, END
    #[arg(long, value_name = "END", conflicts_with_all = ["must_exist", "single"])]
    to: Option<OsString>,
    /// Use a single delete, for a key that was put only once: its space is reclaimed sooner
    #[arg(long)]
    single: bool,
    #[command(flatten)]
    family: FamilyArg,
    #[command(flatten)]
    form: KeyFormat,
}

/// Removes the key, prefix or range.
pub fn run(args: &DeleteArgs, out: &mut Output) -> Result<u8> {
    let key = args.form.parse_key(&args.key)?;
    let db = args.database.open_read_write()?;
    let family = args.family.open_family(&db)?;
    if args.prefix || args.to.is_some() {
        return delete_range(args, &key, &db, &family, out);
    }
    let existed = family.contains(&key)?;
    if !existed && args.must_exist {
        return Err(Failure::missing(&key));
    }
    if existed {
        if args.single {
            family.single_delete(&key)?;
        } else {
            family.delete(&key)?;
        }
    }
    db.close()?;
    if out.json {
        let mut object = Map::new();
        put_json(&mut object, "deleted", &key);
        object.insert("existed".into(), existed.into());
        out.json_line(&Value::Object(object))?;
    }
    Ok(0)
}

/// Removes a prefix or a range.
fn delete_range(
    args: &DeleteArgs,
    key: &[u8],
    db: &Db,
    family: &Family,
    out: &mut Output,
) -> Result<u8> {
    let mut object = Map::new();
    match &args.to {
        Some(end) => {
            let end = args.form.parse_key(end)?;
            family.delete_range(key..&end[..])?;
            put_json(&mut object, "deleted_from", key);
            put_json(&mut object, "to", &end);
        }
        None => {
            family.delete_prefix(key)?;
            put_json(&mut object, "deleted_prefix", key);
        }
    }
    db.close()?;
    if out.json {
        out.json_line(&Value::Object(object))?;
    }
    Ok(0)
}
