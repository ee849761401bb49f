//! Opening without writing a byte: beside the writer that holds the lock, or on a read-only medium, or (salvage) on a
//! database too damaged to be opened otherwise.
//!
//! What is seen is the database at one moment of this open: the manifest as it was read, the files that it names, and of the log
//! what is there when it is read, in memory. All of them are opened at once, before any is looked at, so that the writer
//! may remove them; nothing that it does later is seen, but for records behind those that were there. If a file was gone already, or
//! what we found does not fit together after all, and the manifest has changed meanwhile, we begin again.

use super::{
    NewLog, Report, Standing, adopt_settings, assemble, budget, check_orders, manifest, open_families, renew,
    replay,
};
use crate::core::{Core, ShelfOpener};
use crate::dirsync::DirSync;
use crate::manifest::{Manifest, Place};
use crate::memory::Memory;
use crate::now::LogicalClock;
use crate::settings::Settings;
use perigee_base::bug::{self, Bug};
use perigee_base::format::{FileKind, HEADER_BYTES};
use perigee_base::stats::Counters;
use perigee_base::{Error, ErrorKind, FileId, KeyOrder, Result};
use perigee_env::fs::readonly::ReadOnlyDir;
use perigee_env::{Dir, Env};
use perigee_file::log::LogWriter;
use perigee_file::{BlockCache, Shelf, name};
use perigee_tree::version::Opener;
use perigee_tree::{Table, TableMeta, Vlog, VlogMeta};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// How often we begin again, each time after a longer pause.
const ATTEMPTS: u64 = 30;
const PAUSE_US: u64 = 500;
/// How often the manifest is read until every file that it names is open.
const HOLD_ATTEMPTS: u32 = 5;

/// Opens the database in `dir` and changes nothing.
pub fn open_read_only(env: Env, dir: Arc<dyn Dir>, boot: u64, settings: Settings) -> Result<(Core, Report)> {
    let writable = Arc::clone(&dir);
    let dir = ReadOnlyDir::holding(dir);
    let mut attempt = 0;
    loop {
        let before = state_of_manifest(&*dir);
        match read(env.clone(), Arc::clone(&dir), boot, settings.clone()) {
            Ok((core, report)) => {
                dir.release();
                if bug::on(Bug::ReadOnlyCutsLog) {
                    cut(&*writable, &core, &report);
                }
                return Ok((core, report));
            }
            Err(e) if attempt < ATTEMPTS && state_of_manifest(&*dir) != before => {
                attempt += 1;
                drop(e);
                env.clock.sleep_us(PAUSE_US * attempt);
            }
            // A last look: the writer may have been between two steps.
            Err(e) if attempt == 0 && e.is_corruption() && !settings.salvage => {
                attempt = 1;
                env.clock.sleep_us(PAUSE_US);
            }
            // What does not fit together while the writer moves is no damage.
            Err(e) if state_of_manifest(&*dir) != before => {
                return Err(e.wrap(
                    ErrorKind::Busy,
                    "the writer changes the database faster than it can be read; open again, or take a checkpoint",
                ));
            }
            Err(e) => return Err(e),
        }
    }
}

/// Header and length of the manifest: they change with every edit.
fn state_of_manifest(dir: &dyn Dir) -> Option<(u64, [u8; HEADER_BYTES])> {
    let len = dir.file_len(name::MANIFEST).ok()??;
    let mut header = [0; HEADER_BYTES];
    dir.open(name::MANIFEST).ok()?.read_exact_at(&mut header, 0).ok()?;
    Some((len, header))
}

/// Reads the manifest and opens every file that it names. While the writer removes one before it is open, the manifest is read
/// again at once; what is open stays, so that only the newest files are missing. A file that is missing in the end, or that
/// cannot be opened, is told of by who reads it.
fn hold_all(env: &Env, dir: &ReadOnlyDir, boot: u64, settings: &Settings) -> Result<manifest::Found> {
    let mut attempt = 0;
    loop {
        let before = state_of_manifest(dir);
        let found = manifest::read(env, dir, boot, settings).map_err(|e| no_map(e, settings))?;
        let families = found.catalog.families.values();
        let data = families.flat_map(|f| {
            let tables = f.tables.keys().map(|id| (*id, FileKind::Klog));
            tables.chain(f.vlogs.keys().map(|id| (*id, FileKind::Vlog)))
        });
        let logs = found.catalog.logs.iter().map(|(id, _)| (*id, FileKind::Wal));
        let names: BTreeSet<String> = logs.chain(data).map(|(id, kind)| name::file_name(id, kind)).collect();
        attempt += 1;
        if dir.hold_only(names) || attempt > HOLD_ATTEMPTS || state_of_manifest(dir) == before {
            return Ok(found);
        }
    }
}

fn read(env: Env, held: Arc<ReadOnlyDir>, boot: u64, settings: Settings) -> Result<(Core, Report)> {
    let start = env.clock.monotonic_us();
    let dir: Arc<dyn Dir> = Arc::clone(&held) as Arc<dyn Dir>;
    let mut found = hold_all(&env, &held, boot, &settings)?;
    check_orders(&found.catalog, &settings)?;
    let counters = Arc::new(Counters::default());
    let memory = Memory::new(budget(&env, &settings), settings.block_cache_bytes);
    let cache = Arc::new(BlockCache::new(memory.cache_max.min(memory.budget)));
    // Files stay open: a writer beside us may remove them.
    let shelf = Arc::new(Shelf::new(Arc::clone(&dir), found.database, cache, Arc::clone(&counters)));
    let now = LogicalClock::new(Arc::clone(&env.clock), found.catalog.clock, Arc::clone(&counters));
    let now = Arc::new(now);
    let families = open_families(&found.catalog, &shelf, &now, settings.salvage)?;
    let edits_now = || manifest::read(&env, &*dir, boot, &settings).map(|now| now.edits);
    let mut replayed =
        replay::replay_for_reader(&*dir, &found, boot, &families, settings.salvage, &edits_now)?;
    if let Some(hole) = replayed.holes.first() {
        let why = hole.clone().wrap(
            ErrorKind::Corruption,
            "part of the log is damaged, and this key may have been written there; see `perigee repair`",
        );
        for f in &families {
            let mut version = (*f.tree.view().version).clone();
            version.gap = Some(why.clone());
            f.tree.install(version, None);
        }
    }
    adopt_settings(&mut found.catalog, &settings)?;
    let families = renew(families, &found.catalog, &settings);
    let holes = replayed.holes.iter().map(|e| format!("{e}; "));
    let report = Report {
        recovered: replayed.next - 1,
        replayed: replayed.operations,
        truncated_bytes: replayed.cut_bytes + found.cut_bytes,
        reason: [found.cut_reason.clone(), replayed.cut_reason.clone()].into_iter().chain(holes).collect(),
        clean: found.catalog.clean.is_some(),
        elapsed_us: env.clock.monotonic_us().saturating_sub(start),
        ..Report::default()
    };
    let nothing = || LogWriter::refusing(FileId(0), found.database);
    let (place, high_water) = (Place { database: found.database, boot }, now.high_water());
    let dir_sync = Arc::new(DirSync::new(Arc::clone(&dir)));
    let catalog = found.catalog.clone();
    let runs = catalog.next.2;
    let ids = Arc::new(AtomicU64::new(catalog.next.0));
    let manifest = Manifest::new(
        Arc::clone(&dir),
        Arc::clone(&dir_sync),
        place,
        nothing(),
        found.edits,
        catalog,
        Arc::clone(&counters),
        high_water,
    );
    let standing = Standing { memory, env, dir, boot, settings, counters, now, shelf, families };
    let log = NewLog::none(nothing(), replayed.first);
    let core = assemble(standing, (found.database, runs), &mut replayed, log, (manifest, dir_sync), ids)?;
    core.health.set_read_only();
    Ok((core, report))
}

/// Without a manifest nobody knows what the database was; repair finds out what can be found out.
fn no_map(e: Error, settings: &Settings) -> Error {
    if settings.salvage && e.is_corruption() {
        return e.wrap(
            ErrorKind::Corruption,
            "the manifest is damaged, so it cannot be said what is missing; `perigee repair` makes a new database of \
             what can be read",
        );
    }
    e
}

/// The seeded bug.
fn cut(dir: &dyn Dir, core: &Core, report: &Report) {
    let last = core.manifest.catalog().logs.last().map(|(id, _)| name::file_name(*id, FileKind::Wal));
    if let Some(file) = last.and_then(|f| dir.append_to(&f).ok()).filter(|_| report.truncated_bytes > 0) {
        let _ = file.truncate(file.len().saturating_sub(report.truncated_bytes));
    }
}

/// Opens what can be opened; what cannot keeps its place and answers with the reason.
pub struct SalvageOpener<'a> {
    /// Tried first.
    pub strict: &'a ShelfOpener<'a>,
    /// The order of the family's keys.
    pub order: KeyOrder,
}

fn damage(e: Error, what: &str) -> Result<Error> {
    match e.kind() {
        ErrorKind::Corruption | ErrorKind::Io => Ok(e.wrap(ErrorKind::Corruption, what)),
        _ => Err(e),
    }
}

impl Opener for SalvageOpener<'_> {
    fn table(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        self.strict.table(meta).or_else(|e| {
            let why = damage(e, "the table that may hold this key cannot be opened")?;
            if meta.summary.ranges.is_some() {
                // Its range tombstones hid keys of other tables, which would come back without a word.
                return Err(why.wrap(
                    ErrorKind::Corruption,
                    "a table with range tombstones is damaged; use `perigee repair`",
                ));
            }
            let reader = self.strict.shelf.broken_klog(meta.id, &meta.summary, self.order, why)?;
            Ok(Arc::new(Table { meta: meta.clone(), reader: Arc::new(reader) }))
        })
    }
    fn vlog(&self, meta: &VlogMeta) -> Result<Arc<Vlog>> {
        self.strict.vlog(meta).or_else(|e| {
            let why = damage(e, "the value log that holds this value cannot be opened")?;
            let reader = self.strict.shelf.broken_vlog(meta.id, meta.bytes, why);
            Ok(Arc::new(Vlog { meta: meta.clone(), reader: Arc::new(reader) }))
        })
    }
}
