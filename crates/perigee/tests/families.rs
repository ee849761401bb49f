//! Operations on column families: rename, clone, clear, and errors on invalid input.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::{Fault, SimDisk};
use perigee::{Db, ErrorKind, FamilyOptions, Options, WriteBatch};
use std::sync::Arc;

fn options(disk: &Arc<SimDisk>) -> Options {
    Options::in_env(Env { fs: disk.clone(), ..Env::real() })
}

fn error_kind<T: std::fmt::Debug>(r: perigee::Result<T>) -> ErrorKind {
    r.unwrap_err().kind()
}

#[test]
fn cloned_family_is_independent_of_source() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    let source = db.create_family("source", FamilyOptions::new().value_threshold(16)).unwrap();
    for i in 0..500u32 {
        source.put(i.to_be_bytes(), vec![i as u8; 40]).unwrap();
    }
    let clone = db.admin().clone_family("source", "clone").unwrap();
    assert_eq!(clone.options(), source.options());
    let shared = db.admin().stats();
    source.put(7u32.to_be_bytes(), "only here").unwrap();
    clone.delete(8u32.to_be_bytes()).unwrap();
    assert_eq!(clone.get(7u32.to_be_bytes()).unwrap(), Some(vec![7; 40]));
    assert_eq!(source.get(8u32.to_be_bytes()).unwrap(), Some(vec![8; 40]));
    let files: std::collections::BTreeSet<String> =
        db.admin().files().into_iter().map(|f| f.file).collect();
    assert!(files.len() < db.admin().files().len(), "the files are shared");
    assert!(shared.disk_bytes < 2 * 500 * 44 * 2, "shared files are counted once");
    assert!(db.admin().verify().unwrap().errors.is_empty());
    db.drop_family("source").unwrap();
    db.close().unwrap();
    let db = Db::open("/db", options(&disk)).unwrap();
    let clone = db.family("clone").unwrap();
    assert_eq!(clone.iter().unwrap().count(), 499);
    assert_eq!(clone.get(499u32.to_be_bytes()).unwrap(), Some(vec![499u32 as u8; 40]));
    clone.compact().unwrap();
    assert_eq!(clone.iter().unwrap().count(), 499);
    assert!(db.admin().verify().unwrap().errors.is_empty());
}

/// The read path common to all sources selected the reader first, so that a dropped column family
/// hid that its comparator supports no prefixes.
#[test]
fn prefix_scan_checks_comparator_before_family() {
    let db = Db::open("/db", options(&SimDisk::new(1))).unwrap();
    let options = FamilyOptions::new().comparator(perigee::KeyComparator::U64);
    let f = db.create_family("f", options).unwrap();
    let (snapshot, txn) = (db.snapshot().unwrap(), db.begin(Default::default()).unwrap());
    db.drop_family("f").unwrap();
    assert_eq!(error_kind(f.prefix("p")), ErrorKind::InvalidArgument);
    assert_eq!(error_kind(snapshot.family(&f).prefix("p")), ErrorKind::InvalidArgument);
    assert_eq!(error_kind(txn.family(&f).prefix("p")), ErrorKind::InvalidArgument);
    assert_eq!(error_kind(f.iter()), ErrorKind::NotFound);
}

#[test]
fn cleared_family_stays_empty_after_reopen() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    let f = db.create_family("f", Default::default()).unwrap();
    f.put("in a table", "1").unwrap();
    f.flush().unwrap();
    f.put("in memory", "2").unwrap();
    let (before, open) = (db.snapshot().unwrap(), f.iter().unwrap());
    let mut batch = WriteBatch::new();
    batch.put(&f, "later", "3").unwrap();
    db.admin().clear_family("f").unwrap();
    assert_eq!(f.iter().unwrap().count(), 0);
    assert_eq!(open.count(), 2, "an open iterator continues");
    assert_eq!(
        error_kind(before.get(&f, "in memory")),
        ErrorKind::NotFound,
        "the snapshot must not report the cleared family as empty"
    );
    assert_eq!(db.snapshot().unwrap().get(&f, "in memory").unwrap(), None);
    db.write(batch).unwrap();
    drop(before);
    db.close().unwrap();
    let db = Db::open("/db", options(&disk)).unwrap();
    let entries: Vec<_> =
        db.family("f").unwrap().iter().unwrap().map(|e| e.unwrap().0.to_vec()).collect();
    assert_eq!(entries, [b"later".to_vec()]);
    db.admin().clear_family("default").unwrap();
}

#[test]
fn renamed_family_keeps_handles_and_batches_valid() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    let f = db.create_family("before", Default::default()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&f, "k", "v").unwrap();
    db.admin().rename_family("before", "after").unwrap();
    db.write(batch).unwrap();
    assert_eq!(f.name(), "after");
    db.admin().rename_family("after", "after").unwrap();
    assert_eq!(error_kind(db.family("before")), ErrorKind::NotFound);
    let again = db.create_family("before", Default::default()).unwrap();
    assert!(!again.contains("k").unwrap());
    db.close().unwrap();
    let db = Db::open("/db", options(&disk)).unwrap();
    assert_eq!(db.families(), ["after", "before", "default"]);
    assert!(db.family("after").unwrap().contains("k").unwrap());
}

#[test]
fn invalid_and_missing_family_names_are_refused() {
    let db = Db::open("/db", options(&SimDisk::new(1))).unwrap();
    db.create_family("a", Default::default()).unwrap();
    db.create_family("b", Default::default()).unwrap();
    for bad in ["", "nul\0", &"x".repeat(256)] {
        assert_eq!(error_kind(db.admin().rename_family("a", bad)), ErrorKind::InvalidArgument);
        assert_eq!(error_kind(db.admin().clone_family("a", bad)), ErrorKind::InvalidArgument);
    }
    db.admin().rename_family("a", &"\u{6f6e}".repeat(85)).unwrap();
    db.admin().rename_family(&"\u{6f6e}".repeat(85), "a").unwrap();
    assert_eq!(error_kind(db.admin().rename_family("a", "b")), ErrorKind::AlreadyExists);
    assert_eq!(error_kind(db.admin().clone_family("a", "b")), ErrorKind::AlreadyExists);
    assert_eq!(error_kind(db.admin().clone_family("c", "d")), ErrorKind::NotFound);
    assert_eq!(error_kind(db.admin().rename_family("c", "d")), ErrorKind::NotFound);
    assert_eq!(error_kind(db.admin().clear_family("c")), ErrorKind::NotFound);
    assert_eq!(error_kind(db.admin().rename_family("default", "d")), ErrorKind::InvalidArgument);
    db.close().unwrap();
    assert_eq!(error_kind(db.admin().clear_family("a")), ErrorKind::Closed);
}

fn counter(db: &Db, name: &str) -> u64 {
    db.admin().stats().counter(name).unwrap()
}

/// Regression test: flushing n column families took n manifest edits, and scanned all n families n
/// times.
#[test]
fn small_memtables_of_many_families_are_flushed_together() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    let families: Vec<_> =
        (0..700).map(|i| db.create_family(&format!("f{i}"), Default::default()).unwrap()).collect();
    families.iter().for_each(|f| f.put("key", f.name()).unwrap());
    // Excludes log watermarks, whose number depends on timing.
    let counted = || counter(&db, "manifest_edits") - counter(&db, "log_watermarks");
    let edits = counted();
    db.admin().flush().unwrap();
    db.admin().wait_idle().unwrap();
    assert_eq!(counter(&db, "flushes"), 700);
    assert!(counted() - edits < 6, "one edit for the segment and one per group");
    assert_eq!(db.admin().files().iter().filter(|f| f.file.ends_with(".klog")).count(), 700);
    db.drop_family("f3").unwrap();
    db.close().unwrap();
    let db = Db::open("/db", options(&disk)).unwrap();
    for i in (0..700).filter(|i| *i != 3) {
        let f = db.family(&format!("f{i}")).unwrap();
        assert_eq!(f.get("key").unwrap().unwrap(), f.name().as_bytes());
    }
    assert!(db.admin().verify().unwrap().errors.is_empty());
}

/// A sync fails in the middle of a group: the jobs that share the sync are run again, and no data
/// is lost.
#[test]
fn failed_group_flush_sync_is_retried() {
    for at in [1, 10, 100, 300, 550] {
        let disk = SimDisk::new(at);
        let db = Db::open("/db", options(&disk)).unwrap();
        let families: Vec<_> = (0..150)
            .map(|i| db.create_family(&format!("f{i}"), Default::default()).unwrap())
            .collect();
        families.iter().for_each(|f| f.put("key", f.name()).unwrap());
        disk.fail_at(at, Fault::Enospc, false);
        let _ = db.admin().flush();
        disk.clear_faults();
        while db.admin().flush().is_err() || db.admin().wait_idle().is_err() {}
        for f in &families {
            assert_eq!(f.get("key").unwrap().unwrap(), f.name().as_bytes());
        }
        db.close().unwrap();
        let db = Db::open("/db", options(&disk)).unwrap();
        assert!(
            families.iter().all(|f| db.family(&f.name()).unwrap().get("key").unwrap().is_some())
        );
        assert!(db.admin().verify().unwrap().errors.is_empty());
    }
}

/// Regression test: the memtable of each column family was charged the whole batch, so 1,000
/// families were charged 1,000 times the actual memory and all were flushed at every commit.
#[test]
fn multi_family_batch_memory_is_charged_once() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk).memory_budget(64 << 20)).unwrap();
    let families: Vec<_> =
        (0..300).map(|i| db.create_family(&format!("f{i}"), Default::default()).unwrap()).collect();
    let held = |db: &Db| -> u64 {
        let owners = db.admin().stats().memory;
        let of = |name: &str| owners.iter().find(|m| m.owner == name).unwrap().bytes;
        of("active memtables") + of("immutable memtables") + of("shared batches")
    };
    for i in 0..40u32 {
        let mut batch = WriteBatch::new();
        families.iter().for_each(|f| batch.put(f, i.to_be_bytes(), [7; 100]).unwrap());
        db.write(batch).unwrap();
    }
    let written = 40 * 300 * 110;
    assert!((written..3 * written).contains(&held(&db)), "{} of {written}", held(&db));
    assert_eq!(counter(&db, "flushes"), 0);
    families[1..].iter().for_each(|f| f.flush().unwrap());
    assert!(
        (written * 9 / 10..2 * written).contains(&held(&db)),
        "one column family is charged all of it: {}",
        held(&db)
    );
    db.admin().flush().unwrap();
    db.admin().wait_idle().unwrap();
    // A background thread may still hold the last memtable.
    let gone = (0..300_000).any(|_| {
        let gone = held(&db) < written / 10;
        if !gone {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        gone
    });
    assert!(gone, "{}", held(&db));
}
