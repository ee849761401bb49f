//! Control of background jobs through the public interface: compaction of ranges, purge, pause,
//! cancel, rate limit, waiting.
#![allow(clippy::unwrap_used)]

use perigee::env::fs::memory::SimDisk;
use perigee::env::sim::SimWorld;
use perigee::env::{Env, Join};
use perigee::{Compression, Db, ErrorKind, FamilyOptions, Options};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn small() -> FamilyOptions {
    FamilyOptions::new()
        .memtable_bytes(16 << 10)
        .block_bytes(512)
        .target_file_bytes(8 << 10)
        .level1_bytes(32 << 10)
        .value_threshold(2000)
        .compression(Compression::None)
}

fn open() -> Db {
    open_in(Env { fs: SimDisk::new(1), ..Env::real() })
}

fn open_in(env: Env) -> Db {
    Db::open("/db", Options::in_env(env).default_family(small())).unwrap()
}

fn key(i: u32) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

fn fill(db: &Db, keys: std::ops::Range<u32>, value: usize) {
    for i in keys {
        db.put(key(i), vec![i as u8; value]).unwrap();
    }
}

/// Number of tombstones in the tables that overlap the key range.
fn tombstones(db: &Db, from: &[u8], to: &[u8]) -> u64 {
    let overlaps = |f: &&perigee::stats::FileStats| {
        f.first_key.as_slice() <= to && f.last_key.as_slice() >= from
    };
    db.admin().files().iter().filter(overlaps).map(|f| f.tombstones).sum()
}

#[test]
fn compact_range_leaves_other_keys_untouched() {
    let db = open();
    fill(&db, 0..2000, 100);
    db.admin().compact().unwrap();
    // Background compactions would otherwise remove the tombstones as well.
    db.admin().cancel_background_work().unwrap();
    for i in 500..600 {
        db.delete(key(i)).unwrap();
    }
    db.admin().flush().unwrap();
    let before: Vec<String> = db.admin().files().into_iter().map(|f| f.file).collect();
    assert_eq!(tombstones(&db, &key(500), &key(599)), 100);
    db.admin().resume_background_work().unwrap();
    db.default_family().compact_range(key(500)..key(600)).unwrap();
    assert_eq!(tombstones(&db, &key(500), &key(599)), 0);
    let after: Vec<String> = db.admin().files().into_iter().map(|f| f.file).collect();
    let kept = before.iter().filter(|f| after.contains(f)).count();
    assert!(kept * 2 > before.len(), "{kept} of {} files were not rewritten", before.len());
    assert_eq!(db.iter().unwrap().count(), 1900);
    db.default_family().compact_range::<&[u8]>(..).unwrap();
    assert_eq!(db.iter().unwrap().count(), 1900);
    db.default_family().compact_range("x".."y").unwrap();
    assert!(db.admin().verify().unwrap().errors.is_empty());
}

/// Older runs extend beyond the range: their entries must be moved along, or old versions become
/// visible again.
#[test]
fn compact_range_moves_older_versions_along() {
    let db = open();
    for round in 0..3 {
        fill(&db, 0..40, 30 + round);
        db.admin().flush().unwrap();
    }
    db.default_family().compact_range(key(5)..=key(5)).unwrap();
    for i in 0..40 {
        assert_eq!(db.get(key(i)).unwrap().unwrap().len(), 32);
    }
}

#[test]
fn purge_reclaims_all_garbage() {
    let db = open();
    fill(&db, 0..60, 3000);
    db.admin().flush().unwrap();
    for i in 0..3 {
        db.delete(key(i)).unwrap();
    }
    db.admin().purge().unwrap();
    let f = &db.admin().stats().families[0];
    assert_eq!(f.levels.iter().map(|l| l.tombstones).sum::<u64>(), 0);
    let (files, bytes, live) = (f.vlogs.files, f.vlogs.bytes, f.vlogs.referenced_bytes);
    assert_eq!(bytes - live, 72 * files as u64, "the only unreferenced bytes are file headers");
    assert_eq!(db.iter().unwrap().count(), 57);
}

#[test]
fn paused_background_work_reports_busy() {
    let db = open();
    fill(&db, 0..50, 100);
    let outer = db.admin().pause_background_work().unwrap();
    let inner = db.admin().pause_background_work().unwrap();
    assert_eq!(db.admin().flush().unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(db.admin().compact().unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(db.admin().wait_idle().unwrap_err().kind(), ErrorKind::Busy);
    inner.resume();
    assert_eq!(
        db.admin().flush().unwrap_err().kind(),
        ErrorKind::Busy,
        "the outer pause still holds"
    );
    let refused = (0..).find_map(|i| db.put(key(i), vec![1; 1000]).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    assert!(refused.is_retryable() && refused.message().contains("paused"), "{refused}");
    assert_eq!(db.admin().stats().counter("flushes").unwrap(), 0);
    drop(outer);
    db.put("after", "resume").unwrap();
    db.admin().flush().unwrap();
    db.admin().wait_idle().unwrap();
}

#[test]
fn cancelled_compactions_wait_for_resume() {
    let db = open();
    db.admin().cancel_background_work().unwrap();
    assert_eq!(db.admin().compact().unwrap_err().kind(), ErrorKind::Busy);
    for _ in 0..6 {
        fill(&db, 0..50, 50);
        db.admin().flush().unwrap();
    }
    assert_eq!(db.admin().stats().families[0].levels[0].runs, 6, "nothing was merged");
    assert_eq!(db.admin().wait_idle().unwrap_err().kind(), ErrorKind::Busy);
    db.admin().resume_background_work().unwrap();
    db.admin().wait_idle().unwrap();
    assert_eq!(db.admin().stats().families[0].levels[0].runs, 0);
}

/// Result of a manual compaction, once it has returned.
type SharedResult = Arc<Mutex<Option<perigee::Result<()>>>>;

/// Opens a database with a pending merge, and starts a manual compaction that never gets its first
/// bytes from the background rate limiter. Simulated time advances only while every thread waits:
/// after the sleep the compaction is blocked in the rate limiter.
fn with_a_throttled_compaction(env: &Env) -> (Db, Box<dyn Join>, SharedResult) {
    let db = open_in(env.clone());
    db.admin().cancel_background_work().unwrap();
    // Fill twice: files that overlap cannot be moved without I/O, which no rate would limit.
    fill(&db, 0..1000, 100);
    fill(&db, 0..1000, 100);
    db.admin().flush().unwrap();
    // One byte per second.
    db.admin().set_background_rate(Some(1));
    db.admin().resume_background_work().unwrap();
    let answer = SharedResult::default();
    let manual = {
        let (db, answer) = (db.clone(), Arc::clone(&answer));
        move || *answer.lock().unwrap() = Some(db.admin().compact())
    };
    let manual = env.spawn.spawn("manual", Box::new(manual)).unwrap();
    env.clock.sleep_us(1_000_000);
    assert!(answer.lock().unwrap().is_none());
    (db, manual, answer)
}

#[test]
fn cancelled_compaction_loses_nothing() {
    SimWorld::new(1).run(SimDisk::new(1), |env| {
        let (db, manual, answer) = with_a_throttled_compaction(&env);
        let running = db.admin().stats().running_jobs;
        assert_eq!(running.len(), 1);
        let job = &running[0];
        assert_eq!((job.kind, job.family.as_str()), ("compaction", "default"));
        assert!(job.to > 0 && job.bytes > 0 && job.bytes_done <= job.bytes);
        assert!(!db.admin().wait_idle_for(Duration::from_millis(1)).unwrap());
        db.admin().cancel_background_work().unwrap();
        assert!(db.admin().stats().running_jobs.is_empty());
        manual.join().unwrap();
        let answer = answer.lock().unwrap().take().unwrap();
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(db.admin().background_rate(), Some(1));
        db.admin().set_background_rate(None);
        db.admin().resume_background_work().unwrap();
        db.admin().compact().unwrap();
        assert_eq!(db.iter().unwrap().count(), 1000);
        db.close().unwrap();
    });
}

#[test]
fn close_does_not_wait_for_a_throttled_compaction() {
    SimWorld::new(2).run(SimDisk::new(2), |env| {
        let (db, manual, answer) = with_a_throttled_compaction(&env);
        let (paused, began) = (db.clone(), env.clock.monotonic_us());
        db.close().unwrap();
        assert!(env.clock.monotonic_us() - began < 1_000_000, "the compaction would take days");
        manual.join().unwrap();
        assert!(answer.lock().unwrap().take().unwrap().is_err(), "the compaction was interrupted");
        assert_eq!(paused.admin().pause_background_work().unwrap_err().kind(), ErrorKind::Closed);
    });
}

/// Value-log bytes in percent of the live ones, after each value was overwritten about five times
/// at random, and whether the writer was slowed because of them.
fn vlog_percent_after_overwrites(space_amplification: u32) -> (u64, bool) {
    let outcome = Arc::new(Mutex::new((0, false)));
    let result = Arc::clone(&outcome);
    SimWorld::new(3).run(SimDisk::new(3), move |env| {
        let family =
            small().memtable_bytes(256 << 10).target_file_bytes(64 << 10).level1_bytes(256 << 10);
        let options =
            Options::in_env(env).default_family(family).space_amplification(space_amplification);
        let db = Db::open("/db", options).unwrap();
        let keys = 500;
        fill(&db, 0..keys, 8000);
        let mut random = 7u32;
        for round in 0..5 * keys {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            db.put(key((random >> 8) % keys), vec![round as u8; 8000]).unwrap();
        }
        db.admin().flush().unwrap();
        db.admin().wait_idle().unwrap();
        let stats = db.admin().stats();
        let vlogs = &stats.families[0].vlogs;
        let is_slowed = stats.stalls.iter().any(|s| s.reason == "space" && s.delay_us > 0);
        *result.lock().unwrap() = (vlogs.bytes * 100 / vlogs.referenced_bytes, is_slowed);
        assert_eq!(db.iter().unwrap().count(), keys as usize);
        assert!(db.admin().verify().unwrap().errors.is_empty());
        db.close().unwrap();
    });
    *outcome.lock().unwrap()
}

#[test]
fn garbage_of_value_logs_follows_space_amplification() {
    let [(bounded, slowed), (default, _), (unbounded, never_slowed)] =
        [130, 150, 0].map(vlog_percent_after_overwrites);
    assert!(slowed && !never_slowed, "{slowed} {never_slowed}");
    // Value logs that only level 0 references are left to its merge.
    assert!(bounded <= 120 && default <= 130, "{bounded} {default}");
    assert!(unbounded > 130, "{unbounded}: collected only where most is garbage");
}
