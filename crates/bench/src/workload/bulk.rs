//! Filling a database with the engine's bulk load, and reads that share one view.

use super::worker::WorkerThread;
use crate::engine::{Result, Session};
use crate::meter::Meter;
use std::time::Instant;

/// Number of bulk-loaded entries that count as one call.
const ENTRIES_PER_CALL: u64 = 1000;

impl WorkerThread<'_> {
    /// Loads all keys of this thread, in the order of their numbers.
    pub(super) fn bulk_load(&mut self, session: &mut dyn Session, meter: &mut Meter<'_>) {
        let plan = self.plan;
        let (first, n) = (self.first_key, self.versions.len() as u64);
        let (key, value) = (&mut self.key, &mut self.value);
        let mut lap = Instant::now();
        let done = session.bulk_load(n, &mut |at, sink| {
            let i = first + at;
            sink.put(0, plan.keys.write_key(i, key), plan.values.write_value(i, 1, value))?;
            if (at + 1).is_multiple_of(ENTRIES_PER_CALL) && at + 1 < n {
                meter.record_since(&mut lap, ENTRIES_PER_CALL);
            }
            Ok(())
        });
        // The last entries are counted once everything is loaded.
        match done {
            Ok(()) => {
                meter.record_since(
                    &mut lap,
                    n - (n.saturating_sub(1) / ENTRIES_PER_CALL) * ENTRIES_PER_CALL,
                );
                meter.written_bytes += n * plan.entry_bytes();
                self.versions.fill(1);
            }
            Err(e) => meter.record_error(&e.to_string()),
        }
    }

    /// Reads existing keys in one view.
    pub(super) fn read_in_view(
        &mut self,
        session: &mut dyn Session,
        meter: &mut Meter<'_>,
    ) -> Result<()> {
        let shared = session.set_shared_view(true)?;
        self.for_each_op(meter, |part, meter, op| {
            let i = part.pick_key(op);
            part.read(session, meter, i);
        });
        if shared {
            session.set_shared_view(false)?;
        }
        Ok(())
    }
}
