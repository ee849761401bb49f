//! [`Slice`]: a key or value that is not copied out of the database.

use perigee_base::PinnedSlice;
use perigee_base::pinned_slice::BytesPreview;
use std::ops::Deref;

/// A key or value that is pinned in the block or memtable that contains it. Dereferences to `[u8]`.
/// Cloning copies no bytes. Dropping the last clone unpins the block. Do not keep slices for long:
/// each pins a whole block in memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Slice(pub(crate) PinnedSlice);

impl Deref for Slice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Slice> for Vec<u8> {
    fn from(s: Slice) -> Vec<u8> {
        s.to_vec()
    }
}

impl PartialEq<[u8]> for Slice {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

/// Prints the first bytes and the length.
impl std::fmt::Debug for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        BytesPreview(self).fmt(f)
    }
}
