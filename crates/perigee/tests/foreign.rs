//! A family handle of another database is refused, wherever it could be mixed up: numbers of families mean nothing elsewhere.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, ErrorKind, LockMode, Options, Result, TxnOptions, WriteBatch};

fn open(path: &str) -> Db {
    Db::open(path, Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() })).unwrap()
}

fn refused<T>(what: &str, answer: Result<T>) {
    match answer {
        Ok(_) => panic!("{what} took it"),
        Err(e) => assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{what}: {e}"),
    }
}

#[test]
fn what_belongs_to_another_database_is_refused() {
    let (here, there) = (open("/here"), open("/there"));
    let (ours, foreign) = (here.default_family(), there.default_family());
    ours.put("a", "ours").unwrap();
    foreign.put("a", "theirs").unwrap();

    let mut batch = WriteBatch::new();
    batch.put(&foreign, "a", "1").unwrap();
    refused("a batch of two databases", batch.put(&ours, "a", "1"));
    refused("a commit", here.write(batch.clone()));
    there.write(batch.clone()).unwrap();
    batch.clear();
    batch.put(&ours, "b", "1").unwrap();
    here.write(batch).unwrap();

    let snapshot = here.snapshot().unwrap();
    refused("get", snapshot.get(&foreign, "a"));
    refused("contains", snapshot.contains(&foreign, "a"));
    refused("iter", snapshot.iter(&foreign));
    refused("cursor", snapshot.cursor(&foreign));
    refused("multi_get", snapshot.multi_get(&foreign, ["a"]).remove(0));
    refused("get_into_vec", snapshot.get_into_vec(&foreign, "a", &mut Vec::new()));

    let txn = here.begin(TxnOptions::new()).unwrap();
    refused("get", txn.get(&foreign, "a"));
    refused("contains", txn.contains(&foreign, "a"));
    refused("iter", txn.iter(&foreign));
    refused("cursor", txn.cursor(&foreign));
    refused("get_for_update", txn.get_for_update(&foreign, "a", LockMode::Shared));
    refused("lock", txn.lock(&foreign, "a", LockMode::Shared));
    refused("lock_range", txn.lock_range(&foreign, "a".."b", LockMode::Gap));
    refused("put", txn.put(&foreign, "a", "2"));
    refused("delete", txn.delete(&foreign, "a"));
    refused("delete_range", txn.delete_range(&foreign, "a".."b"));
    txn.put(&ours, "c", "3").unwrap();
    txn.commit().unwrap();
    assert_eq!(ours.get("a").unwrap().unwrap(), b"ours");
    assert_eq!(foreign.get("a").unwrap().unwrap(), b"1");
}
