//! Reads values from a vlog; each chunk is verified before use. A pointer is accepted only if it
//! lies within the file and its chunks add up to its length.

use super::writer::ONE_VALUE;
use crate::block::frame::{self, Frame, FrameKind};
use crate::compression::{self, Codec};
use crate::handle_cache::FileHandleCache;
use crate::table_file_reader::{TableFileReader, try_extend_zeroed};
use perigee_base::limits::{VLOG_CHUNK_BYTES, ZSTD_RATIO_MAX};
use perigee_base::{
    BlockHandle, Bytes, Counters, Error, FileId, FileKind, HEADER_BYTES, IoActivity, PinnedSlice,
    Result, VlogPointer,
};
use perigee_env::Dir;
use std::ops::Range;
use std::sync::Arc;

/// Which buffer holds a chunk that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkPlace {
    /// That of the frame: the chunk is stored uncompressed.
    Frame,
    /// That of the raw bytes.
    Raw,
}

/// Reads one vlog.
#[derive(Debug)]
pub struct VlogReader {
    input: TableFileReader,
    database: u64,
    holds_one_value: bool,
    counters: Arc<Counters>,
}

impl VlogReader {
    /// Opens a vlog that must be `bytes` long (the length recorded in the manifest), and verifies
    /// its header.
    pub fn open(
        dir: &dyn Dir,
        id: FileId,
        database: u64,
        bytes: Bytes,
        counters: Arc<Counters>,
    ) -> Result<VlogReader> {
        Self::from_file(
            TableFileReader::open(dir, id, FileKind::Vlog, bytes.0)?,
            database,
            counters,
        )
    }

    /// Like [`VlogReader::open`], through a handle cache that bounds the number of open files.
    pub fn open_cached(
        handles: &Arc<FileHandleCache>,
        id: FileId,
        database: u64,
        bytes: Bytes,
        counters: Arc<Counters>,
    ) -> Result<VlogReader> {
        Self::from_file(
            TableFileReader::open_cached(handles, id, FileKind::Vlog, bytes.0)?,
            database,
            counters,
        )
    }

    /// Builds a reader for a vlog that could not be opened: every read fails with `cause`.
    pub fn placeholder(
        id: FileId,
        database: u64,
        bytes: Bytes,
        cause: Error,
        counters: Arc<Counters>,
    ) -> VlogReader {
        VlogReader {
            input: TableFileReader::placeholder(id, FileKind::Vlog, bytes.0, cause),
            database,
            holds_one_value: false,
            counters,
        }
    }

    pub(crate) fn from_file(
        input: TableFileReader,
        database: u64,
        counters: Arc<Counters>,
    ) -> Result<VlogReader> {
        let header = input.read_header(FileKind::Vlog, database)?;
        if !matches!((header.a, header.b), (0 | ONE_VALUE, 0)) {
            return Err(
                input.error_at(0, Error::corruption("unused fields of a vlog header are not zero"))
            );
        }
        let holds_one_value = header.a == ONE_VALUE;
        Ok(VlogReader { input, database, holds_one_value, counters })
    }

    /// Returns the file number.
    pub fn id(&self) -> FileId {
        self.input.id()
    }
    /// Returns the file length in bytes.
    pub fn bytes(&self) -> u64 {
        self.input.bytes()
    }

    /// Returns true if the file was written for a single value.
    pub fn holds_one_value(&self) -> bool {
        self.holds_one_value
    }

    /// Reads the value of a pointer, counted as a point read.
    pub fn read(&self, p: &VlogPointer) -> Result<PinnedSlice> {
        self.read_with_cause(p, IoActivity::Get)
    }

    /// Like [`VlogReader::read`], counted under `cause`.
    pub fn read_with_cause(&self, p: &VlogPointer, cause: IoActivity) -> Result<PinnedSlice> {
        self.check_pointer(p).map_err(|e| self.input.error_at(p.offset, e))?;
        self.counters.vlog_bytes_read.add(p.stored_bytes);
        self.counters.io.record_read(cause, p.stored_bytes);
        if p.value_bytes <= VLOG_CHUNK_BYTES as u64 {
            self.read_chunk(p)
        } else {
            self.read_chunks(p)
        }
    }

    /// Hints to the file system that this value will be read soon.
    pub fn prefetch(&self, p: &VlogPointer) {
        if self.check_pointer(p).is_ok() {
            self.input.will_need(BlockHandle { offset: p.offset, len: p.stored_bytes });
        }
    }

    /// Rejects an impossible pointer before memory is allocated for its value.
    fn check_pointer(&self, p: &VlogPointer) -> Result<()> {
        let chunks = p.value_bytes.div_ceil(VLOG_CHUNK_BYTES as u64);
        let overhead = chunks.saturating_mul(frame::FRAME_OVERHEAD_BYTES as u64);
        let payload = p.stored_bytes.saturating_sub(overhead);
        let inside = p.offset >= HEADER_BYTES as u64
            && p.offset.checked_add(p.stored_bytes).is_some_and(|end| end <= self.input.bytes());
        let plausible = payload > 0
            && payload <= p.value_bytes
            && p.value_bytes <= payload.saturating_mul(ZSTD_RATIO_MAX as u64);
        if p.file != self.input.id() || !inside || !plausible {
            return Err(Error::corruption(
                "a value-log pointer does not refer to a value of this file",
            )
            .expected(
                format_args!("a value in {} bytes of file {}", self.input.bytes(), self.input.id()),
                format_args!("{p:?}"),
            ));
        }
        Ok(())
    }

    /// Reads a value of one chunk, without a copy if it is stored uncompressed.
    fn read_chunk(&self, p: &VlogPointer) -> Result<PinnedSlice> {
        let value_bytes = p.value_bytes as usize;
        let bytes = self.input.read(BlockHandle { offset: p.offset, len: p.stored_bytes })?;
        let frame = self.decode_chunk(p.offset, &bytes, value_bytes)?;
        if frame.codec == Codec::None {
            return Ok(PinnedSlice::new(
                Arc::new(bytes),
                frame::FRAME_HEADER_BYTES..frame::FRAME_HEADER_BYTES + value_bytes,
            ));
        }
        frame.decompress(0).map(PinnedSlice::from).map_err(|e| self.input.error_at(p.offset, e))
    }

    /// Checks the pointer of a value that is about to be read in parts.
    pub(super) fn check_readable(&self, p: &VlogPointer) -> Result<()> {
        self.check_pointer(p).map_err(|e| self.input.error_at(p.offset, e))
    }

    /// Reads a chunk of `raw_bytes`, whose frame lies at `offset` and is `frame_bytes` long. Returns
    /// the place of its bytes: in `frame`, or decompressed in `raw`. Both are overwritten.
    pub(super) fn read_chunk_into(
        &self,
        BlockHandle { offset, len }: BlockHandle,
        raw_bytes: usize,
        frame: &mut Vec<u8>,
        raw: &mut Vec<u8>,
    ) -> Result<ChunkPlace> {
        frame.clear();
        self.input.read_into(BlockHandle { offset, len }, frame)?;
        self.counters.vlog_bytes_read.add(len);
        self.counters.io.record_read(IoActivity::Get, len);
        let decoded = self.decode_chunk(offset, frame, raw_bytes)?;
        if decoded.codec == Codec::None {
            return Ok(ChunkPlace::Frame);
        }
        raw.clear();
        try_extend_zeroed(raw, raw_bytes)?;
        compression::decompress(decoded.codec, decoded.payload, raw)
            .map_err(|e| self.input.error_at(offset, e))?;
        Ok(ChunkPlace::Raw)
    }

    /// Returns the error for a value whose chunks do not end where its pointer says.
    pub(super) fn length_error(&self, p: &VlogPointer, end: u64) -> Error {
        let e =
            Error::corruption("the chunks of a value do not add up to the length in its pointer")
                .expected(p.offset + p.stored_bytes, end);
        self.input.error_at(p.offset, e)
    }

    fn read_chunks(&self, p: &VlogPointer) -> Result<PinnedSlice> {
        let (mut offset, end) = (p.offset, p.offset + p.stored_bytes);
        let mut value = Vec::new();
        try_extend_zeroed(&mut value, p.value_bytes as usize)?;
        let mut bytes = Vec::new();
        for part in value.chunks_mut(VLOG_CHUNK_BYTES) {
            bytes.clear();
            let length = self.chunk_frame_bytes(offset..end)?;
            self.input.read_into(BlockHandle { offset, len: length }, &mut bytes)?;
            let frame = self.decode_chunk(offset, &bytes, part.len())?;
            compression::decompress(frame.codec, frame.payload, part)
                .map_err(|e| self.input.error_at(offset, e))?;
            offset += length;
        }
        if offset != end {
            return Err(self.length_error(p, offset));
        }
        Ok(PinnedSlice::from(value))
    }

    /// Returns the length that the frame at the start of `rest` declares; fails if it ends after it.
    pub(super) fn chunk_frame_bytes(&self, rest: Range<u64>) -> Result<u64> {
        let Range { start: offset, end } = rest;
        let len = (frame::FRAME_HEADER_BYTES as u64).min(end - offset);
        let head = self.input.read(BlockHandle { offset, len })?;
        let length = frame::declared_frame_bytes(&head, FrameKind::Chunk)
            .map_err(|e| self.input.error_at(offset, e))?;
        if length > end - offset {
            let e = Error::corruption("a chunk extends beyond its value or file")
                .expected(end - offset, length);
            return Err(self.input.error_at(offset, e));
        }
        Ok(length)
    }

    fn decode_chunk<'a>(
        &self,
        offset: u64,
        bytes: &'a [u8],
        raw_bytes: usize,
    ) -> Result<Frame<'a>> {
        let check = |f: Frame<'a>| match f.raw_bytes == raw_bytes {
            true => Ok(f),
            false => Err(Error::corruption("the length of a chunk does not match its pointer")
                .expected(raw_bytes, f.raw_bytes)),
        };
        let frame = Frame::decode(self.input.id(), offset, bytes, FrameKind::Chunk).and_then(check);
        frame.map_err(|e| self.input.error_at(offset, e))
    }

    /// Reads every byte from disk and checks that frames follow each other without a gap, that each
    /// decompresses, and that the whole-file checksum matches.
    pub fn verify(&self, checksum: u64, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let mut pace = |done| {
            progress(done);
            Ok(())
        };
        self.verify_paced(checksum, &mut pace)
    }
    /// Like [`VlogReader::verify`]; `pace` may sleep for rate limiting, and an error it returns
    /// ends the verification.
    pub fn verify_paced(
        &self,
        checksum: u64,
        pace: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        self.input.read_header(FileKind::Vlog, self.database)?;
        let mut scan = self.input.scan(pace);
        let mut raw = Vec::new();
        scan.next_part(HEADER_BYTES as u64)?;
        while scan.offset() < self.input.bytes() {
            let offset = scan.offset();
            let bytes = scan.next_part(self.chunk_frame_bytes(offset..self.input.bytes())?)?;
            raw.clear();
            Frame::decode(self.input.id(), offset, bytes, FrameKind::Chunk)
                .and_then(|f| f.decompress_append(&mut raw))
                .map_err(|e| self.input.error_at(offset, e))?;
        }
        scan.finish(checksum)
    }
}
