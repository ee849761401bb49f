//! A slice that keeps its buffer alive: how values leave a block, a batch or a value log without a copy.

use crate::chunk::Chunk;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes inside a reference-counted buffer. Cloning copies no bytes.
#[derive(Clone)]
pub struct Shared {
    buf: Buffer,
    start: usize,
    end: usize,
}

/// A reference-counted buffer.
#[derive(Clone)]
pub enum Buffer {
    /// One that grew.
    Grown(Arc<Vec<u8>>),
    /// One that grows at its end while it is read.
    Growing(Arc<Chunk>),
    /// One whose bytes lie beside its counter: one place in memory less on the way to them.
    Fixed(Arc<[u8]>),
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Buffer::Grown(buf) => buf,
            Buffer::Growing(chunk) => chunk.bytes(),
            Buffer::Fixed(buf) => buf,
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

impl From<Arc<Vec<u8>>> for Buffer {
    fn from(buf: Arc<Vec<u8>>) -> Buffer {
        Buffer::Grown(buf)
    }
}
impl From<Arc<[u8]>> for Buffer {
    fn from(buf: Arc<[u8]>) -> Buffer {
        Buffer::Fixed(buf)
    }
}

impl Shared {
    /// The part `range` of `buf`.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    #[inline]
    pub fn new(buf: impl Into<Buffer>, range: Range<usize>) -> Self {
        let buf = buf.into();
        assert!(range.start <= range.end && range.end <= buf.len(), "a slice lies inside its buffer");
        Shared { buf, start: range.start, end: range.end }
    }
    /// Without its first `n` bytes (all of them, if there are fewer).
    #[must_use]
    pub fn skip(self, n: usize) -> Self {
        Shared { start: self.end.min(self.start + n), ..self }
    }
}

impl From<Vec<u8>> for Shared {
    fn from(v: Vec<u8>) -> Self {
        let end = v.len();
        Shared { buf: Arc::new(v).into(), start: 0, end }
    }
}

impl Deref for Shared {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Shows bytes in a line of `Debug` output: the first of them, and how many there are if those are not all.
#[derive(Clone, Copy)]
pub struct Brief<'a>(pub &'a [u8]);

/// So many bytes are shown.
const BRIEF_BYTES: usize = 32;

impl std::fmt::Debug for Brief<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.get(..BRIEF_BYTES) {
            Some(first) if self.0.len() > BRIEF_BYTES => {
                write!(f, "\"{}\"... ({} bytes)", first.escape_ascii(), self.0.len())
            }
            _ => write!(f, "\"{}\"", self.0.escape_ascii()),
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({} bytes)", self.len())
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
impl Eq for Shared {}
