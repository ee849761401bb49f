//! Entries as they travel: user key, sequence number, kind, value. The order of entries is user key
//! ascending, then sequence number **descending**, so that the newest version of a key comes first.

use crate::{EntryKind, FileId, KeyOrder, Result, SeqNo, codec};
use std::cmp::Ordering;

/// Where a separated value lies: the first frame of it in a value log.
///
/// ```text
/// varint file | varint offset | varint stored bytes (all frames) | varint value bytes
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlogPointer {
    /// The value log.
    pub file: FileId,
    /// Offset of the value's first frame.
    pub offset: u64,
    /// Bytes of all its frames.
    pub stored_bytes: u64,
    /// Length of the value itself.
    pub value_bytes: u64,
}

impl VlogPointer {
    /// Appends the encoded pointer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for v in [self.file.0, self.offset, self.stored_bytes, self.value_bytes] {
            codec::put_varint(out, v);
        }
    }
    /// Decodes a pointer that fills `bytes` exactly.
    pub fn decode(bytes: &[u8]) -> Result<VlogPointer> {
        let mut d = codec::Decoder::new(bytes);
        let p = VlogPointer {
            file: FileId(d.varint()?),
            offset: d.varint()?,
            stored_bytes: d.varint()?,
            value_bytes: d.varint()?,
        };
        if !d.is_empty() {
            return Err(crate::Error::corruption("bytes after a value-log pointer"));
        }
        if p.value_bytes > crate::limits::VALUE_BYTES_MAX as u64
            || p.offset.checked_add(p.stored_bytes).is_none()
        {
            return Err(crate::Error::corruption("value-log pointer out of range")
                .expected(format_args!("at most {}", crate::limits::VALUE_BYTES_MAX), p.value_bytes));
        }
        Ok(p)
    }
}

/// The value of an entry, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueRef<'a> {
    /// A tombstone has none.
    None,
    /// The bytes themselves.
    Inline(&'a [u8]),
    /// They lie in a value log.
    Pointer(VlogPointer),
}

impl ValueRef<'_> {
    /// The kind of the entry that has this value.
    pub fn kind(&self) -> EntryKind {
        match self {
            ValueRef::None => EntryKind::Delete,
            ValueRef::Inline(_) => EntryKind::Put,
            ValueRef::Pointer(_) => EntryKind::PutPointer,
        }
    }
}

/// One entry, borrowed from a memtable, a block or a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The user's key.
    pub key: &'a [u8],
    /// Its place in the commit order.
    pub seq: SeqNo,
    /// Its value, or none for a tombstone.
    pub value: ValueRef<'a>,
}

/// Compares two positions in entry order (key ascending, sequence number descending).
#[inline]
pub fn cmp_entry(order: KeyOrder, a: (&[u8], SeqNo), b: (&[u8], SeqNo)) -> Ordering {
    order.cmp(a.0, b.0).then_with(|| b.1.cmp(&a.1))
}
