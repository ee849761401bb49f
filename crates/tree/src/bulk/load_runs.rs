//! The runs of a load: written as chunks fill up, merged when there are many, and into one at the
//! end.
//!
//! A run's number is the sequence number of its entries, so that of equal keys the later run wins,
//! as in any merge. Run 0 has number 0, which is what the final tables need: sorted input is one
//! run, and its tables are final as they are.

use super::load_buffer::LoadBuffer;
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

/// Runs of one generation that are merged into one of the next.
const FAN_IN: usize = 32;

#[derive(Debug)]
struct LoadRun {
    tables: Vec<TableMeta>,
    /// How often its entries were merged.
    generation: u32,
}

/// The runs so far.
#[derive(Debug)]
pub struct LoadRunSet {
    comparator: KeyComparator,
    runs: Vec<LoadRun>,
    /// The number of the next run.
    next_seq: u64,
    vlogs: Vec<VlogMeta>,
    /// Files that merges have emptied.
    obsolete: Vec<FileId>,
    fan_in: usize,
}

impl LoadRunSet {
    /// No runs.
    pub fn new(order: KeyComparator) -> LoadRunSet {
        LoadRunSet {
            comparator: order,
            runs: Vec::new(),
            next_seq: 0,
            vlogs: Vec::new(),
            obsolete: Vec::new(),
            fan_in: FAN_IN,
        }
    }
    /// How many runs there are.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Writes a chunk as a run, or behind the newest run if it goes on where that ended.
    pub fn write_run(
        &mut self,
        chunk: &mut LoadBuffer,
        setting: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<()> {
        chunk.sort();
        let Some(first) = chunk.first_key() else { return Ok(()) };
        let last = self.runs.last().filter(|r| r.generation == 0).and_then(|r| r.tables.last());
        let goes_on = last.is_some_and(|t| self.comparator.cmp(&t.summary.last_key, first) == Less);
        let number = if goes_on { self.next_seq - 1 } else { self.next_seq };
        let output = write_sorted(
            chunk.entries(SeqNo(number)),
            self.intermediate_context(number, setting),
            created,
        )?;
        chunk.clear();
        self.vlogs.extend(output.vlogs);
        match self.runs.last_mut() {
            Some(newest) if goes_on => newest.tables.extend(output.tables),
            _ => {
                self.runs.push(LoadRun { tables: output.tables, generation: 0 });
                self.next_seq += 1;
            }
        }
        Ok(())
    }

    /// Only the first run may be final: of the others nobody asks a filter, and the merge verifies
    /// every block.
    fn intermediate_context<'a>(
        &self,
        number: u64,
        mut setting: RewriteContext<'a>,
    ) -> RewriteContext<'a> {
        if number > 0 {
            // Of a load that was never finished nothing may pass for a table of the family.
            setting.options.family = FamilyId::NONE;
            setting.options.filter_bits = 0;
            setting.verify_outputs = false;
        }
        setting
    }

    /// Whether the newest runs should be merged before another is added.
    pub fn needs_merge(&self) -> bool {
        let Some(generation) = self.runs.last().map(|r| r.generation) else { return false };
        self.runs.iter().rev().take_while(|r| r.generation == generation).count() >= self.fan_in
    }

    /// Merges the newest runs of one generation.
    pub fn merge_newest(
        &mut self,
        setting: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<()> {
        let Some(generation) = self.runs.last().map(|r| r.generation) else { return Ok(()) };
        let from = self.runs.len()
            - self.runs.iter().rev().take_while(|r| r.generation == generation).count();
        let setting = self.intermediate_context(1, setting);
        let output = self.merge_runs(from, false, setting, created)?;
        self.replace_runs(from, generation + 1, output);
        Ok(())
    }

    /// Makes one run of all, whose entries have number 0.
    pub fn merge_all(
        &mut self,
        setting: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<()> {
        if self.runs.len() > 1 || self.runs.iter().any(|r| r.generation > 0) {
            let output = self.merge_runs(0, true, setting, created)?;
            self.replace_runs(0, 0, output);
            self.next_seq = 1;
        }
        Ok(())
    }

    fn merge_runs(
        &self,
        from: usize,
        renumber: bool,
        setting: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<RewriteOutput> {
        let mut sources = Vec::new();
        for (n, sorted) in self.runs[from..].iter().enumerate() {
            let open = |meta: &TableMeta| {
                let reader = setting.table_cache.klog_reader(meta.id, meta.summary.bytes)?;
                Ok(Arc::new(Table { meta: meta.clone(), reader }))
            };
            let tables = sorted.tables.iter().map(open).collect::<Result<_>>()?;
            let run = Arc::new(Run::new(RunId(n as u64), tables, self.comparator));
            sources.push(SourceCursor::Run(RunCursor::new(run, self.comparator, false)));
        }
        let source = MergeCursor::new(self.comparator, sources);
        // No reader sees any of it yet: of each key only the newest entry counts.
        let setting =
            RewriteContext { stripes: SnapshotStripes::new(Vec::new(), SeqNo::MAX), ..setting };
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
            setting,
            created,
        )
    }

    fn replace_runs(&mut self, from: usize, generation: u32, output: RewriteOutput) {
        let old = self.runs.drain(from..).flat_map(|r| r.tables);
        self.obsolete.extend(old.map(|t| t.id));
        self.vlogs.extend(output.vlogs);
        self.runs.push(LoadRun { tables: output.tables, generation });
    }

    /// Files that are not needed any more, each named once.
    pub fn take_obsolete(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.obsolete)
    }

    /// The tables of the one run that is left, and the value logs that they use; the others are
    /// spent.
    pub fn take_outputs(&mut self) -> (Vec<TableMeta>, Vec<VlogMeta>) {
        let tables: Vec<TableMeta> = self.runs.drain(..).flat_map(|r| r.tables).collect();
        let used: HashSet<FileId> =
            tables.iter().flat_map(|t| t.summary.vlogs.iter().map(|(id, _)| *id)).collect();
        let (kept, unused): (Vec<_>, Vec<_>) =
            self.vlogs.drain(..).partition(|v| used.contains(&v.id));
        self.obsolete.extend(unused.iter().map(|v| v.id));
        (tables, kept)
    }
}
