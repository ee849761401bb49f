//! The footer of a klog and the order of its parts.
//!
//! ```text
//! file header, data frames, [ranges frame], [filter frame], index frame, property frame,
//! footer
//!
//! footer:  0  filter frame: offset u64, length u64 (0, 0 if absent)
//!         16  index frame
//!         32  property frame
//!         48  u64  number of data frames
//!         56  u64  number of entries
//!         64  u64  length of the ranges frame, which follows the data frames (0: none)
//!         72  u64  checksum of bytes 0..72, seeded with (file id, offset of the footer)
//!         80  magic "PERIKLOG"
//! ```
//! A file without data frames has neither index nor filter, but a ranges frame.
//!
//! Invariant after [`Footer::decode`]: the parts follow each other without a gap from header to
//! footer.

use crate::block::frame::{FRAME_OVERHEAD_BYTES, FrameKind};
use perigee_base::checksum::checksum;
use perigee_base::codec::Decoder;
use perigee_base::{BlockHandle, Error, FileId, HEADER_BYTES, Result};
use std::ops::Range;

/// Size of the footer.
pub const FOOTER_BYTES: usize = 88;
/// The last eight bytes of every klog.
pub const FOOTER_MAGIC: [u8; 8] = *b"PERIKLOG";
/// Size of what precedes the checksum.
const BODY_BYTES: usize = 72;
const _: () = assert!(BODY_BYTES + size_of::<u64>() + FOOTER_MAGIC.len() == FOOTER_BYTES);

/// Offsets and lengths of the parts of a klog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The filter frame, if there is one.
    pub filter: BlockHandle,
    /// The index frame.
    pub index: BlockHandle,
    /// The property frame.
    pub properties: BlockHandle,
    /// Number of data frames.
    pub block_count: u64,
    /// Number of entries.
    pub entry_count: u64,
    /// Length of the ranges frame; 0 if absent.
    pub ranges_len: u64,
}

impl Footer {
    /// Encodes the footer, to be stored at `offset` of `file`.
    pub fn encode(&self, file: FileId, offset: u64) -> [u8; FOOTER_BYTES] {
        let mut out = [0; FOOTER_BYTES];
        let (f, i, p) = (self.filter, self.index, self.properties);
        let (blocks, entries) = (self.block_count, self.entry_count);
        let words =
            [f.offset, f.len, i.offset, i.len, p.offset, p.len, blocks, entries, self.ranges_len];
        out.chunks_exact_mut(8).zip(words).for_each(|(at, w)| at.copy_from_slice(&w.to_le_bytes()));
        let sum = checksum(file, offset, &out[..BODY_BYTES]);
        out[BODY_BYTES..BODY_BYTES + 8].copy_from_slice(&sum.to_le_bytes());
        out[BODY_BYTES + 8..].copy_from_slice(&FOOTER_MAGIC);
        out
    }

    /// Decodes and verifies the footer stored at `offset` of `file`, and checks that its parts fill
    /// the file up to it.
    pub fn decode(bytes: &[u8], file: FileId, offset: u64) -> Result<Footer> {
        let mut d = Decoder::new(bytes);
        let body = d.take(BODY_BYTES)?;
        let (stored, magic) = (d.u64()?, d.take(8)?);
        if magic != FOOTER_MAGIC || !d.is_empty() {
            return Err(Error::corruption("not a klog footer: wrong magic bytes"));
        }
        let got = checksum(file, offset, body);
        if stored != got {
            return Err(Error::corruption("footer checksum mismatch")
                .expected(format_args!("{stored:#018x}"), format_args!("{got:#018x}")));
        }
        let mut d = Decoder::new(body);
        let mut handle =
            || -> Result<BlockHandle> { Ok(BlockHandle { offset: d.u64()?, len: d.u64()? }) };
        let (filter, index, properties) = (handle()?, handle()?, handle()?);
        let footer = Footer {
            filter,
            index,
            properties,
            block_count: d.u64()?,
            entry_count: d.u64()?,
            ranges_len: d.u64()?,
        };
        footer.check(offset)?;
        Ok(footer)
    }

    pub(super) fn check(&self, offset: u64) -> Result<()> {
        if (self.block_count == 0) != (self.index == BlockHandle::ABSENT)
            || (self.block_count == 0
                && (self.filter != BlockHandle::ABSENT || self.ranges_len == 0))
        {
            return Err(Error::corruption(
                "a klog without data frames has an index or filter, or no range tombstones",
            ));
        }
        let mut end = offset;
        let ranges_end = self.data_and_ranges_end();
        let ranges = match ranges_end.checked_sub(self.ranges_len) {
            Some(offset) if self.ranges_len > 0 => BlockHandle { offset, len: self.ranges_len },
            _ if self.ranges_len == 0 => BlockHandle::ABSENT,
            _ => {
                return Err(Error::corruption(
                    "the ranges frame is longer than the file before the next part",
                ));
            }
        };
        let parts = [
            (self.properties, FrameKind::Properties),
            (self.index, FrameKind::Index),
            (self.filter, FrameKind::Filter),
            (ranges, FrameKind::Ranges),
        ];
        for (handle, kind) in parts {
            if kind != FrameKind::Properties && handle == BlockHandle::ABSENT {
                continue;
            }
            let BlockHandle { offset: start, len: length } = handle;
            let possible = FRAME_OVERHEAD_BYTES as u64..=kind.frame_bytes_max() as u64;
            if !possible.contains(&length)
                || start.checked_add(length) != Some(end)
                || start < HEADER_BYTES as u64
            {
                return Err(Error::corruption(format!(
                    "the {kind:?} frame does not end where the next part begins"
                ))
                .expected(
                    format_args!("an end at {end}"),
                    format_args!("{length} bytes at {start}"),
                ));
            }
            end = start;
        }
        Ok(())
    }

    /// Returns the offset of the first part after data and ranges.
    fn data_and_ranges_end(&self) -> u64 {
        let is_present = |handle: &BlockHandle| *handle != BlockHandle::ABSENT;
        [self.filter, self.index].iter().copied().find(is_present).unwrap_or(self.properties).offset
    }
    /// Returns the handle of the ranges frame.
    pub fn ranges_handle(&self) -> BlockHandle {
        match self.ranges_len {
            0 => BlockHandle::ABSENT,
            len => BlockHandle { offset: self.data_range().end, len },
        }
    }
    /// Returns the range of bytes that the data frames fill.
    pub fn data_range(&self) -> Range<u64> {
        HEADER_BYTES as u64..self.data_and_ranges_end() - self.ranges_len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(offset: u64, len: u64) -> BlockHandle {
        BlockHandle { offset, len }
    }

    #[test]
    fn footer_requires_contiguous_parts() {
        let good = Footer {
            filter: handle(172, 50),
            index: handle(222, 60),
            properties: handle(282, 70),
            block_count: 1,
            entry_count: 2,
            ranges_len: 0,
        };
        let decode = |f: Footer, at| Footer::decode(&f.encode(FileId(7), at), FileId(7), at);
        assert_eq!(decode(good, 352).unwrap(), good);
        assert_eq!(good.data_range(), 72..172);
        assert!(decode(good, 353).is_err());
        assert!(decode(Footer { filter: handle(172, 51), ..good }, 352).is_err());
        assert!(
            decode(Footer { filter: handle(0, 0), ..good }, 352).is_ok(),
            "the data reaches up to the index"
        );
        assert!(decode(Footer { filter: handle(0, 222), ..good }, 352).is_err());
        let ranged = Footer { ranges_len: 30, ..good };
        assert_eq!(
            (decode(ranged, 352).unwrap().ranges_handle(), ranged.data_range()),
            (handle(142, 30), 72..142)
        );
        assert!(decode(Footer { ranges_len: 101, ..good }, 352).is_err());
        assert!(decode(Footer { ranges_len: u64::MAX, ..good }, 352).is_err());
        let bare = Footer {
            filter: handle(0, 0),
            index: handle(0, 0),
            block_count: 0,
            entry_count: 0,
            ranges_len: 210,
            ..good
        };
        assert!(decode(bare, 352).is_ok(), "range tombstones alone");
        assert!(decode(Footer { ranges_len: 0, ..bare }, 352).is_err());
        assert!(decode(Footer { properties: handle(u64::MAX, 353), ..good }, 352).is_err());
        assert!(Footer::decode(&good.encode(FileId(7), 352)[..87], FileId(7), 352).is_err());
    }
}
