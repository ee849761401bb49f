//! Database statistics: counters, latencies, I/O by cause, stalls; as JSON, text and OpenMetrics.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::stats::Stats;
use perigee::{Db, FamilyOptions, Options};
use std::collections::{HashMap, HashSet};

fn open(options: impl FnOnce(Options) -> Options) -> Db {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let small =
        FamilyOptions::new().memtable_bytes(16 << 10).block_bytes(512).target_file_bytes(8 << 10);
    Db::open("/db", options(Options::in_env(env).default_family(small).block_cache_bytes(20 << 10)))
        .unwrap()
}

fn run_workload(db: &Db) {
    for i in 0..2000u32 {
        db.put(i.to_be_bytes(), [i as u8; 100]).unwrap();
    }
    db.delete(5u32.to_be_bytes()).unwrap();
    db.admin().compact().unwrap();
    // A flush is counted after its tables are installed.
    db.admin().wait_idle().unwrap();
    for i in 0..1000u32 {
        assert_eq!(db.get(i.to_be_bytes()).unwrap().is_some(), i != 5);
    }
    for _ in 0..10 {
        assert_eq!(db.iter().unwrap().count(), 1999);
    }
    drop(db.default_family().multi_get([1u32.to_be_bytes(), 2u32.to_be_bytes()]));
    db.sync().unwrap();
}

fn counter(s: &Stats, name: &str) -> u64 {
    s.counter(name).unwrap()
}

#[test]
fn counters_match_operations() {
    let db = open(|o| o);
    run_workload(&db);
    let s = db.admin().stats();
    let measured = |name: &str| s.latency.iter().find(|l| l.operation == name).unwrap().count;
    assert_eq!((measured("write"), measured("multi_get")), (2000u64.div_ceil(7), 1));
    assert!((10..=20).contains(&measured("get")), "{} of 1000 gets", measured("get"));
    assert_eq!((counter(&s, "seeks"), counter(&s, "nexts")), (10, 19_990));
    assert!(measured("next") > 300 && measured("seek") >= 1);
    assert_eq!(measured("flush"), counter(&s, "flushes"));
    assert_eq!(measured("compaction"), counter(&s, "compactions"));
    assert_eq!(measured("wal_sync"), counter(&s, "wal_syncs"));
    let slow = s.latency.iter().find(|l| l.operation == "write").unwrap();
    assert!(0 < slow.p50_ns && slow.p50_ns <= slow.p99_ns && slow.p99_ns <= slow.max_ns);

    let io = |cause: &str| *s.io.iter().find(|io| io.cause == cause).unwrap();
    assert_eq!(io("wal").bytes_written, counter(&s, "wal_bytes_written"));
    assert_eq!(io("flush").bytes_written, counter(&s, "flush_bytes_written"));
    assert_eq!(io("compaction").bytes_written, counter(&s, "compaction_bytes_written"));
    let read = io("get").bytes_read + io("scan").bytes_read + io("compaction").bytes_read;
    assert_eq!(read, counter(&s, "klog_bytes_read"), "every block read has a cause");
    assert!(io("get").reads > 0 && io("scan").reads > 0 && io("compaction").reads > 0);
    assert!(io("flush").writes >= counter(&s, "flushes"));

    assert_eq!(
        (s.cache.hits, s.cache.misses),
        (counter(&s, "cache_hits"), counter(&s, "cache_misses"))
    );
    assert!(s.cache.used <= s.cache.capacity && s.cache.blocks > 0 && s.cache.evictions > 0);
    let owners: HashMap<&str, u64> = s.memory.iter().map(|m| (m.owner, m.bytes)).collect();
    assert_eq!(owners["block cache"], s.cache.used);
    assert_eq!(owners["indexes"] + owners["filters"], s.table_memory_bytes);
    assert!(owners["filters"] > 0);
}

#[test]
fn latencies_can_be_switched_off() {
    let db = open(|o| o.latency_stats(false));
    run_workload(&db);
    assert!(db.admin().stats().latency.iter().all(|l| l.count == 0));
}

/// A name with every character that must be escaped.
const NASTY_NAME: &str = "a\"b\\c\nd\u{1}é";

#[test]
fn json_is_valid_for_any_family_name() {
    let db = open(|o| o);
    db.create_family(NASTY_NAME, FamilyOptions::new()).unwrap();
    run_workload(&db);
    let s = db.admin().stats();
    let json: serde_json::Value = serde_json::from_str(&s.to_json()).unwrap();
    assert_eq!(json["families"][1]["name"], NASTY_NAME);
    assert_eq!(json["counters"]["operations"], 2001);
    assert_eq!(json["io"]["wal"]["bytes_written"], counter(&s, "wal_bytes_written"));
    assert_eq!(json["latency"]["write"]["count"], 286);
    assert_eq!(json["recovery"]["clean"], false);
    assert!(s.to_string().contains("operations 2001"));
}

#[test]
fn stall_stats_have_reasons_and_totals() {
    let db = open(|o| o);
    db.admin().cancel_background_work().unwrap();
    // The delay depends on bytes, and small delays are accumulated.
    let value = vec![b'v'; 1 << 20];
    for _ in 0..15 {
        db.put("k", &value).unwrap();
        db.admin().flush().unwrap();
    }
    let s = db.admin().stats();
    assert_eq!((s.stalls.len(), s.stalls[0].reason, s.stalls[0].stops), (1, "level 0 runs", 0));
    assert!(s.stalls[0].delays >= 1 && s.stalls[0].delay_us == counter(&s, "delay_us"));
    db.admin().resume_background_work().unwrap();
}

/// A strict parser of OpenMetrics text. Returns the samples by name and labels.
fn parse(text: &str) -> HashMap<String, f64> {
    let body = text.strip_suffix("# EOF\n").expect("ends with EOF");
    let name_ok = |n: &str| {
        n.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !n.starts_with(|c: char| c.is_ascii_digit())
    };
    let (mut families, mut samples) = (HashSet::new(), HashMap::new());
    let (mut current, mut kind, mut unit, mut help) =
        (String::new(), String::new(), String::new(), false);
    for line in body.lines() {
        assert!(!line.is_empty() && line.trim() == line, "{line:?}");
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (what, name, value) =
                (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            if what == "TYPE" {
                assert!(families.insert(name.to_owned()), "{name} is defined twice");
                assert!(["counter", "gauge", "histogram"].contains(&value), "{line}");
                assert!(name_ok(name) && name.starts_with("perigee_"), "{name}");
                assert!(!name.ends_with("_total"), "{name}: only a sample has this suffix");
                (current, kind, unit, help) = (name.into(), value.into(), String::new(), false);
                continue;
            }
            assert_eq!(name, current, "{line}");
            match what {
                "UNIT" => {
                    assert!(
                        name.ends_with(&format!("_{value}")),
                        "{line}: the name must end with the unit"
                    );
                    unit = value.into();
                }
                "HELP" => help = true,
                _ => panic!("{line}"),
            }
            continue;
        }
        assert!(help, "{line}: HELP comes before samples");
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        assert!(value >= 0.0 && value.is_finite());
        let (name, labels) = match series.split_once('{') {
            None => (series, String::new()),
            Some((name, rest)) => (name, labels(rest.strip_suffix('}').unwrap())),
        };
        let suffix =
            name.strip_prefix(&current).unwrap_or_else(|| panic!("{line} is not of {current}"));
        let allowed: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            _ => &["_bucket", "_sum", "_count"],
        };
        assert!(allowed.contains(&suffix), "{line}");
        if current.ends_with("bytes") || current.ends_with("seconds") {
            assert!(!unit.is_empty(), "{current}: the UNIT line is missing");
        }
        assert!(
            samples.insert(format!("{name}{{{labels}}}"), value).is_none(),
            "duplicate sample: {line}"
        );
    }
    samples
}

/// Checks labels, and returns them unescaped.
fn labels(mut text: &str) -> String {
    let mut all = Vec::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").unwrap();
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next().unwrap() {
                (_, '\\') => match chars.next().unwrap().1 {
                    'n' => value.push('\n'),
                    c @ ('\\' | '"') => value.push(c),
                    c => panic!("\\{c} is not a valid escape"),
                },
                (i, '"') => break i,
                (_, c) => value.push(c),
            }
        };
        all.push(format!("{name}={value}"));
        text = rest[end + 1..].strip_prefix(',').unwrap_or(&rest[end + 1..]);
    }
    all.join(",")
}

#[test]
fn metrics_are_valid_openmetrics() {
    let db = open(|o| o);
    db.create_family(NASTY_NAME, FamilyOptions::new()).unwrap();
    run_workload(&db);
    let samples = parse(&db.admin().metrics());
    assert_eq!(samples["perigee_operations_total{}"], 2001.0);
    assert_eq!(samples[&format!("perigee_memtable_bytes{{family={NASTY_NAME}}}")], 0.0);
    assert!(samples["perigee_wal_written_bytes_total{}"] > 200_000.0);
    assert_eq!(samples["perigee_operation_duration_seconds_count{operation=write}"], 286.0);
    let mut last = 0.0;
    let name = "perigee_operation_duration_seconds_bucket";
    for (_, v) in buckets(&samples, &format!("{name}{{operation=write,le=")) {
        assert!(v >= last, "bucket counts are cumulative");
        last = v;
    }
    assert_eq!(last, 286.0, "the last bucket is +Inf");
    assert!(samples["perigee_operation_duration_seconds_sum{operation=write}"] > 0.0);
    assert!(samples.len() > 100, "{}", samples.len());
}

fn buckets(samples: &HashMap<String, f64>, prefix: &str) -> Vec<(f64, f64)> {
    let mut all: Vec<(f64, f64)> = samples
        .iter()
        .filter_map(|(k, v)| {
            Some((k.strip_prefix(prefix)?.trim_end_matches('}').parse().unwrap(), *v))
        })
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}
