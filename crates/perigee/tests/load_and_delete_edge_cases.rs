//! Regression tests for faults found in reviews of bulk loads and deletes, through the public
//! interface.
#![allow(clippy::unwrap_used)]

use perigee::changes::CommitOperation;
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, Durability, FamilyOptions, Options, WriteBatch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

fn options(disk: &Arc<SimDisk>) -> Options {
    let family =
        FamilyOptions::new().memtable_bytes(64 << 10).block_bytes(512).target_file_bytes(16 << 10);
    Options::in_env(Env { fs: disk.clone(), ..Env::real() })
        .durability(Durability::None)
        .default_family(family)
}

#[test]
fn hook_reads_the_commit_it_reports() {
    let disk = SimDisk::new(2);
    let db = Arc::new(Db::open("/db", options(&disk)).unwrap());
    let early = Arc::new(AtomicU64::new(0));
    let families: Vec<_> = (0..100)
        .map(|i| db.create_family(&format!("f{i}"), FamilyOptions::new()).unwrap())
        .collect();
    for f in &families {
        let (reader, count) = (f.clone(), Arc::clone(&early));
        f.on_commit(move |c| {
            for op in c.operations() {
                if let CommitOperation::Put { key, .. } = op {
                    count.fetch_add(u64::from(reader.get(key).unwrap().is_none()), SeqCst);
                }
            }
        });
    }
    let families = Arc::new(families);
    let threads: Vec<_> = (0..4)
        .map(|t| {
            let (db, families) = (Arc::clone(&db), Arc::clone(&families));
            std::thread::spawn(move || {
                for i in 0..300 {
                    let mut b = WriteBatch::new();
                    for f in families.iter() {
                        b.put(f, format!("{t}-{i}"), "v").unwrap();
                    }
                    db.write(b).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(early.load(SeqCst), 0, "reported before it was visible");
}

#[test]
fn cardinality_counts_single_deletes_as_tombstones() {
    let disk = SimDisk::new(9);
    let db = Db::open("/db", options(&disk)).unwrap();
    db.admin().cancel_background_work().unwrap();
    for i in 0..500 {
        db.put(format!("{i:06}"), "value").unwrap();
    }
    db.admin().flush().unwrap();
    for i in 0..500 {
        db.default_family().single_delete(format!("{i:06}")).unwrap();
    }
    assert_eq!(db.default_family().cardinality().unwrap().tombstones, 500);
}

#[test]
fn loaded_table_reports_its_sequence_number() {
    let disk = SimDisk::new(9);
    let db = Db::open("/db", options(&disk)).unwrap();
    db.put("a", "value").unwrap();
    let mut load = db.default_family().bulk_load().unwrap();
    load.put("b", "c").unwrap();
    load.finish().unwrap();
    let f = db.admin().files();
    assert!(
        f.iter().all(|f| f.sequences.first > 0),
        "{:?}",
        f.iter().map(|f| f.sequences).collect::<Vec<_>>()
    );
}

#[test]
fn full_disk_still_accepts_single_and_range_deletes() {
    let disk = SimDisk::new(3);
    let db = Db::open("/db", options(&disk).min_free_space(1 << 20)).unwrap();
    db.put("a", "1").unwrap();
    disk.set_capacity(600 << 10);
    while db.put("b", "1").is_ok() {}
    db.delete("b").unwrap();
    let (single, range) =
        (db.default_family().single_delete("a"), db.default_family().delete_range("a".."c"));
    assert!(single.is_ok() && range.is_ok(), "single: {single:?}, range: {range:?}");
}

#[test]
fn repair_ignores_uncommitted_load() {
    let disk = SimDisk::new(21);
    let db = Db::open("/db", options(&disk)).unwrap();
    db.put("k", "committed").unwrap();
    db.admin().flush().unwrap();
    let mut load = db.default_family().bulk_load().unwrap().memory_bytes(4 << 10);
    for i in 0..3000u64 {
        load.put(format!("load{:05}", (i * 7919) % 3000), "v").unwrap();
        load.put("k", "never committed").unwrap();
    }
    assert!(load.progress().runs > 1);
    // The process is killed here.
    let disk = disk.deep_clone();
    disk.write_raw("/db/MANIFEST", b"damaged".to_vec());
    let env = Env { fs: disk.clone(), ..Env::real() };
    let report = perigee::repair_in(&env, "/db", "/repaired", |_, _| {}).unwrap();
    let db = Db::open("/repaired", Options::in_env(env)).unwrap();
    let strays = db.iter().unwrap().filter(|e| e.as_ref().unwrap().0.starts_with(b"load")).count();
    let k = db.get("k").unwrap().map(|v| String::from_utf8_lossy(&v[..]).into_owned());
    assert_eq!((k.as_deref(), strays), (Some("committed"), 0), "{:?}", report.warnings);
}

#[test]
fn load_respects_min_free_space() {
    let disk = SimDisk::new(22);
    let db = Db::open("/db", options(&disk).min_free_space(1 << 20)).unwrap();
    disk.set_capacity(1200 << 10);
    let mut load = db.default_family().bulk_load().unwrap().memory_bytes(64 << 10);
    let mut x = 1u64;
    let mut refused = None;
    for i in 0..900u64 {
        let mut random = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i);
            (x >> 8).to_le_bytes()
        };
        let value: Vec<u8> = (0..128).flat_map(|_| random()).collect();
        if let Err(e) = load.put(format!("{i:05}"), value) {
            refused = Some(e);
            break;
        }
    }
    let done = load.finish();
    assert!(refused.is_some() || done.is_err(), "a load used 900 KiB of the 1 MiB reserve");
}
