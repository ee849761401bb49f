//! Statistics of column families, levels, transactions and background work, in states where the
//! expected value is known.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::stats::{FamilyStats, Stats};
use perigee::{Db, ErrorKind, FamilyOptions, Options, TxnOptions, WriteBatch};
use std::sync::Arc;
use std::time::Duration;

fn new_env() -> (Env, Arc<SimDisk>) {
    let disk = SimDisk::new(1);
    (Env { fs: disk.clone(), ..Env::real() }, disk)
}

fn open(env: &Env) -> Db {
    Db::open("/db", Options::in_env(env.clone())).unwrap()
}

fn family_stats(db: &Db, family: &str) -> FamilyStats {
    let shown =
        |all: Stats| format!("{:?}", all.families.iter().find(|f| f.name == family).unwrap());
    loop {
        let before = shown(db.admin().stats());
        let stats = db.family(family).unwrap().stats().unwrap();
        // A flush may finish between the two reads.
        if before == shown(db.admin().stats()) {
            assert_eq!(format!("{stats:?}"), before, "one family's are those of all");
            return stats;
        }
    }
}

fn user_bytes(db: &Db) -> u64 {
    db.admin().stats().counter("user_bytes_written").unwrap()
}

/// Sums over all levels: files, entries, tombstones, key bytes, value bytes.
fn level_totals(f: &FamilyStats) -> [u64; 5] {
    let sum = |of: fn(&perigee::stats::LevelStats) -> u64| f.levels.iter().map(of).sum();
    [
        sum(|l| l.files as u64),
        sum(|l| l.entries),
        sum(|l| l.tombstones),
        sum(|l| l.raw_key_bytes),
        sum(|l| l.raw_value_bytes),
    ]
}

#[test]
fn family_stats_are_exact_after_each_operation() {
    let (env, _) = new_env();
    let db = open(&env);
    db.admin().cancel_background_work().unwrap();
    db.create_family("other", FamilyOptions::new()).unwrap();
    let default = db.default_family();
    for i in 0..100u32 {
        db.put(i.to_be_bytes(), [0; 50]).unwrap();
    }
    default.put_with_ttl("expires", "later", Duration::from_secs(1000)).unwrap();
    (0..10u32).for_each(|i| db.delete(i.to_be_bytes()).unwrap());
    default.single_delete("single").unwrap();
    let given = 100 * 54 + 12 + 40 + 6;
    let f = family_stats(&db, "default");
    assert_eq!((f.user_bytes_written, f.entries(), user_bytes(&db)), (given, 112, given));
    assert_eq!((f.memtables.entries, f.memtables.tombstones), (112, 11));
    assert_eq!((f.memtables.key_bytes, f.memtables.value_bytes), (400 + 7 + 40 + 6, 5000 + 5));
    assert_eq!((f.memtable.entries, f.flush_tables, level_totals(&f)), (112, 0, [0; 5]));
    assert_eq!(family_stats(&db, "other").user_bytes_written, 0);

    db.admin().flush().unwrap();
    let f = family_stats(&db, "default");
    assert_eq!((f.user_bytes_written, f.memtables.entries, f.flush_tables), (given, 0, 1));
    // The ten deletes hide their puts from all readers.
    assert_eq!(level_totals(&f), [1, 102, 11, 453 - 40, 5005 - 500]);
    assert_eq!((f.raw_bytes().keys, f.raw_bytes().values), (413, 4505));
    let written = f.levels[0].bytes + f.vlogs.bytes;
    assert_eq!((f.flush_bytes_written, f.compaction_tables, f.is_flushing), (written, 0, false));
    let (files, own) = (db.admin().files(), db.default_family().files().unwrap());
    assert_eq!(format!("{files:?}"), format!("{own:?}"), "the other column family was not flushed");
    assert_eq!((files[0].raw_key_bytes, files[0].raw_value_bytes), (413, 4505));

    // In a batch over two column families each counts its own operations.
    let mut batch = WriteBatch::new();
    batch.put(&default, "both", "12").unwrap();
    batch.put(&db.family("other").unwrap(), "both", "345678").unwrap();
    db.write(batch).unwrap();
    let given = given + 6;
    assert_eq!(
        (
            family_stats(&db, "default").user_bytes_written,
            family_stats(&db, "other").user_bytes_written
        ),
        (given, 10)
    );
    assert_eq!(user_bytes(&db), given + 10);
    db.admin().flush().unwrap();
    db.admin().resume_background_work().unwrap();
    default.compact().unwrap();
    let (f, other) = (family_stats(&db, "default"), family_stats(&db, "other"));
    assert_eq!(
        (f.flush_tables, f.compaction_tables, other.flush_tables, other.compaction_tables),
        (2, 1, 1, 0)
    );
    assert_eq!((f.flush_bytes_written > written, f.compaction_bytes_read > 0), (true, true));
    assert_eq!(
        f.compaction_bytes_read, f.flush_bytes_written,
        "the compaction read all flushed bytes"
    );
    assert_eq!(level_totals(&f)[..3], [1, 92, 0], "91 keys and one that expires");
    assert_eq!(f.compaction_bytes_written, f.levels.iter().map(|l| l.bytes).sum::<u64>());
    assert_eq!((db.admin().stats().tables, f.is_compacting), (2, false));
    assert_eq!(
        db.admin().stats().counter("compaction_bytes_read").unwrap(),
        f.compaction_bytes_read
    );

    // Entries that are only in the log are counted again when they are replayed; all other counters
    // begin at 0.
    db.put("replayed", "1234").unwrap();
    db.close().unwrap();
    let db = open(&env);
    let f = family_stats(&db, "default");
    assert_eq!((f.user_bytes_written, f.memtables.entries, f.flush_tables), (12, 1, 0));
    assert_eq!((f.compaction_tables, f.entries(), user_bytes(&db)), (0, 93, 0));
    db.admin().clear_family("other").unwrap();
    db.family("other").unwrap().put("a", "b").unwrap();
    db.admin().clear_family("other").unwrap();
    let other = family_stats(&db, "other");
    assert_eq!(
        (other.user_bytes_written, other.entries()),
        (2, 0),
        "a clear does not reset written bytes"
    );
}

#[test]
fn memtable_and_transaction_stats_add_up() {
    let (env, _) = new_env();
    let small = FamilyOptions::new().memtable_bytes(8 << 10).value_threshold(300);
    let db = Db::open("/db", Options::in_env(env.clone()).default_family(small)).unwrap();
    let family = db.default_family();
    for i in 0..1000u32 {
        db.put(i.to_be_bytes(), [7; 96]).unwrap();
    }
    assert_eq!(family_stats(&db, "default").user_bytes_written, 100_000);
    let txn = db.begin(TxnOptions::new()).unwrap();
    (0..100u32).for_each(|i| txn.put(&family, i.to_le_bytes(), [8; 46]).unwrap());
    txn.savepoint("s").unwrap();
    txn.put(&family, "taken back", "x").unwrap();
    txn.rollback_to("s").unwrap();
    txn.commit().unwrap();
    assert_eq!(
        (family_stats(&db, "default").user_bytes_written, user_bytes(&db)),
        (105_000, 105_000)
    );
    // The transaction exceeds its memory limit and is spilled.
    let txn = db.begin(TxnOptions::new().spill_bytes(4096)).unwrap();
    for i in 0..200u32 {
        txn.put(&family, (i % 100).to_le_bytes(), [9; 396]).unwrap();
    }
    txn.commit().unwrap();
    assert_eq!(
        (family_stats(&db, "default").user_bytes_written, user_bytes(&db)),
        (145_000, 145_000)
    );
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&family, "gid", "prepared").unwrap();
    txn.prepare("one").unwrap();
    assert_eq!(
        family_stats(&db, "default").user_bytes_written,
        145_000,
        "nothing is counted as written before the decision"
    );
    db.two_phase().commit("one").unwrap();
    assert_eq!(
        (family_stats(&db, "default").user_bytes_written, user_bytes(&db)),
        (145_011, 145_011)
    );
    db.admin().wait_idle().unwrap();
    let f = family_stats(&db, "default");
    assert!(
        f.flush_tables >= 10 && f.levels.iter().map(|l| l.separated_bytes).sum::<u64>() > 0,
        "{f:?}"
    );
    assert_eq!(f.levels.iter().map(|l| l.separated_bytes).sum::<u64>(), f.vlogs.referenced_bytes);
}

#[test]
fn is_flushing_and_is_compacting_report_pending_work() {
    let (env, _) = new_env();
    let small = FamilyOptions::new()
        .memtable_bytes(8 << 10)
        .target_file_bytes(8 << 10)
        .level1_bytes(16 << 10);
    let db = Db::open("/db", Options::in_env(env).default_family(small)).unwrap();
    let (family, other) =
        (db.default_family(), db.create_family("other", FamilyOptions::new()).unwrap());
    let pause = db.admin().pause_background_work().unwrap();
    let mut batch = WriteBatch::new();
    for i in 0..1000u32 {
        batch.put(&family, i.to_be_bytes(), [1; 30]).unwrap();
    }
    db.write(batch).unwrap();
    db.put("next", "").unwrap();
    let s = db.admin().stats();
    assert!(
        family.is_flushing()
            && s.background.immutable_memtables == 1
            && s.background.flushes_running == 0
    );
    assert!(!other.is_flushing() && !other.is_compacting() && !family.is_compacting());
    drop(pause);
    db.admin().wait_idle().unwrap();
    assert!(!family.is_flushing() && !family.is_compacting());
    // A compaction that takes a while.
    db.admin().cancel_background_work().unwrap();
    for round in 0..6u8 {
        for i in 0..300u32 {
            db.put(i.to_be_bytes(), [round; 30]).unwrap();
        }
        db.admin().flush().unwrap();
    }
    assert!(!family.is_compacting(), "the compaction is due but may not run");
    assert_eq!(db.admin().stats().background.compactions_due, 1);
    db.admin().set_background_rate(Some(1));
    db.admin().resume_background_work().unwrap();
    while db.admin().stats().background.compactions_running == 0 {
        std::thread::yield_now();
    }
    assert!(
        family.is_compacting() && family.stats().unwrap().is_compacting && !other.is_compacting()
    );
    assert_eq!(db.admin().stats().background.compactions_due, 0, "the compaction is running");
    db.admin().set_background_rate(None);
    db.admin().wait_idle().unwrap();
    assert!(!family.is_compacting());
    db.drop_family("other").unwrap();
    assert_eq!(other.stats().unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!other.is_flushing() && !other.is_compacting());
}

#[test]
fn open_and_prepared_transactions_are_counted() {
    let (env, _) = new_env();
    let db = open(&env);
    let now = |db: &Db| {
        let t = db.admin().stats().transactions;
        (t.open, t.prepared)
    };
    let family = db.default_family();
    let (one, two) = (db.begin(TxnOptions::new()).unwrap(), db.begin(TxnOptions::new()).unwrap());
    assert_eq!((now(&db), db.admin().stats().transactions.bytes), ((2, 0), 0));
    one.put(&family, "k", [0; 1000]).unwrap();
    one.savepoint("s").unwrap();
    let held = db.admin().stats().transactions.bytes;
    assert!((1000..1300).contains(&held), "{held}");
    one.put(&family, "l", [0; 1000]).unwrap();
    assert!(db.admin().stats().transactions.bytes > 2000);
    one.rollback_to("s").unwrap();
    assert_eq!(db.admin().stats().transactions.bytes, held);
    one.reset().unwrap();
    assert_eq!((now(&db), db.admin().stats().transactions.bytes), ((2, 0), 0));
    one.put(&family, "k", "v").unwrap();
    one.prepare("gid").unwrap();
    assert_eq!((now(&db), db.admin().stats().transactions.bytes), ((1, 1), 0));
    assert!(db.admin().stats().transactions.oldest_prepared.is_some());
    let spilled = db.begin(TxnOptions::new().spill_bytes(4096)).unwrap();
    (0..1000u32).for_each(|i| spilled.put(&family, i.to_be_bytes(), [0; 100]).unwrap());
    let held = db.admin().stats().transactions.bytes;
    assert!(held < 16 << 10, "{held} bytes are held although the writes are in files");
    spilled.commit().unwrap();
    two.rollback();
    assert_eq!((now(&db), db.admin().stats().transactions.bytes), ((0, 1), 0));
    drop(db.begin(TxnOptions::new()).unwrap());
    assert!(db.begin(TxnOptions::new()).unwrap().commit().is_ok());
    let refused = db.begin(TxnOptions::new()).unwrap();
    refused.put(&family, "k", "w").unwrap();
    assert_eq!(refused.commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(now(&db), (0, 1));
    drop((one, family, db));
    let db = open(&env);
    assert_eq!(now(&db), (0, 1));
    assert!(db.admin().stats().transactions.oldest_prepared.is_some());
    db.two_phase().rollback("gid").unwrap();
    assert_eq!((now(&db), db.admin().stats().transactions.oldest_prepared), ((0, 0), None));
}

#[test]
fn memory_pressure_reports_all_four_levels() {
    let (env, _) = new_env();
    let large = FamilyOptions::new().memtable_bytes(1 << 30);
    let options = Options::in_env(env)
        .default_family(large)
        .memory_budget(64 << 20)
        .block_cache_bytes(1 << 20);
    let db = Db::open("/db", options).unwrap();
    let s = db.admin().stats();
    assert_eq!((s.memory_pressure, s.cache.shards > 0), (0, true));
    let pause = db.admin().pause_background_work().unwrap();
    let mut seen = 0;
    for i in 0..600u32 {
        let written = db.put(i.to_be_bytes(), vec![1; 64 << 10]);
        let level = db.admin().stats().memory_pressure;
        assert!(level >= seen, "memory only grows while nothing is flushed");
        seen = level;
        if written.is_err() {
            break;
        }
    }
    assert_eq!(seen, 3, "writers are stopped where memtables have used up their share");
    drop(pause);
    db.admin().flush().unwrap();
    // The flushing thread may hold the memtable a little longer than the tree.
    let eased = (0..300_000).any(|_| {
        let eased = db.admin().stats().memory_pressure == 0;
        if !eased {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        eased
    });
    assert!(eased, "{:?}", db.admin().stats().memory);
}
