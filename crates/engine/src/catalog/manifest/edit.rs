//! The manifest edit: a change of the catalog. Format: `docs/format/manifest.md`.

use crate::catalog::retained_logs::LogSpan;
use crate::settings::FamilySettings;
use perigee_base::{FamilyId, FileId, RunId, SeqNo};
use perigee_tree::{TableMeta, VersionEdit, VlogMeta};
use std::sync::Arc;

/// The record of a clean close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanClose {
    /// The newest log segment.
    pub log: FileId,
    /// Its exact length in bytes.
    pub bytes: u64,
    /// Sequence number of the last operation.
    pub last_seq: SeqNo,
}

/// The identifiers that are allocated next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextIds {
    /// The next file.
    pub file: FileId,
    /// The next column family.
    pub family: FamilyId,
    /// The next sorted run.
    pub run: RunId,
}

impl NextIds {
    /// Raises the identifiers to those of an edit; never lowers one.
    pub fn raise(&mut self, to: NextIdsEdit) {
        self.file = self.file.max(to.file.unwrap_or_default());
        self.family = self.family.max(to.family.unwrap_or_default());
        self.run = self.run.max(to.run.unwrap_or_default());
    }
}

/// A change of the identifiers that are allocated next. Those that are `None` are unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextIdsEdit {
    /// The next file.
    pub file: Option<FileId>,
    /// The next column family.
    pub family: Option<FamilyId>,
    /// The next sorted run.
    pub run: Option<RunId>,
}

impl NextIdsEdit {
    /// Creates the change that follows the allocation of column family `id`.
    pub fn after_family(id: FamilyId) -> NextIdsEdit {
        NextIdsEdit { family: Some(FamilyId(id.0 + 1)), ..NextIdsEdit::default() }
    }
}

impl From<NextIds> for NextIdsEdit {
    fn from(ids: NextIds) -> NextIdsEdit {
        NextIdsEdit { file: Some(ids.file), family: Some(ids.family), run: Some(ids.run) }
    }
}

/// The kind of a column-family event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FamilyEventKind {
    /// The column family was created, empty.
    Created {
        /// Its name.
        name: String,
    },
    /// The column family was dropped.
    Dropped {
        /// The name that it had.
        name: String,
    },
    /// The column family was renamed.
    Renamed {
        /// The old name.
        from: String,
        /// The new one.
        to: String,
    },
    /// All entries were removed.
    Cleared,
    /// The column family was created with the contents of another.
    Cloned {
        /// Its name.
        name: String,
        /// The source column family.
        source: FamilyId,
    },
    /// Entries were bulk-loaded.
    Loaded,
}

/// A change of a column family that is not in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyEvent {
    /// Sequence number of the event; no operation has the same.
    pub seq: SeqNo,
    /// The column family.
    pub family: FamilyId,
    /// The kind of the event.
    pub kind: FamilyEventKind,
}

/// The files of a prepared transaction in one column family. No version contains them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedFiles {
    /// The column family.
    pub family: FamilyId,
    /// Tables in key order, with entries stored at sequence number 0.
    pub tables: Vec<TableMeta>,
    /// Value logs that the tables reference.
    pub vlogs: Vec<VlogMeta>,
}

impl PreparedFiles {
    /// Returns the ids of the tables and value logs.
    pub fn ids(&self) -> impl Iterator<Item = FileId> {
        self.tables.iter().map(|t| t.id).chain(self.vlogs.iter().map(|v| v.id))
    }
}

/// A prepared transaction whose writes are in tables: it was larger than memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedTables {
    /// Its global identifier, which the record contains.
    pub gid: Vec<u8>,
    /// The payload of a prepare record without operations: identifier, isolation level, time, and
    /// what it claims besides its writes.
    pub record: Arc<Vec<u8>>,
    /// Number of its operations.
    pub operations: u64,
    /// Its files, by column family.
    pub files: Vec<PreparedFiles>,
}

/// A manifest edit. It takes effect as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestEdit {
    /// True if the edit is the whole state rather than a change.
    pub snapshot: bool,
    /// The identifiers that are allocated next.
    pub next_ids: Option<NextIdsEdit>,
    /// Column families that are created, or whose settings change.
    pub families: Vec<(FamilyId, String, FamilySettings)>,
    /// Compaction filters of column families, by name (empty: removed).
    pub filters: Vec<(FamilyId, String)>,
    /// Column families that are dropped.
    pub dropped: Vec<FamilyId>,
    /// Version edits of column families.
    pub versions: Vec<(FamilyId, VersionEdit)>,
    /// Transactions that are prepared, with their tables.
    pub prepared: Vec<Arc<PreparedTables>>,
    /// Identifiers of those transactions that are decided. If one is committed, the same edit adds
    /// its files to versions.
    pub decided: Vec<Vec<u8>>,
    /// Log segments that are added, with their first LSN (0: not known yet), or whose first LSN is
    /// known now.
    pub logs_added: Vec<(FileId, SeqNo)>,
    /// Log segments that are removed.
    pub logs_removed: Vec<FileId>,
    /// Log segments that recovery does not need and that are retained for readers.
    pub logs_retained: Vec<LogSpan>,
    /// Retained log segments that are removed.
    pub retained_removed: Vec<FileId>,
    /// Column-family events.
    pub events: Vec<FamilyEvent>,
    /// Column-family events up to this sequence number were discarded.
    pub events_discarded: Option<SeqNo>,
    /// Column families whose contents start at this sequence number; before it they had other
    /// contents.
    pub contents_start: Vec<(FamilyId, SeqNo)>,
    /// Oldest readable sequence number: data for older reads may be gone.
    pub oldest_readable: Option<SeqNo>,
    /// Named snapshots that are created.
    pub snapshots: Vec<(String, SeqNo)>,
    /// Named snapshots that are dropped.
    pub snapshots_dropped: Vec<String>,
    /// The log is on stable storage up to this LSN.
    pub durable_seq: Option<SeqNo>,
    /// The latest time, in milliseconds since the Unix epoch, up to which entries may have expired.
    pub expiry_clock_ms: Option<u64>,
    /// The database was closed cleanly.
    pub clean_close: Option<CleanClose>,
}
