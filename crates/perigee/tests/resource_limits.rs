//! Limits of the resources a database uses: memory, open files, disk space.
#![allow(clippy::unwrap_used)]

use perigee::env::fs::memory::{Crash, Fault, SimDisk};
use perigee::env::{DirOpenMode, Env, Fs};
use perigee::{Db, ErrorKind, FamilyOptions, Options};
use std::path::Path;
use std::sync::Arc;

fn options(disk: &Arc<SimDisk>) -> Options {
    Options::in_env(Env { fs: disk.clone(), ..Env::real() })
        .durability(perigee::Durability::None)
        .verify_outputs(false)
}

/// Bytes held by an owner, or by all owners if `owner` is empty.
fn memory_of(db: &Db, owner: &str) -> u64 {
    db.admin().stats().memory.iter().filter(|m| m.owner.contains(owner)).map(|m| m.bytes).sum()
}

fn value(i: u32) -> Vec<u8> {
    (0..200u32).map(|j| (i.wrapping_mul(2_654_435_761).rotate_left(j) >> (j % 24)) as u8).collect()
}

#[test]
fn memory_stays_within_budget() {
    const BUDGET: u64 = 2 << 20;
    let db = Db::open("/db", options(&SimDisk::new(1)).memory_budget(BUDGET)).unwrap();
    let families: Vec<_> =
        (0..5).map(|i| db.create_family(&format!("f{i}"), Default::default()).unwrap()).collect();
    let mut cached = 0;
    for i in 0..40_000u32 {
        let key = (i.wrapping_mul(0x9E37_79B9) % 20_000).to_be_bytes();
        families[i as usize % 5].put(key, value(i)).unwrap();
        families[i as usize % 3].get(key).unwrap();
        if i % 500 == 0 {
            assert_eq!(db.admin().stats().memory_budget, BUDGET);
            assert!(
                memory_of(&db, "") <= BUDGET / 10 * 11,
                "at {i}: {:?}",
                db.admin().stats().memory
            );
            cached = cached.max(memory_of(&db, "cache"));
        }
    }
    assert!(cached > BUDGET / 10, "the cache used the remaining budget: {cached}");
    assert!(db.admin().stats().counter("flushes").unwrap() > 4, "memtables were flushed early");
    assert_eq!(
        Db::open("/other", options(&SimDisk::new(2)).memory_budget(1000)).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn open_files_stay_within_limit() {
    let disk = SimDisk::new(1);
    let small = FamilyOptions::new()
        .target_file_bytes(2048)
        .compression(perigee::Compression::None)
        .block_bytes(256);
    let db = Db::open(
        "/db",
        options(&disk).max_open_files(4).block_cache_bytes(0).default_family(small),
    )
    .unwrap();
    for i in 0..1500u32 {
        db.put(i.to_be_bytes(), value(i)).unwrap();
    }
    db.admin().compact().unwrap();
    assert!(db.admin().files().len() > 20);
    let check = |db: &Db| {
        for i in (0..1500u32).rev() {
            assert_eq!(db.get(i.to_be_bytes()).unwrap(), Some(value(i)));
        }
        assert_eq!(db.iter().unwrap().count(), 1500);
        assert!(db.admin().stats().open_files.open <= 4, "{:?}", db.admin().stats().open_files);
        assert!(db.admin().verify().unwrap().errors.is_empty());
    };
    check(&db);
    db.close().unwrap();
    check(&Db::open("/db", options(&disk).max_open_files(4).block_cache_bytes(0)).unwrap());
}

#[test]
fn full_disk_still_accepts_deletes() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk).min_free_space(100 << 10)).unwrap();
    disk.set_capacity(disk.total_bytes() + (300 << 10));
    let mut written = 0;
    let refused = loop {
        match db.put(format!("{written:08}"), value(written)) {
            Ok(()) => written += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    assert!(refused.message().contains("min_free_space"), "{refused}");
    assert!(written > 100, "only {written} writes were accepted");
    assert!(
        db.admin().stats().free_space >= 90 << 10,
        "the reserve was used: {} bytes free",
        db.admin().stats().free_space
    );
    for i in 0..50 {
        db.delete(format!("{i:08}")).unwrap();
    }
    db.admin().flush().unwrap();
    db.admin().compact().unwrap();
    assert_eq!(db.iter().unwrap().count() as u32, written - 50);
    disk.set_capacity(u64::MAX);
    db.put("again", "accepted").unwrap();
    db.close().unwrap();
}

#[test]
fn families_share_one_memtable_budget() {
    const BUDGET: u64 = 4 << 20;
    let db = Db::open("/db", options(&SimDisk::new(1)).memory_budget(BUDGET)).unwrap();
    let families: Vec<_> = (0..1000)
        .map(|i| db.create_family(&format!("f{i:04}"), Default::default()).unwrap())
        .collect();
    for round in 0..3u32 {
        for f in &families {
            f.put(round.to_be_bytes(), value(round)).unwrap();
        }
    }
    assert!(memory_of(&db, "memtables") <= BUDGET, "{:?}", db.admin().stats().memory);
    assert!(
        memory_of(&db, "active memtables") / 1000 < 4096,
        "each column family needs little memory: {:?}",
        db.admin().stats().memory
    );
    assert!(families.iter().all(|f| f.get(1u32.to_be_bytes()).unwrap().is_some()));
}

const RESERVE: u64 = 100 << 10;

/// Creates a closed database of 550 entries, some of them only in the log, with its ballast file.
fn with_ballast() -> Arc<SimDisk> {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk).min_free_space(RESERVE)).unwrap();
    for i in 0..500u32 {
        db.put(i.to_be_bytes(), value(i)).unwrap();
    }
    db.admin().flush().unwrap();
    await_ballast(&disk);
    for i in 500..550u32 {
        db.put(i.to_be_bytes(), value(i)).unwrap();
    }
    db.close().unwrap();
    disk
}

/// Waits for the ballast, which the flushing thread creates after a flush.
fn await_ballast(disk: &Arc<SimDisk>) {
    let dir = disk.open_dir(Path::new("/db"), DirOpenMode::Existing).unwrap();
    let made = (0..300_000).any(|_| {
        let made = dir.file_len("BALLAST").unwrap() == Some(64 << 10);
        if !made {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        made
    });
    assert!(made, "no ballast after minutes");
}

/// Clones the disk without a single free byte.
fn fill_disk(disk: &Arc<SimDisk>) -> Arc<SimDisk> {
    let full = disk.deep_clone();
    full.set_capacity(full.total_bytes());
    full
}

#[test]
fn ballast_allows_open_and_delete_on_full_disk() {
    let disk = with_ballast();
    let open = |disk: &Arc<SimDisk>| Db::open("/db", options(disk).min_free_space(RESERVE));
    let bare = disk.deep_clone();
    bare.open_dir(Path::new("/db"), DirOpenMode::Existing).unwrap().remove("BALLAST").unwrap();
    assert_eq!(
        open(&fill_disk(&bare)).unwrap_err().kind(),
        ErrorKind::NoSpace,
        "the ballast frees space for the open"
    );
    let disk = fill_disk(&disk);
    let capacity = disk.total_bytes();
    let db = open(&disk).unwrap();
    assert_eq!(db.iter().unwrap().count(), 550);
    assert_eq!(db.put("more", value(1)).unwrap_err().kind(), ErrorKind::NoSpace);
    for i in 0..400u32 {
        db.delete(i.to_be_bytes()).unwrap();
    }
    db.admin().compact().unwrap();
    db.close().unwrap();
    // The flushing thread may have created the ballast already.
    let ballast = disk
        .open_dir(Path::new("/db"), DirOpenMode::Existing)
        .unwrap()
        .file_len("BALLAST")
        .unwrap();
    let others = disk.total_bytes() - ballast.unwrap_or(0);
    assert!(others + (64 << 10) < capacity, "enough free space for the ballast again");
    let db = open(&disk).unwrap();
    assert_eq!(db.iter().unwrap().count(), 150);
    disk.set_capacity(u64::MAX);
    db.put("more", value(1)).unwrap();
    db.admin().flush().unwrap();
    await_ballast(&disk);
}

#[test]
fn open_succeeds_after_failed_open_on_full_disk() {
    let disk = with_ballast();
    for io in 1..40 {
        let disk = fill_disk(&disk);
        let bytes = disk.total_bytes();
        disk.fail_at(io, Fault::Eio, true);
        drop(Db::open("/db", options(&disk).min_free_space(RESERVE)));
        let after = disk.crash_clone(io, Crash::Power);
        after.set_capacity(bytes.max(after.total_bytes()));
        let db = Db::open("/db", options(&after).min_free_space(RESERVE));
        let db = db.unwrap_or_else(|e| panic!("died at i/o {io}, then {e}"));
        assert_eq!(db.iter().unwrap().count(), 550, "died at i/o {io}");
    }
}

/// Regression test: an open installed its new manifest but could not sync the directory. The next
/// open on the same full disk read that manifest and freed space by removing the log that only the
/// older manifest refers to; a power cut restored the older manifest.
#[test]
fn open_keeps_log_needed_by_previous_manifest() {
    let disk = with_ballast();
    // A small log beside a large manifest: removing the log does not free enough space.
    let db = Db::open("/db", options(&disk).min_free_space(RESERVE)).unwrap();
    for i in 0..100 {
        db.create_family(&format!("a family with a long name, number {i}"), Default::default())
            .unwrap();
    }
    db.admin().flush().unwrap();
    await_ballast(&disk);
    db.put("last", "").unwrap();
    db.close().unwrap();
    for io in 1..40 {
        let disk = fill_disk(&disk);
        disk.fail_at(io, Fault::Eio, true);
        drop(Db::open("/db", options(&disk).min_free_space(RESERVE)));
        disk.clear_faults();
        disk.set_capacity(disk.total_bytes());
        drop(Db::open("/db", options(&disk).min_free_space(RESERVE)));
        let after = disk.crash_clone(io, Crash::Power);
        after.set_capacity(u64::MAX);
        let db = Db::open("/db", options(&after).min_free_space(RESERVE));
        let db = db.unwrap_or_else(|e| panic!("died at i/o {io}, then {e}"));
        assert_eq!(db.iter().unwrap().count(), 551, "died at i/o {io}");
    }
}
