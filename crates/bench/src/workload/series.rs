//! A time series whose entries live for a while: appended in batches at the tail, the newest read again and again.

use super::run::Part;
use crate::engine::{Engine, Result, Session};
use crate::meter::Meter;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Batches from one look at the newest entries to the next, and how many batches back it begins.
const EVERY: u64 = 8;
const BACK: usize = 16;
/// Entries of a look.
const LOOK: usize = 100;

impl Part<'_> {
    /// Numbers of threads alternate, so that all write at the tail of one series.
    fn moment(&self, op: u64) -> u64 {
        op * self.plan.threads + self.t
    }

    pub(super) fn series(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, ttl: u64) {
        let (total, batch) = (self.ops(), self.plan.batch as u64);
        let mut recent: VecDeque<(Instant, u64)> = VecDeque::new();
        let (mut op, mut batches) = (0, 0);
        while op < total && !meter.over {
            let n = (total - op).min(batch);
            recent.push_back((Instant::now(), op));
            self.append(session, meter, op..op + n);
            op += n;
            batches += 1;
            if recent.len() > BACK {
                recent.pop_front();
            }
            if let Some((begun, first)) = recent.front().copied().filter(|_| batches % EVERY == 0) {
                self.look(session, meter, (first, op - first), || {
                    // Engines that count whole seconds may take one away.
                    begun.elapsed() + Duration::from_secs(1) < Duration::from_secs(ttl)
                });
            }
        }
        self.inserted = op;
    }

    fn append(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>, ops: std::ops::Range<u64>) {
        let plan = self.plan;
        let numbers: Vec<u64> = ops.map(|op| self.moment(op)).collect();
        let (key, value) = (&mut self.key, &mut self.value);
        meter.call(numbers.len() as u64, || {
            session.write(numbers.len(), &mut |sink| {
                for i in &numbers {
                    sink.put(0, plan.keys.write(*i, key), plan.values.write(*i, 1, value))?;
                }
                Ok(())
            })
        });
        meter.given += numbers.len() as u64 * plan.entry_bytes();
    }

    /// Entries from this thread's operation `first` on, of which it has written `own` since; all are there while `fresh`.
    fn look(
        &mut self,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
        (first, own): (u64, u64),
        fresh: impl Fn() -> bool,
    ) {
        let (plan, i) = (self.plan, self.moment(first));
        let key = plan.keys.write(i, &mut self.key);
        let (scratch, last) = (&mut self.scratch, &mut self.value);
        last.clear();
        let (mut count, mut right, mut begins) = (0, true, false);
        let errors = meter.errors;
        meter.call(1, || {
            session.cursor(0, &mut |cursor| {
                cursor.scan(key, &mut |k, v| {
                    begins |= count == 0 && k == key;
                    let number = plan.keys.read(k, scratch);
                    right &= k >= key && (count == 0 || k > &last[..]);
                    right &= number.is_some_and(|j| plan.values.is(v, j, Some(1), scratch));
                    last.clear();
                    last.extend_from_slice(k);
                    count += 1;
                    count < LOOK
                })
            })
        });
        meter.seen += count as u64 * plan.entry_bytes();
        let whole = begins && count as u64 >= own.min(LOOK as u64);
        if meter.errors == errors && (!right || (!whole && fresh())) {
            meter.wrong(|| format!("look at {LOOK} entries from {i}: {count} entries, or wrong ones"));
        }
    }
}

/// Entries that a walk through everything shows.
pub fn visible(engine: &dyn Engine) -> Result<u64> {
    let mut count = 0;
    engine.session(&mut |session| {
        session.cursor(0, &mut |cursor| {
            cursor.scan(&[], &mut |_, _| {
                count += 1;
                true
            })
        })
    })?;
    Ok(count)
}
