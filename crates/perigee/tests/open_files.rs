//! Limits of open files: all databases of a process share its limit, idle files are closed when the
//! system has no descriptors left, and a close closes every file even if handles remain.
//!
//! Regression test: each database used half of the limit for itself, so the second one in a process
//! failed with `EMFILE`; and a closed database kept its files open until its last iterator was
//! dropped. Linux only, because it uses `/proc` and `ulimit`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use perigee::{Db, ErrorKind, FamilyOptions, Options, TxnOptions};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set for a child process that was started with a low limit of open files.
const CHILD: &str = "PERIGEE_TEST_FEW_FILES";
const TABLES: u32 = 50;

struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let path =
            std::env::temp_dir().join(format!("perigee-files-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        TempDir(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Creates a database with many tables; all other options are defaults, except that the block cache
/// is off, so that each read needs its file.
fn fill(path: &Path) -> Db {
    let family = FamilyOptions::new().value_threshold(100);
    let db = Db::open(path, Options::new().default_family(family).block_cache_bytes(0)).unwrap();
    db.admin().cancel_background_work().unwrap();
    for i in 0..TABLES {
        db.put(i.to_be_bytes(), vec![i as u8; 200]).unwrap();
        db.put((i + 1000).to_be_bytes(), "short").unwrap();
        db.admin().flush().unwrap();
    }
    assert!(db.admin().files().len() >= TABLES as usize);
    db
}

fn read_all(db: &Db) {
    for i in 0..TABLES {
        assert_eq!(
            db.get(i.to_be_bytes()).unwrap(),
            Some(vec![i as u8; 200]),
            "{}",
            db.path().display()
        );
        assert!(db.contains((i + 1000).to_be_bytes()).unwrap());
    }
}

/// Lists the open files of this process at or below a directory.
fn open_in(path: &Path) -> Vec<PathBuf> {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(path)).collect()
}

#[test]
#[ignore = "a process of its own, started by the next test"]
fn child_reads_with_few_open_files() {
    if std::env::var(CHILD).is_err() {
        return;
    }
    let dir = TempDir::new("child");
    let all: Vec<Db> = (0..4).map(|n| fill(&dir.0.join(n.to_string()))).collect();
    for _ in 0..3 {
        all.iter().for_each(read_all);
    }
    let tables: usize = all.iter().map(|db| db.admin().stats().open_files.open).sum();
    assert!(tables <= 64, "{tables} table files are open, the shared limit is 64");
    // The application opens files until none is left.
    let mut taken: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    all.iter().for_each(read_all);
    all[0].put("one more", "entry").unwrap();
    all[0].admin().flush().unwrap();
    taken.clear();
    for db in &all {
        db.close().unwrap();
        assert_eq!(open_in(db.path()), Vec::<PathBuf>::new());
    }
    println!("four databases were read");
}

#[test]
fn databases_share_process_file_limit() {
    let program = std::env::current_exe().unwrap();
    let script = format!(
        "ulimit -n 128 && exec '{}' --exact child_reads_with_few_open_files --ignored \
         --nocapture --test-threads 1",
        program.display()
    );
    let out = Command::new("sh").arg("-c").arg(script).env(CHILD, "1").output().unwrap();
    let text =
        [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(out.status.success() && text.contains("four databases were read"), "{text}");
}

#[test]
fn close_closes_all_files_despite_live_handles() {
    let dir = TempDir::new("close");
    let path = dir.0.join("db");
    let db = fill(&path);
    db.put("in the log", "").unwrap();
    let (clone, family, snapshot) = (db.clone(), db.default_family(), db.snapshot().unwrap());
    let mut cursor = db.default_family().cursor().unwrap();
    cursor.seek_to_first().unwrap();
    let mut iter = snapshot.iter(&family).unwrap();
    iter.next().unwrap().unwrap();
    let txn = db.begin(TxnOptions::new()).unwrap();
    let mut load = db.create_family("loaded", FamilyOptions::new()).unwrap().bulk_load().unwrap();
    load.put("a", "b").unwrap();
    let feed = db.history().changes(db.history().latest_seq()).unwrap();
    let reader = Db::open(&path, Options::new().read_only(true)).unwrap();
    read_all(&reader);
    let seen = reader.iter().unwrap();
    assert!(open_in(&dir.0).len() > 20, "the test detects open files");

    reader.close().unwrap();
    read_all(&db);
    db.close().unwrap();
    assert_eq!(open_in(&dir.0), Vec::<PathBuf>::new());
    let closed = |e: perigee::Error| assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
    closed(clone.get("a").unwrap_err());
    closed(snapshot.get(&family, 0u32.to_be_bytes()).unwrap_err());
    closed(cursor.next().unwrap_err());
    closed(iter.next().unwrap().unwrap_err());
    closed(txn.get(&family, "a").unwrap_err());
    closed(reader.get("a").unwrap_err());
    assert_eq!(clone.admin().stats().open_files.open, 0);
    drop((seen, feed, load, cursor, iter, txn));
    assert_eq!(open_in(&dir.0), Vec::<PathBuf>::new());
    read_all(&Db::open(&path, Options::new()).unwrap());
}
