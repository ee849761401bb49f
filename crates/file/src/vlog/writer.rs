//! Writes a vlog: each value as one frame per chunk of 1 MiB. Must not know keys.
//!
//! Invariant: an offset that was handed out names the first frame of its value, and the value's
//! frames follow each other.

use crate::block::frame::{self, FrameKind};
use crate::compression::{CompressionMethod, Compressor};
use crate::table_file_writer::{TableFileWriter, table_header};
use perigee_base::entry::VlogPointer;
use perigee_base::file_header::FileKind;
use perigee_base::limits::{VALUE_BYTES_MAX, VLOG_CHUNK_BYTES};
use perigee_base::{Error, FileId, Result};
use perigee_env::{Dir, WritableFile};
use std::sync::Arc;

/// What a finished vlog is, for the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlogSummary {
    /// Length of the file.
    pub bytes: u64,
    /// Checksum of the whole file.
    pub checksum: u64,
}

/// Writes one vlog. After an error it is of no more use; the caller removes the file.
#[derive(Debug)]
pub struct VlogWriter {
    output: TableFileWriter,
    compression: CompressionMethod,
    compressor: Compressor,
}

impl VlogWriter {
    /// Creates the file.
    pub fn create(
        dir: &dyn Dir,
        id: FileId,
        database: u64,
        compression: CompressionMethod,
    ) -> Result<VlogWriter> {
        let output = TableFileWriter::create(dir, table_header(FileKind::Vlog, database, id, 0))?;
        Ok(VlogWriter { output, compression, compressor: Compressor::new() })
    }

    /// Appends a value (never an empty one) and says where it lies.
    pub fn append(&mut self, value: &[u8]) -> Result<VlogPointer> {
        if value.is_empty() || value.len() > VALUE_BYTES_MAX {
            return Err(Error::internal("a separated value has an impossible length")
                .expected(format_args!("1 to {VALUE_BYTES_MAX}"), value.len()));
        }
        let file = self.output.id();
        let start = self.output.offset();
        for chunk in value.chunks(VLOG_CHUNK_BYTES) {
            let place = (file, self.output.offset());
            let how = (self.compression, &mut self.compressor);
            frame::append_frame(self.output.buffer(), place, FrameKind::Chunk, chunk, how)?;
            self.output.flush_if_full()?;
        }
        let stored_bytes = self.output.offset() - start;
        Ok(VlogPointer { file, offset: start, stored_bytes, value_bytes: value.len() as u64 })
    }

    /// Bytes of the file so far.
    pub fn bytes_written(&self) -> u64 {
        self.output.offset()
    }

    /// Gathers so many bytes before the file system is called.
    pub fn set_buffer_bytes(&mut self, bytes: usize) {
        self.output.set_buffer_bytes(bytes);
    }
    /// Memory of its buffers.
    pub fn memory_bytes(&self) -> u64 {
        (self.output.memory_bytes() + self.compressor.memory_bytes() + size_of::<VlogWriter>())
            as u64
    }

    /// Write calls so far; finishing makes one more.
    pub fn append_calls(&self) -> u64 {
        self.output.append_calls()
    }

    /// Writes the rest and syncs the file; the directory is the caller's.
    pub fn finish(self) -> Result<VlogSummary> {
        self.finish_with_deferred_sync(None)
    }
    /// The same; the file goes to `later`, if there is such a list, for the caller to sync.
    pub fn finish_with_deferred_sync(
        self,
        later: Option<&mut Vec<Arc<dyn WritableFile>>>,
    ) -> Result<VlogSummary> {
        let (bytes, checksum) = self.output.finish(later)?;
        Ok(VlogSummary { bytes, checksum })
    }
}
