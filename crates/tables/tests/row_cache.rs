//! Tables with a row cache: readers beside writers, loads, drops and schema changes, in many
//! interleavings of the simulated scheduler, and rows that expire.
#![allow(clippy::unwrap_used)]

use crate::common::{Rng, check_table};
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::env::sim::SimWorld;
use perigee::{Db, Durability, Options, TxnOptions};
use perigee_tables::{
    Column, ColumnType, DynTable, ErrorKind, IndexDef, Schema, SchemaChange, TableDb, TableTxn,
    Value,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

const ROWS: u32 = 4;

/// The newest write of each row whose call has returned or that a reader has seen: even if the row
/// exists.
type Newest = Arc<[AtomicU32; ROWS as usize]>;

fn open(env: Env) -> Db {
    let options = Options::in_env(env).memory_budget(1 << 20).row_cache_bytes(64 << 10);
    Db::open("/db", options.durability(Durability::None)).unwrap()
}

fn create(db: &Db) -> DynTable {
    let schema = Schema::new().key("id", ColumnType::U32).column("write", ColumnType::U32);
    let table = db.create_dyn_table("t", schema).unwrap();
    table.create_index(IndexDef::new("write").column("write")).unwrap();
    table
}

fn row(id: u32, write: u32, columns: usize) -> Vec<Value> {
    let mut row = vec![id.into(), write.into()];
    row.resize(columns, Value::Null);
    row
}

/// Writes rows in every way. Each write of a row has a number: with an even one it exists.
fn write_rows(db: &Db, newest: &Newest, rng: &mut Rng) {
    let mut next: Vec<u32> = vec![0; ROWS as usize];
    let mut added = 0;
    for _ in 0..12 {
        let table = db.dyn_table("t").unwrap();
        let columns = table.schema().columns().len();
        let id = rng.below(u64::from(ROWS)) as u32;
        let number = &mut next[id as usize];
        let advance = |number: &mut u32, exists: bool| {
            *number += 1;
            *number += u32::from((*number % 2 == 0) != exists);
            *number
        };
        match rng.below(8) {
            0 | 1 => table.put(&row(id, advance(number, true), columns)).unwrap(),
            2 => {
                let write = advance(number, true);
                let updated = table.update([Value::U32(id)], |r| r[1] = write.into()).unwrap();
                if updated.is_none() {
                    table.insert(&row(id, write, columns)).unwrap();
                }
            }
            3 => {
                advance(number, false);
                table.delete([Value::U32(id)]).unwrap();
            }
            // A transaction of the engine, which the tables do not commit.
            4 => {
                let txn = db.begin(TxnOptions::new()).unwrap();
                let tx = TableTxn::over(&txn);
                tx.on(&table).put(&row(id, advance(number, true), columns)).unwrap();
                txn.commit().unwrap();
            }
            5 => {
                advance(number, false);
                table.delete([Value::U32(id)]).unwrap();
                newest[id as usize].fetch_max(next[id as usize], SeqCst);
                let write = advance(&mut next[id as usize], true);
                table.load([row(id, write, columns)]).unwrap();
            }
            6 => {
                added += 1;
                let column = Column::new(format!("c{added}"), ColumnType::U8).nullable();
                db.alter_table("t", &[SchemaChange::AddColumn(column)]).unwrap();
            }
            _ => {
                for number in &mut next {
                    advance(number, false);
                }
                db.drop_table("t").unwrap();
                create(db);
            }
        }
        for (id, number) in next.iter().enumerate() {
            newest[id].fetch_max(*number, SeqCst);
        }
    }
}

fn read_rows(db: &Db, newest: &Newest, rng: &mut Rng) {
    for _ in 0..50 {
        // Dropped, and not created again yet.
        let Ok(table) = db.dyn_table("t") else { continue };
        let id = rng.below(u64::from(ROWS)) as u32;
        let oldest = newest[id as usize].load(SeqCst);
        let key = [Value::U32(id)];
        let found = match rng.below(3) {
            0 | 1 => table.get(key),
            _ => table.prefix(key).and_then(|mut rows| rows.next().transpose()),
        };
        match found {
            Ok(Some(row)) => {
                let Value::U32(write) = row[1] else { panic!("{row:?}") };
                assert!(write >= oldest, "row {id}: write {write} was read after {oldest}");
                newest[id as usize].fetch_max(write, SeqCst);
            }
            // A later write may have deleted it; the model test covers rows that must exist.
            Ok(None) => {}
            Err(e) => assert_eq!(e.kind(), ErrorKind::NotFound, "{e}"),
        }
    }
}

#[test]
fn rows_are_never_stale_in_any_interleaving() {
    let mut hits = 0;
    for seed in 0..60 {
        hits += SimWorld::new(seed).run(SimDisk::new(seed), |env| {
            let db = open(env.clone());
            create(&db);
            let newest: Newest = Default::default();
            let mut threads = Vec::new();
            for n in 0..3 {
                let (db, newest, mut rng) = (db.clone(), newest.clone(), Rng(seed * 4 + 1 + n));
                let body = move || match n {
                    0 => write_rows(&db, &newest, &mut rng),
                    _ => read_rows(&db, &newest, &mut rng),
                };
                threads.push(env.spawn.spawn("user", Box::new(body)).unwrap());
            }
            threads.into_iter().for_each(|t| t.join().unwrap());
            // Once without writers: gets, from the cache or not, agree with a scan.
            let table = db.dyn_table("t").unwrap();
            let rows: Vec<_> = table.scan().unwrap().map(Result::unwrap).collect();
            for _ in 0..2 {
                let get = |id: u32| table.get([Value::U32(id)]).unwrap();
                assert_eq!((0..ROWS).filter_map(get).collect::<Vec<_>>(), rows);
            }
            check_table(&table, &rows);
            let hits = db.admin().stats().row_cache.hits;
            db.close().unwrap();
            hits
        });
    }
    assert!(hits > 60 * 8, "the cache is used: {hits} hits");
}

/// Handles opened separately, of rows of different types, share the cache.
#[test]
fn handles_with_different_rows_share_the_cache() {
    let db = open(Env { fs: SimDisk::new(1), ..Env::real() });
    let (one, two) = (create(&db), db.dyn_table("t").unwrap());
    one.put(&row(1, 10, 2)).unwrap();
    for _ in 0..2 {
        assert_eq!(one.get([Value::U32(1)]).unwrap(), Some(row(1, 10, 2)));
        assert_eq!(two.get([Value::U32(1)]).unwrap(), Some(row(1, 10, 2)));
    }
    assert!(db.admin().stats().row_cache.hits >= 3);
    let column = Column::new("note", ColumnType::Text).nullable();
    db.alter_table("t", &[SchemaChange::AddColumn(column)]).unwrap();
    let three = db.dyn_table("t").unwrap();
    assert_eq!(three.get([Value::U32(1)]).unwrap(), Some(row(1, 10, 3)), "as it was cached");
    three.put(&row(1, 11, 3)).unwrap();
    assert_eq!(two.get([Value::U32(1)]).unwrap().unwrap()[1], Value::U32(11));
    // A snapshot and a transaction that began before.
    let (snapshot, tx) = (db.snapshot().unwrap(), db.begin_tables(Default::default()).unwrap());
    assert!(tx.on(&three).contains([Value::U32(1)]).unwrap());
    three.delete([Value::U32(1)]).unwrap();
    assert_eq!(
        (one.get([Value::U32(1)]).unwrap(), two.get([Value::U32(1)]).unwrap()),
        (None, None)
    );
    assert!(three.at(&snapshot).get([Value::U32(1)]).unwrap().is_some());
    assert!(tx.on(&three).get([Value::U32(1)]).unwrap().is_some());
}

#[test]
fn cached_rows_expire() {
    let db = open(Env { fs: SimDisk::new(1), ..Env::real() });
    let table = create(&db);
    let expires_at_ms = db.admin().clock().now_ms + 30;
    table.put_until(&row(1, 10, 2), expires_at_ms).unwrap();
    while db.admin().clock().now_ms < expires_at_ms {
        let found = table.get([Value::U32(1)]).unwrap().is_some();
        assert!(found || db.admin().clock().now_ms >= expires_at_ms);
    }
    assert_eq!(table.get([Value::U32(1)]).unwrap(), None);
}
