//! Where a command works: the database's path, the family, how keys are written. Arguments that
//! commands share, and the doors to an open database.
//!
//! Invariants: a command that only reads opens the database read-only: no lock, no byte changed, no
//! file created, also beside the program that has it open. A command that changes something creates
//! no database unless it says so.

use crate::failure::{Failure, Result, show_path};
use crate::text::{escape, hex, unescape, unhex};
use clap::Args;
use perigee::env::Env;
use perigee::{Db, Durability, ErrorKind, Family, Options};
use perigee_file::filename::MANIFEST;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The database.
#[derive(Args, Debug)]
pub struct DatabaseArg {
    /// Directory of the database
    #[arg(value_name = "DB")]
    pub db: PathBuf,
}

/// The column family.
#[derive(Args, Debug)]
pub struct FamilyArg {
    /// Column family to work on
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub family: String,
}

/// How keys are written.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct KeyFormat {
    /// Keys are hexadecimal digits, on the command line and in the output
    #[arg(long, conflicts_with = "escaped")]
    pub hex: bool,
    /// Keys on the command line carry escapes: \xNN \0 \n \r \t \\
    #[arg(long)]
    pub escaped: bool,
}

impl DatabaseArg {
    /// Opens the database without changing a byte: no lock, also beside a program that has it open,
    /// on a read-only file system, and in a directory of another user.
    pub fn open_read_only(&self) -> Result<Db> {
        check_existing(&self.db)?;
        Ok(Db::open(&self.db, Options::new().read_only(true))?)
    }

    /// Opens the database to change it, if it is there. Takes the lock.
    pub fn open_read_write(&self) -> Result<Db> {
        check_existing(&self.db)?;
        Ok(Db::open(&self.db, Options::new().create_if_missing(false))?)
    }

    /// Opens the database, or makes a new one.
    pub fn open_or_create(&self, durability: Durability) -> Result<Db> {
        open_or_create(&self.db, durability)
    }
}

/// Opens the database at `path`, or makes a new one.
pub fn open_or_create(path: &Path, durability: Durability) -> Result<Db> {
    check_creatable(path)?;
    Ok(Db::open(path, Options::new().durability(durability))?)
}

impl FamilyArg {
    /// The family, which must exist.
    pub fn open_family(&self, db: &Db) -> Result<Family> {
        if self.family == "default" {
            return Ok(db.default_family());
        }
        db.family(&self.family).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Failure::other(
                "not found",
                format!("no family called {:?}", self.family),
            )
            .hint(
                "`perigee families DB` lists them, `perigee families DB --create NAME` makes one",
            ),
            _ => e.into(),
        })
    }

    /// The family, made if it does not exist.
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
    /// The bytes that an argument stands for.
    pub fn parse_key(self, arg: &OsStr) -> Result<Vec<u8>> {
        let bytes = arg.as_bytes();
        let read = match (self.hex, self.escaped) {
            (true, _) => unhex(bytes),
            (_, true) => unescape(bytes),
            _ => Ok(bytes.to_vec()),
        };
        read.map_err(|why| Failure::usage(format!("the key {:?}: {why}", arg)))
    }

    /// A key for the screen.
    pub fn format_key(self, key: &[u8]) -> String {
        if self.hex { hex(key) } else { escape(key) }
    }
}

/// Refuses a path where no database is, before the engine could leave a lock file there.
pub fn check_existing(path: &Path) -> Result<()> {
    let shown = show_path(path);
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(not_found_failure(format!("there is nothing at {shown}")))
        }
        Err(e) => Err(Failure::file("open", path, &e)),
        Ok(meta) if !meta.is_dir() => Err(not_a_directory_failure(path)),
        Ok(_) => match fs::symlink_metadata(path.join(MANIFEST)) {
            Ok(_) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                match Db::check_directory(&Env::real(), path) {
                    Err(foreign) => {
                        Err(Failure::other(ErrorKind::NotFound.name(), foreign.message()))
                    }
                    Ok(()) => Err(not_found_failure(format!(
                        "{shown} holds no database (no {MANIFEST} in it)"
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
        Some(dir) => format!("the database is the directory {}", show_path(dir)),
        None => "give the directory of a database".to_owned(),
    };
    Failure::usage(format!("{} is a file, not a database directory", show_path(path))).hint(hint)
}

/// Refuses to scatter a database over a directory that holds something else.
fn check_creatable(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Failure::file("open", path, &e)),
        Ok(meta) if !meta.is_dir() => Err(not_a_directory_failure(path)),
        Ok(_) => Ok(Db::check_directory(&Env::real(), path)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed_in_the_given_format() {
        let read = |hex, escaped, s: &str| KeyFormat { hex, escaped }.parse_key(OsStr::new(s));
        assert_eq!(read(false, false, "a\\0").unwrap(), b"a\\0");
        assert_eq!(read(false, true, "a\\0").unwrap(), b"a\0");
        assert_eq!(read(true, false, "6100").unwrap(), b"a\0");
        assert!(read(true, false, "xyz").is_err());
        assert_eq!(KeyFormat { hex: true, escaped: false }.format_key(b"a\0"), "6100");
    }

    #[test]
    fn non_database_directory_is_refused() {
        let dir = std::env::temp_dir().join(format!("perigee-cli-place-{}", std::process::id()));
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
