//! Integers to bytes and back. Little-endian fixed widths and LEB128 varints; `usize` is never
//! encoded.
//!
//! [`Decoder`] is total: any input gives a value or a `Corruption` error, never a panic, and
//! nothing is allocated from a declared length before that length was compared with the bytes that
//! remain.

use crate::{Error, Result};

/// Appends `v` as a varint (7 bits a byte, low bits first).
pub fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push((v as u8) | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// The bytes that [`put_varint`] would append.
pub fn varint_len(v: u64) -> usize {
    (64 - (v | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends a varint length and the bytes.
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
    /// Starts at the first byte.
    pub fn new(all: &'a [u8]) -> Self {
        Decoder { all, pos: 0 }
    }
    /// Bytes consumed so far.
    pub fn position(&self) -> usize {
        self.pos
    }
    /// Bytes left.
    pub fn remaining(&self) -> usize {
        self.all.len() - self.pos
    }
    /// Whether everything was consumed.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.remaining() {
            return Err(Error::corruption(format!("record ends early at byte {}", self.pos))
                .expected(format_args!("{n} more bytes"), self.remaining()));
        }
        let out = &self.all[self.pos..self.pos + n];
        self.pos += n;
        Ok(out)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }
    /// A fixed 16-bit integer.
    pub fn u16(&mut self) -> Result<u16> {
        let b = self.take(2)?;
        Ok(u16::from_le_bytes([b[0], b[1]]))
    }
    /// A fixed 32-bit integer.
    pub fn u32(&mut self) -> Result<u32> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }
    /// A fixed 64-bit integer.
    pub fn u64(&mut self) -> Result<u64> {
        let b = self.take(8)?;
        Ok(u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
    }

    /// A varint; longer than ten bytes, overflowing or not in shortest form is damage.
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

    /// A varint that must fit 32 bits.
    pub fn varint32(&mut self) -> Result<u32> {
        let at = self.pos;
        let v = self.varint()?;
        u32::try_from(v).map_err(|_| {
            Error::corruption(format!("number at byte {at} does not fit"))
                .expected("at most 32 bits", v)
        })
    }

    /// A varint length, then so many bytes; lengths above `max` are damage.
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
        assert!(Decoder::new(&[0x80, 0x00]).varint().is_err(), "a second form of zero");
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
