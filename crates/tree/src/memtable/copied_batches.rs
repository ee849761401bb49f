//! Small batches, copied: their keys and values lie side by side in chunks, in the order of their
//! arrival. Each in a buffer of its own would cost an allocation that outlives the commit, a slot,
//! and three places in memory on the way to a key instead of one.
//!
//! Must not know what is written. One writer; readers reach a chunk through the slot of the batches
//! that it takes.

use super::hashed_entries::BatchSlots;
use perigee_base::append_buffer::AppendBuffer;
use perigee_base::pinned_slice::SharedBuffer;
use perigee_base::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The first chunk of a memtable: a database may have thousands of families with an entry or two
/// each.
const CHUNK_BYTES_MIN: usize = 64;
/// No chunk is larger: a value that a reader keeps holds all of it.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// Where small batches go.
#[derive(Debug, Default)]
pub(super) struct CopiedBatches {
    /// Slot of the newest chunk, plus one; 0: there is none yet.
    newest_slot: AtomicU32,
}

impl CopiedBatches {
    /// The chunk with room for `bytes` more, its slot, and the bytes of memory newly taken. By one
    /// thread at a time.
    pub fn chunk_with_room(
        &self,
        bytes: usize,
        batches: &BatchSlots,
    ) -> Result<(u32, Arc<AppendBuffer>, u64)> {
        let newest = self.newest_slot.load(Relaxed).checked_sub(1);
        let chunk = newest.and_then(|slot| match batches.get(slot) {
            Some(SharedBuffer::Appendable(chunk)) => Some((slot, chunk)),
            _ => None,
        });
        let left = |chunk: &AppendBuffer| chunk.capacity() - chunk.bytes().len();
        if let Some((slot, chunk)) = chunk.filter(|(_, chunk)| left(chunk) >= bytes) {
            return Ok((slot, Arc::clone(chunk), 0));
        }
        let capacity = next_chunk_capacity(chunk.map_or(0, |(_, chunk)| chunk.capacity()), bytes);
        let chunk = Arc::new(AppendBuffer::new(capacity));
        let slot = batches.push(SharedBuffer::Appendable(Arc::clone(&chunk)))?;
        self.newest_slot.store(slot + 1, Relaxed);
        Ok((slot, chunk, (capacity + size_of::<AppendBuffer>()) as u64))
    }
}

/// How large the chunk after one of `previous` bytes is, for a batch of `bytes`.
fn next_chunk_capacity(previous: usize, bytes: usize) -> usize {
    (previous * 2).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX).max(bytes)
}

/// The error of a chunk that has no room after all.
pub(super) fn concurrent_writers_error() -> Error {
    Error::internal("two writers in one memtable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_double_up_to_a_bound() {
        let (copied, batches) = (CopiedBatches::default(), BatchSlots::new());
        let mut grown = 0;
        for n in 0..10_000u32 {
            let (slot, chunk, more) = copied.chunk_with_room(100, &batches).unwrap();
            let at = chunk.append(&[n as u8; 100]).unwrap();
            assert!(batches.get(slot).unwrap()[at..].iter().all(|b| *b == n as u8));
            grown += more;
        }
        assert!((1_000_000..1_150_000).contains(&grown), "{grown}");
        assert_eq!((next_chunk_capacity(0, 10), next_chunk_capacity(0, 5000)), (64, 5000));
        assert_eq!(
            (next_chunk_capacity(40 << 10, 10), next_chunk_capacity(64 << 10, 10)),
            (64 << 10, 64 << 10)
        );
    }
}
