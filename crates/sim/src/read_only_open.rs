//! Read-only opens beside a writer. The writer commits, bulk-loads, spills transactions, ingests,
//! and clears, renames, clones, creates and drops column families in a loop, with many flushes; a
//! reader opens the database again and again.
//!
//! Guarantees: every open succeeds, however busy the writer is; it shows the state after a prefix
//! of the writer's operations; and the prefix includes everything acknowledged before the open
//! began.

use crate::contents::read_all;
use crate::engine_target::PATH;
use crate::ledger::Contents;
use crate::rng::{Rng, value_bytes};
use crate::runner::{Case, lock_mutex};
use crate::settings::Settings;
use perigee::env::{DirOpenMode, Env};
use perigee::load::TableWriter;
use perigee::{Db, Durability, Result, TxnOptions, WriteBatch};
use perigee_env::Join;
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::SimWorld;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Directory in which tables for ingestion are built.
const TABLES_DIR: &str = "/tables";
/// Names of the column families besides `default`.
const EXTRA_FAMILIES: [&str; 4] = ["a", "b", "c", "d"];
/// Column families at the start.
const INITIAL_FAMILIES: [&str; 3] = ["default", "a", "b"];
/// Flushes before the first open beside a busy writer, so that its manifest takes a while to read.
const BUSY_BEFORE: u64 = 150;
/// Number of opens beside a busy writer.
const BUSY_OPENS: u64 = 3;
/// The busy writer stops after this number of flushes, whatever the reader does.
const BUSY_FLUSHES: u64 = 20_000;

/// Key and new value; `None` deletes.
type Write = (String, Vec<u8>, Option<Vec<u8>>);

/// One operation of the writer.
#[derive(Clone, Debug)]
enum WriterOp {
    Put(Write),
    Batch(Vec<Write>),
    DeletePrefix(String, Vec<u8>),
    Load(Vec<Write>),
    Spill(Vec<Write>),
    Ingest(Vec<Write>),
    Create(String),
    Drop(String),
    Clear(String),
    Rename(String, String),
    Clone(String, String),
    Flush,
    Compact,
    Reopen,
}

/// States that the writer's operations lead to.
#[derive(Clone, Default)]
struct WriterStates {
    /// `[n]`: after `n` operations. The last operation may still be running.
    states: Vec<Contents>,
    /// `[n]`: the sequence number after `n` operations, for operations that have returned.
    seqs: Vec<u64>,
}

struct Scenario {
    env: Env,
    settings: Settings,
    writer_states: Mutex<WriterStates>,
    ended: AtomicBool,
    /// Error of the writer thread.
    failure: Mutex<Option<String>>,
}

/// Runs one case: a writer that changes everything, then a writer that flushes after each commit.
pub fn run_case(case: &Case) -> std::result::Result<(), String> {
    let mut rng = Rng::new(case.case_seed());
    changing_writer_case(case, &mut rng)?;
    busy_writer_case(case, &mut rng)
}

fn new_world(case: &Case, name: &str, rng: &mut Rng) -> (SimWorld, Arc<SimDisk>) {
    let disk = SimDisk::new(rng.next());
    case.keep_disk(name, &disk);
    let mut world = SimWorld::new(rng.next());
    if rng.percent(50) {
        world.lock_switch_probability(0.5);
    }
    (world, disk)
}

fn changing_writer_case(case: &Case, rng: &mut Rng) -> std::result::Result<(), String> {
    let durability = rng.pick(&[Durability::Full, Durability::None]);
    let settings = Settings::random(rng).with_durability(durability);
    let (world, disk) = new_world(case, "beside", rng);
    let (seed, steps) = (rng.next(), rng.between(20, 80));
    world.run(disk, |env| {
        let scenario = Scenario::create(env, &settings)?;
        let writer = Arc::clone(&scenario);
        let thread = scenario.spawn(move || writer.run_writer(seed, steps))?;
        let read = scenario.run_reader(case);
        thread.join().map_err(|panic| format!("the writer panicked: {panic}"))?;
        // The writer's own error takes precedence.
        lock_mutex(&scenario.failure).take().map_or(Ok(()), Err)?;
        read
    })
}

fn busy_writer_case(case: &Case, rng: &mut Rng) -> std::result::Result<(), String> {
    let mut settings = Settings::random(rng).with_durability(Durability::None);
    (settings.memory_budget, settings.scrub_us, settings.log_file_bytes) = (0, 0, 0);
    let (mut world, disk) = new_world(case, "busy", rng);
    // The reader's pauses last only a few steps of the writer: an open that depends on them to
    // succeed fails soon.
    world.step_us(200);
    world.run(disk, |env| {
        let scenario = Scenario::create(env, &settings)?;
        let flushed = Arc::new(AtomicU64::new(0));
        let (writer, count) = (Arc::clone(&scenario), Arc::clone(&flushed));
        let thread = scenario.spawn(move || writer.flush_repeatedly(&count))?;
        let read = scenario.open_beside_busy_writer(case, &flushed);
        scenario.ended.store(true, SeqCst);
        thread.join().map_err(|panic| format!("the busy writer panicked: {panic}"))?;
        lock_mutex(&scenario.failure).take().map_or(Ok(()), Err)?;
        read
    })
}

impl Scenario {
    /// Creates a database with the initial column families, and closes it.
    fn create(env: Env, settings: &Settings) -> std::result::Result<Arc<Scenario>, String> {
        let say = |e: perigee::Error| e.to_string();
        let db = Db::open(PATH, settings.options(env.clone())).map_err(say)?;
        for name in &INITIAL_FAMILIES[1..] {
            db.create_family(name, settings.family.clone()).map_err(say)?;
        }
        let numbers = vec![db.snapshot().map_err(say)?.sequence()];
        db.close().map_err(say)?;
        env.fs.open_dir(Path::new(TABLES_DIR), DirOpenMode::CreateIfMissing).map_err(say)?;
        let states = vec![
            INITIAL_FAMILIES.iter().map(|name| ((*name).to_owned(), BTreeMap::new())).collect(),
        ];
        Ok(Arc::new(Scenario {
            env,
            settings: settings.clone(),
            writer_states: Mutex::new(WriterStates { states, seqs: numbers }),
            ended: AtomicBool::new(false),
            failure: Mutex::default(),
        }))
    }

    fn spawn(
        self: &Arc<Self>,
        body: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> std::result::Result<Box<dyn Join>, String> {
        let scenario = Arc::clone(self);
        let body = move || {
            if let Err(e) = body() {
                *lock_mutex(&scenario.failure) = Some(format!("the writer: {e}"));
            }
            scenario.ended.store(true, SeqCst);
        };
        self.env.spawn.spawn("writer", Box::new(body)).map_err(|e| e.to_string())
    }

    fn open(&self) -> Result<Db> {
        Db::open(PATH, self.settings.options(self.env.clone()).create_if_missing(false))
    }

    fn run_writer(&self, seed: u64, steps: usize) -> Result<()> {
        let mut rng = Rng::new(seed);
        let mut db = self.open()?;
        for number in 0..steps {
            let before = lock_mutex(&self.writer_states).states.last().cloned().unwrap_or_default();
            let step = WriterOp::random(&mut rng, &before);
            lock_mutex(&self.writer_states).states.push(step.state_after(before));
            if matches!(step, WriterOp::Reopen) {
                db.close()?;
                db = self.open()?;
            } else {
                let done = self.perform(&db, &step, number);
                done.map_err(|e| e.in_file(format!("step {number}: {step:?}")))?;
            }
            let number = db.snapshot()?.sequence();
            lock_mutex(&self.writer_states).seqs.push(number);
        }
        db.close()
    }

    fn perform(&self, db: &Db, step: &WriterOp, number: usize) -> Result<()> {
        match step {
            WriterOp::Put((family, key, value)) => match value {
                Some(value) => db.family(family)?.put(key, value),
                None => db.family(family)?.delete(key),
            },
            WriterOp::Batch(writes) => {
                let mut batch = WriteBatch::new();
                for (family, key, value) in writes {
                    match value {
                        Some(value) => batch.put(&db.family(family)?, key, value)?,
                        None => batch.delete(&db.family(family)?, key)?,
                    };
                }
                db.write(batch).map(drop)
            }
            WriterOp::DeletePrefix(family, prefix) => db.family(family)?.delete_prefix(prefix),
            WriterOp::Load(writes) => bulk_load(db, writes),
            WriterOp::Spill(writes) => {
                let txn = db.begin(TxnOptions::new().spill_bytes(1))?;
                for (family, key, value) in writes {
                    match value {
                        Some(value) => txn.put(&db.family(family)?, key, value)?,
                        None => txn.delete(&db.family(family)?, key)?,
                    }
                }
                txn.commit().map(drop)
            }
            WriterOp::Ingest(writes) => self.ingest(db, writes, number),
            WriterOp::Create(name) => {
                db.create_family(name, self.settings.family.clone()).map(drop)
            }
            WriterOp::Drop(name) => db.drop_family(name),
            WriterOp::Clear(name) => db.admin().clear_family(name),
            WriterOp::Rename(name, to) => db.admin().rename_family(name, to),
            WriterOp::Clone(name, to) => db.admin().clone_family(name, to).map(drop),
            WriterOp::Flush => db.admin().flush(),
            WriterOp::Compact => db.admin().compact(),
            WriterOp::Reopen => Ok(()),
        }
    }

    /// Builds a table of the writes, which belong to one column family and have values, and ingests
    /// it.
    fn ingest(&self, db: &Db, writes: &[Write], number: usize) -> Result<()> {
        let path = format!("{TABLES_DIR}/{number}.table");
        let mut table =
            TableWriter::create_in(self.env.clone(), &path, self.settings.family.clone())?;
        let sorted: BTreeMap<_, _> = writes.iter().map(|(_, key, value)| (key, value)).collect();
        for (key, value) in sorted {
            table.put(key, value.as_deref().unwrap_or_default())?;
        }
        table.finish()?;
        db.family(&writes[0].0)?.ingest(&[path]).map(drop)
    }

    /// Opens the database repeatedly until the writer has ended, and once more after that.
    fn run_reader(&self, case: &Case) -> std::result::Result<(), String> {
        let mut opens = 0;
        loop {
            let last = self.ended.load(SeqCst);
            self.open_and_compare()?;
            opens += 1;
            if last {
                break;
            }
        }
        case.count("opens beside a writer", opens);
        Ok(())
    }

    fn open_and_compare(&self) -> std::result::Result<(), String> {
        let first = lock_mutex(&self.writer_states).seqs.len() - 1;
        let options = self.settings.options(self.env.clone()).read_only(true);
        let opened = Db::open(PATH, options);
        let db = opened.map_err(|e| format!("a read-only open beside a writer: {e}"))?;
        let last = lock_mutex(&self.writer_states).states.len() - 1;
        let seen = read_all(&db).map_err(|e| format!("reading beside a writer: {e}"))?;
        let number = db.snapshot().map_err(|e| e.to_string())?.sequence();
        db.close().map_err(|e| e.to_string())?;
        // By now the sequence number of an operation in progress may be known.
        let prefixes = lock_mutex(&self.writer_states).clone();
        // True if a prefix ends at this sequence number, as far as known. (A flush has no sequence
        // number.)
        let ends = |n: usize| {
            let from = prefixes.seqs.get(n).copied().unwrap_or(number);
            let next = prefixes.seqs.iter().find(|next| **next > from);
            from <= number && next.is_none_or(|next| number < *next)
        };
        if (first..=last).any(|n| prefixes.states[n] == seen && ends(n)) {
            return Ok(());
        }
        let older = prefixes.states.iter().rposition(|state| *state == seen);
        let what = older
            .map_or("a state that never existed".to_owned(), |n| format!("the state after {n}"));
        Err(format!(
            "a read-only open beside a writer shows {what}, as sequence number {number}, with \
             operations {first} to {last} acknowledged or \
             in progress, up to sequence number {:?}: {}",
            prefixes.seqs.last(),
            describe_difference(&prefixes.states[first], &seen)
        ))
    }

    /// Commits and flushes without a pause until the reader is done.
    fn flush_repeatedly(&self, flushed: &AtomicU64) -> Result<()> {
        let db = self.open()?;
        while !self.ended.load(SeqCst) && flushed.load(SeqCst) < BUSY_FLUSHES {
            let n = flushed.load(SeqCst);
            db.put(key(n % 7), n.to_le_bytes())?;
            db.admin().flush()?;
            flushed.store(n + 1, SeqCst);
        }
        db.close()
    }

    /// Checks that every open succeeds and has everything flushed before it began.
    fn open_beside_busy_writer(
        &self,
        case: &Case,
        flushed: &AtomicU64,
    ) -> std::result::Result<(), String> {
        let say = |e: perigee::Error| format!("a read-only open beside a busy writer: {e}");
        while flushed.load(SeqCst) < BUSY_BEFORE && !self.ended.load(SeqCst) {
            self.env.clock.sleep_us(500);
        }
        for _ in 0..BUSY_OPENS {
            let least = flushed.load(SeqCst);
            let options = self.settings.options(self.env.clone()).read_only(true);
            let db = Db::open(PATH, options).map_err(say)?;
            let mut newest = 0;
            for entry in db.iter().map_err(say)? {
                let (_, value) = entry.map_err(say)?;
                newest = newest.max(value.first_chunk().map_or(0, |n| u64::from_le_bytes(*n) + 1));
            }
            if newest < least {
                return Err(format!(
                    "an open shows {newest} commits, but {least} were acknowledged before"
                ));
            }
            db.close().map_err(say)?;
        }
        case.count("opens beside a busy writer", BUSY_OPENS);
        case.count("its flushes", flushed.load(SeqCst));
        Ok(())
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:02}").into_bytes()
}

/// Bulk-loads the writes into all their column families at once.
fn bulk_load(db: &Db, writes: &[Write]) -> Result<()> {
    let mut by_family: BTreeMap<&str, Vec<&Write>> = BTreeMap::new();
    writes.iter().for_each(|w| by_family.entry(&w.0).or_default().push(w));
    let mut loads = Vec::new();
    for (family, writes) in by_family {
        let mut load = db.family(family)?.bulk_load()?;
        for (_, key, value) in writes {
            load.put(key, value.as_deref().unwrap_or_default())?;
        }
        loads.push(load);
    }
    perigee::load::BulkLoad::finish_all(&mut loads).map(drop)
}

fn describe_difference(expected: &Contents, seen: &Contents) -> String {
    let names = |c: &Contents| c.keys().cloned().collect::<Vec<_>>().join(" ");
    if names(expected) != names(seen) {
        return format!("column families {} instead of {}", names(seen), names(expected));
    }
    let differs = expected.iter().filter(|(name, entries)| seen.get(*name) != Some(entries));
    let counts = differs.map(|(name, entries)| {
        format!("{name} has {} entries, expected {}", seen[name].len(), entries.len())
    });
    counts.collect::<Vec<_>>().join("; ")
}

impl WriterOp {
    fn random(rng: &mut Rng, state: &Contents) -> WriterOp {
        let all: Vec<&String> = state.keys().collect();
        let family = |rng: &mut Rng| all[rng.index(all.len())].clone();
        let free: Vec<&str> =
            EXTRA_FAMILIES.into_iter().filter(|name| !state.contains_key(*name)).collect();
        let named: Vec<&String> = all.iter().filter(|name| **name != "default").copied().collect();
        let (free, named) = (
            (!free.is_empty()).then(|| free[rng.index(free.len())].to_owned()),
            (!named.is_empty()).then(|| named[rng.index(named.len())].clone()),
        );
        match (rng.weighted(&[40, 12, 3, 8, 8, 5, 5, 4, 7, 5, 5, 10, 2, 2]), free, named) {
            (1, ..) => WriterOp::Batch(random_writes(rng, &all, 20)),
            (2, ..) => WriterOp::DeletePrefix(family(rng), b"0".to_vec()),
            (3, ..) => WriterOp::Load(random_writes(rng, &all, 0)),
            (4, ..) => WriterOp::Spill(random_writes(rng, &all, 20)),
            (5, ..) => {
                let family = family(rng);
                WriterOp::Ingest(random_writes(rng, &[&family], 0))
            }
            (6, Some(free), _) => WriterOp::Create(free),
            (7, _, Some(named)) => WriterOp::Drop(named),
            (8, ..) => WriterOp::Clear(family(rng)),
            (9, Some(free), Some(named)) => WriterOp::Rename(named, free),
            (10, Some(free), _) => WriterOp::Clone(family(rng), free),
            (11, ..) => WriterOp::Flush,
            (12, ..) => WriterOp::Compact,
            (13, ..) => WriterOp::Reopen,
            _ => WriterOp::Put(random_write(rng, &all, 20)),
        }
    }

    /// Returns the state that the operation leads to.
    fn state_after(&self, mut state: Contents) -> Contents {
        match self {
            WriterOp::Put(write) => apply_writes(&mut state, std::slice::from_ref(write)),
            WriterOp::Batch(writes)
            | WriterOp::Load(writes)
            | WriterOp::Spill(writes)
            | WriterOp::Ingest(writes) => {
                apply_writes(&mut state, writes);
            }
            WriterOp::DeletePrefix(family, prefix) => {
                state.entry(family.clone()).or_default().retain(|key, _| !key.starts_with(prefix));
            }
            WriterOp::Create(name) => drop(state.insert(name.clone(), BTreeMap::new())),
            WriterOp::Drop(name) => drop(state.remove(name)),
            WriterOp::Clear(name) => drop(state.insert(name.clone(), BTreeMap::new())),
            WriterOp::Rename(name, to) => {
                let entries = state.remove(name).unwrap_or_default();
                state.insert(to.clone(), entries);
            }
            WriterOp::Clone(name, to) => {
                let entries = state.get(name).cloned().unwrap_or_default();
                state.insert(to.clone(), entries);
            }
            WriterOp::Flush | WriterOp::Compact | WriterOp::Reopen => {}
        }
        state
    }
}

fn apply_writes(state: &mut Contents, writes: &[Write]) {
    for (family, key, value) in writes {
        let entries = state.entry(family.clone()).or_default();
        match value {
            Some(value) => drop(entries.insert(key.clone(), value.clone())),
            None => drop(entries.remove(key)),
        }
    }
}

fn random_write(rng: &mut Rng, families: &[&String], deletes: u64) -> Write {
    let family = families[rng.index(families.len())].clone();
    let (seed, len) = (rng.next(), rng.between(8, 120));
    let value = (!rng.percent(deletes)).then(|| value_bytes(seed, len));
    (family, key(rng.below(20)), value)
}

fn random_writes(rng: &mut Rng, families: &[&String], deletes: u64) -> Vec<Write> {
    (0..rng.between(1, 12)).map(|_| random_write(rng, families, deletes)).collect()
}
