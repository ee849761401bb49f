//! Directories of another program are refused by every kind of open, with a hint how to proceed,
//! and are not changed.
#![allow(clippy::unwrap_used)]

use perigee::{Db, ErrorKind, Options, repair};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let path =
            std::env::temp_dir().join(format!("perigee-foreign-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }
    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns every entry below a directory, files with their contents.
fn directory_contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(directory_contents(&path));
            all.insert(path, Vec::new());
        } else {
            let bytes = fs::read(&path).unwrap();
            all.insert(path, bytes);
        }
    }
    all
}

fn assert_refused(dir: &TempDir, expected: &str) {
    let before = directory_contents(&dir.0);
    let (target, path) = (dir.0.with_extension("repaired"), &dir.0);
    let attempts = [
        (Db::open(path, Options::new()).map(drop), ErrorKind::InvalidArgument),
        (Db::open(path, Options::new().create_if_missing(false)).map(drop), ErrorKind::NotFound),
        (Db::open(path, Options::new().read_only(true)).map(drop), ErrorKind::NotFound),
        (Db::open(path, Options::new().salvage_readonly(true)).map(drop), ErrorKind::NotFound),
        (repair(path, &target).map(drop), ErrorKind::NotFound),
    ];
    for (i, (result, kind)) in attempts.into_iter().enumerate() {
        let e = result.expect_err("a foreign directory was opened");
        assert_eq!(e.kind(), kind, "attempt {i}: {e}");
        assert!(e.to_string().contains(expected), "attempt {i}: {e}");
    }
    assert!(!target.exists());
    assert_eq!(directory_contents(&dir.0), before);
}

#[test]
fn other_engines_databases_are_refused() {
    let engines: [(&str, &[&str], &str); 4] = [
        (
            "tidesdb",
            &["LOCK", "LOG", "users/config.ini", "users/MANIFEST", "users/wal_0.log"],
            "--from-tidesdb",
        ),
        (
            "rocksdb",
            &[
                "000004.log",
                "CURRENT",
                "IDENTITY",
                "LOCK",
                "LOG",
                "MANIFEST-000005",
                "OPTIONS-000007",
            ],
            "--from-rocksdb",
        ),
        (
            "leveldb",
            &["000003.log", "000005.ldb", "CURRENT", "LOCK", "LOG", "MANIFEST-000002"],
            "LevelDB",
        ),
        ("lmdb", &["data.mdb", "lock.mdb"], "--from-lmdb"),
    ];
    for (engine, files, expected) in engines {
        let dir = TempDir::new(engine);
        files.iter().for_each(|f| dir.write(f, f.as_bytes()));
        assert_refused(&dir, expected);
    }
}

#[test]
fn unknown_files_are_refused() {
    // Where case is ignored, `manifest` is the manifest, and damaged.
    let ignores_case = cfg!(any(windows, target_os = "macos"));
    let other_case = (!ignores_case).then_some("manifest");
    for name in ["letter.txt", "mysql/user.frm", "000001.log"].into_iter().chain(other_case) {
        let dir = TempDir::new(&name.replace('/', "-"));
        dir.write(name, b"dear moon");
        assert_refused(&dir, name.split('/').next().unwrap());
    }
}

#[test]
fn leftovers_of_interrupted_first_open_are_accepted() {
    let dir = TempDir::new("accepted");
    for name in [
        "LOCK",
        "LOG",
        "BALLAST",
        "MANIFEST.tmp",
        "perigee.toml",
        "perigee.toml.tmp",
        ".gitkeep",
        "trash/000002.klog",
    ] {
        dir.write(name, b"");
    }
    fs::create_dir(dir.0.join("lost+found")).unwrap();
    let db = Db::open(&dir.0, Options::new()).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    // If a Perigee manifest exists, unknown files are ignored.
    dir.write("letter.txt", b"dear moon");
    assert_eq!(Db::open(&dir.0, Options::new()).unwrap().get("k").unwrap().unwrap(), b"v");
    assert_eq!(fs::read(dir.0.join("letter.txt")).unwrap(), b"dear moon");
}

#[test]
fn tables_without_manifest_are_corruption() {
    let dir = TempDir::new("damaged");
    let db = Db::open(&dir.0, Options::new()).unwrap();
    db.put("k", "v").unwrap();
    db.admin().flush().unwrap();
    db.close().unwrap();
    fs::remove_file(dir.0.join("MANIFEST")).unwrap();
    dir.write("letter.txt", b"dear moon");
    assert_eq!(Db::open(&dir.0, Options::new()).unwrap_err().kind(), ErrorKind::Corruption);
}
