//! Batches shared by the memtables of several column families: the bytes that they hold, and their
//! sequence numbers. A buffer is freed when the last of its column families is flushed; so when
//! memory is short, the memtables that hold the oldest buffers are flushed together. Independent of
//! column families.

use perigee_base::{OpIndex, SeqNo};
use perigee_file::log::BatchOp;
use perigee_tree::{BatchShare, SharedBatch};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Size of what a buffer has in addition to its bytes: reference count, entry in the list and the
/// overhead of the allocator.
const BATCH_OVERHEAD_BYTES: u64 = 144;

/// Size of an operation in addition to its key and value, approximately.
const OPERATION_OVERHEAD_BYTES: usize = 5;

/// Live batches, by the sequence number of their last operation.
type LiveBatches = VecDeque<(SeqNo, Weak<SharedBatch>)>;

/// The shared batches of a database.
#[derive(Debug, Default)]
pub struct SharedBatches {
    held: Arc<AtomicU64>,
    /// Oldest first; some may be freed already. The mutex guards the list; no I/O and no other lock
    /// while it is held.
    list: Mutex<LiveBatches>,
}

impl SharedBatches {
    /// Adds a batch whose last operation is `last`. Called in the commit section (or before other
    /// threads use the database).
    pub fn add(&self, buffer_bytes: usize, last: SeqNo) -> Arc<SharedBatch> {
        let batch = SharedBatch::new(buffer_bytes as u64 + BATCH_OVERHEAD_BYTES, &self.held);
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() == list.capacity() {
            list.retain(is_live);
        }
        list.push_back((last, Arc::downgrade(&batch)));
        batch
    }
    /// Returns the bytes of all batches that are still held.
    pub fn held_bytes(&self) -> u64 {
        self.held.load(Relaxed)
    }
    /// Returns the sequence number up to which the batches hold `bytes`, or that of the last batch.
    pub fn oldest_seq_covering(&self, bytes: u64) -> SeqNo {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(is_live);
        let (mut sum, mut last) = (0, SeqNo::ZERO);
        for (seq, batch) in list.iter().filter(|_| bytes > 0) {
            sum += batch.upgrade().map_or(0, |b| b.bytes());
            last = *seq;
            if sum >= bytes {
                break;
            }
        }
        last
    }
}

fn is_live(entry: &(SeqNo, Weak<SharedBatch>)) -> bool {
    entry.1.strong_count() > 0
}

/// Returns the approximate bytes of operations in their batch, for dividing it.
pub fn operation_bytes(ops: &[(BatchOp, OpIndex)]) -> u64 {
    ops.iter()
        .map(|(op, _)| (op.key.len() + op.value.len() + OPERATION_OVERHEAD_BYTES) as u64)
        .sum()
}

/// The bytes of a part of the operations of a batch.
#[derive(Clone, Copy, Debug)]
pub struct OpBytes {
    /// Bytes of the part.
    pub mine: u64,
    /// Bytes of all operations.
    pub all: u64,
}

/// Returns the share of a batch that belongs to a part of its operations. The shares add
/// up to the whole, except for rounding.
pub fn batch_share(of: &Arc<SharedBatch>, part: OpBytes) -> BatchShare<'_> {
    let OpBytes { mine, all } = part;
    check_slow!(mine <= all, "the shares of a batch add up to the batch", mine, all);
    let bytes = u128::from(of.bytes()) * u128::from(mine) / u128::from(all.max(1));
    BatchShare { batch: of, bytes: u64::try_from(bytes).unwrap_or(of.bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_batch_counts_until_its_last_holder_drops() {
        let all = SharedBatches::default();
        let mut kept: Vec<_> = (1..=100u64)
            .map(|i| all.add(1000 - BATCH_OVERHEAD_BYTES as usize, SeqNo(i * 10)))
            .collect();
        assert_eq!(
            (
                all.held_bytes(),
                all.oldest_seq_covering(1).0,
                all.oldest_seq_covering(2500).0,
                all.oldest_seq_covering(u64::MAX).0
            ),
            (100_000, 10, 30, 1000)
        );
        let other = Arc::clone(&kept[0]);
        kept.drain(..50);
        assert_eq!(
            (all.held_bytes(), all.oldest_seq_covering(1000).0, all.oldest_seq_covering(1001).0),
            (51_000, 10, 510)
        );
        drop(other);
        assert_eq!((all.held_bytes(), all.oldest_seq_covering(1).0), (50_000, 510));
        drop(kept);
        assert_eq!((all.held_bytes(), all.oldest_seq_covering(1).0), (0, 0));
        for i in 0..10_000 {
            all.add(1, SeqNo(i));
        }
        assert!(all.list.lock().unwrap().len() < 1000, "freed batches leave the list");
        let batch = all.add(1000 - BATCH_OVERHEAD_BYTES as usize, SeqNo(1));
        let share = |mine, all| batch_share(&batch, OpBytes { mine, all }).bytes;
        assert_eq!((share(1, 3), share(0, 0), share(u64::MAX, u64::MAX)), (333, 0, 1000));
    }
}
