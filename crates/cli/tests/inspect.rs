//! Commands that inspect a database: explain, sst, manifest, levels --html, compaction-sim.
#![allow(clippy::unwrap_used)]

use crate::common::TestDir;

fn sample_database() -> TestDir {
    let w = TestDir::new();
    for i in 0..30 {
        w.run_ok(&["put", "db", &format!("key{i:03}"), &format!("value {i}")]);
    }
    w.run_ok(&["compact", "db"]);
    w.run_ok(&["put", "db", "key000", "new"]);
    w
}

#[test]
fn explain_lists_the_sources_read() {
    let w = sample_database();
    let text = w.run_ok(&["explain", "db", "key000"]);
    assert!(text.contains("memtable active") && text.contains("a value of 3 bytes"), "{text}");
    let text = w.run_ok(&["explain", "db", "key001", "--warm"]);
    assert!(text.contains(".klog") && text.contains("passes") && text.contains("cached"), "{text}");
    let e = &w.run_json(&["explain", "db", "key001"])[0];
    assert_eq!(e["value_bytes"], 7);
    assert!(e["bytes_read"].as_u64().unwrap() > 0);
    let run = w.run(&["explain", "db", "missing"]);
    assert_eq!(run.code, 1);
    w.run_failing(2, "no column family", &["explain", "db", "k", "--family", "none"]);
}

#[test]
fn sst_shows_file_properties() {
    let w = sample_database();
    let klog = w.file_names("db").into_iter().find(|n| n.ends_with(".klog")).unwrap();
    let path = format!("db/{klog}");
    let p = &w.run_json(&["sst", &path])[0];
    assert_eq!((p["entries"].as_u64(), p["distinct_keys"].as_u64()), (Some(30), Some(30)));
    assert_eq!(p["first_key"], "key000");
    assert_eq!(p["versions_per_key"][0]["keys"], 30);
    assert!(p["false_positive_rate"].as_f64().unwrap() < 0.1);
    assert!(w.run_ok(&["sst", &path, "--quick"]).contains("last key"));
    w.run_failing(2, "does not have the name of a klog", &["sst", "db/MANIFEST"]);
    w.run_failing(2, "000999.klog", &["sst", "db/000999.klog"]);
    w.flip_bit(&path, 80);
    w.run_failing(3, &klog, &["sst", &path]);
}

#[test]
fn manifest_lists_edits() {
    let w = sample_database();
    let text = w.run_ok(&["manifest", "db"]);
    assert!(text.contains("the whole state") && text.contains("closed cleanly"), "{text}");
    assert!(text.contains(".klog (family 0, level"), "{text}");
    assert_eq!(w.run_ok(&["manifest", "db", "--last", "1"]).lines().count(), 1);
    let edits = w.run_json(&["manifest", "db"]);
    assert_eq!(edits.len(), text.lines().count());
    assert!(edits[0]["edit"].is_u64() && edits[0]["fields"].is_array());
    w.run_failing(2, "nowhere does not exist", &["manifest", "nowhere"]);
}

#[test]
fn levels_are_drawn_as_html() {
    let w = sample_database();
    let text = w.run_ok(&["levels", "db", "--html", "levels.html"]);
    assert!(text.contains("of capacity"), "{text}");
    let page = std::fs::read_to_string(w.path("levels.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("<rect") && page.contains("key029"), "{page}");
    w.run_failing(2, "write", &["levels", "db", "--html", "no/such/dir.html"]);
}

#[test]
fn compaction_sim_prints_table_json_and_chart() {
    let w = TestDir::new();
    let small = [
        "compaction-sim",
        "--keys",
        "5000",
        "--memtable",
        "50KiB",
        "--rounds",
        "2",
        "--samples",
        "4",
    ];
    let text = w.run_ok(&small);
    assert!(text.contains("write amp") && text.lines().count() > 4, "{text}");
    let sim = &w.run_json(&small)[0];
    let last = sim["samples"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["operations"], 15_000, "{sim}");
    assert!(last["write_amplification_so_far"].as_f64().unwrap() > 1.0, "{last}");
    let chart: Vec<&str> =
        small.iter().copied().chain(["--workload", "queue", "--html", "sim.html"]).collect();
    w.run_ok(&chart);
    let page = std::fs::read_to_string(w.path("sim.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("queue"), "{page}");
    w.run_failing(2, "write", &["compaction-sim", "--keys", "50", "--html", "no/such/dir.html"]);
}
