//! Frames: the envelope of every part of a klog and every chunk of a vlog. Independent of the
//! contents.
//!
//! ```text
//!  0  u32  stored payload length
//!  4  u32  raw length
//!  8  u8   codec
//!  9  u8   type
//! 10  6 zero bytes
//! 16  payload
//!     u64  checksum of everything before, seeded with (file id, offset of the frame)
//! ```
//! Invariant: no part of a frame is used before its checksum was verified, and no memory is
//! allocated for the raw form before its declared length was checked.

use crate::compression::{self, Codec, Compression, Compressor, StoredBytes};
use crate::table_file_reader::try_extend_zeroed;
use perigee_base::checksum::checksum;
use perigee_base::codec::Decoder;
use perigee_base::limits::{BLOCK_RAW_BYTES_MAX, INDEX_RAW_BYTES_MAX, VLOG_CHUNK_BYTES};
use perigee_base::{Error, FileId, Result};

/// Size of what precedes the payload.
pub const FRAME_HEADER_BYTES: usize = 16;
/// Size of the envelope: header and checksum.
pub const FRAME_OVERHEAD_BYTES: usize = FRAME_HEADER_BYTES + 8;
const _: () = assert!(INDEX_RAW_BYTES_MAX <= u32::MAX as usize, "lengths have 32 bits");

/// Contents of a frame. The codes are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// A block of entries.
    Data = 1,
    /// The index block.
    Index = 2,
    /// The filter.
    Filter = 3,
    /// Properties.
    Properties = 4,
    /// A chunk of a separated value.
    Chunk = 5,
    /// Range tombstones.
    Ranges = 6,
}

impl FrameKind {
    /// Returns the maximum length of the raw form.
    pub const fn raw_bytes_max(self) -> usize {
        match self {
            FrameKind::Data | FrameKind::Properties => BLOCK_RAW_BYTES_MAX,
            FrameKind::Index | FrameKind::Filter | FrameKind::Ranges => INDEX_RAW_BYTES_MAX,
            FrameKind::Chunk => VLOG_CHUNK_BYTES,
        }
    }
    /// Returns the maximum length of a frame: a payload is never stored longer than its raw form.
    pub const fn frame_bytes_max(self) -> usize {
        self.raw_bytes_max() + FRAME_OVERHEAD_BYTES
    }
}

/// The position at which a frame is stored; its checksum depends on it.
#[derive(Clone, Copy, Debug)]
pub struct FramePosition {
    /// The file.
    pub file: FileId,
    /// Offset in the file, in bytes.
    pub offset: u64,
}

/// Appends the frame of `raw`, to be stored at `position`, to `out`. Returns its length.
pub fn append_frame(
    out: &mut Vec<u8>,
    position: FramePosition,
    kind: FrameKind,
    raw: &[u8],
    compression: Compression,
    compressor: &mut Compressor,
) -> Result<u64> {
    if raw.len() > kind.raw_bytes_max() {
        return Err(Error::internal(format!("a {kind:?} frame is too large"))
            .expected(format_args!("at most {}", kind.raw_bytes_max()), raw.len()));
    }
    let (codec, payload) = compressor.compress(compression, raw);
    let frame = Frame { codec, raw_bytes: raw.len(), payload };
    Ok(append_stored_frame(out, position, kind, &frame))
}

/// Appends a frame with an already compressed payload, possibly from another file. Returns its
/// length.
pub fn append_stored_frame(
    out: &mut Vec<u8>,
    position: FramePosition,
    kind: FrameKind,
    &Frame { codec, raw_bytes, payload }: &Frame<'_>,
) -> u64 {
    let start = out.len();
    check!(
        raw_bytes <= kind.raw_bytes_max()
            && compression::is_length_plausible(
                codec,
                StoredBytes { raw: raw_bytes, stored: payload.len() }
            ),
        "a written frame has lengths that readers accept",
        kind,
        codec,
        raw_bytes,
        payload.len()
    );
    check!(position.offset > 0, "no frame starts at offset 0", position.file);
    out.reserve(payload.len() + FRAME_OVERHEAD_BYTES);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&(raw_bytes as u32).to_le_bytes());
    out.extend_from_slice(&[codec.code(), kind as u8]);
    out.extend_from_slice(&[0; 6]);
    out.extend_from_slice(payload);
    let sum = checksum(position.file, position.offset, &out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
    check_slow!(
        Frame::decode(position.file, position.offset, &out[start..], kind)
            .is_ok_and(|frame| frame.payload == payload),
        "a written frame can be read",
        kind
    );
    (out.len() - start) as u64
}

/// A frame whose checksum and header were verified.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// How the payload is compressed.
    pub codec: Codec,
    /// Length of the raw form, already bounded.
    pub raw_bytes: usize,
    /// The stored bytes.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Verifies the frame that consists of exactly `bytes` and is stored at `offset` of `file`.
    pub fn decode(
        file: FileId,
        offset: u64,
        bytes: &'a [u8],
        kind: FrameKind,
    ) -> Result<Frame<'a>> {
        if bytes.len() < FRAME_OVERHEAD_BYTES || bytes.len() > kind.frame_bytes_max() {
            return Err(Error::corruption(format!("invalid length of a {kind:?} frame")).expected(
                format_args!("{FRAME_OVERHEAD_BYTES} to {}", kind.frame_bytes_max()),
                bytes.len(),
            ));
        }
        let (body, tail) = bytes.split_at(bytes.len() - 8);
        let stored_sum = Decoder::new(tail).u64()?;
        let got = seeded!(IgnoreBlockChecksum, checksum(file, offset, body), stored_sum);
        if stored_sum != got {
            return Err(Error::corruption(format!("checksum mismatch of a {kind:?} frame"))
                .expected(format_args!("{stored_sum:#018x}"), format_args!("{got:#018x}")));
        }
        Self::decode_body(body, kind)
    }

    /// Decodes a frame whose checksum was verified, without the checksum at its end.
    pub(crate) fn decode_body(body: &'a [u8], kind: FrameKind) -> Result<Frame<'a>> {
        let mut d = Decoder::new(body);
        let (stored, raw_bytes) = (d.u32()? as usize, d.u32()? as usize);
        let (codec, kind_byte) = (Codec::decode(d.u8()?)?, d.u8()?);
        let (zero, key_id) = (d.u16()?, d.u32()?);
        if kind_byte != kind as u8 {
            return Err(Error::corruption("wrong frame type").expected(kind as u8, kind_byte));
        }
        if zero != 0 || key_id != 0 {
            return Err(Error::corruption("reserved bytes of a frame are not zero"));
        }
        if stored != d.remaining() {
            return Err(Error::corruption(
                "the payload length of a frame does not match the frame length",
            )
            .expected(d.remaining(), stored));
        }
        if raw_bytes > kind.raw_bytes_max()
            || !compression::is_length_plausible(codec, StoredBytes { raw: raw_bytes, stored })
        {
            return Err(Error::corruption("the declared raw length of a frame is invalid")
                .expected(
                    format_args!(
                        "at most {}, from {stored} bytes ({})",
                        kind.raw_bytes_max(),
                        codec.name()
                    ),
                    raw_bytes,
                ));
        }
        Ok(Frame { codec, raw_bytes, payload: d.take(stored)? })
    }

    /// Decompresses the payload and appends the raw form to `out`.
    pub fn decompress_append(&self, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        try_extend_zeroed(out, self.raw_bytes)?;
        compression::decompress(self.codec, self.payload, &mut out[start..])
    }

    /// Decompresses the payload into `raw`, whose length must be `raw_bytes`.
    pub fn decompress_to(&self, raw: &mut [u8]) -> Result<()> {
        compression::decompress(self.codec, self.payload, raw)
    }

    /// Decompresses the payload; returns the raw form followed by `slack` zero bytes.
    pub fn decompress(&self, slack: usize) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        try_extend_zeroed(&mut out, self.raw_bytes + slack)?;
        compression::decompress(self.codec, self.payload, &mut out[..self.raw_bytes])?;
        Ok(out)
    }
}

/// Returns the frame length that the header declares, bounded by the frame kind. It is not
/// verified: use it only to read that many bytes and verify their checksum. For frames that no
/// index refers to.
pub fn declared_frame_bytes(header: &[u8], kind: FrameKind) -> Result<u64> {
    let stored = Decoder::new(header).u32()? as usize;
    if stored > kind.raw_bytes_max() {
        return Err(Error::corruption(format!("invalid declared length of a {kind:?} frame"))
            .expected(format_args!("at most {}", kind.raw_bytes_max()), stored));
    }
    Ok((stored + FRAME_OVERHEAD_BYTES) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(raw: &[u8]) -> Vec<u8> {
        let mut out = vec![9, 9];
        let n = append_frame(
            &mut out,
            FramePosition { file: FileId(7), offset: 72 },
            FrameKind::Data,
            raw,
            Compression::Lz4,
            &mut Compressor::new(),
        );
        assert_eq!(n.unwrap(), out.len() as u64 - 2);
        out.split_off(2)
    }

    #[test]
    fn bit_flips_and_truncations_are_detected() {
        let raw = [vec![0u8; 300], b"some bytes".to_vec()].concat();
        let good = frame(&raw);
        assert!(good.len() < 100);
        let f = Frame::decode(FileId(7), 72, &good, FrameKind::Data).unwrap();
        assert_eq!(f.decompress(0).unwrap(), raw);
        assert_eq!(declared_frame_bytes(&good, FrameKind::Data).unwrap(), good.len() as u64);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::decode(FileId(7), 72, &bad, FrameKind::Data).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(
                Frame::decode(FileId(7), 72, &good[..len], FrameKind::Data).is_err(),
                "length {len}"
            );
        }
        assert!(Frame::decode(FileId(8), 72, &good, FrameKind::Data).is_err(), "another file");
        assert!(Frame::decode(FileId(7), 73, &good, FrameKind::Data).is_err(), "another offset");
        assert!(Frame::decode(FileId(7), 72, &good, FrameKind::Index).is_err(), "another type");
    }

    #[test]
    fn declared_length_is_checked_before_allocation() {
        let mut bad = frame(&[5; 400]);
        bad[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        let end = bad.len() - 8;
        let sum = checksum(FileId(7), 72, &bad[..end]);
        bad[end..].copy_from_slice(&sum.to_le_bytes());
        let e = Frame::decode(FileId(7), 72, &bad, FrameKind::Data).unwrap_err();
        assert!(e.message().contains("raw length"), "{e}");
    }
}
