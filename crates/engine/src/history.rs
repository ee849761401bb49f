//! How far back every version is kept: the policy of history. Pure; it knows neither clocks nor
//! rewrites.
//!
//! 1. A version is kept from everything that a rewrite might do to it if its number is above the
//!    *horizon*.
//! 2. The horizon never reaches further than what is wanted: too old versions may stay, young ones
//!    may not go.

use perigee_base::SeqNo;
use std::collections::VecDeque;

/// What is kept of the past beside what snapshots hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryRetention {
    /// Nothing.
    #[default]
    None,
    /// All versions that the last so many operations have written.
    Operations(u64),
    /// All versions written in the last so many microseconds.
    Time(u64),
}

/// So many moments are remembered within the time of history, about.
const TIME_SAMPLES: u64 = 256;

/// Which number was the last one at which time. Forgets what nobody can ask for.
#[derive(Clone, Debug, Default)]
pub struct SeqNoTimeMap(VecDeque<(u64, SeqNo)>);

impl SeqNoTimeMap {
    /// Notes that `last` was the last operation at `now_us`; moments do not go back.
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
    /// The number above which all is kept now, if history is; `oldest` is the oldest number that
    /// can be read.
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
            // As long as nobody remembers what was then, everything that is there stays.
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
        assert_eq!(horizon(&m, history, 0, 10), Some(7), "nothing is known yet");
        // The last operation at each time is its number.
        for now in (0..20_000).step_by(7) {
            m.record(history, now, SeqNo(now));
            let at = horizon(&m, history, now, now).unwrap();
            assert!(at <= now.saturating_sub(1000).max(7), "{at} at {now}");
            assert!(
                now < 2000 || at + 1000 + 2 * (1000 / TIME_SAMPLES) + 14 >= now,
                "{at} at {now}: too much stays"
            );
            assert!(m.0.len() <= TIME_SAMPLES as usize + 2);
        }
    }
}
