//! Entries by number, in the order of their sequence numbers, with links between the versions of
//! each key: one writer, lock-free readers.
//!
//! ```text
//! record, 4 words of 64 bits, low bits first:
//!   batch 32 | key start 32
//!   value length 32 | key length 19 | kind 8 | rank 5
//!   sequence number 64
//!   older 32 | jump 32          entry number + 1 each; 0: none
//! ```
//! `older` is the next older version of the same key. `jump` is a version further back, so that a
//! reader of old versions takes a logarithmic number of steps (skew-binary jump pointers: Myers,
//! "An applicative random-access stack", 1983): the jump of an entry of rank r skips 2^r - 1
//! versions.
//!
//! Invariants: 1. a record is written before its number is published to readers (with release: by
//! the hash index, or by the count of entries) and never changes; 2. numbers grow with sequence
//! numbers; 3. the value directly follows the key, as in a batch.

use super::sync::{AtomicU32, EntryRecord, zeroed_records};
use perigee_base::{EntryKind, Error, ErrorKind, Result, SeqNo};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// Enough for 4 Gi entries in buckets of doubling size.
const BUCKETS: usize = 30;
/// The first bucket holds 4 entries: a database may have thousands of column families with one or
/// two entries each.
const FIRST_BUCKET_LOG2: u32 = 2;
/// Size of a record in bytes.
const RECORD_BYTES: u64 = 32;
/// Bits of the length of a key, of a kind, and of a rank in the packed word of a record.
const KEY_LEN_BITS: u32 = 19;
const KIND_BITS: u32 = 8;
const RANK_BITS: u32 = 5;
const _: () = assert!(32 + KEY_LEN_BITS + KIND_BITS + RANK_BITS == u64::BITS);
const _: () = assert!(perigee_base::limits::KEY_BYTES_MAX < 1 << KEY_LEN_BITS);
const _: () = assert!(perigee_base::limits::VALUE_BYTES_MAX < 1 << 32);

/// Location, kind and sequence number of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemtableEntry {
    /// Slot of the entry's batch.
    pub batch: u32,
    /// Start and length of the key in the batch's buffer.
    pub key: (u32, u32),
    /// Start and length of the value.
    pub value: (u32, u32),
    /// Sequence number.
    pub seq: SeqNo,
    /// Kind of the entry; never a pointer.
    pub kind: EntryKind,
}

/// The entries of a memtable.
#[derive(Debug)]
pub struct Entries {
    buckets: [OnceLock<Box<[EntryRecord]>>; BUCKETS],
    len: AtomicU32,
}

/// Error for an index that cannot be allocated or has reached its maximum size.
pub fn index_memory_exhausted() -> Error {
    Error::new(
        ErrorKind::NoMemory,
        "out of memory for the memtable's index: use a smaller memtable_bytes",
    )
}

impl Entries {
    /// Creates an empty list.
    pub fn new() -> Entries {
        Entries { buckets: [const { OnceLock::new() }; BUCKETS], len: AtomicU32::new(0) }
    }

    #[inline]
    fn locate(i: u32) -> (usize, usize) {
        let n = u64::from(i) + (1 << FIRST_BUCKET_LOG2);
        let bucket = 63 - n.leading_zeros() - FIRST_BUCKET_LOG2;
        (bucket as usize, (n - (1u64 << (bucket + FIRST_BUCKET_LOG2))) as usize)
    }

    #[inline]
    fn record(&self, i: u32) -> &EntryRecord {
        let (bucket, offset) = Entries::locate(i);
        &self.buckets[bucket].get().expect("a published entry has a bucket")[offset]
    }

    /// Adds an entry and returns its number. `older`: previous version of the same key. Only one
    /// thread at a time may call this.
    pub fn push(&self, node: &MemtableEntry, older: Option<u32>) -> Result<u32> {
        let i = self.len.load(Relaxed);
        let (bucket, _) = Entries::locate(i);
        let cell = self.buckets.get(bucket).ok_or_else(index_memory_exhausted)?;
        if cell.get().is_none() {
            let _ = cell.set(
                zeroed_records(1 << (bucket as u32 + FIRST_BUCKET_LOG2))
                    .ok_or_else(index_memory_exhausted)?,
            );
        }
        let (jump, rank) = match older {
            Some(o) => self.next_jump(o),
            None => (i, 0),
        };
        let packed =
            u64::from(node.key.1) << 32 | u64::from(node.kind.code()) << 51 | u64::from(rank) << 59;
        check_slow!(
            node.key.1 < 1 << KEY_LEN_BITS && rank < 1 << RANK_BITS,
            "the fields of an entry fit in its record",
            node,
            rank
        );
        check_slow!(
            older.is_none_or(|o| o < i && self.seq(o) < node.seq),
            "a version is newer than those inserted before it",
            node,
            older
        );
        let r = self.record(i);
        r[0].store(u64::from(node.batch) | u64::from(node.key.0) << 32, Relaxed);
        r[1].store(u64::from(node.value.1) | packed, Relaxed);
        r[2].store(node.seq.0, Relaxed);
        r[3].store(older.map_or(0, |o| u64::from(o) + 1) | (u64::from(jump) + 1) << 32, Relaxed);
        self.len.store(
            i.checked_add(1).filter(|n| *n < u32::MAX).ok_or_else(index_memory_exhausted)?,
            Relaxed,
        );
        Ok(i)
    }

    /// Bytes of memory that the buckets occupy.
    pub fn memory_bytes(&self) -> u64 {
        match self.len.load(Relaxed) {
            0 => 0,
            // All smaller buckets together are as large as the last one, less the first bucket's
            // size.
            n => {
                (((2u64 << FIRST_BUCKET_LOG2) << Entries::locate(n - 1).0)
                    - (1 << FIRST_BUCKET_LOG2))
                    * RECORD_BYTES
            }
        }
    }
    /// Number of entries, for the writer.
    pub fn count(&self) -> u32 {
        self.len.load(Relaxed)
    }

    /// Returns the jump target of the version that follows `o`, and its rank.
    fn next_jump(&self, o: u32) -> (u32, u32) {
        let (rank, jump) = (self.rank(o), self.jump(o));
        if rank == self.rank(jump) { (self.jump(jump), rank + 1) } else { (o, 1) }
    }
    fn rank(&self, i: u32) -> u32 {
        (self.record(i)[1].load(Relaxed) >> 59) as u32
    }
    /// Returns the version that entry `i` jumps to; `i` itself if it is the first of its key.
    pub fn jump(&self, i: u32) -> u32 {
        ((self.record(i)[3].load(Relaxed) >> 32) as u32).wrapping_sub(1)
    }

    /// Returns the previous version of the key of entry `i`.
    pub fn older_version(&self, i: u32) -> Option<u32> {
        (self.record(i)[3].load(Relaxed) as u32).checked_sub(1)
    }

    /// Returns the sequence number of entry `i`.
    #[inline]
    pub fn seq(&self, i: u32) -> SeqNo {
        SeqNo(self.record(i)[2].load(Relaxed))
    }

    /// Returns batch slot, start and length of the key of entry `i`.
    #[inline]
    pub fn key_location(&self, i: u32) -> (u32, usize, usize) {
        let r = self.record(i);
        let (location, packed) = (r[0].load(Relaxed), r[1].load(Relaxed));
        (location as u32, (location >> 32) as usize, (packed >> 32 & 0x7FFFF) as usize)
    }

    /// Returns entry `i`.
    #[inline]
    pub fn node(&self, i: u32) -> MemtableEntry {
        let r = self.record(i);
        let (location, packed) = (r[0].load(Relaxed), r[1].load(Relaxed));
        let key = ((location >> 32) as u32, (packed >> 32 & 0x7FFFF) as u32);
        MemtableEntry {
            batch: location as u32,
            key,
            value: (key.0 + key.1, packed as u32),
            seq: SeqNo(r[2].load(Relaxed)),
            kind: EntryKind::decode((packed >> 51) as u8)
                .expect("the word was written from a kind"),
        }
    }

    /// Returns the newest version at or before `at`, starting from version `i`.
    pub fn visible_version(&self, mut i: u32, at: SeqNo) -> Option<u32> {
        loop {
            let r = self.record(i);
            if r[2].load(Relaxed) <= at.0 {
                return Some(i);
            }
            let links = r[3].load(Relaxed);
            let older = (links as u32).checked_sub(1)?;
            let jump = ((links >> 32) as u32).wrapping_sub(1);
            check_slow!(older < i && jump <= i, "links lead to older versions", i, older, jump);
            i = if self.seq(jump) > at { jump } else { older };
        }
    }
}
