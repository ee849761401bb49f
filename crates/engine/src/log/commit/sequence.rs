//! Reserves sequence numbers for what is not an operation in the log: a bulk load as a whole, or a
//! column-family change. LSNs are contiguous, so each number is taken by a record: a delete in a
//! column family that does not exist, which replay counts and skips. The range tombstones of a
//! load, if it has any, take the number before that of the load, and the event of each further
//! column family takes the next one after it, so that a consumer of the change feed can stop
//! between any two of them.

use crate::log::Log;
use crate::log::wal::Appender;
use perigee_base::{FamilyId, Result, SeqNo};
use perigee_file::log::Batch;

/// Takes the next `count` sequence numbers, at least one, and syncs the log up to them. Returns the
/// first; none is visible yet. Called in the commit section.
pub fn reserve_sequence_numbers(log: &Log, appender: &mut Appender, count: u64) -> Result<SeqNo> {
    let mut batch = Batch::new();
    for _ in 0..count.max(1) {
        batch.delete(FamilyId::NONE, b"")?;
    }
    let first = log.append(appender, &mut [&mut batch.finish()])?;
    check!(
        appender.next_lsn == first.plus(count.max(1)),
        "reserved sequence numbers are logged",
        first,
        count
    );
    check!(
        log.catalog.visible_seq() < first,
        "reserved sequence numbers are not visible yet",
        log.catalog.visible_seq(),
        first
    );
    log.sync_before_edit()?;
    Ok(first)
}
