//! Arguments that commands share (database path, column family, key format), and the functions
//! that open the database.
//!
//! Invariants: a command that only reads opens the database read-only: it takes no lock, changes no
//! byte and creates no file, even while another process has the database open. A command that
//! writes creates a database only if it is documented to.

use crate::failure::{Failure, Result, show_path};
use crate::text::{escape, hex, unescape, unhex};
use clap::Args;
use perigee::env::Env;
use perigee::{Db, Durability, ErrorKind, Family, Options};
use perigee_file::filename::MANIFEST;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The database directory.
#[derive(Args, Debug)]
pub struct DatabaseArg {
    /// Directory of the database
    #[arg(value_name = "DB")]
    pub db: PathBuf,
}

/// The column family.
#[derive(Args, Debug)]
pub struct FamilyArg {
    /// Name of the column family
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub family: String,
}

/// Format of keys on the command line and in the output.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct KeyFormat {
    /// Read and print keys as hexadecimal digits
    #[arg(long, conflicts_with = "escaped")]
    pub hex: bool,
    /// Keys on the command line contain escapes: \xNN \0 \n \r \t \\
    #[arg(long)]
    pub escaped: bool,
}

impl DatabaseArg {
    /// Opens the database read-only, without a lock and without changing a byte. Works while
    /// another process has it open, on a read-only file system, and without write permission.
    pub fn open_read_only(&self) -> Result<Db> {
        check_existing(&self.db)?;
        Ok(Db::open(&self.db, Options::new().read_only(true))?)
    }

    /// Opens an existing database for writing and takes its lock.
    pub fn open_read_write(&self) -> Result<Db> {
        check_existing(&self.db)?;
        Ok(Db::open(&self.db, Options::new().create_if_missing(false))?)
    }

    /// Opens the database for writing, creating it if it does not exist.
    pub fn open_or_create(&self, durability: Durability) -> Result<Db> {
        open_or_create(&self.db, durability)
    }
}

/// Opens the database at `path` for writing, creating it if it does not exist.
pub fn open_or_create(path: &Path, durability: Durability) -> Result<Db> {
    check_creatable(path)?;
    Ok(Db::open(path, Options::new().durability(durability))?)
}

impl FamilyArg {
    /// Returns the column family; an error if it does not exist.
    pub fn open_family(&self, db: &Db) -> Result<Family> {
        if self.family == "default" {
            return Ok(db.default_family());
        }
        db.family(&self.family).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Failure::other(
                "not found",
                format!("there is no column family {:?}", self.family),
            )
            .hint(
                "`perigee families DB` lists them, `perigee families DB --create NAME` creates one",
            ),
            _ => e.into(),
        })
    }

    /// Returns the column family, creating it if it does not exist.
    pub fn open_or_create_family(&self, db: &Db) -> Result<Family> {
        match db.family(&self.family) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                Ok(db.create_family(&self.family, Default::default())?)
            }
            other => Ok(other?),
        }
    }
}

impl KeyFormat {
    /// Returns the key bytes that an argument denotes.
    pub fn parse_key(self, arg: &OsStr) -> Result<Vec<u8>> {
        let bytes = arg.as_encoded_bytes();
        let parsed = match (self.hex, self.escaped) {
            (true, _) => unhex(bytes),
            (_, true) => unescape(bytes),
            _ => Ok(bytes.to_vec()),
        };
        parsed.map_err(|reason| Failure::usage(format!("the key {:?}: {reason}", arg)))
    }

    /// Returns a key as printable text.
    pub fn format_key(self, key: &[u8]) -> String {
        if self.hex { hex(key) } else { escape(key) }
    }
}

/// Returns an error if there is no database at `path`; called before the engine could create a lock
/// file there.
pub fn check_existing(path: &Path) -> Result<()> {
    let shown = show_path(path);
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(not_found_failure(format!("{shown} does not exist")))
        }
        Err(e) => Err(Failure::file("open", path, &e)),
        Ok(meta) if !meta.is_dir() => Err(not_a_directory_failure(path)),
        Ok(_) => match fs::symlink_metadata(path.join(MANIFEST)) {
            Ok(_) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                match perigee::check_directory(&Env::real(), path) {
                    Err(foreign) => {
                        Err(Failure::other(ErrorKind::NotFound.name(), foreign.message()))
                    }
                    Ok(()) => Err(not_found_failure(format!(
                        "{shown} holds no database (it has no {MANIFEST})"
                    ))),
                }
            }
            Err(e) => Err(Failure::file("open", &path.join(MANIFEST), &e)),
        },
    }
}

fn not_found_failure(message: String) -> Failure {
    Failure::other(ErrorKind::NotFound.name(), message)
        .hint("check the path; `perigee import` and `perigee put` create a database")
}

fn not_a_directory_failure(path: &Path) -> Failure {
    let hint = match path.parent().filter(|dir| dir.join(MANIFEST).exists()) {
        Some(dir) => format!("specify the database directory, {}", show_path(dir)),
        None => "specify the directory of a database".to_owned(),
    };
    Failure::usage(format!("{} is a file, not a database directory", show_path(path))).hint(hint)
}

/// Returns an error if a database cannot be created at `path`, for example because the directory
/// holds foreign files.
fn check_creatable(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Failure::file("open", path, &e)),
        Ok(meta) if !meta.is_dir() => Err(not_a_directory_failure(path)),
        Ok(_) => Ok(perigee::check_directory(&Env::real(), path)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed_in_the_given_format() {
        let parse = |hex, escaped, s: &str| KeyFormat { hex, escaped }.parse_key(OsStr::new(s));
        assert_eq!(parse(false, false, "a\\0").unwrap(), b"a\\0");
        assert_eq!(parse(false, true, "a\\0").unwrap(), b"a\0");
        assert_eq!(parse(true, false, "6100").unwrap(), b"a\0");
        assert!(parse(true, false, "xyz").is_err());
        assert_eq!(KeyFormat { hex: true, escaped: false }.format_key(b"a\0"), "6100");
    }

    #[test]
    fn non_database_directory_is_refused() {
        let dir = std::env::temp_dir().join(format!("perigee-cli-database-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        assert!(check_existing(&dir).is_err());
        assert!(check_creatable(&dir).is_ok());
        fs::create_dir_all(&dir).unwrap();
        assert!(check_existing(&dir).is_err());
        assert!(check_creatable(&dir).is_ok());
        fs::write(dir.join("000001.wal"), b"").unwrap();
        assert!(check_creatable(&dir).is_ok());
        fs::write(dir.join("letters.txt"), b"").unwrap();
        assert!(check_creatable(&dir).is_err());
        assert!(check_existing(&dir.join("letters.txt")).is_err());
        fs::write(dir.join(MANIFEST), b"").unwrap();
        assert!(check_existing(&dir).is_ok());
        fs::remove_dir_all(&dir).unwrap();
    }
}
