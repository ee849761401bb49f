//! The retention policy of history: how far back every version is kept. Pure functions, independent
//! of clocks and rewrites.
//!
//! 1. A version whose sequence number is above the *horizon* is neither dropped nor changed by a
//!    rewrite.
//! 2. The horizon never excludes a version that the policy retains: versions may be kept longer
//!    than requested, but not shorter.

use crate::settings::value_syntax::{format_duration, parse_duration};
use perigee_base::{Error, Micros, Result, SeqNo};
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How far back old versions are kept, so that `History::snapshot_at` can read past states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryPolicy {
    /// Keeps only the versions that snapshots need.
    #[default]
    None,
    /// Keeps the versions written or overwritten by the last `n` operations.
    Operations(u64),
    /// Keeps the versions written or overwritten within this time, counted while the database is
    /// open.
    Time(Duration),
}

/// Formats as in an options file: `none`, `1000 operations`, `10 min`.
impl fmt::Display for HistoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HistoryPolicy::None => f.pad("none"),
            HistoryPolicy::Operations(n) => f.pad(&format!("{n} operations")),
            HistoryPolicy::Time(t) => f.pad(&format_duration(*t)),
        }
    }
}

/// Parses what `Display` formats.
///
/// ```
/// # use perigee_engine::HistoryPolicy;
/// assert_eq!("1000 operations".parse::<HistoryPolicy>()?, HistoryPolicy::Operations(1000));
/// assert_eq!("10 min".parse::<HistoryPolicy>()?.to_string(), "10 min");
/// # Ok::<(), perigee_engine::Error>(())
/// ```
impl FromStr for HistoryPolicy {
    type Err = Error;
    fn from_str(text: &str) -> Result<HistoryPolicy> {
        let wrong = || {
            let forms = "\"none\", \"1000 operations\", \"10 min\"";
            Error::invalid(format!("{text:?} is not one of {forms}"))
        };
        match text.trim() {
            "none" => Ok(HistoryPolicy::None),
            other => match other.strip_suffix("operations") {
                Some(n) => n.trim().parse().map(HistoryPolicy::Operations).map_err(|_| wrong()),
                None => parse_duration(other).map(HistoryPolicy::Time).map_err(|_| wrong()),
            },
        }
    }
}

/// Approximate number of samples within the retention time.
const TIME_SAMPLES: u64 = 256;

/// Samples of the last sequence number, each with its time. Samples outside the retention time are
/// dropped.
#[derive(Clone, Debug, Default)]
pub struct SeqNoTimeMap(VecDeque<(u64, SeqNo)>);

impl SeqNoTimeMap {
    /// Records that `last` was the last sequence number at `now_us`, which must not decrease.
    pub fn record(&mut self, history: HistoryPolicy, now_us: u64, last: SeqNo) {
        let HistoryPolicy::Time(span) = history else { return };
        let span_us = Micros::from_duration_rounded_up(span).0;
        let step = span_us / TIME_SAMPLES;
        if self.0.back().is_none_or(|(at, _)| now_us.saturating_sub(*at) >= step.max(1)) {
            check_slow!(
                self.0.back().is_none_or(|(at, seq)| *at < now_us && *seq <= last),
                "later samples have later sequence numbers",
                self.0.back(),
                now_us,
                last
            );
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
        history: HistoryPolicy,
        now_us: u64,
        present: SeqNo,
        oldest: SeqNo,
    ) -> Option<SeqNo> {
        match history {
            HistoryPolicy::None => None,
            HistoryPolicy::Operations(n) => Some(SeqNo(present.0.saturating_sub(n))),
            // Until there is a sample that is old enough, keep everything that exists.
            HistoryPolicy::Time(span) => Some(match self.0.front() {
                Some((at, seq))
                    if now_us.saturating_sub(*at) >= Micros::from_duration_rounded_up(span).0 =>
                {
                    *seq
                }
                _ => oldest.min(present),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn horizon(m: &SeqNoTimeMap, h: HistoryPolicy, now: u64, present: u64) -> Option<u64> {
        m.horizon(h, now, SeqNo(present), SeqNo(7)).map(|s| s.0)
    }

    #[test]
    fn operation_history_counts_back_from_the_latest() {
        let m = SeqNoTimeMap::default();
        assert_eq!(horizon(&m, HistoryPolicy::None, 0, 100), None);
        assert_eq!(horizon(&m, HistoryPolicy::Operations(30), 0, 100), Some(70));
        assert_eq!(horizon(&m, HistoryPolicy::Operations(300), 0, 100), Some(0));
    }

    #[test]
    fn time_history_keeps_versions_for_the_full_span() {
        let history = HistoryPolicy::Time(Duration::from_micros(1000));
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
