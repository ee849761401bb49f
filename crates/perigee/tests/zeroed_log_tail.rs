//! Logs whose acknowledged records were overwritten with zeros.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, FamilyOptions, Options, repair_in};
use std::path::PathBuf;
use std::sync::Arc;

fn options(disk: &Arc<SimDisk>) -> Options {
    Options::in_env(Env { fs: disk.clone(), ..Env::real() })
}

/// Overwrites the last record of a log with zeros.
fn zero_last_record(disk: &Arc<SimDisk>, path: &PathBuf) {
    let mut bytes = disk.read_raw(path);
    let at = (0..bytes.len() - 4).rev().find(|i| &bytes[*i..*i + 4] == b"PRLG").unwrap() - 8;
    bytes[at..].fill(0);
    disk.write_raw(path, bytes);
}

fn logs(disk: &Arc<SimDisk>) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|p| p.extension().is_some_and(|e| e == "wal")).collect()
}

#[test]
fn zeroed_last_manifest_edit_is_reported() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    let mut load = db.default_family().bulk_load().unwrap();
    load.put("k", "v").unwrap();
    load.finish().unwrap();
    let crashed = disk.deep_clone();
    drop(db);
    zero_last_record(&crashed, &PathBuf::from("/db/MANIFEST"));
    if let Ok(db) = Db::open("/db", options(&crashed)) {
        let report = db.admin().stats().recovery;
        assert!(
            report.truncated_bytes > 0,
            "k is {:?}, and no loss is reported: {report:?}",
            db.get("k")
        );
    }
}

#[test]
fn zeroed_family_creation_is_reported() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    db.create_family("new", FamilyOptions::new()).unwrap();
    let crashed = disk.deep_clone();
    drop(db);
    zero_last_record(&crashed, &PathBuf::from("/db/MANIFEST"));
    if let Ok(db) = Db::open("/db", options(&crashed)) {
        let report = db.admin().stats().recovery;
        assert!(
            report.truncated_bytes > 0,
            "families {:?}, and no loss is reported: {report:?}",
            db.families()
        );
    }
}

#[test]
fn zeroed_clean_close_mark_is_reported() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    db.put("a", "1").unwrap();
    db.close().unwrap();
    zero_last_record(&disk, &logs(&disk)[0]);
    if let Ok(db) = Db::open("/db", options(&disk)) {
        let report = db.admin().stats().recovery;
        assert!(report.truncated_bytes > 0, "no loss is reported: {report:?}");
    }
}

/// Two segments, the first of which lost its tail.
#[test]
fn repair_reports_zeroed_segment_tail() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    let other = db.create_family("other", FamilyOptions::new()).unwrap();
    other.put("keeps", "the log").unwrap();
    db.put("flushed", "1").unwrap();
    other.put("lost", "2").unwrap();
    db.default_family().flush().unwrap();
    db.put("in the successor", "2").unwrap();
    let crashed = disk.deep_clone();
    drop((other, db));
    let all = logs(&crashed);
    assert_eq!(all.len(), 2, "{all:?}");
    zero_last_record(&crashed, &all[0]);
    assert!(Db::open("/db", options(&crashed)).is_err());
    let env = Env { fs: crashed.clone(), ..Env::real() };
    let report = repair_in(&env, "/db", "/repaired", |_, _| {}).unwrap();
    assert!(
        !report.lost.is_empty(),
        "an acknowledged record is gone, and no loss is reported: {report:?}"
    );
}

/// The data fits twice on the disk, but not together with the space that the log preallocates.
#[test]
fn log_preallocation_leaves_space_for_flush() {
    let disk = SimDisk::new(1);
    let small = FamilyOptions::new().memtable_bytes(4 << 20);
    let db = Db::open("/db", options(&disk).default_family(small).min_free_space(0)).unwrap();
    disk.set_capacity(3_300_000);
    let mut x = 88172645463325252u64;
    for n in 0..130u32 {
        let value: Vec<u8> = (0..10_000)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                x as u8
            })
            .collect();
        db.put(n.to_be_bytes(), value).unwrap();
    }
    db.admin().flush().unwrap();
}
