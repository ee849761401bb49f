//! Inserts the operations of a log record into the memtables of their column families. Independent
//! of where the record was read, and of what becomes of it.

use crate::catalog::family::FamilyState;
use crate::limits::COPIED_RECORD_BYTES_MAX;
use crate::resources::shared_batches::{OpBytes, SharedBatches, batch_share, operation_bytes};
use perigee_base::{FamilyId, OpIndex, Result, SeqNo};
use perigee_file::log::BatchOp;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The operations of a record by column family, each with its index among the record's sequence
/// numbers.
pub type ReplayedOps = BTreeMap<FamilyId, Vec<(BatchOp, OpIndex)>>;

/// Size of an operation in a memtable in addition to its key and value, approximately.
const OP_BYTES: usize = 72;

/// Returns the approximate bytes of an operation in a memtable.
pub fn op_memory_bytes(op: &BatchOp) -> u64 {
    (op.key.len() + op.value.len() + OP_BYTES) as u64
}

/// Inserts `parts`, operations of a record with the sequence numbers `seqs` in `buffer`. With
/// `copied`, the buffer of a small record, or of one of which little is inserted, is not retained.
/// Returns the memtable growth in bytes.
///
/// # Errors
/// `NoMemory` if a memtable's address space is exhausted.
pub fn insert_ops(
    buffer: &Arc<Vec<u8>>,
    seqs: Range<SeqNo>,
    parts: &ReplayedOps,
    family: &dyn Fn(FamilyId) -> Option<Arc<FamilyState>>,
    batches: &SharedBatches,
    copied: bool,
) -> Result<u64> {
    let all: u64 = parts.values().map(|ops| operation_bytes(ops)).sum();
    let copied =
        copied && (buffer.len() <= COPIED_RECORD_BYTES_MAX || all * 2 < buffer.len() as u64);
    let shared =
        (parts.len() > 1 && !copied).then(|| batches.add(buffer.capacity(), seqs.end.prev()));
    let mut grown = 0;
    for (id, ops) in parts {
        let Some(family) = family(*id) else { continue };
        let active = family.tree.active();
        let before = active.bytes() + active.contents_bytes();
        if copied {
            active.insert_copied(buffer, seqs.start, ops)?;
        } else {
            let share = shared
                .as_ref()
                .map(|of| batch_share(of, OpBytes { mine: operation_bytes(ops), all }));
            active.insert_shared(buffer, seqs.start, ops, share)?;
        }
        grown += (active.bytes() + active.contents_bytes()).saturating_sub(before);
    }
    Ok(grown)
}
