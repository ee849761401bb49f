//! The encoding of lists in one buffer. Integers are little-endian; `bytes` is a `u32` length and
//! that many bytes. `lib/packer.js` has the other side of each format.
//!
//! | list | encoding |
//! |---|---|
//! | keys | `bytes` for each key |
//! | values | for each key a `u32`, the length, or [`ABSENT`]; then the value |
//! | entries | `u8`: 1 if the scan has ended; each: `u32` key length, `u32` value length, both |
//! | key range | `u8` kind of the lower bound, `bytes`; `u8` kind of the upper bound, `bytes` |
//! | operations | for each: `u8` code, `u32` column family, arguments (module `operations`) |
//!
//! Kinds of a bound: 0 none, 1 included, 2 excluded.

use perigee::{Error, Result};
use std::ops::{Bound, RangeBounds};

/// The length that stands for "the key does not exist".
pub const ABSENT: u32 = u32::MAX;

/// A key range with owned bounds.
#[derive(Clone, Debug)]
pub struct KeyRange {
    /// Lower bound.
    pub lower: Bound<Vec<u8>>,
    /// Upper bound.
    pub upper: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Decodes a key range.
    pub fn decode(bytes: &[u8]) -> Result<KeyRange> {
        let mut decoder = Decoder::new(bytes);
        let range = decoder.range()?;
        decoder.expect_end()?;
        Ok(range)
    }

    /// Returns the bounds for a call of the engine.
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.lower.as_ref().map(Vec::as_slice), self.upper.as_ref().map(Vec::as_slice))
    }

    /// Returns true if `key` is in the range, in byte order.
    pub fn contains(&self, key: &[u8]) -> bool {
        RangeBounds::<[u8]>::contains(&self.bounds(), key)
    }
}

/// Reads values from an encoded buffer.
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Returns a decoder at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder { rest: bytes }
    }
    /// Returns true if everything was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    /// Returns the next `len` bytes.
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or_else(truncated)?;
        self.rest = rest;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| truncated())
    }
    /// Reads a byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }
    /// Reads a 32-bit integer.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    /// Reads a floating-point number.
    pub fn f64(&mut self) -> Result<f64> {
        Ok(f64::from_le_bytes(self.array()?))
    }
    /// Reads a length and that many bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.u32()?;
        self.take(len as usize)
    }
    fn bound(&mut self) -> Result<Bound<Vec<u8>>> {
        let (kind, key) = (self.u8()?, self.bytes()?);
        match kind {
            0 => Ok(Bound::Unbounded),
            1 => Ok(Bound::Included(key.to_vec())),
            2 => Ok(Bound::Excluded(key.to_vec())),
            _ => Err(Error::internal(format!("unknown kind {kind} of a bound"))),
        }
    }
    /// Reads a key range.
    pub fn range(&mut self) -> Result<KeyRange> {
        Ok(KeyRange { lower: self.bound()?, upper: self.bound()? })
    }
    /// Fails if something is left.
    pub fn expect_end(&self) -> Result<()> {
        if self.is_empty() { Ok(()) } else { Err(truncated()) }
    }
}

fn truncated() -> Error {
    Error::internal("a buffer from JavaScript does not have the expected length")
}

/// Decodes a list of keys.
pub fn decode_keys(bytes: &[u8]) -> Result<Vec<&[u8]>> {
    let mut decoder = Decoder::new(bytes);
    let mut keys = Vec::new();
    while !decoder.is_empty() {
        keys.push(decoder.bytes()?);
    }
    Ok(keys)
}

/// Appends a value of a list of values.
pub fn push_value(out: &mut Vec<u8>, value: Option<&[u8]>) -> Result<()> {
    let len = value.map_or(Ok(ABSENT), |v| length(v.len()))?;
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(value.unwrap_or_default());
    Ok(())
}

/// Appends an entry of a list of entries.
pub fn push_entry(out: &mut Vec<u8>, key: &[u8], value: &[u8]) -> Result<()> {
    out.extend_from_slice(&length(key.len())?.to_le_bytes());
    out.extend_from_slice(&length(value.len())?.to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value);
    Ok(())
}

fn length(len: usize) -> Result<u32> {
    u32::try_from(len)
        .ok()
        .filter(|len| *len != ABSENT)
        .ok_or_else(|| Error::invalid("the value is too long to be returned in one buffer"))
}
