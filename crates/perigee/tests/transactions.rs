//! Sequential and concurrent transactions, checked against a model that keeps every version.
#![allow(clippy::unwrap_used)]

use crate::common::Rng;
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{
    Db, ErrorKind, Family, FamilyOptions, Isolation, LockMode, MergeRule, Options, Txn, TxnOptions,
    WriteBatch,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

fn open() -> Db {
    Db::open("/db", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() })).unwrap()
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A write in the model; `None` deletes.
#[derive(Clone, Debug)]
enum Op {
    Set(Vec<u8>, Option<Vec<u8>>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

fn apply(map: &mut Map, op: &Op) {
    match op {
        Op::Set(key, Some(value)) => drop(map.insert(key.clone(), value.clone())),
        Op::Set(key, None) => drop(map.remove(key)),
        Op::DeleteRange(from, to) => map.retain(|k, _| k < from || k >= to),
    }
}

/// A transaction and its expected view.
struct OpenTxn {
    txn: Txn,
    level: Isolation,
    base: Map,
    began: usize,
    ops: Vec<Op>,
    savepoints: Vec<(String, usize)>,
    read_keys: BTreeSet<Vec<u8>>,
    read_ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

impl OpenTxn {
    fn expected_view(&self, committed: &Map) -> Map {
        let mut map = if self.level <= Isolation::ReadCommitted {
            committed.clone()
        } else {
            self.base.clone()
        };
        self.ops.iter().for_each(|op| apply(&mut map, op));
        map
    }
}

/// Returns true if a later commit wrote a key that the operation affects.
fn overlaps(op: &Op, log: &[Op]) -> bool {
    log.iter().any(|other| match (op, other) {
        (Op::Set(a, _), Op::Set(b, _)) => a == b,
        (Op::Set(k, _), Op::DeleteRange(from, to)) | (Op::DeleteRange(from, to), Op::Set(k, _)) => {
            from <= k && k < to
        }
        (Op::DeleteRange(a, b), Op::DeleteRange(c, d)) => a.max(c) < b.min(d),
    })
}

fn key(rng: &mut Rng) -> Vec<u8> {
    format!("{:02}", rng.below(40)).into_bytes()
}

fn check_iteration(family: &Family, txn: &Txn, expected: &Map, rng: &mut Rng) {
    let all: Vec<_> = txn.iter(family).unwrap().map(|e| e.unwrap()).collect();
    let all: Vec<_> = all.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert_eq!(all, expected.clone().into_iter().collect::<Vec<_>>());
    let back: Vec<_> = txn.iter(family).unwrap().rev().map(|e| e.unwrap().0.to_vec()).collect();
    assert_eq!(back, expected.keys().rev().cloned().collect::<Vec<_>>());
    let mut cursor = txn.cursor(family).unwrap();
    let mut at: Option<Vec<u8>> = None;
    for _ in 0..10 {
        let before = |k: &Vec<u8>| expected.range(..k.clone()).next_back().map(|(k, _)| k.clone());
        let behind =
            |k: &Vec<u8>| expected.range(k.clone()..).find(|(x, _)| *x > k).map(|(k, _)| k.clone());
        match rng.below(4) {
            0 => {
                let k = key(rng);
                cursor.seek(&k).unwrap();
                at = expected.range(k..).next().map(|(k, _)| k.clone());
            }
            1 => {
                let k = key(rng);
                cursor.seek_for_prev(&k).unwrap();
                at = expected.range(..=k).next_back().map(|(k, _)| k.clone());
            }
            2 if at.is_some() => {
                cursor.next().unwrap();
                at = at.as_ref().and_then(behind);
            }
            3 if at.is_some() => {
                cursor.prev().unwrap();
                at = at.as_ref().and_then(before);
            }
            _ => {}
        }
        assert_eq!(cursor.is_valid().then(|| cursor.key().to_vec()), at);
        if let Some(k) = &at {
            assert_eq!(&cursor.value().unwrap()[..], &expected[k][..]);
        }
    }
}

fn random_step(db: &Db, open: &mut OpenTxn, committed: &Map, rng: &mut Rng) {
    let family = db.default_family();
    let txn = &open.txn;
    match rng.below(12) {
        0..=3 => {
            let (k, v) = (key(rng), vec![b'v'; rng.below(20) as usize]);
            txn.put(&family, &k, &v).unwrap();
            open.ops.push(Op::Set(k, Some(v)));
        }
        4 => {
            let k = key(rng);
            txn.delete(&family, &k).unwrap();
            open.ops.push(Op::Set(k, None));
        }
        5 if rng.below(4) == 0 => {
            let (a, b) = (key(rng), key(rng));
            let (a, b) = (a.clone().min(b.clone()), a.max(b));
            txn.delete_range(&family, &a[..]..&b[..]).unwrap();
            if a < b {
                open.ops.push(Op::DeleteRange(a, b));
            }
        }
        5 | 6 => {
            let k = key(rng);
            let own = open.ops.iter().any(|op| overlaps(op, &[Op::Set(k.clone(), None)]));
            let seen = open.expected_view(committed);
            assert_eq!(txn.get(&family, &k).unwrap().as_ref(), seen.get(&k), "{k:?}");
            if !own {
                open.read_keys.insert(k);
            }
        }
        7 => {
            let seen = open.expected_view(committed);
            check_iteration(&family, txn, &seen, rng);
            open.read_ranges.push((Vec::new(), vec![0xFF]));
        }
        8 => {
            let (a, b) = (key(rng), key(rng));
            let seen = open.expected_view(committed);
            let found: Vec<_> = txn
                .range(&family, &a[..]..&b[..])
                .map(|r| r.map(|e| e.unwrap().0.to_vec()).collect())
                .unwrap();
            let expected: Vec<_> = if a < b {
                seen.range(a.clone()..b.clone()).map(|(k, _)| k.clone()).collect()
            } else {
                Vec::new()
            };
            assert_eq!(found, expected);
            open.read_ranges.push((a, b));
        }
        9 => {
            let name = format!("s{}", rng.below(3));
            txn.savepoint(&name).unwrap();
            open.savepoints.push((name, open.ops.len()));
        }
        10 => {
            let name = format!("s{}", rng.below(3));
            match open.savepoints.iter().rposition(|(n, _)| *n == name) {
                Some(at) => {
                    txn.rollback_to(&name).unwrap();
                    open.ops.truncate(open.savepoints[at].1);
                    open.savepoints.truncate(at + 1);
                }
                None => assert_eq!(txn.rollback_to(&name).unwrap_err().kind(), ErrorKind::NotFound),
            }
        }
        _ => {
            let name = format!("s{}", rng.below(3));
            match open.savepoints.iter().rposition(|(n, _)| *n == name) {
                Some(at) => {
                    txn.release_savepoint(&name).unwrap();
                    open.savepoints.truncate(at);
                }
                None => assert_eq!(
                    txn.release_savepoint(&name).unwrap_err().kind(),
                    ErrorKind::NotFound
                ),
            }
        }
    }
    assert_eq!(txn.len(), open.ops.len());
}

/// Returns whether the model requires a conflict at commit, and whether it allows one.
fn expected_conflicts(open: &OpenTxn, log: &[Op]) -> (bool, bool) {
    let since = &log[open.began..];
    let written = || open.ops.iter().any(|op| overlaps(op, since));
    let read = || open.read_keys.iter().any(|k| overlaps(&Op::Set(k.clone(), None), since));
    let ranges = || {
        open.read_ranges
            .iter()
            .any(|(a, b)| a < b && overlaps(&Op::DeleteRange(a.clone(), b.clone()), since))
    };
    if open.ops.is_empty() {
        return (false, open.level == Isolation::Serializable && (read() || ranges()));
    }
    let must = match open.level {
        Isolation::ReadUncommitted | Isolation::ReadCommitted => false,
        Isolation::RepeatableRead => written() || read(),
        Isolation::Snapshot | Isolation::Serializable => written(),
    };
    // Keys it read may have changed, as long as a serial order exists in which it read them before.
    (must, must || (open.level == Isolation::Serializable && (read() || ranges())))
}

#[test]
fn concurrent_transactions_match_model() {
    let levels = [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Snapshot,
        Isolation::Serializable,
    ];
    let (mut commits, mut refused) = (0, 0);
    for seed in 1..=30 {
        let mut rng = Rng(seed);
        let db = open();
        let family = db.default_family();
        let (mut committed, mut log) = (Map::new(), Vec::<Op>::new());
        let mut running: Vec<OpenTxn> = Vec::new();
        let mut coarse = false;
        for _ in 0..400 {
            match rng.below(20) {
                0 | 1 if running.len() < 5 => {
                    let level = levels[rng.below(5) as usize];
                    let options = TxnOptions::new().isolation(level);
                    // Half of the transactions have a tiny memory limit.
                    let spill = rng.below(2) == 0;
                    let options = if spill { options.spill_bytes(rng.below(900)) } else { options };
                    coarse |= spill && level == Isolation::Serializable;
                    running.push(OpenTxn {
                        txn: db.begin(options).unwrap(),
                        level,
                        base: committed.clone(),
                        began: log.len(),
                        ops: Vec::new(),
                        savepoints: Vec::new(),
                        read_keys: BTreeSet::new(),
                        read_ranges: Vec::new(),
                    });
                }
                2 if !running.is_empty() => {
                    let open = running.swap_remove(rng.below(running.len() as u64) as usize);
                    let (must, may) = expected_conflicts(&open, &log);
                    match open.txn.commit_in_place(None) {
                        Ok(_) => {
                            assert!(!must, "seed {seed}: a conflict was missed: {:?}", open.level);
                            open.ops.iter().for_each(|op| apply(&mut committed, op));
                            log.extend(open.ops);
                            commits += 1;
                        }
                        Err(e) => {
                            assert_eq!(e.kind(), ErrorKind::Conflict, "{e}");
                            // Serializable transactions track spilled writes by key range.
                            let coarse = coarse && open.level == Isolation::Serializable;
                            assert!(may || coarse, "seed {seed}: a false conflict: {e}");
                            assert!(e.key().is_some() && e.family() == Some("default"));
                            refused += 1;
                        }
                    }
                    let e = open.txn.get(&family, "k").unwrap_err();
                    assert_eq!(
                        e.kind(),
                        ErrorKind::InvalidArgument,
                        "the transaction has ended: {e}"
                    );
                }
                3 => {
                    let (k, v) = (key(&mut rng), b"plain".to_vec());
                    let mut batch = WriteBatch::new();
                    batch.put(&family, &k, &v).unwrap();
                    db.write(batch).unwrap();
                    let op = Op::Set(k, Some(v));
                    apply(&mut committed, &op);
                    log.push(op);
                }
                4 if rng.below(4) == 0 => db.admin().flush().unwrap(),
                4 if rng.below(6) == 0 => db.admin().compact().unwrap(),
                _ if !running.is_empty() => {
                    let at = rng.below(running.len() as u64) as usize;
                    random_step(&db, &mut running[at], &committed, &mut rng);
                }
                _ => {}
            }
        }
        let all: Map =
            db.iter().unwrap().map(|e| e.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        assert_eq!(all, committed, "seed {seed}");
    }
    assert!(commits > 100 && refused > 30, "{commits} {refused}");
}

#[test]
fn txn_cursor_sees_state_at_its_creation() {
    let db = open();
    let family = db.default_family();
    db.put("b", "committed").unwrap();
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&family, "a", "1").unwrap();
    txn.savepoint("s").unwrap();
    txn.put(&family, "c", "2").unwrap();
    let mut cursor = txn.cursor(&family).unwrap();
    txn.rollback_to("s").unwrap();
    txn.delete(&family, "b").unwrap();
    let mut keys = Vec::new();
    cursor.seek_to_first().unwrap();
    while cursor.is_valid() {
        keys.extend_from_slice(cursor.key());
        txn.put(&family, [cursor.key(), b"x"].concat(), "behind it").unwrap();
        cursor.next().unwrap();
    }
    assert_eq!(keys, b"abc");
    let now: Vec<u8> = txn.iter(&family).unwrap().flat_map(|e| e.unwrap().0.to_vec()).collect();
    assert_eq!(now, b"aaxbxcx");
}

#[test]
fn txn_refuses_writes_beyond_its_limits_or_after_its_end() {
    let db = open();
    let family = db.default_family();
    let txn = db.begin(TxnOptions::new().max_bytes(100)).unwrap();
    txn.put(&family, "small", "").unwrap();
    let e = txn.put(&family, "large", [0; 200]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    assert_eq!(txn.len(), 1, "the transaction is unchanged");
    txn.rollback_in_place();
    assert!(txn.commit_in_place(None).is_err());
    txn.reset().unwrap();
    txn.put(&family, "again", "").unwrap();
    let handle = txn.handle();
    assert!(handle.abort());
    assert_eq!(txn.commit().unwrap_err().kind(), ErrorKind::Aborted);
    assert!(!handle.abort());

    let late = db.begin(TxnOptions::new().timeout(Duration::ZERO)).unwrap();
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(late.put(&family, "k", "").unwrap_err().kind(), ErrorKind::Aborted);

    let reader =
        db.begin(TxnOptions::new().read_only(true).isolation(Isolation::Serializable)).unwrap();
    assert_eq!(reader.get(&family, "k").unwrap(), None);
    db.put("k", "").unwrap();
    assert_eq!(reader.get(&family, "k").unwrap(), None);
    assert_eq!(reader.put(&family, "k", "").unwrap_err().kind(), ErrorKind::InvalidArgument);
    reader.commit().unwrap();
    assert_eq!(db.iter().unwrap().count(), 1);
}

#[test]
fn increments_from_many_threads_are_all_counted() {
    let db = open();
    let family = db.default_family();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..100 {
                    db.write_txn(TxnOptions::new(), |txn| {
                        let n = txn
                            .get(&family, "n")?
                            .map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap()));
                        txn.put(&family, "n", (n + 1).to_le_bytes())
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(db.get("n").unwrap(), Some(400u64.to_le_bytes().to_vec()));
}

#[test]
fn savepoint_per_row_rolls_back_only_that_row() {
    let db = open();
    let family = db.default_family();
    let txn = db.begin(TxnOptions::new()).unwrap();
    for i in 0..20_000u32 {
        txn.savepoint("row").unwrap();
        txn.put(&family, i.to_be_bytes(), "v").unwrap();
        assert!(txn.contains(&family, i.to_be_bytes()).unwrap());
        if i % 3 == 0 {
            txn.rollback_to("row").unwrap();
            assert!(!txn.contains(&family, i.to_be_bytes()).unwrap());
        }
        txn.release_savepoint("row").unwrap();
    }
    assert_eq!(txn.iter(&family).unwrap().count(), 13_333);
    txn.commit().unwrap();
    assert_eq!(db.iter().unwrap().count(), 13_333);
}

#[test]
fn txn_reports_cleared_or_dropped_family() {
    let db = open();
    let family = db.create_family("f", Default::default()).unwrap();
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&family, "k", "").unwrap();
    db.admin().clear_family("f").unwrap();
    assert_eq!(txn.commit().unwrap_err().kind(), ErrorKind::Conflict);
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&family, "k", "").unwrap();
    db.drop_family("f").unwrap();
    assert_eq!(txn.commit().unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn pessimistic_transactions_wait_instead_of_conflicting() {
    let db = open();
    let family = db.default_family();
    let options = || TxnOptions::new().pessimistic(true).isolation(Isolation::ReadCommitted);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..50 {
                    let txn = db.begin(options().lock_timeout(Duration::from_secs(3600))).unwrap();
                    let n = txn.get_for_update(&family, "n", LockMode::Exclusive).unwrap();
                    let n = n.map_or(0, |v| u64::from_le_bytes(v[..].try_into().unwrap()));
                    txn.put(&family, "n", (n + 1).to_le_bytes()).unwrap();
                    txn.commit().unwrap();
                }
            });
        }
    });
    assert_eq!(db.get("n").unwrap(), Some(200u64.to_le_bytes().to_vec()));

    let (reader, writer) =
        (db.begin(options()).unwrap(), db.begin(options().lock_timeout(Duration::ZERO)).unwrap());
    reader.lock_range(&family, "a".."m", LockMode::Gap).unwrap();
    let e = writer.put(&family, "b", "").unwrap_err();
    assert_eq!((e.kind(), e.key()), (ErrorKind::Busy, Some(&b"b"[..])));
    writer.put(&family, "z", "").unwrap();
    drop(reader);
    writer.put(&family, "b", "").unwrap();
    writer.savepoint("s").unwrap();
    writer.put(&family, "c", "").unwrap();
    writer.rollback_to("s").unwrap();
    let third = db.begin(options().lock_timeout(Duration::ZERO)).unwrap();
    third.put(&family, "c", "").unwrap();
    assert!(third.delete_prefix(&family, "b").unwrap_err().is_retryable());
    writer.commit().unwrap();
    third.delete_prefix(&family, "b").unwrap();
    third.commit().unwrap();
    assert_eq!(db.iter().unwrap().count(), 3);

    let late = db.begin(TxnOptions::new()).unwrap();
    db.put("n", "changed").unwrap();
    let e = late.get_for_update(&family, "n", LockMode::Shared).unwrap_err();
    assert_eq!(
        e.kind(),
        ErrorKind::Conflict,
        "the conflict is reported at once, not at commit: {e}"
    );
}

#[test]
fn isolation_defaults_from_txn_family_then_database() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let options = || Options::in_env(env.clone()).isolation(Isolation::RepeatableRead);
    let db = Db::open("/db", options()).unwrap();
    let strict = FamilyOptions::new().isolation(Some(Isolation::Serializable));
    let (strict, plain) = (
        db.create_family("strict", strict).unwrap(),
        db.create_family("plain", FamilyOptions::new()).unwrap(),
    );
    let level = |txn: perigee::Result<perigee::Txn>| txn.unwrap().isolation();
    assert_eq!(level(db.begin(TxnOptions::new())), Isolation::RepeatableRead);
    assert_eq!(level(plain.begin(TxnOptions::new())), Isolation::RepeatableRead);
    assert_eq!(level(strict.begin(TxnOptions::new())), Isolation::Serializable);
    let asked = || TxnOptions::new().isolation(Isolation::ReadCommitted);
    assert_eq!(level(strict.begin(asked())), Isolation::ReadCommitted);
    strict.set_options(strict.options().isolation(Some(Isolation::Snapshot))).unwrap();
    db.close().unwrap();
    let db = Db::open("/db", options()).unwrap();
    let strict = db.family("strict").unwrap();
    assert_eq!(
        level(strict.begin(TxnOptions::new())),
        Isolation::Snapshot,
        "the default is stored with the column family"
    );
    strict.set_options(strict.options().isolation(None)).unwrap();
    assert_eq!(level(strict.begin(TxnOptions::new())), Isolation::RepeatableRead);
}

#[test]
fn contains_does_not_read_the_value() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let db = Db::open("/db", Options::in_env(env)).unwrap();
    let counters = FamilyOptions::new().merge_operator(MergeRule::Counter);
    let counters = db.create_family("counters", counters).unwrap();
    // The counter operator fails on a value that is not a number.
    counters.put("broken", "no number").unwrap();
    counters.put("mine", "no number either").unwrap();
    counters.merge("broken", 1i64.to_le_bytes()).unwrap();
    let txn = db.begin(TxnOptions::new().isolation(Isolation::RepeatableRead)).unwrap();
    assert!(txn.get(&counters, "broken").is_err());
    assert!(
        txn.contains(&counters, "broken").unwrap()
            && txn.contains_untracked(&counters, "broken").unwrap()
    );
    txn.merge(&counters, "mine", 1i64.to_le_bytes()).unwrap();
    assert!(txn.get(&counters, "mine").is_err() && txn.contains(&counters, "mine").unwrap());
    assert!(!txn.contains(&counters, "absent").unwrap());
    txn.delete(&counters, "mine").unwrap();
    assert!(!txn.contains(&counters, "mine").unwrap());
    // `contains` is a read nevertheless: the key was changed.
    counters.put("absent", [0; 8]).unwrap();
    txn.put(&counters, "other", [0; 8]).unwrap();
    assert_eq!(txn.commit().unwrap_err().kind(), ErrorKind::Conflict);
}
