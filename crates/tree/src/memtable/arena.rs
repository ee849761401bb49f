//! Append-only storage that readers index without locks: buckets of doubling size, each allocated
//! once.

use super::sync::AtomicU32;
use perigee_base::{Error, ErrorKind, Result};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// Enough for 4 Gi items with the smallest first bucket.
const BUCKETS: usize = 27;

/// Returns the bucket, the offset and the bucket's size for index `i`, with a first bucket of `1 <<
/// base` items.
#[inline]
fn locate(i: u32, base: u32) -> (usize, usize, usize) {
    let n = (i >> base) + 1;
    let bucket = 31 - n.leading_zeros();
    let size = 1usize << (bucket + base);
    (bucket as usize, i as usize - (((1usize << bucket) - 1) << base), size)
}

fn address_space_exhausted() -> Error {
    Error::new(
        ErrorKind::NoMemory,
        "the memtable's address space is exhausted: use a smaller memtable_bytes",
    )
}

/// An append-only list. Items never move and are set before their index is returned.
#[derive(Debug)]
pub struct ArenaSlots<T> {
    buckets: [OnceLock<Box<[OnceLock<T>]>>; BUCKETS],
    len: AtomicU32,
}

impl<T> ArenaSlots<T> {
    /// Small: a database may have thousands of column families with one or two entries each.
    const FIRST_BUCKET_LOG2: u32 = 2;

    /// Creates an empty list.
    pub fn new() -> Self {
        ArenaSlots { buckets: [const { OnceLock::new() }; BUCKETS], len: AtomicU32::new(0) }
    }
    /// Adds an item and returns its index. Only one thread at a time may call this.
    pub fn push(&self, item: T) -> Result<u32> {
        let i = self.len.load(Relaxed);
        let (bucket, offset, size) = locate(i, Self::FIRST_BUCKET_LOG2);
        let slots = self
            .buckets
            .get(bucket)
            .ok_or_else(address_space_exhausted)?
            .get_or_init(|| (0..size).map(|_| OnceLock::new()).collect());
        if slots[offset].set(item).is_err() {
            return Err(Error::internal("concurrent writers in one memtable"));
        }
        self.len.store(i + 1, Relaxed);
        Ok(i)
    }
    /// Bytes of memory that the buckets occupy.
    pub fn memory_bytes(&self) -> u64 {
        match self.len.load(Relaxed) {
            0 => 0,
            n => {
                let (bucket, _, size) = locate(n - 1, Self::FIRST_BUCKET_LOG2);
                // All smaller buckets together are as large as the last one, less the first
                // bucket's size.
                let slots =
                    if bucket == 0 { size } else { 2 * size - (1 << Self::FIRST_BUCKET_LOG2) };
                (slots * size_of::<OnceLock<T>>()) as u64
            }
        }
    }
    /// Returns the item at `i`.
    #[inline]
    pub fn get(&self, i: u32) -> Option<&T> {
        let (bucket, offset, _) = locate(i, Self::FIRST_BUCKET_LOG2);
        self.buckets[bucket].get()?[offset].get()
    }
}

/// Words, allocated in runs that do not straddle buckets.
#[derive(Debug)]
pub struct ArenaWords {
    buckets: [OnceLock<Box<[AtomicU32]>>; BUCKETS],
    len: AtomicU32,
}

impl ArenaWords {
    /// Small, see [`ArenaSlots`]; the largest node still fits.
    /// Binary logarithm of the words in the first bucket, the most that are allocated together.
    pub(super) const FIRST_BUCKET_LOG2: u32 = 6;

    /// Creates an empty arena. Index 0 is never allocated, so that 0 can mean "none".
    pub fn new() -> Self {
        ArenaWords { buckets: [const { OnceLock::new() }; BUCKETS], len: AtomicU32::new(1) }
    }
    /// Allocates `n` zeroed words. Returns their index and the bytes of memory newly allocated.
    /// Only one thread at a time may call this.
    pub fn allocate(&self, n: u32) -> Result<(u32, u64)> {
        let mut i = self.len.load(Relaxed);
        let (_, offset, size) = locate(i, Self::FIRST_BUCKET_LOG2);
        if offset + n as usize > size {
            i += (size - offset) as u32;
        }
        let (bucket, _, size) = locate(i, Self::FIRST_BUCKET_LOG2);
        let cell = self.buckets.get(bucket).ok_or_else(address_space_exhausted)?;
        let grown = if cell.get().is_none() { size as u64 * 4 } else { 0 };
        cell.get_or_init(|| (0..size).map(|_| AtomicU32::new(0)).collect());
        self.len.store(i.checked_add(n).ok_or_else(address_space_exhausted)?, Relaxed);
        check_slow!(
            locate(i, Self::FIRST_BUCKET_LOG2).0 == locate(i + n - 1, Self::FIRST_BUCKET_LOG2).0,
            "words that are allocated together are in one bucket",
            i,
            n
        );
        Ok((i, grown))
    }
    /// Returns the word at `i`, which must have been allocated.
    #[inline]
    pub fn word(&self, i: u32) -> &AtomicU32 {
        let (bucket, offset, _) = locate(i, Self::FIRST_BUCKET_LOG2);
        &self.buckets[bucket].get().expect("an allocated word has a bucket")[offset]
    }
    /// Returns the `n` words from `i`, which must have been allocated together.
    #[inline]
    pub fn word_slice(&self, i: u32, n: usize) -> &[AtomicU32] {
        let (bucket, offset, _) = locate(i, Self::FIRST_BUCKET_LOG2);
        &self.buckets[bucket].get().expect("an allocated word has a bucket")[offset..offset + n]
    }
}
