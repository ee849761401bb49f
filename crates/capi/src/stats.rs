//! What databases, families and the cache say of themselves, in TidesDB's words.
//!
//! TidesDB's levels count from 1, newest first; ours from 0: its level 1 is our level 0.

use crate::abi::{CacheStats, DbStats, FamilyConfig, FamilyStats, Handle};
use crate::alloc;
use crate::border::{call, out};
use crate::code::Result;
use crate::state::{Database, Family, database, family};
use std::ffi::{c_double, c_int, c_void};
use std::ptr::null;
use std::sync::Arc;

fn ratio(part: u64, whole: u64) -> c_double {
    if whole == 0 { 0.0 } else { part as c_double / whole as c_double }
}

fn counter(stats: &perigee::Stats, name: &str) -> u64 {
    stats.counters.iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n)
}

/// One block of memory: the statistics, and behind them what their pointers point to, the widest first.
#[repr(C)]
struct Block {
    stats: FamilyStats,
    config: FamilyConfig,
}

fn fill(cf: &Family, place: &mut *mut FamilyStats) -> Result<()> {
    let engine = cf.database.engine()?;
    let (stats, name) = (engine.stats(), cf.inner.name());
    let own = stats.families.iter().find(|f| f.name == name);
    let own = own.ok_or_else(|| crate::code::NOT_FOUND.because("the column family was dropped"))?;
    let levels =
        own.levels.iter().filter(|l| l.files > 0).map(|l| usize::from(l.level) + 1).max().unwrap_or(1);
    let at = |n: usize| own.levels.iter().filter(move |l| usize::from(l.level) == n);
    let (head, wide) = (size_of::<Block>(), size_of::<u64>());
    let bytes = head + levels * (3 * wide + size_of::<c_int>());
    let block = alloc::take(bytes)?;
    // SAFETY: fresh memory; all of it is zero until it is written, which every field and element may be.
    unsafe { std::ptr::write_bytes(block.cast::<u8>(), 0, bytes) };
    let array = |i: usize| block.wrapping_byte_add(head + i * levels * wide);
    let (sizes, keys, tombs, files) =
        (array(0).cast::<usize>(), array(1).cast::<u64>(), array(2).cast::<u64>(), array(3).cast::<c_int>());
    for n in 0..levels {
        // SAFETY: inside the block, whose arrays are aligned because the head is a multiple of eight bytes.
        unsafe {
            sizes.add(n).write(at(n).map(|l| l.bytes).sum::<u64>() as usize);
            keys.add(n).write(at(n).map(|l| l.entries).sum());
            tombs.add(n).write(at(n).map(|l| l.tombstones).sum());
            files.add(n).write(at(n).map(|l| l.files).sum::<usize>() as c_int);
        }
    }
    let stored: u64 = own.levels.iter().map(|l| l.entries).sum();
    let total_keys = stored + own.memtable.1;
    let tombstones: u64 = own.levels.iter().map(|l| l.tombstones).sum();
    let densest = engine
        .files()
        .into_iter()
        .filter(|f| f.family == name && f.entries > 0)
        .map(|f| (ratio(f.tombstones, f.entries), c_int::from(f.level) + 1))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap_or((0.0, 0));
    let whole = Block {
        stats: FamilyStats {
            num_levels: levels as c_int,
            memtable_size: (own.memtable.0 + own.sealed.1) as usize,
            level_sizes: sizes,
            level_num_sstables: files,
            config: block.wrapping_byte_add(std::mem::offset_of!(Block, config)).cast(),
            total_keys,
            total_data_size: own.levels.iter().map(|l| l.bytes).sum::<u64>() + own.vlogs.1,
            avg_key_size: 0.0,
            avg_value_size: 0.0,
            level_key_counts: keys,
            read_amp: own.levels.iter().map(|l| l.runs).sum::<usize>() as c_double,
            hit_rate: ratio(stats.cache.hits, stats.cache.hits + stats.cache.misses),
            use_btree: cf.config().use_btree,
            btree_total_nodes: 0,
            btree_max_height: 0,
            btree_avg_height: 0.0,
            total_tombstones: tombstones,
            tombstone_ratio: ratio(tombstones, stored),
            level_tombstone_counts: tombs,
            max_sst_density: densest.0,
            max_sst_density_level: densest.1,
            wal_bytes_written: 0,
            flush_bytes_written: 0,
            compaction_bytes_written: 0,
            compaction_bytes_read: 0,
            user_bytes_written: 0,
            flush_count: 0,
            compaction_count: 0,
        },
        config: cf.config(),
    };
    // SAFETY: the block begins with room for it.
    unsafe { block.cast::<Block>().write(whole) };
    *place = block.cast();
    Ok(())
}

/// What a family says of itself, to be given back with `tidesdb_free_stats`.
///
/// # Safety
/// `stats` is null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_get_stats(cf: Handle, stats: *mut *mut FamilyStats) -> c_int {
    call(|| {
        // SAFETY: says the caller.
        let place = unsafe { out(stats) }?;
        *place = std::ptr::null_mut();
        fill(&*family(cf)?, place)
    })
}

/// Gives back what `tidesdb_get_stats` gave.
///
/// # Safety
/// `stats` is null, or was given and not given back yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_free_stats(stats: *mut FamilyStats) {
    // SAFETY: says the caller; all of it is one block.
    unsafe { alloc::give_back(stats.cast::<c_void>()) }
}

fn system_memory() -> (u64, u64) {
    // SAFETY: questions without arguments.
    let [pages, free, size] = [libc::_SC_PHYS_PAGES, libc::_SC_AVPHYS_PAGES, libc::_SC_PAGESIZE]
        .map(|q| unsafe { libc::sysconf(q) });
    let of = |n: i64| u64::try_from(n).unwrap_or(0) * u64::try_from(size).unwrap_or(0);
    (of(pages), of(free))
}

fn whole(db: &Arc<Database>) -> Result<DbStats> {
    let engine = db.engine()?;
    let stats = engine.stats();
    let families = db.all();
    let memory = system_memory();
    let held: u64 = stats.memory.iter().map(|(_, n)| n).sum();
    let running = |kind| stats.running.iter().filter(|j| j.kind == kind).count();
    let sealed: usize = stats.families.iter().map(|f| f.sealed.0).sum();
    let memtables: u64 = stats.families.iter().map(|f| f.memtable.0 + f.sealed.1).sum();
    let active: u64 = stats.families.iter().map(|f| f.memtable.0).sum();
    let tables: usize = stats.families.iter().flat_map(|f| &f.levels).map(|l| l.files).sum();
    let pressure = match held * 100 / stats.memory_budget.max(1) {
        0..70 => 0,
        70..90 => 1,
        90..100 => 2,
        _ => 3,
    };
    Ok(DbStats {
        num_column_families: families.len() as c_int,
        total_memory: memory.0,
        available_memory: memory.1,
        resolved_memory_limit: stats.memory_budget as usize,
        memory_pressure_level: pressure,
        flush_pending_count: (sealed + running("flush")) as c_int,
        total_memtable_bytes: memtables as i64,
        total_immutable_count: sealed as c_int,
        total_sstable_count: tables as c_int,
        total_data_size_bytes: stats
            .families
            .iter()
            .map(|f| f.levels.iter().map(|l| l.bytes).sum::<u64>() + f.vlogs.1)
            .sum(),
        num_open_sstables: stats.open_files.0 as c_int,
        global_seq: stats.last_sequence,
        txn_memory_bytes: 0,
        compaction_queue_size: running("compaction"),
        flush_queue_size: sealed,
        unified_memtable_enabled: c_int::from(db.unified.is_some()),
        unified_memtable_bytes: if db.unified.is_some() { active as i64 } else { 0 },
        unified_immutable_count: if db.unified.is_some() { sealed as c_int } else { 0 },
        unified_is_flushing: c_int::from(db.unified.is_some() && running("flush") > 0),
        unified_next_cf_index: families.iter().map(|f| f.inner.id() + 1).max().unwrap_or(0),
        unified_wal_generation: stats.wal.0 as u64,
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
        uwal_bytes_written: counter(&stats, "wal_bytes_written"),
        wal_bytes_written: 0,
        flush_bytes_written: 0,
        compaction_bytes_written: 0,
        compaction_bytes_read: 0,
        user_bytes_written: 0,
        flush_count: 0,
        compaction_count: 0,
    })
}

/// What a database says of itself.
///
/// # Safety
/// `stats` is null or a place for the structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_get_db_stats(db: Handle, stats: *mut DbStats) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        let place = unsafe { out(stats) }?;
        *place = whole(&db)?;
        Ok(())
    })
}

/// What the block cache says of itself.
///
/// # Safety
/// `stats` is null or a place for the structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidesdb_get_cache_stats(db: Handle, stats: *mut CacheStats) -> c_int {
    call(|| {
        let db = database(db)?;
        // SAFETY: says the caller.
        let place = unsafe { out(stats) }?;
        let cache = db.engine()?.stats().cache;
        *place = CacheStats {
            enabled: c_int::from(db.cached),
            total_entries: cache.blocks as usize,
            total_bytes: cache.used as usize,
            hits: cache.hits,
            misses: cache.misses,
            hit_rate: ratio(cache.hits, cache.hits + cache.misses),
            num_partitions: 1,
        };
        Ok(())
    })
}
