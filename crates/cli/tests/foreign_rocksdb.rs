//! `import --from-rocksdb` (feature `rocksdb`), with databases created by the tests.
#![cfg(feature = "rocksdb")]
#![allow(clippy::unwrap_used)]

mod common;

use common::TestDir;
use perigee::{Compression, Db, KeyComparator};
use rocksdb::{ColumnFamilyDescriptor, DB, DBCompressionType, Options};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let all = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    all.map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
}

fn entries(n: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..n)
        .map(|i| (format!("key {i:04}").into_bytes(), vec![b'a' + (i % 26) as u8; i % 700]))
        .collect()
}

fn read(db: &Db, family: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let all = db.family(family).unwrap().iter().unwrap();
    all.map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

/// Creates a database with three column families; the last entries are only in its log.
fn make_source(path: &Path, comparator: &str) -> DB {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let mut own = Options::default();
    own.set_comparator(comparator, Box::new(|a, b| b.cmp(a)));
    own.set_compression_type(DBCompressionType::None);
    let families = [
        ColumnFamilyDescriptor::new("default", Options::default()),
        ColumnFamilyDescriptor::new("users", Options::default()),
        ColumnFamilyDescriptor::new("back", own),
    ];
    let db = DB::open_cf_descriptors(&options, path, families).unwrap();
    for (i, (key, value)) in entries(900).iter().enumerate() {
        db.put_cf(db.cf_handle("users").unwrap(), key, value).unwrap();
        db.put_cf(db.cf_handle("back").unwrap(), key, b"older").unwrap();
        db.put_cf(db.cf_handle("back").unwrap(), key, value).unwrap();
        if i == 600 {
            db.flush_cf(db.cf_handle("users").unwrap()).unwrap();
            db.delete_cf(db.cf_handle("back").unwrap(), key).unwrap();
        }
    }
    db
}

#[test]
fn all_families_import_and_source_is_unchanged() {
    let w = TestDir::new();
    let open = make_source(&w.path("old"), "rocksdb.ReverseBytewiseComparator");
    let args = ["import", "--from-rocksdb", "old", "--to", "db"];
    w.run_failing(2, "another process has the RocksDB database", &args);
    drop(open);
    let before = files(&w.path("old"));
    let report = w.run_json(&args);
    assert_eq!(files(&w.path("old")), before);
    assert_eq!(w.file_names(""), ["db", "old"]);
    assert_eq!(report[0]["imported"]["families"].as_array().unwrap().len(), 3);
    let db = Db::open(w.path("db"), perigee::Options::new()).unwrap();
    assert_eq!(read(&db, "default"), []);
    assert_eq!(read(&db, "users"), entries(900));
    let mut back = entries(900);
    back.remove(600);
    back.reverse();
    assert_eq!(read(&db, "back"), back);
    let options = db.family("back").unwrap().options();
    assert_eq!(
        (options.comparator, options.compression),
        (KeyComparator::Reverse, Compression::None)
    );
}

#[test]
fn unreadable_source_is_refused() {
    let w = TestDir::new();
    drop(make_source(&w.path("old"), "mine"));
    w.run_failing(2, "the comparator \"mine\"", &["import", "--from-rocksdb", "old", "--to", "db"]);
    w.run_ok(&["put", "ours", "a", "b"]);
    w.run_failing(2, "it has no CURRENT", &["import", "--from-rocksdb", "ours", "--to", "db"]);
    w.run_failing(2, "it has no CURRENT", &["import", "--from-rocksdb", "nowhere", "--to", "db"]);
    assert_eq!(w.file_names(""), ["old", "ours"]);
}
