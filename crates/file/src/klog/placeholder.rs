//! Placeholder for a klog that could not be opened: its position in the tree is known, its contents
//! are not. A single block covers all its keys, and reading that block fails with the open error;
//! so a key is never reported as absent.

use super::layout::FOOTER_BYTES;
use super::properties::KlogSummary;
use super::reader::{KlogMetadata, KlogReader};
use crate::block::TableBlock;
use crate::block::frame::FRAME_OVERHEAD_BYTES;
use crate::block_cache::BlockCache;
use crate::index::{IndexReader, IndexWriter};
use crate::table_file_reader::TableFileReader;
use perigee_base::{
    Counters, Error, FamilyId, FileId, FileKind, HEADER_BYTES, KeyComparator, Result, SeqNo,
};
use std::sync::Arc;

impl KlogReader {
    /// Builds a reader for klog `id`, of which only the summary in the manifest is known. Every
    /// read fails with `cause`.
    pub fn placeholder(
        id: FileId,
        database: u64,
        summary: &KlogSummary,
        comparator: KeyComparator,
        cause: Error,
        cache: Arc<BlockCache>,
        counters: Arc<Counters>,
    ) -> Result<KlogReader> {
        let (start, length) = (HEADER_BYTES as u64, FRAME_OVERHEAD_BYTES as u64);
        let mut index = IndexWriter::new(comparator);
        index.add_block((&summary.last_key, SeqNo::ZERO), length);
        let mut raw = Vec::new();
        index.finish(&mut raw);
        raw.resize(raw.len() + TableBlock::SLACK, 0);
        let end = start + length;
        let bytes = summary.bytes.max(end + FOOTER_BYTES as u64);
        let metadata = KlogMetadata {
            operand_count: 0,
            family: FamilyId::DEFAULT,
            comparator,
            index: IndexReader::decode(raw, start..end, comparator)?.covering_all_keys(),
            filter: None,
            sketch: None,
            expiries: Arc::default(),
            // Unknown as well: every read fails before it could use them.
            ranges: Arc::default(),
        };
        let input = TableFileReader::placeholder(id, FileKind::Klog, bytes, cause);
        Ok(KlogReader::with_metadata(input, database, metadata, cache, counters))
    }
}
