//! The klog: keys, small values and pointers of a sorted table.

use crate::cache::BlockCache;
use crate::compress::Codec;
use perigee_base::key::VlogPointer;
use perigee_base::stats::Counters;
use perigee_base::{EntryRef, FamilyId, FileId, KeyOrder, Result, SeqNo, Shared};
use perigee_env::Dir;
use std::sync::Arc;

/// What a klog is written with.
#[derive(Clone, Debug)]
pub struct KlogOptions {
    /// The database's id (the shelf fills it in).
    pub database: u64,
    /// The family the entries belong to.
    pub family: FamilyId,
    /// The order of its keys.
    pub order: KeyOrder,
    /// Raw bytes at which a data block is closed.
    pub block_bytes: usize,
    /// How blocks are compressed.
    pub codec: Codec,
    /// Filter bits per distinct key; 0 writes no filter.
    pub filter_bits: u8,
}

/// What a klog holds: for the manifest and for statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KlogSummary {
    /// Length of the file.
    pub bytes: u64,
    /// Checksum of the whole file.
    pub checksum: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Smallest sequence number.
    pub smallest: SeqNo,
    /// Largest sequence number.
    pub largest: SeqNo,
    /// First key.
    pub first_key: Vec<u8>,
    /// Last key.
    pub last_key: Vec<u8>,
    /// Bytes of all keys.
    pub raw_key_bytes: u64,
    /// Bytes of all values, inline and separated.
    pub raw_value_bytes: u64,
    /// Value logs referenced, ascending, each with the stored bytes referenced.
    pub vlogs: Vec<(FileId, u64)>,
}

/// What a lookup found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The key is deleted.
    Tombstone,
    /// The value, pinned in its block.
    Value(Shared),
    /// The value lies in a value log.
    Pointer(VlogPointer),
}

/// Writes one klog.
#[derive(Debug)]
pub struct KlogWriter {}

impl KlogWriter {
    /// Creates the file.
    pub fn create(_dir: &dyn Dir, _id: FileId, _options: KlogOptions) -> Result<KlogWriter> {
        todo!()
    }
    /// Adds the next entry.
    pub fn add(&mut self, _e: EntryRef<'_>) -> Result<()> {
        todo!()
    }
    /// Bytes of the file if it were finished now, about.
    pub fn bytes_written(&self) -> u64 {
        todo!()
    }
    /// Bytes of the index so far.
    pub fn pending_index_bytes(&self) -> usize {
        todo!()
    }
    /// Writes the rest and syncs the file; the directory is the caller's.
    pub fn finish(self) -> Result<KlogSummary> {
        todo!()
    }
}

/// Reads one klog.
#[derive(Debug)]
pub struct KlogReader {}

impl KlogReader {
    /// Opens a klog of `bytes` bytes and verifies everything but the data blocks.
    pub fn open(
        _dir: &dyn Dir,
        _id: FileId,
        _database: u64,
        _family: FamilyId,
        _bytes: u64,
        _cache: Arc<BlockCache>,
        _counters: Arc<Counters>,
    ) -> Result<KlogReader> {
        todo!()
    }
    /// The newest version of `key` that is not newer than `at`.
    pub fn get(&self, _key: &[u8], _hash: u64, _at: SeqNo) -> Result<Option<(SeqNo, Found)>> {
        todo!()
    }
    /// A cursor, before any entry.
    pub fn cursor(self: &Arc<Self>, _fill_cache: bool) -> KlogCursor {
        todo!()
    }
    /// The file.
    pub fn id(&self) -> FileId {
        todo!()
    }
    /// Memory held outside the block cache.
    pub fn memory_bytes(&self) -> u64 {
        todo!()
    }
    /// What the file says about itself; `checksum` is 0.
    pub fn summary(&self) -> &KlogSummary {
        todo!()
    }
    /// Reads and checks every byte.
    pub fn verify(&self, _checksum: u64, _progress: &mut dyn FnMut(u64)) -> Result<()> {
        todo!()
    }
    /// Offset, length and separator of every data block.
    pub fn blocks(&self) -> Result<Vec<(u64, u64, Vec<u8>)>> {
        todo!()
    }
}

/// Walks the entries of a klog.
#[derive(Debug)]
pub struct KlogCursor {}

impl KlogCursor {
    /// To the first entry at or after (key, seq) in entry order.
    pub fn seek(&mut self, _key: &[u8], _seq: SeqNo) -> Result<()> {
        todo!()
    }
    /// To the last entry before (key, seq) in entry order.
    pub fn seek_before(&mut self, _key: &[u8], _seq: SeqNo) -> Result<()> {
        todo!()
    }
    /// To the first entry.
    pub fn seek_first(&mut self) -> Result<()> {
        todo!()
    }
    /// To the last entry.
    pub fn seek_last(&mut self) -> Result<()> {
        todo!()
    }
    /// To the next entry.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<()> {
        todo!()
    }
    /// To the previous entry.
    pub fn prev(&mut self) -> Result<()> {
        todo!()
    }
    /// Whether the cursor stands on an entry.
    pub fn valid(&self) -> bool {
        todo!()
    }
    /// The entry (only when valid).
    pub fn entry(&self) -> EntryRef<'_> {
        todo!()
    }
    /// The entry's value, pinned (only when valid).
    pub fn found(&self) -> Found {
        todo!()
    }
}
