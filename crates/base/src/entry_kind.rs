//! Entry kinds. Their numbers are part of the file format: never reused, never renumbered.

use crate::{Error, Result};

/// The kind of an entry, in batches and in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// A key with an inline value.
    Put = 1,
    /// A tombstone: hides every older version of the key.
    Delete = 2,
    /// A key whose value is in a value log; only in tables.
    PutPointer = 3,
    /// A key with an inline value and an expiry; the stored value starts with the expiry.
    PutExpiring = 4,
    /// A key with an expiry whose value is in a value log; only in tables.
    PointerExpiring = 5,
    /// A single delete: a tombstone that cancels itself and the one put below it.
    SingleDelete = 6,
    /// A range tombstone. In batches, the start boundary is in the key and the end boundary in the
    /// value. Tables store range tombstones separately from point entries.
    RangeDelete = 7,
    /// An inline merge operand: the merge operator of the column family merges it into the older
    /// value or operand.
    Merge = 8,
    /// A merge operand in a value log; only in tables.
    MergePointer = 9,
}

impl EntryKind {
    /// Decodes a kind. An unknown number is corruption (a newer format is announced by feature
    /// bits).
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
    /// Returns the number stored on disk.
    pub fn code(self) -> u8 {
        self as u8
    }
    /// Returns true if it deletes a key or a range of keys.
    pub fn is_delete(self) -> bool {
        self.is_tombstone() || self == EntryKind::RangeDelete
    }
    /// Returns true if it is a merge operand, whose result depends on older versions.
    #[inline]
    pub fn is_operand(self) -> bool {
        matches!(self, EntryKind::Merge | EntryKind::MergePointer)
    }
    /// Returns true if it is a point tombstone, which hides older versions and has no value.
    #[inline]
    pub fn is_tombstone(self) -> bool {
        matches!(self, EntryKind::Delete | EntryKind::SingleDelete)
    }
}
