//! The block cache: verified blocks of all files, within a budget of bytes. Must not know files' kinds or read anything.
//!
//! A block lies in the [slot](crate::slots) of its file that has its number, where a hit finds it; this room knows which
//! slots are full and says which is emptied. Sharded; each shard evicts by CLOCK: a hit sets a mark, the hand clears marks
//! and takes the first block without one. A block comes in unmarked, so a scan passes through without pushing out what is read
//! again; and once there is no room, only a block that was asked for before comes in ([`FileBlocks::admits`]).
//! Invariants: a shard never holds more bytes than its part of the budget; the blocks of a file go with the last of those
//! who read it.

use crate::block::Block;
use crate::ghost::Ghosts;
use crate::slots::{Held, Slots};
use perigee_base::FileId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most shards; fewer if the budget is so small that a shard could not hold a few blocks.
const SHARDS: u64 = 16;
/// Fewest bytes worth a shard.
const SHARD_BYTES: u64 = 256 << 10;
/// What a cached block costs beside itself and its slot: its place in the ring.
const PLACE_BYTES: u64 = size_of::<Option<Place>>() as u64;
/// A ring of fewer places is never closed up.
const RING_MIN: usize = 256;

/// Verified blocks within a budget of bytes.
#[derive(Debug)]
pub struct BlockCache {
    shards: Vec<Mutex<Shard>>,
    capacity: AtomicU64,
    /// One change of the capacity at a time, so that shards and sum agree.
    sizing: Mutex<()>,
    /// Memory of the slots of all files.
    slots: Arc<AtomicU64>,
    ghosts: Ghosts,
    /// Blocks had to give way since there was room the last time.
    full: AtomicBool,
}

#[derive(Debug, Default)]
struct Shard {
    budget: u64,
    used: u64,
    ring: Vec<Option<Place>>,
    free: Vec<u32>,
    hand: usize,
    evicted: u64,
}

/// A full slot.
#[derive(Debug)]
struct Place {
    slots: Arc<Slots>,
    block: usize,
    bytes: u64,
}

/// The cached blocks of one file, which go with it.
#[derive(Debug)]
pub struct FileBlocks {
    cache: Arc<BlockCache>,
    file: FileId,
    slots: Arc<Slots>,
}

impl BlockCache {
    /// How many parts it has, each with a lock of its own.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }
    /// A cache of `capacity` bytes; 0 caches nothing.
    pub fn new(capacity: u64) -> Self {
        let count = (capacity / SHARD_BYTES).clamp(1, SHARDS);
        let shard = || Mutex::new(Shard { budget: capacity / count, ..Shard::default() });
        BlockCache {
            shards: (0..count).map(|_| shard()).collect(),
            capacity: AtomicU64::new(capacity),
            sizing: Mutex::default(),
            slots: Arc::default(),
            ghosts: Ghosts::new(capacity),
            full: AtomicBool::new(false),
        }
    }

    /// Changes the budget; blocks give way at once if it is less.
    pub fn set_capacity(&self, capacity: u64) {
        let _one_at_a_time = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.capacity.swap(capacity, Relaxed) != capacity {
            for shard in &self.shards {
                lock(shard).set_budget(capacity / self.shards.len() as u64);
            }
            self.full.store(false, Relaxed);
        }
    }

    /// Memory of slots, which stay while their file is open, be they full or not: not a part of the budget of blocks.
    pub fn slot_bytes(&self) -> u64 {
        self.slots.load(Relaxed)
    }
    /// Bytes held now.
    pub fn used_bytes(&self) -> u64 {
        self.shards.iter().map(|s| lock(s).used).sum()
    }
    /// Blocks dropped to make room for others, ever.
    pub fn evictions(&self) -> u64 {
        self.shards.iter().map(|s| lock(s).evicted).sum()
    }
    /// Blocks held now.
    pub fn blocks(&self) -> u64 {
        self.shards.iter().map(|s| lock(s).held() as u64).sum()
    }
    /// The budget.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Relaxed)
    }

    fn shard(&self, file: FileId, block: usize) -> MutexGuard<'_, Shard> {
        let h = (file.0.rotate_left(32) ^ block as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        lock(&self.shards[(h % self.shards.len() as u64) as usize])
    }
}

impl FileBlocks {
    /// Of a file of so many blocks, none cached.
    pub fn new(cache: Arc<BlockCache>, file: FileId, blocks: usize) -> FileBlocks {
        let slots = Arc::new(Slots::new(blocks, Arc::clone(&cache.slots)));
        FileBlocks { cache, file, slots }
    }
    /// The cache they are in.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }
    /// Shows block `i`, if it is here. `show` is quick and asks nothing of the cache.
    #[inline]
    pub fn with<T>(&self, i: usize, show: impl FnOnce(&Block) -> T) -> Option<T> {
        self.slots.with(i, |block| show(block))
    }
    /// Block `i`, if it is here.
    #[inline]
    pub fn get(&self, i: usize) -> Option<Arc<Block>> {
        self.slots.with(i, Arc::clone)
    }
    /// Whether block `i` is here; nobody asked for it.
    pub fn has(&self, i: usize) -> bool {
        self.slots.has(i)
    }

    /// Whether block `i`, which is not here and was just asked for, is worth its place: there is room, or it was asked for
    /// lately, and not `in_passing` (by a long walk, of which the next one would find nothing).
    pub fn admits(&self, i: usize, in_passing: bool) -> bool {
        let cache = &self.cache;
        let again = || !in_passing && cache.ghosts.again(self.file, i as u64);
        cache.capacity() > 0 && (!cache.full.load(Relaxed) || again())
    }

    /// Keeps block `i`, at the cost of others.
    pub fn insert(&self, i: usize, block: Arc<Block>) {
        if self.cache.capacity() > 0 {
            let mut shard = self.cache.shard(self.file, i);
            let evicted = shard.evicted;
            shard.insert(&self.slots, i, block);
            if shard.evicted > evicted {
                self.cache.full.store(true, Relaxed);
            }
        }
    }

    /// Drops every block of the file.
    pub fn forget(&self) {
        for i in self.slots.full() {
            self.cache.shard(self.file, i).forget(&self.slots, i);
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
        self.forget();
    }
}

impl Shard {
    fn held(&self) -> usize {
        self.ring.len() - self.free.len()
    }

    fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
        while self.used > budget {
            self.evict_one();
        }
    }

    fn insert(&mut self, slots: &Arc<Slots>, i: usize, block: Arc<Block>) {
        let bytes = block.memory_bytes() + PLACE_BYTES;
        let slot = slots.slot(i);
        if bytes > self.budget || slot.is_full() {
            return;
        }
        while self.used + bytes > self.budget {
            self.evict_one();
        }
        let place = Some(Place { slots: Arc::clone(slots), block: i, bytes });
        let at = match self.free.pop() {
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
        slot.put(Some(Held::new(block, at)));
    }

    /// Takes the first block without a mark; after two rounds any, because readers set marks meanwhile. Called only while
    /// something is held.
    fn evict_one(&mut self) {
        assert!(self.held() > 0, "a shard over its budget holds a block");
        let mut left = 2 * self.ring.len();
        loop {
            self.hand = (self.hand + 1) % self.ring.len();
            left = left.saturating_sub(1);
            if let Some(place) = &self.ring[self.hand]
                && (!place.slots.slot(place.block).take_mark() || left == 0)
            {
                self.evicted += 1;
                return self.empty(self.hand);
            }
        }
    }

    fn empty(&mut self, at: usize) {
        let place = self.ring[at].take().expect("only full slots are emptied");
        self.used -= place.bytes;
        self.free.push(at as u32);
        place.slots.slot(place.block).put(None);
        if self.ring.len() >= RING_MIN && self.held() < self.ring.len() / 4 {
            self.close_up();
        }
    }

    /// Gives back the places of the ring that are empty: what was there once may have been many small blocks.
    fn close_up(&mut self) {
        let full: Vec<_> = std::mem::take(&mut self.ring).into_iter().filter(Option::is_some).collect();
        for (at, place) in full.iter().flatten().enumerate() {
            place.slots.slot(place.block).move_to(at as u32);
        }
        (self.ring, self.free, self.hand) = (full, Vec::new(), 0);
    }

    /// Empties the slot of block `i`, unless it was emptied meanwhile.
    fn forget(&mut self, slots: &Slots, i: usize) {
        if let Some(at) = slots.place(i) {
            self.empty(at as usize);
        }
    }
}

// A panic cannot leave a shard half changed in a way that matters: blocks are immutable, and a slot is filled last.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::writer::BlockWriter;
    use crate::testing::Rng;
    use perigee_base::{EntryKind, KeyOrder, SeqNo};

    fn block(bytes: usize) -> Arc<Block> {
        let mut w = BlockWriter::new(KeyOrder::Bytes);
        let mut raw = Vec::new();
        w.add_raw(b"k", SeqNo(1), EntryKind::Put, &vec![0; bytes]);
        w.finish(&mut raw);
        raw.resize(raw.len() + Block::SLACK, 0);
        Arc::new(Block::parse(raw).unwrap())
    }

    fn file(cache: &Arc<BlockCache>, id: u64) -> FileBlocks {
        FileBlocks::new(Arc::clone(cache), FileId(id), 2000)
    }
    fn cache(capacity: u64) -> Arc<BlockCache> {
        Arc::new(BlockCache::new(capacity))
    }

    #[test]
    fn the_budget_holds_and_forgetting_works() {
        for capacity in [5_000, 100_000, 10 << 20] {
            let cache = cache(capacity);
            let files: Vec<FileBlocks> = (0..5).map(|i| file(&cache, i)).collect();
            let mut rng = Rng::new(capacity);
            for _ in 0..5000 {
                let (file, i) = (&files[rng.below(5) as usize], rng.below(400) as usize);
                if file.get(i).is_none() {
                    file.insert(i, block(rng.below(6000) as usize));
                }
                assert!(cache.used_bytes() <= capacity);
            }
            assert!(cache.used_bytes() > capacity / 4);
            let there = |file: &FileBlocks| (0..400).filter(|i| file.has(*i)).count() as u64;
            assert_eq!(files.iter().map(there).sum::<u64>(), cache.blocks());
            files[0].forget();
            assert_eq!(there(&files[0]), 0);
            files[0].insert(7, block(100));
            assert!(files[0].has(7), "whoever still reads a file that is gone may go on");
            drop(files);
            assert_eq!((cache.used_bytes(), cache.blocks()), (0, 0), "blocks go with their file");
        }
    }

    #[test]
    fn a_ring_that_is_nearly_empty_closes_up() {
        let cache = cache(SHARD_BYTES);
        let (few, many) = (file(&cache, 1), file(&cache, 2));
        let places = || lock(&cache.shards[0]).ring.len();
        (0..20).for_each(|i| few.insert(i, block(100)));
        (0..2000).for_each(|i| many.insert(i, block(10)));
        (0..20).for_each(|i| few.insert(i, block(100)));
        assert!(places() > 2 * RING_MIN, "{}", places());
        many.forget();
        let held = cache.blocks();
        assert!(held > 0 && places() < RING_MIN, "{} places, {held} blocks", places());
        assert_eq!((0..20).filter(|i| few.has(*i)).count() as u64, held);
        (0..2000).for_each(|i| many.insert(i, block(3000)));
        drop((few, many));
        assert_eq!((cache.used_bytes(), cache.blocks()), (0, 0));
    }

    #[test]
    fn a_block_read_again_survives_a_scan() {
        let cache = cache(100_000);
        let (hot, scanned) = (file(&cache, 1), file(&cache, 2));
        hot.insert(0, block(4000));
        for i in 0..1000 {
            assert!(hot.with(0, Block::len) == Some(1), "at {i}");
            scanned.insert(i, block(4000));
        }
    }

    #[test]
    fn a_smaller_budget_evicts_and_a_larger_one_fills_again() {
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
    fn a_full_cache_takes_what_was_asked_for_twice() {
        let cache = cache(100_000);
        let f = file(&cache, 1);
        let mut admitted = 0;
        for i in 0..1000 {
            if f.admits(i, false) {
                f.insert(i, block(4000));
                admitted += 1;
            }
        }
        assert!((15..40).contains(&admitted), "what there was room for: {admitted}");
        assert!((900..1000).filter(|i| f.admits(*i, false)).count() > 60, "asked for again");
        assert!((0..1000).all(|i| f.has(i) || !f.admits(i, true)), "a long walk changes nothing");
        f.forget();
        assert!(f.admits(1500, false), "there is room");
        assert!(!file(&BlockCache::new(0).into(), 1).admits(0, false));
    }

    /// Readers, writers and forgetting at once: what is found is right, and the sums are in the end.
    #[test]
    fn many_threads_agree() {
        let cache = cache(600_000);
        let f = file(&cache, 1);
        let blocks: Vec<Arc<Block>> = (0..300).map(|i| block(i * 13)).collect();
        std::thread::scope(|s| {
            for t in 0..4 {
                let (f, blocks, cache) = (&f, &blocks, &cache);
                s.spawn(move || {
                    let mut rng = Rng::new(t);
                    for round in 0..20_000 {
                        let i = rng.below(300) as usize;
                        match f.get(i) {
                            Some(found) => assert!(Arc::ptr_eq(&found, &blocks[i])),
                            None => f.insert(i, Arc::clone(&blocks[i])),
                        }
                        match round % 5000 {
                            100 => f.forget(),
                            200 => cache.set_capacity(100_000 + 100_000 * rng.below(5)),
                            _ => {}
                        }
                    }
                });
            }
        });
        let held: u64 = (0..300).filter(|i| f.has(*i)).count() as u64;
        assert_eq!(held, cache.blocks());
        f.forget();
        assert_eq!((cache.used_bytes(), cache.blocks()), (0, 0));
        assert!(blocks.iter().all(|b| Arc::strong_count(b) == 1));
    }

    #[test]
    fn two_that_change_the_capacity_leave_shards_and_sum_in_step() {
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
                let sum: u64 = cache.shards.iter().map(|s| lock(s).budget).sum();
                assert_eq!(sum, cache.capacity());
            }
        });
    }

    #[test]
    fn no_capacity_caches_nothing() {
        let cache = cache(0);
        let f = file(&cache, 1);
        f.insert(0, block(10));
        assert!(f.get(0).is_none());
        assert_eq!((cache.used_bytes(), cache.capacity()), (0, 0));
    }
}
