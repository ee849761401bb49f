//! `Txn::family_at`: reads of a transaction's own writes over a snapshot of the caller's choosing,
//! compared with a model; and `Txn::set_lock_timeout`.
#![allow(clippy::unwrap_used)]

use crate::common::Rng;
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{
    Db, Durability, ErrorKind, Family, FamilyOptions, Isolation, LockMode, MergeRule, Options,
    Readable, Snapshot, TxnOptions,
};
use std::collections::BTreeMap;
use std::time::Duration;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn open() -> Db {
    let family = FamilyOptions::new()
        .memtable_bytes(16 << 10)
        .block_bytes(256)
        .value_threshold(60)
        .merge_operator(MergeRule::Append(",".into()));
    let options = Options::in_env(Env { fs: SimDisk::new(5), ..Env::real() })
        .durability(Durability::None)
        .default_family(family);
    Db::open("/db", options).unwrap()
}

fn key(n: u64) -> Vec<u8> {
    format!("k{n:02}").into_bytes()
}

/// Applies a random write to a map and, through `put`, `delete` or `delete_range`, to the database.
fn random_write(rng: &mut Rng, map: &mut Map, write: impl FnOnce(Write)) {
    let n = rng.below(40);
    match rng.below(10) {
        0 => {
            let end = key(n + 5);
            map.retain(|k, _| *k < key(n) || *k >= end);
            write(Write::DeleteRange(key(n), end));
        }
        1 | 2 => {
            map.remove(&key(n));
            write(Write::Delete(key(n)));
        }
        _ => {
            let value = vec![b'a' + rng.below(26) as u8; rng.below(90) as usize];
            map.insert(key(n), value.clone());
            write(Write::Put(key(n), value));
        }
    }
}

enum Write {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

/// A state of the database, and the own writes of a transaction over it, in order.
fn with_own_writes(state: &Map, own: &[Write]) -> Map {
    let mut map = state.clone();
    for write in own {
        match write {
            Write::Put(k, v) => drop(map.insert(k.clone(), v.clone())),
            Write::Delete(k) => drop(map.remove(k)),
            Write::DeleteRange(begin, end) => map.retain(|k, _| k < begin || k >= end),
        }
    }
    map
}

fn assert_reads_match(source: &impl Readable, expected: &Map, label: &str) {
    let all: Map =
        source.iter().unwrap().map(|e| e.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert_eq!(all, *expected, "{label}");
    let backward = source.keys().unwrap().rev().map(|k| k.unwrap().to_vec());
    assert!(backward.eq(expected.keys().rev().cloned()), "{label}: backward");
    let keys: Vec<_> = (0..45).map(key).collect();
    let found = source.multi_get(&keys);
    for (k, found) in keys.iter().zip(found) {
        let value = expected.get(k);
        assert_eq!(found.unwrap().map(Vec::from).as_ref(), value, "{label}: multi_get");
        assert_eq!(source.get(k).unwrap().as_ref(), value, "{label}: get");
        assert_eq!(source.contains(k).unwrap(), value.is_some(), "{label}: contains");
        assert_eq!(source.get_with_ttl(k).unwrap().is_some(), value.is_some(), "{label}: ttl");
    }
    let mut cursor = source.cursor_within(key(10)..key(30)).unwrap();
    cursor.seek_to_last().unwrap();
    let last = expected.range(key(10)..key(30)).next_back().map(|(k, _)| k.clone());
    assert_eq!(cursor.is_valid().then(|| cursor.key().to_vec()), last, "{label}: cursor");
    let prefixed = expected.keys().filter(|k| k.starts_with(b"k1")).count();
    assert_eq!(source.prefix("k1").unwrap().count(), prefixed, "{label}: prefix");
}

#[test]
fn reads_at_any_snapshot_show_own_writes_over_it() {
    let (mut spilled, mut checked) = (0, 0);
    for seed in 0..40u64 {
        let mut rng = Rng((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (db, mut state) = (open(), Map::new());
        let family = db.default_family();
        let apply = |write: Write| match write {
            Write::Put(k, v) => family.put(k, v).unwrap(),
            Write::Delete(k) => family.delete(k).unwrap(),
            Write::DeleteRange(begin, end) => family.delete_range(begin..end).unwrap(),
        };
        let mut snapshots: Vec<(Snapshot, Map)> = Vec::new();
        let levels = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];
        let spill = if rng.below(2) == 0 { 1 } else { u64::MAX };
        let options = TxnOptions::new().isolation(levels[rng.below(3) as usize]);
        let txn = db.begin(options.spill_bytes(spill).pessimistic(rng.below(2) == 0)).unwrap();
        let mut own = Vec::new();
        for step in 0..120 {
            match rng.below(12) {
                0 => snapshots.push((db.snapshot().unwrap(), state.clone())),
                1 => db.admin().flush().unwrap(),
                2..=6 => random_write(&mut rng, &mut state, apply),
                _ => {
                    let mut ignored = Map::new();
                    random_write(&mut rng, &mut ignored, |write| {
                        match &write {
                            Write::Put(k, v) => txn.put(&family, k, v).unwrap(),
                            Write::Delete(k) => txn.delete(&family, k).unwrap(),
                            Write::DeleteRange(b, e) => {
                                txn.delete_range(&family, b.clone()..e.clone()).unwrap()
                            }
                        }
                        own.push(write);
                    });
                }
            }
            if step % 15 == 14 {
                for (i, (snapshot, state)) in snapshots.iter().enumerate() {
                    let label = format!("seed {seed}, step {step}, snapshot {i}");
                    let expected = with_own_writes(state, &own);
                    assert_reads_match(&txn.family_at(&family, snapshot), &expected, &label);
                    checked += 1;
                }
            }
        }
        spilled += u32::from(spill == 1);
    }
    assert!(spilled > 10 && checked > 400, "{spilled} {checked}");
}

#[test]
fn own_merge_operands_apply_to_the_value_of_the_snapshot() {
    let db = open();
    let family = db.default_family();
    family.put("list", "a").unwrap();
    let before = db.snapshot().unwrap();
    family.merge("list", "b").unwrap();
    let after = db.snapshot().unwrap();
    family.put("list", "z").unwrap();
    let txn = db.begin(TxnOptions::new().isolation(Isolation::ReadCommitted)).unwrap();
    txn.merge(&family, "list", "own").unwrap();
    let list = |snapshot| txn.family_at(&family, snapshot).get("list").unwrap().unwrap();
    assert_eq!(list(&before), b"a,own");
    assert_eq!(list(&after), b"a,b,own");
    assert_eq!(txn.get(&family, "list").unwrap().unwrap(), b"z,own");
    let first = txn.family_at(&family, &after).first().unwrap().unwrap();
    assert_eq!(&first.1[..], b"a,b,own");
}

#[test]
fn cursor_at_a_snapshot_does_not_see_later_writes() {
    let db = open();
    let family = db.default_family();
    family.put("a", "").unwrap();
    let (txn, snapshot) = (db.begin(TxnOptions::new()).unwrap(), db.snapshot().unwrap());
    txn.put(&family, "b", "").unwrap();
    txn.savepoint("s").unwrap();
    txn.put(&family, "c", "").unwrap();
    let iter = txn.family_at(&family, &snapshot).keys().unwrap();
    txn.rollback_to("s").unwrap();
    txn.put(&family, "d", "").unwrap();
    let keys: Vec<u8> = iter.flat_map(|k| k.unwrap().to_vec()).collect();
    assert_eq!(keys, b"abc");
    assert_eq!(txn.family_at(&family, &snapshot).keys().unwrap().count(), 3, "a, b, d");
}

/// What is read at a snapshot of the caller's choosing is not part of the read set.
#[test]
fn reads_at_a_snapshot_are_not_validated() {
    let db = open();
    let family = db.default_family();
    for level in [Isolation::Serializable, Isolation::RepeatableRead] {
        for scan in [false, true] {
            family.put("read", "1").unwrap();
            let txn = db.begin(TxnOptions::new().isolation(level)).unwrap();
            let snapshot = db.snapshot().unwrap();
            let reads = txn.family_at(&family, &snapshot);
            if scan {
                assert!(reads.iter().unwrap().count() >= 1);
                let mut cursor = reads.cursor().unwrap();
                cursor.seek_to_last().unwrap();
            } else {
                assert!(reads.get("read").unwrap().is_some());
                assert!(reads.multi_get(["read", "none"]).len() == 2);
            }
            family.put("read", "2").unwrap();
            txn.put(&family, "write", "").unwrap();
            // As a pivot: something that it writes is read by a concurrent transaction.
            let other = db.begin(TxnOptions::new().isolation(level)).unwrap();
            assert!(other.get(&family, "other").unwrap().is_none());
            txn.commit().unwrap();
        }
    }
}

#[test]
fn reads_at_a_snapshot_fail_like_those_of_the_snapshot_or_the_transaction() {
    let db = open();
    let family = db.create_family("f", FamilyOptions::new()).unwrap();
    let kind = |txn: &perigee::Txn, family: &Family, snapshot: &Snapshot| {
        let reads = txn.family_at(family, snapshot);
        let errors = [
            reads.get("k").unwrap_err().kind(),
            reads.cursor().unwrap_err().kind(),
            reads.multi_get(["k"]).remove(0).unwrap_err().kind(),
        ];
        assert!(errors.windows(2).all(|e| e[0] == e[1]), "{errors:?}");
        errors[0]
    };
    let snapshot = db.snapshot().unwrap();
    let txn = db.begin(TxnOptions::new().isolation(Isolation::ReadCommitted)).unwrap();
    db.admin().clear_family("f").unwrap();
    assert_eq!(kind(&txn, &family, &snapshot), ErrorKind::NotFound);
    let snapshot = db.snapshot().unwrap();
    assert!(txn.family_at(&family, &snapshot).get("k").unwrap().is_none());
    assert!(txn.handle().abort());
    assert_eq!(kind(&txn, &family, &snapshot), ErrorKind::Aborted);
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&family, "k", "").unwrap();
    txn.prepare("g").unwrap();
    assert_eq!(kind(&txn, &family, &snapshot), ErrorKind::InvalidArgument);
    db.two_phase().rollback("g").unwrap();
    let txn = db.begin(TxnOptions::new()).unwrap();
    db.drop_family("f").unwrap();
    assert_eq!(kind(&txn, &family, &snapshot), ErrorKind::NotFound);
    db.close().unwrap();
    assert_eq!(kind(&txn, &family, &snapshot), ErrorKind::Closed);
}

#[test]
fn lock_timeout_can_be_changed() {
    let db = open();
    let family = db.default_family();
    let patient = TxnOptions::new().pessimistic(true).lock_timeout(Duration::from_secs(3600));
    let (a, b) = (db.begin(patient.clone()).unwrap(), db.begin(patient).unwrap());
    a.put(&family, "k", "").unwrap();
    b.set_lock_timeout(Duration::ZERO);
    for _ in 0..2 {
        assert_eq!(b.put(&family, "k", "").unwrap_err().kind(), ErrorKind::Busy);
        let locked = b.get_for_update(&family, "k", LockMode::Shared);
        assert_eq!(locked.unwrap_err().kind(), ErrorKind::Busy);
        b.reset().unwrap(); // keeps the timeout
    }
    b.put(&family, "other", "").unwrap();
    b.set_lock_timeout(Duration::from_nanos(1)); // rounded up
    assert_eq!(b.put(&family, "k", "").unwrap_err().kind(), ErrorKind::Busy);
    b.set_lock_timeout(Duration::MAX);
    a.commit().unwrap();
    b.put(&family, "k", "").unwrap();
    assert_eq!(b.commit().unwrap_err().kind(), ErrorKind::Conflict, "a committed first");
}
