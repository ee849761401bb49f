//! What the engine says about itself. Plain data, gathered without stopping anything.

use crate::control::Job;
use crate::core::Core;
use crate::events::Event;
use crate::family::Family;
use crate::recover;
use crate::stalls::Stall;
use perigee_base::Error;
use perigee_base::format::FileKind;
use perigee_base::io::{Cause, Moved};
use perigee_base::latency::{Operation, Summary};
use perigee_file::name;
use perigee_tree::{Table, Version};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Everything worth knowing.
#[derive(Clone, Debug)]
pub struct Status {
    /// Counters by name.
    pub counters: Vec<(&'static str, u64)>,
    /// Families.
    pub families: Vec<FamilyStatus>,
    /// The last visible operation.
    pub last_sequence: u64,
    /// Durable up to here.
    pub durable_sequence: u64,
    /// Bytes in the block cache, and its capacity.
    pub cache: (u64, u64),
    /// Blocks in it, and how many were dropped to make room.
    pub cache_blocks: (u64, u64),
    /// Bytes of resident indexes and filters.
    pub table_memory: u64,
    /// Memory by owner.
    pub memory: Vec<(&'static str, u64)>,
    /// Input and output by cause.
    pub io: Vec<(Cause, Moved)>,
    /// Latencies by operation.
    pub latency: Vec<(Operation, Summary)>,
    /// Why writers waited.
    pub stalls: Vec<(&'static str, Stall)>,
    /// Memory for everything together.
    pub memory_budget: u64,
    /// What the process has of memory, if that is known.
    pub resident_bytes: Option<u64>,
    /// Table files open now, and the limit.
    pub open_files: (usize, usize),
    /// Free space that is kept, and what there was at the last look.
    pub space: (u64, u64),
    /// Log segments and their bytes.
    pub wal: (usize, u64),
    /// Bytes of all files.
    pub disk_bytes: u64,
    /// Live snapshots.
    pub snapshots: usize,
    /// Jobs that are running, and for how many microseconds.
    pub running: Vec<(Arc<Job>, u64)>,
    /// The back-pressure, in words.
    pub pressure: &'static str,
    /// What recovery did.
    pub recovery: recover::Report,
    /// What went wrong in the background.
    pub background_error: Option<Error>,
    /// What the scrub found, one error for each file.
    pub scrub_errors: Vec<Error>,
}

/// One family.
#[derive(Clone, Debug)]
pub struct FamilyStatus {
    /// The family.
    pub family: Arc<Family>,
    /// Active memtable: bytes, entries.
    pub memtable: (u64, u64),
    /// Sealed memtables: how many, bytes.
    pub sealed: (usize, u64),
    /// Levels down to the deepest that holds anything: runs, files, bytes, entries, tombstones.
    pub levels: Vec<(usize, usize, u64, u64, u64)>,
    /// Value logs: files, bytes, referenced bytes.
    pub vlogs: (usize, u64, u64),
}

/// One table and where it stands.
#[derive(Clone, Debug)]
pub struct TableStatus {
    /// Name of the family.
    pub family: String,
    /// Level.
    pub level: u8,
    /// Run.
    pub run: u64,
    /// File name.
    pub file: String,
    /// The table.
    pub table: Arc<Table>,
}

/// The event of an open: what recovery did, and the options.
pub fn opened(core: &Core, r: &recover::Report) -> Event<'static> {
    let how = if r.clean { "clean" } else { "after a crash, or new" };
    let cut = if r.truncated_bytes > 0 {
        format!(", {} bytes cut ({})", r.truncated_bytes, r.reason)
    } else {
        String::new()
    };
    let recovery = format!(
        "{how}: sequence {}, {} operations replayed{cut}, {} orphans, {} us",
        r.recovered, r.replayed, r.orphans, r.elapsed_us
    );
    let families: Vec<String> =
        core.families.all().iter().map(|f| format!("{:?} {:?}", f.name(), f.settings())).collect();
    let s = &core.settings;
    let options = format!(
        "durability {:?}, block cache {} bytes, verify outputs {}, background rate {}; families: {}",
        s.durability,
        s.block_cache_bytes,
        s.verify_outputs,
        s.background_bytes_per_second,
        families.join("; ")
    );
    Event::Opened { recovery, options }
}

/// Gathers the status.
pub fn status(core: &Core, recovery: &recover::Report) -> Status {
    let families: Vec<FamilyStatus> = core.families.all().into_iter().map(family).collect();
    let data_bytes = data_bytes(core);
    let kept: u64 = core.manifest.look(|catalog| catalog.retained.iter().map(|s| s.bytes).sum());
    let wal = {
        let appender = core.wal.appender();
        (appender.older.len() + 1, appender.total_bytes())
    };
    Status {
        counters: core.counters.all(),
        disk_bytes: data_bytes + wal.1 + kept + core.manifest.bytes(),
        families,
        last_sequence: core.visible().0,
        durable_sequence: core.wal.durable(),
        cache_blocks: (core.shelf.cache().blocks(), core.shelf.cache().evictions()),
        memory: memory(core),
        io: core.counters.io.all(),
        latency: core.counters.latency.all(),
        stalls: core.stalls.all(),
        cache: (core.shelf.cache().used_bytes(), core.shelf.cache().capacity()),
        table_memory: core.shelf.resident_bytes(),
        memory_budget: core.memory.budget,
        resident_bytes: core.env.fs.resident_bytes(),
        open_files: (core.shelf.handles().count(), core.shelf.handles().limit()),
        space: core.space.status(),
        wal,
        snapshots: core.snapshots.count(),
        running: running(core),
        pressure: core.pressure().name(),
        recovery: recovery.clone(),
        background_error: core.health.background(),
        scrub_errors: core.scrub.errors(),
    }
}

/// Who holds how much memory, counted now.
fn memory(core: &Core) -> Vec<(&'static str, u64)> {
    core.refresh_load();
    core.owners().named()
}

/// Bytes of tables and value logs: what clones share counts once.
fn data_bytes(core: &Core) -> u64 {
    let (mut bytes, mut seen) = (0, BTreeSet::new());
    for f in core.families.all() {
        let view = f.tree.view();
        for (_, _, t) in view.version.tables().filter(|(_, _, t)| seen.insert(t.meta.id)) {
            bytes += t.meta.summary.bytes;
        }
        bytes +=
            view.version.vlogs.values().filter(|v| seen.insert(v.meta.id)).map(|v| v.meta.bytes).sum::<u64>();
    }
    bytes
}

fn running(core: &Core) -> Vec<(Arc<Job>, u64)> {
    let now = core.env.clock.monotonic_us();
    core.control.running().into_iter().map(|j| (Arc::clone(&j), now.saturating_sub(j.started_us))).collect()
}

fn family(family: Arc<Family>) -> FamilyStatus {
    let view = family.tree.view();
    let v = &view.version;
    let depth = v.deepest().map_or(0, |l| l.index() + 1);
    FamilyStatus {
        memtable: (view.active.bytes(), view.active.entries()),
        sealed: (view.sealed.len(), view.sealed.iter().map(|m| m.bytes()).sum()),
        levels: (0..depth).map(|l| level(v, l)).collect(),
        vlogs: (
            v.vlogs.len(),
            v.vlogs.values().map(|l| l.meta.bytes).sum(),
            v.vlog_references().values().sum(),
        ),
        family,
    }
}

fn level(v: &Version, level: usize) -> (usize, usize, u64, u64, u64) {
    let tables = || v.levels[level].iter().flat_map(|r| &r.tables).map(|t| &t.meta.summary);
    (
        v.levels[level].len(),
        tables().count(),
        tables().map(|s| s.bytes).sum(),
        tables().map(|s| s.entries).sum(),
        tables().map(|s| s.tombstones).sum(),
    )
}

/// Every table of every family.
pub fn tables(core: &Core) -> Vec<TableStatus> {
    let mut all = Vec::new();
    for f in core.families.all() {
        let view = f.tree.view();
        for (level, run, table) in view.version.tables() {
            all.push(TableStatus {
                family: f.name().to_string(),
                level: level.0,
                run: run.id.0,
                file: name::file_name(table.meta.id, FileKind::Klog),
                table: Arc::clone(table),
            });
        }
    }
    all
}
