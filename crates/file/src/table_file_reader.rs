//! Reads a table file: every read is checked against the length recorded in the manifest, and every
//! error names file and offset. Shared by the klog and vlog readers; independent of the contents.

use crate::filename::file_name;
use crate::handle_cache::{FileHandleCache, PinnedFile};
use crate::limits::TABLE_SCAN_READ_BYTES;
use perigee_base::checksum::FileChecksum;
use perigee_base::{
    BlockHandle, Error, ErrorKind, FileHeader, FileId, FileKind, HEADER_BYTES, Result,
};
use perigee_env::{Dir, RandomAccessFile};
use std::sync::Arc;

/// An open table file.
#[derive(Debug)]
pub(crate) struct TableFileReader {
    source: TableFileSource,
    id: FileId,
    name: String,
    bytes: u64,
}

/// How the file handle is obtained.
#[derive(Debug)]
enum TableFileSource {
    /// Opened for this reader alone.
    Private(Arc<dyn RandomAccessFile>),
    /// Pinned in the handle cache for as long as this reader exists.
    Pinned(PinnedFile),
    /// Looked up in the handle cache at each read.
    Cached(Arc<FileHandleCache>),
}

impl TableFileReader {
    /// Opens file `id`, which must be `bytes` long (the length recorded in the manifest).
    pub fn open(dir: &dyn Dir, id: FileId, kind: FileKind, bytes: u64) -> Result<TableFileReader> {
        let name = file_name(id, kind);
        let file = dir.open(&name).map_err(|e| e.in_file(&name))?;
        Self::from_file(file, id, name, bytes)
    }

    /// Like [`TableFileReader::open`], through a handle cache that bounds the number of open files.
    pub fn open_cached(
        handles: &Arc<FileHandleCache>,
        id: FileId,
        kind: FileKind,
        bytes: u64,
    ) -> Result<TableFileReader> {
        let name = file_name(id, kind);
        if let Some(pinned) = handles.pin(&name)? {
            let file = pinned.file().map_or_else(|| handles.get_or_open(id, &name), Ok)?;
            let reader = Self::from_file(file, id, name, bytes)?;
            return Ok(TableFileReader { source: TableFileSource::Pinned(pinned), ..reader });
        }
        let reader = Self::from_file(handles.get_or_open(id, &name)?, id, name, bytes)
            .inspect_err(|_| handles.evict(id))?;
        Ok(TableFileReader { source: TableFileSource::Cached(Arc::clone(handles)), ..reader })
    }

    /// Wraps an open file; fails if its length is not `bytes`.
    pub fn from_file(
        file: Arc<dyn RandomAccessFile>,
        id: FileId,
        name: String,
        bytes: u64,
    ) -> Result<TableFileReader> {
        let len = file.len().map_err(|e| e.in_file(&name))?;
        if len != bytes {
            return Err(Error::corruption("file length differs from the manifest")
                .expected(bytes, len)
                .at(&name, len.min(bytes)));
        }
        Ok(TableFileReader { source: TableFileSource::Private(file), id, name, bytes })
    }

    /// Calls `work` with the file, which stays open during the call.
    fn with_file<T>(&self, work: impl FnOnce(&dyn RandomAccessFile) -> Result<T>) -> Result<T> {
        match &self.source {
            TableFileSource::Private(file) => work(&**file),
            TableFileSource::Pinned(pinned) => match pinned.file() {
                Some(file) => work(&*file),
                None => work(&*pinned.cache().get_or_open(self.id, &self.name)?),
            },
            TableFileSource::Cached(handles) => work(&*handles.get_or_open(self.id, &self.name)?),
        }
    }

    /// Builds a reader for a file that could not be opened: every read returns `cause`.
    pub fn placeholder(id: FileId, kind: FileKind, bytes: u64, cause: Error) -> TableFileReader {
        TableFileReader {
            source: TableFileSource::Private(Arc::new(FailedFile(cause))),
            id,
            name: file_name(id, kind),
            bytes,
        }
    }

    /// Returns the file number.
    pub fn id(&self) -> FileId {
        self.id
    }
    /// Returns the file name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Returns the file length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds this file's name and `offset` to an error.
    pub fn error_at(&self, offset: u64, e: Error) -> Error {
        e.at(&self.name, offset)
    }

    /// Reads the header and checks its kind, file number and database id.
    pub fn read_header(&self, kind: FileKind, database: u64) -> Result<FileHeader> {
        let raw = self.read(BlockHandle { offset: 0, len: HEADER_BYTES as u64 })?;
        FileHeader::decode(&raw, kind, Some(self.id), Some(database))
            .map_err(|e| self.error_at(0, e))
    }

    /// Hints that these bytes will be read soon. Errors are ignored.
    pub fn will_need(&self, handle: BlockHandle) {
        let _ = self.with_file(|file| {
            file.prefetch(handle.offset..handle.end());
            Ok(())
        });
    }

    /// Reads these bytes. Memory is allocated only after the range was checked.
    pub fn read(&self, handle: BlockHandle) -> Result<Vec<u8>> {
        let mut buf = Vec::new();
        self.read_into(handle, &mut buf)?;
        Ok(buf)
    }

    /// Fails unless the range lies within the file. Called before memory is allocated for it.
    fn check_range(&self, handle: BlockHandle) -> Result<()> {
        let BlockHandle { offset, len } = handle;
        if offset.checked_add(len).is_none_or(|end| end > self.bytes) {
            return Err(self.error_at(
                offset,
                Error::corruption("a read range exceeds the file").expected(
                    format_args!("an end of at most {}", self.bytes),
                    format_args!("{offset} + {len}"),
                ),
            ));
        }
        Ok(())
    }

    /// Fills `buf` with the bytes at `offset`.
    pub fn fill(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check_range(BlockHandle { offset, len: buf.len() as u64 })?;
        self.with_file(|file| file.read_exact_at(buf, offset)).map_err(|e| self.error_at(offset, e))
    }

    /// Reads these bytes and appends them to `buf`.
    pub fn read_into(&self, handle: BlockHandle, buf: &mut Vec<u8>) -> Result<()> {
        self.check_range(handle)?;
        let start = buf.len();
        try_extend_zeroed(buf, handle.len as usize)?;
        self.fill(handle.offset, &mut buf[start..])
    }

    /// Starts a sequential scan of the whole file. `pace` is called with the current offset; it may
    /// sleep for rate limiting, and an error it returns ends the scan.
    pub fn scan<'a>(&'a self, pace: &'a mut dyn FnMut(u64) -> Result<()>) -> TableFileScan<'a> {
        TableFileScan {
            input: self,
            offset: 0,
            checksum: FileChecksum::new(self.id),
            buffer: Vec::new(),
            buffer_start: 0,
            pace,
        }
    }
}

/// Returns the open error on every read.
#[derive(Debug)]
struct FailedFile(Error);

impl RandomAccessFile for FailedFile {
    fn read_exact_at(&self, _buf: &mut [u8], _offset: u64) -> Result<()> {
        Err(self.0.clone())
    }
    fn len(&self) -> Result<u64> {
        Err(self.0.clone())
    }
}

/// A scan over a file from the first byte to the last that computes the whole-file checksum.
pub(crate) struct TableFileScan<'a> {
    input: &'a TableFileReader,
    offset: u64,
    checksum: FileChecksum,
    /// The bytes read, and the offset of the first of them.
    buffer: Vec<u8>,
    buffer_start: u64,
    pace: &'a mut dyn FnMut(u64) -> Result<()>,
}

impl TableFileScan<'_> {
    /// Returns the offset of the next bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the next `len` bytes.
    pub fn next_part(&mut self, len: u64) -> Result<&[u8]> {
        self.input.check_range(BlockHandle { offset: self.offset, len })?;
        if self.buffer_start + (self.buffer.len() as u64) < self.offset + len {
            // A read error further ahead must be reported for the part that it affects.
            let ahead = len.max(TABLE_SCAN_READ_BYTES).min(self.input.bytes - self.offset);
            self.refill(ahead).or_else(|_| self.refill(len))?;
        }
        let at = (self.offset - self.buffer_start) as usize;
        check_slow!(
            at as u64 + len <= self.buffer.len() as u64,
            "a part is in the buffer",
            at,
            len
        );
        let bytes = &self.buffer[at..at + len as usize];
        self.checksum.update(bytes);
        self.offset += len;
        (self.pace)(self.offset)?;
        Ok(bytes)
    }

    /// Replaces the buffer with `len` bytes read at the current offset.
    fn refill(&mut self, len: u64) -> Result<()> {
        let len = len as usize;
        match len.checked_sub(self.buffer.len()) {
            Some(missing) => try_extend_zeroed(&mut self.buffer, missing)?,
            None => self.buffer.truncate(len),
        }
        self.buffer_start = self.offset;
        let done = self.input.fill(self.offset, &mut self.buffer);
        if done.is_err() {
            self.buffer.clear();
        }
        done
    }

    /// Fails unless all bytes were consumed and, if `checksum` is given, the whole-file checksum
    /// matches.
    pub fn finish(self, checksum: impl Into<Option<u64>>) -> Result<()> {
        if self.offset != self.input.bytes {
            let e = Error::corruption("trailing bytes after the last part of the file")
                .expected(self.input.bytes, self.offset);
            return Err(self.input.error_at(self.offset, e));
        }
        let got = self.checksum.finish();
        if let Some(checksum) = checksum.into()
            && got != checksum
        {
            let e = Error::corruption("the checksum of the whole file differs from the manifest's")
                .expected(format_args!("{checksum:#018x}"), format_args!("{got:#018x}"));
            return Err(self.input.error_at(0, e));
        }
        Ok(())
    }
}

/// Appends `n` zero bytes; fails with `NoMemory` if they cannot be allocated.
pub(crate) fn try_extend_zeroed(buf: &mut Vec<u8>, n: usize) -> Result<()> {
    buf.try_reserve_exact(n).map_err(|_| {
        Error::new(ErrorKind::NoMemory, format!("no memory for a buffer of {n} bytes"))
    })?;
    buf.resize(buf.len() + n, 0);
    Ok(())
}
