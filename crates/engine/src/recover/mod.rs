//! Opening a database: read everything, check it against itself, and only then write.
//!
//! The stages, each a file: `foreign` (refuses the directory of another program, before anything is created), `manifest` (the
//! catalog, or a new database), `replay` (the log, judged by the rules of `docs/format/log.md`), `relog` (the log and the manifest
//! that the database goes on with), `orphans` (files that nothing names), `catch_up` (a log that is larger than memory). Until
//! [`open`] says "from here on we write", a failure has changed no byte.

mod insert;
mod manifest;
mod manifest_follower;
mod orphans;
mod replayed;
pub mod foreign;
mod replay;
mod relog;
mod catch_up;
mod readonly;
mod sharing;

use crate::ballast;
use crate::control::Control;
use crate::core::Core;
use crate::dirsync::DirSync;
use crate::events;
use crate::family::{Families, Family};
use crate::health::Health;
use crate::info_log::InfoLog;
use crate::listener::Audience;
use crate::manifest::{Catalog, Manifest};
use crate::memory::{self, Memory, Owners};
use crate::now::{HighWater, LogicalClock};
use crate::retire::Retire;
use crate::settings::Settings;
use crate::signal::Signal;
use crate::snapshot::Snapshots;
use crate::space::Space;
use crate::stalls::Stalls;
use crate::throttle::Throttle;
use crate::wal::Wal;
use crate::watermark::Watermark;
use catch_up::{Span, catch_up};
use perigee_base::bug::{self, Bug};
use perigee_base::stats::Counters;
use perigee_base::{Error, ErrorKind, Result};
use perigee_env::sync::Mutex;
use perigee_env::{Dir, Env, OpenDir};
use perigee_file::{BlockCache, Handles, Limit, Shelf};
use perigee_tree::version::Opener;
use perigee_tree::{Tree, Version, VersionEdit};
pub use readonly::open_read_only;
use relog::{Anew, Copying, NewLog, remove_old, trim_all};
use replayed::Replayed;
use sharing::Sharing;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Names of the column families of the database in `path`, each with the name of its comparator and whether it has tables; read from
/// the manifest, without opening the database.
///
/// # Errors
/// `NotFound` if there is no database; `Corruption`, `FormatTooNew`, `Io`.
pub fn families(env: &Env, path: &Path) -> Result<Vec<(String, String, bool)>> {
    let dir = env.fs.open_dir(path, OpenDir::Existing)?;
    let found = manifest::read_existing(&*dir, env.fs.boot_id())?;
    let missing = || Error::new(ErrorKind::NotFound, format!("there is no database in {}", path.display()));
    let found = found.ok_or_else(missing)?;
    let of = |f: &crate::manifest::FamilyEntry| {
        (f.name.clone(), f.settings.order.name().to_string(), !f.tables.is_empty())
    };
    Ok(found.catalog.families.values().map(of).collect())
}

/// What recovery found and did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The last operation.
    pub recovered: u64,
    /// Operations replayed from the log.
    pub replayed: u64,
    /// Bytes cut from the ends of logs.
    pub truncated_bytes: u64,
    /// Why.
    pub reason: String,
    /// Files moved to the trash.
    pub orphans: u64,
    /// Whether the last close was clean.
    pub clean: bool,
    /// Most bytes that replay held at a time, in memtables and in records to be copied.
    pub peak_bytes: u64,
    /// How long it took.
    pub elapsed_us: u64,
    /// Family settings that differ from those stored before, `family: name: old -> new`.
    pub changed: Vec<String>,
}

/// Opens the database in `dir`, whose lock is held.
pub fn open(env: Env, dir: Arc<dyn Dir>, boot: u64, settings: Settings) -> Result<(Arc<Core>, Report)> {
    let start = env.clock.monotonic_us();
    let mut found = manifest::read(&env, &*dir, boot, &settings)?;
    check_orders(&found.catalog, &settings)?;
    if bug::on(Bug::DeleteUnknownFiles) {
        orphans::remove_all_unknown(&*dir, &found.catalog)?;
    }
    let counters = Arc::new(Counters::default());
    let memory = Memory::new(budget(&env, &settings), settings.block_cache_bytes);
    let cache = Arc::new(BlockCache::new(memory.cache_max.min(memory.budget)));
    let handles = handles(&env, &dir, &settings);
    let shelf =
        Shelf::with_open_files(Arc::clone(&dir), found.database, cache, Arc::clone(&counters), handles);
    let shelf = Arc::new(shelf.with_buffer_bytes(memory::buffer_bytes(memory.budget)));
    let clock = Arc::clone(&env.clock);
    let now = Arc::new(LogicalClock::new(clock, found.catalog.clock, Arc::clone(&counters)));
    let families = open_families(&found.catalog, &shelf, &now, false)?;
    let mut replayed = {
        let _span = events::span("recovery", "replay");
        replay::replay(&*dir, &found, boot, &families, replay_limit(&memory, &shelf, families.len()))?
    };
    let changed = adopt_settings(&mut found.catalog, &settings)?;
    let families = renew(families, &found.catalog, &settings);

    // From here on we write.
    let ids = Arc::new(AtomicU64::new(orphans::next_id(&*dir, &found.catalog)?));
    let cut = replayed.cut_bytes + found.cut_bytes > 0;
    let retention = settings.log_retention;
    let segment_bytes = memory.segment_bytes();
    let anew = Anew {
        dir: &dir,
        found: &found,
        boot,
        replayed: &replayed,
        cut,
        retention,
        segment_bytes,
        ids: &ids,
    };
    let clocks = || (&counters, now.high_water());
    let (log, (manifest, dir_sync)) = write_anew(anew, &clocks)?;
    // The database is whole already: what cannot be tidied now is left for the next open.
    let catalog = manifest.catalog();
    if !cut {
        remove_old(&*dir, &found.catalog, &catalog);
    }
    trim_all(&*dir, &log.kept);
    let orphans = orphans::tidy(&*dir, &catalog, manifest.edits(), cut).unwrap_or(0);

    let mut report = Report {
        recovered: replayed.next - 1,
        replayed: replayed.operations,
        truncated_bytes: replayed.cut_bytes + found.cut_bytes,
        reason: [found.cut_reason.clone(), replayed.cut_reason.clone()].concat(),
        orphans,
        clean: found.catalog.clean.is_some(),
        peak_bytes: replayed.peak_bytes,
        elapsed_us: 0,
        changed,
    };
    replayed.records = Vec::new();
    let clock = Arc::clone(&env.clock);
    let standing = Standing { memory, env, dir, boot, settings, counters, now, shelf, families };
    let flushed = found.catalog.families.iter().map(|(id, f)| (*id, f.flushed)).collect();
    let numbers = (found.database, catalog.next.2);
    // What follows may need the memory.
    drop((found, catalog));
    let core = assemble(standing, numbers, &mut replayed, log, (manifest, dir_sync), ids)?;
    let core = Arc::new(core);
    if replayed.deferred {
        let span = Span { from: replayed.first, to: replayed.next };
        let done = catch_up(&core, span, &flushed, &replayed.family_bytes)?;
        (report.replayed, report.peak_bytes) = (done.operations, report.peak_bytes.max(done.peak_bytes));
    }
    core.memory.freed(report.peak_bytes);
    core.job_over();
    report.elapsed_us = clock.monotonic_us().saturating_sub(start);
    Ok((core, report))
}

/// What replay may hold before it has to flush: as much as active memtables may before some of them are sealed.
fn replay_limit(memory: &Memory, shelf: &Shelf, families: usize) -> u64 {
    let (all, filters) = (shelf.resident_bytes(), shelf.filter_bytes());
    let objects = memory::object_bytes(families, shelf.tables());
    let owners = Owners { indexes: all.saturating_sub(filters), filters, objects, ..Owners::default() };
    memory::memtable_share(memory.budget, &owners) / 2
}

/// Writes the log and the manifest. A full disk needs room first; where there is none, as much of the old log stays as can be
/// trusted.
fn write_anew<'a>(
    anew: Anew<'_>,
    clocks: &dyn Fn() -> (&'a Arc<Counters>, Arc<HighWater>),
) -> Result<Written> {
    let is_full = |w: &Result<Written>| w.as_ref().is_err_and(|e| e.kind() == ErrorKind::NoSpace);
    let copying = if anew.replayed.deferred { Copying::Unsynced } else { Copying::All };
    let mut written = relog::write_anew(anew, copying, clocks());
    if is_full(&written) && make_room(&**anew.dir, anew.found, anew.boot, anew.cut)? {
        written = relog::write_anew(anew, copying, clocks());
    }
    for less in [Copying::Unsynced, Copying::Nothing] {
        if is_full(&written) && less != copying && !bug::on(Bug::FullDiskCopiesLog) {
            written = relog::write_anew(anew, less, clocks());
        }
    }
    written
}

/// The new log, and the manifest that names it.
type Written = (NewLog, (Manifest, Arc<DirSync>));

/// What recovery has built, before there is anything to write to.
struct Standing {
    memory: Memory,
    env: Env,
    dir: Arc<dyn Dir>,
    boot: u64,
    settings: Settings,
    counters: Arc<Counters>,
    now: Arc<LogicalClock>,
    shelf: Arc<Shelf>,
    families: Families,
}

/// Puts the rooms together.
fn assemble(
    standing: Standing,
    (database, runs): (u64, u64),
    replayed: &mut Replayed,
    log: NewLog,
    (manifest, dir_sync): (Manifest, Arc<DirSync>),
    ids: Arc<AtomicU64>,
) -> Result<Core> {
    let Standing { memory, env, dir, boot, settings, counters, now, shelf, families } = standing;
    let clock = settings.latency_stats.then(|| Arc::clone(&env.clock));
    let expected = families.all().iter().map(|f| f.settings().memtable_bytes).min().unwrap_or(0);
    let throttle = Throttle::new(settings.background_bytes_per_second);
    let log_bytes = if settings.read_only { 0 } else { settings.log_file_bytes };
    let (floor, named) = manifest.look(|catalog| (catalog.floor, catalog.snapshots.clone()));
    let snapshots = Arc::new(Snapshots::new(settings.history, floor));
    let named = if bug::on(Bug::ForgetNamedSnapshot) { Default::default() } else { named };
    let named = named.into_iter().map(|(name, seq)| (name, snapshots.hold(seq))).collect();
    let info_log = InfoLog::new(Arc::clone(&dir), Arc::clone(&env.clock), log_bytes, settings.log_files_kept);
    let audience = Audience::new(settings.listener.clone());
    let core = Core {
        memory,
        shared: std::mem::take(&mut replayed.shared),
        orders: settings.orders.clone().into(),
        space: Space::new(settings.min_free_space),
        retries: AtomicU64::new(0),
        log: info_log,
        audience,
        wal: Wal::new(
            log.older(),
            log.writer,
            (log.first, replayed.next),
            expected,
            Arc::clone(&counters),
            clock,
        ),
        runs: AtomicU64::new(runs),
        visible: AtomicU64::new(replayed.next - 1),
        unreplayed: AtomicU64::new(u64::MAX),
        database,
        env,
        dir,
        settings,
        boot,
        counters,
        dir_sync,
        health: Health::default(),
        signal: Signal::new(),
        now,
        locks: Arc::default(),
        serial: Arc::default(),
        prepared: Default::default(),
        open_txns: Arc::default(),
        snapshots,
        named: std::sync::Mutex::new(named),
        retire: Retire::default(),
        shelf,
        manifest,
        families,
        ids,
        closing: AtomicBool::new(false),
        hooks: Default::default(),
        flushing: Mutex::new(()),
        loads: AtomicU64::new(0),
        compacting: Mutex::new(()),
        control: Control::default(),
        flushed: AtomicU64::new(0),
        passed: Default::default(),
        intake: Default::default(),
        stalls: Stalls::default(),
        scrub: Default::default(),
        throttle,
        sync_due: AtomicU64::new(u64::MAX),
        watermark: Watermark::default(),
        load: AtomicU64::new(0),
        waste: AtomicU64::new(0),
        log_bytes_max: AtomicU64::new(0),
        refreshing: std::sync::Mutex::new(()),
    };
    core.refresh_limits();
    core.refresh_load();
    // History counts from now.
    core.readers(None);
    crate::commit::restore(&core, std::mem::take(&mut replayed.undecided).into_values().collect())?;
    Ok(core)
}

fn budget(env: &Env, settings: &Settings) -> u64 {
    match settings.memory_budget {
        0 => memory::default_budget(env.fs.memory_bytes()),
        bytes => bytes,
    }
}

/// The open files of the directory. Without a limit of its own the databases of the process share half of what it may have
/// open: the other half is the application's.
fn handles(env: &Env, dir: &Arc<dyn Dir>, settings: &Settings) -> Arc<Handles> {
    let files = env.fs.files();
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let limit = match settings.max_open_files {
        0 => {
            files.set_limit(count(env.fs.open_files().map_or(u64::MAX, |n| n / 2)));
            Limit::Shared(Arc::clone(&files))
        }
        limit => Limit::Own(count(limit)),
    };
    Handles::new(Arc::clone(dir), limit, &files)
}

/// Opens every table and value log of the catalog: a missing or damaged one is an error, and nothing was written.
fn open_families(
    catalog: &Catalog,
    shelf: &Shelf,
    now: &Arc<LogicalClock>,
    salvage: bool,
) -> Result<Vec<Arc<Family>>> {
    let strict = crate::core::ShelfOpener { shelf };
    let shared = Sharing::new(crate::core::ShelfOpener { shelf });
    let mut all = Vec::new();
    for (id, entry) in &catalog.families {
        let edit = VersionEdit {
            added: entry.added(),
            vlogs_added: entry.vlogs.values().cloned().collect(),
            ..VersionEdit::default()
        };
        let salvaging = readonly::SalvageOpener { strict: &strict, order: entry.settings.order };
        let opener: &dyn Opener = if salvage { &salvaging } else { &shared };
        let version = Version::empty(entry.settings.order).apply(&edit, opener)?;
        let tree = Tree::new(version, now.clone());
        let family = Family::new(*id, entry.name.clone(), entry.settings.clone(), tree);
        family.set_begun(entry.begun);
        all.push(Arc::new(family));
    }
    Ok(all)
}

/// A user's order must be one that the caller registered for this database, not only somewhere in this process; so must a user's
/// merge operator.
fn check_orders(catalog: &Catalog, settings: &Settings) -> Result<()> {
    for entry in catalog.families.values() {
        let mut known = entry.settings.order.check_known(&settings.orders);
        // Who only reads may go without: keys with operands answer with an error.
        if !settings.read_only && !settings.salvage {
            let rule = entry.settings.merge_operator.as_ref();
            known = known.and_then(|()| settings.operators.check_known(rule));
        }
        known.map_err(|e| e.wrap(ErrorKind::InvalidArgument, &format!("family {:?}", entry.name)))?;
    }
    Ok(())
}

/// Takes over settings that were given at open: compared with those stored, refused if they cannot be, else recorded
/// with the new manifest. What changed.
fn adopt_settings(catalog: &mut Catalog, settings: &Settings) -> Result<Vec<String>> {
    for (name, wanted) in &settings.families {
        crate::ddl::check_name(name)?;
        wanted.order.check_known(&settings.orders)?;
        wanted.check()?;
    }
    let mut changed = Vec::new();
    for entry in catalog.families.values_mut() {
        // Who only reads compacts nothing.
        if !settings.read_only && !settings.salvage {
            entry.filter = settings.filters.adopt(&entry.name, &entry.filter)?;
        }
        let wanted = match &entry.name[..] {
            "default" => settings.default_family.as_ref(),
            name => settings.families.get(name),
        };
        let Some(wanted) = wanted else { continue };
        wanted.check()?;
        entry.settings.may_become(wanted, &entry.name)?;
        let lines = entry.settings.changes(wanted);
        changed.extend(lines.into_iter().map(|line| format!("{}: {line}", entry.name)));
        entry.settings = wanted.clone();
    }
    Ok(changed)
}

/// The same families under the settings of the catalog.
fn renew(families: Vec<Arc<Family>>, catalog: &Catalog, settings: &Settings) -> Families {
    let all = Families::default();
    for f in families {
        if let Some(entry) = catalog.families.get(&f.id) {
            f.set_settings(entry.settings.clone());
            f.set_filter(settings.filters.of(&entry.name));
            f.tree.set_merger(settings.operators.merger(entry.settings.merge_operator.as_ref()));
        }
        all.insert(f);
    }
    all
}

/// A disk without a free byte: the ballast goes, and, if nothing was cut, what no manifest names. Whether that made room.
/// What was read is certainly on the disk if the machine has started anew since it was written.
fn make_room(dir: &dyn Dir, found: &manifest::Found, boot: u64, cut: bool) -> Result<bool> {
    let ballast = ballast::give_up(dir)?;
    let durable = boot != 0 && found.boot != 0 && found.boot != boot;
    let orphans = !cut && orphans::make_room(dir, &found.catalog, durable)?;
    Ok(ballast || orphans)
}
