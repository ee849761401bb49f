//! One file, read at any place. Knows the file header, which all kinds share, and nothing else.

use crate::failure::{Failure, Result};
use perigee_base::codec::Decoder;
use perigee_base::file_header::{FileHeader, FileKind, HEADER_BYTES};
use perigee_base::{Error, FileId};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::dump_writer::DumpWriter;

/// An open file and its length when it was opened (a log may grow meanwhile).
pub struct DumpSource {
    file: File,
    name: String,
    bytes: u64,
}

impl DumpSource {
    /// Opens it for reading.
    pub fn open(path: &Path, name: &str) -> Result<DumpSource> {
        let failed = |e: std::io::Error| Failure::file("open", path, &e);
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        Ok(DumpSource { file, name: name.to_owned(), bytes })
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Up to `len` bytes from `offset`; fewer at the end of the file.
    pub fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let len = self.bytes.saturating_sub(offset).min(len as u64) as usize;
        let mut bytes = vec![0; len];
        self.file
            .read_exact_at(&mut bytes, offset)
            .map_err(|e| Failure::file("read", Path::new(&self.name), &e))?;
        Ok(bytes)
    }

    /// Prints the header and returns the database and file ids that seed the file's checksums: the
    /// header's if it is whole, else what it claims, the file's name believed first.
    pub fn read_header(
        &self,
        kind: FileKind,
        named: Option<FileId>,
        sink: &mut DumpWriter<'_>,
    ) -> Result<(u64, FileId)> {
        let bytes = self.read_at(0, HEADER_BYTES)?;
        match FileHeader::decode(&bytes, kind, named, None) {
            Ok(header) => {
                sink.write_header(&header)?;
                Ok((header.database, header.file))
            }
            Err(e) => {
                sink.write_damage(0, &e)?;
                let file = named.unwrap_or_else(|| FileId(unverified_field(&bytes, 32)));
                Ok((unverified_field(&bytes, 24), file))
            }
        }
    }

    /// An error for the end of the file at `offset`.
    pub fn too_short_error(&self, what: &str) -> Error {
        Error::corruption(format!("the file ends inside {what}"))
    }
}

/// A field of a header that cannot be trusted.
fn unverified_field(header: &[u8], at: usize) -> u64 {
    let field = header.get(at..at + 8).map(|b| Decoder::new(b).u64());
    field.and_then(perigee_base::Result::ok).unwrap_or_default()
}
