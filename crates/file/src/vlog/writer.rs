//! Writes a vlog: each value as one frame per chunk of 1 MiB. Independent of keys.
//!
//! Invariant: the offset in a returned pointer is that of the first frame of its value, and the
//! frames of a value are consecutive.

use crate::block::frame::{self, FrameKind, FramePosition};
use crate::compression::{Compression, Compressor};
use crate::table_file_writer::TableFileWriter;
use perigee_base::limits::{STREAMED_VALUE_BYTES_MAX, VLOG_CHUNK_BYTES};
use perigee_base::{Bytes, Error, FileHeader, FileId, FileKind, HEADER_BYTES, Result, VlogPointer};
use perigee_env::{Dir, WritableFile};
use std::sync::Arc;

/// Field A of the header of a vlog that holds one value; 0 in the others.
pub(super) const ONE_VALUE: u64 = 1;

/// Summary of a finished vlog, for the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlogSummary {
    /// Length of the file.
    pub bytes: u64,
    /// Whole-file checksum.
    pub checksum: u64,
}

/// Writes one vlog. After an error it cannot be used any more; the caller removes the file.
#[derive(Debug)]
pub struct VlogWriter {
    output: TableFileWriter,
    compression: Compression,
    compressor: Compressor,
}

impl VlogWriter {
    /// Creates the file.
    pub fn create(
        dir: &dyn Dir,
        id: FileId,
        database: u64,
        compression: Compression,
    ) -> Result<VlogWriter> {
        Self::create_marked(dir, id, database, compression, 0)
    }
    /// Creates a file for one value, which its header says.
    pub fn create_for_one_value(
        dir: &dyn Dir,
        id: FileId,
        database: u64,
        compression: Compression,
    ) -> Result<VlogWriter> {
        Self::create_marked(dir, id, database, compression, ONE_VALUE)
    }
    fn create_marked(
        dir: &dyn Dir,
        id: FileId,
        database: u64,
        compression: Compression,
        mark: u64,
    ) -> Result<VlogWriter> {
        let header = FileHeader { kind: FileKind::Vlog, database, file: id, a: mark, b: 0 };
        let output = TableFileWriter::create(dir, header)?;
        Ok(VlogWriter { output, compression, compressor: Compressor::new() })
    }

    /// Appends a value, which must not be empty; returns its pointer.
    pub fn append(&mut self, value: &[u8]) -> Result<VlogPointer> {
        if value.is_empty() || value.len() as u64 > STREAMED_VALUE_BYTES_MAX {
            return Err(Error::internal("invalid length of a separated value")
                .expected(format_args!("1 to {STREAMED_VALUE_BYTES_MAX}"), value.len()));
        }
        let start = self.bytes_written();
        for chunk in value.chunks(VLOG_CHUNK_BYTES) {
            self.append_chunk(chunk)?;
        }
        Ok(self.value_pointer(start, Bytes(value.len() as u64)))
    }

    /// Appends a chunk of a value: [`VLOG_CHUNK_BYTES`], or fewer if it is the last one.
    pub(super) fn append_chunk(&mut self, chunk: &[u8]) -> Result<()> {
        let position = FramePosition { file: self.output.id(), offset: self.output.offset() };
        frame::append_frame(
            self.output.buffer(),
            position,
            FrameKind::Chunk,
            chunk,
            self.compression,
            &mut self.compressor,
        )?;
        self.output.flush_if_full()
    }

    /// Returns the pointer to the value whose chunks were appended from the offset `start` on.
    pub(super) fn value_pointer(&self, start: u64, value_bytes: Bytes) -> VlogPointer {
        let value_bytes = value_bytes.0;
        check!(start >= HEADER_BYTES as u64, "a value follows the header of its file", start);
        let stored_bytes = self.output.offset() - start;
        let chunks = value_bytes.div_ceil(VLOG_CHUNK_BYTES as u64);
        check!(
            stored_bytes <= value_bytes + chunks * frame::FRAME_OVERHEAD_BYTES as u64,
            "compression does not make a value longer",
            stored_bytes,
            value_bytes
        );
        VlogPointer { file: self.output.id(), offset: start, stored_bytes, value_bytes }
    }

    /// Returns the file size so far, in bytes.
    pub fn bytes_written(&self) -> u64 {
        self.output.offset()
    }

    /// Sets the number of buffered bytes that triggers an append to the file.
    pub fn set_buffer_bytes(&mut self, bytes: usize) {
        self.output.set_buffer_bytes(bytes);
    }
    /// Returns the memory of the buffers, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.output.memory_bytes() + self.compressor.memory_bytes() + size_of::<VlogWriter>())
            as u64
    }

    /// Returns the number of append calls so far; finishing makes one more.
    pub fn append_calls(&self) -> u64 {
        self.output.append_calls()
    }

    /// Writes the rest and syncs the file; the caller syncs the directory.
    pub fn finish(self) -> Result<VlogSummary> {
        self.finish_with_deferred_sync(None)
    }
    /// Like [`VlogWriter::finish`]; with `deferred_syncs`, adds the file to that list instead of
    /// syncing it.
    pub fn finish_with_deferred_sync(
        self,
        deferred_syncs: Option<&mut Vec<Arc<dyn WritableFile>>>,
    ) -> Result<VlogSummary> {
        let (bytes, checksum) = self.output.finish(deferred_syncs)?;
        Ok(VlogSummary { bytes, checksum })
    }
}
