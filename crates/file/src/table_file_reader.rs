//! A file being read: every read is inside the length the manifest gives, every error has a place.
//! Shared by the klog and vlog readers; must not know what the bytes mean.

use crate::filename::file_name;
use crate::handle_cache::{FileHandleCache, PinnedFile};
use perigee_base::checksum::FileChecksum;
use perigee_base::file_header::{FileHeader, FileKind, HEADER_BYTES};
use perigee_base::{Error, ErrorKind, FileId, Result};
use perigee_env::{Dir, RandomAccessFile};
use std::sync::Arc;

/// A pass over a file reads so much at a time, or one part that is longer.
const SCAN_READ_BYTES: u64 = 128 << 10;

/// A file being read.
#[derive(Debug)]
pub(crate) struct TableFileReader {
    source: TableFileSource,
    id: FileId,
    name: String,
    bytes: u64,
}

/// Where the open file is.
#[derive(Debug)]
enum TableFileSource {
    /// Here.
    Private(Arc<dyn RandomAccessFile>),
    /// Here, counted among others.
    Pinned(PinnedFile),
    /// Among others, of which only so many are open at once.
    Cached(Arc<FileHandleCache>),
}

impl TableFileReader {
    /// Opens the file of that number, which the manifest says is `bytes` long.
    pub fn open(dir: &dyn Dir, id: FileId, kind: FileKind, bytes: u64) -> Result<TableFileReader> {
        let name = file_name(id, kind);
        let file = dir.open(&name).map_err(|e| e.in_file(&name))?;
        Self::from_file(file, id, name, bytes)
    }

    /// The same, through a bounded number of open files.
    pub fn open_cached(
        handles: &Arc<FileHandleCache>,
        id: FileId,
        kind: FileKind,
        bytes: u64,
    ) -> Result<TableFileReader> {
        let name = file_name(id, kind);
        if let Some(kept) = handles.pin(&name)? {
            let file = kept.file().map_or_else(|| handles.get_or_open(id, &name), Ok)?;
            let own = Self::from_file(file, id, name, bytes)?;
            return Ok(TableFileReader { source: TableFileSource::Pinned(kept), ..own });
        }
        let own = Self::from_file(handles.get_or_open(id, &name)?, id, name, bytes)
            .inspect_err(|_| handles.evict(id))?;
        Ok(TableFileReader { source: TableFileSource::Cached(Arc::clone(handles)), ..own })
    }

    /// Reads from an open file.
    pub fn from_file(
        file: Arc<dyn RandomAccessFile>,
        id: FileId,
        name: String,
        bytes: u64,
    ) -> Result<TableFileReader> {
        let len = file.len().map_err(|e| e.in_file(&name))?;
        if len != bytes {
            return Err(Error::corruption("the file has another length than the manifest says")
                .expected(bytes, len)
                .at(&name, len.min(bytes)));
        }
        Ok(TableFileReader { source: TableFileSource::Private(file), id, name, bytes })
    }

    /// Does something with the file, which is open meanwhile.
    fn with_file<T>(&self, work: impl FnOnce(&dyn RandomAccessFile) -> Result<T>) -> Result<T> {
        match &self.source {
            TableFileSource::Private(file) => work(&**file),
            TableFileSource::Pinned(kept) => match kept.file() {
                Some(file) => work(&*file),
                None => work(&*kept.cache().get_or_open(self.id, &self.name)?),
            },
            TableFileSource::Cached(handles) => work(&*handles.get_or_open(self.id, &self.name)?),
        }
    }

    /// A file that could not be opened: every read answers with the reason.
    pub fn placeholder(id: FileId, kind: FileKind, bytes: u64, why: Error) -> TableFileReader {
        TableFileReader {
            source: TableFileSource::Private(Arc::new(FailedFile(why))),
            id,
            name: file_name(id, kind),
            bytes,
        }
    }

    /// The file's number.
    pub fn id(&self) -> FileId {
        self.id
    }
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The file's length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An error at `offset` of this file.
    pub fn error_at(&self, offset: u64, e: Error) -> Error {
        e.at(&self.name, offset)
    }

    /// Reads the header and compares it with what the caller knows.
    pub fn read_header(&self, kind: FileKind, database: u64) -> Result<FileHeader> {
        let raw = self.read(0, HEADER_BYTES as u64)?;
        FileHeader::decode(&raw, kind, Some(self.id), Some(database))
            .map_err(|e| self.error_at(0, e))
    }

    /// Says that these bytes will be read soon. A hint: nothing depends on it.
    pub fn will_need(&self, offset: u64, len: u64) {
        let _ = self.with_file(|file| {
            file.prefetch(offset, len);
            Ok(())
        });
    }

    /// `len` bytes at `offset`. Memory is taken only for bytes that lie in the file.
    pub fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut buf = Vec::new();
        self.read_into(offset, len, &mut buf)?;
        Ok(buf)
    }

    /// Demands that so many bytes at `offset` lie in the file: asked before memory is taken for
    /// them.
    fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.bytes) {
            return Err(self.error_at(
                offset,
                Error::corruption("a part lies outside the file").expected(
                    format_args!("an end of at most {}", self.bytes),
                    format_args!("{offset} + {len}"),
                ),
            ));
        }
        Ok(())
    }

    /// Fills `buf` from `offset`.
    pub fn fill(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check_range(offset, buf.len() as u64)?;
        self.with_file(|file| file.read_exact_at(buf, offset)).map_err(|e| self.error_at(offset, e))
    }

    /// Appends `len` bytes at `offset` to `buf`.
    pub fn read_into(&self, offset: u64, len: u64, buf: &mut Vec<u8>) -> Result<()> {
        self.check_range(offset, len)?;
        let start = buf.len();
        try_extend_zeroed(buf, len as usize)?;
        self.fill(offset, &mut buf[start..])
    }

    /// Starts a pass over the whole file; `pace` hears how far it is, may sleep, and ends the pass
    /// with an error.
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

/// What stands for a file that could not be opened.
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

/// One pass over a file from its first byte to its last, with the checksum of the whole.
pub(crate) struct TableFileScan<'a> {
    input: &'a TableFileReader,
    offset: u64,
    checksum: FileChecksum,
    /// What was read, and where that begins.
    buffer: Vec<u8>,
    buffer_start: u64,
    pace: &'a mut dyn FnMut(u64) -> Result<()>,
}

impl TableFileScan<'_> {
    /// Where the next bytes lie.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next `len` bytes.
    pub fn next_part(&mut self, len: u64) -> Result<&[u8]> {
        self.input.check_range(self.offset, len)?;
        if self.buffer_start + (self.buffer.len() as u64) < self.offset + len {
            // An error further on belongs to the part that it hits.
            let ahead = len.max(SCAN_READ_BYTES).min(self.input.bytes - self.offset);
            self.refill(ahead).or_else(|_| self.refill(len))?;
        }
        let at = (self.offset - self.buffer_start) as usize;
        let bytes = &self.buffer[at..at + len as usize];
        self.checksum.update(bytes);
        self.offset += len;
        (self.pace)(self.offset)?;
        Ok(bytes)
    }

    /// Reads `len` bytes anew from where the next ones lie.
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

    /// Demands that every byte was taken, and that the whole has that checksum, if there is one to
    /// compare with.
    pub fn finish(self, checksum: impl Into<Option<u64>>) -> Result<()> {
        if self.offset != self.input.bytes {
            let e = Error::corruption("bytes behind the last part of the file")
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

/// Adds `n` zero bytes, or says that there is no memory for them.
pub(crate) fn try_extend_zeroed(buf: &mut Vec<u8>, n: usize) -> Result<()> {
    buf.try_reserve_exact(n).map_err(|_| {
        Error::new(ErrorKind::NoMemory, format!("no memory for a buffer of {n} bytes"))
    })?;
    buf.resize(buf.len() + n, 0);
    Ok(())
}
