//! Numbers that name things. Newtypes, so that two ids never swap places in a call.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// A column family; numbers are never reused. Family 0 is `default` and always exists.
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
    /// The family that every database has.
    pub const DEFAULT: FamilyId = FamilyId(0);
    /// No family has this number: an operation on it, in the log, only takes a sequence number.
    pub const NONE: FamilyId = FamilyId(u32::MAX);
}

impl LevelNo {
    /// The level as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
