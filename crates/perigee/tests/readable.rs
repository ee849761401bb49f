//! `Readable`: the same reads from a database, a column family, a snapshot and a transaction,
//! compared with a model; first and last keys among tombstones, and under every comparator.
#![allow(clippy::unwrap_used)]

use crate::common::Rng;
use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{
    Db, Durability, ErrorKind, Family, FamilyOptions, Isolation, KeyComparator, MergeRule, Options,
    Readable, Result, Slice, TxnOptions,
};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Entries in the order of the comparator.
#[derive(Clone)]
struct Model {
    comparator: KeyComparator,
    entries: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Model {
    fn position(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        self.entries.binary_search_by(|(k, _)| self.comparator.cmp(k, key))
    }
    fn put(&mut self, key: &[u8], value: &[u8]) {
        let entry = (key.to_vec(), value.to_vec());
        match self.position(key) {
            Ok(at) => self.entries[at] = entry,
            Err(at) => self.entries.insert(at, entry),
        }
    }
    fn delete(&mut self, key: &[u8]) {
        if let Ok(at) = self.position(key) {
            self.entries.remove(at);
        }
    }
    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.position(key).ok().map(|at| &self.entries[at].1[..])
    }
    fn delete_range(&mut self, begin: &[u8], end: &[u8]) {
        let o = self.comparator;
        self.entries.retain(|(k, _)| o.cmp(k, begin).is_lt() || o.cmp(k, end).is_ge());
    }
}

fn open() -> Db {
    let options = Options::in_env(Env { fs: SimDisk::new(3), ..Env::real() })
        .durability(Durability::None)
        .default_family(small_files());
    Db::open("/db", options).unwrap()
}

fn small_files() -> FamilyOptions {
    FamilyOptions::new().memtable_bytes(16 << 10).block_bytes(256).value_threshold(60)
}

fn owned(entry: (Slice, Slice)) -> (Vec<u8>, Vec<u8>) {
    (entry.0.to_vec(), entry.1.to_vec())
}

fn collect(entries: impl Iterator<Item = Result<(Slice, Slice)>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    entries.map(|e| owned(e.unwrap())).collect()
}

/// Compares every method of a source with the model.
fn check_source(source: &impl Readable, model: &Model, rng: &mut Rng, case: &str) {
    let entries = &model.entries;
    assert_eq!(collect(source.iter().unwrap()), *entries, "{case}");
    let mut reversed = collect(source.iter().unwrap().rev());
    reversed.reverse();
    assert_eq!(reversed, *entries, "{case} rev");
    let keys: Vec<_> = source.keys().unwrap().map(|k| k.unwrap().to_vec()).collect();
    assert!(keys.iter().eq(entries.iter().map(|(k, _)| k)), "{case} keys");
    let values: Vec<_> = source.values().unwrap().rev().map(|v| v.unwrap().to_vec()).collect();
    assert!(values.iter().eq(entries.iter().rev().map(|(_, v)| v)), "{case} values");
    assert_eq!(source.first().unwrap().map(owned).as_ref(), entries.first(), "{case} first");
    assert_eq!(source.last().unwrap().map(owned).as_ref(), entries.last(), "{case} last");
    assert_eq!(source.is_empty().unwrap(), entries.is_empty(), "{case} is_empty");

    let probes: Vec<Vec<u8>> = (0..20).map(|_| key(model.comparator, rng.below(60))).collect();
    for probe in &probes {
        let want = model.get(probe);
        assert_eq!(source.get(probe).unwrap().as_deref(), want, "{case} {probe:?}");
        assert_eq!(source.get_pinned(probe).unwrap().as_deref(), want, "{case} {probe:?}");
        assert_eq!(source.contains(probe).unwrap(), want.is_some(), "{case} {probe:?}");
        let mut buf = vec![0; 200];
        let copied = source.get_into(probe, &mut buf).unwrap();
        assert_eq!(copied.map(|n| &buf[..n]), want, "{case} {probe:?}");
        assert_eq!(source.get_into_vec(probe, &mut buf).unwrap(), want.is_some(), "{case}");
        assert_eq!(buf, want.unwrap_or_default(), "{case} {probe:?}");
        let with_ttl = source.get_with_ttl(probe).unwrap();
        assert_eq!(with_ttl.as_ref().map(|v| &v.value[..]), want, "{case} {probe:?}");
        assert!(with_ttl.is_none_or(|v| v.expires_at_ms.is_none()), "{case}");
    }
    let answers = source.multi_get(&probes);
    assert_eq!(answers.len(), probes.len());
    for (probe, answer) in probes.iter().zip(answers) {
        assert_eq!(answer.unwrap().as_deref(), model.get(probe), "{case} multi_get {probe:?}");
    }

    let (a, b) = (&probes[0], &probes[1]);
    let (begin, end) = if model.comparator.cmp(a, b).is_le() { (a, b) } else { (b, a) };
    let inside: Vec<_> = entries
        .iter()
        .filter(|(k, _)| {
            model.comparator.cmp(k, begin).is_gt() && model.comparator.cmp(k, end).is_le()
        })
        .cloned()
        .collect();
    let bounds: (Bound<Vec<u8>>, _) =
        (Bound::Excluded(begin.clone()), Bound::Included(end.clone()));
    assert_eq!(collect(source.range(bounds.clone()).unwrap()), inside, "{case} range");
    let mut cursor = source.cursor_within(bounds).unwrap();
    cursor.seek_to_last().unwrap();
    assert_eq!(
        cursor.is_valid().then(|| cursor.key().to_vec()),
        inside.last().map(|e| e.0.clone())
    );
    let mut cursor = source.cursor().unwrap();
    cursor.seek(a).unwrap();
    let at = entries.iter().find(|(k, _)| model.comparator.cmp(k, a).is_ge());
    assert_eq!(cursor.is_valid().then(|| cursor.key()), at.map(|(k, _)| &k[..]), "{case} seek");
    assert!(source.estimate_range::<&[u8]>(..).unwrap().entries < 10_000);
}

fn key(comparator: KeyComparator, n: u64) -> Vec<u8> {
    match comparator {
        KeyComparator::U64 | KeyComparator::I64 => n.wrapping_sub(30).to_le_bytes().to_vec(),
        _ => format!("key/{n:03}").into_bytes(),
    }
}

/// Writes the same operations to a target and to the model.
fn write_randomly(
    rng: &mut Rng,
    model: &mut Model,
    mut put: impl FnMut(&[u8], &[u8]),
    mut delete: impl FnMut(&[u8]),
    mut delete_range: impl FnMut(&[u8], &[u8]),
) {
    for _ in 0..rng.below(60) {
        let at = key(model.comparator, rng.below(60));
        match rng.below(10) {
            0..=5 => {
                let value = vec![b'a' + rng.below(26) as u8; rng.below(120) as usize];
                put(&at, &value);
                model.put(&at, &value);
            }
            6..=8 => {
                delete(&at);
                model.delete(&at);
            }
            _ => {
                let other = key(model.comparator, rng.below(60));
                let mut ends = [at, other];
                ends.sort_by(|a, b| model.comparator.cmp(a, b));
                delete_range(&ends[0], &ends[1]);
                model.delete_range(&ends[0], &ends[1]);
            }
        }
    }
}

fn write_to_family(family: &Family, rng: &mut Rng, model: &mut Model) {
    write_randomly(
        rng,
        model,
        |k, v| family.put(k, v).unwrap(),
        |k| family.delete(k).unwrap(),
        |a, b| family.delete_range(a..b).unwrap(),
    );
}

#[test]
fn sources_agree_with_model_under_every_comparator() {
    let reversed = KeyComparator::register("readable_test_reversed", |a, b| b.cmp(a)).unwrap();
    for comparator in [
        KeyComparator::Bytes,
        KeyComparator::Reverse,
        KeyComparator::I64,
        KeyComparator::CaseInsensitive,
        reversed,
    ] {
        for seed in 1..6 {
            let db = open();
            if comparator == reversed {
                db.admin().register_comparator(reversed);
            }
            let family = db.create_family("f", small_files().comparator(comparator)).unwrap();
            let mut rng = Rng(seed * 7919);
            let mut model = Model { comparator, entries: Vec::new() };
            for round in 0..6 {
                let case = format!("{comparator:?} seed {seed} round {round}");
                write_to_family(&family, &mut rng, &mut model);
                let (snapshot, then) = (db.snapshot().unwrap(), model.clone());
                let isolation = [Isolation::Snapshot, Isolation::Serializable];
                let options = TxnOptions::new().isolation(isolation[round % 2]);
                let txn = db.begin(options).unwrap();
                let mut inside = model.clone();
                write_randomly(
                    &mut rng,
                    &mut inside,
                    |k, v| txn.put(&family, k, v).unwrap(),
                    |k| txn.delete(&family, k).unwrap(),
                    |a, b| txn.delete_range(&family, a..b).unwrap(),
                );
                write_to_family(&family, &mut rng, &mut model);
                if round % 2 == 1 {
                    family.flush().unwrap();
                }
                if round == 4 {
                    family.compact().unwrap();
                }
                check_source(&family, &model, &mut rng, &format!("family {case}"));
                check_source(&snapshot.family(&family), &then, &mut rng, &format!("snap {case}"));
                check_source(&txn.family(&family), &inside, &mut rng, &format!("txn {case}"));
            }
        }
    }
}

#[test]
fn database_reads_default_family() {
    let db = open();
    let mut model = Model { comparator: KeyComparator::Bytes, entries: Vec::new() };
    let mut rng = Rng(11);
    check_source(&db, &model, &mut rng, "empty");
    write_to_family(&db.default_family(), &mut rng, &mut model);
    check_source(&db, &model, &mut rng, "database");
    check_source(&db.default_family(), &model, &mut rng, "family");
}

/// First and last keys, under both orders of bytes, when the ends are tombstones of every kind.
#[test]
fn first_and_last_skip_tombstones() {
    for comparator in [KeyComparator::Bytes, KeyComparator::Reverse] {
        for flushed in [false, true] {
            let db = open();
            let f = db.create_family("f", small_files().comparator(comparator)).unwrap();
            let ends = |f: &Family| {
                let key = |e: Option<(Slice, Slice)>| e.map(|(k, _)| k.to_vec());
                let (first, last) = (key(f.first().unwrap()), key(f.last().unwrap()));
                if comparator == KeyComparator::Bytes { (first, last) } else { (last, first) }
            };
            let some = |k: &str| Some(k.as_bytes().to_vec());
            for i in 0..50 {
                f.put(format!("{i:02}"), "v").unwrap();
            }
            if flushed {
                f.flush().unwrap();
            }
            f.delete("00").unwrap();
            f.single_delete("49").unwrap();
            assert_eq!(ends(&f), (some("01"), some("48")));
            let (low, high) = match comparator {
                KeyComparator::Reverse => (("09", "00"), ("49", "40")),
                _ => (("00", "09"), ("40", "49")),
            };
            f.delete_range(low.0..=low.1).unwrap();
            f.delete_range(high.0..=high.1).unwrap();
            assert_eq!(ends(&f), (some("10"), some("39")));
            f.put_with_ttl("10", "v", std::time::Duration::ZERO).unwrap();
            assert_eq!(ends(&f), (some("11"), some("39")));
            let then = db.snapshot().unwrap();
            f.delete_range::<&str>(..).unwrap();
            assert_eq!(ends(&f), (None, None));
            assert!(f.is_empty().unwrap());
            assert!(!then.family(&f).is_empty().unwrap());
            f.put("99", "last one").unwrap();
            assert_eq!(ends(&f), (some("99"), some("99")));
            assert_eq!(f.last().unwrap().map(owned), Some((b"99".to_vec(), b"last one".to_vec())));
        }
    }
}

#[test]
fn borrowed_sources_are_iterable() {
    let db = open();
    let f = db.default_family();
    f.put("a", "1").unwrap();
    let snapshot = db.snapshot().unwrap();
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&f, "b", "2").unwrap();
    let mut all = Vec::new();
    for entry in &f {
        all.push(owned(entry.unwrap()).0);
    }
    for entry in &snapshot.family(&f) {
        all.push(owned(entry.unwrap()).0);
    }
    for entry in &txn.family(&f) {
        all.push(owned(entry.unwrap()).0);
    }
    assert_eq!(all, [b"a", b"a", b"a", b"b"]);
    db.close().unwrap();
    let mut failed = (&f).into_iter();
    assert_eq!(failed.next().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert!(failed.next().is_none() && failed.next_back().is_none());
}

#[test]
fn foreign_family_fails_in_every_read() {
    let (db, other) = (open(), open());
    let foreign = other.default_family();
    let snapshot = db.snapshot().unwrap();
    let txn = db.begin(TxnOptions::new()).unwrap();
    let (a, b) = (snapshot.family(&foreign), txn.family(&foreign));
    let kinds = [
        a.get("k").unwrap_err().kind(),
        a.iter().unwrap_err().kind(),
        a.multi_get(["k"]).pop().unwrap().unwrap_err().kind(),
        b.get("k").unwrap_err().kind(),
        b.last().unwrap_err().kind(),
        b.multi_get(["k"]).pop().unwrap().unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::InvalidArgument; 6]);
}

/// A multi-get in a transaction combines own writes, own merge operands and committed values.
#[test]
fn multi_get_in_transaction_sees_own_writes_and_operands() {
    let db = open();
    let f = db.create_family("f", FamilyOptions::new().merge_operator(MergeRule::Counter)).unwrap();
    let number = |n: i64| n.to_le_bytes().to_vec();
    let mut want = BTreeMap::new();
    for i in 0..40i64 {
        f.put(format!("{i:02}"), number(i)).unwrap();
        want.insert(format!("{i:02}"), number(i));
    }
    f.flush().unwrap();
    let txn = db.begin(TxnOptions::new().isolation(Isolation::RepeatableRead)).unwrap();
    for i in (0..40i64).step_by(3) {
        txn.merge(&f, format!("{i:02}"), number(1000)).unwrap();
        want.insert(format!("{i:02}"), number(i + 1000));
    }
    for i in (1..40i64).step_by(3) {
        txn.put(&f, format!("{i:02}"), number(-i)).unwrap();
        want.insert(format!("{i:02}"), number(-i));
    }
    txn.delete(&f, "39").unwrap();
    want.remove("39");
    let keys: Vec<String> = (0..45).rev().map(|i| format!("{:02}", i % 42)).collect();
    let reads = db.admin().counters().into_iter().find(|c| c.name == "gets").map(|c| c.value);
    for (k, value) in keys.iter().zip(txn.multi_get(&f, &keys)) {
        assert_eq!(value.unwrap().as_deref(), want.get(k).map(|v| &v[..]), "{k}");
    }
    let after = db.admin().counters().into_iter().find(|c| c.name == "gets").map(|c| c.value);
    assert_eq!(after.unwrap() - reads.unwrap(), 45);
    // It depends on the committed values that it read, but not on the keys that it overwrote.
    f.put("02", number(7)).unwrap();
    let e = txn.commit().unwrap_err();
    assert_eq!((e.kind(), e.key()), (ErrorKind::Conflict, Some(&b"02"[..])));
}
