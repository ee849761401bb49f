//! Estimates on known data are as close as documented.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Compression, Db, Durability, FamilyOptions, KeyComparator, Options, WriteBatch};

fn open() -> Db {
    let family = FamilyOptions::new()
        .memtable_bytes(8 << 20)
        .block_bytes(1024)
        .target_file_bytes(256 << 10)
        .compression(Compression::None);
    let env = Env { fs: SimDisk::new(3), ..Env::real() };
    Db::open("/db", Options::in_env(env).durability(Durability::None).default_family(family))
        .unwrap()
}

fn key(i: u64) -> String {
    format!("{i:08}")
}

fn put(db: &Db, keys: impl Iterator<Item = u64>) {
    let mut batch = WriteBatch::new();
    keys.for_each(|i| batch.put(&db.default_family(), key(i), [b'v'; 40]).unwrap());
    db.write(batch).unwrap();
}

fn assert_near(got: u64, want: u64, slack: u64) {
    assert!(got.abs_diff(want) <= slack, "{got} instead of {want}, more than {slack} off");
}

#[test]
fn compacted_range_estimate_is_within_a_block() {
    let db = open();
    put(&db, 0..40_000);
    db.admin().compact().unwrap();
    let per_block = 1024 / 40;
    for (from, to) in
        [(0, 40_000), (1, 39_999), (100, 200), (7, 8), (12_345, 34_567), (39_000, 90_000)]
    {
        let e = db.default_family().estimate_range(key(from)..key(to)).unwrap();
        let real = to.min(40_000) - from;
        assert_near(e.entries, real, per_block);
        assert_near(e.keys, real, per_block + real * 7 / 100);
        let all = db.default_family().estimate_range::<&str>(..).unwrap();
        assert_near(e.disk_bytes, all.disk_bytes * real / 40_000, 2 * 1024 + all.disk_bytes / 100);
        assert_eq!(e.memory_bytes, 0);
    }
    let all = db.default_family().estimate_range::<&str>(..).unwrap();
    assert_eq!(all.entries, 40_000);
    let on_disk: u64 = db.admin().files().iter().map(|f| f.bytes).sum();
    assert_eq!(all.disk_bytes, on_disk);
    assert_near(all.keys, 40_000, 40_000 * 7 / 100);
}

#[test]
fn empty_ranges_estimate_zero() {
    let db = open();
    put(&db, 0..5000);
    db.admin().flush().unwrap();
    put(&db, 0..100);
    for range in [key(30)..key(20), key(7)..key(7), "x".to_owned().."y".to_owned()] {
        assert_eq!(
            db.default_family().estimate_range(range.clone()).unwrap().entries,
            0,
            "{range:?}"
        );
        assert_eq!(db.default_family().range_cost(range).unwrap(), Default::default());
    }
}

#[test]
fn memtable_estimates_are_close() {
    let db = open();
    put(&db, 0..50_000);
    assert_eq!(db.default_family().estimate_range(key(100)..key(300)).unwrap().entries, 200);
    assert_eq!(db.default_family().estimate_range(key(100)..=key(300)).unwrap().keys, 201);
    let e = db.default_family().estimate_range(key(10_000)..key(30_000)).unwrap();
    assert_near(e.entries, 20_000, 20_000 * 18 / 100); // three standard errors
    assert!(e.memory_bytes > 20_000 * 40 && e.disk_bytes == 0);
    assert_near(
        db.default_family().estimate_range::<&str>(..).unwrap().entries,
        50_000,
        50_000 * 18 / 100,
    );
}

#[test]
fn duplicate_keys_in_runs_count_once() {
    let db = open();
    db.admin().cancel_background_work().unwrap();
    for _ in 0..3 {
        put(&db, 0..20_000);
        db.admin().flush().unwrap();
    }
    let e = db.default_family().estimate_range::<&str>(..).unwrap();
    assert_eq!(e.entries, 60_000);
    assert_near(e.keys, 20_000, 20_000 * 10 / 100);
    assert_near(db.default_family().cardinality().unwrap().keys, 20_000, 20_000 * 7 / 100);
    // Entries that the memtable adds, overwrites and deletes.
    put(&db, 19_900..20_100);
    let mut batch = WriteBatch::new();
    (0..50).for_each(|i| batch.delete(&db.default_family(), key(i)).unwrap());
    db.write(batch).unwrap();
    assert_near(
        db.default_family().estimate_range(key(19_000)..).unwrap().keys,
        1100,
        1100 * 10 / 100 + 10,
    );
    assert_near(db.default_family().estimate_range(..key(100)).unwrap().keys, 50, 30);
    let c = db.default_family().cardinality().unwrap();
    assert_near(c.keys, 20_100, 20_100 * 7 / 100);
    assert_eq!(c.tombstones, 50);
}

#[test]
fn memtable_entries_count_as_overwrites_below_the_error_of_tables() {
    let db = open();
    put(&db, (0..40_000).map(|i| i * 2));
    db.admin().compact().unwrap();
    let keys =
        |from: u64, to: u64| db.default_family().estimate_range(key(from)..key(to)).unwrap().keys;
    let before = keys(1000, 1400);
    put(&db, (1000..1020).filter(|i| i % 2 == 1));
    assert_eq!(keys(1000, 1400), before, "ten new keys, two halves of a block of about 20");
    put(&db, (1020..1400).filter(|i| i % 2 == 1));
    assert_near(keys(1000, 1400), 400, 60);
    // All keys of a small range are deleted.
    let mut batch = WriteBatch::new();
    (5000..5010).for_each(|i| batch.delete(&db.default_family(), key(i)).unwrap());
    db.write(batch).unwrap();
    assert!(keys(5000, 5010) <= 2, "a sample although the error of the table is larger");
    // Not cut by a table: exact.
    put(&db, 80_000..80_003);
    assert_eq!(keys(80_000, 90_000), 3);
    assert_eq!(keys(80_001, 80_002), 1);
}

#[test]
fn small_tables_are_counted_by_scanning() {
    let db = open();
    put(&db, 0..100);
    db.admin().flush().unwrap();
    put(&db, 50..150);
    db.admin().flush().unwrap();
    assert_near(db.default_family().cardinality().unwrap().keys, 150, 6);
}

#[test]
fn range_cost_matches_blocks_read_by_scan() {
    let db = open();
    db.admin().cancel_background_work().unwrap();
    put(&db, 0..40_000);
    db.admin().flush().unwrap();
    put(&db, 10_000..20_000);
    db.admin().flush().unwrap();
    put(&db, 15_000..15_010);
    let cost = db.default_family().range_cost(key(14_000)..key(16_000)).unwrap();
    assert_eq!((cost.memtables, cost.runs), (1, 2));
    let read = |db: &Db| {
        let counters = db.admin().stats().counters;
        counters
            .iter()
            .filter(|c| ["cache_misses", "cache_hits"].contains(&c.name))
            .map(|c| c.value)
            .sum::<u64>()
    };
    let before = read(&db);
    assert_eq!(db.range(key(14_000)..key(16_000)).unwrap().count(), 2000);
    // A scan may read the block after the end, once per run.
    assert_near(read(&db) - before, cost.blocks, 2);
    let whole = db.default_family().range_cost::<&str>(..).unwrap();
    assert_eq!(whole.tables, db.admin().files().len());
}

/// Regression test: different spellings of one key in a memtable were counted as separate keys.
#[test]
fn keys_equal_under_comparator_count_once() {
    let db = open();
    let f = db
        .create_family("f", FamilyOptions::new().comparator(KeyComparator::CaseInsensitive))
        .unwrap();
    for i in 0..400 {
        f.put(format!("key {i:03}"), "1").unwrap();
        f.put(format!("KEY {i:03}"), "2").unwrap();
    }
    let extent = f.estimate_range::<&str>(..).unwrap();
    assert_near(extent.entries, 800, 200);
    assert_near(extent.keys, 400, 100);
}
