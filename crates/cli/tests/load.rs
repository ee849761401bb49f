//! `perigee load`: reads the same inputs as `import`, atomically.
#![allow(clippy::unwrap_used)]

use crate::common::TestDir;

#[test]
fn load_and_import_give_the_same_entries() {
    let w = TestDir::new();
    let lines: String = (0..3000u64)
        .map(|i| format!("{{\"id\":\"{:05}\",\"n\":{i}}}\n", i * 7919 % 2500))
        .collect();
    let file = w.write("rows.jsonl", lines.as_bytes());
    let file = file.to_str().unwrap();
    w.run_ok(&["import", "imported", file]);
    let summary = w.run_json(&["load", "loaded", file, "--memory", "10KiB"]);
    assert_eq!(summary[0]["loaded"]["entries"], 3000);
    assert_eq!(w.run_ok(&["scan", "imported"]), w.run_ok(&["scan", "loaded"]));
    assert!(
        w.run_ok(&["load", "loaded", file, "--prefix", "x/"]).starts_with("loaded 3,000 entries")
    );
    assert_eq!(w.run_ok(&["count", "loaded"]).trim(), "5000");
    w.run_ok(&["verify", "loaded"]);
    let csv = w.write("a.csv", b"id,name\n2,two\n1,one\n");
    w.run_ok(&["load", "loaded", csv.to_str().unwrap(), "--family", "rows"]);
    assert_eq!(w.run_ok(&["count", "loaded", "--family", "rows"]).trim(), "2");
}

#[test]
fn strict_load_with_a_bad_row_loads_nothing() {
    let w = TestDir::new();
    let file = w.write("bad.jsonl", b"{\"id\":\"a\"}\nnonsense\n{\"id\":\"b\"}\n");
    let file = file.to_str().unwrap();
    w.run_failing(2, "import", &["load", "db", file, "--strict"]);
    assert_eq!(w.run_ok(&["count", "db"]).trim(), "0");
    assert!(w.run_ok(&["load", "db", file]).contains("skipped: 1 failed"));
    assert_eq!(w.run_ok(&["count", "db"]).trim(), "2");
}
