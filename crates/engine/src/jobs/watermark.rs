//! Writes the watermark of the log: an edit that records how far it is durable. Only what a sync covered is claimed.

use crate::core::Core;
use crate::manifest::Edit;
use perigee_base::bug::{self, Bug};
use perigee_base::{ErrorKind, Result};
use std::sync::atomic::Ordering::SeqCst;

/// Writes it if it is due and no other edit has recorded as much. A full disk is no failure: the next sync sets another time.
///
/// # Errors
/// As any edit of the manifest: the database is poisoned.
pub fn write_when_due(core: &Core) -> Result<()> {
    // The clock is read only while a time is set.
    let set = core.watermark.due_us() != u64::MAX;
    if !set || !core.watermark.take_due(core.env.clock.monotonic_us()) {
        return Ok(());
    }
    let ahead = bug::on(Bug::WatermarkAheadOfSync);
    let durable = if ahead { core.visible.load(SeqCst) } else { core.wal.durable() };
    let known = core.manifest.look(|catalog| catalog.durable >= durable);
    if known || core.health.check_writable().is_err() || bug::on(Bug::ZerosBelowWatermarkPass) {
        return Ok(());
    }
    let edit = Edit { durable: Some(durable), ..Edit::default() };
    match core.manifest.commit(&core.health, &core.ids, |_| Ok((edit, ())), |()| ()) {
        Ok(()) => {
            core.counters.log_watermarks.add(1);
            Ok(())
        }
        Err(e) if e.kind() == ErrorKind::NoSpace => Ok(()),
        Err(e) => Err(e),
    }
}
