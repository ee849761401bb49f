//! Bulk load: write order, visibility in snapshots, atomicity, and the levels that loaded files
//! get.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::{Crash, SimDisk};
use perigee::{Db, Durability, ErrorKind, FamilyOptions, Options};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

fn options(disk: &Arc<SimDisk>) -> Options {
    let family = FamilyOptions::new()
        .memtable_bytes(64 << 10)
        .block_bytes(512)
        .target_file_bytes(16 << 10)
        .level1_bytes(64 << 10)
        .value_threshold(200);
    Options::in_env(Env { fs: disk.clone(), ..Env::real() })
        .durability(Durability::None)
        .default_family(family)
}

fn open() -> (Arc<SimDisk>, Db) {
    let disk = SimDisk::new(11);
    let db = Db::open("/db", options(&disk)).unwrap();
    (disk, db)
}

fn key(i: u64) -> String {
    format!("{i:06}")
}

fn scramble(i: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^ (x >> 29)
}

#[test]
fn loaded_entries_keep_their_expiry() {
    let (disk, db) = open();
    let now = db.admin().clock().now_ms;
    // Some entries have already expired, some expire in years; some are in the value log.
    let end =
        |i: u64| [None, Some(now - 1), Some(now + 100_000_000 + i)][(scramble(i) % 3) as usize];
    let value = |i: u64| {
        vec![b'a' + (i % 26) as u8; if i.is_multiple_of(10) { 6000 } else { (i % 50) as usize }]
    };
    let mut load = db.default_family().bulk_load().unwrap().memory_bytes(16 << 10);
    db.put(key(1), "older").unwrap();
    for i in (0..2000).map(|i| i * 997 % 2000) {
        load.put_until(key(i), "replaced", now + 5).unwrap();
        match end(i) {
            Some(ms) => load.put_until(key(i), value(i), ms).unwrap(),
            None => load.put(key(i), value(i)).unwrap(),
        }
    }
    assert!(load.progress().runs > 1);
    load.finish().unwrap();
    let check = |db: &Db| {
        for i in 0..2000 {
            let found = db
                .default_family()
                .get_with_ttl(key(i))
                .unwrap()
                .map(|t| (t.value.to_vec(), t.expires_at_ms));
            let wanted = if end(i) == Some(now - 1) { None } else { Some((value(i), end(i))) };
            assert_eq!(found, wanted, "{i}");
        }
        assert!(db.admin().verify().unwrap().errors.is_empty());
    };
    check(&db);
    db.admin().compact().unwrap();
    check(&db);
    db.close().unwrap();
    check(&Db::open("/db", options(&disk)).unwrap());
}

#[test]
fn sorted_load_writes_one_run_once() {
    let (_disk, db) = open();
    let calls = Arc::new(AtomicUsize::new(0));
    let (counted, family) = (Arc::clone(&calls), db.default_family());
    let mut load = family.bulk_load().unwrap().memory_bytes(8 << 10).on_progress(move |p| {
        counted.fetch_add(1, SeqCst);
        assert!(p.runs <= 1);
    });
    for i in 0..5000 {
        load.put(key(i), format!("value {i}")).unwrap();
    }
    let report = load.finish().unwrap();
    assert_eq!(report.entries, 5000);
    assert!(calls.load(SeqCst) > 10);
    assert_eq!(db.iter().unwrap().count(), 5000);
    assert_eq!(db.get(key(4321)).unwrap().unwrap(), b"value 4321");
    assert!(db.admin().files().iter().all(|f| f.level > 0), "no existing run overlaps the load");
    let counters = db.admin().stats().counters;
    let counter = |name| counters.iter().find(|c| c.name == name).unwrap().value;
    assert_eq!((counter("flushes"), counter("compactions")), (0, 0));
    assert!(db.admin().verify().unwrap().errors.is_empty());
    assert_eq!(
        load.put("x", "y").unwrap_err().kind(),
        ErrorKind::InvalidArgument,
        "it is finished"
    );
}

#[test]
fn unsorted_load_keeps_last_value_of_repeated_keys() {
    let (disk, db) = open();
    let mut load = db.default_family().bulk_load().unwrap().memory_bytes(4 << 10);
    let mut model = std::collections::BTreeMap::new();
    for i in 0..6000 {
        let (k, v) = (
            key(scramble(i) % 2000),
            vec![b'a' + (i % 26) as u8; (scramble(i * 7) % 300) as usize],
        );
        load.put(&k, &v).unwrap();
        model.insert(k, v);
    }
    assert!(load.progress().runs > 1);
    load.finish().unwrap();
    for round in 0..3 {
        let found: Vec<_> = db.iter().unwrap().map(|e| e.unwrap()).collect();
        assert_eq!(found.len(), model.len(), "round {round}");
        for ((k, v), (mk, mv)) in found.iter().zip(&model) {
            assert_eq!((&k[..], &v[..]), (mk.as_bytes(), &mv[..]));
        }
        let back = db.iter().unwrap().rev().count();
        assert_eq!(back, model.len());
        if round == 0 {
            assert!(db.admin().verify().unwrap().errors.is_empty());
            db.admin().compact().unwrap();
        }
    }
    // The sorted runs were removed: the directory contains only files that the database refers to.
    db.close().unwrap();
    let again = Db::open("/db", options(&disk)).unwrap();
    assert_eq!(again.admin().stats().recovery.orphans, 0);
    assert_eq!(again.iter().unwrap().count(), model.len());
}

#[test]
fn load_commits_at_one_sequence_number() {
    let (disk, db) = open();
    db.put(key(1), "old").unwrap();
    db.put(key(5), "old").unwrap();
    db.admin().flush().unwrap();
    db.put(key(2), "old").unwrap();
    let before = db.snapshot().unwrap();
    let family = db.default_family();
    let mut load = family.bulk_load().unwrap();
    for i in 0..10 {
        load.put(key(i), "loaded").unwrap();
    }
    db.put(key(3), "written meanwhile").unwrap();
    assert_eq!(db.get(key(7)).unwrap(), None);
    load.finish().unwrap();
    let after = db.snapshot().unwrap();
    db.put(key(4), "new").unwrap();
    db.delete(key(5)).unwrap();
    let check = |db: &Db| {
        assert_eq!(db.get(key(1)).unwrap().unwrap(), b"loaded");
        assert_eq!(db.get(key(2)).unwrap().unwrap(), b"loaded");
        assert_eq!(
            db.get(key(3)).unwrap().unwrap(),
            b"loaded",
            "writes before finish are older than the load"
        );
        assert_eq!(db.get(key(4)).unwrap().unwrap(), b"new");
        assert_eq!(db.get(key(5)).unwrap(), None);
        assert_eq!(db.iter().unwrap().count(), 9);
    };
    check(&db);
    assert_eq!(before.get(&family, key(1)).unwrap().unwrap(), b"old");
    assert_eq!(before.get(&family, key(7)).unwrap(), None);
    assert_eq!(before.iter(&family).unwrap().count(), 3);
    assert_eq!(before.iter(&family).unwrap().rev().count(), 3);
    assert_eq!(after.get(&family, key(5)).unwrap().unwrap(), b"loaded");
    assert_eq!(after.iter(&family).unwrap().count(), 10);
    db.admin().compact().unwrap();
    check(&db);
    assert_eq!(
        before.iter(&family).unwrap().count(),
        3,
        "compaction keeps versions visible to snapshots"
    );
    assert_eq!(after.iter(&family).unwrap().rev().count(), 10);
    drop((before, after, load, family));
    db.close().unwrap();
    let again = Db::open("/db", options(&disk)).unwrap();
    check(&again);
    again.admin().compact().unwrap();
    check(&again);
    assert!(again.admin().verify().unwrap().errors.is_empty());
}

#[test]
fn dropped_load_leaves_no_entries_or_files() {
    let (disk, db) = open();
    db.put("a", "1").unwrap();
    let fill = |db: &Db| {
        let mut load = db.default_family().bulk_load().unwrap().memory_bytes(1 << 10);
        (0..1000).for_each(|i| load.put(key(scramble(i)), "x").unwrap());
        load
    };
    drop(fill(&db));
    assert_eq!(db.iter().unwrap().count(), 1);
    let files = |disk: &SimDisk| {
        disk.paths().iter().filter(|p| p.extension().is_some_and(|e| e == "klog")).count()
    };
    assert_eq!(files(&disk), 0, "dropping the load removes its runs");
    let crashed = {
        let load = fill(&db);
        assert!(files(&disk) > 3);
        let crashed = disk.crash_clone(5, Crash::Process);
        drop(load);
        crashed
    };
    let again = Db::open("/db", options(&crashed)).unwrap();
    assert_eq!(again.iter().unwrap().count(), 1);
    assert!(
        again.admin().stats().recovery.orphans > 3,
        "after a crash the next open removes the runs"
    );
    assert_eq!(
        files(&crashed),
        files(&crashed.deep_clone()),
        "the open moved the runs to the trash, which the following open empties"
    );
    // Closing the database during a load: the load fails and its files become orphans.
    let mut load = fill(&again);
    again.close().unwrap();
    assert_eq!(load.finish().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(
        load.put("k", "v").err().map(|e| e.kind()),
        None,
        "buffered entries do not need an open database"
    );
    drop(load);
    assert_eq!(Db::open("/db", options(&crashed)).unwrap().iter().unwrap().count(), 1);
}

#[test]
fn finish_loads_commits_several_families_atomically() {
    let (disk, db) = open();
    let f = db.create_family("f", FamilyOptions::new()).unwrap();
    let g = db.create_family("g", FamilyOptions::new()).unwrap();
    let mut loads = vec![f.bulk_load().unwrap(), g.bulk_load().unwrap()];
    loads[0].put("k", "f").unwrap();
    loads[1].put("k", "g").unwrap();
    let reports = perigee::load::BulkLoad::finish_all(&mut loads).unwrap();
    assert_eq!(reports[0].sequence, reports[1].sequence);
    assert_eq!(f.get("k").unwrap().unwrap(), b"f");
    let mut twice = vec![f.bulk_load().unwrap(), f.bulk_load().unwrap()];
    assert!(
        perigee::load::BulkLoad::finish_all(&mut twice)
            .unwrap_err()
            .to_string()
            .contains("two loads")
    );
    assert_eq!(f.bulk_load().unwrap().finish().unwrap().entries, 0, "an empty load succeeds");
    let mut load = g.bulk_load().unwrap();
    assert_eq!(load.put(vec![0; 70_000], "v").unwrap_err().kind(), ErrorKind::InvalidArgument);
    load.put("after", "a refusal it goes on").unwrap();
    db.drop_family("g").unwrap();
    assert_eq!(load.finish().unwrap_err().kind(), ErrorKind::NotFound);
    drop((loads, twice, load));
    db.close().unwrap();
    let again = Db::open("/db", options(&disk)).unwrap();
    assert_eq!(again.families(), ["default", "f"]);
    assert_eq!(again.family("f").unwrap().get("k").unwrap().unwrap(), b"f");
}

#[test]
fn writes_continue_while_load_finishes() {
    let (_disk, db) = open();
    let writers: Vec<_> = (0..2u64)
        .map(|w| {
            let db = db.clone();
            std::thread::spawn(move || {
                (0..2000).for_each(|i| db.put(key(i), format!("writer {w}")).unwrap())
            })
        })
        .collect();
    for round in 0..5u64 {
        let mut load = db.default_family().bulk_load().unwrap();
        (0..2000).for_each(|i| load.put(key(i), format!("load {round}")).unwrap());
        load.finish().unwrap();
    }
    writers.into_iter().for_each(|w| w.join().unwrap());
    let mut load = db.default_family().bulk_load().unwrap();
    (0..2000).for_each(|i| load.put(key(i), "last").unwrap());
    load.finish().unwrap();
    for entry in db.iter().unwrap() {
        assert_eq!(&entry.unwrap().1[..], b"last");
    }
    assert_eq!(db.iter().unwrap().count(), 2000);
}
