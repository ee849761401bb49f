//! Open files for writing and for reading. Each call passes its offset; the position of the handle,
//! which Windows changes too, is never used, so that calls on one handle may run concurrently.
//! Windows runs them one after the other.

use crate::fs::{RandomAccessFile, WritableFile, short_file_error, sync_error};
use crate::limits::JOINED_APPEND_BYTES_MAX;
use perigee_base::{Error, Result};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::windows::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct WindowsWritableFile {
    file: File,
    name: String,
    /// Bytes appended successfully; offset of the next append. The file is longer after a failed
    /// append.
    len: AtomicU64,
}

impl WindowsWritableFile {
    pub fn new(file: File, name: &str, len: u64) -> Self {
        WindowsWritableFile { file, name: name.to_owned(), len: AtomicU64::new(len) }
    }
}

impl WritableFile for WindowsWritableFile {
    fn append(&self, parts: &[&[u8]]) -> Result<()> {
        let offset = self.len.load(Ordering::Acquire);
        let total: usize = parts.iter().map(|p| p.len()).sum();
        write_parts_at(&self.file, parts, offset, total).map_err(|e| {
            Error::io(format_args!("append {total} bytes to {}", self.name), &e)
                .at(&self.name, offset)
        })?;
        let before = self.len.swap(offset + total as u64, Ordering::AcqRel);
        check!(
            before == offset,
            "one thread at a time appends to a file",
            self.name,
            before,
            offset
        );
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn overwrite(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if offset + bytes.len() as u64 > self.len() {
            return Err(
                Error::invalid("overwrite beyond the end of the file").at(&self.name, offset)
            );
        }
        write_all_at(&self.file, bytes, offset).map_err(|e| {
            Error::io(format_args!("overwrite {} bytes of {}", bytes.len(), self.name), &e)
                .at(&self.name, offset)
        })
    }

    fn truncate(&self, len: u64) -> Result<()> {
        if len > self.len() {
            return Err(Error::invalid("truncate beyond the end of the file").at(&self.name, len));
        }
        let done = self.file.set_len(len);
        done.map_err(|e| {
            Error::io(format_args!("truncate {}", self.name), &e).at(&self.name, len)
        })?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let done = self.file.sync_data();
        done.map_err(|e| sync_error(format_args!("sync {}", self.name), &e).in_file(&self.name))
    }

    /// Does nothing: Windows flushes whole files only, together with the cache of the disk, and
    /// writes the pages of a file within seconds by itself.
    fn write_back(&self, _begin: Range<u64>, _finish: Range<u64>) -> Result<()> {
        Ok(())
    }
}

/// Writes the parts, of `total` bytes, in one call if they are short: Windows has no call for
/// several buffers.
fn write_parts_at(file: &File, parts: &[&[u8]], offset: u64, total: usize) -> io::Result<()> {
    if let [one] = parts {
        return write_all_at(file, one, offset);
    }
    if total <= JOINED_APPEND_BYTES_MAX {
        return write_all_at(file, &parts.concat(), offset);
    }
    let mut at = offset;
    for part in parts {
        write_all_at(file, part, at)?;
        at += part.len() as u64;
    }
    check!(at == offset + total as u64, "every part is written once", at, offset, total);
    Ok(())
}

fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.seek_write(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                check!(written <= bytes.len(), "a write writes at most its buffer", written);
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[derive(Debug)]
pub(super) struct WindowsRandomAccessFile {
    file: File,
    name: String,
}

impl WindowsRandomAccessFile {
    pub fn new(file: File, name: &str) -> Self {
        WindowsRandomAccessFile { file, name: name.to_owned() }
    }
}

impl RandomAccessFile for WindowsRandomAccessFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.file.seek_read(&mut buf[filled..], offset + filled as u64) {
                Ok(0) => {
                    return Err(short_file_error(&self.name, offset, buf.len(), self.len()?));
                }
                Ok(read) => filled += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    let failed = Error::io(format_args!("read {}", self.name), &e);
                    return Err(failed.at(&self.name, offset));
                }
            }
        }
        check!(filled == buf.len(), "a read fills its buffer", filled);
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        let meta = self.file.metadata();
        meta.map(|m| m.len())
            .map_err(|e| Error::io(format_args!("stat {}", self.name), &e).in_file(&self.name))
    }
}
