//! Input and output of the pickers as plain data: shapes and plans.

use crate::version::Version;
use perigee_base::{FileId, KeyBoundary, KeyComparator, LevelNo, RunId, SeqNo};
use perigee_file::{ExpiryHistogram, RangeTombstones};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A table as a picker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableShape {
    /// File id.
    pub id: FileId,
    /// Size in bytes.
    pub bytes: u64,
    /// Run id; larger is newer (level 0 only).
    pub run: RunId,
    /// Number of entries, tombstones included.
    pub entries: u64,
    /// Number of tombstones.
    pub tombstones: u64,
    /// Number of tombstones that scans have skipped, counted once per skip.
    pub skipped_tombstones: u64,
    /// Boundary before all entries and range tombstones.
    pub first: KeyBoundary,
    /// Boundary after all entries and range tombstones.
    pub last: KeyBoundary,
    /// Smallest sequence number.
    pub smallest_seq: SeqNo,
    /// Largest sequence number.
    pub largest_seq: SeqNo,
    /// Range tombstones, if there are any.
    pub range_tombstones: Option<Arc<RangeTombstones>>,
    /// Histogram of expiry times, if any entry expires.
    pub expiries: Option<Arc<ExpiryHistogram>>,
    /// Value logs that the table references.
    pub vlogs: Vec<FileId>,
    /// Bytes that it references there.
    pub vlog_bytes: u64,
    /// Number of values that have a value log of their own.
    pub long_values: u64,
    /// The bytes of these value logs.
    pub long_value_bytes: u64,
}

impl TableShape {
    /// Creates a table with zero entries, for models and tests.
    pub fn new(id: FileId, first: KeyBoundary, last: KeyBoundary, bytes: u64) -> TableShape {
        TableShape {
            id,
            bytes,
            run: RunId(0),
            entries: 0,
            tombstones: 0,
            skipped_tombstones: 0,
            first,
            last,
            smallest_seq: SeqNo(1),
            largest_seq: SeqNo(1),
            range_tombstones: None,
            expiries: None,
            vlogs: Vec::new(),
            vlog_bytes: 0,
            long_values: 0,
            long_value_bytes: 0,
        }
    }
}

/// A value log as a picker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlogShape {
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes of it that tables reference.
    pub referenced_bytes: u64,
}

impl VlogShape {
    /// Returns the bytes that no table references.
    pub fn garbage_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.referenced_bytes)
    }
    /// Returns the garbage in thousandths of the size.
    pub fn garbage_permille(&self) -> u64 {
        (u128::from(self.garbage_bytes()) * 1000 / u128::from(self.bytes.max(1))) as u64
    }
}

/// A version as a picker sees it: levels of runs (newest first) of tables (in key order), and value
/// logs.
#[derive(Clone, Debug, Default)]
pub struct TreeShape {
    /// Comparator of the keys.
    pub comparator: KeyComparator,
    /// Tables, by level and run.
    pub levels: Vec<Vec<Vec<TableShape>>>,
    /// The value logs.
    pub vlogs: BTreeMap<FileId, VlogShape>,
    /// Estimated number of distinct keys in all tables, if it was counted.
    pub distinct_keys: Option<u64>,
}

impl TreeShape {
    /// Returns the shape of a version.
    pub fn from_version(version: &Version) -> TreeShape {
        let refs = version.vlog_referenced_bytes();
        let is_long =
            |id: &FileId| version.vlogs.get(id).is_some_and(|v| v.reader.holds_one_value());
        let long = |t: &crate::Table| {
            let values = t.meta.summary.vlogs.iter().filter(|(id, _)| is_long(id));
            values.fold((0, 0), |(count, sum), (_, bytes)| (count + 1, sum + bytes))
        };
        let table = |run: RunId, t: &Arc<crate::Table>| {
            let (long_values, long_value_bytes) = long(t);
            TableShape {
                id: t.meta.id,
                bytes: t.meta.summary.bytes,
                run,
                entries: t.meta.summary.entries,
                tombstones: t.meta.summary.tombstones,
                skipped_tombstones: t.reader.skipped_tombstones(),
                first: t.meta.summary.begin(version.comparator).to_boundary(),
                last: t.meta.summary.end(version.comparator).to_boundary(),
                smallest_seq: t.meta.seq_range().0,
                largest_seq: t.meta.seq_range().1,
                range_tombstones: Some(t.reader.range_tombstones())
                    .filter(|r| !r.is_empty())
                    .cloned(),
                expiries: Some(t.reader.expiry_histogram()).filter(|e| !e.is_empty()).cloned(),
                vlogs: t.meta.summary.vlogs.iter().map(|(id, _)| *id).collect(),
                vlog_bytes: t.meta.summary.separated_bytes(),
                long_values,
                long_value_bytes,
            }
        };
        TreeShape {
            comparator: version.comparator,
            levels: version
                .levels
                .iter()
                .map(|runs| {
                    runs.iter().map(|r| r.tables.iter().map(|t| table(r.id, t)).collect()).collect()
                })
                .collect(),
            vlogs: version
                .vlogs
                .values()
                .map(|v| {
                    let referenced_bytes = refs.get(&v.meta.id).copied().unwrap_or(0);
                    (v.meta.id, VlogShape { bytes: v.meta.bytes, referenced_bytes })
                })
                .collect(),
            distinct_keys: None,
        }
    }
    /// Adds the number of distinct keys of the version, for pickers that depend on it.
    #[must_use]
    pub fn with_distinct_keys(self, version: &Version) -> TreeShape {
        TreeShape { distinct_keys: Some(version.distinct_keys()), ..self }
    }
    /// Bytes of a level.
    pub fn bytes(&self, level: usize) -> u64 {
        self.tables(level).map(|t| t.bytes).sum()
    }
    /// Returns the tables of a level.
    pub fn tables(&self, level: usize) -> impl Iterator<Item = &TableShape> {
        self.levels.get(level).into_iter().flatten().flatten()
    }
}

/// Reason for a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionReason {
    /// Level 0 holds too many runs.
    Level0Runs,
    /// A level is larger than its capacity.
    LevelBytes,
    /// A value log is mostly garbage.
    VlogGarbage,
    /// Requested by the user.
    Manual,
    /// A range tombstone hides the tables entirely: they are dropped without being read.
    RangeDeleted,
    /// Overwritten entries take up too much space.
    OverwrittenEntries,
    /// A table consists mostly of tombstones.
    Tombstones,
    /// Scans skip many tombstones.
    SkippedTombstones,
    /// Adjacent small tables are merged into one.
    SmallTables,
    /// Many entries of a table have expired.
    ExpiredEntries,
}

impl CompactionReason {
    /// Returns true if such a plan is one step of a level merge that proceeds in key order.
    pub fn is_level_merge(self) -> bool {
        matches!(
            self,
            CompactionReason::Level0Runs
                | CompactionReason::LevelBytes
                | CompactionReason::OverwrittenEntries
        )
    }
    /// Returns the reason in words.
    pub fn name(self) -> &'static str {
        match self {
            CompactionReason::Level0Runs => "level 0 runs",
            CompactionReason::LevelBytes => "level bytes",
            CompactionReason::VlogGarbage => "value-log garbage",
            CompactionReason::Manual => "manual",
            CompactionReason::RangeDeleted => "deleted ranges",
            CompactionReason::OverwrittenEntries => "overwritten entries",
            CompactionReason::Tombstones => "tombstones",
            CompactionReason::SkippedTombstones => "skipped tombstones",
            CompactionReason::SmallTables => "small tables",
            CompactionReason::ExpiredEntries => "expired entries",
        }
    }
}

/// A compaction plan, as plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionPlan {
    /// Reason for the compaction.
    pub reason: CompactionReason,
    /// Tables to merge, with their levels.
    pub inputs: Vec<(LevelNo, FileId)>,
    /// Level of the outputs.
    pub target_level: LevelNo,
    /// True to move the inputs without a rewrite: nothing on the way down overlaps them.
    pub trivial_move: bool,
    /// Value logs whose values are moved to new files.
    pub relocate_vlogs: BTreeSet<FileId>,
    /// Boundaries, ascending, at which output tables end if they are large enough: those of a
    /// deeper level's tables.
    pub cuts: Vec<KeyBoundary>,
    /// Target size of output tables in bytes; `None` for the column family's.
    pub table_bytes: Option<u64>,
}

impl CompactionPlan {
    /// Creates a plan that merges these tables into level `target_level`.
    pub fn merge(
        reason: CompactionReason,
        inputs: Vec<(LevelNo, FileId)>,
        target_level: LevelNo,
    ) -> CompactionPlan {
        check!(
            inputs.iter().all(|(level, _)| *level <= target_level),
            "a plan merges tables into their level or a deeper one",
            reason,
            target_level
        );
        let (cuts, relocate_vlogs) = (Vec::new(), BTreeSet::new());
        CompactionPlan {
            reason,
            inputs,
            target_level,
            trivial_move: false,
            relocate_vlogs,
            cuts,
            table_bytes: None,
        }
    }
}
