//! The spilled runs of one column family in a transaction that does not fit into memory: written as
//! its memtables fill up, merged when there are many, and turned into final tables at commit.
//! Independent of the commit, and of how the tables are added to a version.
//!
//! Entries keep the sequence numbers that the transaction assigned ([`TXN_SEQ_BASE`] and up), so
//! that its reads see them in order. Its savepoints act as snapshots: a rewrite keeps what each of
//! them sees. Entries that were rolled back are dropped by the next rewrite, or with their whole
//! table. Tombstones stay: they hide committed entries below, and the conflict check at commit
//! needs every key.
//!
//! Like the runs of a bulk load, these are ordinary tables that are not in the manifest: after a
//! crash they are orphans.

use crate::flush::flush;
use crate::memtable::Memtable;
use crate::mvcc::SnapshotStripes;
use crate::rewrite::{
    CreatedFiles, RewriteContext, RewriteInput, RewriteOutput, run_rewrite, write_sorted,
};
use crate::scan::{MergeCursor, RunCursor, SourceCursor};
use crate::txn_overlay::{OverlayRuns, TXN_SEQ_BASE};
use crate::version::{Run, Table, TableMeta, Vlog, VlogMeta};
use perigee_base::{EntryRef, FamilyId, FileId, KeyComparator, Result, RunId, SeqNo};
use perigee_file::{RangeTombstones, TableCache};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Number of runs of one generation that are merged into one run of the next generation.
const FAN_IN: usize = 32;
const _: () = assert!(FAN_IN >= 2, "a merge reduces the number of runs");

/// A transaction's sequence numbers, as far as a rewrite of its runs needs them.
#[derive(Clone, Debug, Default)]
pub struct TxnSeqInfo {
    /// For each savepoint, the last sequence number before it.
    pub savepoints: Vec<SeqNo>,
    /// Ranges of sequence numbers that were rolled back, ascending and disjoint.
    pub rolled_back: Arc<[Range<SeqNo>]>,
}

#[derive(Debug)]
struct SpillRun {
    run: Arc<Run>,
    /// Number of times that the entries were merged.
    generation: u32,
}

/// Files that are no longer needed.
#[derive(Debug, Default)]
pub struct ObsoleteSpillFiles {
    /// Tables.
    pub tables: Vec<Arc<Table>>,
    /// Value logs.
    pub vlogs: Vec<Arc<Vlog>>,
}

/// The tables that a transaction commits. Their entries have sequence number 0.
#[derive(Debug, Default)]
pub struct SpillOutput {
    /// Tables in key order.
    pub tables: Vec<TableMeta>,
    /// Value logs that the tables reference.
    pub vlogs: Vec<VlogMeta>,
    /// Those of `vlogs` that are already open: they must not be opened a second time.
    pub open_vlogs: Vec<Arc<Vlog>>,
}

/// The runs written so far, oldest first.
#[derive(Debug)]
pub struct SpillRunSet {
    comparator: KeyComparator,
    runs: Vec<SpillRun>,
    vlogs: BTreeMap<FileId, Arc<Vlog>>,
    obsolete: ObsoleteSpillFiles,
    fan_in: usize,
}

impl SpillRunSet {
    /// Creates an empty set.
    pub fn new(comparator: KeyComparator) -> SpillRunSet {
        SpillRunSet {
            comparator,
            runs: Vec::new(),
            vlogs: BTreeMap::new(),
            obsolete: ObsoleteSpillFiles::default(),
            fan_in: FAN_IN,
        }
    }
    /// Returns the runs and value logs for the transaction's reads, newest run first.
    pub fn spilled_runs(&self) -> Arc<OverlayRuns> {
        let runs = self.runs.iter().rev().map(|r| Arc::clone(&r.run)).collect();
        Arc::new(OverlayRuns { runs, vlogs: self.vlogs.clone() })
    }

    /// Writes a memtable, which holds no rolled-back entries, as the newest run, or appends it to
    /// the newest run if that ends before the memtable begins. After an error the set is unchanged.
    pub fn write_run(
        &mut self,
        memtable: &Arc<Memtable>,
        seq_info: &TxnSeqInfo,
        context: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<()> {
        let context = intermediate_context(seq_info, context);
        let (_, output) = flush(memtable, RunId(0), context.clone(), created)?;
        let tables = self.open_outputs(&output, context.table_cache)?;
        self.push_newest(tables);
        Ok(())
    }

    /// Adds an entry whose value is in a value log of its own, as the newest run or at the end of
    /// it. After an error the set is unchanged.
    pub fn add_separated(
        &mut self,
        entry: EntryRef<'_>,
        vlog: VlogMeta,
        seq_info: &TxnSeqInfo,
        context: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<()> {
        check!(
            entry.seq >= TXN_SEQ_BASE
                && entry.value.vlog_pointer().is_some_and(|p| p.file == vlog.id),
            "an entry of a transaction points to the value log that comes with it",
            entry.seq,
            vlog
        );
        let context = intermediate_context(seq_info, context);
        let mut output = write_sorted(std::iter::once(entry), context.clone(), created)?;
        output.vlogs.push(vlog);
        let tables = self.open_outputs(&output, context.table_cache)?;
        self.push_newest(tables);
        Ok(())
    }

    /// Adds tables as the newest run, or at the end of the newest run if that ends before they
    /// begin.
    fn push_newest(&mut self, tables: Vec<Arc<Table>>) {
        let Some(first) = tables.first().map(|t| t.meta.summary.begin(self.comparator)) else {
            return;
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
    }

    /// Opens the output files. After an error the set is unchanged.
    fn open_outputs(
        &mut self,
        output: &RewriteOutput,
        table_cache: &TableCache,
    ) -> Result<Vec<Arc<Table>>> {
        let vlog = |meta: &VlogMeta| {
            let reader = table_cache.vlog_reader(meta.id, meta.bytes)?;
            Ok((meta.id, Arc::new(Vlog { meta: meta.clone(), reader })))
        };
        let table = |meta: &TableMeta| {
            let reader = table_cache.klog_reader(meta.id, meta.summary.bytes)?;
            Ok(Arc::new(Table { meta: meta.clone(), reader }))
        };
        let vlogs = output.vlogs.iter().map(vlog).collect::<Result<Vec<_>>>()?;
        let tables = output.tables.iter().map(table).collect::<Result<_>>()?;
        self.vlogs.extend(vlogs);
        Ok(tables)
    }

    /// Number of newest runs that share one generation.
    fn newest_generation_len(&self) -> usize {
        let newest = self.runs.last().map(|r| r.generation);
        self.runs.iter().rev().take_while(|r| Some(r.generation) == newest).count()
    }
    /// Returns true if the newest runs should be merged before another one is added.
    pub fn needs_merge(&self) -> bool {
        self.newest_generation_len() >= self.fan_in
    }
    /// Merges the newest runs, all of one generation, into one run of the next generation.
    pub fn merge_newest(
        &mut self,
        seq_info: &TxnSeqInfo,
        context: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<()> {
        let Some(generation) = self.runs.last().map(|r| r.generation) else { return Ok(()) };
        let from = self.runs.len() - self.newest_generation_len();
        let context = intermediate_context(seq_info, context);
        let output = self.merge_runs(from, seq_info, false, context.clone(), created)?;
        let tables = self.open_outputs(&output, context.table_cache)?;
        let old = self.runs.drain(from..).flat_map(|r| r.run.tables.clone());
        self.obsolete.tables.extend(old);
        if !tables.is_empty() {
            let run = Arc::new(Run::new(RunId(0), tables, self.comparator));
            self.runs.push(SpillRun { run, generation: generation + 1 });
        }
        Ok(())
    }

    /// Writes the final tables, for all readers; the runs stay as they are. `context` is the
    /// context of the column family.
    pub fn finish(
        &self,
        seq_info: &TxnSeqInfo,
        context: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<SpillOutput> {
        let none = TxnSeqInfo { savepoints: Vec::new(), ..seq_info.clone() };
        let context =
            RewriteContext { stripes: SnapshotStripes::new(Vec::new(), SeqNo::MAX), ..context };
        let RewriteOutput { tables, mut vlogs, .. } =
            self.merge_runs(0, &none, true, context, created)?;
        let used: BTreeSet<FileId> =
            tables.iter().flat_map(|t| t.summary.vlogs.iter().map(|(id, _)| *id)).collect();
        let open: Vec<_> =
            self.vlogs.values().filter(|v| used.contains(&v.meta.id)).cloned().collect();
        vlogs.extend(open.iter().map(|v| v.meta.clone()));
        check!(
            used.iter().all(|id| vlogs.iter().any(|v| v.id == *id)),
            "every value log that the tables of a transaction use was written by it",
            used
        );
        Ok(SpillOutput { tables, vlogs, open_vlogs: open })
    }

    fn merge_runs(
        &self,
        from: usize,
        seq_info: &TxnSeqInfo,
        renumber: bool,
        context: RewriteContext<'_>,
        created: &mut CreatedFiles,
    ) -> Result<RewriteOutput> {
        let comparator = self.comparator;
        let runs = || self.runs[from..].iter().map(|r| &r.run);
        let source =
            |r: &Arc<Run>| SourceCursor::Run(RunCursor::new(Arc::clone(r), comparator, false));
        let source = MergeCursor::new(comparator, runs().map(source).collect());
        let tables = runs().flat_map(|r| &r.tables);
        let ranges = tables.fold(RangeTombstones::default(), |all, t| {
            all.merge(comparator, t.reader.range_tombstones())
        });
        let (relocate, rolled_back) = (BTreeSet::new(), Arc::clone(&seq_info.rolled_back));
        run_rewrite(
            RewriteInput {
                source,
                range_tombstones: ranges,
                bottommost: false,
                relocate_vlogs: relocate,
                zero_seqs: renumber,
                pass_through_blocks: false,
                rolled_back,
            },
            context,
            created,
        )
    }

    /// Drops tables whose entries were all written at `number` or later. In tables that stay,
    /// rolled-back entries are recognized by [`TxnSeqInfo::rolled_back`].
    pub fn roll_back_to(&mut self, number: SeqNo) {
        while let Some(newest) = self.runs.last_mut() {
            let (gone, kept): (Vec<_>, Vec<_>) =
                newest.run.tables.iter().cloned().partition(|t| t.meta.seq_range().0 >= number);
            if gone.is_empty() {
                break;
            }
            self.obsolete.tables.extend(gone);
            if !kept.is_empty() {
                newest.run = Arc::new(Run::new(RunId(0), kept, self.comparator));
                break;
            }
            self.runs.pop();
        }
        let mut tables = self.runs.iter().flat_map(|r| &r.run.tables);
        check_slow!(
            tables.all(|t| t.meta.seq_range().0 < number),
            "a rollback leaves no table that was written after its savepoint",
            number
        );
    }

    /// Returns the files that are no longer needed, and forgets them: each file is returned once.
    pub fn take_obsolete(&mut self) -> ObsoleteSpillFiles {
        let used: BTreeSet<FileId> = self
            .runs
            .iter()
            .flat_map(|r| &r.run.tables)
            .flat_map(|t| t.meta.summary.vlogs.iter().map(|(id, _)| *id))
            .collect();
        let mut obsolete = std::mem::take(&mut self.obsolete);
        self.vlogs.retain(|id, vlog| {
            let stays = used.contains(id);
            if !stays {
                obsolete.vlogs.push(Arc::clone(vlog));
            }
            stays
        });
        obsolete
    }
    /// Returns all files except the value logs in `kept`.
    pub fn into_obsolete(mut self, kept: &[FileId]) -> ObsoleteSpillFiles {
        self.obsolete.tables.extend(self.runs.drain(..).flat_map(|r| r.run.tables.clone()));
        let mut obsolete = self.take_obsolete();
        obsolete.vlogs.retain(|v| !kept.contains(&v.meta.id));
        obsolete
    }
}

/// Returns the context for runs that only the transaction reads. Their tables must not be taken for
/// tables of the column family after a crash.
fn intermediate_context<'a>(
    seq_info: &TxnSeqInfo,
    mut context: RewriteContext<'a>,
) -> RewriteContext<'a> {
    context.options.family = FamilyId::NONE;
    check!(
        seq_info.savepoints.iter().all(|s| *s >= TXN_SEQ_BASE.prev()),
        "savepoints are private sequence numbers of the transaction",
        seq_info.savepoints
    );
    RewriteContext {
        stripes: SnapshotStripes::new(seq_info.savepoints.clone(), SeqNo::MAX),
        verify_outputs: false,
        ..context
    }
}
