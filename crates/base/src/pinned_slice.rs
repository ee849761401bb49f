//! A slice that keeps its buffer alive: how values leave a block, a batch or a value log without a
//! copy.

use crate::append_buffer::AppendBuffer;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes inside a reference-counted buffer. Cloning copies no bytes.
#[derive(Clone)]
pub struct PinnedSlice {
    buf: SharedBuffer,
    start: usize,
    end: usize,
}

/// A reference-counted buffer.
#[derive(Clone)]
pub enum SharedBuffer {
    /// One that grew.
    Vector(Arc<Vec<u8>>),
    /// One that grows at its end while it is read.
    Appendable(Arc<AppendBuffer>),
    /// One whose bytes lie beside its counter: one place in memory less on the way to them.
    Slice(Arc<[u8]>),
}

impl Deref for SharedBuffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            SharedBuffer::Vector(buf) => buf,
            SharedBuffer::Appendable(chunk) => chunk.bytes(),
            SharedBuffer::Slice(buf) => buf,
        }
    }
}

impl std::fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

impl From<Arc<Vec<u8>>> for SharedBuffer {
    fn from(buf: Arc<Vec<u8>>) -> SharedBuffer {
        SharedBuffer::Vector(buf)
    }
}
impl From<Arc<[u8]>> for SharedBuffer {
    fn from(buf: Arc<[u8]>) -> SharedBuffer {
        SharedBuffer::Slice(buf)
    }
}

impl PinnedSlice {
    /// The part `range` of `buf`.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    #[inline]
    pub fn new(buf: impl Into<SharedBuffer>, range: Range<usize>) -> Self {
        let buf = buf.into();
        assert!(
            range.start <= range.end && range.end <= buf.len(),
            "a slice lies inside its buffer"
        );
        PinnedSlice { buf, start: range.start, end: range.end }
    }
    /// Without its first `n` bytes (all of them, if there are fewer).
    #[must_use]
    pub fn skip_first(self, n: usize) -> Self {
        PinnedSlice { start: self.end.min(self.start + n), ..self }
    }
}

impl From<Vec<u8>> for PinnedSlice {
    fn from(v: Vec<u8>) -> Self {
        let end = v.len();
        PinnedSlice { buf: Arc::new(v).into(), start: 0, end }
    }
}

impl Deref for PinnedSlice {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }
}

impl AsRef<[u8]> for PinnedSlice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Shows bytes in a line of `Debug` output: the first of them, and how many there are if those are
/// not all.
#[derive(Clone, Copy)]
pub struct BytesPreview<'a>(pub &'a [u8]);

/// So many bytes are shown.
const PREVIEW_BYTES: usize = 32;

impl std::fmt::Debug for BytesPreview<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.get(..PREVIEW_BYTES) {
            Some(first) if self.0.len() > PREVIEW_BYTES => {
                write!(f, "\"{}\"... ({} bytes)", first.escape_ascii(), self.0.len())
            }
            _ => write!(f, "\"{}\"", self.0.escape_ascii()),
        }
    }
}

impl std::fmt::Debug for PinnedSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({} bytes)", self.len())
    }
}

impl PartialEq for PinnedSlice {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
impl Eq for PinnedSlice {}
