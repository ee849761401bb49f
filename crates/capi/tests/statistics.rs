//! Every field of the statistics, as returned to a C program, in states where the expected value is
//! known.
// The tests use raw pointers, as a C program does.
#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks, unsafe_code)]

use std::ffi::{CString, c_int};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tidesdb::abi::*;
use tidesdb::database::*;
use tidesdb::families::*;
use tidesdb::maintenance::*;
use tidesdb::stats::*;
use tidesdb::txn::*;

struct TestDatabase {
    path: PathBuf,
    db: Handle,
}

impl TestDatabase {
    fn new(change: impl FnOnce(&mut Config)) -> TestDatabase {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("perigee-capi-figures-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        let mut opened = TestDatabase { path, db: null_mut() };
        opened.open(change);
        opened
    }
    fn open(&mut self, change: impl FnOnce(&mut Config)) {
        let path = CString::new(self.path.to_str().unwrap()).unwrap();
        let mut config = tidesdb_default_config();
        (config.db_path, config.log_level) = (path.as_ptr(), LOG_NONE);
        change(&mut config);
        assert_eq!(unsafe { tidesdb_open(&config, &mut self.db) }, 0);
    }
    fn reopen(&mut self) {
        assert_eq!(tidesdb_close(self.db), 0);
        self.open(|_| {});
    }
    fn family(&self, name: &str, change: impl FnOnce(&mut FamilyConfig)) -> Handle {
        let name = CString::new(name).unwrap();
        let mut config = tidesdb_default_column_family_config();
        change(&mut config);
        assert_eq!(unsafe { tidesdb_create_column_family(self.db, name.as_ptr(), &config) }, 0);
        self.find_family(name.to_str().unwrap())
    }
    fn find_family(&self, name: &str) -> Handle {
        let name = CString::new(name).unwrap();
        let cf = unsafe { tidesdb_get_column_family(self.db, name.as_ptr()) };
        assert!(!cf.is_null());
        cf
    }
    fn db_stats(&self) -> DbStats {
        let mut stats = std::mem::MaybeUninit::<DbStats>::uninit();
        assert_eq!(unsafe { tidesdb_get_db_stats(self.db, stats.as_mut_ptr()) }, 0);
        unsafe { stats.assume_init() }
    }
    fn cache(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        assert_eq!(unsafe { tidesdb_get_cache_stats(self.db, &mut stats) }, 0);
        stats
    }
    /// Puts each key in a separate transaction.
    fn put(&self, cf: Handle, keys: std::ops::Range<u32>, value: &[u8]) {
        for i in keys {
            self.commit(|txn| {
                let (key, n) = (i.to_be_bytes(), value.len());
                assert_eq!(
                    unsafe { tidesdb_txn_put(txn, cf, key.as_ptr(), 4, value.as_ptr(), n, -1) },
                    0
                );
            });
        }
    }
    fn delete(&self, cf: Handle, keys: std::ops::Range<u32>) {
        for i in keys {
            self.commit(|txn| {
                let key = i.to_be_bytes();
                assert_eq!(unsafe { tidesdb_txn_delete(txn, cf, key.as_ptr(), 4) }, 0);
            });
        }
    }
    fn begin(&self) -> Handle {
        let mut txn = null_mut();
        assert_eq!(unsafe { tidesdb_txn_begin(self.db, &mut txn) }, 0);
        txn
    }
    fn commit(&self, write: impl FnOnce(Handle)) {
        let txn = self.begin();
        write(txn);
        assert_eq!(tidesdb_txn_commit(txn), 0);
        tidesdb_txn_free(txn);
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let _ = tidesdb_close(self.db);
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Statistics of a column family, whose arrays are checked against each other.
struct FamilyStatsGuard(*mut FamilyStats);

impl std::ops::Deref for FamilyStatsGuard {
    type Target = FamilyStats;
    fn deref(&self) -> &FamilyStats {
        unsafe { &*self.0 }
    }
}

impl Drop for FamilyStatsGuard {
    fn drop(&mut self) {
        unsafe { tidesdb_free_stats(self.0) }
    }
}

fn family_stats(cf: Handle) -> FamilyStatsGuard {
    let mut stats = null_mut();
    assert_eq!(unsafe { tidesdb_get_stats(cf, &mut stats) }, 0);
    let s = FamilyStatsGuard(stats);
    let levels = usize::try_from(s.num_levels).unwrap();
    assert!(levels >= 1);
    let sizes = unsafe { std::slice::from_raw_parts(s.level_sizes, levels) };
    let tombstones = unsafe { std::slice::from_raw_parts(s.level_tombstone_counts, levels) };
    assert_eq!(sizes.iter().sum::<usize>() as u64, s.total_data_size);
    assert_eq!(tombstones.iter().sum::<u64>(), s.total_tombstones);
    assert_eq!(
        s.tombstone_ratio,
        if s.total_keys == 0 { 0.0 } else { s.total_tombstones as f64 / s.total_keys as f64 }
    );
    assert!(s.max_sst_density_level <= s.num_levels);
    for (i, size) in sizes.iter().enumerate() {
        assert_eq!(*size > 0, unsafe { *s.level_num_sstables.add(i) } > 0, "level {i}");
    }
    s
}

/// Returns the number of tables, and of keys in them.
fn tables_and_keys(s: &FamilyStatsGuard) -> (c_int, u64) {
    let levels = s.num_levels as usize;
    let files = unsafe { std::slice::from_raw_parts(s.level_num_sstables, levels) };
    let keys = unsafe { std::slice::from_raw_parts(s.level_key_counts, levels) };
    (files.iter().sum(), keys.iter().sum())
}

#[test]
fn family_stats_are_exact_through_flush_and_reopen() {
    let mut x = TestDatabase::new(|_| {});
    let cf = x.family("cf", |c| c.min_levels = 3);
    let s = family_stats(cf);
    assert_eq!(
        (s.total_keys, s.total_data_size, s.user_bytes_written, s.flush_count),
        (0, 0, 0, 0)
    );
    assert_eq!(
        (s.num_levels, s.read_amp, s.avg_key_size, s.max_sst_density_level),
        (3, 1.0, 0.0, 0)
    );
    let name = unsafe { std::ffi::CStr::from_ptr((*s.config).name.as_ptr()) };
    assert_eq!((name.to_str().unwrap(), unsafe { (*s.config).min_levels }), ("cf", 3));

    x.put(cf, 0..1000, &[7; 96]);
    let s = family_stats(cf);
    assert_eq!(
        (s.total_keys, s.user_bytes_written, s.memtable_size > 100_000),
        (1000, 100_000, true)
    );
    assert_eq!((s.avg_key_size, s.avg_value_size), (4.0, 96.0));
    assert!(
        s.wal_bytes_written > s.user_bytes_written && s.wal_bytes_written < 200_000,
        "{}",
        s.wal_bytes_written
    );
    assert_eq!((tables_and_keys(&s), s.flush_count, s.flush_bytes_written), ((0, 0), 0, 0));

    assert_eq!(tidesdb_flush_memtable(cf), 0);
    assert_eq!((tidesdb_is_flushing(cf), tidesdb_is_compacting(cf)), (0, 0));
    let s = family_stats(cf);
    assert_eq!(
        (s.total_keys, tables_and_keys(&s), s.flush_count, s.compaction_count),
        (1000, (1, 1000), 1, 0)
    );
    assert_eq!(
        (s.flush_bytes_written, s.total_tombstones, s.read_amp),
        (s.total_data_size, 0, 2.0)
    );
    assert_eq!(
        (s.avg_key_size, s.avg_value_size),
        (4.0, 96.0),
        "averages include entries in tables"
    );

    x.delete(cf, 0..100);
    let s = family_stats(cf);
    assert_eq!((s.total_keys, s.total_tombstones, s.user_bytes_written), (1100, 0, 100_400));
    assert_eq!(tidesdb_flush_memtable(cf), 0);
    let s = family_stats(cf);
    assert_eq!((s.total_keys, tables_and_keys(&s), s.total_tombstones), (1100, (2, 1100), 100));
    assert_eq!((s.max_sst_density, s.max_sst_density_level, s.read_amp), (1.0, 1, 3.0));
    let (flushed, data) = (s.flush_bytes_written, s.total_data_size);
    assert_eq!((flushed, s.flush_count), (data, 2));

    assert_eq!(tidesdb_compact(cf), 0);
    let s = family_stats(cf);
    assert_eq!((s.total_keys, tables_and_keys(&s), s.total_tombstones), (900, (1, 900), 0));
    assert_eq!(
        (s.compaction_count, s.compaction_bytes_read, s.compaction_bytes_written),
        (1, flushed, s.total_data_size)
    );
    assert_eq!((s.max_sst_density, s.max_sst_density_level, s.read_amp), (0.0, 0, 2.0));
    assert_eq!((s.flush_count, s.user_bytes_written), (2, 100_400), "unchanged");

    x.put(cf, 5000..5010, b"x");
    x.reopen();
    let s = family_stats(x.find_family("cf"));
    assert_eq!(
        (s.total_keys, s.user_bytes_written),
        (910, 0),
        "a close leaves all of it in tables: nothing is replayed"
    );
    assert_eq!(
        (s.flush_count, s.flush_bytes_written, s.compaction_count, s.compaction_bytes_read),
        (0, 0, 0, 0)
    );
    assert_eq!(tables_and_keys(&s), (2, 910));
}

#[test]
fn separated_values_count_in_level_of_their_table() {
    let x = TestDatabase::new(|_| {});
    let cf = x.family("cf", |c| c.compression_algorithm = COMPRESS_NONE);
    x.put(cf, 0..100, &[1; 5000]);
    assert_eq!(tidesdb_flush_memtable(cf), 0);
    let s = family_stats(cf);
    assert_eq!((s.avg_key_size, s.avg_value_size, tables_and_keys(&s)), (4.0, 5000.0, (1, 100)));
    assert!(
        s.total_data_size > 500_000 && s.flush_bytes_written == s.total_data_size,
        "{}",
        s.total_data_size
    );
    // Half of the value log is unreferenced now; it is counted nevertheless, at some level.
    x.put(cf, 0..50, b"small");
    assert_eq!((tidesdb_flush_memtable(cf), tidesdb_compact(cf)), (0, 0));
    let s = family_stats(cf);
    assert_eq!(tables_and_keys(&s).1, 100);
    assert!(s.total_data_size > 250_000, "{}", s.total_data_size);
    assert_eq!(s.total_data_size, x.db_stats().total_data_size_bytes);
}

#[test]
fn database_stats_are_sums_over_families() {
    let x = TestDatabase::new(|c| c.max_memory_usage = 1 << 30);
    let (a, b) = (x.family("a", |_| {}), x.family("b", |_| {}));
    let s = x.db_stats();
    assert_eq!((s.num_column_families, s.total_sstable_count, s.user_bytes_written), (2, 0, 0));
    assert_eq!((s.resolved_memory_limit, s.memory_pressure_level), (1 << 30, 0));
    assert!(
        s.total_memory > 1 << 20 && s.available_memory > 0 && s.available_memory <= s.total_memory
    );
    x.put(a, 0..1000, &[7; 96]);
    x.put(b, 0..10, &[7; 96]);
    let s = x.db_stats();
    assert_eq!((s.user_bytes_written, s.global_seq >= 1010), (101_000, true));
    let (of_a, of_b) = (family_stats(a), family_stats(b));
    assert_eq!(s.wal_bytes_written, of_a.wal_bytes_written + of_b.wal_bytes_written);
    assert!(of_a.wal_bytes_written > 99 * of_b.wal_bytes_written && s.wal_bytes_written > 101_000);
    assert_eq!(s.total_memtable_bytes as usize, of_a.memtable_size + of_b.memtable_size);
    assert_eq!(
        (s.unified_memtable_enabled, s.uwal_bytes_written, s.unified_memtable_bytes),
        (0, 0, 0)
    );
    assert_eq!(
        (s.unified_wal_generation, s.unified_next_cf_index, s.unified_is_flushing),
        (0, 0, 0)
    );
    assert_eq!((tidesdb_flush_memtable(a), tidesdb_flush_memtable(b)), (0, 0));
    x.put(a, 0..1000, &[8; 96]);
    assert_eq!((tidesdb_flush_memtable(a), tidesdb_compact(a)), (0, 0));
    // A flush continues for a moment after its table is installed.
    let quiet = (0..300_000).any(|_| {
        let quiet = x.db_stats().flush_pending_count == 0;
        if !quiet {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        quiet
    });
    assert!(quiet, "a flush runs for minutes");
    let (s, of_a, of_b) = (x.db_stats(), family_stats(a), family_stats(b));
    assert_eq!(
        (s.flush_count, s.compaction_count, s.total_sstable_count),
        (3, of_a.compaction_count, 2)
    );
    assert_eq!(s.flush_bytes_written, of_a.flush_bytes_written + of_b.flush_bytes_written);
    assert_eq!(s.total_data_size_bytes, of_a.total_data_size + of_b.total_data_size);
    assert_eq!(
        (s.compaction_bytes_read, s.compaction_bytes_written),
        (of_a.compaction_bytes_read, of_a.compaction_bytes_written)
    );
    assert_eq!((s.flush_pending_count, s.flush_queue_size, s.compaction_queue_size), (0, 0, 0));
    assert_eq!(
        (s.total_immutable_count, s.object_store_enabled, s.object_store_connector),
        (0, 0, null())
    );
    assert!(s.num_open_sstables >= 0);

    // Open transactions use memory.
    let txn = x.begin();
    assert_eq!(x.db_stats().txn_memory_bytes, 0);
    let value = vec![1u8; 1 << 20];
    assert_eq!(
        unsafe { tidesdb_txn_put(txn, a, b"k".as_ptr(), 1, value.as_ptr(), value.len(), -1) },
        0
    );
    assert!(
        (1 << 20..2 << 20).contains(&x.db_stats().txn_memory_bytes),
        "{}",
        x.db_stats().txn_memory_bytes
    );
    tidesdb_txn_free(txn);
    assert_eq!(x.db_stats().txn_memory_bytes, 0);
}

#[test]
fn unified_memtable_stats_are_reported() {
    let x = TestDatabase::new(|c| c.unified_memtable = 1);
    let (a, b) = (x.family("a", |_| {}), x.family("b", |_| {}));
    x.put(a, 0..1000, &[7; 96]);
    x.put(b, 0..10, &[7; 96]);
    let s = x.db_stats();
    assert_eq!(
        (s.unified_memtable_enabled, s.wal_bytes_written, family_stats(a).wal_bytes_written),
        (1, 0, 0)
    );
    assert!(s.uwal_bytes_written > 101_000 && s.unified_memtable_bytes > 101_000);
    assert_eq!(s.total_memtable_bytes, s.unified_memtable_bytes, "there are no sealed memtables");
    assert_eq!((s.unified_immutable_count, s.unified_is_flushing), (0, 0));
    assert!(s.unified_next_cf_index >= 2 && s.unified_wal_generation > 0);
    assert_eq!(s.user_bytes_written, 101_000);
}

#[test]
fn btree_and_cache_stats_are_reported() {
    let x = TestDatabase::new(|_| {});
    let cf = x.family("tree", |c| (c.use_btree, c.compression_algorithm) = (1, COMPRESS_NONE));
    assert_eq!(
        (
            family_stats(cf).use_btree,
            family_stats(cf).btree_total_nodes,
            family_stats(cf).btree_max_height
        ),
        (1, 0, 0)
    );
    x.put(cf, 0..2000, &[7; 96]);
    assert_eq!(tidesdb_flush_memtable(cf), 0);
    let s = family_stats(cf);
    assert!(
        s.btree_total_nodes > 20 && s.btree_max_height == 2 && s.btree_avg_height == 2.0,
        "{}",
        s.btree_total_nodes
    );

    let empty = x.cache();
    assert_eq!((empty.enabled, empty.num_partitions >= 1, empty.total_entries), (1, true, 0));
    let get = |i: u32| {
        let (txn, key) = (x.begin(), i.to_be_bytes());
        let (mut value, mut n) = (null_mut(), 0);
        assert_eq!(unsafe { tidesdb_txn_get(txn, cf, key.as_ptr(), 4, &mut value, &mut n) }, 0);
        assert_eq!(n, 96);
        unsafe { tidesdb_free(value.cast()) };
        tidesdb_txn_free(txn);
    };
    (0..3).for_each(|_| (0..2000).step_by(50).for_each(get));
    let full = x.cache();
    assert!(full.total_entries > 0 && full.total_bytes > 0 && full.hits > 0 && full.misses > 0);
    assert_eq!(full.hit_rate, full.hits as f64 / (full.hits + full.misses) as f64);
    assert_eq!(family_stats(cf).hit_rate, full.hit_rate);

    let none = TestDatabase::new(|c| c.block_cache_size = 0);
    let s = none.cache();
    assert_eq!((s.enabled, s.total_entries, s.hits + s.misses, s.num_partitions), (0, 0, 0, 0));
}

#[test]
fn stats_refuse_invalid_arguments() {
    let x = TestDatabase::new(|_| {});
    let cf = x.family("cf", |_| {});
    let mut stats = null_mut();
    unsafe {
        assert!(tidesdb_get_stats(null_mut(), &mut stats) < 0 && stats.is_null());
        assert!(tidesdb_get_stats(cf, null_mut()) < 0);
        assert!(tidesdb_get_db_stats(x.db, null_mut()) < 0);
        assert!(tidesdb_get_cache_stats(x.db, null_mut()) < 0);
        tidesdb_free_stats(null_mut());
    }
    assert_eq!((tidesdb_is_flushing(null_mut()), tidesdb_is_compacting(null_mut())), (0, 0));
    let name = CString::new("cf").unwrap();
    assert_eq!(unsafe { tidesdb_drop_column_family(x.db, name.as_ptr()) }, 0);
    assert!(unsafe { tidesdb_get_stats(cf, &mut stats) } < 0);
    assert_eq!((tidesdb_is_flushing(cf), tidesdb_is_compacting(cf)), (0, 0));
    assert_eq!(x.db_stats().num_column_families, 0);
}
