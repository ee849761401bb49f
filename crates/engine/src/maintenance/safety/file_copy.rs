//! Copies files and computes their checksums on the way. Independent of the contents.

use crate::limits::COPY_CHUNK_BYTES;
use perigee_base::checksum::FileChecksum;
use perigee_base::{Error, FileId, Result};
use perigee_env::Dir;

/// Reads `file` completely and passes it to `take` in chunks. Returns the checksum of the whole
/// file, seeded with `id`.
pub fn read_file(
    dir: &dyn Dir,
    file: &str,
    id: FileId,
    bytes: u64,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    let source = dir.open(file).map_err(|e| e.in_file(file))?;
    let len = source.len()?;
    if len != bytes {
        let e = Error::corruption("the file does not have the expected length");
        return Err(e.at(file, len.min(bytes)).expected(format_args!("{bytes} bytes"), len));
    }
    let mut running = FileChecksum::new(id);
    let mut buffer =
        vec![0u8; COPY_CHUNK_BYTES.min(usize::try_from(bytes).unwrap_or(COPY_CHUNK_BYTES))];
    let mut at = 0;
    while at < bytes {
        let n = buffer.len().min(usize::try_from(bytes - at).unwrap_or(COPY_CHUNK_BYTES));
        source.read_exact_at(&mut buffer[..n], at).map_err(|e| e.at(file, at))?;
        running.update(&buffer[..n]);
        take(&buffer[..n])?;
        at += n as u64;
    }
    Ok(running.finish())
}

/// What is recorded about a file.
#[derive(Clone, Copy, Debug)]
pub struct RecordedFile {
    /// File id.
    pub id: FileId,
    /// Length in bytes.
    pub bytes: u64,
    /// Checksum of the whole file.
    pub checksum: u64,
}

/// A name in a directory.
#[derive(Clone, Copy)]
pub struct DirEntry<'a> {
    /// The directory.
    pub dir: &'a dyn Dir,
    /// The name.
    pub name: &'a str,
}

/// Like [`read_file`], and verifies the checksum.
///
/// # Errors
/// `Corruption` with the file name.
pub fn verify_file(
    dir: &dyn Dir,
    file: &str,
    recorded: RecordedFile,
    take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let RecordedFile { id, bytes, checksum } = recorded;
    let got = read_file(dir, file, id, bytes, take)?;
    if got != checksum {
        let e = Error::corruption("the checksum of the whole file does not match the recorded one");
        return Err(e
            .in_file(file)
            .expected(format_args!("{checksum:#018x}"), format_args!("{got:#018x}")));
    }
    Ok(())
}

/// Copies a file to a new name in another directory and syncs its contents, but not the directory.
/// If it differs from its recorded checksum, the copy is removed.
pub fn copy_file(from: DirEntry<'_>, to: DirEntry<'_>, recorded: RecordedFile) -> Result<()> {
    let out = to.dir.create(to.name)?;
    let copied = verify_file(from.dir, from.name, recorded, |chunk| out.append(&[chunk]))
        .and_then(|()| out.sync().map_err(|e| e.in_file(to.name)));
    copied.inspect_err(|_| {
        let _ = to.dir.remove(to.name);
    })
}
