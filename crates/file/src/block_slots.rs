//! Block slots: one slot for each data block of a file, full while the block is cached. A lookup
//! goes to the slot by block number, without a map, and contends only with lookups of the same
//! block. The policy (what is cached and when it is evicted) is in
//! [`block_cache`](crate::block_cache).
//!
//! Invariant: a slot is filled and emptied only by the cache, under the lock of the shard that it
//! belongs to.

use crate::block::TableBlock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// Number of slots allocated together, when the first of their blocks is cached.
const SLOTS_PER_CHUNK: usize = 64;

/// Contents of a full slot.
#[derive(Debug)]
pub struct CachedBlock {
    pub block: Arc<TableBlock>,
    /// Index of the block's entry in the ring of its shard.
    ring_index: u32,
    /// The CLOCK reference bit: the block was accessed since the hand last passed.
    referenced: AtomicBool,
}

impl CachedBlock {
    /// Creates an unreferenced block at index `at` of its shard's ring.
    pub fn new(block: Arc<TableBlock>, at: u32) -> CachedBlock {
        CachedBlock { block, ring_index: at, referenced: AtomicBool::new(false) }
    }
}

/// The slot of one block, aligned so that no slot spans two cache lines.
#[derive(Debug, Default)]
#[repr(align(32))]
pub struct BlockSlot {
    cached: RwLock<Option<CachedBlock>>,
}

/// Slots allocated together: [`SLOTS_PER_CHUNK`], fewer at the end of the file.
type BlockSlotChunk = Box<[BlockSlot]>;

impl BlockSlot {
    /// Fills or empties the slot; returns its previous contents.
    pub fn replace(&self, cached: Option<CachedBlock>) -> Option<CachedBlock> {
        let mut slot = self.cached.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *slot, cached)
    }
    /// Updates the ring index of the cached block, if any.
    pub fn set_ring_index(&self, at: u32) {
        if let Some(cached) = self.cached.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
            cached.ring_index = at;
        }
    }
    /// Clears the reference bit; returns its previous value.
    pub fn take_reference_bit(&self) -> bool {
        self.with_cached(|cached| cached.referenced.swap(false, Relaxed)).unwrap_or(false)
    }
    /// Calls `visit` with the contents, under the slot lock.
    #[inline]
    fn with_cached<T>(&self, visit: impl FnOnce(&CachedBlock) -> T) -> Option<T> {
        self.cached.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(visit)
    }
    /// Returns true if the slot holds a block.
    pub fn is_full(&self) -> bool {
        self.with_cached(|_| ()).is_some()
    }
}

/// The slots of one file.
#[derive(Debug)]
pub struct FileBlockSlots {
    chunks: Box<[OnceLock<BlockSlotChunk>]>,
    block_count: usize,
    /// Memory of the slots of all files.
    allocated_bytes: Arc<AtomicU64>,
}

impl FileBlockSlots {
    /// Creates the empty slots of a file with this many blocks. Allocated slots are counted in
    /// `allocated_bytes` while they exist.
    pub fn new(blocks: usize, allocated_bytes: Arc<AtomicU64>) -> FileBlockSlots {
        FileBlockSlots {
            chunks: (0..blocks.div_ceil(SLOTS_PER_CHUNK)).map(|_| OnceLock::new()).collect(),
            block_count: blocks,
            allocated_bytes,
        }
    }
    /// Returns the slot of block `i`, allocating its chunk if necessary.
    pub fn slot(&self, i: usize) -> &BlockSlot {
        check_slow!(
            i < self.block_count,
            "a slot belongs to a block of the file",
            i,
            self.block_count
        );
        let allocate = || {
            let first = i / SLOTS_PER_CHUNK * SLOTS_PER_CHUNK;
            let slots = SLOTS_PER_CHUNK.min(self.block_count - first);
            self.allocated_bytes.fetch_add((slots * size_of::<BlockSlot>()) as u64, Relaxed);
            (0..slots).map(|_| BlockSlot::default()).collect()
        };
        &self.chunks[i / SLOTS_PER_CHUNK].get_or_init(allocate)[i % SLOTS_PER_CHUNK]
    }
    #[inline]
    fn existing_slot(&self, i: usize) -> Option<&BlockSlot> {
        self.chunks.get(i / SLOTS_PER_CHUNK)?.get()?.get(i % SLOTS_PER_CHUNK)
    }
    /// Calls `visit` with block `i` if it is cached, and sets its reference bit. `visit` runs under
    /// the slot lock and must not use the cache.
    #[inline]
    pub fn with_block<T>(&self, i: usize, visit: impl FnOnce(&Arc<TableBlock>) -> T) -> Option<T> {
        let slot = self.existing_slot(i)?;
        slot.with_cached(|cached| {
            if !cached.referenced.load(Relaxed) {
                cached.referenced.store(true, Relaxed);
            }
            visit(&cached.block)
        })
    }
    /// Returns true if block `i` is cached; does not set its reference bit.
    pub fn is_cached(&self, i: usize) -> bool {
        self.existing_slot(i).is_some_and(BlockSlot::is_full)
    }
    /// Returns true if block `i` is cached and its reference bit is set.
    pub fn is_referenced(&self, i: usize) -> bool {
        let is_referenced = |cached: &CachedBlock| cached.referenced.load(Relaxed);
        self.existing_slot(i).and_then(|slot| slot.with_cached(is_referenced)).unwrap_or(false)
    }
    /// Returns the ring index of block `i` if it is cached.
    pub fn ring_index(&self, i: usize) -> Option<u32> {
        self.existing_slot(i)?.with_cached(|cached| cached.ring_index)
    }
    /// Iterates over the numbers of the cached blocks.
    pub fn cached_blocks(&self) -> impl Iterator<Item = usize> {
        let allocated =
            self.chunks.iter().enumerate().filter_map(|(c, chunk)| Some((c, chunk.get()?)));
        allocated.flat_map(|(c, slots)| {
            slots
                .iter()
                .enumerate()
                .filter(|(_, s)| s.is_full())
                .map(move |(i, _)| c * SLOTS_PER_CHUNK + i)
        })
    }
    /// Returns the memory of the chunk table, in bytes. Chunks are counted when they are allocated.
    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.chunks) as u64
    }
}

impl Drop for FileBlockSlots {
    fn drop(&mut self) {
        let slots: usize =
            self.chunks.iter().filter_map(|chunk| chunk.get()).map(|chunk| chunk.len()).sum();
        let bytes = (slots * size_of::<BlockSlot>()) as u64;
        let before = self.allocated_bytes.fetch_sub(bytes, Relaxed);
        check!(before >= bytes, "the slots of a file are accounted for", before, bytes);
    }
}
