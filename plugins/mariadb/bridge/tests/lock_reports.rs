//! Reports of lock waits and deadlocks to the plugin.
#![allow(unsafe_code)] // The listeners are C functions.

mod common;

use common::{Db, EXCLUSIVE, GAP, INSERT, LockWait, TempDir, copy_lock_wait};
use perigee_mariadb_bridge::engine::Durability;
use perigee_mariadb_bridge::locks::LockWaitInfo;
use perigee_mariadb_bridge::status::Status;
use std::sync::Mutex;
use std::time::Duration;

static WAITS: Mutex<Vec<(u64, Vec<u64>)>> = Mutex::new(Vec::new());
static DEADLOCKS: Mutex<Vec<(Vec<LockWait>, u64)>> = Mutex::new(Vec::new());

extern "C" fn wait_began(waiting: u64, blocking: *const u64, count: usize) {
    // SAFETY: the array is valid during the call.
    let blocking = unsafe { std::slice::from_raw_parts(blocking, count) };
    WAITS
        .lock()
        .expect("no test panics while it holds the list")
        .push((waiting, blocking.to_vec()));
}

extern "C" fn deadlock(waits: *const LockWaitInfo, count: usize, victim: u64) {
    // SAFETY: the waits are valid during the call.
    let waits = unsafe { std::slice::from_raw_parts(waits, count) };
    // SAFETY: as above.
    let waits = waits.iter().map(|wait| unsafe { copy_lock_wait(wait) }).collect();
    DEADLOCKS.lock().expect("no test panics while it holds the list").push((waits, victim));
}

#[test]
fn lock_waits_and_deadlocks_are_reported() {
    let dir = TempDir::new();
    let db = Db::open(dir.path());
    let table = db.create("d/t");
    db.fill(&table, &[("a", "1"), ("b", "2"), ("f", "3")]);
    db.listen(wait_began, deadlock).unwrap();
    assert_eq!(db.listen(wait_began, deadlock), Err(Status::INVALID), "there is one");
    let (one, two) = (db.begin(60_000), db.begin(60_000));
    let (first, second) = (one.lock_owner(), two.lock_owner());
    assert!(first < second);
    one.lock_range(&table, "c", Some("e"), GAP).unwrap();
    one.lock(&table, "a", EXCLUSIVE).unwrap();
    one.put(&table, "a", "x").unwrap();
    two.put(&table, "b", "x").unwrap();
    assert_eq!(db.lock_counts(), [(first, 2), (second, 1)], "the put needs no lock of its own");
    std::thread::scope(|s| {
        let wait = s.spawn(|| {
            let two = two;
            let waited = two.lock(&table, "d", INSERT);
            (two, waited)
        });
        while db.lock_waits().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let waits = db.lock_waits();
        assert_eq!(waits, [(second, vec![first], "d/t".into(), b"d".to_vec(), None, INSERT)]);
        assert_eq!(*WAITS.lock().unwrap(), [(second, vec![first])]);
        // Closes a cycle: the younger one is the victim.
        let closing = s.spawn(|| {
            let one = one;
            one.lock_range(&table, "b", Some("c"), EXCLUSIVE).unwrap();
            one
        });
        let (two, waited) = wait.join().unwrap();
        assert_eq!(waited, Err(Status::DEADLOCK));
        two.rollback();
        assert_eq!(two.lock_owner(), second, "a retry keeps its age");
        let one = closing.join().unwrap();
        one.commit_with(Durability::NO_SYNC).unwrap();
        assert!(one.lock_owner() > second, "the next transaction");
        two.put(&table, "b", "y").unwrap();
        two.prepare("gid").unwrap();
        assert!(two.lock_owner() > one.lock_owner());
        assert_eq!(db.lock_counts(), [(second, 1)], "a prepared transaction keeps its owner");
        db.rollback_prepared("gid").unwrap();
        assert_eq!(db.lock_counts(), []);
    });
    let deadlocks = DEADLOCKS.lock().unwrap();
    let (waits, victim) = &deadlocks[0];
    assert_eq!((deadlocks.len(), *victim, waits.len()), (1, second, 2));
    let range = (first, vec![second], "d/t".into(), b"b".to_vec(), Some(b"c".to_vec()), EXCLUSIVE);
    assert_eq!(waits[0], range);
    assert_eq!(waits[1], (second, vec![first], "d/t".into(), b"d".to_vec(), None, INSERT));
}
