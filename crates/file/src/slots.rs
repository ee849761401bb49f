//! The slots of a file: a place for each of its data blocks, full while the block is cached. A look-up goes there by the
//! block's number, without a map, and shares a lock only with those who ask for the same block. Must not know what is
//! cached where, or when a block goes: that is the cache's.
//!
//! Invariant: a slot is filled and emptied only by the cache, under the lock of the shard that it belongs to.

use crate::block::Block;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// Slots that are made together, at the first block among them.
const CHUNK: usize = 64;

/// What a full slot holds.
#[derive(Debug)]
pub struct Held {
    pub block: Arc<Block>,
    /// Its place in the ring of its shard.
    at: u32,
    /// The mark of the clock: somebody asked since the hand came by.
    touched: AtomicBool,
}

impl Held {
    /// A block, unmarked, in that place of the ring of its shard.
    pub fn new(block: Arc<Block>, at: u32) -> Held {
        Held { block, at, touched: AtomicBool::new(false) }
    }
}

/// The place of one block.
#[derive(Debug, Default)]
pub struct Slot {
    held: RwLock<Option<Held>>,
}

/// Slots that are made together; two of them to a line of memory, none in two lines.
#[derive(Debug)]
#[repr(align(64))]
struct Chunk([Slot; CHUNK]);

/// Memory of the slots that are made together.
const CHUNK_BYTES: u64 = size_of::<Chunk>() as u64;

impl Slot {
    /// Puts something in, unmarked, or takes it out; what was in it.
    pub fn put(&self, held: Option<Held>) -> Option<Held> {
        let mut slot = self.held.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *slot, held)
    }
    /// What it holds has another place in the ring now.
    pub fn move_to(&self, at: u32) {
        if let Some(held) = self.held.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
            held.at = at;
        }
    }
    /// Clears the mark; whether there was one.
    pub fn take_mark(&self) -> bool {
        self.with(|held| held.touched.swap(false, Relaxed)).unwrap_or(false)
    }
    /// Shows what it holds.
    #[inline]
    fn with<T>(&self, show: impl FnOnce(&Held) -> T) -> Option<T> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(show)
    }
    /// Whether it holds a block.
    pub fn is_full(&self) -> bool {
        self.with(|_| ()).is_some()
    }
}

/// The slots of one file.
#[derive(Debug)]
pub struct Slots {
    chunks: Box<[OnceLock<Box<Chunk>>]>,
    /// Memory of the slots of all files.
    made: Arc<AtomicU64>,
}

impl Slots {
    /// Of a file of so many blocks; memory of slots is counted in `made`, for as long as they are there.
    pub fn new(blocks: usize, made: Arc<AtomicU64>) -> Slots {
        Slots { chunks: (0..blocks.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(), made }
    }
    /// The slot of block `i`.
    pub fn slot(&self, i: usize) -> &Slot {
        let make = || {
            self.made.fetch_add(CHUNK_BYTES, Relaxed);
            Box::new(Chunk(std::array::from_fn(|_| Slot::default())))
        };
        &self.chunks[i / CHUNK].get_or_init(make).0[i % CHUNK]
    }
    #[inline]
    fn existing(&self, i: usize) -> Option<&Slot> {
        Some(&self.chunks.get(i / CHUNK)?.get()?.0[i % CHUNK])
    }
    /// Shows block `i`, if it is cached, and marks it. `show` asks nothing of the cache.
    #[inline]
    pub fn with<T>(&self, i: usize, show: impl FnOnce(&Arc<Block>) -> T) -> Option<T> {
        let slot = self.existing(i)?;
        slot.with(|held| {
            if !held.touched.load(Relaxed) {
                held.touched.store(true, Relaxed);
            }
            show(&held.block)
        })
    }
    /// Whether block `i` is cached; no mark.
    pub fn has(&self, i: usize) -> bool {
        self.existing(i).is_some_and(Slot::is_full)
    }
    /// The place of block `i` in the ring of its shard, if it is cached.
    pub fn place(&self, i: usize) -> Option<u32> {
        self.existing(i)?.with(|held| held.at)
    }
    /// The numbers of the blocks that are cached.
    pub fn full(&self) -> impl Iterator<Item = usize> {
        let made = self.chunks.iter().enumerate().filter_map(|(c, chunk)| Some((c, chunk.get()?)));
        made.flat_map(|(c, slots)| {
            slots.0.iter().enumerate().filter(|(_, s)| s.is_full()).map(move |(i, _)| c * CHUNK + i)
        })
    }
    /// Memory of the table of chunks; slots are counted when they are made.
    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.chunks) as u64
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let chunks = self.chunks.iter().filter(|chunk| chunk.get().is_some()).count();
        self.made.fetch_sub(chunks as u64 * CHUNK_BYTES, Relaxed);
    }
}
