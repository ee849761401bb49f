//! Scans skip key ranges that an earlier scan found to hold nothing but tombstones. Whatever is
//! written there afterwards, on any path, must be found by every reader that may see it.
#![allow(clippy::unwrap_used)]

use crate::common::{Rng, StopOnDrop};
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{
    Cursor, Db, Durability, FamilyOptions, MergeRule, Options, Snapshot, TxnOptions, WriteBatch,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u64 = 1500;

fn key(i: u64) -> Vec<u8> {
    format!("job{i:06}").into_bytes()
}

fn open(seed: u64, memtable_bytes: u64) -> Db {
    let family = FamilyOptions::new()
        .merge_operator(MergeRule::Append(",".into()))
        .memtable_bytes(memtable_bytes)
        .block_bytes(512)
        .target_file_bytes(8 << 10)
        .level1_bytes(16 << 10);
    let env = Env { fs: SimDisk::new(seed), ..Env::real() };
    let options = Options::in_env(env).durability(Durability::None).default_family(family);
    Db::open("/queue", options).unwrap()
}

fn counter(db: &Db, name: &str) -> u64 {
    db.admin().stats().counter(name).unwrap()
}

/// Compares the entries from `from` on, at most `limit`, with the model.
fn check_scan(mut cursor: Cursor, map: &Map, from: Option<Vec<u8>>, limit: usize, what: &str) {
    match &from {
        Some(key) => cursor.seek(key).unwrap(),
        None => cursor.seek_to_first().unwrap(),
    }
    for (key, value) in map.range(from.unwrap_or_default()..).take(limit) {
        assert!(cursor.is_valid(), "{what}: {} is missing", String::from_utf8_lossy(key));
        assert_eq!(String::from_utf8_lossy(cursor.key()), String::from_utf8_lossy(key), "{what}");
        assert_eq!(&*cursor.value().unwrap(), &value[..], "{what}");
        cursor.next().unwrap();
    }
    if map.len() < limit {
        assert!(!cursor.is_valid(), "{what}: deleted entry {:?}", cursor.key());
    }
}

/// One step of writing; deletes come in long sequences of keys, and everything else falls between
/// them.
fn write_something(db: &Db, map: &mut Map, rng: &mut Rng) {
    let family = db.default_family();
    let (at, value) = (rng.below(KEYS), format!("{}", rng.below(1_000_000)).into_bytes());
    let k = key(at);
    match rng.below(16) {
        0..=5 => {
            let len = 20 + rng.below(KEYS / 3);
            for i in at..(at + len).min(KEYS) {
                db.delete(key(i)).unwrap();
                map.remove(&key(i));
            }
        }
        6 => {
            let len = 1 + rng.below(KEYS / 4);
            for i in at..(at + len).min(KEYS) {
                db.put(key(i), &value).unwrap();
                map.insert(key(i), value.clone());
            }
        }
        7..=9 => {
            db.put(&k, &value).unwrap();
            map.insert(k, value);
        }
        10 => {
            let mut batch = WriteBatch::new();
            batch.merge(&family, &k, &value).unwrap();
            db.write(batch).unwrap();
            map.entry(k).and_modify(|v| v.extend([&b","[..], &value].concat())).or_insert(value);
        }
        11 => {
            let mut load = family.bulk_load().unwrap();
            for i in [at, at + 3].into_iter().filter(|i| *i < KEYS) {
                load.put(key(i), &value).unwrap();
                map.insert(key(i), value.clone());
            }
            load.finish().unwrap();
        }
        12 => {
            // Larger than its memory: committed as tables.
            let txn = db.begin(TxnOptions::new().spill_bytes(200)).unwrap();
            for i in (at..KEYS).step_by(7).take(20) {
                txn.put(&family, key(i), &value).unwrap();
                map.insert(key(i), value.clone());
            }
            txn.commit().unwrap();
        }
        13 => {
            let end = (at + rng.below(100)).min(KEYS);
            let mut batch = WriteBatch::new();
            batch.delete_range(&family, key(at)..key(end)).unwrap();
            db.write(batch).unwrap();
            map.retain(|k, _| *k < key(at) || *k >= key(end));
        }
        14 => {
            let now = db.admin().clock().now_ms;
            let mut batch = WriteBatch::new();
            batch.put_until(&family, &k, &value, now - 1).unwrap();
            map.remove(&k);
            let later = key((at + 1) % KEYS);
            batch.put_until(&family, &later, &value, now + 1_000_000_000).unwrap();
            map.insert(later, value);
            db.write(batch).unwrap();
        }
        _ if rng.below(3) > 0 => family.flush().unwrap(),
        _ => family.compact().unwrap(),
    }
}

#[test]
fn scans_find_what_was_written_into_an_empty_range() {
    for seed in 1..=12 {
        let mut rng = Rng(seed * 0x9E37_79B9);
        let db = open(seed, [8 << 10, 64 << 10, 1 << 20][seed as usize % 3]);
        let (mut map, mut moments) = (Map::new(), Vec::<(Snapshot, Map)>::new());
        for i in 0..KEYS {
            db.put(key(i), "first").unwrap();
            map.insert(key(i), b"first".to_vec());
        }
        for round in 0..250 {
            write_something(&db, &mut map, &mut rng);
            if rng.below(10) == 0 {
                moments.push((db.snapshot().unwrap(), map.clone()));
                if moments.len() > 4 {
                    moments.remove(0);
                }
            }
            let what = format!("seed {seed}, round {round}");
            for _ in 0..2 {
                let from = (rng.below(3) > 0).then(|| key(rng.below(KEYS)));
                let limit = [1, 5, usize::MAX][rng.below(3) as usize];
                check_scan(db.default_family().cursor().unwrap(), &map, from, limit, &what);
            }
            if rng.below(4) == 0 && !moments.is_empty() {
                let (snapshot, then) = &moments[rng.below(moments.len() as u64) as usize];
                let cursor = snapshot.cursor(&db.default_family()).unwrap();
                check_scan(cursor, then, None, usize::MAX, &format!("{what}, snapshot"));
            }
            if rng.below(4) == 0 {
                // A transaction with writes of its own inside empty ranges.
                let (txn, mut own) = (db.begin(TxnOptions::new()).unwrap(), map.clone());
                for i in (rng.below(50)..KEYS).step_by(97) {
                    if rng.below(2) == 0 {
                        txn.put(&db.default_family(), key(i), "own").unwrap();
                        own.insert(key(i), b"own".to_vec());
                    } else {
                        (i..(i + 40).min(KEYS)).for_each(|i| {
                            txn.delete(&db.default_family(), key(i)).unwrap();
                            own.remove(&key(i));
                        });
                    }
                }
                for _ in 0..2 {
                    let cursor = txn.cursor(&db.default_family()).unwrap();
                    check_scan(cursor, &own, None, usize::MAX, &format!("{what}, transaction"));
                }
                txn.rollback();
            }
        }
    }
}

/// A queue: the cost of finding its head does not grow with the number of deleted entries, also in
/// the next memtable.
#[test]
fn head_of_a_queue_is_found_without_skipping_what_was_deleted() {
    let db = open(1, 32 << 10);
    (0..100).for_each(|i| db.put(key(i), "job").unwrap());
    for i in 0..20_000 {
        db.put(key(i + 100), "job").unwrap();
        let head = db.default_family().first().unwrap().unwrap().0;
        assert_eq!(&*head, &key(i)[..]);
        db.delete(key(i)).unwrap();
    }
    let skipped = counter(&db, "tombstones_skipped");
    assert!(counter(&db, "flushes") > 5, "several memtables");
    assert!(skipped < 20_000 * 30, "{skipped} tombstones skipped for 20,000 heads");
}

/// A thread writes into the empty range while others scan it and note it again; the writer must
/// find its entry at once.
#[test]
fn a_scan_that_notes_a_range_does_not_hide_a_concurrent_write() {
    let db = open(3, 256 << 10);
    (0..KEYS).for_each(|i| db.put(key(i), "job").unwrap());
    (0..KEYS - 1).for_each(|i| db.delete(key(i)).unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    db.default_family().first().unwrap().unwrap();
                }
            });
        }
        let mut rng = Rng(77);
        for round in 0..3_000 {
            let k = key(rng.below(KEYS - 1));
            if round % 20 == 0 {
                // The tables become visible without passing through the memtable.
                let mut load = db.default_family().bulk_load().unwrap();
                load.put(&k, "new").unwrap();
                load.finish().unwrap();
            } else {
                db.put(&k, "new").unwrap();
            }
            // Repeatedly, because a scan that began before the write may note the range later.
            for _ in 0..10 {
                let head = db.default_family().first().unwrap().unwrap();
                assert_eq!((&*head.0, &*head.1), (&k[..], &b"new"[..]), "round {round}");
            }
            db.delete(&k).unwrap();
            if round % 20 == 10 {
                db.default_family().flush().unwrap();
            }
        }
    });
}
