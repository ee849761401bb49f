//! One life of a simulated database: open, compare with the ledger, let writers run scripts, crash or close.
//! What the crash, fault and exhaustive drivers share.

use crate::contents::read_all;
use crate::engine::{PATH, clean};
use crate::incarnations::Change;
use crate::ledger::{HOME, Ledger, Owed, Put, SHARED, Told};
use crate::rng::{Rng, mix, value_bytes};
use crate::runner::{Case, held};
use crate::settings::Settings;
use perigee::env::Env;
use perigee::{Db, Durability, Error, ErrorKind, Family, WriteBatch, WriteOptions};
use perigee_env::fs::memory::{Crash, SimDisk};
use perigee_env::sim::World;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The family that writer 0 creates, clears and drops.
pub const CHANGING: &str = "x";
/// The name that it is renamed to, and of its clone.
pub const OTHER: &str = "x2";
/// The families that stay, besides the default one.
const STEADY: [&str; 2] = ["a", "b"];

/// What a commit writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spec {
    /// A few random elements over all families.
    Random(u64),
    /// One key in the default family.
    One,
    /// A key each in two families.
    Pair,
    /// Deletes the key of [`Spec::One`].
    Delete,
    /// A key in the family that comes and goes; nothing if it is gone.
    Changing,
}

/// One step of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Commits, with the database's durability or its own.
    Commit(Spec, Option<Durability>),
    /// A bulk load into all families, with so much memory.
    Load(u64, usize),
    /// `sync`.
    Sync,
    /// `flush`.
    Flush,
    /// `compact`.
    Compact,
    /// Cancels compactions wherever they are, and lets them run again after so many microseconds.
    Cancel(u64),
    /// `compact_range` over some of the keys.
    CompactRange(u64),
    /// Creates the changing family, or drops it.
    Change,
    /// Clears the changing family; nothing if it is gone.
    Clear,
    /// Clones the changing family, or drops the clone.
    Clone,
    /// Renames the changing family, or back.
    Rename,
    /// Lets time pass, in microseconds.
    Sleep(u64),
    /// Waits for background work.
    WaitIdle,
    /// The consumer of the feed hears what is durable by now.
    Listen,
}

/// When the machine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In the n-th mutating I/O of this life, opening included.
    Io(u64),
    /// In the n-th after opening.
    IoAfterOpen(u64),
    /// When the writers are done, without closing.
    End,
    /// It does not: the database is closed.
    Closed,
}

/// A life.
#[derive(Clone, Debug)]
pub struct Life {
    /// Seed of its world and its crash.
    pub seed: u64,
    /// Options.
    pub settings: Settings,
    /// A script for each writer.
    pub scripts: Vec<Vec<Action>>,
    /// Whether every commit writes the shared key in all families.
    pub share: bool,
    /// When it ends.
    pub when: When,
    /// How.
    pub crash: Crash,
    /// Whether to `verify` after opening.
    pub verify: bool,
}

/// What a life left.
pub struct After {
    /// The disk as the next life finds it.
    pub disk: Arc<SimDisk>,
    /// What the next life must find.
    pub owed: Owed,
    /// Mutating I/Os of the whole life, and of its opening.
    pub ios: (u64, u64),
    /// Whether the planned crash point was reached.
    pub crashed: bool,
    /// Whether that was before the database had been opened and compared.
    pub in_open: bool,
}

/// What a life and its writers share.
pub(crate) struct Shared {
    pub(crate) db: Db,
    pub(crate) env: Env,
    pub(crate) disk: Arc<SimDisk>,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    pub(crate) settings: Settings,
    pub(crate) share: bool,
    pub(crate) wrong: Mutex<Option<String>>,
}

impl Life {
    /// Lives it. `owed` is what it must find; `Err` is a broken promise.
    pub fn live(
        &self,
        case: &Case,
        disk: Arc<SimDisk>,
        ledger: &Arc<Mutex<Ledger>>,
        owed: Owed,
    ) -> Result<After, String> {
        case.keep(&format!("before-{:x}", self.seed), &disk.deep_clone());
        case.keep(&format!("after-{:x}", self.seed), &disk);
        if let When::Io(n) = self.when {
            disk.crash_at(n);
        }
        World::new(self.seed).run(disk.clone(), |env| self.root(env, &disk, ledger, owed))
    }

    fn root(
        &self,
        env: Env,
        disk: &Arc<SimDisk>,
        ledger: &Arc<Mutex<Ledger>>,
        owed: Owed,
    ) -> Result<After, String> {
        let before = disk.io_count();
        let db = match Db::open(Path::new(PATH), self.settings.options(env.clone())) {
            Ok(db) => db,
            Err(_) if disk.crashed() => return Ok(self.never_opened(disk, ledger, owed, before)),
            Err(e) => return Err(format!("open failed: {e}")),
        };
        let opened = disk.io_count();
        if let When::IoAfterOpen(n) = self.when {
            disk.crash_at(n);
        }
        match self.compare(&db, ledger, owed) {
            Ok(()) => {}
            Err(_) if disk.crashed() => return Ok(self.never_opened(disk, ledger, owed, before)),
            Err(e) => return Err(e),
        }
        let shared = Arc::new(Shared {
            db,
            env,
            disk: disk.clone(),
            ledger: ledger.clone(),
            settings: self.settings.clone(),
            share: self.share,
            wrong: Mutex::new(None),
        });
        self.run_writers(&shared)?;
        let after = self.finish(&shared, before, opened);
        let wrong = held(&shared.wrong).take();
        wrong.map_or(after, Err)
    }

    /// Reads everything and asks the ledger.
    fn compare(&self, db: &Db, ledger: &Arc<Mutex<Ledger>>, owed: Owed) -> Result<(), String> {
        let found = read_all(db).map_err(|e| format!("reading after open: {e}"))?;
        let recovery = db.stats().recovery;
        let mut known = held(ledger);
        let ends = known
            .check(&found, owed)
            .map_err(|e| format!("{e}\n  owed {owed:?}, {recovery:?}\n  {:?}", known.changing))?;
        known.settle(&ends, &found);
        let mut past = std::mem::take(&mut known.past);
        drop(known);
        let looked = past.look(db, &found, &self.settings, self.seed);
        held(ledger).past = past;
        looked?;
        if self.verify {
            let report = db.verify().map_err(|e| format!("verify: {e}"))?;
            clean(&report).map_err(|e| format!("verify found: {e}"))?;
        }
        Ok(())
    }

    fn run_writers(&self, shared: &Arc<Shared>) -> Result<(), String> {
        if self.scripts.iter().all(Vec::is_empty) {
            return Ok(());
        }
        if let Err(e) = shared.prepare() {
            shared.unless_crashed("create_family", &e);
            return Ok(());
        }
        let mut joins = Vec::new();
        for (writer, script) in self.scripts.iter().enumerate() {
            let (its, script) = (shared.clone(), script.clone());
            let body = Box::new(move || Writer::new(&its, writer).run(&script));
            let thread = shared.env.spawn.spawn(&format!("writer-{writer}"), body);
            joins.push(thread.map_err(|e| format!("spawn: {e}"))?);
        }
        for join in joins {
            join.join().map_err(|panic| format!("a writer panicked: {panic}"))?;
        }
        Ok(())
    }

    fn finish(&self, shared: &Arc<Shared>, before: u64, opened: u64) -> Result<After, String> {
        let disk = &shared.disk;
        if self.when == When::Closed && !disk.crashed() {
            shared.db.close().map_err(|e| format!("close failed: {e}"))?;
            return Ok(self.after(disk, Owed::Acked, before, opened));
        }
        if !disk.crashed() && matches!(self.when, When::Io(_) | When::IoAfterOpen(_)) {
            // The planned point was not reached while writing: closing may reach it.
            let closed = shared.db.close();
            if !disk.crashed() {
                closed.map_err(|e| format!("close failed: {e}"))?;
                return Ok(self.after(disk, Owed::Acked, before, opened));
            }
        }
        Ok(self.after(disk, self.owed(&shared.ledger), before, opened))
    }

    /// What a crash of this kind owes.
    fn owed(&self, ledger: &Mutex<Ledger>) -> Owed {
        match (self.crash, self.settings.durability) {
            (Crash::Process, _) => Owed::Acked,
            (Crash::Power, Durability::Interval(t)) => {
                let slack = 2 * u64::try_from(t.as_micros()).unwrap_or(u64::MAX / 4) + 5_000;
                Owed::Durable { before_us: held(ledger).newest_ack_us().saturating_sub(slack) }
            }
            (Crash::Power, _) => Owed::Durable { before_us: 0 },
        }
    }

    /// After a crash before anything was compared: what was owed before still is, unless this crash may take more.
    fn never_opened(&self, disk: &Arc<SimDisk>, ledger: &Mutex<Ledger>, owed: Owed, before: u64) -> After {
        let after = self.after(disk, weaker(owed, self.owed(ledger)), before, disk.io_count());
        After { in_open: true, ..after }
    }

    fn after(&self, disk: &Arc<SimDisk>, owed: Owed, before: u64, opened: u64) -> After {
        let count = disk.io_count();
        After {
            disk: disk.crash_clone(self.seed, self.crash),
            owed,
            ios: (count - before, opened - before),
            crashed: disk.crashed(),
            in_open: false,
        }
    }
}

/// What is owed after two crashes without a check in between.
pub(crate) fn weaker(a: Owed, b: Owed) -> Owed {
    match (a, b) {
        (Owed::Acked, other) | (other, Owed::Acked) => other,
        (Owed::Durable { before_us: a }, Owed::Durable { before_us: b }) => {
            Owed::Durable { before_us: a.min(b) }
        }
    }
}

impl Shared {
    /// Creates the steady families that are missing.
    pub(crate) fn prepare(&self) -> Result<(), Error> {
        let names = self.db.families();
        for name in STEADY.into_iter().filter(|name| !names.iter().any(|n| n == name)) {
            self.db.create_family(name, self.settings.family.clone())?;
        }
        Ok(())
    }

    /// Before the crash no call may fail.
    fn unless_crashed(&self, doing: &str, e: &Error) {
        if !self.disk.crashed() {
            held(&self.wrong)
                .get_or_insert_with(|| format!("{doing} failed although nothing was wrong: {e}"));
        }
    }
}

/// One writer at work.
pub(crate) struct Writer<'a> {
    shared: &'a Shared,
    writer: usize,
    steady: Vec<Family>,
    changing: Vec<Family>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(shared: &'a Shared, writer: usize) -> Self {
        let steady = [HOME].iter().chain(&STEADY).filter_map(|name| shared.db.family(name).ok()).collect();
        let mut writer = Writer { shared, writer, steady, changing: Vec::new() };
        writer.look_again();
        writer
    }

    fn run(&mut self, script: &[Action]) {
        for action in script {
            if self.shared.disk.crashed() || held(&self.shared.wrong).is_some() {
                return;
            }
            if let Err((doing, e)) = self.act(*action) {
                self.shared.unless_crashed(doing, &e);
                return;
            }
        }
    }

    pub(crate) fn act(&mut self, action: Action) -> Result<(), (&'static str, Error)> {
        let db = &self.shared.db;
        match action {
            Action::Commit(spec, durability) => {
                unless_cancelled(self.commit(spec, durability)).map_err(|e| ("commit", e))
            }
            Action::Load(seed, memory) => unless_cancelled(self.load(seed, memory)).map_err(|e| ("load", e)),
            Action::Sync => {
                let moment = held(&self.shared.ledger).moment();
                db.sync().map_err(|e| ("sync", e))?;
                held(&self.shared.ledger).synced(moment);
                Ok(())
            }
            Action::Flush => db.flush().map_err(|e| ("flush", e)),
            Action::Compact => unless_cancelled(db.compact()).map_err(|e| ("compact", e)),
            Action::CompactRange(seed) => {
                let mut rng = Rng::new(seed);
                let mut key = || format!("d/{}/{:03}", self.writer, rng.below(20));
                let range = (key(), key());
                unless_cancelled(db.compact_range(range.0..=range.1)).map_err(|e| ("compact_range", e))
            }
            Action::Cancel(us) => {
                let cancelled = db.cancel_background_work();
                self.shared.env.clock.sleep_us(us);
                cancelled.and_then(|()| db.resume_background_work()).map_err(|e| ("cancel", e))
            }
            Action::WaitIdle => unless_cancelled(db.wait_idle()).map_err(|e| ("wait_idle", e)),
            Action::Listen => self.listen().map_err(|e| ("the feed", e)),
            Action::Change | Action::Clear | Action::Clone | Action::Rename => self.change(action),
            Action::Sleep(us) => {
                self.shared.env.clock.sleep_us(us);
                Ok(())
            }
        }
    }

    fn listen(&self) -> Result<(), Error> {
        let mut past = std::mem::take(&mut held(&self.shared.ledger).past);
        let heard = past.listen(&self.shared.db, &self.shared.settings);
        held(&self.shared.ledger).past = past;
        heard.map_err(|e| Error::new(ErrorKind::Internal, e))
    }

    fn commit(&mut self, spec: Spec, durability: Option<Durability>) -> Result<(), Error> {
        let Some(puts) = self.puts(spec) else { return Ok(()) };
        let number = held(&self.shared.ledger).begin(self.writer, puts);
        let puts = held(&self.shared.ledger).puts(self.writer, number).to_vec();
        let result = self.write(&puts, durability);
        let told = told(&result);
        let effective = durability.unwrap_or(self.shared.settings.durability);
        let now = match effective {
            Durability::Interval(_) if durability.is_none() => self.shared.env.clock.monotonic_us(),
            _ => u64::MAX,
        };
        held(&self.shared.ledger).end(self.writer, number, told, effective == Durability::Full, now);
        result
    }

    fn write(&self, puts: &[Put], durability: Option<Durability>) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        let merges = self.shared.settings.family.merge_operator.is_some();
        for put in puts {
            let family = self.family(&put.family.0)?;
            match &put.value {
                // The same effect in other kinds of entries.
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
                None if put.key.len() % 2 == 1 => batch.delete_range(family, &put.key[..]..=&put.key[..])?,
                None => batch.delete(family, &put.key)?,
            }
        }
        let options = durability.map_or(WriteOptions::new(), |d| WriteOptions::new().durability(d));
        self.shared.db.write_with(batch, options).map(drop)
    }

    /// Like a commit of random puts without deletes, but through tables: durable in every mode.
    fn load(&mut self, seed: u64, memory: usize) -> Result<(), Error> {
        let Some(mut puts) = self.puts(Spec::Random(seed)) else { return Ok(()) };
        for put in &mut puts {
            put.value.get_or_insert_with(|| b"instead of a delete".to_vec());
        }
        let number = held(&self.shared.ledger).begin(self.writer, puts);
        let puts = held(&self.shared.ledger).puts(self.writer, number).to_vec();
        let result = self.load_puts(&puts, memory);
        held(&self.shared.ledger).end(self.writer, number, told(&result), true, u64::MAX);
        result
    }

    fn load_puts(&self, puts: &[Put], memory: usize) -> Result<(), Error> {
        let mut names: Vec<&str> = puts.iter().map(|p| &p.family.0[..]).collect();
        names.sort_unstable();
        names.dedup();
        let mut loads = Vec::new();
        for name in names {
            let mut load = self.family(name)?.bulk_load()?.memory_bytes(memory);
            for put in puts.iter().filter(|p| p.family.0 == name) {
                load.put(&put.key, put.value.as_deref().unwrap_or_default())?;
            }
            loads.push(load);
        }
        self.shared.db.finish_loads(&mut loads).map(|_| ())
    }

    fn family(&self, name: &str) -> Result<&Family, Error> {
        let found = self.steady.iter().chain(&self.changing).find(|f| f.name() == name);
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("driver: no family {name}")))
    }

    /// The elements of a commit (without the counter).
    fn puts(&self, spec: Spec) -> Option<Vec<Put>> {
        let (w, next) = (self.writer, held(&self.shared.ledger).next(self.writer));
        let put = |family: &str, key: &str, value: Option<Vec<u8>>| Put {
            family: (family.into(), 0),
            key: format!("d/{w}/{key}").into_bytes(),
            value,
        };
        let text = |tag: &str| Some(format!("{tag} {w} {next}").into_bytes());
        let mut puts = match spec {
            Spec::One => vec![put(HOME, "one", text("one"))],
            Spec::Pair => vec![put(HOME, "pair", text("pair")), put(STEADY[0], "pair", text("pair"))],
            Spec::Delete => vec![put(HOME, "one", None)],
            Spec::Changing => {
                let name = self.changing.first()?.name();
                vec![self.in_changing(&name, "one", text("x"))]
            }
            Spec::Random(seed) => self.random_puts(seed),
        };
        if self.shared.share {
            let value = Some(format!("{w} {next}").into_bytes());
            puts.extend([HOME].iter().chain(&STEADY).map(|name| Put {
                family: (name.to_string(), 0),
                key: SHARED.to_vec(),
                value: value.clone(),
            }));
        }
        Some(puts)
    }

    fn in_changing(&self, name: &str, key: &str, value: Option<Vec<u8>>) -> Put {
        let incarnation = held(&self.shared.ledger).changing.running().get(name).copied().unwrap_or(u32::MAX);
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
                if !self.changing.is_empty() && rng.percent(25) {
                    let name = self.changing[rng.index(self.changing.len())].name();
                    return self.in_changing(&name, &key, value);
                }
                let family = rng.pick(&[HOME, STEADY[0], STEADY[1]]);
                Put {
                    family: (family.into(), 0),
                    key: format!("d/{}/{key}", self.writer).into_bytes(),
                    value,
                }
            })
            .collect()
    }

    /// Handles of the changing families that there are now.
    fn look_again(&mut self) {
        let family = |name| self.shared.db.family(name).ok();
        let names = if self.writer == 0 { &[CHANGING, OTHER][..] } else { &[] };
        self.changing = names.iter().copied().filter_map(family).collect();
    }

    /// What the action means for the families that there are.
    fn meaning(&self, action: Action) -> Option<Change> {
        let there = |name| self.changing.iter().any(|f| f.name() == name);
        let (one, other) = (CHANGING.to_string(), OTHER.to_string());
        match (action, there(CHANGING), there(OTHER)) {
            (Action::Change, true, _) => Some(Change::Drop(one)),
            (Action::Change, false, _) => Some(Change::Create(one)),
            (Action::Clear, true, _) => Some(Change::Clear(one)),
            (Action::Clone, _, true) => Some(Change::Drop(other)),
            (Action::Clone, true, false) => Some(Change::Clone(one, other)),
            (Action::Rename, true, false) => Some(Change::Rename(one, other)),
            (Action::Rename, false, true) => Some(Change::Rename(other, one)),
            _ => None,
        }
    }

    /// Changes the families; until the answer either state is possible, and after a failure it stays so for the next
    /// recovery, though the running database knows.
    fn change(&mut self, action: Action) -> Result<(), (&'static str, Error)> {
        let Some(change) = self.meaning(action) else { return Ok(()) };
        let outcome = {
            let mut ledger = held(&self.shared.ledger);
            let attempts = ledger.next(0);
            ledger.changing.begin(&change, attempts)
        };
        let (db, options) = (&self.shared.db, self.shared.settings.family.clone());
        let (doing, result) = match &change {
            Change::Create(name) => ("create_family", db.create_family(name, options).map(drop)),
            Change::Drop(name) => ("drop_family", db.drop_family(name)),
            Change::Clear(name) => ("clear_family", db.clear_family(name)),
            Change::Clone(name, to) => ("clone_family", db.clone_family(name, to).map(drop)),
            Change::Rename(name, to) => ("rename_family", db.rename_family(name, to)),
        };
        if result.is_ok() {
            held(&self.shared.ledger).changing.settle(outcome);
        }
        self.look_again();
        result.map_err(|e| (doing, e))
    }
}

/// Opens, compares, verifies, writes a little, closes cleanly, cuts the power, and looks once more.
pub fn last_look(
    case: &Case,
    pattern: &Life,
    mut disk: Arc<SimDisk>,
    ledger: &Arc<Mutex<Ledger>>,
    mut owed: Owed,
) -> Result<(), String> {
    let mut rng = Rng::new(mix(pattern.seed, 77));
    for scripted in [true, false] {
        let one = |w| vec![Action::Commit(Spec::Random(mix(pattern.seed, w)), None)];
        let scripts =
            if scripted { (0..pattern.scripts.len() as u64).map(one).collect() } else { Vec::new() };
        let (seed, settings) = (rng.next(), pattern.settings.clone());
        let life = Life {
            seed,
            settings,
            scripts,
            when: When::Closed,
            crash: Crash::Power,
            verify: true,
            ..*pattern
        };
        let after = life.live(case, disk, ledger, owed)?;
        (disk, owed) = (after.disk, after.owed);
    }
    Ok(())
}

/// Another writer may have cancelled it; nothing happened then.
fn unless_cancelled(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(e) if e.kind() == ErrorKind::Busy => Ok(()),
        other => other,
    }
}

/// What a result tells about a commit.
pub fn told(result: &Result<(), Error>) -> Told {
    match result {
        Ok(()) => Told::Acked,
        Err(e) if e.kind() == ErrorKind::OutcomeUnknown => Told::Unknown,
        Err(_) => Told::Failed,
    }
}
