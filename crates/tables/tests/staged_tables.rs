//! Staged tables: visible with all rows and indexes, or not at all, also after a crash at any I/O.
#![allow(clippy::unwrap_used)]

use crate::common::check_table;
use perigee::env::fs::memory::{Crash, SimDisk};
use perigee::{Db, Durability, Options};
use perigee_tables::{
    ColumnType, Error, ErrorKind, IndexDef, Order, Schema, StagedTable, TableDb, Value,
};
use std::sync::Arc;

const ROWS: u32 = 200;

fn open(disk: &Arc<SimDisk>) -> perigee::Result<Db> {
    let env = perigee::env::Env { fs: disk.clone(), ..perigee::env::Env::real() };
    Db::open("/db", Options::in_env(env).durability(Durability::None))
}

fn schema() -> Schema {
    Schema::new()
        .nullable("name", ColumnType::Text)
        .column("id", ColumnType::U32)
        .key_column("id", Order::Descending)
}

fn indexes() -> [IndexDef; 1] {
    [IndexDef::new("by_name").column("name").unique()]
}

fn row(id: u32) -> Vec<Value> {
    vec![(id % 3 != 0).then(|| format!("n{id}")).into(), id.into()]
}

/// Imports the table.
fn import(db: &Db) -> Result<(), Error> {
    let staged = StagedTable::create(db, "t", schema(), &indexes())?;
    staged.table().load((0..ROWS).map(row))?;
    staged.publish().map(drop)
}

#[test]
fn staged_tables_become_visible_when_published() {
    let db = perigee::example_db().unwrap();
    let staged = StagedTable::create(&db, "t", schema(), &indexes()).unwrap();
    staged.table().load((0..ROWS).map(row)).unwrap();
    assert_eq!(db.dyn_table("t").unwrap_err().kind(), ErrorKind::NotFound);
    assert!(db.tables().unwrap().is_empty());
    let table = staged.publish().unwrap();
    let rows: Vec<_> = (0..ROWS).map(row).collect();
    check_table(&table, &rows);
    check_table(&db.dyn_table("t").unwrap(), &rows);
    let info = &db.tables().unwrap()[0];
    assert!(info.index_states[0].ready && info.disk_bytes > 0 && info.disk_bytes <= info.bytes);
    // The handle can write after the table was published.
    table.insert(&row(ROWS)).unwrap();
    assert!(db.dyn_table("t").unwrap().contains([Value::U32(ROWS)]).unwrap());
}

#[test]
fn dropped_staged_tables_leave_nothing() {
    let db = perigee::example_db().unwrap();
    let staged = StagedTable::create(&db, "t", schema(), &[]).unwrap();
    staged.table().load([row(1)]).unwrap();
    drop(staged);
    assert_eq!(db.families(), ["default"]);
    let invalid = |schema: Schema, indexes: &[IndexDef]| {
        let error = StagedTable::create(&db, "t", schema, indexes).unwrap_err();
        assert_eq!((error.kind(), error.table()), (ErrorKind::InvalidArgument, Some("t")));
    };
    invalid(Schema::new(), &[]);
    invalid(schema().key_column("id", Order::Ascending), &[]);
    invalid(schema().key_column("none", Order::Ascending), &[]);
    invalid(schema(), &[IndexDef::new("i").column("none")]);
    assert_eq!(db.families(), ["default"]);
}

#[test]
fn existing_tables_are_kept() {
    let db = perigee::example_db().unwrap();
    import(&db).unwrap();
    assert_eq!(import(&db).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let staged = StagedTable::create(&db, "u", schema(), &[]).unwrap();
    staged.table().load([row(1)]).unwrap();
    let other = db.create_dyn_table("u", schema()).unwrap();
    assert_eq!(staged.publish().unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(other.scan().unwrap().count(), 0);
    assert_eq!(db.families(), ["@table/t", "@table/u", "default"]);
}

#[test]
fn imports_are_all_or_nothing_after_a_crash_at_any_io() {
    let disk = SimDisk::new(1);
    open(&disk).unwrap().close().unwrap();
    let rows: Vec<_> = (0..ROWS).map(row).collect();
    let (mut visible, mut invisible) = (0, 0);
    for at in 1.. {
        let disk = disk.deep_clone();
        disk.crash_at(at);
        let imported = open(&disk).map_err(Error::from).and_then(|db| import(&db));
        let crashed = disk.crashed();
        for (seed, kind) in [(at, Crash::Process), (at, Crash::Power), (at + 7, Crash::Power)] {
            let disk = disk.crash_clone(seed, kind);
            let db = open(&disk).unwrap();
            match db.dyn_table("t") {
                Ok(table) => {
                    visible += 1;
                    check_table(&table, &rows);
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
                    assert!(imported.is_err(), "a published table is durable");
                    invisible += 1;
                    import(&db).unwrap();
                    check_table(&db.dyn_table("t").unwrap(), &rows);
                }
            }
            assert!(StagedTable::discard_all(&db).unwrap() <= 1);
            assert_eq!(db.families(), ["@table/t", "default"]);
        }
        if !crashed {
            break;
        }
    }
    assert!(visible >= 3 && invisible > 20, "{visible} {invisible}");
}

/// Otherwise the first would publish the rows of the second, which are not all there yet.
#[test]
fn a_table_is_staged_once_at_a_time() {
    let db = perigee::example_db().unwrap();
    let first = StagedTable::create(&db, "t", schema(), &[]).unwrap();
    first.table().load((0..ROWS).map(row)).unwrap();
    let error = StagedTable::create(&db, "t", schema(), &[]).unwrap_err();
    assert_eq!((error.kind(), error.table()), (ErrorKind::Busy, Some("t")));
    assert_eq!(StagedTable::discard_all(&db).unwrap(), 0, "it is in use");
    let other = StagedTable::create(&db, "u", schema(), &[]).unwrap();
    let rows: Vec<_> = (0..ROWS).map(row).collect();
    check_table(&first.publish().unwrap(), &rows);
    drop(other);
    StagedTable::create(&db, "u", schema(), &[]).unwrap().publish().unwrap();
}
