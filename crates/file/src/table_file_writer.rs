//! Writes a table file: buffers appends, tracks the offset, lets the system write at intervals and
//! computes the whole-file checksum. Shared by the klog and vlog writers; independent of the
//! contents.

use crate::filename::file_name;
use crate::limits::{TABLE_BUFFER_BYTES, TABLE_SYNC_INTERVAL_BYTES};
use perigee_base::bug::Bug;
use perigee_base::checksum::FileChecksum;
use perigee_base::{Error, FileHeader, FileId, Result, bug};
use perigee_env::{Dir, WritableFile};
use std::sync::Arc;

/// A file being written.
#[derive(Debug)]
pub(crate) struct TableFileWriter {
    file: Arc<dyn WritableFile>,
    id: FileId,
    name: String,
    buffer: Vec<u8>,
    /// Buffered bytes that trigger an append.
    flush_threshold: usize,
    /// Bytes appended to the file; the buffer follows them.
    appended_bytes: u64,
    /// The part of `appended_bytes` that the system has begun to write to the disk, and the part
    /// that it has written.
    begun_bytes: u64,
    written_bytes: u64,
    /// Number of append calls on the file.
    append_calls: u64,
    checksum: FileChecksum,
    /// An append failed: the file contents are unknown, and nothing may be appended after them.
    failed: bool,
}

impl TableFileWriter {
    /// Creates the file and buffers its header.
    pub fn create(dir: &dyn Dir, header: FileHeader) -> Result<TableFileWriter> {
        Self::create_named(dir, &file_name(header.file, header.kind), header)
    }

    /// Like [`TableFileWriter::create`], under the given name.
    pub fn create_named(dir: &dyn Dir, name: &str, header: FileHeader) -> Result<TableFileWriter> {
        let file = dir.create(name)?;
        // Small tables need no large buffer: it grows as needed.
        let buffer = header.encode().to_vec();
        Ok(TableFileWriter {
            file,
            id: header.file,
            name: name.to_owned(),
            buffer,
            flush_threshold: TABLE_BUFFER_BYTES,
            appended_bytes: 0,
            begun_bytes: 0,
            written_bytes: 0,
            append_calls: 0,
            checksum: FileChecksum::new(header.file),
            failed: false,
        })
    }

    /// Returns the file number.
    pub fn id(&self) -> FileId {
        self.id
    }
    /// Returns the file name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Returns the offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.appended_bytes + self.buffer.len() as u64
    }
    /// Returns the number of append calls on the file.
    pub fn append_calls(&self) -> u64 {
        self.append_calls
    }
    /// Returns the buffer to append to. Call [`TableFileWriter::flush_if_full`] afterwards.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Sets the number of buffered bytes that triggers an append.
    pub fn set_buffer_bytes(&mut self, bytes: usize) {
        self.flush_threshold = bytes;
    }
    /// Returns the memory used by the buffer, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Appends the buffer to the file if it has reached the threshold.
    pub fn flush_if_full(&mut self) -> Result<()> {
        if self.buffer.len() < self.flush_threshold { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        if self.failed {
            return Err(Error::internal("an earlier write of this file failed; discard it")
                .in_file(&self.name));
        }
        self.failed = true;
        self.checksum.update(&self.buffer);
        self.file.append(&[&self.buffer]).map_err(|e| e.at(&self.name, self.appended_bytes))?;
        self.appended_bytes += self.buffer.len() as u64;
        self.append_calls += 1;
        check!(
            [0, self.appended_bytes].contains(&self.file.len()), // 0: the database was closed
            "a table file contains what was appended",
            self.name,
            self.appended_bytes
        );
        self.buffer.clear();
        if self.appended_bytes - self.begun_bytes >= TABLE_SYNC_INTERVAL_BYTES
            && !bug::is_active(Bug::SkipTableSync)
        {
            let begin = self.begun_bytes..self.appended_bytes;
            let finish = self.written_bytes..self.begun_bytes;
            self.file.write_back(begin, finish).map_err(|e| e.in_file(&self.name))?;
            (self.written_bytes, self.begun_bytes) = (self.begun_bytes, self.appended_bytes);
        }
        self.failed = false;
        Ok(())
    }

    /// Appends the rest of the buffer and syncs the file. With `later`, adds the file to that list
    /// instead of syncing it. Returns the file length and the whole-file checksum.
    pub fn finish(
        mut self,
        deferred_syncs: Option<&mut Vec<Arc<dyn WritableFile>>>,
    ) -> Result<(u64, u64)> {
        self.flush()?;
        check!(
            self.buffer.is_empty()
                && self.written_bytes <= self.begun_bytes
                && self.begun_bytes <= self.appended_bytes,
            "a finished file is written completely",
            self.buffer.len(),
            self.begun_bytes,
            self.appended_bytes
        );
        match deferred_syncs {
            _ if bug::is_active(Bug::SkipTableSync) => {}
            Some(files) => files.push(self.file),
            None => self.file.sync().map_err(|e| e.in_file(&self.name))?,
        }
        Ok((self.appended_bytes, self.checksum.finish()))
    }
}
