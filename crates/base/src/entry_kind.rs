//! What an entry is. Numbers are part of the format: never reused, never renumbered.

use crate::{Error, Result};

/// The kind of an entry, in batches and in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// A key with its value beside it.
    Put = 1,
    /// A tombstone: hides every older version of the key.
    Delete = 2,
    /// A key whose value lies in a value log; only in tables.
    PutPointer = 3,
    /// A key with its value beside it, up to a time: the stored value starts with it.
    PutExpiring = 4,
    /// The same with the value in a value log; only in tables.
    PointerExpiring = 5,
    /// A tombstone that takes the one put below it along.
    SingleDelete = 6,
    /// A tombstone over a range of keys: in batches, an end in the key and one in the value. Tables
    /// keep them apart.
    RangeDelete = 7,
    /// An operand beside its key: it is merged into what lies below, by the family's merge
    /// operator.
    Merge = 8,
    /// An operand in a value log; only in tables.
    MergePointer = 9,
}

impl EntryKind {
    /// Decodes a kind; an unknown number is damage (or a newer format, which feature bits
    /// announce).
    #[inline]
    pub fn decode(b: u8) -> Result<EntryKind> {
        match b {
            1 => Ok(EntryKind::Put),
            2 => Ok(EntryKind::Delete),
            3 => Ok(EntryKind::PutPointer),
            4 => Ok(EntryKind::PutExpiring),
            5 => Ok(EntryKind::PointerExpiring),
            6 => Ok(EntryKind::SingleDelete),
            7 => Ok(EntryKind::RangeDelete),
            8 => Ok(EntryKind::Merge),
            9 => Ok(EntryKind::MergePointer),
            other => Err(Error::corruption("unknown entry kind").expected("1 to 9", other)),
        }
    }
    /// The number on disk.
    pub fn code(self) -> u8 {
        self as u8
    }
    /// Whether it takes something away, a key or a range of them.
    pub fn is_delete(self) -> bool {
        self.is_tombstone() || self == EntryKind::RangeDelete
    }
    /// Whether it is an operand, which says nothing without what lies below it.
    #[inline]
    pub fn is_operand(self) -> bool {
        matches!(self, EntryKind::Merge | EntryKind::MergePointer)
    }
    /// Whether it hides older versions instead of carrying a value.
    #[inline]
    pub fn is_tombstone(self) -> bool {
        matches!(self, EntryKind::Delete | EntryKind::SingleDelete)
    }
}
