//! Comparators: each sorts, finds and replaces keys correctly in memtables and tables and across
//! reopens, and a column family is never opened with a different comparator.
#![allow(clippy::unwrap_used)]

use perigee::env::{Env, fs::memory::SimDisk};
use perigee::{Db, ErrorKind, FamilyOptions, KeyComparator, Options};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

fn by_length() -> KeyComparator {
    KeyComparator::register("test length", |a, b| {
        a.len().cmp(&b.len()).then_with(|| a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase()))
    })
    .unwrap()
}

fn all_comparators() -> Vec<KeyComparator> {
    let built_in = [
        KeyComparator::Bytes,
        KeyComparator::Reverse,
        KeyComparator::U64,
        KeyComparator::I64,
        KeyComparator::CaseInsensitive,
        KeyComparator::Lexicographic,
    ];
    built_in.into_iter().chain([by_length()]).collect()
}

fn options(env: &Env, comparator: KeyComparator) -> Options {
    let family = FamilyOptions::new()
        .comparator(comparator)
        .block_bytes(64)
        .target_file_bytes(2048)
        .memtable_bytes(8192);
    Options::in_env(env.clone()).register_comparator(by_length()).family("f", family)
}

/// Keys of different forms, many of them equal under one comparator or another.
fn key(i: u64) -> Vec<u8> {
    let n = i * 7919 % 500;
    match i % 4 {
        0 => (n as i64 - 250).to_le_bytes().to_vec(),
        1 => format!("Key-{n:03}").into_bytes(),
        2 => format!("kEY-{n:03}").into_bytes(),
        _ => format!("key-{n:03}\0{}", i % 3).into_bytes(),
    }
}

/// Expected contents in comparator order: the most recent spelling and value of each key.
fn model(comparator: KeyComparator, writes: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
    for i in 0..writes {
        let k = key(i);
        let at = entries.binary_search_by(|(other, _)| comparator.cmp(other, &k));
        let entry = (k, (i % 11 != 0).then(|| i.to_string().into_bytes()));
        match at {
            Ok(at) => entries[at] = entry,
            Err(at) => entries.insert(at, entry),
        }
    }
    entries.into_iter().filter_map(|(k, v)| Some((k, v?))).collect()
}

fn check(f: &perigee::Family, comparator: KeyComparator, want: &[(Vec<u8>, Vec<u8>)]) {
    let pairs =
        |iter: &mut dyn Iterator<Item = perigee::Result<(perigee::Slice, perigee::Slice)>>| {
            iter.map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect::<Vec<_>>()
        };
    assert_eq!(pairs(&mut f.iter().unwrap()), want, "{comparator:?}");
    let mut backward = pairs(&mut f.iter().unwrap().rev());
    backward.reverse();
    assert_eq!(backward, want, "{comparator:?} backward");
    for (k, v) in want {
        assert_eq!(f.get(k).unwrap().as_ref(), Some(v), "{comparator:?} {k:?}");
        let other = k.to_ascii_uppercase();
        let found = f.get(&other).unwrap();
        if comparator.keys_equal(k, &other) {
            assert_eq!(found.as_ref(), Some(v), "{comparator:?}: {other:?} is {k:?}");
        }
    }
    let (low, high) = (&want[want.len() / 3].0, &want[want.len() / 2].0);
    assert_eq!(
        pairs(&mut f.range(&low[..]..&high[..]).unwrap()),
        want[want.len() / 3..want.len() / 2]
    );
    assert_eq!(f.range(&high[..]..&low[..]).unwrap().count(), 0, "an inverted range is empty");
}

#[test]
fn every_comparator_sorts_and_seeks() {
    for comparator in all_comparators() {
        let env = Env { fs: SimDisk::new(1), ..Env::real() };
        let writes = 3000;
        let db = Db::open("/db", options(&env, comparator)).unwrap();
        let f = db.family("f").unwrap();
        for i in 0..writes {
            match i % 11 {
                0 => f.delete(key(i)).unwrap(),
                _ => f.put(key(i), i.to_string()).unwrap(),
            }
        }
        let want = model(comparator, writes);
        check(&f, comparator, &want);
        db.admin().flush().unwrap();
        check(&f, comparator, &want);
        db.close().unwrap();
        let db = Db::open("/db", options(&env, comparator)).unwrap();
        let f = db.family("f").unwrap();
        assert_eq!(f.options().comparator, comparator);
        db.admin().compact().unwrap();
        check(&f, comparator, &want);
        assert!(db.admin().verify().unwrap().errors.is_empty(), "{comparator:?}");
    }
}

#[test]
fn equal_keys_are_one_key_under_snapshots() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let db = Db::open("/db", options(&env, KeyComparator::CaseInsensitive)).unwrap();
    let f = db.family("f").unwrap();
    f.put("Moon", "1").unwrap();
    let before = db.snapshot().unwrap();
    f.put("MOON", "2").unwrap();
    db.admin().compact().unwrap();
    for (found, spelled, value) in [
        (f.iter().unwrap(), "MOON", "2"),
        (before.iter(&f).unwrap(), "Moon", "1"),
        (f.iter().unwrap(), "MOON", "2"),
    ] {
        let all: Vec<_> = found.rev().map(Result::unwrap).collect();
        assert_eq!(all.len(), 1);
        assert_eq!((&all[0].0[..], &all[0].1[..]), (spelled.as_bytes(), value.as_bytes()));
    }
    assert_eq!(
        f.multi_get(["moon", "mOOn"]).into_iter().filter(|v| v.as_ref().unwrap().is_some()).count(),
        2
    );
    f.delete("mOOn").unwrap();
    assert_eq!(f.get("Moon").unwrap(), None);
    assert_eq!(before.get(&f, "moon").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn prefix_scans_follow_comparator_or_are_refused() {
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let count = |comparator: KeyComparator, prefix: &str| {
        let env = Env { fs: SimDisk::new(2), ..env.clone() };
        let db = Db::open("/db", options(&env, comparator)).unwrap();
        let f = db.family("f").unwrap();
        for k in ["ab", "aB", "ABc", "ab\0x", "ac", "b"] {
            f.put(k, "").unwrap();
        }
        f.prefix(prefix).map(Iterator::count)
    };
    assert_eq!(count(KeyComparator::Bytes, "ab").unwrap(), 2);
    assert_eq!(count(KeyComparator::Reverse, "ab").unwrap(), 2);
    assert_eq!(count(KeyComparator::CaseInsensitive, "Ab").unwrap(), 3, "ab, ABc, ab with NUL");
    assert_eq!(
        count(KeyComparator::Lexicographic, "ab\0z").unwrap(),
        1,
        "the two spellings of ab are one key"
    );
    for comparator in [KeyComparator::U64, KeyComparator::I64, by_length()] {
        let e = count(comparator, "ab").unwrap_err();
        assert!(e.kind() == ErrorKind::InvalidArgument && e.to_string().contains("range"), "{e}");
        assert_eq!(count(comparator, "").unwrap(), if comparator == by_length() { 5 } else { 6 });
    }
}

fn bytes_of(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).filter(|p| p.is_file());
    files
        .map(|p| (p.file_name().unwrap().to_string_lossy().into(), std::fs::read(&p).unwrap()))
        .collect()
}

#[test]
fn changed_comparator_is_refused_without_writes() {
    let dir = std::env::temp_dir().join(format!("perigee-orders-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let env = Env::real();
    let db = Db::open(&dir, options(&env, by_length())).unwrap();
    db.family("f").unwrap().put("key", "value").unwrap();
    let e = db.family("f").unwrap().set_options(FamilyOptions::new()).unwrap_err();
    assert!(e.to_string().contains("\"f\"") && e.to_string().contains("user:test length"), "{e}");
    let unknown = KeyComparator::register("test unknown", Ord::cmp).unwrap();
    let e = db.create_family("g", FamilyOptions::new().comparator(unknown)).unwrap_err();
    assert!(e.to_string().contains("register_comparator"), "{e}");
    db.close().unwrap();
    let before = bytes_of(&dir);
    let refuse = |options: Options, what: &[&str]| {
        let e = Db::open(&dir, options).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
        assert!(what.iter().all(|w| e.to_string().contains(w)), "{e}");
        assert_eq!(bytes_of(&dir), before);
    };
    refuse(Options::new(), &["test length", "register_comparator"]);
    refuse(options(&env, KeyComparator::Reverse), &["user:test length", "reverse", "\"f\""]);
    refuse(
        options(&env, unknown).register_comparator(unknown),
        &["user:test length", "user:test unknown"],
    );
    let e = KeyComparator::register("test length", |a, b| -> Ordering { a.cmp(b) }).unwrap_err();
    assert!(e.to_string().contains("differs from the function"), "{e}");
    Db::open(&dir, options(&env, by_length())).unwrap().close().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}
