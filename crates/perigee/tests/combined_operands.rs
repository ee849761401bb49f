//! Reads of keys with many merge operands in memory: the operands that one reader has combined are
//! used by the next, and by none that must not see all of them.
#![allow(clippy::unwrap_used)]

use crate::common::{Rng, StopOnDrop};
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{
    Db, Durability, Error, Family, FamilyOptions, KeyComparator, MergeOperator, MergeRule, Options,
    Result, Snapshot, TxnOptions,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }).durability(Durability::None)
}

fn check_values(family: &Family, snapshot: Option<&Snapshot>, model: &Model, keys: &[&str]) {
    for key in keys {
        let found = match snapshot {
            Some(snapshot) => snapshot.get(family, key).unwrap(),
            None => family.get(key).unwrap(),
        };
        let text = |v: &Vec<u8>| String::from_utf8(v.clone()).unwrap();
        assert_eq!(found.as_ref().map(text), model.get(key.as_bytes()).map(text), "{key}");
    }
}

#[test]
fn every_reader_sees_the_operands_of_its_time() {
    const KEYS: [&str; 4] = ["a", "b", "c", "d"];
    for seed in 1..=24 {
        let mut rng = Rng(seed * 0x9E37_79B9);
        // One comparator has a hash index, the other a skip list.
        let comparator = [KeyComparator::Bytes, KeyComparator::CaseInsensitive][seed as usize % 2];
        let settings = FamilyOptions::new()
            .comparator(comparator)
            .merge_operator(MergeRule::Append(",".into()));
        let db = Db::open("/db", options()).unwrap();
        let family = db.create_family("lists", settings).unwrap();
        let (mut model, mut snapshots) = (Model::new(), Vec::new());
        for step in 0..1_500_u32 {
            let key = KEYS[rng.below(4) as usize];
            match rng.below(40) {
                0 => {
                    family.put(key, "base").unwrap();
                    model.insert(key.into(), "base".into());
                }
                1 => {
                    family.delete(key).unwrap();
                    model.remove(key.as_bytes());
                }
                2 => {
                    family.delete_range(key..="d").unwrap();
                    model.retain(|k, _| k.as_slice() < key.as_bytes());
                }
                3 if rng.below(6) == 0 => family.flush().unwrap(),
                4 => {
                    snapshots.push((db.snapshot().unwrap(), model.clone()));
                    if snapshots.len() > 5 {
                        snapshots.remove(rng.below(5) as usize);
                    }
                }
                5..=12 => {
                    let at = rng.below(snapshots.len() as u64 + 1) as usize;
                    let (snapshot, model) =
                        snapshots.get(at).map_or((None, &model), |s| (Some(&s.0), &s.1));
                    check_values(&family, snapshot, model, &[key]);
                }
                13 => {
                    let txn = db.begin(TxnOptions::new()).unwrap();
                    let expected = model.get(key.as_bytes()).cloned();
                    assert_eq!(txn.get(&family, key).unwrap(), expected);
                    txn.rollback();
                }
                _ => {
                    let operand = step.to_string();
                    family.merge(key, &operand).unwrap();
                    let mut value = model.remove(key.as_bytes());
                    append(&mut value, &operand);
                    model.insert(key.into(), value.unwrap());
                }
            }
        }
        for (snapshot, model) in &snapshots {
            check_values(&family, Some(snapshot), model, &KEYS);
        }
        check_values(&family, None, &model, &KEYS);
        drop(snapshots);
        db.close().unwrap();
    }
}

fn append(value: &mut Option<Vec<u8>>, operand: &str) {
    match value {
        Some(value) => {
            value.push(b',');
            value.extend_from_slice(operand.as_bytes());
        }
        None => *value = Some(operand.into()),
    }
}

/// An operand that the operator below refuses, also as part of a sum.
const REFUSED: u64 = 1 << 40;

/// Adds numbers and counts its calls.
#[derive(Default)]
struct CountingSum {
    calls: AtomicU64,
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

impl MergeOperator for CountingSum {
    fn name(&self) -> &str {
        "counting sum"
    }
    fn merge(&self, _: &[u8], left: Option<&[u8]>, right: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.calls.fetch_add(1, SeqCst);
        let sum = left.map_or(0, number) + number(right);
        if sum >= REFUSED {
            return Err(Error::new(perigee::ErrorKind::InvalidArgument, "too large a number"));
        }
        out.extend_from_slice(&sum.to_le_bytes());
        Ok(())
    }
}

fn counters(sum: &Arc<CountingSum>) -> Db {
    let family = FamilyOptions::new().merge_operator(MergeRule::User("counting sum".into()));
    let options = options().register_merge_operator(Arc::clone(sum) as Arc<dyn MergeOperator>);
    Db::open("/db", options.default_family(family)).unwrap()
}

#[test]
fn the_second_read_merges_only_new_operands() {
    const N: u64 = 5_000;
    let sum = Arc::new(CountingSum::default());
    let db = counters(&sum);
    let family = db.default_family();
    for _ in 0..N {
        family.merge("visits", 1u64.to_le_bytes()).unwrap();
    }
    let early = db.snapshot().unwrap();
    let read = |expected: u64| {
        let before = sum.calls.load(SeqCst);
        assert_eq!(number(&family.get("visits").unwrap().unwrap()), expected);
        sum.calls.load(SeqCst) - before
    };
    assert!(read(N) >= N - 1, "the first read merges all");
    assert!(read(N) <= 2, "the second merges one");
    for n in 1..=200 {
        family.merge("visits", 1u64.to_le_bytes()).unwrap();
        let calls = read(N + n);
        assert!(calls <= 40, "{calls}");
    }
    assert_eq!(number(&early.get(&family, "visits").unwrap().unwrap()), N);
    drop(early);
    db.close().unwrap();
}

#[test]
fn refused_operands_fail_as_before() {
    let sum = Arc::new(CountingSum::default());
    let db = counters(&sum);
    let family = db.default_family();
    for n in 0..100u64 {
        let operand = if n == 13 { REFUSED } else { n };
        family.merge("n", operand.to_le_bytes()).unwrap();
        assert_eq!(family.get("n").is_err(), n >= 13, "{n}");
    }
    assert!(family.get("n").unwrap_err().to_string().contains("too large a number"));
    db.close().unwrap();
}

#[test]
fn concurrent_readers_see_a_growing_counter() {
    let family = FamilyOptions::new().merge_operator(MergeRule::Counter);
    let db = Db::open("/db", options().default_family(family)).unwrap();
    let done = AtomicBool::new(false);
    let read = |db: &Db| {
        let value = db.get("n").unwrap();
        value.map_or(0, |v| number(&v))
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(SeqCst) {
                    let now = read(&db);
                    assert!(now >= last, "{now} after {last}");
                    last = now;
                }
            });
        }
        let _stop = StopOnDrop(&done);
        for n in 1..=20_000u64 {
            db.default_family().merge("n", 1i64.to_le_bytes()).unwrap();
            if n % 100 == 0 {
                assert_eq!(read(&db), n);
            }
        }
    });
    db.close().unwrap();
}
