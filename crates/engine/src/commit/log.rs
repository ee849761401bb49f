//! Into the log, and onto stable storage as far as the group's most careful writer asks.

use super::segment;
use super::work::Work;
use crate::core::Core;
use crate::settings::Durability;
use crate::wal::Appender;
use perigee_base::Result;
use perigee_base::bug::{self, Bug};
use perigee_file::log::batch::Finished;
use smallvec::SmallVec;
use std::sync::atomic::Ordering::SeqCst;

/// Appends the group's records; returns the sequence number of its first operation.
pub fn append(core: &Core, appender: &mut Appender, group: &mut [Work]) -> Result<u64> {
    let (mut full, mut interval) = (false, None);
    let mut records: SmallVec<[&mut Finished; 1]> = SmallVec::new();
    for work in group.iter_mut().filter(|w| w.refused.is_none()) {
        match work.durability {
            Durability::Full => full = true,
            Durability::Interval(us) => interval = Some(interval.unwrap_or(u64::MAX).min(us)),
            Durability::None => {}
        }
        records.push(&mut work.record);
    }
    if records.is_empty() {
        return Ok(appender.next_lsn);
    }
    let edits = core.manifest.edits();
    let first = core.wal.append(appender, edits, &mut records, &core.health)?;
    segment::ask(core, appender);
    core.counters.commit_groups.add(1);
    if full && !bug::on(Bug::SkipWalSync) {
        core.sync_log()?;
    }
    if let Some(us) = interval {
        let due = core.env.clock.monotonic_us().saturating_add(us);
        if core.sync_due.fetch_min(due, SeqCst) > due {
            core.signal.ring();
        }
    }
    Ok(first)
}
