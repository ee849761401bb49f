//! Inspects a TidesDB directory without the library: its column families, the names of their
//! comparators, and whether all column families share one memtable. Writes only to the settings of
//! a copy.

use crate::failure::{Failure, Result, show_path};
use std::fs;
use std::path::Path;

/// Name of the settings file in the directory of a column family.
const SETTINGS_FILE: &str = "config.ini";

/// Contents of a TidesDB directory.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceLayout {
    /// Column families with the names of their comparators, sorted by name.
    pub families: Vec<(String, String)>,
    /// True if there are logs of a memtable that all column families share. If the database is
    /// opened without it, the entries in these logs are missing.
    pub unified: bool,
}

/// Reads the layout of a directory; an error if it is not a TidesDB database.
pub fn read_layout(dir: &Path) -> Result<SourceLayout> {
    let shown = show_path(dir);
    let refuse = |reason: &str| {
        Err(Failure::usage(format!("{shown} is not a TidesDB database: {reason}"))
            .hint("specify the directory that was db_path; nothing was changed"))
    };
    match fs::metadata(dir) {
        Err(e) => return Err(Failure::file("open", dir, &e)),
        Ok(meta) if !meta.is_dir() => return refuse("it is a file"),
        Ok(_) => {}
    }
    let mut layout = SourceLayout { families: Vec::new(), unified: false };
    for entry in fs::read_dir(dir).map_err(|e| Failure::file("read", dir, &e))? {
        let entry = entry.map_err(|e| Failure::file("read", dir, &e))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            let path = entry.path().join(SETTINGS_FILE);
            match fs::read_to_string(&path) {
                Ok(text) => layout.families.push((name, parse_comparator(&text))),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(Failure::file("read", &path, &e)),
            }
        } else if name == "MANIFEST" && layout.families.is_empty() {
            // TidesDB has a MANIFEST in the directory of each column family, but not here.
            return Err(Failure::usage(format!(
                "{shown} is a Perigee or RocksDB database, not one of TidesDB"
            ))
            .hint(
                "a Perigee database needs no import; a RocksDB database is read with --from-rocksdb",
            ));
        } else if name == "CURRENT" {
            return Err(Failure::usage(format!("{shown} is a RocksDB or LevelDB database"))
                .hint("use --from-rocksdb"));
        } else if name.starts_with("uwal_") && name.ends_with(".log") {
            layout.unified = true;
        }
    }
    layout.families.sort();
    if layout.families.is_empty() {
        return refuse("no directory in it has a config.ini");
    }
    Ok(layout)
}

/// Returns the name of the comparator in the settings of a column family.
fn parse_comparator(text: &str) -> String {
    let value = |line: &str| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == "comparator_name").then(|| value.trim().to_owned())
    };
    text.lines().find_map(value).unwrap_or_default()
}

/// Changes the name of the comparator in the settings of a column family of a copy.
pub fn rename_comparator(copy: &Path, family: &str, built_in: &str) -> Result<()> {
    let path = copy.join(family).join(SETTINGS_FILE);
    let text = fs::read_to_string(&path).map_err(|e| Failure::file("read", &path, &e))?;
    let line = |line: &str| match line.split_once('=') {
        Some((name, _)) if name.trim() == "comparator_name" => {
            format!("comparator_name = {built_in}\n")
        }
        _ => format!("{line}\n"),
    };
    fs::write(&path, text.lines().map(line).collect::<String>())
        .map_err(|e| Failure::file("write", &path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_directory_is_refused() {
        let dir = std::env::temp_dir().join(format!("perigee-look-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        assert!(read_layout(&dir).is_err());
        fs::create_dir_all(dir.join("users")).unwrap();
        assert!(read_layout(&dir).is_err());
        fs::write(dir.join("users/config.ini"), "[users]\nx = 1\n comparator_name = uint64\n")
            .unwrap();
        fs::write(dir.join("LOCK"), "").unwrap();
        let users = || vec![("users".to_owned(), "uint64".to_owned())];
        assert_eq!(read_layout(&dir).unwrap(), SourceLayout { families: users(), unified: false });
        rename_comparator(&dir, "users", "memcmp").unwrap();
        let text = fs::read_to_string(dir.join("users/config.ini")).unwrap();
        assert_eq!(text, "[users]\nx = 1\ncomparator_name = memcmp\n");
        rename_comparator(&dir, "users", "uint64").unwrap();
        fs::write(dir.join("uwal_0.log"), "").unwrap();
        assert_eq!(read_layout(&dir).unwrap(), SourceLayout { families: users(), unified: true });
        fs::write(dir.join("CURRENT"), "").unwrap();
        assert!(read_layout(&dir).is_err());
        assert!(read_layout(&dir.join("LOCK")).is_err());
        fs::remove_dir_all(&dir).unwrap();
    }
}
