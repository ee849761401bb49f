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

use crate::ballast;
use crate::core::EngineCore;
use crate::dir_sync::DirSync;
use crate::disk_space::DiskSpaceGuard;
use crate::events;
use crate::family::{Families, FamilyState};
use crate::health::Health;
use crate::info_log::InfoLog;
use crate::job_control::JobControl;
use crate::log_listener::ListenerQueue;
use crate::logical_clock::{ClockHighWater, LogicalClock};
use crate::manifest::{Catalog, Manifest};
use crate::memory_budget::{self, MemoryBudget, MemoryLimit, MemoryUsage, ObjectCounts};
use crate::obsolete_files::ObsoleteFiles;
use crate::rate_limiter::RateLimiter;
use crate::settings::{FamilySettings, Settings};
use crate::signal::Signal;
use crate::snapshot::SnapshotList;
use crate::wal::Wal;
use crate::watermark_timer::WatermarkTimer;
use crate::write_stalls::WriteStalls;
use catch_up::catch_up_log;
use new_log::{LogCopyMode, NewLog, NewLogInput, remove_old_segments, trim_segments};
use perigee_base::bug::{self, Bug};
use perigee_base::stats::Counters;
use perigee_base::{AtomicSeqNo, Bytes, Error, ErrorKind, Result, RunId, SeqNo};
use perigee_env::sync::Mutex;
use perigee_env::{Dir, DirOpenMode, Env};
use perigee_file::{BlockCache, FileHandleCache, HandleLimit, TableCache};
use perigee_tree::version::FileOpener;
use perigee_tree::{LsmTree, Version, VersionEdit};
pub use read_only::open_read_only;
use replay_result::ReplayResult;
use shared_opener::SharedFileOpener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

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
    let of = |f: &crate::manifest::CatalogFamily| {
        (f.name.clone(), f.settings.comparator.name().to_string(), !f.tables.is_empty())
    };
    Ok(found.catalog.families.values().map(of).collect())
}

/// Summary of a recovery.
#[derive(Clone, Debug, Default)]
pub struct RecoverySummary {
    /// Sequence number of the last operation.
    pub last_seq: SeqNo,
    /// Operations replayed from the log.
    pub replayed: u64,
    /// Bytes cut from the ends of logs.
    pub truncated_bytes: u64,
    /// The reasons for the truncation.
    pub reason: String,
    /// Files moved to the trash.
    pub orphans: u64,
    /// True if the last close was clean.
    pub clean: bool,
    /// Peak memory of the replay: memtables and records to be copied, in bytes.
    pub peak_bytes: u64,
    /// Duration of the recovery, in microseconds.
    pub elapsed_us: u64,
    /// Column-family settings that differ from the stored ones, as `family: name: old -> new`.
    pub changed_settings: Vec<String>,
}

/// Opens the database in `dir`. The caller holds the directory lock.
pub fn open_database(
    env: Env,
    dir: Arc<dyn Dir>,
    boot: u64,
    settings: Settings,
) -> Result<(Arc<EngineCore>, RecoverySummary)> {
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
        Arc::new(table_cache.with_buffer_bytes(memory_budget::file_buffer_bytes(memory.limit)));
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
    let catalog = manifest.catalog();
    if !cut {
        remove_old_segments(&*dir, &found.catalog, &catalog);
    }
    trim_segments(&*dir, &log.retained_segments);
    let orphans = orphans::move_to_trash(&*dir, &catalog, manifest.last_edit(), cut).unwrap_or(0);

    let mut report = RecoverySummary {
        last_seq: replayed.next_lsn.prev(),
        replayed: replayed.operations,
        truncated_bytes: replayed.cut_bytes + found.cut_bytes,
        reason: [found.cut_reason.clone(), replayed.cut_reason.clone()].concat(),
        orphans,
        clean: found.catalog.clean_close.is_some(),
        peak_bytes: replayed.peak_bytes,
        elapsed_us: 0,
        changed_settings: changed,
    };
    replayed.records = Vec::new();
    let clock = Arc::clone(&env.clock);
    let recovered = RecoveredState {
        memory,
        env,
        dir,
        boot,
        settings,
        counters,
        now,
        table_cache,
        families,
        database: found.database,
        next_run: catalog.next_ids.run,
    };
    let flushed = found.catalog.families.iter().map(|(id, f)| (*id, f.flushed)).collect();
    // The following steps may need the memory.
    drop((found, catalog));
    let core = assemble_core(recovered, &mut replayed, log, manifest, dir_sync, ids)?;
    let core = Arc::new(core);
    if replayed.is_deferred {
        let span = replayed.first_lsn..replayed.next_lsn;
        let done = catch_up_log(&core, span, &flushed, &replayed.family_bytes)?;
        (report.replayed, report.peak_bytes) =
            (done.operations, report.peak_bytes.max(done.peak_bytes));
    }
    core.memory_budget.add_freed_bytes(report.peak_bytes);
    core.release_job_memory();
    report.elapsed_us = clock.monotonic_us().saturating_sub(start);
    Ok((core, report))
}

/// Returns the bytes that replay may hold before it has to flush: the share of active memtables in
/// the memory budget.
fn replay_limit(memory: &MemoryBudget, table_cache: &TableCache, families: usize) -> u64 {
    let (all, filters) = (table_cache.resident_bytes(), table_cache.filter_bytes());
    let tables = table_cache.open_table_count();
    let objects = memory_budget::object_bytes(ObjectCounts { families, tables });
    let owners = MemoryUsage {
        indexes: all.saturating_sub(filters),
        filters,
        objects,
        ..MemoryUsage::default()
    };
    memory_budget::memtable_share(memory.limit, &owners) / 2
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
    boot: u64,
    settings: Settings,
    counters: Arc<Counters>,
    now: Arc<LogicalClock>,
    table_cache: Arc<TableCache>,
    families: Families,
    /// Database ID.
    database: u64,
    next_run: RunId,
}

/// Assembles the engine core from the recovered state.
fn assemble_core(
    recovered: RecoveredState,
    replayed: &mut ReplayResult,
    log: NewLog,
    manifest: Manifest,
    dir_sync: Arc<DirSync>,
    ids: Arc<AtomicU64>,
) -> Result<EngineCore> {
    let RecoveredState {
        memory,
        env,
        dir,
        boot,
        settings,
        counters,
        now,
        table_cache,
        families,
        database,
        next_run,
    } = recovered;
    let clock = settings.latency_stats.then(|| Arc::clone(&env.clock));
    let expected = families.all().iter().map(|f| f.settings().memtable_bytes).min().unwrap_or(0);
    let rate_limiter = RateLimiter::new(settings.background_bytes_per_second);
    let log_bytes = if settings.read_only { 0 } else { settings.log_file_bytes };
    let (oldest_readable, named) =
        manifest.with_catalog(|catalog| (catalog.oldest_readable, catalog.snapshots.clone()));
    let snapshots = Arc::new(SnapshotList::new(settings.history, oldest_readable));
    let named = if bug::is_active(Bug::LoseNamedSnapshot) { Default::default() } else { named };
    let named = named.into_iter().map(|(name, seq)| (name, snapshots.acquire_named(seq))).collect();
    let info_log =
        InfoLog::new(Arc::clone(&dir), Arc::clone(&env.clock), log_bytes, settings.log_files_kept);
    let listener_queue = ListenerQueue::new(settings.listener.clone());
    let core = EngineCore {
        memory_budget: memory,
        shared_batches: std::mem::take(&mut replayed.shared_batches),
        comparators: settings.comparators.clone().into(),
        disk_space: DiskSpaceGuard::new(settings.min_free_space),
        no_space_refusals: AtomicU64::new(0),
        info_log,
        listener_queue,
        wal: Wal::new(
            log.older(),
            log.writer,
            log.first_lsn..replayed.next_lsn,
            expected,
            Arc::clone(&counters),
            clock,
        ),
        next_run_id: AtomicU64::new(next_run.0),
        visible_seq: AtomicSeqNo::new(replayed.next_lsn.prev()),
        replay_position: AtomicSeqNo::new(SeqNo::MAX),
        database_id: database,
        env,
        dir,
        settings,
        boot_id: boot,
        counters,
        dir_sync,
        health: Health::default(),
        signal: Signal::new(),
        logical_clock: now,
        locks: Arc::default(),
        serializable_txns: Arc::default(),
        prepared_txns: Default::default(),
        open_txns: Arc::default(),
        snapshots,
        named_snapshots: std::sync::Mutex::new(named),
        obsolete_files: ObsoleteFiles::default(),
        table_cache,
        manifest,
        families,
        next_file_id: ids,
        closing: AtomicBool::new(false),
        commit_hooks: Default::default(),
        flush_lock: Mutex::new(()),
        running_loads: AtomicU64::new(0),
        compaction_lock: Mutex::new(()),
        job_control: JobControl::default(),
        flush_progress: AtomicU64::new(0),
        skipped_tombstones: Default::default(),
        write_throttle: Default::default(),
        write_stalls: WriteStalls::default(),
        scrub: Default::default(),
        rate_limiter,
        sync_due_us: AtomicU64::new(u64::MAX),
        watermark_timer: WatermarkTimer::default(),
        worst_family_load: AtomicU64::new(0),
        garbage_permille: AtomicU64::new(0),
        log_bytes_max: AtomicU64::new(0),
        refresh_lock: std::sync::Mutex::new(()),
    };
    core.refresh_limits();
    core.refresh_load();
    // History is counted from now on.
    core.live_snapshots(None);
    crate::commit::restore_prepared(
        &core,
        std::mem::take(&mut replayed.prepared_txns).into_values().collect(),
    )?;
    Ok(core)
}

fn resolve_memory_budget(env: &Env, settings: &Settings) -> MemoryLimit {
    MemoryLimit(match settings.memory_budget {
        0 => memory_budget::default_budget(env.fs.memory_limit_bytes()),
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
        limit => HandleLimit::PerDirectory(count(limit)),
    };
    FileHandleCache::new(Arc::clone(dir), limit, &files)
}

/// Opens every table and value log of the catalog. A missing or damaged file is an error; nothing
/// has been written at this point.
fn open_families(
    catalog: &Catalog,
    table_cache: &TableCache,
    now: &Arc<LogicalClock>,
    salvage: bool,
) -> Result<Vec<Arc<FamilyState>>> {
    let strict = crate::core::TableCacheOpener { table_cache };
    let shared = SharedFileOpener::new(crate::core::TableCacheOpener { table_cache });
    let (mut all, mut last) = (Vec::new(), None);
    for (id, entry) in &catalog.families {
        let edit = VersionEdit {
            added: entry.added_tables(),
            vlogs_added: entry.vlogs.values().cloned().collect(),
            ..VersionEdit::default()
        };
        let salvaging =
            read_only::SalvageOpener { strict: &strict, comparator: entry.settings.comparator };
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
fn check_comparators(catalog: &Catalog, settings: &Settings) -> Result<()> {
    for entry in catalog.families.values() {
        let mut known = entry.settings.comparator.check_registered(&settings.comparators);
        // Optional for read-only opens: reads of keys with operands return an error.
        if !settings.read_only && !settings.salvage {
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
fn adopt_settings(catalog: &mut Catalog, settings: &Settings) -> Result<Vec<String>> {
    for (name, requested) in &settings.families {
        crate::ddl::check_family_name(name)?;
        requested.comparator.check_registered(&settings.comparators)?;
        requested.check()?;
    }
    let mut changed = Vec::new();
    for entry in catalog.families.values_mut() {
        // Read-only opens run no compactions.
        if !settings.read_only && !settings.salvage {
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
    catalog: &Catalog,
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
        all.insert(f);
    }
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
