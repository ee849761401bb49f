//! Runs every workload on every default engine at a tiny size, and an engine with wrong answers,
//! which must be detected.
#![allow(clippy::unwrap_used)]

mod common;

use common::TestDir;
use std::path::PathBuf;
use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_perigee-bench")).args(args).output().unwrap()
}

fn records(path: &std::path::Path) -> Vec<serde_json::Value> {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the number of names listed under a heading.
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
fn every_workload_runs_on_every_default_engine() {
    let dir = TestDir::new("smoke");
    let tiny = [
        "--num",
        "400",
        "--keys",
        "random",
        "--values",
        "half",
        "--families",
        "20",
        "--giant-bytes",
        "64K",
    ];
    let (output, json, html) = run(&dir, &tiny);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let records = records(&json);
    // Without the engine that needs a library and the workload that needs a trace.
    assert_eq!(records.len(), (listed("Engines") - 1) * (listed("Workloads") - 1));
    assert!(records.len() >= 5 * 42);
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
        if record["skipped"].is_string() {
            // Not every engine has a time to live, or transactions.
            let workload = record["workload"].as_str().unwrap();
            assert!(workload == "series_ttl" || workload.starts_with("txn_"), "{what} was not run");
            assert_ne!(record["engine"], "perigee", "{what} was not run");
            continue;
        }
        assert!(record["ops"].as_u64().unwrap() > 0, "{what} did nothing");
        assert!(
            record["options"].as_object().unwrap().len() > 3,
            "{what} does not state its options"
        );
    }
    let html = std::fs::read_to_string(html).unwrap();
    assert!(html.contains("<svg") && !html.contains("<script") && !html.contains("http:"));
    let left = std::fs::read_dir(dir.join("data")).unwrap().count();
    assert_eq!(left, 0, "databases were left behind");
}

#[test]
fn wrong_answers_fail_the_run() {
    let dir = TestDir::new("liar");
    for (workload, how) in [
        ("read_random", "wrong"),
        ("seek_random", "wrong"),
        ("range100_random", "wrong"),
        ("ycsb_a", "wrong"),
        ("write_random_b1", "errors"),
    ] {
        let (output, json, _) =
            run(&dir, &["--engines", "liar", "--workloads", workload, "--num", "5000"]);
        assert_eq!(output.status.code(), Some(1), "{workload}: a wrong answer was not detected");
        assert!(String::from_utf8_lossy(&output.stderr).contains("FAILED"));
        let records = records(&json);
        assert!(records[0][how].as_u64().unwrap() > 0, "{workload}: {how}");
    }
}

#[test]
fn correct_engine_passes_where_faulty_one_fails() {
    let dir = TestDir::new("honest");
    let workloads = "read_random,seek_random,range100_random,ycsb_a,write_random_b1";
    let (output, ..) =
        run(&dir, &["--engines", "perigee", "--workloads", workloads, "--num", "5000"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn patterns_change_key_order_and_distribution() {
    let dir = TestDir::new("patterns");
    let workloads =
        "write_random,read_random,seek_random,range100_random,delete_b1000,iterate,ycsb_e";
    for pattern in ["seq", "random", "zipfian", "uniform", "timestamp", "reverse"] {
        let (output, ..) = run(
            &dir,
            &[
                "--engines",
                "perigee,lmdb",
                "--workloads",
                workloads,
                "--num",
                "500",
                "--range",
                "7",
                "--pattern",
                pattern,
            ],
        );
        assert!(output.status.success(), "{pattern}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn recorded_trace_replays_with_all_answers_checked() {
    let dir = TestDir::new("trace");
    let (trace, data) = (dir.join("t.jsonl"), dir.join("recorded"));
    for workload in ["ycsb_a", "ycsb_e", "queue", "delete_b1000", "families_write"] {
        let args = [
            "trace",
            "record",
            "--num",
            "2000",
            "--families",
            "7",
            "--workload",
            workload,
            "--out",
        ];
        let output = bench(
            &[&args[..], &[trace.to_str().unwrap(), "--dir", data.to_str().unwrap()]].concat(),
        );
        assert!(output.status.success(), "{workload}: {}", String::from_utf8_lossy(&output.stderr));
        let args =
            ["--workloads", "replay", "--values", "half", "--trace", trace.to_str().unwrap()];
        let (output, json, _) = run(&dir, &args);
        assert!(output.status.success(), "{workload}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(records(&json).iter().all(|r| r["ops"].as_u64().unwrap() >= 100), "{workload}");
        let (output, ..) = run(&dir, &[&args[..], &["--engines", "liar"]].concat());
        let noticed = output.status.code() == Some(1);
        assert!(
            noticed || workload == "delete_b1000" || workload == "families_write",
            "{workload}: no wrong answer detected"
        );
    }
}

#[test]
fn handwritten_trace_works_and_bad_one_is_located() {
    let dir = TestDir::new("by-hand");
    let trace = dir.join("t.jsonl");
    let lines = concat!(
        "# a moon\n{\"op\":\"put\",\"text\":\"moon\",\"bytes\":4}\n{\"op\":\"measure\"}\n",
        "{\"op\":\"get\",\"text\":\"moon\"}\n{\"op\":\"scan\",\"text\":\"a\",\"entries\":5}\n",
    );
    std::fs::write(&trace, lines).unwrap();
    let (output, json, _) =
        run(&dir, &["--workloads", "replay", "--trace", trace.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(records(&json).iter().all(|r| r["ops"] == 2));
    std::fs::write(&trace, "{\"op\":\"get\",\"text\":\"moon\"}\n{\"op\":\"jump\"}\n").unwrap();
    let (output, ..) = run(&dir, &["--workloads", "replay", "--trace", trace.to_str().unwrap()]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("line 2"));
}

#[test]
fn tidesdb_requires_library_path() {
    let text = |o: Output| (o.status.code(), String::from_utf8_lossy(&o.stderr).into_owned());
    let (code, why) = text(bench(&["run", "--engines", "tidesdb"]));
    assert!(code == Some(2) && why.contains("--tidesdb-lib"), "{why}");
    let dir = TestDir::new("tidesdb");
    let args = ["--engines", "tidesdb", "--workloads", "write_seq", "--tidesdb-lib"];
    for (name, reason) in [("libtidesdb.so.8.0.0", "oldest"), ("libtidesdb.so.9.3.14", "")] {
        let lib = dir.join(name);
        std::fs::write(&lib, "no library").unwrap();
        let (output, ..) = run(&dir, &[&args[..], &[lib.to_str().unwrap()]].concat());
        let (code, why) = text(output);
        assert!(code == Some(1) && why.contains(reason), "{why}");
    }
}

#[test]
fn unknown_names_are_rejected() {
    assert_eq!(bench(&["run", "--engines", "unknown"]).status.code(), Some(2));
    assert_eq!(bench(&["run", "--workloads", "unknown"]).status.code(), Some(2));
}
