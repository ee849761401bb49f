//! Writes one value of unknown length, in parts, to a vlog of its own. Holds one chunk of the value
//! in memory.
//!
//! Invariant: every chunk but the last is full, as in a value written in one piece, so that readers
//! need not know how a value was written.

use super::writer::{VlogSummary, VlogWriter};
use perigee_base::limits::{STREAMED_VALUE_BYTES_MAX, VLOG_CHUNK_BYTES};
use perigee_base::{Bytes, Error, HEADER_BYTES, Result, VlogPointer};

/// The value being written.
#[derive(Debug)]
pub struct StreamedValueWriter {
    vlog: VlogWriter,
    /// The end of the value that does not fill a chunk yet.
    tail: Vec<u8>,
    value_bytes: u64,
}

/// A value in a finished vlog that holds nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenValue {
    /// Where it is.
    pub pointer: VlogPointer,
    /// The file, for the manifest.
    pub vlog: VlogSummary,
}

impl StreamedValueWriter {
    /// Begins a value in a vlog to which nothing was written.
    pub fn new(vlog: VlogWriter) -> StreamedValueWriter {
        check!(
            vlog.bytes_written() == HEADER_BYTES as u64,
            "a streamed value has a vlog of its own",
            vlog.bytes_written()
        );
        StreamedValueWriter { vlog, tail: Vec::new(), value_bytes: 0 }
    }

    /// Fails if a value of this length is too long.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check_value_bytes(bytes: u64) -> Result<()> {
        if bytes > STREAMED_VALUE_BYTES_MAX {
            return Err(Error::invalid("the value is too long")
                .expected(format_args!("at most {STREAMED_VALUE_BYTES_MAX} bytes"), bytes));
        }
        Ok(())
    }

    /// Appends a part of the value. After an error the writer cannot be used any more.
    ///
    /// # Errors
    /// `InvalidArgument` if the value becomes too long; `NoSpace`, `Io`.
    pub fn append(&mut self, mut part: &[u8]) -> Result<()> {
        let total = self.value_bytes.saturating_add(part.len() as u64);
        Self::check_value_bytes(total)?;
        self.value_bytes = total;
        if !self.tail.is_empty() {
            let (first, rest) = part.split_at(part.len().min(VLOG_CHUNK_BYTES - self.tail.len()));
            self.tail.extend_from_slice(first);
            if self.tail.len() < VLOG_CHUNK_BYTES {
                return Ok(());
            }
            self.vlog.append_chunk(&self.tail)?;
            self.tail.clear();
            part = rest;
        }
        let full = part.chunks_exact(VLOG_CHUNK_BYTES);
        self.tail.extend_from_slice(full.remainder());
        for chunk in full {
            self.vlog.append_chunk(chunk)?;
        }
        check_slow!(
            self.tail.len() < VLOG_CHUNK_BYTES,
            "a full chunk is written at once",
            self.tail.len()
        );
        Ok(())
    }

    /// Returns the length of the value so far.
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes
    }
    /// Returns the size of the file so far.
    pub fn stored_bytes(&self) -> u64 {
        self.vlog.bytes_written()
    }
    /// Returns the memory of the buffers, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.vlog.memory_bytes() + self.tail.capacity() as u64
    }

    /// Writes the rest and syncs the file; the caller syncs the directory. The value must not be
    /// empty.
    pub fn finish(mut self) -> Result<WrittenValue> {
        if self.value_bytes == 0 {
            return Err(Error::internal("an empty value is not separated"));
        }
        if !self.tail.is_empty() {
            self.vlog.append_chunk(&self.tail)?;
        }
        let pointer = self.vlog.value_pointer(HEADER_BYTES as u64, Bytes(self.value_bytes));
        Ok(WrittenValue { pointer, vlog: self.vlog.finish()? })
    }
}
