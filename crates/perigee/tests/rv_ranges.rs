#![allow(clippy::unwrap_used, missing_docs)]
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::*;

fn key(i: u32) -> String { format!("k{i:05}") }

/// A cursor of a dropped snapshot, in an older view with the same active memtable as the view in
/// which a reader with an even older snapshot notes a range.
#[test]
fn cursor_that_outlives_its_snapshot() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let db = Db::open("/db", Options::in_env(env).durability(Durability::None)).unwrap();
    let f = db.default_family();
    f.put("a", "first").unwrap();
    f.put("z", "last").unwrap();
    for i in 0..200 { f.put(key(i * 2), "v").unwrap(); }
    f.compact().unwrap();
    let s0 = db.snapshot().unwrap();
    for i in 0..200 { f.delete(key(i * 2)).unwrap(); }
    let older = db.snapshot().unwrap();
    f.put(key(201), "live").unwrap();
    let snapshot = db.snapshot().unwrap();
    f.delete(key(201)).unwrap();
    f.flush().unwrap();
    let mut cursor = snapshot.cursor(&f).unwrap();
    cursor.seek_to_first().unwrap();
    assert_eq!(cursor.key(), b"a");
    drop(snapshot);
    f.compact().unwrap();
    // Notes the range.
    let mut c = older.cursor(&f).unwrap();
    c.seek_to_first().unwrap();
    c.next().unwrap();
    assert_eq!(c.key(), b"z");
    cursor.next().unwrap();
    assert_eq!(String::from_utf8_lossy(cursor.key()), key(201));
    drop(s0);
}
/// A cursor of a dropped snapshot, in an older view with the same active memtable as the view in
/// which a reader with an even older snapshot notes a range.
#[test]
fn cursor_that_outlives_its_snapshot_single_delete() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let db = Db::open("/db", Options::in_env(env).durability(Durability::None)).unwrap();
    let f = db.default_family();
    f.put("a", "first").unwrap();
    f.put("z", "last").unwrap();
    for i in 0..200 { f.put(key(i * 2), "v").unwrap(); }
    f.compact().unwrap();
    let s0 = db.snapshot().unwrap();
    for i in 0..200 { f.delete(key(i * 2)).unwrap(); }
    let older = db.snapshot().unwrap();
    f.put(key(201), "live").unwrap();
    let snapshot = db.snapshot().unwrap();
    f.single_delete(key(201)).unwrap();
    f.flush().unwrap();
    let mut cursor = snapshot.cursor(&f).unwrap();
    cursor.seek_to_first().unwrap();
    assert_eq!(cursor.key(), b"a");
    drop(snapshot);
    f.compact().unwrap();
    // Notes the range.
    let mut c = older.cursor(&f).unwrap();
    c.seek_to_first().unwrap();
    c.next().unwrap();
    assert_eq!(c.key(), b"z");
    cursor.next().unwrap();
    assert_eq!(String::from_utf8_lossy(cursor.key()), key(201));
    drop(s0);
}
/// A cursor of a dropped snapshot, in an older view with the same active memtable as the view in
/// which a reader with an even older snapshot notes a range.
#[test]
fn cursor_that_outlives_its_snapshot_range_delete() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let db = Db::open("/db", Options::in_env(env).durability(Durability::None)).unwrap();
    let f = db.default_family();
    f.put("a", "first").unwrap();
    f.put("z", "last").unwrap();
    for i in 0..200 { f.put(key(i * 2), "v").unwrap(); }
    f.compact().unwrap();
    let s0 = db.snapshot().unwrap();
    for i in 0..200 { f.delete(key(i * 2)).unwrap(); }
    let older = db.snapshot().unwrap();
    f.put(key(201), "live").unwrap();
    let snapshot = db.snapshot().unwrap();
    f.delete_range(key(201)..key(202)).unwrap();
    f.flush().unwrap();
    let mut cursor = snapshot.cursor(&f).unwrap();
    cursor.seek_to_first().unwrap();
    assert_eq!(cursor.key(), b"a");
    drop(snapshot);
    f.compact().unwrap();
    // Notes the range.
    let mut c = older.cursor(&f).unwrap();
    c.seek_to_first().unwrap();
    c.next().unwrap();
    assert_eq!(c.key(), b"z");
    cursor.next().unwrap();
    assert_eq!(String::from_utf8_lossy(cursor.key()), key(201));
    drop(s0);
}
/// A cursor of a dropped snapshot, in an older view with the same active memtable as the view in
/// which a reader with an even older snapshot notes a range.
#[test]
fn cursor_that_outlives_its_txn_range_delete() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let db = Db::open("/db", Options::in_env(env).durability(Durability::None)).unwrap();
    let f = db.default_family();
    f.put("a", "first").unwrap();
    f.put("z", "last").unwrap();
    for i in 0..200 { f.put(key(i * 2), "v").unwrap(); }
    f.compact().unwrap();
    let s0 = db.snapshot().unwrap();
    for i in 0..200 { f.delete(key(i * 2)).unwrap(); }
    let older = db.snapshot().unwrap();
    f.put(key(201), "live").unwrap();
    let snapshot = db.begin(TxnOptions::new().isolation(Isolation::Snapshot)).unwrap();
    let _ = snapshot.get(&f, "a").unwrap();
    f.delete_range(key(201)..key(202)).unwrap();
    f.flush().unwrap();
    let mut cursor = snapshot.cursor(&f).unwrap();
    cursor.seek_to_first().unwrap();
    assert_eq!(cursor.key(), b"a");
    drop(snapshot);
    f.compact().unwrap();
    // Notes the range.
    let mut c = older.cursor(&f).unwrap();
    c.seek_to_first().unwrap();
    c.next().unwrap();
    assert_eq!(c.key(), b"z");
    cursor.next().unwrap();
    assert_eq!(String::from_utf8_lossy(cursor.key()), key(201));
    drop(s0);
}

struct DropLive;
impl CompactionFilter for DropLive {
    fn name(&self) -> &str { "drop live" }
    fn decide(&self, e: &FilterEntry<'_>) -> perigee::Result<FilterDecision> {
        Ok(if e.key() == key(201).as_bytes() { FilterDecision::Drop } else { FilterDecision::Keep })
    }
}
/// A cursor of the newest state skips what its view holds, because a compaction filter dropped it
/// in a newer view.
#[test]
fn cursor_and_compaction_filter() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let o = Options::in_env(env).durability(Durability::None).compaction_filter("default", std::sync::Arc::new(DropLive));
    let db = Db::open("/db", o).unwrap();
    let f = db.default_family();
    f.put("a", "first").unwrap();
    f.put("z", "last").unwrap();
    for i in 0..200 { f.put(key(i * 2), "v").unwrap(); }
    f.flush().unwrap();
    let s0 = db.snapshot().unwrap();
    for i in 0..200 { f.delete(key(i * 2)).unwrap(); }
    f.put(key(201), "live").unwrap();
    f.flush().unwrap();
    let mut cursor = f.cursor().unwrap();
    cursor.seek_to_first().unwrap();
    f.compact().unwrap();
    let mut c = f.cursor().unwrap();
    c.seek_to_first().unwrap();
    c.next().unwrap();
    assert_eq!(c.key(), b"z");
    cursor.next().unwrap();
    assert_eq!(String::from_utf8_lossy(cursor.key()), key(201));
    drop(s0);
}
