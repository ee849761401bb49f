//! How often commits ask all families who keeps the log long.
#![allow(clippy::unwrap_used)]

use perigee_base::ErrorKind;
use perigee_engine::Isolation;
use perigee_engine::TxnSettings;
use perigee_engine::fuzz::small_settings;
use perigee_engine::{Durability, Engine, FamilySettings, Settings, TwoPhaseDecision};
use perigee_env::Env;
use perigee_env::fs::memory::SimDisk;
use perigee_file::log::Batch;
use std::path::Path;

const MEMTABLE: u64 = 64 << 10;

fn family() -> FamilySettings {
    FamilySettings { memtable_bytes: MEMTABLE, ..FamilySettings::default() }
}

fn settings() -> Settings {
    Settings { verify_outputs: false, latency_stats: false, ..small_settings(family()) }
}

/// Looks taken while so many puts of 100 bytes are committed.
fn count_retention_checks(engine: &Engine, puts: u32) -> u64 {
    let taken = || engine.log().commit_section().retention_check.checks_done();
    let before = taken();
    let family = engine.family("default").unwrap().id;
    for i in 0..puts {
        let mut batch = Batch::new();
        batch.put(family, &i.to_be_bytes(), &[7; 100]).unwrap();
        engine.write(batch, None).unwrap();
    }
    taken() - before
}

fn prepare_large_txn(engine: &Engine, gid: &str, bytes: usize) {
    let txn = TxnSettings {
        isolation: Isolation::Snapshot,
        read_only: false,
        pessimistic: false,
        lock_timeout_us: 0,
        timeout_us: 0,
        max_bytes: 0,
        spill_bytes: 0,
    };
    let mut txn = engine.begin_txn(txn).unwrap();
    let family = engine.family("default").unwrap();
    let put = |batch: &mut Batch| batch.put(family.id, gid.as_bytes(), &vec![7; bytes]);
    txn.write(engine.runtime(), &family, || unreachable!("it takes no locks"), put).unwrap();
    engine.prepare_txn(&mut txn, gid.as_bytes()).unwrap();
}

#[test]
fn prepared_txn_does_not_make_every_commit_check_log() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let engine = Engine::open(env, Path::new("/db"), settings()).unwrap();
    for i in 0..20 {
        engine.create_family(&format!("f{i}"), family()).unwrap();
    }
    let limit = 4 * MEMTABLE as usize;
    assert!(count_retention_checks(&engine, 500) < 3);
    // Longer than the limit by itself until it is committed or rolled back.
    prepare_large_txn(&engine, "large", limit + 50_000);
    assert!(count_retention_checks(&engine, 200) < 4, "beside it");
    let all: Vec<_> = engine.all_families();
    engine.flush(&all).unwrap();
    assert!(count_retention_checks(&engine, 200) < 4, "memtables that have begun behind it");
    // Some 700 KB of records: a look or two for each limit, each seal and each flush.
    assert!(count_retention_checks(&engine, 5_000) < 60, "beside it, through many flushes");
    engine.decide_prepared(b"large", TwoPhaseDecision::RollBack, Durability::Full).unwrap();
    assert!(count_retention_checks(&engine, 5_000) < 60, "and after it");
    assert_eq!(
        engine
            .decide_prepared(b"large", TwoPhaseDecision::RollBack, Durability::Full)
            .unwrap_err()
            .kind(),
        ErrorKind::NotFound
    );
    engine.close().unwrap();
}
