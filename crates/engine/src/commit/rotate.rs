//! Seals memtables and starts the log segment that goes with them.

use super::request::CommitRequest;
use super::segment;
use crate::core::EngineCore;
use crate::family::FamilyState;
use crate::memory_budget::{self, ActiveMemtable};
use crate::wal::{Appender, LogLimit};
use perigee_base::{Bytes, Result, SeqNo};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Records of prepared transactions are re-logged when the log from the oldest of them on is this
/// many times as large as the records.
pub const RELOG_RATIO: u64 = 4;

/// Seals the memtables that are full and those that retain too much log.
pub fn seal_full_memtables(
    core: &EngineCore,
    appender: &mut Appender,
    group: &[CommitRequest],
) -> Result<()> {
    let logged = group.iter().filter(|w| w.rejected.is_none());
    let writing = logged.flat_map(|w| &w.family_batches).map(|p| p.family());
    let mut full: Vec<Arc<FamilyState>> =
        writing.filter(|f| f.is_memtable_full()).cloned().collect();
    let limit = core.log_bytes_max.load(Relaxed);
    if appender.retention_check.is_due(Bytes(appender.logged_bytes), LogLimit(limit)) {
        full.extend(check_log_length(core, appender, limit));
    }
    full.extend(families_over_budget(core));
    if full.is_empty() { Ok(()) } else { seal_memtables(core, appender, &full) }
}

/// Returns the column families to seal because all memtables together exceed their share of the
/// memory budget.
pub fn families_over_budget(core: &EngineCore) -> Vec<Arc<FamilyState>> {
    if core.memory_budget.bytes_to_seal().is_none() {
        return Vec::new();
    }
    // Usage counted while others commit may be slightly off; in the commit section it is exact.
    core.refresh_load();
    let Some(excess) = core.memory_budget.bytes_to_seal() else { return Vec::new() };
    let all = core.families.all();
    let active = |f: &Arc<FamilyState>| {
        let m = f.tree.active();
        let bytes = if m.is_empty() { 0 } else { m.bytes() };
        ActiveMemtable { first_seq: m.first_seq(), bytes, shared_bytes: m.shared_batch_bytes() }
    };
    let sizes: Vec<_> = all.iter().map(active).collect();
    let seal = memory_budget::pick_memtables_to_seal(
        &sizes,
        core.memory_budget.memtable_usage(),
        excess,
        |bytes| core.shared_batches.oldest_seq_covering(bytes),
    );
    if seal.is_empty() {
        core.memory_budget.mark_nothing_to_seal();
    }
    seal.into_iter().map(|i| Arc::clone(&all[i])).collect()
}

/// Checks a log that may be too long, and schedules the next check. Returns the column families to
/// seal.
fn check_log_length(
    core: &EngineCore,
    appender: &mut Appender,
    limit: u64,
) -> Vec<Arc<FamilyState>> {
    let (missing, families) = families_pinning_log(core, appender, limit);
    let logged = Bytes(appender.logged_bytes);
    appender.retention_check.schedule_next(logged, LogLimit(limit), Bytes(missing));
    families
}

/// Returns the column families whose active memtable retains the oldest operations of a log that is
/// too long; if there is none, the bytes to be logged before there can be one. Log that only sealed
/// memtables retain does not count: their flush releases it, and sealing more would not speed that
/// up. Nor do prepared transactions: re-logged behind the memtable, they would cause it to be
/// sealed again.
fn families_pinning_log(
    core: &EngineCore,
    appender: &mut Appender,
    limit: u64,
) -> (u64, Vec<Arc<FamilyState>>) {
    let total = appender.total_bytes();
    if total < limit {
        return (limit - total, Vec::new());
    }
    let first = |f: &Arc<FamilyState>| f.tree.view().active.first_seq();
    let all: Vec<_> = core.families.all().into_iter().filter(|f| first(f) != SeqNo::ZERO).collect();
    let Some(oldest) = all.iter().map(first).min() else {
        return (request_segment_drop(core, appender, limit), Vec::new());
    };
    let prepared = core.prepared_txns.log_bytes(appender.segment_start_of(oldest));
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
fn request_segment_drop(core: &EngineCore, appender: &mut Appender, limit: u64) -> u64 {
    let enough = limit.max(core.prepared_txns.log_bytes(SeqNo::ZERO).saturating_mul(RELOG_RATIO));
    let total = appender.total_bytes();
    if total < enough {
        return enough - total;
    }
    if appender.has_operations() && appender.writer.offset() >= limit / 2 {
        // Optional: a failure loses nothing, and the writer that needs the next segment gets the
        // error.
        let _ = segment::begin_segment(core, appender);
    }
    core.wal.set_drop_requested(true);
    core.signal.notify();
    limit.saturating_sub(appender.writer.offset()).max(limit / 2)
}

/// Starts a new segment if the newest holds operations, then seals the memtables of the column
/// families.
pub fn seal_memtables(
    core: &EngineCore,
    appender: &mut Appender,
    families: &[Arc<FamilyState>],
) -> Result<()> {
    if appender.has_operations() {
        segment::begin_segment(core, appender)?;
    }
    for f in families {
        f.tree.seal_memtable();
    }
    core.memory_budget.clear_nothing_to_seal();
    core.refresh_load();
    core.signal.notify();
    Ok(())
}
