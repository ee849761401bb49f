//! A change of the catalog (drawn in `docs/format/manifest.md`).

use crate::settings::FamilySettings;
use perigee_base::{FamilyId, FileId};
use perigee_tree::VersionEdit;

/// The mark of a clean close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanClose {
    /// The newest log segment.
    pub log: FileId,
    /// Its exact length.
    pub bytes: u64,
    /// The last operation.
    pub last: u64,
}

/// One edit. Everything in it happens together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// The whole state, not a change.
    pub snapshot: bool,
    /// Next file id, next family id, next run id.
    pub next: Option<(u64, u32, u64)>,
    /// Families that come, or whose settings change.
    pub families: Vec<(FamilyId, String, FamilySettings)>,
    /// Families' compaction filters, by name (empty: none any more).
    pub filters: Vec<(FamilyId, String)>,
    /// Families that go.
    pub dropped: Vec<FamilyId>,
    /// Changes of families' versions.
    pub versions: Vec<(FamilyId, VersionEdit)>,
    /// Log segments that come, with their first LSN (0: not known yet), or whose first LSN is known now.
    pub logs_added: Vec<(FileId, u64)>,
    /// Log segments that go.
    pub logs_removed: Vec<FileId>,
    /// The log is on stable storage up to here.
    pub durable: Option<u64>,
    /// The latest time, in milliseconds, that entries may have expired by.
    pub clock: Option<u64>,
    /// The database was closed.
    pub clean: Option<CleanClose>,
}
