//! Version edits: changes of a version, produced by jobs and recorded in the manifest.

use crate::limits::DENSE_TOMBSTONES_MIN;
use perigee_base::{FileId, LevelNo, RunId, SeqNo, Tombstones};
use perigee_file::KlogSummary;
use std::sync::Arc;

/// A table's record in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// File id of the klog.
    pub id: FileId,
    /// Bounds, counts, length and checksum; shared by the version and the catalog of the manifest.
    pub summary: Arc<KlogSummary>,
    /// Sequence number of all entries, if the table was bulk loaded: it was not known when the file
    /// was written. Range tombstones have the number before.
    pub global_seq: Option<SeqNo>,
}

impl TableMeta {
    /// Returns the smallest and the largest sequence number that readers see in the table.
    pub fn seq_range(&self) -> (SeqNo, SeqNo) {
        let global_range =
            |seq: SeqNo| (if self.summary.ranges.is_some() { seq.prev() } else { seq }, seq);
        self.global_seq.map_or((self.summary.smallest_seq, self.summary.largest_seq), global_range)
    }
}

/// Returns true if the table consists mostly of tombstones.
pub fn is_tombstone_dense(entries: u64, tombstones: Tombstones) -> bool {
    tombstones.0 >= DENSE_TOMBSTONES_MIN && tombstones.0.saturating_mul(2) >= entries
}

/// Returns the number of expired entries at which a table is worth a merge of its own: a quarter,
/// the share of space that overwritten entries may occupy in total.
pub fn expired_entries_min(entries: u64) -> u64 {
    entries.div_ceil(4).max(1)
}

/// A value log's record in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlogMeta {
    /// File id.
    pub id: FileId,
    /// Length in bytes.
    pub bytes: u64,
    /// Whole-file checksum.
    pub checksum: u64,
}

/// A table and its position in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedTable {
    /// Level.
    pub level: LevelNo,
    /// Run within the level (0 below level 0).
    pub run: RunId,
    /// The table.
    pub meta: TableMeta,
}

/// A change of one column family's version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionEdit {
    /// Tables added.
    pub added: Vec<AddedTable>,
    /// Tables removed.
    pub removed: Vec<(LevelNo, FileId)>,
    /// Value logs added.
    pub vlogs_added: Vec<VlogMeta>,
    /// Value logs removed, because nothing references them any more.
    pub vlogs_removed: Vec<FileId>,
    /// Every operation of the column family up to here is in tables.
    pub flushed_up_to: Option<SeqNo>,
}

impl VersionEdit {
    /// Adds another change of the same column family to this one; they must have no table in
    /// common.
    pub fn join(&mut self, other: VersionEdit) {
        self.added.extend(other.added);
        self.removed.extend(other.removed);
        self.vlogs_added.extend(other.vlogs_added);
        self.vlogs_removed.extend(other.vlogs_removed);
        self.flushed_up_to = self.flushed_up_to.max(other.flushed_up_to);
    }
}
