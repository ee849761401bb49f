//! What a directory of TidesDB holds, as far as its files tell without the library: families with
//! the names of their comparators, and whether all families share one memtable. Only reads, but for
//! the settings of a copy.

use crate::failure::{Failure, Result, show_path};
use std::fs;
use std::path::Path;

/// The file of settings in a family's directory.
const SETTINGS_FILE: &str = "config.ini";

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceLayout {
    /// Families and the names of their comparators, by name.
    pub families: Vec<(String, String)>,
    /// There are logs of a memtable that all families share: opened otherwise, what is in them
    /// would be missing.
    pub unified: bool,
}

/// Looks; refuses what is no database of TidesDB's.
pub fn read_layout(dir: &Path) -> Result<SourceLayout> {
    let shown = show_path(dir);
    let strange = |why: &str| {
        Err(Failure::usage(format!("{shown} is no TidesDB database: {why}"))
            .hint("give the directory that was db_path; nothing was changed"))
    };
    match fs::metadata(dir) {
        Err(e) => return Err(Failure::file("open", dir, &e)),
        Ok(meta) if !meta.is_dir() => return strange("it is a file"),
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
            // TidesDB has one in each family, never here.
            return Err(Failure::usage(format!(
                "{shown} is a Perigee or RocksDB database, not one of TidesDB"
            ))
            .hint(
                "a Perigee database is opened as it is; RocksDB's are read with --from-rocksdb",
            ));
        } else if name == "CURRENT" {
            return Err(Failure::usage(format!("{shown} is a database of RocksDB or its kin"))
                .hint("use --from-rocksdb"));
        } else if name.starts_with("uwal_") && name.ends_with(".log") {
            layout.unified = true;
        }
    }
    layout.families.sort();
    if layout.families.is_empty() {
        return strange("no directory in it has a config.ini");
    }
    Ok(layout)
}

/// The comparator that a family's settings name.
fn parse_comparator(text: &str) -> String {
    let value = |line: &str| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == "comparator_name").then(|| value.trim().to_owned())
    };
    text.lines().find_map(value).unwrap_or_default()
}

/// Names another comparator in the settings of a family of a copy.
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
