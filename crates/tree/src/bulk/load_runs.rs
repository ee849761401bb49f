//! The runs of a bulk load: written as the buffer fills up, merged when there are many, and merged
//! into one at the end.
//!
//! The sequence number of all entries of a run is the run's number, so that of equal keys the later
//! run wins, as in any merge. Run 0 has sequence number 0, which is what the final tables need:
//! sorted input makes a single run, whose tables are final without a merge.

use super::load_buffer::{LoadBuffer, LoadPart};
use crate::mvcc::SnapshotStripes;
use crate::rewrite::{
    CreatedFiles, RewriteContext, RewriteInput, RewriteOutput, run_rewrite, write_sorted,
};
use crate::scan::{MergeCursor, RunCursor, SourceCursor};
use crate::version::{Run, Table, TableMeta, VlogMeta};
use perigee_base::{FamilyId, FileId, KeyComparator, Result, RunId, SeqNo};
use std::cmp::Ordering::Less;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Number of runs of one generation that are merged into one run of the next generation.
const FAN_IN: usize = 32;
const _: () = assert!(FAN_IN >= 2, "a merge reduces the number of runs");

#[derive(Debug)]
struct LoadRun {
    tables: Vec<TableMeta>,
    /// Number of times that the entries were merged.
    generation: u32,
}

/// The run to which the entries of a buffer belong.
#[derive(Clone, Copy, Debug)]
pub struct ChosenRun {
    /// Its number, which is the sequence number of its entries.
    number: u64,
    /// True if the entries follow those of the newest run.
    appends: bool,
}

/// The runs written so far, oldest first.
#[derive(Debug)]
pub struct LoadRunSet {
    comparator: KeyComparator,
    runs: Vec<LoadRun>,
    /// Number of the next run, which is the sequence number of its entries.
    next_seq: u64,
    vlogs: Vec<VlogMeta>,
    /// Files whose entries were merged into other files.
    obsolete: Vec<FileId>,
    fan_in: usize,
}

impl LoadRunSet {
    /// Creates an empty set.
    pub fn new(comparator: KeyComparator) -> LoadRunSet {
        LoadRunSet {
            comparator,
            runs: Vec::new(),
            next_seq: 0,
            vlogs: Vec::new(),
            obsolete: Vec::new(),
            fan_in: FAN_IN,
        }
    }
    /// Number of runs.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Decides to which run the entries of the buffer belong: to a new one, or to the newest if all
    /// their keys are greater than those of that run.
    pub fn choose_run(&self, buffer: &LoadBuffer) -> ChosenRun {
        let last = self.runs.last().filter(|r| r.generation == 0).and_then(|r| r.tables.last());
        let appends = match (last, buffer.smallest_key()) {
            (Some(t), Some(first)) => self.comparator.cmp(&t.summary.last_key, first) == Less,
            _ => false,
        };
        check!(!appends || self.next_seq > 0, "a run that is extended has a number", self.next_seq);
        let number = if appends { self.next_seq - 1 } else { self.next_seq };
        ChosenRun { number, appends }
    }

    /// Sorts a part of the buffer and writes it to tables of the chosen run. Several parts may be
    /// written at the same time.
    pub fn write_part(
        &self,
        run: ChosenRun,
        part: &mut LoadPart<'_>,
        context: RewriteContext<'_>,
    ) -> Result<()> {
        part.sort();
        let context = self.intermediate_context(run.number, context);
        let mut created = CreatedFiles::default();
        let output = write_sorted(part.entries(SeqNo(run.number)), context, &mut created);
        part.created = created;
        part.output = Some(output?);
        Ok(())
    }

    /// Adds what was written from the parts of the buffer, in key order, to the chosen run.
    pub fn add_parts(&mut self, run: ChosenRun, parts: impl Iterator<Item = RewriteOutput>) {
        let mut tables = Vec::new();
        for output in parts {
            self.vlogs.extend(output.vlogs);
            tables.extend(output.tables);
        }
        match self.runs.last_mut() {
            Some(newest) if run.appends => newest.tables.extend(tables),
            _ => {
                self.runs.push(LoadRun { tables, generation: 0 });
                self.next_seq += 1;
            }
        }
        check_slow!(
            self.runs.last().is_none_or(|newest| newest.tables.is_sorted_by(|a, b| {
                self.comparator.cmp(&a.summary.last_key, &b.summary.first_key) == Less
            })),
            "the tables of a run of a load ascend",
            self.runs.last()
        );
    }

    /// Returns the context for a run. Only run 0 can become final: the others need no filters, as
    /// no get reads them, and no output verification, as the merge verifies every block.
    fn intermediate_context<'a>(
        &self,
        number: u64,
        mut context: RewriteContext<'a>,
    ) -> RewriteContext<'a> {
        if number > 0 {
            // The tables of an unfinished load must not be taken for tables of the column family.
            context.options.family = FamilyId::NONE;
            context.options.filter_bits = 0;
            context.verify_outputs = false;
        }
        context
    }

    /// Returns true if the newest runs should be merged before another one is added.
    pub fn needs_merge(&self) -> bool {
        let Some(generation) = self.runs.last().map(|r| r.generation) else { return false };
        self.runs.iter().rev().take_while(|r| r.generation == generation).count() >= self.fan_in
    }

    /// Merges the newest runs, all of one generation, into one run of the next generation.
    pub fn merge_newest(
        &mut self,
        context: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<()> {
        let Some(generation) = self.runs.last().map(|r| r.generation) else { return Ok(()) };
        let from = self.runs.len()
            - self.runs.iter().rev().take_while(|r| r.generation == generation).count();
        let context = self.intermediate_context(1, context);
        let output = self.merge_runs(from, false, context, created)?;
        self.replace_runs(from, generation + 1, output);
        Ok(())
    }

    /// Merges all runs into one, whose entries have sequence number 0.
    pub fn merge_all(
        &mut self,
        context: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<()> {
        if self.runs.len() > 1 || self.runs.iter().any(|r| r.generation > 0) {
            let output = self.merge_runs(0, true, context, created)?;
            self.replace_runs(0, 0, output);
            self.next_seq = 1;
        }
        check!(self.runs.len() <= 1, "a finished load is one run", self.runs.len());
        Ok(())
    }

    fn merge_runs(
        &self,
        from: usize,
        renumber: bool,
        context: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<RewriteOutput> {
        let mut sources = Vec::new();
        for (n, sorted) in self.runs[from..].iter().enumerate() {
            let open = |meta: &TableMeta| {
                let reader = context.table_cache.klog_reader(meta.id, meta.summary.bytes)?;
                Ok(Arc::new(Table { meta: meta.clone(), reader }))
            };
            let tables = sorted.tables.iter().map(open).collect::<Result<_>>()?;
            let run = Arc::new(Run::new(RunId(n as u64), tables, self.comparator));
            sources.push(SourceCursor::Run(RunCursor::new(run, self.comparator, false)));
        }
        let source = MergeCursor::new(self.comparator, sources);
        // No reader sees any of the entries yet, so only the newest entry of each key is kept.
        let context =
            RewriteContext { stripes: SnapshotStripes::new(Vec::new(), SeqNo::MAX), ..context };
        let ranges = perigee_file::RangeTombstones::default();
        run_rewrite(
            RewriteInput {
                source,
                range_tombstones: ranges,
                bottommost: false,
                relocate_vlogs: BTreeSet::new(),
                zero_seqs: renumber,
                pass_through_blocks: false,
                rolled_back: Arc::default(),
            },
            context,
            created,
        )
    }

    fn replace_runs(&mut self, from: usize, generation: u32, output: RewriteOutput) {
        let old = self.runs.drain(from..).flat_map(|r| r.tables);
        self.obsolete.extend(old.map(|t| t.id));
        self.vlogs.extend(output.vlogs);
        self.runs.push(LoadRun { tables: output.tables, generation });
        check!(
            self.runs.is_sorted_by(|a, b| a.generation >= b.generation),
            "older runs of a load were merged at least as often",
            generation
        );
    }

    /// Returns the files that are no longer needed, and forgets them: each file is returned once.
    pub fn take_obsolete(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.obsolete)
    }

    /// Returns the tables of the one remaining run and the value logs that they reference; all
    /// other value logs become obsolete.
    pub fn take_outputs(&mut self) -> (Vec<TableMeta>, Vec<VlogMeta>) {
        let tables: Vec<TableMeta> = self.runs.drain(..).flat_map(|r| r.tables).collect();
        let used: HashSet<FileId> =
            tables.iter().flat_map(|t| t.summary.vlogs.iter().map(|(id, _)| *id)).collect();
        let (kept, unused): (Vec<_>, Vec<_>) =
            self.vlogs.drain(..).partition(|v| used.contains(&v.id));
        self.obsolete.extend(unused.iter().map(|v| v.id));
        check!(
            kept.len() == used.len(),
            "every value log that the tables of a load use was written by it",
            kept.len(),
            used.len()
        );
        check!(
            tables.iter().all(|t| !self.obsolete.contains(&t.id)),
            "the tables of a load are not obsolete",
            self.obsolete
        );
        (tables, kept)
    }
}
