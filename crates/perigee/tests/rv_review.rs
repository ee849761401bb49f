#![allow(clippy::unwrap_used)]
use perigee::env::fs::memory::SimDisk;
use perigee::env::Env;
use perigee::{Db, Durability, FamilyOptions, Options};

fn options(env: &Env) -> Options {
    Options::in_env(env.clone())
        .memory_budget(1 << 20)
        .row_cache_bytes(64 << 10)
        .durability(Durability::None)
        .default_family(FamilyOptions::new().memtable_bytes(4 << 10))
}

/// A named snapshot read after a reopen fills the cache with an old row.
#[test]
fn named_snapshot_after_reopen_put() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let db = Db::open("/db", options(&env)).unwrap();
    db.put("k", "old").unwrap();
    db.history().create_snapshot("s").unwrap();
    db.put("k", "new").unwrap();
    db.close().unwrap();
    let db = Db::open("/db", options(&env)).unwrap();
    let f = db.default_family();
    let snapshot = db.history().named_snapshot("s").unwrap();
    assert_eq!(snapshot.get(&f, "k").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(f.get("k").unwrap().as_deref(), Some(&b"new"[..]));
}

#[test]
fn named_snapshot_after_reopen_delete() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let db = Db::open("/db", options(&env)).unwrap();
    db.put("k", "old").unwrap();
    db.history().create_snapshot("s").unwrap();
    db.delete("k").unwrap();
    db.close().unwrap();
    let db = Db::open("/db", options(&env)).unwrap();
    let f = db.default_family();
    let snapshot = db.history().named_snapshot("s").unwrap();
    assert_eq!(snapshot.get(&f, "k").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(f.get("k").unwrap(), None);
}

/// The same with history instead of a named snapshot.
#[test]
fn snapshot_at_after_reopen() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let db = Db::open("/db", options(&env)).unwrap();
    db.put("k", "old").unwrap();
    let seq = db.history().latest_seq();
    db.put("k", "new").unwrap();
    drop(db);
    let db = Db::open("/db", options(&env)).unwrap();
    let f = db.default_family();
    println!("oldest readable {} seq {seq}", db.history().oldest_readable_seq());
    let snapshot = db.history().snapshot_at(seq).unwrap();
    assert_eq!(snapshot.get(&f, "k").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(f.get("k").unwrap().as_deref(), Some(&b"new"[..]));
}

#[test]
fn named_snapshot_in_read_only() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let db = Db::open("/db", options(&env)).unwrap();
    db.put("k", "old").unwrap();
    db.history().create_snapshot("s").unwrap();
    db.put("k", "new").unwrap();
    db.close().unwrap();
    let db = Db::open("/db", options(&env).read_only(true)).unwrap();
    let f = db.default_family();
    let snapshot = db.history().named_snapshot("s").unwrap();
    assert_eq!(snapshot.get(&f, "k").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(f.get("k").unwrap().as_deref(), Some(&b"new"[..]));
}
