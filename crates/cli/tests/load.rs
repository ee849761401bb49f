//! `perigee load`: what `import` reads, all at once.
#![allow(clippy::unwrap_used)]

mod common;

use common::World;

#[test]
fn load_and_import_make_the_same_entries() {
    let w = World::new();
    let lines: String =
        (0..3000u64).map(|i| format!("{{\"id\":\"{:05}\",\"n\":{i}}}\n", i * 7919 % 2500)).collect();
    let file = w.write("rows.jsonl", lines.as_bytes());
    let file = file.to_str().unwrap();
    w.ok(&["import", "imported", file]);
    let summary = w.json(&["load", "loaded", file, "--memory", "10KiB"]);
    assert_eq!(summary[0]["loaded"]["entries"], 3000);
    assert_eq!(w.ok(&["scan", "imported"]), w.ok(&["scan", "loaded"]));
    assert!(w.ok(&["load", "loaded", file, "--prefix", "x/"]).starts_with("loaded 3,000 entries"));
    assert_eq!(w.ok(&["count", "loaded"]).trim(), "5000");
    w.ok(&["verify", "loaded"]);
    let csv = w.write("a.csv", b"id,name\n2,two\n1,one\n");
    w.ok(&["load", "loaded", csv.to_str().unwrap(), "--family", "rows"]);
    assert_eq!(w.ok(&["count", "loaded", "--family", "rows"]).trim(), "2");
}

#[test]
fn a_strict_load_with_a_bad_row_loads_nothing() {
    let w = World::new();
    let file = w.write("bad.jsonl", b"{\"id\":\"a\"}\nnonsense\n{\"id\":\"b\"}\n");
    let file = file.to_str().unwrap();
    w.fails(2, "import", &["load", "db", file, "--strict"]);
    assert_eq!(w.ok(&["count", "db"]).trim(), "0");
    assert!(w.ok(&["load", "db", file]).contains("left out: 1 failed"));
    assert_eq!(w.ok(&["count", "db"]).trim(), "2");
}
