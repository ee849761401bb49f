//! Transactions that exceed their memory limit: their writes are spilled to temporary files, and
//! results must not differ from those of transactions in memory.
#![allow(clippy::unwrap_used)]

use crate::common::Rng;
use perigee::env::fs::memory::SimDisk;
use perigee::env::{DirOpenMode, Env};
use perigee::{
    Db, ErrorKind, Family, FamilyOptions, Isolation, MergeRule, Options, Txn, TxnOptions,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn env() -> Env {
    Env { fs: SimDisk::new(1), ..Env::real() }
}

fn open(env: &Env) -> Db {
    Db::open("/db", Options::in_env(env.clone())).unwrap()
}

fn spill_files(env: &Env) -> usize {
    let dir = env.fs.open_dir("/db".as_ref(), DirOpenMode::Existing).unwrap();
    let names = dir.list().unwrap();
    names.iter().filter(|n| n.ends_with(".klog") || n.ends_with(".vlog")).count()
}

fn family_entries(family: &Family) -> Map {
    family.iter().unwrap().map(|e| e.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

fn txn_entries(txn: &Txn, family: &Family) -> Map {
    let entries: Vec<_> = txn.iter(family).unwrap().map(|e| e.unwrap()).collect();
    let back: Vec<_> = txn.iter(family).unwrap().rev().map(|e| e.unwrap().0.to_vec()).collect();
    assert!(entries.iter().rev().map(|(k, _)| k.to_vec()).eq(back));
    entries.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

fn key(rng: &mut Rng) -> Vec<u8> {
    format!("{:03}", rng.below(300)).into_bytes()
}

/// Applies one random write to a column family and its model.
fn write(txn: &Txn, family: &Family, model: &mut Map, rng: &mut Rng) {
    let k = key(rng);
    match rng.below(16) {
        0..=8 => {
            // Some values are long enough for the value log.
            let v = vec![
                rng.below(256) as u8;
                if rng.below(10) == 0 { 3000 } else { rng.below(30) as usize }
            ];
            txn.put(family, &k, &v).unwrap();
            model.insert(k, v);
        }
        9 | 10 => {
            txn.put_with_ttl(family, &k, "for a while", Duration::from_secs(3600)).unwrap();
            model.insert(k, b"for a while".to_vec());
        }
        11 => {
            txn.put_with_ttl(family, &k, "", Duration::ZERO).unwrap();
            model.remove(&k);
        }
        12 | 13 => {
            txn.delete(family, &k).unwrap();
            model.remove(&k);
        }
        14 => {
            // Keys of their own, because they may be put only once before the single delete.
            let k = [b"s", &k[..]].concat();
            if model.remove(&k).is_some() {
                txn.single_delete(family, &k).unwrap();
            } else {
                txn.put(family, &k, "once").unwrap();
                model.insert(k, b"once".to_vec());
            }
        }
        _ => {
            let end = [&k[..], &[0xFF]].concat();
            let from = k[..2].to_vec();
            txn.delete_range(family, &from[..]..=&end[..]).unwrap();
            model.retain(|k, _| *k < from || *k > end);
        }
    }
}

/// A savepoint: its name, and the contents of the column families at that point.
type Saved = (String, Vec<Map>);

#[test]
fn spilled_transaction_matches_model() {
    for seed in 1..=40 {
        let mut rng = Rng(seed);
        let env = env();
        let mut db = open(&env);
        let plain = FamilyOptions::default().value_threshold(1000);
        let mut families =
            vec![db.default_family(), db.create_family("second", plain.clone()).unwrap()];
        let mut committed = vec![Map::new(); 2];
        for round in 0..4 {
            for _ in 0..rng.below(200) {
                let (at, k) = (rng.below(2) as usize, key(&mut rng));
                families[at].put(&k, "before").unwrap();
                committed[at].insert(k, b"before".to_vec());
            }
            let snapshot = db.snapshot().unwrap();
            let (txn_spill, before) = (rng.below(20_000), committed.clone());
            let txn = db.begin(TxnOptions::new().spill_bytes(txn_spill)).unwrap();
            let mut model = committed.clone();
            let mut saved: Vec<Saved> = Vec::new();
            for _ in 0..rng.below(900) {
                match rng.below(60) {
                    0 => saved.push((format!("s{}", saved.len()), {
                        txn.savepoint(format!("s{}", saved.len())).unwrap();
                        model.clone()
                    })),
                    1 if !saved.is_empty() => {
                        let at = rng.below(saved.len() as u64) as usize;
                        txn.rollback_to(&saved[at].0).unwrap();
                        model = saved[at].1.clone();
                        saved.truncate(at + 1);
                    }
                    2 if !saved.is_empty() => {
                        let at = rng.below(saved.len() as u64) as usize;
                        txn.release_savepoint(&saved[at].0).unwrap();
                        saved.truncate(at);
                    }
                    3 => {
                        let at = rng.below(2) as usize;
                        assert_eq!(
                            txn_entries(&txn, &families[at]),
                            model[at],
                            "seed {seed} round {round}"
                        );
                    }
                    4..=10 => {
                        let (at, k) = (rng.below(2) as usize, key(&mut rng));
                        assert_eq!(
                            txn.get(&families[at], &k).unwrap().as_ref(),
                            model[at].get(&k),
                            "seed {seed} round {round}"
                        );
                    }
                    _ => {
                        let at = rng.below(2) as usize;
                        write(&txn, &families[at], &mut model[at], &mut rng);
                    }
                }
            }
            if rng.below(4) == 0 {
                txn.rollback();
            } else {
                txn.commit().unwrap();
                committed = model;
            }
            for (at, family) in families.iter().enumerate() {
                assert_eq!(family_entries(family), committed[at], "seed {seed} round {round}");
                let old: Map = snapshot
                    .iter(family)
                    .unwrap()
                    .map(|e| e.unwrap())
                    .map(|(k, v)| (k.to_vec(), v.to_vec()))
                    .collect();
                assert_eq!(old, before[at], "seed {seed} round {round}: a snapshot from before");
            }
            drop(snapshot);
            match rng.below(4) {
                0 => db.admin().flush().unwrap(),
                1 => db.admin().compact().unwrap(),
                2 => {
                    drop(families);
                    db.close().unwrap();
                    db = open(&env);
                    families = vec![db.default_family(), db.family("second").unwrap()];
                }
                _ => {}
            }
            for (at, family) in families.iter().enumerate() {
                assert_eq!(
                    family_entries(family),
                    committed[at],
                    "seed {seed} round {round}: later"
                );
                for k in (0..300).map(|k| format!("{k:03}").into_bytes()) {
                    assert_eq!(
                        family.get(&k).unwrap().as_ref(),
                        committed[at].get(&k),
                        "seed {seed}"
                    );
                }
            }
            db.admin().verify().unwrap();
        }
    }
}

fn fill(txn: &Txn, family: &Family, n: u32) {
    for i in 0..n {
        txn.put(family, i.wrapping_mul(0x9E37_79B1).to_be_bytes(), [7; 60]).unwrap();
    }
}

#[test]
fn spill_files_are_removed_with_transaction() {
    let env = env();
    let db = open(&env);
    let family = db.default_family();
    let options = TxnOptions::new().spill_bytes(4000);
    let txn = db.begin(options.clone()).unwrap();
    fill(&txn, &family, 3000);
    assert!(spill_files(&env) > 10, "{}", spill_files(&env));
    let mut cursor = txn.cursor(&family).unwrap();
    cursor.seek_to_first().unwrap();
    txn.rollback_in_place();
    let mut n = 0;
    while cursor.is_valid() {
        n += 1;
        cursor.next().unwrap();
    }
    assert_eq!(n, 3000, "a cursor keeps its state, including writes that were rolled back");
    drop(cursor);
    txn.reset().unwrap();
    txn.savepoint("empty").unwrap();
    fill(&txn, &family, 3000);
    txn.rollback_to("empty").unwrap();
    assert_eq!((txn.len(), spill_files(&env)), (0, 0), "whole runs were rolled back");
    fill(&txn, &family, 100);
    txn.commit().unwrap();
    assert_eq!(family.iter().unwrap().count(), 100);

    // A close with open transactions leaves orphaned files.
    let txn = db.begin(options).unwrap();
    fill(&txn, &family, 3000);
    db.close().unwrap();
    drop((txn, family, db));
    assert!(spill_files(&env) > 10);
    let db = open(&env);
    assert!(spill_files(&env) < 3, "{}", spill_files(&env));
    assert_eq!(db.iter().unwrap().count(), 100);
}

#[test]
fn spilled_transaction_rolls_back_twice_to_one_savepoint() {
    let db = open(&env());
    let family = db.default_family();
    let txn = db.begin(TxnOptions::new().spill_bytes(1)).unwrap();
    txn.savepoint("first").unwrap();
    // The second put spills the first.
    let put_two = |name: &str| {
        txn.put(&family, format!("{name}1"), "1").unwrap();
        txn.put(&family, format!("{name}2"), "1").unwrap();
    };
    put_two("a");
    txn.rollback_to("first").unwrap();
    txn.savepoint("second").unwrap();
    // The operations that are rolled back follow those of the rollback before.
    for key in ["b", "c", "d"] {
        put_two(key);
        txn.rollback_to("second").unwrap();
        assert_eq!(txn_entries(&txn, &family), Map::new(), "{key}");
    }
    txn.put(&family, "e", "1").unwrap();
    txn.commit().unwrap();
    assert_eq!(family_entries(&family), Map::from([(b"e".to_vec(), b"1".to_vec())]));
}

#[test]
fn spilled_transactions_detect_conflicts() {
    let env = env();
    let db = open(&env);
    let family = db.default_family();
    let options = TxnOptions::new().spill_bytes(4000);
    for (isolation, other) in [
        (Isolation::Snapshot, "a put"),
        (Isolation::Snapshot, "a flushed put"),
        (Isolation::RepeatableRead, "a put of what it has read"),
        (Isolation::Snapshot, "an erased range"),
        (Isolation::Snapshot, "a huge one"),
        (Isolation::Serializable, "a put"),
        (Isolation::ReadCommitted, "a put"),
        (Isolation::Snapshot, "nothing of it"),
    ] {
        let txn = db.begin(options.clone().isolation(isolation)).unwrap();
        txn.get(&family, "read").unwrap();
        fill(&txn, &family, 1000);
        let one = 500u32.wrapping_mul(0x9E37_79B1).to_be_bytes();
        match other {
            "a put" => family.put(one, "mine").unwrap(),
            "a flushed put" => {
                family.put(one, "mine").unwrap();
                db.admin().flush().unwrap();
                db.admin().compact().unwrap();
            }
            "a put of what it has read" => family.put("read", "").unwrap(),
            "an erased range" => family.delete_range(&one[..]..=&one[..]).unwrap(),
            "a huge one" => {
                let faster = db.begin(options.clone()).unwrap();
                fill(&faster, &family, 2000);
                faster.commit().unwrap();
            }
            _ => family.put("another", "").unwrap(),
        }
        let done = txn.commit();
        if isolation == Isolation::ReadCommitted || other == "nothing of it" {
            done.unwrap();
            assert_eq!(family.get(one).unwrap(), Some(vec![7; 60]));
        } else {
            let e = done.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Conflict, "{other}: {e}");
            assert_eq!(e.family(), Some("default"));
        }
        // A spilled commit also causes conflicts for other transactions.
        let late = db.begin(TxnOptions::new()).unwrap();
        late.put(&family, one, "late").unwrap();
        let txn = db.begin(options.clone().isolation(isolation)).unwrap();
        fill(&txn, &family, 1000);
        txn.commit().unwrap();
        assert_eq!(late.commit().unwrap_err().kind(), ErrorKind::Conflict);
    }
}

#[test]
fn commit_hook_receives_spilled_commit() {
    let env = env();
    let db = open(&env);
    let family = db.default_family();
    let events = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&events);
    family.on_commit(move |e| {
        let counts = (e.sequence(), e.operations().count(), e.entries_loaded());
        log.lock().unwrap().push(counts);
    });
    let txn = db.begin(TxnOptions::new().spill_bytes(4000)).unwrap();
    fill(&txn, &family, 1000);
    let seq = txn.commit().unwrap();
    family.put("a", "").unwrap();
    assert_eq!(*events.lock().unwrap(), [(seq, 0, Some(1000)), (seq + 1, 1, None)]);
}

#[test]
fn merge_operands_are_not_spilled() {
    let env = env();
    let db = open(&env);
    let family = db
        .create_family("counts", FamilyOptions::default().merge_operator(MergeRule::Counter))
        .unwrap();
    let count = |n: i64| n.to_le_bytes();
    let spill = TxnOptions::new().spill_bytes(4000);
    family.merge("n", count(5)).unwrap();
    let txn = db.begin(spill.clone()).unwrap();
    txn.merge(&family, "n", count(2)).unwrap();
    fill(&txn, &family, 1000);
    assert_eq!(spill_files(&env), 0, "a transaction with operands is not spilled");
    txn.commit().unwrap();
    assert_eq!(family.get("n").unwrap(), Some(count(7).to_vec()));

    let txn = db.begin(spill).unwrap();
    fill(&txn, &family, 1000);
    let e = txn.merge(&family, "n", count(1)).unwrap_err();
    assert_eq!((e.kind(), txn.len()), (ErrorKind::InvalidArgument, 1000));
    assert_eq!(
        txn.get(&family, "n").unwrap().as_deref(),
        Some(&count(7)[..]),
        "the refused operand has no effect"
    );
    txn.put(&family, "n", count(1)).unwrap();
    fill(&txn, &family, 1000);
    txn.commit().unwrap();
    family.merge("n", count(1)).unwrap();
    db.admin().compact().unwrap();
    assert_eq!(family.get("n").unwrap(), Some(count(2).to_vec()), "the put hides older operands");
    assert_eq!(family.iter().unwrap().count(), 1001);
}

#[test]
fn spill_on_full_disk_loses_nothing() {
    let disk = SimDisk::new(1);
    let env = Env { fs: disk.clone(), ..Env::real() };
    let db = Db::open("/db", Options::in_env(env.clone()).min_free_space(64 << 10)).unwrap();
    let family = db.default_family();
    family.put("before", "").unwrap();
    for at_commit in [false, true] {
        let txn = db.begin(TxnOptions::new().spill_bytes(20_000)).unwrap();
        fill(&txn, &family, 3000);
        txn.savepoint("s").unwrap();
        let room = if at_commit { 2000 } else { (64 << 10) + 10_000 };
        disk.set_capacity(disk.total_bytes() + room);
        if at_commit {
            assert_eq!(txn.commit_in_place(None).unwrap_err().kind(), ErrorKind::NoSpace);
            assert!(txn.commit_in_place(None).is_err(), "the transaction has ended");
            assert_eq!(family.get(0u32.to_be_bytes()).unwrap(), None);
        } else {
            let noise = |i: u32| {
                (0..40).map(|j| (i.wrapping_mul(j * 77 + 1) >> 7) as u8).collect::<Vec<_>>()
            };
            let full = (0..9000u32).find_map(|i| txn.put(&family, noise(i), noise(i + 1)).err());
            let e = full.expect("the disk is full");
            assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
            let n = txn.len();
            assert!(
                txn.put(&family, "again", "").is_err() && txn.len() == n,
                "the transaction is unchanged"
            );
            assert_eq!(
                txn.get(&family, 0u32.to_be_bytes()).unwrap().as_deref(),
                Some(&[7; 60][..])
            );
            family.delete("before").unwrap();
            disk.set_capacity(u64::MAX);
            txn.put(&family, "again", "").unwrap();
            let seen = txn.iter(&family).unwrap().count();
            assert_eq!(
                (txn.len(), seen),
                (n + 1, n + 2),
                "in addition to the entry in its snapshot"
            );
        }
        disk.set_capacity(u64::MAX);
        drop(txn);
        family.put("after", "").unwrap();
        assert_eq!(db.iter().unwrap().count(), 1);
        db.admin().flush().unwrap();
        assert!(spill_files(&env) < 4, "{}", spill_files(&env));
    }
}
