//! Schedules the watermark of the log: a manifest edit that records how far the log is durable,
//! about a second after a sync. Zeros over the end of a segment, or a truncated segment, are then
//! recognized as damage up to the watermark, instead of as preallocated space or a torn write.
//! (Record headers contain the same number, but no record follows the last ones.)
//!
//! The commit path sets the time, once per interval, without I/O; `jobs::watermark` writes the
//! edit. Independent of both.

use crate::limits::WATERMARK_INTERVAL_US;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// When the next watermark is due.
#[derive(Debug)]
pub struct WatermarkTimer {
    /// Monotonic microseconds; `u64::MAX`: none is due.
    due_at_us: AtomicU64,
}

impl Default for WatermarkTimer {
    fn default() -> WatermarkTimer {
        WatermarkTimer { due_at_us: AtomicU64::new(u64::MAX) }
    }
}

impl WatermarkTimer {
    /// Returns when the next one must be written (`u64::MAX`: none).
    pub fn due_us(&self) -> u64 {
        self.due_at_us.load(SeqCst)
    }
    /// Sets a time after a sync, if none is set. Returns true if it did: the caller must then
    /// notify the thread that writes.
    pub fn schedule(&self, now_us: impl FnOnce() -> u64) -> bool {
        if self.due_at_us.load(SeqCst) != u64::MAX {
            return false;
        }
        let at = now_us().saturating_add(WATERMARK_INTERVAL_US);
        check!(at < u64::MAX, "a scheduled time is not the value for none", at);
        self.due_at_us.compare_exchange(u64::MAX, at, SeqCst, SeqCst).is_ok()
    }
    /// Returns true once when the time has come. Read the durable position of the log after that: a
    /// sync that this read misses schedules another watermark.
    pub fn take_due(&self, now_us: u64) -> bool {
        let due = self.due_at_us.load(SeqCst) <= now_us;
        if due {
            self.due_at_us.store(u64::MAX, SeqCst);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_within_one_interval_share_a_watermark() {
        let watermark = WatermarkTimer::default();
        assert!(!watermark.take_due(u64::MAX - 1));
        assert!(watermark.schedule(|| 5));
        assert!(!watermark.schedule(|| 9), "the time is set already");
        assert!(!watermark.take_due(4 + WATERMARK_INTERVAL_US));
        assert!(watermark.take_due(5 + WATERMARK_INTERVAL_US));
        assert!(!watermark.take_due(5 + WATERMARK_INTERVAL_US), "once");
        assert!(watermark.schedule(|| 7));
    }
}
