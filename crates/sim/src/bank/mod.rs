//! `perigee-sim crash`, the part with transactions: clients of a bank over several column families,
//! crashed at random I/Os, and short sessions crashed at every I/O. The [`bank_ledger`] decides
//! which contents are allowed afterwards.

pub mod bank_ledger;
pub mod client;

use crate::contents::read_all;
use crate::engine_target::{PATH, check_report};
use crate::ledger::RequiredCommits;
use crate::rng::{Rng, mix};
use crate::runner::{Case, lock_mutex};
use crate::session::{CrashPoint, SessionResult, weaker_requirement};
use crate::settings::Settings;
use bank_ledger::{BankLedger, FAMILIES};
use client::{Bank, BankClient};
use perigee::env::Env;
use perigee::{Db, Durability};
use perigee_env::fs::memory::{Crash, SimDisk};
use perigee_env::sim::SimWorld;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// One case in this number is a short session that is crashed at every I/O.
const EXHAUSTIVE_INTERVAL: u64 = 50;

/// Plan of one session of the bank.
#[derive(Clone, Debug)]
struct BankSession {
    seed: u64,
    settings: Settings,
    clients: usize,
    /// Transactions of each client.
    transactions: usize,
    lock_reads: bool,
    frequent_switches: bool,
    crash_point: CrashPoint,
    crash_kind: Crash,
}

/// Runs one case.
pub fn run_case(case: &Case, durability: impl Fn(&mut Rng) -> Durability) -> Result<(), String> {
    let mut rng = Rng::new(mix(case.case_seed(), 0xBA2C));
    let settings = Settings::random(&mut rng).with_durability(durability(&mut rng));
    let life = BankSession {
        seed: rng.next(),
        settings,
        clients: rng.between(1, 4),
        transactions: rng.log_uniform(30) as usize,
        lock_reads: rng.percent(40),
        frequent_switches: rng.percent(50),
        crash_point: CrashPoint::CleanClose,
        crash_kind: Crash::Power,
    };
    if case.number % EXHAUSTIVE_INTERVAL == EXHAUSTIVE_INTERVAL - 1 {
        crash_at_every_io(case, &life)
    } else {
        crash_at_random(case, &mut rng, life)
    }
}

/// Runs a few sessions of one database, each ended by a crash.
fn crash_at_random(case: &Case, rng: &mut Rng, pattern: BankSession) -> Result<(), String> {
    let ledger = Arc::new(Mutex::new(BankLedger::new(pattern.clients)));
    let (mut disk, mut required) = (SimDisk::new(rng.next()), RequiredCommits::Acked);
    for cycle in 0..rng.pick(&[2, 2, 3]) {
        let reach = (pattern.clients * pattern.transactions * 4 + 10) as u64;
        let when = match rng.below(10) {
            0 => CrashPoint::Io(rng.between(1, 24) as u64),
            1 => CrashPoint::WritersDone,
            2 if cycle > 0 => CrashPoint::CleanClose,
            _ => CrashPoint::IoAfterOpen(1 + rng.below(reach)),
        };
        let crash = if rng.percent(65) { Crash::Power } else { Crash::Process };
        let after = BankSession {
            seed: rng.next(),
            crash_point: when,
            crash_kind: crash,
            ..pattern.clone()
        }
        .run(case, disk, &ledger, required)?;
        case.count("bank sessions", 1);
        case.count("bank crashes", u64::from(after.crashed));
        (disk, required) = (after.disk, after.required);
    }
    case.count("bank commits", lock_mutex(&ledger).acked_count() as u64);
    check_final_state(case, &BankSession { seed: rng.next(), ..pattern }, disk, &ledger, required)
}

/// Crashes a short session at every I/O, in both ways.
fn crash_at_every_io(case: &Case, pattern: &BankSession) -> Result<(), String> {
    let short = BankSession { transactions: 3, clients: pattern.clients.min(2), ..pattern.clone() };
    let live = |when, crash| {
        let (ledger, disk) =
            (Arc::new(Mutex::new(BankLedger::new(short.clients))), SimDisk::new(short.seed));
        let after = BankSession { crash_point: when, crash_kind: crash, ..short.clone() }.run(
            case,
            disk,
            &ledger,
            RequiredCommits::Acked,
        )?;
        Ok::<_, String>((after, ledger))
    };
    let (all, open) = live(CrashPoint::CleanClose, Crash::Process)?.0.ios;
    for io in open + 1..=all {
        for crash in [Crash::Process, Crash::Power] {
            case.count("bank crash points", 1);
            let (after, ledger) = live(CrashPoint::Io(io), crash)
                .map_err(|e| format!("{crash:?} at I/O {io} of {all}: {e}"))?;
            check_final_state(case, &short, after.disk, &ledger, after.required)
                .map_err(|e| format!("after {crash:?} at I/O {io} of {all}: {e}"))?;
        }
    }
    Ok(())
}

/// Opens, compares, works briefly, closes, and compares once more.
fn check_final_state(
    case: &Case,
    pattern: &BankSession,
    mut disk: Arc<SimDisk>,
    ledger: &Arc<Mutex<BankLedger>>,
    mut required: RequiredCommits,
) -> Result<(), String> {
    for transactions in [2, 0] {
        let (when, crash) = (CrashPoint::CleanClose, Crash::Power);
        let seed = mix(pattern.seed, transactions as u64 + 77);
        let life = BankSession {
            seed,
            transactions,
            crash_point: when,
            crash_kind: crash,
            ..pattern.clone()
        };
        let after = life.run(case, disk, ledger, required)?;
        (disk, required) = (after.disk, after.required);
    }
    Ok(())
}

impl BankSession {
    /// Runs the session. `required` says what the open must find. `Err` describes a broken
    /// guarantee.
    fn run(
        &self,
        case: &Case,
        disk: Arc<SimDisk>,
        ledger: &Arc<Mutex<BankLedger>>,
        required: RequiredCommits,
    ) -> Result<SessionResult, String> {
        case.keep_disk(&format!("before-{:x}", self.seed), &disk.deep_clone());
        if let CrashPoint::Io(n) = self.crash_point {
            disk.crash_at(n);
        }
        let mut world = SimWorld::new(self.seed);
        if self.frequent_switches {
            world.lock_switch_probability(0.4);
        }
        world
            .run(disk.clone(), |env| self.run_simulated(env, &disk, ledger, required))
            .map_err(|e| format!("{e}\n  {self:?}"))
    }

    fn run_simulated(
        &self,
        env: Env,
        disk: &Arc<SimDisk>,
        ledger: &Arc<Mutex<BankLedger>>,
        required: RequiredCommits,
    ) -> Result<SessionResult, String> {
        let before = disk.mutating_calls();
        let in_open = |required| SessionResult {
            crashed_in_open: true,
            ..self.session_result(disk, required, before, disk.mutating_calls())
        };
        let db = match Db::open(Path::new(PATH), self.settings.options(env.clone())) {
            Ok(db) => db,
            Err(_) if disk.crashed() => {
                return Ok(in_open(weaker_requirement(required, self.required_commits(ledger))));
            }
            Err(e) => return Err(format!("open failed: {e}")),
        };
        let opened = disk.mutating_calls();
        if let CrashPoint::IoAfterOpen(n) = self.crash_point {
            disk.crash_at(n);
        }
        match self.check_recovered(&db, ledger, required) {
            Err(_) if disk.crashed() => {
                return Ok(in_open(weaker_requirement(required, self.required_commits(ledger))));
            }
            other => other?,
        }
        let bank = match self.open_bank(db, env, disk, ledger) {
            Ok(bank) => bank,
            Err(_) if disk.crashed() => {
                return Ok(self.session_result(
                    disk,
                    self.required_commits(ledger),
                    before,
                    opened,
                ));
            }
            Err(e) => return Err(format!("opening the accounts: {e}")),
        };
        self.run_clients(&bank)?;
        if let Some(wrong) = lock_mutex(&bank.failure).take() {
            return Err(wrong);
        }
        if self.crash_point != CrashPoint::WritersDone && !disk.crashed() {
            let closed = bank.db.close();
            if !disk.crashed() {
                closed.map_err(|e| format!("close failed: {e}"))?;
                return Ok(self.session_result(disk, RequiredCommits::Acked, before, opened));
            }
        }
        Ok(self.session_result(disk, self.required_commits(ledger), before, opened))
    }

    fn check_recovered(
        &self,
        db: &Db,
        ledger: &Arc<Mutex<BankLedger>>,
        required: RequiredCommits,
    ) -> Result<(), String> {
        let found = read_all(db).map_err(|e| format!("reading after open: {e}"))?;
        let recovery = db.admin().stats().recovery;
        let judged = lock_mutex(ledger).check_recovered(&found, required);
        judged.map_err(|e| format!("{e}\n  required {required:?}, {recovery:?}"))?;
        let report = db.admin().verify().map_err(|e| format!("verify: {e}"))?;
        check_report(&report).map_err(|e| format!("verify found: {e}"))
    }

    /// Opens the database with its column families and accounts.
    fn open_bank(
        &self,
        db: Db,
        env: Env,
        disk: &Arc<SimDisk>,
        ledger: &Arc<Mutex<BankLedger>>,
    ) -> perigee::Result<Arc<Bank>> {
        let there = db.families();
        for name in FAMILIES.iter().filter(|name| !there.iter().any(|n| n == *name)) {
            db.create_family(name, self.settings.family.clone())?;
        }
        let families = FAMILIES.iter().map(|name| db.family(name)).collect::<Result<_, _>>()?;
        let bank = Bank {
            db,
            families,
            env,
            disk: Arc::clone(disk),
            ledger: Arc::clone(ledger),
            durability: self.settings.durability,
            lock_reads: self.lock_reads,
            running_txns: (0..self.clients).map(|_| Mutex::default()).collect(),
            failure: Mutex::default(),
        };
        bank.open_accounts()?;
        Ok(Arc::new(bank))
    }

    fn run_clients(&self, bank: &Arc<Bank>) -> Result<(), String> {
        let mut joins = Vec::new();
        for me in (0..self.clients).filter(|_| self.transactions > 0) {
            let (its, seed, n) =
                (Arc::clone(bank), mix(self.seed, me as u64 + 1), self.transactions);
            let body = Box::new(move || BankClient::new(&its, me, seed).run(n));
            let thread = bank.env.spawn.spawn(&format!("client-{me}"), body);
            joins.push(thread.map_err(|e| format!("spawn: {e}"))?);
        }
        for join in joins {
            join.join().map_err(|panic| format!("a client panicked: {panic}"))?;
        }
        Ok(())
    }

    /// Returns which commits a crash of this kind must preserve.
    fn required_commits(&self, ledger: &Mutex<BankLedger>) -> RequiredCommits {
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
