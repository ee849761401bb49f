//! `perigee dump` of every kind of file: intact, damaged and truncated.
#![allow(clippy::unwrap_used)]

use crate::common::TestDir;
use perigee::{Db, FamilyOptions, Options};

/// Creates a database with a log, a manifest, a klog and a vlog, and tables with several blocks.
fn make_database(w: &TestDir) {
    let options =
        Options::new().default_family(FamilyOptions::new().value_threshold(512).block_bytes(1024));
    let db = Db::open(w.path("db"), options).unwrap();
    for i in 0..500 {
        let value = if i % 50 == 0 { vec![b'v'; 2000] } else { format!("value {i}").into_bytes() };
        db.put(format!("key{i:04}"), value).unwrap();
    }
    db.delete("key0003").unwrap();
    db.admin().flush().unwrap();
    db.put("in the log", "only").unwrap();
    db.delete("key0004").unwrap();
    db.close().unwrap();
}

fn file_with_extension(w: &TestDir, extension: &str) -> String {
    w.file_names("db").into_iter().rfind(|n| n.ends_with(extension)).unwrap()
}

#[test]
fn every_kind_of_file_is_decoded() {
    let w = TestDir::new();
    make_database(&w);
    let klog = file_with_extension(&w, ".klog");
    let text = w.run_ok(&["dump", "db", &klog]);
    for part in [
        "header",
        "data block",
        "put key0001\tvalue 1",
        "delete key0003",
        "-> vlog",
        "filter",
        "index",
        "properties",
        "footer",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(text.ends_with(" entries\n"), "{text}");
    let number: u64 = klog.trim_end_matches(".klog").parse().unwrap();
    assert_eq!(
        w.run_ok(&["dump", "db", &number.to_string()]),
        text,
        "the file id selects the same file"
    );
    let text = w.run_ok(&["dump", "db", &file_with_extension(&w, ".vlog")]);
    assert!(text.contains("value chunk") && text.contains("vvvv"), "{text}");
    let text = w.run_ok(&["dump", "db", "MANIFEST"]);
    assert!(
        text.contains("snapshot") && text.contains("family added") && text.contains("name default"),
        "{text}"
    );
}

#[test]
fn log_dump_lists_operations() {
    let w = TestDir::new();
    make_database(&w);
    let logs: Vec<String> =
        w.file_names("db").into_iter().filter(|n| n.ends_with(".wal")).collect();
    let text: String = logs.iter().map(|name| w.run_ok(&["dump", "db", name])).collect();
    assert!(text.contains("put in the log\tonly") && text.contains("delete key0004"), "{text}");
    assert!(text.contains("batch") && text.contains("clean close"), "{text}");
}

#[test]
fn json_lines_parse_and_limits_hold() {
    let w = TestDir::new();
    make_database(&w);
    let klog = file_with_extension(&w, ".klog");
    for name in w
        .file_names("db")
        .iter()
        .filter(|n| !["LOCK", "LOG", "trash", "BALLAST"].contains(&n.as_str()))
    {
        let lines = w.run_json(&["dump", "db", name]);
        assert!(!lines.last().unwrap()["end"].is_null(), "{name}");
    }
    let entries = |args: &[&str]| w.run_json(args).iter().filter(|l| l["seq"].is_u64()).count();
    assert_eq!(entries(&["dump", "db", &klog, "--limit", "7"]), 7);
    assert!(entries(&["dump", "db", &klog]) >= 500);
    let with = w.run_json(&["dump", "db", &klog, "--values"]);
    assert!(with.iter().any(|l| l["value"] == "value 1"));
}

#[test]
fn dump_continues_past_damage() {
    let w = TestDir::new();
    make_database(&w);
    for name in [file_with_extension(&w, ".klog"), file_with_extension(&w, ".vlog")] {
        let whole = w.run_json(&["dump", "db", &name]).len();
        w.flip_bit(&format!("db/{name}"), 300);
        let run = w.run(&["dump", "db", &name, "--json"]);
        assert_eq!(run.code, 3, "{name}: {}", run.stderr);
        let text = String::from_utf8(run.stdout).unwrap();
        assert!(text.contains("\"damage\":"), "{text}");
        let lost = whole - text.lines().count().min(whole);
        assert!(lost < whole / 2, "{name}: of {whole} lines {lost} were lost to one bit");
    }
}

#[test]
fn truncated_and_overwritten_files_are_dumped() {
    let w = TestDir::new();
    make_database(&w);
    for name in w
        .file_names("db")
        .iter()
        .filter(|n| !["LOCK", "LOG", "trash", "BALLAST"].contains(&n.as_str()))
    {
        let path = w.path("db").join(name);
        let bytes = std::fs::read(&path).unwrap();
        for cut in [0, 1, 71, 72, 73, 100, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..cut.min(bytes.len())]).unwrap();
            let code = w.run(&["dump", "db", name]).code;
            assert!(code == 0 || code == 3, "{name} cut to {cut}: {code}");
        }
        std::fs::write(&path, vec![0xa5; bytes.len()]).unwrap();
        assert_eq!(w.run(&["dump", "db", name]).code, 3, "{name} overwritten");
        std::fs::write(&path, &bytes).unwrap();
    }
    w.run_ok(&["verify", "db"]);
}

#[test]
fn non_database_files_are_refused() {
    let w = TestDir::new();
    make_database(&w);
    w.write("elsewhere", b"secret");
    for name in ["../elsewhere", "/etc/passwd", "LOCK", "999999", "000099.klog"] {
        w.run_failing(2, "there is no klog", &["dump", "db", name]);
    }
}

/// Returns the bytes of the example in a format page.
fn example(page: &str) -> Vec<u8> {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let block = text.split("```hex").nth(1).unwrap().split("```").next().unwrap();
    let digits: String =
        block.lines().flat_map(|l| l.split('#').next().unwrap().split_whitespace()).collect();
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
        .collect()
}

#[test]
fn format_page_examples_are_decoded() {
    let w = TestDir::new();
    w.write("db/000007.klog", &example("klog.md"));
    w.write("db/000010.vlog", &example("vlog.md"));
    let text = w.run_ok(&["dump", "db", "7"]);
    let wanted = [
        "@0 header: database 0x1122334455667788, file 7, A 2, B 0x0",
        "@72 data block: stored 45, raw 45, codec none, entries 3",
        "  12 put apple\tred",
        "  9 delete apple",
        "  10 put apricot\t-> vlog 10 at 72, 31 bytes stored, 7 bytes",
        "@141 filter: stored 40, raw 40, codec none, blocks 1",
        "@205 index: stored 21, raw 21, codec none, blocks 1",
        "  block: at 72, bytes 69, up to apricot",
        "@250 properties: stored 48, raw 48, codec none",
        "  vlogs: is [(file 10, bytes 31)]",
        "  comparator: is bytes",
        "@322 footer: filter (at 141, bytes 64), index (at 205, bytes 45), properties (at 250, bytes 72), \
         data blocks 1, entries 3, range bytes 0",
        "end: 3 entries",
    ];
    for line in wanted {
        assert!(text.lines().any(|l| l == line), "{line:?} is missing in:\n{text}");
    }
    let text = w.run_ok(&["dump", "db", "10", "--values"]);
    let chunk =
        format!("@103 value chunk: stored 12, raw 100, codec lz4, content {}", "z".repeat(100));
    assert!(text.lines().any(|l| l == chunk), "{text}");
    // A dump detects a flip of any bit of the klog.
    let good = example("klog.md");
    for bit in (0..good.len() * 8).step_by(37) {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        w.write("db/000007.klog", &bad);
        assert_eq!(w.run(&["dump", "db", "7"]).code, 3, "bit {bit}");
    }
}

#[test]
fn log_dump_lists_prepared_transactions() {
    let w = TestDir::new();
    let db = Db::open(w.path("db"), Options::new()).unwrap();
    for gid in ["first", "second"] {
        let txn = db.begin(perigee::TxnOptions::new()).unwrap();
        txn.put(&db.default_family(), gid, "value").unwrap();
        txn.prepare(gid).unwrap();
    }
    db.two_phase().commit("first").unwrap();
    db.two_phase().rollback("second").unwrap();
    db.close().unwrap();
    let text = w.run_ok(&["dump", "db", &file_with_extension(&w, ".wal")]);
    for part in [
        "prepare",
        "gid second",
        "operations 1",
        "decided",
        "decision commit",
        "decision rollback",
        "put first",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}
