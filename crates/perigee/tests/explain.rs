//! `explain` matches `get`: the same results and the same costs, for every key, in every state of
//! the tree.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, FamilyOptions, Options};

fn open() -> Db {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let small = FamilyOptions::new()
        .memtable_bytes(8 << 10)
        .block_bytes(256)
        .target_file_bytes(4 << 10)
        .level1_bytes(16 << 10)
        .value_threshold(500);
    Db::open("/db", Options::in_env(env).default_family(small)).unwrap()
}

fn counters(db: &Db) -> Vec<(&'static str, u64)> {
    let of_reads = [
        "filter_negatives",
        "filter_false_positives",
        "cache_hits",
        "cache_misses",
        "klog_bytes_read",
        "vlog_bytes_read",
    ];
    db.admin()
        .stats()
        .counters
        .into_iter()
        .map(|c| (c.name, c.value))
        .filter(|(n, _)| of_reads.contains(n))
        .collect()
}

fn counter_deltas(a: &[(&'static str, u64)], b: &[(&'static str, u64)]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| b.1 - a.1).collect()
}

fn compare_with_get(db: &Db) {
    let _nobody_else_reads = db.admin().pause_background_work().unwrap();
    for i in 0..420u32 {
        let key = i.to_be_bytes();
        let value = db.get(key).unwrap(); // fills the cache, so that both calls hit it
        let start = counters(db);
        assert_eq!(db.get(key).unwrap(), value);
        let middle = counters(db);
        let e = db.default_family().explain(key).unwrap();
        let end = counters(db);
        assert_eq!(e.value_bytes, value.as_ref().map(|v| v.len() as u64), "key {i}: {e:?}");
        assert!(e.error.is_none() && !e.steps.is_empty());
        assert_eq!(
            counter_deltas(&start, &middle),
            counter_deltas(&middle, &end),
            "key {i}: costs differ: {e:?}"
        );
        let read: u64 =
            e.steps.iter().filter(|s| s.source != "value log").map(|s| s.bytes_read).sum();
        assert_eq!(read, 0, "all blocks are cached");
        let answers = e.steps.iter().filter(|s| s.outcome != "nothing").count();
        assert!(answers <= 2, "one entry, and at most its value-log read: {e:?}");
        assert_eq!(
            answers > 0,
            value.is_some() || e.steps.iter().any(|s| s.outcome == "tombstone")
        );
    }
}

#[test]
fn explain_matches_get_results_and_costs() {
    let db = open();
    for round in 0..6u32 {
        for i in (0..400u32).filter(|i| i % 6 >= round) {
            let len = if i % 7 == 0 { 800 } else { 20 };
            db.put(i.to_be_bytes(), vec![round as u8; len]).unwrap();
        }
        for i in (0..400u32).filter(|i| i % 11 == round) {
            db.delete(i.to_be_bytes()).unwrap();
        }
        compare_with_get(&db);
        if round % 2 == 0 {
            db.admin().flush().unwrap();
            compare_with_get(&db);
        }
    }
    db.admin().compact().unwrap();
    compare_with_get(&db);
}

#[test]
fn explain_steps_list_sources_read() {
    let db = open();
    // Compactions would otherwise remove the deleted entries at some point.
    db.admin().cancel_background_work().unwrap();
    db.put("k", vec![1; 1000]).unwrap();
    db.admin().flush().unwrap();
    db.put("a", "x").unwrap();
    db.put("z", "y").unwrap();
    db.admin().flush().unwrap();
    db.put("m", "n").unwrap();
    let e = db.default_family().explain("k").unwrap();
    let steps: Vec<(&str, Option<u8>, &str)> =
        e.steps.iter().map(|s| (s.source, s.level, s.outcome)).collect();
    assert_eq!(
        steps,
        [
            ("memtable", None, "nothing"),
            ("table", Some(0), "nothing"),
            ("table", Some(0), "pointer"),
            ("value log", None, "value")
        ]
    );
    assert_eq!(e.steps[1].filter, Some("excludes"));
    assert!(e.steps[2].filter == Some("passes") && e.steps[2].bytes_read > 0 && !e.steps[2].cached);
    assert!(
        db.default_family().explain("k").unwrap().steps[2].cached,
        "the second read hits the cache"
    );
    let e = db.default_family().explain("m").unwrap();
    assert_eq!((e.steps.len(), e.steps[0].outcome), (1, "value"));
    let e = db.default_family().explain("zz").unwrap();
    assert_eq!((e.value_bytes, e.steps.last().unwrap().source), (None, "run"));
    db.delete("m").unwrap();
    assert_eq!(db.default_family().explain("m").unwrap().steps[0].outcome, "tombstone");
    db.default_family().delete_range("j".."l").unwrap();
    assert_eq!(db.default_family().explain("k").unwrap().steps[0].outcome, "tombstone");
    db.admin().flush().unwrap();
    let e = db.default_family().explain("k").unwrap();
    assert_eq!((e.value_bytes, e.steps.last().unwrap().outcome), (None, "tombstone"));
}
