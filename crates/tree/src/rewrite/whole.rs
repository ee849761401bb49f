//! Blocks that are moved as they lie: where no other source has a key among those of a block, and nothing in it can be hidden,
//! dropped, or written otherwise, its stored bytes go into the new table without being compressed again.
//!
//! Invariant: what is moved is what the road would have written entry by entry, but for where blocks begin. So nothing is moved
//! past what decides about entries: every other verdict than "keep" is `collapse`'s.

use super::collapse::Collapse;
use super::sink::Sink;
use super::split::Split;
use crate::scan::MergeCursor;
use perigee_base::Result;
use perigee_file::Block;

/// So many blocks in a row are worth a small block before the first of them.
const MANY: usize = 4;

/// Whether blocks may be moved, and what is needed on the way.
#[derive(Debug)]
pub struct Whole {
    on: bool,
    /// Inline values are shorter.
    threshold: usize,
    first: Vec<u8>,
    last: Vec<u8>,
}

/// What was moved.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// Entries.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl Whole {
    /// `on`: nobody wants to see each entry. `threshold`: values of that length are separated.
    pub fn new(on: bool, threshold: usize) -> Whole {
        Whole { on, threshold, first: Vec::new(), last: Vec::new() }
    }

    /// Moves the block that begins with the entry at hand, if there is one that may be moved.
    #[inline]
    pub fn step(
        &mut self,
        source: &mut MergeCursor,
        (collapse, split, sink): (&mut Collapse<'_>, &mut Split, &mut Sink<'_>),
    ) -> Result<Option<Stretch>> {
        if !self.on {
            return Ok(None);
        }
        let Some((cursor, block, limit)) = source.whole_block() else { return Ok(None) };
        if !self.unchanged(block, collapse, split) {
            return Ok(None);
        }
        let stretch =
            Stretch { entries: block.len() as u64, bytes: (block.key_bytes() + block.value_bytes()) as u64 };
        let seq = block.seq(block.len() - 1);
        let many = cursor.blocks_before(MANY, limit);
        let moved = cursor.with_stored(|stored| {
            if !sink.takes(block, stored, many) {
                return Ok(false);
            }
            let (table_bytes, index_bytes) = sink.pending();
            if let Some(at) = split.cut(&self.first, true, table_bytes, index_bytes) {
                sink.cut(at)?;
            }
            sink.add_block(block, stored)?;
            Ok(true)
        })?;
        if !moved {
            return Ok(None);
        }
        collapse.went_on(&self.last, seq);
        source.leave_block()?;
        Ok(Some(stretch))
    }

    /// Whether every entry of the block goes on as it is, all of them into one table.
    fn unchanged(&mut self, block: &Block, collapse: &mut Collapse<'_>, split: &Split) -> bool {
        let short = |i: usize| block.raw_value(i).len() < self.threshold || block.raw_value(i).is_empty();
        let inline = block.value_bytes() < self.threshold || (0..block.len()).all(short);
        let settled = !collapse.settles() || block.one_number();
        if !settled || !block.only_values() || !inline || !block.all_differ(collapse.order()) {
            return false;
        }
        block.copy_key(0, &mut self.first);
        block.copy_key(block.len() - 1, &mut self.last);
        !split.divides(&self.first, &self.last) && collapse.leaves_alone(&self.first, &self.last)
    }
}
