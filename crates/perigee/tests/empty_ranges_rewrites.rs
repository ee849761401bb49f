//! Scans of earlier views must not skip what a rewrite has dropped since: the empty ranges of a
//! memtable are shared by all views that hold it.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{
    CompactionFilter, Cursor, Db, Durability, Family, FilterDecision, FilterEntry, Isolation,
    Options, TxnOptions,
};
use std::sync::Arc;

fn key(i: u32) -> String {
    format!("k{i:05}")
}

/// The key between the tombstones.
fn live_key() -> String {
    key(201)
}

fn options() -> Options {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    Options::in_env(env).durability(Durability::None)
}

/// Writes live entries at both ends and 200 between them.
fn fill(family: &Family) {
    family.put("a", "first").unwrap();
    family.put("z", "last").unwrap();
    (0..200).for_each(|i| family.put(key(i * 2), "v").unwrap());
    family.compact().unwrap();
}

fn delete_between(family: &Family) {
    (0..200).for_each(|i| family.delete(key(i * 2)).unwrap());
}

fn seek_to_first(mut cursor: Cursor) -> Cursor {
    cursor.seek_to_first().unwrap();
    assert_eq!(cursor.key(), b"a");
    cursor
}

/// Steps from the first entry over the tombstones, so that the range is noted.
fn note_range(cursor: Cursor) {
    let mut cursor = seek_to_first(cursor);
    cursor.next().unwrap();
    assert_eq!(cursor.key(), b"z");
}

fn check_finds_live_key(mut cursor: Cursor) {
    cursor.next().unwrap();
    assert_eq!(String::from_utf8_lossy(cursor.key()), live_key());
}

/// Makes a cursor of a reader that it drops.
type IntoCursor = Box<dyn FnOnce(&Family) -> Cursor>;

/// The cursor's reader is dropped, a compaction drops the entry, and a reader of an even older
/// snapshot notes the range.
fn check_cursor_in_older_view(delete: impl Fn(&Family), reader: impl Fn(&Db) -> IntoCursor) {
    let db = Db::open("/db", options()).unwrap();
    let family = db.default_family();
    fill(&family);
    let _keeps_tombstones = db.snapshot().unwrap();
    delete_between(&family);
    let older = db.snapshot().unwrap();
    family.put(live_key(), "live").unwrap();
    let into_cursor = reader(&db);
    delete(&family);
    family.flush().unwrap();
    let cursor = seek_to_first(into_cursor(&family));
    family.compact().unwrap();
    note_range(older.cursor(&family).unwrap());
    check_finds_live_key(cursor);
}

#[test]
fn cursor_that_outlives_its_snapshot() {
    let of_snapshot = |db: &Db| -> IntoCursor {
        let snapshot = db.snapshot().unwrap();
        Box::new(move |family| snapshot.cursor(family).unwrap())
    };
    check_cursor_in_older_view(|f| f.delete(live_key()).unwrap(), of_snapshot);
    check_cursor_in_older_view(|f| f.single_delete(live_key()).unwrap(), of_snapshot);
    check_cursor_in_older_view(|f| f.delete_range(live_key()..key(202)).unwrap(), of_snapshot);
}

#[test]
fn cursor_that_outlives_its_transaction() {
    let of_txn = |db: &Db| -> IntoCursor {
        let txn = db.begin(TxnOptions::new().isolation(Isolation::Snapshot)).unwrap();
        txn.get(&db.default_family(), "a").unwrap();
        Box::new(move |family| txn.cursor(family).unwrap())
    };
    check_cursor_in_older_view(|f| f.delete_range(live_key()..key(202)).unwrap(), of_txn);
}

struct DropLiveKey;

impl CompactionFilter for DropLiveKey {
    fn name(&self) -> &str {
        "drop the live key"
    }
    fn decide(&self, entry: &FilterEntry<'_>) -> perigee::Result<FilterDecision> {
        let is_live = entry.key() == live_key().as_bytes();
        Ok(if is_live { FilterDecision::Drop } else { FilterDecision::Keep })
    }
}

#[test]
fn cursor_of_the_newest_state_beside_a_compaction_filter() {
    let options = options().compaction_filter("default", Arc::new(DropLiveKey));
    let db = Db::open("/db", options).unwrap();
    let family = db.default_family();
    fill(&family);
    let _keeps_tombstones = db.snapshot().unwrap();
    delete_between(&family);
    family.put(live_key(), "live").unwrap();
    family.flush().unwrap();
    let cursor = seek_to_first(family.cursor().unwrap());
    family.compact().unwrap();
    note_range(family.cursor().unwrap());
    check_finds_live_key(cursor);
}
