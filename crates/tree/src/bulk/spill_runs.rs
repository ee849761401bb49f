//! The runs of a transaction that does not fit into memory, of one family: written as its memtables
//! fill up, merged when there are many, and into tables for everybody at the end. It knows nothing
//! of commits, and not who will name the tables.
//!
//! Entries keep the numbers that the transaction gave them ([`FLOOR`] and up), so that its reads
//! see them in their order. Its savepoints are readers: a rewrite keeps what each of them sees.
//! What was taken back is dropped with the next rewrite, or with its whole table. Tombstones stay:
//! what others have written lies beneath, and the commit's check asks for every key.
//!
//! Like the runs of a load these are ordinary tables that no manifest names: after a crash they are
//! orphans.

use crate::flush::flush;
use crate::memtable::Memtable;
use crate::mvcc::SnapshotStripes;
use crate::rewrite::{CreatedFiles, RewriteContext, RewriteInput, RewriteOutput, run_rewrite};
use crate::scan::{MergeCursor, RunCursor, SourceCursor};
use crate::txn_overlay::{OverlayRuns, TXN_SEQ_BASE};
use crate::version::{Run, Table, TableMeta, Vlog, VlogMeta};
use perigee_base::{FamilyId, FileId, KeyComparator, Result, RunId, SeqNo};
use perigee_file::{RangeTombstones, TableCache};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Runs of one generation that are merged into one of the next.
const FAN_IN: usize = 32;

/// What a transaction says of its numbers.
#[derive(Clone, Debug, Default)]
pub struct TxnSeqInfo {
    /// For each savepoint the last number before it.
    pub savepoints: Vec<SeqNo>,
    /// Those taken back, ascending and apart.
    pub rolled_back: Arc<[Range<u64>]>,
}

#[derive(Debug)]
struct SpillRun {
    run: Arc<Run>,
    /// How often its entries were merged.
    generation: u32,
}

/// Files that are not needed any more.
#[derive(Debug, Default)]
pub struct ObsoleteSpillFiles {
    /// Tables.
    pub tables: Vec<Arc<Table>>,
    /// Value logs.
    pub vlogs: Vec<Arc<Vlog>>,
}

/// What a transaction leaves: final tables, whose entries have number 0, and the value logs that
/// they use.
#[derive(Debug, Default)]
pub struct SpillOutput {
    /// In key order.
    pub tables: Vec<TableMeta>,
    /// Value logs.
    pub vlogs: Vec<VlogMeta>,
    /// Those of them that are open: nobody may open them a second time.
    pub open_vlogs: Vec<Arc<Vlog>>,
}

/// The runs so far, the oldest first.
#[derive(Debug)]
pub struct SpillRunSet {
    comparator: KeyComparator,
    runs: Vec<SpillRun>,
    vlogs: BTreeMap<FileId, Arc<Vlog>>,
    obsolete: ObsoleteSpillFiles,
    fan_in: usize,
}

impl SpillRunSet {
    /// No runs.
    pub fn new(order: KeyComparator) -> SpillRunSet {
        SpillRunSet {
            comparator: order,
            runs: Vec::new(),
            vlogs: BTreeMap::new(),
            obsolete: ObsoleteSpillFiles::default(),
            fan_in: FAN_IN,
        }
    }
    /// What the transaction reads.
    pub fn spilled_runs(&self) -> Arc<OverlayRuns> {
        let runs = self.runs.iter().rev().map(|r| Arc::clone(&r.run)).collect();
        Arc::new(OverlayRuns { runs, vlogs: self.vlogs.clone() })
    }

    /// Writes a memtable, which holds nothing that was taken back, as the newest run; or behind the
    /// newest one, if it goes on where that ends. After an error nothing has changed.
    pub fn write_run(
        &mut self,
        memtable: &Arc<Memtable>,
        numbers: &TxnSeqInfo,
        setting: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<()> {
        let setting = intermediate_context(numbers, setting);
        let (_, output) = flush(memtable, RunId(0), setting.clone(), created)?;
        let tables = self.open_outputs(&output, setting.table_cache)?;
        let Some(first) = tables.first().map(|t| t.meta.summary.begin(self.comparator)) else {
            return Ok(());
        };
        let ends_before = |t: &Arc<Table>| {
            t.meta.summary.end(self.comparator).cmp(self.comparator, first).is_le()
        };
        let newest = self.runs.last_mut().filter(|r| r.generation == 0);
        match newest.filter(|r| r.run.tables.last().is_some_and(ends_before)) {
            Some(newest) => {
                let all = newest.run.tables.iter().cloned().chain(tables).collect();
                newest.run = Arc::new(Run::new(RunId(0), all, self.comparator));
            }
            None => {
                let run = Arc::new(Run::new(RunId(0), tables, self.comparator));
                self.runs.push(SpillRun { run, generation: 0 });
            }
        }
        Ok(())
    }

    /// Opens what was made. What fails changes nothing.
    fn open_outputs(
        &mut self,
        output: &RewriteOutput,
        shelf: &TableCache,
    ) -> Result<Vec<Arc<Table>>> {
        let vlog = |meta: &VlogMeta| {
            let reader = shelf.vlog_reader(meta.id, meta.bytes)?;
            Ok((meta.id, Arc::new(Vlog { meta: meta.clone(), reader })))
        };
        let table = |meta: &TableMeta| {
            let reader = shelf.klog_reader(meta.id, meta.summary.bytes)?;
            Ok(Arc::new(Table { meta: meta.clone(), reader }))
        };
        let vlogs = output.vlogs.iter().map(vlog).collect::<Result<Vec<_>>>()?;
        let tables = output.tables.iter().map(table).collect::<Result<_>>()?;
        self.vlogs.extend(vlogs);
        Ok(tables)
    }

    /// How many of the newest runs are of one generation.
    fn newest_generation_len(&self) -> usize {
        let newest = self.runs.last().map(|r| r.generation);
        self.runs.iter().rev().take_while(|r| Some(r.generation) == newest).count()
    }
    /// Whether the newest runs should be merged before another is added.
    pub fn needs_merge(&self) -> bool {
        self.newest_generation_len() >= self.fan_in
    }
    /// Merges the newest runs of one generation.
    pub fn merge_newest(
        &mut self,
        numbers: &TxnSeqInfo,
        setting: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<()> {
        let Some(generation) = self.runs.last().map(|r| r.generation) else { return Ok(()) };
        let from = self.runs.len() - self.newest_generation_len();
        let setting = intermediate_context(numbers, setting);
        let output = self.merge_runs(from, numbers, false, setting.clone(), created)?;
        let tables = self.open_outputs(&output, setting.table_cache)?;
        let old = self.runs.drain(from..).flat_map(|r| r.run.tables.clone());
        self.obsolete.tables.extend(old);
        if !tables.is_empty() {
            let run = Arc::new(Run::new(RunId(0), tables, self.comparator));
            self.runs.push(SpillRun { run, generation: generation + 1 });
        }
        Ok(())
    }

    /// Makes the tables that everybody will see; the runs stay as they are. `setting` is that of
    /// the family.
    pub fn finish(
        &self,
        numbers: &TxnSeqInfo,
        setting: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<SpillOutput> {
        let none = TxnSeqInfo { savepoints: Vec::new(), ..numbers.clone() };
        let setting =
            RewriteContext { stripes: SnapshotStripes::new(Vec::new(), SeqNo::MAX), ..setting };
        let RewriteOutput { tables, mut vlogs, .. } =
            self.merge_runs(0, &none, true, setting, created)?;
        let used: BTreeSet<FileId> =
            tables.iter().flat_map(|t| t.summary.vlogs.iter().map(|(id, _)| *id)).collect();
        let open: Vec<_> =
            self.vlogs.values().filter(|v| used.contains(&v.meta.id)).cloned().collect();
        vlogs.extend(open.iter().map(|v| v.meta.clone()));
        Ok(SpillOutput { tables, vlogs, open_vlogs: open })
    }

    fn merge_runs(
        &self,
        from: usize,
        numbers: &TxnSeqInfo,
        renumber: bool,
        setting: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<RewriteOutput> {
        let order = self.comparator;
        let runs = || self.runs[from..].iter().map(|r| &r.run);
        let source = |r: &Arc<Run>| SourceCursor::Run(RunCursor::new(Arc::clone(r), order, false));
        let source = MergeCursor::new(order, runs().map(source).collect());
        let tables = runs().flat_map(|r| &r.tables);
        let ranges = tables.fold(RangeTombstones::default(), |all, t| {
            all.merge(order, t.reader.range_tombstones())
        });
        let (relocate, taken_back) = (BTreeSet::new(), Arc::clone(&numbers.rolled_back));
        run_rewrite(
            RewriteInput {
                source,
                range_tombstones: ranges,
                bottommost: false,
                relocate_vlogs: relocate,
                zero_seqs: renumber,
                pass_through_blocks: false,
                rolled_back: taken_back,
            },
            setting,
            created,
        )
    }

    /// Lets go of tables that hold nothing but what was written at `number` or later; of what else
    /// was, its numbers say it.
    pub fn roll_back_to(&mut self, number: SeqNo) {
        while let Some(newest) = self.runs.last_mut() {
            let (gone, kept): (Vec<_>, Vec<_>) =
                newest.run.tables.iter().cloned().partition(|t| t.meta.seq_range().0 >= number);
            if gone.is_empty() {
                return;
            }
            self.obsolete.tables.extend(gone);
            if !kept.is_empty() {
                newest.run = Arc::new(Run::new(RunId(0), kept, self.comparator));
                return;
            }
            self.runs.pop();
        }
    }

    /// Files that are not needed any more, each named once.
    pub fn take_obsolete(&mut self) -> ObsoleteSpillFiles {
        let used: BTreeSet<FileId> = self
            .runs
            .iter()
            .flat_map(|r| &r.run.tables)
            .flat_map(|t| t.meta.summary.vlogs.iter().map(|(id, _)| *id))
            .collect();
        let mut spent = std::mem::take(&mut self.obsolete);
        self.vlogs.retain(|id, log| {
            let stays = used.contains(id);
            if !stays {
                spent.vlogs.push(Arc::clone(log));
            }
            stays
        });
        spent
    }
    /// All of its files, but for value logs that are in `kept`.
    pub fn into_obsolete(mut self, kept: &[FileId]) -> ObsoleteSpillFiles {
        self.obsolete.tables.extend(self.runs.drain(..).flat_map(|r| r.run.tables.clone()));
        let mut spent = self.take_obsolete();
        spent.vlogs.retain(|v| !kept.contains(&v.meta.id));
        spent
    }
}

/// For runs that nobody but the transaction reads, of which nothing may pass for a table of the
/// family after a crash.
fn intermediate_context<'a>(
    numbers: &TxnSeqInfo,
    mut setting: RewriteContext<'a>,
) -> RewriteContext<'a> {
    setting.options.family = FamilyId::NONE;
    debug_assert!(numbers.savepoints.iter().all(|s| s.0 >= TXN_SEQ_BASE - 1), "own numbers");
    RewriteContext {
        stripes: SnapshotStripes::new(numbers.savepoints.clone(), SeqNo::MAX),
        verify_outputs: false,
        ..setting
    }
}
