//! Transactions: locks between sessions, read views, savepoints, two-phase commit, cursors.

mod common;

use common::{Db, EXCLUSIVE, GAP, INSERT, SHARED, Session, TempDir, TestTable};
use perigee_mariadb_bridge::engine::Durability;
use perigee_mariadb_bridge::status::Status;
use std::sync::Barrier;
use std::time::{Duration, Instant};

struct Bench {
    table: TestTable,
    db: Db,
    _dir: TempDir,
}

fn bench(entries: &[(&str, &str)]) -> Bench {
    let dir = TempDir::new();
    let db = Db::open(dir.path());
    let table = db.create("d/t");
    db.fill(&table, entries);
    Bench { table, db, _dir: dir }
}

const ABC: &[(&str, &str)] = &[("a", "1"), ("b", "2"), ("c", "3")];

#[test]
fn writes_are_private_until_the_commit_and_vanish_by_a_rollback() {
    let Bench { _dir, db, table: t } = bench(ABC);
    let trx = db.begin(1000);
    for durability in [Durability::SYNC, Durability::INTERVAL, Durability::NO_SYNC] {
        trx.put(&t, "a", "new").unwrap();
        trx.delete(&t, "b").unwrap();
        assert_eq!(trx.writes(), 2);
        assert_eq!(trx.get(&t, "a").unwrap(), "new");
        assert_eq!(trx.get(&t, "b"), Err(Status::NOT_FOUND));
        assert_eq!(t.get("a").unwrap(), "1");
        trx.rollback();
        assert_eq!((trx.writes(), trx.get(&t, "b").unwrap().as_str()), (0, "2"));
        trx.put(&t, "c", &format!("{durability:?}")).unwrap();
        trx.commit_with(durability).unwrap();
        assert_eq!(t.get("c").unwrap(), format!("{durability:?}"));
    }
    trx.put(&t, "a", "lost").unwrap();
    drop(trx);
    assert_eq!(t.get("a").unwrap(), "1");
    db.begin(0).put(&t, "a", "free").unwrap();
}

#[test]
fn a_lock_is_waited_for_until_the_timeout() {
    let Bench { _dir, db, table: t } = bench(ABC);
    let (one, two) = (db.begin(1000), db.begin(100));
    one.put(&t, "a", "one").unwrap();
    let started = Instant::now();
    assert_eq!(two.put(&t, "a", "two"), Err(Status::LOCK_TIMEOUT));
    assert!(started.elapsed() >= Duration::from_millis(100));
    two.set_lock_timeout(0);
    let started = Instant::now();
    assert_eq!(two.get_locked(&t, "a", SHARED), Err(Status::LOCK_TIMEOUT));
    assert!(started.elapsed() < Duration::from_millis(100));
    // The transaction goes on.
    two.put(&t, "b", "two").unwrap();
    two.set_lock_timeout(10_000);
    std::thread::scope(|s| {
        s.spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            one.commit().unwrap();
        });
        // Reads what was committed while it waited.
        assert_eq!(two.get_locked(&t, "a", EXCLUSIVE).unwrap(), "one");
    });
    two.put_locked(&t, "a", "two").unwrap();
    two.commit().unwrap();
    assert_eq!((t.get("a").unwrap(), t.get("b").unwrap()), ("two".into(), "two".into()));
}

#[test]
fn shared_locks_exclude_writers_only() {
    let Bench { _dir, db, table: t } = bench(ABC);
    let (one, two) = (db.begin(0), db.begin(0));
    assert_eq!(one.get_locked(&t, "a", SHARED).unwrap(), "1");
    assert_eq!(two.get_locked(&t, "a", SHARED).unwrap(), "1");
    assert_eq!(two.delete(&t, "a"), Err(Status::LOCK_TIMEOUT));
    one.rollback();
    two.delete(&t, "a").unwrap();
    assert_eq!(one.get_locked(&t, "a", SHARED), Err(Status::LOCK_TIMEOUT));
    two.commit().unwrap();
    assert_eq!(one.get_locked(&t, "a", SHARED), Err(Status::NOT_FOUND));
    // The lock on the missing key is held.
    assert_eq!(two.put(&t, "a", "x"), Err(Status::LOCK_TIMEOUT));
}

#[test]
fn a_gap_lock_keeps_others_from_inserting() {
    let Bench { _dir, db, table: t } = bench(ABC);
    let (one, two) = (db.begin(0), db.begin(0));
    one.lock_range(&t, "a", Some("c"), GAP).unwrap();
    two.lock_range(&t, "b", None, GAP).unwrap(); // gap locks do not exclude each other
    assert_eq!(two.put(&t, "b1", "x"), Err(Status::LOCK_TIMEOUT));
    assert_eq!(two.get_locked(&t, "b1", INSERT), Err(Status::LOCK_TIMEOUT));
    assert_eq!(one.put(&t, "b1", "x"), Err(Status::LOCK_TIMEOUT));
    one.put(&t, "a1", "own gap").unwrap();
    // An existing row in the gap can be updated and deleted.
    assert_eq!(two.get_locked(&t, "b", EXCLUSIVE).unwrap(), "2");
    two.put_locked(&t, "b", "two").unwrap();
    two.delete_locked(&t, "b").unwrap();
    two.rollback();
    one.put(&t, "d", "x").unwrap();
    assert_eq!(two.put(&t, "d", "y"), Err(Status::LOCK_TIMEOUT));
    one.commit().unwrap();
    two.put(&t, "b1", "x").unwrap();
    two.commit().unwrap();
    assert_eq!(t.scan(), ["a", "a1", "b", "b1", "c", "d"]);
}

#[test]
fn an_insert_waits_for_a_gap_lock_of_another_thread() {
    let Bench { _dir, db, table: t } = bench(ABC);
    let (one, two) = (db.begin(1000), db.begin(10_000));
    one.lock_range(&t, "a", None, GAP).unwrap();
    std::thread::scope(|s| {
        let insert = s.spawn(|| {
            let two = two;
            two.put(&t, "b1", "x").unwrap();
            two.commit().unwrap();
        });
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(one.get(&t, "b1"), Err(Status::NOT_FOUND));
        one.rollback();
        insert.join().unwrap();
    });
    assert_eq!(t.get("b1").unwrap(), "x");
}

#[test]
fn a_deadlock_has_one_victim() {
    let Bench { _dir, db, table: t } = bench(ABC);
    for _ in 0..20 {
        let barrier = Barrier::new(2);
        let run = |trx: Session, first: &str, second: &str| {
            trx.put(&t, first, "x").unwrap();
            barrier.wait();
            let waited = trx.put(&t, second, "x");
            match waited {
                Ok(()) => trx.commit().unwrap(),
                Err(_) => trx.rollback(),
            }
            waited
        };
        let (one, two) = (db.begin(20_000), db.begin(20_000));
        let started = Instant::now();
        let (one, two) = std::thread::scope(|s| {
            let one = s.spawn(|| run(one, "a", "b"));
            let two = s.spawn(|| run(two, "b", "a"));
            (one.join().unwrap(), two.join().unwrap())
        });
        assert_eq!((one, two), (Ok(()), Err(Status::DEADLOCK)), "the youngest is the victim");
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn a_wait_is_cancelled_by_another_thread() {
    let Bench { _dir, db, table: t } = bench(ABC);
    let (holder, waiter) = (db.begin(1000), db.begin(60_000));
    holder.put(&t, "a", "held").unwrap();
    let killer = waiter.killer();
    let waiter = std::thread::scope(|s| {
        let wait = s.spawn(|| {
            let waiter = waiter;
            waiter.put(&t, "b", "kept").unwrap();
            assert_eq!(waiter.put(&t, "a", "x"), Err(Status::INTERRUPTED));
            // Until the next statement, it does not wait again.
            assert_eq!(waiter.lock(&t, "c", SHARED), Err(Status::INTERRUPTED));
            waiter.set_lock_timeout(60_000);
            waiter.lock(&t, "c", SHARED).unwrap();
            waiter
        });
        std::thread::sleep(Duration::from_millis(50));
        killer.kill();
        wait.join().unwrap()
    });
    waiter.commit().unwrap(); // the transaction went on
    assert_eq!(t.get("b").unwrap(), "kept");
    // A cancellation before the wait is not lost, also in the next transactions of the object.
    for _ in 0..3 {
        waiter.set_lock_timeout(60_000);
        waiter.killer().kill();
        assert_eq!(waiter.get_locked(&t, "a", EXCLUSIVE), Err(Status::INTERRUPTED));
        waiter.rollback();
        waiter.put(&t, "b", "again").unwrap();
        waiter.commit().unwrap();
    }
}

#[test]
fn no_cancellation_is_lost() {
    let Bench { _dir, db, table: t } = bench(ABC);
    let holder = db.begin(1000);
    holder.put(&t, "a", "held").unwrap();
    for round in 0..300u64 {
        let waiter = db.begin(60_000);
        let killer = waiter.killer();
        let waiter = std::thread::scope(|s| {
            let wait = s.spawn(|| {
                let waiter = waiter;
                assert_eq!(waiter.put(&t, "a", "x"), Err(Status::INTERRUPTED));
                waiter
            });
            if round % 3 > 0 {
                std::thread::sleep(Duration::from_micros(round % 3 * 40));
            }
            killer.kill();
            wait.join().unwrap()
        });
        drop(waiter);
    }
}

#[test]
fn reads_of_a_view_include_own_writes() {
    let Bench { _dir, db, table: t } = bench(ABC);
    let (trx, view) = (db.begin(1000), db.snapshot());
    db.fill(&t, &[("a", "later"), ("d", "later")]);
    assert_eq!(trx.get_at(&view, &t, "a").unwrap(), "1");
    assert_eq!(trx.get_at(&view, &t, "d"), Err(Status::NOT_FOUND));
    assert_eq!(trx.get(&t, "a").unwrap(), "later");
    trx.put(&t, "b", "own").unwrap();
    trx.put(&t, "e", "own").unwrap();
    trx.delete(&t, "c").unwrap();
    assert_eq!(trx.get_at(&view, &t, "a").unwrap(), "1");
    assert_eq!(trx.get_at(&view, &t, "b").unwrap(), "own");
    assert_eq!(trx.get_at(&view, &t, "c"), Err(Status::NOT_FOUND));
    assert_eq!(trx.cursor(Some(&view), &t).keys(), ["a", "b", "e"]);
    assert_eq!(trx.cursor(None, &t).keys(), ["a", "b", "d", "e"]);
    assert_eq!(trx.get_locked(&t, "a", EXCLUSIVE).unwrap(), "later");
    // A cursor sees the state of its creation.
    let cursor = trx.cursor(Some(&view), &t);
    assert_eq!(cursor.first().unwrap(), ("a".into(), "1".into()));
    trx.put(&t, "aa", "after").unwrap();
    trx.delete(&t, "b").unwrap();
    assert_eq!(cursor.next().unwrap(), ("b".into(), "own".into()));
    assert_eq!(cursor.next().unwrap().0, "e");
    assert_eq!(cursor.next(), Err(Status::NOT_FOUND));
    trx.commit().unwrap();
    assert_eq!(trx.cursor(Some(&view), &t).keys(), ["a", "b", "c"]);
    assert_eq!(trx.cursor(None, &t).keys(), ["a", "aa", "d", "e"]);
}

#[test]
fn cursors_move_in_both_directions_within_their_bounds() {
    let keys: Vec<String> = (0..100).map(|i| format!("k{i:02}")).collect();
    let entries: Vec<(&str, &str)> = keys.iter().map(|k| (k.as_str(), &k[1..])).collect();
    let Bench { _dir, db, table: t } = bench(&entries);
    for flushed in [false, true] {
        if flushed {
            t.flush().unwrap();
        }
        for writes in [false, true] {
            let trx = db.begin(1000);
            if writes {
                trx.put(&t, "k50", "50").unwrap();
            }
            let c = trx.cursor(None, &t);
            assert_eq!(c.first().unwrap(), ("k00".into(), "00".into()));
            assert_eq!(c.prev(), Err(Status::NOT_FOUND));
            assert_eq!(c.last().unwrap(), ("k99".into(), "99".into()));
            assert_eq!(c.next(), Err(Status::NOT_FOUND));
            assert_eq!(c.seek("k5").unwrap().0, "k50");
            assert_eq!(c.seek_prev("k5").unwrap().0, "k49");
            assert_eq!(c.seek("k50").unwrap().0, "k50");
            assert_eq!(c.seek_prev("k50").unwrap().0, "k50");
            assert_eq!(c.next().unwrap().0, "k51");
            assert_eq!(c.next().unwrap().0, "k52");
            assert_eq!(c.prev().unwrap().0, "k51");
            assert_eq!(c.seek("l"), Err(Status::NOT_FOUND));
            assert_eq!(c.seek_prev("k"), Err(Status::NOT_FOUND));
            assert_eq!(c.keys(), keys);
        }
    }
    let c = common::TestCursor::open(std::ptr::null_mut(), None, &t, "k10", Some("k20")).unwrap();
    assert_eq!(c.keys(), keys[10..20]);
    assert_eq!(c.last().unwrap().0, "k19");
    assert_eq!(c.seek("a").unwrap().0, "k10");
    assert_eq!(c.seek_prev("z").unwrap().0, "k19");
    assert_eq!(c.seek("k20"), Err(Status::NOT_FOUND));
}

#[test]
fn savepoints_move_and_are_released_one_by_one() {
    let Bench { _dir, db, table: t } = bench(ABC);
    let trx = db.begin(0);
    for i in 0..50 {
        trx.savepoint(0).unwrap(); // as before each statement
        trx.put(&t, "a", &i.to_string()).unwrap();
    }
    trx.rollback_to(0).unwrap();
    assert_eq!(trx.get(&t, "a").unwrap(), "48");
    trx.savepoint(1).unwrap();
    trx.put(&t, "b", "one").unwrap();
    trx.savepoint(2).unwrap();
    trx.put(&t, "c", "two").unwrap();
    trx.savepoint(1).unwrap(); // moves behind 2
    trx.put(&t, "d", "moved").unwrap();
    trx.rollback_to(1).unwrap();
    assert_eq!(trx.get(&t, "d"), Err(Status::NOT_FOUND));
    assert_eq!(trx.get(&t, "c").unwrap(), "two");
    trx.release(0).unwrap(); // 2 and 1 stay
    trx.rollback_to(2).unwrap();
    assert_eq!(trx.get(&t, "c").unwrap(), "3");
    assert_eq!(trx.rollback_to(1), Err(Status::INVALID));
    assert_eq!(trx.rollback_to(0), Err(Status::INVALID));
    // Rolled back to again; locks taken since are released.
    trx.put(&t, "c", "x").unwrap();
    let other = db.begin(0);
    assert_eq!(other.lock(&t, "c", EXCLUSIVE), Err(Status::LOCK_TIMEOUT));
    trx.rollback_to(2).unwrap();
    other.lock(&t, "c", EXCLUSIVE).unwrap();
    trx.release(2).unwrap();
    trx.commit().unwrap();
    assert_eq!(trx.rollback_to(2), Err(Status::INVALID));
    let now = ["a", "b", "c"].map(|k| t.get(k).unwrap());
    assert_eq!(now, ["48", "one", "3"]);
}

#[test]
fn unlock_releases_the_newest_lock_of_a_key_that_was_not_written() {
    let Bench { _dir, db, table: t } = bench(ABC);
    let (one, two) = (db.begin(0), db.begin(0));
    one.lock(&t, "a", EXCLUSIVE).unwrap();
    one.unlock(&t, "a").unwrap();
    two.lock(&t, "a", EXCLUSIVE).unwrap();
    two.rollback();
    // The older shared lock stays.
    one.lock(&t, "b", SHARED).unwrap();
    one.lock(&t, "b", EXCLUSIVE).unwrap();
    one.unlock(&t, "b").unwrap();
    two.lock(&t, "b", SHARED).unwrap();
    assert_eq!(two.lock(&t, "b", EXCLUSIVE), Err(Status::LOCK_TIMEOUT));
    // A written key stays locked.
    one.put(&t, "c", "x").unwrap();
    one.unlock(&t, "c").unwrap();
    assert_eq!(two.lock(&t, "c", SHARED), Err(Status::LOCK_TIMEOUT));
    one.unlock(&t, "none").unwrap();
    // Savepoints go on.
    one.savepoint(1).unwrap();
    one.lock(&t, "d", EXCLUSIVE).unwrap();
    one.unlock(&t, "d").unwrap();
    one.lock(&t, "e", EXCLUSIVE).unwrap();
    one.rollback_to(1).unwrap();
    two.lock(&t, "e", EXCLUSIVE).unwrap();
    one.commit().unwrap();
    assert_eq!(t.get("c").unwrap(), "x");
}

#[test]
fn a_prepared_transaction_is_decided_by_its_identifier() {
    let Bench { _dir, db, table: t } = bench(ABC);
    let (one, two) = (db.begin(0), db.begin(0));
    assert_eq!(one.prepare("empty"), Err(Status::INVALID));
    for (gid, commit) in [("x", true), ("y", false)] {
        one.put(&t, "a", gid).unwrap();
        one.prepare(gid).unwrap();
        assert_eq!(db.prepared(), [gid.as_bytes()]);
        assert_eq!(two.lock(&t, "a", EXCLUSIVE), Err(Status::LOCK_TIMEOUT));
        // The object is free at once, and another lock owner.
        one.rollback();
        assert_eq!(one.put(&t, "a", "own?"), Err(Status::LOCK_TIMEOUT));
        one.put(&t, "b", gid).unwrap();
        assert_eq!(one.prepare(gid), Err(Status::INVALID), "the identifier is in use");
        one.rollback();
        match commit {
            true => db.commit_prepared(gid, Durability::NO_SYNC).unwrap(),
            false => db.rollback_prepared(gid).unwrap(),
        }
        assert_eq!(db.commit_prepared(gid, Durability::SYNC), Err(Status::NOT_FOUND));
        assert_eq!(db.rollback_prepared(gid), Err(Status::NOT_FOUND));
        assert_eq!((t.get("a").unwrap(), t.get("b").unwrap()), ("x".into(), "2".into()));
        two.lock(&t, "a", EXCLUSIVE).unwrap();
        two.rollback();
    }
    assert!(db.prepared().is_empty());
    // A KILL finds the object of the next transaction.
    one.lock(&t, "a", EXCLUSIVE).unwrap();
    two.put(&t, "b", "x").unwrap();
    two.prepare("z").unwrap();
    two.set_lock_timeout(60_000);
    let killer = two.killer();
    std::thread::scope(|s| {
        let wait = s.spawn(|| {
            let two = two;
            assert_eq!(two.lock(&t, "a", SHARED), Err(Status::INTERRUPTED));
            two
        });
        std::thread::sleep(Duration::from_millis(30));
        killer.kill();
        drop(wait.join().unwrap());
    });
    db.rollback_prepared("z").unwrap();
}

#[test]
fn prepared_transactions_survive_a_restart() {
    let dir = TempDir::new();
    {
        let db = Db::open(dir.path());
        let t = db.create("d/t");
        let trx = db.begin(0);
        for gid in ["commit", "roll back", "stay"] {
            trx.put(&t, gid, "prepared").unwrap();
            trx.prepare(gid).unwrap();
        }
    }
    let db = Db::open(dir.path());
    let t = db.table("d/t").unwrap();
    assert_eq!(db.prepared(), [&b"commit"[..], b"roll back", b"stay"]);
    assert!(t.scan().is_empty());
    let other = db.begin(0);
    assert_eq!(other.put(&t, "stay", "x"), Err(Status::LOCK_TIMEOUT));
    db.commit_prepared("commit", Durability::SYNC).unwrap();
    db.rollback_prepared("roll back").unwrap();
    assert_eq!(t.scan(), ["commit"]);
    assert_eq!(db.drop_table("d/t"), Err(Status::LOCK_TIMEOUT), "prepared writes are in it");
}

#[test]
fn large_transactions_are_rolled_back_and_committed() {
    let Bench { _dir, db, table: t } = bench(&[]);
    let value = "v".repeat(1000);
    let fill = |trx: &Session| {
        for i in 0..20_000 {
            trx.put_locked(&t, &format!("k{i:05}"), &value).unwrap(); // 20 MB of a 64 MiB budget
        }
    };
    let trx = db.begin(1000);
    trx.put(&t, "first", "1").unwrap();
    trx.savepoint(1).unwrap();
    fill(&trx);
    assert_eq!(trx.cursor(None, &t).keys().len(), 20_001);
    trx.rollback_to(1).unwrap();
    assert_eq!(trx.cursor(None, &t).keys(), ["first"]);
    fill(&trx);
    trx.put(&t, "locked", "1").unwrap();
    trx.prepare("large").unwrap();
    assert!(t.scan().is_empty());
    // The object is ready for another transaction, which waits for the locks of the prepared one.
    trx.set_lock_timeout(0);
    assert_eq!(trx.put(&t, "locked", "2"), Err(Status::LOCK_TIMEOUT));
    trx.rollback();
    db.commit_prepared("large", Durability::NO_SYNC).unwrap();
    assert_eq!(t.scan().len(), 20_002);
    fill(&trx);
    trx.prepare("rolled back").unwrap();
    db.rollback_prepared("rolled back").unwrap();
    assert_eq!(t.scan().len(), 20_002);
    trx.put(&t, "locked", "2").unwrap();
    trx.commit_with(Durability::SYNC).unwrap();
}
