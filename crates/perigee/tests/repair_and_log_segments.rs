//! Regression tests for faults found in a review: repairs without a manifest that lost data or
//! returned old data, log segments, and a memory budget that a reader made ineffective.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, FamilyOptions, Options, WriteBatch, repair_in};
use std::sync::Arc;

fn options(disk: &Arc<SimDisk>) -> Options {
    Options::in_env(Env { fs: disk.clone(), ..Env::real() })
}

fn remove_files(disk: &Arc<SimDisk>, what: impl Fn(&str) -> bool) {
    let env = Env { fs: disk.clone(), ..Env::real() };
    let dir = env.fs.open_dir("/db".as_ref(), perigee::env::DirOpenMode::Existing).unwrap();
    for name in dir.list().unwrap() {
        if what(&name) {
            dir.remove(&name).unwrap();
        }
    }
}

fn repair_and_open(disk: &Arc<SimDisk>) -> (Db, Vec<String>) {
    let env = Env { fs: disk.clone(), ..Env::real() };
    let report = repair_in(&env, "/db", "/repaired", |_, _| {}).unwrap();
    (Db::open("/repaired", Options::in_env(env)).unwrap(), report.warnings.clone())
}

/// Repairs a directory that contains only a loaded table.
#[test]
fn repair_recovers_bulk_loaded_table_alone() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    let mut load = db.default_family().bulk_load().unwrap();
    load.put("k", "v").unwrap();
    load.finish().unwrap();
    db.close().unwrap();
    remove_files(&disk, |n| n == "MANIFEST" || n.ends_with(".wal"));
    let (db, _) = repair_and_open(&disk);
    let mut seen = 0;
    for name in db.families() {
        seen += db.family(&name).unwrap().iter().unwrap().count();
    }
    assert_eq!(seen, 1);
}

/// A load and a compaction while another column family keeps the log; then the manifest is lost.
#[test]
fn repair_orders_loaded_entries_after_older_log_records() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    let other = db.create_family("other", FamilyOptions::new()).unwrap();
    other.put("keeps", "the log").unwrap();
    db.put("k", "old").unwrap();
    db.put("gone", "old").unwrap();
    db.delete("deleted and loaded").unwrap();
    db.default_family().delete_range("r".."s").unwrap();
    db.default_family().flush().unwrap();
    let mut load = db.default_family().bulk_load().unwrap();
    for k in ["deleted and loaded", "k", "r1"] {
        load.put(k, "new").unwrap();
    }
    load.finish().unwrap();
    db.default_family().compact().unwrap();
    for k in ["deleted and loaded", "k", "r1"] {
        assert_eq!(db.get(k).unwrap().unwrap(), b"new");
    }
    db.close().unwrap();
    remove_files(&disk, |n| n == "MANIFEST");
    let (db, warnings) = repair_and_open(&disk);
    let got: Vec<_> = ["deleted and loaded", "k", "r1"]
        .iter()
        .map(|k| db.get(k).unwrap().map(|v| String::from_utf8_lossy(&v).into_owned()))
        .collect();
    assert_eq!(got, vec![Some("new".to_string()); 3], "{warnings:?}");
}

/// A reader pins an obsolete table at the crash; then the manifest is lost.
#[test]
fn repair_prefers_compacted_table_to_obsolete_one() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    db.put("k", "v1").unwrap();
    db.admin().flush().unwrap();
    db.admin().compact().unwrap();
    let mut reader = db.iter().unwrap();
    reader.next().unwrap().unwrap();
    db.put("k", "v2").unwrap();
    db.admin().flush().unwrap();
    db.admin().compact().unwrap();
    // Start a new segment, so that the log cannot restore the entry.
    db.put("x", "y").unwrap();
    db.admin().flush().unwrap();
    db.admin().wait_idle().unwrap();
    let crashed = disk.deep_clone();
    drop(reader);
    drop(db);
    remove_files(&crashed, |n| n == "MANIFEST");
    let (db, warnings) = repair_and_open(&crashed);
    assert_eq!(db.get("k").unwrap().unwrap(), b"v2", "{warnings:?}");
}

#[test]
fn repair_ignores_obsolete_range_tombstone() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    db.put("a", "v1").unwrap();
    db.admin().flush().unwrap();
    db.default_family().delete_range("a".."z").unwrap();
    db.put("~", "~").unwrap();
    db.admin().flush().unwrap();
    let mut reader = db.iter().unwrap();
    reader.next().unwrap().unwrap();
    for i in 0..100 {
        db.put(format!("k{i}"), "v2").unwrap();
    }
    db.admin().flush().unwrap();
    db.admin().compact().unwrap();
    db.put("x", "y").unwrap();
    db.admin().flush().unwrap();
    db.admin().compact().unwrap();
    db.admin().wait_idle().unwrap();
    let crashed = disk.deep_clone();
    drop(reader);
    drop(db);
    remove_files(&crashed, |n| n == "MANIFEST");
    let (db, warnings) = repair_and_open(&crashed);
    let n = db.iter().unwrap().count();
    assert_eq!(n, 102, "{warnings:?}");
}

/// A reader pins a memtable with the oldest shared batches: the budget must hold nevertheless.
#[test]
fn memory_budget_holds_with_pinned_shared_batches() {
    let disk = SimDisk::new(1);
    let budget = 16 << 20;
    let db = Db::open("/db", options(&disk).memory_budget(budget)).unwrap();
    let families: Vec<_> =
        (0..8).map(|i| db.create_family(&format!("f{i}"), FamilyOptions::new()).unwrap()).collect();
    let write = |from: u32, n: u32| {
        for i in from..from + n {
            let mut batch = WriteBatch::new();
            families.iter().for_each(|f| batch.put(f, i.to_be_bytes(), [7; 1000]).unwrap());
            db.write(batch).unwrap();
        }
    };
    let total = |db: &Db| db.admin().stats().memory_bytes();
    write(0, 350);
    let mut reader = families[0].iter().unwrap();
    reader.next().unwrap().unwrap();
    let mut worst = 0;
    for i in 0..120 {
        write(1000 + i * 50, 50);
        worst = worst.max(total(&db));
    }
    assert!(worst <= budget / 10 * 11, "{worst} of {budget}: {:?}", db.admin().stats().memory);
    drop(reader);
}

/// Garbage after a complete log segment: the records of the next segment must not be lost.
#[test]
fn garbage_after_complete_segment_keeps_successor() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    let other = db.create_family("other", FamilyOptions::new()).unwrap();
    other.put("keeps", "the log").unwrap();
    db.put("flushed", "1").unwrap();
    db.default_family().flush().unwrap();
    db.put("in the successor", "2").unwrap();
    let crashed = disk.deep_clone();
    drop((other, db));
    let logs: Vec<_> =
        crashed.paths().into_iter().filter(|p| p.extension().is_some_and(|e| e == "wal")).collect();
    assert_eq!(logs.len(), 2, "{logs:?}");
    let mut bytes = crashed.read_raw(&logs[0]);
    // Zeros at the end are not part of the log.
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes.extend([7; 8]);
    crashed.write_raw(&logs[0], bytes);
    let db = Db::open("/db", options(&crashed)).unwrap();
    assert_eq!(db.get("in the successor").unwrap().unwrap(), b"2");
    let report = db.admin().stats().recovery;
    assert_eq!(report.truncated_bytes, 8, "{report:?}");
    assert!(report.reason.contains(".wal"), "{report:?}");
}

/// Regression test: two preallocated segments became obsolete before the manifest recorded where
/// they began, and the flush that removed both was refused forever.
#[test]
fn flush_removes_several_preallocated_segments() {
    let disk = SimDisk::new(1);
    let settings = || options(&disk).default_family(FamilyOptions::new().memtable_bytes(8 << 10));
    let db = Db::open("/db", settings()).unwrap();
    let other = db.create_family("other", FamilyOptions::new()).unwrap();
    for round in 0..20 {
        other.put(format!("keeps the log {round}"), "x").unwrap();
        for n in 0..300 {
            db.put(format!("{round} {n}"), "a value that fills memtables").unwrap();
        }
        other.flush().unwrap();
    }
    db.admin().flush().unwrap();
    let crashed = disk.deep_clone();
    db.close().unwrap();
    for disk in [disk.clone(), crashed] {
        let db = Db::open("/db", options(&disk)).unwrap();
        assert_eq!(db.iter().unwrap().count(), 6000);
        assert_eq!(db.family("other").unwrap().iter().unwrap().count(), 20);
    }
}
