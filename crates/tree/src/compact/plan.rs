//! What a picker sees, and what it proposes. Plain data.

use crate::version::Version;
use perigee_base::key_boundary::KeyBoundary;
use perigee_base::{FileId, KeyComparator, LevelNo, RunId, SeqNo};
use perigee_file::{ExpiryHistogram, RangeTombstones};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A table as a picker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableShape {
    /// Its id.
    pub id: FileId,
    /// Its bytes.
    pub bytes: u64,
    /// Its run; larger is newer (level 0 only).
    pub run: RunId,
    /// Its entries, and how many of them are tombstones.
    pub entries: u64,
    /// See [`TableShape::entries`].
    pub tombstones: u64,
    /// How many of them scans have passed, each as often as it was.
    pub skipped_tombstones: u64,
    /// The place before everything in it, range tombstones included.
    pub first: KeyBoundary,
    /// The place behind everything in it.
    pub last: KeyBoundary,
    /// Its oldest operation.
    pub smallest_seq: SeqNo,
    /// Its newest operation.
    pub largest_seq: SeqNo,
    /// Its range tombstones, if it has any.
    pub range_tombstones: Option<Arc<RangeTombstones>>,
    /// When its entries expire, if any do.
    pub expiries: Option<Arc<ExpiryHistogram>>,
    /// Value logs that it references.
    pub vlogs: Vec<FileId>,
}

impl TableShape {
    /// A table without entries to speak of, for models and tests.
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
        }
    }
}

/// A version as a picker sees it: levels of runs (newest first) of tables (in key order), and value
/// logs.
#[derive(Clone, Debug, Default)]
pub struct TreeShape {
    /// The order of keys.
    pub comparator: KeyComparator,
    /// Levels, runs, tables.
    pub levels: Vec<Vec<Vec<TableShape>>>,
    /// Bytes of each value log, and how many of them are referenced.
    pub vlogs: BTreeMap<FileId, (u64, u64)>,
    /// About how many different keys the tables hold together, if that was counted.
    pub distinct_keys: Option<u64>,
}

impl TreeShape {
    /// The shape of a version.
    pub fn from_version(version: &Version) -> TreeShape {
        let refs = version.vlog_referenced_bytes();
        let table = |run: RunId, t: &Arc<crate::Table>| TableShape {
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
            range_tombstones: Some(t.reader.range_tombstones()).filter(|r| !r.is_empty()).cloned(),
            expiries: Some(t.reader.expiry_histogram()).filter(|e| !e.is_empty()).cloned(),
            vlogs: t.meta.summary.vlogs.iter().map(|(id, _)| *id).collect(),
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
                .map(|v| (v.meta.id, (v.meta.bytes, refs.get(&v.meta.id).copied().unwrap_or(0))))
                .collect(),
            distinct_keys: None,
        }
    }
    /// With the number of different keys of its version, if merges depend on it.
    #[must_use]
    pub fn with_distinct_keys(self, version: &Version) -> TreeShape {
        TreeShape { distinct_keys: Some(version.distinct_keys()), ..self }
    }
    /// Bytes of a level.
    pub fn bytes(&self, level: usize) -> u64 {
        self.tables(level).map(|t| t.bytes).sum()
    }
    /// Tables of a level.
    pub fn tables(&self, level: usize) -> impl Iterator<Item = &TableShape> {
        self.levels.get(level).into_iter().flatten().flatten()
    }
}

/// Why a plan was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionReason {
    /// Level 0 holds too many runs.
    Level0Runs,
    /// A level is larger than its capacity.
    LevelBytes,
    /// A value log is mostly garbage.
    VlogGarbage,
    /// Somebody asked.
    Manual,
    /// A range tombstone hides the tables as a whole: they are dropped unread.
    RangeDeleted,
    /// Overwritten entries take up too much space.
    OverwrittenEntries,
    /// A table is mostly tombstones.
    Tombstones,
    /// Scans pass many tombstones.
    SkippedTombstones,
    /// Small tables beside each other become one.
    SmallTables,
    /// Many entries of a table have expired.
    ExpiredEntries,
}

impl CompactionReason {
    /// Whether such a plan is a step of a merge that goes on in key order.
    pub fn is_level_merge(self) -> bool {
        matches!(
            self,
            CompactionReason::Level0Runs
                | CompactionReason::LevelBytes
                | CompactionReason::OverwrittenEntries
        )
    }
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            CompactionReason::Level0Runs => "level 0 runs",
            CompactionReason::LevelBytes => "level bytes",
            CompactionReason::VlogGarbage => "value-log garbage",
            CompactionReason::Manual => "manual",
            CompactionReason::RangeDeleted => "deleted ranges",
            CompactionReason::OverwrittenEntries => "overwritten entries",
            CompactionReason::Tombstones => "tombstones",
            CompactionReason::SkippedTombstones => "tombstones in the way of scans",
            CompactionReason::SmallTables => "small tables",
            CompactionReason::ExpiredEntries => "expired entries",
        }
    }
}

/// A compaction, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionPlan {
    /// Why.
    pub reason: CompactionReason,
    /// The tables to merge.
    pub inputs: Vec<(LevelNo, FileId)>,
    /// The level that the result goes to.
    pub target_level: LevelNo,
    /// Move the inputs as they are: nothing on the way down overlaps them.
    pub trivial_move: bool,
    /// Value logs whose values move.
    pub relocate_vlogs: BTreeSet<FileId>,
    /// Places, ascending, at which tables end if they are large enough: the boundaries of a deeper
    /// level.
    pub cuts: Vec<KeyBoundary>,
    /// Bytes at which tables end anywhere; `None`: the family's.
    pub table_bytes: Option<u64>,
}

impl CompactionPlan {
    /// A merge of these tables.
    pub fn merge(
        reason: CompactionReason,
        inputs: Vec<(LevelNo, FileId)>,
        to: LevelNo,
    ) -> CompactionPlan {
        let (cuts, relocate) = (Vec::new(), BTreeSet::new());
        CompactionPlan {
            reason,
            inputs,
            target_level: to,
            trivial_move: false,
            relocate_vlogs: relocate,
            cuts,
            table_bytes: None,
        }
    }
}
