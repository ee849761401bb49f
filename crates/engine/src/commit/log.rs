//! Into the log, and onto stable storage as far as the group's most careful writer asks.

use super::group::Group;
use crate::core::Core;
use crate::settings::Durability;
use crate::wal::Appender;
use perigee_base::Result;
use perigee_base::bug::{self, Bug};
use perigee_file::log::RecordKind;
use perigee_file::log::batch::Finished;
use std::sync::atomic::Ordering::SeqCst;

/// Appends the group's records; returns the sequence number of its first operation.
pub fn append(core: &Core, appender: &mut Appender, group: &mut Group) -> Result<u64> {
    let alive = || group.work.iter().flatten();
    if alive().count() == 0 {
        return Ok(appender.next_lsn);
    }
    let full = alive().any(|w| w.durability == Durability::Full);
    let interval = alive()
        .filter_map(|w| if let Durability::Interval(us) = w.durability { Some(us) } else { None })
        .min();
    let mut records: Vec<Finished> =
        group.work.iter_mut().flatten().map(|w| std::mem::replace(&mut w.record, empty())).collect();
    let edits = core.manifest.edits();
    let first = core.wal.append(appender, RecordKind::Batch, edits, &mut records, &core.health)?;
    group.work.iter_mut().flatten().zip(records).for_each(|(w, r)| w.record = r);
    core.counters.commit_groups.add(1);
    if full && !bug::on(Bug::SkipWalSync) {
        core.wal.sync(&core.health)?;
    }
    if let Some(us) = interval {
        let due = core.env.clock.monotonic_us().saturating_add(us);
        if core.sync_due.fetch_min(due, SeqCst) > due {
            core.signal.ring();
        }
    }
    Ok(first)
}

fn empty() -> Finished {
    Finished { buf: Vec::new(), payload_bytes: 0, count: 0, payload_checksum: 0 }
}
