//! Transactions over tables: atomicity, own writes, conflicts, isolation levels, snapshots and
//! history.
#![allow(clippy::unwrap_used)]

use perigee::{Isolation, TxnOptions};
use perigee_tables::{Error, ErrorKind, IndexDef, Result, Row, Table, TableDb, TableTxn};

#[derive(Row, Clone, Debug, PartialEq)]
struct Account {
    #[key]
    owner: String,
    cents: i64,
}

fn account(owner: &str, cents: i64) -> Account {
    Account { owner: owner.into(), cents }
}

fn accounts(db: &perigee::Db) -> Table<Account> {
    let accounts = db.table::<Account>("accounts").unwrap();
    accounts.insert(&account("ann", 100)).unwrap();
    accounts.insert(&account("bob", 0)).unwrap();
    accounts
}

#[test]
fn a_failed_closure_changes_nothing() {
    let db = perigee::example_db().unwrap();
    let accounts = accounts(&db);
    let log = db.table::<Account>("log").unwrap();
    let transfer = |cents: i64| {
        db.write_tables(|tx| {
            tx.on(&accounts).update("ann", |a| a.cents -= cents)?;
            tx.on(&accounts).update("bob", |a| a.cents += cents)?;
            // Reads see the writes.
            let left = tx.on(&accounts).get("ann")?.unwrap().cents;
            assert_eq!(tx.on(&accounts).scan()?.count(), 2);
            tx.on(&log).put(&account("transfer", cents))?;
            // Any error of the crate ends the transaction.
            if left < 0 { tx.on(&accounts).insert(&account("ann", 0)) } else { Ok(()) }
        })
    };
    transfer(30).unwrap();
    assert_eq!(transfer(90).unwrap_err().kind(), ErrorKind::KeyExists);
    assert_eq!(accounts.get("ann").unwrap().unwrap().cents, 70);
    assert_eq!(log.get("transfer").unwrap().unwrap().cents, 30);
}

#[test]
fn concurrent_updates_are_not_lost() {
    let db = perigee::example_db().unwrap();
    let accounts = accounts(&db);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    accounts.update("bob", |a| a.cents += 1).unwrap().unwrap();
                }
            });
        }
    });
    assert_eq!(accounts.get("bob").unwrap().unwrap().cents, 400);
}

#[test]
fn of_concurrent_inserts_one_succeeds() {
    let db = perigee::example_db().unwrap();
    let accounts = accounts(&db);
    accounts.create_index(IndexDef::new("cents").column("cents").unique()).unwrap();
    let inserted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|i| {
                let accounts = &accounts;
                scope.spawn(move || {
                    let same_key = (0..50).filter(|n| {
                        accounts.insert(&account(&format!("k{n}"), 1000 + i * 50 + n)).is_ok()
                    });
                    let keys = same_key.count();
                    let same_value = (0..50).filter(|n| {
                        accounts.insert(&account(&format!("v{i}-{n}"), 9000 + n)).is_ok()
                    });
                    keys + same_value.count()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(inserted, 100);
    assert_eq!(accounts.scan().unwrap().count(), 102);
    assert_eq!(accounts.index("cents").unwrap().scan().unwrap().count(), 102);
}

#[test]
fn isolation_levels() {
    let db = perigee::example_db().unwrap();
    let accounts = accounts(&db);
    // Weak levels would let two rows get the same key.
    for level in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
        let options = TxnOptions::new().isolation(level);
        let get = |tx: &TableTxn<'_>| tx.on(&accounts).get("ann");
        let error = db.write_tables_with(options, get).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(level.name()), "{error}");
    }
    let write_skew = |level: Option<Isolation>| -> Result<()> {
        let options = TxnOptions { isolation: level, ..TxnOptions::new() };
        let (a, b) = (db.begin_tables(options.clone())?, db.begin_tables(options)?);
        let total = |tx: &TableTxn<'_>| -> Result<i64> {
            let rows = tx.on(&accounts).get_many(["ann", "bob"])?;
            Ok(rows.into_iter().flatten().map(|r| r.cents).sum())
        };
        assert_eq!(total(&a)?, total(&b)?);
        a.on(&accounts).put(&account("ann", 1))?;
        b.on(&accounts).put(&account("bob", 1))?;
        a.commit()?;
        b.commit().map(drop)
    };
    write_skew(Some(Isolation::Snapshot)).unwrap();
    assert_eq!(write_skew(None).unwrap_err().kind(), ErrorKind::Conflict);
    let serializable = write_skew(Some(Isolation::Serializable));
    assert_eq!(serializable.unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn savepoints_and_other_column_families() {
    let db = perigee::example_db().unwrap();
    let accounts = accounts(&db);
    let tx = db.begin_tables(TxnOptions::new()).unwrap();
    tx.on(&accounts).put(&account("eve", 1)).unwrap();
    tx.engine_txn().savepoint("s").unwrap();
    tx.on(&accounts).put(&account("eve", 2)).unwrap();
    tx.on(&accounts).delete("ann").unwrap();
    tx.engine_txn().rollback_to("s").unwrap();
    tx.engine_txn().put(&db.default_family(), "k", "v").unwrap();
    assert!(tx.on(&accounts).contains("ann").unwrap());
    tx.commit().unwrap();
    assert_eq!(accounts.get("eve").unwrap().unwrap().cents, 1);
    assert!(db.contains("k").unwrap());
    let txn = db.begin(TxnOptions::new()).unwrap();
    assert!(TableTxn::over(&txn).commit().is_err());
}

#[test]
fn snapshots_and_history() {
    let options = perigee::Options::in_env(perigee::example_env())
        .history(perigee::HistoryPolicy::Operations(1000));
    let db = perigee::Db::open("/db", options).unwrap();
    let accounts = accounts(&db);
    accounts.create_index(IndexDef::new("cents").column("cents")).unwrap();
    let (seq, snapshot) = (db.history().latest_seq(), db.snapshot().unwrap());
    accounts.update("ann", |a| a.cents = 7).unwrap();
    accounts.delete("bob").unwrap();
    accounts.insert(&account("eve", 5)).unwrap();
    db.family("@table/accounts").unwrap().compact().unwrap();
    for past in [&snapshot, &db.history().snapshot_at(seq).unwrap()] {
        let past = accounts.at(past);
        assert_eq!(past.get("ann").unwrap(), Some(account("ann", 100)));
        assert_eq!(past.get_many(["bob", "eve"]).unwrap(), [Some(account("bob", 0)), None]);
        let by_cents: Result<Vec<_>> = past.index("cents").unwrap().scan().unwrap().collect();
        assert_eq!(by_cents.unwrap(), [account("bob", 0), account("ann", 100)]);
        assert_eq!(past.range_rev("a"..).unwrap().next().unwrap().unwrap().owner, "bob");
    }
    let index = accounts.index("cents").unwrap();
    accounts.put(&account("eve", 1)).unwrap();
    // A reader of an index shows the state in which it was returned.
    assert_eq!(index.get(5).unwrap(), Some(account("eve", 5)));
    let before = db.history().snapshot_at(1).unwrap();
    assert_eq!(accounts.at(&before).scan().unwrap().count(), 0);
    assert_eq!(accounts.at(&before).index("cents").unwrap_err().kind(), ErrorKind::NotFound);
}

/// A cursor of a transaction shows the index as of its creation; rows deleted since are skipped.
#[test]
fn rows_deleted_during_an_index_scan_are_skipped() {
    let db = perigee::example_db().unwrap();
    let accounts = accounts(&db);
    accounts.create_index(IndexDef::new("cents").column("cents")).unwrap();
    let deleted = db.write_tables(|tx| {
        let table = tx.on(&accounts);
        let mut n = 0;
        for row in table.index("cents")?.scan()? {
            row?;
            table.delete("bob")?;
            table.delete("ann")?;
            n += 1;
        }
        Ok::<_, Error>(n)
    });
    assert_eq!(deleted.unwrap(), 1);
}
