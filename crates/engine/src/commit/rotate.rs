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

/// Seals the memtables that are full, and those that keep too much log alive.
pub fn if_needed(core: &Core, appender: &mut Appender, group: &[Work]) -> Result<()> {
    let logged = group.iter().filter(|w| w.refused.is_none());
    let writing = logged.flat_map(|w| &w.parts).map(|p| p.family());
    let mut full: Vec<Arc<Family>> = writing.filter(|f| f.is_full()).cloned().collect();
    full.extend(pinning(core, appender));
    full.extend(over_budget(core));
    if full.is_empty() { Ok(()) } else { seal(core, appender, &full) }
}

/// The families to seal because all memtables together exceed their share of the memory budget.
fn over_budget(core: &Core) -> Vec<Arc<Family>> {
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

/// The families whose active memtable keeps the oldest operations of a log that has grown too long. What only sealed
/// memtables keep does not count: it goes with their flush, and sealing more would not make that sooner.
fn pinning(core: &Core, appender: &Appender) -> Vec<Arc<Family>> {
    let limit = core.log_bytes_max.load(Relaxed);
    if appender.total_bytes() < limit {
        return Vec::new();
    }
    let first = |f: &Arc<Family>| f.tree.view().active.first_seq().0;
    let all: Vec<_> = core.families.all().into_iter().filter(|f| first(f) != 0).collect();
    let Some(oldest) = all.iter().map(first).min() else { return Vec::new() };
    if appender.bytes_from(oldest) < limit {
        return Vec::new();
    }
    let end = appender.end_of_segment_with(oldest);
    all.into_iter().filter(|f| first(f) < end).collect()
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
