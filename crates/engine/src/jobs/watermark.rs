//! Writes the log watermark: a manifest edit that records up to which LSN the log is durable. It
//! never claims more than a sync has covered.

use crate::core::EngineCore;
use crate::manifest::ManifestEdit;
use perigee_base::bug::{self, Bug};
use perigee_base::{ErrorKind, Result};
use std::sync::atomic::Ordering::SeqCst;

/// Writes the watermark if it is due and no other edit has recorded as much. A full disk is not a
/// failure: the next sync reschedules it.
///
/// # Errors
/// Same as for any manifest edit: the database is poisoned.
pub fn write_watermark_if_due(core: &EngineCore) -> Result<()> {
    // The clock is read only if a watermark is scheduled.
    let set = core.watermark_timer.due_us() != u64::MAX;
    if !set || !core.watermark_timer.take_due(core.env.clock.monotonic_us()) {
        return Ok(());
    }
    let ahead = bug::is_active(Bug::WatermarkAheadOfSync);
    let durable = if ahead { core.visible_seq.load(SeqCst) } else { core.wal.durable() };
    let known = core.manifest.with_catalog(|catalog| catalog.durable_seq >= durable);
    if known
        || core.health.check_writable().is_err()
        || bug::is_active(Bug::ZerosBelowWatermarkAccepted)
    {
        return Ok(());
    }
    let edit = ManifestEdit { durable_seq: Some(durable), ..ManifestEdit::default() };
    match core.manifest.commit_edit(&core.health, &core.next_file_id, |_| Ok((edit, ())), |()| ()) {
        Ok(()) => {
            core.counters.log_watermarks.add(1);
            Ok(())
        }
        Err(e) if e.kind() == ErrorKind::NoSpace => Ok(()),
        Err(e) => Err(e),
    }
}
