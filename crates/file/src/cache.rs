//! The block cache: verified blocks by file and offset, within a budget of bytes. Must not know files' kinds or
//! read anything.
//!
//! Sharded; each shard evicts by CLOCK: a hit sets a mark, the hand clears marks and takes the first block
//! without one. A block comes in unmarked, so a scan passes through without pushing out what is read again; and once
//! there is no room, only a block that was asked for before comes in ([`BlockCache::admits`]).
//! Invariant: a shard never holds more bytes than its part of the budget.

use crate::block::Block;
use crate::ghost::Ghosts;
use perigee_base::FileId;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Most shards; fewer if the budget is so small that a shard could not hold a few blocks.
const SHARDS: u64 = 16;
/// Fewest bytes worth a shard.
const SHARD_BYTES: u64 = 256 << 10;
/// What a cached block costs beside itself: slot and map entry.
const SLOT_BYTES: u64 = 96;

type Key = (u64, u64);

/// Verified blocks by file and offset, within a budget of bytes.
#[derive(Debug)]
pub struct BlockCache {
    shards: Vec<RwLock<Shard>>,
    capacity: AtomicU64,
    ghosts: Ghosts,
    /// Blocks had to give way since there was room the last time.
    full: AtomicBool,
}

#[derive(Debug, Default)]
struct Shard {
    budget: u64,
    used: u64,
    map: HashMap<Key, usize, BuildHasherDefault<Mixer>>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    hand: usize,
    evicted: u64,
}

#[derive(Debug)]
struct Slot {
    key: Key,
    block: Arc<Block>,
    bytes: u64,
    touched: AtomicBool,
}

impl BlockCache {
    /// A cache of `capacity` bytes; 0 caches nothing.
    pub fn new(capacity: u64) -> Self {
        let count = (capacity / SHARD_BYTES).clamp(1, SHARDS);
        let shard = || RwLock::new(Shard { budget: capacity / count, ..Shard::default() });
        BlockCache {
            shards: (0..count).map(|_| shard()).collect(),
            capacity: AtomicU64::new(capacity),
            ghosts: Ghosts::new(capacity),
            full: AtomicBool::new(false),
        }
    }

    /// Changes the budget; blocks give way at once if it is less.
    pub fn set_capacity(&self, capacity: u64) {
        if self.capacity.swap(capacity, Relaxed) != capacity {
            for shard in &self.shards {
                write(shard).set_budget(capacity / self.shards.len() as u64);
            }
            self.full.store(false, Relaxed);
        }
    }

    /// The block, if it is here.
    pub fn get(&self, file: FileId, offset: u64) -> Option<Arc<Block>> {
        if self.capacity() == 0 {
            return None;
        }
        let shard = read(self.shard(file, offset));
        let slot =
            shard.slots[*shard.map.get(&(file.0, offset))?].as_ref().expect("the map names full slots");
        if !slot.touched.load(Relaxed) {
            slot.touched.store(true, Relaxed);
        }
        Some(slot.block.clone())
    }

    /// Whether a block that is not here, and was just asked for, is worth its place: there is room, or it was asked for
    /// lately.
    pub fn admits(&self, file: FileId, offset: u64) -> bool {
        self.capacity() > 0 && (!self.full.load(Relaxed) || self.ghosts.again(file, offset))
    }

    /// Keeps a block, at the cost of others.
    pub fn insert(&self, file: FileId, offset: u64, block: Arc<Block>) {
        if self.capacity() > 0 {
            let mut shard = write(self.shard(file, offset));
            let evicted = shard.evicted;
            shard.insert((file.0, offset), block);
            if shard.evicted > evicted {
                self.full.store(true, Relaxed);
            }
        }
    }

    /// Drops every block of a file.
    pub fn forget_file(&self, file: FileId) {
        for shard in &self.shards {
            write(shard).forget_file(file);
        }
        self.full.store(false, Relaxed);
    }

    /// Bytes held now.
    pub fn used_bytes(&self) -> u64 {
        self.shards.iter().map(|s| read(s).used).sum()
    }
    /// Blocks dropped to make room for others, ever.
    pub fn evictions(&self) -> u64 {
        self.shards.iter().map(|s| read(s).evicted).sum()
    }
    /// Blocks held now.
    pub fn blocks(&self) -> u64 {
        self.shards.iter().map(|s| read(s).map.len() as u64).sum()
    }
    /// The budget.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Relaxed)
    }

    fn shard(&self, file: FileId, offset: u64) -> &RwLock<Shard> {
        // High bits choose the shard: the low ones place the key inside its map.
        let h = mix(mix(0, file.0), offset) >> 32;
        &self.shards[(h % self.shards.len() as u64) as usize]
    }
}

impl Shard {
    fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
        while self.used > budget {
            self.evict_one();
        }
    }

    fn insert(&mut self, key: Key, block: Arc<Block>) {
        let bytes = block.memory_bytes() + SLOT_BYTES;
        if bytes > self.budget || self.map.contains_key(&key) {
            return;
        }
        while self.used + bytes > self.budget {
            self.evict_one();
        }
        let slot = Some(Slot { key, block, bytes, touched: AtomicBool::new(false) });
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.used += bytes;
        self.map.insert(key, at);
    }

    /// Ends after at most two rounds: the first clears every mark. Called only while something is held.
    fn evict_one(&mut self) {
        assert!(!self.map.is_empty(), "a shard over its budget holds a block");
        loop {
            self.hand = (self.hand + 1) % self.slots.len();
            if let Some(slot) = &mut self.slots[self.hand]
                && !std::mem::take(slot.touched.get_mut())
            {
                self.evicted += 1;
                return self.drop_slot(self.hand);
            }
        }
    }

    fn drop_slot(&mut self, at: usize) {
        let slot = self.slots[at].take().expect("only full slots are dropped");
        self.map.remove(&slot.key);
        self.used -= slot.bytes;
        self.free.push(at);
    }

    fn forget_file(&mut self, file: FileId) {
        for at in 0..self.slots.len() {
            if self.slots[at].as_ref().is_some_and(|s| s.key.0 == file.0) {
                self.drop_slot(at);
            }
        }
    }
}

// A panic cannot leave a shard half changed in a way that matters: blocks are immutable, sums are kept last.
fn read(shard: &RwLock<Shard>) -> RwLockReadGuard<'_, Shard> {
    shard.read().unwrap_or_else(PoisonError::into_inner)
}
fn write(shard: &RwLock<Shard>) -> RwLockWriteGuard<'_, Shard> {
    shard.write().unwrap_or_else(PoisonError::into_inner)
}

/// A hasher for pairs of integers that nobody outside chooses.
#[derive(Debug, Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(u64::from(b)));
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = mix(self.0, v);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

fn mix(state: u64, v: u64) -> u64 {
    let x = (state.rotate_left(23) ^ v).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^ (x >> 29)
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

    #[test]
    fn the_budget_holds_and_forgetting_works() {
        for capacity in [5_000, 100_000, 10 << 20] {
            let cache = BlockCache::new(capacity);
            let mut rng = Rng::new(capacity);
            for _ in 0..5000 {
                let (file, offset) = (FileId(rng.below(5)), rng.below(400) * 64);
                if cache.get(file, offset).is_none() {
                    cache.insert(file, offset, block(rng.below(6000) as usize));
                }
                assert!(cache.used_bytes() <= capacity);
            }
            assert!(cache.used_bytes() > capacity / 4);
            for file in 0..5 {
                cache.forget_file(FileId(file));
                assert!((0..400).all(|i| cache.get(FileId(file), i * 64).is_none()));
            }
            assert_eq!(cache.used_bytes(), 0);
        }
    }

    #[test]
    fn a_block_read_again_survives_a_scan() {
        let cache = BlockCache::new(100_000);
        cache.insert(FileId(1), 0, block(4000));
        for i in 0..1000 {
            assert!(cache.get(FileId(1), 0).is_some(), "at {i}");
            cache.insert(FileId(2), i, block(4000));
        }
    }

    #[test]
    fn a_smaller_budget_evicts_and_a_larger_one_fills_again() {
        let cache = BlockCache::new(10 << 20);
        let fill = || (0..1000).for_each(|i| cache.insert(FileId(1), i, block(4000)));
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
        let cache = BlockCache::new(100_000);
        let mut admitted = 0;
        for i in 0..1000 {
            if cache.admits(FileId(1), i) {
                cache.insert(FileId(1), i, block(4000));
                admitted += 1;
            }
        }
        assert!((15..40).contains(&admitted), "what there was room for: {admitted}");
        assert!((900..1000).filter(|i| cache.admits(FileId(1), *i)).count() > 60, "asked for again");
        cache.forget_file(FileId(1));
        assert!(cache.admits(FileId(1), 5000), "there is room");
        assert!(!BlockCache::new(0).admits(FileId(1), 0));
    }

    #[test]
    fn no_capacity_caches_nothing() {
        let cache = BlockCache::new(0);
        cache.insert(FileId(1), 0, block(10));
        assert!(cache.get(FileId(1), 0).is_none());
        assert_eq!((cache.used_bytes(), cache.capacity()), (0, 0));
    }
}
