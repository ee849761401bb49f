//! The row cache after a reopen: it knows no operation from before, so a snapshot from before must
//! not fill it.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, Durability, FamilyOptions, Options, Snapshot};

fn options(env: &Env) -> Options {
    Options::in_env(env.clone())
        .memory_budget(1 << 20)
        .row_cache_bytes(64 << 10)
        .durability(Durability::None)
        .default_family(FamilyOptions::new().memtable_bytes(4 << 10))
}

/// Changes `k` after a snapshot, reopens, reads the snapshot, and then the newest state.
fn check(read_only: bool, value: Option<&str>, snapshot: impl Fn(&Db, u64) -> Snapshot) {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let db = Db::open("/db", options(&env)).unwrap();
    db.put("k", "old").unwrap();
    db.history().create_snapshot("s").unwrap();
    let seq = db.history().latest_seq();
    match value {
        Some(value) => db.put("k", value).unwrap(),
        None => db.delete("k").unwrap(),
    }
    db.close().unwrap();
    let db = Db::open("/db", options(&env).read_only(read_only)).unwrap();
    let (family, snapshot) = (db.default_family(), snapshot(&db, seq));
    for _ in 0..2 {
        assert_eq!(snapshot.get(&family, "k").unwrap().as_deref(), Some(&b"old"[..]));
        assert_eq!(family.get("k").unwrap().as_deref(), value.map(str::as_bytes));
    }
}

#[test]
fn snapshots_from_before_a_reopen_do_not_fill_the_row_cache() {
    let named = |db: &Db, _| db.history().named_snapshot("s").unwrap();
    check(false, Some("new"), named);
    check(false, None, named);
    check(true, Some("new"), named);
    check(false, Some("new"), |db, seq| db.history().snapshot_at(seq).unwrap());
}
