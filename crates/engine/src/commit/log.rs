//! Appends a group to the log, and syncs it if one of its members needs that.

use super::request::CommitRequest;
use super::segment;
use crate::core::EngineCore;
use crate::settings::DurabilityLevel;
use crate::wal::Appender;
use perigee_base::bug::{self, Bug};
use perigee_base::{Result, SeqNo};
use perigee_file::log::batch::EncodedRecord;
use smallvec::SmallVec;
use std::sync::atomic::Ordering::SeqCst;

/// Appends the group's records. Returns the sequence number of the first operation.
pub fn append_group(
    core: &EngineCore,
    appender: &mut Appender,
    group: &mut [CommitRequest],
) -> Result<SeqNo> {
    let (mut full, mut interval) = (false, None);
    let mut records: SmallVec<[&mut EncodedRecord; 1]> = SmallVec::new();
    for request in group.iter_mut().filter(|w| w.rejected.is_none()) {
        match request.durability {
            DurabilityLevel::Full => full = true,
            DurabilityLevel::Interval(us) => interval = Some(interval.unwrap_or(u64::MAX).min(us)),
            DurabilityLevel::None => {}
        }
        records.push(&mut request.record);
    }
    if records.is_empty() {
        return Ok(appender.next_lsn);
    }
    let edits = core.manifest.last_edit();
    let first = core.wal.append(appender, edits, &mut records, &core.health)?;
    segment::request_spare_segment(core, appender);
    core.counters.commit_groups.add(1);
    if full && !bug::is_active(Bug::SkipWalSync) {
        core.sync_log()?;
    }
    if let Some(us) = interval {
        let due = core.env.clock.monotonic_us().saturating_add(us);
        if core.sync_due_us.fetch_min(due, SeqCst) > due {
            core.signal.notify();
        }
    }
    Ok(first)
}
