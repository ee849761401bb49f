//! Bulk loads: atomic, with indexes, duplicates refused, writers excluded.
#![allow(clippy::unwrap_used)]

use crate::common::{Rng, check_table};
use perigee::env::fs::memory::SimDisk;
use perigee::env::sim::SimWorld;
use perigee::{Db, Isolation, Options, TxnOptions};
use perigee_tables::{ColumnType, DynTable, ErrorKind, IndexDef, Schema, TableDb, TableTxn, Value};

fn create(db: &Db) -> DynTable {
    let schema = Schema::new()
        .key("id", ColumnType::U32)
        .column("name", ColumnType::Text)
        .nullable("mail", ColumnType::Text);
    let table = db.create_dyn_table("t", schema).unwrap();
    table.create_index(IndexDef::new("name").column("name")).unwrap();
    table.create_index(IndexDef::new("mail").column("mail").unique()).unwrap();
    table
}

fn row(id: u32) -> Vec<Value> {
    let mail = (id % 3 != 0).then(|| format!("m{id}"));
    vec![id.into(), format!("n{}", id % 17).as_str().into(), mail.into()]
}

#[test]
fn loads_fill_rows_and_indexes() {
    let db = perigee::example_db().unwrap();
    let table = create(&db);
    let mut ids: Vec<u32> = (0..3000).collect();
    let mut rng = Rng(3);
    for i in 0..ids.len() {
        ids.swap(i, rng.below(3000) as usize);
    }
    let report = table.load(ids.iter().map(|id| row(*id))).unwrap();
    assert_eq!((report.rows, report.entries), (3000, 9000));
    let mut rows: Vec<_> = (0..3000).map(row).collect();
    check_table(&table, &rows);
    table.load_sorted((3000..4000).map(row)).unwrap();
    rows.extend((3000..4000).map(row));
    check_table(&table, &rows);
    table.load([]).unwrap();
    table.insert(&row(5000)).unwrap();
    rows.push(row(5000));
    check_table(&table, &rows);
}

#[test]
fn duplicates_are_refused_and_nothing_is_loaded() {
    let db = perigee::example_db().unwrap();
    let table = create(&db);
    table.insert(&row(1)).unwrap();
    let same_mail = vec![9u32.into(), "x".into(), "m1".into()];
    let taken = vec![8u32.into(), "x".into(), "m7".into()];
    let fails = |rows: Vec<Vec<Value>>, kind: ErrorKind| {
        let error = table.load(rows).unwrap_err();
        assert_eq!((error.kind(), error.table()), (kind, Some("t")), "{error}");
        error
    };
    let error = fails(vec![row(5), row(7), row(2), row(5)], ErrorKind::KeyExists);
    assert!(error.message().contains("rows 0 and 3"), "{error}");
    let error = fails(vec![row(5), row(7), taken], ErrorKind::KeyExists);
    assert!(error.message().contains("rows 1 and 2"), "{error}");
    assert_eq!(fails(vec![row(5), row(1)], ErrorKind::KeyExists).key(), Some("(1)"));
    let error = fails(vec![row(5), same_mail], ErrorKind::UniqueViolation);
    assert_eq!((error.index(), error.key()), (Some("mail"), Some("(9)")));
    fails(vec![row(5), vec![Value::Null]], ErrorKind::InvalidArgument);
    let sorted = |ids: [u32; 2]| table.load_sorted(ids.map(row)).unwrap_err().kind();
    assert_eq!(sorted([5, 5]), ErrorKind::KeyExists);
    assert_eq!(sorted([5, 4]), ErrorKind::InvalidArgument);
    check_table(&table, &[row(1)]);
    table.put(&row(2)).unwrap(); // writers are not blocked any more
    table.load([row(5)]).unwrap();
    check_table(&table, &[row(1), row(2), row(5)]);
}

/// A transaction that has begun before a load conflicts, and a later one waits for its end: no row
/// of the load can replace one that was inserted meanwhile.
#[test]
fn loads_and_writers_exclude_each_other() {
    let db = perigee::example_db().unwrap();
    let table = create(&db);
    let before = db.begin_tables(Default::default()).unwrap();
    before.on(&table).insert(&row(1)).unwrap();
    let mut load = table.begin_load().unwrap();
    load.push(&row(1)).unwrap();
    assert_eq!(before.commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert!(table.get([Value::U32(1)]).unwrap().is_none(), "readers go on");
    load.finish().unwrap();
    assert_eq!(table.insert(&row(1)).unwrap_err().kind(), ErrorKind::KeyExists);
    check_table(&table, &[row(1)]);
}

/// Whether a writer finds the load running or finished, it finds the loaded row.
#[test]
fn writers_wait_for_a_load() {
    let levels = [Isolation::RepeatableRead, Isolation::Snapshot, Isolation::Serializable];
    for seed in 0..90 {
        SimWorld::new(seed).run(SimDisk::new(seed), |env| {
            let db = Db::open("/db", Options::in_env(env.clone())).unwrap();
            let table = create(&db);
            let mut load = table.begin_load().unwrap();
            load.push(&row(1)).unwrap();
            let writer = {
                let (db, table) = (db.clone(), table.clone());
                let options = TxnOptions::new().isolation(levels[seed as usize % 3]);
                let body = move || {
                    let insert = |tx: &TableTxn<'_>| {
                        tx.on(&table).get([Value::U32(7)])?;
                        tx.on(&table).insert(&row(1))
                    };
                    let error = db.write_tables_with(options, insert).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::KeyExists);
                };
                env.spawn.spawn("writer", Box::new(body)).unwrap()
            };
            load.finish().unwrap();
            writer.join().unwrap();
            check_table(&table, &[row(1)]);
            db.close().unwrap();
        });
    }
}

/// A read-only database can be read after a crash during a load.
#[test]
fn a_read_only_open_ignores_the_flag_of_a_load() {
    let disk = SimDisk::new(1);
    let env = |disk: &std::sync::Arc<SimDisk>| perigee::env::Env {
        fs: disk.clone(),
        ..perigee::env::Env::real()
    };
    let db = Db::open("/db", Options::in_env(env(&disk))).unwrap();
    let table = create(&db);
    table.insert(&row(1)).unwrap();
    let load = table.begin_load().unwrap();
    let after = disk.crash_clone(1, perigee::env::fs::memory::Crash::Process);
    drop(load);
    let db = Db::open("/db", Options::in_env(env(&after)).read_only(true)).unwrap();
    check_table(&db.dyn_table("t").unwrap(), &[row(1)]);
}

/// A crash during a load leaves its flag in the schema; the next writer removes it.
#[test]
fn tables_are_writable_after_a_crash_during_a_load() {
    let disk = SimDisk::new(1);
    let open = |disk: &std::sync::Arc<SimDisk>| {
        let env = perigee::env::Env { fs: disk.clone(), ..perigee::env::Env::real() };
        Db::open("/db", Options::in_env(env)).unwrap()
    };
    let db = open(&disk);
    let table = create(&db);
    let mut load = table.begin_load().unwrap();
    load.push(&row(1)).unwrap();
    let after = disk.crash_clone(1, perigee::env::fs::memory::Crash::Process);
    drop(load);
    for first in 0..3 {
        let db = open(&after.deep_clone());
        let table = db.dyn_table("t").unwrap();
        match first {
            0 => table.insert(&row(2)).unwrap(),
            1 => table.create_index(IndexDef::new("i").column("id")).unwrap(),
            _ => drop(table.load([row(2)]).unwrap()),
        }
        table.put(&row(3)).unwrap();
        let rows = if first == 1 { vec![row(3)] } else { vec![row(2), row(3)] };
        check_table(&table, &rows);
    }
}

/// A rejected row has written a part of its index entries: the load cannot be finished.
#[test]
fn a_load_with_a_rejected_row_cannot_be_finished() {
    let db = perigee::example_db().unwrap();
    let table = create(&db);
    table.insert(&row(1)).unwrap();
    let same_mail = vec![9u32.into(), "x".into(), "m1".into()];
    let mut load = table.begin_load().unwrap();
    load.push(&row(5)).unwrap();
    assert_eq!(load.push(&same_mail).unwrap_err().kind(), ErrorKind::UniqueViolation);
    assert_eq!(load.push(&row(6)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let error = load.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("rejected"), "{error}");
    check_table(&table, &[row(1)]);
}

/// Entries that a load writes to an index must not be published after the index was dropped: the
/// next index would have them.
#[test]
fn an_index_cannot_be_dropped_during_a_load() {
    SimWorld::new(1).run(SimDisk::new(1), |env| {
        let db = Db::open("/db", Options::in_env(env)).unwrap();
        let table = create(&db);
        let mut load = table.begin_load().unwrap();
        load.push(&row(1)).unwrap();
        let error = table.drop_index("name").unwrap_err();
        assert_eq!((error.kind(), error.index()), (ErrorKind::Busy, Some("name")));
        load.finish().unwrap();
        table.drop_index("name").unwrap();
        table.create_index(IndexDef::new("id").column("id")).unwrap();
        check_table(&table, &[row(1)]);
        db.close().unwrap();
    });
}

/// The error says what ends the state: waiting does not.
#[test]
fn a_load_names_the_unfinished_index() {
    let disk = SimDisk::new(1);
    let env = perigee::env::Env { fs: disk.clone(), ..perigee::env::Env::real() };
    let db = Db::open("/db", Options::in_env(env)).unwrap();
    let table = create(&db);
    table.insert(&row(1)).unwrap();
    db.sync().unwrap();
    let after = (1..200).find_map(|at| {
        let disk = disk.deep_clone();
        let env = perigee::env::Env { fs: disk.clone(), ..perigee::env::Env::real() };
        let db = Db::open("/db", Options::in_env(env)).unwrap();
        let table = db.dyn_table("t").unwrap();
        disk.crash_at(at);
        let built = table.create_index(IndexDef::new("id").column("id"));
        let after = disk.crash_clone(1, perigee::env::fs::memory::Crash::Process);
        let env = perigee::env::Env { fs: after, ..perigee::env::Env::real() };
        let db = Db::open("/db", Options::in_env(env)).unwrap();
        let table = db.dyn_table("t").unwrap();
        let unfinished = built.is_err() && table.indexes().unwrap().len() == 3;
        (unfinished && table.index("id").is_err()).then_some(table)
    });
    let table = after.expect("no crash has left an unfinished index");
    let error = table.load([row(2)]).unwrap_err();
    assert_eq!((error.kind(), error.index()), (ErrorKind::Busy, Some("id")));
    assert!(error.message().contains("create_index"), "{error}");
    table.create_index(IndexDef::new("id").column("id")).unwrap();
    table.load([row(2)]).unwrap();
    check_table(&table, &[row(1), row(2)]);
}
