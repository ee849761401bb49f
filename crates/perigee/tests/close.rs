//! Handles that outlive a close return `Closed`, keep no file or lock in the directory, and do not
//! affect the next process or database that opens it. Also: errors returned by handles of a dropped
//! column family.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::env::sim::SimWorld;
use perigee::{
    Db, Durability, ErrorKind, FamilyOptions, Isolation, LockMode, Options, TxnOptions, WriteBatch,
};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let path =
            std::env::temp_dir().join(format!("perigee-closing-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        TempDir(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn error_kind<T: std::fmt::Debug>(r: perigee::Result<T>) -> ErrorKind {
    r.unwrap_err().kind()
}

fn small() -> FamilyOptions {
    FamilyOptions::new().memtable_bytes(16 << 10).target_file_bytes(16 << 10).value_threshold(500)
}

fn options() -> Options {
    Options::new().durability(Durability::None).default_family(small())
}

fn fill(db: &Db, value: &[u8]) {
    for i in 0..400u32 {
        db.put(i.to_be_bytes(), value).unwrap();
    }
}

#[test]
fn live_handles_report_closed_after_close() {
    let dir = TempDir::new("alive");
    let db = Db::open(&dir.0, options()).unwrap();
    let other = db.create_family("other", FamilyOptions::new()).unwrap();
    fill(&db, &[1; 600]);
    db.admin().flush().unwrap();
    let family = db.default_family();
    let snapshot = db.snapshot().unwrap();
    let levels = [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Snapshot,
        Isolation::Serializable,
    ];
    let txns: Vec<_> = levels
        .map(|level| db.begin(TxnOptions::new().isolation(level)).unwrap())
        .into_iter()
        .collect();
    for (i, txn) in txns.iter().enumerate() {
        txn.put(&family, [i as u8], "x").unwrap();
        txn.savepoint("here").unwrap();
        txn.get(&other, "k").unwrap();
    }
    let spilled = db.begin(TxnOptions::new().spill_bytes(4096)).unwrap();
    for i in 0..200u32 {
        spilled.put(&family, i.to_le_bytes(), [2; 600]).unwrap();
    }
    let mut of_spilled = spilled.cursor(&family).unwrap();
    of_spilled.seek_to_first().unwrap();
    let mut cursor = db.default_family().cursor().unwrap();
    cursor.seek_to_first().unwrap();
    let mut iter = snapshot.iter(&family).unwrap();
    iter.next().unwrap().unwrap();
    let prepared = db.begin(TxnOptions::new()).unwrap();
    prepared.put(&other, "p", "prepared").unwrap();
    prepared.prepare("gid").unwrap();
    let mut load = other.bulk_load().unwrap();
    load.put("a", "b").unwrap();
    // Make the files that the readers pin obsolete, so that they are deleted with the last reader.
    fill(&db, &[3; 600]);
    db.admin().compact().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&family, "late", "").unwrap();

    db.close().unwrap();
    let again = Db::open(&dir.0, options()).expect("the close released the directory");
    for txn in &txns {
        assert_eq!(error_kind(txn.get(&family, [0])), ErrorKind::Closed);
        assert_eq!(error_kind(txn.put(&family, [0], "y")), ErrorKind::Closed);
        assert_eq!(error_kind(txn.delete(&family, [0])), ErrorKind::Closed);
        assert_eq!(error_kind(txn.cursor(&family)), ErrorKind::Closed);
        assert_eq!(error_kind(txn.savepoint("more")), ErrorKind::Closed);
        assert_eq!(error_kind(txn.rollback_to("here")), ErrorKind::Closed);
        assert_eq!(error_kind(txn.release_savepoint("here")), ErrorKind::Closed);
        assert_eq!(error_kind(txn.reset()), ErrorKind::Closed);
        assert_eq!(error_kind(txn.commit_in_place(None)), ErrorKind::Closed);
        txn.rollback_in_place();
    }
    assert_eq!(error_kind(of_spilled.next()), ErrorKind::Closed);
    assert_eq!(error_kind(spilled.put(&family, "k", "v")), ErrorKind::Closed);
    assert_eq!(error_kind(spilled.commit()), ErrorKind::Closed);
    assert_eq!(cursor.key(), [0; 4], "the current key stays readable");
    assert_eq!(error_kind(cursor.value()), ErrorKind::Closed);
    assert_eq!(error_kind(cursor.entry()), ErrorKind::Closed);
    assert_eq!(error_kind(cursor.next()), ErrorKind::Closed);
    assert_eq!(error_kind(cursor.seek("k")), ErrorKind::Closed);
    assert_eq!(error_kind(iter.next().unwrap()), ErrorKind::Closed);
    assert!(iter.next().is_none());
    assert_eq!(error_kind(snapshot.get(&family, [0; 4])), ErrorKind::Closed);
    assert_eq!(error_kind(snapshot.cursor(&family)), ErrorKind::Closed);
    assert_eq!(error_kind(load.finish()), ErrorKind::Closed);
    assert_eq!(error_kind(db.write(batch)), ErrorKind::Closed);
    assert_eq!(error_kind(family.get([0; 4])), ErrorKind::Closed);
    assert_eq!(error_kind(family.put("k", "v")), ErrorKind::Closed);
    assert_eq!(error_kind(family.delete("k")), ErrorKind::Closed);
    assert_eq!(error_kind(family.cursor()), ErrorKind::Closed);
    assert_eq!(error_kind(family.flush()), ErrorKind::Closed);
    assert_eq!(error_kind(family.compact()), ErrorKind::Closed);
    assert_eq!(error_kind(db.begin(TxnOptions::new())), ErrorKind::Closed);
    assert_eq!(error_kind(db.snapshot()), ErrorKind::Closed);
    assert_eq!(error_kind(db.family("other")), ErrorKind::Closed);
    assert_eq!(error_kind(db.create_family("third", FamilyOptions::new())), ErrorKind::Closed);
    assert_eq!(error_kind(db.drop_family("other")), ErrorKind::Closed);
    assert_eq!(error_kind(db.admin().rename_family("other", "third")), ErrorKind::Closed);
    assert_eq!(error_kind(db.admin().clone_family("other", "third")), ErrorKind::Closed);
    assert_eq!(error_kind(db.admin().clear_family("other")), ErrorKind::Closed);
    assert_eq!(error_kind(other.set_options(FamilyOptions::new())), ErrorKind::Closed);
    assert_eq!(error_kind(db.two_phase().commit("gid")), ErrorKind::Closed);
    assert_eq!(error_kind(db.sync()), ErrorKind::Closed);
    assert_eq!(error_kind(db.admin().verify()), ErrorKind::Closed);
    assert_eq!(
        (family.name(), db.families().len()),
        ("default".into(), 2),
        "names are available from memory"
    );
    assert!(!db.admin().stats().families.is_empty());
    db.close().expect("a second close succeeds");

    // Drop the last handles that pin old files while another database has the directory open.
    fill(&again, &[4; 600]);
    again.admin().flush().unwrap();
    drop((txns, of_spilled, cursor, iter, snapshot, load, family, other, prepared, db));
    again.admin().compact().unwrap();
    assert_eq!(again.iter().unwrap().count(), 400);
    assert_eq!(again.get(7u32.to_be_bytes()).unwrap().unwrap(), [4; 600]);
    again.two_phase().commit("gid").unwrap();
    assert_eq!(again.family("other").unwrap().get("p").unwrap().unwrap(), b"prepared");
    assert!(again.admin().verify().unwrap().errors.is_empty());
    again.close().unwrap();
    let third = Db::open(&dir.0, options()).unwrap();
    assert!(third.admin().stats().recovery.clean);
    assert_eq!(third.iter().unwrap().count(), 400);
}

/// Options for the simulator. Simulated time advances only while every thread waits: after a sleep,
/// all other threads are blocked where they wait.
fn simulated(env: &Env) -> Options {
    Options::in_env(env.clone()).durability(Durability::None).default_family(small())
}

#[test]
fn close_does_not_wait_for_background_backlog() {
    SimWorld::new(1).run(SimDisk::new(1), |env| {
        let db = Db::open("/db", simulated(&env)).unwrap();
        db.admin().set_background_rate(Some(1));
        let pause = db.admin().pause_background_work().unwrap();
        for round in 0..3u32 {
            let mut batch = WriteBatch::new();
            for i in 0..2000u32 {
                batch.put(&db.default_family(), (i * 7 + round).to_be_bytes(), [5; 600]).unwrap();
            }
            db.write(batch).unwrap();
        }
        drop(pause);
        env.clock.sleep_us(1_000_000);
        let began = env.clock.monotonic_us();
        assert_eq!(
            db.admin().stats().running_jobs[0].kind,
            "flush",
            "the flush would take weeks at one byte per second"
        );
        db.admin().cancel_background_work().unwrap();
        db.close().unwrap();
        let took = env.clock.monotonic_us() - began;
        assert!(took < 1_000_000, "{took} us");
        let db = Db::open("/db", simulated(&env)).unwrap();
        assert_eq!(db.iter().unwrap().count(), 6000);
        db.close().unwrap();
    });
}

#[test]
fn close_wakes_lock_waiters() {
    SimWorld::new(1).run(SimDisk::new(1), |env| {
        let db = Db::open("/db", simulated(&env)).unwrap();
        let family = db.default_family();
        let holder = db.begin(TxnOptions::new().pessimistic(true)).unwrap();
        holder.lock(&family, "k", LockMode::Exclusive).unwrap();
        let answer = Arc::new(Mutex::new(None));
        let waits = {
            let (db, family, answer) = (db.clone(), family.clone(), Arc::clone(&answer));
            move || {
                let patient =
                    TxnOptions::new().pessimistic(true).lock_timeout(Duration::from_secs(3600));
                let txn = db.begin(patient).unwrap();
                *answer.lock().unwrap() = Some(txn.put(&family, "k", "v"));
            }
        };
        let waiter = env.spawn.spawn("waiter", Box::new(waits)).unwrap();
        env.clock.sleep_us(1_000_000);
        assert!(answer.lock().unwrap().is_none(), "the waiter is blocked");
        let began = env.clock.monotonic_us();
        db.close().unwrap();
        waiter.join().unwrap();
        assert!(env.clock.monotonic_us() - began < 1_000_000, "the waiter was woken");
        assert_eq!(error_kind(answer.lock().unwrap().take().unwrap()), ErrorKind::Closed);
        assert_eq!(error_kind(holder.commit()), ErrorKind::Closed);
    });
}

#[test]
fn dropped_family_handle_reports_not_found() {
    let dir = TempDir::new("dropped");
    let db = Db::open(&dir.0, options()).unwrap();
    let gone = db.create_family("gone", FamilyOptions::new()).unwrap();
    gone.put("k", "old").unwrap();
    gone.flush().unwrap();
    gone.put("l", "old").unwrap();
    let (snapshot, txn) = (db.snapshot().unwrap(), db.begin(TxnOptions::new()).unwrap());
    txn.put(&gone, "t", "t").unwrap();
    let mut cursor = gone.cursor().unwrap();
    cursor.seek_to_first().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&gone, "b", "b").unwrap();
    batch.put(&db.default_family(), "b", "b").unwrap();
    db.drop_family("gone").unwrap();
    // A new column family with the same name is a different one.
    let new = db.create_family("gone", FamilyOptions::new()).unwrap();
    new.put("k", "new").unwrap();

    let not_found = ErrorKind::NotFound;
    assert_eq!(error_kind(gone.put("k", "v")), not_found);
    assert_eq!(error_kind(gone.delete("k")), not_found);
    assert_eq!(error_kind(gone.get("k")), not_found);
    assert_eq!(error_kind(gone.contains("k")), not_found);
    assert_eq!(error_kind(gone.cursor()), not_found);
    assert_eq!(error_kind(gone.iter()), not_found);
    assert_eq!(error_kind(gone.flush()), not_found);
    assert_eq!(error_kind(gone.compact()), not_found);
    assert_eq!(error_kind(gone.set_options(FamilyOptions::new())), not_found);
    assert_eq!(error_kind(snapshot.get(&gone, "k")), not_found);
    assert_eq!(error_kind(txn.get(&gone, "other")), not_found);
    assert_eq!(error_kind(txn.put(&gone, "u", "u")), not_found);
    assert_eq!(error_kind(txn.cursor(&gone)), not_found);
    assert_eq!(error_kind(txn.commit()), not_found);
    assert_eq!(error_kind(db.write(batch)), not_found);
    assert_eq!(db.get("b").unwrap(), None, "no operation of the batch was applied");
    assert_eq!(gone.name(), "gone", "the handle keeps its name");
    // A cursor created before the drop continues to work: it reads a snapshot.
    assert_eq!(cursor.key(), b"k");
    assert_eq!(&cursor.value().unwrap()[..], b"old");
    cursor.next().unwrap();
    assert_eq!(cursor.key(), b"l");
    assert_eq!(new.get("k").unwrap().unwrap(), b"new");
}
