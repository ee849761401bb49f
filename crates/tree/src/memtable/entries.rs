//! Entries by number, in the order of their sequence numbers, and the versions of each key: one
//! writer, lock-free readers.
//!
//! ```text
//! record, 4 words of 64 bits, low bits first:
//!   batch 32 | key start 32
//!   value length 32 | key length 19 | kind 8 | rank 5
//!   sequence number 64
//!   older 32 | jump 32          entry number + 1 each; 0: none
//! ```
//! `older` is the next older version of the same key. `jump` is one further back, so that a reader
//! of old versions takes a logarithmic number of steps (skew-binary jump pointers: Myers, "An
//! applicative random-access stack", 1983): the jump of an entry of rank r passes over 2^r - 1
//! versions.
//!
//! Invariants: 1. a record is written before its number is handed to a reader (who publishes
//! numbers with release: the hash index, or the count of entries) and never changes; 2. numbers
//! grow with sequence numbers; 3. the value lies right behind the key, as in a batch.

use super::sync::{AtomicU32, EntryRecord, zeroed_records};
use perigee_base::{EntryKind, Error, ErrorKind, Result, SeqNo};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// Enough for 4 Gi entries in buckets of doubling size.
const BUCKETS: usize = 30;
/// The first bucket holds 4: a database may have thousands of families with an entry or two each.
const FIRST_BUCKET_LOG2: u32 = 2;
/// Bytes of a record.
const RECORD_BYTES: u64 = 32;

/// An entry: where its bytes lie, and what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemtableEntry {
    /// Slot of its batch.
    pub batch: u32,
    /// Start and length of the key in the batch's buffer.
    pub key: (u32, u32),
    /// Start and length of the value.
    pub value: (u32, u32),
    /// Sequence number.
    pub seq: SeqNo,
    /// What it is; never a pointer.
    pub kind: EntryKind,
}

/// The entries of a memtable.
#[derive(Debug)]
pub struct Entries {
    buckets: [OnceLock<Box<[EntryRecord]>>; BUCKETS],
    len: AtomicU32,
}

/// What memory cannot give.
pub fn index_memory_exhausted() -> Error {
    Error::new(
        ErrorKind::NoMemory,
        "no memory for the memtable's index: use a smaller memtable_bytes",
    )
}

impl Entries {
    /// None yet.
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
        &self.buckets[bucket].get().expect("an entry that was handed out has a bucket")[offset]
    }

    /// Adds an entry and returns its number, by one thread at a time; `older`: the version of the
    /// same key before it.
    pub fn push(&self, node: &MemtableEntry, older: Option<u32>) -> Result<u32> {
        let i = self.len.load(Relaxed);
        let (bucket, offset) = Entries::locate(i);
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
        let what =
            u64::from(node.key.1) << 32 | u64::from(node.kind.code()) << 51 | u64::from(rank) << 59;
        let r = self.record(i);
        debug_assert_eq!(offset as u64, Entries::locate(i).1 as u64);
        r[0].store(u64::from(node.batch) | u64::from(node.key.0) << 32, Relaxed);
        r[1].store(u64::from(node.value.1) | what, Relaxed);
        r[2].store(node.seq.0, Relaxed);
        r[3].store(older.map_or(0, |o| u64::from(o) + 1) | (u64::from(jump) + 1) << 32, Relaxed);
        self.len.store(
            i.checked_add(1).filter(|n| *n < u32::MAX).ok_or_else(index_memory_exhausted)?,
            Relaxed,
        );
        Ok(i)
    }

    /// Bytes of memory that its buckets take.
    pub fn memory_bytes(&self) -> u64 {
        match self.len.load(Relaxed) {
            0 => 0,
            // All smaller buckets are as large as the last one together, but for the smallest.
            n => {
                (((2u64 << FIRST_BUCKET_LOG2) << Entries::locate(n - 1).0)
                    - (1 << FIRST_BUCKET_LOG2))
                    * RECORD_BYTES
            }
        }
    }
    /// How many there are, for the writer.
    pub fn count(&self) -> u32 {
        self.len.load(Relaxed)
    }

    /// Where the successor of `o` jumps to, and its rank.
    fn next_jump(&self, o: u32) -> (u32, u32) {
        let (rank, jump) = (self.rank(o), self.jump(o));
        if rank == self.rank(jump) { (self.jump(jump), rank + 1) } else { (o, 1) }
    }
    fn rank(&self, i: u32) -> u32 {
        (self.record(i)[1].load(Relaxed) >> 59) as u32
    }
    /// The version that entry `i` jumps to; itself, if it is the first of its key.
    pub fn jump(&self, i: u32) -> u32 {
        ((self.record(i)[3].load(Relaxed) >> 32) as u32).wrapping_sub(1)
    }

    /// The version of the same key before entry `i`.
    pub fn older_version(&self, i: u32) -> Option<u32> {
        (self.record(i)[3].load(Relaxed) as u32).checked_sub(1)
    }

    /// The sequence number of entry `i`.
    #[inline]
    pub fn seq(&self, i: u32) -> SeqNo {
        SeqNo(self.record(i)[2].load(Relaxed))
    }

    /// Batch, start and length of the key of entry `i`.
    #[inline]
    pub fn key_location(&self, i: u32) -> (u32, usize, usize) {
        let r = self.record(i);
        let (at, what) = (r[0].load(Relaxed), r[1].load(Relaxed));
        (at as u32, (at >> 32) as usize, (what >> 32 & 0x7FFFF) as usize)
    }

    /// Entry `i`.
    #[inline]
    pub fn node(&self, i: u32) -> MemtableEntry {
        let r = self.record(i);
        let (at, what) = (r[0].load(Relaxed), r[1].load(Relaxed));
        let key = ((at >> 32) as u32, (what >> 32 & 0x7FFFF) as u32);
        MemtableEntry {
            batch: at as u32,
            key,
            value: (key.0 + key.1, what as u32),
            seq: SeqNo(r[2].load(Relaxed)),
            kind: EntryKind::decode((what >> 51) as u8).expect("the word was written from a kind"),
        }
    }

    /// The newest version at or before `at`, beginning with version `i`.
    pub fn visible_version(&self, mut i: u32, at: SeqNo) -> Option<u32> {
        loop {
            let r = self.record(i);
            if r[2].load(Relaxed) <= at.0 {
                return Some(i);
            }
            let links = r[3].load(Relaxed);
            let older = (links as u32).checked_sub(1)?;
            let jump = ((links >> 32) as u32).wrapping_sub(1);
            i = if self.seq(jump) > at { jump } else { older };
        }
    }
}
