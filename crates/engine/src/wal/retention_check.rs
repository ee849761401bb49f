//! When to look again at who keeps the log long. A look asks every family, and a log may stay above
//! its limit for long: so one that was in vain says how many bytes must be logged before another
//! can find more.
//!
//! Must not know who keeps it.

/// The next look.
#[derive(Debug, Default)]
pub struct RetentionCheck {
    /// When so many bytes were logged.
    due_at_bytes: u64,
    /// If the limit is still this.
    limit: u64,
    /// How many there were.
    checks_done: u64,
}

impl RetentionCheck {
    /// Whether it is time; `logged` bytes so far.
    #[inline]
    pub fn is_due(&self, logged: u64, limit: u64) -> bool {
        logged >= self.due_at_bytes || limit != self.limit
    }
    /// The next one is when `missing` more bytes are logged, but no later than when as many are as
    /// the limit allows: what others decide meanwhile may make it shorter.
    pub fn schedule_next(&mut self, logged: u64, limit: u64, missing: u64) {
        self.due_at_bytes = logged.saturating_add(missing.min(limit.max(1)));
        self.limit = limit;
        self.checks_done += 1;
    }
    /// Looks so far.
    pub fn checks_done(&self) -> u64 {
        self.checks_done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks that commits of 100 bytes make at a log of which `kept` says how much counts after so
    /// many bytes.
    fn count_checks(limit: u64, commits: u64, kept: impl Fn(u64) -> u64) -> u64 {
        let (mut look, mut looks) = (RetentionCheck::default(), 0);
        for logged in (0..commits).map(|i| i * 100) {
            if look.is_due(logged, limit) {
                looks += 1;
                look.schedule_next(logged, limit, limit.saturating_sub(kept(logged)));
            }
        }
        looks
    }

    #[test]
    fn long_log_is_checked_once_per_limit() {
        let limit = 64 << 10;
        // What counts grows from zero to a half of the limit and goes, as a memtable that is
        // flushed: others keep the rest.
        assert!(count_checks(limit, 10_000, |logged| logged % (limit / 2)) < 45);
        // Nothing counts.
        assert_eq!(count_checks(limit, 10_000, |_| 0), 1_000_000 / (limit + 36) + 1);
        // A log that is too long is looked at until it is not.
        assert_eq!(count_checks(limit, 100, |_| limit), 100);
    }

    #[test]
    fn changed_limit_makes_check_due() {
        let mut look = RetentionCheck::default();
        assert!(look.is_due(0, 10));
        look.schedule_next(5, 10, 3);
        assert!(!look.is_due(7, 10) && look.is_due(8, 10) && look.is_due(5, 9));
        look.schedule_next(5, 10, 1000);
        assert!(!look.is_due(14, 10) && look.is_due(15, 10));
    }
}
