//! What the sync thread does: syncs for writes with interval durability, and log watermarks. A
//! watermark is a manifest edit that records how far the log is durable; it never claims more than
//! a sync has covered.

use super::Log;
use perigee_base::Result;
use perigee_base::bug::{self, Bug};
use std::sync::atomic::Ordering::SeqCst;

impl Log {
    /// Syncs the log and writes the watermark, if they are due.
    ///
    /// # Errors
    /// Those of a sync and of a manifest edit: the database is poisoned.
    pub fn run_due_syncs(&self) -> Result<()> {
        self.sync_if_due()?;
        self.write_watermark_if_due()
    }
    /// Syncs the log if a write with interval durability requires it by now.
    fn sync_if_due(&self) -> Result<()> {
        let due = self.sync_due_us.load(SeqCst);
        if due != u64::MAX && self.runtime.env.clock.monotonic_us() >= due {
            self.sync_due_us.store(u64::MAX, SeqCst);
            self.sync()?;
        }
        Ok(())
    }
    /// Returns true if a watermark is due.
    fn take_due_watermark(&self) -> bool {
        // The clock is read only if a watermark is scheduled.
        self.watermark_timer.due_us() != u64::MAX
            && self.watermark_timer.take_due(self.runtime.env.clock.monotonic_us())
    }
    /// Writes the watermark if it is due and no other edit has recorded as much. A full disk is not
    /// a failure: the next sync reschedules it.
    ///
    /// # Errors
    /// Same as for any manifest edit: the database is poisoned.
    fn write_watermark_if_due(&self) -> Result<()> {
        if !self.take_due_watermark() {
            return Ok(());
        }
        let ahead = bug::is_active(Bug::WatermarkAheadOfSync);
        let durable = if ahead { self.catalog.visible_seq() } else { self.durable_seq() };
        let is_recorded = || self.catalog.is_recorded_durable(durable);
        let known = seeded!(ZerosBelowWatermarkAccepted, is_recorded(), true);
        if known || self.runtime.health.check_writable().is_err() {
            return Ok(());
        }
        check!(
            durable <= self.durable_seq(),
            "the manifest records no more of the log as durable than was synced",
            durable,
            self.durable_seq()
        );
        if self.catalog.record_durable(durable)? {
            self.runtime.counters.log_watermarks.add(1);
        }
        Ok(())
    }
}
