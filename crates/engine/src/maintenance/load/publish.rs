//! Publishes loaded tables: installs the tables of all column families with one edit, at one
//! sequence number.
//!
//! Why this is correct alongside writers, readers, flushes and compactions:
//! 1. *One sequence number.* The load's sequence number G is taken in the commit section, which is
//!    held until the load is visible: every write acknowledged before has a smaller number, every
//!    later one a larger number.
//! 2. *No older data above it.* Reads search memtables first, so no memtable may hold a key of the
//!    load when it is installed. Those that do are flushed first; what writers add meanwhile is
//!    flushed with the section held. Tables are placed above every table with which they share keys
//!    ([`target_level`]). Levels do not change meanwhile: `compaction_lock` and `flush_lock` are
//!    held, so that no job is between its inputs and its edit.
//! 3. *No partial visibility.* Until the visible sequence number reaches G, no reader has a number
//!    that shows the load. A reader whose view is older than the load may get a number of G or
//!    more; it must then not see writes after G either. So the active memtables are replaced: later
//!    writes are not in that view. Such a reader sees the state just before the load.
//! 4. *All or nothing after a crash.* Files and their directory entries are durable, and the log is
//!    durable up to G, before the edit is written. Without the edit the files are orphans, and G is
//!    an unused number.
//! 5. *Snapshots* have numbers below G or were taken after the visible sequence number had moved.
//! 6. *One sequence number per event.* The entries of all column families have number G; the events
//!    that report them have G, G + 1, ..., one per column family. The visible sequence number moves
//!    past all of them at once.
//!
//! A transaction larger than memory is published in the same way; if it was prepared, the edit also
//! decides it. Its tables contain tombstones too: they cover what is below them, and by 2 that is
//! everything older. Its range tombstones have number G - 1, at which no reader reads; what they
//! covered of the transaction's own writes was dropped when the tables were built. Its conditions
//! (a prepared transaction has none left) are checked before anything is locked, again after the
//! memtables have been flushed, and for the rest in the commit section, before its number is taken.

use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::catalog::hook_event::HookEvent;
use crate::catalog::install::{CatalogChanges, VersionChange, VersionSource};
use crate::catalog::manifest::{FamilyEvent, FamilyEventKind};
use crate::log::Log;
use crate::log::commit::{publish_up_to, rotate, sequence};
use crate::log::commit_hooks::{PendingHook, this_thread_id};
use crate::log::wal::Appender;
use crate::maintenance::Maintenance;
use crate::maintenance::jobs::flush;
use crate::resources::job_control::{JobKind, RunningJob};
use crate::runtime::Runtime;
use crate::txn::TxnManager;
use crate::txn::prepared_txn::PreparedTxn;
use crate::txn::read_write_sets::KeyOrRangeRef;
use crate::txn::spilled_tables::SpilledFamilyRuns;
use crate::txn::validate::{self, CommitConditions, SpilledWriteCheck};
use perigee_base::bug::Bug;
use perigee_base::{KeyBoundaryRef, LevelNo, Result, RunId, SeqNo, bug};
use perigee_tree::bulk::target_level;
use perigee_tree::compact::TreeShape;
use perigee_tree::{AddedTable, TableMeta, VersionEdit, View, Vlog, VlogMeta};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The tables of one column family, in key order, with entries stored at sequence number 0, and
/// their value logs.
#[derive(Clone, Debug)]
pub struct LoadedTables {
    /// The column family.
    pub family: Arc<FamilyState>,
    /// The tables.
    pub tables: Vec<TableMeta>,
    /// The value logs.
    pub vlogs: Vec<VlogMeta>,
    /// Those of the value logs that are open already and must not be opened again.
    pub open: Vec<Arc<Vlog>>,
}

impl LoadedTables {
    fn is_sorted(&self) -> bool {
        let order = self.family.tree.comparator();
        self.tables
            .is_sorted_by(|a, b| a.summary.end(order).cmp(order, b.summary.begin(order)).is_le())
    }
    fn has_ranges(&self) -> bool {
        self.tables.iter().any(|t| t.summary.ranges.is_some())
    }
    fn entries(&self) -> u64 {
        self.tables.iter().map(|t| t.summary.entries).sum()
    }
    /// Returns the bytes of the keys and values in the tables.
    pub fn user_bytes(&self) -> u64 {
        self.tables.iter().map(|t| t.summary.raw_key_bytes + t.summary.raw_value_bytes).sum()
    }
}

/// The commit of a transaction with spilled writes.
#[derive(Debug)]
pub enum SpilledCommit<'a> {
    /// It was not prepared.
    OnePhase {
        /// The conditions for the commit, if it has any.
        conditions: Option<&'a mut CommitConditions>,
        /// The tables.
        spilled: &'a SpilledFamilyRuns,
        /// The check against prepared transactions.
        prepared: SpilledWriteCheck,
    },
    /// It was prepared: nothing can conflict with it, and the edit also decides it.
    Prepared(&'a Arc<PreparedTxn>),
}

impl SpilledCommit<'_> {
    /// Checks the conditions, as of now.
    ///
    /// # Errors
    /// `Conflict`.
    pub fn check_conflicts(&mut self, catalog: &Catalog) -> Result<()> {
        match self {
            SpilledCommit::OnePhase { conditions, spilled, .. } => {
                conditions.as_mut().map_or(Ok(()), |c| c.check_spilled(catalog, spilled))
            }
            SpilledCommit::Prepared(_) => Ok(()),
        }
    }
    /// Fails if it writes something that a prepared transaction wrote, or read where that counts.
    fn check_against_prepared(&mut self, txns: &TxnManager) -> Result<()> {
        match self {
            SpilledCommit::OnePhase { spilled, prepared, .. } => prepared.check(txns, spilled),
            SpilledCommit::Prepared(_) => Ok(()),
        }
    }
    /// The final check, before its sequence number is taken.
    fn register_writes(&self, txns: &TxnManager) -> Result<()> {
        match self {
            SpilledCommit::OnePhase { conditions, spilled, .. } => {
                conditions.as_ref().map_or(Ok(()), |c| c.register_spilled(&txns.catalog, spilled))
            }
            SpilledCommit::Prepared(prepared) => {
                if let (Some(member), Some(spilled)) = (&prepared.serializable, prepared.spilled())
                {
                    txns.commit_prepared(member, spilled.write_set());
                }
                Ok(())
            }
        }
    }
    /// Returns the identifier of the prepared transaction that it decides.
    fn decided_gid(&self) -> Option<Vec<u8>> {
        match self {
            SpilledCommit::OnePhase { .. } => None,
            SpilledCommit::Prepared(prepared) => Some(prepared.gid.clone()),
        }
    }
}

/// Publishes the tables. Returns the last of their sequence numbers.
///
/// # Errors
/// `Busy` while background work is paused, `Conflict` with a prepared transaction: nothing
/// happened, and the caller can retry. `OutcomeUnknown`: after the next open, all entries are
/// present or none. Other errors: none is present.
pub fn publish_tables(maintenance: &Maintenance, parts: &[LoadedTables]) -> Result<SeqNo> {
    publish_tables_if(maintenance, parts, None)
}

/// Like [`publish_tables`], for the spilled writes of a transaction if its conditions hold.
///
/// # Errors
/// Those of [`publish_tables`]; `Conflict`.
pub fn publish_tables_if(
    maintenance: &Maintenance,
    parts: &[LoadedTables],
    mut txn_commit: Option<SpilledCommit<'_>>,
) -> Result<SeqNo> {
    check_slow!(
        parts.iter().all(LoadedTables::is_sorted),
        "the tables of a load ascend and do not overlap",
        parts.len()
    );
    check_slow!(
        parts.iter().map(|p| p.family.id).collect::<BTreeSet<_>>().len() == parts.len(),
        "a load has one list of tables for each column family",
        parts.len()
    );
    let check = |txn_commit: &mut Option<SpilledCommit<'_>>| match txn_commit {
        Some(txn_commit) if !bug::is_active(Bug::SpilledUnchecked) => {
            txn_commit.check_conflicts(&maintenance.catalog)
        }
        _ => Ok(()),
    };
    if !bug::is_active(Bug::LoadBeforeDirSync) {
        maintenance.runtime.sync_dir()?;
    }
    let _compacting = maintenance.lock_compactions();
    let _listed = maintenance
        .resources
        .job_control()
        .start_job(&maintenance.runtime.signal, describe_job(&maintenance.runtime, parts))?;
    let _flushing = maintenance.lock_flushes();
    check_against_prepared(&maintenance.txns, parts, &mut txn_commit)?;
    if parts.iter().any(overlaps_memtables) {
        // Flushes most of it without blocking writers.
        rotate::seal_memtables(
            &maintenance.log,
            &mut maintenance.log.commit_section(),
            &loaded_families(parts),
        )?;
        for p in parts.iter().filter(|p| overlaps_memtables(p)) {
            flush::flush_sealed(&maintenance.log, &p.family, &mut None)?;
        }
    }
    check(&mut txn_commit)?;
    let mut appender = maintenance.log.commit_section();
    maintenance.runtime.health.check_writable()?;
    parts.iter().try_for_each(|p| p.family.check_not_dropped())?;
    check(&mut txn_commit)?;
    check_against_prepared(&maintenance.txns, parts, &mut txn_commit)?;
    flush_overlapping(&maintenance.log, &mut appender, parts)?;
    check_slow!(
        !parts.iter().any(overlaps_memtables),
        "no memtable hides a load when it is installed",
        parts.len()
    );
    txn_commit.as_ref().map_or(Ok(()), |a| a.register_writes(&maintenance.txns))?;
    let ranges = u64::from(parts.iter().any(LoadedTables::has_ranges));
    let first = sequence::reserve_sequence_numbers(
        &maintenance.log,
        &mut appender,
        ranges + parts.len() as u64,
    )?;
    let seq = first.plus(ranges);
    let last = event_seq(seq, parts.len().saturating_sub(1));
    // Before the tables are installed: cached rows are older.
    parts.iter().for_each(|p| p.family.row_cache_epoch.advance(last));
    let decided = txn_commit.as_ref().and_then(SpilledCommit::decided_gid);
    let installed = install_tables(&maintenance.log, parts, seq, decided);
    if let (Ok(()), Some(SpilledCommit::Prepared(prepared))) = (&installed, &txn_commit) {
        maintenance.txns.prepared_txns().remove(prepared);
    }
    // Published after a failure, too: then the sequence numbers stay unused.
    let mut hooks = Vec::new();
    if installed.is_ok() && txn_commit.is_some() {
        // This thread commits the transaction.
        let due = |p: &LoadedTables| {
            let event = Arc::new(HookEvent::of_spilled_txn(last, p.entries()));
            Some(PendingHook {
                thread_id: this_thread_id(),
                family: p.family.id,
                hook: p.family.hook()?,
                event,
            })
        };
        hooks.extend(parts.iter().filter_map(due));
    }
    publish_up_to(&maintenance.log, last, hooks);
    installed.map(|()| last)
}

/// Returns the sequence number of the event of the n-th column family. Each has its own, so that a
/// feed position can be between any two; the entries of all column families have the first, so that
/// a snapshot at any of these numbers shows the whole load.
fn event_seq(seq: SeqNo, n: usize) -> SeqNo {
    seq.plus(n as u64)
}

/// Fails if a prepared transaction wrote something in the key range of a table, or read it where
/// that counts. The tables of a transaction are searched instead.
fn check_against_prepared(
    txns: &TxnManager,
    parts: &[LoadedTables],
    txn_commit: &mut Option<SpilledCommit<'_>>,
) -> Result<()> {
    if let Some(commit) = txn_commit {
        return commit.check_against_prepared(txns);
    }
    if !txns.prepared_txns().has_any() {
        return Ok(());
    }
    for p in parts {
        for t in &p.tables {
            let order = p.family.tree.comparator();
            let reach = KeyOrRangeRef::Range(t.summary.begin(order), t.summary.end(order));
            validate::check_prepared_target(txns, p.family.id, reach)?;
        }
    }
    Ok(())
}

fn loaded_families(parts: &[LoadedTables]) -> Vec<Arc<FamilyState>> {
    parts.iter().map(|p| Arc::clone(&p.family)).collect()
}

fn describe_job(runtime: &Runtime, parts: &[LoadedTables]) -> RunningJob {
    let tables = || parts.iter().flat_map(|p| &p.tables);
    RunningJob {
        kind: JobKind::Flush,
        family: parts.first().map_or(String::new(), |p| p.family.name().to_string()),
        families: parts.iter().map(|p| p.family.id).collect(),
        reason: "bulk load",
        input_levels: Vec::new(),
        output_level: 0,
        input_tables: tables().count(),
        input_bytes: tables().map(|t| t.summary.bytes).sum(),
        input_entries: parts.iter().map(LoadedTables::entries).sum(),
        started_us: runtime.env.clock.monotonic_us(),
        entries_done: AtomicU64::new(0),
        bytes_written: AtomicU64::new(0),
        input_memory_bytes: 0,
        output_memory_bytes: AtomicU64::new(0),
    }
}

/// Converts a boundary to a position between entries; `None` for either end.
fn cut_position(cut: KeyBoundaryRef<'_>) -> Option<(&[u8], SeqNo)> {
    match cut {
        KeyBoundaryRef::Before(key) => Some((key, SeqNo::MAX)),
        KeyBoundaryRef::After(key) => Some((key, SeqNo::ZERO)),
        KeyBoundaryRef::First | KeyBoundaryRef::Last => None,
    }
}

/// Returns true if a memtable of the column family may hold a key of the tables.
fn overlaps_memtables(part: &LoadedTables) -> bool {
    let order = part.family.tree.comparator();
    let holds = |view: &View, t: &TableMeta| {
        let (from, to) = (cut_position(t.summary.begin(order)), cut_position(t.summary.end(order)));
        // A range tombstone may cover any key.
        view.memtables().any(|m| m.range_tombstones().has_any() || m.count_between(from, to) > 0)
    };
    let view = part.family.tree.view();
    !bug::is_active(Bug::LoadUnderMemtables) && part.tables.iter().any(|t| holds(&view, t))
}

/// Replaces the active memtables, and flushes those that would cover the load.
fn flush_overlapping(log: &Log, appender: &mut Appender, parts: &[LoadedTables]) -> Result<()> {
    let full: Vec<_> =
        loaded_families(parts).into_iter().filter(|f| !f.tree.view().active.is_empty()).collect();
    if !full.is_empty() {
        rotate::seal_memtables(log, appender, &full)?;
    }
    for p in parts {
        p.family.tree.force_new_memtable();
        if overlaps_memtables(p) {
            flush::flush_sealed(log, &p.family, &mut Some(appender))?;
        }
    }
    Ok(())
}

/// Installs the tables, which get sequence number `seq`; the edit also decides the transaction
/// `decided`. Their levels cannot change meanwhile: the caller holds `compaction_lock`,
/// `flush_lock` and the commit section.
fn install_tables(
    log: &Log,
    parts: &[LoadedTables],
    seq: SeqNo,
    decided: Option<Vec<u8>>,
) -> Result<()> {
    let run = log.catalog.allocate_run_id();
    let mut changes = CatalogChanges {
        next_run: Some(log.catalog.next_run_id()),
        durable_seq: Some(log.durable_seq()),
        decided,
        ..CatalogChanges::default()
    };
    let forgets = bug::is_active(Bug::DecisionForgetsTables) && changes.decided.is_some();
    for (n, p) in parts.iter().enumerate().filter(|_| !forgets) {
        let share = bug::is_active(Bug::LoadEventsShareSeqNo);
        let (at, kind) = (if share { seq } else { event_seq(seq, n) }, FamilyEventKind::Loaded);
        changes.events.push(FamilyEvent { seq: at, family: p.family.id, kind });
        changes.versions.push(VersionChange {
            family: Arc::clone(&p.family),
            edit: version_edit(p, seq, run),
            source: VersionSource::Load { open_vlogs: p.open.clone() },
        });
    }
    check!(
        changes.events.is_sorted_by(|a, b| a.seq < b.seq),
        "each event of a load has a sequence number of its own",
        seq
    );
    log.catalog.install(changes).map(|_| ()).inspect_err(|_| {
        // Their readers have a sequence number that was not assigned.
        parts.iter().flat_map(|p| &p.tables).for_each(|t| log.resources.table_cache().evict(t.id));
    })
}

fn version_edit(part: &LoadedTables, seq: SeqNo, run: RunId) -> VersionEdit {
    let shape = TreeShape::from_version(&part.family.tree.view().version);
    let added = |t: &TableMeta| {
        let order = part.family.tree.comparator();
        let level = target_level(&shape, t.summary.begin(order)..t.summary.end(order));
        let stamp = (!bug::is_active(Bug::LoadWithoutSeqNo)).then_some(seq);
        let run = if level == LevelNo(0) { run } else { RunId(0) };
        AddedTable { level, run, meta: TableMeta { global_seq: stamp, ..t.clone() } }
    };
    VersionEdit {
        added: part.tables.iter().map(added).collect(),
        vlogs_added: part.vlogs.clone(),
        ..VersionEdit::default()
    }
}
