//! Writes a klog: sorted entries collected into blocks, then filter, index, properties and footer.
//!
//! Invariants: entries are added strictly in entry order (checked); a separator is written only
//! when the first entry after it is known.

use super::adaptive_compression::AdaptiveCompression;
use super::layout::{FOOTER_BYTES, Footer};
use super::properties::{self, KlogSummary, PropertiesCollector};
use crate::block::TableBlock;
use crate::block::frame::{self, Frame, FrameKind, FramePosition};
use crate::block::layout::ENTRIES_MAX;
use crate::block::writer::BlockWriter;
use crate::compression::{Compression, Compressor, StoredBytes};
use crate::filename::file_name;
use crate::filter::FilterWriter;
use crate::index::{self, IndexWriter};
use crate::key_sketch::{KeySketch, REGISTERS};
use crate::limits::BLOCK_BYTES_MAX;
use crate::range_tombstones::RangeTombstones;
use crate::table_file_writer::TableFileWriter;
use perigee_base::bug::Bug;
use perigee_base::checksum::key_hash;
use perigee_base::limits::{BLOCK_RAW_BYTES_MAX, INLINE_VALUE_BYTES_MAX, KEY_BYTES_MAX};
use perigee_base::{
    BlockHandle, EntryRef, Error, FamilyId, FileHeader, FileId, FileKind, KeyComparator, Result,
    SeqNo, bug, cmp_entry,
};
use perigee_env::{Dir, WritableFile};
use std::sync::Arc;

const _: () = assert!(
    BLOCK_BYTES_MAX + KEY_BYTES_MAX + INLINE_VALUE_BYTES_MAX + (64 << 10) < BLOCK_RAW_BYTES_MAX,
    "an entry fits after a block that is almost full"
);
/// Approximate size of everything except data, filter and index.
const METADATA_BYTES_ESTIMATE: u64 = 300;

/// Options of a klog.
#[derive(Clone, Debug)]
pub struct KlogOptions {
    /// Database id (set by the table cache).
    pub database: u64,
    /// The column family that the entries belong to.
    pub family: FamilyId,
    /// The comparator of its keys.
    pub comparator: KeyComparator,
    /// Maximum raw size of a data block, unless a single entry is larger.
    pub block_bytes: usize,
    /// How blocks are compressed.
    pub compression: Compression,
    /// Filter bits per distinct key; 0 writes no filter. Comparators without a canonical form never
    /// have filters.
    pub filter_bits: u8,
}

/// Returns true if the block has a size and codec that this table could have given it.
fn can_copy_block(
    block_bytes: usize,
    adaptive: &AdaptiveCompression,
    block: &TableBlock,
    stored: &Frame<'_>,
) -> bool {
    let size_fits = stored.raw_bytes * 2 >= block_bytes
        && (block.len() == 1 || stored.raw_bytes <= block_bytes * 4);
    size_fits && adaptive.may_use_codec(stored.codec)
}

/// Collects the distinct keys for the filter and the sketch.
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

/// Writes one klog. After an error it cannot be used any more; the caller removes the file.
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
    /// The frame length of a copied block whose separator is not yet known.
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
        let header = FileHeader {
            kind: FileKind::Klog,
            database: options.database,
            file: id,
            a: u64::from(options.family.0),
            b: 0,
        };
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

    /// Adds the next entry; an entry out of order or too large is an internal error.
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

    /// Returns true if a block of another table may be copied as stored: it has a codec that this
    /// table would use, it is not small, and the unfinished block before it is not small either,
    /// unless `many` such blocks follow each other.
    pub fn accepts_block(&self, block: &TableBlock, stored: &Frame<'_>, many: bool) -> bool {
        let block_bytes = self.options.block_bytes;
        let previous_is_full =
            self.block.is_empty() || many || self.block.estimated_bytes() * 2 >= block_bytes;
        previous_is_full && can_copy_block(block_bytes, &self.adaptive, block, stored)
    }
    /// Like [`KlogWriter::accepts_block`], for a table that is not yet created.
    pub fn would_accept_block(
        options: &KlogOptions,
        block: &TableBlock,
        stored: &Frame<'_>,
    ) -> bool {
        let block_bytes = options.block_bytes;
        can_copy_block(
            block_bytes,
            &AdaptiveCompression::new(options.compression, block_bytes),
            block,
            stored,
        )
    }

    /// Adds all entries of a block that is stored as `stored` in another table; its checksum must
    /// have been verified.
    pub fn copy_block(&mut self, block: &TableBlock, stored: &Frame<'_>) -> Result<()> {
        if self.copied_frame_bytes.is_some() || !self.block.is_empty() {
            let mut first = Vec::new();
            block.key(0).copy_to(&mut first);
            self.finish_block(&first)?;
        }
        if self.properties.add_block(block, |key| self.keys.add(key)).is_err() {
            return Err(Error::internal("entries are not in order").in_file(self.output.name()));
        }
        let position = self.next_position();
        check!(
            self.block.is_empty() && self.copied_frame_bytes.is_none(),
            "the block before a copied one is finished",
            position.offset
        );
        self.copied_frame_bytes = Some(frame::append_stored_frame(
            self.output.buffer(),
            position,
            FrameKind::Data,
            stored,
        ));
        self.output.flush_if_full()
    }

    /// Finishes the current block; `next` is the first key after it.
    fn finish_block(&mut self, next: &[u8]) -> Result<()> {
        let last = self.properties.last_entry().expect("a block being finished has an entry");
        let comparator = self.options.comparator;
        let (key, seq) = index::block_separator(comparator, last, next);
        check_slow!(
            cmp_entry(comparator, last, (&key, seq)).is_le(),
            "a separator is not before the last entry of its block",
            last,
            key,
            seq
        );
        check_slow!(
            comparator.cmp(&key, next).is_lt()
                || (comparator.keys_equal(&key, next) && seq == last.1),
            "a separator is before the first entry of the next block",
            key,
            next
        );
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
        let frame = self.write_frame(FrameKind::Data, self.adaptive.compression())?;
        let bytes = StoredBytes { raw: self.raw.len(), stored: frame.len as usize };
        check!(
            index::FRAME_LENGTHS.contains(&frame.len),
            "the index refers to frames that readers accept",
            frame
        );
        check_slow!(
            TableBlock::parse([&self.raw[..], &[0; TableBlock::SLACK]].concat())
                .and_then(|block| block.check_comparator(self.options.comparator))
                .is_ok(),
            "a written block can be read",
            frame
        );
        self.adaptive.record_block(bytes);
        self.index.add_block((separator, seq), frame.len);
        Ok(())
    }

    /// Returns the position of the next frame.
    fn next_position(&self) -> FramePosition {
        FramePosition { file: self.output.id(), offset: self.output.offset() }
    }

    /// Writes `self.raw` as a frame. Returns its handle.
    fn write_frame(&mut self, kind: FrameKind, compression: Compression) -> Result<BlockHandle> {
        let position = self.next_position();
        let len = frame::append_frame(
            self.output.buffer(),
            position,
            kind,
            &self.raw,
            compression,
            &mut self.compressor,
        )
        .map_err(|e| e.at(self.output.name(), position.offset))?;
        self.output.flush_if_full()?;
        Ok(BlockHandle { offset: position.offset, len })
    }

    /// Returns the approximate file size if it were finished now, in bytes.
    pub fn estimated_file_bytes(&self) -> u64 {
        let block = if self.block.is_empty() { 0 } else { self.block.estimated_bytes() };
        self.output.offset()
            + (block + self.keys.filter.raw_bytes() + self.index.estimated_bytes()) as u64
            + METADATA_BYTES_ESTIMATE
    }

    /// Sets the number of buffered bytes that triggers an append to the file.
    pub fn set_buffer_bytes(&mut self, bytes: usize) {
        self.output.set_buffer_bytes(bytes);
    }
    /// Returns the memory used until the klog is finished, in bytes: buffers, index, filter.
    pub fn memory_bytes(&self) -> u64 {
        let buffers =
            self.output.memory_bytes() + self.raw.capacity() + self.compressor.memory_bytes();
        let parts =
            self.block.memory_bytes() + self.index.memory_bytes() + self.keys.filter.memory_bytes();
        (buffers + parts + REGISTERS + size_of::<KlogWriter>()) as u64
    }

    /// Returns the number of append calls so far; finishing makes one more.
    pub fn append_calls(&self) -> u64 {
        self.output.append_calls()
    }

    /// Returns the bytes buffered for the index; its raw form exceeds them at most by its columns.
    pub fn pending_index_bytes(&self) -> usize {
        self.index.buffered_bytes()
    }

    /// Sets the range tombstones of the klog.
    pub fn set_range_tombstones(&mut self, ranges: RangeTombstones) {
        self.properties.add_range_tombstones(&ranges);
        self.ranges = ranges;
    }

    /// Writes the rest and syncs the file; the caller syncs the directory. Fails if there is
    /// neither an entry nor a range tombstone.
    pub fn finish(self) -> Result<KlogSummary> {
        self.finish_with_deferred_sync(None)
    }

    /// Like [`KlogWriter::finish`]; with `deferred_syncs`, adds the file to that list instead of
    /// syncing it.
    pub fn finish_with_deferred_sync(
        mut self,
        deferred_syncs: Option<&mut Vec<Arc<dyn WritableFile>>>,
    ) -> Result<KlogSummary> {
        let last = self.properties.last_entry().map(|(key, _)| key.to_vec());
        if last.is_none() && self.ranges.is_empty() {
            return Err(Error::internal("a klog without entries or range tombstones")
                .in_file(self.output.name()));
        }
        if let Some(last) = &last {
            self.write_block(last, SeqNo::ZERO)?;
        }
        let ranges = self.write_ranges()?;
        let filter = if last.is_some() { self.write_filter()? } else { BlockHandle::ABSENT };
        let blocks = self.index.len() as u64;
        check!(
            self.block.is_empty() && self.copied_frame_bytes.is_none(),
            "every block of a finished klog is in its index",
            blocks
        );
        let mut index = BlockHandle::ABSENT;
        if last.is_some() {
            self.index.finish(&mut self.raw);
            index = self.write_frame(FrameKind::Index, self.options.compression)?;
        }
        let comparator = self.options.comparator;
        let (expiries, operands) =
            (self.properties.expiries().clone(), self.properties.operand_count());
        let summary = std::mem::replace(&mut self.properties, PropertiesCollector::new(comparator))
            .into_summary();
        check!(
            self.keys.count <= summary.entries && blocks <= summary.entries,
            "a key and a block have at least one entry",
            self.keys.count,
            blocks,
            summary.entries
        );
        check!(
            summary.smallest_seq <= summary.largest_seq,
            "the sequence numbers of a klog are a range",
            summary
        );
        self.raw = properties::encode(&summary, comparator);
        if self.keys.count >= crate::limits::SKETCHED_KEYS_MIN {
            properties::append_sketch(&mut self.raw, &self.keys.sketch);
        }
        properties::append_expiries(&mut self.raw, &expiries);
        properties::append_operands(&mut self.raw, operands);
        let properties = self.write_frame(FrameKind::Properties, Compression::None)?;
        let footer = Footer {
            filter,
            index,
            properties,
            block_count: blocks,
            entry_count: summary.entries,
            ranges_len: ranges,
        };
        let footer_offset = self.output.offset();
        check!(
            footer.check(footer_offset).is_ok(),
            "the parts of a written klog follow each other",
            footer,
            footer_offset
        );
        let end = footer.encode(self.output.id(), footer_offset);
        self.output.buffer().extend_from_slice(&end);
        let (bytes, checksum) = self.output.finish(deferred_syncs)?;
        check!(bytes == footer_offset + FOOTER_BYTES as u64, "a klog ends with its footer", bytes);
        Ok(KlogSummary { bytes, checksum, ..summary })
    }

    /// Writes the ranges frame. Returns its length; 0 if there are no range tombstones.
    fn write_ranges(&mut self) -> Result<u64> {
        if self.ranges.is_empty() {
            return Ok(0);
        }
        self.raw = self.ranges.encode();
        Ok(self.write_frame(FrameKind::Ranges, self.options.compression)?.len)
    }

    /// Writes the filter frame, uncompressed, because filter bits do not compress.
    fn write_filter(&mut self) -> Result<BlockHandle> {
        if !self.keys.filter.is_enabled() {
            return Ok(BlockHandle::ABSENT);
        }
        // Frees the hashes before the filter is copied to the output buffer.
        self.raw = std::mem::replace(&mut self.keys.filter, FilterWriter::new(0)).build();
        self.write_frame(FrameKind::Filter, Compression::None)
    }
}
