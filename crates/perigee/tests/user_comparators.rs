//! User code inside the engine: custom comparators, comparators that panic, and threads that read
//! while they exit.
//!
//! Regression tests for three faults found in a review: key fingerprints assumed that equal keys
//! have equal hashes; the commit lock was released before a comparator's panic had poisoned the
//! database; and a read in a thread's destructors aborted the process.
#![allow(clippy::unwrap_used)]

use perigee::env::{Env, fs::memory::SimDisk};
use perigee::{Db, Durability, FamilyOptions, KeyComparator, Options, WriteBatch};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier};

fn options(seed: u64) -> Options {
    Options::in_env(Env { fs: SimDisk::new(seed), ..Env::real() }).durability(Durability::None)
}

#[test]
fn equal_keys_of_custom_comparator_are_one_key() {
    let lower = |k: &[u8]| k.to_ascii_lowercase();
    let comparator =
        KeyComparator::register("user code nocase", move |a, b| lower(a).cmp(&lower(b))).unwrap();
    let db = Db::open("/db", options(1).register_comparator(comparator)).unwrap();
    let f = db.create_family("f", FamilyOptions::new().comparator(comparator)).unwrap();
    f.put("key", "old").unwrap();
    f.put("gone", "old").unwrap();
    let _keeps_old_versions = db.snapshot().unwrap();
    f.put("KEY", "new").unwrap();
    f.delete("GONE").unwrap();
    db.admin().flush().unwrap();
    // More often than the reads after which a block builds fingerprints.
    for i in 0..20 {
        assert_eq!(f.get("key").unwrap().unwrap(), b"new", "look-up {i}");
        assert!(f.get("gone").unwrap().is_none(), "look-up {i}");
    }
}

static ARMED: AtomicBool = AtomicBool::new(false);

/// Returns true if a part of a batch was visible after a comparator panicked while the batch was
/// applied, with two other writers active.
fn sees_partial_batch(comparator: KeyComparator, seed: u64) -> bool {
    let db = Db::open("/db", options(seed).register_comparator(comparator)).unwrap();
    let f = db.create_family("f", FamilyOptions::new().comparator(comparator)).unwrap();
    f.put("c", "").unwrap();
    let started = Arc::new(Barrier::new(3));
    let writers: Vec<_> = (0..2)
        .map(|t| {
            let (f, started) = (f.clone(), Arc::clone(&started));
            std::thread::spawn(move || {
                f.put(format!("z{t}"), "v").unwrap();
                started.wait();
                let mut n = 0u64;
                while f.put(format!("z{t}{}", n % 50), "v").is_ok() {
                    n += 1;
                }
            })
        })
        .collect();
    started.wait();
    let (writer, family) = (db.clone(), f.clone());
    let dies = std::thread::spawn(move || {
        let mut batch = WriteBatch::new();
        batch.put(&family, "half", "x").unwrap();
        batch.put(&family, "boom", "x").unwrap();
        ARMED.store(true, SeqCst);
        let _ = writer.write(batch);
    });
    assert!(dies.join().is_err(), "the writer panicked");
    ARMED.store(false, SeqCst);
    writers.into_iter().for_each(|w| w.join().unwrap());
    f.get("half").unwrap().is_some()
}

#[test]
fn comparator_panic_publishes_no_partial_batch() {
    let boom = |a: &[u8], b: &[u8]| ARMED.load(SeqCst) && (a == b"boom" || b == b"boom");
    let comparator = KeyComparator::register("user code boom", move |a, b| {
        assert!(!boom(a, b), "as planned");
        a.cmp(b)
    })
    .unwrap();
    let seen = (0..300).filter(|seed| sees_partial_batch(comparator, seed + 1)).count();
    assert_eq!(seen, 0, "a part of a batch was visible");
}

/// Reads when its thread exits.
struct ReadOnThreadExit(Option<Db>);

impl Drop for ReadOnThreadExit {
    fn drop(&mut self) {
        if let Some(db) = &self.0 {
            assert!(db.get("k00001").unwrap().is_some());
        }
    }
}

thread_local! {
    static ON_THREAD_EXIT: RefCell<ReadOnThreadExit> = const { RefCell::new(ReadOnThreadExit(None)) };
}

#[test]
fn reads_work_in_thread_local_destructors() {
    for codec in [perigee::Compression::Lz4, perigee::Compression::Zstd(1)] {
        let mut o = options(1).block_cache_bytes(0);
        o = o.default_family(FamilyOptions::new().compression(codec));
        let db = Db::open("/db", o).unwrap();
        for i in 0..1000 {
            db.put(format!("k{i:05}"), [7; 100]).unwrap();
        }
        db.admin().flush().unwrap();
        let last = db.clone();
        let thread = std::thread::spawn(move || {
            // Initialized before the engine's thread-local values, so that it is dropped after
            // them.
            ON_THREAD_EXIT.with_borrow_mut(|l| l.0 = Some(last.clone()));
            assert!(last.get("k00500").unwrap().is_some());
        });
        thread.join().unwrap();
        // The handle dropped on the thread may have been the last one besides `db`.
        db.close().unwrap();
    }
}
