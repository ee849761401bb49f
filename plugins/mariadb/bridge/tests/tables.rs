//! Tables: create, open, list, rename, clear, drop, long names, options, statistics, bulk loads.

mod common;

use common::{Db, TempDir};
use perigee_mariadb_bridge::status::Status;
use perigee_mariadb_bridge::table::TableOptions;
use std::time::Duration;

#[test]
fn tables_are_created_renamed_cleared_and_dropped() {
    let dir = TempDir::new();
    {
        let db = Db::open(dir.path());
        let t = db.create("d/t");
        assert_eq!(
            db.create_with("d/t", TableOptions::default()).err(),
            Some(Status::TABLE_EXISTS)
        );
        assert_eq!(db.table("d/none").err(), Some(Status::TABLE_MISSING));
        db.fill(&t, &[("a", "1"), ("b", "2")]);
        db.rename_table("d/t", "e/u").unwrap();
        assert_eq!(t.get("a").unwrap(), "1"); // the handle follows
        assert_eq!(db.rename_table("d/t", "e/v"), Err(Status::TABLE_MISSING));
        let other = db.create("d/other");
        assert_eq!(db.rename_table("d/other", "e/u"), Err(Status::TABLE_EXISTS));
        db.fill(&other, &[("x", "y")]);
        assert_eq!(db.tables(), ["d/other", "e/u"]);
    }
    let db = Db::open(dir.path());
    assert_eq!(db.tables(), ["d/other", "e/u"]);
    let (t, view) = (db.table("e/u").unwrap(), db.snapshot());
    assert_eq!(t.get_at(Some(&view), "b").unwrap(), "2");
    db.clear_table("e/u").unwrap();
    assert_eq!(t.get("b"), Err(Status::NOT_FOUND));
    assert_eq!(t.get_at(Some(&view), "b"), Err(Status::CONFLICT));
    db.fill(&t, &[("c", "3")]);
    assert_eq!(t.scan(), ["c"]);
    db.drop_table("e/u").unwrap();
    assert_eq!(t.get("c"), Err(Status::TABLE_MISSING));
    assert_eq!(t.get_at(Some(&view), "c"), Err(Status::TABLE_MISSING));
    assert_eq!(db.drop_table("e/u"), Err(Status::TABLE_MISSING));
    assert_eq!(db.clear_table("e/u"), Err(Status::TABLE_MISSING));
    assert_eq!(db.tables(), ["d/other"]);
}

#[test]
fn names_of_any_length_are_kept() {
    let dir = TempDir::new();
    let names: Vec<String> = (0..3).map(|i| format!("d/{}#P#p{i}", "@00e4".repeat(64))).collect();
    let umlauts = "ä".repeat(300);
    {
        let db = Db::open(dir.path());
        for name in &names {
            let t = db.create(name);
            db.fill(&t, &[("name", name)]);
        }
        assert_eq!(
            db.create_with(&names[0], TableOptions::default()).err(),
            Some(Status::TABLE_EXISTS)
        );
        db.rename_table(&names[1], "d/short").unwrap();
        db.rename_table(&names[2], &umlauts).unwrap();
        assert_eq!(db.rename_table("d/short", &names[0]), Err(Status::TABLE_EXISTS));
        db.clear_table(&names[0]).unwrap();
    }
    let db = Db::open(dir.path());
    assert_eq!(db.tables(), [names[0].as_str(), "d/short", &umlauts]);
    assert_eq!(db.table("d/short").unwrap().get("name").unwrap(), names[1]);
    assert_eq!(db.table(&umlauts).unwrap().get("name").unwrap(), names[2]);
    assert_eq!(db.table(&names[0]).unwrap().get("name"), Err(Status::NOT_FOUND));
    assert_eq!(db.table(&names[1]).err(), Some(Status::TABLE_MISSING));
    db.drop_table(&umlauts).unwrap();
    db.drop_table(&names[0]).unwrap();
    assert_eq!(db.tables(), ["d/short"]);
    db.create(&names[0]); // the name is free
}

#[test]
fn entries_expire_by_the_ttl_of_their_table() {
    let dir = TempDir::new();
    let ttl = TableOptions { has_ttl: 1, ttl_seconds: 1, ..TableOptions::default() };
    {
        let db = Db::open(dir.path());
        db.create_with("d/ttl", ttl).unwrap();
        let t = db.create("d/none");
        t.set_options(ttl).unwrap();
        t.set_options(TableOptions { compression: 3, ..TableOptions::default() }).unwrap();
    }
    let db = Db::open(dir.path());
    let (t, other) = (db.table("d/ttl").unwrap(), db.table("d/ttl").unwrap());
    db.fill(&t, &[("a", "1"), ("\0d", "metadata")]);
    t.put_direct("direct", "1").unwrap();
    let load = t.load().unwrap();
    load.put("b", "1").unwrap();
    load.put("\0s", "statistics").unwrap();
    load.finish().unwrap();
    let trx = db.begin(1000);
    trx.put_until(&t, "past", "1", 1).unwrap();
    trx.commit().unwrap();
    let none = db.table("d/none").unwrap();
    db.fill(&none, &[("a", "1")]);
    assert_eq!(t.get("past"), Err(Status::NOT_FOUND));
    assert_eq!(t.get("a").unwrap(), "1");
    std::thread::sleep(Duration::from_millis(1300));
    assert_eq!(t.scan(), ["\0d", "\0s", "direct"]);
    assert_eq!(none.scan(), ["a"]);
    // Another handle of the table follows a change.
    other.set_options(TableOptions::default()).unwrap();
    db.fill(&t, &[("a", "2")]);
    std::thread::sleep(Duration::from_millis(1300));
    assert_eq!(t.get("a").unwrap(), "2");
}

#[test]
fn statistics_and_estimates_count_entries() {
    let dir = TempDir::new();
    let db = Db::open(dir.path());
    let t = db.create("d/t");
    let trx = db.begin(1000);
    for i in 0..1000 {
        trx.put(&t, &format!("k{i:04}"), &"v".repeat(100)).unwrap();
    }
    trx.commit().unwrap();
    let stats = t.stats();
    assert_eq!((stats.entries, stats.disk_bytes, stats.files), (1000, 0, 0));
    assert!(stats.memory_bytes > 100_000);
    assert_eq!(t.estimate("k0100", "k0200").0, 100);
    t.flush().unwrap();
    t.compact().unwrap();
    let stats = t.stats();
    assert!(stats.entries == 1000 && stats.files == 1 && stats.disk_bytes > 1000, "{stats:?}");
    let (entries, bytes) = t.estimate("k0100", "k0200");
    assert!((50..200).contains(&entries) && bytes > 0, "{entries} {bytes}");
    let text = db.status_text();
    assert!(text.contains("d/t: ") && text.contains("1000 entries"), "{text}");
    assert!(db.status_json().starts_with('{') && db.status_json().contains("\"d/t\""));
    assert!(db.counters().iter().any(|(name, value)| name == "commits" && *value > 0));
}

#[test]
fn levels_jobs_and_options_have_the_names_of_tables() {
    let dir = TempDir::new();
    let db = Db::open(dir.path());
    let name = format!("d/{}", "n".repeat(300));
    let t = db.create_with(
        &name,
        TableOptions { has_ttl: 1, ttl_seconds: 99, ..TableOptions::default() },
    );
    let t = t.unwrap();
    db.fill(&t, &[("a", "1"), ("b", "2")]);
    assert_eq!(db.levels(), []);
    t.flush().unwrap();
    assert_eq!(db.levels(), [(name.clone(), 0, 2)]);
    t.compact().unwrap();
    let levels = db.levels();
    assert!(levels.len() == 1 && levels[0].0 == name && levels[0].1 > 0, "{levels:?}");
    let jobs = db.jobs();
    let finished = |kind: &str, from: &str| {
        jobs.contains(&[kind.into(), name.clone(), "finished".into(), from.into()])
    };
    assert!(finished("flush", "") && finished("compaction", "0"), "{jobs:?}");
    let options = db.options();
    let value = |option: &str| options.iter().find(|o| o[2] == option).unwrap();
    assert!(value("ttl_seconds")[0] == name && value("ttl_seconds")[3] == "99");
    assert!(value("compression")[3] == "zstd 1" && value("compression")[1].len() < 250);
}

#[test]
fn bulk_loads_are_atomic_and_unsorted() {
    let dir = TempDir::new();
    {
        let db = Db::open(dir.path());
        let t = db.create("d/t");
        let aborted = t.load().unwrap();
        aborted.put("x", "1").unwrap();
        drop(aborted);
        let load = t.load().unwrap();
        for i in (0..1000).rev() {
            load.put(&format!("k{i:04}"), "v").unwrap();
        }
        assert_eq!(t.get("k0000"), Err(Status::NOT_FOUND));
        load.finish().unwrap();
    }
    let db = Db::open(dir.path());
    let t = db.table("d/t").unwrap();
    let keys = t.scan();
    assert_eq!((keys.len(), keys[0].as_str()), (1000, "k0000"));
}

#[test]
fn checkpoint_is_a_database() {
    let (dir, copy) = (TempDir::new(), TempDir::new());
    let db = Db::open(dir.path());
    let t = db.create(&"n".repeat(300));
    db.fill(&t, &[("a", "1")]);
    let target = copy.path().join("checkpoint");
    db.checkpoint(&target).unwrap();
    db.fill(&t, &[("b", "2")]);
    db.sync().unwrap();
    let copied = Db::open(&target);
    assert_eq!(copied.table(&"n".repeat(300)).unwrap().scan(), ["a"]);
}

#[test]
fn entries_above_the_limits_are_refused() {
    let dir = TempDir::new();
    let db = Db::open(dir.path());
    let t = db.create("d/t");
    let trx = db.begin(1000);
    let key = "k".repeat(perigee::limits::KEY_BYTES_MAX + 1);
    assert_eq!(trx.put(&t, &key, "v"), Err(Status::TOO_LARGE));
    assert_eq!(t.put_direct(&key, "v"), Err(Status::TOO_LARGE));
    trx.put(&t, &key[1..], "v").unwrap();
    trx.commit().unwrap();
}

#[test]
fn direct_writes_take_no_locks() {
    let dir = TempDir::new();
    let db = Db::open(dir.path());
    let t = db.create("d/t");
    db.fill(&t, &[("a", "1"), ("b", "2"), ("c", "3")]);
    let (trx, view) = (db.begin(1000), db.snapshot());
    trx.lock(&t, "b", common::EXCLUSIVE).unwrap();
    t.put_direct("b", "direct").unwrap();
    assert_eq!(t.get("b").unwrap(), "direct");
    t.delete_range_direct("b", "c").unwrap();
    assert_eq!(t.scan(), ["a", "c"]);
    assert_eq!(t.get_at(Some(&view), "b").unwrap(), "2");
    trx.put(&t, "d", "prepared").unwrap();
    trx.prepare("x").unwrap();
    assert_eq!(t.put_direct("d", "x"), Err(Status::LOCK_TIMEOUT));
    assert_eq!(t.delete_range_direct("d", "e"), Err(Status::LOCK_TIMEOUT));
}
