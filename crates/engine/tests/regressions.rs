//! Bugs that reviews and the simulation found, each with its story. Small worlds, many seeds.
#![allow(clippy::unwrap_used)]

use perigee_base::{ErrorKind, Result};
use perigee_engine::{Durability, Engine, FamilySettings, Settings};
use perigee_env::Env;
use perigee_env::fs::memory::{Crash, SimDisk};
use perigee_env::sim::World;
use perigee_file::log::Batch;
use std::path::Path;
use std::sync::Arc;

fn settings() -> Settings {
    let family = FamilySettings {
        memtable_bytes: 2048,
        block_bytes: 128,
        target_file_bytes: 1024,
        level1_bytes: 2048,
        ..FamilySettings::default()
    };
    Settings {
        read_only: false,
        salvage: false,
        create_if_missing: true,
        error_if_exists: false,
        durability: Durability::None,
        memory_budget: 0,
        block_cache_bytes: 1 << 16,
        max_open_files: 4,
        min_free_space: 0,
        verify_outputs: true,
        background_bytes_per_second: 0,
        scrub_interval_us: 0,
        latency_stats: true,
        log_file_bytes: 1 << 20,
        log_files_kept: 1,
        default_family: Some(family),
        families: Default::default(),
        orders: Vec::new(),
        filters: Default::default(),
    }
}

fn open(env: &Env) -> Result<Engine> {
    Engine::open(env.clone(), Path::new("/db"), settings())
}

fn put(engine: &Engine, key: u32) -> Result<()> {
    let mut batch = Batch::new();
    batch.put(engine.family("default")?.id, &key.to_be_bytes(), &[7; 100])?;
    engine.write(batch, None)
}

/// A worker read `closing` as false; close set it and rang; the worker took the bell's count only then, and slept for ever.
/// About one seed in thirty hung (the world calls that a deadlock and panics).
#[test]
fn close_wakes_every_worker() {
    for seed in 0..150 {
        World::new(seed).run(SimDisk::new(seed), |env| {
            let engine = open(&env).unwrap();
            put(&engine, 1).unwrap();
            engine.close().unwrap();
        });
    }
}

/// The mark of a clean close has no LSN of its own. A sync that was running when it was appended took the file off the list of
/// files to sync, so close synced nothing, and the manifest swore to a mark that a power cut then took.
#[test]
fn a_clean_close_is_durable_beside_a_running_sync() {
    for seed in 0..300 {
        let disk = SimDisk::new(seed);
        World::new(seed).run(disk.clone(), |env| {
            let engine = Arc::new(open(&env).unwrap());
            put(&engine, 1).unwrap();
            let other = Arc::clone(&engine);
            let syncer = env.spawn.spawn("syncer", Box::new(move || drop(other.sync()))).unwrap();
            engine.close().unwrap();
            syncer.join().unwrap();
        });
        let after = disk.crash_clone(seed, Crash::Power);
        World::new(seed).run(after, |env| open(&env).unwrap().close().unwrap());
    }
}

/// A compaction on a caller's thread went on after close had released the lock: it drew file ids that the next handle drew too,
/// and when it failed it removed that handle's files.
#[test]
fn a_manual_compaction_ends_before_the_lock_is_free() {
    let mut ran = 0;
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        World::new(seed).run(disk.clone(), |env| {
            let engine = Arc::new(open(&env).unwrap());
            for key in 0..400 {
                put(&engine, key * 7 % 401).unwrap();
            }
            engine.flush(&engine.all_families()).unwrap();
            let other = Arc::clone(&engine);
            let body = move || drop(other.compact(&other.all_families()));
            let compactor = env.spawn.spawn("compactor", Box::new(body)).unwrap();
            let before = disk.io_count();
            env.clock.sleep_us(seed * 3);
            ran += u64::from(disk.io_count() > before);
            engine.close().unwrap();
            let closed = disk.io_count();
            compactor.join().unwrap();
            assert_eq!(disk.io_count(), closed, "seed {seed}: it wrote after the close");
            open(&env).unwrap().close().unwrap();
        });
    }
    assert!(ran > 10, "the compactions never ran beside the close: {ran}");
}

/// Every failed open on a full disk left a partial log segment behind, under a new number each time: whatever space was freed
/// was eaten by the next attempt.
#[test]
fn an_open_on_a_full_disk_leaves_nothing_behind() {
    let disk = SimDisk::new(3);
    World::new(3).run(disk.clone(), |env| {
        let engine = open(&env).unwrap();
        for key in 0..15 {
            put(&engine, key).unwrap();
        }
        engine.close().unwrap();
    });
    let before = disk.total_bytes();
    disk.set_capacity(before + 500);
    for _ in 0..5 {
        World::new(4).run(disk.clone(), |env| {
            assert_eq!(open(&env).unwrap_err().kind(), ErrorKind::NoSpace);
        });
        assert_eq!(disk.total_bytes(), before);
    }
    disk.set_capacity(u64::MAX);
    World::new(5).run(disk, |env| open(&env).unwrap().close().unwrap());
}

/// The manifest's boot id was always 0, so a wrong bit in its last edit passed for a torn write even where the machine had not
/// been restarted: an acknowledged family vanished.
#[test]
fn a_damaged_last_edit_is_damage_while_the_machine_runs() {
    let disk = SimDisk::new(9);
    World::new(9).run(disk.clone(), |env| {
        let engine = open(&env).unwrap();
        engine.create_family("f", FamilySettings::default()).unwrap();
        disk.crash_at(0);
    });
    let after = disk.crash_clone(1, Crash::Process);
    let manifest = Path::new("/db/MANIFEST");
    let mut bytes = after.read_raw(manifest);
    let last = bytes.len() - 20;
    bytes[last] ^= 4;
    after.write_raw(manifest, bytes);
    World::new(9).run(after, |env| assert_eq!(open(&env).unwrap_err().kind(), ErrorKind::Corruption));
}
