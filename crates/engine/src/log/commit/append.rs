//! Appends a group to the log, and syncs it if one of its members needs that.

use super::request::CommitRequest;
use super::segment;
use crate::log::Log;
use crate::log::wal::Appender;
use crate::settings::durability::Durability;
use perigee_base::bug::{self, Bug};
use perigee_base::{Result, SeqNo};
use perigee_file::log::EncodedRecord;
use smallvec::SmallVec;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Appends the group's records. Returns the sequence number of the first operation.
pub fn append_group(
    log: &Log,
    appender: &mut Appender,
    group: &mut [CommitRequest],
) -> Result<SeqNo> {
    let (mut full, mut interval) = (false, None);
    let mut records: SmallVec<[&mut EncodedRecord; 1]> = SmallVec::new();
    for request in group.iter_mut().filter(|w| w.rejected.is_none()) {
        match request.durability {
            Durability::Full => full = true,
            Durability::Interval(t) => interval = Some(interval.unwrap_or(Duration::MAX).min(t)),
            Durability::None => {}
        }
        records.push(&mut request.record);
    }
    if records.is_empty() {
        return Ok(appender.next_lsn);
    }
    let first = log.append(appender, &mut records)?;
    check_slow!(
        appender.next_lsn
            == first.plus(records.iter().map(|r| u64::from(r.lsn_count)).sum::<u64>()),
        "a group has the sequence numbers of its operations",
        first,
        appender.next_lsn
    );
    segment::request_spare_segment(log, appender);
    log.runtime.counters.commit_groups.add(1);
    if full && !bug::is_active(Bug::SkipWalSync) {
        log.sync()?;
    }
    if let Some(interval) = interval {
        let us = interval.as_secs().saturating_mul(1_000_000);
        let us = us.saturating_add(u64::from(interval.subsec_micros()));
        let due = log.runtime.env.clock.monotonic_us().saturating_add(us);
        if log.sync_due_us.fetch_min(due, SeqCst) > due {
            log.runtime.signal.notify();
        }
    }
    Ok(first)
}
