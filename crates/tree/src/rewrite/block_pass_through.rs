//! Blocks that are moved as they lie: where no other source has a key among those of a block, and
//! nothing in it can be hidden, dropped, or written otherwise, its stored bytes go into the new
//! table without being compressed again.
//!
//! Invariant: what is moved is what the road would have written entry by entry, but for where
//! blocks begin. So nothing is moved past what decides about entries: every other verdict than
//! "keep" is `collapse`'s.

use super::collapse::VersionCollapser;
use super::output_writer::OutputWriter;
use super::split::TableSplitter;
use crate::scan::MergeCursor;
use perigee_base::Result;
use perigee_file::TableBlock;

/// So many blocks in a row are worth a small block before the first of them.
const BLOCKS_IN_A_ROW: usize = 4;

/// Whether blocks may be moved, and what is needed on the way.
#[derive(Debug)]
pub struct BlockPassThrough {
    enabled: bool,
    /// Inline values are shorter.
    threshold: usize,
    first: Vec<u8>,
    last: Vec<u8>,
}

/// What was moved.
#[derive(Clone, Copy, Debug)]
pub struct PassThroughCounts {
    /// Entries.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl BlockPassThrough {
    /// `on`: nobody wants to see each entry. `threshold`: values of that length are separated.
    pub fn new(on: bool, threshold: usize) -> BlockPassThrough {
        BlockPassThrough { enabled: on, threshold, first: Vec::new(), last: Vec::new() }
    }

    /// Moves the block that begins with the entry at hand, if there is one that may be moved.
    #[inline]
    pub fn pass_block(
        &mut self,
        source: &mut MergeCursor,
        (collapse, split, sink): (
            &mut VersionCollapser<'_>,
            &mut TableSplitter,
            &mut OutputWriter<'_>,
        ),
    ) -> Result<Option<PassThroughCounts>> {
        if !self.enabled {
            return Ok(None);
        }
        let Some((cursor, block, limit)) = source.passthrough_block() else { return Ok(None) };
        if !self.is_unchanged(block, collapse, split) {
            return Ok(None);
        }
        let stretch = PassThroughCounts {
            entries: block.len() as u64,
            bytes: (block.key_bytes() + block.value_bytes()) as u64,
        };
        let seq = block.seq(block.len() - 1);
        let many = cursor.blocks_end_before(BLOCKS_IN_A_ROW, limit);
        let moved = cursor.with_stored_frame(|stored| {
            if !sink.accepts_block(block, stored, many) {
                return Ok(false);
            }
            let (table_bytes, index_bytes) = sink.pending_bytes();
            if let Some(at) = split.cut_before(&self.first, true, table_bytes, index_bytes) {
                sink.finish_table(at)?;
            }
            sink.copy_block(block, stored)?;
            Ok(true)
        })?;
        if !moved {
            return Ok(None);
        }
        collapse.record_passed_through(&self.last, seq);
        source.skip_block()?;
        Ok(Some(stretch))
    }

    /// Whether every entry of the block goes on as it is, all of them into one table.
    fn is_unchanged(
        &mut self,
        block: &TableBlock,
        collapse: &mut VersionCollapser<'_>,
        split: &TableSplitter,
    ) -> bool {
        let short =
            |i: usize| block.raw_value(i).len() < self.threshold || block.raw_value(i).is_empty();
        let inline = block.value_bytes() < self.threshold || (0..block.len()).all(short);
        let settled = !collapse.rewrites_seqs() || block.has_single_seq();
        if !settled
            || !block.has_only_values()
            || !inline
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
