//! Block pass-through: where no other source has a key within the key range of a block, and nothing
//! in the block can be hidden, dropped or rewritten, its stored bytes are copied into the new table
//! without compressing them again.
//!
//! Invariant: the output is what the pipeline would have written entry by entry, apart from block
//! boundaries. So a block is copied only if every entry's verdict is "keep"; all other verdicts are
//! left to `collapse`.

use super::collapse::VersionCollapser;
use super::output_writer::OutputWriter;
use super::split::TableSplitter;
use crate::scan::MergeCursor;
use perigee_base::Result;
use perigee_file::TableBlock;

/// Number of consecutive blocks that justify ending the current block early, which makes it small.
const BLOCKS_IN_A_ROW: usize = 4;

/// Decides if blocks may be copied.
#[derive(Debug)]
pub struct BlockPassThrough {
    enabled: bool,
    /// Values shorter than this are stored inline.
    threshold: usize,
    first: Vec<u8>,
    last: Vec<u8>,
}

/// Entries that were copied in a block.
#[derive(Clone, Copy, Debug)]
pub struct PassThroughCounts {
    /// Number of entries.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl BlockPassThrough {
    /// Creates a pass-through; `enabled`: no filter needs to see each entry. Values of `threshold`
    /// bytes and more are separated.
    pub fn new(enabled: bool, threshold: usize) -> BlockPassThrough {
        BlockPassThrough { enabled, threshold, first: Vec::new(), last: Vec::new() }
    }

    /// Copies the block that begins with the current entry, if there is one that may be copied.
    #[inline]
    pub fn pass_block(
        &mut self,
        source: &mut MergeCursor,
        collapse: &mut VersionCollapser<'_>,
        split: &mut TableSplitter,
        sink: &mut OutputWriter<'_>,
    ) -> Result<Option<PassThroughCounts>> {
        if !self.enabled {
            return Ok(None);
        }
        let Some((cursor, block, limit)) = source.passthrough_block() else { return Ok(None) };
        if !self.is_unchanged(block, collapse, split) {
            return Ok(None);
        }
        let counts = PassThroughCounts {
            entries: block.len() as u64,
            bytes: (block.key_bytes() + block.value_bytes()) as u64,
        };
        let seq = block.seq(block.len() - 1);
        let many_follow = cursor.blocks_end_before(BLOCKS_IN_A_ROW, limit);
        let copied = cursor.with_stored_frame(|stored| {
            if !sink.accepts_block(block, stored, many_follow) {
                return Ok(false);
            }
            let (table_bytes, index_bytes) = sink.pending_bytes();
            if let Some(at) = split.cut_before(&self.first, true, table_bytes, index_bytes) {
                sink.finish_table(at)?;
            }
            sink.copy_block(block, stored)?;
            Ok(true)
        })?;
        if !copied {
            return Ok(None);
        }
        collapse.record_passed_through(&self.last, seq);
        source.skip_block()?;
        Ok(Some(counts))
    }

    /// Returns true if every entry of the block goes unchanged into one table.
    fn is_unchanged(
        &mut self,
        block: &TableBlock,
        collapse: &mut VersionCollapser<'_>,
        split: &TableSplitter,
    ) -> bool {
        let is_inline =
            |i: usize| block.raw_value(i).len() < self.threshold || block.raw_value(i).is_empty();
        let all_inline = block.value_bytes() < self.threshold || (0..block.len()).all(is_inline);
        let seqs_unchanged = !collapse.rewrites_seqs() || block.has_single_seq();
        if !seqs_unchanged
            || !block.has_only_values()
            || !all_inline
            || !block.has_distinct_keys(collapse.comparator())
        {
            return false;
        }
        block.copy_key(0, &mut self.first);
        block.copy_key(block.len() - 1, &mut self.last);
        !split.has_cut_between(&self.first, &self.last)
            && collapse.does_not_affect(&self.first, &self.last)
    }
}
