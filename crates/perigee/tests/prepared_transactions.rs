//! Two-phase commit: a transaction is prepared once and decided once, across any event in between.
#![allow(clippy::unwrap_used)]

use crate::prepared::{env, gids, small};
use perigee::env::DirOpenMode;
use perigee::env::fs::memory::{Crash, SimDisk};
use perigee::env::sim::SimWorld;
use perigee::load::TableWriter;
use perigee::{
    Db, Durability, Error, ErrorKind, Family, Isolation, LockMode, Options, Txn, TxnOptions,
    WriteBatch,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn options(disk: &Arc<SimDisk>) -> Options {
    Options::in_env(env(disk)).default_family(small())
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
fn prepare(db: &Db, gid: &str, puts: &[(&str, &str)]) {
    let txn = db.begin(TxnOptions::new()).unwrap();
    puts.iter().for_each(|(k, v)| txn.put(&db.default_family(), k, v).unwrap());
    txn.prepare(gid).unwrap();
}
fn error_kind<T: std::fmt::Debug>(done: Result<T, Error>) -> ErrorKind {
    done.unwrap_err().kind()
}
fn value(db: &Db, key: &str) -> Option<String> {
    db.get(key).unwrap().map(|v| String::from_utf8(v).unwrap())
}
fn begin(db: &Db, isolation: Isolation) -> Txn {
    db.begin(TxnOptions::new().isolation(isolation)).unwrap()
}

#[test]
fn prepared_transaction_survives_crash() {
    for durability in [Durability::Full, Durability::None] {
        let disk = SimDisk::new(1);
        let db = Db::open("/db", options(&disk).durability(durability)).unwrap();
        let other = db.create_family("other", small()).unwrap();
        let txn = db.begin(TxnOptions::new()).unwrap();
        txn.put(&db.default_family(), "a", "1").unwrap();
        txn.savepoint("s").unwrap();
        txn.put(&other, "wrong", "").unwrap();
        txn.rollback_to("s").unwrap();
        txn.put(&other, "b", "2").unwrap();
        txn.delete_range(&other, "x".."z").unwrap();
        txn.prepare("one").unwrap();
        assert_eq!(
            error_kind(txn.put(&other, "late", "")),
            ErrorKind::InvalidArgument,
            "a prepared transaction accepts no further calls"
        );
        prepare(&db, "two", &[("c", "3")]);
        prepare(&db, "three", &[("d", "4")]);
        let listed = db.two_phase().prepared().unwrap();
        assert_eq!((listed[0].operations, listed[0].isolation), (3, Isolation::Snapshot));
        drop((txn, other));

        let (disk, db) = power_cut(&disk, db);
        assert_eq!(gids(&db), ["one", "three", "two"]);
        assert_eq!((value(&db, "a"), db.family("other").unwrap().get("b").unwrap()), (None, None));
        db.two_phase().commit("one").unwrap();
        db.two_phase().rollback("two").unwrap();
        let (disk, db) = power_cut(&disk, db);
        assert_eq!(gids(&db), ["three"]);
        assert_eq!(db.family("other").unwrap().get("b").unwrap().unwrap(), b"2");
        assert_eq!((value(&db, "a").unwrap(), value(&db, "c")), ("1".into(), None));
        assert_eq!(error_kind(db.two_phase().commit("one")), ErrorKind::NotFound);
        assert_eq!(error_kind(db.two_phase().rollback("two")), ErrorKind::NotFound);
        // A clean close keeps prepared transactions, too.
        db.close().unwrap();
        let db = open(&disk);
        let number = db.two_phase().commit("three").unwrap();
        assert_eq!((number, value(&db, "d").unwrap()), (db.history().latest_seq(), "4".into()));
        assert!(db.admin().verify().unwrap().errors.is_empty());
        db.close().unwrap();
        assert!(gids(&open(&disk)).is_empty());
    }
}

#[test]
fn prepared_writes_conflict_with_other_writers() {
    let (disk, db) = new();
    let txn = db.begin(TxnOptions::new()).unwrap();
    let f = db.default_family();
    txn.put(&f, "k", "prepared").unwrap();
    txn.delete_range(&f, "r".."s").unwrap();
    txn.prepare("g").unwrap();
    let check = |db: &Db| {
        let f = db.default_family();
        let e = f.put("k", "x").unwrap_err();
        assert_eq!(
            (e.kind(), e.key(), e.is_retryable()),
            (ErrorKind::Conflict, Some(&b"k"[..]), true)
        );
        assert!(e.to_string().contains("\"g\""), "{e}");
        assert_eq!(error_kind(f.delete("r1")), ErrorKind::Conflict);
        assert_eq!(error_kind(f.delete_range("a".."l")), ErrorKind::Conflict);
        assert_eq!(error_kind(f.delete_range("q".."r1")), ErrorKind::Conflict);
        let mut batch = WriteBatch::new();
        batch.put(&f, "free", "").unwrap();
        batch.put(&f, "k", "").unwrap();
        assert_eq!(error_kind(db.write(batch)), ErrorKind::Conflict);
        assert_eq!(value(db, "free"), None, "a refused batch writes nothing");
        for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
            let txn = begin(db, isolation);
            txn.put(&f, "k", "x").unwrap();
            assert_eq!(error_kind(txn.commit()), ErrorKind::Conflict);
        }
        // Another transaction cannot be prepared with conflicting writes either.
        let txn = begin(db, Isolation::Snapshot);
        txn.put(&f, "k", "x").unwrap();
        assert_eq!(error_kind(txn.prepare("h")), ErrorKind::Conflict);
        txn.reset().unwrap();
        txn.put(&f, "elsewhere", "x").unwrap();
        txn.commit().unwrap();
        f.put("s", "").unwrap();
    };
    check(&db);
    drop((txn, f));
    let (disk, db) = power_cut(&disk, db);
    check(&db);
    db.two_phase().commit("g").unwrap();
    assert_eq!(value(&db, "k").unwrap(), "prepared");
    db.put("k", "free again").unwrap();
    let (_, db) = power_cut(&disk, db);
    assert_eq!(value(&db, "k").unwrap(), "free again");
}

#[test]
fn prepared_reads_are_protected_per_isolation_level() {
    for isolation in [Isolation::Snapshot, Isolation::RepeatableRead, Isolation::Serializable] {
        let (disk, db) = new();
        let f = db.default_family();
        db.put("read", "1").unwrap();
        let txn = begin(&db, isolation);
        txn.get(&f, "read").unwrap();
        txn.range(&f, "m".."n").unwrap().for_each(drop);
        txn.get_for_update(&f, "locked", LockMode::Shared).unwrap();
        txn.put(&f, "k", "v").unwrap();
        txn.prepare("g").unwrap();
        let check = |db: &Db| {
            assert_eq!(
                db.put("read", "2").is_err(),
                isolation != Isolation::Snapshot,
                "{isolation:?}"
            );
            assert_eq!(db.put("mm", "phantom").is_err(), isolation == Isolation::Serializable);
            assert_eq!(error_kind(db.put("locked", "")), ErrorKind::Conflict);
        };
        check(&db);
        drop((txn, f));
        let (_, db) = power_cut(&disk, db);
        check(&db);
        db.two_phase().commit("g").unwrap();
        db.put("read", "3").unwrap();
        db.put("mm", "").unwrap();
    }
}

#[test]
fn prepare_validates_reads_at_serializable() {
    let (_disk, db) = new();
    let f = db.default_family();
    // A read key was overwritten: the transaction could still commit now, but cannot guarantee to
    // commit later.
    let late = begin(&db, Isolation::Serializable);
    late.get(&f, "x").unwrap();
    db.put("x", "").unwrap();
    late.put(&f, "y", "").unwrap();
    assert_eq!(error_kind(late.prepare("late")), ErrorKind::Conflict);
    // A read key will be overwritten by a prepared transaction.
    prepare(&db, "writer", &[("w", "")]);
    let reader = begin(&db, Isolation::Serializable);
    reader.get(&f, "w").unwrap();
    reader.put(&f, "z", "").unwrap();
    assert_eq!(error_kind(reader.prepare("reader")), ErrorKind::Conflict);
    // It may commit now, because it is ordered before the prepared transaction.
    reader.reset().unwrap();
    assert_eq!(reader.get(&f, "w").unwrap(), None);
    reader.put(&f, "z", "").unwrap();
    reader.commit().unwrap();
    db.two_phase().commit("writer").unwrap();

    // Write skew with a transaction prepared in between, before and after its decision.
    for decided_first in [false, true] {
        let (a, b) = (begin(&db, Isolation::Serializable), begin(&db, Isolation::Serializable));
        a.get(&f, "on call 1").unwrap();
        b.get(&f, "on call 2").unwrap();
        a.put(&f, "on call 2", "off").unwrap();
        b.put(&f, "on call 1", "off").unwrap();
        a.prepare("a").unwrap();
        if decided_first {
            db.two_phase().commit("a").unwrap();
        }
        assert_eq!(error_kind(b.commit()), ErrorKind::Conflict);
        if !decided_first {
            db.two_phase().commit("a").unwrap();
        }
        db.delete("on call 2").unwrap();
    }
}

/// Write skew over three transactions and a restart: X overwrites a key that P reads, P overwrites
/// a key that T has read.
#[test]
fn prepared_read_sets_survive_restart() {
    let (disk, db) = new();
    let f = db.default_family();
    let t = begin(&db, Isolation::Serializable);
    t.get(&f, "p").unwrap();
    t.put(&f, "t", "").unwrap();
    t.prepare("t").unwrap();
    drop((t, f));
    let (_, db) = power_cut(&disk, db);
    let f = db.default_family();
    let (x, p) = (begin(&db, Isolation::Serializable), begin(&db, Isolation::Serializable));
    // X reads a key that T will write, P reads a key that X writes, T has read a key that P writes:
    // no serial order of the three exists.
    x.get(&f, "t").unwrap();
    x.put(&f, "x", "").unwrap();
    p.get(&f, "x").unwrap();
    p.put(&f, "p", "").unwrap();
    x.commit().unwrap();
    db.two_phase().commit("t").unwrap();
    assert_eq!(error_kind(p.commit()), ErrorKind::Conflict);
}

#[test]
fn prepared_locks_survive_restart() {
    let (disk, db) = new();
    let begin_pessimistic = |db: &Db| {
        db.begin(TxnOptions::new().pessimistic(true).lock_timeout(Duration::ZERO)).unwrap()
    };
    let f = db.default_family();
    let txn = begin_pessimistic(&db);
    txn.put(&f, "k", "v").unwrap();
    txn.lock(&f, "shared", LockMode::Shared).unwrap();
    txn.lock_range(&f, "m".."n", LockMode::Gap).unwrap();
    txn.prepare("g").unwrap();
    let check = |db: &Db, f: &Family, held: bool| {
        let want =
            |place: &dyn Fn(&Txn) -> perigee::Result<()>| place(&begin_pessimistic(db)).is_err();
        assert_eq!(want(&|t| t.put(f, "k", "")), held);
        assert_eq!(want(&|t| t.lock(f, "k", LockMode::Shared)), held);
        assert_eq!(want(&|t| t.lock(f, "shared", LockMode::Exclusive)), held);
        assert!(!want(&|t| t.lock(f, "shared", LockMode::Shared)));
        assert_eq!(want(&|t| t.put(f, "mm", "")), held, "the gap");
    };
    check(&db, &f, true);
    // After a restart of the transaction the handle is a new transaction with its own locks.
    txn.reset().unwrap();
    assert_eq!(error_kind(txn.put(&f, "k", "")), ErrorKind::Busy);
    drop((txn, f));
    let (_, db) = power_cut(&disk, db);
    let f = db.default_family();
    check(&db, &f, true);
    db.two_phase().rollback("g").unwrap();
    check(&db, &f, false);

    // A refused prepare releases its locks.
    let txn = begin_pessimistic(&db);
    txn.get(&f, "a").unwrap();
    txn.put(&f, "k", "v").unwrap();
    db.put("k", "faster").unwrap();
    assert_eq!(error_kind(txn.prepare("g")), ErrorKind::Conflict);
    check(&db, &f, false);
}

#[test]
fn gids_are_validated() {
    let (_disk, db) = new();
    let f = db.default_family();
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&f, "a", "").unwrap();
    assert_eq!(error_kind(txn.prepare("")), ErrorKind::InvalidArgument);
    assert_eq!(error_kind(txn.prepare([7; 256])), ErrorKind::InvalidArgument);
    txn.prepare([0xff; 255]).unwrap();
    txn.reset().unwrap();
    txn.put(&f, "b", "").unwrap();
    assert_eq!(error_kind(txn.prepare([0xff; 255])), ErrorKind::AlreadyExists);
    txn.prepare("other").unwrap(); // the transaction continues
    db.two_phase().commit([0xff; 255]).unwrap();
    db.two_phase().rollback("other").unwrap();
    // The gid is free again; a transaction without writes is prepared like any other.
    let empty = begin(&db, Isolation::Serializable);
    empty.get(&f, "a").unwrap();
    empty.prepare("other").unwrap();
    assert_eq!(error_kind(db.put("a", "")), ErrorKind::Conflict);
    db.two_phase().commit("other").unwrap();
    let report =
        db.begin(TxnOptions::new().read_only(true).isolation(Isolation::Serializable)).unwrap();
    report.get(&f, "a").unwrap();
    report.prepare("report").unwrap();
    db.put("a", "").unwrap();
    db.two_phase().commit("report").unwrap();
}

#[test]
fn families_of_prepared_transaction_cannot_be_dropped() {
    let (disk, db) = new();
    let family = db.create_family("f", small()).unwrap();
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&family, "k", "v").unwrap();
    txn.prepare("g").unwrap();
    let check = |db: &Db| {
        let e = db.drop_family("f").unwrap_err();
        assert!(e.kind() == ErrorKind::Busy && e.to_string().contains("\"g\""), "{e}");
        assert_eq!(error_kind(db.admin().clear_family("f")), ErrorKind::Busy);
    };
    check(&db);
    db.admin().rename_family("f", "other name").unwrap();
    db.admin().rename_family("other name", "f").unwrap();
    let copy = db.admin().clone_family("f", "copy").unwrap();
    copy.put("k", "of the copy").unwrap();
    drop((txn, family, copy));
    let (disk, db) = power_cut(&disk, db);
    check(&db);
    db.two_phase().commit("g").unwrap();
    assert_eq!(db.family("copy").unwrap().get("k").unwrap().unwrap(), b"of the copy");
    db.drop_family("f").unwrap();
    db.create_family("f", small()).unwrap();
    let (_, db) = power_cut(&disk, db);
    assert!(gids(&db).is_empty() && db.family("f").unwrap().get("k").unwrap().is_none());
}

#[test]
fn bulk_load_conflicts_with_prepared_transaction() {
    let (disk, db) = new();
    let f = db.default_family();
    prepare(&db, "g", &[("m", "1")]);
    let mut load = f.bulk_load().unwrap();
    load.put("a", "").unwrap();
    load.put("z", "").unwrap();
    let e = perigee::load::BulkLoad::finish_all(std::slice::from_mut(&mut load)).unwrap_err();
    assert!(e.kind() == ErrorKind::Conflict && e.to_string().contains("\"g\""), "{e}");
    let table = |name: &str, key: &str| {
        let path = Path::new("/db").join(name);
        let mut w = TableWriter::create_in(env(&disk), &path, small()).unwrap();
        w.put(key, "ingested").unwrap();
        w.finish().unwrap();
        path
    };
    assert_eq!(error_kind(f.ingest(&[table("t", "m")])), ErrorKind::Conflict);
    f.ingest(&[table("u", "n")]).unwrap();
    db.two_phase().commit("g").unwrap();
    perigee::load::BulkLoad::finish_all(std::slice::from_mut(&mut load)).unwrap(); // the load can be finished again
    assert_eq!(
        (value(&db, "m").unwrap(), value(&db, "n").unwrap()),
        ("1".into(), "ingested".into())
    );
    let root = env(&disk).fs.open_dir("/db".as_ref(), DirOpenMode::Existing).unwrap();
    ["t", "u"].iter().for_each(|t| root.remove(t).unwrap());
}

#[test]
fn prepared_transaction_survives_log_rotation() {
    let (disk, db) = new();
    prepare(&db, "small", &[("p", "1")]);
    let large = "v".repeat(60_000);
    prepare(&db, "large", &[("q", &large)]);
    for i in 0..3000 {
        db.put(format!("k{i:05}"), vec![b'v'; 100]).unwrap();
    }
    db.admin().flush().unwrap();
    db.admin().wait_idle().unwrap();
    let log: u64 = disk
        .paths()
        .iter()
        .filter(|p| p.extension().is_some_and(|e| e == "wal"))
        // Without preallocated space, whose size depends on timing.
        .map(|p| disk.read_raw(p).iter().rposition(|b| *b != 0).unwrap_or(0) as u64)
        .sum();
    assert!(log < 300_000, "log larger than a few times the large transaction: {log} bytes");
    let (disk, db) = power_cut(&disk, db);
    assert_eq!(gids(&db), ["large", "small"]);
    assert_eq!(db.iter().unwrap().count(), 3000);
    // The same after the next open, and the one after it.
    let (disk, db) = power_cut(&disk, db);
    db.two_phase().commit("small").unwrap();
    let (disk, db) = power_cut(&disk, db);
    assert_eq!(gids(&db), ["large"]);
    db.two_phase().commit("large").unwrap();
    db.admin().flush().unwrap();
    let (_, db) = power_cut(&disk, db);
    assert_eq!(value(&db, "q").unwrap(), large);
    assert_eq!(value(&db, "p").unwrap(), "1");
    assert!(gids(&db).is_empty());
}

#[test]
fn checkpoints_and_backups_keep_prepared_transactions() {
    let (disk, db) = new();
    db.put("flushed", "").unwrap();
    prepare(&db, "g", &[("k", "v")]);
    db.put("behind", "").unwrap();
    db.admin().flush().unwrap();
    prepare(&db, "decided", &[("d", "v")]);
    db.two_phase().commit("decided").unwrap();
    db.backups().checkpoint("/copy").unwrap();
    let backups = perigee::backup::BackupDir::open_in(env(&disk), "/backup");
    db.backups().create("/backup").unwrap();
    backups.restore(None, "/restored").unwrap();
    db.two_phase().commit("g").unwrap();
    for path in ["/copy", "/restored"] {
        let copy = Db::open(path, options(&disk)).unwrap();
        assert_eq!(
            (gids(&copy), copy.iter().unwrap().count()),
            (vec!["g".to_string()], 3),
            "{path}"
        );
        assert_eq!(error_kind(copy.put("k", "")), ErrorKind::Conflict);
        copy.two_phase().rollback("g").unwrap();
        assert_eq!(value(&copy, "k"), None);
    }
}

#[test]
fn read_only_open_lists_but_cannot_decide() {
    let (disk, db) = new();
    prepare(&db, "g", &[("k", "v")]);
    for salvage in [false, true] {
        let options = Options::in_env(env(&disk));
        let options =
            if salvage { options.salvage_readonly(true) } else { options.read_only(true) };
        let reader = Db::open("/db", options).unwrap();
        assert_eq!(gids(&reader), ["g"]);
        assert_eq!(value(&reader, "k"), None);
        assert_eq!(error_kind(reader.two_phase().commit("g")), ErrorKind::ReadOnly);
        assert_eq!(error_kind(reader.two_phase().rollback("g")), ErrorKind::ReadOnly);
    }
    db.close().unwrap();
    assert_eq!(error_kind(db.two_phase().prepared()), ErrorKind::Closed);
    let report = perigee::repair_in(&env(&disk), "/db", "/repaired", |_, _| {}).unwrap();
    assert!(report.lost.is_empty());
    assert!(report.warnings.iter().any(|w| w.contains("\"g\"")), "{:?}", report.warnings);
    let repaired = Db::open("/repaired", options(&disk)).unwrap();
    assert!(gids(&repaired).is_empty() && value(&repaired, "k").is_none());
}

#[test]
fn hooks_run_when_prepared_transaction_commits() {
    use std::sync::Mutex;
    let (_disk, db) = new();
    let events = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&events);
    db.default_family()
        .on_commit(move |e| list.lock().unwrap().push((e.sequence(), e.operations().count())));
    prepare(&db, "g", &[("a", ""), ("b", "")]);
    prepare(&db, "h", &[("c", "")]);
    assert!(events.lock().unwrap().is_empty());
    db.two_phase().rollback("h").unwrap();
    let last = db.two_phase().commit("g").unwrap();
    assert_eq!(*events.lock().unwrap(), [(last - 1, 2)]);
}

#[test]
fn prepare_on_full_disk_fails_without_loss() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", Options::in_env(env(&disk)).min_free_space(0)).unwrap();
    prepare(&db, "g", &[("k", &"v".repeat(200_000))]);
    // Space preallocated by the log.
    db.put("fill", "v".repeat(180_000)).unwrap();
    let used: u64 = disk.paths().iter().map(|p| disk.read_raw(p).len() as u64).sum();
    disk.set_capacity(used + 500);
    let e = db.two_phase().commit("g").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoSpace);
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&db.default_family(), "other", "v".repeat(200_000)).unwrap();
    assert_eq!(error_kind(txn.prepare("h")), ErrorKind::NoSpace);
    assert_eq!(gids(&db), ["g"]);
    disk.set_capacity(u64::MAX / 4);
    db.put("other", "").unwrap();
    db.two_phase().commit("g").unwrap();
    assert_eq!(value(&db, "k").unwrap().len(), 200_000);
}

#[test]
fn bit_flips_in_prepare_record_are_detected() {
    let (disk, db) = new();
    prepare(&db, "g", &[("k", "v")]);
    db.close().unwrap();
    let log = disk.paths().into_iter().find(|p| p.extension().is_some_and(|e| e == "wal")).unwrap();
    let good = disk.read_raw(&log);
    for at in 72..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        disk.write_raw(&log, bad);
        assert!(Db::open("/db", options(&disk)).is_err(), "byte {at}");
    }
    disk.write_raw(&log, good);
    assert_eq!(gids(&open(&disk)), ["g"]);
}

/// Operands, the change feed over a retained log and several restarts: the transaction is reported
/// once, at its commit.
#[test]
fn prepared_merges_appear_in_feed_once() {
    use perigee::MergeRule;
    use perigee::changes::FeedEvent;
    let disk = SimDisk::new(1);
    let family = || small().merge_operator(MergeRule::Append("".into()));
    let open = |disk: &Arc<SimDisk>| {
        let options = Options::in_env(env(disk)).default_family(family()).log_retention(1 << 30);
        Db::open("/db", options).unwrap()
    };
    let db = open(&disk);
    let f = db.default_family();
    f.merge("list", "a").unwrap();
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.merge(&f, "list", "b").unwrap();
    txn.prepare("g").unwrap();
    assert_eq!(error_kind(f.merge("list", "c")), ErrorKind::Conflict);
    for i in 0..200 {
        db.put(format!("k{i}"), vec![b'v'; 100]).unwrap();
    }
    db.admin().flush().unwrap();
    db.admin().wait_idle().unwrap();
    drop((txn, f));
    let commits = |db: &Db, since: u64| {
        let mut changes = db.history().changes(since).unwrap();
        let mut seen = Vec::new();
        while let Some(change) = changes.next_change().unwrap() {
            if let FeedEvent::Commit(commit) = change {
                seen.push((commit.sequence(), commit.operations().count()));
            }
        }
        seen
    };
    let after = disk.crash_clone(3, Crash::Power);
    drop(db);
    let db = open(&after);
    assert_eq!(gids(&db), ["g"]);
    assert_eq!(commits(&db, 0).len(), 201, "not reported before the decision");
    let number = db.two_phase().commit("g").unwrap();
    assert_eq!(value(&db, "list").unwrap(), "ab");
    assert_eq!(commits(&db, number - 1), [(number, 1)]);
    let again = after.crash_clone(4, Crash::Power);
    drop(db);
    let db = open(&again);
    assert!(gids(&db).is_empty());
    assert_eq!((value(&db, "list").unwrap(), commits(&db, 0).len()), ("ab".into(), 202));
}

/// A decision without a sync may be lost with the power, but only as a whole and with all later
/// commits; a crash of the process and a sync keep it.
#[test]
fn unsynced_decision_is_kept_or_lost_as_a_whole() {
    let mut lost = 0;
    for seed in 0..40 {
        let disk = SimDisk::new(1);
        let open = |disk: &_| Db::open("/db", options(disk).durability(Durability::None)).unwrap();
        let db = open(&disk);
        prepare(&db, "g", &[("a", "1"), ("b", "2")]);
        let syncs = db.admin().stats().counter("wal_syncs").unwrap();
        db.two_phase().commit_with("g", Durability::None).unwrap();
        assert_eq!(db.admin().stats().counter("wal_syncs").unwrap(), syncs);
        assert_eq!(error_kind(db.two_phase().commit("g")), ErrorKind::NotFound);
        db.put("a", "overwritten").unwrap(); // no conflict any more
        let killed = open(&disk.crash_clone(seed, Crash::Process));
        assert!(gids(&killed).is_empty());
        assert_eq!(value(&killed, "a").as_deref(), Some("overwritten"));
        let after = open(&disk.crash_clone(seed, Crash::Power));
        if gids(&after).is_empty() {
            assert_eq!(value(&after, "b").as_deref(), Some("2"));
        } else {
            lost += 1;
            assert_eq!((value(&after, "a"), value(&after, "b")), (None, None));
            assert_eq!(error_kind(after.put("a", "meddled")), ErrorKind::Conflict);
            after.two_phase().commit_with("g", Durability::None).unwrap();
            assert_eq!(value(&after, "a").as_deref(), Some("1"));
        }
        db.sync().unwrap();
        let synced = open(&disk.crash_clone(seed, Crash::Power));
        assert!(gids(&synced).is_empty());
        assert_eq!(value(&synced, "a").as_deref(), Some("overwritten"));
    }
    assert!(lost > 0, "no power failure lost the decision");
}

/// A decision with interval durability is synced in the background, at the latest by the close.
#[test]
fn decision_with_interval_durability_is_synced_soon() {
    SimWorld::new(1).run(SimDisk::new(1), |env| {
        let options = Options::in_env(env.clone()).durability(Durability::None);
        let db = Db::open("/db", options).unwrap();
        prepare(&db, "g", &[("a", "1")]);
        let syncs = || db.admin().stats().counter("wal_syncs").unwrap();
        let before = syncs();
        db.two_phase().commit_with("g", Durability::Interval(Duration::from_secs(1))).unwrap();
        assert_eq!(syncs(), before);
        env.clock.sleep_us(3_000_000);
        assert!(syncs() > before);
        db.close().unwrap();
    });
}
