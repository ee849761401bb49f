//! Positional reads of one file, and the decoding of its file header, which is common to all kinds.

use crate::failure::{Failure, Result};
use perigee_base::codec::Decoder;
use perigee_base::{Error, FileHeader, FileId, FileKind, HEADER_BYTES};
use std::fs::File;
use std::path::Path;

use super::dump_writer::DumpWriter;

/// An open file, with its length as of the open (a log may grow afterwards).
pub struct DumpSource {
    file: File,
    name: String,
    bytes: u64,
}

impl DumpSource {
    /// Opens a file for reading.
    pub fn open(path: &Path, name: &str) -> Result<DumpSource> {
        let failed = |e: std::io::Error| Failure::file("open", path, &e);
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        Ok(DumpSource { file, name: name.to_owned(), bytes })
    }

    /// Returns the length of the file as of the open.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads up to `len` bytes from `offset`; fewer at the end of the file.
    pub fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let len = self.bytes.saturating_sub(offset).min(len as u64) as usize;
        let mut bytes = vec![0; len];
        read_exact_at(&self.file, &mut bytes, offset)
            .map_err(|e| Failure::file("read", Path::new(&self.name), &e))?;
        Ok(bytes)
    }

    /// Prints the header. Returns the database id and the file id, which seed the file's checksums:
    /// from the header if it is intact, otherwise unverified; the file id is then taken from the
    /// file name if possible.
    pub fn read_header(
        &self,
        kind: FileKind,
        named: Option<FileId>,
        writer: &mut DumpWriter<'_>,
    ) -> Result<(u64, FileId)> {
        let bytes = self.read_at(0, HEADER_BYTES)?;
        match FileHeader::decode(&bytes, kind, named, None) {
            Ok(header) => {
                writer.write_header(&header)?;
                Ok((header.database, header.file))
            }
            Err(e) => {
                writer.write_damage(0, &e)?;
                let file = named.unwrap_or_else(|| FileId(unverified_field(&bytes, 32)));
                Ok((unverified_field(&bytes, 24), file))
            }
        }
    }

    /// Returns the error for a file that ends within `what`.
    pub fn too_short_error(&self, what: &str) -> Error {
        Error::corruption(format!("the file ends inside {what}"))
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buf, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut buf: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    while !buf.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buf, offset)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => {
                buf = &mut buf[read..];
                offset += read as u64;
            }
        }
    }
    Ok(())
}

/// Returns a field of a header whose checksum is wrong; 0 if it is cut off.
fn unverified_field(header: &[u8], offset: usize) -> u64 {
    let field = header.get(offset..offset + 8).map(|b| Decoder::new(b).u64());
    field.and_then(perigee_base::Result::ok).unwrap_or_default()
}
