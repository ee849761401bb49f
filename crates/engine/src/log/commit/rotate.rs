//! Seals memtables and starts the log segment that goes with them.

use super::request::CommitRequest;
use super::segment;
use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::log::Log;
use crate::log::wal::{Appender, LogLimit};
use crate::resources::memtable_selection::ActiveMemtable;
use perigee_base::{Bytes, Result, SeqNo};
use std::sync::Arc;

/// Records of prepared transactions are re-logged when the log from the oldest of them on is this
/// many times as large as the records.
pub const RELOG_RATIO: u64 = 4;

/// Seals the memtables that are full and those that retain too much log.
pub fn seal_full_memtables(
    log: &Log,
    appender: &mut Appender,
    group: &[CommitRequest],
) -> Result<()> {
    let mut full = Vec::new();
    // Loops: flattened iterators cost a small commit 2 % of its instructions.
    for request in group.iter().filter(|request| request.rejected.is_none()) {
        for batch in &request.family_batches {
            if batch.family().is_memtable_full() {
                full.push(Arc::clone(batch.family()));
            }
        }
    }
    let limit = log.resources.log_bytes_max();
    if appender.retention_check.is_due(Bytes(appender.logged_bytes), LogLimit(limit)) {
        full.extend(check_log_length(log, appender, limit));
    }
    full.extend(families_over_budget(&log.catalog));
    if full.is_empty() { Ok(()) } else { seal_memtables(log, appender, &full) }
}

/// Returns the column families to seal because all memtables together exceed their share of the
/// memory budget.
pub fn families_over_budget(catalog: &Catalog) -> Vec<Arc<FamilyState>> {
    if !catalog.resources.must_seal_memtables() {
        return Vec::new();
    }
    // Usage counted while others commit may be slightly off; in the commit section it is exact.
    catalog.refresh_load();
    if !catalog.resources.must_seal_memtables() {
        return Vec::new();
    }
    let all = catalog.families().all();
    let active = |f: &Arc<FamilyState>| {
        let m = f.tree.active();
        let bytes = if m.is_empty() { 0 } else { m.bytes() };
        ActiveMemtable { first_seq: m.first_seq(), bytes, shared_bytes: m.shared_batch_bytes() }
    };
    let sizes: Vec<_> = all.iter().map(active).collect();
    let seal = catalog.resources.pick_memtables_to_seal(&sizes);
    seal.into_iter().map(|i| Arc::clone(&all[i])).collect()
}

/// Checks a log that may be too long, and schedules the next check. Returns the column families to
/// seal.
fn check_log_length(log: &Log, appender: &mut Appender, limit: u64) -> Vec<Arc<FamilyState>> {
    let (missing, families) = families_pinning_log(log, appender, limit);
    let logged = Bytes(appender.logged_bytes);
    appender.retention_check.schedule_next(logged, LogLimit(limit), Bytes(missing));
    families
}

/// Returns the column families whose active memtable retains the oldest operations of a log that is
/// too long; if there is none, the bytes to be logged before there can be one. Log that only sealed
/// memtables retain does not count: their flush releases it, and sealing more would not speed that
/// up. Nor do prepared transactions: re-logged after the memtable's operations, they would cause it
/// to be sealed again.
fn families_pinning_log(
    log: &Log,
    appender: &mut Appender,
    limit: u64,
) -> (u64, Vec<Arc<FamilyState>>) {
    let total = appender.total_bytes();
    if total < limit {
        return (limit - total, Vec::new());
    }
    let first = |f: &Arc<FamilyState>| f.tree.view().active.first_seq();
    let all: Vec<_> =
        log.catalog.families().all().into_iter().filter(|f| first(f) != SeqNo::ZERO).collect();
    let Some(oldest) = all.iter().map(first).min() else {
        return (request_segment_drop(log, appender, limit), Vec::new());
    };
    let prepared = log.txns.prepared_txns().log_bytes(appender.segment_start_of(oldest));
    let kept = appender.bytes_from(oldest).saturating_sub(prepared);
    if kept < limit {
        return (limit - kept, Vec::new());
    }
    let end = appender.segment_end_of(oldest);
    (0, all.into_iter().filter(|f| first(f) < end).collect())
}

/// Requests that the flush thread drop log segments: all memtables are empty, so no flush will do
/// it (the log holds rolled-back transactions or dropped column families). Includes the newest
/// segment if it is large. Returns the bytes to be logged before the next request is worthwhile.
fn request_segment_drop(log: &Log, appender: &mut Appender, limit: u64) -> u64 {
    let enough =
        limit.max(log.txns.prepared_txns().log_bytes(SeqNo::ZERO).saturating_mul(RELOG_RATIO));
    let total = appender.total_bytes();
    if total < enough {
        return enough - total;
    }
    if appender.has_operations() && appender.writer.offset() >= limit / 2 {
        // Optional: a failure loses nothing, and the writer that needs the next segment gets the
        // error.
        let _ = segment::begin_segment(log, appender);
    }
    log.set_drop_requested(true);
    log.runtime.signal.notify();
    limit.saturating_sub(appender.writer.offset()).max(limit / 2)
}

/// Starts a new segment if the newest holds operations, then seals the memtables of the column
/// families.
pub fn seal_memtables(
    log: &Log,
    appender: &mut Appender,
    families: &[Arc<FamilyState>],
) -> Result<()> {
    if appender.has_operations() {
        segment::begin_segment(log, appender)?;
    }
    check!(
        !appender.has_operations(),
        "memtables are sealed at the beginning of a log segment",
        appender.first_lsn,
        appender.next_lsn
    );
    for f in families {
        check_slow!(
            f.tree.active().last_seq() < appender.first_lsn,
            "a sealed memtable ends before the newest log segment begins",
            f,
            appender.first_lsn
        );
        f.tree.seal_memtable();
        check_slow!(f.tree.active().is_empty(), "a sealed memtable is replaced by an empty one", f);
    }
    log.resources.reset_seal_check();
    log.catalog.refresh_load();
    log.runtime.signal.notify();
    Ok(())
}
