//! A model of a tree without values: executes the pickers' plans on lists of keys to measure their
//! cost. Pure.
//!
//! Every key of a table is kept, so overwritten keys and dropped tombstones disappear exactly as in
//! a real tree; an entry counts as `entry_bytes` bytes, a tombstone as an eighth of that. Readers
//! are not modelled: there are no snapshots.

use crate::leveled;
use perigee_base::{
    Bytes, FileId, KeyBoundary, KeyBoundaryRef, KeyComparator, LevelNo, RunId, limits,
};
use perigee_tree::compact::{
    CompactionPlan, PickerOptions, PickerProgress, TableShape, TreeShape, boundaries, pick,
    pick_parallel,
};
use perigee_tree::rewrite::TableSplitter;
use std::collections::{BTreeMap, HashSet};

/// Compaction picker to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickerKind {
    /// The picker that the engine uses.
    Spooky,
    /// Leveled: one table at a time, fixed level capacities.
    Leveled,
}

/// An entry: its key, its age (larger is newer), and whether it is a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelEntry {
    /// Key; keys are ordered as numbers.
    pub key: u32,
    /// Sequence number of the write.
    pub seq: u32,
    /// True for a tombstone.
    pub is_tombstone: bool,
}

/// Bytes written so far, and the peak disk usage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SimulationTotals {
    /// Bytes of entries written by users.
    pub user_bytes: u64,
    /// Bytes of tables written by flushes.
    pub flushed_bytes: u64,
    /// Bytes of tables written by compactions.
    pub compacted_bytes: u64,
    /// Bytes of tables moved without a rewrite.
    pub moved_bytes: u64,
    /// Number of compactions, moves excluded.
    pub merges: u64,
    /// Input bytes of the largest compaction.
    pub largest_merge_bytes: u64,
    /// Peak bytes of all tables, counting both the inputs and the outputs of a compaction.
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
    /// Totals so far.
    pub totals: SimulationTotals,
}

fn key(k: u32) -> [u8; 4] {
    k.to_be_bytes()
}

impl LsmModel {
    /// Creates an empty tree.
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

    fn entry_bytes_sum(&self, entries: &[ModelEntry]) -> u64 {
        entries
            .iter()
            .map(|m| if m.is_tombstone { self.entry_bytes / 8 } else { self.entry_bytes })
            .sum()
    }
    /// Returns the tree's shape.
    pub fn shape(&self) -> &TreeShape {
        &self.shape
    }
    /// Bytes of all tables.
    pub fn stored_bytes(&self) -> u64 {
        (0..limits::LEVELS).map(|i| self.shape.bytes(i)).sum()
    }
    /// Number of runs that a seek must read.
    pub fn run_count(&self) -> usize {
        self.shape.levels.iter().map(Vec::len).sum()
    }
    /// Returns the bytes of the entries visible to a reader, and the number of distinct keys in the
    /// tables.
    pub fn live_bytes_and_keys(&self) -> (u64, u64) {
        let mut all: Vec<ModelEntry> = self.tables.values().flatten().copied().collect();
        keep_newest(&mut all);
        (self.entry_bytes * all.iter().filter(|m| !m.is_tombstone).count() as u64, all.len() as u64)
    }

    /// Writes a memtable as a run of level 0.
    pub fn flush(&mut self, mut entries: Vec<ModelEntry>) {
        self.totals.user_bytes += self.entry_bytes_sum(&entries);
        keep_newest(&mut entries);
        let run = RunId(self.next_id);
        let (all, table_bytes) =
            (KeyBoundaryRef::First..KeyBoundaryRef::Last, self.limits.table_bytes);
        let cuts = match self.picker {
            PickerKind::Spooky => {
                let bytes = Bytes(self.entry_bytes_sum(&entries));
                boundaries(&self.shape, all, bytes, table_bytes)
            }
            PickerKind::Leveled => Vec::new(),
        };
        let made = self.cut_tables(&entries, run, self.limits.table_bytes, cuts);
        self.totals.flushed_bytes += made.iter().map(|t| t.bytes).sum::<u64>();
        self.shape.levels[0].insert(0, made);
        self.totals.peak_bytes = self.totals.peak_bytes.max(self.stored_bytes());
        self.shape.distinct_keys = None;
    }

    fn cut_tables(
        &mut self,
        entries: &[ModelEntry],
        run: RunId,
        target: u64,
        cuts: Vec<KeyBoundary>,
    ) -> Vec<TableShape> {
        let mut split = TableSplitter::new(KeyComparator::Bytes, target, cuts);
        let (mut made, mut from, mut bytes) = (Vec::new(), 0, 0);
        for (i, m) in entries.iter().enumerate() {
            if i > from && split.cut_before(&key(m.key), true, bytes, 0).is_some() {
                made.push(self.add_table(&entries[from..i], run));
                (from, bytes) = (i, 0);
            }
            bytes += if m.is_tombstone { self.entry_bytes / 8 } else { self.entry_bytes };
        }
        if let rest @ [_, ..] = &entries[from..] {
            made.push(self.add_table(rest, run));
        }
        made
    }

    fn add_table(&mut self, entries: &[ModelEntry], run: RunId) -> TableShape {
        let id = FileId(self.next_id);
        self.next_id += 1;
        let key_of = |m: Option<&ModelEntry>| key(m.map_or(0, |m| m.key)).to_vec();
        let (first, last) = (
            KeyBoundary::Before(key_of(entries.first())),
            KeyBoundary::After(key_of(entries.last())),
        );
        let shape = TableShape {
            run,
            entries: entries.len() as u64,
            tombstones: entries.iter().filter(|m| m.is_tombstone).count() as u64,
            ..TableShape::new(id, first, last, self.entry_bytes_sum(entries))
        };
        self.tables.insert(id, entries.to_vec());
        shape
    }

    /// Executes the most urgent plan. Returns the bytes written, or `None` if no compaction is due.
    pub fn compact(&mut self) -> Option<u64> {
        self.compact_parallel(0)
    }

    /// Like [`LsmModel::compact`], with up to `parallel_max` further plans that the picker allows
    /// in parallel.
    pub fn compact_parallel(&mut self, parallel_max: usize) -> Option<u64> {
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
        while plans.len() <= parallel_max && plans[0].reason.is_level_merge() {
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
                let (inputs_of_run, rest): (Vec<_>, Vec<_>) =
                    run.drain(..).partition(|t| named.contains(&(level, t.id)));
                taken.extend(inputs_of_run);
                *run = rest;
            }
            runs.retain(|r| !r.is_empty());
        }
        assert_eq!(
            taken.len(),
            plan.inputs.len(),
            "the plan names a table that does not exist: {plan:?}"
        );
        let read: u64 = taken.iter().map(|t| t.bytes).sum();
        let mut written = 0;
        if plan.trivial_move {
            self.totals.moved_bytes += read;
        } else {
            let mut entries = Vec::new();
            for t in &taken {
                entries.extend(self.tables.remove(&t.id).unwrap_or_default());
            }
            keep_newest(&mut entries);
            if self.is_bottommost(plan, &taken) {
                entries.retain(|m| !m.is_tombstone);
            }
            let target = plan.table_bytes.unwrap_or(self.limits.table_bytes);
            taken = self.cut_tables(&entries, RunId(0), target, plan.cuts.clone());
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
            let gap = pair[0].last.as_ref().cmp(KeyComparator::Bytes, pair[1].first.as_ref());
            assert_ne!(gap, std::cmp::Ordering::Greater, "tables of a run overlap: level {level}");
        }
        runs.retain(|r| !r.is_empty());
    }

    fn is_bottommost(&self, plan: &CompactionPlan, taken: &[TableShape]) -> bool {
        let ends = |t: &TableShape| (t.first.clone(), t.last.clone());
        let within: Vec<_> = taken.iter().map(ends).collect();
        let deeper =
            (usize::from(plan.target_level.0)..limits::LEVELS).flat_map(|i| self.shape.tables(i));
        !deeper.into_iter().any(|t| {
            let bounds = (t.first.as_ref(), t.last.as_ref());
            within.iter().any(|(a, b)| {
                KeyBoundaryRef::ranges_overlap(
                    KeyComparator::Bytes,
                    bounds,
                    (a.as_ref(), b.as_ref()),
                )
            })
        })
    }

    /// Returns true if a read meets the newest version of every key first, so that the order of
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
    /// Returns what a reader sees: live keys and their sequence numbers.
    pub fn contents(&self) -> BTreeMap<u32, u32> {
        let mut all: Vec<ModelEntry> = self.tables.values().flatten().copied().collect();
        keep_newest(&mut all);
        all.into_iter().filter(|m| !m.is_tombstone).map(|m| (m.key, m.seq)).collect()
    }
}

/// Sorts by key and keeps the newest entry of each key.
fn keep_newest(entries: &mut Vec<ModelEntry>) {
    entries.sort_by_key(|m| (m.key, std::cmp::Reverse(m.seq)));
    entries.dedup_by_key(|m| m.key);
}
