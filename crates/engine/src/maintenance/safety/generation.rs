//! The record of a backup generation: a small file with a checksum. Format:
//! `docs/format/backup.md`.
//!
//! ```text
//!  0   72  file header, kind 5: database id, file id = generation, A = last sequence number, B = 0
//! 72    4  length of the body
//! 76    4  zero
//! 80    n  body: varint wall clock (ms), varint files, then for each file:
//!          u8 kind | varint number | varint bytes | u64 checksum
//! 80+n  8  checksum(generation, 72) of bytes 72..80+n
//! ```
//! Files ascend by (kind, number); there is exactly one log and one manifest.

use perigee_base::codec::{Decoder, put_varint};
use perigee_base::{Error, FileHeader, FileId, FileKind, HEADER_BYTES, Result, SeqNo, checksum};

/// Size of the shortest file entry, encoded.
const FILE_ENTRY_BYTES: usize = 11;

/// A file of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// File kind.
    pub kind: FileKind,
    /// File id in the database.
    pub id: FileId,
    /// Length in bytes.
    pub bytes: u64,
    /// Checksum of the whole file.
    pub checksum: u64,
}

/// A backup generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupGeneration {
    /// Its number, starting at 1.
    pub number: u64,
    /// Id of the database.
    pub database: u64,
    /// Sequence number of the last operation in it.
    pub last_seq: SeqNo,
    /// Wall-clock time of its creation, in milliseconds since 1970.
    pub created_ms: u64,
    /// All files of the generation.
    pub files: Vec<StoredFile>,
}

impl BackupGeneration {
    /// Returns the total bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).fold(0, u64::saturating_add)
    }

    /// Encodes the record.
    pub fn encode(&self) -> Vec<u8> {
        let header = FileHeader {
            kind: FileKind::Backup,
            database: self.database,
            file: FileId(self.number),
            a: self.last_seq.0,
            b: 0,
        };
        let mut body = Vec::new();
        put_varint(&mut body, self.created_ms);
        put_varint(&mut body, self.files.len() as u64);
        for f in &self.files {
            body.push(f.kind as u8);
            put_varint(&mut body, f.id.0);
            put_varint(&mut body, f.bytes);
            body.extend_from_slice(&f.checksum.to_le_bytes());
        }
        let mut out = header.encode().to_vec();
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&body);
        let sum =
            checksum::checksum(FileId(self.number), HEADER_BYTES as u64, &out[HEADER_BYTES..]);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes the record of generation `number`.
    pub fn decode(bytes: &[u8], number: u64) -> Result<BackupGeneration> {
        let mut d = Decoder::new(bytes);
        let head = d.take(HEADER_BYTES)?;
        let header = FileHeader::decode(head, FileKind::Backup, Some(FileId(number)), None)?;
        let (length, zero) = (d.u32()? as usize, d.u32()?);
        if zero != 0 || header.b != 0 || d.remaining() != length.saturating_add(8) {
            return Err(Error::corruption("the length of a backup record differs from its header")
                .expected(length.saturating_add(8), d.remaining()));
        }
        let body = d.take(length)?;
        let covered = &bytes[HEADER_BYTES..d.position()];
        let got = checksum::checksum(FileId(number), HEADER_BYTES as u64, covered);
        let stored = d.u64()?;
        if stored != got {
            return Err(Error::corruption("the checksum of a backup record does not match")
                .expected(format_args!("{stored:#018x}"), format_args!("{got:#018x}")));
        }
        let (created_ms, files) = decode_body(body)?;
        Ok(BackupGeneration {
            number,
            database: header.database,
            last_seq: SeqNo(header.a),
            created_ms,
            files,
        })
    }
}

fn decode_body(body: &[u8]) -> Result<(u64, Vec<StoredFile>)> {
    let mut d = Decoder::new(body);
    let (created_ms, count) = (d.varint()?, d.varint()?);
    if count > (d.remaining() / FILE_ENTRY_BYTES) as u64 {
        return Err(Error::corruption("a backup record lists more files than it can contain"));
    }
    let mut files: Vec<StoredFile> = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let kind = decode_kind(d.u8()?)?;
        let file =
            StoredFile { kind, id: FileId(d.varint()?), bytes: d.varint()?, checksum: d.u64()? };
        if files.last().is_some_and(|last| (last.kind as u8, last.id) >= (file.kind as u8, file.id))
        {
            return Err(Error::corruption(
                "the files in a backup record are not in ascending order",
            ));
        }
        files.push(file);
    }
    let one = |kind| files.iter().filter(|f| f.kind == kind).count() == 1;
    if !d.is_empty() || !one(FileKind::Wal) || !one(FileKind::Manifest) {
        return Err(Error::corruption(
            "a backup record does not have exactly one log and one manifest",
        ));
    }
    Ok((created_ms, files))
}

fn decode_kind(code: u8) -> Result<FileKind> {
    let kinds = [FileKind::Wal, FileKind::Manifest, FileKind::Klog, FileKind::Vlog];
    let found = kinds.into_iter().find(|k| *k as u8 == code);
    found.ok_or_else(|| {
        Error::corruption(format!("a backup record lists a file of unknown kind {code}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_generation() -> BackupGeneration {
        let file = |kind, id, bytes| StoredFile {
            kind,
            id: FileId(id),
            bytes,
            checksum: 0x0102_0304_0506_0708,
        };
        BackupGeneration {
            number: 3,
            database: 0x1122_3344_5566_7788,
            last_seq: SeqNo(1000),
            created_ms: 1_795_000_000_000,
            files: vec![
                file(FileKind::Wal, 12, 72),
                file(FileKind::Manifest, 13, 300),
                file(FileKind::Klog, 7, 4096),
                file(FileKind::Vlog, 8, 9000),
            ],
        }
    }

    #[test]
    fn format_page_example_matches_encoding() {
        let hex: String = sample_generation().encode().iter().map(|b| format!("{b:02x}")).collect();
        let page = include_str!("../../../../../docs/format/backup.md");
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
    fn any_changed_bit_or_byte_is_detected() {
        let good = sample_generation().encode();
        assert_eq!(BackupGeneration::decode(&good, 3).unwrap(), sample_generation());
        assert!(BackupGeneration::decode(&good, 4).is_err(), "another generation's record");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(BackupGeneration::decode(&bad, 3).is_err(), "bit {bit}");
        }
        for end in 0..good.len() {
            assert!(BackupGeneration::decode(&good[..end], 3).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn generation_needs_one_log_and_one_manifest() {
        let mut none = sample_generation();
        none.files.remove(0);
        assert!(BackupGeneration::decode(&none.encode(), 3).unwrap_err().is_corruption());
        let mut unsorted = sample_generation();
        unsorted.files.swap(2, 3);
        assert!(BackupGeneration::decode(&unsorted.encode(), 3).unwrap_err().is_corruption());
    }
}
