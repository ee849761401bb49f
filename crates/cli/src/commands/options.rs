//! `perigee options`: shows the options of a database with the trade-off of each, or stores options
//! from a file.

use crate::database_args::{DatabaseArg, check_existing};
use crate::failure::Result;
use crate::output::{Output, table};
use clap::Args;
use perigee::{Db, OptionValue, Options};
use serde_json::{Value, json};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  perigee options ./db
  perigee options ./db --toml > perigee.toml
  perigee options ./db --apply perigee.toml      stored; apply to new files";

/// Show the options of a database and the trade-off of each, or store options from a file
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct OptionsArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// Print the options as an options file
    #[arg(long, conflicts_with = "json")]
    toml: bool,
    /// Open the database with the options of this file, and store those of the column families
    #[arg(long, value_name = "FILE")]
    apply: Option<PathBuf>,
}

/// Opens the database, with the options file if one is given, and prints the effective options.
pub fn run(args: &OptionsArgs, out: &mut Output) -> Result<u8> {
    let db = match &args.apply {
        None => args.database.open_read_only()?,
        Some(file) => {
            let options = Options::load(file)?;
            check_existing(&args.database.db)?;
            // Options of the file that restrict the open must not prevent storing the others.
            let options = options.create_if_missing(false).error_if_exists(false);
            Db::open(&args.database.db, options.read_only(false).salvage_readonly(false))?
        }
    };
    // Undo the options that only result from how the tool opens the database.
    let options = db.admin().options().read_only(false).create_if_missing(true);
    let changed = db.admin().stats().recovery.changed_options;
    db.close()?;
    if out.json {
        let families: serde_json::Map<String, Value> = options
            .default_family
            .iter()
            .map(|o| ("default".to_owned(), o))
            .chain(options.families.iter().map(|(name, o)| (name.clone(), o)))
            .map(|(name, o)| (name, options_json(&o.values())))
            .collect();
        let all = json!({"database": options_json(&options.values()), "families": families, "changed": changed});
        out.json_line(&all)?;
        return Ok(0);
    }
    if args.toml {
        out.line(options.to_toml().trim_end())?;
        return Ok(0);
    }
    changed.iter().try_for_each(|line| out.line(format!("changed {line}")))?;
    print_options(out, "database (not stored: each program sets its own)", &options.values())?;
    for (name, o) in options
        .default_family
        .iter()
        .map(|o| ("default", o))
        .chain(options.families.iter().map(|(name, o)| (&name[..], o)))
    {
        print_options(
            out,
            &format!("column family {}", crate::text::escape(name.as_bytes())),
            &o.values(),
        )?;
    }
    Ok(0)
}

fn options_json(values: &[OptionValue]) -> Value {
    let bare = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    let one = |o: &OptionValue| json!({"name": o.name, "value": bare(&o.value), "default": bare(&o.default), "trades": o.tradeoff});
    values.iter().map(one).collect()
}

fn print_options(out: &mut Output, title: &str, values: &[OptionValue]) -> Result<()> {
    out.line(title)?;
    let mut rows = table(&["option", "value", "default", "trade-off"]);
    let bare = |text: &str| text.trim_matches('"').to_owned();
    for o in values {
        let default = if o.value == o.default { "same".to_owned() } else { bare(&o.default) };
        rows.add_row([o.name.to_owned(), bare(&o.value), default, o.tradeoff.replace('`', "")]);
    }
    out.line(rows.to_string())?;
    out.line("")
}
