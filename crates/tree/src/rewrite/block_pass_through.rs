//! Block pass-through: where no other source has a key within the key range of a block, and nothing
//! in the block can be hidden, dropped or rewritten, its stored bytes are copied into the new table
//! without compressing them again. The compaction iterator offers such blocks, and the sink accepts
//! those that fit its tables.
//!
//! Invariant: the output is what would have been written entry by entry, apart from block
//! boundaries. So a block is offered only if [`reduce`](super::reduce) would write every entry
//! unchanged.

use super::range_tombstone_cursor::RangeTombstoneCursor;
use crate::scan::MergeCursor;
use perigee_base::{KeyComparator, KeyRef};
use perigee_file::{KlogCursor, TableBlock};

/// A block that may be copied as it is stored.
#[derive(Debug)]
pub struct StoredBlock<'a> {
    /// Cursor at the start of the block.
    pub cursor: &'a KlogCursor,
    /// The block.
    pub block: &'a TableBlock,
    /// Foremost key of the other sources.
    pub limit: Option<KeyRef<'a>>,
    /// First key of the block.
    pub first: &'a [u8],
    /// Last key of the block.
    pub last: &'a [u8],
}

/// Finds blocks that may be copied.
#[derive(Debug)]
pub struct BlockPassThrough {
    enabled: bool,
    /// True if entries are written with their own sequence numbers, unless all of a block have the
    /// same.
    keeps_seqs: bool,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl BlockPassThrough {
    /// Creates a pass-through; `enabled`: nothing needs to see each entry.
    pub fn new(enabled: bool, keeps_seqs: bool) -> BlockPassThrough {
        BlockPassThrough { enabled, keeps_seqs, first: Vec::new(), last: Vec::new() }
    }

    /// Returns true if the current entry of the source starts a block of which every entry would be
    /// written unchanged. `previous_key`: key of the last entry read.
    #[inline]
    pub fn find_block(
        &mut self,
        source: &MergeCursor,
        comparator: KeyComparator,
        previous_key: Option<&[u8]>,
        range_tombstones: &mut RangeTombstoneCursor,
    ) -> bool {
        if !self.enabled {
            return false;
        }
        let Some((_, block, _)) = source.passthrough_block() else { return false };
        let seqs_unchanged = self.keeps_seqs || block.has_single_seq();
        if !seqs_unchanged || !block.has_only_values() || !block.has_distinct_keys(comparator) {
            return false;
        }
        block.copy_key(0, &mut self.first);
        block.copy_key(block.len() - 1, &mut self.last);
        check_slow!(
            previous_key.is_none_or(|key| comparator.cmp(key, &self.first).is_le()),
            "a block comes after the keys before it",
            previous_key,
            self.first
        );
        !previous_key.is_some_and(|key| comparator.keys_equal(key, &self.first))
            && !range_tombstones.overlaps(&self.first, &self.last)
    }

    /// Returns the block that was found.
    pub fn found_block<'a>(&'a self, source: &'a MergeCursor) -> Option<StoredBlock<'a>> {
        let (cursor, block, limit) = source.passthrough_block()?;
        Some(StoredBlock { cursor, block, limit, first: &self.first, last: &self.last })
    }
    /// Returns the last key of the block that was found.
    pub fn last_key(&self) -> &[u8] {
        &self.last
    }
}
