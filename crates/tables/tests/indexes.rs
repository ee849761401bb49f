//! Secondary indexes: order, NULLs, uniqueness, builds on existing rows, other handles.
#![allow(clippy::unwrap_used)]

use crate::common::{check_indexes, check_table};
use perigee_tables::{ColumnType, DynTable, ErrorKind, IndexDef, Row, Schema, TableDb, Value};

fn people(db: &perigee::Db) -> DynTable {
    let schema = Schema::new()
        .key("country", ColumnType::Text)
        .key_desc("id", ColumnType::U32)
        .nullable("mail", ColumnType::Text)
        .nullable("age", ColumnType::U8);
    db.create_dyn_table("people", schema).unwrap()
}

fn person(country: &str, id: u32, mail: Option<&str>, age: Option<u8>) -> Vec<Value> {
    vec![country.into(), id.into(), mail.into(), age.into()]
}

#[test]
fn indexes_follow_rows() {
    let db = perigee::example_db().unwrap();
    let table = people(&db);
    table.create_index(IndexDef::new("age").column("age")).unwrap();
    table.create_index(IndexDef::new("age_desc").column_desc("age").column("mail")).unwrap();
    table.create_index(IndexDef::new("id").column("id").column_desc("country")).unwrap();
    let mut rows = vec![
        person("fr", 1, Some("a"), Some(30)),
        person("fr", 2, None, None),
        person("de", 3, Some("c"), Some(30)),
        person("de", 4, Some("d"), Some(20)),
    ];
    for row in &rows {
        table.insert(row).unwrap();
    }
    check_table(&table, &rows);
    rows[0] = person("fr", 1, Some("z"), Some(10));
    table.put(&rows[0]).unwrap();
    check_table(&table, &rows);
    table.update(["de".into(), Value::U32(4)], |row| row[3] = Value::Null).unwrap();
    rows[3][3] = Value::Null;
    check_table(&table, &rows);
    table.delete(["fr".into(), Value::U32(2)]).unwrap();
    rows.remove(1);
    check_table(&table, &rows);
    let ages = |range: perigee_tables::IndexIter<'_, Vec<Value>>| -> Vec<Value> {
        range.map(|row| row.unwrap()[3].clone()).collect()
    };
    let index = table.index("age").unwrap();
    assert_eq!(ages(index.range(10..=30).unwrap()), [10u8.into(), Value::U8(30)]);
    assert_eq!(ages(index.range(..11).unwrap()), [Value::Null, 10u8.into()]);
    assert_eq!(ages(index.prefix(Value::Null).unwrap()), [Value::Null]);
    assert_eq!(index.get(30).unwrap().unwrap()[0], "de".into());
    assert!(index.range(300..).is_err() && index.prefix("text").is_err());
    let index = table.index("age_desc").unwrap();
    assert_eq!(index.prefix((30u8, "c")).unwrap().count(), 1);
    assert_eq!(index.prefix(vec![Value::Null, "d".into()]).unwrap().count(), 1);
}

#[test]
fn unique_indexes_refuse_duplicates() {
    let db = perigee::example_db().unwrap();
    let table = people(&db);
    table.create_index(IndexDef::new("mail").column("mail").unique()).unwrap();
    table.insert(&person("fr", 1, Some("a"), None)).unwrap();
    table.insert(&person("fr", 2, None, None)).unwrap();
    table.insert(&person("fr", 3, None, None)).unwrap(); // NULLs do not conflict
    let error = table.insert(&person("de", 4, Some("a"), None)).unwrap_err();
    assert_eq!((error.kind(), error.index()), (ErrorKind::UniqueViolation, Some("mail")));
    assert_eq!(error.key(), Some("(\"de\", 4)"));
    assert!(error.message().contains("row (\"fr\", 1)"), "{error}");
    table.put(&person("fr", 1, Some("a"), Some(5))).unwrap(); // its own entry
    let change = |row: &mut Vec<Value>| row[2] = "a".into();
    let error = table.update(["fr".into(), Value::U32(2)], change).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UniqueViolation);
    table.delete(["fr".into(), Value::U32(1)]).unwrap();
    table.update(["fr".into(), Value::U32(2)], change).unwrap().unwrap();
    assert_eq!(table.index("mail").unwrap().get("a").unwrap().unwrap()[1], Value::U32(2));
    check_indexes(&table);
    // In one transaction: a value can move to another row after the first has given it up.
    table
        .write(|t| {
            t.update(["fr".into(), Value::U32(2)], |row| row[2] = "b".into())?;
            t.update(["fr".into(), Value::U32(3)], |row| row[2] = "a".into())
        })
        .unwrap();
    check_indexes(&table);
}

#[test]
fn indexes_are_built_on_existing_rows() {
    let db = perigee::example_db().unwrap();
    let table = people(&db);
    let rows: Vec<_> = (0..3000u32)
        .map(|id| person("fr", id, Some(&format!("m{}", id % 700)), Some((id % 100) as u8)))
        .collect();
    table.write(|t| rows.iter().try_for_each(|row| t.insert(row))).unwrap();
    table.create_index(IndexDef::new("age").column_desc("age")).unwrap();
    check_table(&table, &rows);
    let duplicate = IndexDef::new("mail").column("mail").unique();
    let error = table.create_index(duplicate.clone()).unwrap_err();
    assert_eq!((error.kind(), error.index()), (ErrorKind::UniqueViolation, Some("mail")));
    assert_eq!(table.indexes().unwrap().len(), 1, "the index was removed");
    assert_eq!(table.index("mail").unwrap_err().kind(), ErrorKind::NotFound);
    for id in 700..3000u32 {
        table.delete(["fr".into(), id.into()]).unwrap();
    }
    table.create_index(duplicate.clone()).unwrap();
    table.create_index(duplicate).unwrap(); // exists
    check_table(&table, &rows[..700]);
    let other = IndexDef::new("mail").column("age");
    assert_eq!(table.create_index(other).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let unknown = IndexDef::new("x").column("none");
    assert_eq!(table.create_index(unknown).unwrap_err().column(), Some("none"));
    assert!(table.create_index(IndexDef::new("x")).is_err());
    assert!(table.create_index(IndexDef::new("x").column("age").column("age")).is_err());
}

/// The number of a dropped index is used again: old entries must not show up in the new index.
#[test]
fn dropped_indexes_leave_nothing() {
    let db = perigee::example_db().unwrap();
    let table = people(&db);
    for id in 0..10 {
        table.insert(&person("fr", id, None, Some(id as u8))).unwrap();
    }
    table.create_index(IndexDef::new("age").column("age")).unwrap();
    let snapshot = db.snapshot().unwrap();
    table.drop_index("age").unwrap();
    assert_eq!(table.drop_index("age").unwrap_err().kind(), ErrorKind::NotFound);
    table.create_index(IndexDef::new("mail").column("mail")).unwrap();
    check_indexes(&table);
    assert_eq!(table.index("age").unwrap_err().kind(), ErrorKind::NotFound);
    // The snapshot still has the dropped index, and not the new one.
    let past = table.at(&snapshot);
    assert_eq!(past.index("age").unwrap().range(3..).unwrap().count(), 7);
    assert_eq!(past.index("mail").unwrap_err().kind(), ErrorKind::NotFound);
}

/// A handle that was opened before the index was created must maintain it.
#[test]
fn all_handles_maintain_an_index() {
    #[derive(Row, Debug)]
    struct Person {
        #[key]
        country: String,
        #[key(desc)]
        id: u32,
        age: Option<u8>,
        mail: Option<String>,
    }
    let db = perigee::example_db().unwrap();
    let table = people(&db);
    let typed = db.table::<Person>("people").unwrap();
    let other = db.dyn_table("people").unwrap();
    table.create_index(IndexDef::new("age").column("age")).unwrap();
    other.insert(&person("fr", 1, None, Some(1))).unwrap();
    typed.insert(&Person { country: "fr".into(), id: 2, age: Some(2), mail: None }).unwrap();
    check_indexes(&table);
    let row = typed.index("age").unwrap().get(2).unwrap().unwrap();
    assert_eq!((row.id, row.country.as_str(), row.mail), (2, "fr", None));
    typed.drop_index("age").unwrap();
    table.put(&person("fr", 1, None, Some(9))).unwrap();
    check_indexes(&table);
    assert_eq!(db.family("@table/people").unwrap().iter().unwrap().count(), 3);
}

/// A transaction that began before the index was registered conflicts; the closure runs again.
#[test]
fn running_transactions_conflict_with_a_new_index() {
    for isolation in [perigee::Isolation::RepeatableRead, perigee::Isolation::Snapshot] {
        let db = perigee::example_db().unwrap();
        let table = people(&db);
        let options = perigee::TxnOptions::new().isolation(isolation);
        let tx = db.begin_tables(options.clone()).unwrap();
        if isolation == perigee::Isolation::RepeatableRead {
            tx.on(&table).insert(&person("fr", 1, None, Some(1))).unwrap();
            table.create_index(IndexDef::new("age").column("age")).unwrap();
            assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::Conflict);
        } else {
            // The transaction pins its state by a read of something else.
            tx.engine_txn().get(&db.default_family(), "k").unwrap();
            table.create_index(IndexDef::new("age").column("age")).unwrap();
            let error = tx.on(&table).insert(&person("fr", 1, None, Some(1))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
        }
        let insert = |id| {
            db.write_tables_with(options.clone(), |tx| {
                tx.on(&table).insert(&person("fr", id, None, Some(1)))
            })
        };
        insert(2).unwrap();
        check_indexes(&table);
    }
}

/// An index whose build was interrupted is maintained, cannot be read, and is completed by the
/// next call.
#[test]
fn interrupted_builds_are_completed() {
    let env = perigee::example_env();
    let open = || perigee::Db::open("/db", perigee::Options::in_env(env.clone())).unwrap();
    let db = open();
    let table = people(&db);
    for id in 0..10 {
        table.insert(&person("fr", id, None, Some(id as u8))).unwrap();
    }
    // The error of a duplicate would remove the index, so interrupt the build by damage.
    let family = db.family("@table/people").unwrap();
    let (last, row) = family.last().unwrap().unwrap();
    family.put(&last, "").unwrap();
    let def = IndexDef::new("age").column("age").unique();
    let error = table.create_index(def.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    family.put(&last, row).unwrap();
    db.close().unwrap();
    let db = open();
    let table = db.dyn_table("people").unwrap();
    assert_eq!(table.index("age").unwrap_err().kind(), ErrorKind::Busy);
    // The entry of row 3 is missing; row 100 gets it; then row 3 gives up the value.
    table.insert(&person("fr", 100, None, Some(3))).unwrap();
    table.update(["fr".into(), Value::U32(3)], |row| row[3] = Value::U8(77)).unwrap();
    table.delete(["fr".into(), Value::U32(5)]).unwrap();
    table.create_index(def).unwrap();
    check_indexes(&table);
}

/// A crash during a build leaves an index that `tables` reports as not ready.
#[test]
fn interrupted_builds_are_listed_as_not_ready() {
    use perigee::env::fs::memory::{Crash, SimDisk};
    let open = |disk: &std::sync::Arc<SimDisk>| {
        let env = perigee::env::Env { fs: disk.clone(), ..perigee::env::Env::real() };
        perigee::Db::open("/db", perigee::Options::in_env(env)).unwrap()
    };
    let disk = SimDisk::new(1);
    let db = open(&disk);
    people(&db).load((0..50).map(|id| person("fr", id, None, Some(30)))).unwrap();
    db.close().unwrap();
    let mut states = Vec::new();
    for at in 1.. {
        let disk = disk.deep_clone();
        let db = open(&disk);
        disk.crash_at(at);
        let table = db.dyn_table("people").unwrap();
        let _ = table.create_index_in_batches(IndexDef::new("age").column("age"), 20);
        let finished = !disk.crashed();
        let db = open(&disk.crash_clone(1, Crash::Process));
        let info = db.tables().unwrap().remove(0);
        states.push(info.index_states.first().map(|state| state.ready));
        let table = db.dyn_table("people").unwrap();
        table.create_index(IndexDef::new("age").column("age")).unwrap();
        assert!(db.tables().unwrap()[0].index_states[0].ready);
        check_indexes(&table);
        if finished {
            break;
        }
    }
    for state in [None, Some(false), Some(true)] {
        assert!(states.contains(&state), "{state:?} is not in {states:?}");
    }
}

/// A value that no index entry can have ends the build, as a duplicate does: otherwise every later
/// write would maintain an index that can never be completed.
#[test]
fn an_index_that_a_row_does_not_fit_is_removed() {
    let db = perigee::example_db().unwrap();
    let schema = Schema::new().key("id", ColumnType::U32).column("text", ColumnType::Text);
    let table = db.create_dyn_table("t", schema).unwrap();
    let long = vec![Value::U32(1), Value::from("x".repeat(100_000))];
    table.put(&long).unwrap();
    let error = table.create_index(IndexDef::new("by_text").column("text")).unwrap_err();
    assert_eq!((error.kind(), error.index()), (ErrorKind::InvalidArgument, Some("by_text")));
    let text = error.to_string();
    assert!(text.contains("key (1): invalid argument: the key is too long"), "{error}");
    assert!(table.indexes().unwrap().is_empty());
    table.create_index(IndexDef::new("by_id").column_desc("id")).unwrap();
    table.load([vec![Value::U32(2), Value::from("y")]]).unwrap();
    table.delete([Value::U32(1)]).unwrap();
    table.create_index(IndexDef::new("by_text").column("text")).unwrap();
    let error = table.put(&long).unwrap_err();
    assert_eq!((error.kind(), error.index()), (ErrorKind::InvalidArgument, Some("by_text")));
    let error = table.load([long]).unwrap_err();
    assert_eq!((error.kind(), error.index()), (ErrorKind::InvalidArgument, Some("by_text")));
}
