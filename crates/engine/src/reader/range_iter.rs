//! An iterator over a key range from both ends: two cursors that stop when they meet.

use super::cursor::{ReadCursor, ScanSource};
use perigee_base::{BytesPreview, Result};
use perigee_tree::read::ScanBounds;
use std::fmt;

/// Moves through a key range from either end. After an error or the end it stays at the end.
pub struct RangeIter {
    source: ScanSource,
    bounds: ScanBounds,
    front: Option<ReadCursor>,
    back: Option<ReadCursor>,
    done: bool,
}

impl RangeIter {
    pub(super) fn new(source: ScanSource, bounds: ScanBounds) -> RangeIter {
        RangeIter { source, bounds, front: None, back: None, done: false }
    }

    /// Moves one end; returns `None` when it meets the other end. The cursor of each end is on the
    /// entry that it returned last.
    fn advance(&mut self, forward: bool) -> Result<Option<&ReadCursor>> {
        let new_cursor = || self.source.cursor(self.bounds.clone());
        let (end, other) =
            if forward { (&mut self.front, &self.back) } else { (&mut self.back, &self.front) };
        match (&mut *end, forward) {
            (Some(c), true) => c.step_forward()?,
            (Some(c), false) => c.step_backward()?,
            (none, true) => none.insert(new_cursor()).seek_to_first()?,
            (none, false) => none.insert(new_cursor()).seek_to_last()?,
        }
        let comparator = self.source.comparator();
        check_slow!(
            end.as_ref().and_then(ReadCursor::key).is_none_or(|key| {
                !self.bounds.is_before_lower(comparator, key)
                    && !self.bounds.is_after_upper(comparator, key)
            }),
            "an iterator stays within its bounds",
            self.bounds
        );
        let cursor = end.as_ref().filter(|cursor| {
            let Some(key) = cursor.key() else { return false };
            other.as_ref().and_then(ReadCursor::key).is_none_or(|other| {
                let (low, high) = if forward { (key, other) } else { (other, key) };
                comparator.cmp(low, high).is_lt()
            })
        });
        Ok(cursor)
    }

    /// Moves to the next entry from the front (`forward`) or from the back; `read` returns the item
    /// from a valid cursor.
    pub fn next_item<T>(
        &mut self,
        forward: bool,
        read: impl FnOnce(&ReadCursor) -> Result<T>,
    ) -> Option<Result<T>> {
        if self.done {
            return None;
        }
        let item =
            self.advance(forward).and_then(|cursor| cursor.map(read).transpose()).transpose();
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

/// Prints the database, the sequence number and the keys at both ends.
impl fmt::Debug for RangeIter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |end: &Option<ReadCursor>| end.as_ref().and_then(|c| c.key().map(<[u8]>::to_vec));
        let (front, back) = (at(&self.front), at(&self.back));
        f.debug_struct("Iter")
            .field("engine", &self.source.engine)
            .field("sequence", &self.source.sequence.0)
            .field("front", &front.as_deref().map(BytesPreview))
            .field("back", &back.as_deref().map(BytesPreview))
            .field("done", &self.done)
            .finish()
    }
}
