//! Regression tests for faults found in reviews of merge operators.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, FamilyOptions, MergeRule, Options, repair_in};
use std::path::Path;
use std::sync::Arc;

fn encode(v: i64) -> [u8; 8] {
    v.to_le_bytes()
}

fn get_as_text(db: &Db, key: &str) -> String {
    match db.get(key) {
        Ok(Some(v)) => i64::from_le_bytes(v.try_into().unwrap()).to_string(),
        Ok(None) => "-".into(),
        Err(e) => format!("{e}"),
    }
}

fn counter_options() -> FamilyOptions {
    FamilyOptions::new().merge_operator(MergeRule::Counter)
}

/// Kills a database after `flushes` flushes and damages its manifest. Returns the counter before
/// the crash, the counter after a repair, and the warnings of the repair.
fn repair_without_manifest(
    flushes: u32,
    base: bool,
    compact: bool,
) -> (String, String, Vec<String>) {
    let disk = SimDisk::new(1);
    let env = |disk: &std::sync::Arc<SimDisk>| Env { fs: disk.clone(), ..Env::real() };
    let open =
        |disk, at: &str| Db::open(at, Options::in_env(env(disk)).default_family(counter_options()));
    let db = open(&disk, "/db").unwrap();
    if base {
        db.put("a", encode(100)).unwrap();
    }
    // An entry that is only in the log keeps the log.
    db.create_family("other", FamilyOptions::new()).unwrap().put("x", "y").unwrap();
    for round in 0..=flushes {
        for _ in 0..10 {
            db.default_family().merge("a", encode(1)).unwrap();
        }
        if round < flushes {
            db.default_family().flush().unwrap();
        }
    }
    let snapshot = db.snapshot().unwrap();
    if compact {
        db.default_family().compact().unwrap();
    }
    db.sync().unwrap();
    let before = get_as_text(&db, "a");
    let disk = disk.deep_clone();
    drop((snapshot, db));
    let mut bad = disk.read_raw(Path::new("/db/MANIFEST"));
    bad[3] ^= 1;
    disk.write_raw(Path::new("/db/MANIFEST"), bad);
    let report = match repair_in(&env(&disk), "/db", "/repaired", |_, _| {}) {
        Ok(report) => report,
        Err(e) => return (before, format!("no repair: {e}"), Vec::new()),
    };
    let db = open(&disk, "/repaired").unwrap();
    (before, get_as_text(&db, "a"), report.warnings)
}

#[test]
fn repair_without_manifest_applies_operands_once() {
    let mut wrong = Vec::new();
    for flushes in 0..3 {
        for base in [false, true] {
            for compact in [false, true] {
                let (before, after, warnings) = repair_without_manifest(flushes, base, compact);
                let warned = warnings.iter().any(|w| w.contains("operand") || w.contains("merge"));
                println!(
                    "flushes {flushes}, base {base}, compact {compact}: {before} {after} {warned}"
                );
                if before != after && !warned {
                    wrong.push((flushes, base, compact, before, after));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn counter(db: &Db, name: &str) -> u64 {
    db.admin().stats().counter(name).unwrap()
}

#[test]
fn compaction_merges_all_operands_of_working_operator() {
    let disk = SimDisk::new(1);
    let db = Db::open(
        "/db",
        Options::in_env(Env { fs: disk, ..Env::real() }).default_family(counter_options()),
    )
    .unwrap();
    db.put("a", encode(1)).unwrap();
    db.default_family().merge("a", encode(1)).unwrap();
    let snapshot = db.snapshot().unwrap();
    db.default_family().merge("a", encode(1)).unwrap();
    db.admin().compact().unwrap();
    let entries: u64 = db.admin().files().iter().map(|f| f.entries).sum();
    drop(snapshot);
    // The value visible to the snapshot, and an operand (or value) above it.
    assert_eq!((counter(&db, "operands_unmerged"), entries), (0, 2));
}

#[test]
fn append_separators_survive_options_file() {
    let mut bad = Vec::new();
    for separator in ["\n", "\"", "\\", "'", "", "\0", "\u{1}", "\u{7f}", "\u{2028}", "\u{301}"] {
        let rule = MergeRule::Append(separator.into());
        let text =
            Options::new().default_family(FamilyOptions::new().merge_operator(rule)).to_toml();
        match Options::from_toml(&text) {
            Ok(back) if back.to_toml() == text => {}
            other => bad.push((separator, other.err().map(|e| e.to_string()))),
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn salvage_read_does_not_merge_across_log_gap() {
    let disk = SimDisk::new(1);
    let options = || {
        Options::in_env(Env { fs: disk.clone(), ..Env::real() }).default_family(counter_options())
    };
    let db = Db::open("/db", options()).unwrap();
    db.put("a", encode(100)).unwrap();
    let mut batch = perigee::WriteBatch::new();
    batch.delete(&db.default_family(), "a").unwrap();
    batch.put(&db.default_family(), "marker", "here is the damage").unwrap();
    db.write(batch).unwrap();
    db.default_family().merge("a", encode(1)).unwrap();
    assert_eq!(get_as_text(&db, "a"), "1");
    db.put("b", encode(7)).unwrap();
    let disk_then = disk.deep_clone();
    drop(db);
    let mark = b"here is the damage";
    for path in disk_then.paths() {
        let mut bytes = disk_then.read_raw(&path);
        if let Some(at) = bytes.windows(mark.len()).position(|w| w == mark) {
            bytes[at] ^= 1;
            disk_then.write_raw(&path, bytes);
            println!("damaged {}", path.display());
        }
    }
    let env = Env { fs: disk_then.clone(), ..Env::real() };
    let db = Db::open("/db", Options::in_env(env).salvage_readonly(true)).unwrap();
    println!("missing: {}", get_as_text(&db, "never"));
    assert_eq!(get_as_text(&db, "b"), "7");
    let got = get_as_text(&db, "a");
    assert!(got == "1" || got.contains("damaged"), "the key never had the value {got}");
}

#[test]
fn repair_succeeds_with_missing_table_of_other_family() {
    let disk = SimDisk::new(1);
    let env = |disk: &Arc<SimDisk>| Env { fs: disk.clone(), ..Env::real() };
    let db =
        Db::open("/db", Options::in_env(env(&disk)).default_family(counter_options())).unwrap();
    // An entry that is only in the log keeps the log.
    db.create_family("log", FamilyOptions::new()).unwrap().put("x", "y").unwrap();
    let other = db.create_family("other", FamilyOptions::new()).unwrap();
    (0..10).for_each(|_| db.default_family().merge("a", encode(1)).unwrap());
    db.default_family().flush().unwrap();
    let tables = |disk: &SimDisk| {
        disk.paths().into_iter().filter(|p| p.extension().is_some_and(|e| e == "klog"))
    };
    let before: Vec<_> = tables(&disk).collect();
    other.put("p", "q").unwrap();
    other.flush().unwrap();
    db.sync().unwrap();
    let disk = disk.deep_clone();
    drop(db);
    let lost = tables(&disk).find(|p| !before.contains(p)).unwrap();
    let dir =
        perigee::env::Fs::open_dir(&*disk, Path::new("/db"), perigee::env::DirOpenMode::Existing)
            .unwrap();
    dir.remove(lost.file_name().unwrap().to_str().unwrap()).unwrap();
    let report = repair_in(&env(&disk), "/db", "/repaired", |_, _| {}).unwrap();
    let db = Db::open("/repaired", Options::in_env(env(&disk))).unwrap();
    assert_eq!(get_as_text(&db, "a"), "10", "{report:?}");
}

#[test]
fn operands_of_foreign_batch_are_refused() {
    let open = |seed, family| {
        let disk = SimDisk::new(seed);
        Db::open("/db", Options::in_env(Env { fs: disk, ..Env::real() }).default_family(family))
            .unwrap()
    };
    let (with, without) = (open(1, counter_options()), open(2, FamilyOptions::new()));
    let mut batch = perigee::WriteBatch::new();
    batch.merge(&with.default_family(), "a", encode(1)).unwrap();
    let written = without.write(batch);
    assert!(
        written.is_err(),
        "the foreign batch was written, and a read returns: {}",
        get_as_text(&without, "a")
    );
}
