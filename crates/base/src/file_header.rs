//! Magic number, format version, file kinds, and the header that every file starts with.
//!
//! ```text
//! offset size
//!   0     8   magic "PERIGEE\0"
//!   8     2   format version (1)
//!  10     1   file kind (1 wal, 2 manifest, 3 klog, 4 vlog, 5 backup)
//!  11     1   zero
//!  12     4   incompatible feature bits: an unknown one refuses the file
//!  16     4   read-only-compatible feature bits: an unknown one refuses writing
//!  20     4   compatible feature bits: unknown ones are ignored
//!  24     8   database id
//!  32     8   file id (the number in its name; seeds every checksum of the file)
//!  40     8   A: wal, manifest: first LSN; klog: column family id; vlog: 0; backup: last LSN
//!  48     8   B: wal, manifest: boot id; others 0
//!  56     4   encryption key id (0: not encrypted)
//!  60     4   zero
//!  64     8   checksum(file id, 0) of bytes 0..64
//! ```
//! `docs/format/file-header.md` describes the same layout; a test below checks its worked example.

use crate::codec::Decoder;
use crate::{Error, ErrorKind, FileId, Result, checksum};

/// The first eight bytes of every file.
pub const MAGIC: [u8; 8] = *b"PERIGEE\0";
/// The first eight bytes of an encrypted file, whose header precedes this one; see
/// `docs/format/encryption.md`.
pub const ENCRYPTED_MAGIC: [u8; 8] = *b"PERIGENC";
/// The format version that this build writes, and the newest one that it reads.
pub const FORMAT_VERSION: u16 = 1;
/// Size of a file header, in bytes.
pub const HEADER_BYTES: usize = 72;
/// Incompatible features that this build supports.
pub const INCOMPAT_KNOWN: u32 = 0;
/// Size of what the checksum covers: everything before it; see the module documentation.
const CHECKED_BYTES: usize = 64;

const _: () = assert!(CHECKED_BYTES + size_of::<u64>() == HEADER_BYTES, "the checksum comes last");
const _: () = assert!(HEADER_BYTES % 8 == 0, "the first record of a log is aligned");

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// A segment of the write-ahead log.
    Wal = 1,
    /// The manifest.
    Manifest = 2,
    /// The keys and inline values of a sorted table.
    Klog = 3,
    /// A value log: values stored separately from their keys.
    Vlog = 4,
    /// The record of a backup generation.
    Backup = 5,
}

/// A decoded file header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// Kind of the file.
    pub kind: FileKind,
    /// Id of the database that the file belongs to.
    pub database: u64,
    /// Id of the file.
    pub file: FileId,
    /// Field A (see the module documentation).
    pub a: u64,
    /// Field B (see the module documentation).
    pub b: u64,
}

impl FileHeader {
    /// Returns the encoded header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0u8; HEADER_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[10] = self.kind as u8;
        out[24..32].copy_from_slice(&self.database.to_le_bytes());
        out[32..40].copy_from_slice(&self.file.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.a.to_le_bytes());
        out[48..56].copy_from_slice(&self.b.to_le_bytes());
        let sum = checksum::checksum(self.file, 0, &out[..CHECKED_BYTES]);
        out[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes the header of a file of kind `kind`. Fails if the file id or database id differs
    /// from `file` or `database`, where given.
    pub fn decode(
        bytes: &[u8],
        kind: FileKind,
        file: Option<FileId>,
        database: Option<u64>,
    ) -> Result<FileHeader> {
        let mut d = Decoder::new(bytes);
        let magic = d.take(8)?;
        if magic == ENCRYPTED_MAGIC {
            return Err(Error::invalid(
                "the file is encrypted: open the database with its encryption keys \
                 (`Options::encryption`)",
            ));
        }
        if magic != MAGIC {
            return Err(Error::corruption("not a Perigee file: wrong magic bytes"));
        }
        let version = d.u16()?;
        let kind_byte = d.u8()?;
        let zero = d.u8()?;
        let incompat = d.u32()?;
        let ro_compat = d.u32()?;
        let _compat = d.u32()?;
        let db = d.u64()?;
        let id = FileId(d.u64()?);
        let (a, b) = (d.u64()?, d.u64()?);
        let (key_id, zero2) = (d.u32()?, d.u32()?);
        let body_end = d.position();
        check!(body_end == CHECKED_BYTES, "the header is decoded up to its checksum", body_end);
        let stored = d.u64()?;
        let got = checksum::checksum(file.unwrap_or(id), 0, &bytes[..body_end]);
        if stored != got {
            return Err(Error::corruption("file header checksum differs")
                .expected(format_args!("{stored:#018x}"), format_args!("{got:#018x}")));
        }
        if version > FORMAT_VERSION
            || incompat & !INCOMPAT_KNOWN != 0
            || ro_compat != 0
            || key_id != 0
        {
            return Err(Error::new(
                ErrorKind::FormatTooNew,
                format!(
                    "the file uses format version {version}, features {incompat:#x}, encryption \
                     key {key_id}; this build reads version {FORMAT_VERSION}, features \
                     {INCOMPAT_KNOWN:#x}, key 0: open it with a newer Perigee"
                ),
            ));
        }
        if version == 0 || zero != 0 || zero2 != 0 || kind_byte != kind as u8 {
            return Err(Error::corruption("wrong kind of file")
                .expected(format_args!("{kind:?}"), kind_byte));
        }
        if let Some(expected) = database.filter(|&expected| expected != db) {
            return Err(Error::corruption("the file belongs to another database")
                .expected(format_args!("{expected:#x}"), format_args!("{db:#x}")));
        }
        if let Some(expected) = file.filter(|&expected| expected != id) {
            return Err(Error::corruption("the file header has the id of another file")
                .expected(expected, id));
        }
        Ok(FileHeader { kind, database: db, file: id, a, b })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FileHeader {
        FileHeader {
            kind: FileKind::Klog,
            database: 0x1122_3344_5566_7788,
            file: FileId(7),
            a: 2,
            b: 0,
        }
    }

    #[test]
    fn header_matches_format_page_example() {
        let hex: String = sample().encode().iter().map(|b| format!("{b:02x}")).collect();
        let page = include_str!("../../../docs/format/file-header.md");
        let flat: String = page
            .split("```hex")
            .nth(1)
            .unwrap()
            .split("```")
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        assert_eq!(flat, hex);
    }

    #[test]
    fn every_bit_flip_is_detected() {
        let good = sample().encode();
        assert_eq!(
            FileHeader::decode(&good, FileKind::Klog, Some(FileId(7)), None).unwrap(),
            sample()
        );
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(
                FileHeader::decode(&bad, FileKind::Klog, Some(FileId(7)), None).is_err(),
                "bit {bit}"
            );
        }
        assert!(FileHeader::decode(&good[..71], FileKind::Klog, None, None).is_err());
        assert!(FileHeader::decode(&good, FileKind::Vlog, None, None).is_err());
        assert!(FileHeader::decode(&good, FileKind::Klog, Some(FileId(8)), None).is_err());
        assert!(FileHeader::decode(&good, FileKind::Klog, None, Some(1)).is_err());
    }

    #[test]
    fn newer_format_version_is_refused() {
        let mut newer = sample().encode();
        newer[8] = 2;
        let sum = checksum::checksum(FileId(7), 0, &newer[..64]);
        newer[64..].copy_from_slice(&sum.to_le_bytes());
        let e = FileHeader::decode(&newer, FileKind::Klog, None, None).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::FormatTooNew);
    }
}
