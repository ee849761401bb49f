//! A forked child that uses its parent's database through the Rust interface: every call is
//! refused, and the parent's data does not change. The test is in this crate because `fork` is a
//! foreign function; `regressions/fork_child.c` tests the same through C.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, unsafe_code)]

use perigee::{Db, ErrorKind, Options, Result};
use std::io::{Read, Write};

/// Runs `child` in a forked process. Returns its result.
fn run_in_child(child: impl FnOnce() -> bool) -> bool {
    run_beside_child(child, || {})
}

/// Runs `child` in a forked process and `parent` meanwhile. Returns the child's result.
fn run_beside_child(child: impl FnOnce() -> bool, parent: impl FnOnce()) -> bool {
    // SAFETY: this test is the only one of its binary, so that no other thread holds a lock that
    // the child needs.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: calls without pointers. A child that hangs is killed by the alarm, and the parent
        // detects the failure.
        unsafe {
            libc::alarm(60);
            let fine = child();
            libc::_exit(i32::from(!fine));
        }
    }
    parent();
    let mut status = 0;
    // SAFETY: the pointer is valid for writing.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

fn assert_closed<T>(result: Result<T>) -> bool {
    matches!(result, Err(e) if e.kind() == ErrorKind::Closed && e.message().contains("forked"))
}

#[test]
fn forked_child_is_refused_and_changes_nothing() {
    let dir = std::env::temp_dir().join(format!("perigee-fork-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let db = Db::open(&dir, Options::new()).unwrap();
    let family = db.create_family("users", Default::default()).unwrap();
    family.put("a", "1").unwrap();
    let snapshot = db.snapshot().unwrap();
    let txn = db.begin(Default::default()).unwrap();
    txn.put(&family, "b", "2").unwrap();
    let fine = run_in_child(|| {
        let refused = [
            assert_closed(family.put("c", "child")),
            assert_closed(family.get("a")),
            assert_closed(family.iter()),
            assert_closed(db.delete("a")),
            assert_closed(snapshot.get(&family, "a")),
            assert_closed(txn.commit_in_place(None)),
            assert_closed(db.create_family("of_child", Default::default())),
            assert_closed(db.drop_family("users")),
            assert_closed(db.close()),
        ];
        let locked = Db::open(&dir, Options::new()).is_err_and(|e| e.kind() == ErrorKind::Locked);
        drop((snapshot, txn, family.clone(), db.clone()));
        refused.iter().all(|r| *r) && locked
    });
    assert!(fine);
    // Handles dropped last in a child do not close anything either.
    let (dropped, other) = (db.clone(), family.clone());
    assert!(run_in_child(move || {
        drop((dropped, other));
        true
    }));
    let again = Db::open(&dir, Options::new());
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Locked, "the parent no longer holds its lock");
    family.put("d", "4").unwrap();
    // After the parent has closed it, a child may open the database.
    let (mut told, mut tell) = std::io::pipe().unwrap();
    let opens = || {
        told.read_exact(&mut [0]).is_ok()
            && Db::open(&dir, Options::new()).is_ok_and(|db| db.close().is_ok())
    };
    assert!(run_beside_child(opens, || {
        db.close().unwrap();
        tell.write_all(&[1]).unwrap();
    }));
    drop((db, family));
    let db = Db::open(&dir, Options::new()).unwrap();
    let family = db.family("users").unwrap();
    let there = ["a", "b", "c", "d"].map(|k| family.get(k).unwrap().is_some());
    assert_eq!(there, [true, false, false, true]);
    assert_eq!(db.families(), ["default", "users"]);
    db.close().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}
