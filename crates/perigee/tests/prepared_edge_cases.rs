//! Regression tests for faults found in a review of two-phase commit.
#![allow(clippy::unwrap_used)]

use crate::prepared::{env, gids, small};
use perigee::env::DirOpenMode;
use perigee::env::fs::memory::{Crash, SimDisk};
use perigee::env::sim::SimWorld;
use perigee::{Db, Durability, ErrorKind, Isolation, LockMode, Options, TxnOptions};
use perigee_base::{FileHeader, FileId, FileKind};
use perigee_file::log::{
    EncodedRecord, LogReader, LogWriter, NextLogRecord, RecordKind, RecordStamp,
};
use std::path::Path;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

fn options(disk: &Arc<SimDisk>) -> Options {
    Options::in_env(env(disk)).default_family(small()).durability(Durability::None)
}
fn new() -> (Arc<SimDisk>, Db) {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    (disk, db)
}
/// Size of the logs without preallocated space, whose size depends on timing.
fn log_bytes(disk: &SimDisk) -> u64 {
    let logs = disk.paths().into_iter().filter(|p| p.extension().is_some_and(|e| e == "wal"));
    logs.map(|p| disk.read_raw(&p).iter().rposition(|b| *b != 0).unwrap_or(0) as u64).sum()
}
fn counter(db: &Db, name: &str) -> u64 {
    db.admin().stats().counter(name).unwrap()
}
fn prepare(db: &Db, gid: &str, bytes: usize) {
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&db.default_family(), gid, vec![b'v'; bytes]).unwrap();
    txn.prepare(gid).unwrap();
}

/// Regression test: re-logged transactions triggered further copies: they filled the segment, which
/// was sealed at the next write and flushed, and all of them were copied again.
#[test]
fn writes_do_not_relog_prepared_txns_each_time() {
    let (_disk, db) = new();
    (0..40).for_each(|i| prepare(&db, &format!("g{i}"), 10_000));
    let before = (counter(&db, "wal_bytes_written"), counter(&db, "flushes"));
    for i in 0..50 {
        db.put(format!("k{i:05}"), vec![b'v'; 10]).unwrap();
        db.admin().wait_idle().unwrap();
    }
    let logged = counter(&db, "wal_bytes_written") - before.0;
    let flushes = counter(&db, "flushes") - before.1;
    assert!(
        logged < 100_000,
        "{logged} bytes logged and {flushes} flushes for 50 puts of 10 bytes"
    );
    assert!(flushes < 5, "{flushes} flushes for 50 puts of 10 bytes");
}

/// Forty prepared transactions of 10 KB wait for a decision while ten times as much other data is
/// written.
#[test]
fn relogging_prepared_txns_costs_little() {
    let (disk, db) = new();
    (0..40).for_each(|i| prepare(&db, &format!("g{i}"), 10_000));
    let before = counter(&db, "wal_bytes_written");
    let (mut flushes, mut most) = (0, 0);
    for i in 0..30_000 {
        db.put(format!("k{i:05}"), vec![b'v'; 100]).unwrap();
        if i % 1000 == 999 {
            db.admin().flush().unwrap();
            db.admin().wait_idle().unwrap();
            (flushes, most) = (counter(&db, "flushes"), log_bytes(&disk).max(most));
        }
    }
    let logged = counter(&db, "wal_bytes_written") - before;
    // 5 MB of records, and another 400 KB per 1.2 MB of them.
    assert!(
        logged < 7_000_000,
        "{logged} bytes logged and {flushes} flushes for 30,000 puts of 100 bytes"
    );
    assert!(most < 2_400_000, "log larger than a few times the undecided data: {most} bytes");
    let after = disk.crash_clone(1, Crash::Power);
    drop(db);
    let db = Db::open("/db", options(&after)).unwrap();
    assert_eq!(gids(&db).len(), 40);
    for i in 0..40 {
        db.two_phase().commit(format!("g{i}")).unwrap();
        assert_eq!(db.get(format!("g{i}")).unwrap().unwrap().len(), 10_000);
    }
    assert_eq!(db.iter().unwrap().count(), 30_040);
}

/// A participant prepares and rolls back repeatedly and writes nothing else: the log must not grow
/// without limit.
#[test]
fn rolled_back_prepared_txns_do_not_grow_log() {
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
                db.two_phase().rollback(gid).unwrap();
            } else {
                db.two_phase().commit(gid).unwrap();
            }
            db.admin().wait_idle().unwrap();
            most = log_bytes(&disk).max(most);
        }
        assert!(
            most < 100_000,
            "{gid}: {most} bytes of log without undecided transactions or writes"
        );
        assert_eq!(counter(&db, "flushes"), 0);
        let latest = db.history().latest_seq();
        for crash in [Crash::Power, Crash::Process] {
            let db = Db::open("/db", options(&disk.crash_clone(1, crash))).unwrap();
            assert!(db.history().latest_seq() >= latest && gids(&db).is_empty());
            db.put("k", "v").unwrap();
        }
    }
}

/// The same workload with one undecided transaction, which is re-logged: it must survive a power
/// cut at any time.
#[test]
fn prepared_txn_survives_removal_of_its_segment() {
    let mut crashed = 0;
    for at in (0..2_000).map(|i| i * 5 + 1) {
        let disk = SimDisk::new(at);
        let db = Db::open("/db", options(&disk)).unwrap();
        prepare(&db, "stays", 3_000);
        disk.crash_at(disk.mutating_calls() + at);
        let went_on = (0..60).all(|_| {
            let txn = db.begin(TxnOptions::new()).unwrap();
            txn.put(&db.default_family(), "k", vec![b'v'; 2_000]).unwrap();
            let decided = txn.prepare("goes").and_then(|()| db.two_phase().rollback("goes"));
            decided.and_then(|()| db.admin().wait_idle()).is_ok()
        });
        if went_on {
            let log = log_bytes(&disk);
            assert!(log < 60_000, "{log} bytes of log are kept of 120,000 logged");
        }
        let after = disk.crash_clone(at, Crash::Power);
        drop(db);
        let db = Db::open("/db", options(&after)).unwrap();
        assert!(gids(&db).contains(&"stays".to_string()), "crash at {at}");
        db.two_phase().commit("stays").unwrap();
        assert_eq!(db.get("stays").unwrap().unwrap().len(), 3_000);
        assert_eq!(db.get("k").unwrap(), None);
        if went_on {
            break;
        }
        crashed += 1;
    }
    assert!(crashed > 20, "{crashed}");
}

/// Regression test: a repair reported a committed transaction as "not decided, and not in the new
/// database".
#[test]
fn repair_keeps_decision_after_relogged_prepare() {
    let (disk, db) = new();
    // An undecided transaction logged before it makes the next open re-log all of them.
    for gid in ["undecided", "committed"] {
        let txn = db.begin(TxnOptions::new()).unwrap();
        txn.put(&db.default_family(), gid, "v").unwrap();
        txn.prepare(gid).unwrap();
    }
    db.two_phase().commit("committed").unwrap();
    let crashed = disk.crash_clone(1, Crash::Process);
    drop(db);
    // An open crashes after it copied the log and before it writes its manifest; then the manifest
    // is lost.
    let mut seen = 0;
    for at in 1..30 {
        let disk = crashed.crash_clone(at, Crash::Process);
        disk.crash_at(disk.mutating_calls() + at);
        drop(Db::open("/db", options(&disk)));
        let disk = disk.crash_clone(at, Crash::Process);
        let logs = disk
            .paths()
            .into_iter()
            .filter(|p| p.extension().is_some_and(|e| e == "wal") && disk.read_raw(p).len() > 100)
            .count();
        let manifest = disk.paths().into_iter().find(|p| p.ends_with("MANIFEST")).unwrap();
        let mut bytes = disk.read_raw(&manifest);
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        disk.write_raw(&manifest, bytes);
        let report = perigee::repair_in(&env(&disk), "/db", "/repaired", |_, _| {}).unwrap();
        seen += u64::from(logs > 1);
        let repaired = Db::open("/repaired", options(&disk)).unwrap();
        assert_eq!(repaired.get("committed").unwrap().as_deref(), Some(&b"v"[..]));
        let wrong = report.warnings.iter().find(|w| w.contains("\"committed\""));
        assert!(wrong.is_none(), "crash at {at}, {logs} logs: {wrong:?}");
    }
    assert!(seen > 0);
}

/// Keys and range bounds that are too long to be written can still be read and locked.
#[test]
fn prepare_accepts_long_read_keys() {
    let (_disk, db) = new();
    let f = db.default_family();
    let long = vec![b'x'; 70_000];
    let mut wrong = Vec::new();
    for case in ["get", "range", "lock", "lock_range"] {
        let txn = db.begin(TxnOptions::new().isolation(Isolation::Serializable)).unwrap();
        let done = match case {
            "get" => txn.get(&f, &long).map(drop),
            "range" => txn.range(&f, long.clone()..).map(|i| i.for_each(drop)),
            "lock" => txn.lock(&f, &long, LockMode::Shared),
            _ => txn.lock_range(&f, long.clone().., LockMode::Gap),
        };
        if done.is_err() {
            continue;
        }
        txn.put(&f, "k", "v").unwrap();
        match txn.prepare("g") {
            Ok(()) => db.two_phase().rollback("g").unwrap(),
            Err(e) => wrong.push(format!("{case}: {e}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `AlreadyExists` leaves the transaction usable, as documented.
#[test]
fn txn_continues_after_duplicate_gid() {
    let (_disk, db) = new();
    for round in 0..200 {
        let barrier = Barrier::new(2);
        std::thread::scope(|s| {
            let both: Vec<_> = (0..2)
                .map(|i| {
                    let (db, barrier) = (&db, &barrier);
                    s.spawn(move || {
                        let txn = db.begin(TxnOptions::new()).unwrap();
                        txn.put(&db.default_family(), format!("k{i}"), vec![b'v'; 3000]).unwrap();
                        barrier.wait();
                        if let Err(e) = txn.prepare("same") {
                            assert_eq!(e.kind(), ErrorKind::AlreadyExists);
                            let on = txn.put(&db.default_family(), "more", "");
                            assert!(
                                on.is_ok(),
                                "round {round}: {:?}",
                                on.map_err(|e| e.to_string())
                            );
                        }
                    })
                })
                .collect();
            both.into_iter().for_each(|t| t.join().unwrap());
        });
        db.two_phase().rollback("same").unwrap();
    }
}

/// A transaction that is retried keeps its age, so that it is eventually the oldest and is never
/// chosen as the victim of a deadlock, as documented.
#[test]
fn refused_txn_keeps_its_age_for_deadlocks() {
    for prepare in [false, true] {
        SimWorld::new(1).run(SimDisk::new(1), |env| {
            let db = Db::open("/db", Options::in_env(env.clone())).unwrap();
            let f = db.default_family();
            let o = || TxnOptions::new().lock_timeout(Duration::from_secs(20));
            let old = db.begin(o()).unwrap();
            old.put(&f, "k", "").unwrap();
            db.put("k", "first").unwrap();
            let refused = match prepare {
                true => old.prepare("g"),
                false => old.commit_in_place(None).map(drop),
            };
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
            let young = db.begin(o()).unwrap();
            old.reset().unwrap();
            old.lock(&f, "a", LockMode::Exclusive).unwrap();
            young.lock(&f, "b", LockMode::Exclusive).unwrap();
            let young_done = Arc::new(Mutex::new(None));
            let waits = {
                let (f, done) = (f.clone(), Arc::clone(&young_done));
                move || {
                    *done.lock().unwrap() = Some(young.lock(&f, "a", LockMode::Exclusive));
                    young.rollback();
                }
            };
            let young = env.spawn.spawn("young", Box::new(waits)).unwrap();
            // Simulated time advances only while every thread waits: the younger transaction is
            // blocked on its lock.
            env.clock.sleep_us(100_000);
            assert!(young_done.lock().unwrap().is_none());
            let done = old.lock(&f, "b", LockMode::Exclusive);
            old.rollback();
            young.join().unwrap();
            let young_done = young_done.lock().unwrap().take().unwrap();
            assert!(
                done.is_ok() && young_done.is_err(),
                "prepare: {prepare}: the older transaction was the victim"
            );
            db.close().unwrap();
        });
    }
}

/// A prepare record that this version does not understand is refused before any byte is changed.
#[test]
fn unknown_prepare_record_fails_open_without_writes() {
    let (disk, db) = new();
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&db.default_family(), "k", "v").unwrap();
    txn.prepare("g").unwrap();
    let disk2 = disk.crash_clone(1, Crash::Process);
    drop((txn, db));
    let disk = disk2;
    // Copy the log with its isolation level set to 5.
    let dir = env(&disk).fs.open_dir(Path::new("/db"), DirOpenMode::Existing).unwrap();
    let wal = dir
        .list()
        .unwrap()
        .into_iter()
        .find(|f| f.ends_with(".wal") && disk.read_raw(Path::new("/db").join(f)).len() > 100)
        .unwrap();
    let id = FileId(wal.trim_end_matches(".wal").parse().unwrap());
    let mut log = LogReader::open(&*dir, &wal, FileKind::Wal, Some(id), None, None).unwrap();
    let h = *log.header();
    let other = SimDisk::new(2);
    let there = env(&other).fs.open_dir(Path::new("/x"), DirOpenMode::CreateIfMissing).unwrap();
    let header = FileHeader { kind: FileKind::Wal, database: h.database, file: id, a: h.a, b: h.b };
    let mut out = LogWriter::create(&*there, &wal, &header).unwrap();
    while let NextLogRecord::Record(r) = log.next_record().unwrap() {
        let mut payload = r.payload.clone();
        if r.header.kind == RecordKind::Prepare {
            payload[2] = 5;
        }
        let mut copy = EncodedRecord::from_payload(r.header.kind, &payload, r.header.lsn_count);
        out.append(
            RecordStamp {
                lsn: r.header.lsn,
                durable_lsn: r.header.durable_lsn,
                manifest_edits: r.header.manifest_edits,
            },
            &mut [&mut copy],
        )
        .unwrap();
    }
    disk.write_raw(Path::new("/db").join(&wal), other.read_raw(Path::new("/x").join(&wal)));
    let image = |disk: &SimDisk| {
        disk.paths()
            .into_iter()
            .map(|p| (p.clone(), disk.read_raw(&p)))
            .filter(|(p, _)| !p.ends_with("LOCK") && !p.ends_with("LOG"))
            .collect::<Vec<_>>()
    };
    let before = image(&disk);
    let e = Db::open("/db", options(&disk)).unwrap_err();
    eprintln!("{e}");
    let (before, after): (Vec<_>, Vec<_>) = (
        before.into_iter().map(|f| f.0).collect(),
        image(&disk).into_iter().map(|f| f.0).collect(),
    );
    assert_eq!(before, after, "a failed open changed files");
}
