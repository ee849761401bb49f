//! Names and settings of families: which of the engine's families C sees, under which names, and
//! the settings as the program gave them, stored in a family of their own, so that checkpoints and
//! backups have them and every commit of them is atomic.
//!
//! ```text
//! engine's family          what C sees
//! "tidesdb.settings"       nothing: here each key is a name as C sees it, each value its settings as text (ini.rs)
//! "default"                "default", if something is in it: it was written from Rust
//! "default~", "default~~"  "default", "default~": made through C
//! any other                the same name
//! ```

use crate::abi::{FamilyConfig, NAME_BYTES};
use crate::code::{INVALID_ARGS, Result, last_error};
use crate::ffi::set_field;
use crate::{comparator, config, ini, log};
use perigee::{Db, Durability, ErrorKind, FamilyOptions, WriteOptions};

/// The family that holds the settings.
pub const SETTINGS_FAMILY: &str = "tidesdb.settings";
/// The section that a family's settings are in there.
const SETTINGS_SECTION: &str = "family";
const DEFAULT_FAMILY: &str = "default";

/// Refuses names that no family may have: TidesDB makes directories of them, and so some lead out
/// of the database there.
pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() >= NAME_BYTES {
        return Err(INVALID_ARGS.with_message("the name of a family has 1 to 127 bytes"));
    }
    if name == "." || name == ".." || name.contains(['/', '\\']) || name.contains(char::is_control)
    {
        return Err(INVALID_ARGS.with_message(
            "the name of a family has no slashes and no control characters, and is not '.' or '..'",
        ));
    }
    if name == SETTINGS_FAMILY {
        return Err(INVALID_ARGS.with_message("the name tidesdb.settings is taken by the library"));
    }
    Ok(())
}

fn is_default(name: &str) -> bool {
    name.trim_end_matches('~') == DEFAULT_FAMILY
}

/// The engine's name of a family that is made through C.
pub fn engine_name(name: &str) -> String {
    if is_default(name) { format!("{name}~") } else { name.to_owned() }
}

/// What C calls a family of the engine.
pub fn c_name(inside: &str) -> &str {
    if is_default(inside) { inside.strip_suffix('~').unwrap_or(inside) } else { inside }
}

/// A family as C sees it: its name there and its settings.
pub type VisibleFamily = (perigee::Family, String, FamilyConfig);

/// The names that C sees of families that were read from a manifest: name, comparator, whether
/// tables hold entries.
pub fn visible_names(families: &[(String, String, bool)]) -> Vec<String> {
    let own_default = families.iter().any(|(name, ..)| name == "default~");
    let seen = families.iter().filter(|(name, _, tables)| {
        name != SETTINGS_FAMILY && (name != DEFAULT_FAMILY || *tables && !own_default)
    });
    seen.map(|(name, ..)| c_name(name).to_owned()).collect()
}

/// The families that C sees, oldest first, with their settings in force.
pub fn load_families(db: &Db, unified: Option<usize>) -> Result<Vec<VisibleFamily>> {
    let names = db.families();
    let stored = if names.iter().any(|n| n == SETTINGS_FAMILY) {
        Some(db.family(SETTINGS_FAMILY)?)
    } else {
        None
    };
    let mut all = Vec::new();
    for inside in names.iter().filter(|n| *n != SETTINGS_FAMILY) {
        let hidden = inside == DEFAULT_FAMILY
            && (names.iter().any(|n| n == "default~") || is_empty(&db.default_family()));
        if hidden {
            continue;
        }
        let (inner, name) = (db.family(inside)?, c_name(inside).to_owned());
        let now = inner.options();
        let mut c = config::family_config_from_options(&now);
        if let Some(kept) = stored.as_ref().and_then(|s| load_settings(s, &name, inner.id())) {
            c = kept;
            let wanted = apply_options(&now, &config::family_options(&c, now.order, unified)?);
            if wanted != now {
                match inner.set_options(wanted) {
                    // Who only reads writes no files.
                    Err(e) if e.kind() == ErrorKind::ReadOnly => {}
                    done => done?,
                }
            }
        }
        if set_field(&mut c.comparator_name, &comparator::comparator_name(now.order)).is_err() {
            log::warn(&format!("the family {name:?} has a key order whose name is too long for C"));
        }
        all.push((inner, name, c));
    }
    all.sort_by_key(|(inner, ..)| inner.id());
    Ok(all)
}

/// What stands before the settings: the number of the family that they are of, since a name may
/// come to another one.
const FAMILY_ID_PREFIX: &str = "; family ";

/// Whether nothing is in a family; one that cannot be read holds something.
fn is_empty(family: &perigee::Family) -> bool {
    let first =
        family.cursor().and_then(|mut cursor| cursor.seek_to_first().map(|()| cursor.valid()));
    matches!(first, Ok(false))
}

/// The settings that are stored for a family. Settings that cannot be read are said and done
/// without: the data is worth more.
fn load_settings(stored: &perigee::Family, name: &str, id: u32) -> Option<FamilyConfig> {
    let lost = |why: String| {
        log::error(&format!(
            "the settings of family {name:?} cannot be read, defaults are used: {why}"
        ));
        None
    };
    let text = match stored.get(name) {
        Ok(text) => String::from_utf8_lossy(&text?).into_owned(),
        Err(e) => return lost(e.to_string()),
    };
    let of = text.lines().next()?.strip_prefix(FAMILY_ID_PREFIX)?.parse::<u32>().ok()?;
    let mut c = config::DEFAULT_FAMILY_CONFIG;
    match ini::read_section(&text, SETTINGS_SECTION, &mut c) {
        Ok(()) => (of == id).then_some(c),
        Err(_) => lost(last_error()),
    }
}

/// Options of a family with those of C in force; the rest stays.
pub fn apply_options(now: &FamilyOptions, wanted: &FamilyOptions) -> FamilyOptions {
    let mut all = now.clone();
    all.memtable_bytes = wanted.memtable_bytes;
    all.value_threshold = wanted.value_threshold;
    all.compression = wanted.compression;
    all.level_ratio = wanted.level_ratio;
    all.isolation = wanted.isolation;
    all.filter_bits = wanted.filter_bits;
    all
}

fn settings_family(db: &Db) -> Result<perigee::Family> {
    match db.family(SETTINGS_FAMILY) {
        Ok(family) => Ok(family),
        Err(_) => {
            Ok(db.create_family(SETTINGS_FAMILY, FamilyOptions::new().memtable_bytes(1 << 20))?)
        }
    }
}

fn durable_write_options() -> WriteOptions {
    WriteOptions::new().durability(Durability::Full)
}

/// Stores settings of a family under a name.
pub fn store_settings(db: &Db, name: &str, id: u32, c: &FamilyConfig) -> Result<()> {
    let text = format!("{FAMILY_ID_PREFIX}{id}\n{}", ini::write_section(SETTINGS_SECTION, c)?);
    Ok(settings_family(db)?.put_with(name, text, durable_write_options())?)
}

/// Forgets what is stored under a name.
pub fn delete_settings(db: &Db, name: &str) -> Result<()> {
    Ok(settings_family(db)?.delete_with(name, durable_write_options())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_names_map_back_to_c_names() {
        for name in ["default", "default~", "default~~", "users", "defaults", "~", "Default"] {
            assert_eq!(c_name(&engine_name(name)), name);
            assert_ne!(engine_name(name), DEFAULT_FAMILY);
        }
    }
    #[test]
    fn path_like_names_are_refused() {
        for name in ["", "..", "../other", "a/b", "a\\b", "a\nb", SETTINGS_FAMILY, &"x".repeat(128)]
        {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert!(check_name(&"x".repeat(127)).is_ok());
    }
}
