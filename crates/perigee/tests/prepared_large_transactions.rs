//! Two-phase commit of transactions that exceed their memory: their writes are in tables when they
//! are prepared, and the manifest has them until the decision.
#![allow(clippy::unwrap_used)]

use crate::prepared::{env, gids, small};
use perigee::env::fs::memory::{Crash, SimDisk};
use perigee::load::BulkLoad;
use perigee::{Db, Error, ErrorKind, Family, Isolation, LockMode, Options, Txn, TxnOptions};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(disk: &Arc<SimDisk>) -> Options {
    Options::in_env(env(disk)).default_family(small().value_threshold(64))
}
fn open(disk: &Arc<SimDisk>) -> Db {
    Db::open("/db", options(disk)).unwrap()
}
fn new() -> (Arc<SimDisk>, Db) {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    (disk, db)
}
/// Cuts the power and opens the database again.
fn power_cut(disk: &Arc<SimDisk>, db: Db) -> (Arc<SimDisk>, Db) {
    let after = disk.crash_clone(7, Crash::Power);
    drop(db);
    let db = open(&after);
    (after, db)
}
fn error_kind<T: std::fmt::Debug>(done: Result<T, Error>) -> ErrorKind {
    done.unwrap_err().kind()
}
fn data_files(disk: &SimDisk) -> usize {
    let is_data = |p: &std::path::PathBuf| {
        p.starts_with("/db")
            && !p.starts_with("/db/trash")
            && p.extension().is_some_and(|e| e == "klog" || e == "vlog")
    };
    disk.paths().iter().filter(|p| is_data(p)).count()
}
fn spilling() -> TxnOptions {
    TxnOptions::new().spill_bytes(2000)
}
fn key(i: u32) -> String {
    format!("k{i:04}")
}
/// Writes the even keys below `2 * n`; every tenth value is in a value log.
fn fill(txn: &Txn, family: &Family, n: u32) -> Map {
    let mut model = Map::new();
    for i in (0..n).map(|i| 2 * i) {
        let value = vec![b'v'; if i % 20 == 0 { 200 } else { 20 }];
        txn.put(family, key(i), &value).unwrap();
        model.insert(key(i).into_bytes(), value);
    }
    model
}
fn entries(family: &Family) -> Map {
    family.iter().unwrap().map(|e| e.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}
/// Prepares a transaction with the even keys below 400.
fn prepare(db: &Db, gid: &str, options: TxnOptions) -> Map {
    let txn = db.begin(options).unwrap();
    let model = fill(&txn, &db.default_family(), 200);
    txn.prepare(gid).unwrap();
    model
}

#[test]
fn prepared_tables_survive_crash_and_decision() {
    for commit in [true, false] {
        let (disk, db) = new();
        let (family, other) = (db.default_family(), db.create_family("other", small()).unwrap());
        family.put(key(0), "old").unwrap();
        family.put("x1", "deleted by the range").unwrap();
        let txn = db.begin(spilling()).unwrap();
        let mut model = fill(&txn, &family, 200);
        txn.savepoint("s").unwrap();
        for i in 0..100 {
            txn.put(&other, key(i), "rolled back").unwrap();
            txn.put(&family, key(2 * i), "rolled back").unwrap();
        }
        txn.rollback_to("s").unwrap();
        txn.put(&other, "b", "2").unwrap();
        txn.delete(&family, key(10)).unwrap();
        txn.delete_range(&family, "x".."z").unwrap();
        model.remove(key(10).as_bytes());
        let cursor = txn.iter(&family).unwrap();
        txn.prepare("one").unwrap();
        assert_eq!(cursor.count(), model.len(), "a cursor still reads its writes");
        assert_eq!(error_kind(txn.put(&other, "late", "")), ErrorKind::InvalidArgument);
        let listed = db.two_phase().prepared().unwrap();
        assert_eq!((listed[0].operations, listed[0].isolation), (203, Isolation::Snapshot));
        assert!(listed[0].bytes > 5000, "{:?}", listed[0]);
        assert_eq!(entries(&family).len(), 2);
        drop((txn, family, other));

        let (disk, db) = power_cut(&disk, db);
        let listed_again = db.two_phase().prepared().unwrap();
        assert_eq!(listed_again, listed);
        assert_eq!(entries(&db.default_family()).len(), 2);
        assert!(db.admin().verify().unwrap().errors.is_empty());
        // A clean close keeps it, and so does a second open, which empties the trash.
        db.close().unwrap();
        let db = open(&disk);
        assert_eq!(gids(&db), ["one"]);
        if commit {
            let seq = db.two_phase().commit("one").unwrap();
            assert_eq!(seq, db.history().latest_seq());
        } else {
            let before = data_files(&disk);
            db.two_phase().rollback("one").unwrap();
            assert!(data_files(&disk) < before, "the files of a rollback are removed at once");
            model = Map::from([
                (key(0).into_bytes(), b"old".to_vec()),
                (b"x1".to_vec(), b"deleted by the range".to_vec()),
            ]);
        }
        for db in [db, power_cut(&disk, open(&disk.crash_clone(1, Crash::Power))).1] {
            assert_eq!(error_kind(db.two_phase().commit("one")), ErrorKind::NotFound);
            assert_eq!(entries(&db.default_family()), model);
            let b = db.family("other").unwrap().get("b").unwrap();
            assert_eq!(b.is_some(), commit);
            db.put(key(2), "free again").unwrap();
        }
    }
}

/// Checks that exactly the writes of the prepared transaction are locked out.
fn check_conflicts(db: &Db) {
    let family = db.default_family();
    assert_eq!(error_kind(family.put(key(100), "")), ErrorKind::Conflict);
    family.put(key(101), "between").unwrap();
    assert_eq!(error_kind(family.delete_range(key(99)..key(101))), ErrorKind::Conflict);
    family.delete_range(key(101)..key(102)).unwrap();
    let two = |options: TxnOptions, first: u32, gid: Option<&str>| {
        let txn = db.begin(options).unwrap();
        for i in (0..200).map(|i| first + 2 * i) {
            txn.put(&family, key(i), [b'2'; 30]).unwrap();
        }
        match gid {
            Some(gid) => txn.prepare(gid),
            None => txn.commit().map(drop),
        }
    };
    for options in [TxnOptions::new(), spilling()] {
        for gid in [None, Some("two")] {
            assert_eq!(error_kind(two(options.clone(), 0, gid)), ErrorKind::Conflict);
            two(options.clone(), 1, gid).unwrap();
            if gid.is_some() {
                assert_eq!(gids(db), ["one", "two"]);
                db.two_phase().rollback("two").unwrap();
            }
        }
    }
    for (i, fits) in [(300, false), (301, true)] {
        let mut load = family.bulk_load().unwrap();
        load.put(key(i), "loaded").unwrap();
        let loaded = BulkLoad::finish_all(std::slice::from_mut(&mut load));
        assert_eq!(loaded.is_ok(), fits, "{i}: {loaded:?}");
    }
    assert_eq!(error_kind(db.admin().clear_family("default")), ErrorKind::Busy);
}

#[test]
fn writes_in_tables_conflict_with_other_writers() {
    let (disk, db) = new();
    let mut model = prepare(&db, "one", spilling());
    check_conflicts(&db);
    let (disk, db) = power_cut(&disk, db);
    check_conflicts(&db);
    let txn = db.begin(TxnOptions::new().lock_timeout(Duration::ZERO)).unwrap();
    let lock = |i| txn.lock(&db.default_family(), key(i), LockMode::Shared);
    assert_eq!(error_kind(lock(50)), ErrorKind::Busy, "what it wrote is locked after a restart");
    db.two_phase().commit("one").unwrap();
    lock(50).unwrap();
    drop(txn);
    let (_, db) = power_cut(&disk, db);
    for i in (0..200).map(|i| 2 * i + 1) {
        let value = if i == 301 { b"loaded".to_vec() } else { vec![b'2'; 30] };
        model.insert(key(i).into_bytes(), value);
    }
    assert_eq!(entries(&db.default_family()), model);
}

#[test]
fn prepare_of_tables_conflicts_with_earlier_prepares_and_commits() {
    let (_disk, db) = new();
    let family = db.default_family();
    let txn = db.begin(spilling()).unwrap();
    fill(&txn, &family, 200);
    family.put(key(100), "in the meantime").unwrap();
    assert_eq!(error_kind(txn.prepare("late")), ErrorKind::Conflict);
    let small = db.begin(TxnOptions::new().isolation(Isolation::RepeatableRead)).unwrap();
    small.get(&family, key(200)).unwrap();
    small.put(&family, key(301), "").unwrap();
    small.prepare("reader").unwrap();
    let txn = db.begin(spilling()).unwrap();
    fill(&txn, &family, 200);
    let e = txn.prepare("writer").unwrap_err();
    assert!(e.kind() == ErrorKind::Conflict && e.to_string().contains("\"reader\""), "{e}");
    txn.reset().unwrap();
    assert_eq!(gids(&db), ["reader"]);
    fill(&txn, &family, 100);
    txn.prepare("writer").unwrap();
    let txn = db.begin(spilling()).unwrap();
    assert_eq!(error_kind(txn.prepare("writer")), ErrorKind::AlreadyExists);
    drop(txn);
    db.two_phase().commit("reader").unwrap();
    db.two_phase().commit("writer").unwrap();
}

#[test]
fn reads_and_locks_are_protected_after_restart() {
    for (isolation, many) in [
        (Isolation::RepeatableRead, false),
        (Isolation::Serializable, false),
        (Isolation::RepeatableRead, true),
    ] {
        let (disk, db) = new();
        let family = db.default_family();
        let txn = db.begin(spilling().isolation(isolation).pessimistic(true)).unwrap();
        // Many claims become a range.
        let long = "x".repeat(1000);
        for i in 0..if many { 1200 } else { 2 } {
            txn.get(&family, format!("r{i:04}{long}")).unwrap();
        }
        txn.lock(&family, "locked", LockMode::Exclusive).unwrap();
        fill(&txn, &family, 200);
        txn.prepare("one").unwrap();
        drop(family);
        let manifest = disk.read_raw("/db/MANIFEST").len();
        assert!(manifest < 100_000, "{manifest} bytes");
        let mut db = db;
        let mut disk = disk;
        for _ in 0..2 {
            let family = db.default_family();
            let written = family.put(format!("r{:04}{long}", 1), "");
            assert_eq!(error_kind(written), ErrorKind::Conflict);
            assert_eq!(family.put("r0001y", "").is_err(), many, "{many}");
            let other = db.begin(TxnOptions::new().lock_timeout(Duration::ZERO)).unwrap();
            for key in ["locked".to_string(), key(20)] {
                assert_eq!(error_kind(other.lock(&family, key, LockMode::Shared)), ErrorKind::Busy);
            }
            drop((other, family));
            (disk, db) = power_cut(&disk, db);
        }
        db.two_phase().commit("one").unwrap();
        db.put(format!("r{:04}{long}", 1), "").unwrap();
    }
}

/// Reads of keys that it writes are many in an update of many rows: they do not become a range.
#[test]
fn reads_of_written_keys_lock_out_no_other_keys() {
    let (_disk, db) = new();
    let family = db.default_family();
    let name = |i: u32| format!("{i:05}{}", "x".repeat(1000));
    let txn = db.begin(spilling().isolation(Isolation::RepeatableRead).pessimistic(true)).unwrap();
    for i in (0..1200).map(|i| 2 * i) {
        txn.get_for_update(&family, name(i), LockMode::Exclusive).unwrap();
        txn.put(&family, name(i), "1").unwrap();
    }
    txn.prepare("one").unwrap();
    assert_eq!(error_kind(family.put(name(100), "")), ErrorKind::Conflict);
    family.put(name(101), "").unwrap();
    db.two_phase().commit("one").unwrap();
    assert_eq!(family.iter().unwrap().count(), 1201);
}

#[test]
fn checkpoints_and_backups_keep_prepared_tables() {
    let (disk, db) = new();
    db.put("flushed", "").unwrap();
    db.admin().flush().unwrap();
    let model = prepare(&db, "g", spilling());
    prepare_and_decide(&db);
    db.backups().checkpoint("/copy").unwrap();
    let backups = perigee::backup::BackupDir::open_in(env(&disk), "/backup");
    db.backups().create("/backup").unwrap();
    backups.restore(None, "/restored").unwrap();
    db.two_phase().rollback("g").unwrap();
    db.admin().compact().unwrap();
    for path in ["/copy", "/restored"] {
        let copy = Db::open(path, options(&disk)).unwrap();
        assert_eq!(gids(&copy), ["g"], "{path}");
        assert_eq!(error_kind(copy.put(key(2), "")), ErrorKind::Conflict);
        assert!(copy.admin().verify().unwrap().errors.is_empty());
        copy.two_phase().commit("g").unwrap();
        let mut found = entries(&copy.default_family());
        assert!(found.remove(&b"flushed"[..]).is_some() && found.remove(&b"d"[..]).is_some());
        assert_eq!(found, model);
    }
}
fn prepare_and_decide(db: &Db) {
    let txn = db.begin(TxnOptions::new().spill_bytes(1)).unwrap();
    txn.put(&db.default_family(), "d", "1").unwrap();
    txn.put(&db.default_family(), "d", "2").unwrap();
    txn.prepare("decided").unwrap();
    db.two_phase().commit("decided").unwrap();
}

#[test]
fn families_with_prepared_tables_cannot_be_dropped() {
    let (disk, db) = new();
    let family = db.create_family("f", small()).unwrap();
    let txn = db.begin(spilling()).unwrap();
    let model = fill(&txn, &family, 200);
    txn.prepare("g").unwrap();
    drop((txn, family));
    let (disk, db) = power_cut(&disk, db);
    assert_eq!(error_kind(db.drop_family("f")), ErrorKind::Busy);
    assert_eq!(error_kind(db.admin().clear_family("f")), ErrorKind::Busy);
    db.admin().rename_family("f", "renamed").unwrap();
    let (disk, db) = power_cut(&disk, db);
    db.two_phase().commit("g").unwrap();
    assert_eq!(entries(&db.family("renamed").unwrap()), model);
    db.drop_family("renamed").unwrap();
    let (_, db) = power_cut(&disk, db);
    assert!(db.family("renamed").is_err() && gids(&db).is_empty());
}

#[test]
fn readers_and_repair_see_undecided_tables() {
    let (disk, db) = new();
    db.put("a", "1").unwrap();
    prepare(&db, "g", spilling());
    for salvage in [false, true] {
        let options = Options::in_env(env(&disk));
        let options =
            if salvage { options.salvage_readonly(true) } else { options.read_only(true) };
        let reader = Db::open("/db", options).unwrap();
        assert_eq!(gids(&reader), ["g"]);
        assert_eq!(reader.iter().unwrap().count(), 1);
        assert_eq!(error_kind(reader.two_phase().commit("g")), ErrorKind::ReadOnly);
        assert!(reader.admin().verify().unwrap().errors.is_empty());
    }
    db.close().unwrap();
    let report = perigee::repair_in(&env(&disk), "/db", "/repaired", |_, _| {}).unwrap();
    assert!(report.lost.is_empty(), "{:?}", report.lost);
    assert!(report.warnings.iter().any(|w| w.contains("\"g\"")), "{:?}", report.warnings);
    let repaired = Db::open("/repaired", options(&disk)).unwrap();
    assert!(gids(&repaired).is_empty() && repaired.iter().unwrap().count() == 1);
}

#[test]
fn damaged_tables_of_prepared_transactions_are_detected() {
    let (disk, db) = new();
    db.put("a", "1").unwrap();
    db.close().unwrap();
    let db = open(&disk);
    assert_eq!(data_files(&disk), 0);
    prepare(&db, "g", spilling());
    let is_table = |p: &std::path::PathBuf| p.extension().is_some_and(|e| e == "klog");
    let table = disk.paths().into_iter().find(is_table).unwrap();
    db.close().unwrap();
    let mut bytes = disk.read_raw(&table);
    bytes[200] ^= 1;
    disk.write_raw(&table, bytes);
    let db = open(&disk);
    let errors = db.admin().verify().unwrap().errors;
    assert!(errors.len() == 1 && errors[0].is_corruption(), "{errors:?}");
    db.close().unwrap();
    let dir = env(&disk).fs.open_dir("/db".as_ref(), perigee::env::DirOpenMode::Existing).unwrap();
    dir.remove(table.file_name().unwrap().to_str().unwrap()).unwrap();
    let e = Db::open("/db", options(&disk)).unwrap_err();
    assert!(e.is_corruption(), "a missing table is damage: {e}");
    let salvaged = Db::open("/db", Options::in_env(env(&disk)).salvage_readonly(true)).unwrap();
    assert_eq!(salvaged.get("a").unwrap().unwrap(), b"1");
}

#[test]
fn commit_of_prepared_tables_reaches_hooks_and_waits_for_pauses() {
    let (_disk, db) = new();
    let events = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&events);
    db.default_family().on_commit(move |e| {
        list.lock().unwrap().push((e.sequence(), e.operations().count(), e.entries_loaded()));
    });
    prepare(&db, "g", spilling());
    assert!(events.lock().unwrap().is_empty());
    let pause = db.admin().pause_background_work().unwrap();
    assert_eq!(error_kind(db.two_phase().commit("g")), ErrorKind::Busy);
    assert_eq!(gids(&db), ["g"], "it is still prepared");
    drop(pause);
    let seq = db.two_phase().commit("g").unwrap();
    assert_eq!(*events.lock().unwrap(), [(seq, 0, Some(200))]);
}
