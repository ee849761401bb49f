//! A change of a version, as jobs produce it and the manifest records it.

use perigee_base::{FileId, LevelNo, RunId, SeqNo};
use perigee_file::KlogSummary;

/// What the manifest knows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// The klog.
    pub id: FileId,
    /// Its bounds, counts, length and checksum.
    pub summary: KlogSummary,
    /// The sequence number of all its entries, if it was loaded: it was not known when the file was
    /// written. Range tombstones have the number before.
    pub global_seq: Option<SeqNo>,
}

impl TableMeta {
    /// The oldest and the newest sequence number that readers see in it.
    pub fn seq_range(&self) -> (SeqNo, SeqNo) {
        let stamped = |stamp: SeqNo| {
            (if self.summary.ranges.is_some() { stamp.prev() } else { stamp }, stamp)
        };
        self.global_seq.map_or((self.summary.smallest_seq, self.summary.largest_seq), stamped)
    }
}

/// A table with fewer tombstones is not worth a merge of its own.
const DENSE_TOMBSTONES_MIN: u64 = 1000;

/// Whether a table of so many entries is mostly tombstones.
pub fn is_tombstone_dense(entries: u64, tombstones: u64) -> bool {
    tombstones >= DENSE_TOMBSTONES_MIN && tombstones.saturating_mul(2) >= entries
}

/// So many of a table's entries must have expired before it is worth a merge of its own: a quarter,
/// as much space as overwritten entries may take in all.
pub fn expired_entries_min(entries: u64) -> u64 {
    entries.div_ceil(4).max(1)
}

/// What the manifest knows of a value log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlogMeta {
    /// The file.
    pub id: FileId,
    /// Its length.
    pub bytes: u64,
    /// Its whole-file checksum.
    pub checksum: u64,
}

/// A table and its place in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedTable {
    /// Level.
    pub level: LevelNo,
    /// Run within the level (0 below level 0).
    pub run: RunId,
    /// The table.
    pub meta: TableMeta,
}

/// A change of one family's version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionEdit {
    /// Tables that come.
    pub added: Vec<AddedTable>,
    /// Tables that go.
    pub removed: Vec<(LevelNo, FileId)>,
    /// Value logs that come.
    pub vlogs_added: Vec<VlogMeta>,
    /// Value logs that go: nothing references them any more.
    pub vlogs_removed: Vec<FileId>,
    /// Every operation of the family up to here is in tables.
    pub flushed_up_to: Option<SeqNo>,
}

impl VersionEdit {
    /// Becomes this change and another one of the same family, which has no table in common with
    /// it.
    pub fn join(&mut self, other: VersionEdit) {
        self.added.extend(other.added);
        self.removed.extend(other.removed);
        self.vlogs_added.extend(other.vlogs_added);
        self.vlogs_removed.extend(other.vlogs_removed);
        self.flushed_up_to = self.flushed_up_to.max(other.flushed_up_to);
    }
}
