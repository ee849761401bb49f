//! When the watermark of the log is due: an edit of the manifest that records how far the log is
//! durable, about a second after a sync. Zeros that come to stand over the end of a segment, or a
//! segment that was cut, are then damage up to there, and not preallocated space or a torn write.
//! (Records carry the same number in their headers, but the last ones have none behind them.)
//!
//! The commit path sets a time, once in an interval, and does no I/O for it; `jobs::watermark`
//! writes. Must not know either.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A sync of the log is recorded so much later, together with those that follow until then.
const INTERVAL_US: u64 = 1_000_000;

/// When the next watermark is due.
#[derive(Debug)]
pub struct WatermarkTimer {
    /// Monotonic microseconds; `u64::MAX`: nothing is to be recorded.
    due_at_us: AtomicU64,
}

impl Default for WatermarkTimer {
    fn default() -> WatermarkTimer {
        WatermarkTimer { due_at_us: AtomicU64::new(u64::MAX) }
    }
}

impl WatermarkTimer {
    /// When the next one is to be written (`u64::MAX`: not).
    pub fn due_us(&self) -> u64 {
        self.due_at_us.load(SeqCst)
    }
    /// Sets a time after a sync, if none is set. Returns whether it did: then the thread that
    /// writes has to know.
    pub fn schedule(&self, now_us: impl FnOnce() -> u64) -> bool {
        if self.due_at_us.load(SeqCst) != u64::MAX {
            return false;
        }
        let at = now_us().saturating_add(INTERVAL_US);
        self.due_at_us.compare_exchange(u64::MAX, at, SeqCst, SeqCst).is_ok()
    }
    /// Returns true once when the time has come. How far the log is durable is to be read after
    /// that: a sync that the reader does not see sets another time.
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
        assert!(!watermark.take_due(4 + INTERVAL_US));
        assert!(watermark.take_due(5 + INTERVAL_US));
        assert!(!watermark.take_due(5 + INTERVAL_US), "once");
        assert!(watermark.schedule(|| 7));
    }
}
