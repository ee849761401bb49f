//! Opening a database: reads everything, validates it, and only then writes.
//!
//! The stages, one file each: `foreign_dir` (refuses the directory of another program before
//! anything is created), `manifest_reader` (reads the catalog, or starts a new database), `replay`
//! (replays the log by the rules of `docs/format/log.md`), `new_log` (writes the log and the
//! manifest that the database continues with), `orphans` (unreferenced files), `catch_up` (replays
//! a log that is larger than memory). Until [`open_database`] reaches the comment "From here on we
//! write", a failure has changed no byte.

mod insert;
mod manifest_reader;
mod manifest_follower;
mod orphans;
mod replay_result;
pub mod foreign_dir;
mod replay;
mod new_log;
mod catch_up;
mod read_only;
mod shared_opener;

use crate::catalog::Catalog;
use crate::catalog::CatalogParts;
use crate::catalog::family::{Families, FamilyState};
use crate::catalog::manifest::{CatalogState, Manifest, PreparedTables};
use crate::log::Log;
use crate::log::wal::Wal;
use crate::maintenance::Maintenance;
use crate::resources::Resources;
use crate::resources::ballast;
use crate::resources::memory_budget::MemoryBudget;
use crate::resources::memory_shares::{self, MemoryLimit, MemoryUsage, ObjectCounts};
use crate::runtime::dir_sync::DirSync;
use crate::runtime::events;
use crate::runtime::logical_clock::{ClockHighWater, LogicalClock};
use crate::runtime::{DatabaseIdentity, Runtime};
use crate::settings::{FamilySettings, Settings};
use crate::stats::RecoveryReport;
use crate::txn::TxnManager;
use crate::txn::spilled_tables::SpilledTables;
use catch_up::catch_up_log;
use new_log::{LogCopyMode, NewLog, NewLogInput, remove_old_segments, trim_segments};
use perigee_base::bug::Bug;
use perigee_base::{Bytes, Counters, Error, ErrorKind, Result, RunId, bug};
use perigee_env::{Dir, DirOpenMode, Env};
use perigee_file::{BlockCache, FileHandleCache, HandleLimit, TableCache};
use perigee_tree::{FileOpener, LsmTree, Version, VersionEdit};
pub use read_only::open_read_only;
use replay_result::ReplayResult;
use shared_opener::SharedFileOpener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Returns the names of the column families of the database in `path`, each with the name of its
/// comparator and whether it has tables. Reads the manifest without opening the database.
///
/// # Errors
/// `NotFound` if there is no database; `Corruption`, `FormatTooNew`, `Io`.
pub fn list_families(env: &Env, path: &Path) -> Result<Vec<(String, String, bool)>> {
    let dir = env.fs.open_dir(path, DirOpenMode::Existing)?;
    let found = manifest_reader::read_existing(&*dir, env.fs.boot_id())?;
    let missing =
        || Error::new(ErrorKind::NotFound, format!("there is no database in {}", path.display()));
    let found = found.ok_or_else(missing)?;
    let of = |f: &crate::catalog::manifest::CatalogFamily| {
        (f.name.clone(), f.settings.comparator.name().to_string(), !f.tables.is_empty())
    };
    Ok(found.catalog.families.values().map(of).collect())
}

/// Joins the reasons for what recovery cut off.
fn recovery_reason<'a>(reasons: impl IntoIterator<Item = &'a String>) -> String {
    let all: String = reasons.into_iter().map(String::as_str).collect();
    all.trim_end_matches("; ").to_owned()
}

/// Opens the database in `dir`. The caller holds the directory lock.
pub fn open_database(
    env: Env,
    dir: Arc<dyn Dir>,
    boot: u64,
    settings: Settings,
) -> Result<(Arc<Maintenance>, RecoveryReport)> {
    let start = env.clock.monotonic_us();
    let mut found = manifest_reader::read_or_create(&env, &*dir, boot, &settings)?;
    check_comparators(&found.catalog, &settings)?;
    if bug::is_active(Bug::DeleteUnknownFiles) {
        orphans::remove_all_unknown(&*dir, &found.catalog)?;
    }
    let counters = Arc::new(Counters::default());
    let memory =
        MemoryBudget::new(resolve_memory_budget(&env, &settings), settings.block_cache_bytes);
    let cache = Arc::new(BlockCache::new(memory.block_cache_max.min(memory.limit.0)));
    let handles = file_handles(&env, &dir, &settings);
    let table_cache = TableCache::with_file_handles(
        Arc::clone(&dir),
        found.database,
        cache,
        Arc::clone(&counters),
        handles,
    );
    let table_cache =
        Arc::new(table_cache.with_buffer_bytes(memory_shares::file_buffer_bytes(memory.limit)));
    let clock = Arc::clone(&env.clock);
    let now =
        Arc::new(LogicalClock::new(clock, found.catalog.expiry_clock_ms, Arc::clone(&counters)));
    let families = open_families(&found.catalog, &table_cache, &now, false)?;
    let mut replayed = {
        let _span = events::enter_span("recovery", "replay");
        replay::replay_log(
            &*dir,
            &found,
            boot,
            &families,
            Bytes(replay_limit(&memory, &table_cache, families.len())),
        )?
    };
    let changed = adopt_settings(&mut found.catalog, &settings)?;
    let families = apply_family_settings(families, &found.catalog, &settings);
    let prepared = open_prepared(&found.catalog, &families, &*table_cache)?;

    // From here on we write.
    let ids = Arc::new(AtomicU64::new(orphans::next_unused_id(&*dir, &found.catalog)?));
    let cut = replayed.cut_bytes + found.cut_bytes > 0;
    let retention = settings.log_retention;
    let segment_bytes = memory.relog_segment_bytes();
    let input = NewLogInput {
        dir: &dir,
        manifest: &found,
        boot,
        replayed: &replayed,
        is_cut: cut,
        retention_bytes: retention,
        segment_bytes,
        ids: &ids,
    };
    let clocks = || (&counters, now.high_water());
    let (log, (manifest, dir_sync)) = write_log_and_manifest(input, &clocks)?;
    // The database is complete: cleanup that fails now is left for the next open.
    let catalog = CatalogState::clone(&manifest.lock());
    check_slow!(
        catalog.logs.last() == Some(&(log.writer.id(), log.first_lsn)),
        "the manifest lists the log segment that the database appends to",
        catalog.logs,
        log.writer.id()
    );
    check!(
        manifest.last_edit() == found.last_edit + 1,
        "the new manifest continues the numbers of the old one",
        manifest.last_edit(),
        found.last_edit
    );
    if !cut {
        remove_old_segments(&*dir, &found.catalog, &catalog);
    }
    trim_segments(&*dir, &log.retained_segments);
    let orphans = orphans::move_to_trash(&*dir, &catalog, manifest.last_edit(), cut).unwrap_or(0);

    let mut report = RecoveryReport {
        recovered_sequence: replayed.next_lsn.prev().0,
        replayed_operations: replayed.operations,
        truncated_bytes: replayed.cut_bytes + found.cut_bytes,
        reason: recovery_reason([&found.cut_reason, &replayed.cut_reason]),
        orphans,
        clean: found.catalog.clean_close.is_some(),
        peak_bytes: replayed.peak_bytes,
        elapsed_us: 0,
        changed_options: changed,
    };
    replayed.records = Vec::new();
    let clock = Arc::clone(&env.clock);
    let recovered = RecoveredState {
        memory,
        env,
        dir,
        identity: DatabaseIdentity { database: found.database, boot },
        settings,
        counters,
        now,
        table_cache,
        families,
        prepared,
        next_run: catalog.next_ids.run,
    };
    let flushed = found.catalog.families.iter().map(|(id, f)| (*id, f.flushed)).collect();
    // The following steps may need the memory.
    drop((found, catalog));
    let maintenance = assemble_engine(recovered, &mut replayed, log, manifest, dir_sync, ids)?;
    if replayed.is_deferred {
        let span = replayed.first_lsn..replayed.next_lsn;
        let done = catch_up_log(&maintenance, span, &flushed, &replayed.family_bytes)?;
        (report.replayed_operations, report.peak_bytes) =
            (done.operations, report.peak_bytes.max(done.peak_bytes));
    }
    maintenance.resources.add_freed_bytes(report.peak_bytes);
    maintenance.catalog.release_job_memory();
    report.elapsed_us = clock.monotonic_us().saturating_sub(start);
    Ok((maintenance, report))
}

/// Returns the bytes that replay may hold before it has to flush: the share of active memtables in
/// the memory budget.
fn replay_limit(memory: &MemoryBudget, table_cache: &TableCache, families: usize) -> u64 {
    let (all, filters) = (table_cache.resident_bytes(), table_cache.filter_bytes());
    let tables = table_cache.open_table_count();
    let objects = memory_shares::object_bytes(ObjectCounts { families, tables });
    let owners = MemoryUsage {
        indexes: all.saturating_sub(filters),
        filters,
        objects,
        ..MemoryUsage::default()
    };
    memory_shares::memtable_share(memory.limit, &owners) / 2
}

/// Writes the log and the manifest. On a full disk, frees space first and retries; if that is not
/// enough, keeps as much of the old log as can be trusted.
fn write_log_and_manifest<'a>(
    input: NewLogInput<'_>,
    clocks: &dyn Fn() -> (&'a Arc<Counters>, Arc<ClockHighWater>),
) -> Result<NewLogAndManifest> {
    let is_full =
        |w: &Result<NewLogAndManifest>| w.as_ref().is_err_and(|e| e.kind() == ErrorKind::NoSpace);
    let mode = if input.replayed.is_deferred { LogCopyMode::Unsynced } else { LogCopyMode::All };
    let mut written = new_log::write_new_log(input, mode, clocks());
    if is_full(&written) && reclaim_space(&**input.dir, input.manifest, input.boot, input.is_cut)? {
        written = new_log::write_new_log(input, mode, clocks());
    }
    for fallback in [LogCopyMode::Unsynced, LogCopyMode::RewriteInPlace] {
        if is_full(&written) && fallback != mode && !bug::is_active(Bug::FullDiskCopiesLog) {
            written = new_log::write_new_log(input, fallback, clocks());
        }
    }
    written
}

/// The new log, and the manifest that references it.
type NewLogAndManifest = (NewLog, (Manifest, Arc<DirSync>));

/// The state built by recovery before the log and the manifest are written.
struct RecoveredState {
    memory: MemoryBudget,
    env: Env,
    dir: Arc<dyn Dir>,
    identity: DatabaseIdentity,
    settings: Settings,
    counters: Arc<Counters>,
    now: Arc<LogicalClock>,
    table_cache: Arc<TableCache>,
    families: Families,
    prepared: Vec<(Arc<PreparedTables>, SpilledTables)>,
    next_run: RunId,
}

/// Constructs the subsystems from the recovered state, each from those below it; returns the
/// highest, which holds references to all others.
fn assemble_engine(
    recovered: RecoveredState,
    replayed: &mut ReplayResult,
    log: NewLog,
    manifest: Manifest,
    dir_sync: Arc<DirSync>,
    ids: Arc<AtomicU64>,
) -> Result<Arc<Maintenance>> {
    let RecoveredState { memory, env, dir, settings, counters, now, table_cache, .. } = recovered;
    let clock = settings.latency_stats.then(|| Arc::clone(&env.clock));
    let families = recovered.families;
    let expected = families.all().iter().map(|f| f.settings().memtable_bytes).min().unwrap_or(0);
    let (oldest_readable, named) = {
        let catalog = manifest.lock();
        (catalog.oldest_readable, catalog.snapshots.clone())
    };
    let named = if bug::is_active(Bug::LoseNamedSnapshot) { Default::default() } else { named };
    let (identity, shared) = (recovered.identity, Arc::clone(&counters));
    let runtime = Arc::new(Runtime::new(env, dir, settings, identity, shared, now, dir_sync));
    let shared_batches = std::mem::take(&mut replayed.shared_batches);
    let resources = Arc::new(Resources::new(runtime, memory, table_cache, shared_batches));
    let parts = CatalogParts {
        manifest,
        families,
        file_ids: ids,
        next_run: recovered.next_run,
        last_seq: replayed.next_lsn.prev(),
        named_snapshots: named,
        oldest_readable,
    };
    let txns = Arc::new(TxnManager::new(Arc::new(Catalog::new(resources, parts))));
    let lsns = log.first_lsn..replayed.next_lsn;
    let wal = Wal::new(log.older(), log.writer, lsns, expected, counters, clock);
    let log = Arc::new(Log::new(Arc::clone(&txns), wal));
    let prepared = std::mem::take(&mut replayed.prepared_txns);
    txns.restore_prepared(prepared.into_values().collect(), recovered.prepared)?;
    Ok(Arc::new(Maintenance::new(log)))
}

fn resolve_memory_budget(env: &Env, settings: &Settings) -> MemoryLimit {
    MemoryLimit(match settings.memory_budget {
        0 => memory_shares::default_budget(env.fs.memory_limit_bytes()),
        bytes => bytes,
    })
}

/// Returns the cache of open files of the directory. Without a limit of their own, the databases of
/// the process share half of the process's file limit; the other half is left to the application.
fn file_handles(env: &Env, dir: &Arc<dyn Dir>, settings: &Settings) -> Arc<FileHandleCache> {
    let files = env.fs.open_file_limiter();
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let limit = match settings.max_open_files {
        0 => {
            files.set_limit(count(env.fs.open_file_limit().map_or(u64::MAX, |n| n / 2)));
            HandleLimit::ProcessWide(Arc::clone(&files))
        }
        limit => HandleLimit::PerDirectory(count(limit.into())),
    };
    FileHandleCache::new(Arc::clone(dir), limit, &files)
}

/// Opens every table and value log of the catalog. A missing or damaged file is an error; nothing
/// has been written at this point.
fn open_families(
    catalog: &CatalogState,
    table_cache: &TableCache,
    now: &Arc<LogicalClock>,
    salvage: bool,
) -> Result<Vec<Arc<FamilyState>>> {
    let shared = SharedFileOpener::new(table_cache);
    let (mut all, mut last) = (Vec::new(), None);
    for (id, entry) in &catalog.families {
        let edit = VersionEdit {
            added: entry.added_tables(),
            vlogs_added: entry.vlogs.values().cloned().collect(),
            ..VersionEdit::default()
        };
        let salvaging =
            read_only::SalvageOpener { table_cache, comparator: entry.settings.comparator };
        let opener: &dyn FileOpener = if salvage { &salvaging } else { &shared };
        let version = Version::empty(entry.settings.comparator).apply(&edit, opener)?;
        let tree = LsmTree::new(version, now.clone());
        let settings = share_settings(&mut last, &entry.settings);
        let family = FamilyState::new(*id, entry.name.clone(), settings, tree);
        family.set_contents_start(entry.contents_start);
        all.push(Arc::new(family));
    }
    Ok(all)
}

/// Opens the tables of prepared transactions.
fn open_prepared(
    catalog: &CatalogState,
    families: &Families,
    opener: &dyn FileOpener,
) -> Result<Vec<(Arc<PreparedTables>, SpilledTables)>> {
    let open =
        |p: &Arc<PreparedTables>| Ok((Arc::clone(p), SpilledTables::open(p, families, opener)?));
    catalog.prepared.values().map(open).collect()
}

/// Returns a shared pointer to the settings. Successive column families with equal settings share
/// one allocation; `last`: the pointer returned by the previous call.
fn share_settings(
    last: &mut Option<Arc<FamilySettings>>,
    settings: &FamilySettings,
) -> Arc<FamilySettings> {
    match last {
        Some(last) if **last == *settings => Arc::clone(last),
        _ => Arc::clone(last.insert(Arc::new(settings.clone()))),
    }
}

/// Checks that custom comparators were registered by the caller for this database, not only
/// elsewhere in this process; likewise custom merge operators.
fn check_comparators(catalog: &CatalogState, settings: &Settings) -> Result<()> {
    for entry in catalog.families.values() {
        let mut known = entry.settings.comparator.check_registered(&settings.comparators);
        // Optional for read-only opens: reads of keys with operands return an error.
        if !settings.read_only && !settings.salvage_readonly {
            let merge_operator = entry.settings.merge_operator.as_ref();
            known = known.and_then(|()| settings.merge_operators.check_registered(merge_operator));
        }
        known.map_err(|e| {
            e.wrap(ErrorKind::InvalidArgument, &format!("column family {:?}", entry.name))
        })?;
    }
    Ok(())
}

/// Adopts the column-family settings given at open: compares them with the stored ones, fails if a
/// change is not allowed, and records the rest in the new manifest. Returns a description of the
/// changes.
fn adopt_settings(catalog: &mut CatalogState, settings: &Settings) -> Result<Vec<String>> {
    for (name, requested) in &settings.families {
        crate::ddl::check_family_name(name)?;
        requested.comparator.check_registered(&settings.comparators)?;
        requested.check()?;
    }
    let mut changed = Vec::new();
    for entry in catalog.families.values_mut() {
        // Read-only opens run no compactions.
        if !settings.read_only && !settings.salvage_readonly {
            entry.filter =
                settings.compaction_filters.check_filter_name(&entry.name, &entry.filter)?;
        }
        let requested = match &entry.name[..] {
            "default" => settings.default_family.as_ref(),
            name => settings.families.get(name),
        };
        let Some(requested) = requested else { continue };
        requested.check()?;
        entry.settings.check_change(requested, &entry.name)?;
        let lines = entry.settings.describe_changes(requested);
        changed.extend(lines.into_iter().map(|line| format!("{}: {line}", entry.name)));
        entry.settings = requested.clone();
    }
    Ok(changed)
}

/// Returns the column families with the settings of the catalog applied.
fn apply_family_settings(
    families: Vec<Arc<FamilyState>>,
    catalog: &CatalogState,
    settings: &Settings,
) -> Families {
    let (all, mut last) = (Families::default(), None);
    for f in families {
        if let Some(entry) = catalog.families.get(&f.id) {
            f.set_settings(share_settings(&mut last, &entry.settings));
            f.set_filter(settings.compaction_filters.filter_of_family(&entry.name));
            f.tree.set_merge_operator(
                settings.merge_operators.merger(entry.settings.merge_operator.as_ref()),
            );
        }
        check_slow!(
            catalog.families.contains_key(&f.id),
            "every open column family is in the catalog",
            f
        );
        all.insert(f);
    }
    check!(
        all.count() == catalog.families.len(),
        "every column family of the catalog is open",
        all.count(),
        catalog.families.len()
    );
    all
}

/// Frees space on a full disk: removes the ballast and, unless a log was truncated, files that no
/// manifest references. Returns true if that freed space. What was read is certain to be on disk if
/// the machine has rebooted since it was written.
fn reclaim_space(
    dir: &dyn Dir,
    found: &manifest_reader::RecoveredManifest,
    boot: u64,
    cut: bool,
) -> Result<bool> {
    let ballast = ballast::remove(dir)?;
    let durable = boot != 0 && found.boot != 0 && found.boot != boot;
    let orphans = !cut && orphans::remove_orphans(dir, &found.catalog, durable)?;
    Ok(ballast || orphans)
}
