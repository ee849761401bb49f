//! The wiring: builds the rooms in layer order, closes them in reverse. The door of this crate.

use crate::commit::{self, Verdict, Writers, rotate};
use crate::control::Kind;
use crate::core::Core;
use crate::events::{self, Event};
use crate::family::Family;
use crate::feed::Feed;
use crate::jobs::{self, Workers};
use crate::load::{self, Load};
use crate::now::LogicalClock;
use crate::past;
use crate::prepared::Undecided;
use crate::recover;
use crate::report::{self, CacheStatus, FamilyStatus, Status, TableStatus};
use crate::safety::{Backed, Checkpointed, backup, checkpoint};
use crate::settings::{Durability, FamilySettings, Settings};
use crate::snapshot::Held;
use crate::spill::Files;
use crate::txn::{Txn, TxnSettings};
use crate::verify::{self, Verified};
use perigee_base::bug::{self, Bug};
use perigee_base::checksum::key_hash;
use perigee_base::latency::Operation;
use perigee_base::stats::Counters;
use perigee_base::{Error, ErrorKind, Result, SeqNo};
use perigee_env::fork::Process;
use perigee_env::fs::closable::ClosableDir;
use perigee_env::sim::is_simulated;
use perigee_env::sync::Mutex;
use perigee_env::{Dir, DirLock, Env, OpenDir};
use perigee_file::log::Batch;
use perigee_file::log::prepare::check_gid;
use perigee_file::name;
use perigee_tree::memtable::hashed::seed_hashes;
use perigee_tree::{Pin, View};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The lock on a directory whose recovery has failed.
#[derive(Debug)]
pub struct KeptLock {
    dir: Arc<dyn Dir>,
    process: Process,
    lock: Box<dyn DirLock>,
}

impl KeptLock {
    /// Whether it is this process's, and on the directory that is at `path` now: that one may have been replaced meanwhile.
    fn is_for(&self, path: &Path) -> Result<bool> {
        Ok(!self.process.is_forked() && self.dir.is_at(path)?)
    }
}

/// An open database. Dropping the last handle closes it.
pub struct Engine {
    pub(crate) core: Arc<Core>,
    writers: Writers,
    pub(crate) workers: Mutex<Option<Workers>>,
    recovery: recover::Report,
    path: PathBuf,
    identity: u64,
    pub(crate) dir: Arc<ClosableDir>,
    pub(crate) lock: Mutex<Option<Box<dyn DirLock>>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({})", self.path.display())
    }
}

impl Engine {
    /// Opens or creates the database in `path`.
    pub fn open(env: Env, path: &Path, settings: Settings) -> Result<Engine> {
        Engine::open_keeping(env, path, settings, &mut None)
    }
    /// Opens or creates the database in `path`; a lock on the directory that is in `kept` is used instead of a new one. After a failure
    /// of the recovery the lock is in `kept`, so that the next open follows without a moment in which the directory is not locked.
    pub fn open_keeping(
        env: Env,
        path: &Path,
        settings: Settings,
        kept: &mut Option<KeptLock>,
    ) -> Result<Engine> {
        let listener = settings.listener.clone();
        Engine::open_unheard(env, path, settings, kept).inspect_err(|e| events::refused(listener, e))
    }
    fn open_unheard(
        env: Env,
        path: &Path,
        settings: Settings,
        kept: &mut Option<KeptLock>,
    ) -> Result<Engine> {
        let _span = events::span("open", &path.to_string_lossy());
        settings.check()?;
        let mut settings = settings;
        settings.read_only |= settings.salvage;
        settings.create_if_missing &= !settings.read_only;
        let mode = if settings.create_if_missing { OpenDir::CreateIfMissing } else { OpenDir::Existing };
        if !is_simulated() {
            seed_hashes(env.rand.next_u64());
        }
        let files = env.fs.files();
        let inner = files.retry(|| env.fs.open_dir(path, mode))?;
        let closable = Arc::new(ClosableDir::over(Arc::clone(&inner), files)?);
        let dir: Arc<dyn Dir> = Arc::clone(&closable) as _;
        recover::foreign::check(&env, &*dir, settings.create_if_missing)?;
        if !settings.create_if_missing && dir.file_len(name::MANIFEST)?.is_none() {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("there is no database in {}", path.display()),
            ));
        }
        let boot = env.fs.boot_id();
        if settings.read_only {
            let (core, recovery) = recover::open_read_only(env, dir, boot, settings)?;
            core.tell(&report::opened(&core, &recovery));
            core.audience.call();
            return Ok(Engine::around(Arc::new(core), None, recovery, path, (closable, None)));
        }
        let lock = match kept.take() {
            Some(kept) if kept.is_for(path)? => kept.lock,
            _ => dir.lock(name::LOCK)?,
        };
        let (core, recovery) = match recover::open(env, dir, boot, settings) {
            Ok(opened) => opened,
            Err(e) => {
                *kept = Some(KeptLock { dir: inner, process: Process::this(), lock });
                return Err(e);
            }
        };
        core.tell(&report::opened(&core, &recovery));
        core.audience.call();
        let workers = jobs::start(&core)?;
        Ok(Engine::around(core, Some(workers), recovery, path, (closable, Some(lock))))
    }

    fn around(
        core: Arc<Core>,
        workers: Option<Workers>,
        recovery: recover::Report,
        path: &Path,
        (dir, lock): (Arc<ClosableDir>, Option<Box<dyn DirLock>>),
    ) -> Engine {
        let identity = core.database ^ key_hash(path.as_os_str().as_encoded_bytes());
        Engine {
            core,
            identity,
            writers: Writers::new(),
            workers: Mutex::new(workers),
            recovery,
            path: path.to_owned(),
            dir,
            lock: Mutex::new(lock),
        }
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Number of the database in this directory. A checkpoint has the database id of its source (the table files that they share
    /// name it), but not its families: their numbers part with the first one that is created on either side.
    pub fn identity(&self) -> u64 {
        self.identity
    }
    /// Commits a batch; `None`: with the database's durability.
    pub fn write(&self, batch: Batch, durability: Option<Durability>) -> Result<()> {
        self.write_as(Operation::Write, batch, durability).map(drop)
    }
    /// The same, measured as that operation; the number of the batch's last one.
    pub fn write_as(
        &self,
        operation: Operation,
        batch: Batch,
        durability: Option<Durability>,
    ) -> Result<SeqNo> {
        let started = self.core.start(operation, self.core.counters.commits.own());
        let durability = durability.unwrap_or(self.core.settings.durability);
        let written = commit::write(&self.core, &self.writers, batch, durability);
        match &written {
            Ok(_) => self.core.stop(operation, started),
            Err(e) if matches!(e.kind(), ErrorKind::OutcomeUnknown | ErrorKind::NoSpace | ErrorKind::Io) => {
                self.core.tell(&Event::Failed { what: "write", error: e });
            }
            Err(_) => {}
        }
        written
    }

    /// Begins a transaction.
    pub fn begin(&self, settings: TxnSettings) -> Result<Txn> {
        Txn::begin(&self.core, settings)
    }
    /// Commits a transaction, which has ended when this returns, whatever it returns; the number of its last operation (of the
    /// present, if it wrote nothing).
    ///
    /// # Errors
    /// `Conflict`: nothing of it happened, begin it anew. Those of [`Engine::write`].
    pub fn commit(&self, txn: &mut Txn, durability: Option<Durability>) -> Result<SeqNo> {
        if txn.is_spilled() {
            let done = txn.commit_spilled(&self.core);
            txn.end();
            return done;
        }
        let finished = txn.finish(&self.core);
        let durability = durability.unwrap_or(self.core.settings.durability);
        let started = self.core.start(Operation::Write, self.core.counters.commits.own());
        let done = finished.and_then(|(batch, conditions)| {
            commit::write_if(&self.core, &self.writers, batch, durability, conditions)
        });
        if done.is_ok() {
            self.core.stop(Operation::Write, started);
        }
        txn.end();
        done
    }
    /// Called before a transaction writes: what it cannot keep in memory goes to files.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: nothing has changed.
    #[inline]
    pub fn make_room(&self, txn: &mut Txn) -> Result<()> {
        if !txn.is_full() {
            return Ok(());
        }
        txn.make_room(&self.core, || Box::new(Files::new(&self.core)))
    }
    /// Prepares a transaction under an identifier, durably. It has ended when this returns, whatever it returns, unless the identifier
    /// cannot be had.
    pub fn prepare(&self, txn: &mut Txn, gid: &[u8]) -> Result<()> {
        check_gid(gid)?;
        let _mine = self.core.prepared.reserve(gid)?;
        txn.check_small()?;
        let level = txn.settings().isolation;
        let done = txn.finish_prepare(&self.core).and_then(|leaving| {
            let owner = leaving.locks.0;
            let done = commit::prepare(&self.core, &self.writers, gid, level, leaving);
            done.inspect_err(|_| txn.stays(owner))
        });
        txn.end();
        done
    }
    /// Decides over a prepared transaction, durably; the number of its last operation.
    pub fn decide(&self, gid: &[u8], verdict: Verdict) -> Result<SeqNo> {
        let done = commit::decide(&self.core, &self.writers, gid, verdict);
        self.core.hooks.call();
        done
    }
    /// The prepared transactions that nobody has decided.
    pub fn prepared(&self) -> Result<Vec<Arc<Undecided>>> {
        self.core.health.check_open()?;
        Ok(self.core.prepared.all())
    }
    /// Calls the commit hooks that are due, on a thread that holds nothing.
    pub fn call_hooks(&self) {
        self.core.hooks.call();
    }
    /// What transactions read.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// `Closed` if it is closed.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        self.core.health.check_open()
    }
    /// The newest view of a family, and the sequence number up to which to read it. The view is taken first: everything
    /// visible at the later number is in it, or newer than it as a whole.
    pub fn read_view(&self, family: &Family) -> Result<(Arc<View>, SeqNo)> {
        self.core.health.check_open()?;
        family.check()?;
        let view = family.tree.view();
        Ok((view, self.core.visible()))
    }
    /// The same for the time of one read: cheaper where many threads read at once.
    #[inline]
    pub fn pin_view(&self, family: &Family) -> Result<(Pin<View>, SeqNo)> {
        self.core.health.check_open()?;
        family.check()?;
        let view = family.tree.pin();
        Ok((view, self.core.visible()))
    }
    /// The view of a family for one read of a held snapshot.
    #[inline]
    pub fn pin(&self, family: &Family, held: &Held) -> Result<Pin<View>> {
        self.core.health.check_open()?;
        family.check()?;
        let view = family.tree.pin();
        family.check_held(held)?;
        Ok(view)
    }
    /// The view of a family for a held snapshot.
    pub fn view(&self, family: &Family, held: &Held) -> Result<Arc<View>> {
        self.core.health.check_open()?;
        family.check()?;
        let view = family.tree.view();
        family.check_held(held)?;
        Ok(view)
    }
    /// The time for entries that expire.
    pub fn clock(&self) -> &LogicalClock {
        &self.core.now
    }
    /// Somebody who knows says that the wall clock is right; what waited for that is looked at again.
    pub fn confirm_clock(&self) {
        self.core.now.confirm();
        self.core.signal.ring();
    }
    /// The number of the last operation that readers see.
    pub fn visible(&self) -> SeqNo {
        self.core.visible()
    }
    /// Holds on to the present.
    pub fn snapshot(&self) -> Result<Held> {
        self.core.health.check_open()?;
        Ok(self.core.snapshots.take(&self.core.visible))
    }
    /// Holds on to a number of the past.
    pub fn snapshot_at(&self, seq: SeqNo) -> Result<Held> {
        past::at(&self.core, seq)
    }
    /// The oldest number of the past that can be held.
    pub fn oldest_readable(&self) -> SeqNo {
        self.core.snapshots.floor()
    }
    /// Gives the present a name.
    pub fn create_snapshot(&self, name: &str) -> Result<SeqNo> {
        past::create(&self.core, name)
    }
    /// Holds on to what a name holds.
    pub fn named_snapshot(&self, name: &str) -> Result<Held> {
        past::find(&self.core, name)
    }
    /// Names of snapshots, with their numbers.
    pub fn named_snapshots(&self) -> Vec<(String, SeqNo)> {
        past::all(&self.core)
    }
    /// Forgets a name.
    pub fn drop_snapshot(&self, name: &str) -> Result<()> {
        past::drop_named(&self.core, name)
    }
    /// A feed of everything behind a number.
    pub fn feed(&self, since: SeqNo) -> Result<Feed> {
        Feed::new(&self.core, since)
    }
    /// Begins a point read: the time, if it is one that is measured.
    #[inline]
    pub fn start_get(&self) -> Option<u64> {
        self.core.start(Operation::Get, self.core.counters.gets.own())
    }
    /// Ends and counts a point read.
    #[inline]
    pub fn stop_get(&self, started: Option<u64>, hit: bool) {
        self.count_get(hit);
        self.core.stop(Operation::Get, started);
    }
    /// Begins another operation; `before` counts those before it.
    #[inline]
    pub fn start(&self, operation: Operation, before: u64) -> Option<u64> {
        self.core.start(operation, before)
    }
    /// Ends what was begun.
    #[inline]
    pub fn stop(&self, operation: Operation, started: Option<u64>) {
        self.core.stop(operation, started);
    }
    /// The time, for measuring.
    pub fn now_ns(&self) -> u64 {
        self.core.env.clock.monotonic_ns()
    }
    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }
    /// Scans passed so many tombstones: now and then jobs look whether that is to end.
    pub fn passed(&self, tombstones: u64) {
        self.core.counters.tombstones_passed.add(tombstones);
        if self.core.passed.add(tombstones) {
            self.core.signal.ring();
        }
    }
    /// Counts a point read.
    pub fn count_get(&self, hit: bool) {
        self.core.counters.gets.add(1);
        if hit {
            self.core.counters.get_hits.add(1);
        }
    }

    /// The family called `name`.
    pub fn family(&self, name: &str) -> Result<Arc<Family>> {
        self.core.health.check_open()?;
        self.core
            .families
            .by_name(name)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no family {name:?}")))
    }
    /// Names of all families.
    pub fn families(&self) -> Vec<String> {
        self.core.families.names()
    }
    /// Tells a change of the families, if it was made.
    fn told<T>(&self, changed: Result<T>, what: &str, name: &str) -> Result<T> {
        let _span = events::span("family", name);
        match &changed {
            Ok(_) => self.core.tell(&Event::Family { what, name }),
            Err(e) if e.kind() == ErrorKind::OutcomeUnknown => {
                self.core.tell(&Event::Failed { what: "a change of the families", error: e });
            }
            Err(_) => {}
        }
        changed
    }
    /// Creates a family.
    pub fn create_family(&self, name: &str, settings: FamilySettings) -> Result<Arc<Family>> {
        self.told(crate::ddl::create(&self.core, name, settings), "created", name)
    }
    /// The settings that were given at open.
    pub fn settings(&self) -> &Settings {
        &self.core.settings
    }
    /// The world.
    pub fn env(&self) -> &Env {
        &self.core.env
    }
    /// Gives a family other settings.
    pub fn set_family_settings(&self, family: &Family, settings: FamilySettings) -> Result<()> {
        self.told(crate::ddl::set_settings(&self.core, family, settings), "has other options", &family.name())
    }
    /// Drops a family.
    pub fn drop_family(&self, name: &str) -> Result<()> {
        self.told(crate::ddl::drop_family(&self.core, name), "dropped", name)
    }

    /// How many calls of commit hooks have panicked.
    pub fn hook_panics(&self) -> u64 {
        self.core.hooks.panics()
    }
    /// Starts a bulk load of a family.
    pub fn bulk_load(&self, family: &Arc<Family>) -> Result<Load> {
        Load::new(&self.core, family)
    }
    /// Ingests standalone tables: number, entries, bytes.
    pub fn ingest(&self, files: &[load::ingest::Files]) -> Result<(SeqNo, u64, u64)> {
        load::ingest(&self.core, files)
    }
    /// Publishes loads together.
    pub fn finish_loads(&self, loads: &mut [&mut Load]) -> Result<SeqNo> {
        load::finish(&self.core, loads)
    }
    /// Gives a family another name.
    pub fn rename_family(&self, name: &str, to: &str) -> Result<()> {
        self.told(crate::ddl::rename(&self.core, name, to), "renamed", to)
    }
    /// Removes everything in a family.
    pub fn clear_family(&self, name: &str) -> Result<()> {
        self.told(crate::ddl::clear(&self.core, name), "cleared", name)
    }
    /// Makes a family that begins as the present of another, and shares its files.
    pub fn clone_family(&self, source: &str, name: &str) -> Result<Arc<Family>> {
        crate::ddl::check_new(&self.core, name)?;
        let source = self.family(source)?;
        if !bug::on(Bug::CloneForgetsMemtable) {
            self.flush(&[Arc::clone(&source)])?;
        }
        self.told(crate::ddl::clone(&self.core, &source, name), "cloned", name)
    }

    /// Makes everything acknowledged durable.
    pub fn sync(&self) -> Result<()> {
        self.core.health.check_writable()?;
        self.core.sync_log().map(|_| ())
    }

    /// Seals the memtables of these families and waits until what was sealed is in tables.
    pub fn flush(&self, families: &[Arc<Family>]) -> Result<()> {
        self.core.health.check_writable()?;
        {
            let mut appender = self.core.wal.appender();
            self.core.health.check_writable()?;
            let full: Vec<_> =
                families.iter().filter(|f| !f.tree.view().active.is_empty()).cloned().collect();
            if !full.is_empty() {
                rotate::seal(&self.core, &mut appender, &full)?;
            }
        }
        let waiting: Vec<_> = families
            .iter()
            .flat_map(|f| {
                f.tree.view().sealed.iter().map(|m| (Arc::clone(f), Arc::clone(m))).collect::<Vec<_>>()
            })
            .collect();
        self.wait_until(|| !waiting.iter().any(|(f, m)| f.awaits_flush(m)))
    }

    /// Waits for flushes, unless they fail or are held back.
    fn wait_until(&self, done: impl Fn() -> bool) -> Result<()> {
        let failures = self.core.health.background_count();
        loop {
            let seen = self.core.signal.now();
            if done() {
                return Ok(());
            }
            self.core.health.check_writable()?;
            if let Some(e) = self.core.health.background_since(failures) {
                return Err(e);
            }
            // Held back, it would wait for ever if its caller is who holds it.
            if self.core.control.is_quiet(Some(Kind::Flush)) {
                self.core.control.check(Kind::Flush)?;
            }
            self.core.signal.wait_us(seen, 50_000);
        }
    }

    /// All families.
    pub fn all_families(&self) -> Vec<Arc<Family>> {
        self.core.families.all()
    }
    /// Makes a second database with the same contents in `target`.
    pub fn checkpoint(&self, target: &Path) -> Result<Checkpointed> {
        checkpoint::checkpoint(&self.core, target)
    }
    /// Makes a generation in the backup directory `path`.
    pub fn backup(&self, path: &Path, reread: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<Backed> {
        backup::backup(&self.core, path, reread, progress)
    }
    /// Reads and checks every byte.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified> {
        verify::verify(&self.core, progress)
    }
    /// Statistics.
    pub fn status(&self) -> Status {
        report::status(&self.core, &self.recovery)
    }
    /// Statistics of one family.
    pub fn family_status(&self, family: &Arc<Family>) -> FamilyStatus {
        report::family(&self.core, Arc::clone(family))
    }
    /// What is said of the block cache.
    pub fn cache_status(&self) -> CacheStatus {
        report::cache(&self.core)
    }
    /// Tables.
    pub fn tables(&self) -> Vec<TableStatus> {
        report::tables(&self.core)
    }
}
