//! `import --from-lmdb` (feature `lmdb`), with environments created by the tests.
#![cfg(feature = "lmdb")]
#![allow(clippy::unwrap_used, unsafe_code, deprecated)]

mod common;

use common::TestDir;
use heed::types::Bytes;
use heed::{DatabaseFlags, Env, EnvFlags, EnvOpenOptions};
use perigee::{Db, KeyComparator, Options};
use std::path::Path;

fn environment(path: &Path, flags: EnvFlags) -> Env {
    let mut options = EnvOpenOptions::new();
    options.map_size(16 << 20).max_dbs(16);
    // SAFETY: the environment belongs to this test; no other process opens it for writing.
    unsafe { options.flags(flags).open(path) }.unwrap()
}

/// Puts entries into a database created with these flags.
fn fill(env: &Env, name: Option<&str>, flags: DatabaseFlags, entries: &[(Vec<u8>, Vec<u8>)]) {
    let wtxn = env.write_txn().unwrap();
    let table = env
        .create_databases_and_commit(wtxn, |opener, wtxn| {
            let mut options = opener.database_options().types::<Bytes, Bytes>();
            if let Some(name) = name {
                options.name(name);
            }
            options.flags(flags).create(wtxn).map(heed::CommitOrAbort::<_, ()>::Commit)
        })
        .unwrap()
        .unwrap_commit();
    let mut wtxn = env.write_txn().unwrap();
    for (k, v) in entries {
        table.put(&mut wtxn, k, v).unwrap();
    }
    wtxn.commit().unwrap();
}

fn entries(n: usize, value: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..n)
        .map(|i| (format!("key {i:03}").into_bytes(), vec![b'a' + (i % 26) as u8; value]))
        .collect()
}

fn read(db: &Db, family: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    db.family(family)
        .unwrap()
        .iter()
        .unwrap()
        .map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap())
        .collect()
}

#[test]
fn all_databases_import_while_source_is_open() {
    let w = TestDir::new();
    std::fs::create_dir(w.path("old")).unwrap();
    let env = environment(&w.path("old"), EnvFlags::empty());
    // The values have the length of a database record, by which the importer detects named
    // databases.
    fill(&env, None, DatabaseFlags::empty(), &entries(30, 48));
    fill(&env, Some("users"), DatabaseFlags::empty(), &entries(300, 5000));
    fill(&env, Some("none"), DatabaseFlags::empty(), &[]);
    let numbers: Vec<(Vec<u8>, Vec<u8>)> =
        (0..50u64).map(|i| ((i * 300).to_ne_bytes().to_vec(), vec![1; 3])).collect();
    fill(&env, Some("numbers"), DatabaseFlags::INTEGER_KEY, &numbers);
    let before = std::fs::read(w.path("old/data.mdb")).unwrap();
    let report = w.run_json(&["import", "--from-lmdb", "old", "--to", "db"]);
    assert_eq!(std::fs::read(w.path("old/data.mdb")).unwrap(), before);
    assert_eq!(report[0]["imported"]["families"].as_array().unwrap().len(), 4);
    let db = Db::open(w.path("db"), Options::new()).unwrap();
    assert_eq!(read(&db, "default"), entries(30, 48));
    assert_eq!(read(&db, "users"), entries(300, 5000));
    assert_eq!(read(&db, "none"), []);
    assert_eq!(read(&db, "numbers"), numbers);
    assert_eq!(db.family("numbers").unwrap().options().comparator, KeyComparator::U64);
}

#[test]
fn single_file_without_lock_is_imported() {
    let w = TestDir::new();
    let env = environment(&w.path("one.mdb"), EnvFlags::NO_SUB_DIR);
    fill(&env, None, DatabaseFlags::empty(), &entries(9, 7));
    env.prepare_for_closing().wait();
    std::fs::remove_file(w.path("one.mdb-lock")).unwrap();
    w.run_ok(&["import", "--from-lmdb", "one.mdb", "--to", "db"]);
    assert_eq!(w.file_names(""), ["db", "one.mdb"], "no lock file was created");
    assert_eq!(read(&Db::open(w.path("db"), Options::new()).unwrap(), "default"), entries(9, 7));
}

#[test]
fn unsupported_databases_are_refused_by_name() {
    let w = TestDir::new();
    std::fs::create_dir_all(w.path("old")).unwrap();
    std::fs::create_dir_all(w.path("main")).unwrap();
    let env = environment(&w.path("old"), EnvFlags::empty());
    fill(&env, Some("dups"), DatabaseFlags::DUP_SORT, &entries(3, 3));
    let start = ["import", "--from-lmdb", "old", "--to", "db"];
    w.run_failing(2, "\"dups\" holds several values per key", &start);
    let env = environment(&w.path("main"), EnvFlags::empty());
    fill(&env, None, DatabaseFlags::DUP_SORT, &entries(3, 3));
    let main = ["import", "--from-lmdb", "main", "--to", "db"];
    w.run_failing(2, "\"default\" holds several values per key", &main);
    std::fs::create_dir_all(w.path("back")).unwrap();
    let env = environment(&w.path("back"), EnvFlags::empty());
    fill(&env, Some("back"), DatabaseFlags::REVERSE_KEY, &entries(3, 3));
    let small: Vec<_> = (0..300u32).map(|i| (i.to_ne_bytes().to_vec(), vec![])).collect();
    fill(&env, Some("small"), DatabaseFlags::INTEGER_KEY, &small);
    let back = ["import", "--from-lmdb", "back", "--to", "db"];
    w.run_failing(2, "compares keys from their ends", &back);
    w.run_failing(
        2,
        "integer keys that are not 8 bytes long",
        &[&back[..], &["--comparator", "back=memcmp"]].concat(),
    );
    w.run_failing(
        2,
        "which does not exist",
        &[&back[..], &["--comparator", "front=memcmp"]].concat(),
    );
    assert_eq!(w.file_names(""), ["back", "main", "old"], "nothing was created");
    w.run_ok(
        &[&back[..], &["--comparator", "back=memcmp", "--comparator", "small=memcmp"]].concat(),
    );
    let db = Db::open(w.path("db"), Options::new()).unwrap();
    assert_eq!((read(&db, "back").len(), read(&db, "small").len()), (3, 300));
    w.run_failing(
        2,
        "is not an LMDB database",
        &["import", "--from-lmdb", "db/MANIFEST", "--to", "db2"],
    );
    w.run_failing(2, "open ", &["import", "--from-lmdb", "nowhere", "--to", "db2"]);
}
