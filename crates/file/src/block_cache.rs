//! The block cache: verified blocks of all files, within a byte budget. Independent of file kinds;
//! it reads nothing itself.
//!
//! A block is stored in the slot (`block_slots`) of its file and block number, where a lookup finds
//! it; this module tracks which slots are full and decides which one to empty. Sharded; each
//! shard evicts by CLOCK: a hit sets the reference bit, the hand clears bits and evicts the first
//! block without one. A block is inserted with the bit clear, so a scan passes through without
//! evicting blocks that are read repeatedly; once the cache is full, only a block that was
//! requested before is admitted ([`FileBlocks::should_admit`]).
//!
//! Invariants: a shard never holds more bytes than its part of the budget; the cached blocks of a
//! file are dropped with its [`FileBlocks`].

use crate::block::TableBlock;
use crate::block_slots::{CachedBlock, FileBlockSlots};
use crate::ghost_cache::GhostCache;
use crate::limits::{CACHE_RING_COMPACT_MIN, CACHE_SHARD_BYTES_MIN, CACHE_SHARDS_MAX};
use perigee_base::FileId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Size of the entry in the ring that a cached block has in addition to the block and its slot.
const RING_ENTRY_BYTES: u64 = size_of::<Option<ClockRingEntry>>() as u64;
const _: () = assert!(RING_ENTRY_BYTES < CACHE_SHARD_BYTES_MIN, "a shard holds at least one block");

/// Returns the bytes that a block takes in the cache, except for its slot.
fn cached_bytes(block: &TableBlock) -> u64 {
    block.memory_bytes() + RING_ENTRY_BYTES
}

/// Verified blocks within a byte budget.
#[derive(Debug)]
pub struct BlockCache {
    shards: Vec<Mutex<CacheShard>>,
    capacity: AtomicU64,
    /// Serializes capacity changes, so that the shard budgets and `capacity` agree.
    resize_lock: Mutex<()>,
    /// Memory of the slots of all files, in bytes.
    slots_allocated: Arc<AtomicU64>,
    ghost_cache: GhostCache,
    /// Blocks were evicted since there was last free space.
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

/// Identifies a full slot.
#[derive(Debug)]
struct ClockRingEntry {
    slots: Arc<FileBlockSlots>,
    block_index: usize,
    bytes: u64,
}

/// The cached blocks of one file; dropping this evicts them.
#[derive(Debug)]
pub struct FileBlocks {
    cache: Arc<BlockCache>,
    file: FileId,
    slots: Arc<FileBlockSlots>,
}

impl BlockCache {
    /// Returns the number of shards, each with its own lock.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }
    /// Creates a cache of `capacity` bytes; 0 caches nothing.
    pub fn new(capacity: u64) -> Self {
        let count = (capacity / CACHE_SHARD_BYTES_MIN).clamp(1, CACHE_SHARDS_MAX);
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

    /// Changes the budget; if it shrinks, blocks are evicted at once.
    pub fn set_capacity(&self, capacity: u64) {
        let _one_at_a_time = self.resize_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if self.capacity.swap(capacity, Relaxed) != capacity {
            for shard in &self.shards {
                lock_shard(shard).set_budget(capacity / self.shards.len() as u64);
            }
            self.full.store(false, Relaxed);
        }
    }

    /// Returns the memory of slots, in bytes. Slots exist while their file is open, full or not,
    /// and are not part of the block budget.
    pub fn slot_bytes(&self) -> u64 {
        self.slots_allocated.load(Relaxed)
    }
    /// Returns the bytes used by cached blocks.
    pub fn used_bytes(&self) -> u64 {
        self.shards.iter().map(|s| lock_shard(s).used).sum()
    }
    /// Returns the number of blocks evicted to free space, since the cache was created.
    pub fn evictions(&self) -> u64 {
        self.shards.iter().map(|s| lock_shard(s).evicted).sum()
    }
    /// Returns the number of cached blocks.
    pub fn block_count(&self) -> u64 {
        self.shards.iter().map(|s| lock_shard(s).block_count() as u64).sum()
    }
    /// Returns the budget in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Relaxed)
    }

    fn lock_shard_of(&self, file: FileId, block: usize) -> MutexGuard<'_, CacheShard> {
        let h = (file.0.rotate_left(32) ^ block as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        lock_shard(&self.shards[(h % self.shards.len() as u64) as usize])
    }
}

impl FileBlocks {
    /// Creates the empty slots of a file with this many blocks.
    pub fn new(cache: Arc<BlockCache>, file: FileId, blocks: usize) -> FileBlocks {
        let slots = Arc::new(FileBlockSlots::new(blocks, Arc::clone(&cache.slots_allocated)));
        FileBlocks { cache, file, slots }
    }
    /// Returns the block cache.
    #[cfg(test)]
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }
    /// Calls `visit` with block `i` if it is cached. `visit` runs under the slot lock: it must be
    /// short and must not use the cache.
    #[inline]
    pub fn with_block<T>(&self, i: usize, visit: impl FnOnce(&TableBlock) -> T) -> Option<T> {
        self.slots.with_block(i, |block| visit(block))
    }
    /// Returns block `i` if it is cached.
    #[inline]
    pub fn get(&self, i: usize) -> Option<Arc<TableBlock>> {
        self.slots.with_block(i, Arc::clone)
    }
    /// Returns true if block `i` is cached; does not count as an access.
    pub fn contains(&self, i: usize) -> bool {
        self.slots.is_cached(i)
    }

    /// Returns true if block `i`, which was just requested and is not cached, should be inserted:
    /// there is free space, or it was requested recently and the read is not `in_passing` (part of
    /// a long scan, whose blocks the next scan would not find cached either).
    pub fn should_admit(&self, i: usize, in_passing: bool) -> bool {
        let cache = &self.cache;
        let again = || !in_passing && cache.ghost_cache.record_access(self.file, i as u64);
        cache.capacity() > 0 && (!cache.full.load(Relaxed) || again())
    }

    /// Caches block `i`, evicting others if necessary.
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

    /// Caches block `i`, which was not requested yet, unless that would evict another block. Returns
    /// false if there is no room.
    pub fn insert_if_room(&self, i: usize, block: impl FnOnce() -> TableBlock) -> bool {
        if self.cache.full.load(Relaxed) || self.cache.capacity() == 0 {
            return false;
        }
        let block = block();
        let mut shard = self.cache.lock_shard_of(self.file, i);
        let has_room = shard.used + cached_bytes(&block) <= shard.budget;
        if has_room {
            shard.insert(&self.slots, i, Arc::new(block));
        }
        has_room
    }
    /// Returns the number of cached blocks of the file that were read since they were cached, or
    /// since the cache last considered evicting them.
    pub fn referenced_count(&self) -> usize {
        self.slots.cached_blocks().filter(|i| self.slots.is_referenced(*i)).count()
    }

    /// Evicts every block of the file.
    pub fn evict_all(&self) {
        for i in self.slots.cached_blocks() {
            self.cache.lock_shard_of(self.file, i).evict_block(&self.slots, i);
            self.cache.full.store(false, Relaxed);
        }
    }
    /// Returns the memory used outside the cache budget, in bytes.
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
        let bytes = cached_bytes(&block);
        let slot = slots.slot(i);
        if bytes > self.budget || slot.is_full() {
            return;
        }
        while self.used + bytes > self.budget {
            self.evict_next();
        }
        let entry = Some(ClockRingEntry { slots: Arc::clone(slots), block_index: i, bytes });
        let ring_index = match self.free_entries.pop() {
            Some(ring_index) => {
                self.ring[ring_index as usize] = entry;
                ring_index
            }
            None => {
                self.ring.push(entry);
                (self.ring.len() - 1) as u32
            }
        };
        self.used += bytes;
        check!(
            self.used <= self.budget,
            "a shard holds at most the bytes of its budget",
            self.used,
            self.budget
        );
        let before = slot.replace(Some(CachedBlock::new(block, ring_index)));
        check!(before.is_none(), "a block is cached once", i);
    }

    /// Evicts the first block without a reference bit; after two rounds any block, because readers
    /// set bits concurrently. Requires at least one cached block.
    fn evict_next(&mut self) {
        check!(
            self.block_count() > 0,
            "a shard over its budget holds at least one block",
            self.used
        );
        let mut left = 2 * self.ring.len();
        loop {
            self.clock_hand = (self.clock_hand + 1) % self.ring.len();
            left = left.saturating_sub(1);
            if let Some(entry) = &self.ring[self.clock_hand]
                && (!entry.slots.slot(entry.block_index).take_reference_bit() || left == 0)
            {
                self.evicted += 1;
                return self.evict_at(self.clock_hand);
            }
        }
    }

    fn evict_at(&mut self, at: usize) {
        let entry = self.ring[at].take().expect("the ring entry of a full slot is set");
        check!(
            self.used >= entry.bytes,
            "the bytes of a shard are the sum of those of its blocks",
            self.used,
            entry.bytes
        );
        self.used -= entry.bytes;
        self.free_entries.push(at as u32);
        let evicted = entry.slots.slot(entry.block_index).replace(None);
        check!(evicted.is_some(), "a ring entry stands for a cached block", at);
        if self.ring.len() >= CACHE_RING_COMPACT_MIN && self.block_count() < self.ring.len() / 4 {
            self.compact_ring();
        }
    }

    /// Removes the empty entries of the ring, which may have grown large while the shard held many
    /// small blocks.
    fn compact_ring(&mut self) {
        let full: Vec<_> =
            std::mem::take(&mut self.ring).into_iter().filter(Option::is_some).collect();
        for (at, entry) in full.iter().flatten().enumerate() {
            entry.slots.slot(entry.block_index).set_ring_index(at as u32);
        }
        (self.ring, self.free_entries, self.clock_hand) = (full, Vec::new(), 0);
        check_slow!(
            self.ring.iter().flatten().map(|entry| entry.bytes).sum::<u64>() == self.used,
            "the bytes of a shard are the sum of those of its blocks",
            self.used
        );
    }

    /// Evicts block `i`, unless it was evicted concurrently.
    fn evict_block(&mut self, slots: &FileBlockSlots, i: usize) {
        if let Some(at) = slots.ring_index(i) {
            check_slow!(
                self.ring[at as usize]
                    .as_ref()
                    .is_some_and(|e| std::ptr::eq(&*e.slots, slots) && e.block_index == i),
                "the slot of a cached block and its ring entry refer to each other",
                at,
                i
            );
            self.evict_at(at as usize);
        }
    }
}

// Ignoring poisoning is sound: blocks are immutable and a slot is filled last, so a panic leaves no
// shard in an inconsistent state.
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
        Arc::new(block_of(bytes))
    }

    fn block_of(bytes: usize) -> TableBlock {
        let mut w = BlockWriter::new(KeyComparator::Bytes);
        let mut raw = Vec::new();
        w.add_raw(b"k", SeqNo(1), EntryKind::Put, &vec![0; bytes]);
        w.finish(&mut raw);
        raw.resize(raw.len() + TableBlock::SLACK, 0);
        TableBlock::parse(raw).unwrap()
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
            let cached = |file: &FileBlocks| (0..400).filter(|i| file.contains(*i)).count() as u64;
            assert_eq!(files.iter().map(cached).sum::<u64>(), cache.block_count());
            files[0].evict_all();
            assert_eq!(cached(&files[0]), 0);
            files[0].insert(7, block(100));
            assert!(files[0].contains(7), "a reader may still insert blocks after evict_all");
            drop(files);
            assert_eq!(
                (cache.used_bytes(), cache.block_count()),
                (0, 0),
                "dropping the file evicts its blocks"
            );
        }
    }

    #[test]
    fn nearly_empty_ring_is_compacted() {
        let cache = cache(CACHE_SHARD_BYTES_MIN);
        let (few, many) = (file(&cache, 1), file(&cache, 2));
        let ring_len = || lock_shard(&cache.shards[0]).ring.len();
        (0..20).for_each(|i| few.insert(i, block(100)));
        (0..2000).for_each(|i| many.insert(i, block(10)));
        (0..20).for_each(|i| few.insert(i, block(100)));
        assert!(ring_len() > 2 * CACHE_RING_COMPACT_MIN, "{}", ring_len());
        many.evict_all();
        let held = cache.block_count();
        assert!(
            held > 0 && ring_len() < CACHE_RING_COMPACT_MIN,
            "{} entries, {held} blocks",
            ring_len()
        );
        assert_eq!((0..20).filter(|i| few.contains(*i)).count() as u64, held);
        (0..2000).for_each(|i| many.insert(i, block(3000)));
        drop((few, many));
        assert_eq!((cache.used_bytes(), cache.block_count()), (0, 0));
    }

    #[test]
    fn insert_if_room_evicts_nothing() {
        let cache = cache(100_000);
        let (old, new) = (file(&cache, 1), file(&cache, 2));
        (0..10).for_each(|i| old.insert(i, block(4000)));
        let inserted = (0..100).filter(|i| new.insert_if_room(*i, || block_of(4000))).count();
        assert!((5..20).contains(&inserted), "{inserted} blocks inserted");
        let cached = |file: &FileBlocks| (0..100).filter(|i| file.contains(*i)).count();
        assert_eq!((cached(&old), cached(&new)), (10, inserted));
        assert_eq!(
            (old.get(3).is_some(), old.referenced_count(), new.referenced_count()),
            (true, 1, 0)
        );
        assert_eq!(cache.evictions(), 0);
        assert!(!file(&self::cache(0), 3).insert_if_room(0, || block_of(10)), "nothing is cached");
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
        assert!((15..40).contains(&admitted), "blocks that fit: {admitted}");
        assert!((900..1000).filter(|i| f.should_admit(*i, false)).count() > 60, "second access");
        assert!(
            (0..1000).all(|i| f.contains(i) || !f.should_admit(i, true)),
            "a long scan admits nothing"
        );
        f.evict_all();
        assert!(f.should_admit(1500, false), "there is free space");
        assert!(!file(&BlockCache::new(0).into(), 1).should_admit(0, false));
    }

    /// Concurrent readers, inserts and evictions: every block found is the right one, and the
    /// totals match at the end.
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
