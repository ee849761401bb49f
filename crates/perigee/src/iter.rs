//! Moving over a family in key order: [`Cursor`] to go where one likes, [`Iter`] for `for` loops. Both see the
//! database as it was when they were made, whatever writers, flushes and compactions do meanwhile.

use crate::{Result, Slice};

/// A position in a family, within bounds. New cursors are not positioned: call a `seek`.
///
/// After an error the cursor is invalid until the next `seek`.
pub struct Cursor {}

impl Cursor {
    /// To the first entry.
    pub fn seek_to_first(&mut self) -> Result<()> {
        unimplemented!()
    }
    /// To the last entry.
    pub fn seek_to_last(&mut self) -> Result<()> {
        unimplemented!()
    }
    /// To the first entry at or after `key` (of those within the bounds).
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let _ = key;
        unimplemented!()
    }
    /// To the last entry at or before `key` (of those within the bounds).
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let _ = key;
        unimplemented!()
    }
    /// To the next entry; invalid after the last. On an invalid cursor: stays invalid.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<()> {
        unimplemented!()
    }
    /// To the previous entry; invalid before the first. On an invalid cursor: stays invalid.
    pub fn prev(&mut self) -> Result<()> {
        unimplemented!()
    }
    /// Whether the cursor is on an entry.
    pub fn valid(&self) -> bool {
        unimplemented!()
    }
    /// The key.
    ///
    /// # Panics
    /// If the cursor is not valid.
    pub fn key(&self) -> &[u8] {
        unimplemented!()
    }
    /// The value; fetched from the value log if it is separated.
    ///
    /// # Errors
    /// `Corruption` or `Io` if a separated value cannot be read.
    ///
    /// # Panics
    /// If the cursor is not valid.
    pub fn value(&self) -> Result<Slice> {
        unimplemented!()
    }
}

/// An iterator over a range, from both ends. After an `Err` it ends.
pub struct Iter {}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;
    fn next(&mut self) -> Option<Self::Item> {
        unimplemented!()
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        unimplemented!()
    }
}
