//! Flushes and compactions that the engine starts by itself, verified by counters: the version
//! edits that they share, the data that they skip, and the jobs that scans trigger.
#![allow(clippy::unwrap_used)]

use perigee::env::fs::memory::SimDisk;
use perigee::env::{Env, Join, RealSpawn, Spawn};
use perigee::{Compression, Db, Durability, FamilyOptions, Options, WriteBatch};
use std::collections::BTreeMap;
use std::sync::Arc;

fn open() -> Db {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let family = FamilyOptions::new().block_bytes(512).compression(Compression::None);
    Db::open("/db", Options::in_env(env).default_family(family)).unwrap()
}

/// Number of manifest edits except log watermarks, whose number depends on timing.
fn manifest_edits(db: &Db) -> u64 {
    counter(db, "manifest_edits") - counter(db, "log_watermarks")
}

fn counter(db: &Db, name: &str) -> u64 {
    db.admin().stats().counter(name).unwrap()
}

fn key(i: u32) -> Vec<u8> {
    format!("key{i:07}").into_bytes()
}

/// Reports eight processors, whatever machine the test runs on.
#[derive(Debug)]
struct EightCoreSpawn;

impl Spawn for EightCoreSpawn {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> perigee::Result<Box<dyn Join>> {
        RealSpawn.spawn(name, body)
    }
    fn run_parallel(&self, threads: usize, work: &(dyn Fn() + Sync)) {
        RealSpawn.run_parallel(threads, work);
    }
    fn cores(&self) -> usize {
        8
    }
}

#[test]
fn compaction_groups_run_in_parallel() {
    let env = Env { fs: SimDisk::new(2), spawn: Arc::new(EightCoreSpawn), ..Env::real() };
    let family = FamilyOptions::new()
        .memtable_bytes(32 << 10)
        .block_bytes(512)
        .target_file_bytes(8 << 10)
        .level1_bytes(64 << 10)
        .level_ratio(3)
        .compression(Compression::None);
    let db = Db::open("/db", Options::in_env(env).default_family(family)).unwrap();
    let mut map = BTreeMap::new();
    let mut x = 88_172_645_463_325_252u64;
    for i in 0..40_000u32 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let k = (x % 5_000) as u32;
        if x % 7 == 0 {
            db.delete(key(k)).unwrap();
            map.remove(&key(k));
        } else {
            db.put(key(k), i.to_be_bytes()).unwrap();
            map.insert(key(k), i.to_be_bytes().to_vec());
        }
    }
    db.admin().wait_idle().unwrap();
    let found: BTreeMap<_, _> =
        db.iter().unwrap().map(|e| e.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert_eq!(found, map);
    db.admin().verify().unwrap();
    // Repeat with compactions as the only jobs, so that every manifest edit is counted.
    db.admin().cancel_background_work().unwrap();
    for round in 0..4u32 {
        (round..5_000).step_by(11).for_each(|k| db.put(key(k), round.to_be_bytes()).unwrap());
        db.admin().flush().unwrap();
    }
    let counted = || (manifest_edits(&db), counter(&db, "compactions"));
    let before = counted();
    db.admin().resume_background_work().unwrap();
    db.admin().wait_idle().unwrap();
    let (edits, compactions) = (counted().0 - before.0, counted().1 - before.1);
    assert!(compactions > edits, "{compactions} compactions, {edits} edits: no edit was shared");
    db.admin().verify().unwrap();
}

/// Regression test: a thousand small column families caused a thousand compactions, each with one
/// version edit and five syncs, and tables were created faster than they were merged.
#[test]
fn small_family_compactions_share_one_version_edit() {
    const FAMILIES: u64 = 200;
    let db = open();
    let families: Vec<_> = (0..FAMILIES)
        .map(|i| db.create_family(&format!("f{i}"), Default::default()).unwrap())
        .collect();
    db.admin().cancel_background_work().unwrap();
    for round in 0..5u8 {
        families.iter().for_each(|f| f.put("key", [round; 10]).unwrap());
        db.admin().flush().unwrap();
    }
    let before = manifest_edits(&db);
    assert_eq!(counter(&db, "compactions"), 0);
    db.admin().resume_background_work().unwrap();
    assert!(db.admin().wait_idle().is_ok());
    let (compactions, edits) = (counter(&db, "compactions"), manifest_edits(&db) - before);
    assert!(
        compactions >= FAMILIES && edits <= FAMILIES / 10,
        "{compactions} compactions, {edits} edits"
    );
    for f in &families {
        assert_eq!(f.get("key").unwrap().as_deref(), Some(&[4; 10][..]));
    }
    db.admin().verify().unwrap();
}

#[test]
fn compaction_seeks_past_range_deleted_keys() {
    let db = open();
    (0..20_000).for_each(|i| db.put(key(i), [7; 20]).unwrap());
    db.admin().compact().unwrap();
    // Keep the first and last keys, so that the table is not dropped as a whole.
    db.default_family().delete_range(key(10)..key(19_990)).unwrap();
    db.admin().flush().unwrap();
    let (blocks, covered) = (counter(&db, "cache_misses"), counter(&db, "dropped_covered"));
    db.admin().compact().unwrap();
    let (blocks, covered) =
        (counter(&db, "cache_misses") - blocks, counter(&db, "dropped_covered") - covered);
    assert!(blocks < 20, "{blocks} of about 1,000 blocks read");
    assert!(covered < 100, "{covered} covered entries read");
    let left: Vec<_> = db.iter().unwrap().map(|e| e.unwrap().0.to_vec()).collect();
    assert_eq!(left, (0..10).chain(19_990..20_000).map(key).collect::<Vec<_>>());
    assert_eq!(db.admin().stats().counter("dropped_ranges").unwrap(), 1);
}

/// A snapshot still reads the deleted keys, so the compaction must not seek past them.
#[test]
fn compaction_keeps_range_deleted_keys_for_snapshot() {
    let db = open();
    (0..2_000).for_each(|i| db.put(key(i), [7; 20]).unwrap());
    let before = db.snapshot().unwrap();
    db.default_family().delete_range(key(10)..key(1_990)).unwrap();
    db.admin().flush().unwrap();
    db.admin().compact().unwrap();
    assert_eq!(db.iter().unwrap().count(), 20);
    for i in 0..2_000 {
        assert!(before.get(&db.default_family(), key(i)).unwrap().is_some(), "{i}");
    }
    drop(before);
    db.admin().compact().unwrap();
    assert_eq!((db.iter().unwrap().count(), counter(&db, "dropped_covered") > 0), (20, true));
}

/// Backward scans that skip the same tombstones repeatedly trigger a flush and a compaction that
/// remove them, although the tombstones are too few to trigger one otherwise and the memtable is
/// nowhere near full. (Forward scans remember the empty range.)
#[test]
fn tombstones_skipped_by_scans_trigger_compaction() {
    let db = open();
    (0..700).for_each(|i| db.put(key(i), "").unwrap());
    (100..700).for_each(|i| db.delete(key(i)).unwrap());
    let mut clear = 0;
    for _ in 0..1_000_000 {
        let passed = counter(&db, "tombstones_skipped");
        let mut cursor = db.default_family().cursor().unwrap();
        cursor.seek_to_last().unwrap();
        assert_eq!(cursor.key(), key(99));
        drop(cursor);
        clear = if counter(&db, "tombstones_skipped") == passed { clear + 1 } else { 0 };
        if clear > 0 {
            break;
        }
    }
    assert!(clear > 0, "scans still skip tombstones");
    // A scan may see the result of a compaction before the compaction is counted.
    db.admin().wait_idle().unwrap();
    assert!(counter(&db, "flushes") >= 1 && counter(&db, "dropped_tombstones") == 600);
}

/// Scans of a memtable trigger its flush, once they have taken as many steps as it has entries, and
/// its blocks are then in the cache. Scans of a small one do not.
#[test]
fn scans_of_memtable_trigger_flush() {
    for (keys, is_flushed) in [(4_000, false), (20_000, true)] {
        let env = Env { fs: SimDisk::new(1), ..Env::real() };
        let family = FamilyOptions::new().memtable_bytes(16 << 20);
        let db = Db::open("/db", Options::in_env(env).default_family(family)).unwrap();
        for round in 0..2u32 {
            (0..keys).for_each(|i| db.put(key(i), round.to_be_bytes()).unwrap());
        }
        let scan = |n: u32| {
            let first = n * 7_919 % keys;
            let read = db.range(key(first)..).unwrap().take(100);
            let values = read.map(|entry| entry.unwrap().1.to_vec());
            let newest = values.filter(|v| *v == [0, 0, 0, 1]).count();
            assert_eq!(newest, 100.min(keys - first) as usize);
        };
        (0..300).for_each(scan);
        db.admin().wait_idle().unwrap();
        assert_eq!(counter(&db, "flushes"), 0, "30,000 steps are too few");
        let scans = (0..20_000u32).take_while(|n| {
            scan(*n);
            counter(&db, "flushes") == 0
        });
        assert_eq!(scans.count() < 20_000, is_flushed, "{keys} keys");
        let flushed = (counter(&db, "flushes"), counter(&db, "scanned_memtables"));
        assert_eq!(flushed, if is_flushed { (1, 1) } else { (0, 0) }, "{keys} keys");
        let misses = counter(&db, "cache_misses");
        (0..400).for_each(scan);
        assert_eq!(counter(&db, "cache_misses"), misses, "{keys} keys");
    }
}

/// The blocks of a table that readers had in memory are there after a compaction, too, unless they
/// were not read or the cache has no room.
#[test]
fn compaction_keeps_cached_data_in_the_cache() {
    for (reads, cache, kept) in
        [(true, 8 << 20, true), (false, 8 << 20, false), (true, 1500 << 10, false)]
    {
        let disk = SimDisk::new(1);
        let env = Env { fs: disk, ..Env::real() };
        let options = Options::in_env(env).block_cache_bytes(cache).durability(Durability::None);
        let db = Db::open("/db", options).unwrap();
        let key = |i: u32| i.to_be_bytes();
        // A megabyte that does not compress, in tables that overlap.
        for part in 0..2 {
            let mut batch = WriteBatch::new();
            for i in (part..10_000u32).step_by(2) {
                let value =
                    (0..25).map(|n| (i + 1).wrapping_mul(0x9E37_79B1).rotate_left(n) ^ n << 7);
                let value: Vec<u8> = value.flat_map(u32::to_le_bytes).collect();
                batch.put(&db.default_family(), key(i), value).unwrap();
            }
            db.write(batch).unwrap();
            db.admin().flush().unwrap();
        }
        let read_all = || {
            let before = counter(&db, "cache_misses");
            (0..10_000).for_each(|i| assert!(db.get(key(i)).unwrap().is_some(), "{i}"));
            counter(&db, "cache_misses") - before
        };
        if reads {
            assert!(read_all() > 100);
        }
        db.admin().compact().unwrap();
        let misses = read_all();
        assert_eq!(misses == 0, kept, "{misses} misses, reads {reads}, cache {cache}");
    }
}
