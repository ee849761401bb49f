//! Sealing memtables, and the new log segment that goes with it.

use super::segment;
use super::work::Work;
use crate::core::Core;
use crate::family::Family;
use crate::memory::{self, Active};
use crate::wal::Appender;
use perigee_base::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Records of prepared transactions are copied when the log from the oldest of them on is this many times as large as they are.
pub const CARRY_AT: u64 = 4;

/// Seals the memtables that are full, and those that keep too much log alive.
pub fn if_needed(core: &Core, appender: &mut Appender, group: &[Work]) -> Result<()> {
    let logged = group.iter().filter(|w| w.refused.is_none());
    let writing = logged.flat_map(|w| &w.parts).map(|p| p.family());
    let mut full: Vec<Arc<Family>> = writing.filter(|f| f.is_full()).cloned().collect();
    let limit = core.log_bytes_max.load(Relaxed);
    if appender.look.is_due(appender.logged, limit) {
        full.extend(too_long(core, appender, limit));
    }
    full.extend(over_budget(core));
    if full.is_empty() { Ok(()) } else { seal(core, appender, &full) }
}

/// The families to seal because all memtables together exceed their share of the memory budget.
pub fn over_budget(core: &Core) -> Vec<Arc<Family>> {
    if core.memory.excess().is_none() {
        return Vec::new();
    }
    // What is counted while others commit may be a little off; here nobody does.
    core.refresh_load();
    let Some(excess) = core.memory.excess() else { return Vec::new() };
    let all = core.families.all();
    let active = |f: &Arc<Family>| {
        let m = f.tree.active();
        let bytes = if m.is_empty() { 0 } else { m.bytes() };
        Active { first: m.first_seq().0, bytes, parts: m.part_bytes() }
    };
    let sizes: Vec<_> = all.iter().map(active).collect();
    let shared = core.memory.owners(0, (0, 0), 0).shared;
    let seal = memory::to_seal(&sizes, (core.memory.memtables().1, shared), excess, |bytes| {
        core.shared.oldest(bytes)
    });
    if seal.is_empty() {
        core.memory.was_barren();
    }
    seal.into_iter().map(|i| Arc::clone(&all[i])).collect()
}

/// What a log that may be too long asks for, and when to look again.
fn too_long(core: &Core, appender: &mut Appender, limit: u64) -> Vec<Arc<Family>> {
    let (missing, families) = pinning(core, appender, limit);
    appender.look.again(appender.logged, limit, missing);
    families
}

/// The families whose active memtable keeps the oldest operations of a log that has grown too long; if there is none, so many bytes
/// are missing until there may be one. What only sealed memtables keep does not count: it goes with their flush, and sealing
/// more would not make that sooner. Nor does what is undecided: copied behind the memtable, it would have it sealed again.
fn pinning(core: &Core, appender: &mut Appender, limit: u64) -> (u64, Vec<Arc<Family>>) {
    let total = appender.total_bytes();
    if total < limit {
        return (limit - total, Vec::new());
    }
    let first = |f: &Arc<Family>| f.tree.view().active.first_seq().0;
    let all: Vec<_> = core.families.all().into_iter().filter(|f| first(f) != 0).collect();
    let Some(oldest) = all.iter().map(first).min() else {
        return (drop_idle(core, appender, limit), Vec::new());
    };
    let undecided = core.prepared.log_bytes(appender.start_of_segment_with(oldest));
    let kept = appender.bytes_from(oldest).saturating_sub(undecided);
    if kept < limit {
        return (limit - kept, Vec::new());
    }
    let end = appender.end_of_segment_with(oldest);
    (0, all.into_iter().filter(|f| first(f) < end).collect())
}

/// Nothing is in memtables, so no flush will drop any of the log (of transactions that were rolled back, of families that are gone):
/// the flush thread is asked to, with what is in the newest segment, if it is much. Returns how many bytes must be logged before it
/// is worth asking again.
fn drop_idle(core: &Core, appender: &mut Appender, limit: u64) -> u64 {
    let enough = limit.max(core.prepared.log_bytes(0).saturating_mul(CARRY_AT));
    let total = appender.total_bytes();
    if total < enough {
        return enough - total;
    }
    if appender.has_operations() && appender.writer.offset() >= limit / 2 {
        // It was not needed: if it fails, nothing is lost, and whoever needs the next segment will hear why.
        let _ = segment::begin(core, appender);
    }
    core.wal.set_drop_due(true);
    core.signal.ring();
    limit.saturating_sub(appender.writer.offset()).max(limit / 2)
}

/// Starts a new segment if the newest holds operations, then seals the families' memtables.
pub fn seal(core: &Core, appender: &mut Appender, families: &[Arc<Family>]) -> Result<()> {
    if appender.has_operations() {
        segment::begin(core, appender)?;
    }
    for f in families {
        f.tree.seal();
    }
    core.memory.look_again();
    core.refresh_load();
    core.signal.ring();
    Ok(())
}
