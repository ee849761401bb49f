//! The file `LOG`: tells what happened, keeps within its limits, never harms, is nobody's data.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::OpenDir;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, FamilyOptions, Options};
use std::sync::Arc;

fn options(env: &Env) -> Options {
    let small = FamilyOptions::new().memtable_bytes(8 << 10);
    Options::in_env(env.clone()).default_family(small)
}

fn text(env: &Env, file: &str) -> String {
    let dir = env.fs.open_dir("/db".as_ref(), OpenDir::Existing).unwrap();
    let Ok(file) = dir.open(file) else { return String::new() };
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn names(env: &Env) -> Vec<String> {
    env.fs.open_dir("/db".as_ref(), OpenDir::Existing).unwrap().list().unwrap()
}

fn world() -> (Env, Arc<SimDisk>) {
    let disk = SimDisk::new(1);
    (Env { fs: disk.clone(), ..Env::real() }, disk)
}

fn use_it(db: &Db) {
    for i in 0..200u32 {
        db.put(i.to_be_bytes(), [1; 100]).unwrap();
    }
    db.create_family("side\nways", FamilyOptions::new()).unwrap();
    db.compact().unwrap();
    db.drop_family("side\nways").unwrap();
    drop(db.pause_background_work().unwrap());
}

#[test]
fn what_happens_is_told_in_lines() {
    let (env, _) = world();
    let db = Db::open("/db", options(&env)).unwrap();
    use_it(&db);
    db.close().unwrap();
    let log = text(&env, "LOG");
    for line in log.lines() {
        assert!(line.len() > 40 && line.as_bytes()[10] == b'T' && line.as_bytes()[23] == b'Z', "{line}");
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
    assert!(text(&env, "LOG").lines().count() > before, "the next open goes on behind it");
}

#[test]
fn it_keeps_within_its_limits_and_can_be_off() {
    let (env, _) = world();
    let db = Db::open("/db", options(&env).log_file_bytes(1000).log_files_kept(2)).unwrap();
    (0..20).for_each(|_| drop(db.pause_background_work().unwrap()));
    use_it(&db);
    db.close().unwrap();
    let logs: Vec<String> = names(&env).into_iter().filter(|n| n.starts_with("LOG")).collect();
    assert_eq!(logs, ["LOG", "LOG.1", "LOG.2"]);
    let (env, _) = world();
    let db = Db::open("/db", options(&env).log_file_bytes(0)).unwrap();
    use_it(&db);
    db.close().unwrap();
    assert!(!names(&env).iter().any(|n| n.starts_with("LOG")));
}

/// It is no orphan, no part of a checkpoint, nothing that `verify` reads; and damage to it is nobody's damage.
#[test]
fn it_is_nobodys_data() {
    let (env, _) = world();
    let db = Db::open("/db", options(&env)).unwrap();
    use_it(&db);
    db.checkpoint("/copy").unwrap();
    db.close().unwrap();
    let copy = env.fs.open_dir("/copy".as_ref(), OpenDir::Existing).unwrap();
    assert!(!copy.list().unwrap().iter().any(|n| n.starts_with("LOG")));
    let dir = env.fs.open_dir("/db".as_ref(), OpenDir::Existing).unwrap();
    dir.append_to("LOG").unwrap().append(&[&[0xff; 100]]).unwrap();
    let db = Db::open("/db", options(&env)).unwrap();
    assert_eq!(db.stats().recovery.orphans, 0);
    assert!(db.verify().unwrap().errors.is_empty());
    db.close().unwrap();
    let before = names(&env);
    let db = Db::open("/db", options(&env).read_only(true)).unwrap();
    assert_eq!(db.iter().unwrap().count(), 200);
    db.close().unwrap();
    assert_eq!(names(&env), before, "a read-only open writes nothing");
}
