//! A tree without values: the pickers' plans carried out on lists of keys, to see what they cost.
//! Pure.
//!
//! Every key of a table is really there, so overwritten keys and spent tombstones leave exactly as
//! they would; bytes are counted as `entry_bytes` for each entry (an eighth for a tombstone).
//! Reader and writers are left out: no snapshots.

use super::pick::spooky::{boundaries, pick_parallel};
use super::pick::{PickerOptions, PickerProgress, leveled, pick};
use super::plan::{CompactionPlan, TableShape, TreeShape};
use crate::rewrite::split::TableSplitter;
use perigee_base::key_boundary::{KeyBoundary, KeyBoundaryRef};
use perigee_base::{FileId, KeyComparator, LevelNo, RunId, limits};
use std::collections::{BTreeMap, HashSet};

/// Which picker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickerKind {
    /// What the engine uses.
    Spooky,
    /// Level by level, table by table, capacities fixed.
    Leveled,
}

/// An entry: key, age (larger is newer), and whether it is a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelEntry {
    /// The key; keys are ordered as numbers.
    pub key: u32,
    /// When it was written.
    pub seq: u32,
    /// A tombstone.
    pub is_tombstone: bool,
}

/// What was done so far, in bytes, and the worst moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SimulationTotals {
    /// Entries that users wrote.
    pub user_bytes: u64,
    /// Tables that flushes wrote.
    pub flushed_bytes: u64,
    /// Tables that compactions wrote.
    pub compacted_bytes: u64,
    /// Tables moved as they are.
    pub moved_bytes: u64,
    /// Compactions, moves left out.
    pub merges: u64,
    /// Largest of them: what it read.
    pub largest_merge_bytes: u64,
    /// Most bytes of tables at any moment, outputs beside their inputs included.
    pub peak_bytes: u64,
}

/// The modelled tree.
#[derive(Debug)]
pub struct LsmModel {
    picker: PickerKind,
    limits: PickerOptions,
    entry_bytes: u64,
    shape: TreeShape,
    progress: PickerProgress,
    tables: BTreeMap<FileId, Vec<ModelEntry>>,
    next_id: u64,
    /// So far.
    pub totals: SimulationTotals,
}

fn key(k: u32) -> [u8; 4] {
    k.to_be_bytes()
}

impl LsmModel {
    /// An empty tree.
    pub fn new(picker: PickerKind, limits: PickerOptions, entry_bytes: u64) -> LsmModel {
        let shape = TreeShape { levels: vec![Vec::new(); limits::LEVELS], ..TreeShape::default() };
        let (progress, tables) = (PickerProgress::default(), BTreeMap::new());
        LsmModel {
            picker,
            limits,
            entry_bytes: entry_bytes.max(8),
            shape,
            progress,
            tables,
            next_id: 1,
            totals: SimulationTotals::default(),
        }
    }

    fn entry_bytes_sum(&self, marks: &[ModelEntry]) -> u64 {
        marks
            .iter()
            .map(|m| if m.is_tombstone { self.entry_bytes / 8 } else { self.entry_bytes })
            .sum()
    }
    /// Its shape.
    pub fn shape(&self) -> &TreeShape {
        &self.shape
    }
    /// Bytes of all tables.
    pub fn stored_bytes(&self) -> u64 {
        (0..limits::LEVELS).map(|i| self.shape.bytes(i)).sum()
    }
    /// Runs that a seek must look into.
    pub fn run_count(&self) -> usize {
        self.shape.levels.iter().map(Vec::len).sum()
    }
    /// Bytes of the entries that a reader sees, and how many different keys the tables hold.
    pub fn live_bytes_and_keys(&self) -> (u64, u64) {
        let mut all: Vec<ModelEntry> = self.tables.values().flatten().copied().collect();
        keep_newest(&mut all);
        (self.entry_bytes * all.iter().filter(|m| !m.is_tombstone).count() as u64, all.len() as u64)
    }

    /// A memtable becomes a run of level 0.
    pub fn flush(&mut self, mut marks: Vec<ModelEntry>) {
        self.totals.user_bytes += self.entry_bytes_sum(&marks);
        keep_newest(&mut marks);
        let run = RunId(self.next_id);
        let (all, table_bytes) =
            ((KeyBoundaryRef::First, KeyBoundaryRef::Last), self.limits.table_bytes);
        let cuts = match self.picker {
            PickerKind::Spooky => {
                boundaries(&self.shape, all, self.entry_bytes_sum(&marks), table_bytes)
            }
            PickerKind::Leveled => Vec::new(),
        };
        let made = self.cut_tables(&marks, run, self.limits.table_bytes, cuts);
        self.totals.flushed_bytes += made.iter().map(|t| t.bytes).sum::<u64>();
        self.shape.levels[0].insert(0, made);
        self.totals.peak_bytes = self.totals.peak_bytes.max(self.stored_bytes());
        self.shape.distinct_keys = None;
    }

    fn cut_tables(
        &mut self,
        marks: &[ModelEntry],
        run: RunId,
        target: u64,
        cuts: Vec<KeyBoundary>,
    ) -> Vec<TableShape> {
        let mut split = TableSplitter::new(KeyComparator::Bytes, target, cuts);
        let (mut made, mut from, mut bytes) = (Vec::new(), 0, 0);
        for (i, m) in marks.iter().enumerate() {
            if i > from && split.cut_before(&key(m.key), true, bytes, 0).is_some() {
                made.push(self.add_table(&marks[from..i], run));
                (from, bytes) = (i, 0);
            }
            bytes += if m.is_tombstone { self.entry_bytes / 8 } else { self.entry_bytes };
        }
        if let rest @ [_, ..] = &marks[from..] {
            made.push(self.add_table(rest, run));
        }
        made
    }

    fn add_table(&mut self, marks: &[ModelEntry], run: RunId) -> TableShape {
        let id = FileId(self.next_id);
        self.next_id += 1;
        let place = |m: Option<&ModelEntry>| key(m.map_or(0, |m| m.key)).to_vec();
        let (first, last) =
            (KeyBoundary::Before(place(marks.first())), KeyBoundary::After(place(marks.last())));
        let shape = TableShape {
            run,
            entries: marks.len() as u64,
            tombstones: marks.iter().filter(|m| m.is_tombstone).count() as u64,
            ..TableShape::new(id, first, last, self.entry_bytes_sum(marks))
        };
        self.tables.insert(id, marks.to_vec());
        shape
    }

    /// Does the most urgent plan; what it wrote, or `None` if nothing is due.
    pub fn compact(&mut self) -> Option<u64> {
        self.compact_parallel(0)
    }

    /// The same, and so many plans at most that the picker says can be carried out beside it.
    pub fn compact_parallel(&mut self, most: usize) -> Option<u64> {
        if self.shape.distinct_keys.is_none() {
            self.shape.distinct_keys = Some(self.live_bytes_and_keys().1);
        }
        let mut plans = Vec::new();
        match self.picker {
            PickerKind::Leveled => plans.push(leveled::pick(&self.shape, &self.limits)?),
            PickerKind::Spooky => {
                let (plan, progress) = pick(&self.shape, &self.limits, &self.progress)?;
                self.progress = progress;
                plans.push(plan);
            }
        }
        while plans.len() <= most && plans[0].reason.is_level_merge() {
            let Some((plan, progress)) = pick_parallel(&self.shape, &self.limits, &self.progress)
            else {
                break;
            };
            self.progress = progress;
            plans.push(plan);
        }
        Some(plans.iter().map(|plan| self.apply_plan(plan)).sum())
    }

    fn apply_plan(&mut self, plan: &CompactionPlan) -> u64 {
        let named: HashSet<(LevelNo, FileId)> = plan.inputs.iter().copied().collect();
        let mut taken = Vec::new();
        for (level, runs) in self.shape.levels.iter_mut().enumerate() {
            let level = LevelNo(level as u8);
            for run in runs.iter_mut() {
                let (mine, rest): (Vec<_>, Vec<_>) =
                    run.drain(..).partition(|t| named.contains(&(level, t.id)));
                taken.extend(mine);
                *run = rest;
            }
            runs.retain(|r| !r.is_empty());
        }
        assert_eq!(taken.len(), plan.inputs.len(), "a plan names tables that exist: {plan:?}");
        let read: u64 = taken.iter().map(|t| t.bytes).sum();
        let mut written = 0;
        if plan.trivial_move {
            self.totals.moved_bytes += read;
        } else {
            let mut marks = Vec::new();
            for t in &taken {
                marks.extend(self.tables.remove(&t.id).unwrap_or_default());
            }
            keep_newest(&mut marks);
            if self.is_bottommost(plan, &taken) {
                marks.retain(|m| !m.is_tombstone);
            }
            let target = plan.table_bytes.unwrap_or(self.limits.table_bytes);
            taken = self.cut_tables(&marks, RunId(0), target, plan.cuts.clone());
            written = taken.iter().map(|t| t.bytes).sum();
            self.totals.merges += 1;
            self.totals.largest_merge_bytes = self.totals.largest_merge_bytes.max(read);
            self.totals.peak_bytes =
                self.totals.peak_bytes.max(self.stored_bytes() + read + written);
            self.shape.distinct_keys = None;
        }
        self.totals.compacted_bytes += written;
        self.place_tables(usize::from(plan.target_level.0), taken);
        written
    }

    fn place_tables(&mut self, level: usize, tables: Vec<TableShape>) {
        let runs = &mut self.shape.levels[level];
        if runs.is_empty() {
            runs.push(Vec::new());
        }
        let run = &mut runs[0];
        run.extend(tables);
        run.sort_by(|a, b| a.first.as_ref().cmp(KeyComparator::Bytes, b.first.as_ref()));
        for pair in run.windows(2) {
            let apart = pair[0].last.as_ref().cmp(KeyComparator::Bytes, pair[1].first.as_ref());
            assert_ne!(
                apart,
                std::cmp::Ordering::Greater,
                "tables of a run share no key: level {level}"
            );
        }
        runs.retain(|r| !r.is_empty());
    }

    fn is_bottommost(&self, plan: &CompactionPlan, taken: &[TableShape]) -> bool {
        let ends = |t: &TableShape| (t.first.clone(), t.last.clone());
        let within: Vec<_> = taken.iter().map(ends).collect();
        let deeper =
            (usize::from(plan.target_level.0)..limits::LEVELS).flat_map(|i| self.shape.tables(i));
        !deeper.into_iter().any(|t| {
            let own = (t.first.as_ref(), t.last.as_ref());
            within.iter().any(|(a, b)| {
                KeyBoundaryRef::ranges_overlap(KeyComparator::Bytes, own, (a.as_ref(), b.as_ref()))
            })
        })
    }

    /// Whether of each key the newest version is the first one that a read meets: the order of
    /// levels and runs is right.
    pub fn is_ordered(&self) -> bool {
        let mut newest_met: BTreeMap<u32, u32> = BTreeMap::new();
        for t in self.shape.levels.iter().flatten().flatten() {
            for m in &self.tables[&t.id] {
                if *newest_met.entry(m.key).or_insert(m.seq) < m.seq {
                    return false;
                }
            }
        }
        true
    }
    /// What a reader finds: live keys and when they were written.
    pub fn contents(&self) -> BTreeMap<u32, u32> {
        let mut all: Vec<ModelEntry> = self.tables.values().flatten().copied().collect();
        keep_newest(&mut all);
        all.into_iter().filter(|m| !m.is_tombstone).map(|m| (m.key, m.seq)).collect()
    }
}

/// In key order, of each key the newest.
fn keep_newest(marks: &mut Vec<ModelEntry>) {
    marks.sort_by_key(|m| (m.key, std::cmp::Reverse(m.seq)));
    marks.dedup_by_key(|m| m.key);
}
