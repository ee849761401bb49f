//! Lines over the heads of an index's separators, in place of the [heads](crate::heads) themselves:
//! a window of positions that is searched by comparing whole separators. Byte order only. Much
//! smaller than the heads, and slower where those are in the processor's cache.
//!
//! What is found never rests on the lines: a result at an end of the window is compared with what
//! lies behind it.

use crate::block::TableBlock;
use crate::key_prefix;
use perigee_base::SeqNo;
use perigee_learned::Segments;

/// Positions by which a line may be wrong.
const POSITION_ERROR_MAX: usize = 8;
/// Heads that there have to be for each piece: a piece takes 24 bytes, so this is half of what
/// heads take, or less.
const PREFIXES_PER_SEGMENT_MIN: usize = 6;
/// Of so many heads one may equal the one before it. Equal ones lie outside of the window.
const PREFIXES_PER_DUPLICATE_MIN: usize = 16;

/// Lines over the separators of a block.
#[derive(Debug)]
pub struct LearnedIndex {
    segments: Segments,
}

impl LearnedIndex {
    /// Over heads in ascending order; `None` where they would not be small, or lead nowhere near.
    pub fn new(heads: &[u64]) -> Option<LearnedIndex> {
        let equal = heads.windows(2).filter(|w| w[0] == w[1]).count();
        if !heads.is_sorted() || equal > heads.len() / PREFIXES_PER_DUPLICATE_MIN {
            return None;
        }
        let segments = Segments::new(heads, POSITION_ERROR_MAX)?;
        (segments.len() * PREFIXES_PER_SEGMENT_MIN <= heads.len())
            .then_some(LearnedIndex { segments })
    }

    /// What [`Block::lower_bound_in`] all separators says.
    #[inline]
    pub fn lower_bound(&self, block: &TableBlock, rest: &[u8], seq: SeqNo) -> usize {
        let window = self.segments.window(key_prefix::key_prefix(rest));
        let (start, end) = (window.start, window.end.min(block.len()));
        let found = block.lower_bound_in(rest, seq, start..end);
        let is_before = |i: usize| block.lower_bound_in(rest, seq, i..i + 1) > i;
        if found == start && start > 0 && !is_before(start - 1) {
            return block.lower_bound_in(rest, seq, 0..start);
        }
        if found == end && end < block.len() && is_before(end) {
            return block.lower_bound_in(rest, seq, end + 1..block.len());
        }
        found
    }

    /// Memory it holds.
    pub fn memory_bytes(&self) -> u64 {
        self.segments.memory_bytes() as u64
    }
}
