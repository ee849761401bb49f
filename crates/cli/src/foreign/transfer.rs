//! Transfers a source into a new database: bulk-loads every column family, then reads both sides
//! again and compares them, then renames the database to its final name.
//!
//! Invariant: a database with the final name is complete and verified; until then its name is
//! `NAME.importing`.

use super::entry_digest::EntryDigest;
use super::source::{ForeignSource, ReadPass, SourceEntry, SourceFamily};
use crate::failure::{Failure, Result, show_path};
use crate::progress::Progress;
use perigee::load::BulkLoad;
use perigee::{Db, Durability, Error, FamilyOptions, Options};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Result of the transfer of a column family.
#[derive(Debug)]
pub struct FamilyTransfer {
    /// Entries loaded.
    pub entries: u64,
    /// Entries loaded that expire.
    pub ttl_entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Order-independent checksum over keys, values and expiry times.
    pub checksum: u64,
    /// Entries that expired during the import.
    pub expired: u64,
}

/// Paths of the target: the final one and the one until the import is complete.
#[derive(Debug)]
pub struct ImportTarget {
    path: PathBuf,
    unfinished: PathBuf,
}

impl ImportTarget {
    /// Returns an error if the target exists, or an unfinished import to it does.
    pub fn new(to: &Path) -> Result<ImportTarget> {
        let mut name = to.file_name().map(ToOwned::to_owned).ok_or_else(|| {
            Failure::usage(format!("--to {} cannot be the name of a new directory", show_path(to)))
        })?;
        name.push(".importing");
        let unfinished = to.with_file_name(name);
        if fs::symlink_metadata(to).is_ok() {
            return Err(Failure::usage(format!("{} already exists", show_path(to))).hint(
                "specify a path that does not exist: an import always creates a new database",
            ));
        }
        if fs::symlink_metadata(&unfinished).is_ok() {
            return Err(Failure::usage(format!("{} already exists", show_path(&unfinished))).hint(
                "an interrupted import left it behind: remove it, and run the import again",
            ));
        }
        Ok(ImportTarget { path: to.to_owned(), unfinished })
    }
    /// Returns an error if the target is inside the source, where nothing may be written.
    pub fn check_outside(&self, source: &Path) -> Result<()> {
        check_dir_outside(self.parent(), source)
    }
    /// Returns the parent directory of the target.
    pub fn parent(&self) -> &Path {
        self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
    /// Returns the path of the target with a suffix, for the copy of the source.
    pub fn sibling_path(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(suffix);
        self.path.with_file_name(name)
    }

    fn rename_into_place(&self) -> Result<()> {
        // A rename would replace an empty directory created during the import.
        if fs::symlink_metadata(&self.path).is_ok() {
            return Err(Failure::usage(format!(
                "{} was created during the import",
                show_path(&self.path)
            ))
            .hint(format!(
                "the import is complete in {}: rename it",
                show_path(&self.unfinished)
            )));
        }
        fs::rename(&self.unfinished, &self.path)
            .map_err(|e| Failure::file("rename", &self.unfinished, &e))?;
        let parent = self.parent();
        File::open(parent).and_then(|d| d.sync_all()).map_err(|e| Failure::file("sync", parent, &e))
    }
}

/// Returns an error if a directory is inside the source.
pub fn check_dir_outside(dir: &Path, source: &Path) -> Result<()> {
    match (fs::canonicalize(dir), fs::canonicalize(source)) {
        (Ok(dir), Ok(source_dir)) if dir.starts_with(&source_dir) => {
            Err(Failure::usage(format!("{} is inside {}", show_path(&dir), show_path(source)))
                .hint("the source must stay unchanged: specify a directory outside of it"))
        }
        _ => Ok(()),
    }
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX))
}

/// Transfers all column families. Returns their results in the order of the source.
pub fn run_transfer(
    source: &mut dyn ForeignSource,
    target: &ImportTarget,
) -> Result<Vec<FamilyTransfer>> {
    let families = source.families().to_vec();
    let started_ms = now_ms();
    let db = create_target(target, &families)?;
    let mut loaded = Vec::new();
    let mut progress = Progress::items("importing", total_estimate(&families));
    for (n, family) in families.iter().enumerate() {
        loaded.push(load_family(source, n, family, &db, started_ms, &mut progress)?);
    }
    drop(progress);
    let mut progress = Progress::items("comparing", loaded.iter().map(|t| 2 * t.count()).sum());
    let mut transfers = Vec::new();
    for (n, (family, first)) in families.iter().zip(&loaded).enumerate() {
        transfers.push(compare_family(source, n, family, &db, first, &mut progress)?);
    }
    db.admin().flush()?;
    db.sync()?;
    db.close()?;
    drop(progress);
    target.rename_into_place()?;
    Ok(transfers)
}

fn total_estimate(families: &[SourceFamily]) -> u64 {
    families.iter().map(|f| f.estimated_entries).sum::<Option<u64>>().unwrap_or(0)
}

/// Creates the unfinished target with all column families.
fn create_target(target: &ImportTarget, families: &[SourceFamily]) -> Result<Db> {
    let mut options = Options::new().durability(Durability::None);
    options.error_if_exists = true;
    if let Some(family) = families.iter().find(|f| f.name == "default") {
        options = options.default_family(family.options.clone());
    }
    let db = Db::open(&target.unfinished, options)?;
    for family in families.iter().filter(|f| f.name != "default") {
        db.create_family(&family.name, family.options.clone())?;
    }
    store_c_settings(&db, families)?;
    Ok(db)
}

/// The column family in which Perigee's C library stores settings (crates/capi, `catalog`). A
/// program written for the source engine thus finds all settings of its column families, including
/// those without a counterpart.
const SETTINGS_FOR_C: &str = "tidesdb.settings";

fn store_c_settings(db: &Db, families: &[SourceFamily]) -> Result<()> {
    if families.iter().all(|f| f.c_library_settings.is_none()) {
        return Ok(());
    }
    if families.iter().any(|f| f.name == SETTINGS_FOR_C) {
        return Err(Failure::usage(format!(
            "a column family of the source has the reserved name {SETTINGS_FOR_C:?}"
        ))
        .hint("rename it in the source first"));
    }
    let stored = db.create_family(SETTINGS_FOR_C, FamilyOptions::new().memtable_bytes(1 << 20))?;
    for family in families {
        if let Some(text) = &family.c_library_settings {
            // The settings start with the id of their column family.
            let id = db.family(&family.name)?.id();
            stored.put(&family.name, format!("; family {id}\n{text}"))?;
        }
    }
    Ok(())
}

/// Converts an error of the engine; the message names the column family and key.
fn with_entry(e: Error, family: &SourceFamily, key: &[u8]) -> Failure {
    let shown = key[..key.len().min(64)].escape_ascii();
    let message = format!("column family {:?}, key {shown}: {}", family.name, e.message());
    Failure::other("import", message)
        .hint("nothing was imported; the unfinished target can be removed")
}

fn load_family(
    source: &mut dyn ForeignSource,
    n: usize,
    family: &SourceFamily,
    db: &Db,
    started_ms: u64,
    progress: &mut Progress,
) -> Result<EntryDigest> {
    let mut load: BulkLoad = db.family(&family.name)?.bulk_load()?;
    let mut digest = EntryDigest::new(started_ms);
    source.for_each_entry(n, ReadPass::First, &mut |e: SourceEntry<'_>| {
        let put = match e.expires_at_ms {
            Some(ms) => load.put_until(e.key, e.value, ms),
            None => load.put(e.key, e.value),
        };
        put.map_err(|error| with_entry(error, family, e.key))?;
        digest.add(e);
        progress.count_item();
        Ok(())
    })?;
    load.finish()?;
    Ok(digest)
}

fn compare_family(
    source: &mut dyn ForeignSource,
    n: usize,
    family: &SourceFamily,
    db: &Db,
    first: &EntryDigest,
    progress: &mut Progress,
) -> Result<FamilyTransfer> {
    let mut second = first.new_like();
    source.for_each_entry(n, ReadPass::Second, &mut |e| {
        second.add(e);
        progress.count_item();
        Ok(())
    })?;
    let mut target = first.new_like();
    let mut cursor = db.family(&family.name)?.cursor()?;
    cursor.seek_to_first()?;
    while cursor.is_valid() {
        let expires_at_ms = cursor.expires_at_ms();
        let (key, value) = cursor.entry()?;
        target.add(SourceEntry { key, value, expires_at_ms });
        progress.count_item();
        cursor.next()?;
    }
    let ended_ms = now_ms();
    let compare = |other: &EntryDigest, what: &str| {
        first.compare(other, ended_ms).ok_or_else(|| {
            Failure::other(
                "import",
                format!(
                    "column family {:?}: the first pass over the source ({} entries, checksum \
                     {:016x}) differs from {what} ({} entries, checksum {:016x})",
                    family.name,
                    first.count(),
                    first.checksum(),
                    other.count(),
                    other.checksum()
                ),
            )
            .hint("the target stays unfinished; the source was not changed. Please report this")
        })
    };
    compare(&second, "the second pass")?;
    let expired = compare(&target, "the target")?;
    Ok(FamilyTransfer {
        entries: first.count(),
        ttl_entries: first.ttl_count(),
        bytes: first.bytes,
        checksum: first.checksum(),
        expired,
    })
}
