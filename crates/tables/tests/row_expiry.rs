//! Rows that expire, with their index entries, under a clock that the test sets.
#![allow(clippy::unwrap_used)]

use crate::common::check_table;
use perigee::env::fs::memory::SimDisk;
use perigee::env::{Clock, Env};
use perigee::{Db, Options};
use perigee_tables::{ColumnType, DynTable, IndexDef, Schema, SchemaChange, TableDb, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const START_MS: u64 = 1_700_000_000_000;

#[derive(Debug)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn wall_ms(&self) -> u64 {
        self.0.load(SeqCst)
    }
    fn monotonic_us(&self) -> u64 {
        self.0.load(SeqCst) * 1000
    }
    fn sleep_us(&self, _: u64) {}
}

fn open() -> (Db, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock(AtomicU64::new(START_MS)));
    let env = Env { fs: SimDisk::new(1), clock: clock.clone(), ..Env::real() };
    (Db::open("/db", Options::in_env(env)).unwrap(), clock)
}

fn table(db: &Db, ttl: Option<Duration>) -> DynTable {
    let mut schema = Schema::new().key("id", ColumnType::U32).column("v", ColumnType::U32);
    if let Some(ttl) = ttl {
        schema = schema.ttl(ttl);
    }
    let table = db.create_dyn_table("t", schema).unwrap();
    table.create_index(IndexDef::new("v").column("v").unique()).unwrap();
    table
}

fn row(id: u32, v: u32) -> Vec<Value> {
    vec![id.into(), v.into()]
}

#[test]
fn rows_and_entries_expire_together() {
    let (db, clock) = open();
    let table = table(&db, None);
    let second = Duration::from_secs(1);
    table.put_with_ttl(&row(1, 10), second).unwrap();
    table.put_until(&row(2, 20), START_MS + 2000).unwrap();
    table.insert_with_ttl(&row(3, 30), 3 * second).unwrap();
    table.put(&row(4, 40)).unwrap();
    check_table(&table, &[row(1, 10), row(2, 20), row(3, 30), row(4, 40)]);
    // An update keeps the expiry time, a put removes it.
    table.update([Value::U32(2)], |r| r[1] = Value::U32(21)).unwrap();
    table.put(&row(3, 30)).unwrap();
    clock.0.fetch_add(1000, SeqCst);
    check_table(&table, &[row(2, 21), row(3, 30), row(4, 40)]);
    // The value of an expired row is free, and so is its key.
    table.insert(&row(1, 11)).unwrap();
    table.insert(&row(5, 10)).unwrap();
    clock.0.fetch_add(5000, SeqCst);
    check_table(&table, &[row(1, 11), row(3, 30), row(4, 40), row(5, 10)]);
    db.family("@table/t").unwrap().compact().unwrap();
    check_table(&table, &[row(1, 11), row(3, 30), row(4, 40), row(5, 10)]);
}

#[test]
fn tables_have_a_default_time_to_live() {
    let (db, clock) = open();
    let table = table(&db, Some(Duration::from_secs(10)));
    assert_eq!(table.schema().default_ttl(), Some(Duration::from_secs(10)));
    table.insert(&row(1, 1)).unwrap();
    table.put_with_ttl(&row(2, 2), Duration::from_secs(60)).unwrap();
    db.alter_table("t", &[SchemaChange::SetTtl(None)]).unwrap();
    table.insert(&row(3, 3)).unwrap();
    table.load([row(4, 4)]).unwrap();
    db.alter_table("t", &[SchemaChange::SetTtl(Some(Duration::from_secs(20)))]).unwrap();
    table.load([row(5, 5)]).unwrap();
    // Entries of an index that is built later expire with their rows.
    table.drop_index("v").unwrap();
    table.create_index(IndexDef::new("v").column_desc("v")).unwrap();
    let all = [row(1, 1), row(2, 2), row(3, 3), row(4, 4), row(5, 5)];
    check_table(&table, &all);
    clock.0.fetch_add(10_000, SeqCst);
    check_table(&table, &all[1..]);
    clock.0.fetch_add(10_000, SeqCst);
    check_table(&table, &all[1..4]);
    clock.0.fetch_add(40_000, SeqCst);
    check_table(&table, &all[2..4]);
    let entries = db.family("@table/t").unwrap().iter().unwrap().count();
    assert_eq!(entries, 1 + 2 * 2, "the schema, two rows and their entries");
}
