//! What the rooms of the engine share: one plain struct, no behaviour but small queries.

use crate::ballast;
use crate::control::Control;
use crate::dirsync::DirSync;
use crate::events::{self, Event};
use crate::family::{Families, Family};
use crate::health::Health;
use crate::hooks::Hooks;
use crate::info_log::InfoLog;
use crate::intake::Intake;
use crate::listener::Audience;
use crate::locks::Locks;
use crate::manifest::Manifest;
use crate::memory::{self, Memory, Owners};
use crate::now::LogicalClock;
use crate::open_txns::OpenTxns;
use crate::passed::Passed;
use crate::prepared::Prepared;
use crate::pressure::{self, Load, Pressure};
use crate::retire::{Retire, sealed_bytes};
use crate::scrub::Scrub;
use crate::serial::Registry;
use crate::settings::Settings;
use crate::shared::SharedBatches;
use crate::signal::Signal;
use crate::snapshot::{Held, Readers, Snapshots};
use crate::space::Space;
use crate::stalls::Stalls;
use crate::throttle::Throttle;
use crate::wal::Wal;
use crate::watermark::Watermark;
use perigee_base::format::FileKind;
use perigee_base::latency::Operation;
use perigee_base::stats::Counters;
use perigee_base::{Error, ErrorKind, FileId, KeyOrder, SeqNo};
use perigee_env::sync::Mutex;
use perigee_env::{Dir, Env};
use perigee_file::{Shelf, name};
use perigee_tree::version::Opener;
use perigee_tree::{Table, TableMeta, Vlog, VlogMeta};
use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use std::sync::{Arc, PoisonError};

/// The log may hold this many times the largest memtable.
const LOG_MEMTABLES: u64 = 4;

/// The shared state of an open database.
#[derive(Debug)]
pub struct Core {
    /// The world.
    pub env: Env,
    /// The database directory.
    pub dir: Arc<dyn Dir>,
    /// Settings.
    pub settings: Settings,
    /// The database's id.
    pub database: u64,
    /// The boot id of this machine now.
    pub boot: u64,
    /// Counters.
    pub counters: Arc<Counters>,
    /// Makes names in the directory durable.
    pub dir_sync: Arc<DirSync>,
    /// May it write?
    pub health: Health,
    /// Rings when anything that is waited for changes.
    pub signal: Signal,
    /// The time for entries that expire.
    pub now: Arc<LogicalClock>,
    /// Who may hold how much memory.
    pub memory: Memory,
    /// Batches that several families share.
    pub shared: SharedBatches,
    /// Guards the last free space of the disk.
    pub space: Space,
    /// Grows when a writer was refused for want of space: jobs try again.
    pub retries: AtomicU64,
    /// Locks of transactions.
    pub locks: Arc<Locks>,
    /// Serializable transactions.
    pub serial: Arc<Registry>,
    /// Prepared transactions.
    pub prepared: Prepared,
    /// Transactions that have not ended.
    pub open_txns: Arc<OpenTxns>,
    /// Live snapshots.
    pub snapshots: Arc<Snapshots>,
    /// Those with a name, as the manifest has them.
    pub named: std::sync::Mutex<BTreeMap<String, Held>>,
    /// Files waiting to be deleted.
    pub retire: Retire,
    /// Table files.
    pub shelf: Arc<Shelf>,
    /// The log.
    pub wal: Wal,
    /// The manifest.
    pub manifest: Manifest,
    /// The users' key orders that families may have.
    pub orders: std::sync::RwLock<Vec<KeyOrder>>,
    /// The families.
    pub families: Families,
    /// The next file id.
    pub ids: Arc<AtomicU64>,
    /// The next run id of level 0.
    pub runs: AtomicU64,
    /// The last visible operation.
    pub visible: AtomicU64,
    /// The first operation that recovery has still to replay: its segment stays. `u64::MAX` when it is done.
    pub unreplayed: AtomicU64,
    /// Set when jobs must give up.
    pub closing: AtomicBool,
    /// What commit hooks have not heard yet.
    pub hooks: Hooks,
    /// One flush at a time, so that a family's memtables are installed oldest first.
    pub flushing: Mutex<()>,
    /// Loads at work on callers' threads: closing waits for them.
    pub loads: AtomicU64,
    /// One compaction at a time.
    pub compacting: Mutex<()>,
    /// Which jobs may start, and which run.
    pub control: Control,
    /// How far the running flush is, in thousandths of its memtable.
    pub flushed: AtomicU64,
    /// Tombstones that scans have passed.
    pub passed: Passed,
    /// What delayed writers owe.
    pub intake: Intake,
    /// Why writers waited so far.
    pub stalls: Stalls,
    /// How far the scrub is, and what it found.
    pub scrub: Scrub,
    /// The log for people.
    pub log: InfoLog,
    /// Who is told its lines.
    pub audience: Audience,
    /// How fast they may go.
    pub throttle: Throttle,
    /// When the log is to be synced next for an interval write (monotonic microseconds, `u64::MAX`: not).
    pub sync_due: AtomicU64,
    /// When the manifest is to record how far the log is durable.
    pub watermark: Watermark,
    /// The worst load of any family: sealed memtables (thousandths) in the high half, level 0 runs in the low.
    pub load: AtomicU64,
    /// Table bytes that merges would free, in thousandths of the others.
    pub waste: AtomicU64,
    /// The log may grow to this before the families with the oldest operations are flushed.
    pub log_bytes_max: AtomicU64,
    /// Held while the load or the limits are counted and stored, so that an older count never replaces a newer one. No I/O
    /// inside.
    pub refreshing: std::sync::Mutex<()>,
}

impl Core {
    /// The users' key orders that families may have now.
    pub fn orders(&self) -> Vec<KeyOrder> {
        self.orders.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Tells what happened.
    pub fn tell(&self, event: &Event<'_>) {
        if events::tell(&self.log, &self.audience, event) {
            self.signal.ring();
        }
    }
    /// The time, if this one of the operation is to be measured; `before` counts those before it.
    #[inline]
    pub fn start(&self, operation: Operation, before: u64) -> Option<u64> {
        let measured = self.settings.latency_stats && before % operation.one_in() == 0;
        measured.then(|| self.env.clock.monotonic_ns())
    }
    /// The end of what [`Core::start`] began.
    #[inline]
    pub fn stop(&self, operation: Operation, started: Option<u64>) {
        if let Some(started) = started {
            let took = self.env.clock.monotonic_ns().saturating_sub(started);
            self.counters.latency.of(operation).record(took);
        }
    }
    /// The last visible operation.
    pub fn visible(&self) -> SeqNo {
        SeqNo(self.visible.load(Acquire))
    }
    /// Whom a rewrite must respect; of operations up to which number, if it is not only a question.
    pub fn readers(&self, newest: Option<SeqNo>) -> Readers {
        let now = self.env.clock.monotonic_us();
        match newest {
            Some(newest) => self.snapshots.claim(&self.visible, now, newest),
            None => self.snapshots.readers(&self.visible, now),
        }
    }
    /// Looks at every family again; called where a memtable is sealed or a version installed.
    pub fn refresh_load(&self) {
        let _one_at_a_time = self.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut worst = (0, 0);
        let (mut active, mut sealed, mut parts) = (0, 0, 0);
        let (mut wasted, mut stored) = (0u64, 0u64);
        let families = self.families.all();
        for f in &families {
            let v = f.tree.view();
            v.sealed.iter().for_each(|m| self.retire.follow(m));
            let waiting = pressure::waiting(v.sealed.iter().map(|m| m.bytes()), f.settings().memtable_bytes);
            worst = (worst.0.max(waiting), worst.1.max(v.version.levels[0].len()));
            let waste = v.version.waste();
            (wasted, stored) = (wasted + waste.bytes, stored + waste.of);
            active += v.active.bytes();
            sealed += v.sealed.iter().map(|m| sealed_bytes(m)).sum::<u64>();
            parts += v.active.part_bytes();
        }
        self.load.store(worst.0.min(u64::from(u32::MAX)) << 32 | worst.1 as u64, SeqCst);
        self.waste.store(wasted.saturating_mul(1000) / stored.saturating_sub(wasted).max(1), SeqCst);
        let (held, held_parts) = self.retire.memtable_bytes();
        let (kept, parts) = (held.saturating_sub(sealed), parts + held_parts);
        let shared = self.shared.held().saturating_sub(parts);
        let objects = memory::object_bytes(families.len(), self.shelf.tables());
        self.memory.count((active, sealed), (shared, kept), objects);
        self.balance();
    }
    /// Who holds how much memory.
    pub fn owners(&self) -> Owners {
        let (all, filters) = (self.shelf.resident_bytes(), self.shelf.filter_bytes());
        let tables = (all.saturating_sub(filters), filters);
        self.memory.owners(self.shelf.cache().used_bytes(), tables, self.job_bytes())
    }
    /// Gives the block cache what the others leave.
    pub fn balance(&self) {
        let capacity = self.memory.balance(&self.owners());
        self.shelf.cache().set_capacity(capacity);
    }
    /// What the running jobs hold.
    pub fn job_bytes(&self) -> u64 {
        self.control.running().iter().map(|j| j.held_bytes()).sum()
    }
    /// Jobs or loads hold more or less than before: if it is much, the others are told.
    pub fn jobs_hold(&self) {
        if self.memory.jobs_changed(self.job_bytes()) {
            self.balance();
        }
    }
    /// A job is over: what it held is free, and perhaps it is time to hand freed memory back.
    pub fn job_over(&self) {
        self.memory.look_again();
        self.refresh_load();
        self.give_back();
    }
    /// Memtables grew: others give way, and if that freed much somebody looks whether it goes back to the system.
    pub fn memtables_grew(&self, bytes: u64) {
        if self.memory.grew(bytes) {
            self.balance();
            if self.memory.look_due() {
                self.signal.ring();
            }
        }
    }
    /// Hands freed memory back to the system, if the budget needs it.
    pub fn give_back(&self) {
        let resident = || self.env.fs.resident_bytes();
        if self.memory.give_back(self.env.clock.monotonic_us(), resident) {
            self.env.fs.give_back_memory();
        }
    }
    /// Makes the ballast, or makes it anew, where there is room. Called by one thread.
    pub fn keep_ballast(&self) {
        let (reserve, _) = self.space.status();
        if reserve > 0 && !ballast::is_full(&*self.dir) {
            let tables = |f: &Arc<Family>| -> u64 {
                f.tree.view().version.tables().map(|(_, _, t)| t.meta.summary.bytes).sum()
            };
            ballast::keep_up(&*self.dir, self.families.all().iter().map(tables).sum(), reserve);
        }
    }
    /// Derives what depends on the families' settings; called where families come and go.
    pub fn refresh_limits(&self) {
        let _one_at_a_time = self.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        let largest = self.families.all().iter().map(|f| f.settings().memtable_bytes).max().unwrap_or(0);
        self.log_bytes_max.store(largest.saturating_mul(LOG_MEMTABLES), SeqCst);
    }
    /// The back-pressure now.
    pub fn pressure(&self) -> Pressure {
        let load = self.load.load(SeqCst);
        pressure::pressure(Load {
            sealed: load >> 32,
            flushed: self.flushed.load(Relaxed),
            level0_runs: (load & 0xffff_ffff) as usize,
            memtable_full: self.log_bytes_max.load(Relaxed) / LOG_MEMTABLES,
            memtable_bytes: self.memory.memtables(),
            memtable_share: self.memory.share(),
            waste: self.waste.load(Relaxed),
            waste_max: u64::from(self.settings.space_amplification).saturating_sub(100) * 10,
        })
    }
    /// Makes creations in the database directory durable.
    pub fn sync_dir(&self) -> perigee_base::Result<()> {
        self.dir_sync.sync(&self.health)
    }
    /// Syncs the log; the watermark follows in the background.
    pub fn sync_log(&self) -> perigee_base::Result<u64> {
        let durable = self.wal.sync(&self.health)?;
        if self.watermark.set_time(|| self.env.clock.monotonic_us()) {
            self.signal.ring();
        }
        Ok(durable)
    }
    /// An opener of the files that edits add.
    pub fn opener(&self) -> ShelfOpener<'_> {
        ShelfOpener { shelf: &self.shelf }
    }
}

/// The shelf as the tree sees it.
#[derive(Debug)]
pub struct ShelfOpener<'a> {
    /// The shelf.
    pub shelf: &'a Shelf,
}

impl Opener for ShelfOpener<'_> {
    fn table(&self, meta: &TableMeta) -> perigee_base::Result<Arc<Table>> {
        let reader =
            self.shelf.klog(meta.id, meta.summary.bytes).map_err(|e| missing(e, meta.id, FileKind::Klog))?;
        if let Some(seq) = meta.stamp {
            reader.stamp(seq);
        }
        Ok(Arc::new(Table { meta: meta.clone(), reader }))
    }
    fn vlog(&self, meta: &VlogMeta) -> perigee_base::Result<Arc<Vlog>> {
        let reader = self.shelf.vlog(meta.id, meta.bytes).map_err(|e| missing(e, meta.id, FileKind::Vlog))?;
        Ok(Arc::new(Vlog { meta: meta.clone(), reader }))
    }
}

/// A file that the manifest names and nobody finds is damage, not a missing database.
fn missing(e: Error, id: FileId, kind: FileKind) -> Error {
    if e.kind() != ErrorKind::NotFound {
        return e;
    }
    Error::corruption("a file that the manifest names is missing").in_file(name::file_name(id, kind))
}

/// The next id for a file.
pub fn next_file(ids: &AtomicU64) -> FileId {
    FileId(ids.fetch_add(1, SeqCst))
}
