//! A sequence number for what is not an operation of the log: a load as a whole, a change of the
//! families. Numbers are contiguous in the log, so one is taken by a record: a delete in the family
//! that nobody has, which replay counts and skips. Range tombstones of a load take the number
//! before its own, if there are any, and the event of each further family that it loads takes the
//! next one behind it, so that a consumer of the feed can stop between any two of them.

use crate::core::EngineCore;
use crate::wal::Appender;
use perigee_base::{FamilyId, Result, SeqNo};
use perigee_file::log::Batch;

/// Takes the next `count` numbers, at least one, in the commit section, and makes the log durable
/// up to them. Returns the first of them; none is visible yet.
pub fn reserve_sequence_numbers(
    core: &EngineCore,
    appender: &mut Appender,
    count: u64,
) -> Result<SeqNo> {
    let mut batch = Batch::new();
    for _ in 0..count.max(1) {
        batch.delete(FamilyId::NONE, b"")?;
    }
    let edits = core.manifest.last_edit();
    let number = core.wal.append(appender, edits, &mut [&mut batch.finish()], &core.health)?;
    core.wal.sync(&core.health)?;
    Ok(SeqNo(number))
}
