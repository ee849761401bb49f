//! The stand-in for a klog that could not be opened: its place in the tree is known, its contents are not. One block covers
//! all its keys, and reading that block answers with the reason; so "not here" is never said.

use super::layout::{FOOTER_BYTES, Footer};
use super::props::KlogSummary;
use super::reader::{KlogReader, Parts};
use crate::block::Block;
use crate::block::frame::OVERHEAD_BYTES;
use crate::cache::BlockCache;
use crate::index::{Index, IndexWriter};
use crate::input::Input;
use perigee_base::format::{FileKind, HEADER_BYTES};
use perigee_base::stats::Counters;
use perigee_base::{Error, FamilyId, FileId, KeyOrder, Result, SeqNo};
use std::sync::Arc;

impl KlogReader {
    /// Stands for klog `id` of which only the summary in the manifest is known.
    pub fn broken(
        (id, database): (FileId, u64),
        summary: &KlogSummary,
        order: KeyOrder,
        why: Error,
        shared: (Arc<BlockCache>, Arc<Counters>),
    ) -> Result<KlogReader> {
        let (start, length) = (HEADER_BYTES as u64, OVERHEAD_BYTES as u64);
        let mut index = IndexWriter::new(order);
        index.add((&summary.last_key, SeqNo::ZERO), length);
        let mut raw = Vec::new();
        index.finish(&mut raw);
        raw.resize(raw.len() + Block::SLACK, 0);
        let end = start + length;
        let footer = Footer {
            filter: (0, 0),
            index: (end, 0),
            properties: (end, 0),
            blocks: 1,
            entries: summary.entries,
            ranges: 0,
        };
        let bytes = summary.bytes.max(end + FOOTER_BYTES as u64);
        let parts = Parts {
            operands: 0,
            family: FamilyId::DEFAULT,
            footer,
            summary: summary.clone(),
            order,
            index: Index::decode(raw, start..end, order)?.over_everything(),
            filter: None,
            sketch: None,
            expiries: Arc::default(),
            // Unknown too: every key is answered with the reason before they could matter.
            ranges: Arc::default(),
        };
        let input = Input::broken(id, FileKind::Klog, bytes, why);
        Ok(KlogReader::with_parts(input, database, parts, shared))
    }
}
