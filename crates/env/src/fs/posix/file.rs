//! Open files for writing and for reading.

use super::zeroed_space::ZeroedSpace;
use super::{sync, system, write_back};
use crate::fork::ForkGuard;
use crate::fs::{RandomAccessFile, WritableFile, short_file_error, sync_error};
use crate::limits::IOV_SLICES_MAX;
use perigee_base::{Error, Result};
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct PosixWritableFile {
    file: File,
    name: String,
    /// Bytes appended successfully; offset of the next append. The file is longer after a failed
    /// append.
    len: AtomicU64,
    zeroed: ZeroedSpace,
    fork_guard: ForkGuard,
}

impl PosixWritableFile {
    pub fn new(file: File, name: &str, len: u64) -> Self {
        PosixWritableFile {
            file,
            name: name.to_owned(),
            len: AtomicU64::new(len),
            zeroed: ZeroedSpace::default(),
            fork_guard: ForkGuard::new(),
        }
    }
}

impl WritableFile for PosixWritableFile {
    fn append(&self, parts: &[&[u8]]) -> Result<()> {
        self.fork_guard.check()?;
        let offset = self.len.load(Ordering::Acquire);
        let total: usize = parts.iter().map(|p| p.len()).sum();
        let zeros = self.zeroed.zeros_after(offset..offset + total as u64);
        let written = match zeros.is_empty() {
            true => write_all_at(&self.file, parts, offset),
            false => write_all_at(&self.file, &[parts, &[zeros]].concat(), offset),
        };
        written.map_err(|e| {
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

    fn allocate(&self, len: u64) -> Result<bool> {
        self.fork_guard.check()?;
        let from = self.len();
        if len <= from {
            return Ok(true);
        }
        let supported = system::allocate(&self.file, from..len).map_err(|e| {
            Error::io(format_args!("allocate {len} bytes for {}", self.name), &e.into())
                .in_file(&self.name)
        })?;
        if supported {
            self.zeroed.note_allocated(len);
        }
        Ok(supported)
    }

    fn overwrite(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.fork_guard.check()?;
        if offset + bytes.len() as u64 > self.len() {
            return Err(
                Error::invalid("overwrite beyond the end of the file").at(&self.name, offset)
            );
        }
        write_all_at(&self.file, &[bytes], offset).map_err(|e| {
            Error::io(format_args!("overwrite {} bytes of {}", bytes.len(), self.name), &e)
                .at(&self.name, offset)
        })
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.fork_guard.check()?;
        if len > self.len() {
            return Err(Error::invalid("truncate beyond the end of the file").at(&self.name, len));
        }
        self.zeroed.note_truncated(len);
        // The standard library retries the call if a signal interrupts it.
        let done = self.file.set_len(len);
        done.map_err(|e| {
            Error::io(format_args!("truncate {}", self.name), &e).at(&self.name, len)
        })?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.zeroed.note_sync();
        let done = sync::sync_data(&self.file);
        done.map_err(|e| sync_error(format_args!("sync {}", self.name), &e).in_file(&self.name))
    }

    fn write_back(&self, begin: Range<u64>, finish: Range<u64>) -> Result<()> {
        self.fork_guard.check()?;
        let done = write_back::begin(&self.file, begin)
            .and_then(|()| write_back::finish(&self.file, finish));
        match done {
            Err(e) if write_back::is_unsupported(&e) => self.sync(),
            done => done.map_err(|e| {
                sync_error(format_args!("write back {}", self.name), &e).in_file(&self.name)
            }),
        }
    }
}

fn write_all_at(file: &File, parts: &[&[u8]], mut offset: u64) -> io::Result<()> {
    if let [one] = parts {
        return file.write_all_at(one, offset);
    }
    let mut slices: Vec<IoSlice<'_>> =
        parts.iter().filter(|p| !p.is_empty()).map(|p| IoSlice::new(p)).collect();
    let end = offset + slices.iter().map(|s| s.len() as u64).sum::<u64>();
    let mut left = &mut slices[..];
    while !left.is_empty() {
        let now = left.len().min(IOV_SLICES_MAX);
        let written =
            rustix::io::retry_on_intr(|| rustix::io::pwritev(file, &left[..now], offset))?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut left, written);
        offset += written as u64;
    }
    check!(offset == end, "every part is written once", offset, end);
    Ok(())
}

#[derive(Debug)]
pub(super) struct PosixRandomAccessFile {
    file: File,
    name: String,
}

impl PosixRandomAccessFile {
    pub fn new(file: File, name: &str) -> Self {
        PosixRandomAccessFile { file, name: name.to_owned() }
    }
}

impl RandomAccessFile for PosixRandomAccessFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match self.file.read_exact_at(buf, offset) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(short_file_error(&self.name, offset, buf.len(), self.len()?))
            }
            Err(e) => Err(Error::io(format_args!("read {}", self.name), &e).at(&self.name, offset)),
        }
    }

    fn prefetch(&self, range: Range<u64>) {
        check!(range.start <= range.end, "a range to prefetch is ordered", self.name, range);
        system::prefetch(&self.file, range);
    }

    fn len(&self) -> Result<u64> {
        let meta = self.file.metadata();
        meta.map(|m| m.len())
            .map_err(|e| Error::io(format_args!("stat {}", self.name), &e).in_file(&self.name))
    }
}
