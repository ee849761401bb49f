//! `perigee-sim prepared`: two-phase commit under crashes. A case is a history of prepares,
//! decisions, plain writes, flushes and compactions, beside another writer. It is crashed at every
//! I/O from its first prepare on, as a process and as a machine, and disk calls fail at some of
//! them. After a reopen, each transaction must be in the state that its calls returned: prepared,
//! or decided and complete; its keys stay locked while it is prepared. A decision that was not
//! synced may be lost with the power, but only as a whole. Some of the transactions exceed their
//! memory: their writes are in tables when they are prepared.

use crate::engine_target::{PATH, check_report};
use crate::rng::{Rng, mix};
use crate::runner::{Case, CommonArgs, lock_mutex, print_summary, run_cases};
use crate::settings::Settings;
use perigee::env::Env;
use perigee::{Db, Durability, Error, ErrorKind, Family, Isolation, LockMode, TxnOptions};
use perigee_env::fs::memory::{Crash, Fault, SimDisk};
use perigee_env::sim::SimWorld;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Number of transaction ids in a history.
const GID_COUNT: usize = 3;
/// Number of keys that a transaction of each id writes.
const KEYS_PER_TXN: usize = 3;
/// Name of the second column family.
const SECOND_FAMILY: &str = "other";

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Shared options; a case is one history with all its crash points.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Runs the command. Returns true if no case failed.
pub fn run(args: &Args) -> bool {
    let numbers = args.common.case_limit(u64::MAX);
    let tally = run_cases("prepared", &args.common, 0, numbers, crash_at_every_io);
    print_summary(&tally, if args.common.case.is_some() { 1 } else { args.common.cases })
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Decides the transaction if it is prepared; otherwise prepares it, with a value of this many
    /// bytes.
    PrepareOrDecide(usize, Decision, usize),
    /// Tries to write a key that the prepared transaction wrote or read.
    CheckConflicts(usize),
    /// Makes this many plain writes.
    PlainWrites(u64),
    Flush,
    Compact,
    Sleep(u64),
}

/// How a transaction is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Commit,
    /// Commits without a sync.
    CommitUnsynced,
    RollBack,
}

impl Decision {
    fn is_commit(self) -> bool {
        self != Decision::RollBack
    }
    fn random(rng: &mut Rng) -> Decision {
        rng.pick(&[
            Decision::Commit,
            Decision::CommitUnsynced,
            Decision::CommitUnsynced,
            Decision::RollBack,
        ])
    }
}

/// State of a transaction id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GidState {
    Free,
    Preparing,
    Prepared,
    Deciding(bool),
}

/// Expected state and contents of one transaction id.
#[derive(Clone, Copy, Debug)]
struct GidEntry {
    state: GidState,
    /// Generation in progress, and the last one committed; 0 means none.
    generation: u64,
    committed: u64,
    /// The generations committed before and by a decision that was not synced and that nothing
    /// has made durable since.
    unsynced: Option<UnsyncedCommit>,
}

/// A decision to commit that a power failure may lose.
#[derive(Clone, Copy, Debug)]
struct UnsyncedCommit {
    before: u64,
    committed: u64,
}

/// Counts of plain writes of one writer.
#[derive(Clone, Copy, Debug, Default)]
struct PlainWriteCounts {
    tried: u64,
    acked: u64,
    /// Durable, because something after it was synced.
    durable: u64,
}

#[derive(Clone, Debug)]
struct PreparedLedger {
    entries: [GidEntry; GID_COUNT],
    plain: [PlainWriteCounts; 2],
    /// Number of I/Os before the first prepare.
    first_prepare_io: Option<u64>,
}

/// A history.
#[derive(Clone, Debug)]
struct PreparedHistory {
    seed: u64,
    settings: Settings,
    steps: Vec<Step>,
}

fn random_history(case: &Case) -> PreparedHistory {
    let mut rng = Rng::new(case.case_seed());
    let durability = rng.pick(&[Durability::Full, Durability::None, Durability::None]);
    let settings = Settings { min_free_space: 0, scrub_us: 0, ..Settings::random(&mut rng) };
    let steps = (0..rng.between(6, 18)).map(|i| match rng.weighted(&[5, 2, 3, 2, 1, 1]) {
        0 => Step::PrepareOrDecide(
            rng.index(GID_COUNT),
            Decision::random(&mut rng),
            rng.pick(&[3, 3, 40, 3000]),
        ),
        _ if i == 0 => Step::PrepareOrDecide(0, Decision::Commit, 3),
        1 => Step::CheckConflicts(rng.index(GID_COUNT)),
        2 => Step::PlainWrites(rng.log_uniform(12)),
        3 => Step::Flush,
        4 => Step::Compact,
        _ => Step::Sleep(rng.log_uniform(3000)),
    });
    let steps = steps.collect();
    PreparedHistory { seed: rng.next(), settings: settings.with_durability(durability), steps }
}

/// A disk call in this number fails, in every way.
const FAULT_INTERVAL: usize = 7;
const FAULTS: [Fault; 4] = [Fault::Eio, Fault::Enospc, Fault::ShortWrite, Fault::SyncFails];

/// What disrupts a session.
#[derive(Clone, Copy, Debug)]
enum Disruption {
    Nothing,
    /// The machine crashes at the n-th I/O.
    CrashAt(u64),
    /// The n-th I/O fails this way, and if set all later ones do too.
    FailAt(u64, Fault, bool),
}

/// Runs the history once to count its I/Os, then once for each of them and each kind of crash.
fn crash_at_every_io(case: &Case) -> Result<(), String> {
    let h = random_history(case);
    let (disk, ledger) = h.run(Disruption::Nothing).map_err(|e| format!("{h:?}: {e}"))?;
    let (first, all) = (ledger.first_prepare_io.unwrap_or(0), disk.mutating_calls());
    for io in first + 1..=all {
        for crash in [Crash::Process, Crash::Power] {
            case.count("crash points", 1);
            let point = || {
                let (disk, ledger) = h.run(Disruption::CrashAt(io))?;
                case.keep_disk("crashed", &disk);
                let (undecided, in_tables) = h.check_recovered(
                    disk.crash_clone(mix(h.seed, io), crash),
                    crash == Crash::Process,
                    ledger,
                )?;
                case.count("undecided after the crash", undecided);
                case.count("of them in tables", in_tables);
                Ok(())
            };
            point()
                .map_err(|e: String| format!("{h:?}, {crash:?} crash at I/O {io} of {all}: {e}"))?;
        }
    }
    for (i, io) in (first + 1..=all).step_by(FAULT_INTERVAL).enumerate() {
        for fault in FAULTS {
            case.count("faults", 1);
            let sticky = i % 2 == 1;
            let point = || {
                let (disk, ledger) = h.run(Disruption::FailAt(io, fault, sticky))?;
                // A failed sync may have lost what was not synced.
                h.check_recovered(disk.crash_clone(mix(h.seed, io), Crash::Power), false, ledger)
                    .map(drop)
            };
            point().map_err(|e| {
                format!("{h:?}, {fault:?} (sticky: {sticky}) at I/O {io} of {all}: {e}")
            })?;
        }
    }
    Ok(())
}

impl PreparedHistory {
    /// Runs until the crash or the end. Returns the disk and the expected state.
    fn run(&self, disruption: Disruption) -> Result<(Arc<SimDisk>, PreparedLedger), String> {
        let disk = SimDisk::new(self.seed);
        match disruption {
            Disruption::Nothing => {}
            Disruption::CrashAt(io) => disk.crash_at(io),
            Disruption::FailAt(io, fault, sticky) => disk.fail_at(io, fault, sticky),
        }
        let calm = matches!(disruption, Disruption::Nothing);
        let entry = GidEntry { state: GidState::Free, generation: 0, committed: 0, unsynced: None };
        let ledger = PreparedLedger {
            entries: [entry; GID_COUNT],
            plain: Default::default(),
            first_prepare_io: None,
        };
        let shared = Arc::new(Mutex::new(ledger));
        let root = |env: Env| {
            let result = self.run_simulated(&env, &disk, &shared);
            result.or_else(|e| {
                if calm || e.kind() == ErrorKind::Internal { Err(e.to_string()) } else { Ok(()) }
            })
        };
        SimWorld::new(self.seed).run(disk.clone(), root)?;
        let ledger = lock_mutex(&shared).clone();
        Ok((disk, ledger))
    }

    fn run_simulated(
        &self,
        env: &Env,
        disk: &Arc<SimDisk>,
        ledger: &Arc<Mutex<PreparedLedger>>,
    ) -> Result<(), Error> {
        let db = Db::open(Path::new(PATH), self.settings.options(env.clone()))?;
        let families =
            [db.default_family(), db.create_family(SECOND_FAMILY, self.settings.family.clone())?];
        let (its, list, gone, clock) =
            (families[0].clone(), ledger.clone(), disk.clone(), env.clock.clone());
        let body = move || {
            for n in 1..25 {
                if write_plain(&its, &list, 1, n).is_err() || gone.crashed() {
                    return;
                }
                clock.sleep_us(40 * n % 7);
            }
        };
        let beside = env.spawn.spawn("beside", Box::new(body))?;
        let actor = TxnDriver { db: &db, families: &families, ledger, disk, seed: self.seed };
        let mut failed = None;
        for step in &self.steps {
            let Err(e) = actor.run_step(*step, env) else { continue };
            // A failed step may be retried unless its outcome is unknown.
            let again = matches!(e.kind(), ErrorKind::NoSpace | ErrorKind::Io | ErrorKind::Busy);
            failed = Some(e);
            if !again || disk.crashed() {
                break;
            }
        }
        beside.join().map_err(|panic| Error::new(ErrorKind::Internal, panic))?;
        failed.map_or_else(|| db.close(), Err)
    }

    /// Opens what a crash left (`all_kept`: with every acknowledged write), compares, decides, cuts
    /// the power, and compares again. Returns the number of transactions that were still prepared,
    /// and how many of them in tables.
    fn check_recovered(
        &self,
        disk: Arc<SimDisk>,
        all_kept: bool,
        mut ledger: PreparedLedger,
    ) -> Result<(u64, u64), String> {
        let mut undecided = (0, 0);
        if all_kept || self.settings.durability == Durability::Full {
            ledger.plain.iter_mut().for_each(|p| p.durable = p.acked);
        }
        if all_kept {
            ledger.entries.iter_mut().for_each(|e| e.unsynced = None);
        }
        let mut disk = disk;
        for round in 0..3 {
            let open = |env: Env| -> Result<(), String> {
                let db = Db::open(Path::new(PATH), self.settings.options(env))
                    .map_err(|e| format!("open: {e}"))?;
                let other = match db.family(SECOND_FAMILY) {
                    Ok(other) => other,
                    // The crash preceded the creation of the database, and so everything else.
                    Err(_) if ledger.first_prepare_io.is_none() => return Ok(()),
                    Err(e) => return Err(e.to_string()),
                };
                let families = [db.default_family(), other];
                self.check_contents(&db, &families, &mut ledger)
                    .map_err(|e| format!("round {round}: {e}"))?;
                let prepared = |(_, e): &(usize, &GidEntry)| e.state == GidState::Prepared;
                undecided.0 += ledger.entries.iter().enumerate().filter(prepared).count() as u64;
                let in_tables = |(n, e): &(usize, &GidEntry)| {
                    prepared(&(*n, e)) && exceeds_memory(self.seed, *n, e.generation)
                };
                undecided.1 += ledger.entries.iter().enumerate().filter(in_tables).count() as u64;
                check_report(&db.admin().verify().map_err(|e| e.to_string())?)
                    .map_err(|e| e.to_string())?;
                if round == 1 {
                    self.decide_all(&db, &mut ledger)?;
                    let mut decided = ledger.clone();
                    self.check_contents(&db, &families, &mut decided)
                        .map_err(|e| format!("after the decisions: {e}"))?;
                } else {
                    db.admin().flush().map_err(|e| format!("flush: {e}"))?;
                }
                Ok(())
            };
            SimWorld::new(mix(self.seed, round)).run(disk.clone(), open)?;
            disk = disk.crash_clone(mix(self.seed, 9 + round), Crash::Power);
        }
        Ok(undecided)
    }

    /// Decides all prepared transactions.
    fn decide_all(&self, db: &Db, ledger: &mut PreparedLedger) -> Result<(), String> {
        for (n, entry) in
            ledger.entries.iter_mut().enumerate().filter(|(_, e)| e.state == GidState::Prepared)
        {
            let decision = Decision::random(&mut Rng::new(mix(self.seed, n as u64)));
            decide_prepared(db, n, decision).map_err(|e| format!("deciding {n}: {e}"))?;
            entry.state = GidState::Free;
            entry.record_commit(decision);
        }
        Ok(())
    }

    /// Checks that the contents are as expected, and replaces uncertain states by the ones found.
    fn check_contents(
        &self,
        db: &Db,
        families: &[Family; 2],
        ledger: &mut PreparedLedger,
    ) -> Result<(), String> {
        let listed = db.two_phase().prepared().map_err(|e| e.to_string())?;
        for (n, entry) in ledger.entries.iter_mut().enumerate() {
            let here = listed.iter().any(|p| p.gid == gid(n).as_bytes());
            if let Some(unsynced) = entry.unsynced.take() {
                let found = families[0].get(key(n, 0)).map_err(|e| e.to_string())?;
                let kept = value_prefix(n, 0, unsynced.committed);
                if found.map(|v| v[..v.len().min(12)].to_vec()) != kept {
                    // The decision is lost, and so is everything after it.
                    let UnsyncedCommit { before, committed: generation } = unsynced;
                    *entry = GidEntry { generation, committed: before, ..*entry };
                    entry.state = GidState::Prepared;
                }
            }
            let committed = entry.committed;
            let (state, committed) = match (entry.state, here) {
                (GidState::Free | GidState::Preparing, false) => (GidState::Free, committed),
                (GidState::Preparing | GidState::Prepared | GidState::Deciding(_), true) => {
                    (GidState::Prepared, committed)
                }
                (GidState::Deciding(true), false) => (GidState::Free, entry.generation),
                (GidState::Deciding(false), false) => (GidState::Free, committed),
                (state, here) => {
                    return Err(format!("{n}: {state:?}, but listed: {here}; {entry:?}"));
                }
            };
            (entry.state, entry.committed) = (state, committed);
            for k in 0..KEYS_PER_TXN {
                let found = families[k % 2].get(key(n, k)).map_err(|e| e.to_string())?;
                let expected = value_prefix(n, k, committed);
                if found.as_deref().map(|v| v[..v.len().min(12)].to_vec()) != expected {
                    let found =
                        found.map(|v| String::from_utf8_lossy(&v[..v.len().min(12)]).into_owned());
                    return Err(format!(
                        "key {k} of {n}: found {found:?}, expected generation {committed}, \
                         {entry:?}"
                    ));
                }
            }
            let free = families[0].get(free_key(n)).map_err(|e| e.to_string())?;
            if free.is_some_and(|v| v != b"free") {
                return Err(format!("a write that {n} rolled back was committed"));
            }
            if state == GidState::Prepared {
                check_guarded(db, families, n, entry.generation)?;
            }
        }
        for (w, p) in ledger.plain.iter_mut().enumerate() {
            let found = families[0].get(format!("plain {w}")).map_err(|e| e.to_string())?;
            let found = found.map_or(0, |v| v.iter().take_while(|b| **b == b'x').count() as u64);
            if found < p.durable || found > p.tried {
                return Err(format!("plain writes of {w}: found {found}, {p:?}"));
            }
            *p = PlainWriteCounts { tried: found, acked: found, durable: 0 };
            // The write was copied into a synced log.
            p.durable = found;
        }
        Ok(())
    }
}

fn gid(n: usize) -> String {
    format!("gid {n}")
}
fn key(n: usize, k: usize) -> String {
    format!("{n}/{k}")
}
/// Returns a key that the transaction only reads.
fn read_key(n: usize) -> String {
    format!("{n}/read")
}
/// Returns a key between those that the transaction writes, which only plain writes touch.
fn free_key(n: usize) -> String {
    format!("{n}/1 free")
}
/// Returns the prefix of a generation's values. Every third generation deletes its last key.
fn value_prefix(n: usize, k: usize, generation: u64) -> Option<Vec<u8>> {
    let gone = generation == 0 || generation.is_multiple_of(3) && k == KEYS_PER_TXN - 1;
    (!gone).then(|| format!("{n} {k} {generation:08}").into_bytes())
}
fn isolation_of(generation: u64) -> Isolation {
    let all = [
        Isolation::Snapshot,
        Isolation::Serializable,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
    ];
    all[generation as usize % all.len()]
}

/// Returns true if every write exceeds the memory of the transaction, so that it is prepared with
/// tables.
fn exceeds_memory(seed: u64, n: usize, generation: u64) -> bool {
    mix(seed, generation).is_multiple_of(5) || mix(seed, n as u64) % 5 < 2
}

fn decide_prepared(db: &Db, n: usize, decision: Decision) -> Result<(), Error> {
    match decision {
        Decision::Commit => db.two_phase().commit(gid(n)).map(drop),
        Decision::CommitUnsynced => db.two_phase().commit_with(gid(n), Durability::None).map(drop),
        Decision::RollBack => db.two_phase().rollback(gid(n)),
    }
}

impl GidEntry {
    /// Records that the prepared generation was decided.
    fn record_commit(&mut self, decision: Decision) {
        if decision.is_commit() {
            let unsynced = UnsyncedCommit { before: self.committed, committed: self.generation };
            self.unsynced = (decision == Decision::CommitUnsynced).then_some(unsynced);
            self.committed = self.generation;
        }
    }
}

fn write_plain(
    family: &Family,
    ledger: &Mutex<PreparedLedger>,
    writer: usize,
    n: u64,
) -> Result<(), Error> {
    lock_mutex(ledger).plain[writer].tried = n;
    let done =
        family.put(format!("plain {writer}"), [vec![b'x'; n as usize], vec![b'.'; 60]].concat());
    let p = &mut lock_mutex(ledger).plain[writer];
    match &done {
        Ok(()) => p.acked = n,
        Err(e) if e.kind() == ErrorKind::OutcomeUnknown || is_crash(e) => {}
        // The write is not there and never will be.
        Err(_) => p.tried = p.acked,
    }
    done
}

/// Returns true if the machine has crashed, so that the result reached no caller.
fn is_crash(e: &Error) -> bool {
    e.to_string().contains("simulated crash")
}

/// Checks that no writer can write or lock what a prepared transaction wrote or read.
fn check_guarded(db: &Db, families: &[Family; 2], n: usize, generation: u64) -> Result<(), String> {
    let refused = |done: Result<(), Error>, kind| match done {
        Err(e) if e.kind() == kind => Ok(()),
        done => Err(format!("{n} is prepared, but a writer got {done:?}")),
    };
    for (k, family) in families.iter().cycle().take(KEYS_PER_TXN).enumerate() {
        refused(family.put(key(n, k), "meddled"), ErrorKind::Conflict)?;
    }
    if matches!(isolation_of(generation), Isolation::Serializable | Isolation::RepeatableRead) {
        refused(families[0].delete(read_key(n)), ErrorKind::Conflict)?;
    }
    // An optimistic transaction holds locks only after a restart; then it holds all of them.
    let options = TxnOptions::new().lock_timeout(Duration::ZERO);
    let patient = db.begin(options).map_err(|e| e.to_string())?;
    refused(patient.lock(&families[0], key(n, 0), LockMode::Shared), ErrorKind::Busy)
}

/// Prepares and decides transactions.
struct TxnDriver<'a> {
    db: &'a Db,
    families: &'a [Family; 2],
    ledger: &'a Mutex<PreparedLedger>,
    disk: &'a SimDisk,
    seed: u64,
}

impl TxnDriver<'_> {
    fn run_step(&self, step: Step, env: &Env) -> Result<(), Error> {
        match step {
            Step::PrepareOrDecide(n, decision, bytes) => {
                let state = lock_mutex(self.ledger).entries[n].state;
                match state {
                    GidState::Prepared => self.decide(n, decision),
                    _ => {
                        lock_mutex(self.ledger)
                            .first_prepare_io
                            .get_or_insert(self.disk.mutating_calls());
                        self.prepare(n, bytes)
                    }
                }
            }
            Step::CheckConflicts(n) => self.check_conflicts(n),
            Step::PlainWrites(more) => {
                let from = lock_mutex(self.ledger).plain[0].tried;
                (from + 1..=from + more)
                    .try_for_each(|at| write_plain(&self.families[0], self.ledger, 0, at))
            }
            Step::Flush => self.db.admin().flush(),
            Step::Compact => self.db.admin().compact(),
            Step::Sleep(us) => {
                env.clock.sleep_us(us);
                Ok(())
            }
        }
    }

    /// Runs a step that makes everything before it durable when it returns.
    fn run_durable(&self, act: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let before = lock_mutex(self.ledger).plain;
        act()?;
        if self.disk.crashed() {
            return Ok(());
        }
        let mut ledger = lock_mutex(self.ledger);
        for (p, before) in ledger.plain.iter_mut().zip(before) {
            p.durable = p.durable.max(before.acked);
        }
        // All decisions are made by this thread.
        ledger.entries.iter_mut().for_each(|e| e.unsynced = None);
        Ok(())
    }

    fn prepare(&self, n: usize, bytes: usize) -> Result<(), Error> {
        let generation = {
            let mut ledger = lock_mutex(self.ledger);
            let entry = &mut ledger.entries[n];
            (entry.state, entry.generation) = (GidState::Preparing, entry.generation + 1);
            entry.generation
        };
        let pessimistic = mix(self.seed, generation).is_multiple_of(2);
        let mut options =
            TxnOptions::new().isolation(isolation_of(generation)).pessimistic(pessimistic);
        if exceeds_memory(self.seed, n, generation) {
            options = options.spill_bytes(1);
        }
        let txn = self.db.begin(options)?;
        txn.get(&self.families[0], read_key(n))?;
        for k in 0..KEYS_PER_TXN {
            let family = &self.families[k % 2];
            if k == 1 {
                txn.savepoint("before")?;
                txn.put(&self.families[0], key(n, 0), "rolled back")?;
                txn.put(&self.families[0], free_key(n), "rolled back")?;
                txn.rollback_to("before")?;
            }
            match value_prefix(n, k, generation) {
                Some(mut value) => {
                    value.resize(value.len() + bytes, b'.');
                    txn.put(family, key(n, k), value)?;
                }
                None => txn.delete_range(family, key(n, k)..=key(n, k))?,
            }
        }
        let done = self.run_durable(|| txn.prepare(gid(n)));
        self.record_outcome(n, &done, GidState::Prepared, GidState::Free);
        done
    }

    /// Records the outcome: on success `yes`, on a definite failure `no`; otherwise the state is
    /// uncertain.
    fn record_outcome(&self, n: usize, done: &Result<(), Error>, yes: GidState, no: GidState) {
        let entry = &mut lock_mutex(self.ledger).entries[n];
        match done {
            Ok(()) => entry.state = yes,
            Err(e) if e.kind() == ErrorKind::OutcomeUnknown || self.disk.crashed() => {}
            Err(_) => entry.state = no,
        }
    }

    fn decide(&self, n: usize, decision: Decision) -> Result<(), Error> {
        lock_mutex(self.ledger).entries[n].state = GidState::Deciding(decision.is_commit());
        let done = match decision {
            Decision::CommitUnsynced => decide_prepared(self.db, n, decision),
            _ => self.run_durable(|| decide_prepared(self.db, n, decision)),
        };
        self.record_outcome(n, &done, GidState::Free, GidState::Prepared);
        if done.is_ok() {
            lock_mutex(self.ledger).entries[n].record_commit(decision);
        }
        done
    }

    /// Checks that no other write succeeds between prepare and decision.
    fn check_conflicts(&self, n: usize) -> Result<(), Error> {
        let entry = lock_mutex(self.ledger).entries[n];
        if entry.state != GidState::Prepared {
            return Ok(());
        }
        for k in 0..KEYS_PER_TXN {
            let done = self.families[k % 2].put(key(n, k), "meddled");
            match done {
                Err(e) if e.kind() == ErrorKind::Conflict => {}
                Err(e) => return Err(e),
                Ok(()) => {
                    return Err(Error::internal(format!(
                        "{n} is prepared, but its key {k} could be written"
                    )));
                }
            }
        }
        match self.families[0].put(free_key(n), "free") {
            Err(e) if e.kind() == ErrorKind::Conflict => {
                Err(Error::internal(format!("{n} is prepared and locks out another key: {e}")))
            }
            done => done,
        }
    }
}
