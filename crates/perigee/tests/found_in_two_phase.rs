//! Found by a review of two-phase commit.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::{Crash, SimDisk};
use perigee::{Db, Durability, FamilyOptions, Isolation, Options, TxnOptions};
use std::sync::Arc;

fn env(disk: &Arc<SimDisk>) -> Env {
    Env { fs: disk.clone(), ..Env::real() }
}
fn small() -> FamilyOptions {
    FamilyOptions::new().memtable_bytes(4 << 10).target_file_bytes(4 << 10).block_bytes(256)
}
fn options(disk: &Arc<SimDisk>) -> Options {
    Options::in_env(env(disk)).default_family(small()).durability(Durability::None)
}
fn new() -> (Arc<SimDisk>, Db) {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    (disk, db)
}
/// Without the space ahead of the records, which depends on who was faster.
fn log_bytes(disk: &SimDisk) -> u64 {
    let logs = disk.paths().into_iter().filter(|p| p.extension().is_some_and(|e| e == "wal"));
    logs.map(|p| disk.read_raw(&p).iter().rposition(|b| *b != 0).unwrap_or(0) as u64).sum()
}
fn counter(db: &Db, name: &str) -> u64 {
    db.stats().counters.iter().find(|(n, _)| *n == name).map(|(_, v)| *v).unwrap()
}
fn prepare(db: &Db, gid: &str, bytes: usize) {
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&db.default_family(), gid, vec![b'v'; bytes]).unwrap();
    txn.prepare(gid).unwrap();
}
fn gids(db: &Db) -> Vec<String> {
    db.recover_prepared().unwrap().into_iter().map(|p| String::from_utf8(p.gid).unwrap()).collect()
}

/// Copies fed themselves: they filled the segment, which was therefore sealed with the next write, flushed, and all was copied again.
#[test]
fn each_write_copies_all_undecided_ones() {
    let (_disk, db) = new();
    (0..40).for_each(|i| prepare(&db, &format!("g{i}"), 10_000));
    let before = (counter(&db, "wal_bytes_written"), counter(&db, "flushes"));
    for i in 0..50 {
        db.put(format!("k{i:05}"), vec![b'v'; 10]).unwrap();
        db.wait_idle().unwrap();
    }
    let logged = counter(&db, "wal_bytes_written") - before.0;
    let flushes = counter(&db, "flushes") - before.1;
    assert!(logged < 100_000, "{logged} bytes logged and {flushes} flushes for 50 puts of 10 bytes");
    assert!(flushes < 5, "{flushes} flushes for 50 puts of 10 bytes");
}

/// Forty transactions of 10 KB wait for their decisions, while ten times as much is written beside them.
#[test]
fn many_undecided_ones_cost_writers_little() {
    let (disk, db) = new();
    (0..40).for_each(|i| prepare(&db, &format!("g{i}"), 10_000));
    let before = counter(&db, "wal_bytes_written");
    let (mut flushes, mut most) = (0, 0);
    for i in 0..30_000 {
        db.put(format!("k{i:05}"), vec![b'v'; 100]).unwrap();
        if i % 1000 == 999 {
            db.flush().unwrap();
            db.wait_idle().unwrap();
            (flushes, most) = (counter(&db, "flushes"), log_bytes(&disk).max(most));
        }
    }
    let logged = counter(&db, "wal_bytes_written") - before;
    // 5 MB of records, and 400 KB again for each 1.2 MB of them.
    assert!(logged < 7_000_000, "{logged} bytes logged and {flushes} flushes for 30,000 puts of 100 bytes");
    assert!(most < 2_400_000, "a few times what is undecided: {most} bytes of log");
    let after = disk.crash_clone(1, Crash::Power);
    drop(db);
    let db = Db::open("/db", options(&after)).unwrap();
    assert_eq!(gids(&db).len(), 40);
    for i in 0..40 {
        db.commit_prepared(format!("g{i}")).unwrap();
        assert_eq!(db.get(format!("g{i}")).unwrap().unwrap().len(), 10_000);
    }
    assert_eq!(db.iter().unwrap().count(), 30_040);
}

/// A participant that prepares and rolls back, and writes nothing else: the log must not grow for ever.
#[test]
fn rolled_back_ones_leave_the_log() {
    for (gid, bytes) in [("rolled back", 5_000), ("empty", 0)] {
        let (disk, db) = new();
        let mut most = 0;
        for _ in 0..400 {
            let txn = db.begin(TxnOptions::new().isolation(Isolation::Serializable)).unwrap();
            if bytes > 0 {
                txn.put(&db.default_family(), "k", vec![b'v'; bytes]).unwrap();
            } else {
                txn.get(&db.default_family(), vec![b'r'; 5000]).unwrap();
            }
            txn.prepare(gid).unwrap();
            if bytes > 0 {
                db.rollback_prepared(gid).unwrap();
            } else {
                db.commit_prepared(gid).unwrap();
            }
            db.wait_idle().unwrap();
            most = log_bytes(&disk).max(most);
        }
        assert!(most < 100_000, "{gid}: nothing is undecided, nothing was written: {most} bytes of log");
        assert_eq!(counter(&db, "flushes"), 0);
        let latest = db.latest_seq();
        for crash in [Crash::Power, Crash::Process] {
            let db = Db::open("/db", options(&disk.crash_clone(1, crash))).unwrap();
            assert!(db.latest_seq() >= latest && gids(&db).is_empty());
            db.put("k", "v").unwrap();
        }
    }
}

/// The same beside one that nobody decides, which is copied; wherever the power goes it is still there.
#[test]
fn an_undecided_one_outlives_log_that_is_dropped_without_a_flush() {
    let mut crashed = 0;
    for at in (0..2_000).map(|i| i * 5 + 1) {
        let disk = SimDisk::new(at);
        let db = Db::open("/db", options(&disk)).unwrap();
        prepare(&db, "stays", 3_000);
        disk.crash_at(disk.io_count() + at);
        let went_on = (0..60).all(|_| {
            let txn = db.begin(TxnOptions::new()).unwrap();
            txn.put(&db.default_family(), "k", vec![b'v'; 2_000]).unwrap();
            let decided = txn.prepare("goes").and_then(|()| db.rollback_prepared("goes"));
            decided.and_then(|()| db.wait_idle()).is_ok()
        });
        if went_on {
            let log = log_bytes(&disk);
            assert!(log < 60_000, "{log} bytes of log, 120,000 were logged");
        }
        let after = disk.crash_clone(at, Crash::Power);
        drop(db);
        let db = Db::open("/db", options(&after)).unwrap();
        assert!(gids(&db).contains(&"stays".to_string()), "crash at {at}");
        db.commit_prepared("stays").unwrap();
        assert_eq!(db.get("stays").unwrap().unwrap().len(), 3_000);
        assert_eq!(db.get("k").unwrap(), None);
        if went_on {
            break;
        }
        crashed += 1;
    }
    assert!(crashed > 20, "{crashed}");
}
