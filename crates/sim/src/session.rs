//! One session of a simulated database: opens it, compares with the ledger, lets writers run
//! scripts, then crashes or closes. Shared by the crash, fault and exhaustive drivers.

use crate::contents::read_all;
use crate::engine_target::{PATH, check_report};
use crate::family_incarnations::FamilyDdl;
use crate::ledger::{COUNTER_FAMILY, CommitOutcome, Ledger, Put, RequiredCommits, SHARED_KEY};
use crate::rng::{Rng, mix, value_bytes};
use crate::runner::{Case, lock_mutex};
use crate::settings::Settings;
use crate::table_commits;
use perigee::env::Env;
use perigee::{Db, Durability, Error, ErrorKind, Family, WriteBatch, WriteOptions};
use perigee_env::fs::memory::{Crash, SimDisk};
use perigee_env::sim::SimWorld;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Column family that writer 0 creates, clears and drops.
pub const CHANGING_FAMILY: &str = "x";
/// Name that it is renamed to, and name of its clone.
pub const RENAMED_FAMILY: &str = "x2";
/// Permanent column families besides the default one.
const STEADY_FAMILIES: [&str; 2] = ["a", "b"];

/// What a commit writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitSpec {
    /// A few random writes over all column families.
    Random(u64),
    /// One key in the default column family.
    OneKey,
    /// One key in each of two column families.
    TwoFamilies,
    /// A delete of the key of [`CommitSpec::OneKey`].
    Delete,
    /// One key in the column family that is created and dropped; nothing if it does not exist.
    ChangingFamily,
}

/// One step of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Commits, with the database's durability or its own.
    Commit(CommitSpec, Option<Durability>),
    /// Bulk load into all column families, with this memory limit.
    Load(u64, usize),
    /// A transaction whose values are written in parts, each to a file of its own.
    PutInParts(u64),
    /// `sync`.
    Sync,
    /// `flush`.
    Flush,
    /// `compact`.
    Compact,
    /// Cancels running compactions, and allows them again after this many microseconds.
    CancelCompactions(u64),
    /// `compact_range` over some of the keys.
    CompactRange(u64),
    /// Creates or drops the changing column family.
    CreateOrDropFamily,
    /// Clears the changing column family; nothing if it does not exist.
    ClearFamily,
    /// Clones the changing column family, or drops the clone.
    CloneFamily,
    /// Renames the changing column family, or renames it back.
    RenameFamily,
    /// Sleeps, in microseconds.
    Sleep(u64),
    /// Waits for background work.
    WaitIdle,
    /// Lets the feed consumer read what is durable by now.
    PollChanges,
}

/// When the machine crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// At the n-th mutating I/O of this session, opening included.
    Io(u64),
    /// At the n-th mutating I/O after opening.
    IoAfterOpen(u64),
    /// When the writers are done, without closing.
    WritersDone,
    /// Never: the database is closed.
    CleanClose,
}

/// Plan of a session.
#[derive(Clone, Debug)]
pub struct DbSession {
    /// Seed of its simulated environment and its crash.
    pub seed: u64,
    /// Settings of the database.
    pub settings: Settings,
    /// A script for each writer.
    pub scripts: Vec<Vec<Action>>,
    /// True if every commit writes the shared key in all column families.
    pub write_shared_key: bool,
    /// When it ends.
    pub crash_point: CrashPoint,
    /// Kind of crash.
    pub crash_kind: Crash,
    /// True to run `verify` after opening.
    pub verify: bool,
}

/// Result of a session.
pub struct SessionResult {
    /// Disk as the next session finds it.
    pub disk: Arc<SimDisk>,
    /// Commits that the next session must find.
    pub required: RequiredCommits,
    /// Mutating I/Os of the whole session, and of its open.
    pub ios: (u64, u64),
    /// True if the planned crash point was reached.
    pub crashed: bool,
    /// True if that was before the database had been opened and compared.
    pub crashed_in_open: bool,
}

/// State shared by a session and its writers.
pub(crate) struct SessionState {
    pub(crate) db: Db,
    pub(crate) env: Env,
    pub(crate) disk: Arc<SimDisk>,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    pub(crate) settings: Settings,
    pub(crate) write_shared_key: bool,
    pub(crate) failure: Mutex<Option<String>>,
}

impl DbSession {
    /// Runs the session. `required` says what the open must find. `Err` describes a broken
    /// guarantee.
    pub fn run(
        &self,
        case: &Case,
        disk: Arc<SimDisk>,
        ledger: &Arc<Mutex<Ledger>>,
        required: RequiredCommits,
    ) -> Result<SessionResult, String> {
        case.keep_disk(&format!("before-{:x}", self.seed), &disk.deep_clone());
        case.keep_disk(&format!("after-{:x}", self.seed), &disk);
        if let CrashPoint::Io(n) = self.crash_point {
            disk.crash_at(n);
        }
        SimWorld::new(self.seed)
            .run(disk.clone(), |env| self.run_simulated(env, &disk, ledger, required))
    }

    fn run_simulated(
        &self,
        env: Env,
        disk: &Arc<SimDisk>,
        ledger: &Arc<Mutex<Ledger>>,
        required: RequiredCommits,
    ) -> Result<SessionResult, String> {
        let before = disk.mutating_calls();
        let db = match Db::open(Path::new(PATH), self.settings.options(env.clone())) {
            Ok(db) => db,
            Err(_) if disk.crashed() => {
                return Ok(self.crashed_before_open(disk, ledger, required, before));
            }
            Err(e) => return Err(format!("open failed: {e}")),
        };
        let opened = disk.mutating_calls();
        if let CrashPoint::IoAfterOpen(n) = self.crash_point {
            disk.crash_at(n);
        }
        match self.check_recovered(&db, ledger, required) {
            Ok(()) => {}
            Err(_) if disk.crashed() => {
                return Ok(self.crashed_before_open(disk, ledger, required, before));
            }
            Err(e) => return Err(e),
        }
        let shared = Arc::new(SessionState {
            db,
            env,
            disk: disk.clone(),
            ledger: ledger.clone(),
            settings: self.settings.clone(),
            write_shared_key: self.write_shared_key,
            failure: Mutex::new(None),
        });
        self.run_writers(&shared)?;
        let after = self.finish(&shared, before, opened);
        let wrong = lock_mutex(&shared.failure).take();
        wrong.map_or(after, Err)
    }

    /// Reads everything and checks it against the ledger.
    fn check_recovered(
        &self,
        db: &Db,
        ledger: &Arc<Mutex<Ledger>>,
        required: RequiredCommits,
    ) -> Result<(), String> {
        let found = read_all(db).map_err(|e| format!("reading after open: {e}"))?;
        let recovery = db.admin().stats().recovery;
        let mut known = lock_mutex(ledger);
        let ends = known.check_recovered(&found, required).map_err(|e| {
            format!("{e}\n  required {required:?}, {recovery:?}\n  {:?}", known.families)
        })?;
        known.discard_lost_commits(&ends, &found);
        let mut past = std::mem::take(&mut known.history);
        drop(known);
        let looked = past.check_all(db, &found, &self.settings, self.seed);
        lock_mutex(ledger).history = past;
        looked?;
        if self.verify {
            let report = db.admin().verify().map_err(|e| format!("verify: {e}"))?;
            check_report(&report).map_err(|e| format!("verify found: {e}"))?;
        }
        Ok(())
    }

    fn run_writers(&self, shared: &Arc<SessionState>) -> Result<(), String> {
        if self.scripts.iter().all(Vec::is_empty) {
            return Ok(());
        }
        if let Err(e) = shared.create_steady_families() {
            shared.fail_unless_crashed("create_family", &e);
            return Ok(());
        }
        let mut joins = Vec::new();
        for (writer, script) in self.scripts.iter().enumerate() {
            let (its, script) = (shared.clone(), script.clone());
            let body = Box::new(move || SessionWriter::new(&its, writer).run(&script));
            let thread = shared.env.spawn.spawn(&format!("writer-{writer}"), body);
            joins.push(thread.map_err(|e| format!("spawn: {e}"))?);
        }
        for join in joins {
            join.join().map_err(|panic| format!("a writer panicked: {panic}"))?;
        }
        Ok(())
    }

    fn finish(
        &self,
        shared: &Arc<SessionState>,
        before: u64,
        opened: u64,
    ) -> Result<SessionResult, String> {
        let disk = &shared.disk;
        if self.crash_point == CrashPoint::CleanClose && !disk.crashed() {
            shared.db.close().map_err(|e| format!("close failed: {e}"))?;
            return Ok(self.session_result(disk, RequiredCommits::Acked, before, opened));
        }
        if !disk.crashed()
            && matches!(self.crash_point, CrashPoint::Io(_) | CrashPoint::IoAfterOpen(_))
        {
            // The planned point was not reached while writing: closing may reach it.
            let closed = shared.db.close();
            if !disk.crashed() {
                closed.map_err(|e| format!("close failed: {e}"))?;
                return Ok(self.session_result(disk, RequiredCommits::Acked, before, opened));
            }
        }
        Ok(self.session_result(disk, self.required_commits(&shared.ledger), before, opened))
    }

    /// Returns which commits a crash of this kind must preserve.
    fn required_commits(&self, ledger: &Mutex<Ledger>) -> RequiredCommits {
        match (self.crash_kind, self.settings.durability) {
            (Crash::Process, _) => RequiredCommits::Acked,
            (Crash::Power, Durability::Interval(t)) => {
                let slack = 2 * u64::try_from(t.as_micros()).unwrap_or(u64::MAX / 4) + 5_000;
                RequiredCommits::Durable {
                    before_us: lock_mutex(ledger).newest_ack_us().saturating_sub(slack),
                }
            }
            (Crash::Power, _) => RequiredCommits::Durable { before_us: 0 },
        }
    }

    /// Result of a crash before the contents were compared: what was required before still is,
    /// unless this kind of crash may lose more.
    fn crashed_before_open(
        &self,
        disk: &Arc<SimDisk>,
        ledger: &Mutex<Ledger>,
        required: RequiredCommits,
        before: u64,
    ) -> SessionResult {
        let after = self.session_result(
            disk,
            weaker_requirement(required, self.required_commits(ledger)),
            before,
            disk.mutating_calls(),
        );
        SessionResult { crashed_in_open: true, ..after }
    }

    fn session_result(
        &self,
        disk: &Arc<SimDisk>,
        required: RequiredCommits,
        before: u64,
        opened: u64,
    ) -> SessionResult {
        let count = disk.mutating_calls();
        SessionResult {
            disk: disk.crash_clone(self.seed, self.crash_kind),
            required,
            ios: (count - before, opened - before),
            crashed: disk.crashed(),
            crashed_in_open: false,
        }
    }
}

/// Returns what must survive two crashes without a check in between.
pub(crate) fn weaker_requirement(a: RequiredCommits, b: RequiredCommits) -> RequiredCommits {
    match (a, b) {
        (RequiredCommits::Acked, other) | (other, RequiredCommits::Acked) => other,
        (RequiredCommits::Durable { before_us: a }, RequiredCommits::Durable { before_us: b }) => {
            RequiredCommits::Durable { before_us: a.min(b) }
        }
    }
}

impl SessionState {
    /// Creates the permanent column families that are missing.
    pub(crate) fn create_steady_families(&self) -> Result<(), Error> {
        let names = self.db.families();
        for name in STEADY_FAMILIES.into_iter().filter(|name| !names.iter().any(|n| n == name)) {
            self.db.create_family(name, self.settings.family.clone())?;
        }
        Ok(())
    }

    /// Records a failure unless the machine has crashed: before that no call may fail.
    fn fail_unless_crashed(&self, doing: &str, e: &Error) {
        if !self.disk.crashed() {
            lock_mutex(&self.failure)
                .get_or_insert_with(|| format!("{doing} failed before the crash: {e}"));
        }
    }
}

/// State of one writer.
pub(crate) struct SessionWriter<'a> {
    shared: &'a SessionState,
    writer: usize,
    steady_families: Vec<Family>,
    changing_families: Vec<Family>,
}

impl<'a> SessionWriter<'a> {
    pub(crate) fn new(shared: &'a SessionState, writer: usize) -> Self {
        let steady = [COUNTER_FAMILY]
            .iter()
            .chain(&STEADY_FAMILIES)
            .filter_map(|name| shared.db.family(name).ok())
            .collect();
        let mut writer = SessionWriter {
            shared,
            writer,
            steady_families: steady,
            changing_families: Vec::new(),
        };
        writer.refresh_changing_families();
        writer
    }

    fn run(&mut self, script: &[Action]) {
        for action in script {
            if self.shared.disk.crashed() || lock_mutex(&self.shared.failure).is_some() {
                return;
            }
            if let Err((doing, e)) = self.perform(*action) {
                self.shared.fail_unless_crashed(doing, &e);
                return;
            }
        }
    }

    pub(crate) fn perform(&mut self, action: Action) -> Result<(), (&'static str, Error)> {
        let db = &self.shared.db;
        match action {
            Action::Commit(spec, durability) => {
                ignore_cancelled(self.commit(spec, durability)).map_err(|e| ("commit", e))
            }
            Action::Load(seed, memory) => {
                let load = |writer: &Self, puts: &[Put]| {
                    table_commits::load(puts, memory, |name| writer.family(name))
                };
                ignore_cancelled(self.commit_tables(seed, load)).map_err(|e| ("load", e))
            }
            Action::PutInParts(seed) => {
                let put = |writer: &Self, puts: &[Put]| {
                    let family = |name: &str| writer.family(name);
                    table_commits::put_in_parts(&writer.shared.db, puts, family)
                };
                ignore_cancelled(self.commit_tables(seed, put)).map_err(|e| ("put in parts", e))
            }
            Action::Sync => {
                let moment = lock_mutex(&self.shared.ledger).advance_clock();
                db.sync().map_err(|e| ("sync", e))?;
                lock_mutex(&self.shared.ledger).mark_synced(moment);
                Ok(())
            }
            Action::Flush => db.admin().flush().map_err(|e| ("flush", e)),
            Action::Compact => ignore_cancelled(db.admin().compact()).map_err(|e| ("compact", e)),
            Action::CompactRange(seed) => {
                let mut rng = Rng::new(seed);
                let mut key = || format!("d/{}/{:03}", self.writer, rng.below(20));
                let range = (key(), key());
                ignore_cancelled(db.default_family().compact_range(range.0..=range.1))
                    .map_err(|e| ("compact_range", e))
            }
            Action::CancelCompactions(us) => {
                let cancelled = db.admin().cancel_background_work();
                self.shared.env.clock.sleep_us(us);
                cancelled
                    .and_then(|()| db.admin().resume_background_work())
                    .map_err(|e| ("cancel", e))
            }
            Action::WaitIdle => {
                ignore_cancelled(db.admin().wait_idle()).map_err(|e| ("wait_idle", e))
            }
            Action::PollChanges => self.poll_changes().map_err(|e| ("the change feed", e)),
            Action::CreateOrDropFamily
            | Action::ClearFamily
            | Action::CloneFamily
            | Action::RenameFamily => self.change_families(action),
            Action::Sleep(us) => {
                self.shared.env.clock.sleep_us(us);
                Ok(())
            }
        }
    }

    fn poll_changes(&self) -> Result<(), Error> {
        let mut past = std::mem::take(&mut lock_mutex(&self.shared.ledger).history);
        let polled = past.poll_changes(&self.shared.db, &self.shared.settings);
        lock_mutex(&self.shared.ledger).history = past;
        polled.map_err(|e| Error::new(ErrorKind::Internal, e))
    }

    fn commit(&mut self, spec: CommitSpec, durability: Option<Durability>) -> Result<(), Error> {
        let Some(puts) = self.commit_puts(spec) else { return Ok(()) };
        let number = lock_mutex(&self.shared.ledger).begin_commit(self.writer, puts);
        let puts = lock_mutex(&self.shared.ledger).puts(self.writer, number).to_vec();
        let result = self.write_batch(&puts, durability);
        let outcome = commit_outcome(&result);
        let effective = durability.unwrap_or(self.shared.settings.durability);
        let now = match effective {
            Durability::Interval(_) if durability.is_none() => self.shared.env.clock.monotonic_us(),
            _ => u64::MAX,
        };
        lock_mutex(&self.shared.ledger).end_commit(
            self.writer,
            number,
            outcome,
            effective == Durability::Full,
            now,
        );
        result
    }

    fn write_batch(&self, puts: &[Put], durability: Option<Durability>) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        let merges = self.shared.settings.family.merge_operator.is_some();
        for put in puts {
            let family = self.family(&put.family.0)?;
            match &put.value {
                // Has the same effect, with other kinds of entries.
                Some(value) if merges && value.len() % 3 == 0 => {
                    let (left, right) = value.split_at(value.len() / 2);
                    batch.delete(family, &put.key)?;
                    batch.merge(family, &put.key, left)?;
                    batch.merge(family, &put.key, right)?;
                }
                Some(value) if (put.key.len() + value.len()) % 2 == 1 => {
                    batch.put_until(family, &put.key, value, u64::MAX)?
                }
                Some(value) => batch.put(family, &put.key, value)?,
                None if put.key.len() % 2 == 1 => {
                    batch.delete_range(family, &put.key[..]..=&put.key[..])?
                }
                None => batch.delete(family, &put.key)?,
            }
        }
        let options = durability.map_or(WriteOptions::new(), |d| WriteOptions::new().durability(d));
        self.shared.db.write_with(batch, options).map(drop)
    }

    /// Like a commit of random puts without deletes, but through tables: durable in every mode.
    fn commit_tables(
        &mut self,
        seed: u64,
        write: impl FnOnce(&Self, &[Put]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(mut puts) = self.commit_puts(CommitSpec::Random(seed)) else { return Ok(()) };
        for put in &mut puts {
            put.value.get_or_insert_with(|| b"instead of a delete".to_vec());
        }
        let number = lock_mutex(&self.shared.ledger).begin_commit(self.writer, puts);
        let puts = lock_mutex(&self.shared.ledger).puts(self.writer, number).to_vec();
        let result = write(self, &puts);
        lock_mutex(&self.shared.ledger).end_commit(
            self.writer,
            number,
            commit_outcome(&result),
            true,
            u64::MAX,
        );
        result
    }

    fn family(&self, name: &str) -> Result<&Family, Error> {
        let found =
            self.steady_families.iter().chain(&self.changing_families).find(|f| f.name() == name);
        found.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("driver: no column family {name}"))
        })
    }

    /// Returns the writes of a commit, without the counter.
    fn commit_puts(&self, spec: CommitSpec) -> Option<Vec<Put>> {
        let (w, next) = (self.writer, lock_mutex(&self.shared.ledger).next_attempt(self.writer));
        let put = |family: &str, key: &str, value: Option<Vec<u8>>| Put {
            family: (family.into(), 0),
            key: format!("d/{w}/{key}").into_bytes(),
            value,
        };
        let text = |tag: &str| Some(format!("{tag} {w} {next}").into_bytes());
        let mut puts = match spec {
            CommitSpec::OneKey => vec![put(COUNTER_FAMILY, "one", text("one"))],
            CommitSpec::TwoFamilies => vec![
                put(COUNTER_FAMILY, "pair", text("pair")),
                put(STEADY_FAMILIES[0], "pair", text("pair")),
            ],
            CommitSpec::Delete => vec![put(COUNTER_FAMILY, "one", None)],
            CommitSpec::ChangingFamily => {
                let name = self.changing_families.first()?.name();
                vec![self.changing_family_put(&name, "one", text("x"))]
            }
            CommitSpec::Random(seed) => self.random_puts(seed),
        };
        if self.shared.write_shared_key {
            let value = Some(format!("{w} {next}").into_bytes());
            puts.extend([COUNTER_FAMILY].iter().chain(&STEADY_FAMILIES).map(|name| Put {
                family: (name.to_string(), 0),
                key: SHARED_KEY.to_vec(),
                value: value.clone(),
            }));
        }
        Some(puts)
    }

    fn changing_family_put(&self, name: &str, key: &str, value: Option<Vec<u8>>) -> Put {
        let incarnation = lock_mutex(&self.shared.ledger)
            .families
            .current()
            .get(name)
            .copied()
            .unwrap_or(u32::MAX);
        Put { family: (name.into(), incarnation), key: key.into(), value }
    }

    fn random_puts(&self, seed: u64) -> Vec<Put> {
        let mut rng = Rng::new(seed);
        let n = rng.between(1, 6);
        (0..n)
            .map(|_| {
                let key = format!("{:03}", rng.below(20));
                let len = match rng.below(20) {
                    0 => 0,
                    1 => rng.between(500, 5000),
                    _ => rng.between(1, 90),
                };
                let value = if rng.percent(20) { None } else { Some(value_bytes(rng.next(), len)) };
                if !self.changing_families.is_empty() && rng.percent(25) {
                    let name =
                        self.changing_families[rng.index(self.changing_families.len())].name();
                    return self.changing_family_put(&name, &key, value);
                }
                let family = rng.pick(&[COUNTER_FAMILY, STEADY_FAMILIES[0], STEADY_FAMILIES[1]]);
                Put {
                    family: (family.into(), 0),
                    key: format!("d/{}/{key}", self.writer).into_bytes(),
                    value,
                }
            })
            .collect()
    }

    /// Refreshes the handles of the changing column families that exist.
    fn refresh_changing_families(&mut self) {
        let family = |name| self.shared.db.family(name).ok();
        let names = if self.writer == 0 { &[CHANGING_FAMILY, RENAMED_FAMILY][..] } else { &[] };
        self.changing_families = names.iter().copied().filter_map(family).collect();
    }

    /// Returns the DDL operation that the action means for the existing column families.
    fn family_change(&self, action: Action) -> Option<FamilyDdl> {
        let there = |name| self.changing_families.iter().any(|f| f.name() == name);
        let (one, other) = (CHANGING_FAMILY.to_string(), RENAMED_FAMILY.to_string());
        match (action, there(CHANGING_FAMILY), there(RENAMED_FAMILY)) {
            (Action::CreateOrDropFamily, true, _) => Some(FamilyDdl::Drop(one)),
            (Action::CreateOrDropFamily, false, _) => Some(FamilyDdl::Create(one)),
            (Action::ClearFamily, true, _) => Some(FamilyDdl::Clear(one)),
            (Action::CloneFamily, _, true) => Some(FamilyDdl::Drop(other)),
            (Action::CloneFamily, true, false) => Some(FamilyDdl::Clone(one, other)),
            (Action::RenameFamily, true, false) => Some(FamilyDdl::Rename(one, other)),
            (Action::RenameFamily, false, true) => Some(FamilyDdl::Rename(other, one)),
            _ => None,
        }
    }

    /// Performs a DDL operation. Until it returns, either state is possible; after a failure both
    /// stay possible for the next recovery, although the running database is in one of them.
    fn change_families(&mut self, action: Action) -> Result<(), (&'static str, Error)> {
        let Some(change) = self.family_change(action) else { return Ok(()) };
        let changed = {
            let mut ledger = lock_mutex(&self.shared.ledger);
            let attempts = ledger.next_attempt(0);
            ledger.families.begin_change(&change, attempts)
        };
        let (db, options) = (&self.shared.db, self.shared.settings.family.clone());
        let (doing, result) = match &change {
            FamilyDdl::Create(name) => ("create_family", db.create_family(name, options).map(drop)),
            FamilyDdl::Drop(name) => ("drop_family", db.drop_family(name)),
            FamilyDdl::Clear(name) => ("clear_family", db.admin().clear_family(name)),
            FamilyDdl::Clone(name, to) => {
                ("clone_family", db.admin().clone_family(name, to).map(drop))
            }
            FamilyDdl::Rename(name, to) => ("rename_family", db.admin().rename_family(name, to)),
        };
        if result.is_ok() {
            lock_mutex(&self.shared.ledger).families.resolve(changed);
        }
        self.refresh_changing_families();
        result.map_err(|e| (doing, e))
    }
}

/// Opens, compares, verifies, writes a little, closes cleanly, cuts the power, and compares once
/// more.
pub fn check_final_state(
    case: &Case,
    pattern: &DbSession,
    mut disk: Arc<SimDisk>,
    ledger: &Arc<Mutex<Ledger>>,
    mut required: RequiredCommits,
) -> Result<(), String> {
    let mut rng = Rng::new(mix(pattern.seed, 77));
    for scripted in [true, false] {
        let one = |w| vec![Action::Commit(CommitSpec::Random(mix(pattern.seed, w)), None)];
        let scripts = if scripted {
            (0..pattern.scripts.len() as u64).map(one).collect()
        } else {
            Vec::new()
        };
        let (seed, settings) = (rng.next(), pattern.settings.clone());
        let session = DbSession {
            seed,
            settings,
            scripts,
            crash_point: CrashPoint::CleanClose,
            crash_kind: Crash::Power,
            verify: true,
            ..*pattern
        };
        let after = session.run(case, disk, ledger, required)?;
        (disk, required) = (after.disk, after.required);
    }
    Ok(())
}

/// Ignores a cancelled compaction: another writer may have cancelled it, with no effect.
fn ignore_cancelled(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(e) if e.kind() == ErrorKind::Busy => Ok(()),
        other => other,
    }
}

/// Returns the commit outcome that a result stands for.
pub fn commit_outcome(result: &Result<(), Error>) -> CommitOutcome {
    match result {
        Ok(()) => CommitOutcome::Acked,
        Err(e) if e.kind() == ErrorKind::OutcomeUnknown => CommitOutcome::Unknown,
        Err(_) => CommitOutcome::Failed,
    }
}
