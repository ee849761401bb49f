//! Index builds while other threads write, in many interleavings of the simulated scheduler and on
//! real threads.
#![allow(clippy::unwrap_used)]

use crate::common::{Rng, check_indexes};
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::env::sim::SimWorld;
use perigee::{Db, Isolation, Options, TxnOptions};
use perigee_tables::{ColumnType, DynTable, ErrorKind, IndexDef, Schema, TableDb, Value};

fn create(db: &Db) -> DynTable {
    let schema = Schema::new().key("id", ColumnType::U32).nullable("v", ColumnType::U32);
    db.create_dyn_table("t", schema).unwrap()
}

fn row(id: u64, v: u64) -> Vec<Value> {
    vec![(id as u32).into(), if v == 0 { Value::Null } else { (v as u32).into() }]
}

const LEVELS: [Isolation; 3] =
    [Isolation::RepeatableRead, Isolation::Snapshot, Isolation::Serializable];

/// What a writer writes.
struct Writes {
    seed: u64,
    count: u64,
    ids: u64,
    values: u64,
    levels: &'static [Isolation],
}

/// Writes random rows; a duplicate in a unique index is no failure of the test.
fn write_rows(db: &Db, table: &DynTable, writes: &Writes) {
    let &Writes { seed, count, ids, values, levels } = writes;
    let mut rng = Rng(seed * 2 + 1);
    for _ in 0..count {
        let options = TxnOptions::new().isolation(levels[rng.below(levels.len() as u64) as usize]);
        let (id, v, kind) = (rng.below(ids), rng.below(values), rng.below(4));
        let result = db.write_tables_with(options, |tx| {
            let table = tx.on(table);
            match kind {
                0 => table.delete([Value::U32(id as u32)]).map(drop),
                1 => table
                    .update([Value::U32(id as u32)], |r| r[1] = row(id, v)[1].clone())
                    .map(drop),
                _ => table.put(&row(id, v)),
            }
        });
        match result {
            Err(e) if e.kind() == ErrorKind::UniqueViolation => {}
            other => other.unwrap(),
        }
    }
}

/// Builds two indexes while a writer runs, in one interleaving.
fn build_beside_a_writer(env: &Env, seed: u64) {
    let db = Db::open("/db", Options::in_env(env.clone())).unwrap();
    let table = create(&db);
    for id in 0..6 {
        table.insert(&row(id, id + 1)).unwrap();
    }
    let writers = [0, 1].map(|i| {
        let (db, table) = (db.clone(), table.clone());
        let seed = seed * 2 + i;
        let writes = Writes { seed, count: 6, ids: 8, values: 12, levels: &LEVELS };
        let body = move || write_rows(&db, &table, &writes);
        env.spawn.spawn("writer", Box::new(body)).unwrap()
    });
    let plain = IndexDef::new("plain").column_desc("v");
    table.create_index_in_batches(plain, 1 + seed as usize % 4).unwrap();
    let unique = IndexDef::new("unique").column("v").unique();
    match table.create_index_in_batches(unique, 1 + seed as usize % 3) {
        Err(e) if e.kind() == ErrorKind::UniqueViolation => {}
        other => other.unwrap(),
    }
    writers.into_iter().for_each(|w| w.join().unwrap());
    check_indexes(&table);
    db.close().unwrap();
}

#[test]
fn indexes_are_exact_in_every_interleaving() {
    for seed in 0..150 {
        SimWorld::new(seed).run(SimDisk::new(seed), |env| build_beside_a_writer(&env, seed));
    }
}

#[test]
fn indexes_are_exact_beside_real_threads() {
    let db = perigee::example_db().unwrap();
    let table = create(&db);
    table.write(|t| (0..2000).try_for_each(|id| t.put(&row(id, id + 1)))).unwrap();
    std::thread::scope(|scope| {
        for i in 0..3 {
            let (db, table) = (&db, &table);
            // A level without locks, so that no wait for a lock can time out.
            let levels = &LEVELS[..1];
            let writes = Writes { seed: i, count: 300, ids: 2500, values: 1_000_000, levels };
            scope.spawn(move || write_rows(db, table, &writes));
        }
        for (name, unique) in [("plain", false), ("unique", true), ("again", false)] {
            let def = IndexDef::new(name).column("v");
            let built = table.create_index(if unique { def.unique() } else { def });
            match built {
                Err(e) if unique && e.kind() == ErrorKind::UniqueViolation => {}
                other => other.unwrap(),
            }
        }
    });
    check_indexes(&table);
}

/// Two calls for the same index at once both return when it is complete.
#[test]
fn an_index_is_built_by_two_callers() {
    for seed in 0..40 {
        SimWorld::new(seed).run(SimDisk::new(seed), |env| {
            let db = Db::open("/db", Options::in_env(env.clone())).unwrap();
            let table = create(&db);
            (0..5).for_each(|id| table.insert(&row(id, id + 1)).unwrap());
            let builders = [0, 1].map(|_| {
                let table = table.clone();
                let body = move || {
                    table.create_index(IndexDef::new("v").column("v").unique()).unwrap();
                    check_indexes(&table);
                };
                env.spawn.spawn("builder", Box::new(body)).unwrap()
            });
            builders.into_iter().for_each(|b| b.join().unwrap());
            db.close().unwrap();
        });
    }
}
