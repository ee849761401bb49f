//! `perigee families`: list, create, rename, clone, clear and drop column families.

use crate::failure::{Failure, Result};
use crate::output::Out;
use crate::place::Place;
use clap::Args;
use perigee::{Db, ErrorKind};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  perigee families ./db
  perigee families ./db --create tides
  perigee families ./db --rename tides tide-tables
  perigee families ./db --clone tides tides-2026     cheap: the files are shared
  perigee families ./db --clear tides       everything in it at once
  perigee families ./db --drop tides        with everything in it";

/// List, create, rename, clone, clear or drop column families
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FamiliesArgs {
    #[command(flatten)]
    place: Place,
    /// Make a family
    #[arg(long, value_name = "NAME", group = "act")]
    create: Option<String>,
    /// Give a family another name
    #[arg(long, num_args = 2, value_names = ["NAME", "NEW"], group = "act")]
    rename: Option<Vec<String>>,
    /// Make a family that begins with what another one holds
    #[arg(long, num_args = 2, value_names = ["NAME", "NEW"], group = "act")]
    clone: Option<Vec<String>>,
    /// Remove everything in a family, and keep the family
    #[arg(long, value_name = "NAME", group = "act")]
    clear: Option<String>,
    /// Remove a family with everything in it
    #[arg(long, value_name = "NAME", group = "act")]
    drop: Option<String>,
}

impl FamiliesArgs {
    /// Returns true if the arguments ask for a change, not only for the list.
    fn changes(&self) -> bool {
        let by_name = self.create.is_some() || self.clear.is_some() || self.drop.is_some();
        by_name || self.rename.is_some() || self.clone.is_some()
    }
}

/// Changes what is asked, then lists.
pub fn run(args: &FamiliesArgs, out: &mut Out) -> Result<u8> {
    let db = if args.changes() { args.place.open_to_change()? } else { args.place.open_read_only()? };
    if let Some(name) = &args.create {
        db.create_family(name, Default::default())?;
    }
    if let Some([name, to]) = args.rename.as_deref() {
        known(name, db.rename_family(name, to))?;
    }
    if let Some([name, to]) = args.clone.as_deref() {
        known(name, db.clone_family(name, to).map(drop))?;
    }
    if let Some(name) = &args.clear {
        known(name, db.clear_family(name))?;
    }
    if let Some(name) = &args.drop {
        known(name, db.drop_family(name))?;
    }
    list(&db, out)?;
    db.close()?;
    Ok(0)
}

/// Says how to find out which families there are.
fn known(name: &str, done: perigee::Result<()>) -> Result<()> {
    done.map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            Failure::other(ErrorKind::NotFound.name(), format!("no family called {name:?}"))
                .hint("`perigee families DB` lists them")
        }
        _ => e.into(),
    })
}

fn list(db: &Db, out: &mut Out) -> Result<()> {
    if out.json {
        let families: Vec<_> =
            db.stats().families.iter().map(|f| json!({"name": f.name, "id": f.id})).collect();
        return out.value(&json!({"families": families}));
    }
    db.families().iter().try_for_each(|name| out.line(crate::text::escape(name.as_bytes())))
}
