//! A slice that keeps its buffer alive: values are returned from blocks, batches and value logs
//! without copying.

use crate::append_buffer::AppendBuffer;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A byte range of a reference-counted buffer. Cloning copies no bytes.
#[derive(Clone)]
pub struct PinnedSlice {
    buf: SharedBuffer,
    start: usize,
    end: usize,
}

/// A reference-counted buffer.
#[derive(Clone)]
pub enum SharedBuffer {
    /// A vector that no longer grows.
    Vector(Arc<Vec<u8>>),
    /// A buffer that can be appended to while it is read.
    Appendable(Arc<AppendBuffer>),
    /// Bytes stored next to the reference count; saves one pointer dereference.
    Slice(Arc<[u8]>),
}

impl Deref for SharedBuffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            SharedBuffer::Vector(buf) => buf,
            SharedBuffer::Appendable(buf) => buf.bytes(),
            SharedBuffer::Slice(buf) => buf,
        }
    }
}

impl std::fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedBuffer({} bytes)", self.len())
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
    /// Returns the bytes `range` of `buf`.
    ///
    /// # Panics
    /// If the range is not within the buffer.
    #[inline]
    pub fn new(buf: impl Into<SharedBuffer>, range: Range<usize>) -> Self {
        let buf = buf.into();
        check!(
            range.start <= range.end && range.end <= buf.len(),
            "a pinned slice lies inside its buffer",
            range,
            buf
        );
        PinnedSlice { buf, start: range.start, end: range.end }
    }
    /// Removes the first `n` bytes (all of them if there are fewer).
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

/// Formats the first bytes for `Debug` output, with the total length if some are omitted.
#[derive(Clone, Copy)]
pub struct BytesPreview<'a>(pub &'a [u8]);

/// Number of bytes shown.
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
        write!(f, "PinnedSlice({} bytes)", self.len())
    }
}

impl PartialEq for PinnedSlice {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
impl Eq for PinnedSlice {}
