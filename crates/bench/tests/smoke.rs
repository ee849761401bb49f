//! Every workload on every default engine, tiny; and an engine that lies, which must be noticed.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, Output};

fn dir(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_perigee-bench")).args(args).output().unwrap()
}

fn records(path: &std::path::Path) -> Vec<serde_json::Value> {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Names listed under a heading.
fn listed(heading: &str) -> usize {
    let text = String::from_utf8(bench(&["--list"]).stdout).unwrap();
    let after = text.split(heading).nth(1).unwrap();
    after.lines().skip(1).take_while(|l| l.starts_with("  ")).count()
}

fn run(dir: &std::path::Path, more: &[&str]) -> (Output, PathBuf, PathBuf) {
    let (json, html) = (dir.join("out.json"), dir.join("out.html"));
    let data = dir.join("data");
    let mut args = vec!["run", "--dir", data.to_str().unwrap(), "--json", json.to_str().unwrap()];
    args.extend(["--html", html.to_str().unwrap(), "--reps", "1"]);
    args.extend(more);
    (bench(&args), json, html)
}

#[test]
fn every_workload_works_on_every_default_engine() {
    let dir = dir("smoke");
    let (output, json, html) = run(&dir, &["--num", "400", "--keys", "random", "--values", "half"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let records = records(&json);
    assert_eq!(records.len(), listed("Engines") * listed("Workloads"));
    assert!(records.len() >= 5 * 30);
    let fields = [
        "engine",
        "engine_version",
        "workload",
        "threads",
        "rep",
        "ops",
        "ops_per_sec",
        "cpu_us_per_op",
        "p50_us",
        "p99_us",
        "p999_us",
        "max_us",
        "peak_rss_mb",
        "write_amp",
        "db_bytes",
        "errors",
        "wrong",
        "options",
    ];
    for record in &records {
        let what = format!("{} on {}", record["workload"], record["engine"]);
        assert!(fields.iter().all(|f| !record[*f].is_null()), "{what} lacks a field");
        assert_eq!((&record["errors"], &record["wrong"]), (&0.into(), &0.into()), "{what}");
        assert!(record["ops"].as_u64().unwrap() > 0, "{what} did nothing");
        assert!(record["options"].as_object().unwrap().len() > 3, "{what} does not state its options");
    }
    let html = std::fs::read_to_string(html).unwrap();
    assert!(html.contains("<svg") && !html.contains("<script") && !html.contains("http:"));
    let left = std::fs::read_dir(dir.join("data")).unwrap().count();
    assert_eq!(left, 0, "databases were left behind");
}

#[test]
fn an_engine_that_lies_is_noticed_and_fails_the_run() {
    let dir = dir("liar");
    for (workload, how) in [
        ("read_random", "wrong"),
        ("seek_random", "wrong"),
        ("range100_random", "wrong"),
        ("ycsb_a", "wrong"),
        ("write_random_b1", "errors"),
    ] {
        let (output, json, _) = run(&dir, &["--engines", "liar", "--workloads", workload, "--num", "5000"]);
        assert_eq!(output.status.code(), Some(1), "{workload}: a lie went through");
        assert!(String::from_utf8_lossy(&output.stderr).contains("FAILED"));
        let records = records(&json);
        assert!(records[0][how].as_u64().unwrap() > 0, "{workload}: {how}");
    }
}

#[test]
fn an_honest_engine_passes_where_the_liar_fails() {
    let dir = dir("honest");
    let workloads = "read_random,seek_random,range100_random,ycsb_a,write_random_b1";
    let (output, ..) = run(&dir, &["--engines", "perigee", "--workloads", workloads, "--num", "5000"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn unknown_names_are_refused() {
    assert_eq!(bench(&["run", "--engines", "nobody"]).status.code(), Some(2));
    assert_eq!(bench(&["run", "--workloads", "nothing"]).status.code(), Some(2));
}
