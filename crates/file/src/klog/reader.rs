//! Reads a klog: filter, then index, then one block, then the entry. Index and filter stay in memory; data
//! blocks come from the cache or from one read, verified before use.
//!
//! "Not here" is an assertion: it is said only when the filter excludes the key, or the one block that could
//! hold it was read and verified.

use super::layout::{FOOTER_BYTES, Footer, Place};
use super::props::{self, KlogSummary, RangeSummary};
use crate::block::Block;
use crate::block::frame::{Frame, FrameKind};
use crate::cache::{BlockCache, FileBlocks};
use crate::expiries::Expiries;
use crate::filter::Filter;
use crate::handles::Handles;
use crate::index::Index;
use crate::input::Input;
use crate::ranges::Fragments;
use crate::sketch::Sketch;
use perigee_base::format::{FileKind, HEADER_BYTES};
use perigee_base::io::Cause;
use perigee_base::key::VlogPointer;
use perigee_base::stats::Counters;
use perigee_base::{EntryKind, Error, Expiry, FamilyId, FileId, KeyOrder, Result, SeqNo, Shared, ValueRef};
use perigee_env::Dir;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, OnceLock};

/// What a look-up found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The key is deleted.
    Tombstone,
    /// The value, pinned in its block.
    Value(Shared),
    /// The value lies in a value log.
    Pointer(VlogPointer),
    /// The value, pinned, up to a time.
    ValueUntil(Shared, Expiry),
    /// The value lies in a value log, up to a time.
    PointerUntil(VlogPointer, Expiry),
    /// An operand, pinned, to be merged into what lies below.
    Operand(Shared),
    /// An operand in a value log.
    OperandPointer(VlogPointer),
}

impl Found {
    /// Entry `i` of a block.
    #[inline]
    pub(crate) fn of(block: &Block, i: usize) -> Found {
        if block.kind(i) == EntryKind::Put {
            return Found::Value(block.pinned_value(i));
        }
        match block.value(i) {
            ValueRef::None | ValueRef::Single => Found::Tombstone,
            ValueRef::Inline(_) => Found::Value(block.pinned_value(i)),
            ValueRef::Pointer(p) => Found::Pointer(p),
            ValueRef::InlineUntil(_, x) => Found::ValueUntil(block.pinned_value(i).skip(Expiry::BYTES), x),
            ValueRef::PointerUntil(p, x) => Found::PointerUntil(p, x),
            ValueRef::Operand(_) => Found::Operand(block.pinned_value(i)),
            ValueRef::OperandPointer(p) => Found::OperandPointer(p),
        }
    }
    /// The same, its value copied: the block goes.
    pub(super) fn copied(block: &Block, i: usize) -> Found {
        match block.value(i) {
            ValueRef::Inline(v) => Found::Value(v.to_vec().into()),
            ValueRef::InlineUntil(v, x) => Found::ValueUntil(v.to_vec().into(), x),
            ValueRef::Operand(v) => Found::Operand(v.to_vec().into()),
            _ => Found::of(block, i),
        }
    }
    /// Whether it is an operand.
    #[inline]
    pub fn is_operand(&self) -> bool {
        matches!(self, Found::Operand(_) | Found::OperandPointer(_))
    }
    /// Where its bytes lie, if that is in a value log.
    pub fn apart(&self) -> Option<VlogPointer> {
        match self {
            Found::Pointer(p) | Found::PointerUntil(p, _) | Found::OperandPointer(p) => Some(*p),
            _ => None,
        }
    }
    /// When it ends, if it does.
    pub fn expiry(&self) -> Option<Expiry> {
        match self {
            Found::ValueUntil(_, x) | Found::PointerUntil(_, x) => Some(*x),
            _ => None,
        }
    }
}

/// The block in which a key was looked for last, and how many were read from disk on the way.
#[derive(Debug)]
pub struct Near {
    file: FileId,
    number: usize,
    block: Arc<Block>,
    loaded: u64,
    /// The last key lay in the block of the one before it: the next one may too.
    close: bool,
}

impl Near {
    /// Blocks read from disk since the last call.
    pub fn take_loaded(&mut self) -> u64 {
        std::mem::take(&mut self.loaded)
    }
}

/// Reads one klog.
#[derive(Debug)]
pub struct KlogReader {
    pub(super) input: Input,
    pub(super) database: u64,
    pub(super) parts: Parts,
    pub(super) cache: FileBlocks,
    pub(super) counters: Arc<Counters>,
    /// The sequence number of all entries, if the manifest says one (0: each has its own).
    stamp: AtomicU64,
    /// The range tombstones under the stamp, if there are both.
    stamped_ranges: OnceLock<Arc<Fragments>>,
    /// Tombstones in it that scans passed.
    passed: AtomicU64,
}

/// Everything of a klog but its data blocks.
#[derive(Debug)]
pub(super) struct Parts {
    pub family: FamilyId,
    pub footer: Footer,
    pub summary: KlogSummary,
    pub order: KeyOrder,
    pub index: Index,
    pub filter: Option<Filter>,
    pub sketch: Option<Sketch>,
    pub expiries: Arc<Expiries>,
    pub operands: u64,
    pub ranges: Arc<Fragments>,
}

impl Parts {
    /// Reads header, footer, properties, index and filter from disk, and verifies each and that they agree.
    pub fn read(input: &Input, database: u64) -> Result<Parts> {
        let header = input.header(FileKind::Klog, database)?;
        let family = u32::try_from(header.a).ok().filter(|_| header.b == 0).ok_or_else(|| {
            input
                .damage(0, Error::corruption("a klog header names no family, or an unused field is not zero"))
        })?;
        let footer = read_footer(input)?;
        let ((summary, order), sketch, expiries, operands) =
            part(input, footer.properties, FrameKind::Properties, |raw| {
                let (sketch, expiries) = (props::sketch(&raw)?, props::expiries(&raw)?);
                Ok((props::decode(&raw)?, sketch, expiries, props::operands(&raw)?))
            })?;
        let index = match footer.index {
            (0, 0) => Index::empty(),
            place => part_with_slack(input, place, FrameKind::Index, |raw| {
                Index::decode(raw, footer.data(), order)
            })?,
        };
        let ranges = match footer.ranges() {
            (0, 0) => Fragments::default(),
            place => part(input, place, FrameKind::Ranges, |raw| Fragments::decode(&raw, order))?,
        };
        if RangeSummary::of(&ranges) != summary.ranges {
            let e = Error::corruption("the properties are not those of the range tombstones");
            return Err(input.damage(footer.properties.0, e));
        }
        let filter = match footer.filter {
            (0, 0) => None,
            // Equal keys may have different hashes: then a filter, whoever wrote it, says nothing.
            _ if !order.can_filter() => None,
            place => Some(part(input, place, FrameKind::Filter, |raw| Filter::decode(&raw))?),
        };
        if summary.entries != footer.entries || index.len() as u64 != footer.blocks {
            let e = Error::corruption("footer, index and properties disagree").expected(
                format_args!("{} entries in {} blocks", footer.entries, footer.blocks),
                format_args!("{} in {}", summary.entries, index.len()),
            );
            return Err(input.damage(footer.properties.0, e));
        }
        let summary = KlogSummary { bytes: input.bytes(), ..summary };
        let (family, ranges, expiries) = (FamilyId(family), Arc::new(ranges), Arc::new(expiries));
        Ok(Parts { family, footer, summary, order, index, filter, sketch, expiries, operands, ranges })
    }
}

fn read_footer(input: &Input) -> Result<Footer> {
    let least = (HEADER_BYTES + FOOTER_BYTES) as u64;
    if input.bytes() < least {
        let e = Error::corruption("the file is too short for a klog").expected(least, input.bytes());
        return Err(input.damage(input.bytes(), e));
    }
    let offset = input.bytes() - FOOTER_BYTES as u64;
    let raw = input.read(offset, FOOTER_BYTES as u64)?;
    Footer::decode(&raw, input.id(), offset).map_err(|e| input.damage(offset, e))
}

fn part<T>(input: &Input, place: Place, kind: FrameKind, decode: impl Fn(Vec<u8>) -> Result<T>) -> Result<T> {
    unpack(input, place, kind, 0).and_then(decode).map_err(|e| input.damage(place.0, e))
}

fn part_with_slack<T>(
    input: &Input,
    place: Place,
    kind: FrameKind,
    decode: impl Fn(Vec<u8>) -> Result<T>,
) -> Result<T> {
    unpack(input, place, kind, Block::SLACK).and_then(decode).map_err(|e| input.damage(place.0, e))
}

fn unpack(input: &Input, place: Place, kind: FrameKind, slack: usize) -> Result<Vec<u8>> {
    let bytes = input.read(place.0, place.1)?;
    Frame::decode(input.id(), place.0, &bytes, kind)?.unpack(slack)
}

impl KlogReader {
    /// Opens a klog that the manifest says is `bytes` long, and verifies everything but the data blocks.
    #[allow(clippy::too_many_arguments)]
    pub fn open(
        dir: &dyn Dir,
        id: FileId,
        database: u64,
        bytes: u64,
        cache: Arc<BlockCache>,
        counters: Arc<Counters>,
    ) -> Result<KlogReader> {
        Self::over(Input::open(dir, id, FileKind::Klog, bytes)?, database, cache, counters)
    }

    /// The same, through a bounded number of open files.
    pub fn shared(
        handles: &Arc<Handles>,
        id: FileId,
        database: u64,
        bytes: u64,
        cache: Arc<BlockCache>,
        counters: Arc<Counters>,
    ) -> Result<KlogReader> {
        Self::over(Input::shared(handles, id, FileKind::Klog, bytes)?, database, cache, counters)
    }

    pub(crate) fn over(
        input: Input,
        database: u64,
        cache: Arc<BlockCache>,
        counters: Arc<Counters>,
    ) -> Result<KlogReader> {
        let parts = Parts::read(&input, database)?;
        Ok(Self::with_parts(input, database, parts, (cache, counters)))
    }

    pub(super) fn with_parts(
        input: Input,
        database: u64,
        parts: Parts,
        (cache, counters): (Arc<BlockCache>, Arc<Counters>),
    ) -> KlogReader {
        let cache = FileBlocks::new(cache, input.id(), parts.index.len());
        KlogReader {
            input,
            database,
            parts,
            cache,
            counters,
            stamp: AtomicU64::new(0),
            stamped_ranges: OnceLock::new(),
            passed: AtomicU64::new(0),
        }
    }

    /// Scans passed so many more tombstones in it.
    pub fn pass(&self, tombstones: u64) {
        self.passed.fetch_add(tombstones, Relaxed);
    }
    /// Tombstones in it that scans passed since it was opened, each as often as it was.
    pub fn passed(&self) -> u64 {
        self.passed.load(Relaxed)
    }

    /// The newest version of `key` that is not newer than `at`. `hash` is the key's
    /// [`filter_hash`](KeyOrder::filter_hash), computed once for all files.
    pub fn get(&self, key: &[u8], hash: u64, at: SeqNo) -> Result<Option<(SeqNo, Found)>> {
        let Some(i) = self.block_for(key, hash, at) else { return Ok(None) };
        match self.cache.with(i, |block| self.answer(block, i, key, at, Found::of)) {
            Some(answer) => {
                self.counters.cache_hits.add(1);
                Ok(answer)
            }
            None => self.get_missed(i, key, at),
        }
    }

    /// The same for one of many keys that come in order: the block that the last one was found in is at hand.
    pub fn get_near(
        &self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        near: &mut Option<Near>,
    ) -> Result<Option<(SeqNo, Found)>> {
        if let Some(n) = near.as_mut().filter(|n| n.close && n.file == self.id()) {
            let entry = n.block.lower_bound(self.parts.order, key, at);
            // Between two entries of one block there is room in no other block.
            if entry > 0 && entry < n.block.len() {
                return Ok(if n.block.key_is(self.parts.order, entry, key) {
                    self.seen(&n.block, entry, at, Found::of)
                } else {
                    None
                });
            }
            n.close = false;
        }
        self.find(key, hash, at, |i| {
            if let Some(n) = near.as_mut().filter(|n| n.file == self.id() && n.number == i) {
                n.close = true;
                return Ok(Arc::clone(&n.block));
            }
            let held = near.take().map_or(0, |n| n.loaded);
            let loaded = held + u64::from(!self.cache.has(i));
            let block = self.block(i, true, Cause::Get)?;
            *near =
                Some(Near { file: self.id(), number: i, block: Arc::clone(&block), loaded, close: false });
            Ok(block)
        })
    }

    /// Tells the file system that the look-up of `key` is going to read its block, unless that is cached or the `last` one
    /// announced.
    pub fn announce(&self, key: &[u8], hash: u64, at: SeqNo, last: &mut Option<(FileId, usize)>) {
        if self.parts.filter.as_ref().is_some_and(|f| !f.may_hold(hash)) {
            return;
        }
        let i = self.parts.index.find(self.parts.order, key, at);
        if i < self.parts.index.len() && *last != Some((self.id(), i)) {
            *last = Some((self.id(), i));
            if !self.cache.has(i) {
                let (offset, length) = self.parts.index.place(i);
                self.input.will_need(offset, length);
            }
        }
    }

    #[inline]
    pub(super) fn find(
        &self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        block: impl FnOnce(usize) -> Result<Arc<Block>>,
    ) -> Result<Option<(SeqNo, Found)>> {
        let Some(i) = self.block_for(key, hash, at) else { return Ok(None) };
        let block = block(i)?;
        Ok(self.answer(&block, i, key, at, Found::of))
    }

    /// The one data block that may hold the newest version of `key` that is not newer than `at`.
    #[inline]
    fn block_for(&self, key: &[u8], hash: u64, at: SeqNo) -> Option<usize> {
        if self.parts.filter.as_ref().is_some_and(|f| !f.may_hold(hash)) {
            self.counters.filter_negatives.add(1);
            return None;
        }
        let i = self.parts.index.find(self.parts.order, key, at);
        if i == self.parts.index.len() {
            self.count_miss(key, i, None);
            return None;
        }
        Some(i)
    }

    /// What data block `i`, which is at hand, says about the key.
    #[inline]
    pub(super) fn answer(
        &self,
        block: &Block,
        i: usize,
        key: &[u8],
        at: SeqNo,
        found: impl FnOnce(&Block, usize) -> Found,
    ) -> Option<(SeqNo, Found)> {
        let order = self.parts.order;
        let by_print = block.find_by_print(order, key, at);
        let entry = by_print.unwrap_or_else(|| block.lower_bound(order, key, at));
        if by_print.is_some() || (entry < block.len() && block.key_is(order, entry, key)) {
            return self.seen(block, entry, at, found);
        }
        self.count_miss(key, i, Some((block, entry)));
        None
    }

    /// An entry as a reader at `at` sees it: under the stamp, if there is one, it may be too new.
    fn seen(
        &self,
        block: &Block,
        entry: usize,
        at: SeqNo,
        found: impl FnOnce(&Block, usize) -> Found,
    ) -> Option<(SeqNo, Found)> {
        let seq = self.seq_of(block.seq(entry));
        (seq <= at).then(|| (seq, found(block, entry)))
    }

    /// From now on all entries have this sequence number: a table that was loaded, whose number was not known when it was
    /// written. Its entries are stored under number 0, one for each key. Its range tombstones come right before them: they hide
    /// none of its own entries. Called before any reader of the tree sees it.
    pub fn stamp(&self, seq: SeqNo) {
        if !self.parts.ranges.is_empty() {
            let _ = self.stamped_ranges.set(Arc::new(self.parts.ranges.under(seq.prev())));
        }
        self.stamp.store(seq.0, Release);
    }
    /// The stamp, if there is one.
    #[inline]
    pub fn stamped(&self) -> Option<SeqNo> {
        match self.stamp.load(Acquire) {
            0 => None,
            seq => Some(SeqNo(seq)),
        }
    }
    /// The sequence number of an entry that is stored under `stored`.
    #[inline]
    pub fn seq_of(&self, stored: SeqNo) -> SeqNo {
        self.stamped().unwrap_or(stored)
    }

    /// Up to which stored number a reader at `at` sees entries; `Some(None)`: all of them; `None`: none.
    #[inline]
    pub(super) fn sees(&self, at: SeqNo) -> Option<Option<SeqNo>> {
        match self.stamped() {
            None => Some(Some(at)),
            Some(stamp) => (stamp <= at).then_some(None),
        }
    }

    /// Counts a false positive of the filter: nothing was found, and not because all versions are too new.
    fn count_miss(&self, key: &[u8], i: usize, at: Option<(&Block, usize)>) {
        let has_newer = match at {
            Some((block, entry)) if entry > 0 => block.key_is(self.parts.order, entry - 1, key),
            _ => i > 0 && self.parts.index.separator_is(self.parts.order, i - 1, key),
        };
        if self.parts.filter.is_some() && !has_newer {
            self.counters.filter_false_positives.add(1);
        }
    }

    /// Data block `i`, if the cache has it.
    #[inline]
    pub(super) fn cached(&self, i: usize) -> Option<Arc<Block>> {
        let block = self.cache.get(i)?;
        self.counters.cache_hits.add(1);
        Some(block)
    }

    /// Data block `i`, from the cache or from disk.
    pub(super) fn block(&self, i: usize, fill_cache: bool, cause: Cause) -> Result<Arc<Block>> {
        match self.cached(i) {
            Some(block) => Ok(block),
            None => {
                let kept = fill_cache && self.cache.admits(i, false);
                self.missed(i, kept, |kept| self.read_block(i, cause, kept))
            }
        }
    }

    /// Data block `i`, which the cache has not; `read` reads it, to be `kept` in the cache or not.
    pub(super) fn missed(
        &self,
        i: usize,
        kept: bool,
        read: impl FnOnce(bool) -> Result<Block>,
    ) -> Result<Arc<Block>> {
        self.counters.cache_misses.add(1);
        let block = Arc::new(read(kept)?);
        if kept {
            self.cache.insert(i, Arc::clone(&block));
        }
        Ok(block)
    }

    /// Drops its blocks from the cache. Whoever still reads it may go on.
    pub fn forget_blocks(&self) {
        self.cache.forget();
    }

    /// Counts a read of data blocks.
    pub(super) fn count_block_read(&self, cause: Cause, bytes: u64) {
        self.counters.klog_bytes_read.add(bytes);
        self.counters.io.read(cause, bytes);
    }
    /// Counts a look-up of which the cache had nothing.
    pub(super) fn count_cache_miss(&self) {
        self.counters.cache_misses.add(1);
    }

    /// The file.
    pub fn id(&self) -> FileId {
        self.input.id()
    }
    /// Its range tombstones.
    pub fn ranges(&self) -> &Arc<Fragments> {
        self.stamped_ranges.get().unwrap_or(&self.parts.ranges)
    }
    /// The family it was written for. A clone of that family may share it.
    pub fn family(&self) -> FamilyId {
        self.parts.family
    }
    /// The order of its keys.
    #[inline]
    pub fn order(&self) -> KeyOrder {
        self.parts.order
    }
    /// Memory held outside the block cache.
    pub fn memory_bytes(&self) -> u64 {
        let filter = self.parts.filter.as_ref().map_or(0, Filter::memory_bytes);
        let sketch = self.parts.sketch.as_ref().map_or(0, |s| s.raw().len() as u64);
        size_of::<KlogReader>() as u64
            + self.cache.memory_bytes()
            + self.parts.index.memory_bytes()
            + filter
            + sketch
            + self.parts.expiries.memory_bytes()
    }
    /// Memory of its filter, a part of [`KlogReader::memory_bytes`].
    pub fn filter_bytes(&self) -> u64 {
        self.parts.filter.as_ref().map_or(0, Filter::memory_bytes)
    }
    /// What the file says about itself; `checksum` is 0, which only the manifest knows.
    pub fn summary(&self) -> &KlogSummary {
        &self.parts.summary
    }
    /// The sketch of its keys; tables of few keys have none.
    pub fn sketch(&self) -> Option<&Sketch> {
        self.parts.sketch.as_ref()
    }
    /// How many of its entries are operands.
    pub fn operands(&self) -> u64 {
        self.parts.operands
    }
    /// When its entries expire.
    pub fn expiries(&self) -> &Arc<Expiries> {
        &self.parts.expiries
    }
    /// Whether the filter lets the hash of a key pass. Without a filter everything passes.
    pub fn may_hold(&self, hash: u64) -> bool {
        self.parts.filter.as_ref().is_none_or(|f| f.may_hold(hash))
    }
    /// The data blocks that a range of keys touches: the first, the last, and the bytes from the one to the other;
    /// `None` for a bound: to that end. No block is read.
    pub fn span(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Option<(usize, usize, u64)> {
        let index = &self.parts.index;
        let first = lower.map_or(0, |k| index.find(self.parts.order, k, SeqNo::MAX));
        let last = upper.map_or(usize::MAX, |k| index.find(self.parts.order, k, SeqNo::ZERO));
        let last = last.min(index.len().checked_sub(1)?);
        if first > last {
            return None;
        }
        let (start, (end, length)) = (index.place(first).0, index.place(last));
        Some((first, last, end + length - start))
    }
    /// Number of data blocks.
    pub fn block_count(&self) -> usize {
        self.parts.index.len()
    }
    /// Offset, frame length and separator of every data block.
    pub fn blocks(&self) -> Result<Vec<(u64, u64, Vec<u8>)>> {
        let index = &self.parts.index;
        Ok((0..index.len()).map(|i| (index.place(i).0, index.place(i).1, index.separator(i).0)).collect())
    }
}
