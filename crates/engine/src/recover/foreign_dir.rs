//! Recognizes directories that belong to another program, so that an open does not create a
//! database among foreign files.
//!
//! Only directories without a Perigee manifest are examined, before anything is created.
//! [`recognize`] is a pure function of the listing; [`find_foreign`] reads the listing. Only file
//! names are considered, not the contents of foreign files.
//!
//! A database may be created in a directory that contains nothing but: leftovers of an interrupted
//! first open (`LOCK`, `LOG`, `LOG.n`, `BALLAST`, `MANIFEST.tmp`, log segments without a record,
//! `trash/`); the options file `perigee.toml`; hidden entries (`.gitkeep`, `.DS_Store`, `.nfs...`);
//! and `lost+found`, which a new ext4 file system contains.

use super::manifest_reader::data_without_manifest;
use super::orphans::TRASH_DIR;
use crate::limits::FOREIGN_SUBDIRECTORIES_MAX;
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, Result};
use perigee_env::{Dir, DirOpenMode, Env};
use perigee_file::filename;
use std::path::Path;

/// The options file that the public interface and the command line write.
const OPTIONS_FILE: &str = "perigee.toml";
/// The options file while it is written.
const OPTIONS_FILE_TMP: &str = "perigee.toml.tmp";

/// The kind of a foreign directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignDir {
    /// A database of TidesDB.
    TidesDb,
    /// A database of RocksDB.
    RocksDb,
    /// A database of LevelDB.
    LevelDb,
    /// An environment of LMDB.
    Lmdb,
    /// A directory of backups that this engine made.
    Backups,
    /// Something else, with the first foreign name in it.
    Other(String),
}

/// The names in a directory.
#[derive(Clone, Debug, Default)]
pub struct DirListing {
    /// Regular files.
    pub files: Vec<String>,
    /// Everything else; for readable directories with the names of the regular files inside.
    pub others: Vec<(String, Vec<String>)>,
}

impl ForeignDir {
    /// Describes the contents of the directory at `path`, and what to do about it.
    pub fn describe(&self, path: &str) -> String {
        let import = |what: &str, option: &str| {
            format!(
                "{path} holds a {what}, not a Perigee database; nothing was changed. \
                 Import it: `perigee import {option} {path} --to NEW_DIRECTORY`"
            )
        };
        match self {
            ForeignDir::TidesDb => {
                import("TidesDB database", "--tidesdb-lib LIBTIDESDB_OF_TIDESDB --from-tidesdb")
            }
            ForeignDir::RocksDb => import("RocksDB database", "--from-rocksdb"),
            ForeignDir::Lmdb => import("LMDB environment", "--from-lmdb"),
            ForeignDir::LevelDb => format!(
                "{path} holds a LevelDB database, not a Perigee database; nothing was changed. \
                 There is no importer for LevelDB: name an empty directory"
            ),
            ForeignDir::Backups => format!(
                "{path} holds backups of a Perigee database, not a database; nothing was changed. \
                 Restore one: `perigee restore {path} NEW_DIRECTORY`"
            ),
            ForeignDir::Other(name) => format!(
                "{path} is not empty and holds no Perigee database (no {}): it holds {name:?}; \
                 nothing was changed. Name an empty directory",
                filename::MANIFEST
            ),
        }
    }
}

/// Returns true if a database being created has a file of that name, or the name is allowed in its
/// directory anyway.
fn is_allowed_file(file: &str) -> bool {
    filename::parse_file_name(file).is_some()
        || filename::is_info_log_name(file)
        || [
            filename::LOCK,
            filename::MANIFEST_TMP,
            filename::BALLAST,
            OPTIONS_FILE,
            OPTIONS_FILE_TMP,
        ]
        .contains(&file)
        || file.starts_with('.')
}

/// Returns true for `prefix` followed by digits, as RocksDB and LevelDB name their files.
fn has_numbered_name(file: &str, prefix: &str) -> bool {
    file.strip_prefix(prefix)
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Recognizes the kind of a directory without a Perigee manifest; `None` if a database may be
/// created in it.
pub fn recognize(listing: &DirListing) -> Option<ForeignDir> {
    let any = |is: &dyn Fn(&str) -> bool| listing.files.iter().any(|f| is(f));
    let has = |file: &str| any(&|f| f == file);
    let manifest = any(&|f| has_numbered_name(f, "MANIFEST-"));
    if any(&|f| f.starts_with("OPTIONS-")) && (has("CURRENT") || manifest)
        || has("IDENTITY") && manifest
    {
        return Some(ForeignDir::RocksDb);
    }
    if has("CURRENT") && manifest {
        return Some(ForeignDir::LevelDb);
    }
    if has("data.mdb") {
        return Some(ForeignDir::Lmdb);
    }
    let of_tidesdb = |inside: &[String]| {
        inside.iter().any(|f| f == "config.ini" || f.starts_with("wal_") && f.ends_with(".log"))
    };
    if any(&|f| f.starts_with("uwal_") && f.ends_with(".log")) || has("UNIMAP") {
        return Some(ForeignDir::TidesDb);
    }
    if listing.others.iter().any(|(_, inside)| of_tidesdb(inside)) {
        return Some(ForeignDir::TidesDb);
    }
    if any(&|f| f.ends_with(".generation")) {
        return Some(ForeignDir::Backups);
    }
    let file = listing.files.iter().find(|f| !is_allowed_file(f));
    let allowed = |name: &str| name == TRASH_DIR || name == "lost+found" || name.starts_with('.');
    let other = listing.others.iter().map(|(name, _)| name).find(|name| !allowed(name));
    file.or(other).cloned().map(ForeignDir::Other)
}

/// Returns the kind of `dir` if it is foreign; `None` if it has a Perigee manifest or data, or may
/// hold a new database.
///
/// # Errors
/// `Io` if it cannot be listed.
pub fn find_foreign(env: &Env, dir: &dyn Dir) -> Result<Option<ForeignDir>> {
    if bug::is_active(Bug::ForeignFilesIgnored) || dir.file_len(filename::MANIFEST)?.is_some() {
        return Ok(None);
    }
    // A damaged Perigee database: the open reports it as such, and repair can read it.
    if !matches!(data_without_manifest(dir), Ok(None)) {
        return Ok(None);
    }
    let mut listing = DirListing { files: dir.list()?, others: Vec::new() };
    for name in dir.list_non_files()? {
        let inside = if listing.others.len() < FOREIGN_SUBDIRECTORIES_MAX {
            let opened = env.fs.open_dir(&dir.path().join(&name), DirOpenMode::Existing);
            opened.and_then(|sub| sub.list()).unwrap_or_default()
        } else {
            Vec::new()
        };
        listing.others.push((name, inside));
    }
    Ok(recognize(&listing))
}

/// Returns an error for a directory that belongs to another program; creates nothing in it.
///
/// # Errors
/// `InvalidArgument` if a database was to be created, otherwise `NotFound`; both say what the
/// directory contains and what to do.
pub fn refuse_foreign(env: &Env, dir: &dyn Dir, create: bool) -> Result<()> {
    let Some(foreign) = find_foreign(env, dir)? else { return Ok(()) };
    let kind = if create { ErrorKind::InvalidArgument } else { ErrorKind::NotFound };
    Err(Error::new(kind, foreign.describe(&dir.path().display().to_string())))
}

/// Like [`refuse_foreign`], for a path; a missing directory is accepted.
///
/// # Errors
/// `InvalidArgument`, `Io`.
pub fn refuse_foreign_path(env: &Env, path: &Path) -> Result<()> {
    match env.fs.open_dir(path, DirOpenMode::Existing) {
        Ok(dir) => refuse_foreign(env, &*dir, true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognize_names(files: &[&str], others: &[(&str, &[&str])]) -> Option<ForeignDir> {
        let own = |names: &[&str]| names.iter().map(|n| n.to_string()).collect();
        let others = others.iter().map(|(name, inside)| (name.to_string(), own(inside))).collect();
        recognize(&DirListing { files: own(files), others })
    }

    #[test]
    fn other_engines_are_recognized() {
        use ForeignDir::{Backups, LevelDb, Lmdb, RocksDb, TidesDb};
        let rocksdb =
            ["000008.sst", "000010.log", "CURRENT", "IDENTITY", "LOCK", "LOG", "MANIFEST-000005"];
        assert_eq!(recognize_names(&rocksdb, &[]), Some(RocksDb));
        assert_eq!(
            recognize_names(&["CURRENT", "MANIFEST-000005", "OPTIONS-000007"], &[]),
            Some(RocksDb)
        );
        assert_eq!(
            recognize_names(&["000003.log", "CURRENT", "LOCK", "LOG", "MANIFEST-000002"], &[]),
            Some(LevelDb)
        );
        assert_eq!(
            recognize_names(&["000005.ldb", "CURRENT", "LOCK", "MANIFEST-000004"], &[]),
            Some(LevelDb)
        );
        assert_eq!(recognize_names(&["data.mdb", "lock.mdb"], &[]), Some(Lmdb));
        assert_eq!(
            recognize_names(&["LOCK"], &[("users", &["MANIFEST", "config.ini", "L1_0.klog"])]),
            Some(TidesDb)
        );
        assert_eq!(recognize_names(&["LOCK", "LOG", "uwal_0.log"], &[]), Some(TidesDb));
        assert_eq!(
            recognize_names(&["000001.generation", "LOCK"], &[("files", &[])]),
            Some(Backups)
        );
    }

    #[test]
    fn other_files_are_foreign() {
        for file in
            ["letter.txt", "MANIFEST-5", "000001.log", "0000001.wal", "LOG.old", "CURRENT", "LOCK2"]
        {
            assert_eq!(recognize_names(&["LOCK", file], &[]), Some(ForeignDir::Other(file.into())));
        }
        assert_eq!(
            recognize_names(&[], &[("mysql", &["user.frm"])]),
            Some(ForeignDir::Other("mysql".into()))
        );
        assert_eq!(
            recognize_names(&["LOCK"], &[("socket", &[])]),
            Some(ForeignDir::Other("socket".into()))
        );
    }

    #[test]
    fn leftovers_of_interrupted_open_are_not_foreign() {
        let left =
            ["000001.wal", "BALLAST", "LOCK", "LOG", "LOG.1", "MANIFEST.tmp", "perigee.toml"];
        assert_eq!(recognize_names(&left, &[("trash", &["000001.klog"])]), None);
        assert_eq!(recognize_names(&[], &[]), None);
        assert_eq!(
            recognize_names(&[".DS_Store", ".gitkeep"], &[(".snapshot", &[]), ("lost+found", &[])]),
            None
        );
    }

    #[test]
    fn messages_explain_what_to_do() {
        let message = |foreign: ForeignDir| foreign.describe("/data");
        assert!(message(ForeignDir::TidesDb).contains("perigee import --tidesdb-lib"));
        assert!(message(ForeignDir::TidesDb).contains("--from-tidesdb /data"));
        assert!(message(ForeignDir::RocksDb).contains("--from-rocksdb /data"));
        assert!(message(ForeignDir::Lmdb).contains("--from-lmdb /data"));
        assert!(message(ForeignDir::LevelDb).contains("no importer"));
        assert!(message(ForeignDir::Backups).contains("perigee restore /data"));
        assert!(message(ForeignDir::Other("letter.txt".into())).contains("letter.txt"));
    }
}
