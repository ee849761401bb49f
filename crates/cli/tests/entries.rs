//! Commands on entries and column families: put, get, delete, scan, count, families, compact,
//! purge, stats, levels, verify, and their `--json` and help output.
#![allow(clippy::unwrap_used)]

use crate::common::TestDir;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

fn sample_database() -> TestDir {
    let w = TestDir::new();
    for (key, value) in [
        ("06:12", "high"),
        ("12:31", "low"),
        ("18:40", "high"),
        ("moon", "full"),
        ("moon/phase", "14"),
    ] {
        w.run_ok(&["put", "db", key, value]);
    }
    w
}

#[test]
fn deleted_key_is_gone() {
    let w = sample_database();
    assert_eq!(w.run_ok(&["get", "db", "moon"]), "full");
    assert_eq!(w.run_ok(&["put", "db", "moon", "new"]), "");
    assert_eq!(w.run_ok(&["get", "db", "moon"]), "new");
    assert_eq!(w.run_ok(&["delete", "db", "moon"]), "");
    assert_eq!(w.run(&["get", "db", "moon"]).code, 1);
    assert_eq!(w.run_ok(&["delete", "db", "moon"]), "", "deleting twice is no error");
    assert_eq!(w.run(&["delete", "db", "moon", "--must-exist"]).code, 1);
    assert_eq!(w.run_ok(&["get", "db", "moon/phase"]), "14");
}

#[test]
fn ranges_prefixes_and_expired_keys_are_gone() {
    let w = sample_database();
    w.run_ok(&["delete", "db", "06", "--to", "18"]);
    assert_eq!(w.run(&["get", "db", "12:31"]).code, 1);
    assert_eq!(w.run_ok(&["get", "db", "18:40"]), "high");
    w.run_ok(&["delete", "db", "moon", "--prefix"]);
    assert_eq!(w.run(&["get", "db", "moon/phase"]).code, 1);
    w.run_ok(&["delete", "db", "18:40", "--single"]);
    assert_eq!(w.run(&["get", "db", "18:40"]).code, 1);
    w.run_ok(&["put", "db", "dew", "wet", "--ttl", "0"]);
    assert_eq!(w.run(&["get", "db", "dew"]).code, 1);
    w.run_ok(&["put", "db", "dew", "wet", "--ttl", "3600"]);
    assert_eq!(w.run_ok(&["get", "db", "dew"]), "wet");
    assert_ne!(w.run(&["delete", "db", "z", "--to", "a"]).code, 0);
}

#[test]
fn missing_key_exits_with_code_1() {
    let w = sample_database();
    let e = w.run_failing(1, "no such key: sun", &["get", "db", "sun"]);
    assert_eq!(e["kind"], "key not found");
    assert!(w.run(&["get", "db", "sun"]).stdout.is_empty());
}

#[test]
fn values_may_be_any_bytes() {
    let w = TestDir::new();
    let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    assert_eq!(w.run_with(&["put", "db", "all", "-"], &all).code, 0);
    assert_eq!(w.run(&["get", "db", "all"]).stdout, all);
    w.run_ok(&["put", "db", "empty", ""]);
    assert_eq!(w.run_ok(&["get", "db", "empty"]), "");
    w.run_ok(&["put", "db", "minus", "-5"]);
    assert_eq!(w.run_ok(&["get", "db", "minus"]), "-5");
}

#[test]
fn long_values_come_from_files_and_go_to_files() {
    let w = TestDir::new();
    let film: Vec<u8> =
        (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(w.path("film.mkv"), &film).unwrap();
    w.run_ok(&["put", "db", "film", "--file", "film.mkv"]);
    assert!(w.run(&["get", "db", "film"]).stdout == film);
    w.run_ok(&["get", "db", "film", "--file", "copy.mkv"]);
    assert!(std::fs::read(w.path("copy.mkv")).unwrap() == film);
    let part = w.run(&["get", "db", "film", "--offset", "2000000", "--length", "1000"]).stdout;
    assert_eq!(part, film[2_000_000..2_001_000]);
    assert_eq!(w.run(&["get", "db", "film", "--offset", "2999990"]).stdout, film[2_999_990..]);
    assert!(w.run(&["get", "db", "film", "--offset", "4000000"]).stdout.is_empty());
    let report = w.run_ok(&["put", "db", "again", "--file", "film.mkv", "--json"]);
    assert!(report.contains("3000000"), "{report}");
    w.run_failing(2, "no-such-file", &["put", "db", "x", "--file", "no-such-file"]);
    w.run_failing(2, "no-such-dir", &["get", "db", "film", "--file", "no-such-dir/copy"]);
    assert_eq!(w.run(&["put", "db", "x"]).code, 2, "a value is missing");
    assert_eq!(w.run(&["put", "db", "x", "value", "--file", "film.mkv"]).code, 2);
    assert_eq!(w.run(&["get", "db", "x"]).code, 1);
}

#[test]
fn keys_may_be_any_bytes() {
    let w = TestDir::new();
    w.run_ok(&["put", "db", "--escaped", "a\\0b\\xff", "escaped"]);
    assert_eq!(w.run_ok(&["get", "db", "--hex", "610062ff"]), "escaped");
    let raw = [OsStr::new("put"), OsStr::new("db"), OsStr::from_bytes(b"\xfe"), OsStr::new("raw")];
    assert_eq!(w.run_os(&raw, b"").code, 0);
    assert_eq!(w.run_ok(&["get", "db", "--hex", "fe"]), "raw");
    assert_eq!(w.run_ok(&["scan", "db"]), "a\\x00b\\xff\tescaped\n\\xfe\traw\n");
    assert_eq!(w.run_ok(&["scan", "db", "--hex", "--keys-only"]), "610062ff\nfe\n");
    let lines = w.run_json(&["scan", "db"]);
    assert_eq!(lines[1], serde_json::json!({"key_base64": "/g==", "value": "raw"}));
    assert_eq!(w.run_ok(&["scan", "db", "--keys-only", "--hex", "--prefix", "6100"]), "610062ff\n");
}

#[test]
fn scan_forward_and_reverse_within_bounds() {
    let w = sample_database();
    let keys = |args: &[&str]| w.run_ok(&[&["scan", "db", "--keys-only"], args].concat());
    assert_eq!(keys(&[]), "06:12\n12:31\n18:40\nmoon\nmoon/phase\n");
    assert_eq!(keys(&["--reverse"]), "moon/phase\nmoon\n18:40\n12:31\n06:12\n");
    assert_eq!(keys(&["--limit", "2"]), "06:12\n12:31\n");
    assert_eq!(keys(&["--reverse", "--limit", "1"]), "moon/phase\n");
    assert_eq!(keys(&["--limit", "0"]), "");
    assert_eq!(keys(&["--prefix", "moon"]), "moon\nmoon/phase\n");
    assert_eq!(keys(&["--prefix", "moon", "--reverse"]), "moon/phase\nmoon\n");
    assert_eq!(keys(&["--prefix", "sun"]), "");
    assert_eq!(keys(&["--from", "12", "--to", "moon"]), "12:31\n18:40\n");
    assert_eq!(keys(&["--from", "12", "--to", "moon", "--reverse"]), "18:40\n12:31\n");
    assert_eq!(keys(&["--from", "moon", "--to", "moon"]), "");
    assert_eq!(w.run_ok(&["scan", "db", "--limit", "1"]), "06:12\thigh\n");
    w.run_failing(2, "--from", &["scan", "db", "--from", "b", "--to", "a"]);
    assert_eq!(w.run_ok(&["count", "db"]), "5\n");
    assert_eq!(w.run_ok(&["count", "db", "--prefix", "moon"]), "2\n");
}

#[test]
fn long_values_are_cut_unless_values_is_given() {
    let w = TestDir::new();
    let long = "x".repeat(1000);
    w.run_ok(&["put", "db", "k", &long]);
    assert_eq!(w.run_ok(&["scan", "db"]), format!("k\t{}... (1000 bytes)\n", "x".repeat(64)));
    assert_eq!(w.run_ok(&["scan", "db", "--values"]), format!("k\t{long}\n"));
    assert_eq!(w.run_json(&["scan", "db"])[0]["value"], long);
}

#[test]
fn families_are_isolated() {
    let w = sample_database();
    assert_eq!(w.run_ok(&["families", "db"]), "default\n");
    assert_eq!(w.run_ok(&["families", "db", "--create", "tides"]), "default\ntides\n");
    w.run_ok(&["put", "db", "k", "v", "--family", "tides"]);
    assert_eq!(w.run_ok(&["get", "db", "k", "--family", "tides"]), "v");
    assert_eq!(w.run(&["get", "db", "k"]).code, 1);
    assert_eq!(w.run_ok(&["count", "db", "--family", "tides"]), "1\n");
    assert_eq!(w.run_json(&["families", "db"])[0]["families"][1]["name"], "tides");
    w.run_ok(&["compact", "db", "--family", "tides"]);
    w.run_failing(2, "already", &["families", "db", "--create", "tides"]);
    assert_eq!(w.run_ok(&["families", "db", "--rename", "tides", "seas"]), "default\nseas\n");
    assert_eq!(w.run_ok(&["families", "db", "--clone", "seas", "tides"]), "default\nseas\ntides\n");
    w.run_ok(&["families", "db", "--clear", "seas"]);
    w.run_failing(2, "already", &["families", "db", "--rename", "seas", "tides"]);
    w.run_failing(2, "no column family", &["families", "db", "--clone", "lakes", "x"]);
    assert_eq!(w.run_ok(&["families", "db", "--drop", "seas"]), "default\ntides\n");
    assert_eq!(w.run_ok(&["families", "db", "--drop", "tides"]), "default\n");
    w.run_failing(2, "tides", &["families", "db", "--drop", "tides"]);
    let e = w.run_failing(2, "no column family", &["get", "db", "k", "--family", "tides"]);
    assert_eq!(e["kind"], "not found");
    w.run_failing(2, "default", &["families", "db", "--drop", "default"]);
}

#[test]
fn stats_levels_and_verify_show_state() {
    let w = sample_database();
    w.run_ok(&["delete", "db", "06:12"]);
    let text = w.run_ok(&["compact", "db"]);
    assert!(text.starts_with("compacted: "), "{text}");
    let stats = &w.run_json(&["stats", "db", "--all"])[0];
    for field in ["counters", "families", "wal", "cache", "recovery", "memory"] {
        assert!(!stats[field].is_null(), "{field} is missing: {stats}");
    }
    assert_eq!(stats["families"][0]["name"], "default");
    assert_eq!(stats["recovery"]["clean"], true);
    let text = w.run_ok(&["stats", "db", "--all"]);
    assert!(text.contains("recovery") && text.contains("wal_syncs"), "{text}");
    let levels = &w.run_json(&["levels", "db", "--files"])[0];
    assert_eq!(levels["files"][0]["entries"], 4, "{levels}");
    assert_eq!(levels["files"][0]["first_key"], "12:31");
    let text = w.run_ok(&["levels", "db", "--files"]);
    assert!(text.contains(".klog") && text.contains("moon/phase"), "{text}");
    let text = w.run_ok(&["verify", "db"]);
    assert!(text.starts_with("ok: every byte is as it was written"), "{text}");
    let verify = &w.run_json(&["verify", "db"])[0];
    assert_eq!(verify["ok"], true);
    assert!(verify["bytes"].as_u64().unwrap() > 0);
    assert!(w.run_json(&["compact", "db"])[0]["bytes_after"].is_u64());
    assert!(w.run_json(&["compact", "db", "--range", "a", "-"])[0]["bytes_after"].is_u64());
    assert!(w.run_ok(&["purge", "db"]).starts_with("purged: "));
    assert!(w.run_ok(&["metrics", "db"]).ends_with("# EOF\n"));
    assert!(w.run_json(&["stats", "db", "--all"])[0]["latency"]["get"]["one_in"].is_u64());
    assert_eq!(w.run_json(&["count", "db"])[0]["count"], 4);
}

#[test]
fn every_command_prints_json() {
    let w = TestDir::new();
    w.write("in/a", b"1");
    let entries = |v: &serde_json::Value| v["imported"]["entries"].as_u64();
    assert_eq!(entries(w.run_json(&["import", "db", "in"]).last().unwrap()), Some(1));
    assert_eq!(w.run_json(&["put", "db", "k", "v"])[0]["put"], "k");
    assert_eq!(w.run_json(&["get", "db", "k"])[0]["value"], "v");
    assert_eq!(w.run_json(&["delete", "db", "k"])[0]["existed"], true);
    assert_eq!(w.run_json(&["delete", "db", "k"])[0]["existed"], false);
    assert_eq!(w.run_json(&["export", "db", "out"])[0]["exported"]["entries"], 1);
    assert_eq!(w.run_json(&["export", "db"])[0]["key"], "a");
    assert!(!w.run_json(&["dump", "db"])[0]["files"].as_array().unwrap().is_empty());
}

#[test]
fn closed_output_pipe_is_not_an_error() {
    let w = TestDir::new();
    let rows: String =
        (0..50_000).map(|i| format!("{{\"id\":{i},\"text\":\"some text\"}}\n")).collect();
    w.write("rows.jsonl", rows.as_bytes());
    w.run_ok(&["import", "db", "rows.jsonl"]);
    let mut child = w
        .command()
        .args(["scan", "db"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    drop(stdout);
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(stderr, "");
    assert!(first.starts_with("0\t"), "{first}");
}

#[test]
fn help_has_examples_for_every_command() {
    let w = TestDir::new();
    let help = w.run_ok(&["--help"]);
    assert!(help.contains("Examples:") && help.contains("Exit codes:"));
    for command in [
        "import", "export", "get", "put", "delete", "scan", "count", "families", "stats", "levels",
        "verify", "dump", "compact", "purge", "metrics", "explain", "sst", "manifest", "demo",
    ] {
        assert!(help.contains(command), "{command}");
        let own = w.run_ok(&[command, "--help"]);
        assert!(own.contains("Examples:") && own.contains(&format!("perigee {command}")), "{own}");
    }
    assert!(w.run_ok(&["--version"]).starts_with("perigee "));
}

#[test]
fn no_control_character_reaches_the_terminal() {
    let w = TestDir::new();
    let input = "a\u{9b}31m\u{7f}\u{85}\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\
                 \u{2066}\u{2069}\u{2028}\u{2029}z";
    w.run_ok(&["put", "db", input, input]);
    w.run_ok(&["families", "db", "--create", input]);
    let lines: [&[&str]; 9] = [
        &["scan", "db", "--json"],
        &["scan", "db", "--values"],
        &["get", "db", input, "--json"],
        &["export", "db"],
        &["export", "db", "--format", "csv"],
        &["families", "db", "--json"],
        &["families", "db"],
        &["stats", "db", "--json"],
        &["options", "db"],
    ];
    for args in lines {
        let text = w.run_ok(args);
        let bad = |c: &char| input.contains(*c) && !c.is_ascii_graphic();
        assert_eq!(text.chars().find(bad), None, "{args:?}: {text:?}");
    }
    let entry = &w.run_json(&["scan", "db"])[0];
    assert_eq!(
        (entry["key"].as_str(), entry["value"].as_str()),
        (Some(input), Some(input)),
        "nothing is lost"
    );
    let e = w.run_failing(1, "no such key", &["get", "db", &input.replace('z', "y")]);
    assert_eq!(e["kind"], "key not found");
}

#[test]
fn human_sizes_and_durations_are_accepted() {
    let w = TestDir::new();
    w.run_ok(&["put", "db", "k", "v", "--ttl", "3600"]);
    w.run_ok(&["put", "db", "k", "v", "--ttl", "1h"]);
    w.run_ok(&["put", "db", "k", "v", "--ttl", "7 d"]);
    w.run_failing(2, "duration", &["put", "db", "k", "v", "--ttl", "soon"]);
    w.write("in/a", b"1");
    for (size, durability) in
        [("64k", "interval:100ms"), ("64 KiB", "interval 100 ms"), ("64kB", "interval 1m")]
    {
        w.run_ok(&["import", "db", "in", "--batch-bytes", size, "--durability", durability]);
    }
    w.run_failing(2, "is not a size", &["import", "db", "in", "--batch-bytes", "64 apples"]);
    w.write(
        "perigee.toml",
        b"[family.default]\nmemtable_bytes = \"8m\"\nblock_bytes = \"4 KiB\"\n",
    );
    w.run_ok(&["options", "db", "--apply", "perigee.toml"]);
    assert!(w.run_ok(&["options", "db"]).contains("8 MiB"));
}
