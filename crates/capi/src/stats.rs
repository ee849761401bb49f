//! Statistics of databases, column families and the cache, in TidesDB's format.
//!
//! TidesDB numbers levels from 1, newest first, this engine from 0: TidesDB's level 1 is this
//! engine's level 0. TidesDB has a log per column family or, if configured, one for all; this
//! engine always has one: in the first case a column family reports its share.

use crate::abi::{CacheStats, DbStats, FamilyConfig, FamilyStats, Handle};
use crate::alloc;
use crate::code::Result;
use crate::ffi::{call, out_param};
use crate::state::{Database, Family, database, family};
use perigee::stats::LevelStats;
use std::collections::HashSet;
use std::ffi::{c_double, c_int, c_void};
use std::ptr::null;
use std::sync::Arc;

/// Maximum number of levels in statistics, whatever the settings request.
const LEVELS_MAX: usize = 64;

fn ratio(part: u64, whole: u64) -> c_double {
    if whole == 0 { 0.0 } else { part as c_double / whole as c_double }
}

/// Returns the levels in TidesDB's numbering, newest first, each with its files: at least as many
/// as the engine uses and as the settings request. Their sums are the tables and value logs of the
/// column family.
fn c_levels(own: &perigee::stats::FamilyStats, least: c_int) -> Vec<LevelStats> {
    let deepest = own.levels.iter().filter(|l| l.files > 0).map(|l| usize::from(l.level) + 1).max();
    let least = usize::try_from(least).unwrap_or(1).clamp(1, LEVELS_MAX);
    let count = deepest.unwrap_or(0).max(least);
    let mut all = vec![LevelStats::default(); count];
    for l in own.levels.iter().filter(|l| usize::from(l.level) < count) {
        all[usize::from(l.level)] = l.clone();
        // A value is counted at the table that refers to it.
        all[usize::from(l.level)].bytes += l.separated_bytes;
    }
    // Unreferenced values are in the logs of the oldest tables.
    let loose = own.vlogs.bytes.saturating_sub(own.levels.iter().map(|l| l.separated_bytes).sum());
    all[deepest.unwrap_or(1) - 1].bytes += loose;
    all
}

/// Returns the highest fraction of tombstones of any table, and the level of that table in
/// TidesDB's numbering; (0, 0) without tombstones.
fn densest_table(files: &[perigee::stats::FileStats]) -> (c_double, c_int) {
    let density =
        |f: &perigee::stats::FileStats| (ratio(f.tombstones, f.entries), c_int::from(f.level) + 1);
    let worst = files.iter().filter(|f| f.tombstones > 0).map(density);
    worst.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 0))
}

/// Returns a column family's share of the log bytes: the log is shared, so the share follows from
/// the bytes written to the family. 0 if the program configured one memtable and one log for all.
fn log_share(db: &Arc<Database>, mine: u64) -> Result<u64> {
    if db.unified_memtable_bytes.is_some() {
        return Ok(0);
    }
    let counters = db.engine()?.admin().counters();
    let of = |name: &str| counters.iter().find(|c| c.name == name).map_or(0, |c| c.value);
    let all: u64 = db.all_families().iter().map(|f| f.inner.user_bytes_written()).sum();
    let all = all.max(of("user_bytes_written")).max(1);
    let share = u128::from(of("wal_bytes_written")) * u128::from(mine) / u128::from(all);
    Ok(u64::try_from(share).unwrap_or(u64::MAX))
}

/// One block of memory: the statistics, followed by the arrays they point to, widest elements
/// first.
#[repr(C)]
struct StatsBlock {
    stats: FamilyStats,
    config: FamilyConfig,
}

/// An allocated block with arrays for `levels` levels behind it.
struct StatsBuffer {
    block: *mut c_void,
    levels: usize,
}

impl StatsBuffer {
    fn new(levels: usize) -> Result<StatsBuffer> {
        let bytes = size_of::<StatsBlock>() + levels * (3 * size_of::<u64>() + size_of::<c_int>());
        let block = alloc::allocate(bytes)?;
        // SAFETY: newly allocated memory. It is zeroed first, and zero is valid for every field and
        // element.
        unsafe { std::ptr::write_bytes(block.cast::<u8>(), 0, bytes) };
        Ok(StatsBuffer { block, levels })
    }
    /// Returns array number `i`; all arrays but the last have 8-byte elements. Aligned, because the
    /// header's size is a multiple of 8.
    fn array_ptr<T>(&self, i: usize) -> *mut T {
        self.block
            .wrapping_byte_add(size_of::<StatsBlock>() + i * self.levels * size_of::<u64>())
            .cast()
    }
    /// Fills an array, up to its capacity.
    fn fill_array<T>(&self, i: usize, items: impl Iterator<Item = T>) -> *mut T {
        let array = self.array_ptr::<T>(i);
        for (n, item) in items.take(self.levels).enumerate() {
            // SAFETY: inside the block.
            unsafe { array.add(n).write(item) };
        }
        array
    }
}

fn fill_family_stats(cf: &Family, place: &mut *mut FamilyStats) -> Result<()> {
    let engine = cf.database.engine()?;
    let (own, files, cache) = (cf.inner.stats()?, cf.inner.files()?, engine.admin().cache_stats());
    let config = cf.config();
    let levels = c_levels(&own, config.min_levels);
    let raw = own.raw_bytes();
    let (total_keys, tombstones) = (own.entries(), levels.iter().map(|l| l.tombstones).sum());
    let (density, density_level) = densest_table(&files);
    let tree =
        if config.use_btree != 0 { BTreeStats::from_family(&own) } else { BTreeStats::default() };
    let wal_bytes_written = log_share(&cf.database, own.user_bytes_written)?;
    let buffer = StatsBuffer::new(levels.len())?;
    let stats = FamilyStats {
        num_levels: levels.len() as c_int,
        memtable_size: (own.memtable.bytes + own.immutable_memtables.bytes) as usize,
        level_sizes: buffer.fill_array(0, levels.iter().map(|l| l.bytes as usize)),
        level_key_counts: buffer.fill_array(1, levels.iter().map(|l| l.entries)),
        level_tombstone_counts: buffer.fill_array(2, levels.iter().map(|l| l.tombstones)),
        level_num_sstables: buffer.fill_array(3, levels.iter().map(|l| l.files as c_int)),
        config: buffer.block.wrapping_byte_add(std::mem::offset_of!(StatsBlock, config)).cast(),
        total_keys,
        total_data_size: levels.iter().map(|l| l.bytes).sum(),
        avg_key_size: ratio(raw.keys, total_keys),
        avg_value_size: ratio(raw.values, total_keys),
        // One read per memtable and per sorted run.
        read_amp: (1 + own.immutable_memtables.count + levels.iter().map(|l| l.runs).sum::<usize>())
            as c_double,
        hit_rate: ratio(cache.hits, cache.hits + cache.misses),
        use_btree: config.use_btree,
        btree_total_nodes: tree.nodes,
        btree_max_height: tree.height,
        btree_avg_height: tree.mean,
        total_tombstones: tombstones,
        tombstone_ratio: ratio(tombstones, total_keys),
        max_sst_density: density,
        max_sst_density_level: density_level,
        wal_bytes_written,
        flush_bytes_written: own.flush_bytes_written,
        compaction_bytes_written: own.compaction_bytes_written,
        compaction_bytes_read: own.compaction_bytes_read,
        user_bytes_written: own.user_bytes_written,
        flush_count: own.flush_tables,
        compaction_count: own.compaction_tables,
    };
    // SAFETY: the block begins with space for it.
    unsafe { buffer.block.cast::<StatsBlock>().write(StatsBlock { stats, config }) };
    *place = buffer.block.cast();
    Ok(())
}

/// Tables described as B+trees, for a program that requested them: each is an index over blocks,
/// two levels.
#[derive(Default)]
struct BTreeStats {
    nodes: u64,
    height: u32,
    mean: c_double,
}

impl BTreeStats {
    fn from_family(own: &perigee::stats::FamilyStats) -> BTreeStats {
        let tables: u64 = own.levels.iter().map(|l| l.files as u64).sum();
        let blocks: u64 = own.levels.iter().map(|l| l.blocks).sum();
        let height = if tables > 0 { 2 } else { 0 };
        BTreeStats { nodes: blocks + tables, height, mean: f64::from(height) }
    }
}

/// Returns the statistics of a column family, to be freed with `tidesdb_free_stats`.
///
/// # Safety
/// `stats` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_get_stats(cf: Handle, stats: *mut *mut FamilyStats) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out_param(stats) }?;
        *place = std::ptr::null_mut();
        fill_family_stats(&*family(cf)?, place)
    })
}

/// Frees the result of `tidesdb_get_stats`.
///
/// # Safety
/// `stats` is null, or was returned by `tidesdb_get_stats` and not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_free_stats(stats: *mut FamilyStats) {
    // SAFETY: guaranteed by the caller; it is a single allocation.
    unsafe { alloc::release(stats.cast::<c_void>()) }
}

/// Sums over the column families visible to C.
#[derive(Default)]
struct FamilyTotals {
    memtables: u64,
    active: u64,
    sealed: usize,
    full: usize,
    tables: usize,
    data: u64,
    wal: u64,
    flush_bytes: u64,
    compaction_written: u64,
    compaction_read: u64,
    user: u64,
    flushed: u64,
    compacted: u64,
}

impl FamilyTotals {
    fn collect(db: &Arc<Database>, stats: &perigee::stats::Stats) -> Result<FamilyTotals> {
        let mut sum = FamilyTotals::default();
        let seen: HashSet<u32> = db.all_families().iter().map(|f| f.inner.id()).collect();
        for f in stats.families.iter().filter(|f| seen.contains(&f.id)) {
            sum.memtables += f.memtable.bytes + f.immutable_memtables.bytes;
            sum.sealed += f.immutable_memtables.count;
            // A full memtable accepts no further writes: the next commit seals it first.
            if db.unified_memtable_bytes.is_some_and(|most| f.memtable.bytes >= most as u64) {
                sum.full += 1;
            } else {
                sum.active += f.memtable.bytes;
            }
            sum.tables += f.levels.iter().map(|l| l.files).sum::<usize>();
            sum.data += f.levels.iter().map(|l| l.bytes).sum::<u64>() + f.vlogs.bytes;
            sum.wal += log_share(db, f.user_bytes_written)?;
            sum.flush_bytes += f.flush_bytes_written;
            sum.compaction_written += f.compaction_bytes_written;
            sum.compaction_read += f.compaction_bytes_read;
            sum.user += f.user_bytes_written;
            sum.flushed += f.flush_tables;
            sum.compacted += f.compaction_tables;
        }
        Ok(sum)
    }
}

fn database_stats(db: &Arc<Database>) -> Result<DbStats> {
    let stats = db.engine()?.admin().stats();
    let families = db.all_families();
    let all = FamilyTotals::collect(db, &stats)?;
    let log = stats.counter("wal_bytes_written").unwrap_or(0);
    let (unified, work) = (db.unified_memtable_bytes.is_some(), &stats.background);
    let if_unified = |n: u64| if unified { n } else { 0 };
    let flushing = all.sealed.max(work.flushes_running);
    Ok(DbStats {
        num_column_families: families.len() as c_int,
        total_memory: db.machine_memory.0,
        available_memory: db.machine_memory.1,
        resolved_memory_limit: stats.memory_budget as usize,
        memory_pressure_level: c_int::from(stats.memory_pressure),
        flush_pending_count: flushing as c_int,
        total_memtable_bytes: all.memtables as i64,
        total_immutable_count: all.sealed as c_int,
        total_sstable_count: all.tables as c_int,
        total_data_size_bytes: all.data,
        num_open_sstables: stats.open_files.open as c_int,
        global_seq: stats.last_sequence,
        txn_memory_bytes: stats.transactions.bytes as i64,
        compaction_queue_size: work.compactions_due,
        flush_queue_size: all.sealed.saturating_sub(work.flushes_running),
        unified_memtable_enabled: c_int::from(unified),
        unified_memtable_bytes: if_unified(all.active) as i64,
        unified_immutable_count: if_unified((all.sealed + all.full) as u64) as c_int,
        unified_is_flushing: c_int::from(unified && flushing > 0),
        unified_next_cf_index: if_unified(
            families.iter().map(|f| f.inner.id() + 1).max().unwrap_or(0).into(),
        ) as u32,
        unified_wal_generation: if_unified(stats.wal.newest_segment),
        object_store_enabled: 0,
        object_store_connector: null(),
        local_cache_bytes_used: 0,
        local_cache_bytes_max: 0,
        local_cache_num_files: 0,
        last_uploaded_generation: 0,
        upload_queue_depth: 0,
        total_uploads: 0,
        total_upload_failures: 0,
        replica_mode: 0,
        primary_epoch: 0,
        seen_epoch: 0,
        uwal_bytes_written: if_unified(log),
        wal_bytes_written: all.wal,
        flush_bytes_written: all.flush_bytes,
        compaction_bytes_written: all.compaction_written,
        compaction_bytes_read: all.compaction_read,
        user_bytes_written: all.user,
        flush_count: all.flushed,
        compaction_count: all.compacted,
    })
}

/// Returns the statistics of a database.
///
/// # Safety
/// `stats` is null or valid for writing the structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_get_db_stats(db: Handle, stats: *mut DbStats) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out_param(stats) }?;
        *place = database_stats(&db)?;
        Ok(())
    })
}

/// Returns the statistics of the block cache.
///
/// # Safety
/// `stats` is null or valid for writing the structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_get_cache_stats(db: Handle, stats: *mut CacheStats) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out_param(stats) }?;
        let cache = db.engine()?.admin().cache_stats();
        *place = CacheStats::default();
        if db.has_block_cache {
            *place = CacheStats {
                enabled: 1,
                total_entries: cache.blocks as usize,
                total_bytes: cache.used as usize,
                hits: cache.hits,
                misses: cache.misses,
                hit_rate: ratio(cache.hits, cache.hits + cache.misses),
                num_partitions: cache.shards,
            };
        }
        Ok(())
    })
}
