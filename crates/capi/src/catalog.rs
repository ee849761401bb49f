//! Names and settings of column families: defines which of the engine's families are visible to C
//! and under which names, and stores the settings as the program passed them. Settings are stored
//! in a column family of their own, so that checkpoints and backups contain them and every change
//! is atomic.
//!
//! ```text
//! engine's family          visible to C as
//! "tidesdb.settings"       not visible: C names as keys, their settings as text (ini.rs)
//! "default"                "default" if not empty: it was written from Rust
//! "default~", "default~~"  "default", "default~": created through C
//! any other                the same name
//! ```

use crate::abi::{FamilyConfig, NAME_BYTES};
use crate::code::{INVALID_ARGS, Result, last_error};
use crate::ffi::set_field;
use crate::{comparator, config, ini, log};
use perigee::{Db, Durability, ErrorKind, FamilyOptions, StoredFamily, WriteOptions};

/// The column family that stores the settings.
pub const SETTINGS_FAMILY: &str = "tidesdb.settings";
/// The section of the settings text.
const SETTINGS_SECTION: &str = "family";
const DEFAULT_FAMILY: &str = "default";

/// Refuses invalid column-family names. TidesDB uses them as directory names, so some would refer
/// to paths outside the database.
pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() >= NAME_BYTES {
        return Err(
            INVALID_ARGS.with_message("the name of a column family must have 1 to 127 bytes")
        );
    }
    if name == "." || name == ".." || name.contains(['/', '\\']) || name.contains(char::is_control)
    {
        return Err(INVALID_ARGS.with_message(
            "the name of a column family must not contain slashes or control characters, and must \
             not be '.' or '..'",
        ));
    }
    if name == SETTINGS_FAMILY {
        return Err(
            INVALID_ARGS.with_message("the name tidesdb.settings is reserved for the library")
        );
    }
    Ok(())
}

fn is_default(name: &str) -> bool {
    name.trim_end_matches('~') == DEFAULT_FAMILY
}

/// Returns the engine's name of a column family that was created through C.
pub fn engine_name(name: &str) -> String {
    if is_default(name) { format!("{name}~") } else { name.to_owned() }
}

/// Returns the C name of an engine's column family.
pub fn c_name(engine_name: &str) -> &str {
    if is_default(engine_name) {
        engine_name.strip_suffix('~').unwrap_or(engine_name)
    } else {
        engine_name
    }
}

/// A column family visible to C: the engine's family, its C name and its settings.
pub type VisibleFamily = (perigee::Family, String, FamilyConfig);

/// Returns the C names of column families read from a manifest, each given as name, comparator, and
/// whether tables contain entries.
pub fn visible_names(families: &[StoredFamily]) -> Vec<String> {
    let own_default = families.iter().any(|f| f.name == "default~");
    let seen = families.iter().filter(|f| {
        f.name != SETTINGS_FAMILY && (f.name != DEFAULT_FAMILY || f.has_entries && !own_default)
    });
    seen.map(|f| c_name(&f.name).to_owned()).collect()
}

/// Returns the column families visible to C, oldest first, with the settings in use.
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
            let wanted = apply_options(&now, &config::family_options(&c, now.comparator, unified)?);
            if wanted != now {
                match inner.set_options(wanted) {
                    // A read-only open writes no files.
                    Err(e) if e.kind() == ErrorKind::ReadOnly => {}
                    done => done?,
                }
            }
        }
        if set_field(&mut c.comparator_name, &comparator::comparator_name(now.comparator)).is_err()
        {
            log::warn(&format!(
                "the comparator name of the column family {name:?} is too long for C"
            ));
        }
        all.push((inner, name, c));
    }
    all.sort_by_key(|(inner, ..)| inner.id());
    Ok(all)
}

/// Prefix of stored settings, followed by the id of their column family, because a name may later
/// be used for another family.
const FAMILY_ID_PREFIX: &str = "; family ";

/// Returns true if a column family is empty; one that cannot be read counts as not empty.
fn is_empty(family: &perigee::Family) -> bool {
    let first =
        family.cursor().and_then(|mut cursor| cursor.seek_to_first().map(|()| cursor.is_valid()));
    matches!(first, Ok(false))
}

/// Returns the stored settings of a column family. Unreadable settings are logged and ignored, so
/// that the data stays accessible.
fn load_settings(stored: &perigee::Family, name: &str, id: u32) -> Option<FamilyConfig> {
    let lost = |why: String| {
        log::error(&format!(
            "the settings of the column family {name:?} cannot be read, defaults are used: {why}"
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

/// Applies the options that C settings control to the current options; all others are kept.
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

/// Stores the settings of a column family under its name.
pub fn store_settings(db: &Db, name: &str, id: u32, c: &FamilyConfig) -> Result<()> {
    let text = format!("{FAMILY_ID_PREFIX}{id}\n{}", ini::write_section(SETTINGS_SECTION, c)?);
    Ok(settings_family(db)?.put_with(name, text, durable_write_options())?)
}

/// Deletes the settings stored under a name.
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
