//! Checkpoint, backup, restore through the tool.
#![allow(clippy::unwrap_used)]

mod common;

use common::World;

#[test]
fn backups_come_back_and_say_when_they_are_damaged() {
    let w = World::new();
    w.ok(&["put", "db", "moon", "full"]);
    w.ok(&["compact", "db"]);
    assert_eq!(w.json(&["backup", "create", "db", "b", "--reread"])[0]["generation"], 1);
    w.ok(&["put", "db", "moon", "new"]);
    let second = &w.json(&["backup", "create", "db", "b"])[0];
    assert_eq!((second["generation"].as_u64(), second["shared_files"].as_u64()), (Some(2), Some(1)));
    assert!(w.ok(&["backup", "list", "b"]).contains("UTC"));
    assert!(w.ok(&["backup", "verify", "b"]).starts_with("ok:"));
    w.ok(&["restore", "b", "old", "--generation", "1"]);
    assert_eq!(w.ok(&["get", "old", "moon"]).trim_end(), "full");
    w.ok(&["restore", "b", "new"]);
    assert_eq!(w.ok(&["get", "new", "moon"]).trim_end(), "new");
    w.fails(2, "not empty", &["restore", "b", "new"]);
    w.fails(2, "no generation 9", &["restore", "b", "x", "--generation", "9"]);
    w.fails(2, "at least one generation", &["backup", "prune", "b", "--keep", "0"]);
    w.fails(2, "is a database", &["backup", "list", "db"]);
    assert_eq!(w.json(&["backup", "prune", "b", "--keep", "1"])[0]["removed"][0], 1);
    let klog = w.names("b").into_iter().find(|n| n.ends_with(".klog")).unwrap();
    w.flip(&format!("b/{klog}"), 100);
    let run = w.run(&["backup", "verify", "b"]);
    assert_eq!(run.code, 3);
    w.fails(3, "restore another generation", &["restore", "b", "y"]);
    assert!(!w.path("y").exists());
}

#[test]
fn a_checkpoint_is_a_database() {
    let w = World::new();
    w.ok(&["put", "db", "moon", "full"]);
    w.ok(&["checkpoint", "db", "copy"]);
    w.ok(&["put", "db", "moon", "new"]);
    assert_eq!(w.ok(&["get", "copy", "moon"]).trim_end(), "full");
    w.fails(2, "not empty", &["checkpoint", "db", "copy"]);
    w.fails(2, "there is nothing at nowhere", &["checkpoint", "nowhere", "copy2"]);
}

#[test]
fn repair_says_what_was_lost_and_leaves_the_source_alone() {
    let w = World::new();
    w.ok(&["put", "db", "moon", "full"]);
    let report = &w.json(&["repair", "db", "same"])[0];
    assert_eq!(report["lost"].as_array().unwrap().len(), 0);
    assert_eq!(w.ok(&["scan", "db"]), w.ok(&["scan", "same"]));
    std::fs::remove_file(w.path("db/MANIFEST")).unwrap();
    let before = w.names("db");
    let run = w.run(&["repair", "db", "mended"]);
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(run.code == 3 && text.contains("lost: ") && text.contains("warning: "), "{text}");
    assert_eq!(w.names("db"), before);
    assert_eq!(w.ok(&["get", "mended", "moon"]).trim_end(), "full");
    w.fails(2, "not empty", &["repair", "db", "mended"]);
}
