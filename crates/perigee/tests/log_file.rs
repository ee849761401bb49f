//! The file `LOG`: records events, respects its size limits, never affects the database, and is not
//! part of its data.
#![allow(clippy::unwrap_used)]

use perigee::env::fs::memory::SimDisk;
use perigee::env::{DirOpenMode, Env};
use perigee::{Db, FamilyOptions, Options};
use std::sync::Arc;

fn options(env: &Env) -> Options {
    let small = FamilyOptions::new().memtable_bytes(8 << 10);
    Options::in_env(env.clone()).default_family(small)
}

fn log_text(env: &Env, file: &str) -> String {
    let dir = env.fs.open_dir("/db".as_ref(), DirOpenMode::Existing).unwrap();
    let Ok(file) = dir.open(file) else { return String::new() };
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn log_file_names(env: &Env) -> Vec<String> {
    env.fs.open_dir("/db".as_ref(), DirOpenMode::Existing).unwrap().list().unwrap()
}

fn new_env() -> (Env, Arc<SimDisk>) {
    let disk = SimDisk::new(1);
    (Env { fs: disk.clone(), ..Env::real() }, disk)
}

fn run_workload(db: &Db) {
    for i in 0..200u32 {
        db.put(i.to_be_bytes(), [1; 100]).unwrap();
    }
    db.create_family("side\nways", FamilyOptions::new()).unwrap();
    db.admin().compact().unwrap();
    db.drop_family("side\nways").unwrap();
    drop(db.admin().pause_background_work().unwrap());
}

#[test]
fn log_file_records_events() {
    let (env, _) = new_env();
    let db = Db::open("/db", options(&env)).unwrap();
    run_workload(&db);
    db.close().unwrap();
    let log = log_text(&env, "LOG");
    for line in log.lines() {
        assert!(
            line.len() > 40 && line.as_bytes()[10] == b'T' && line.as_bytes()[23] == b'Z',
            "{line}"
        );
    }
    for word in [
        "Z open ",
        "Z flush ",
        "Z compaction ",
        "Z family ",
        "Z control ",
        "Z close ",
        "memtable_bytes: 8192",
    ] {
        assert!(log.contains(word), "no {word:?} in\n{log}");
    }
    assert!(log.contains(r#""side\nways" created"#), "{log}");
    let before = log.lines().count();
    drop(Db::open("/db", options(&env)).unwrap());
    assert!(log_text(&env, "LOG").lines().count() > before, "the next open appends to it");
}

#[test]
fn log_file_respects_size_limit_and_can_be_disabled() {
    let (env, _) = new_env();
    let db = Db::open("/db", options(&env).log_file_bytes(1000).log_files_kept(2)).unwrap();
    (0..20).for_each(|_| drop(db.admin().pause_background_work().unwrap()));
    run_workload(&db);
    db.close().unwrap();
    let logs: Vec<String> =
        log_file_names(&env).into_iter().filter(|n| n.starts_with("LOG")).collect();
    assert_eq!(logs, ["LOG", "LOG.1", "LOG.2"]);
    let (env, _) = new_env();
    let db = Db::open("/db", options(&env).log_file_bytes(0)).unwrap();
    run_workload(&db);
    db.close().unwrap();
    assert!(!log_file_names(&env).iter().any(|n| n.starts_with("LOG")));
}

/// `LOG` is not an orphan, is not copied by a checkpoint and is not read by `verify`; damage to it
/// is not reported as damage to the database.
#[test]
fn log_file_is_not_part_of_the_database() {
    let (env, _) = new_env();
    let db = Db::open("/db", options(&env)).unwrap();
    run_workload(&db);
    db.backups().checkpoint("/copy").unwrap();
    db.close().unwrap();
    let copy = env.fs.open_dir("/copy".as_ref(), DirOpenMode::Existing).unwrap();
    assert!(!copy.list().unwrap().iter().any(|n| n.starts_with("LOG")));
    let dir = env.fs.open_dir("/db".as_ref(), DirOpenMode::Existing).unwrap();
    dir.append_to("LOG").unwrap().append(&[&[0xff; 100]]).unwrap();
    let db = Db::open("/db", options(&env)).unwrap();
    assert_eq!(db.admin().stats().recovery.orphans, 0);
    assert!(db.admin().verify().unwrap().errors.is_empty());
    db.close().unwrap();
    let before = log_file_names(&env);
    let db = Db::open("/db", options(&env).read_only(true)).unwrap();
    assert_eq!(db.iter().unwrap().count(), 200);
    db.close().unwrap();
    assert_eq!(log_file_names(&env), before, "a read-only open writes nothing");
}
