//! A learned index over the key prefixes of an index's separators: linear segments predict a window
//! of positions, which is searched by comparing whole separators. Used instead of a
//! `KeyPrefixIndex`. Bytewise order only. Much smaller than the key prefixes, and slower where
//! those are in the CPU cache.
//!
//! Correctness does not depend on the segments: a result at an end of the window is checked against
//! the entries outside it.

use crate::block::TableBlock;
use crate::key_prefix;
use perigee_base::SeqNo;
use perigee_learned::Segments;

/// Maximum error of a predicted position.
const POSITION_ERROR_MAX: usize = 8;
/// Minimum number of prefixes per segment: a segment takes 24 bytes, so this is at most half the
/// size of the prefixes.
const PREFIXES_PER_SEGMENT_MIN: usize = 6;
/// At most one of this many prefixes may equal its predecessor, because equal prefixes can lie
/// outside the predicted window.
const PREFIXES_PER_DUPLICATE_MIN: usize = 16;

/// Linear segments over the separators of a block.
#[derive(Debug)]
pub struct LearnedIndex {
    segments: Segments,
}

impl LearnedIndex {
    /// Builds the index over ascending prefixes; `None` if it would not be small or would predict
    /// badly.
    pub fn new(prefixes: &[u64]) -> Option<LearnedIndex> {
        let equal = prefixes.windows(2).filter(|w| w[0] == w[1]).count();
        if !prefixes.is_sorted() || equal > prefixes.len() / PREFIXES_PER_DUPLICATE_MIN {
            return None;
        }
        let segments = Segments::new(prefixes, POSITION_ERROR_MAX)?;
        (segments.len() * PREFIXES_PER_SEGMENT_MIN <= prefixes.len())
            .then_some(LearnedIndex { segments })
    }

    /// Like [`TableBlock::lower_bound_in`] over all separators.
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

    /// Returns the memory of the index, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.segments.memory_bytes() as u64
    }
}
