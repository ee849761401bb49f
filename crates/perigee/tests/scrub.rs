//! The background scrub: finds damage in files that are not read otherwise, blocks no operation,
//! and does nothing while disabled.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::env::sim::SimWorld;
use perigee::{Compression, Db, ErrorKind, FamilyOptions, Options};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const HOUR_US: u64 = 3_600_000_000;

fn open(env: &Env, interval: Duration) -> Db {
    let small = FamilyOptions::new()
        .block_bytes(512)
        .target_file_bytes(8 << 10)
        .value_threshold(500)
        .compression(Compression::None);
    let options = Options::in_env(env.clone()).default_family(small).scrub_interval(interval);
    Db::open("/db", options).unwrap()
}

fn fill(db: &Db) {
    for i in 0..500u32 {
        db.put(i.to_be_bytes(), vec![i as u8; if i.is_multiple_of(50) { 2000 } else { 100 }])
            .unwrap();
    }
    db.admin().compact().unwrap();
}

fn counter(db: &Db, name: &str) -> u64 {
    db.admin().stats().counter(name).unwrap()
}

/// Flips a bit in the first file of the given kind.
fn flip_bit(disk: &Arc<SimDisk>, kind: &str) -> (PathBuf, Vec<u8>) {
    let of_kind = |p: &PathBuf| p.starts_with("/db") && p.extension().is_some_and(|e| e == kind);
    let path = disk.paths().into_iter().find(of_kind).unwrap();
    let good = disk.read_raw(&path);
    let mut bad = good.clone();
    bad[200] ^= 1;
    disk.write_raw(&path, bad);
    (path, good)
}

/// Runs in the simulator, whose time advances as soon as every thread waits.
fn run_simulated(program: impl FnOnce(&Arc<SimDisk>, &Env)) {
    let disk = SimDisk::new(1);
    SimWorld::new(1).run(Arc::clone(&disk), |env| program(&disk, &env));
}

#[test]
fn scrub_finds_damage_without_stopping_the_database() {
    run_simulated(|disk, env| {
        let db = open(env, Duration::from_secs(3600));
        fill(&db);
        for kind in ["klog", "vlog"] {
            let (path, good) = flip_bit(disk, kind);
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let before = counter(&db, "scrub_errors");
            env.clock.sleep_us(2 * HOUR_US + HOUR_US / 10);
            let s = db.admin().stats();
            assert_eq!(s.scrub_errors.len(), 1, "{:?}", s.scrub_errors);
            let e = &s.scrub_errors[0];
            assert!(e.kind() == ErrorKind::Corruption && e.to_string().contains(&name), "{e}");
            assert!(s.background_error.is_none());
            assert!(s.to_json().contains(&name) && s.to_string().contains(&name));
            assert!(counter(&db, "scrub_errors") > before);
            let log = String::from_utf8(disk.read_raw("/db/LOG")).unwrap();
            assert!(log.contains("scrub: ") && log.contains(&name), "{log}");
            db.put("goes", "on").unwrap();
            db.admin().flush().unwrap();
            db.admin().wait_idle().unwrap();
            // The file is intact again: the next pass removes the error.
            disk.write_raw(&path, good);
            env.clock.sleep_us(2 * HOUR_US + HOUR_US / 10);
            assert!(db.admin().stats().scrub_errors.is_empty());
        }
        assert!(db.admin().verify().unwrap().errors.is_empty());
        db.close().unwrap();
    });
}

#[test]
fn scrub_reads_each_file_once_per_interval() {
    run_simulated(|disk, env| {
        let db = open(env, Duration::ZERO);
        fill(&db);
        db.close().unwrap();
        let db = open(env, Duration::from_secs(3600));
        let is_data = |p: &PathBuf| p.extension().is_some_and(|e| e == "klog" || e == "vlog");
        let data = || disk.paths().into_iter().filter(|p| p.starts_with("/db") && is_data(p));
        let files = data().count() as u64;
        let bytes: u64 = data().map(|p| disk.read_raw(p).len() as u64).sum();
        assert!(files > 3, "{files}");
        env.clock.sleep_us(HOUR_US / 2);
        let half = counter(&db, "scrub_files");
        assert!(0 < half && half < files, "{half} of {files} after half of the time");
        env.clock.sleep_us(HOUR_US / 2 + HOUR_US / 100);
        assert_eq!((counter(&db, "scrub_files"), counter(&db, "scrub_bytes")), (files, bytes));
        assert_eq!((counter(&db, "scrub_passes"), counter(&db, "scrub_errors")), (1, 0));
        db.admin().wait_idle().unwrap();
        db.close().unwrap();
    });
}

#[test]
fn scrub_can_be_disabled_and_paused() {
    run_simulated(|disk, env| {
        let db = open(env, Duration::ZERO);
        fill(&db);
        flip_bit(disk, "klog");
        env.clock.sleep_us(100 * HOUR_US);
        assert_eq!((counter(&db, "scrub_files"), counter(&db, "scrub_passes")), (0, 0));
        assert!(db.admin().stats().scrub_errors.is_empty());
        db.close().unwrap();
        let db = open(env, Duration::from_secs(3600));
        let pause = db.admin().pause_background_work().unwrap();
        env.clock.sleep_us(100 * HOUR_US);
        assert_eq!(counter(&db, "scrub_files"), 0);
        // Between the end of the pause and the cancel the schedule may allow it to read one file.
        db.admin().cancel_background_work().unwrap();
        drop(pause);
        env.clock.sleep_us(100 * HOUR_US);
        assert_eq!(counter(&db, "scrub_files"), 0);
        db.admin().resume_background_work().unwrap();
        env.clock.sleep_us(2 * HOUR_US);
        assert_eq!(db.admin().stats().scrub_errors.len(), 1);
        db.close().unwrap();
    });
}

/// The rate limits the scrub, and a higher rate applies at once; a close never waits for the scrub.
#[test]
fn scrub_respects_background_rate() {
    run_simulated(|_, env| {
        let db = open(env, Duration::from_secs(1));
        fill(&db);
        db.admin().set_background_rate(Some(1));
        env.clock.sleep_us(HOUR_US);
        let slow = counter(&db, "scrub_bytes");
        db.admin().set_background_rate(None);
        env.clock.sleep_us(HOUR_US / 10);
        let fast = counter(&db, "scrub_bytes");
        assert!(fast > 20 * slow.max(1), "{slow} bytes at one a second, then {fast}");
        db.admin().set_background_rate(Some(1));
        env.clock.sleep_us(HOUR_US);
        db.close().unwrap();
    });
}

/// Real threads: files replaced by compactions are removed although the scrub is always reading.
#[test]
fn obsolete_files_are_removed_during_scrub() {
    let disk = SimDisk::new(1);
    let env = Env { fs: disk.clone(), ..Env::real() };
    let db = open(&env, Duration::from_micros(1));
    for _ in 0..5 {
        fill(&db);
    }
    db.admin().wait_idle().unwrap();
    assert!(db.admin().verify().unwrap().errors.is_empty());
    db.close().unwrap();
    let names = |db: &Db| db.admin().files().len();
    let db = open(&env, Duration::ZERO);
    let klogs = disk.paths().into_iter().filter(|p| {
        p.parent().is_some_and(|d| d.ends_with("db")) && p.extension().is_some_and(|e| e == "klog")
    });
    assert_eq!(klogs.count(), names(&db));
    db.close().unwrap();
}
