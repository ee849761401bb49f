//! Regression tests for faults found in a review of transactions.
#![allow(clippy::unwrap_used)]
use crate::common::Rng;
use perigee::env::fs::memory::SimDisk;
use perigee::env::sim::SimWorld;
use perigee::env::{Env, Join};
use perigee::{
    Db, ErrorKind, Family, FamilyOptions, Isolation, KeyComparator, LockMode, Options, Txn,
    TxnOptions,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn open() -> Db {
    Db::open("/db", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() })).unwrap()
}

/// Result of a transaction that locks `key` on its own thread.
type LockResult = Arc<Mutex<Option<perigee::Result<()>>>>;

/// Starts a thread that waits for the lock of `key`. Only for the simulator, whose time advances
/// only while every thread waits: after the sleep the new thread is blocked on the lock.
fn spawn_lock_waiter(
    env: &Env,
    txn: &Arc<Txn>,
    f: &Family,
    key: &'static str,
) -> (Box<dyn Join>, LockResult) {
    let answer = LockResult::default();
    let body = {
        let (txn, f, answer) = (Arc::clone(txn), f.clone(), Arc::clone(&answer));
        move || *answer.lock().unwrap() = Some(txn.lock(&f, key, LockMode::Exclusive))
    };
    let thread = env.spawn.spawn("waits", Box::new(body)).unwrap();
    env.clock.sleep_us(1_000_000);
    assert!(answer.lock().unwrap().is_none(), "the thread is blocked");
    (thread, answer)
}

/// Keys read by get_for_update from the snapshot are validated at commit.
#[test]
fn get_for_update_is_validated_at_commit() {
    let db = open();
    let f = db.default_family();
    db.put("alice", "on call").unwrap();
    db.put("bob", "on call").unwrap();
    let txn = db.begin(TxnOptions::new()).unwrap();
    assert!(txn.get_for_update(&f, "bob", LockMode::Exclusive).unwrap().is_some());
    db.put("bob", "off").unwrap(); // takes no lock, so the commit must detect it
    txn.put(&f, "alice", "off").unwrap();
    assert_eq!(txn.commit().unwrap_err().kind(), ErrorKind::Conflict);
}

/// The doctors-on-call scenario: both use get_for_update with optimistic writes.
#[test]
fn get_for_update_prevents_write_skew() {
    let db = open();
    let f = db.default_family();
    db.put("alice", "on").unwrap();
    db.put("bob", "on").unwrap();
    let (a, b) = (db.begin(TxnOptions::new()).unwrap(), db.begin(TxnOptions::new()).unwrap());
    a.get_for_update(&f, "bob", LockMode::Shared).unwrap();
    b.get_for_update(&f, "alice", LockMode::Shared).unwrap();
    a.put(&f, "alice", "off").unwrap();
    b.put(&f, "bob", "off").unwrap();
    assert!(!(a.commit().is_ok() && b.commit().is_ok()), "both transactions committed");
}

fn nocase() -> KeyComparator {
    let lower = |k: &[u8]| k.to_ascii_lowercase();
    KeyComparator::register("review nocase", move |a, b| lower(a).cmp(&lower(b))).unwrap()
}
fn open_nocase() -> (Db, perigee::Family) {
    let comparator = nocase();
    let db = Db::open(
        "/db",
        Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }).register_comparator(comparator),
    )
    .unwrap();
    let f = db.create_family("f", FamilyOptions::new().comparator(comparator)).unwrap();
    (db, f)
}

/// A transaction reads its own writes under a registered comparator without a canonical form.
#[test]
fn txn_reads_own_write_under_custom_comparator() {
    let (db, f) = open_nocase();
    f.put("key", "old").unwrap();
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&f, "KEY", "new").unwrap();
    assert_eq!(txn.get(&f, "key").unwrap().as_deref(), Some(&b"new"[..]));
}
/// Locks use the key equality of a registered comparator.
#[test]
fn locks_use_custom_comparator_equality() {
    let (db, f) = open_nocase();
    let o = || TxnOptions::new().pessimistic(true).lock_timeout(Duration::ZERO);
    let (a, b) = (db.begin(o()).unwrap(), db.begin(o()).unwrap());
    a.lock(&f, "key", LockMode::Exclusive).unwrap();
    assert_eq!(b.lock(&f, "KEY", LockMode::Exclusive).unwrap_err().kind(), ErrorKind::Busy);
}

/// An aborted transaction, one that timed out, and one whose commit returned `Aborted` hold no
/// locks.
#[test]
fn aborted_transaction_releases_locks() {
    let db = open();
    let f = db.default_family();
    let o = || TxnOptions::new().pessimistic(true).lock_timeout(Duration::ZERO);
    let a = db.begin(o()).unwrap();
    a.put(&f, "k", "").unwrap();
    assert!(a.handle().abort());
    assert_eq!(a.commit().unwrap_err().kind(), ErrorKind::Aborted);
    let b = db.begin(o()).unwrap();
    b.put(&f, "k", "").unwrap();
}
#[test]
fn abort_wakes_lock_waiter() {
    SimWorld::new(1).run(SimDisk::new(1), |env| {
        let db = Db::open("/db", Options::in_env(env.clone())).unwrap();
        let f = db.default_family();
        let a = db.begin(TxnOptions::new()).unwrap();
        a.lock(&f, "k", LockMode::Exclusive).unwrap();
        let b =
            Arc::new(db.begin(TxnOptions::new().lock_timeout(Duration::from_secs(600))).unwrap());
        let handle = b.handle();
        let (thread, answer) = spawn_lock_waiter(&env, &b, &f, "k");
        let began = env.clock.monotonic_us();
        assert!(handle.abort());
        thread.join().unwrap();
        assert!(env.clock.monotonic_us() - began < 1_000_000, "the waiter was woken");
        let said = answer.lock().unwrap().take().unwrap();
        assert_eq!(said.unwrap_err().kind(), ErrorKind::Aborted);
        drop((a, b));
        db.close().unwrap();
    });
}

/// A cancelled wait ends only itself: the transaction keeps its writes, its locks and its
/// savepoints, and waits again afterwards.
#[test]
fn cancel_wait_ends_only_the_wait() {
    SimWorld::new(1).run(SimDisk::new(1), |env| {
        let db = Db::open("/db", Options::in_env(env.clone())).unwrap();
        let f = db.default_family();
        let patient = || TxnOptions::new().lock_timeout(Duration::from_secs(600));
        let a = db.begin(patient()).unwrap();
        a.lock(&f, "k", LockMode::Exclusive).unwrap();
        let b = Arc::new(db.begin(patient().pessimistic(true)).unwrap());
        b.put(&f, "own", "1").unwrap();
        b.savepoint("s").unwrap();
        let handle = b.handle();
        assert!(!handle.cancel_wait(), "it does not wait");
        for _ in 0..2 {
            let (thread, answer) = spawn_lock_waiter(&env, &b, &f, "k");
            let began = env.clock.monotonic_us();
            assert!(handle.cancel_wait() && !handle.cancel_wait(), "one wait is ended once");
            thread.join().unwrap();
            assert!(env.clock.monotonic_us() - began < 1_000_000, "the waiter was woken");
            let error = answer.lock().unwrap().take().unwrap().unwrap_err();
            assert_eq!((error.kind(), error.key()), (ErrorKind::Interrupted, Some(&b"k"[..])));
            assert!(!error.is_retryable());
        }
        // The lock of "own" is still held, and a request of another owner waits for it.
        let c = db.begin(TxnOptions::new().lock_timeout(Duration::ZERO)).unwrap();
        assert_eq!(c.lock(&f, "own", LockMode::Shared).unwrap_err().kind(), ErrorKind::Busy);
        b.put(&f, "later", "").unwrap();
        b.rollback_to("s").unwrap();
        let (thread, answer) = spawn_lock_waiter(&env, &b, &f, "k");
        drop(a);
        thread.join().unwrap();
        answer.lock().unwrap().take().unwrap().unwrap();
        let b = Arc::into_inner(b).unwrap();
        b.commit().unwrap();
        assert_eq!(f.get("own").unwrap().unwrap(), b"1");
        assert!(f.get("later").unwrap().is_none());
        assert!(!handle.cancel_wait(), "the transaction has ended");
        db.close().unwrap();
    });
}

/// Requests that waited behind a cancelled one are granted.
#[test]
fn cancelled_wait_lets_later_requests_pass() {
    SimWorld::new(2).run(SimDisk::new(1), |env| {
        let db = Db::open("/db", Options::in_env(env.clone())).unwrap();
        let f = db.default_family();
        let begin = || {
            let options = TxnOptions::new().lock_timeout(Duration::from_secs(600));
            Arc::new(db.begin(options).unwrap())
        };
        let (reader, writer, late) = (begin(), begin(), begin());
        let handle = writer.handle();
        reader.lock(&f, "k", LockMode::Shared).unwrap();
        let (waits, answer) = spawn_lock_waiter(&env, &writer, &f, "k");
        // A shared lock would be compatible with the holder, but the writer came first.
        let shared = {
            let (late, f) = (Arc::clone(&late), f.clone());
            let body = move || late.lock(&f, "k", LockMode::Shared).unwrap();
            env.spawn.spawn("shared", Box::new(body)).unwrap()
        };
        env.clock.sleep_us(1_000_000);
        let began = env.clock.monotonic_us();
        assert!(handle.cancel_wait());
        waits.join().unwrap();
        shared.join().unwrap();
        assert!(env.clock.monotonic_us() - began < 1_000_000, "the shared lock was granted");
        assert!(answer.lock().unwrap().take().unwrap().is_err());
        drop((reader, writer, late));
        db.close().unwrap();
    });
}

/// An unlocked key can be locked and written by others; what the transaction has written, in memory
/// or spilled, stays locked until a rollback of the write.
#[test]
fn unlock_releases_only_what_was_not_written() {
    let db = open();
    let f = db.default_family();
    let options = || TxnOptions::new().pessimistic(true).lock_timeout(Duration::ZERO);
    let level = Isolation::ReadCommitted;
    for spill_bytes in [1, u64::MAX] {
        let a = db.begin(options().isolation(level).spill_bytes(spill_bytes)).unwrap();
        let b = db.begin(options()).unwrap();
        let is_free = |key| b.lock(&f, key, LockMode::Exclusive).is_ok();
        a.get_for_update(&f, "row", LockMode::Exclusive).unwrap();
        assert!(!is_free("row"));
        assert!(a.unlock(&f, "row").unwrap() && !a.unlock(&f, "row").unwrap());
        assert!(is_free("row"));
        for key in ["put", "deleted", "in range"] {
            a.lock(&f, key, LockMode::Exclusive).unwrap();
        }
        a.put(&f, "put", "").unwrap();
        a.delete(&f, "deleted").unwrap();
        a.delete_range(&f, "in".."io").unwrap();
        a.put(&f, "last", "").unwrap(); // spills the others
        for key in ["put", "deleted", "in range"] {
            assert!(!a.unlock(&f, key).unwrap(), "{key}");
            assert!(!is_free(key), "{key}");
        }
        a.lock(&f, "undone", LockMode::Exclusive).unwrap();
        a.savepoint("s").unwrap();
        a.put(&f, "undone", "").unwrap();
        assert!(!a.unlock(&f, "undone").unwrap());
        a.rollback_to("s").unwrap();
        assert!(a.unlock(&f, "undone").unwrap());
        assert!(is_free("undone"));
        a.commit_in_place(None).unwrap();
        let ended = a.unlock(&f, "put").unwrap_err().kind();
        assert_eq!(ended, ErrorKind::InvalidArgument);
        b.rollback();
    }
}

/// The transaction that waits longest for an unlocked key gets it.
#[test]
fn unlock_wakes_a_waiter() {
    SimWorld::new(3).run(SimDisk::new(1), |env| {
        let db = Db::open("/db", Options::in_env(env.clone())).unwrap();
        let f = db.default_family();
        let a = db.begin(TxnOptions::new()).unwrap();
        a.lock(&f, "k", LockMode::Exclusive).unwrap();
        let patient = TxnOptions::new().lock_timeout(Duration::from_secs(600));
        let b = Arc::new(db.begin(patient).unwrap());
        let (thread, answer) = spawn_lock_waiter(&env, &b, &f, "k");
        let began = env.clock.monotonic_us();
        assert!(a.unlock(&f, "k").unwrap());
        thread.join().unwrap();
        assert!(env.clock.monotonic_us() - began < 1_000_000, "the waiter was woken");
        answer.lock().unwrap().take().unwrap().unwrap();
        drop((a, b));
        db.close().unwrap();
    });
}

/// Commit hooks run after the transaction's locks are released.
#[test]
fn commit_hook_runs_after_locks_are_released() {
    let db = open();
    let f = db.default_family();
    let (inner_db, inner_f) = (db.clone(), f.clone());
    let failed = std::sync::Arc::new(AtomicU32::new(0));
    let (count, calls) = (failed.clone(), std::sync::Arc::new(AtomicU32::new(0)));
    f.on_commit(move |_| {
        if calls.fetch_add(1, SeqCst) == 0 {
            let t = inner_db
                .begin(TxnOptions::new().pessimistic(true).lock_timeout(Duration::ZERO))
                .unwrap();
            if let Err(e) = t.put(&inner_f, "k", "hook") {
                eprintln!("hook: {e}");
                count.fetch_add(1, SeqCst);
            }
        }
    });
    let a = db.begin(TxnOptions::new().pessimistic(true)).unwrap();
    a.put(&f, "k", "").unwrap();
    a.commit().unwrap();
    assert_eq!(failed.load(SeqCst), 0);
}

/// Reading an inverted range reads nothing and causes no conflict.
#[test]
fn inverted_range_read_causes_no_conflict() {
    let db = open();
    let f = db.default_family();
    let txn = db.begin(TxnOptions::new().isolation(Isolation::Serializable)).unwrap();
    assert_eq!(txn.range(&f, "m".."c").unwrap().count(), 0);
    txn.put(&f, "zz", "").unwrap();
    db.default_family().delete_range("a".."p").unwrap();
    txn.commit().unwrap();
}

/// A lock request with a zero timeout must not make another transaction the victim of a deadlock
/// that does not exist.
#[test]
fn try_lock_does_not_abort_other_transaction() {
    SimWorld::new(1).run(SimDisk::new(1), |env| {
        let db = Db::open("/db", Options::in_env(env.clone())).unwrap();
        let f = db.default_family();
        let older = db.begin(TxnOptions::new().lock_timeout(Duration::ZERO)).unwrap();
        let younger = db.begin(TxnOptions::new().lock_timeout(Duration::from_secs(600))).unwrap();
        let younger = Arc::new(younger);
        older.lock(&f, "a", LockMode::Exclusive).unwrap();
        younger.lock(&f, "b", LockMode::Exclusive).unwrap();
        let (thread, answer) = spawn_lock_waiter(&env, &younger, &f, "a");
        assert_eq!(older.lock(&f, "b", LockMode::Exclusive).unwrap_err().kind(), ErrorKind::Busy);
        older.rollback();
        thread.join().unwrap();
        answer.lock().unwrap().take().unwrap().unwrap();
        drop(younger);
        db.close().unwrap();
    });
}

/// `contains` is tracked as a read at serializable.
#[test]
fn contains_is_tracked_at_serializable() {
    let db = open();
    let f = db.default_family();
    let o = || TxnOptions::new().isolation(Isolation::Serializable);
    let (a, b) = (db.begin(o()).unwrap(), db.begin(o()).unwrap());
    if !a.contains(&f, "x").unwrap() {
        a.put(&f, "y", "").unwrap();
    }
    if !b.contains(&f, "y").unwrap() {
        b.put(&f, "x", "").unwrap();
    }
    assert!(!(a.commit().is_ok() && b.commit().is_ok()), "no serial order allows both commits");
}

/// A transaction's own writes merged with committed entries, under every comparator.
#[test]
fn overlay_matches_model_under_every_comparator() {
    for (i, comparator) in [
        KeyComparator::Bytes,
        KeyComparator::Reverse,
        KeyComparator::CaseInsensitive,
        KeyComparator::Lexicographic,
        nocase(),
    ]
    .into_iter()
    .enumerate()
    {
        for seed in 1..=5u64 {
            let mut rng = Rng(seed * 10 + i as u64);
            let db = Db::open(
                "/db",
                Options::in_env(Env { fs: SimDisk::new(seed), ..Env::real() })
                    .register_comparator(nocase()),
            )
            .unwrap();
            let f = db.create_family("f", FamilyOptions::new().comparator(comparator)).unwrap();
            // Maps canonical keys to the bytes last written, and the value.
            let canon = |k: &[u8]| -> Vec<u8> {
                if comparator == KeyComparator::Lexicographic {
                    k.split(|b| *b == 0).next().unwrap().to_vec()
                } else if comparator == KeyComparator::CaseInsensitive || comparator == nocase() {
                    k.to_ascii_lowercase()
                } else {
                    k.to_vec()
                }
            };
            type Map = BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>;
            let mut committed: Map = Map::new();
            let key = |rng: &mut Rng| -> Vec<u8> {
                let n = rng.below(60);
                let mut k =
                    format!("{}k{:02}", if rng.below(2) == 0 { "p" } else { "P" }, n).into_bytes();
                if comparator == KeyComparator::Lexicographic && rng.below(2) == 0 {
                    k.extend_from_slice(b"\0tail");
                }
                k
            };
            let sorted = |m: &Map| -> Vec<(Vec<u8>, Vec<u8>)> {
                let mut v: Vec<_> = m.values().cloned().collect();
                v.sort_by(|a, b| comparator.cmp(&a.0, &b.0));
                v
            };
            for round in 0..12 {
                let txn = db.begin(TxnOptions::new()).unwrap();
                let mut mine = committed.clone();
                let mut saved: Vec<Map> = Vec::new();
                // Concurrent commits by others, on keys of their own.
                for _ in 0..rng.below(80) {
                    match rng.below(16) {
                        0..=5 => {
                            let k = key(&mut rng);
                            let v = vec![round as u8, rng.below(250) as u8];
                            txn.put(&f, &k, &v).unwrap();
                            mine.insert(canon(&k), (k, v));
                        }
                        6 => {
                            let k = key(&mut rng);
                            txn.delete(&f, &k).unwrap();
                            mine.remove(&canon(&k));
                        }
                        7 => {
                            let k = key(&mut rng);
                            let v = b"ttl".to_vec();
                            txn.put_with_ttl(&f, &k, &v, Duration::from_secs(3600)).unwrap();
                            mine.insert(canon(&k), (k, v));
                        }
                        8 if rng.below(3) == 0 => {
                            let k = key(&mut rng);
                            txn.put_with_ttl(&f, &k, "gone", Duration::ZERO).unwrap();
                            mine.remove(&canon(&k));
                        }
                        9 if rng.below(3) == 0 => {
                            let (mut a, mut b) = (key(&mut rng), key(&mut rng));
                            if comparator.cmp(&a, &b).is_gt() {
                                std::mem::swap(&mut a, &mut b);
                            }
                            txn.delete_range(&f, &a[..]..&b[..]).unwrap();
                            mine.retain(|_, (k, _)| {
                                comparator.cmp(k, &a).is_lt() || comparator.cmp(k, &b).is_ge()
                            });
                        }
                        10 => {
                            txn.savepoint("s").unwrap();
                            saved.push(mine.clone());
                        }
                        11 => {
                            if let Some(m) = saved.last() {
                                txn.rollback_to("s").unwrap();
                                mine = m.clone();
                            }
                        }
                        12 => {
                            let k = key(&mut rng);
                            assert_eq!(
                                txn.get(&f, &k).unwrap().as_ref(),
                                mine.get(&canon(&k)).map(|x| &x.1),
                                "{comparator:?} {seed}"
                            );
                        }
                        13 => {
                            let all: Vec<_> = txn
                                .iter(&f)
                                .unwrap()
                                .map(|e| e.unwrap())
                                .map(|(k, v)| (k.to_vec(), v.to_vec()))
                                .collect();
                            let want = sorted(&mine);
                            assert_eq!(all, want, "{comparator:?} {seed}");
                            let mut back: Vec<_> = txn
                                .iter(&f)
                                .unwrap()
                                .rev()
                                .map(|e| e.unwrap())
                                .map(|(k, v)| (k.to_vec(), v.to_vec()))
                                .collect();
                            back.reverse();
                            assert_eq!(back, want, "{comparator:?} {seed}");
                        }
                        14 => {
                            let mut c = txn.cursor(&f).unwrap();
                            let want = sorted(&mine);
                            let mut at: Option<usize> = None;
                            for _ in 0..30 {
                                match rng.below(8) {
                                    0 => {
                                        let k = key(&mut rng);
                                        c.seek(&k).unwrap();
                                        at = want
                                            .iter()
                                            .position(|(x, _)| comparator.cmp(x, &k).is_ge());
                                    }
                                    1 => {
                                        let k = key(&mut rng);
                                        c.seek_for_prev(&k).unwrap();
                                        at = want
                                            .iter()
                                            .rposition(|(x, _)| comparator.cmp(x, &k).is_le());
                                    }
                                    2..=5 if at.is_some() => {
                                        c.next().unwrap();
                                        at = at.map(|a| a + 1).filter(|a| *a < want.len());
                                    }
                                    6 if at.is_some() => {
                                        for _ in 0..3 {
                                            if c.is_valid() {
                                                c.prev().unwrap();
                                            }
                                            at = at.and_then(|a| a.checked_sub(1));
                                            if at.is_none() {
                                                break;
                                            }
                                        }
                                    }
                                    _ => {}
                                }
                                assert_eq!(c.is_valid(), at.is_some(), "{comparator:?} {seed}");
                                if let Some(a) = at {
                                    assert_eq!(
                                        (c.key(), &c.value().unwrap()[..]),
                                        (&want[a].0[..], &want[a].1[..]),
                                        "{comparator:?} {seed}"
                                    );
                                }
                            }
                        }
                        _ => match rng.below(12) {
                            0 => db.admin().flush().unwrap(),
                            1 => db.admin().compact().unwrap(),
                            _ => {}
                        },
                    }
                }
                if rng.below(4) > 0 {
                    txn.commit().unwrap();
                    committed = mine;
                }
                if rng.below(3) == 0 {
                    db.admin().flush().unwrap();
                }
                let all: Vec<_> = f
                    .iter()
                    .unwrap()
                    .map(|e| e.unwrap())
                    .map(|(k, v)| (k.to_vec(), v.to_vec()))
                    .collect();
                assert_eq!(all, sorted(&committed), "{comparator:?} {seed}");
            }
        }
    }
}

/// Clearing a column family between two reads of `write_txn` must not restart the transaction.
#[test]
fn write_txn_handles_family_cleared_meanwhile() {
    let db = open();
    let f = db.create_family("f", Default::default()).unwrap();
    f.put("k", "").unwrap();
    let mut tries = 0;
    let seen = db.write_txn(TxnOptions::new(), |txn| {
        tries += 1;
        txn.put(&f, "n", "")?;
        if tries == 1 {
            db.admin().clear_family("f")?;
        }
        txn.get(&f, "k")
    });
    assert_eq!(seen.unwrap(), None);
}
