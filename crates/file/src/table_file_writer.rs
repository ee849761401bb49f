//! A file on its way to disk: buffered, positioned, checksummed as a whole. Shared by the klog and
//! vlog writers; must not know what the bytes mean.

use crate::filename::file_name;
use perigee_base::bug::{self, Bug};
use perigee_base::checksum::FileChecksum;
use perigee_base::file_header::{FileHeader, FileKind};
use perigee_base::{Error, FileId, Result};
use perigee_env::{Dir, WritableFile};
use std::sync::Arc;

/// Bytes gathered before the file system is called, unless somebody asks for less.
pub(crate) const BUFFER_BYTES: usize = 512 << 10;

/// So many bytes are put on stable storage without waiting for the end of the file, so that its
/// last sync is short.
const SYNC_INTERVAL_BYTES: u64 = 8 << 20;

/// A file being written.
#[derive(Debug)]
pub(crate) struct TableFileWriter {
    file: Arc<dyn WritableFile>,
    id: FileId,
    name: String,
    buffer: Vec<u8>,
    /// Bytes that make it worth a call of the file system.
    flush_threshold: usize,
    /// Bytes handed to the file system; the buffer follows.
    appended_bytes: u64,
    /// Those of them that are on stable storage already.
    synced_bytes: u64,
    /// Calls of the file system so far.
    append_calls: u64,
    checksum: FileChecksum,
    /// An append failed: what the file holds is unknown, and nothing may follow it.
    failed: bool,
}

impl TableFileWriter {
    /// Creates the file and puts its header into the buffer.
    pub fn create(dir: &dyn Dir, header: FileHeader) -> Result<TableFileWriter> {
        Self::create_named(dir, &file_name(header.file, header.kind), header)
    }

    /// The same under another name.
    pub fn create_named(dir: &dyn Dir, name: &str, header: FileHeader) -> Result<TableFileWriter> {
        let file = dir.create(name)?;
        // Small tables need no large buffer: it grows with what is written.
        let buffer = header.encode().to_vec();
        Ok(TableFileWriter {
            file,
            id: header.file,
            name: name.to_owned(),
            buffer,
            flush_threshold: BUFFER_BYTES,
            appended_bytes: 0,
            synced_bytes: 0,
            append_calls: 0,
            checksum: FileChecksum::new(header.file),
            failed: false,
        })
    }

    /// The file's number.
    pub fn id(&self) -> FileId {
        self.id
    }
    /// The file's name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Where the next byte goes.
    pub fn offset(&self) -> u64 {
        self.appended_bytes + self.buffer.len() as u64
    }
    /// How often the file system was called.
    pub fn append_calls(&self) -> u64 {
        self.append_calls
    }
    /// The buffer, to append to. Call [`Output::spill`] afterwards.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Gathers so many bytes instead of the usual ones.
    pub fn set_buffer_bytes(&mut self, bytes: usize) {
        self.flush_threshold = bytes;
    }
    /// Memory of the buffer.
    pub fn memory_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Hands the buffer to the file system if it has grown large.
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
        self.buffer.clear();
        if self.appended_bytes - self.synced_bytes >= SYNC_INTERVAL_BYTES
            && !bug::is_active(Bug::SkipTableSync)
        {
            self.file.sync().map_err(|e| e.in_file(&self.name))?;
            self.synced_bytes = self.appended_bytes;
        }
        self.failed = false;
        Ok(())
    }

    /// Writes the rest and puts the file on stable storage, unless the caller takes it to do so
    /// later. Its length and whole-file checksum.
    pub fn finish(mut self, later: Option<&mut Vec<Arc<dyn WritableFile>>>) -> Result<(u64, u64)> {
        self.flush()?;
        match later {
            _ if bug::is_active(Bug::SkipTableSync) => {}
            Some(files) => files.push(self.file),
            None => self.file.sync().map_err(|e| e.in_file(&self.name))?,
        }
        Ok((self.appended_bytes, self.checksum.finish()))
    }
}

/// The header of a table file.
pub(crate) fn table_header(kind: FileKind, database: u64, file: FileId, a: u64) -> FileHeader {
    FileHeader { kind, database, file, a, b: 0 }
}
