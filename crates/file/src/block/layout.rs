//! The layout of a block, and the one check that makes every later lookup safe.
//!
//! ```text
//! varint n, number of entries (at least 1)
//! varint bytes of the key area: prefix and suffixes
//! varint length of the key prefix that all keys share
//! four integer columns: key ends, sequence numbers, kinds, value ends
//!     key prefix bytes
//!     key suffixes, one after another
//!     values, one after another
//! ```
//! Invariants after [`BlockLayout::parse`]: every column lies inside the block; key ends and value
//! ends ascend and end exactly where their areas do; no key is too long; every kind is known; a
//! tombstone has no value; a pointer decodes. The entry order is not checked here (the writer
//! ensures it, `verify` checks it): unsorted entries give wrong answers, never a panic.

use super::column::{Column, SLACK_BYTES};
use perigee_base::codec::Decoder;
use perigee_base::limits::KEY_BYTES_MAX;
use perigee_base::{EntryKind, Error, Result, ValueRef};

/// Size of what precedes the columns, approximately.
pub const BLOCK_HEADER_BYTES: usize = 5;
/// Maximum number of entries in a data block. Uniform entries take no bytes, so their number needs
/// a separate limit.
pub const ENTRIES_MAX: usize = 1 << 16;

/// Offsets and columns of a validated block.
#[derive(Clone, Copy, Debug)]
pub struct BlockLayout {
    /// Number of entries.
    pub entry_count: usize,
    /// Start of the key prefix.
    pub prefix_start: usize,
    /// Start of the key suffixes; the prefix ends here.
    pub suffixes_start: usize,
    /// Start of the values; the suffixes end here.
    pub values_start: usize,
    /// Ends of the key suffixes.
    pub key_ends: Column,
    /// Sequence numbers.
    pub seqs: Column,
    /// Kinds.
    pub kinds: Column,
    /// Ends of the values.
    pub value_ends: Column,
    /// Every entry is a plain put (the usual case).
    pub all_puts: bool,
}

impl BlockLayout {
    /// Validates the block in the first `len` bytes of `buf`, which has [`SLACK_BYTES`] more.
    pub fn parse(buf: &[u8], len: usize) -> Result<BlockLayout> {
        check!(buf.len() >= len + SLACK_BYTES, "the buffer of a block has slack", buf.len(), len);
        let raw = &buf[..len];
        let mut d = Decoder::new(raw);
        let (n, key_bytes, prefix_len) = (d.varint()?, d.varint()?, d.varint()?);
        let most = len as u64;
        if key_bytes > most || prefix_len > key_bytes {
            return Err(Error::corruption("the key area of a block is larger than the block")
                .expected(
                    format_args!("at most {most} bytes of keys"),
                    format_args!("{prefix_len} of {key_bytes}"),
                ));
        }
        let (key_bytes, prefix_len) = (key_bytes as usize, prefix_len as usize);
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        if n == 0 || n > ENTRIES_MAX.max(len) {
            return Err(Error::corruption("invalid number of entries in a block")
                .expected(format_args!("1 to {}", ENTRIES_MAX.max(len)), n));
        }
        let (key_ends, at) = Column::parse(raw, d.position(), n)?;
        let (seqs, at) = Column::parse(raw, at, n)?;
        let (kinds, at) = Column::parse(raw, at, n)?;
        let (value_ends, prefix) = Column::parse(raw, at, n)?;
        // Each is at most the block's length: no overflow.
        let (suffixes, values) = (prefix + prefix_len, prefix + key_bytes);
        if values > len {
            return Err(
                Error::corruption("the keys of a block exceed the block").expected(len, values)
            );
        }
        let all_puts = kinds.constant_value() == Some(u64::from(EntryKind::Put.code()));
        let layout = BlockLayout {
            entry_count: n,
            prefix_start: prefix,
            suffixes_start: suffixes,
            values_start: values,
            key_ends,
            seqs,
            kinds,
            value_ends,
            all_puts,
        };
        layout.check_keys(buf)?;
        layout.check_values(buf, len)?;
        Ok(layout)
    }

    fn check_keys(&self, buf: &[u8]) -> Result<()> {
        if !self.key_ends.ascends_to(
            buf,
            self.entry_count,
            (self.values_start - self.suffixes_start) as u64,
        ) {
            return Err(Error::corruption(
                "the key ends of a block do not ascend to the end of its key area",
            ));
        }
        let shared = self.suffixes_start - self.prefix_start;
        if self.values_start - self.prefix_start > KEY_BYTES_MAX
            && (0..self.entry_count)
                .any(|i| shared + self.suffix_range(buf, i).len() > KEY_BYTES_MAX)
        {
            return Err(Error::corruption("a key of a block is too long"));
        }
        Ok(())
    }

    fn check_values(&self, buf: &[u8], len: usize) -> Result<()> {
        if !self.value_ends.ascends_to(buf, self.entry_count, (len - self.values_start) as u64) {
            return Err(Error::corruption("the value ends of a block do not ascend to its end"));
        }
        if self.all_puts {
            return Ok(());
        }
        for i in 0..self.entry_count {
            let kind = u8::try_from(self.kinds.get(buf, i)).unwrap_or(0);
            let value = &buf[self.value_range(buf, i)];
            ValueRef::decode(EntryKind::decode(kind)?, value)?;
        }
        Ok(())
    }

    /// Returns the range of suffix `i` in the buffer.
    #[inline]
    pub fn suffix_range(&self, buf: &[u8], i: usize) -> std::ops::Range<usize> {
        check_slow!(i < self.entry_count, "a block has this entry", i, self.entry_count);
        let start = if i == 0 { 0 } else { self.key_ends.get(buf, i - 1) as usize };
        self.suffixes_start + start..self.suffixes_start + self.key_ends.get(buf, i) as usize
    }

    /// Returns the range of value `i` in the buffer.
    #[inline]
    pub fn value_range(&self, buf: &[u8], i: usize) -> std::ops::Range<usize> {
        check_slow!(i < self.entry_count, "a block has this entry", i, self.entry_count);
        let start = if i == 0 { 0 } else { self.value_ends.get(buf, i - 1) as usize };
        self.values_start + start..self.values_start + self.value_ends.get(buf, i) as usize
    }
}
