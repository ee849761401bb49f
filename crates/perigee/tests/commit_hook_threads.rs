//! A commit hook runs on the committing thread, before the commit returns; no other thread runs it.
//! Each scenario runs under 400 schedules of the simulator, which reports a deadlock as a failure.
#![allow(clippy::unwrap_used)]

use perigee::env::fs::memory::SimDisk;
use perigee::env::sim::SimWorld;
use perigee::env::{Env, Mutex};
use perigee::{Db, Durability, Options, WriteOptions};
use std::sync::Arc;
use std::thread::{ThreadId, current};

fn run_schedules(run: impl Fn(Env)) {
    for seed in 0..400 {
        SimWorld::new(seed).run(SimDisk::new(seed), &run);
    }
}

fn open(env: &Env) -> Db {
    Db::open("/db", Options::in_env(env.clone())).unwrap()
}

/// A hook takes a lock of the application; the main thread holds this lock while it commits to a
/// column family without a hook.
#[test]
fn lock_held_during_unhooked_commit_does_not_deadlock() {
    run_schedules(|env| {
        let db = open(&env);
        let (hooked, quiet) =
            (db.create_family("hooked", Default::default()).unwrap(), db.default_family());
        let lock = Arc::new(Mutex::new(Vec::<ThreadId>::new()));
        let of_hook = Arc::clone(&lock);
        hooked.on_commit(move |_| of_hook.lock().push(current().id()));
        let writer = {
            let hooked = hooked.clone();
            let body = move || (0..3).for_each(|_| hooked.put("k", "v").unwrap());
            env.spawn.spawn("writer", Box::new(body)).unwrap()
        };
        for i in 0..3 {
            let held = lock.lock();
            let durability = [Durability::None, Durability::Full][i % 2];
            quiet.put_with("k", "v", WriteOptions::new().durability(durability)).unwrap();
            drop(held);
        }
        writer.join().unwrap();
        let ran = lock.lock().clone();
        assert!(ran.len() == 3 && !ran.contains(&current().id()));
        hooked.clear_commit_hook();
        db.close().unwrap();
    });
}

/// Two column families whose hooks commit to each other's family must not deadlock.
#[test]
fn hooks_committing_to_each_other_do_not_deadlock() {
    run_schedules(|env| {
        let db = open(&env);
        let families = ["a", "b"].map(|name| db.create_family(name, Default::default()).unwrap());
        let events = Arc::new(Mutex::new(Vec::<(usize, u64)>::new()));
        for i in 0..2 {
            let (other, events) = (families[1 - i].clone(), Arc::clone(&events));
            families[i].on_commit(move |event| {
                events.lock().push((i, event.commit_sequence()));
                if event.operations().any(|op| {
                    matches!(op, perigee::changes::CommitOperation::Put { key: b"first", .. })
                }) {
                    other.put("second", "v").unwrap();
                }
            });
        }
        let writers = [0, 1].map(|i| {
            let family = families[i].clone();
            env.spawn.spawn("writer", Box::new(move || family.put("first", "v").unwrap())).unwrap()
        });
        writers.into_iter().for_each(|w| w.join().unwrap());
        let events = events.lock().clone();
        assert_eq!(
            events.len(),
            4,
            "a commit returned before the hooks of the commits made by its hook had run"
        );
        for (i, family) in families.iter().enumerate() {
            let numbers: Vec<u64> = events.iter().filter(|h| h.0 == i).map(|h| h.1).collect();
            assert!(numbers.is_sorted(), "{events:?}");
            family.clear_commit_hook();
        }
        db.close().unwrap();
    });
}

/// A panic in a hook does not block later commits.
#[test]
fn commits_continue_after_hook_panic() {
    let db = open(&Env { fs: SimDisk::new(1), ..Env::real() });
    let family = db.default_family();
    family.on_commit(|_| std::panic::panic_any(1));
    (0..3).for_each(|_| db.put("k", "v").unwrap());
    assert_eq!(db.admin().commit_hook_panics(), 3);
    family.clear_commit_hook();
}
