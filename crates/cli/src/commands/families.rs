//! `perigee families`: list, create and drop column families.

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
  perigee families ./db --drop tides        with everything in it";

/// List, create or drop column families
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FamiliesArgs {
    #[command(flatten)]
    place: Place,
    /// Make a family
    #[arg(long, value_name = "NAME", conflicts_with = "drop")]
    create: Option<String>,
    /// Remove a family with everything in it
    #[arg(long, value_name = "NAME")]
    drop: Option<String>,
}

/// Changes what is asked, then lists.
pub fn run(args: &FamiliesArgs, out: &mut Out) -> Result<u8> {
    let db = args.place.open()?;
    if let Some(name) = &args.create {
        db.create_family(name, Default::default())?;
    }
    if let Some(name) = &args.drop {
        drop_family(&db, name)?;
    }
    list(&db, out)?;
    db.close()?;
    Ok(0)
}

fn drop_family(db: &Db, name: &str) -> Result<()> {
    db.drop_family(name).map_err(|e| match e.kind() {
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
