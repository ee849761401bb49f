//! Write stalls by reason: their number and duration. Recorded where writers wait.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Totals of one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteStallTotals {
    /// Writes that were delayed.
    pub delays: u64,
    /// Total delay in microseconds.
    pub delay_us: u64,
    /// Writes that were stopped until the load fell.
    pub stops: u64,
    /// Total stop time in microseconds.
    pub stop_us: u64,
}

/// Totals by reason. The mutex is taken only by writers that wait anyway; no I/O while it is held.
#[derive(Debug, Default)]
pub struct WriteStalls {
    by_reason: Mutex<BTreeMap<&'static str, WriteStallTotals>>,
}

impl WriteStalls {
    /// Records the delay of a writer.
    pub fn record_delay(&self, reason: &'static str, us: u64) {
        self.update(reason, |s| {
            s.delays += 1;
            s.delay_us += us;
        });
    }
    /// Records the stop of a writer.
    pub fn record_stop(&self, reason: &'static str, us: u64) {
        self.update(reason, |s| {
            s.stops += 1;
            s.stop_us += us;
        });
    }
    /// Returns the totals of each reason that occurred.
    pub fn totals(&self) -> Vec<(&'static str, WriteStallTotals)> {
        let map = self.by_reason.lock().unwrap_or_else(PoisonError::into_inner);
        map.iter().map(|(reason, stall)| (*reason, *stall)).collect()
    }
    fn update(&self, reason: &'static str, change: impl FnOnce(&mut WriteStallTotals)) {
        change(
            self.by_reason
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(reason)
                .or_default(),
        );
    }
}
