//! Transactions: read-modify-writes with a few hot keys, SmallBank, and orders as in TPC-C.
//!
//! Who loses to another tries again, the same once more, until it has committed. Every kind keeps sums that lost or doubled updates
//! would break; they are compared when the database has been opened again.

use super::run::{Part, Plan};
use crate::engine::{Deal, Engine, Lost, Result, Session};
use crate::meter::Meter;
use crate::pick::Rng;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Two counters are read and written one higher: one of the first `hot`, and any.
    Rmw { hot: u64 },
    /// Two accounts for each customer; six kinds of transactions, nine tenths of them on a thousand customers.
    SmallBank,
    /// Half orders of 5 to 15 lines, half payments, over six families; a warehouse for every 20,000 keys.
    NewOrder,
}

/// What all threads have committed, as sums.
#[derive(Debug, Default)]
pub struct Tally([AtomicI64; 3]);

/// What one transaction adds to the sums.
type Sums = [i64; 3];

const START: i64 = 10_000;
const BUSY_CUSTOMERS: u64 = 1000;
const DISTRICTS: u64 = 10;
const CUSTOMERS: u64 = 300;
const ITEMS: u64 = 10_000;
/// Orders that a district may have, and lines of an order.
const ORDERS: u64 = 1 << 24;
const LINES: u64 = 16;

const SAVINGS: usize = 0;
const CHECKING: usize = 1;

const WAREHOUSE: usize = 0;
const DISTRICT: usize = 1;
const CUSTOMER: usize = 2;
const STOCK: usize = 3;
const ORDER: usize = 4;
const LINE: usize = 5;

impl Kind {
    /// Families that it works on.
    pub fn families(self) -> u64 {
        match self {
            Kind::Rmw { .. } => 1,
            Kind::SmallBank => 2,
            Kind::NewOrder => 6,
        }
    }
}

fn warehouses(plan: &Plan) -> u64 {
    (plan.n / 20_000).max(1)
}

/// Reads and writes rows: three numbers at the front of a value.
struct Desk<'d> {
    deal: &'d mut dyn Deal,
    rows: &'d mut Rows,
    plan: &'d Plan,
}

/// Room for a key and a value, and how many rows were written.
#[derive(Default)]
struct Rows {
    key: Vec<u8>,
    value: Vec<u8>,
    written: u64,
}

fn numbers(value: &[u8]) -> Option<Sums> {
    let at = |i: usize| Some(i64::from_le_bytes(*value.get(8 * i..)?.first_chunk()?));
    Some([at(0)?, at(1)?, at(2)?])
}

fn row<'a>(plan: &Plan, id: u64, of: Sums, value: &'a mut Vec<u8>) -> &'a [u8] {
    plan.values.write(id, 1, value);
    value.resize(value.len().max(24), 0);
    value.chunks_exact_mut(8).zip(of).for_each(|(to, n)| to.copy_from_slice(&n.to_le_bytes()));
    value
}

impl Desk<'_> {
    fn read(&mut self, family: usize, id: u64, change: bool) -> Result<Sums> {
        let key = self.plan.keys.write(id, &mut self.rows.key);
        let mut found = None;
        self.deal.get(family, key, change, &mut |value| found = value.and_then(numbers))?;
        found.ok_or_else(|| format!("row {id} of family {family} is not there").into())
    }
    fn write(&mut self, family: usize, id: u64, of: Sums) -> Result<()> {
        let key = self.plan.keys.write(id, &mut self.rows.key);
        self.rows.written += 1;
        self.deal.put(family, key, row(self.plan, id, of, &mut self.rows.value))
    }
    /// Reads a row that is changed, and writes it.
    fn change(&mut self, family: usize, id: u64, change: impl FnOnce(&mut Sums)) -> Result<Sums> {
        let mut of = self.read(family, id, true)?;
        change(&mut of);
        self.write(family, id, of)?;
        Ok(of)
    }
}

/// One transaction, with everything that chance has to say about it: tried again it is the same.
#[derive(Debug)]
enum Plot {
    Rmw(u64, u64),
    Balance(u64),
    Deposit(u64, i64),
    Save(u64, i64),
    Amalgamate(u64, u64),
    Check(u64, i64),
    Send(u64, u64, i64),
    Order { district: u64, customer: u64, lines: Vec<(u64, i64)> },
    Pay { district: u64, customer: u64, amount: i64 },
}

fn plot(kind: Kind, plan: &Plan, rng: &mut Rng) -> Plot {
    match kind {
        Kind::Rmw { hot } => {
            let (a, b) = (rng.below(hot.clamp(1, plan.n)), rng.below(plan.n));
            // In one order, so that those who wait for locks do not wait in a circle.
            Plot::Rmw(a.min(b), a.max(b))
        }
        Kind::SmallBank => {
            let busy = rng.below(10) > 0;
            let among = if busy { plan.n.min(BUSY_CUSTOMERS) } else { plan.n };
            let (a, b) = (rng.below(among), rng.below(among));
            let amount = 1 + rng.below(50) as i64;
            match rng.below(100) {
                0..15 => Plot::Balance(a),
                15..30 => Plot::Deposit(a, amount),
                30..45 => Plot::Save(a, amount),
                45..60 => Plot::Amalgamate(a, b),
                60..75 => Plot::Check(a, amount),
                _ => Plot::Send(a, b, amount),
            }
        }
        Kind::NewOrder => {
            let all = warehouses(plan);
            let warehouse = rng.below(all);
            let district = warehouse * DISTRICTS + rng.below(DISTRICTS);
            let customer = district * CUSTOMERS + rng.below(CUSTOMERS);
            if rng.below(2) == 0 {
                return Plot::Pay { district, customer, amount: 1 + rng.below(5000) as i64 };
            }
            let mut lines: Vec<(u64, i64)> = (0..5 + rng.below(11))
                .map(|_| {
                    // One line in a hundred comes from elsewhere.
                    let from = if rng.below(100) == 0 { rng.below(all) } else { warehouse };
                    (from * ITEMS + rng.below(ITEMS), 1 + rng.below(10) as i64)
                })
                .collect();
            lines.sort_unstable();
            lines.dedup_by_key(|(item, _)| *item);
            Plot::Order { district, customer, lines }
        }
    }
}

impl Plot {
    /// What it does, and what it adds to the sums.
    fn run(&self, desk: &mut Desk<'_>) -> Result<Sums> {
        match self {
            Plot::Rmw(a, b) if a == b => desk.change(0, *a, |n| n[0] += 2).map(|_| [2, 0, 0]),
            Plot::Rmw(a, b) => {
                desk.change(0, *a, |n| n[0] += 1)?;
                desk.change(0, *b, |n| n[0] += 1)?;
                Ok([2, 0, 0])
            }
            Plot::Balance(a) => {
                desk.read(SAVINGS, *a, false)?;
                desk.read(CHECKING, *a, false)?;
                Ok([0; 3])
            }
            Plot::Deposit(a, amount) => {
                desk.change(CHECKING, *a, |n| n[0] += amount)?;
                Ok([*amount, 0, 0])
            }
            Plot::Save(a, amount) => {
                desk.change(SAVINGS, *a, |n| n[0] += amount)?;
                Ok([*amount, 0, 0])
            }
            Plot::Amalgamate(a, b) if a == b => Ok([0; 3]),
            Plot::Amalgamate(a, b) => {
                let mut all = 0;
                desk.change(SAVINGS, *a, |n| all += std::mem::take(&mut n[0]))?;
                desk.change(CHECKING, *a, |n| all += std::mem::take(&mut n[0]))?;
                desk.change(CHECKING, *b, |n| n[0] += all)?;
                Ok([0; 3])
            }
            Plot::Check(a, amount) => {
                let saved = desk.read(SAVINGS, *a, false)?[0];
                let mut taken = *amount;
                desk.change(CHECKING, *a, |n| {
                    taken += i64::from(saved + n[0] < *amount);
                    n[0] -= taken;
                })?;
                Ok([-taken, 0, 0])
            }
            Plot::Send(a, b, _) if a == b => Ok([0; 3]),
            Plot::Send(a, b, amount) => {
                let mut sent = 0;
                desk.change(CHECKING, *a, |n| {
                    sent = if n[0] >= *amount { *amount } else { 0 };
                    n[0] -= sent;
                })?;
                desk.change(CHECKING, *b, |n| n[0] += sent)?;
                Ok([0; 3])
            }
            Plot::Pay { district, customer, amount } => {
                desk.change(WAREHOUSE, district / DISTRICTS, |n| n[0] += amount)?;
                desk.change(DISTRICT, *district, |n| n[1] += amount)?;
                desk.change(CUSTOMER, *customer, |n| n[0] -= amount)?;
                Ok([0, 0, *amount])
            }
            Plot::Order { district, customer, lines } => {
                desk.read(WAREHOUSE, district / DISTRICTS, false)?;
                desk.read(CUSTOMER, *customer, false)?;
                let next = desk.change(DISTRICT, *district, |n| n[0] += 1)?[0];
                let order = district * ORDERS + next as u64;
                let mut pieces = 0;
                for (at, (item, count)) in lines.iter().enumerate() {
                    desk.change(STOCK, *item, |n| {
                        n[0] = if n[0] >= count + 10 { n[0] - count } else { n[0] - count + 91 };
                        n[1] += count;
                    })?;
                    pieces += count;
                    desk.write(LINE, order * LINES + at as u64, [*item as i64, *count, 0])?;
                }
                desk.write(ORDER, order, [*customer as i64, lines.len() as i64, pieces])?;
                Ok([1, pieces, 0])
            }
        }
    }
}

/// Fills the families with what they begin from.
pub fn load(kind: Kind, plan: &Plan, session: &mut dyn Session) -> Result<()> {
    let mut fill = |family: usize, n: u64, of: Sums| -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for from in (0..n).step_by(1000) {
            let to = n.min(from + 1000);
            session.write((to - from) as usize, &mut |sink| {
                (from..to).try_for_each(|id| {
                    sink.put(family, plan.keys.write(id, &mut key), row(plan, id, of, &mut value))
                })
            })?;
        }
        Ok(())
    };
    match kind {
        Kind::Rmw { .. } => fill(0, plan.n, [0; 3]),
        Kind::SmallBank => {
            fill(SAVINGS, plan.n, [START, 0, 0])?;
            fill(CHECKING, plan.n, [START, 0, 0])
        }
        Kind::NewOrder => {
            let all = warehouses(plan);
            fill(WAREHOUSE, all, [0; 3])?;
            fill(DISTRICT, all * DISTRICTS, [0; 3])?;
            fill(CUSTOMER, all * DISTRICTS * CUSTOMERS, [0; 3])?;
            fill(STOCK, all * ITEMS, [50, 0, 0])
        }
    }
}

impl Part<'_> {
    pub(super) fn transact(&mut self, kind: Kind, session: &mut dyn Session, meter: &mut Meter<'_>) {
        let mut rows = Rows::default();
        self.each(meter, |part, meter, _| {
            let (plan, errors) = (part.plan, meter.errors);
            let plot = plot(kind, plan, &mut part.rng);
            let (mut lost, mut sums) = (0, [0; 3]);
            let rng = &mut part.rng;
            meter.call(1, || {
                loop {
                    let tried = session.transact(&mut |deal| {
                        rows.written = 0;
                        sums = plot.run(&mut Desk { deal, rows: &mut rows, plan })?;
                        Ok(())
                    });
                    match tried {
                        Err(e) if e.is::<Lost>() => {
                            lost += 1;
                            pause(lost, rng);
                        }
                        done => return done,
                    }
                }
            });
            meter.aborts += lost;
            meter.given += std::mem::take(&mut rows.written) * plan.entry_bytes();
            if meter.errors == errors {
                for (sum, n) in plan.tally.0.iter().zip(sums) {
                    sum.fetch_add(n, Relaxed);
                }
            }
        });
    }
}

/// Who has lost waits a moment before it tries again, at random up to twice as long each time.
fn pause(lost: u64, rng: &mut Rng) {
    match lost {
        ..3 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(1 + rng.below(10 << lost.min(7)))),
    }
}

/// Why the sums of what is there are not those of what was committed.
pub fn broken(kind: Kind, plan: &Plan, engine: &dyn Engine) -> Result<Option<String>> {
    let tally: Vec<i64> = plan.tally.0.iter().map(|n| n.load(Relaxed)).collect();
    let mut found = Vec::new();
    engine.session(&mut |session| {
        found = (0..kind.families() as usize).map(|f| sums(session, f)).collect::<Result<_>>()?;
        Ok(())
    })?;
    let n = plan.n as i64;
    let checks: Vec<(&str, i64, i64)> = match kind {
        Kind::Rmw { .. } => vec![("counters", tally[0], found[0].1[0]), ("rows", n, found[0].0)],
        Kind::SmallBank => {
            let there = found[SAVINGS].1[0] + found[CHECKING].1[0];
            vec![("money", 2 * n * START + tally[0], there), ("rows", 2 * n, found[0].0 + found[1].0)]
        }
        Kind::NewOrder => vec![
            ("orders counted by districts", tally[0], found[DISTRICT].1[0]),
            ("orders", tally[0], found[ORDER].0),
            ("lines of orders", found[ORDER].1[1], found[LINE].0),
            ("pieces of orders", tally[1], found[ORDER].1[2]),
            ("pieces of lines", tally[1], found[LINE].1[1]),
            ("pieces from stock", tally[1], found[STOCK].1[1]),
            ("paid to warehouses", tally[2], found[WAREHOUSE].1[0]),
            ("paid to districts", tally[2], found[DISTRICT].1[1]),
            ("paid by customers", -tally[2], found[CUSTOMER].1[0]),
        ],
    };
    let wrong = checks.into_iter().find(|(_, due, there)| due != there);
    Ok(wrong.map(|(what, due, there)| format!("{what}: {there} instead of {due}")))
}

/// Rows of a family, and the sums of their numbers.
fn sums(session: &mut dyn Session, family: usize) -> Result<(i64, Sums)> {
    let (mut count, mut all) = (0, [0; 3]);
    session.cursor(family, &mut |cursor| {
        cursor.scan(&[], &mut |_, value| {
            count += 1;
            let of = numbers(value).unwrap_or([i64::MIN / 4; 3]);
            all.iter_mut().zip(of).for_each(|(sum, n)| *sum += n);
            true
        })
    })?;
    Ok((count, all))
}
