//! How often commits ask all families who keeps the log long.
#![allow(clippy::unwrap_used)]

use perigee_base::ErrorKind;
use perigee_engine::isolation::Isolation;
use perigee_engine::txn::TxnSettings;
use perigee_engine::{Durability, Engine, FamilySettings, Settings, Verdict};
use perigee_env::Env;
use perigee_env::fs::memory::SimDisk;
use perigee_file::log::Batch;
use std::path::Path;

const MEMTABLE: u64 = 64 << 10;

fn family() -> FamilySettings {
    FamilySettings { memtable_bytes: MEMTABLE, ..FamilySettings::default() }
}

fn settings() -> Settings {
    Settings {
        read_only: false,
        salvage: false,
        create_if_missing: true,
        error_if_exists: false,
        durability: Durability::None,
        isolation: Isolation::Snapshot,
        memory_budget: 0,
        block_cache_bytes: 1 << 16,
        max_open_files: 4,
        min_free_space: 0,
        verify_outputs: false,
        background_bytes_per_second: 0,
        space_amplification: 150,
        scrub_interval_us: 0,
        log_retention: 0,
        history: Default::default(),
        latency_stats: false,
        log_file_bytes: 1 << 20,
        listener: None,
        log_files_kept: 1,
        default_family: Some(family()),
        families: Default::default(),
        orders: Vec::new(),
        operators: Default::default(),
        filters: Default::default(),
    }
}

/// Looks taken while so many puts of 100 bytes are committed.
fn looks(engine: &Engine, puts: u32) -> u64 {
    let taken = || engine.core().wal.appender().look.taken();
    let before = taken();
    let family = engine.family("default").unwrap().id;
    for i in 0..puts {
        let mut batch = Batch::new();
        batch.put(family, &i.to_be_bytes(), &[7; 100]).unwrap();
        engine.write(batch, None).unwrap();
    }
    taken() - before
}

fn prepare(engine: &Engine, gid: &str, bytes: usize) {
    let txn = TxnSettings {
        isolation: Isolation::Snapshot,
        read_only: false,
        pessimistic: false,
        lock_timeout_us: 0,
        timeout_us: 0,
        max_bytes: 0,
        spill_bytes: 0,
    };
    let mut txn = engine.begin(txn).unwrap();
    let family = engine.family("default").unwrap();
    let put = |batch: &mut Batch| batch.put(family.id, gid.as_bytes(), &vec![7; bytes]);
    txn.write(engine.core(), &family, || unreachable!("it takes no locks"), put).unwrap();
    engine.prepare(&mut txn, gid.as_bytes()).unwrap();
}

#[test]
fn a_large_undecided_one_does_not_have_every_commit_look() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let engine = Engine::open(env, Path::new("/db"), settings()).unwrap();
    for i in 0..20 {
        engine.create_family(&format!("f{i}"), family()).unwrap();
    }
    let limit = 4 * MEMTABLE as usize;
    assert!(looks(&engine, 500) < 3);
    // Longer than the limit by itself, for as long as nobody decides it.
    prepare(&engine, "large", limit + 50_000);
    assert!(looks(&engine, 200) < 4, "beside it");
    let all: Vec<_> = engine.all_families();
    engine.flush(&all).unwrap();
    assert!(looks(&engine, 200) < 4, "memtables that have begun behind it");
    // Some 700 KB of records: a look or two for each limit, each seal and each flush.
    assert!(looks(&engine, 5_000) < 60, "beside it, through many flushes");
    engine.decide(b"large", Verdict::RollBack).unwrap();
    assert!(looks(&engine, 5_000) < 60, "and after it");
    assert_eq!(engine.decide(b"large", Verdict::RollBack).unwrap_err().kind(), ErrorKind::NotFound);
    engine.close().unwrap();
}
