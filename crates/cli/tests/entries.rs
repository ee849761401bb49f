//! One entry, many entries, families: put, get, delete, scan, count, families, compact, stats, levels, verify.
#![allow(clippy::unwrap_used)]

mod common;

use common::World;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

fn tides() -> World {
    let w = World::new();
    for (key, value) in
        [("06:12", "high"), ("12:31", "low"), ("18:40", "high"), ("moon", "full"), ("moon/phase", "14")]
    {
        w.ok(&["put", "db", key, value]);
    }
    w
}

#[test]
fn put_get_delete() {
    let w = tides();
    assert_eq!(w.ok(&["get", "db", "moon"]), "full");
    assert_eq!(w.ok(&["put", "db", "moon", "new"]), "");
    assert_eq!(w.ok(&["get", "db", "moon"]), "new");
    assert_eq!(w.ok(&["delete", "db", "moon"]), "");
    assert_eq!(w.run(&["get", "db", "moon"]).code, 1);
    assert_eq!(w.ok(&["delete", "db", "moon"]), "", "deleting twice is no error");
    assert_eq!(w.run(&["delete", "db", "moon", "--must-exist"]).code, 1);
    assert_eq!(w.ok(&["get", "db", "moon/phase"]), "14");
}

#[test]
fn ranges_prefixes_and_keys_that_end() {
    let w = tides();
    w.ok(&["delete", "db", "06", "--to", "18"]);
    assert_eq!(w.run(&["get", "db", "12:31"]).code, 1);
    assert_eq!(w.ok(&["get", "db", "18:40"]), "high");
    w.ok(&["delete", "db", "moon", "--prefix"]);
    assert_eq!(w.run(&["get", "db", "moon/phase"]).code, 1);
    w.ok(&["delete", "db", "18:40", "--single"]);
    assert_eq!(w.run(&["get", "db", "18:40"]).code, 1);
    w.ok(&["put", "db", "dew", "wet", "--ttl", "0"]);
    assert_eq!(w.run(&["get", "db", "dew"]).code, 1);
    w.ok(&["put", "db", "dew", "wet", "--ttl", "3600"]);
    assert_eq!(w.ok(&["get", "db", "dew"]), "wet");
    assert_ne!(w.run(&["delete", "db", "z", "--to", "a"]).code, 0);
}

#[test]
fn a_missing_key_exits_with_one() {
    let w = tides();
    let e = w.fails(1, "no such key: sun", &["get", "db", "sun"]);
    assert_eq!(e["kind"], "key not found");
    assert!(w.run(&["get", "db", "sun"]).stdout.is_empty());
}

#[test]
fn values_are_bytes() {
    let w = World::new();
    let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    assert_eq!(w.run_with(&["put", "db", "all", "-"], &all).code, 0);
    assert_eq!(w.run(&["get", "db", "all"]).stdout, all);
    w.ok(&["put", "db", "empty", ""]);
    assert_eq!(w.ok(&["get", "db", "empty"]), "");
    w.ok(&["put", "db", "minus", "-5"]);
    assert_eq!(w.ok(&["get", "db", "minus"]), "-5");
}

#[test]
fn keys_are_bytes() {
    let w = World::new();
    w.ok(&["put", "db", "--escaped", "a\\0b\\xff", "escaped"]);
    assert_eq!(w.ok(&["get", "db", "--hex", "610062ff"]), "escaped");
    let raw = [OsStr::new("put"), OsStr::new("db"), OsStr::from_bytes(b"\xfe"), OsStr::new("raw")];
    assert_eq!(w.run_os(&raw, b"").code, 0);
    assert_eq!(w.ok(&["get", "db", "--hex", "fe"]), "raw");
    assert_eq!(w.ok(&["scan", "db"]), "a\\x00b\\xff\tescaped\n\\xfe\traw\n");
    assert_eq!(w.ok(&["scan", "db", "--hex", "--keys-only"]), "610062ff\nfe\n");
    let lines = w.json(&["scan", "db"]);
    assert_eq!(lines[1], serde_json::json!({"key_base64": "/g==", "value": "raw"}));
    assert_eq!(w.ok(&["scan", "db", "--keys-only", "--hex", "--prefix", "6100"]), "610062ff\n");
}

#[test]
fn scans_go_both_ways_within_bounds() {
    let w = tides();
    let keys = |args: &[&str]| w.ok(&[&["scan", "db", "--keys-only"], args].concat());
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
    assert_eq!(w.ok(&["scan", "db", "--limit", "1"]), "06:12\thigh\n");
    w.fails(2, "--from", &["scan", "db", "--from", "b", "--to", "a"]);
    assert_eq!(w.ok(&["count", "db"]), "5\n");
    assert_eq!(w.ok(&["count", "db", "--prefix", "moon"]), "2\n");
}

#[test]
fn long_values_are_shortened_unless_asked_for() {
    let w = World::new();
    let long = "x".repeat(1000);
    w.ok(&["put", "db", "k", &long]);
    assert_eq!(w.ok(&["scan", "db"]), format!("k\t{}... (1000 bytes)\n", "x".repeat(64)));
    assert_eq!(w.ok(&["scan", "db", "--values"]), format!("k\t{long}\n"));
    assert_eq!(w.json(&["scan", "db"])[0]["value"], long);
}

#[test]
fn families_are_apart() {
    let w = tides();
    assert_eq!(w.ok(&["families", "db"]), "default\n");
    assert_eq!(w.ok(&["families", "db", "--create", "tides"]), "default\ntides\n");
    w.ok(&["put", "db", "k", "v", "--family", "tides"]);
    assert_eq!(w.ok(&["get", "db", "k", "--family", "tides"]), "v");
    assert_eq!(w.run(&["get", "db", "k"]).code, 1);
    assert_eq!(w.ok(&["count", "db", "--family", "tides"]), "1\n");
    assert_eq!(w.json(&["families", "db"])[0]["families"][1]["name"], "tides");
    w.ok(&["compact", "db", "--family", "tides"]);
    w.fails(2, "already", &["families", "db", "--create", "tides"]);
    assert_eq!(w.ok(&["families", "db", "--rename", "tides", "seas"]), "default\nseas\n");
    assert_eq!(w.ok(&["families", "db", "--clone", "seas", "tides"]), "default\nseas\ntides\n");
    w.ok(&["families", "db", "--clear", "seas"]);
    w.fails(2, "already", &["families", "db", "--rename", "seas", "tides"]);
    w.fails(2, "no family", &["families", "db", "--clone", "lakes", "x"]);
    assert_eq!(w.ok(&["families", "db", "--drop", "seas"]), "default\ntides\n");
    assert_eq!(w.ok(&["families", "db", "--drop", "tides"]), "default\n");
    w.fails(2, "tides", &["families", "db", "--drop", "tides"]);
    let e = w.fails(2, "no family called", &["get", "db", "k", "--family", "tides"]);
    assert_eq!(e["kind"], "not found");
    w.fails(2, "default", &["families", "db", "--drop", "default"]);
}

#[test]
fn the_state_is_shown() {
    let w = tides();
    w.ok(&["delete", "db", "06:12"]);
    let text = w.ok(&["compact", "db"]);
    assert!(text.starts_with("compacted: "), "{text}");
    let stats = &w.json(&["stats", "db", "--all"])[0];
    for field in ["counters", "families", "wal", "cache", "recovery", "memory"] {
        assert!(!stats[field].is_null(), "{field} is missing: {stats}");
    }
    assert_eq!(stats["families"][0]["name"], "default");
    assert_eq!(stats["recovery"]["clean"], true);
    let text = w.ok(&["stats", "db", "--all"]);
    assert!(text.contains("recovery") && text.contains("wal_syncs"), "{text}");
    let levels = &w.json(&["levels", "db", "--files"])[0];
    assert_eq!(levels["files"][0]["entries"], 4, "{levels}");
    assert_eq!(levels["files"][0]["first_key"], "12:31");
    let text = w.ok(&["levels", "db", "--files"]);
    assert!(text.contains(".klog") && text.contains("moon/phase"), "{text}");
    let text = w.ok(&["verify", "db"]);
    assert!(text.starts_with("ok: every byte is as it was written"), "{text}");
    let verify = &w.json(&["verify", "db"])[0];
    assert_eq!(verify["ok"], true);
    assert!(verify["bytes"].as_u64().unwrap() > 0);
    assert!(w.json(&["compact", "db"])[0]["bytes_after"].is_u64());
    assert!(w.json(&["compact", "db", "--range", "a", "-"])[0]["bytes_after"].is_u64());
    assert!(w.ok(&["purge", "db"]).starts_with("purged: "));
    assert!(w.ok(&["metrics", "db"]).ends_with("# EOF\n"));
    assert!(w.json(&["stats", "db", "--all"])[0]["latency"]["get"]["one_in"].is_u64());
    assert_eq!(w.json(&["count", "db"])[0]["count"], 4);
}

#[test]
fn every_command_speaks_json() {
    let w = World::new();
    w.write("in/a", b"1");
    let entries = |v: &serde_json::Value| v["imported"]["entries"].as_u64();
    assert_eq!(entries(w.json(&["import", "db", "in"]).last().unwrap()), Some(1));
    assert_eq!(w.json(&["put", "db", "k", "v"])[0]["put"], "k");
    assert_eq!(w.json(&["get", "db", "k"])[0]["value"], "v");
    assert_eq!(w.json(&["delete", "db", "k"])[0]["existed"], true);
    assert_eq!(w.json(&["delete", "db", "k"])[0]["existed"], false);
    assert_eq!(w.json(&["export", "db", "out"])[0]["exported"]["entries"], 1);
    assert_eq!(w.json(&["export", "db"])[0]["key"], "a");
    assert!(!w.json(&["dump", "db"])[0]["files"].as_array().unwrap().is_empty());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let w = World::new();
    let rows: String = (0..50_000).map(|i| format!("{{\"id\":{i},\"text\":\"some text\"}}\n")).collect();
    w.write("rows.jsonl", rows.as_bytes());
    w.ok(&["import", "db", "rows.jsonl"]);
    let mut child =
        w.command().args(["scan", "db"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
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
    let w = World::new();
    let help = w.ok(&["--help"]);
    assert!(help.contains("Examples:") && help.contains("Exit codes:"));
    for command in [
        "import", "export", "get", "put", "delete", "scan", "count", "families", "stats", "levels", "verify",
        "dump", "compact", "purge", "metrics", "explain", "sst", "manifest", "demo",
    ] {
        assert!(help.contains(command), "{command}");
        let own = w.ok(&[command, "--help"]);
        assert!(own.contains("Examples:") && own.contains(&format!("perigee {command}")), "{own}");
    }
    assert!(w.ok(&["--version"]).starts_with("perigee "));
}

#[test]
fn no_control_character_reaches_the_terminal() {
    let w = World::new();
    let strange =
        "a\u{9b}31m\u{7f}\u{85}\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}\u{2028}\u{2029}z";
    w.ok(&["put", "db", strange, strange]);
    w.ok(&["families", "db", "--create", strange]);
    let lines: [&[&str]; 9] = [
        &["scan", "db", "--json"],
        &["scan", "db", "--values"],
        &["get", "db", strange, "--json"],
        &["export", "db"],
        &["export", "db", "--format", "csv"],
        &["families", "db", "--json"],
        &["families", "db"],
        &["stats", "db", "--json"],
        &["options", "db"],
    ];
    for args in lines {
        let text = w.ok(args);
        let bad = |c: &char| strange.contains(*c) && !c.is_ascii_graphic();
        assert_eq!(text.chars().find(bad), None, "{args:?}: {text:?}");
    }
    let entry = &w.json(&["scan", "db"])[0];
    assert_eq!(
        (entry["key"].as_str(), entry["value"].as_str()),
        (Some(strange), Some(strange)),
        "nothing is lost"
    );
    let e = w.fails(1, "no such key", &["get", "db", &strange.replace('z', "y")]);
    assert_eq!(e["kind"], "key not found");
}

#[test]
fn sizes_and_durations_are_written_as_people_like() {
    let w = World::new();
    w.ok(&["put", "db", "k", "v", "--ttl", "3600"]);
    w.ok(&["put", "db", "k", "v", "--ttl", "1h"]);
    w.ok(&["put", "db", "k", "v", "--ttl", "7 d"]);
    w.fails(2, "duration", &["put", "db", "k", "v", "--ttl", "soon"]);
    w.write("in/a", b"1");
    for (size, durability) in
        [("64k", "interval:100ms"), ("64 KiB", "interval 100 ms"), ("64kB", "interval 1m")]
    {
        w.ok(&["import", "db", "in", "--batch-bytes", size, "--durability", durability]);
    }
    w.fails(2, "is not a size", &["import", "db", "in", "--batch-bytes", "64 apples"]);
    w.write("perigee.toml", b"[family.default]\nmemtable_bytes = \"8m\"\nblock_bytes = \"4 KiB\"\n");
    w.ok(&["options", "db", "--apply", "perigee.toml"]);
    assert!(w.ok(&["options", "db"]).contains("8 MiB"));
}
