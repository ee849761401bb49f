//! Reads a value in parts, from any position: one chunk at a time, verified before use.
//!
//! The frames of a value have different lengths, and only the first has a known place. The others
//! are found by reading the heads of the frames before them, once: their offsets are kept (8 KiB
//! for a value of 1 GiB).

use super::reader::{ChunkPlace, VlogReader};
use crate::block::frame::FRAME_HEADER_BYTES;
use perigee_base::limits::VLOG_CHUNK_BYTES;
use perigee_base::{BlockHandle, Result, VlogPointer};
use std::sync::Arc;

/// A value being read.
#[derive(Debug)]
pub struct ChunkReader {
    vlog: Arc<VlogReader>,
    pointer: VlogPointer,
    /// Offsets of the frames found so far, and the end of the last of them.
    offsets: Vec<u64>,
    /// The chunk read last.
    chunk: Option<(u64, ChunkPlace)>,
    frame: Vec<u8>,
    raw: Vec<u8>,
}

impl ChunkReader {
    /// Begins to read a value.
    ///
    /// # Errors
    /// `Corruption` if the pointer does not lead to a value of the file.
    pub fn new(vlog: Arc<VlogReader>, pointer: VlogPointer) -> Result<ChunkReader> {
        vlog.check_readable(&pointer)?;
        let offsets = vec![pointer.offset];
        let (frame, raw) = (Vec::new(), Vec::new());
        Ok(ChunkReader { vlog, pointer, offsets, chunk: None, frame, raw })
    }
    /// Returns the length of the value.
    pub fn value_bytes(&self) -> u64 {
        self.pointer.value_bytes
    }
    /// Returns the memory of the buffers, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.frame.capacity() + self.raw.capacity() + self.offsets.capacity() * 8) as u64
    }

    /// Returns the bytes of the value from `position` to the end of their chunk; none at the end of
    /// the value.
    ///
    /// # Errors
    /// `Io`, `Corruption`; the reader can be used again.
    pub fn part_at(&mut self, position: u64) -> Result<&[u8]> {
        if position >= self.pointer.value_bytes {
            return Ok(&[]);
        }
        let number = position / VLOG_CHUNK_BYTES as u64;
        let place = match self.chunk {
            Some((read, place)) if read == number => place,
            _ => self.read_chunk(number)?,
        };
        let bytes = self.chunk_bytes(number);
        let chunk = match place {
            ChunkPlace::Frame => &self.frame[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + bytes],
            ChunkPlace::Raw => &self.raw[..],
        };
        check_slow!(chunk.len() == bytes, "a chunk has its length", chunk.len(), bytes);
        Ok(&chunk[(position % VLOG_CHUNK_BYTES as u64) as usize..])
    }

    /// Returns the length of a chunk.
    fn chunk_bytes(&self, number: u64) -> usize {
        let begin = number * VLOG_CHUNK_BYTES as u64;
        (self.pointer.value_bytes - begin).min(VLOG_CHUNK_BYTES as u64) as usize
    }
    fn read_chunk(&mut self, number: u64) -> Result<ChunkPlace> {
        // An error must not leave a chunk that was overwritten.
        self.chunk = None;
        let frame = self.find_frame(number as usize)?;
        let bytes = self.chunk_bytes(number);
        let place = self.vlog.read_chunk_into(frame, bytes, &mut self.frame, &mut self.raw)?;
        self.chunk = Some((number, place));
        Ok(place)
    }
    /// Returns where the frame of a chunk lies.
    fn find_frame(&mut self, number: usize) -> Result<BlockHandle> {
        let end = self.pointer.offset + self.pointer.stored_bytes;
        let chunks = self.pointer.value_bytes.div_ceil(VLOG_CHUNK_BYTES as u64) as usize;
        while self.offsets.len() < number + 2 {
            let last = self.offsets[self.offsets.len() - 1];
            let next = last + self.vlog.chunk_frame_bytes(last..end)?;
            self.offsets.push(next);
            if self.offsets.len() == chunks + 1 && next != end {
                self.offsets.pop();
                return Err(self.vlog.length_error(&self.pointer, next));
            }
        }
        let offset = self.offsets[number];
        check_slow!(
            self.offsets.is_sorted() && self.offsets.len() <= chunks + 1,
            "the frames of a value follow each other",
            self.offsets.len(),
            chunks
        );
        Ok(BlockHandle { offset, len: self.offsets[number + 1] - offset })
    }
}
