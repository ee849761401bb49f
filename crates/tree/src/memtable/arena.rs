//! Append-only storage that readers index without a lock: buckets of doubling size, each created
//! once.

use super::sync::AtomicU32;
use perigee_base::{Error, ErrorKind, Result};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// Enough for 4 Gi items in buckets from the smallest base up.
const BUCKETS: usize = 27;

/// Where index `i` lies: bucket, offset, and the bucket's size, for a first bucket of `1 << base`
/// items.
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

/// A list that grows at the end. Items never move and are set before their index is handed out.
#[derive(Debug)]
pub struct ArenaSlots<T> {
    buckets: [OnceLock<Box<[OnceLock<T>]>>; BUCKETS],
    len: AtomicU32,
}

impl<T> ArenaSlots<T> {
    /// Small: a database may have thousands of families with an entry or two each.
    const FIRST_BUCKET_LOG2: u32 = 2;

    /// Empty.
    pub fn new() -> Self {
        ArenaSlots { buckets: [const { OnceLock::new() }; BUCKETS], len: AtomicU32::new(0) }
    }
    /// Adds an item, by one thread at a time.
    pub fn push(&self, item: T) -> Result<u32> {
        let i = self.len.load(Relaxed);
        let (bucket, offset, size) = locate(i, Self::FIRST_BUCKET_LOG2);
        let slots = self
            .buckets
            .get(bucket)
            .ok_or_else(address_space_exhausted)?
            .get_or_init(|| (0..size).map(|_| OnceLock::new()).collect());
        if slots[offset].set(item).is_err() {
            return Err(Error::internal("two writers in one memtable"));
        }
        self.len.store(i + 1, Relaxed);
        Ok(i)
    }
    /// Bytes of memory that its buckets take.
    pub fn memory_bytes(&self) -> u64 {
        match self.len.load(Relaxed) {
            0 => 0,
            n => {
                let (bucket, _, size) = locate(n - 1, Self::FIRST_BUCKET_LOG2);
                // All smaller buckets are as large as the last one together, but for the smallest.
                let slots =
                    if bucket == 0 { size } else { 2 * size - (1 << Self::FIRST_BUCKET_LOG2) };
                (slots * size_of::<OnceLock<T>>()) as u64
            }
        }
    }
    /// The item at `i`.
    #[inline]
    pub fn get(&self, i: u32) -> Option<&T> {
        let (bucket, offset, _) = locate(i, Self::FIRST_BUCKET_LOG2);
        self.buckets[bucket].get()?[offset].get()
    }
}

/// Words, handed out in runs that do not straddle buckets.
#[derive(Debug)]
pub struct ArenaWords {
    buckets: [OnceLock<Box<[AtomicU32]>>; BUCKETS],
    len: AtomicU32,
}

impl ArenaWords {
    /// Small, see [`Slots`]; the largest node still fits.
    const FIRST_BUCKET_LOG2: u32 = 6;

    /// Empty; index 0 is never handed out, so that 0 can mean "none".
    pub fn new() -> Self {
        ArenaWords { buckets: [const { OnceLock::new() }; BUCKETS], len: AtomicU32::new(1) }
    }
    /// `n` zeroed words, by one thread at a time; also the bytes of memory that were newly taken.
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
        Ok((i, grown))
    }
    /// The word at `i`, which was handed out.
    #[inline]
    pub fn word(&self, i: u32) -> &AtomicU32 {
        let (bucket, offset, _) = locate(i, Self::FIRST_BUCKET_LOG2);
        &self.buckets[bucket].get().expect("a word that was handed out has a bucket")[offset]
    }
    /// `n` words from `i`, which were handed out together.
    #[inline]
    pub fn word_slice(&self, i: u32, n: usize) -> &[AtomicU32] {
        let (bucket, offset, _) = locate(i, Self::FIRST_BUCKET_LOG2);
        &self.buckets[bucket].get().expect("a word that was handed out has a bucket")
            [offset..offset + n]
    }
}
