//! Writes a klog: entries in order, gathered into blocks, then filter, index, properties and
//! footer.
//!
//! Invariants: entries come strictly in entry order (checked); a separator is written only when the
//! first entry behind it is known.

use super::adaptive_compression::AdaptiveCompression;
use super::layout::Footer;
use super::properties::{self, KlogSummary, PropertiesCollector};
use crate::block::TableBlock;
use crate::block::frame::{self, Frame, FrameKind};
use crate::block::layout::ENTRIES_MAX;
use crate::block::writer::BlockWriter;
use crate::compression::{CompressionMethod, Compressor};
use crate::filename::file_name;
use crate::filter::FilterWriter;
use crate::index::{self, IndexWriter};
use crate::key_sketch::{KeySketch, REGISTERS};
use crate::range_tombstones::RangeTombstones;
use crate::table_file_writer::{TableFileWriter, table_header};
use perigee_base::bug::{self, Bug};
use perigee_base::checksum::key_hash;
use perigee_base::file_header::FileKind;
use perigee_base::limits::{BLOCK_RAW_BYTES_MAX, INLINE_VALUE_BYTES_MAX, KEY_BYTES_MAX};
use perigee_base::{EntryRef, Error, FamilyId, FileId, KeyComparator, Result, SeqNo};
use perigee_env::{Dir, WritableFile};
use std::sync::Arc;

/// Largest block size that may be asked for, and most bytes gathered for a block: with one entry
/// more and the columns that still fits under the readers' bound.
const BLOCK_BYTES_MAX: usize = BLOCK_RAW_BYTES_MAX / 2;
/// What a file holds beside data, filter and index, about.
const METADATA_BYTES_ESTIMATE: u64 = 300;

/// What a klog is written with.
#[derive(Clone, Debug)]
pub struct KlogOptions {
    /// The database's id (the shelf fills it in).
    pub database: u64,
    /// The family the entries belong to.
    pub family: FamilyId,
    /// The order of its keys.
    pub comparator: KeyComparator,
    /// Raw bytes that a data block stays under, unless one entry is larger.
    pub block_bytes: usize,
    /// How blocks are compressed.
    pub compression: CompressionMethod,
    /// Filter bits per distinct key; 0 writes no filter, and so does an order without a canonical
    /// form.
    pub filter_bits: u8,
}

/// Whether a block is of a size and under a codec that it could have here.
fn can_copy_block(
    usual: usize,
    dense: &AdaptiveCompression,
    block: &TableBlock,
    stored: &Frame<'_>,
) -> bool {
    let large =
        stored.raw_bytes * 2 >= usual && (block.len() == 1 || stored.raw_bytes <= usual * 4);
    large && dense.may_use_codec(stored.codec)
}

/// What is made of the distinct keys.
#[derive(Debug)]
struct DistinctKeyCollector {
    comparator: KeyComparator,
    filter: FilterWriter,
    sketch: KeySketch,
    count: u64,
}

impl DistinctKeyCollector {
    fn new(options: &KlogOptions) -> DistinctKeyCollector {
        let bits = if options.comparator.supports_filters() { options.filter_bits } else { 0 };
        DistinctKeyCollector {
            comparator: options.comparator,
            filter: FilterWriter::new(bits),
            sketch: KeySketch::new(),
            count: 0,
        }
    }
    fn add(&mut self, key: &[u8]) {
        let raw = bug::is_active(Bug::FilterHashesRawKey);
        let hash = if raw { key_hash(key) } else { self.comparator.filter_hash(key) };
        self.count += 1;
        self.sketch.add(hash);
        if self.filter.is_enabled() {
            self.filter.add(hash);
        }
    }
}

/// Writes one klog. After an error it is of no more use; the caller removes the file.
#[derive(Debug)]
pub struct KlogWriter {
    output: TableFileWriter,
    options: KlogOptions,
    block: BlockWriter,
    index: IndexWriter,
    keys: DistinctKeyCollector,
    properties: PropertiesCollector,
    ranges: RangeTombstones,
    adaptive: AdaptiveCompression,
    compressor: Compressor,
    /// The raw form of the part being written.
    raw: Vec<u8>,
    /// The length of a block that was moved here and waits for its separator.
    copied_frame_bytes: Option<u64>,
}

impl KlogWriter {
    /// Creates the file.
    pub fn create(dir: &dyn Dir, id: FileId, options: KlogOptions) -> Result<KlogWriter> {
        Self::create_named(dir, &file_name(id, FileKind::Klog), id, options)
    }

    pub(super) fn create_named(
        dir: &dyn Dir,
        name: &str,
        id: FileId,
        options: KlogOptions,
    ) -> Result<KlogWriter> {
        if options.block_bytes > BLOCK_BYTES_MAX {
            return Err(Error::invalid("the block size is too large")
                .expected(format_args!("at most {BLOCK_BYTES_MAX}"), options.block_bytes));
        }
        let header =
            table_header(FileKind::Klog, options.database, id, u64::from(options.family.0));
        Ok(KlogWriter {
            output: TableFileWriter::create_named(dir, name, header)?,
            block: BlockWriter::new(options.comparator),
            index: IndexWriter::new(options.comparator),
            keys: DistinctKeyCollector::new(&options),
            properties: PropertiesCollector::new(options.comparator),
            ranges: RangeTombstones::default(),
            adaptive: AdaptiveCompression::new(options.compression, options.block_bytes),
            compressor: Compressor::new(),
            raw: Vec::new(),
            copied_frame_bytes: None,
            options,
        })
    }

    /// Adds the next entry; one that is out of order or too large is a bug of the caller.
    pub fn add(&mut self, e: EntryRef<'_>) -> Result<()> {
        let inline = e.value.inline_bytes().map_or(0, <[u8]>::len);
        if e.key.len() > KEY_BYTES_MAX || inline > INLINE_VALUE_BYTES_MAX {
            return Err(Error::internal("an entry is too large for a block")
                .expected(
                    format_args!("{KEY_BYTES_MAX} + {INLINE_VALUE_BYTES_MAX}"),
                    format_args!("{} + {inline}", e.key.len()),
                )
                .in_file(self.output.name()));
        }
        if self.copied_frame_bytes.is_some() || self.block_is_full(e.key, inline) {
            self.finish_block(e.key)?;
        }
        let Some(new_key) = self.properties.add_entry(e) else {
            return Err(Error::internal("entries are not in order").in_file(self.output.name()));
        };
        if new_key {
            self.keys.add(e.key);
        }
        self.block.add(e);
        Ok(())
    }

    /// Whether a block of another table may be moved here as it is stored: under the codec that it
    /// would get here, not small, and leaving no small one before it, unless `many` such blocks
    /// follow each other.
    pub fn accepts_block(&self, block: &TableBlock, stored: &Frame<'_>, many: bool) -> bool {
        let usual = self.options.block_bytes;
        let before = self.block.is_empty() || many || self.block.estimated_bytes() * 2 >= usual;
        before && can_copy_block(usual, &self.adaptive, block, stored)
    }
    /// The same for a table that is not begun.
    pub fn would_accept_block(
        options: &KlogOptions,
        block: &TableBlock,
        stored: &Frame<'_>,
    ) -> bool {
        let usual = options.block_bytes;
        can_copy_block(usual, &AdaptiveCompression::new(options.compression, usual), block, stored)
    }

    /// Adds all entries of a block, which lies in another table as `stored`, whose checksum was
    /// compared.
    pub fn copy_block(&mut self, block: &TableBlock, stored: &Frame<'_>) -> Result<()> {
        if self.copied_frame_bytes.is_some() || !self.block.is_empty() {
            let mut first = Vec::new();
            block.key(0).copy_to(&mut first);
            self.finish_block(&first)?;
        }
        if self.properties.add_block(block, |key| self.keys.add(key)).is_err() {
            return Err(Error::internal("entries are not in order").in_file(self.output.name()));
        }
        let place = (self.output.id(), self.output.offset());
        self.copied_frame_bytes =
            Some(frame::append_stored_frame(self.output.buffer(), place, FrameKind::Data, stored));
        self.output.flush_if_full()
    }

    /// Ends the block at hand, behind which comes the key `next`.
    fn finish_block(&mut self, next: &[u8]) -> Result<()> {
        let last = self.properties.last_entry().expect("a block that ends has a last entry");
        let (key, seq) = index::block_separator(self.options.comparator, last, next);
        self.write_block(&key, seq)
    }

    fn block_is_full(&self, key: &[u8], value_bytes: usize) -> bool {
        let block = &self.block;
        !block.is_empty()
            && (block.estimated_bytes_with(key, value_bytes) > self.adaptive.block_bytes()
                || block.buffered_bytes() > BLOCK_BYTES_MAX
                || block.len() >= ENTRIES_MAX)
    }

    fn write_block(&mut self, separator: &[u8], seq: SeqNo) -> Result<()> {
        if let Some(length) = self.copied_frame_bytes.take() {
            self.index.add_block((separator, seq), length);
            return Ok(());
        }
        self.block.finish(&mut self.raw);
        let (_, length) = self.write_frame(FrameKind::Data, self.adaptive.compression())?;
        self.adaptive.record_block(self.raw.len(), length as usize);
        self.index.add_block((separator, seq), length);
        Ok(())
    }

    /// Writes `self.raw`. Where it lies.
    fn write_frame(
        &mut self,
        kind: FrameKind,
        compression: CompressionMethod,
    ) -> Result<(u64, u64)> {
        let place = (self.output.id(), self.output.offset());
        let how = (compression, &mut self.compressor);
        let length = frame::append_frame(self.output.buffer(), place, kind, &self.raw, how)
            .map_err(|e| e.at(self.output.name(), place.1))?;
        self.output.flush_if_full()?;
        Ok((place.1, length))
    }

    /// Bytes of the file if it were finished now, about.
    pub fn estimated_file_bytes(&self) -> u64 {
        let block = if self.block.is_empty() { 0 } else { self.block.estimated_bytes() };
        self.output.offset()
            + (block + self.keys.filter.raw_bytes() + self.index.estimated_bytes()) as u64
            + METADATA_BYTES_ESTIMATE
    }

    /// Gathers so many bytes before the file system is called.
    pub fn set_buffer_bytes(&mut self, bytes: usize) {
        self.output.set_buffer_bytes(bytes);
    }
    /// Memory it holds, and will until it is finished: buffers, index, filter.
    pub fn memory_bytes(&self) -> u64 {
        let buffers =
            self.output.memory_bytes() + self.raw.capacity() + self.compressor.memory_bytes();
        let parts =
            self.block.memory_bytes() + self.index.memory_bytes() + self.keys.filter.memory_bytes();
        (buffers + parts + REGISTERS + size_of::<KlogWriter>()) as u64
    }

    /// Write calls so far; finishing makes one more.
    pub fn append_calls(&self) -> u64 {
        self.output.append_calls()
    }

    /// Bytes that the index takes so far; its raw form will not be longer by more than its columns.
    pub fn pending_index_bytes(&self) -> usize {
        self.index.buffered_bytes()
    }

    /// The range tombstones of the file.
    pub fn set_range_tombstones(&mut self, ranges: RangeTombstones) {
        self.properties.add_range_tombstones(&ranges);
        self.ranges = ranges;
    }

    /// Writes the rest and syncs the file; the directory is the caller's. A klog has at least one
    /// entry or range tombstone.
    pub fn finish(self) -> Result<KlogSummary> {
        self.finish_with_deferred_sync(None)
    }

    /// The same; the file goes to `later`, if there is such a list, for the caller to sync.
    pub fn finish_with_deferred_sync(
        mut self,
        later: Option<&mut Vec<Arc<dyn WritableFile>>>,
    ) -> Result<KlogSummary> {
        let last = self.properties.last_entry().map(|(key, _)| key.to_vec());
        if last.is_none() && self.ranges.is_empty() {
            return Err(Error::internal("a klog without entries").in_file(self.output.name()));
        }
        if let Some(last) = &last {
            self.write_block(last, SeqNo::ZERO)?;
        }
        let ranges = self.write_ranges()?;
        let filter = if last.is_some() { self.write_filter()? } else { (0, 0) };
        let blocks = self.index.len() as u64;
        let mut index = (0, 0);
        if last.is_some() {
            self.index.finish(&mut self.raw);
            index = self.write_frame(FrameKind::Index, self.options.compression)?;
        }
        let order = self.options.comparator;
        let (expiries, operands) =
            (self.properties.expiries().clone(), self.properties.operand_count());
        let summary =
            std::mem::replace(&mut self.properties, PropertiesCollector::new(order)).into_summary();
        self.raw = properties::encode(&summary, order);
        if self.keys.count >= properties::SKETCHED_KEYS_MIN {
            properties::append_sketch(&mut self.raw, &self.keys.sketch);
        }
        properties::append_expiries(&mut self.raw, &expiries);
        properties::append_operands(&mut self.raw, operands);
        let properties = self.write_frame(FrameKind::Properties, CompressionMethod::None)?;
        let footer = Footer {
            filter,
            index,
            properties,
            block_count: blocks,
            entry_count: summary.entries,
            ranges_len: ranges,
        };
        let end = footer.encode(self.output.id(), self.output.offset());
        self.output.buffer().extend_from_slice(&end);
        let (bytes, checksum) = self.output.finish(later)?;
        Ok(KlogSummary { bytes, checksum, ..summary })
    }

    /// The length of the frame; 0 if there is none.
    fn write_ranges(&mut self) -> Result<u64> {
        if self.ranges.is_empty() {
            return Ok(0);
        }
        self.raw = self.ranges.encode();
        Ok(self.write_frame(FrameKind::Ranges, self.options.compression)?.1)
    }

    /// A filter is noise to every codec, so it is stored as it is.
    fn write_filter(&mut self) -> Result<(u64, u64)> {
        if !self.keys.filter.is_enabled() {
            return Ok((0, 0));
        }
        // The hashes go before the filter is copied on its way out.
        self.raw = std::mem::replace(&mut self.keys.filter, FilterWriter::new(0)).build();
        self.write_frame(FrameKind::Filter, CompressionMethod::None)
    }
}
