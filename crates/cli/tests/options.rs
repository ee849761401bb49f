//! `perigee options`: shows options as text, JSON and TOML, and stores options from a file.
#![allow(clippy::unwrap_used)]

use crate::common::TestDir;

#[test]
fn options_are_shown_saved_and_applied() {
    let w = TestDir::new();
    w.run_ok(&["put", "db", "key", "value"]);
    let text = w.run_ok(&["options", "db"]);
    for part in ["column family default", "memtable_bytes", "64 MiB", "trade-off", "compaction"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let toml = w.run_ok(&["options", "db", "--toml"]);
    assert!(
        toml.contains("read_only = false") && toml.contains("create_if_missing = true"),
        "contains how the tool opened the database: {toml}"
    );
    w.write(
        "perigee.toml",
        toml.replace("compression = \"lz4\"", "compression = \"zstd 5\"").as_bytes(),
    );
    let text = w.run_ok(&["options", "db", "--apply", "perigee.toml"]);
    assert!(text.contains("changed default: compression: Lz4 -> Zstd(5)"), "{text}");
    let document = &w.run_json(&["options", "db"])[0];
    let all = document["families"]["default"].as_array().unwrap();
    let compression = all.iter().find(|o| o["name"] == "compression").unwrap();
    assert_eq!(compression["value"], "zstd 5");
    assert_eq!(compression["default"], "lz4");
    assert_eq!(w.run_ok(&["get", "db", "key"]).trim(), "value");
}

#[test]
fn bad_option_files_are_refused_with_a_suggestion() {
    let w = TestDir::new();
    w.run_ok(&["put", "db", "key", "value"]);
    w.write("bad.toml", b"[family.default]\ncompresion = \"lz4\"\n");
    w.run_failing(2, "did you mean", &["options", "db", "--apply", "bad.toml"]);
    w.write("bad.toml", b"[family.default]\ncomparator = \"reverse\"\n");
    w.run_failing(2, "comparator", &["options", "db", "--apply", "bad.toml"]);
    w.run_failing(2, "bad2.toml", &["options", "db", "--apply", "bad2.toml"]);
    w.write("empty.toml", b"");
    w.run_failing(2, "does not exist", &["options", "nowhere", "--apply", "empty.toml"]);
}
