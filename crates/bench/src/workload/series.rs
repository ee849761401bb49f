//! A time series whose entries expire: appended in batches at the tail, with repeated reads of the
//! newest.

use super::worker::WorkerThread;
use crate::engine::{Engine, Result, Session};
use crate::meter::Meter;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Number of batches between two reads of the newest entries, and how many batches back a read
/// begins.
const BATCHES_PER_READ: u64 = 8;
const READ_BACK_BATCHES: usize = 16;
/// Number of entries per read.
const ENTRIES_PER_READ: usize = 100;

impl WorkerThread<'_> {
    /// The numbers of the threads interleave, so that all append to the tail of one series.
    fn timestamp_number(&self, op: u64) -> u64 {
        op * self.plan.threads + self.t
    }

    pub(super) fn run_series(
        &mut self,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
        ttl: u64,
    ) {
        let (total, batch) = (self.ops(), self.plan.batch as u64);
        let mut recent: VecDeque<(Instant, u64)> = VecDeque::new();
        let (mut op, mut batches) = (0, 0);
        while op < total && !meter.time_up {
            let n = (total - op).min(batch);
            recent.push_back((Instant::now(), op));
            self.append(session, meter, op..op + n);
            op += n;
            batches += 1;
            if recent.len() > READ_BACK_BATCHES {
                recent.pop_front();
            }
            if let Some((begun, first)) =
                recent.front().copied().filter(|_| batches % BATCHES_PER_READ == 0)
            {
                self.read_newest(session, meter, (first, op - first), || {
                    // Engines that count whole seconds may expire an entry up to one second early.
                    begun.elapsed() + Duration::from_secs(1) < Duration::from_secs(ttl)
                });
            }
        }
        self.inserted = op;
    }

    fn append(
        &mut self,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
        ops: std::ops::Range<u64>,
    ) {
        let plan = self.plan;
        let numbers: Vec<u64> = ops.map(|op| self.timestamp_number(op)).collect();
        let (key, value) = (&mut self.key, &mut self.value);
        meter.time_call(numbers.len() as u64, || {
            session.write(numbers.len(), &mut |sink| {
                for i in &numbers {
                    sink.put(
                        0,
                        plan.keys.write_key(*i, key),
                        plan.values.write_value(*i, 1, value),
                    )?;
                }
                Ok(())
            })
        });
        meter.written_bytes += numbers.len() as u64 * plan.entry_bytes();
    }

    /// Reads entries from this thread's operation `first` on, after which it has written `own`. All
    /// must be there while `fresh` returns true.
    fn read_newest(
        &mut self,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
        (first, own): (u64, u64),
        fresh: impl Fn() -> bool,
    ) {
        let (plan, i) = (self.plan, self.timestamp_number(first));
        let key = plan.keys.write_key(i, &mut self.key);
        let (scratch, last) = (&mut self.scratch, &mut self.value);
        last.clear();
        let (mut count, mut right, mut begins) = (0, true, false);
        let errors = meter.errors;
        meter.time_call(1, || {
            session.with_cursor(0, &mut |cursor| {
                cursor.scan(key, &mut |k, v| {
                    begins |= count == 0 && k == key;
                    let number = plan.keys.parse_key(k, scratch);
                    right &= k >= key && (count == 0 || k > &last[..]);
                    right &= number.is_some_and(|j| plan.values.matches(v, j, Some(1), scratch));
                    last.clear();
                    last.extend_from_slice(k);
                    count += 1;
                    count < ENTRIES_PER_READ
                })
            })
        });
        meter.read_bytes += count as u64 * plan.entry_bytes();
        let whole = begins && count as u64 >= own.min(ENTRIES_PER_READ as u64);
        if meter.errors == errors && (!right || (!whole && fresh())) {
            meter.record_wrong(|| {
                format!(
                    "read of {ENTRIES_PER_READ} entries from {i}: {count} entries, or wrong ones"
                )
            });
        }
    }
}

/// Returns the number of entries that a full scan returns.
pub fn count_visible(engine: &dyn Engine) -> Result<u64> {
    let mut count = 0;
    engine.with_session(&mut |session| {
        session.with_cursor(0, &mut |cursor| {
            cursor.scan(&[], &mut |_, _| {
                count += 1;
                true
            })
        })
    })?;
    Ok(count)
}
