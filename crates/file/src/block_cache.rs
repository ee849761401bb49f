//! The block cache: verified blocks of all files, within a budget of bytes. Must not know files'
//! kinds or read anything.
//!
//! A block lies in the [slot](crate::slots) of its file that has its number, where a hit finds it;
//! this room knows which slots are full and says which is emptied. Sharded; each shard evicts by
//! CLOCK: a hit sets a mark, the hand clears marks and takes the first block without one. A block
//! comes in unmarked, so a scan passes through without pushing out what is read again; and once
//! there is no room, only a block that was asked for before comes in ([`FileBlocks::admits`]).
//! Invariants: a shard never holds more bytes than its part of the budget; the blocks of a file go
//! with the last of those who read it.

use crate::block::TableBlock;
use crate::block_slots::{CachedBlock, FileBlockSlots};
use crate::ghost_cache::GhostCache;
use perigee_base::FileId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most shards; fewer if the budget is so small that a shard could not hold a few blocks.
const SHARDS_MAX: u64 = 16;
/// Fewest bytes worth a shard.
const SHARD_BYTES_MIN: u64 = 256 << 10;
/// What a cached block costs beside itself and its slot: its place in the ring.
const RING_ENTRY_BYTES: u64 = size_of::<Option<ClockRingEntry>>() as u64;
/// A ring of fewer places is never closed up.
const RING_COMPACT_MIN: usize = 256;

/// Verified blocks within a budget of bytes.
#[derive(Debug)]
pub struct BlockCache {
    shards: Vec<Mutex<CacheShard>>,
    capacity: AtomicU64,
    /// One change of the capacity at a time, so that shards and sum agree.
    resize_lock: Mutex<()>,
    /// Memory of the slots of all files.
    slots_allocated: Arc<AtomicU64>,
    ghost_cache: GhostCache,
    /// Blocks had to give way since there was room the last time.
    full: AtomicBool,
}

#[derive(Debug, Default)]
struct CacheShard {
    budget: u64,
    used: u64,
    ring: Vec<Option<ClockRingEntry>>,
    free_entries: Vec<u32>,
    clock_hand: usize,
    evicted: u64,
}

/// A full slot.
#[derive(Debug)]
struct ClockRingEntry {
    slots: Arc<FileBlockSlots>,
    block_index: usize,
    bytes: u64,
}

/// The cached blocks of one file, which go with it.
#[derive(Debug)]
pub struct FileBlocks {
    cache: Arc<BlockCache>,
    file: FileId,
    slots: Arc<FileBlockSlots>,
}

impl BlockCache {
    /// How many parts it has, each with a lock of its own.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }
    /// A cache of `capacity` bytes; 0 caches nothing.
    pub fn new(capacity: u64) -> Self {
        let count = (capacity / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        let shard = || Mutex::new(CacheShard { budget: capacity / count, ..CacheShard::default() });
        BlockCache {
            shards: (0..count).map(|_| shard()).collect(),
            capacity: AtomicU64::new(capacity),
            resize_lock: Mutex::default(),
            slots_allocated: Arc::default(),
            ghost_cache: GhostCache::new(capacity),
            full: AtomicBool::new(false),
        }
    }

    /// Changes the budget; blocks give way at once if it is less.
    pub fn set_capacity(&self, capacity: u64) {
        let _one_at_a_time = self.resize_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if self.capacity.swap(capacity, Relaxed) != capacity {
            for shard in &self.shards {
                lock_shard(shard).set_budget(capacity / self.shards.len() as u64);
            }
            self.full.store(false, Relaxed);
        }
    }

    /// Memory of slots, which stay while their file is open, be they full or not: not a part of the
    /// budget of blocks.
    pub fn slot_bytes(&self) -> u64 {
        self.slots_allocated.load(Relaxed)
    }
    /// Bytes held now.
    pub fn used_bytes(&self) -> u64 {
        self.shards.iter().map(|s| lock_shard(s).used).sum()
    }
    /// Blocks dropped to make room for others, ever.
    pub fn evictions(&self) -> u64 {
        self.shards.iter().map(|s| lock_shard(s).evicted).sum()
    }
    /// Blocks held now.
    pub fn block_count(&self) -> u64 {
        self.shards.iter().map(|s| lock_shard(s).block_count() as u64).sum()
    }
    /// The budget.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Relaxed)
    }

    fn lock_shard_of(&self, file: FileId, block: usize) -> MutexGuard<'_, CacheShard> {
        let h = (file.0.rotate_left(32) ^ block as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        lock_shard(&self.shards[(h % self.shards.len() as u64) as usize])
    }
}

impl FileBlocks {
    /// Of a file of so many blocks, none cached.
    pub fn new(cache: Arc<BlockCache>, file: FileId, blocks: usize) -> FileBlocks {
        let slots = Arc::new(FileBlockSlots::new(blocks, Arc::clone(&cache.slots_allocated)));
        FileBlocks { cache, file, slots }
    }
    /// The cache they are in.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }
    /// Shows block `i`, if it is here. `show` is quick and asks nothing of the cache.
    #[inline]
    pub fn with_block<T>(&self, i: usize, show: impl FnOnce(&TableBlock) -> T) -> Option<T> {
        self.slots.with_block(i, |block| show(block))
    }
    /// Block `i`, if it is here.
    #[inline]
    pub fn get(&self, i: usize) -> Option<Arc<TableBlock>> {
        self.slots.with_block(i, Arc::clone)
    }
    /// Whether block `i` is here; nobody asked for it.
    pub fn contains(&self, i: usize) -> bool {
        self.slots.is_cached(i)
    }

    /// Whether block `i`, which is not here and was just asked for, is worth its place: there is
    /// room, or it was asked for lately, and not `in_passing` (by a long walk, of which the next
    /// one would find nothing).
    pub fn should_admit(&self, i: usize, in_passing: bool) -> bool {
        let cache = &self.cache;
        let again = || !in_passing && cache.ghost_cache.record_access(self.file, i as u64);
        cache.capacity() > 0 && (!cache.full.load(Relaxed) || again())
    }

    /// Keeps block `i`, at the cost of others.
    pub fn insert(&self, i: usize, block: Arc<TableBlock>) {
        if self.cache.capacity() > 0 {
            let mut shard = self.cache.lock_shard_of(self.file, i);
            let evicted = shard.evicted;
            shard.insert(&self.slots, i, block);
            if shard.evicted > evicted {
                self.cache.full.store(true, Relaxed);
            }
        }
    }

    /// Drops every block of the file.
    pub fn evict_all(&self) {
        for i in self.slots.cached_blocks() {
            self.cache.lock_shard_of(self.file, i).evict_block(&self.slots, i);
            self.cache.full.store(false, Relaxed);
        }
    }
    /// Memory beside that of the cache.
    pub fn memory_bytes(&self) -> u64 {
        self.slots.memory_bytes()
    }
}

impl Drop for FileBlocks {
    fn drop(&mut self) {
        self.evict_all();
    }
}

impl CacheShard {
    fn block_count(&self) -> usize {
        self.ring.len() - self.free_entries.len()
    }

    fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
        while self.used > budget {
            self.evict_next();
        }
    }

    fn insert(&mut self, slots: &Arc<FileBlockSlots>, i: usize, block: Arc<TableBlock>) {
        let bytes = block.memory_bytes() + RING_ENTRY_BYTES;
        let slot = slots.slot(i);
        if bytes > self.budget || slot.is_full() {
            return;
        }
        while self.used + bytes > self.budget {
            self.evict_next();
        }
        let place = Some(ClockRingEntry { slots: Arc::clone(slots), block_index: i, bytes });
        let at = match self.free_entries.pop() {
            Some(at) => {
                self.ring[at as usize] = place;
                at
            }
            None => {
                self.ring.push(place);
                (self.ring.len() - 1) as u32
            }
        };
        self.used += bytes;
        slot.replace(Some(CachedBlock::new(block, at)));
    }

    /// Takes the first block without a mark; after two rounds any, because readers set marks
    /// meanwhile. Called only while something is held.
    fn evict_next(&mut self) {
        assert!(self.block_count() > 0, "a shard over its budget holds a block");
        let mut left = 2 * self.ring.len();
        loop {
            self.clock_hand = (self.clock_hand + 1) % self.ring.len();
            left = left.saturating_sub(1);
            if let Some(place) = &self.ring[self.clock_hand]
                && (!place.slots.slot(place.block_index).take_reference_bit() || left == 0)
            {
                self.evicted += 1;
                return self.evict_at(self.clock_hand);
            }
        }
    }

    fn evict_at(&mut self, at: usize) {
        let place = self.ring[at].take().expect("only full slots are emptied");
        self.used -= place.bytes;
        self.free_entries.push(at as u32);
        place.slots.slot(place.block_index).replace(None);
        if self.ring.len() >= RING_COMPACT_MIN && self.block_count() < self.ring.len() / 4 {
            self.compact_ring();
        }
    }

    /// Gives back the places of the ring that are empty: what was there once may have been many
    /// small blocks.
    fn compact_ring(&mut self) {
        let full: Vec<_> =
            std::mem::take(&mut self.ring).into_iter().filter(Option::is_some).collect();
        for (at, place) in full.iter().flatten().enumerate() {
            place.slots.slot(place.block_index).set_ring_index(at as u32);
        }
        (self.ring, self.free_entries, self.clock_hand) = (full, Vec::new(), 0);
    }

    /// Empties the slot of block `i`, unless it was emptied meanwhile.
    fn evict_block(&mut self, slots: &FileBlockSlots, i: usize) {
        if let Some(at) = slots.ring_index(i) {
            self.evict_at(at as usize);
        }
    }
}

// A panic cannot leave a shard half changed in a way that matters: blocks are immutable, and a slot
// is filled last.
fn lock_shard(shard: &Mutex<CacheShard>) -> MutexGuard<'_, CacheShard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::writer::BlockWriter;
    use crate::testing::TestRng;
    use perigee_base::{EntryKind, KeyComparator, SeqNo};

    fn block(bytes: usize) -> Arc<TableBlock> {
        let mut w = BlockWriter::new(KeyComparator::Bytes);
        let mut raw = Vec::new();
        w.add_raw(b"k", SeqNo(1), EntryKind::Put, &vec![0; bytes]);
        w.finish(&mut raw);
        raw.resize(raw.len() + TableBlock::SLACK, 0);
        Arc::new(TableBlock::parse(raw).unwrap())
    }

    fn file(cache: &Arc<BlockCache>, id: u64) -> FileBlocks {
        FileBlocks::new(Arc::clone(cache), FileId(id), 2000)
    }
    fn cache(capacity: u64) -> Arc<BlockCache> {
        Arc::new(BlockCache::new(capacity))
    }

    #[test]
    fn capacity_holds_and_file_blocks_can_be_evicted() {
        for capacity in [5_000, 100_000, 10 << 20] {
            let cache = cache(capacity);
            let files: Vec<FileBlocks> = (0..5).map(|i| file(&cache, i)).collect();
            let mut rng = TestRng::new(capacity);
            for _ in 0..5000 {
                let (file, i) = (&files[rng.below(5) as usize], rng.below(400) as usize);
                if file.get(i).is_none() {
                    file.insert(i, block(rng.below(6000) as usize));
                }
                assert!(cache.used_bytes() <= capacity);
            }
            assert!(cache.used_bytes() > capacity / 4);
            let there = |file: &FileBlocks| (0..400).filter(|i| file.contains(*i)).count() as u64;
            assert_eq!(files.iter().map(there).sum::<u64>(), cache.block_count());
            files[0].evict_all();
            assert_eq!(there(&files[0]), 0);
            files[0].insert(7, block(100));
            assert!(files[0].contains(7), "whoever still reads a file that is gone may go on");
            drop(files);
            assert_eq!(
                (cache.used_bytes(), cache.block_count()),
                (0, 0),
                "blocks go with their file"
            );
        }
    }

    #[test]
    fn nearly_empty_ring_is_compacted() {
        let cache = cache(SHARD_BYTES_MIN);
        let (few, many) = (file(&cache, 1), file(&cache, 2));
        let places = || lock_shard(&cache.shards[0]).ring.len();
        (0..20).for_each(|i| few.insert(i, block(100)));
        (0..2000).for_each(|i| many.insert(i, block(10)));
        (0..20).for_each(|i| few.insert(i, block(100)));
        assert!(places() > 2 * RING_COMPACT_MIN, "{}", places());
        many.evict_all();
        let held = cache.block_count();
        assert!(held > 0 && places() < RING_COMPACT_MIN, "{} places, {held} blocks", places());
        assert_eq!((0..20).filter(|i| few.contains(*i)).count() as u64, held);
        (0..2000).for_each(|i| many.insert(i, block(3000)));
        drop((few, many));
        assert_eq!((cache.used_bytes(), cache.block_count()), (0, 0));
    }

    #[test]
    fn hot_block_survives_scan() {
        let cache = cache(100_000);
        let (hot, scanned) = (file(&cache, 1), file(&cache, 2));
        hot.insert(0, block(4000));
        for i in 0..1000 {
            assert!(hot.with_block(0, TableBlock::len) == Some(1), "at {i}");
            scanned.insert(i, block(4000));
        }
    }

    #[test]
    fn shrinking_evicts_and_growing_refills() {
        let cache = cache(10 << 20);
        let f = file(&cache, 1);
        let fill = || (0..1000).for_each(|i| f.insert(i, block(4000)));
        fill();
        let full = cache.used_bytes();
        cache.set_capacity(1 << 20);
        assert!(cache.used_bytes() <= 1 << 20 && cache.capacity() == 1 << 20);
        fill();
        assert!(cache.used_bytes() <= 1 << 20);
        cache.set_capacity(0);
        assert_eq!(cache.used_bytes(), 0);
        cache.set_capacity(10 << 20);
        fill();
        assert_eq!(cache.used_bytes(), full);
    }

    #[test]
    fn full_cache_admits_block_on_second_access() {
        let cache = cache(100_000);
        let f = file(&cache, 1);
        let mut admitted = 0;
        for i in 0..1000 {
            if f.should_admit(i, false) {
                f.insert(i, block(4000));
                admitted += 1;
            }
        }
        assert!((15..40).contains(&admitted), "what there was room for: {admitted}");
        assert!((900..1000).filter(|i| f.should_admit(*i, false)).count() > 60, "asked for again");
        assert!(
            (0..1000).all(|i| f.contains(i) || !f.should_admit(i, true)),
            "a long walk changes nothing"
        );
        f.evict_all();
        assert!(f.should_admit(1500, false), "there is room");
        assert!(!file(&BlockCache::new(0).into(), 1).should_admit(0, false));
    }

    /// Readers, writers and forgetting at once: what is found is right, and the sums are in the
    /// end.
    #[test]
    fn concurrent_inserts_and_evictions_are_consistent() {
        let cache = cache(600_000);
        let f = file(&cache, 1);
        let blocks: Vec<Arc<TableBlock>> = (0..300).map(|i| block(i * 13)).collect();
        std::thread::scope(|s| {
            for t in 0..4 {
                let (f, blocks, cache) = (&f, &blocks, &cache);
                s.spawn(move || {
                    let mut rng = TestRng::new(t);
                    for round in 0..20_000 {
                        let i = rng.below(300) as usize;
                        match f.get(i) {
                            Some(found) => assert!(Arc::ptr_eq(&found, &blocks[i])),
                            None => f.insert(i, Arc::clone(&blocks[i])),
                        }
                        match round % 5000 {
                            100 => f.evict_all(),
                            200 => cache.set_capacity(100_000 + 100_000 * rng.below(5)),
                            _ => {}
                        }
                    }
                });
            }
        });
        let held: u64 = (0..300).filter(|i| f.contains(*i)).count() as u64;
        assert_eq!(held, cache.block_count());
        f.evict_all();
        assert_eq!((cache.used_bytes(), cache.block_count()), (0, 0));
        assert!(blocks.iter().all(|b| Arc::strong_count(b) == 1));
    }

    #[test]
    fn concurrent_resizes_keep_shard_budgets_consistent() {
        let cache = cache(16 << 20);
        let turn = std::sync::Barrier::new(3);
        std::thread::scope(|s| {
            for capacity in [0u64, 8 << 20] {
                let (turn, cache) = (&turn, &cache);
                s.spawn(move || {
                    (0..3000).for_each(|_| {
                        turn.wait();
                        cache.set_capacity(capacity);
                        turn.wait();
                    })
                });
            }
            for _ in 0..3000 {
                turn.wait();
                turn.wait();
                let sum: u64 = cache.shards.iter().map(|s| lock_shard(s).budget).sum();
                assert_eq!(sum, cache.capacity());
            }
        });
    }

    #[test]
    fn zero_capacity_caches_nothing() {
        let cache = cache(0);
        let f = file(&cache, 1);
        f.insert(0, block(10));
        assert!(f.get(0).is_none());
        assert_eq!((cache.used_bytes(), cache.capacity()), (0, 0));
    }
}
