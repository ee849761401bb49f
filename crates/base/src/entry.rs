//! Entries (user key, sequence number, kind, value) and their order: user key ascending, then
//! sequence number **descending**, so that the newest version of a key comes first.

use crate::{EntryKind, Expiry, FileId, KeyComparator, Result, SeqNo, codec};
use std::cmp::Ordering;

/// Location of a separated value: its first frame in a value log.
///
/// ```text
/// varint file | varint offset | varint stored bytes (all frames) | varint value bytes
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlogPointer {
    /// The value log.
    pub file: FileId,
    /// Offset of the first frame of the value, in bytes.
    pub offset: u64,
    /// Total length of its frames, in bytes.
    pub stored_bytes: u64,
    /// Length of the value, in bytes.
    pub value_bytes: u64,
}

impl VlogPointer {
    /// Appends the encoded pointer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        check!(
            self.value_bytes <= crate::limits::STREAMED_VALUE_BYTES_MAX
                && self.offset.checked_add(self.stored_bytes).is_some(),
            "a written pointer is one that readers accept",
            self
        );
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
        if p.value_bytes > crate::limits::STREAMED_VALUE_BYTES_MAX
            || p.offset.checked_add(p.stored_bytes).is_none()
        {
            return Err(crate::Error::corruption("value-log pointer out of range").expected(
                format_args!("at most {}", crate::limits::STREAMED_VALUE_BYTES_MAX),
                p.value_bytes,
            ));
        }
        Ok(p)
    }
}

/// The value of an entry, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueRef<'a> {
    /// A tombstone; has no value.
    Tombstone,
    /// A single delete: cancels itself and the one put below it; has no value.
    SingleDelete,
    /// The value bytes.
    Inline(&'a [u8]),
    /// The value is in a value log.
    Pointer(VlogPointer),
    /// The value bytes, with an expiry.
    InlineExpiring(&'a [u8], Expiry),
    /// The value is in a value log, and it has an expiry.
    PointerExpiring(VlogPointer, Expiry),
    /// A merge operand, to be merged into the older value or operand.
    Operand(&'a [u8]),
    /// A merge operand in a value log.
    OperandPointer(VlogPointer),
}

impl<'a> ValueRef<'a> {
    /// Returns an inline value, with its expiry if it has one.
    pub fn inline(bytes: &'a [u8], expiry: Option<Expiry>) -> ValueRef<'a> {
        expiry.map_or(ValueRef::Inline(bytes), |x| ValueRef::InlineExpiring(bytes, x))
    }
    /// Returns a value in a value log, with its expiry if it has one.
    pub fn pointer(p: VlogPointer, expiry: Option<Expiry>) -> ValueRef<'a> {
        expiry.map_or(ValueRef::Pointer(p), |x| ValueRef::PointerExpiring(p, x))
    }
    /// Returns the value with its bytes or its pointer replaced by the inline `bytes`; kind (value
    /// or operand) and expiry are kept.
    pub fn with_bytes<'b>(&self, bytes: &'b [u8]) -> ValueRef<'b> {
        check_slow!(!self.is_tombstone(), "a tombstone has no value to replace", self);
        match self {
            ValueRef::Operand(_) | ValueRef::OperandPointer(_) => ValueRef::Operand(bytes),
            _ => ValueRef::inline(bytes, self.expiry()),
        }
    }
    /// Returns the value with its bytes replaced by a pointer to a value log; kind (value or
    /// operand) and expiry are kept.
    pub fn with_pointer(&self, p: VlogPointer) -> ValueRef<'static> {
        check!(!self.is_tombstone(), "a tombstone has no value to separate", self);
        match self {
            ValueRef::Operand(_) | ValueRef::OperandPointer(_) => ValueRef::OperandPointer(p),
            _ => ValueRef::pointer(p, self.expiry()),
        }
    }
    /// Returns the value bytes if they are inline.
    #[inline]
    pub fn inline_bytes(&self) -> Option<&'a [u8]> {
        match self {
            ValueRef::Inline(v) | ValueRef::InlineExpiring(v, _) | ValueRef::Operand(v) => Some(v),
            _ => None,
        }
    }
    /// Returns the pointer if the value is in a value log.
    pub fn vlog_pointer(&self) -> Option<VlogPointer> {
        match self {
            ValueRef::Pointer(p)
            | ValueRef::PointerExpiring(p, _)
            | ValueRef::OperandPointer(p) => Some(*p),
            _ => None,
        }
    }
    /// Returns true if it is a merge operand.
    #[inline]
    pub fn is_operand(&self) -> bool {
        matches!(self, ValueRef::Operand(_) | ValueRef::OperandPointer(_))
    }
    /// Returns the kind of an entry with this value.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        match self {
            ValueRef::Tombstone => EntryKind::Delete,
            ValueRef::SingleDelete => EntryKind::SingleDelete,
            ValueRef::Inline(_) => EntryKind::Put,
            ValueRef::Pointer(_) => EntryKind::PutPointer,
            ValueRef::InlineExpiring(..) => EntryKind::PutExpiring,
            ValueRef::PointerExpiring(..) => EntryKind::PointerExpiring,
            ValueRef::Operand(_) => EntryKind::Merge,
            ValueRef::OperandPointer(_) => EntryKind::MergePointer,
        }
    }
    /// Returns true for a tombstone, which only hides older versions.
    #[inline]
    pub fn is_tombstone(&self) -> bool {
        matches!(self, ValueRef::Tombstone | ValueRef::SingleDelete)
    }
    /// Returns the expiry, if it has one.
    #[inline]
    pub fn expiry(&self) -> Option<Expiry> {
        match self {
            ValueRef::InlineExpiring(_, x) | ValueRef::PointerExpiring(_, x) => Some(*x),
            _ => None,
        }
    }
    /// Appends the stored form, as used in batches and blocks.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        if let Some(x) = self.expiry() {
            out.extend_from_slice(&x.encode());
        }
        match self {
            ValueRef::Tombstone | ValueRef::SingleDelete => {}
            ValueRef::Inline(v) | ValueRef::InlineExpiring(v, _) | ValueRef::Operand(v) => {
                out.extend_from_slice(v);
            }
            ValueRef::Pointer(p)
            | ValueRef::PointerExpiring(p, _)
            | ValueRef::OperandPointer(p) => {
                p.encode(out);
            }
        }
        check_slow!(
            ValueRef::decode(self.kind(), &out[start..]).is_ok_and(|v| v == *self),
            "a stored value decodes to itself",
            self
        );
    }
    /// Decodes the stored form of the value of an entry of kind `kind`.
    #[inline]
    pub fn decode(kind: EntryKind, stored: &'a [u8]) -> Result<ValueRef<'a>> {
        Ok(match kind {
            EntryKind::Put => ValueRef::Inline(stored),
            EntryKind::Delete if stored.is_empty() => ValueRef::Tombstone,
            EntryKind::SingleDelete if stored.is_empty() => ValueRef::SingleDelete,
            EntryKind::Delete | EntryKind::SingleDelete => {
                return Err(crate::Error::corruption("a tombstone has a value"));
            }
            EntryKind::RangeDelete => {
                return Err(crate::Error::corruption(
                    "a range tombstone is stored among point entries",
                ));
            }
            EntryKind::PutPointer => ValueRef::Pointer(VlogPointer::decode(stored)?),
            EntryKind::PutExpiring => {
                let (x, v) = Expiry::split_value(stored)?;
                ValueRef::InlineExpiring(v, x)
            }
            EntryKind::PointerExpiring => {
                let (x, p) = Expiry::split_value(stored)?;
                ValueRef::PointerExpiring(VlogPointer::decode(p)?, x)
            }
            EntryKind::Merge => ValueRef::Operand(stored),
            EntryKind::MergePointer => ValueRef::OperandPointer(VlogPointer::decode(stored)?),
        })
    }
}

/// One entry, borrowed from a memtable, a block or a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The user's key.
    pub key: &'a [u8],
    /// Its sequence number.
    pub seq: SeqNo,
    /// Its value or tombstone.
    pub value: ValueRef<'a>,
}

/// Compares two positions in entry order (key ascending, sequence number descending).
#[inline]
pub fn cmp_entry(comparator: KeyComparator, a: (&[u8], SeqNo), b: (&[u8], SeqNo)) -> Ordering {
    comparator.cmp(a.0, b.0).then_with(|| b.1.cmp(&a.1))
}
