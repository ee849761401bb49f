//! Copies of small batches: their keys and values are appended to chunks, in insertion order. One
//! buffer per batch would cost an allocation that outlives the commit, a slot, and three memory
//! accesses on the way to a key instead of one.
//!
//! Independent of the entry format. One writer; readers reach a chunk through its batch slot.

use super::hashed_entries::BatchSlots;
use crate::limits::{COPIED_CHUNK_BYTES_MAX, COPIED_CHUNK_BYTES_MIN};
use perigee_base::{AppendBuffer, Error, Result, SharedBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const _: () = assert!(COPIED_CHUNK_BYTES_MIN <= COPIED_CHUNK_BYTES_MAX, "chunks grow");

/// The chunks that small batches are copied into.
#[derive(Debug, Default)]
pub(super) struct CopiedBatches {
    /// Slot of the newest chunk, plus one; 0: no chunk yet.
    newest_slot: AtomicU32,
}

impl CopiedBatches {
    /// Returns a chunk with space for `bytes` more, its slot, and the bytes of memory newly
    /// allocated. Only one thread at a time may call this.
    pub fn chunk_with_space(
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
        check!(capacity >= bytes, "a new chunk has space for the batch", capacity, bytes);
        let slot = batches.push(SharedBuffer::Appendable(Arc::clone(&chunk)))?;
        self.newest_slot.store(slot + 1, Relaxed);
        Ok((slot, chunk, (capacity + size_of::<AppendBuffer>()) as u64))
    }
}

/// Returns the capacity of the chunk that follows one of `previous` bytes, for a batch of `bytes`.
fn next_chunk_capacity(previous: usize, bytes: usize) -> usize {
    (previous * 2).clamp(COPIED_CHUNK_BYTES_MIN, COPIED_CHUNK_BYTES_MAX).max(bytes)
}

/// Error for a chunk whose space another writer has taken.
pub(super) fn concurrent_writers_error() -> Error {
    Error::internal("concurrent writers in one memtable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_double_up_to_a_bound() {
        let (copied, batches) = (CopiedBatches::default(), BatchSlots::new());
        let mut grown = 0;
        for n in 0..10_000u32 {
            let (slot, chunk, more) = copied.chunk_with_space(100, &batches).unwrap();
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
