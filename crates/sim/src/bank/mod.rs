//! `perigee-sim crash`, the part with transactions: clients of a bank over several families, crashed at random I/Os, and every I/O
//! of short lives. What may be there afterwards say the [`books`].

pub mod books;
pub mod teller;

use crate::contents::read_all;
use crate::engine::{PATH, clean};
use crate::ledger::Owed;
use crate::rng::{Rng, mix};
use crate::runner::{Case, held};
use crate::session::{After, When, weaker};
use crate::settings::Settings;
use books::{Books, FAMILIES};
use perigee::env::Env;
use perigee::{Db, Durability};
use perigee_env::fs::memory::{Crash, SimDisk};
use perigee_env::sim::World;
use std::path::Path;
use std::sync::{Arc, Mutex};
use teller::{Bank, Teller};

/// One case in so many is a short life, crashed at every I/O.
const EVERY: u64 = 50;

/// A life of the bank.
#[derive(Clone, Debug)]
struct Life {
    seed: u64,
    settings: Settings,
    clients: usize,
    /// Transactions of each.
    transactions: usize,
    locked: bool,
    restless: bool,
    when: When,
    crash: Crash,
}

/// One case.
pub fn one_case(case: &Case, durability: impl Fn(&mut Rng) -> Durability) -> Result<(), String> {
    let mut rng = Rng::new(mix(case.mixed(), 0xBA2C));
    let settings = Settings::random(&mut rng).durability(durability(&mut rng));
    let life = Life {
        seed: rng.next(),
        settings,
        clients: rng.between(1, 4),
        transactions: rng.log_uniform(30) as usize,
        locked: rng.percent(40),
        restless: rng.percent(50),
        when: When::Closed,
        crash: Crash::Power,
    };
    if case.number % EVERY == EVERY - 1 { every_point(case, &life) } else { some_lives(case, &mut rng, life) }
}

/// A few lives of one database, each ended by a crash.
fn some_lives(case: &Case, rng: &mut Rng, pattern: Life) -> Result<(), String> {
    let books = Arc::new(Mutex::new(Books::new(pattern.clients)));
    let (mut disk, mut owed) = (SimDisk::new(rng.next()), Owed::Acked);
    for cycle in 0..rng.pick(&[2, 2, 3]) {
        let reach = (pattern.clients * pattern.transactions * 4 + 10) as u64;
        let when = match rng.below(10) {
            0 => When::Io(rng.between(1, 24) as u64),
            1 => When::End,
            2 if cycle > 0 => When::Closed,
            _ => When::IoAfterOpen(1 + rng.below(reach)),
        };
        let crash = if rng.percent(65) { Crash::Power } else { Crash::Process };
        let after =
            Life { seed: rng.next(), when, crash, ..pattern.clone() }.live(case, disk, &books, owed)?;
        case.count("bank lives", 1);
        case.count("bank crashes", u64::from(after.crashed));
        (disk, owed) = (after.disk, after.owed);
    }
    case.count("bank commits", held(&books).count() as u64);
    last_look(case, &Life { seed: rng.next(), ..pattern }, disk, &books, owed)
}

/// Crashes a short life at every I/O, in both ways.
fn every_point(case: &Case, pattern: &Life) -> Result<(), String> {
    let short = Life { transactions: 3, clients: pattern.clients.min(2), ..pattern.clone() };
    let live = |when, crash| {
        let (books, disk) = (Arc::new(Mutex::new(Books::new(short.clients))), SimDisk::new(short.seed));
        let after = Life { when, crash, ..short.clone() }.live(case, disk, &books, Owed::Acked)?;
        Ok::<_, String>((after, books))
    };
    let (all, open) = live(When::Closed, Crash::Process)?.0.ios;
    for io in open + 1..=all {
        for crash in [Crash::Process, Crash::Power] {
            case.count("bank crash points", 1);
            let (after, books) =
                live(When::Io(io), crash).map_err(|e| format!("{crash:?} at I/O {io} of {all}: {e}"))?;
            last_look(case, &short, after.disk, &books, after.owed)
                .map_err(|e| format!("after {crash:?} at I/O {io} of {all}: {e}"))?;
        }
    }
    Ok(())
}

/// Opens, compares, works a little, closes, and looks once more.
fn last_look(
    case: &Case,
    pattern: &Life,
    mut disk: Arc<SimDisk>,
    books: &Arc<Mutex<Books>>,
    mut owed: Owed,
) -> Result<(), String> {
    for transactions in [2, 0] {
        let (when, crash) = (When::Closed, Crash::Power);
        let seed = mix(pattern.seed, transactions as u64 + 77);
        let life = Life { seed, transactions, when, crash, ..pattern.clone() };
        let after = life.live(case, disk, books, owed)?;
        (disk, owed) = (after.disk, after.owed);
    }
    Ok(())
}

impl Life {
    /// Lives it. `owed` is what it must find; `Err` is a broken promise.
    fn live(
        &self,
        case: &Case,
        disk: Arc<SimDisk>,
        books: &Arc<Mutex<Books>>,
        owed: Owed,
    ) -> Result<After, String> {
        case.keep(&format!("before-{:x}", self.seed), &disk.deep_clone());
        if let When::Io(n) = self.when {
            disk.crash_at(n);
        }
        let mut world = World::new(self.seed);
        if self.restless {
            world.lock_switch_probability(0.4);
        }
        world
            .run(disk.clone(), |env| self.root(env, &disk, books, owed))
            .map_err(|e| format!("{e}\n  {self:?}"))
    }

    fn root(
        &self,
        env: Env,
        disk: &Arc<SimDisk>,
        books: &Arc<Mutex<Books>>,
        owed: Owed,
    ) -> Result<After, String> {
        let before = disk.io_count();
        let in_open = |owed| After { in_open: true, ..self.after(disk, owed, before, disk.io_count()) };
        let db = match Db::open(Path::new(PATH), self.settings.options(env.clone())) {
            Ok(db) => db,
            Err(_) if disk.crashed() => return Ok(in_open(weaker(owed, self.owed(books)))),
            Err(e) => return Err(format!("open failed: {e}")),
        };
        let opened = disk.io_count();
        if let When::IoAfterOpen(n) = self.when {
            disk.crash_at(n);
        }
        match self.compare(&db, books, owed) {
            Err(_) if disk.crashed() => return Ok(in_open(weaker(owed, self.owed(books)))),
            other => other?,
        }
        let bank = match self.bank(db, env, disk, books) {
            Ok(bank) => bank,
            Err(_) if disk.crashed() => return Ok(self.after(disk, self.owed(books), before, opened)),
            Err(e) => return Err(format!("opening the accounts: {e}")),
        };
        self.work(&bank)?;
        if let Some(wrong) = held(&bank.wrong).take() {
            return Err(wrong);
        }
        if self.when != When::End && !disk.crashed() {
            let closed = bank.db.close();
            if !disk.crashed() {
                closed.map_err(|e| format!("close failed: {e}"))?;
                return Ok(self.after(disk, Owed::Acked, before, opened));
            }
        }
        Ok(self.after(disk, self.owed(books), before, opened))
    }

    fn compare(&self, db: &Db, books: &Arc<Mutex<Books>>, owed: Owed) -> Result<(), String> {
        let found = read_all(db).map_err(|e| format!("reading after open: {e}"))?;
        let recovery = db.stats().recovery;
        let judged = held(books).recover(&found, owed);
        judged.map_err(|e| format!("{e}\n  owed {owed:?}, {recovery:?}"))?;
        let report = db.verify().map_err(|e| format!("verify: {e}"))?;
        clean(&report).map_err(|e| format!("verify found: {e}"))
    }

    /// The bank with its families and accounts.
    fn bank(
        &self,
        db: Db,
        env: Env,
        disk: &Arc<SimDisk>,
        books: &Arc<Mutex<Books>>,
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
            books: Arc::clone(books),
            durability: self.settings.durability,
            locked: self.locked,
            running: (0..self.clients).map(|_| Mutex::default()).collect(),
            wrong: Mutex::default(),
        };
        bank.open_accounts()?;
        Ok(Arc::new(bank))
    }

    fn work(&self, bank: &Arc<Bank>) -> Result<(), String> {
        let mut joins = Vec::new();
        for me in (0..self.clients).filter(|_| self.transactions > 0) {
            let (its, seed, n) = (Arc::clone(bank), mix(self.seed, me as u64 + 1), self.transactions);
            let body = Box::new(move || Teller::new(&its, me, seed).work(n));
            let thread = bank.env.spawn.spawn(&format!("client-{me}"), body);
            joins.push(thread.map_err(|e| format!("spawn: {e}"))?);
        }
        for join in joins {
            join.join().map_err(|panic| format!("a client panicked: {panic}"))?;
        }
        Ok(())
    }

    /// What a crash of this kind owes.
    fn owed(&self, books: &Mutex<Books>) -> Owed {
        match (self.crash, self.settings.durability) {
            (Crash::Process, _) => Owed::Acked,
            (Crash::Power, Durability::Interval(t)) => {
                let slack = 2 * u64::try_from(t.as_micros()).unwrap_or(u64::MAX / 4) + 5_000;
                Owed::Durable { before_us: held(books).newest_ack_us().saturating_sub(slack) }
            }
            (Crash::Power, _) => Owed::Durable { before_us: 0 },
        }
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
