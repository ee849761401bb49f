//! The record header (see the table in `docs/format/log.md`).

use perigee_base::codec::Decoder;
use perigee_base::{Error, FileId, Result, SeqNo, checksum};

/// Size of a record header.
pub const RECORD_HEADER_BYTES: usize = 64;
/// The magic number `PRLG`.
pub const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"PRLG");
/// Records start at multiples of this.
pub const ALIGNMENT: usize = 8;
const _: () = assert!(RECORD_HEADER_BYTES % ALIGNMENT == 0, "the payload of a record is aligned");
const _: () = assert!(perigee_base::HEADER_BYTES % ALIGNMENT == 0);
const _: () = assert!(perigee_base::limits::PREPARE_BYTES_MAX <= u32::MAX as usize - 1024);

/// Kind of a log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A write batch.
    Batch = 1,
    /// A manifest edit.
    Edit = 2,
    /// Marks a clean close.
    Close = 3,
    /// A prepared transaction.
    Prepare = 4,
    /// The decision about a prepared transaction.
    Decision = 5,
}

impl RecordKind {
    fn decode(b: u8) -> Result<RecordKind> {
        match b {
            1 => Ok(RecordKind::Batch),
            2 => Ok(RecordKind::Edit),
            3 => Ok(RecordKind::Close),
            4 => Ok(RecordKind::Prepare),
            5 => Ok(RecordKind::Decision),
            other => Err(format_too_new(format_args!("kind {other}"))),
        }
    }
}

/// A decoded record header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Kind of the record.
    pub kind: RecordKind,
    /// Payload length without padding.
    pub payload_bytes: u32,
    /// Number of LSNs that the record occupies.
    pub lsn_count: u32,
    /// First LSN of the record; in the manifest, the number of the edit.
    pub lsn: u64,
    /// Highest LSN known to be durable when the record was written.
    pub durable_lsn: u64,
    /// Number of synced manifest edits when the record was written (0 in the manifest itself).
    pub manifest_edits: u64,
    /// Header checksum of the previous record.
    pub previous_checksum: u64,
    /// Checksum of payload and padding.
    pub payload_checksum: u64,
}

impl RecordHeader {
    /// Encodes the header for `offset` of the log with this seed (see [`checksum_seed`]).
    pub fn encode(&self, seed: FileId, offset: u64) -> [u8; RECORD_HEADER_BYTES] {
        check_slow!(
            self.lsn.checked_add(u64::from(self.lsn_count)).is_some(),
            "the sequence numbers of a record do not overflow",
            self
        );
        let mut out = [0u8; RECORD_HEADER_BYTES];
        out[8..12].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
        out[12..16].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[16..20].copy_from_slice(&self.lsn_count.to_le_bytes());
        out[20] = self.kind as u8;
        out[24..32].copy_from_slice(&self.lsn.to_le_bytes());
        out[32..40].copy_from_slice(&self.durable_lsn.to_le_bytes());
        out[40..48].copy_from_slice(&self.manifest_edits.to_le_bytes());
        out[48..56].copy_from_slice(&self.previous_checksum.to_le_bytes());
        out[56..64].copy_from_slice(&self.payload_checksum.to_le_bytes());
        let sum = checksum::checksum(seed, offset, &out[8..]);
        out[0..8].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes the header at `offset` of the log with this seed. The second value is the header
    /// checksum, which the next record repeats.
    pub fn decode(bytes: &[u8], seed: FileId, offset: u64) -> Result<(RecordHeader, u64)> {
        let mut d = Decoder::new(bytes);
        let stored = d.u64()?;
        let magic = d.u32()?;
        if magic != RECORD_MAGIC {
            return Err(Error::corruption("no log record at this offset")
                .expected(format_args!("{RECORD_MAGIC:#010x}"), format_args!("{magic:#010x}")));
        }
        let (payload_bytes, count) = (d.u32()?, d.u32()?);
        let (kind, codec, zero) = (d.u8()?, d.u8()?, d.u16()?);
        let (lsn, durable, edits) = (d.u64()?, d.u64()?, d.u64()?);
        let (previous, payload_checksum) = (d.u64()?, d.u64()?);
        let got = checksum::checksum(seed, offset, &bytes[8..RECORD_HEADER_BYTES]);
        if stored != got {
            return Err(Error::corruption("log record header checksum differs")
                .expected(format_args!("{stored:#018x}"), format_args!("{got:#018x}")));
        }
        let kind = RecordKind::decode(kind)?;
        if codec != 0 || zero != 0 {
            return Err(format_too_new(format_args!("codec {codec}, flags {zero}")));
        }
        if lsn.checked_add(u64::from(count)).is_none() {
            return Err(Error::corruption("log record sequence number overflows"));
        }
        Ok((
            RecordHeader {
                kind,
                payload_bytes,
                lsn_count: count,
                lsn,
                durable_lsn: durable,
                manifest_edits: edits,
                previous_checksum: previous,
                payload_checksum,
            },
            stored,
        ))
    }

    /// Returns the sequence number of the record's first operation, in the write-ahead log.
    #[inline]
    pub fn first_seq(&self) -> SeqNo {
        SeqNo(self.lsn)
    }
    /// Returns the sequence number after that of the record's last operation, in the write-ahead
    /// log.
    #[inline]
    pub fn end_seq(&self) -> SeqNo {
        SeqNo(self.lsn + u64::from(self.lsn_count))
    }
    /// Returns the length of the whole record, including padding.
    pub fn record_bytes(&self) -> u64 {
        (RECORD_HEADER_BYTES + padded_len(self.payload_bytes as usize)) as u64
    }
}

/// Returns the checksum seed that binds record headers to their log: made of the random database id
/// and the file number, so that neither a stale record nor user data can be accepted as a record.
pub fn checksum_seed(database: u64, file: FileId) -> FileId {
    FileId(database.wrapping_add(file.0))
}

fn format_too_new(what: std::fmt::Arguments<'_>) -> Error {
    Error::new(
        perigee_base::ErrorKind::FormatTooNew,
        format!(
            "a log record uses {what}, which this version does not know: open it with a \
             newer Perigee"
        ),
    )
}

/// Returns the padded length of a payload of `n` bytes; there is at least one byte of padding.
pub fn padded_len(n: usize) -> usize {
    (n + 1).next_multiple_of(ALIGNMENT)
}

/// The last byte of every record. It is neither zero nor one bit flip away from zero: so trailing
/// zeros of a file are never part of a record, and a record without this byte was truncated.
pub const END_MARKER: u8 = 0xFF;

/// Pads the payload that starts at `start` of `buf`.
pub fn pad_payload(buf: &mut Vec<u8>, start: usize) {
    let end = start + padded_len(buf.len().saturating_sub(start));
    buf.resize(end, 0);
    buf[end - 1] = END_MARKER;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_header_checksum_covers_every_bit_and_offset() {
        let h = RecordHeader {
            kind: RecordKind::Batch,
            payload_bytes: 20,
            lsn_count: 2,
            lsn: 7,
            durable_lsn: 5,
            manifest_edits: 4,
            previous_checksum: 99,
            payload_checksum: 1234,
        };
        let good = h.encode(FileId(3), 72);
        assert_eq!(RecordHeader::decode(&good, FileId(3), 72).unwrap().0, h);
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(RecordHeader::decode(&bad, FileId(3), 72).is_err(), "bit {bit}");
        }
        assert!(RecordHeader::decode(&good, FileId(3), 80).is_err());
        assert!(RecordHeader::decode(&good, FileId(4), 72).is_err());
        assert!(RecordHeader::decode(&good[..63], FileId(3), 72).is_err());
    }
}
