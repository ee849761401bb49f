//! Transactions: read-modify-writes with a few hot keys, SmallBank, and orders as in TPC-C.
//!
//! A transaction that loses a conflict is retried unchanged until it has committed. Every kind
//! maintains sums that lost or doubled updates would break; they are compared after the database
//! has been reopened.

use super::worker::{WorkerThread, WorkloadPlan};
use crate::engine::{Engine, Result, Session, TxnConflict, TxnOps};
use crate::meter::Meter;
use crate::random::Rng;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

/// Kind of transactions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TxnKind {
    /// Reads and increments two counters: one of the first `hot`, and any.
    Rmw { hot: u64 },
    /// SmallBank: two accounts per customer; six kinds of transactions, nine tenths of them on a
    /// thousand customers.
    SmallBank,
    /// Half orders of 5 to 15 lines, half payments, over six families; one warehouse per 20,000
    /// keys.
    NewOrder,
}

/// Sums over what all threads have committed.
#[derive(Debug, Default)]
pub struct CommittedSums([AtomicI64; 3]);

/// What one transaction adds to the sums.
type Sums = [i64; 3];

const INITIAL_BALANCE: i64 = 10_000;
const BUSY_CUSTOMERS: u64 = 1000;
const DISTRICTS: u64 = 10;
const CUSTOMERS: u64 = 300;
const ITEMS: u64 = 10_000;
/// Maximum number of orders of a district, and of lines of an order.
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

impl TxnKind {
    /// Returns the number of families that it uses.
    pub fn families(self) -> u64 {
        match self {
            TxnKind::Rmw { .. } => 1,
            TxnKind::SmallBank => 2,
            TxnKind::NewOrder => 6,
        }
    }
}

fn warehouses(plan: &WorkloadPlan) -> u64 {
    (plan.n / 20_000).max(1)
}

/// Reads and writes rows, which are three numbers at the start of a value.
struct RowTxn<'d> {
    txn: &'d mut dyn TxnOps,
    rows: &'d mut RowBuffers,
    plan: &'d WorkloadPlan,
}

/// Buffers for a key and a value, and the number of rows written.
#[derive(Default)]
struct RowBuffers {
    key: Vec<u8>,
    value: Vec<u8>,
    written: u64,
}

fn decode_row(value: &[u8]) -> Option<Sums> {
    let at = |i: usize| Some(i64::from_le_bytes(*value.get(8 * i..)?.first_chunk()?));
    Some([at(0)?, at(1)?, at(2)?])
}

fn encode_row<'a>(plan: &WorkloadPlan, id: u64, of: Sums, value: &'a mut Vec<u8>) -> &'a [u8] {
    plan.values.write_value(id, 1, value);
    value.resize(value.len().max(24), 0);
    value.chunks_exact_mut(8).zip(of).for_each(|(to, n)| to.copy_from_slice(&n.to_le_bytes()));
    value
}

impl RowTxn<'_> {
    fn read(&mut self, family: usize, id: u64, change: bool) -> Result<Sums> {
        let key = self.plan.keys.write_key(id, &mut self.rows.key);
        let mut found = None;
        self.txn.get(family, key, change, &mut |value| found = value.and_then(decode_row))?;
        found.ok_or_else(|| format!("row {id} of family {family} is not there").into())
    }
    fn write(&mut self, family: usize, id: u64, of: Sums) -> Result<()> {
        let key = self.plan.keys.write_key(id, &mut self.rows.key);
        self.rows.written += 1;
        self.txn.put(family, key, encode_row(self.plan, id, of, &mut self.rows.value))
    }
    /// Reads a row, changes it and writes it back.
    fn update(&mut self, family: usize, id: u64, change: impl FnOnce(&mut Sums)) -> Result<Sums> {
        let mut of = self.read(family, id, true)?;
        change(&mut of);
        self.write(family, id, of)?;
        Ok(of)
    }
}

/// One transaction with all its random choices, so that a retry repeats it exactly.
#[derive(Debug)]
enum TxnScript {
    Rmw(u64, u64),
    Balance(u64),
    Deposit(u64, i64),
    TransactSavings(u64, i64),
    Amalgamate(u64, u64),
    WriteCheck(u64, i64),
    SendPayment(u64, u64, i64),
    NewOrder { district: u64, customer: u64, lines: Vec<(u64, i64)> },
    Payment { district: u64, customer: u64, amount: i64 },
}

fn random_script(kind: TxnKind, plan: &WorkloadPlan, rng: &mut Rng) -> TxnScript {
    match kind {
        TxnKind::Rmw { hot } => {
            let (a, b) = (rng.below(hot.clamp(1, plan.n)), rng.below(plan.n));
            // In a fixed order, so that transactions that wait for locks cannot deadlock.
            TxnScript::Rmw(a.min(b), a.max(b))
        }
        TxnKind::SmallBank => {
            let busy = rng.below(10) > 0;
            let among = if busy { plan.n.min(BUSY_CUSTOMERS) } else { plan.n };
            let (a, b) = (rng.below(among), rng.below(among));
            let amount = 1 + rng.below(50) as i64;
            match rng.below(100) {
                0..15 => TxnScript::Balance(a),
                15..30 => TxnScript::Deposit(a, amount),
                30..45 => TxnScript::TransactSavings(a, amount),
                45..60 => TxnScript::Amalgamate(a, b),
                60..75 => TxnScript::WriteCheck(a, amount),
                _ => TxnScript::SendPayment(a, b, amount),
            }
        }
        TxnKind::NewOrder => {
            let all = warehouses(plan);
            let warehouse = rng.below(all);
            let district = warehouse * DISTRICTS + rng.below(DISTRICTS);
            let customer = district * CUSTOMERS + rng.below(CUSTOMERS);
            if rng.below(2) == 0 {
                return TxnScript::Payment {
                    district,
                    customer,
                    amount: 1 + rng.below(5000) as i64,
                };
            }
            let mut lines: Vec<(u64, i64)> = (0..5 + rng.below(11))
                .map(|_| {
                    // One line in a hundred comes from another warehouse.
                    let from = if rng.below(100) == 0 { rng.below(all) } else { warehouse };
                    (from * ITEMS + rng.below(ITEMS), 1 + rng.below(10) as i64)
                })
                .collect();
            lines.sort_unstable();
            lines.dedup_by_key(|(item, _)| *item);
            TxnScript::NewOrder { district, customer, lines }
        }
    }
}

impl TxnScript {
    /// Runs the transaction. Returns what it adds to the sums.
    fn run(&self, rows: &mut RowTxn<'_>) -> Result<Sums> {
        match self {
            TxnScript::Rmw(a, b) if a == b => rows.update(0, *a, |n| n[0] += 2).map(|_| [2, 0, 0]),
            TxnScript::Rmw(a, b) => {
                rows.update(0, *a, |n| n[0] += 1)?;
                rows.update(0, *b, |n| n[0] += 1)?;
                Ok([2, 0, 0])
            }
            TxnScript::Balance(a) => {
                rows.read(SAVINGS, *a, false)?;
                rows.read(CHECKING, *a, false)?;
                Ok([0; 3])
            }
            TxnScript::Deposit(a, amount) => {
                rows.update(CHECKING, *a, |n| n[0] += amount)?;
                Ok([*amount, 0, 0])
            }
            TxnScript::TransactSavings(a, amount) => {
                rows.update(SAVINGS, *a, |n| n[0] += amount)?;
                Ok([*amount, 0, 0])
            }
            TxnScript::Amalgamate(a, b) if a == b => Ok([0; 3]),
            TxnScript::Amalgamate(a, b) => {
                let mut all = 0;
                rows.update(SAVINGS, *a, |n| all += std::mem::take(&mut n[0]))?;
                rows.update(CHECKING, *a, |n| all += std::mem::take(&mut n[0]))?;
                rows.update(CHECKING, *b, |n| n[0] += all)?;
                Ok([0; 3])
            }
            TxnScript::WriteCheck(a, amount) => {
                let saved = rows.read(SAVINGS, *a, false)?[0];
                let mut taken = *amount;
                rows.update(CHECKING, *a, |n| {
                    taken += i64::from(saved + n[0] < *amount);
                    n[0] -= taken;
                })?;
                Ok([-taken, 0, 0])
            }
            TxnScript::SendPayment(a, b, _) if a == b => Ok([0; 3]),
            TxnScript::SendPayment(a, b, amount) => {
                let mut sent = 0;
                rows.update(CHECKING, *a, |n| {
                    sent = if n[0] >= *amount { *amount } else { 0 };
                    n[0] -= sent;
                })?;
                rows.update(CHECKING, *b, |n| n[0] += sent)?;
                Ok([0; 3])
            }
            TxnScript::Payment { district, customer, amount } => {
                rows.update(WAREHOUSE, district / DISTRICTS, |n| n[0] += amount)?;
                rows.update(DISTRICT, *district, |n| n[1] += amount)?;
                rows.update(CUSTOMER, *customer, |n| n[0] -= amount)?;
                Ok([0, 0, *amount])
            }
            TxnScript::NewOrder { district, customer, lines } => {
                rows.read(WAREHOUSE, district / DISTRICTS, false)?;
                rows.read(CUSTOMER, *customer, false)?;
                let next = rows.update(DISTRICT, *district, |n| n[0] += 1)?[0];
                let order = district * ORDERS + next as u64;
                let mut pieces = 0;
                for (at, (item, count)) in lines.iter().enumerate() {
                    rows.update(STOCK, *item, |n| {
                        n[0] = if n[0] >= count + 10 { n[0] - count } else { n[0] - count + 91 };
                        n[1] += count;
                    })?;
                    pieces += count;
                    rows.write(LINE, order * LINES + at as u64, [*item as i64, *count, 0])?;
                }
                rows.write(ORDER, order, [*customer as i64, lines.len() as i64, pieces])?;
                Ok([1, pieces, 0])
            }
        }
    }
}

/// Fills the families with their initial rows.
pub fn load(kind: TxnKind, plan: &WorkloadPlan, session: &mut dyn Session) -> Result<()> {
    let mut fill = |family: usize, n: u64, of: Sums| -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for from in (0..n).step_by(1000) {
            let to = n.min(from + 1000);
            session.write((to - from) as usize, &mut |sink| {
                (from..to).try_for_each(|id| {
                    sink.put(
                        family,
                        plan.keys.write_key(id, &mut key),
                        encode_row(plan, id, of, &mut value),
                    )
                })
            })?;
        }
        Ok(())
    };
    match kind {
        TxnKind::Rmw { .. } => fill(0, plan.n, [0; 3]),
        TxnKind::SmallBank => {
            fill(SAVINGS, plan.n, [INITIAL_BALANCE, 0, 0])?;
            fill(CHECKING, plan.n, [INITIAL_BALANCE, 0, 0])
        }
        TxnKind::NewOrder => {
            let all = warehouses(plan);
            fill(WAREHOUSE, all, [0; 3])?;
            fill(DISTRICT, all * DISTRICTS, [0; 3])?;
            fill(CUSTOMER, all * DISTRICTS * CUSTOMERS, [0; 3])?;
            fill(STOCK, all * ITEMS, [50, 0, 0])
        }
    }
}

impl WorkerThread<'_> {
    pub(super) fn run_txns(
        &mut self,
        kind: TxnKind,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
    ) {
        let mut rows = RowBuffers::default();
        self.for_each_op(meter, |part, meter, _| {
            let (plan, errors) = (part.plan, meter.errors);
            let plot = random_script(kind, plan, &mut part.rng);
            let (mut lost, mut sums) = (0, [0; 3]);
            let rng = &mut part.rng;
            meter.time_call(1, || {
                loop {
                    let tried = session.run_txn(&mut |deal| {
                        rows.written = 0;
                        sums = plot.run(&mut RowTxn { txn: deal, rows: &mut rows, plan })?;
                        Ok(())
                    });
                    match tried {
                        Err(e) if e.is::<TxnConflict>() => {
                            lost += 1;
                            back_off(lost, rng);
                        }
                        done => return done,
                    }
                }
            });
            meter.aborts += lost;
            meter.written_bytes += std::mem::take(&mut rows.written) * plan.entry_bytes();
            if meter.errors == errors {
                for (sum, n) in plan.committed.0.iter().zip(sums) {
                    sum.fetch_add(n, Relaxed);
                }
            }
        });
    }
}

/// Waits before a retry, for a random time whose bound doubles with each conflict.
fn back_off(lost: u64, rng: &mut Rng) {
    match lost {
        ..3 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(1 + rng.below(10 << lost.min(7)))),
    }
}

/// Compares the sums in the database with those of the committed transactions. Returns a
/// description of the first difference.
pub fn check_sums(
    kind: TxnKind,
    plan: &WorkloadPlan,
    engine: &dyn Engine,
) -> Result<Option<String>> {
    let tally: Vec<i64> = plan.committed.0.iter().map(|n| n.load(Relaxed)).collect();
    let mut found = Vec::new();
    engine.with_session(&mut |session| {
        found =
            (0..kind.families() as usize).map(|f| sum_rows(session, f)).collect::<Result<_>>()?;
        Ok(())
    })?;
    let n = plan.n as i64;
    let checks: Vec<(&str, i64, i64)> = match kind {
        TxnKind::Rmw { .. } => vec![("counters", tally[0], found[0].1[0]), ("rows", n, found[0].0)],
        TxnKind::SmallBank => {
            let there = found[SAVINGS].1[0] + found[CHECKING].1[0];
            vec![
                ("money", 2 * n * INITIAL_BALANCE + tally[0], there),
                ("rows", 2 * n, found[0].0 + found[1].0),
            ]
        }
        TxnKind::NewOrder => vec![
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
fn sum_rows(session: &mut dyn Session, family: usize) -> Result<(i64, Sums)> {
    let (mut count, mut all) = (0, [0; 3]);
    session.with_cursor(family, &mut |cursor| {
        cursor.scan(&[], &mut |_, value| {
            count += 1;
            let of = decode_row(value).unwrap_or([i64::MIN / 4; 3]);
            all.iter_mut().zip(of).for_each(|(sum, n)| *sum += n);
            true
        })
    })?;
    Ok((count, all))
}
