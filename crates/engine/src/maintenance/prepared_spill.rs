//! Two-phase commit of transactions larger than memory. Nothing of them is in the log: one manifest
//! edit prepares such a transaction, with its final tables and what it claims, and one edit decides
//! it. The edit of a commit adds the tables to the versions of their column families, as for a
//! transaction that was not prepared; the edit of a rollback makes the files obsolete.
//!
//! Invariants:
//! 1. *Durable before the edit.* The tables, their directory entries and the log are synced before
//!    an edit is written: everything that the transaction could read is as durable as its prepare.
//! 2. *In the commit section.* A transaction enters and leaves the list of prepared transactions in
//!    the commit section, with its edit. So a thread in the commit section finds the same
//!    transactions in the list and in the catalog.
//! 3. *Files.* The catalog lists the files of prepared transactions, so they are not orphans. A
//!    [`PreparedTxn`] holds their readers.

use super::load::LoadGuard;
use super::load::publish::{LoadedTables, SpilledCommit, publish_tables_if};
use crate::catalog::install::CatalogChanges;
use crate::catalog::manifest::{PreparedFiles, PreparedTables};
use crate::limits::PREPARED_CLAIM_BYTES_MAX;
use crate::log::commit::{TwoPhaseDecision, claim_target};
use crate::maintenance::Maintenance;
use crate::txn::TxnManager;
use crate::txn::prepared_txn::PreparedTxn;
use crate::txn::read_write_sets::KeyOrRange;
use crate::txn::spill_store::SpilledPrepare;
use crate::txn::spilled_tables::SpilledTables;
use crate::txn::validate::{CommitConditions, SpilledWriteCheck};
use perigee_base::bug::{self, Bug};
use perigee_base::{FamilyId, KeyBoundary, KeyComparator, Result, SeqNo};
use perigee_file::log::{PrepareHeader, PreparedClaim, encode_prepare};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A key or range that a prepared transaction claims besides its writes, with the mode.
type Claim = (FamilyId, u8, KeyOrRange);

/// Builds the in-memory form of the transaction and its part of the manifest. `parts` are its final
/// tables, and `txn_locks` the locks that it holds.
///
/// # Errors
/// Those of opening a table.
pub fn build_prepared(
    maintenance: &Maintenance,
    parts: &[LoadedTables],
    request: &SpilledPrepare<'_>,
) -> Result<(Arc<PreparedTxn>, Arc<PreparedTables>)> {
    let txns = &maintenance.txns;
    let (mut spilled, mut files) = (SpilledTables::default(), Vec::new());
    for p in parts {
        let its =
            PreparedFiles { family: p.family.id, tables: p.tables.clone(), vlogs: p.vlogs.clone() };
        let opener = &**maintenance.resources.table_cache();
        let mut vlog_refs = its.tables.iter().flat_map(|t| &t.summary.vlogs);
        check_slow!(
            vlog_refs.all(|(id, _)| its.vlogs.iter().any(|v| v.id == *id)),
            "a prepared transaction has every value log that its tables use",
            its
        );
        spilled.open_family(&p.family, &its, &p.open, opener)?;
        files.push(its);
    }
    check_slow!(
        spilled.runs.iter().all(|(family, run)| {
            (1..run.tables.len()).all(|i| run.tables_ascend(family.tree.comparator(), i))
        }),
        "the tables of a prepared transaction ascend and do not overlap",
        files
    );
    let record = Arc::new(encode_record(txns, &spilled, request)?);
    let (gid, operations) = (request.gid.to_vec(), request.operations);
    let tables = Arc::new(PreparedTables { gid, record, operations, files });
    let comparator_of = |id| txns.comparator_of(id);
    let txn = PreparedTxn::of_tables(&tables, spilled, &comparator_of, request.locks.0)?;
    Ok((Arc::new(txn), tables))
}

/// Encodes a prepare record without operations: the reads that the isolation level protects, and
/// the held locks, except those on what the tables cover.
fn encode_record(
    txns: &TxnManager,
    spilled: &SpilledTables,
    request: &SpilledPrepare<'_>,
) -> Result<Vec<u8>> {
    let head = PrepareHeader {
        gid: request.gid,
        isolation_level: request.level.code(),
        prepared_at_ms: txns.runtime.env.clock.wall_ms(),
        op_count: 0,
    };
    let claims = collect_claims(txns, spilled, request);
    let visit_claims = |visit: &mut dyn FnMut(PreparedClaim<'_>)| {
        for (family, mode, target) in &claims {
            let target = claim_target(target.borrowed());
            visit(PreparedClaim { family: *family, mode: *mode, target });
        }
    };
    let record = encode_prepare(head, &visit_claims, &[])?;
    Ok(record.buf[record.payload_range()].to_vec())
}

fn collect_claims(
    txns: &TxnManager,
    spilled: &SpilledTables,
    request: &SpilledPrepare<'_>,
) -> Vec<Claim> {
    let mut claims = Vec::new();
    if let Some(conditions) = request.conditions.as_deref() {
        conditions.visit_protected_reads(&mut |family, target| {
            claims.push((family, 0, target.to_owned_target()));
        });
    }
    // After a reopen the key ranges of the tables are locked exclusively.
    let (owner, txn_locks) = &request.locks;
    let locks = txns.held_locks(*owner, txn_locks).into_iter();
    let others = locks.filter(|(family, target, _)| !spilled.covers(*family, target.borrowed()));
    claims.extend(others.map(|(family, target, mode)| (family, mode.code(), target)));
    let bytes = |(_, _, target): &Claim| match target {
        KeyOrRange::Key(key) => key.len() + 8,
        KeyOrRange::Range(begin, end) => {
            begin.as_ref().encoded_bytes() + end.as_ref().encoded_bytes() + 8
        }
    };
    let is_large =
        |claims: &[Claim]| claims.iter().map(bytes).sum::<usize>() > PREPARED_CLAIM_BYTES_MAX;
    if is_large(&claims) {
        // What it has read and written is protected by its tables.
        claims.retain(|claim| !is_written_read(spilled, claim));
    }
    if is_large(&claims) {
        return widen_claims(claims, &|id| txns.comparator_of(id));
    }
    claims
}

/// Returns true for the read of a key that the tables write. A table that cannot be read does not
/// matter here: then the claim stays.
fn is_written_read(spilled: &SpilledTables, claim: &Claim) -> bool {
    let (family, mode, target) = claim;
    let is_key_read = *mode == 0 && matches!(target, KeyOrRange::Key(_));
    is_key_read && matches!(spilled.find_write(*family, target.borrowed()), Ok(Some(_)))
}

/// Replaces the claims of each mode in a column family by one range that includes all of them: more
/// conflicts, never fewer, and the manifest stays small.
fn widen_claims(
    claims: Vec<Claim>,
    comparator_of: &dyn Fn(FamilyId) -> Option<KeyComparator>,
) -> Vec<Claim> {
    let mut ranges: BTreeMap<(FamilyId, u8), (KeyBoundary, KeyBoundary)> = BTreeMap::new();
    for (family, mode, target) in claims {
        // A column family that was dropped needs no claims.
        let Some(comparator) = comparator_of(family) else { continue };
        let (begin, end) = match target {
            KeyOrRange::Key(key) => (KeyBoundary::Before(key.clone()), KeyBoundary::After(key)),
            KeyOrRange::Range(begin, end) => (begin, end),
        };
        let (from, to) =
            ranges.entry((family, mode)).or_insert_with(|| (begin.clone(), end.clone()));
        if begin.as_ref().cmp(comparator, from.as_ref()).is_lt() {
            *from = begin;
        }
        if end.as_ref().cmp(comparator, to.as_ref()).is_gt() {
            *to = end;
        }
    }
    check_slow!(
        ranges.iter().all(|((family, _), (from, to))| {
            comparator_of(*family).is_none_or(|c| from.as_ref().cmp(c, to.as_ref()).is_le())
        }),
        "a range that replaces claims begins before it ends",
        ranges
    );
    let range = |((family, mode), (from, to))| (family, mode, KeyOrRange::Range(from, to));
    ranges.into_iter().map(range).collect()
}

/// Prepares a transaction durably if its conditions hold. After an error it may be in the list of
/// prepared transactions, from which the caller removes it.
///
/// # Errors
/// `Conflict`, `NoSpace`, `Io`: it is not prepared. `OutcomeUnknown`: after reopen it may be.
pub fn install_prepared(
    maintenance: &Maintenance,
    prepared: &Arc<PreparedTxn>,
    tables: Arc<PreparedTables>,
    mut conditions: Option<Box<CommitConditions>>,
) -> Result<()> {
    let (txns, catalog) = (&maintenance.txns, &maintenance.catalog);
    check!(
        prepared.spilled().is_some(),
        "the manifest prepares transactions with tables",
        prepared.gid
    );
    let runs = prepared.spilled().map_or(&[][..], |s| &s.runs);
    let mut write_check = SpilledWriteCheck::default();
    let mut check = |conditions: &mut Option<Box<CommitConditions>>| {
        write_check.check(txns, runs)?;
        conditions.as_mut().map_or(Ok(()), |c| c.check_spilled(catalog, runs))
    };
    check(&mut conditions)?;
    if !bug::is_active(Bug::PreparedBeforeDirSync) {
        maintenance.runtime.sync_dir()?;
    }
    let _section = maintenance.log.commit_section();
    maintenance.runtime.health.check_writable()?;
    runs.iter().try_for_each(|(family, _)| family.check_not_dropped())?;
    check(&mut conditions)?;
    conditions.as_ref().map_or(Ok(()), |c| c.check_prepared_reads(txns))?;
    txns.prepared_txns().insert(prepared)?;
    let durable = maintenance.log.sync_before_edit()?;
    catalog.install(CatalogChanges {
        prepared: Some(tables),
        durable_seq: Some(durable),
        ..CatalogChanges::default()
    })?;
    prepared.set_lsn(durable);
    Ok(())
}

/// Commits or rolls back a prepared transaction, whose decision the caller has claimed. Returns the
/// sequence number of its last operation. The caller runs the pending commit hooks once it holds no
/// locks.
///
/// # Errors
/// `Busy` while background work is paused, `NoSpace`, `Io`: it is still prepared. `OutcomeUnknown`:
/// after reopen it is decided or still prepared. Never `Conflict`.
pub fn decide_spilled(
    maintenance: &Maintenance,
    prepared: Arc<PreparedTxn>,
    decision: TwoPhaseDecision,
) -> Result<SeqNo> {
    let decided = LoadGuard::start(maintenance).and_then(|_working| match decision {
        TwoPhaseDecision::Commit => commit_prepared(maintenance, &prepared),
        TwoPhaseDecision::RollBack => roll_back_prepared(maintenance, &prepared),
    });
    let last =
        decided.inspect_err(|_| maintenance.txns.prepared_txns().release_claim(&prepared))?;
    maintenance.txns.end_prepared(&prepared);
    check_slow!(
        !maintenance.txns.prepared_txns().all_guarding().iter().any(|p| Arc::ptr_eq(p, &prepared)),
        "a decided transaction locks out nothing any more",
        prepared.gid
    );
    let _working = LoadGuard::start(maintenance);
    if decision == TwoPhaseDecision::RollBack && _working.is_ok() {
        retire_files(maintenance, prepared);
    }
    Ok(last)
}

fn commit_prepared(maintenance: &Maintenance, prepared: &Arc<PreparedTxn>) -> Result<SeqNo> {
    let Some(spilled) = prepared.spilled() else { return Ok(maintenance.catalog.visible_seq()) };
    let vlogs_of = |id| spilled.vlogs.iter().filter(move |(f, _)| *f == id).map(|(_, v)| v);
    let parts: Vec<_> = spilled
        .runs
        .iter()
        .map(|(family, run)| LoadedTables {
            family: Arc::clone(family),
            tables: run.tables.iter().map(|t| t.meta.clone()).collect(),
            vlogs: vlogs_of(family.id).map(|v| v.meta.clone()).collect(),
            open: vlogs_of(family.id).cloned().collect(),
        })
        .collect();
    maintenance.catalog.track_prepared(&spilled.tables().cloned().collect::<Vec<_>>());
    let last = publish_tables_if(maintenance, &parts, Some(SpilledCommit::Prepared(prepared)))?;
    check_slow!(
        last <= maintenance.catalog.visible_seq(),
        "a committed transaction is visible",
        last
    );
    parts.iter().for_each(|p| p.family.counters.loaded_bytes.add(p.user_bytes()));
    let counters = &maintenance.runtime.counters;
    counters.commits.add(1);
    counters.operations.add(prepared.operations);
    counters.user_bytes_written.add(spilled.user_bytes());
    Ok(last)
}

fn roll_back_prepared(maintenance: &Maintenance, prepared: &Arc<PreparedTxn>) -> Result<SeqNo> {
    let _section = maintenance.log.commit_section();
    maintenance.runtime.health.check_writable()?;
    let durable = maintenance.log.sync_before_edit()?;
    maintenance.catalog.install(CatalogChanges {
        decided: Some(prepared.gid.clone()),
        durable_seq: Some(durable),
        ..CatalogChanges::default()
    })?;
    maintenance.txns.prepared_txns().remove(prepared);
    Ok(maintenance.catalog.visible_seq())
}

/// Makes the files of a transaction that was rolled back obsolete.
fn retire_files(maintenance: &Maintenance, prepared: Arc<PreparedTxn>) {
    if let Some(spilled) = prepared.spilled() {
        let tables: Vec<_> = spilled.tables().cloned().collect();
        let vlogs: Vec<_> = spilled.vlogs.iter().map(|(_, v)| Arc::clone(v)).collect();
        maintenance.catalog.retire_unpublished(&tables, &vlogs);
    }
    drop(prepared);
    let _ = maintenance.catalog.delete_unreferenced();
}
