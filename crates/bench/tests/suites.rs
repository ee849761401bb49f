//! Runs the suites at a tiny size: every engine must be in their tables, and an engine that is
//! killed or stopped at its time limit is a result, not a failure.
#![allow(clippy::unwrap_used)]

mod common;

use common::TestDir;
use std::path::Path;
use std::process::{Command, Output};

fn bench(dir: &Path, args: &[&str]) -> (Output, Vec<serde_json::Value>) {
    let paths = ["data", "out.json", "out.html"].map(|f| dir.join(f).to_str().unwrap().to_owned());
    let output = Command::new(env!("CARGO_BIN_EXE_perigee-bench"))
        .args(args)
        .args(["--dir", &paths[0], "--json", &paths[1], "--html", &paths[2]])
        .output()
        .unwrap();
    let records = std::fs::read_to_string(&paths[1]).unwrap_or_else(|_| "[]".into());
    (output, serde_json::from_str(&records).unwrap())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_suite_runs_and_reports_every_engine() {
    let suites: [(&str, &str, &[&str], usize); 8] = [
        ("growth", "Growth", &["--nums", "300,3000"], 2 * 3),
        ("inside", "Inside the same memory", &["--num", "2000"], 3),
        ("sqlite", "Perigee beside SQLite", &["--num", "1000", "--reps", "1"], 3 + 6 + 2),
        (
            "tables",
            "Tables beside SQLite and redb",
            &["--num", "1000", "--reps", "1"],
            2 * (2 + 15 + 6),
        ),
        ("latency", "Latency up to the longest call", &["--num", "1000"], 4 + 3),
        ("churn", "Churn", &["--num", "500"], 1),
        ("threads", "Cost of threads", &["--num", "1000"], 4 * 6),
        ("transactions", "Transactions", &["--num", "1000"], 3 * 7),
    ];
    for (suite, title, size, each) in suites {
        let dir = TestDir::new(&format!("suite-{suite}"));
        let engines = match suite {
            "sqlite" => "perigee,sqlite",
            "tables" => "perigee,sqlite,redb",
            "transactions" => "perigee,sqlite,lmdb",
            _ => "perigee,sqlite,lmdb,fjall,redb",
        };
        let (output, records) =
            bench(&dir, &[&["suite", suite, "--engines", engines], size].concat());
        assert!(output.status.success(), "{suite}: {}", text(&output.stderr));
        assert_eq!(records.len(), each * engines.split(',').count(), "{suite}");
        assert!(records.iter().all(|r| r["suite"] == suite && r["errors"] == 0 && r["wrong"] == 0));
        assert!(
            records.iter().all(|r| r["ops"].as_u64().unwrap() > 0 && r["skipped"].is_null()),
            "{suite}"
        );
        let output_text = text(&output.stdout);
        let view = output_text
            .split(&format!("\n{title}\n"))
            .nth(1)
            .unwrap_or_else(|| panic!("{suite}: no table in {output_text}"));
        if suite != "sqlite" {
            assert!(
                engines.split(',').all(|e| view.contains(&format!(" {e} "))),
                "{suite}: {view}"
            );
        }
        let page = std::fs::read_to_string(dir.join("out.html")).unwrap();
        assert!(
            page.contains(&format!("<h2>{title}</h2>"))
                && page.contains("<svg")
                && !page.contains("<script")
        );
        assert_eq!(
            std::fs::read_dir(dir.join("data")).unwrap().count(),
            0,
            "{suite} left databases behind"
        );
    }
}

#[test]
fn faulty_write_is_detected_and_its_reads_are_skipped() {
    let dir = TestDir::new("suite-liar");
    let args = ["suite", "growth", "--engines", "liar", "--nums", "5000"];
    let (output, records) = bench(&dir, &args);
    assert_eq!(output.status.code(), Some(1));
    assert!(records[0]["wrong"].as_u64().unwrap() > 0);
    assert!(records[1..].iter().all(|r| r["skipped"].as_str().unwrap().contains("did not fill")));
    assert!(text(&output.stdout).contains("WRONG"));
}

#[test]
fn lost_update_is_detected_in_every_transaction_kind() {
    for workload in ["txn_rmw_4", "txn_rmw", "txn_smallbank", "txn_neworder"] {
        let dir = TestDir::new(&format!("suite-lost-{workload}"));
        let args = [
            "run",
            "--engines",
            "liar,perigee,fjall",
            "--workloads",
            workload,
            "--reps",
            "1",
            "--num",
            "2000",
        ];
        let (output, records) = bench(&dir, &args);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            records[0]["first_failure"].as_str().unwrap().contains("instead of"),
            "{}",
            records[0]
        );
        assert_eq!(
            (&records[1]["wrong"], &records[1]["errors"]),
            (&0.into(), &0.into()),
            "{}",
            records[1]
        );
        assert!(records[2]["skipped"].as_str().unwrap().contains("no transactions"));
    }
}

#[test]
fn records_of_several_files_are_merged_in_one_report() {
    let dir = TestDir::new("suite-files");
    let mut files = Vec::new();
    for num in ["500", "5000"] {
        let args = [
            "run",
            "--engines",
            "perigee",
            "--workloads",
            "write_random",
            "--reps",
            "1",
            "--num",
            num,
        ];
        let (output, _) = bench(&dir, &args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let file = dir.join(format!("{num}.json"));
        std::fs::rename(dir.join("out.json"), &file).unwrap();
        files.push(file.to_str().unwrap().to_owned());
    }
    let output = Command::new(env!("CARGO_BIN_EXE_perigee-bench"))
        .args(["report", &files[0], &files[1], "--suite", "growth"])
        .output()
        .unwrap();
    let output_text = text(&output.stdout);
    assert!(output.status.success() && output_text.contains("CPU 5.00k"), "{output_text}");
}

#[test]
fn timed_out_phase_reports_completed_share() {
    let dir = TestDir::new("suite-seconds");
    let args = [
        "suite",
        "growth",
        "--engines",
        "perigee",
        "--nums",
        "40M",
        "--batch",
        "100",
        "--seconds",
        "1",
    ];
    let (output, records) = bench(&dir, &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    if records[0]["skipped"].is_string() {
        return; // too little disk space for the requested size
    }
    let done = records[0]["cut_short"].as_f64().unwrap();
    assert!(done > 0.0 && done < 1.0, "{done}");
    assert!(
        records[1]["skipped"].as_str().unwrap().contains("did not fill"),
        "reads need the whole database"
    );
    assert!(text(&output.stdout).contains("% done"));
}

#[test]
fn engine_killed_for_memory_is_reported_not_failed() {
    let dir = TestDir::new("suite-killed");
    // Any engine needs more than this; where cgroups are not permitted nothing is limited.
    let args = ["suite", "inside", "--engines", "perigee,lmdb", "--num", "20000", "--memory", "1M"];
    let (output, records) = bench(&dir, &args);
    let noted = |r: &serde_json::Value| r["notes"].to_string().contains("NOT limited");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(records.len(), 6);
    if records.iter().any(noted) {
        return;
    }
    assert!(
        records[0]["killed"].is_string() && records[1]["skipped"].is_string(),
        "{:?}",
        records[0]["killed"]
    );
    assert!(text(&output.stdout).contains("killed"));
    assert_eq!(
        std::fs::read_dir(dir.join("data")).unwrap().count(),
        0,
        "databases were left behind"
    );
}
