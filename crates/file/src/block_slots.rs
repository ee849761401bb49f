//! The slots of a file: a place for each of its data blocks, full while the block is cached. A
//! look-up goes there by the block's number, without a map, and shares a lock only with those who
//! ask for the same block. Must not know what is cached where, or when a block goes: that is the
//! cache's.
//!
//! Invariant: a slot is filled and emptied only by the cache, under the lock of the shard that it
//! belongs to.

use crate::block::TableBlock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// Slots that are made together, at the first block among them.
const SLOTS_PER_CHUNK: usize = 64;

/// What a full slot holds.
#[derive(Debug)]
pub struct CachedBlock {
    pub block: Arc<TableBlock>,
    /// Its place in the ring of its shard.
    ring_index: u32,
    /// The mark of the clock: somebody asked since the hand came by.
    referenced: AtomicBool,
}

impl CachedBlock {
    /// A block, unmarked, in that place of the ring of its shard.
    pub fn new(block: Arc<TableBlock>, at: u32) -> CachedBlock {
        CachedBlock { block, ring_index: at, referenced: AtomicBool::new(false) }
    }
}

/// The place of one block.
#[derive(Debug, Default)]
pub struct BlockSlot {
    cached: RwLock<Option<CachedBlock>>,
}

/// Slots that are made together; two of them to a line of memory, none in two lines.
#[derive(Debug)]
#[repr(align(64))]
struct BlockSlotChunk([BlockSlot; SLOTS_PER_CHUNK]);

/// Memory of the slots that are made together.
const SLOT_CHUNK_BYTES: u64 = size_of::<BlockSlotChunk>() as u64;

impl BlockSlot {
    /// Puts something in, unmarked, or takes it out; what was in it.
    pub fn replace(&self, held: Option<CachedBlock>) -> Option<CachedBlock> {
        let mut slot = self.cached.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *slot, held)
    }
    /// What it holds has another place in the ring now.
    pub fn set_ring_index(&self, at: u32) {
        if let Some(held) = self.cached.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
            held.ring_index = at;
        }
    }
    /// Clears the mark; whether there was one.
    pub fn take_reference_bit(&self) -> bool {
        self.with_cached(|held| held.referenced.swap(false, Relaxed)).unwrap_or(false)
    }
    /// Shows what it holds.
    #[inline]
    fn with_cached<T>(&self, show: impl FnOnce(&CachedBlock) -> T) -> Option<T> {
        self.cached.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(show)
    }
    /// Whether it holds a block.
    pub fn is_full(&self) -> bool {
        self.with_cached(|_| ()).is_some()
    }
}

/// The slots of one file.
#[derive(Debug)]
pub struct FileBlockSlots {
    chunks: Box<[OnceLock<Box<BlockSlotChunk>>]>,
    /// Memory of the slots of all files.
    allocated_bytes: Arc<AtomicU64>,
}

impl FileBlockSlots {
    /// Of a file of so many blocks; memory of slots is counted in `made`, for as long as they are
    /// there.
    pub fn new(blocks: usize, made: Arc<AtomicU64>) -> FileBlockSlots {
        FileBlockSlots {
            chunks: (0..blocks.div_ceil(SLOTS_PER_CHUNK)).map(|_| OnceLock::new()).collect(),
            allocated_bytes: made,
        }
    }
    /// The slot of block `i`.
    pub fn slot(&self, i: usize) -> &BlockSlot {
        let make = || {
            self.allocated_bytes.fetch_add(SLOT_CHUNK_BYTES, Relaxed);
            Box::new(BlockSlotChunk(std::array::from_fn(|_| BlockSlot::default())))
        };
        &self.chunks[i / SLOTS_PER_CHUNK].get_or_init(make).0[i % SLOTS_PER_CHUNK]
    }
    #[inline]
    fn existing_slot(&self, i: usize) -> Option<&BlockSlot> {
        Some(&self.chunks.get(i / SLOTS_PER_CHUNK)?.get()?.0[i % SLOTS_PER_CHUNK])
    }
    /// Shows block `i`, if it is cached, and marks it. `show` asks nothing of the cache.
    #[inline]
    pub fn with_block<T>(&self, i: usize, show: impl FnOnce(&Arc<TableBlock>) -> T) -> Option<T> {
        let slot = self.existing_slot(i)?;
        slot.with_cached(|held| {
            if !held.referenced.load(Relaxed) {
                held.referenced.store(true, Relaxed);
            }
            show(&held.block)
        })
    }
    /// Whether block `i` is cached; no mark.
    pub fn is_cached(&self, i: usize) -> bool {
        self.existing_slot(i).is_some_and(BlockSlot::is_full)
    }
    /// The place of block `i` in the ring of its shard, if it is cached.
    pub fn ring_index(&self, i: usize) -> Option<u32> {
        self.existing_slot(i)?.with_cached(|held| held.ring_index)
    }
    /// The numbers of the blocks that are cached.
    pub fn cached_blocks(&self) -> impl Iterator<Item = usize> {
        let made = self.chunks.iter().enumerate().filter_map(|(c, chunk)| Some((c, chunk.get()?)));
        made.flat_map(|(c, slots)| {
            slots
                .0
                .iter()
                .enumerate()
                .filter(|(_, s)| s.is_full())
                .map(move |(i, _)| c * SLOTS_PER_CHUNK + i)
        })
    }
    /// Memory of the table of chunks; slots are counted when they are made.
    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.chunks) as u64
    }
}

impl Drop for FileBlockSlots {
    fn drop(&mut self) {
        let chunks = self.chunks.iter().filter(|chunk| chunk.get().is_some()).count();
        self.allocated_bytes.fetch_sub(chunks as u64 * SLOT_CHUNK_BYTES, Relaxed);
    }
}
