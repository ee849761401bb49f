//! Numeric identifiers. Each is a newtype, so that two ids cannot be swapped in a call.
//! Also the handle of a block, for the same reason.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $int);
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A file of the database; numbers are never reused.
    FileId, u64
);
id!(
    /// A column family; numbers are never reused. Column family 0 is `default` and always exists.
    FamilyId, u32
);
id!(
    /// A sorted run inside a level; larger is newer.
    RunId, u64
);
id!(
    /// A level of the tree; 0 is the newest.
    LevelNo, u8
);

impl FamilyId {
    /// The default column family, which always exists.
    pub const DEFAULT: FamilyId = FamilyId(0);
    /// Not a column family: an operation on it in the log only consumes a sequence number.
    pub const NONE: FamilyId = FamilyId(u32::MAX);
}

impl LevelNo {
    /// Returns the level as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The place of a frame in its file. The default, [`BlockHandle::ABSENT`], stands for no frame: no
/// frame starts at offset 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockHandle {
    /// File offset of its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl BlockHandle {
    /// Stands for a frame that does not exist.
    pub const ABSENT: BlockHandle = BlockHandle { offset: 0, len: 0 };

    /// Returns the offset after the last byte.
    #[inline]
    pub fn end(self) -> u64 {
        check_slow!(
            self.offset.checked_add(self.len).is_some(),
            "a block ends inside the file offsets",
            self
        );
        self.offset + self.len
    }
}
