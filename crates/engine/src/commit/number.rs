//! A sequence number for what is not an operation of the log: a load as a whole, a change of the families.
//! Numbers are contiguous in the log, so one is taken by a record: a delete in the family that nobody has, which replay counts
//! and skips. Range tombstones of a load take the number before its own, if there are any.

use crate::core::Core;
use crate::wal::Appender;
use perigee_base::{FamilyId, Result, SeqNo};
use perigee_file::log::Batch;

/// Takes the next number, in the commit section, or the next two, and makes the log durable up to it. The last of them; it is
/// not visible yet.
pub fn take(core: &Core, appender: &mut Appender, two: bool) -> Result<SeqNo> {
    let mut batch = Batch::new();
    for _ in 0..1 + u64::from(two) {
        batch.delete(FamilyId::NOBODY, b"")?;
    }
    let edits = core.manifest.edits();
    let number = core.wal.append(appender, edits, &mut [&mut batch.finish()], &core.health)?;
    core.wal.sync(&core.health)?;
    Ok(SeqNo(number).plus(u64::from(two)))
}
