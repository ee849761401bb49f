//! Opening a database: read everything, check it against itself, and only then write.
//!
//! The stages, each a file: `manifest` (the catalog, or a new database), `replay` (the log, judged by the rules of
//! `docs/format/log.md`), `orphans` (files that nothing names). Until [`open`] says "from here on we write", a failure has
//! changed no byte.

mod manifest;
mod orphans;
mod replay;
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
use crate::manifest::{Catalog, Edit, Manifest, Place, write_snapshot};
use crate::memory::{self, Memory};
use crate::now::{HighWater, LogicalClock};
use crate::retire::Retire;
use crate::settings::Settings;
use crate::signal::Signal;
use crate::snapshot::Snapshots;
use crate::space::Space;
use crate::stalls::Stalls;
use crate::throttle::Throttle;
use crate::wal::{Wal, keep, trim};
use perigee_base::bug::{self, Bug};
use perigee_base::format::{FileHeader, FileKind};
use perigee_base::stats::Counters;
use perigee_base::{Error, ErrorKind, FileId, Result};
use perigee_env::sync::Mutex;
use perigee_env::{Dir, Env};
use perigee_file::log::batch::Finished;
use perigee_file::log::{LogWriter, Stamp};
use perigee_file::{BlockCache, Handles, Limit, Shelf, name};
use perigee_tree::version::Opener;
use perigee_tree::{Tree, Version, VersionEdit};
pub use readonly::open_read_only;
use replay::Replayed;
use sharing::Sharing;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

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
    /// How long it took.
    pub elapsed_us: u64,
    /// Family settings that differ from those stored before, `family: name: old -> new`.
    pub changed: Vec<String>,
}

/// Opens the database in `dir`, whose lock is held.
pub fn open(env: Env, dir: Arc<dyn Dir>, boot: u64, settings: Settings) -> Result<(Core, Report)> {
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
        replay::replay(&*dir, &found, boot, &families)?
    };
    let changed = adopt_settings(&mut found.catalog, &settings)?;
    let families = renew(families, &found.catalog, &settings);

    // From here on we write.
    let ids = Arc::new(AtomicU64::new(orphans::next_id(&*dir, &found.catalog)?));
    let cut = replayed.cut_bytes + found.cut_bytes > 0;
    let write = |found: &manifest::Found| {
        let limit = settings.log_retention;
        write_anew(&dir, found, boot, (&replayed, limit), &ids, (&counters, now.high_water()))
    };
    let written = match write(&found) {
        Err(full) if full.kind() == ErrorKind::NoSpace && make_room(&*dir, &found, boot, cut)? => {
            write(&found)
        }
        written => written,
    };
    let (writer, (manifest, dir_sync)) = written?;
    // The database is whole already: what cannot be tidied now is left for the next open.
    let catalog = manifest.catalog();
    if !cut {
        remove_copied(&*dir, &found.catalog, &catalog);
    }
    let orphans = orphans::tidy(&*dir, &catalog, manifest.edits(), cut).unwrap_or(0);

    let report = Report {
        recovered: replayed.next - 1,
        replayed: replayed.operations,
        truncated_bytes: replayed.cut_bytes + found.cut_bytes,
        reason: [found.cut_reason.clone(), replayed.cut_reason.clone()].concat(),
        orphans,
        clean: found.catalog.clean.is_some(),
        elapsed_us: env.clock.monotonic_us().saturating_sub(start),
        changed,
    };
    let standing = Standing { memory, env, dir, boot, settings, counters, now, shelf, families };
    let core = assemble(
        standing,
        (found.database, catalog.next.2),
        &mut replayed,
        writer,
        (manifest, dir_sync),
        ids,
    )?;
    Ok((core, report))
}

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
    writer: LogWriter,
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
    let log = InfoLog::new(Arc::clone(&dir), Arc::clone(&env.clock), log_bytes, settings.log_files_kept);
    let audience = Audience::new(settings.listener.clone());
    let core = Core {
        memory,
        shared: std::mem::take(&mut replayed.shared),
        orders: settings.orders.clone().into(),
        space: Space::new(settings.min_free_space),
        retries: AtomicU64::new(0),
        log,
        audience,
        wal: Wal::new(writer, (replayed.first, replayed.next), expected, Arc::clone(&counters), clock),
        runs: AtomicU64::new(runs),
        visible: AtomicU64::new(replayed.next - 1),
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

/// The fresh segment, then the manifest that names it. What fails leaves nothing behind.
fn write_anew(
    dir: &Arc<dyn Dir>,
    found: &manifest::Found,
    boot: u64,
    (replayed, retention): (&Replayed, u64),
    ids: &AtomicU64,
    clocks: (&Arc<Counters>, Arc<HighWater>),
) -> Result<(LogWriter, (Manifest, Arc<DirSync>))> {
    let log_id = crate::core::next_file(ids);
    let written = copy_log(&**dir, found, boot, replayed, log_id).and_then(|writer| {
        let made = new_manifest(dir, found, boot, (replayed, retention), &writer, ids, clocks)?;
        Ok((writer, made))
    });
    written.inspect_err(|e| undo(&**dir, log_id, e))
}

/// Copies what is not yet in tables into a fresh segment, durable before anything names it. Old bytes are not made
/// durable by syncing the old file: a sync that failed in an earlier process may now be answered with success.
fn copy_log(
    dir: &dyn Dir,
    found: &manifest::Found,
    boot: u64,
    replayed: &Replayed,
    id: FileId,
) -> Result<LogWriter> {
    let header =
        FileHeader { kind: FileKind::Wal, database: found.database, file: id, a: replayed.first, b: boot };
    let mut writer = LogWriter::create(dir, &name::file_name(id, FileKind::Wal), &header)?;
    let mut lsn = replayed.first;
    for record in &replayed.records {
        // No edit is vouched for: the last ones may have been read from the page cache of a process that was killed, and
        // a power cut during this open may still lose them.
        let stamp = Stamp { lsn, durable: lsn - 1, edits: 0 };
        let mut copy = Finished::around(record.kind, record.payload(), record.count);
        writer.append(stamp, &mut [&mut copy])?;
        lsn += u64::from(record.count);
    }
    if lsn != replayed.next {
        return Err(Error::internal(format!("the copied log ends at {lsn} instead of {}", replayed.next)));
    }
    writer.file().sync()?;
    dir.sync()?;
    writer.allocate_ahead(0)?;
    Ok(writer)
}

/// The old segments, whose operations are in tables or in the fresh one, but for those that stay for readers: they lose what does
/// not count any more. (After a cut all this goes to the trash, or stays as it is, so that it can be looked at.)
fn remove_copied(dir: &dyn Dir, old: &Catalog, new: &Catalog) {
    let before = old.retained.iter().map(|s| s.id).chain(old.logs.iter().map(|(id, _)| *id));
    for id in before.filter(|id| !new.retained.iter().any(|s| s.id == *id)) {
        let _ = dir.remove(&name::file_name(id, FileKind::Wal));
    }
    for span in &new.retained {
        let _ = trim(dir, span);
    }
}

/// An open that fails leaves no new files behind: on a full disk the next attempt needs their space. Whether a manifest
/// whose rename was not synced names the log is unknown; then both stay.
fn undo(dir: &dyn Dir, log: FileId, e: &Error) {
    if e.kind() != ErrorKind::OutcomeUnknown {
        let _ = dir.remove(name::MANIFEST_TMP);
        let _ = dir.remove(&name::file_name(log, FileKind::Wal));
    }
}

fn new_manifest(
    dir: &Arc<dyn Dir>,
    found: &manifest::Found,
    boot: u64,
    (replayed, retention): (&Replayed, u64),
    writer: &LogWriter,
    ids: &AtomicU64,
    (counters, clock): (&Arc<Counters>, Arc<HighWater>),
) -> Result<(Manifest, Arc<DirSync>)> {
    let id: FileId = crate::core::next_file(ids);
    let mut catalog = found.catalog.clone();
    catalog.logs = vec![(writer.id(), replayed.first)];
    (catalog.retained, _) = keep(&catalog.retained, &replayed.complete, retention);
    catalog.forget_events();
    let next = Edit { next: Some((id.0 + 1, 0, 0)), durable: Some(replayed.next - 1), ..Edit::default() };
    catalog.apply(&next)?;
    let edit = found.edits + 1;
    let place = Place { database: found.database, boot };
    let log = write_snapshot(&**dir, place, id, edit, &catalog, || dir.sync())?;
    let dir_sync = Arc::new(DirSync::new(Arc::clone(dir)));
    let manifest = Manifest::new(
        Arc::clone(dir),
        Arc::clone(&dir_sync),
        place,
        log,
        edit,
        catalog,
        Arc::clone(counters),
        clock,
    );
    Ok((manifest, dir_sync))
}
