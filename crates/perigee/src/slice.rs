//! Bytes that came out of the database without a copy.

use perigee_base::PinnedSlice;
use perigee_base::pinned_slice::BytesPreview;
use std::ops::Deref;

/// A key or value, pinned where it lies (a block, the memtable). Dereferences to `[u8]`; cloning
/// copies no bytes; dropping releases the block. Keep it short-lived: a pinned slice keeps its
/// whole block in memory.
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

/// Short: the first bytes, and the length.
impl std::fmt::Debug for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        BytesPreview(self).fmt(f)
    }
}
