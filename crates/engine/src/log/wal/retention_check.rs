//! Schedules the checks for column families that retain too much log. A check visits every column
//! family, and the log may stay above its limit for long; so a check without result determines how
//! many bytes must be logged before another can find more.
//!
//! Independent of what retains the log.

use perigee_base::Bytes;

/// Bytes of log from which on a check can find something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct LogLimit(pub u64);

/// When the next check is due.
#[derive(Debug, Default)]
pub struct RetentionCheck {
    /// Total logged bytes at which the check is due.
    due_at_bytes: u64,
    /// The limit for which that was computed.
    limit: LogLimit,
    /// Number of checks so far.
    checks_done: u64,
}

impl RetentionCheck {
    /// Returns true if a check is due after `logged` bytes in total.
    #[inline]
    pub fn is_due(&self, logged: Bytes, limit: LogLimit) -> bool {
        logged.0 >= self.due_at_bytes || limit != self.limit
    }
    /// Schedules the next check after `missing` more bytes, but at most `limit` more bytes:
    /// decisions of prepared transactions may reduce the missing bytes in the meantime.
    pub fn schedule_next(&mut self, logged: Bytes, limit: LogLimit, missing: Bytes) {
        self.due_at_bytes = logged.0.saturating_add(missing.0.min(limit.0.max(1)));
        self.limit = limit;
        self.checks_done += 1;
    }
    /// Returns the number of checks so far.
    pub fn checks_done(&self) -> u64 {
        self.checks_done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the checks triggered by commits of 100 bytes; `kept` returns how much of the log
    /// counts after that many logged bytes.
    fn count_checks(limit: u64, commits: u64, kept: impl Fn(u64) -> u64) -> u64 {
        let (mut check, mut checks) = (RetentionCheck::default(), 0);
        for logged in (0..commits).map(|i| i * 100) {
            if check.is_due(Bytes(logged), LogLimit(limit)) {
                checks += 1;
                let missing = Bytes(limit.saturating_sub(kept(logged)));
                check.schedule_next(Bytes(logged), LogLimit(limit), missing);
            }
        }
        checks
    }

    #[test]
    fn long_log_is_checked_once_per_limit() {
        let limit = 64 << 10;
        // The counted part grows from zero to half of the limit and drops, like a memtable that is
        // flushed; the rest of the log is retained otherwise.
        assert!(count_checks(limit, 10_000, |logged| logged % (limit / 2)) < 45);
        // Nothing counts.
        assert_eq!(count_checks(limit, 10_000, |_| 0), 1_000_000 / (limit + 36) + 1);
        // A log that is too long is checked on every commit until it is not.
        assert_eq!(count_checks(limit, 100, |_| limit), 100);
    }

    #[test]
    fn changed_limit_makes_check_due() {
        let mut check = RetentionCheck::default();
        assert!(check.is_due(Bytes(0), LogLimit(10)));
        check.schedule_next(Bytes(5), LogLimit(10), Bytes(3));
        assert!(
            !check.is_due(Bytes(7), LogLimit(10))
                && check.is_due(Bytes(8), LogLimit(10))
                && check.is_due(Bytes(5), LogLimit(9))
        );
        check.schedule_next(Bytes(5), LogLimit(10), Bytes(1000));
        assert!(!check.is_due(Bytes(14), LogLimit(10)) && check.is_due(Bytes(15), LogLimit(10)));
    }
}
