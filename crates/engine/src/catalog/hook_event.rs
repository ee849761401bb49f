//! The events that commit hooks receive. When they run: see [`crate::log::commit_hooks`].

use perigee_base::{OpIndex, SeqNo};
use perigee_file::log::BatchOp;
use std::sync::Arc;

/// A user-supplied hook.
pub type CommitHook = Arc<dyn Fn(&HookEvent) + Send + Sync>;

/// The operations of one batch on one column family, or the notice that a transaction larger than
/// memory was committed.
#[derive(Debug)]
pub struct HookEvent {
    buffer: Arc<Vec<u8>>,
    base_seq: SeqNo,
    ops: Vec<(BatchOp, OpIndex)>,
    loaded: Option<u64>,
}

impl HookEvent {
    /// Creates the event of a batch whose first operation has sequence number `base`; each
    /// operation is paired with its index in the batch.
    pub fn new(buffer: Arc<Vec<u8>>, base: SeqNo, ops: Vec<(BatchOp, OpIndex)>) -> HookEvent {
        check_slow!(
            ops.is_sorted_by(|a, b| a.1 < b.1),
            "a hook receives the operations of a batch in their order",
            base,
            ops.len()
        );
        HookEvent { buffer, base_seq: base, ops, loaded: None }
    }
    /// Creates the event of a transaction larger than memory, which was committed under the single
    /// sequence number `base` and added `entries` entries to the column family.
    pub fn of_spilled_txn(base: SeqNo, entries: u64) -> HookEvent {
        HookEvent { buffer: Arc::default(), base_seq: base, ops: Vec::new(), loaded: Some(entries) }
    }
    /// Returns the number of entries if the event is of a transaction larger than memory, whose
    /// operations are not listed.
    pub fn entries_loaded(&self) -> Option<u64> {
        self.loaded
    }
    /// Returns the sequence number of the first operation on this column family.
    pub fn first_seq(&self) -> SeqNo {
        self.ops.first().map_or(self.base_seq, |(_, index)| self.base_seq.of_op(*index))
    }
    /// Returns the sequence number of the whole batch, that of its first operation: the same for
    /// each of its column families.
    pub fn batch_seq(&self) -> SeqNo {
        self.base_seq
    }
    /// Returns every operation with its sequence number.
    pub fn operations(&self) -> impl Iterator<Item = (SeqNo, &BatchOp)> {
        self.ops.iter().map(|(op, index)| (self.base_seq.of_op(*index), op))
    }
    /// Returns the bytes that the operations point into.
    pub fn buffer(&self) -> &[u8] {
        &self.buffer
    }
}
