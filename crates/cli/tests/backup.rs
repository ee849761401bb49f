//! `perigee checkpoint`, `backup`, `restore` and `repair`.
#![allow(clippy::unwrap_used)]

use crate::common::TestDir;

#[test]
fn backups_restore_and_report_damage() {
    let w = TestDir::new();
    w.run_ok(&["put", "db", "moon", "full"]);
    w.run_ok(&["compact", "db"]);
    assert_eq!(w.run_json(&["backup", "create", "db", "b", "--reread"])[0]["generation"], 1);
    w.run_ok(&["put", "db", "moon", "new"]);
    let second = &w.run_json(&["backup", "create", "db", "b"])[0];
    assert_eq!(
        (second["generation"].as_u64(), second["shared_files"].as_u64()),
        (Some(2), Some(1))
    );
    assert!(w.run_ok(&["backup", "list", "b"]).contains("UTC"));
    assert!(w.run_ok(&["backup", "verify", "b"]).starts_with("ok:"));
    w.run_ok(&["restore", "b", "old", "--generation", "1"]);
    assert_eq!(w.run_ok(&["get", "old", "moon"]).trim_end(), "full");
    w.run_ok(&["restore", "b", "new"]);
    assert_eq!(w.run_ok(&["get", "new", "moon"]).trim_end(), "new");
    w.run_failing(2, "not empty", &["restore", "b", "new"]);
    w.run_failing(2, "no generation 9", &["restore", "b", "x", "--generation", "9"]);
    w.run_failing(2, "at least one generation", &["backup", "prune", "b", "--keep", "0"]);
    w.run_failing(2, "is a database", &["backup", "list", "db"]);
    assert_eq!(w.run_json(&["backup", "prune", "b", "--keep", "1"])[0]["removed"][0], 1);
    let klog = w.file_names("b").into_iter().find(|n| n.ends_with(".klog")).unwrap();
    w.flip_bit(&format!("b/{klog}"), 100);
    let run = w.run(&["backup", "verify", "b"]);
    assert_eq!(run.code, 3);
    w.run_failing(3, "restore another generation", &["restore", "b", "y"]);
    assert!(!w.path("y").exists());
}

#[test]
fn checkpoint_opens_as_a_database() {
    let w = TestDir::new();
    w.run_ok(&["put", "db", "moon", "full"]);
    w.run_ok(&["checkpoint", "db", "copy"]);
    w.run_ok(&["put", "db", "moon", "new"]);
    assert_eq!(w.run_ok(&["get", "copy", "moon"]).trim_end(), "full");
    w.run_failing(2, "not empty", &["checkpoint", "db", "copy"]);
    w.run_failing(2, "nowhere does not exist", &["checkpoint", "nowhere", "copy2"]);
}

#[test]
fn repair_reports_losses_and_keeps_the_source() {
    let w = TestDir::new();
    w.run_ok(&["put", "db", "moon", "full"]);
    let report = &w.run_json(&["repair", "db", "same"])[0];
    assert_eq!(report["lost"].as_array().unwrap().len(), 0);
    assert_eq!(w.run_ok(&["scan", "db"]), w.run_ok(&["scan", "same"]));
    std::fs::remove_file(w.path("db/MANIFEST")).unwrap();
    let before = w.file_names("db");
    let run = w.run(&["repair", "db", "repaired"]);
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(run.code == 3 && text.contains("lost: ") && text.contains("warning: "), "{text}");
    assert_eq!(w.file_names("db"), before);
    assert_eq!(w.run_ok(&["get", "repaired", "moon"]).trim_end(), "full");
    w.run_failing(2, "not empty", &["repair", "db", "repaired"]);
}
