//! Names and settings of families: which of the engine's families C sees, under which names, and the settings as the program gave
//! them, stored in a family of their own, so that checkpoints and backups have them and every commit of them is atomic.
//!
//! ```text
//! engine's family          what C sees
//! "tidesdb.settings"       nothing: here each key is a name as C sees it, each value its settings as text (ini.rs)
//! "default"                "default", if something is in it: it was written from Rust
//! "default~", "default~~"  "default", "default~": made through C
//! any other                the same name
//! ```

use crate::abi::{FamilyConfig, NAME_BYTES};
use crate::border::set_field;
use crate::code::{INVALID_ARGS, Result, last_error};
use crate::{config, ini, log, order};
use perigee::{Db, Durability, ErrorKind, FamilyOptions, WriteOptions};

/// The family that holds the settings.
pub const SETTINGS: &str = "tidesdb.settings";
/// The section that a family's settings are in there.
const SECTION: &str = "family";
const DEFAULT: &str = "default";

/// Refuses names that no family may have: TidesDB makes directories of them, and so some lead out of the database there.
pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() >= NAME_BYTES {
        return Err(INVALID_ARGS.because("the name of a family has 1 to 127 bytes"));
    }
    if name == "." || name == ".." || name.contains(['/', '\\']) || name.contains(char::is_control) {
        return Err(INVALID_ARGS.because(
            "the name of a family has no slashes and no control characters, and is not '.' or '..'",
        ));
    }
    if name == SETTINGS {
        return Err(INVALID_ARGS.because("the name tidesdb.settings is taken by the library"));
    }
    Ok(())
}

fn is_default(name: &str) -> bool {
    name.trim_end_matches('~') == DEFAULT
}

/// The engine's name of a family that is made through C.
pub fn inside(name: &str) -> String {
    if is_default(name) { format!("{name}~") } else { name.to_owned() }
}

/// What C calls a family of the engine.
pub fn outside(inside: &str) -> &str {
    if is_default(inside) { inside.strip_suffix('~').unwrap_or(inside) } else { inside }
}

/// A family as C sees it: its name there and its settings.
pub type Seen = (perigee::Family, String, FamilyConfig);

/// The names that C sees of families that were read from a manifest: name, comparator, whether tables hold entries.
pub fn seen_at(families: &[(String, String, bool)]) -> Vec<String> {
    let own_default = families.iter().any(|(name, ..)| name == "default~");
    let seen = families
        .iter()
        .filter(|(name, _, tables)| name != SETTINGS && (name != DEFAULT || *tables && !own_default));
    seen.map(|(name, ..)| outside(name).to_owned()).collect()
}

/// The families that C sees, oldest first, with their settings in force.
pub fn load(db: &Db, unified: Option<usize>) -> Result<Vec<Seen>> {
    let names = db.families();
    let stored = if names.iter().any(|n| n == SETTINGS) { Some(db.family(SETTINGS)?) } else { None };
    let mut all = Vec::new();
    for inside in names.iter().filter(|n| *n != SETTINGS) {
        let hidden =
            inside == DEFAULT && (names.iter().any(|n| n == "default~") || is_empty(&db.default_family()));
        if hidden {
            continue;
        }
        let (inner, name) = (db.family(inside)?, outside(inside).to_owned());
        let now = inner.options();
        let mut c = config::of_options(&now);
        if let Some(kept) = stored.as_ref().and_then(|s| settings_of(s, &name, inner.id())) {
            c = kept;
            let wanted = applied(&now, &config::family_options(&c, now.order, unified)?);
            if wanted != now {
                match inner.set_options(wanted) {
                    // Who only reads writes no files.
                    Err(e) if e.kind() == ErrorKind::ReadOnly => {}
                    done => done?,
                }
            }
        }
        if set_field(&mut c.comparator_name, &order::name_of(now.order)).is_err() {
            log::warn(&format!("the family {name:?} has a key order whose name is too long for C"));
        }
        all.push((inner, name, c));
    }
    all.sort_by_key(|(inner, ..)| inner.id());
    Ok(all)
}

/// What stands before the settings: the number of the family that they are of, since a name may come to another one.
const OF: &str = "; family ";

/// Whether nothing is in a family; one that cannot be read holds something.
fn is_empty(family: &perigee::Family) -> bool {
    let first = family.cursor().and_then(|mut cursor| cursor.seek_to_first().map(|()| cursor.valid()));
    matches!(first, Ok(false))
}

/// The settings that are stored for a family. Settings that cannot be read are said and done without: the data is worth more.
fn settings_of(stored: &perigee::Family, name: &str, id: u32) -> Option<FamilyConfig> {
    let lost = |why: String| {
        log::error(&format!("the settings of family {name:?} cannot be read, defaults are used: {why}"));
        None
    };
    let text = match stored.get(name) {
        Ok(text) => String::from_utf8_lossy(&text?).into_owned(),
        Err(e) => return lost(e.to_string()),
    };
    let of = text.lines().next()?.strip_prefix(OF)?.parse::<u32>().ok()?;
    let mut c = config::FAMILY;
    match ini::read(&text, SECTION, &mut c) {
        Ok(()) => (of == id).then_some(c),
        Err(_) => lost(last_error()),
    }
}

/// Options of a family with those of C in force; the rest stays.
pub fn applied(now: &FamilyOptions, wanted: &FamilyOptions) -> FamilyOptions {
    let mut all = now.clone();
    all.memtable_bytes = wanted.memtable_bytes;
    all.value_threshold = wanted.value_threshold;
    all.compression = wanted.compression;
    all.level_ratio = wanted.level_ratio;
    all.isolation = wanted.isolation;
    all.filter_bits = wanted.filter_bits;
    all
}

fn settings(db: &Db) -> Result<perigee::Family> {
    match db.family(SETTINGS) {
        Ok(family) => Ok(family),
        Err(_) => Ok(db.create_family(SETTINGS, FamilyOptions::new().memtable_bytes(1 << 20))?),
    }
}

fn durable() -> WriteOptions {
    WriteOptions::new().durability(Durability::Full)
}

/// Stores settings of a family under a name.
pub fn store(db: &Db, name: &str, id: u32, c: &FamilyConfig) -> Result<()> {
    let text = format!("{OF}{id}\n{}", ini::write(SECTION, c)?);
    Ok(settings(db)?.put_with(name, text, durable())?)
}

/// Forgets what is stored under a name.
pub fn forget(db: &Db, name: &str) -> Result<()> {
    Ok(settings(db)?.delete_with(name, durable())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_inside_and_comes_back() {
        for name in ["default", "default~", "default~~", "users", "defaults", "~", "Default"] {
            assert_eq!(outside(&inside(name)), name);
            assert_ne!(inside(name), DEFAULT);
        }
    }
    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["", "..", "../other", "a/b", "a\\b", "a\nb", SETTINGS, &"x".repeat(128)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert!(check_name(&"x".repeat(127)).is_ok());
    }
}
