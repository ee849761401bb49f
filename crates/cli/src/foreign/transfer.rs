//! A source into a new database: every family as one bulk load, then both sides read again and
//! compared, then the name.
//!
//! Invariant: the target appears under its name whole and compared, or not at all; until then it is
//! called `NAME.importing`.

use super::entry_digest::EntryDigest;
use super::source::{ForeignSource, ReadPass, SourceEntry, SourceFamily};
use crate::failure::{Failure, Result, show_path};
use crate::progress::Progress;
use perigee::{BulkLoad, Db, Durability, Error, FamilyOptions, Options};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What was done with a family.
#[derive(Debug)]
pub struct FamilyTransfer {
    /// Entries loaded.
    pub entries: u64,
    /// Those of them that expire.
    pub ttl_entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Over keys, values and ends, whatever their order.
    pub checksum: u64,
    /// Entries that ended while the import ran.
    pub expired: u64,
}

/// Where the target is made.
#[derive(Debug)]
pub struct ImportTarget {
    path: PathBuf,
    unfinished: PathBuf,
}

impl ImportTarget {
    /// Refuses a target that exists, or one that was begun before.
    pub fn new(to: &Path) -> Result<ImportTarget> {
        let mut name = to.file_name().map(ToOwned::to_owned).ok_or_else(|| {
            Failure::usage(format!("--to {} names no directory that can be made", show_path(to)))
        })?;
        name.push(".importing");
        let unfinished = to.with_file_name(name);
        if fs::symlink_metadata(to).is_ok() {
            return Err(Failure::usage(format!("{} exists already", show_path(to))).hint(
                "give --to a name that does not exist yet: an import always makes a new database",
            ));
        }
        if fs::symlink_metadata(&unfinished).is_ok() {
            return Err(Failure::usage(format!("{} exists already", show_path(&unfinished))).hint(
                "an import that was cut short left it behind: remove it, and run the import again",
            ));
        }
        Ok(ImportTarget { path: to.to_owned(), unfinished })
    }
    /// Refuses a place inside the source: nothing is written there.
    pub fn check_outside(&self, source: &Path) -> Result<()> {
        check_dir_outside(self.parent(), source)
    }
    /// The directory that it will be in.
    pub fn parent(&self) -> &Path {
        self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
    /// A name beside it, for the copy of the source.
    pub fn sibling_path(&self, ending: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        self.path.with_file_name(name)
    }

    fn rename_into_place(&self) -> Result<()> {
        // A rename replaces an empty directory: one that somebody made meanwhile is refused.
        if fs::symlink_metadata(&self.path).is_ok() {
            return Err(Failure::usage(format!("{} was made meanwhile", show_path(&self.path)))
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

/// Refuses a directory inside the source.
pub fn check_dir_outside(dir: &Path, source: &Path) -> Result<()> {
    match (fs::canonicalize(dir), fs::canonicalize(source)) {
        (Ok(dir), Ok(inside)) if dir.starts_with(&inside) => {
            Err(Failure::usage(format!("{} lies in {}", show_path(&dir), show_path(source)))
                .hint("nothing is written into a source: give a place outside of it"))
        }
        _ => Ok(()),
    }
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX))
}

/// Moves everything; what was done with each family, in the order of the source.
pub fn run_transfer(
    source: &mut dyn ForeignSource,
    target: &ImportTarget,
) -> Result<Vec<FamilyTransfer>> {
    let families = source.families().to_vec();
    let started_ms = now_ms();
    let db = create_target(target, &families)?;
    let mut loaded = Vec::new();
    let mut progress = Progress::items("importing", total_estimate(&families));
    let mut seen = 0;
    for (n, family) in families.iter().enumerate() {
        loaded.push(load_family(source, n, family, &db, started_ms, &mut seen, &mut progress)?);
    }
    drop(progress);
    let mut progress = Progress::items("comparing", loaded.iter().map(|t| 2 * t.count()).sum());
    let mut done = Vec::new();
    let mut seen = 0;
    for (n, (family, first)) in families.iter().zip(&loaded).enumerate() {
        done.push(compare_family(source, n, family, &db, first, &mut seen, &mut progress)?);
    }
    db.flush()?;
    db.sync()?;
    db.close()?;
    drop(progress);
    target.rename_into_place()?;
    Ok(done)
}

fn total_estimate(families: &[SourceFamily]) -> u64 {
    families.iter().map(|f| f.estimated_entries).sum::<Option<u64>>().unwrap_or(0)
}

/// The target, unfinished, with all families.
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

/// The family in which our C library keeps settings (crates/capi, `catalog`): a program that was
/// made for the source's engine finds its families configured as they were, also in what the engine
/// has no counterpart of.
const SETTINGS_FOR_C: &str = "tidesdb.settings";

fn store_c_settings(db: &Db, families: &[SourceFamily]) -> Result<()> {
    if families.iter().all(|f| f.c_library_settings.is_none()) {
        return Ok(());
    }
    if families.iter().any(|f| f.name == SETTINGS_FOR_C) {
        return Err(Failure::usage(format!(
            "a family of the source is called {SETTINGS_FOR_C:?}, a name that is taken"
        ))
        .hint("rename it there first"));
    }
    let kept = db.create_family(SETTINGS_FOR_C, FamilyOptions::new().memtable_bytes(1 << 20))?;
    for family in families {
        if let Some(text) = &family.c_library_settings {
            // Settings name the family that they are of by its number.
            kept.put(&family.name, format!("; family {}\n{text}", db.family(&family.name)?.id()))?;
        }
    }
    Ok(())
}

/// Which entry of which family an error of the engine is about.
fn with_entry(e: Error, family: &SourceFamily, key: &[u8]) -> Failure {
    let shown = key[..key.len().min(64)].escape_ascii();
    Failure::other("import", format!("family {:?}, key {shown}: {}", family.name, e.message()))
        .hint("nothing was imported; the unfinished target can be removed")
}

fn load_family(
    source: &mut dyn ForeignSource,
    n: usize,
    family: &SourceFamily,
    db: &Db,
    started_ms: u64,
    seen: &mut u64,
    progress: &mut Progress,
) -> Result<EntryDigest> {
    let mut load: BulkLoad = db.family(&family.name)?.bulk_load()?;
    let mut tally = EntryDigest::new(started_ms);
    source.for_each_entry(n, ReadPass::First, &mut |e: SourceEntry<'_>| {
        let put = match e.expires_at_ms {
            Some(ms) => load.put_until(e.key, e.value, ms),
            None => load.put(e.key, e.value),
        };
        put.map_err(|error| with_entry(error, family, e.key))?;
        tally.add(e);
        *seen += 1;
        if seen.is_multiple_of(1024) {
            progress.set_position(*seen);
        }
        Ok(())
    })?;
    load.finish()?;
    Ok(tally)
}

fn compare_family(
    source: &mut dyn ForeignSource,
    n: usize,
    family: &SourceFamily,
    db: &Db,
    first: &EntryDigest,
    seen: &mut u64,
    progress: &mut Progress,
) -> Result<FamilyTransfer> {
    let mut step = |progress: &mut Progress| {
        *seen += 1;
        if seen.is_multiple_of(1024) {
            progress.set_position(*seen);
        }
    };
    let mut again = first.new_like();
    source.for_each_entry(n, ReadPass::Second, &mut |e| {
        again.add(e);
        step(progress);
        Ok(())
    })?;
    let mut ours = first.new_like();
    let mut cursor = db.family(&family.name)?.cursor()?;
    cursor.seek_to_first()?;
    while cursor.valid() {
        let expires_at_ms = cursor.expires_at_ms();
        let (key, value) = cursor.entry()?;
        ours.add(SourceEntry { key, value, expires_at_ms });
        step(progress);
        cursor.next()?;
    }
    let ended_ms = now_ms();
    let same = |side: &EntryDigest, what: &str| {
        first.compare(side, ended_ms).ok_or_else(|| {
            Failure::other(
                "import",
                format!(
                    "family {:?}: what was read at first ({} entries, checksum {:016x}) is not what {what} ({} entries, \
                     checksum {:016x})",
                    family.name,
                    first.count(),
                    first.checksum(),
                    side.count(),
                    side.checksum()
                ),
            )
            .hint("the target stays unfinished; nothing of the source was changed. Please report this")
        })
    };
    same(&again, "a second reading of the source gives")?;
    let expired = same(&ours, "the target holds")?;
    Ok(FamilyTransfer {
        entries: first.count(),
        ttl_entries: first.ttl_count(),
        bytes: first.bytes,
        checksum: first.checksum(),
        expired,
    })
}
