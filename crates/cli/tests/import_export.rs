//! Import and export: trees, CSV, TSV, JSON lines, hostile keys.
#![allow(clippy::unwrap_used)]

use crate::common::TestDir;
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Returns every file below a directory.
fn read_tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut dirs = vec![root.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
            } else if entry.file_type().unwrap().is_file() {
                let name = entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, std::fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

fn make_sample(w: &TestDir) {
    for i in 0..300usize {
        let bytes: Vec<u8> = (0..i * i).map(|n| (n * 31 + i) as u8).collect();
        w.write(&format!("in/d{}/s{}/file {i}.bin", i % 7, i % 3), &bytes);
    }
    w.write("in/empty", b"");
    w.write("in/ümlaut/潮.txt", "Flut".as_bytes());
    w.write("in/large", &vec![7; 3 << 20]);
}

#[test]
fn tree_import_and_export_round_trip() {
    let w = TestDir::new();
    make_sample(&w);
    let text = w.run_ok(&["import", "db", "in"]);
    assert!(text.starts_with("imported 303 entries"), "{text}");
    assert_eq!(w.run_ok(&["count", "db"]), "303\n");
    let text = w.run_ok(&["export", "db", "out"]);
    assert!(text.starts_with("exported 303 entries"), "{text}");
    assert!(read_tree(&w.path("in")) == read_tree(&w.path("out")), "the trees differ");
    w.run_ok(&["verify", "db"]);
    w.run_failing(2, "not empty", &["export", "db", "out"]);
    w.run_ok(&["export", "db", "part", "--prefix", "d1/"]);
    assert!(read_tree(&w.path("part")).keys().all(|k| k.starts_with("d1/")));
}

#[test]
fn import_writes_a_trace() {
    let w = TestDir::new();
    w.write("in/moon", b"full");
    w.write("in/sea", b"high tide");
    w.run_ok(&["import", "db", "in", "--trace", "first.jsonl"]);
    w.run_ok(&["import", "db", "in", "--trace", "again.jsonl", "--skip-existing"]);
    let lines = |name: &str| {
        let text = std::fs::read_to_string(w.path(name)).unwrap();
        text.lines()
            .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap())
            .collect::<Vec<_>>()
    };
    let first = lines("first.jsonl");
    assert_eq!((first.len(), &first[0]["op"], &first[0]["n"]), (3, &"batch".into(), &2.into()));
    assert!(first.iter().any(|l| l["op"] == "put" && l["key"] == "736561" && l["bytes"] == 9));
    assert!(lines("again.jsonl").iter().all(|l| l["op"] == "get"));
    w.run_failing(2, "nowhere", &["import", "db", "in", "--trace", "nowhere/t.jsonl"]);
}

#[test]
fn repeated_import_changes_nothing() {
    let w = TestDir::new();
    make_sample(&w);
    w.run_ok(&["import", "db", "in", "--durability", "full"]);
    w.run_ok(&["import", "db", "in", "--durability", "interval:10ms"]);
    assert_eq!(w.run_ok(&["count", "db"]), "303\n");
    let summary = &w.run_json(&["import", "db", "in", "--skip-existing"])[0]["imported"];
    assert_eq!(summary["existing_keys"], 303);
    assert_eq!(summary["entries"], 0);
}

#[test]
fn names_and_prefixes_are_prepended() {
    let w = TestDir::new();
    w.write("one/a", b"1");
    w.write("two/a", b"2");
    w.run_ok(&["import", "db", "one", "two/", "--with-name", "--prefix", "v1:"]);
    assert_eq!(w.run_ok(&["scan", "db"]), "v1:one/a\t1\nv1:two/a\t2\n");
    w.run_ok(&["import", "db", "one/a", "--format", "tree", "--family", "single"]);
    assert_eq!(w.run_ok(&["scan", "db", "--family", "single"]), "a\t1\n");
}

#[test]
fn links_and_pipes_are_counted_not_followed() {
    let w = TestDir::new();
    w.write("in/a", b"1");
    w.write("secret", b"2");
    symlink(w.path("secret"), w.path("in/link")).unwrap();
    symlink(w.path("in"), w.path("in/loop")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(w.path("in/pipe")).status().unwrap();
    assert!(made.success());
    let summary = &w.run_json(&["import", "db", "in"])[0]["imported"];
    assert_eq!(
        (&summary["entries"], &summary["links"], &summary["special_files"]),
        (&1.into(), &2.into(), &1.into())
    );
    assert_eq!(w.run_ok(&["count", "db"]), "1\n");
}

#[test]
fn unreadable_files_are_counted_or_fail_strict_import() {
    let w = TestDir::new();
    w.write("in/a", b"1");
    let hidden = w.write("in/b", b"2");
    w.write("in/c", b"3");
    std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::read(&hidden).is_ok() {
        return; // root reads everything
    }
    let run = w.run(&["import", "db", "in"]);
    assert_eq!(run.code, 0);
    assert!(run.stderr.contains("skipped: "), "{}", run.stderr);
    assert_eq!(w.run_ok(&["count", "db"]), "2\n");
    w.run_failing(2, "not imported", &["import", "db2", "in", "--strict"]);
}

#[test]
fn sparse_file_over_the_limit_is_skipped() {
    let w = TestDir::new();
    w.write("in/a", b"1");
    let file = std::fs::File::create(w.path("in/huge")).unwrap();
    file.set_len((1 << 30) + 1).unwrap();
    let run = w.run(&["import", "db", "in", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let summary: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(summary["imported"]["too_large"], 1);
    assert!(
        run.stderr.contains("huge") && run.stderr.contains("larger than 1.0 GiB"),
        "{}",
        run.stderr
    );
    assert_eq!(w.run_ok(&["count", "db"]), "1\n");
}

#[test]
fn csv_and_tsv_rows_become_objects() {
    let w = TestDir::new();
    w.write(
        "people.csv",
        "name,email,note\nAda,ada@x.org,\"says \"\"hi\"\", twice\"\nBob,bob@x.org,\"two\nlines\"\n"
            .as_bytes(),
    );
    w.run_ok(&["import", "db", "people.csv", "--key", "email"]);
    let row = w.run_ok(&["get", "db", "ada@x.org"]);
    assert_eq!(row, r#"{"name":"Ada","email":"ada@x.org","note":"says \"hi\", twice"}"#);
    assert_eq!(w.run_ok(&["count", "db"]), "2\n");
    w.write("people.tsv", b"name\tage\nAda\t36\n");
    w.run_ok(&["import", "db", "people.tsv", "--prefix", "age:"]);
    assert_eq!(w.run_ok(&["get", "db", "age:Ada"]), r#"{"name":"Ada","age":"36"}"#);
    w.run_failing(
        2,
        "there is no column \"city\"",
        &["import", "db", "people.csv", "--key", "city"],
    );
    // A row with the wrong number of cells is counted as failed; the others are imported.
    w.write("bad.csv", b"id,x\n1,a\n2\n3,c\n");
    let run = w.run(&["import", "bad", "bad.csv", "--json"]);
    assert_eq!(run.code, 0);
    let summary: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(
        (&summary["imported"]["entries"], &summary["imported"]["failed"]),
        (&2.into(), &1.into())
    );
    assert!(run.stderr.contains("bad.csv line 3"), "{}", run.stderr);
    w.run_failing(2, "line 3", &["import", "bad2", "bad.csv", "--strict"]);
}

#[test]
fn json_lines_keep_the_line_unchanged() {
    let w = TestDir::new();
    let line = r#"{"id": 12345678901234567890, "x": 1.10}"#;
    w.write(
        "rows.jsonl",
        format!("{line}\n\n{{\"key\":\"k\"}}\nnonsense\n{{\"other\":1}}\n").as_bytes(),
    );
    let run = w.run(&["import", "db", "rows.jsonl"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("line 4") && run.stderr.contains("line 5"), "{}", run.stderr);
    assert_eq!(w.run_ok(&["get", "db", "12345678901234567890"]), line);
    assert_eq!(w.run_ok(&["get", "db", "k"]), "{\"key\":\"k\"}");
    let run =
        w.run_with(&["import", "db", "-", "--format", "jsonl", "--key", "n"], b"{\"n\":\"stdin\"}");
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(w.run_ok(&["get", "db", "stdin"]), "{\"n\":\"stdin\"}");
    w.run_failing(2, "--format", &["import", "db", "-"]);
    w.write("what.bin", b"?");
    w.run_failing(2, "extension", &["import", "db", "what.bin"]);
    w.run_failing(2, "nothing.csv", &["import", "db", "nothing.csv"]);
}

/// Keys that must never become paths, or that collide with another key.
const HOSTILE: [&str; 9] =
    ["/etc/cron.d/x", "../up", "a/../../up", "..", "a//b", "dir/", "nul\\0byte", ".", "file/below"];

#[test]
fn unsafe_keys_stay_inside_the_target() {
    let w = TestDir::new();
    for key in HOSTILE {
        w.run_ok(&["put", "db", "--escaped", key, "bad"]);
    }
    w.run_ok(&["put", "db", "file", "good"]);
    w.run_ok(&["put", "db", "deep/inside/x", "good"]);
    let run = w.run(&["export", "db", "out", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let value: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(
        (&value["exported"]["entries"], &value["exported"]["refused"]),
        (&2.into(), &9.into())
    );
    assert!(run.stderr.contains("refused: "), "{}", run.stderr);
    let files = read_tree(&w.path("out"));
    assert_eq!(files.keys().collect::<Vec<_>>(), ["deep/inside/x", "file"]);
    assert!(!w.path("up").exists());
    w.run_failing(2, "cannot become a file", &["export", "db", "out2", "--strict"]);
}

#[test]
fn json_lines_round_trip_every_key() {
    let w = TestDir::new();
    for key in HOSTILE {
        w.run_ok(&["put", "db", "--escaped", key, "value"]);
    }
    w.run_ok(&["put", "db", "--hex", "ff00", ""]);
    assert_eq!(w.run_with(&["put", "db", "bytes", "-"], &[0xff, 0, 1]).code, 0);
    w.run_ok(&["export", "db", "all.jsonl"]);
    w.run_failing(2, "already exists", &["export", "db", "all.jsonl"]);
    w.run_ok(&["import", "copy", "all.jsonl", "--format", "entries"]);
    assert_eq!(w.run_ok(&["export", "copy"]), w.run_ok(&["export", "db"]));
    assert_eq!(w.run_ok(&["export", "db"]), std::fs::read_to_string(w.path("all.jsonl")).unwrap());
    w.run_ok(&["export", "db", "all.csv"]);
    let csv = std::fs::read_to_string(w.path("all.csv")).unwrap();
    assert!(csv.starts_with("key,value\n") && csv.contains("\\xff\\x00,\n"), "{csv}");
}

#[test]
fn duplicate_column_is_rejected() {
    let w = TestDir::new();
    w.write("twice.csv", b"id,name,name\n1,first,second\n");
    let e = w.run_failing(2, "twice.csv", &["import", "db", "twice.csv"]);
    assert!(e["message"].as_str().unwrap().contains("\"name\""), "{e}");
    w.write("twice.tsv", b"id\tid\n1\t2\n");
    w.run_failing(2, "\"id\"", &["load", "db", "twice.tsv"]);
    assert_eq!(w.run_ok(&["count", "db"]), "0\n");
}

/// Regression test: a line of 300 MB used 1.15 GB of memory.
#[test]
fn huge_cell_needs_at_most_two_copies() {
    const BYTES: usize = 48 << 20;
    let w = TestDir::new();
    let text = "abcdefghij\t".repeat(BYTES / 11);
    let quoted = text.replace('\t', "\\t");
    w.write("cell.csv", format!("id,text\ncsv,{text}\n").as_bytes());
    w.write("row.jsonl", format!("{{\"id\":\"row\",\"text\":\"{quoted}\"}}\n").as_bytes());
    w.write(
        "escaped.jsonl",
        format!("{{\"key\":\"escaped\",\"value\":\"{quoted}\"}}\n").as_bytes(),
    );
    let plain = text.replace('\t', " ");
    w.write("plain.jsonl", format!("{{\"key\":\"plain\",\"value\":\"{plain}\"}}\n").as_bytes());
    let runs: [&[&str]; 4] = [
        &["import", "db", "cell.csv"],
        &["import", "db", "row.jsonl"],
        &["import", "db", "escaped.jsonl", "--format", "entries"],
        &["import", "db", "plain.jsonl", "--format", "entries"],
    ];
    for args in runs {
        let done = w.run_json(args).pop().unwrap();
        assert_eq!(done["imported"]["entries"], 1, "{args:?}: {done}");
        let Some(peak) = done["imported"]["process"]["peak_memory_bytes"].as_u64() else {
            return println!("skipped: the system does not report the peak memory of a process");
        };
        // The escaped line is a tenth longer than the text.
        let limit = quoted.len() as u64 * 2 + (24 << 20);
        assert!(peak < limit, "{args:?}: {} MiB for {} MiB", peak >> 20, quoted.len() >> 20);
    }
    let value = w.run(&["get", "db", "escaped"]).stdout;
    assert!(value == text.as_bytes());
    let value = w.run(&["get", "db", "csv"]).stdout;
    assert!(value == format!("{{\"id\":\"csv\",\"text\":\"{quoted}\"}}").as_bytes());
}
