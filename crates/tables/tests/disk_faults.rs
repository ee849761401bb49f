//! Loads, index builds, changes of schemas and imports while the disk is full or fails: each is
//! done or not done, the table and its indexes agree, and the same call succeeds afterwards.
#![allow(clippy::unwrap_used)]

use crate::common::check_table;
use perigee::env::fs::memory::{Fault, SimDisk};
use perigee::{Db, FamilyOptions, Options};
use perigee_tables::{
    Column, ColumnType, DynTable, Error, ErrorKind, IndexDef, Schema, SchemaChange, StagedTable,
    TableDb, Value,
};
use std::sync::Arc;

const ROWS: u32 = 120;

fn open(disk: &Arc<SimDisk>) -> Db {
    let env = perigee::env::Env { fs: disk.clone(), ..perigee::env::Env::real() };
    // Small memtables, so that index builds write table files.
    let family = FamilyOptions::new().memtable_bytes(16 << 10);
    Db::open("/db", Options::in_env(env).default_family(family)).unwrap()
}

fn schema() -> Schema {
    Schema::new().key("id", ColumnType::U32).column("name", ColumnType::Text)
}

fn row(id: u32) -> Vec<Value> {
    vec![id.into(), format!("name {:05} {}", id * 7919 % 10_007, "x".repeat(200)).into()]
}

fn by_name() -> IndexDef {
    IndexDef::new("by_name").column("name").unique()
}

/// A call that fails, and what the table has before and after it.
struct Case {
    name: &'static str,
    indexed: bool,
    call: fn(&Db) -> Result<(), Error>,
    done: fn(&Db) -> bool,
}

fn table(db: &Db) -> DynTable {
    db.dyn_table("t").unwrap()
}

fn is_loaded(db: &Db) -> bool {
    table(db).contains([Value::U32(ROWS)]).unwrap()
}

fn has_index(db: &Db) -> bool {
    table(db).index("by_name").is_ok()
}

const CASES: [Case; 5] = [
    Case {
        name: "load",
        indexed: true,
        call: |db| table(db).load((ROWS..2 * ROWS).map(row)).map(drop),
        done: is_loaded,
    },
    Case {
        name: "create_index",
        indexed: false,
        call: |db| table(db).create_index(by_name()),
        done: has_index,
    },
    Case {
        name: "drop_index",
        indexed: true,
        call: |db| table(db).drop_index("by_name"),
        done: |db| !has_index(db),
    },
    Case {
        name: "alter",
        indexed: true,
        call: |db| {
            let column = Column::new("age", ColumnType::U8).default_value(7u8);
            db.alter_table("t", &[SchemaChange::AddColumn(column)])
        },
        done: |db| table(db).schema().position("age").is_some(),
    },
    Case {
        name: "import",
        indexed: true,
        call: |db| {
            let staged = StagedTable::create(db, "u", schema(), &[by_name()])?;
            staged.table().load((0..ROWS).map(row))?;
            staged.publish().map(drop)
        },
        done: |db| db.dyn_table("u").is_ok(),
    },
];

/// Checks that the rows are those before the call, or those after it.
fn check(db: &Db, done: bool, case: &Case) {
    let table = table(db);
    let rows = if case.name == "load" && done { 2 * ROWS } else { ROWS };
    let has_age = table.schema().position("age").is_some();
    let rows = (0..rows).map(row).map(|mut row| {
        row.extend(has_age.then_some(Value::U8(7)));
        row
    });
    let rows: Vec<_> = rows.collect();
    if table.indexes().unwrap().is_empty() || has_index(db) {
        check_table(&table, &rows);
    } else {
        // Its build has not been completed: only the rows can be read.
        assert_eq!(case.name, "create_index");
        let found: Vec<_> = table.scan().unwrap().map(Result::unwrap).collect();
        assert_eq!(found, rows);
    }
    if let Ok(imported) = db.dyn_table("u") {
        check_table(&imported, &(0..ROWS).map(row).collect::<Vec<_>>());
    }
}

fn check_faults(case: &Case, fault: Fault) {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    let table = db.create_dyn_table("t", schema()).unwrap();
    if case.indexed {
        table.create_index(by_name()).unwrap();
    }
    table.load((0..ROWS).map(row)).unwrap();
    db.close().unwrap();
    let (mut failed, mut not_done) = (0, 0);
    for at in 1.. {
        let disk = disk.deep_clone();
        let db = open(&disk);
        let before = disk.mutating_calls();
        disk.fail_at(at, fault, true);
        let result = (case.call)(&db);
        let calls = disk.mutating_calls() - before;
        disk.clear_faults();
        let done = (case.done)(&db);
        assert!(done || result.is_err(), "{} {at}: no error, and not done", case.name);
        check(&db, done, case);
        failed += u32::from(result.is_err());
        not_done += u32::from(!done);
        if let Err(e) = &result {
            assert_ne!(e.kind(), ErrorKind::Corruption, "{} {at}: {e}", case.name);
        }
        // After a failed sync the engine may refuse writes until the next open.
        let again = (case.call)(&db);
        drop(db);
        let db = open(&disk);
        if again.is_err() && !(case.done)(&db) {
            (case.call)(&db).unwrap_or_else(|e| panic!("{} {at}: again: {e}", case.name));
        }
        assert!((case.done)(&db), "{} {at}", case.name);
        check(&db, true, case);
        table_is_writable(&db, case, at);
        if calls < at {
            break;
        }
    }
    println!("{} {fault:?}: {failed} failed, {not_done} not done", case.name);
    assert!(not_done > 0, "{}", case.name);
}

fn table_is_writable(db: &Db, case: &Case, at: u64) {
    let mut new = row(5 * ROWS);
    new.extend((case.name == "alter").then_some(Value::U8(1)));
    let written = table(db).insert(&new);
    written.unwrap_or_else(|e| panic!("{} {at}: insert: {e}", case.name));
}

#[test]
fn failed_calls_can_be_repeated() {
    for case in &CASES {
        for fault in [Fault::Enospc, Fault::Eio] {
            check_faults(case, fault);
        }
    }
}
