//! Sealing memtables, and the new log segment that goes with it.

use super::request::CommitRequest;
use super::segment;
use crate::core::EngineCore;
use crate::family::FamilyState;
use crate::memory_budget::{self, ActiveMemtable};
use crate::wal::Appender;
use perigee_base::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Records of prepared transactions are copied when the log from the oldest of them on is this many
/// times as large as they are.
pub const RELOG_RATIO: u64 = 4;

/// Seals the memtables that are full, and those that keep too much log alive.
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
    if appender.retention_check.is_due(appender.logged_bytes, limit) {
        full.extend(check_log_length(core, appender, limit));
    }
    full.extend(families_over_budget(core));
    if full.is_empty() { Ok(()) } else { seal_memtables(core, appender, &full) }
}

/// The families to seal because all memtables together exceed their share of the memory budget.
pub fn families_over_budget(core: &EngineCore) -> Vec<Arc<FamilyState>> {
    if core.memory_budget.bytes_to_seal().is_none() {
        return Vec::new();
    }
    // What is counted while others commit may be a little off; here nobody does.
    core.refresh_load();
    let Some(excess) = core.memory_budget.bytes_to_seal() else { return Vec::new() };
    let all = core.families.all();
    let active = |f: &Arc<FamilyState>| {
        let m = f.tree.active();
        let bytes = if m.is_empty() { 0 } else { m.bytes() };
        ActiveMemtable { first_seq: m.first_seq().0, bytes, shared_bytes: m.shared_batch_bytes() }
    };
    let sizes: Vec<_> = all.iter().map(active).collect();
    let shared = core.memory_budget.usage(0, (0, 0), 0).shared;
    let seal = memory_budget::pick_memtables_to_seal(
        &sizes,
        (core.memory_budget.memtable_bytes().1, shared),
        excess,
        |bytes| core.shared_batches.oldest_seq_covering(bytes),
    );
    if seal.is_empty() {
        core.memory_budget.mark_nothing_to_seal();
    }
    seal.into_iter().map(|i| Arc::clone(&all[i])).collect()
}

/// What a log that may be too long asks for, and when to look again.
fn check_log_length(
    core: &EngineCore,
    appender: &mut Appender,
    limit: u64,
) -> Vec<Arc<FamilyState>> {
    let (missing, families) = families_pinning_log(core, appender, limit);
    appender.retention_check.schedule_next(appender.logged_bytes, limit, missing);
    families
}

/// The families whose active memtable keeps the oldest operations of a log that has grown too long;
/// if there is none, so many bytes are missing until there may be one. What only sealed memtables
/// keep does not count: it goes with their flush, and sealing more would not make that sooner. Nor
/// does what is undecided: copied behind the memtable, it would have it sealed again.
fn families_pinning_log(
    core: &EngineCore,
    appender: &mut Appender,
    limit: u64,
) -> (u64, Vec<Arc<FamilyState>>) {
    let total = appender.total_bytes();
    if total < limit {
        return (limit - total, Vec::new());
    }
    let first = |f: &Arc<FamilyState>| f.tree.view().active.first_seq().0;
    let all: Vec<_> = core.families.all().into_iter().filter(|f| first(f) != 0).collect();
    let Some(oldest) = all.iter().map(first).min() else {
        return (request_segment_drop(core, appender, limit), Vec::new());
    };
    let undecided = core.prepared_txns.log_bytes(appender.segment_start_of(oldest));
    let kept = appender.bytes_from(oldest).saturating_sub(undecided);
    if kept < limit {
        return (limit - kept, Vec::new());
    }
    let end = appender.segment_end_of(oldest);
    (0, all.into_iter().filter(|f| first(f) < end).collect())
}

/// Nothing is in memtables, so no flush will drop any of the log (of transactions that were rolled
/// back, of families that are gone): the flush thread is asked to, with what is in the newest
/// segment, if it is much. Returns how many bytes must be logged before it is worth asking again.
fn request_segment_drop(core: &EngineCore, appender: &mut Appender, limit: u64) -> u64 {
    let enough = limit.max(core.prepared_txns.log_bytes(0).saturating_mul(RELOG_RATIO));
    let total = appender.total_bytes();
    if total < enough {
        return enough - total;
    }
    if appender.has_operations() && appender.writer.offset() >= limit / 2 {
        // It was not needed: if it fails, nothing is lost, and whoever needs the next segment will
        // hear why.
        let _ = segment::begin_segment(core, appender);
    }
    core.wal.set_drop_requested(true);
    core.signal.notify();
    limit.saturating_sub(appender.writer.offset()).max(limit / 2)
}

/// Starts a new segment if the newest holds operations, then seals the families' memtables.
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
