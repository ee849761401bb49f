//! Reads a klog: filter, then index, then one block, then the entry. Index and filter stay in
//! memory; data blocks come from the cache or from one read, verified before use.
//!
//! A key is reported as absent only if the filter excludes it, or if the one block that could
//! contain it was read and verified.

use super::layout::{FOOTER_BYTES, Footer};
use super::properties::{self, KlogSummary, RangeTombstoneSummary};
use crate::block::TableBlock;
use crate::block::frame::{Frame, FrameKind};
use crate::block_cache::{BlockCache, FileBlocks};
use crate::expiry_histogram::ExpiryHistogram;
use crate::filter::FilterReader;
use crate::handle_cache::FileHandleCache;
use crate::index::IndexReader;
use crate::key_sketch::KeySketch;
use crate::range_tombstones::RangeTombstones;
use crate::table_file_reader::TableFileReader;
use perigee_base::{
    BlockHandle, Bytes, Counters, EntryKind, Error, Expiry, FamilyId, FileId, FileKind,
    HEADER_BYTES, IoActivity, KeyComparator, PinnedSlice, Result, SeqNo, ValueRef, VlogPointer,
};
use perigee_env::Dir;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, LazyLock, OnceLock};

/// Result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryValue {
    /// The key is deleted.
    Tombstone,
    /// The value, pinned in its block's buffer.
    Value(PinnedSlice),
    /// The value is in a value log.
    Pointer(VlogPointer),
    /// The value, pinned, valid until it expires.
    ValueExpiring(PinnedSlice, Expiry),
    /// The value is in a value log, valid until it expires.
    PointerExpiring(VlogPointer, Expiry),
    /// A merge operand, pinned.
    Operand(PinnedSlice),
    /// A merge operand in a value log.
    OperandPointer(VlogPointer),
}

impl EntryValue {
    /// Returns the value of entry `i` of a block, pinned.
    #[inline]
    pub(crate) fn from_block(block: &TableBlock, i: usize) -> EntryValue {
        if block.kind(i) == EntryKind::Put {
            return EntryValue::Value(block.pinned_value(i));
        }
        match block.value(i) {
            ValueRef::Tombstone | ValueRef::SingleDelete => EntryValue::Tombstone,
            ValueRef::Inline(_) => EntryValue::Value(block.pinned_value(i)),
            ValueRef::Pointer(p) => EntryValue::Pointer(p),
            ValueRef::InlineExpiring(_, x) => {
                EntryValue::ValueExpiring(block.pinned_value(i).skip_first(Expiry::BYTES), x)
            }
            ValueRef::PointerExpiring(p, x) => EntryValue::PointerExpiring(p, x),
            ValueRef::Operand(_) => EntryValue::Operand(block.pinned_value(i)),
            ValueRef::OperandPointer(p) => EntryValue::OperandPointer(p),
        }
    }
    /// Like [`EntryValue::from_block`], with the value copied, so that the block can be recycled.
    pub(super) fn copy_from_block(block: &TableBlock, i: usize) -> EntryValue {
        match block.value(i) {
            ValueRef::Inline(v) => EntryValue::Value(v.to_vec().into()),
            ValueRef::InlineExpiring(v, x) => EntryValue::ValueExpiring(v.to_vec().into(), x),
            ValueRef::Operand(v) => EntryValue::Operand(v.to_vec().into()),
            _ => EntryValue::from_block(block, i),
        }
    }
    /// Returns true for a merge operand.
    #[inline]
    pub fn is_operand(&self) -> bool {
        matches!(self, EntryValue::Operand(_) | EntryValue::OperandPointer(_))
    }
    /// Returns the value-log pointer, if the value is in a value log.
    pub fn vlog_pointer(&self) -> Option<VlogPointer> {
        match self {
            EntryValue::Pointer(p)
            | EntryValue::PointerExpiring(p, _)
            | EntryValue::OperandPointer(p) => Some(*p),
            _ => None,
        }
    }
    /// Returns the expiry time, if any.
    pub fn expiry(&self) -> Option<Expiry> {
        match self {
            EntryValue::ValueExpiring(_, x) | EntryValue::PointerExpiring(_, x) => Some(*x),
            _ => None,
        }
    }
}

/// The block searched last by a sequence of sorted lookups, and the number of blocks read from
/// disk.
#[derive(Debug)]
pub struct BlockHint {
    file: FileId,
    block_index: usize,
    block: Arc<TableBlock>,
    blocks_read: u64,
    /// The last two keys were in the same block: the next one may be too.
    same_block: bool,
}

impl BlockHint {
    /// Returns the number of blocks read from disk since the last call.
    pub fn take_blocks_read(&mut self) -> u64 {
        std::mem::take(&mut self.blocks_read)
    }
}

/// Reads one klog.
#[derive(Debug)]
pub struct KlogReader {
    pub(super) input: TableFileReader,
    pub(super) database: u64,
    pub(super) metadata: KlogMetadata,
    pub(super) cache: FileBlocks,
    pub(super) counters: Arc<Counters>,
    /// Sequence number assigned to all entries by the manifest; 0: each entry has its own.
    stored_global_seq: AtomicU64,
    /// The range tombstones under the global sequence number, if there are both.
    global_seq_ranges: OnceLock<Arc<RangeTombstones>>,
    /// Tombstones of this klog that scans skipped.
    skipped_tombstones: AtomicU64,
}

/// The parts of a klog that stay in memory.
#[derive(Debug)]
pub(super) struct KlogMetadata {
    pub family: FamilyId,
    pub comparator: KeyComparator,
    pub index: IndexReader,
    pub filter: Option<FilterReader>,
    pub sketch: Option<KeySketch>,
    pub expiries: Arc<ExpiryHistogram>,
    pub operand_count: u64,
    pub ranges: Arc<RangeTombstones>,
}

static NO_RANGE_TOMBSTONES: LazyLock<Arc<RangeTombstones>> = LazyLock::new(Arc::default);
static NO_EXPIRIES: LazyLock<Arc<ExpiryHistogram>> = LazyLock::new(Arc::default);

impl KlogMetadata {
    /// Reads and verifies header, footer, properties, index, filter and range tombstones, and
    /// checks that they agree. Footer and summary are not kept in memory with the reader: the
    /// manifest has the summary.
    pub fn read(
        input: &TableFileReader,
        database: u64,
    ) -> Result<(KlogMetadata, Footer, KlogSummary)> {
        let header = input.read_header(FileKind::Klog, database)?;
        let family = u32::try_from(header.a).ok().filter(|_| header.b == 0).ok_or_else(|| {
            input.error_at(
                0,
                Error::corruption(
                    "invalid column family id, or an unused field is not zero, in a klog header",
                ),
            )
        })?;
        let footer = read_footer(input)?;
        let ((summary, comparator), sketch, expiries, operands) =
            read_frame(input, footer.properties, FrameKind::Properties, |raw| {
                let (sketch, expiries) =
                    (properties::decode_sketch(&raw)?, properties::decode_expiries(&raw)?);
                Ok((
                    properties::decode(&raw)?,
                    sketch,
                    expiries,
                    properties::decode_operands(&raw)?,
                ))
            })?;
        let index = match footer.index {
            BlockHandle::ABSENT => IndexReader::empty(),
            handle => read_frame_with_slack(input, handle, FrameKind::Index, |raw| {
                IndexReader::decode(raw, footer.data_range(), comparator)
            })?,
        };
        let ranges = match footer.ranges_handle() {
            BlockHandle::ABSENT => RangeTombstones::default(),
            handle => read_frame(input, handle, FrameKind::Ranges, |raw| {
                RangeTombstones::decode(&raw, comparator)
            })?,
        };
        if RangeTombstoneSummary::from_tombstones(&ranges).as_ref() != summary.ranges.as_deref() {
            let e = Error::corruption("the properties do not match the range tombstones");
            return Err(input.error_at(footer.properties.offset, e));
        }
        let filter = match footer.filter {
            BlockHandle::ABSENT => None,
            // Equal keys may have different hashes: then a filter, if there is one, must not be
            // used.
            _ if !comparator.supports_filters() => None,
            handle => Some(read_frame(input, handle, FrameKind::Filter, |raw| {
                FilterReader::decode(&raw)
            })?),
        };
        if summary.entries != footer.entry_count || index.block_count() as u64 != footer.block_count
        {
            let e = Error::corruption("footer, index and properties disagree").expected(
                format_args!("{} entries in {} blocks", footer.entry_count, footer.block_count),
                format_args!("{} in {}", summary.entries, index.block_count()),
            );
            return Err(input.error_at(footer.properties.offset, e));
        }
        let summary = KlogSummary { bytes: input.bytes(), ..summary };
        // Most tables have no range tombstones and no expiring entries: they share empty ones.
        let ranges =
            if ranges.is_empty() { Arc::clone(&NO_RANGE_TOMBSTONES) } else { Arc::new(ranges) };
        let expiries =
            if expiries.is_empty() { Arc::clone(&NO_EXPIRIES) } else { Arc::new(expiries) };
        let metadata = KlogMetadata {
            family: FamilyId(family),
            comparator,
            index,
            filter,
            sketch,
            expiries,
            operand_count: operands,
            ranges,
        };
        Ok((metadata, footer, summary))
    }
}

fn read_footer(input: &TableFileReader) -> Result<Footer> {
    let least = (HEADER_BYTES + FOOTER_BYTES) as u64;
    if input.bytes() < least {
        let e =
            Error::corruption("the file is too short for a klog").expected(least, input.bytes());
        return Err(input.error_at(input.bytes(), e));
    }
    let offset = input.bytes() - FOOTER_BYTES as u64;
    let raw = input.read(BlockHandle { offset, len: FOOTER_BYTES as u64 })?;
    Footer::decode(&raw, input.id(), offset).map_err(|e| input.error_at(offset, e))
}

fn read_frame<T>(
    input: &TableFileReader,
    handle: BlockHandle,
    kind: FrameKind,
    decode: impl Fn(Vec<u8>) -> Result<T>,
) -> Result<T> {
    read_raw_frame(input, handle, kind, 0)
        .and_then(decode)
        .map_err(|e| input.error_at(handle.offset, e))
}

fn read_frame_with_slack<T>(
    input: &TableFileReader,
    handle: BlockHandle,
    kind: FrameKind,
    decode: impl Fn(Vec<u8>) -> Result<T>,
) -> Result<T> {
    read_raw_frame(input, handle, kind, TableBlock::SLACK)
        .and_then(decode)
        .map_err(|e| input.error_at(handle.offset, e))
}

fn read_raw_frame(
    input: &TableFileReader,
    handle: BlockHandle,
    kind: FrameKind,
    slack: usize,
) -> Result<Vec<u8>> {
    let bytes = input.read(handle)?;
    Frame::decode(input.id(), handle.offset, &bytes, kind)?.decompress(slack)
}

impl KlogReader {
    /// Opens a klog that must be `bytes` long (the length recorded in the manifest), and verifies
    /// everything but the data blocks.
    #[allow(clippy::too_many_arguments)]
    pub fn open(
        dir: &dyn Dir,
        id: FileId,
        database: u64,
        bytes: Bytes,
        cache: Arc<BlockCache>,
        counters: Arc<Counters>,
    ) -> Result<KlogReader> {
        Self::from_file(
            TableFileReader::open(dir, id, FileKind::Klog, bytes.0)?,
            database,
            cache,
            counters,
        )
    }

    /// Like [`KlogReader::open`], through a handle cache that bounds the number of open files.
    pub fn open_cached(
        handles: &Arc<FileHandleCache>,
        id: FileId,
        database: u64,
        bytes: Bytes,
        cache: Arc<BlockCache>,
        counters: Arc<Counters>,
    ) -> Result<KlogReader> {
        Self::from_file(
            TableFileReader::open_cached(handles, id, FileKind::Klog, bytes.0)?,
            database,
            cache,
            counters,
        )
    }

    pub(crate) fn from_file(
        input: TableFileReader,
        database: u64,
        cache: Arc<BlockCache>,
        counters: Arc<Counters>,
    ) -> Result<KlogReader> {
        let (metadata, ..) = KlogMetadata::read(&input, database)?;
        Ok(Self::with_metadata(input, database, metadata, cache, counters))
    }

    pub(super) fn with_metadata(
        input: TableFileReader,
        database: u64,
        metadata: KlogMetadata,
        cache: Arc<BlockCache>,
        counters: Arc<Counters>,
    ) -> KlogReader {
        let cache = FileBlocks::new(cache, input.id(), metadata.index.block_count());
        KlogReader {
            input,
            database,
            metadata,
            cache,
            counters,
            stored_global_seq: AtomicU64::new(0),
            global_seq_ranges: OnceLock::new(),
            skipped_tombstones: AtomicU64::new(0),
        }
    }

    /// Adds to the number of tombstones that scans skipped in this klog.
    pub fn add_skipped_tombstones(&self, tombstones: u64) {
        self.skipped_tombstones.fetch_add(tombstones, Relaxed);
    }
    /// Returns the number of tombstones that scans skipped since the klog was opened; a tombstone
    /// counts each time.
    pub fn skipped_tombstones(&self) -> u64 {
        self.skipped_tombstones.load(Relaxed)
    }

    /// Returns the newest version of `key` that is not newer than `at`. `hash` is the key's
    /// [`filter_hash`](KeyComparator::filter_hash), computed once for all files.
    pub fn get(&self, key: &[u8], hash: u64, at: SeqNo) -> Result<Option<(SeqNo, EntryValue)>> {
        let Some(i) = self.find_block(key, hash, at) else { return Ok(None) };
        match self
            .cache
            .with_block(i, |block| self.search_block(block, i, key, at, EntryValue::from_block))
        {
            Some(answer) => {
                self.counters.cache_hits.add(1);
                Ok(answer)
            }
            None => self.get_uncached(i, key, at),
        }
    }

    /// Like [`KlogReader::get`], for one of many sorted keys: `near` keeps the block of the
    /// previous lookup.
    pub fn get_with_hint(
        &self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        near: &mut Option<BlockHint>,
    ) -> Result<Option<(SeqNo, EntryValue)>> {
        if let Some(n) = near.as_mut().filter(|n| n.same_block && n.file == self.id()) {
            let entry = n.block.lower_bound(self.metadata.comparator, key, at);
            // Between two entries of a block the key can be in no other block.
            if entry > 0 && entry < n.block.len() {
                return Ok(if n.block.key_equals(self.metadata.comparator, entry, key) {
                    self.visible_entry(&n.block, entry, at, EntryValue::from_block)
                } else {
                    None
                });
            }
            n.same_block = false;
        }
        self.get_with(key, hash, at, |i| {
            if let Some(n) = near.as_mut().filter(|n| n.file == self.id() && n.block_index == i) {
                n.same_block = true;
                return Ok(Arc::clone(&n.block));
            }
            let before = near.take().map_or(0, |n| n.blocks_read);
            let loaded = before + u64::from(!self.cache.contains(i));
            let block = self.load_block(i, true, IoActivity::Get)?;
            *near = Some(BlockHint {
                file: self.id(),
                block_index: i,
                block: Arc::clone(&block),
                blocks_read: loaded,
                same_block: false,
            });
            Ok(block)
        })
    }

    /// Hints to the file system that a lookup of `key` will read its block, unless the block is
    /// cached or was announced last (`last`).
    pub fn prefetch_block_for(
        &self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        last: &mut Option<(FileId, usize)>,
    ) {
        if self.metadata.filter.as_ref().is_some_and(|f| !f.may_contain(hash)) {
            return;
        }
        let i = self.metadata.index.find_block(self.metadata.comparator, key, at);
        if i < self.metadata.index.block_count() && *last != Some((self.id(), i)) {
            *last = Some((self.id(), i));
            if !self.cache.contains(i) {
                self.input.will_need(self.metadata.index.block_handle(i));
            }
        }
    }

    #[inline]
    pub(super) fn get_with(
        &self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        block: impl FnOnce(usize) -> Result<Arc<TableBlock>>,
    ) -> Result<Option<(SeqNo, EntryValue)>> {
        let Some(i) = self.find_block(key, hash, at) else { return Ok(None) };
        let block = block(i)?;
        Ok(self.search_block(&block, i, key, at, EntryValue::from_block))
    }

    /// Returns the one data block that may hold the newest version of `key` that is not newer than
    /// `at`.
    #[inline]
    fn find_block(&self, key: &[u8], hash: u64, at: SeqNo) -> Option<usize> {
        if self.metadata.filter.as_ref().is_some_and(|f| !f.may_contain(hash)) {
            self.counters.filter_negatives.add(1);
            return None;
        }
        let i = self.metadata.index.find_block(self.metadata.comparator, key, at);
        if i == self.metadata.index.block_count() {
            self.count_false_positive(key, i, None);
            return None;
        }
        Some(i)
    }

    /// Searches data block `i` for the key.
    #[inline]
    pub(super) fn search_block(
        &self,
        block: &TableBlock,
        i: usize,
        key: &[u8],
        at: SeqNo,
        value_of: impl FnOnce(&TableBlock, usize) -> EntryValue,
    ) -> Option<(SeqNo, EntryValue)> {
        let comparator = self.metadata.comparator;
        let by_fingerprint = block.find_by_fingerprint(comparator, key, at);
        let entry = by_fingerprint.unwrap_or_else(|| block.lower_bound(comparator, key, at));
        if by_fingerprint.is_some()
            || (entry < block.len() && block.key_equals(comparator, entry, key))
        {
            return self.visible_entry(block, entry, at, value_of);
        }
        self.count_false_positive(key, i, Some((block, entry)));
        None
    }

    /// Returns an entry if it is visible at `at`: with a global sequence number it may be too new.
    fn visible_entry(
        &self,
        block: &TableBlock,
        entry: usize,
        at: SeqNo,
        value_of: impl FnOnce(&TableBlock, usize) -> EntryValue,
    ) -> Option<(SeqNo, EntryValue)> {
        let seq = self.effective_seq(block.seq(entry));
        (seq <= at).then(|| (seq, value_of(block, entry)))
    }

    /// Assigns a sequence number to all entries: for a loaded table, whose number was not known
    /// when it was written. Its entries are stored with number 0, one per key. Its range tombstones
    /// get the number just before, so they hide none of its own entries. Must be called before any
    /// reader of the tree can see the table.
    pub fn set_global_seq(&self, seq: SeqNo) {
        if !self.metadata.ranges.is_empty() {
            let _ = self.global_seq_ranges.set(Arc::new(self.metadata.ranges.with_seq(seq.prev())));
        }
        check!(
            self.global_seq().is_none_or(|before| before == seq),
            "the sequence number of a loaded table is set once",
            seq,
            self.global_seq()
        );
        self.stored_global_seq.store(seq.0, Release);
    }
    /// Returns the global sequence number, if one is set.
    #[inline]
    pub fn global_seq(&self) -> Option<SeqNo> {
        match self.stored_global_seq.load(Acquire) {
            0 => None,
            seq => Some(SeqNo(seq)),
        }
    }
    /// Returns the effective sequence number of an entry stored with `stored`.
    #[inline]
    pub fn effective_seq(&self, stored: SeqNo) -> SeqNo {
        self.global_seq().unwrap_or(stored)
    }

    /// Returns the largest stored sequence number visible to a reader at `at`. `Some(None)`: all
    /// entries are visible; `None`: none is.
    #[inline]
    pub(super) fn visible_seq_bound(&self, at: SeqNo) -> Option<Option<SeqNo>> {
        match self.global_seq() {
            None => Some(Some(at)),
            Some(global) => (global <= at).then_some(None),
        }
    }

    /// Counts a false positive of the filter: nothing was found, although not because all versions
    /// are too new.
    fn count_false_positive(&self, key: &[u8], i: usize, at: Option<(&TableBlock, usize)>) {
        let has_newer = match at {
            Some((block, entry)) if entry > 0 => {
                block.key_equals(self.metadata.comparator, entry - 1, key)
            }
            _ => {
                i > 0 && self.metadata.index.separator_has_key(self.metadata.comparator, i - 1, key)
            }
        };
        if self.metadata.filter.is_some() && !has_newer {
            self.counters.filter_false_positives.add(1);
        }
    }

    /// Returns data block `i` if it is cached.
    #[inline]
    pub(super) fn cached_block(&self, i: usize) -> Option<Arc<TableBlock>> {
        let block = self.cache.get(i)?;
        self.counters.cache_hits.add(1);
        Some(block)
    }

    /// Returns data block `i`, from the cache or from disk.
    pub(super) fn load_block(
        &self,
        i: usize,
        fill_cache: bool,
        cause: IoActivity,
    ) -> Result<Arc<TableBlock>> {
        match self.cached_block(i) {
            Some(block) => Ok(block),
            None => {
                let admit = fill_cache && self.cache.should_admit(i, false);
                self.load_uncached_block(i, admit, |admit| self.read_block(i, cause, admit))
            }
        }
    }

    /// Reads data block `i`, which is not cached, with `read`; inserts it into the cache if `admit`
    /// is set.
    pub(super) fn load_uncached_block(
        &self,
        i: usize,
        admit: bool,
        read: impl FnOnce(bool) -> Result<TableBlock>,
    ) -> Result<Arc<TableBlock>> {
        self.counters.cache_misses.add(1);
        let block = Arc::new(read(admit)?);
        if admit {
            self.cache.insert(i, Arc::clone(&block));
        }
        Ok(block)
    }

    /// Returns the number of its blocks in the cache that were read since they were cached.
    pub fn referenced_block_count(&self) -> usize {
        self.cache.referenced_count()
    }
    /// Evicts its blocks from the cache. The reader stays usable.
    pub fn evict_blocks(&self) {
        self.cache.evict_all();
    }

    /// Counts a read of data blocks.
    pub(super) fn count_block_read(&self, cause: IoActivity, bytes: u64) {
        self.counters.klog_bytes_read.add(bytes);
        self.counters.io.record_read(cause, bytes);
    }
    /// Counts a lookup that missed the cache.
    pub(super) fn count_cache_miss(&self) {
        self.counters.cache_misses.add(1);
    }

    /// Returns the file number.
    pub fn id(&self) -> FileId {
        self.input.id()
    }
    /// Returns the range tombstones.
    pub fn range_tombstones(&self) -> &Arc<RangeTombstones> {
        self.global_seq_ranges.get().unwrap_or(&self.metadata.ranges)
    }
    /// Returns the column family it was written for. A clone of that family may share the file.
    pub fn family(&self) -> FamilyId {
        self.metadata.family
    }
    /// Returns the comparator of its keys.
    #[inline]
    pub fn comparator(&self) -> KeyComparator {
        self.metadata.comparator
    }
    /// Returns the memory used outside the block cache, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let filter = self.metadata.filter.as_ref().map_or(0, FilterReader::memory_bytes);
        let sketch = self.metadata.sketch.as_ref().map_or(0, |s| s.raw().len() as u64);
        size_of::<KlogReader>() as u64
            + self.cache.memory_bytes()
            + self.metadata.index.memory_bytes()
            + filter
            + sketch
            + self.metadata.expiries.memory_bytes()
    }
    /// Returns the part of [`KlogReader::memory_bytes`] used by the filter.
    pub fn filter_bytes(&self) -> u64 {
        self.metadata.filter.as_ref().map_or(0, FilterReader::memory_bytes)
    }
    /// Reads the summary stored in the file; `checksum` is 0, because only the manifest has it.
    ///
    /// # Errors
    /// As for opening the klog.
    pub fn read_summary(&self) -> Result<KlogSummary> {
        let (.., summary) = KlogMetadata::read(&self.input, self.database)?;
        Ok(summary)
    }
    /// Returns the length of the file, in bytes.
    pub fn bytes(&self) -> u64 {
        self.input.bytes()
    }
    /// Returns the key sketch; tables with few keys have none.
    pub fn sketch(&self) -> Option<&KeySketch> {
        self.metadata.sketch.as_ref()
    }
    /// Returns the number of merge operands.
    pub fn operand_count(&self) -> u64 {
        self.metadata.operand_count
    }
    /// Returns the expiry histogram of its entries.
    pub fn expiry_histogram(&self) -> &Arc<ExpiryHistogram> {
        &self.metadata.expiries
    }
    /// Returns false if the filter excludes the key hash. True for every hash if there is no
    /// filter.
    pub fn may_contain(&self, hash: u64) -> bool {
        self.metadata.filter.as_ref().is_none_or(|f| f.may_contain(hash))
    }
    /// Returns the data blocks that a key range touches: the first, the last, and the bytes from
    /// the first to the end of the last. A bound of `None` is unbounded. Reads no block.
    pub fn blocks_in_range(
        &self,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Option<(usize, usize, u64)> {
        let index = &self.metadata.index;
        let first = lower.map_or(0, |k| index.find_block(self.metadata.comparator, k, SeqNo::MAX));
        let last = upper
            .map_or(usize::MAX, |k| index.find_block(self.metadata.comparator, k, SeqNo::ZERO));
        let last = last.min(index.block_count().checked_sub(1)?);
        if first > last {
            return None;
        }
        let bytes = index.block_handle(last).end() - index.block_handle(first).offset;
        Some((first, last, bytes))
    }
    /// Returns the number of data blocks.
    pub fn block_count(&self) -> usize {
        self.metadata.index.block_count()
    }
    /// Returns offset, frame length and separator key of every data block.
    pub fn list_blocks(&self) -> Result<Vec<(u64, u64, Vec<u8>)>> {
        let index = &self.metadata.index;
        Ok((0..index.block_count())
            .map(|i| (index.block_handle(i), index.separator(i).0))
            .map(|(handle, key)| (handle.offset, handle.len, key))
            .collect())
    }
}
