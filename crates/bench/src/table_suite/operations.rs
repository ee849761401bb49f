//! The measured operations of each workload, by one thread.
//!
//! Keys and values of a call are prepared before its time is taken, so that the time is that of the
//! database and of the comparison of the values read.

use super::dataset::{Dataset, RowKey};
use super::store::RowSession;
use super::{GetKeys, RowWorkload};
use crate::engine::Result;
use crate::meter::Meter;
use crate::random::{Rng, Zipf};
use crate::sys;
use std::time::{Duration, Instant};

/// Rows per transaction, of reads and writes.
pub const TXN_ROWS: usize = 1000;
/// Autocommit operations per timed call.
pub const CALL_OPS: usize = 100;

/// Wall and CPU time of a thread that is not attributed to the database.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preparation {
    pub wall: Duration,
    pub cpu_us: f64,
}

impl Preparation {
    fn measure<T>(&mut self, prepare: impl FnOnce() -> T) -> T {
        let (start, cpu) = (Instant::now(), sys::thread_cpu_us());
        let result = prepare();
        self.cpu_us += sys::thread_cpu_us() - cpu;
        self.wall += start.elapsed();
        result
    }
}

/// One operation: a row, its key, and the version that it has or gets.
#[derive(Clone, Copy, Debug)]
struct Operation<K> {
    i: u64,
    key: K,
    version: u16,
    is_put: bool,
}

/// Work of one thread in one phase.
#[derive(Debug)]
pub struct Operations<'d, K> {
    pub data: &'d Dataset<K>,
    pub workload: RowWorkload,
    /// Operations of `Transactions` that an earlier phase has executed.
    pub first: u64,
    /// Number of operations of this thread, those before `first` included.
    pub ops: u64,
    pub thread: u64,
    pub threads: u64,
    pub seed: u64,
    pub zipf: Option<&'d Zipf>,
    /// Version of each row.
    pub versions: &'d mut [u16],
    pub preparation: Preparation,
}

impl<K: RowKey> Operations<'_, K> {
    /// Runs the operations, up to the time limit of the meter.
    pub fn run(&mut self, session: &mut dyn RowSession<K>, meter: &mut Meter<'_>) -> Result<()> {
        match self.workload {
            RowWorkload::Transactions => self.insert_transactions(session, meter),
            RowWorkload::Get { keys, in_txn } => self.get(session, meter, keys, in_txn),
            RowWorkload::Range { rows } => self.range(session, meter, rows),
            RowWorkload::Mixed { puts } => self.mixed(session, meter, puts),
            RowWorkload::Commits => self.commit(session, meter),
            RowWorkload::Load { .. } | RowWorkload::Open => Err("not an operation".into()),
        }
    }
    fn insert_transactions(
        &mut self,
        session: &mut dyn RowSession<K>,
        meter: &mut Meter<'_>,
    ) -> Result<()> {
        let mut rows: Vec<(K, Vec<u8>)> = Vec::new();
        let mut at = self.first;
        while at < self.ops && !meter.time_up {
            let end = self.ops.min(at + TXN_ROWS as u64);
            let data = self.data;
            self.preparation.measure(|| {
                rows.resize_with((end - at) as usize, || (data.key(0), Vec::new()));
                for (at, (key, value)) in (at..end).zip(&mut rows) {
                    let i = data.shuffled(at);
                    *key = data.key(i);
                    data.write_value(i, 1, value);
                }
            });
            meter.time_call(end - at, || session.insert_rows(&rows));
            at = end;
        }
        meter.written_bytes += (at - self.first) * self.entry_bytes();
        Ok(())
    }
    fn get(
        &mut self,
        session: &mut dyn RowSession<K>,
        meter: &mut Meter<'_>,
        keys: GetKeys,
        in_txn: bool,
    ) -> Result<()> {
        let mut rng = Rng::new(self.seed ^ self.thread);
        let call = if in_txn { TXN_ROWS } else { CALL_OPS };
        let mut batch: Vec<Operation<K>> = Vec::with_capacity(call);
        let mut done = 0;
        while done < self.ops && !meter.time_up {
            let (data, versions, zipf) = (self.data, &self.versions, self.zipf);
            let n = call.min((self.ops - done) as usize);
            self.preparation.measure(|| {
                batch.clear();
                batch.extend((0..n).map(|_| {
                    let i = match (keys, zipf) {
                        (GetKeys::Zipf, Some(zipf)) => zipf.scattered_rank(&mut rng),
                        _ => rng.below(data.n),
                    };
                    let missing = keys == GetKeys::Missing;
                    let key = if missing { data.missing_key(i) } else { data.key(i) };
                    Operation { i, key, version: versions[i as usize], is_put: false }
                }));
            });
            let mut wrong = None;
            let mut check = |op: &Operation<K>, got: Option<&[u8]>| {
                let right = match got {
                    Some(value) => {
                        keys != GetKeys::Missing && data.matches(value, op.i, op.version)
                    }
                    None => keys == GetKeys::Missing,
                };
                if !right {
                    wrong = Some((op.key, got.map(<[u8]>::len)));
                }
            };
            meter.time_call(n as u64, || {
                if in_txn {
                    let mut all = batch.iter().map(|op| op.key);
                    return session.get_in_txn(&mut all, &mut |at, got| check(&batch[at], got));
                }
                batch.iter().try_for_each(|op| session.get(op.key, &mut |got| check(op, got)))
            });
            if let Some((key, got)) = wrong {
                meter.record_wrong(|| format!("get {key:?}: value of {got:?} bytes"));
            }
            done += n as u64;
        }
        meter.read_bytes += done * self.entry_bytes();
        Ok(())
    }
    fn range(
        &mut self,
        session: &mut dyn RowSession<K>,
        meter: &mut Meter<'_>,
        rows: u64,
    ) -> Result<()> {
        let mut rng = Rng::new(self.seed);
        let limit = rows.min(self.data.n) as usize;
        for _ in 0..self.ops {
            let data = self.data;
            let (from, rows) = self.preparation.measure(|| {
                let from = rng.below(data.n - limit as u64 + 1);
                let rows: Vec<_> = (from..from + limit as u64)
                    .map(|p| data.row_at(p))
                    .map(|i| (i, data.key(i)))
                    .collect();
                (rows[0].1, rows)
            });
            let (mut seen, mut right) = (0, true);
            let versions = &self.versions;
            meter.time_call(1, || {
                session.range(from, limit, &mut |key, value| {
                    right &= rows.get(seen).is_some_and(|(i, expected)| {
                        key == *expected && data.matches(value, *i, versions[*i as usize])
                    });
                    seen += 1;
                })
            });
            if !right || seen != limit {
                meter.record_wrong(|| format!("range from {from:?}: {seen} rows of {limit}"));
            }
            if meter.time_up {
                break;
            }
        }
        meter.read_bytes += meter.ops * limit as u64 * self.entry_bytes();
        Ok(())
    }
    fn mixed(
        &mut self,
        session: &mut dyn RowSession<K>,
        meter: &mut Meter<'_>,
        puts: u64,
    ) -> Result<()> {
        let mut rng = Rng::new(self.seed ^ puts);
        let mut batch: Vec<(Operation<K>, Vec<u8>)> = Vec::new();
        let mut done = 0;
        while done < self.ops && !meter.time_up {
            let (data, versions) = (self.data, &mut *self.versions);
            let n = CALL_OPS.min((self.ops - done) as usize);
            self.preparation.measure(|| {
                batch.resize_with(n, || {
                    let key = data.key(0);
                    (Operation { i: 0, key, version: 0, is_put: false }, Vec::new())
                });
                for (op, value) in &mut batch {
                    let i = rng.below(data.n);
                    let is_put = rng.below(100) < puts;
                    versions[i as usize] += u16::from(is_put);
                    let version = versions[i as usize];
                    *op = Operation { i, key: data.key(i), version, is_put };
                    if is_put {
                        data.write_value(i, version, value);
                    }
                }
            });
            let mut wrong = None;
            meter.time_call(n as u64, || {
                batch.iter().try_for_each(|(op, value)| {
                    if op.is_put {
                        return session.put(op.key, value);
                    }
                    session.get(op.key, &mut |got| {
                        if !got.is_some_and(|got| data.matches(got, op.i, op.version)) {
                            wrong = Some(op.key);
                        }
                    })
                })
            });
            if let Some(key) = wrong {
                meter.record_wrong(|| format!("get {key:?} among puts"));
            }
            done += n as u64;
        }
        meter.written_bytes += done * self.entry_bytes() * puts / 100;
        Ok(())
    }
    fn commit(&mut self, session: &mut dyn RowSession<K>, meter: &mut Meter<'_>) -> Result<()> {
        let mut value = Vec::new();
        for at in 0..self.ops {
            let i = self.data.n + at * self.threads + self.thread;
            let key = self.data.key(i);
            self.data.write_value(i, 1, &mut value);
            meter.time_call(1, || session.insert(key, &value));
            if meter.time_up {
                break;
            }
        }
        meter.written_bytes += meter.ops * self.entry_bytes();
        Ok(())
    }
    fn entry_bytes(&self) -> u64 {
        (std::mem::size_of::<K>() + self.data.value_bytes) as u64
    }
}
