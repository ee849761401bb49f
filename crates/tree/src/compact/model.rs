//! A tree without values: the pickers' plans carried out on lists of keys, to see what they cost. Pure.
//!
//! Every key of a table is really there, so overwritten keys and spent tombstones leave exactly as they would; bytes
//! are counted as `entry_bytes` for each entry (an eighth for a tombstone). Reader and writers are left out: no snapshots.

use super::pick::spooky::{beside, boundaries};
use super::pick::{Limits, Progress, leveled, pick};
use super::plan::{Plan, Shape, TableShape};
use crate::rewrite::split::Split;
use perigee_base::cut::{Cut, CutRef};
use perigee_base::{FileId, KeyOrder, LevelNo, RunId, limits};
use std::collections::{BTreeMap, HashSet};

/// Which picker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picker {
    /// What the engine uses.
    Spooky,
    /// Level by level, table by table, capacities fixed.
    Leveled,
}

/// An entry: key, age (larger is newer), and whether it is a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The key; keys are ordered as numbers.
    pub key: u32,
    /// When it was written.
    pub seq: u32,
    /// A tombstone.
    pub gone: bool,
}

/// What was done so far, in bytes, and the worst moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Entries that users wrote.
    pub user: u64,
    /// Tables that flushes wrote.
    pub flushed: u64,
    /// Tables that compactions wrote.
    pub compacted: u64,
    /// Tables moved as they are.
    pub moved: u64,
    /// Compactions, moves left out.
    pub merges: u64,
    /// Largest of them: what it read.
    pub largest: u64,
    /// Most bytes of tables at any moment, outputs beside their inputs included.
    pub peak: u64,
}

/// The modelled tree.
#[derive(Debug)]
pub struct Model {
    picker: Picker,
    limits: Limits,
    entry_bytes: u64,
    shape: Shape,
    progress: Progress,
    tables: BTreeMap<FileId, Vec<Mark>>,
    next: u64,
    /// So far.
    pub totals: Totals,
}

fn key(k: u32) -> [u8; 4] {
    k.to_be_bytes()
}

impl Model {
    /// An empty tree.
    pub fn new(picker: Picker, limits: Limits, entry_bytes: u64) -> Model {
        let shape = Shape { levels: vec![Vec::new(); limits::LEVELS], ..Shape::default() };
        let (progress, tables) = (Progress::default(), BTreeMap::new());
        Model {
            picker,
            limits,
            entry_bytes: entry_bytes.max(8),
            shape,
            progress,
            tables,
            next: 1,
            totals: Totals::default(),
        }
    }

    fn bytes(&self, marks: &[Mark]) -> u64 {
        marks.iter().map(|m| if m.gone { self.entry_bytes / 8 } else { self.entry_bytes }).sum()
    }
    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }
    /// Bytes of all tables.
    pub fn stored(&self) -> u64 {
        (0..limits::LEVELS).map(|i| self.shape.bytes(i)).sum()
    }
    /// Runs that a seek must look into.
    pub fn runs(&self) -> usize {
        self.shape.levels.iter().map(Vec::len).sum()
    }
    /// Bytes of the entries that a reader sees, and how many different keys the tables hold.
    pub fn live(&self) -> (u64, u64) {
        let mut all: Vec<Mark> = self.tables.values().flatten().copied().collect();
        newest(&mut all);
        (self.entry_bytes * all.iter().filter(|m| !m.gone).count() as u64, all.len() as u64)
    }

    /// A memtable becomes a run of level 0.
    pub fn flush(&mut self, mut marks: Vec<Mark>) {
        self.totals.user += self.bytes(&marks);
        newest(&mut marks);
        let run = RunId(self.next);
        let (all, table_bytes) = ((CutRef::First, CutRef::Last), self.limits.table_bytes);
        let cuts = match self.picker {
            Picker::Spooky => boundaries(&self.shape, all, self.bytes(&marks), table_bytes),
            Picker::Leveled => Vec::new(),
        };
        let made = self.cut(&marks, run, self.limits.table_bytes, cuts);
        self.totals.flushed += made.iter().map(|t| t.bytes).sum::<u64>();
        self.shape.levels[0].insert(0, made);
        self.totals.peak = self.totals.peak.max(self.stored());
        self.shape.distinct = None;
    }

    fn cut(&mut self, marks: &[Mark], run: RunId, target: u64, cuts: Vec<Cut>) -> Vec<TableShape> {
        let mut split = Split::new(KeyOrder::Bytes, target, cuts);
        let (mut made, mut from, mut bytes) = (Vec::new(), 0, 0);
        for (i, m) in marks.iter().enumerate() {
            if i > from && split.cut(&key(m.key), true, bytes, 0).is_some() {
                made.push(self.table(&marks[from..i], run));
                (from, bytes) = (i, 0);
            }
            bytes += if m.gone { self.entry_bytes / 8 } else { self.entry_bytes };
        }
        if let rest @ [_, ..] = &marks[from..] {
            made.push(self.table(rest, run));
        }
        made
    }

    fn table(&mut self, marks: &[Mark], run: RunId) -> TableShape {
        let id = FileId(self.next);
        self.next += 1;
        let place = |m: Option<&Mark>| key(m.map_or(0, |m| m.key)).to_vec();
        let (first, last) = (Cut::Before(place(marks.first())), Cut::After(place(marks.last())));
        let shape = TableShape {
            run,
            entries: marks.len() as u64,
            tombstones: marks.iter().filter(|m| m.gone).count() as u64,
            ..TableShape::new(id, first, last, self.bytes(marks))
        };
        self.tables.insert(id, marks.to_vec());
        shape
    }

    /// Does the most urgent plan; what it wrote, or `None` if nothing is due.
    pub fn compact(&mut self) -> Option<u64> {
        self.compact_beside(0)
    }

    /// The same, and so many plans at most that the picker says can be carried out beside it.
    pub fn compact_beside(&mut self, most: usize) -> Option<u64> {
        if self.shape.distinct.is_none() {
            self.shape.distinct = Some(self.live().1);
        }
        let mut plans = Vec::new();
        match self.picker {
            Picker::Leveled => plans.push(leveled::pick(&self.shape, &self.limits)?),
            Picker::Spooky => {
                let (plan, progress) = pick(&self.shape, &self.limits, &self.progress)?;
                self.progress = progress;
                plans.push(plan);
            }
        }
        while plans.len() <= most && plans[0].reason.is_step() {
            let Some((plan, progress)) = beside(&self.shape, &self.limits, &self.progress) else { break };
            self.progress = progress;
            plans.push(plan);
        }
        Some(plans.iter().map(|plan| self.carry_out(plan)).sum())
    }

    fn carry_out(&mut self, plan: &Plan) -> u64 {
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
        if plan.trivial {
            self.totals.moved += read;
        } else {
            let mut marks = Vec::new();
            for t in &taken {
                marks.extend(self.tables.remove(&t.id).unwrap_or_default());
            }
            newest(&mut marks);
            if self.is_bottom(plan, &taken) {
                marks.retain(|m| !m.gone);
            }
            let target = plan.table_bytes.unwrap_or(self.limits.table_bytes);
            taken = self.cut(&marks, RunId(0), target, plan.cuts.clone());
            written = taken.iter().map(|t| t.bytes).sum();
            self.totals.merges += 1;
            self.totals.largest = self.totals.largest.max(read);
            self.totals.peak = self.totals.peak.max(self.stored() + read + written);
            self.shape.distinct = None;
        }
        self.totals.compacted += written;
        self.place(usize::from(plan.to.0), taken);
        written
    }

    fn place(&mut self, level: usize, tables: Vec<TableShape>) {
        let runs = &mut self.shape.levels[level];
        if runs.is_empty() {
            runs.push(Vec::new());
        }
        let run = &mut runs[0];
        run.extend(tables);
        run.sort_by(|a, b| a.first.as_ref().cmp(KeyOrder::Bytes, b.first.as_ref()));
        for pair in run.windows(2) {
            let apart = pair[0].last.as_ref().cmp(KeyOrder::Bytes, pair[1].first.as_ref());
            assert_ne!(apart, std::cmp::Ordering::Greater, "tables of a run share no key: level {level}");
        }
        runs.retain(|r| !r.is_empty());
    }

    fn is_bottom(&self, plan: &Plan, taken: &[TableShape]) -> bool {
        let ends = |t: &TableShape| (t.first.clone(), t.last.clone());
        let within: Vec<_> = taken.iter().map(ends).collect();
        let deeper = (usize::from(plan.to.0)..limits::LEVELS).flat_map(|i| self.shape.tables(i));
        !deeper.into_iter().any(|t| {
            let own = (t.first.as_ref(), t.last.as_ref());
            within.iter().any(|(a, b)| CutRef::overlap(KeyOrder::Bytes, own, (a.as_ref(), b.as_ref())))
        })
    }

    /// Whether of each key the newest version is the first one that a read meets: the order of levels and runs is right.
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
        let mut all: Vec<Mark> = self.tables.values().flatten().copied().collect();
        newest(&mut all);
        all.into_iter().filter(|m| !m.gone).map(|m| (m.key, m.seq)).collect()
    }
}

/// In key order, of each key the newest.
fn newest(marks: &mut Vec<Mark>) {
    marks.sort_by_key(|m| (m.key, std::cmp::Reverse(m.seq)));
    marks.dedup_by_key(|m| m.key);
}
