//! Filling a database by the engine's own way to do so, and reads that share one view.

use super::run::Part;
use crate::engine::{Result, Session};
use crate::meter::Meter;
use std::time::Instant;

/// Entries that count as one call of a bulk load.
const LAP: u64 = 1000;

impl Part<'_> {
    /// All keys of this thread, in the order of their numbers.
    pub(super) fn bulk(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>) {
        let plan = self.plan;
        let (first, n) = (self.first, self.versions.len() as u64);
        let (key, value) = (&mut self.key, &mut self.value);
        let mut lap = Instant::now();
        let done = session.bulk(n, &mut |at, sink| {
            let i = first + at;
            sink.put(0, plan.keys.write(i, key), plan.values.write(i, 1, value))?;
            if (at + 1).is_multiple_of(LAP) && at + 1 < n {
                meter.lap(&mut lap, LAP);
            }
            Ok(())
        });
        // The last entries count when all of it is there.
        match done {
            Ok(()) => {
                meter.lap(&mut lap, n - (n.saturating_sub(1) / LAP) * LAP);
                meter.given += n * plan.entry_bytes();
                self.versions.fill(1);
            }
            Err(e) => meter.error(&e.to_string()),
        }
    }

    /// Reads of keys that are there, in one view.
    pub(super) fn in_view(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>) -> Result<()> {
        let shared = session.view(true)?;
        self.each(meter, |part, meter, op| {
            let i = part.pick(op);
            part.read(session, meter, i);
        });
        if shared {
            session.view(false)?;
        }
        Ok(())
    }
}
