//! `Db::sync_up_to`: what it covers, what it costs, what it refuses.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::{Crash, Fault, SimDisk};
use perigee::{Db, Durability, ErrorKind, Options, Txn, TxnOptions};
use std::sync::Arc;

fn open(disk: &Arc<SimDisk>) -> Db {
    let env = Env { fs: Arc::<SimDisk>::clone(disk), ..Env::real() };
    Db::open("/db", Options::in_env(env)).unwrap()
}

fn txn_with_put(db: &Db, key: &str) -> Txn {
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&db.default_family(), key, "value").unwrap();
    txn
}

fn syncs(db: &Db) -> u64 {
    db.admin().stats().counter("wal_syncs").unwrap()
}

#[test]
fn commit_survives_power_loss_once_synced_up_to() {
    for is_synced in [true, false] {
        let disk = SimDisk::new(7);
        let db = open(&disk);
        let seq = txn_with_put(&db, "moon").commit_with(Durability::None).unwrap();
        assert!(db.contains("moon").unwrap(), "visible before the sync");
        if is_synced {
            db.sync_up_to(seq).unwrap();
        }
        let survives = |seed| {
            let after = disk.crash_clone(seed, Crash::Power);
            open(&after).contains("moon").unwrap()
        };
        let survived = (0..40).filter(|seed| survives(*seed)).count();
        assert_eq!(survived == 40, is_synced, "{survived} of 40 power losses");
    }
}

#[test]
fn one_sync_covers_all_earlier_commits() {
    let db = open(&SimDisk::new(7));
    let first = txn_with_put(&db, "a").commit_with(Durability::None).unwrap();
    let second = txn_with_put(&db, "b").commit_with(Durability::None).unwrap();
    let before = syncs(&db);
    db.sync_up_to(second).unwrap();
    assert_eq!(syncs(&db), before + 1);
    db.sync_up_to(first).unwrap();
    db.sync_up_to(second).unwrap();
    db.sync_up_to(0).unwrap();
    assert_eq!(syncs(&db), before + 1, "what is durable is not synced again");
}

#[test]
fn unassigned_sequence_number_is_refused() {
    let db = open(&SimDisk::new(7));
    let newest = txn_with_put(&db, "a").commit_with(Durability::None).unwrap();
    for seq in [newest + 1, u64::MAX] {
        let error = db.sync_up_to(seq).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(&newest.to_string()), "{error}");
    }
}

#[test]
fn failed_sync_leaves_outcome_unknown_for_every_later_caller() {
    let disk = SimDisk::new(7);
    let db = open(&disk);
    let seq = txn_with_put(&db, "a").commit_with(Durability::None).unwrap();
    disk.fail_at(1, Fault::SyncFails, false);
    assert_eq!(db.sync_up_to(seq).unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    disk.clear_faults();
    assert_eq!(db.sync_up_to(seq).unwrap_err().kind(), ErrorKind::OutcomeUnknown);
}
