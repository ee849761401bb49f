//! A change of the catalog (drawn in `docs/format/manifest.md`).

use crate::settings::FamilySettings;
use crate::wal::LogSpan;
use perigee_base::{FamilyId, FileId, SeqNo};
use perigee_tree::VersionEdit;

/// The mark of a clean close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanClose {
    /// The newest log segment.
    pub log: FileId,
    /// Its exact length.
    pub bytes: u64,
    /// The last operation.
    pub last_seq: u64,
}

/// What befell a family beside the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FamilyEventKind {
    /// It was created, empty.
    Created {
        /// Its name.
        name: String,
    },
    /// It was dropped.
    Dropped {
        /// The name that it had.
        name: String,
    },
    /// It was renamed.
    Renamed {
        /// The old name.
        from: String,
        /// The new one.
        to: String,
    },
    /// Everything in it was removed.
    Cleared,
    /// It was created with the contents of another.
    Cloned {
        /// Its name.
        name: String,
        /// The other family.
        source: FamilyId,
    },
    /// Entries were loaded into it.
    Loaded,
}

/// What befell which family, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyEvent {
    /// Under this number, which no operation has.
    pub seq: SeqNo,
    /// The family.
    pub family: FamilyId,
    /// What it was.
    pub kind: FamilyEventKind,
}

/// One edit. Everything in it happens together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestEdit {
    /// The whole state, not a change.
    pub snapshot: bool,
    /// Next file id, next family id, next run id.
    pub next_ids: Option<(u64, u32, u64)>,
    /// Families that come, or whose settings change.
    pub families: Vec<(FamilyId, String, FamilySettings)>,
    /// Families' compaction filters, by name (empty: none any more).
    pub filters: Vec<(FamilyId, String)>,
    /// Families that go.
    pub dropped: Vec<FamilyId>,
    /// Changes of families' versions.
    pub versions: Vec<(FamilyId, VersionEdit)>,
    /// Log segments that come, with their first LSN (0: not known yet), or whose first LSN is known
    /// now.
    pub logs_added: Vec<(FileId, u64)>,
    /// Log segments that go.
    pub logs_removed: Vec<FileId>,
    /// Log segments that stay for readers although recovery does not need them.
    pub logs_retained: Vec<LogSpan>,
    /// Those of them that go.
    pub retained_removed: Vec<FileId>,
    /// What befell families beside the log.
    pub events: Vec<FamilyEvent>,
    /// What befell them up to here was too much to remember.
    pub events_discarded: Option<SeqNo>,
    /// Families whose contents begin with this number: before it they were others.
    pub contents_start: Vec<(FamilyId, SeqNo)>,
    /// What older numbers would read may be gone.
    pub oldest_readable: Option<SeqNo>,
    /// Named snapshots that come.
    pub snapshots: Vec<(String, SeqNo)>,
    /// Named snapshots that go.
    pub snapshots_dropped: Vec<String>,
    /// The log is on stable storage up to here.
    pub durable_seq: Option<u64>,
    /// The latest time, in milliseconds, that entries may have expired by.
    pub expiry_clock_ms: Option<u64>,
    /// The database was closed.
    pub clean_close: Option<CleanClose>,
}
