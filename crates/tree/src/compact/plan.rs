//! What a picker sees, and what it proposes. Plain data.

use crate::version::Version;
use perigee_base::cut::Cut;
use perigee_base::{FileId, KeyOrder, LevelNo, RunId, SeqNo};
use perigee_file::{Expiries, Fragments};
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
    pub passed: u64,
    /// The place before everything in it, range tombstones included.
    pub first: Cut,
    /// The place behind everything in it.
    pub last: Cut,
    /// Its oldest operation.
    pub smallest: SeqNo,
    /// Its newest operation.
    pub largest: SeqNo,
    /// Its range tombstones, if it has any.
    pub ranges: Option<Arc<Fragments>>,
    /// When its entries expire, if any do.
    pub expiries: Option<Arc<Expiries>>,
    /// Value logs that it references.
    pub vlogs: Vec<FileId>,
}

impl TableShape {
    /// A table without entries to speak of, for models and tests.
    pub fn new(id: FileId, first: Cut, last: Cut, bytes: u64) -> TableShape {
        TableShape {
            id,
            bytes,
            run: RunId(0),
            entries: 0,
            tombstones: 0,
            passed: 0,
            first,
            last,
            smallest: SeqNo(1),
            largest: SeqNo(1),
            ranges: None,
            expiries: None,
            vlogs: Vec::new(),
        }
    }
}

/// A version as a picker sees it: levels of runs (newest first) of tables (in key order), and value logs.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// The order of keys.
    pub order: KeyOrder,
    /// Levels, runs, tables.
    pub levels: Vec<Vec<Vec<TableShape>>>,
    /// Bytes of each value log, and how many of them are referenced.
    pub vlogs: BTreeMap<FileId, (u64, u64)>,
    /// About how many different keys the tables hold together, if that was counted.
    pub distinct: Option<u64>,
}

impl Shape {
    /// The shape of a version.
    pub fn of(version: &Version) -> Shape {
        let refs = version.vlog_references();
        let table = |run: RunId, t: &Arc<crate::Table>| TableShape {
            id: t.meta.id,
            bytes: t.meta.summary.bytes,
            run,
            entries: t.meta.summary.entries,
            tombstones: t.meta.summary.tombstones,
            passed: t.reader.passed(),
            first: t.meta.summary.begin(version.order).to_cut(),
            last: t.meta.summary.end(version.order).to_cut(),
            smallest: t.meta.seqs().0,
            largest: t.meta.seqs().1,
            ranges: Some(t.reader.ranges()).filter(|r| !r.is_empty()).cloned(),
            expiries: Some(t.reader.expiries()).filter(|e| !e.is_empty()).cloned(),
            vlogs: t.meta.summary.vlogs.iter().map(|(id, _)| *id).collect(),
        };
        Shape {
            order: version.order,
            levels: version
                .levels
                .iter()
                .map(|runs| runs.iter().map(|r| r.tables.iter().map(|t| table(r.id, t)).collect()).collect())
                .collect(),
            vlogs: version
                .vlogs
                .values()
                .map(|v| (v.meta.id, (v.meta.bytes, refs.get(&v.meta.id).copied().unwrap_or(0))))
                .collect(),
            distinct: None,
        }
    }
    /// With the number of different keys of its version, if merges depend on it.
    #[must_use]
    pub fn counted(self, version: &Version) -> Shape {
        Shape { distinct: Some(version.distinct()), ..self }
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
pub enum Reason {
    /// Level 0 holds too many runs.
    Level0Runs,
    /// A level is larger than its capacity.
    LevelBytes,
    /// A value log is mostly garbage.
    Garbage,
    /// Somebody asked.
    Manual,
    /// A range tombstone hides the tables as a whole: they are dropped unread.
    Covered,
    /// Overwritten entries take up too much space.
    Space,
    /// A table is mostly tombstones.
    Tombstones,
    /// Scans pass many tombstones.
    Scans,
    /// Small tables beside each other become one.
    Small,
    /// Many entries of a table have expired.
    Expired,
}

impl Reason {
    /// Whether such a plan is a step of a merge that goes on in key order.
    pub fn is_step(self) -> bool {
        matches!(self, Reason::Level0Runs | Reason::LevelBytes | Reason::Space)
    }
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Level0Runs => "level 0 runs",
            Reason::LevelBytes => "level bytes",
            Reason::Garbage => "value-log garbage",
            Reason::Manual => "manual",
            Reason::Covered => "deleted ranges",
            Reason::Space => "overwritten entries",
            Reason::Tombstones => "tombstones",
            Reason::Scans => "tombstones in the way of scans",
            Reason::Small => "small tables",
            Reason::Expired => "expired entries",
        }
    }
}

/// A compaction, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Why.
    pub reason: Reason,
    /// The tables to merge.
    pub inputs: Vec<(LevelNo, FileId)>,
    /// The level that the result goes to.
    pub to: LevelNo,
    /// Move the inputs as they are: nothing on the way down overlaps them.
    pub trivial: bool,
    /// Value logs whose values move.
    pub relocate: BTreeSet<FileId>,
    /// Places, ascending, at which tables end if they are large enough: the boundaries of a deeper level.
    pub cuts: Vec<Cut>,
    /// Bytes at which tables end anywhere; `None`: the family's.
    pub table_bytes: Option<u64>,
}

impl Plan {
    /// A merge of these tables.
    pub fn merge(reason: Reason, inputs: Vec<(LevelNo, FileId)>, to: LevelNo) -> Plan {
        let (cuts, relocate) = (Vec::new(), BTreeSet::new());
        Plan { reason, inputs, to, trivial: false, relocate, cuts, table_bytes: None }
    }
}
