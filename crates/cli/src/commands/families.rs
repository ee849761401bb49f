//! `perigee families`: lists, creates, renames, clones, clears and drops column families.

use crate::database_args::DatabaseArg;
use crate::failure::{Failure, Result};
use crate::output::Output;
use clap::Args;
use perigee::{Db, ErrorKind};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  perigee families ./db
  perigee families ./db --create tides
  perigee families ./db --rename tides tide-tables
  perigee families ./db --clone tides tides-2026     cheap: the files are shared
  perigee families ./db --clear tides       removes all its entries in one operation
  perigee families ./db --drop tides        removes it and all its entries";

/// List, create, rename, clone, clear or drop column families
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FamiliesArgs {
    #[command(flatten)]
    database: DatabaseArg,
    /// Create a column family
    #[arg(long, value_name = "NAME", group = "act")]
    create: Option<String>,
    /// Rename a column family
    #[arg(long, num_args = 2, value_names = ["NAME", "NEW"], group = "act")]
    rename: Option<Vec<String>>,
    /// Create a column family with the contents of another
    #[arg(long, num_args = 2, value_names = ["NAME", "NEW"], group = "act")]
    clone: Option<Vec<String>>,
    /// Remove all entries of a column family, but keep the column family
    #[arg(long, value_name = "NAME", group = "act")]
    clear: Option<String>,
    /// Remove a column family and all its entries
    #[arg(long, value_name = "NAME", group = "act")]
    drop: Option<String>,
}

impl FamiliesArgs {
    /// Returns true if the arguments request a change, not only the list.
    fn has_change(&self) -> bool {
        let by_name = self.create.is_some() || self.clear.is_some() || self.drop.is_some();
        by_name || self.rename.is_some() || self.clone.is_some()
    }
}

/// Makes the requested change, then prints the list.
pub fn run(args: &FamiliesArgs, out: &mut Output) -> Result<u8> {
    let db = if args.has_change() {
        args.database.open_read_write()?
    } else {
        args.database.open_read_only()?
    };
    if let Some(name) = &args.create {
        db.create_family(name, Default::default())?;
    }
    if let Some([name, to]) = args.rename.as_deref() {
        with_list_hint(name, db.admin().rename_family(name, to))?;
    }
    if let Some([name, to]) = args.clone.as_deref() {
        with_list_hint(name, db.admin().clone_family(name, to).map(drop))?;
    }
    if let Some(name) = &args.clear {
        with_list_hint(name, db.admin().clear_family(name))?;
    }
    if let Some(name) = &args.drop {
        with_list_hint(name, db.drop_family(name))?;
    }
    print_families(&db, out)?;
    db.close()?;
    Ok(0)
}

/// Replaces a `NotFound` error with one that has a hint on how to list the column families.
fn with_list_hint(name: &str, result: perigee::Result<()>) -> Result<()> {
    result.map_err(|e| match e.kind() {
        ErrorKind::NotFound => Failure::other(
            ErrorKind::NotFound.name(),
            format!("there is no column family {name:?}"),
        )
        .hint("`perigee families DB` lists them"),
        _ => e.into(),
    })
}

fn print_families(db: &Db, out: &mut Output) -> Result<()> {
    if out.json {
        let families: Vec<_> = db
            .admin()
            .stats()
            .families
            .iter()
            .map(|f| json!({"name": f.name, "id": f.id}))
            .collect();
        return out.json_line(&json!({"families": families}));
    }
    db.families().iter().try_for_each(|name| out.line(crate::text::escape(name.as_bytes())))
}
