//! Append-only storage that readers index without a lock: buckets of doubling size, each created once.

use super::sync::AtomicU32;
use perigee_base::{Error, ErrorKind, Result};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// Enough for 4 Gi items in buckets from the smallest base up.
const BUCKETS: usize = 27;

/// Where index `i` lies: bucket, offset, and the bucket's size, for a first bucket of `1 << base` items.
#[inline]
fn place(i: u32, base: u32) -> (usize, usize, usize) {
    let n = (i >> base) + 1;
    let bucket = 31 - n.leading_zeros();
    let size = 1usize << (bucket + base);
    (bucket as usize, i as usize - (((1usize << bucket) - 1) << base), size)
}

fn exhausted() -> Error {
    Error::new(ErrorKind::NoMemory, "the memtable's address space is exhausted: use a smaller memtable_bytes")
}

/// A list that grows at the end. Items never move and are set before their index is handed out.
#[derive(Debug)]
pub struct Slots<T> {
    buckets: [OnceLock<Box<[OnceLock<T>]>>; BUCKETS],
    len: AtomicU32,
}

impl<T> Slots<T> {
    /// Small: a database may have thousands of families with an entry or two each.
    const BASE: u32 = 2;

    /// Empty.
    pub fn new() -> Self {
        Slots { buckets: [const { OnceLock::new() }; BUCKETS], len: AtomicU32::new(0) }
    }
    /// Adds an item, by one thread at a time.
    pub fn push(&self, item: T) -> Result<u32> {
        let i = self.len.load(Relaxed);
        let (bucket, offset, size) = place(i, Self::BASE);
        let slots = self
            .buckets
            .get(bucket)
            .ok_or_else(exhausted)?
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
                let (bucket, _, size) = place(n - 1, Self::BASE);
                // All smaller buckets are as large as the last one together, but for the smallest.
                let slots = if bucket == 0 { size } else { 2 * size - (1 << Self::BASE) };
                (slots * size_of::<OnceLock<T>>()) as u64
            }
        }
    }
    /// The item at `i`.
    #[inline]
    pub fn get(&self, i: u32) -> Option<&T> {
        let (bucket, offset, _) = place(i, Self::BASE);
        self.buckets[bucket].get()?[offset].get()
    }
}

/// Words, handed out in runs that do not straddle buckets.
#[derive(Debug)]
pub struct Words {
    buckets: [OnceLock<Box<[AtomicU32]>>; BUCKETS],
    len: AtomicU32,
}

impl Words {
    /// Small, see [`Slots`]; the largest node still fits.
    const BASE: u32 = 6;

    /// Empty; index 0 is never handed out, so that 0 can mean "none".
    pub fn new() -> Self {
        Words { buckets: [const { OnceLock::new() }; BUCKETS], len: AtomicU32::new(1) }
    }
    /// `n` zeroed words, by one thread at a time; also the bytes of memory that were newly taken.
    pub fn take(&self, n: u32) -> Result<(u32, u64)> {
        let mut i = self.len.load(Relaxed);
        let (_, offset, size) = place(i, Self::BASE);
        if offset + n as usize > size {
            i += (size - offset) as u32;
        }
        let (bucket, _, size) = place(i, Self::BASE);
        let cell = self.buckets.get(bucket).ok_or_else(exhausted)?;
        let grown = if cell.get().is_none() { size as u64 * 4 } else { 0 };
        cell.get_or_init(|| (0..size).map(|_| AtomicU32::new(0)).collect());
        self.len.store(i.checked_add(n).ok_or_else(exhausted)?, Relaxed);
        Ok((i, grown))
    }
    /// The word at `i`, which was handed out.
    #[inline]
    pub fn at(&self, i: u32) -> &AtomicU32 {
        let (bucket, offset, _) = place(i, Self::BASE);
        &self.buckets[bucket].get().expect("a word that was handed out has a bucket")[offset]
    }
    /// `n` words from `i`, which were handed out together.
    #[inline]
    pub fn run(&self, i: u32, n: usize) -> &[AtomicU32] {
        let (bucket, offset, _) = place(i, Self::BASE);
        &self.buckets[bucket].get().expect("a word that was handed out has a bucket")[offset..offset + n]
    }
}
