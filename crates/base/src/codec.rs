//! Encodes and decodes integers: little-endian fixed widths and LEB128 varints. `usize` is never
//! encoded.
//!
//! [`Decoder`] is total: every input gives a value or a `Corruption` error, never a panic. Nothing
//! is allocated for a declared length before it has been compared with the remaining bytes.

use crate::{Error, Result};

/// Appends `v` as a varint (7 bits per byte, low bits first).
pub fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    let expected_len = out.len() + varint_len(v);
    while v >= 0x80 {
        out.push((v as u8) | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
    check_slow!(
        out.len() == expected_len,
        "a varint has the predicted length",
        out.len(),
        expected_len
    );
}

/// Returns the number of bytes that [`put_varint`] appends.
pub fn varint_len(v: u64) -> usize {
    (64 - (v | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends the length of `b` as a varint, then `b`.
pub fn put_bytes(out: &mut Vec<u8>, b: &[u8]) {
    put_varint(out, b.len() as u64);
    out.extend_from_slice(b);
}

/// A cursor over untrusted bytes.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    all: &'a [u8],
    pos: usize,
}

impl<'a> Decoder<'a> {
    /// Creates a decoder positioned at the first byte.
    pub fn new(all: &'a [u8]) -> Self {
        Decoder { all, pos: 0 }
    }
    /// Returns the number of bytes consumed so far.
    pub fn position(&self) -> usize {
        self.pos
    }
    /// Returns the number of bytes left.
    pub fn remaining(&self) -> usize {
        check_slow!(
            self.pos <= self.all.len(),
            "a decoder is inside its input",
            self.pos,
            self.all.len()
        );
        self.all.len() - self.pos
    }
    /// Returns true if all bytes were consumed.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// Consumes and returns the next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.remaining() {
            return Err(Error::corruption(format!("record ends early at byte {}", self.pos))
                .expected(format_args!("{n} more bytes"), self.remaining()));
        }
        let out = &self.all[self.pos..self.pos + n];
        self.pos += n;
        Ok(out)
    }

    /// Decodes one byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }
    /// Decodes a fixed-width 16-bit integer.
    pub fn u16(&mut self) -> Result<u16> {
        let b = self.take(2)?;
        Ok(u16::from_le_bytes([b[0], b[1]]))
    }
    /// Decodes a fixed-width 32-bit integer.
    pub fn u32(&mut self) -> Result<u32> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }
    /// Decodes a fixed-width 64-bit integer.
    pub fn u64(&mut self) -> Result<u64> {
        let b = self.take(8)?;
        Ok(u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
    }

    /// Decodes a varint. One that is longer than ten bytes, overflows or is not in shortest form is
    /// corruption.
    pub fn varint(&mut self) -> Result<u64> {
        let start = self.pos;
        let mut v = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.u8()?;
            let low = u64::from(b & 0x7f);
            if shift == 63 && low > 1 {
                break;
            }
            v |= low << shift;
            if b & 0x80 == 0 {
                if b == 0 && shift > 0 {
                    break;
                }
                return Ok(v);
            }
        }
        Err(Error::corruption(format!("malformed varint at byte {start}")))
    }

    /// Decodes a varint that must fit in 32 bits.
    pub fn varint32(&mut self) -> Result<u32> {
        let at = self.pos;
        let v = self.varint()?;
        u32::try_from(v).map_err(|_| {
            Error::corruption(format!("varint at byte {at} does not fit in 32 bits"))
                .expected("at most 32 bits", v)
        })
    }

    /// Decodes a varint length and that many bytes. A length above `max` is corruption.
    pub fn bytes(&mut self, max: usize) -> Result<&'a [u8]> {
        let at = self.pos;
        let n = self.varint()?;
        if n > max as u64 {
            return Err(Error::corruption(format!("length at byte {at} is too large"))
                .expected(format_args!("at most {max}"), n));
        }
        self.take(n as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_in_shortest_form() {
        for v in [0, 1, 127, 128, 300, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX]
        {
            let mut b = Vec::new();
            put_varint(&mut b, v);
            assert_eq!(b.len(), varint_len(v));
            let mut d = Decoder::new(&b);
            assert_eq!(d.varint().unwrap(), v);
            assert!(d.is_empty());
        }
        assert!(
            Decoder::new(&[0x80, 0x00]).varint().is_err(),
            "zero in two bytes is not in shortest form"
        );
        assert!(Decoder::new(&[0xff; 11]).varint().is_err());
        assert!(Decoder::new(&[0x80]).varint().is_err());
    }

    #[test]
    fn huge_length_allocates_nothing() {
        let mut b = Vec::new();
        put_varint(&mut b, u64::MAX);
        assert!(Decoder::new(&b).bytes(usize::MAX).is_err());
    }
}
