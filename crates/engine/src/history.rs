//! The retention policy of history: how far back every version is kept. Pure functions, independent
//! of clocks and rewrites.
//!
//! 1. A version whose sequence number is above the *horizon* is neither dropped nor changed by a
//!    rewrite.
//! 2. The horizon never excludes a version that the policy retains: versions may be kept longer
//!    than requested, but not shorter.

use perigee_base::SeqNo;
use std::collections::VecDeque;

/// Versions to retain in addition to those that snapshots need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryRetention {
    /// None.
    #[default]
    None,
    /// All versions written by the last `n` operations.
    Operations(u64),
    /// All versions written in the last `n` microseconds.
    Time(u64),
}

/// Approximate number of samples within the retention time.
const TIME_SAMPLES: u64 = 256;

/// Samples of the last sequence number at a time. Samples outside the retention time are dropped.
#[derive(Clone, Debug, Default)]
pub struct SeqNoTimeMap(VecDeque<(u64, SeqNo)>);

impl SeqNoTimeMap {
    /// Records that `last` was the last sequence number at `now_us`, which must not decrease.
    pub fn record(&mut self, history: HistoryRetention, now_us: u64, last: SeqNo) {
        let HistoryRetention::Time(span_us) = history else { return };
        let step = span_us / TIME_SAMPLES;
        if self.0.back().is_none_or(|(at, _)| now_us.saturating_sub(*at) >= step.max(1)) {
            self.0.push_back((now_us, last));
        }
        while self.0.get(1).is_some_and(|(at, _)| now_us.saturating_sub(*at) >= span_us) {
            self.0.pop_front();
        }
    }
    /// Returns the sequence number above which all versions are kept now, or `None` without
    /// history; `oldest` is the oldest readable sequence number.
    pub fn horizon(
        &self,
        history: HistoryRetention,
        now_us: u64,
        present: SeqNo,
        oldest: SeqNo,
    ) -> Option<SeqNo> {
        match history {
            HistoryRetention::None => None,
            HistoryRetention::Operations(n) => Some(SeqNo(present.0.saturating_sub(n))),
            // Until there is a sample that is old enough, keep everything that exists.
            HistoryRetention::Time(span_us) => Some(match self.0.front() {
                Some((at, seq)) if now_us.saturating_sub(*at) >= span_us => *seq,
                _ => oldest.min(present),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn horizon(m: &SeqNoTimeMap, h: HistoryRetention, now: u64, present: u64) -> Option<u64> {
        m.horizon(h, now, SeqNo(present), SeqNo(7)).map(|s| s.0)
    }

    #[test]
    fn operation_history_counts_back_from_the_latest() {
        let m = SeqNoTimeMap::default();
        assert_eq!(horizon(&m, HistoryRetention::None, 0, 100), None);
        assert_eq!(horizon(&m, HistoryRetention::Operations(30), 0, 100), Some(70));
        assert_eq!(horizon(&m, HistoryRetention::Operations(300), 0, 100), Some(0));
    }

    #[test]
    fn time_history_keeps_versions_for_the_full_span() {
        let history = HistoryRetention::Time(1000);
        let mut m = SeqNoTimeMap::default();
        assert_eq!(horizon(&m, history, 0, 10), Some(7), "no sample yet");
        // The sequence number at each time equals the time.
        for now in (0..20_000).step_by(7) {
            m.record(history, now, SeqNo(now));
            let at = horizon(&m, history, now, now).unwrap();
            assert!(at <= now.saturating_sub(1000).max(7), "{at} at {now}");
            assert!(
                now < 2000 || at + 1000 + 2 * (1000 / TIME_SAMPLES) + 14 >= now,
                "{at} at {now}: too many versions kept"
            );
            assert!(m.0.len() <= TIME_SAMPLES as usize + 2);
        }
    }
}
