//! Extended reads: multi-get, and reads into a caller's buffer.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, ErrorKind, FamilyOptions, Options};
use std::collections::BTreeMap;

fn open(cache: u64) -> (std::sync::Arc<SimDisk>, Db) {
    let disk = SimDisk::new(7);
    let family = FamilyOptions::new()
        .memtable_bytes(16 << 10)
        .block_bytes(512)
        .target_file_bytes(8 << 10)
        .value_threshold(300);
    let options = Options::in_env(Env { fs: disk.clone(), ..Env::real() })
        .block_cache_bytes(cache)
        .durability(perigee::Durability::None)
        .default_family(family);
    (disk, Db::open("/db", options).unwrap())
}

/// Returns a pseudo-random number that is the same in every run.
fn scramble(i: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^ (x >> 29)
}

#[test]
fn multi_get_matches_single_gets_in_order() {
    for cache in [0, 1 << 20] {
        let (_disk, db) = open(cache);
        let mut model = BTreeMap::new();
        for i in 0..3000u64 {
            let key = format!("{:05}", scramble(i) % 2000);
            let value = vec![b'v'; (scramble(i) % 400) as usize];
            if i % 7 == 0 {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        let then = db.snapshot().unwrap();
        let keys: Vec<String> =
            (0..900).map(|i| format!("{:05}", scramble(i * 3) % 2100)).collect();
        let before = model.clone();
        for key in keys.iter().step_by(3) {
            db.put(key, "new").unwrap();
            model.insert(key.clone(), b"new".to_vec());
        }
        let now = db.default_family().multi_get(&keys);
        let old = then.multi_get(&db.default_family(), &keys);
        assert_eq!(now.len(), keys.len());
        for ((key, now), old) in keys.iter().zip(now).zip(old) {
            assert_eq!(now.unwrap().as_deref(), model.get(key).map(|v| &v[..]), "{key}");
            assert_eq!(old.unwrap().as_deref(), before.get(key).map(|v| &v[..]), "{key} then");
        }
    }
}

fn cache_misses(db: &Db) -> u64 {
    db.admin().stats().counter("cache_misses").unwrap()
}

#[test]
fn multi_get_reads_each_block_once() {
    let (_disk, db) = open(0);
    for i in 0..2000 {
        db.put(format!("{i:05}"), format!("value {i}")).unwrap();
    }
    db.admin().compact().unwrap();
    let keys: Vec<String> = (0..2000).rev().map(|i| format!("{i:05}")).collect();
    let before = cache_misses(&db);
    assert!(db.default_family().multi_get(&keys).into_iter().all(|a| a.unwrap().is_some()));
    let many = cache_misses(&db) - before;
    assert!(keys.iter().all(|k| db.get(k).unwrap().is_some()));
    let single = cache_misses(&db) - before - many;
    assert!(many * 8 < single, "{many} blocks read by multi_get, {single} by single gets");
}

#[test]
fn multi_get_reports_read_errors_per_key() {
    let (disk, db) = open(0);
    for i in 0..2000 {
        db.put(format!("{i:05}"), format!("value {i}")).unwrap();
    }
    db.admin().compact().unwrap();
    disk.fail_reads(".klog", 1);
    let keys: Vec<String> = (0..2000).map(|i| format!("{i:05}")).collect();
    let answers = db.default_family().multi_get(&keys);
    let failed = answers.iter().filter(|a| a.is_err()).count();
    assert!((1..200).contains(&failed), "{failed} of {} failed", answers.len());
    for (key, answer) in keys.iter().zip(answers) {
        match answer {
            Ok(value) => assert!(value.is_some(), "{key} is not absent"),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Io),
        }
    }
}

#[test]
fn multi_get_accepts_empty_input_and_reports_closed_database() {
    let (_disk, db) = open(0);
    assert!(db.default_family().multi_get(Vec::<&[u8]>::new()).is_empty());
    let family = db.create_family("f", FamilyOptions::new()).unwrap();
    db.drop_family("f").unwrap();
    let dropped = family.multi_get(["a", "b"]);
    assert!(dropped.iter().all(|a| a.as_ref().unwrap_err().kind() == ErrorKind::NotFound));
    db.close().unwrap();
    let closed = db.default_family().multi_get(["a", "b"]);
    assert_eq!(closed.len(), 2);
    assert!(closed.iter().all(|a| a.as_ref().unwrap_err().kind() == ErrorKind::Closed));
}

#[test]
fn get_into_leaves_too_small_buffer_unchanged() {
    let (_disk, db) = open(0);
    db.put("k", "value").unwrap();
    let mut small = [7; 4];
    assert_eq!(db.default_family().get_into("k", &mut small).unwrap(), Some(5));
    assert_eq!(small, [7; 4]);
    let mut exact = [7; 5];
    assert_eq!(db.default_family().get_into("k", &mut exact).unwrap(), Some(5));
    assert_eq!(&exact, b"value");
    assert_eq!(db.default_family().get_into("x", &mut exact).unwrap(), None);
    let mut vec = b"old contents, longer".to_vec();
    assert!(db.default_family().get_into_vec("k", &mut vec).unwrap());
    assert_eq!(vec, b"value");
    assert!(!db.default_family().get_into_vec("x", &mut vec).unwrap());
    assert!(vec.is_empty());
    let then = db.snapshot().unwrap();
    db.delete("k").unwrap();
    assert_eq!(then.get_into(&db.default_family(), "k", &mut exact).unwrap(), Some(5));
    assert_eq!(db.default_family().get_into("k", &mut exact).unwrap(), None);
}
