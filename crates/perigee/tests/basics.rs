//! Basic guarantees: written data is present and in order after a flush, a compaction and a reopen.
#![allow(clippy::unwrap_used)]

use perigee::{Db, Durability, ErrorKind, FamilyOptions, Options, WriteBatch};
use std::collections::BTreeMap;
use std::path::PathBuf;

struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let path = std::env::temp_dir().join(format!("perigee-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        TempDir(path)
    }
}
impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tiny_family_options() -> FamilyOptions {
    FamilyOptions::new()
        .memtable_bytes(8 << 10)
        .block_bytes(256)
        .target_file_bytes(4 << 10)
        .level1_bytes(16 << 10)
        .level_ratio(3)
        .value_threshold(100)
}

fn options() -> Options {
    Options::new().durability(Durability::None).default_family(tiny_family_options())
}

fn check(db: &Db, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let all: Vec<_> =
        db.iter().unwrap().map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
    assert_eq!(all.len(), model.len());
    assert!(all.iter().map(|(k, v)| (k, v)).eq(model.iter()));
    let back: Vec<_> = db.iter().unwrap().rev().map(|e| e.unwrap().0.to_vec()).collect();
    assert!(back.iter().eq(model.keys().rev()));
    for (k, v) in model.iter().step_by(7) {
        assert_eq!(db.get(k).unwrap().as_ref(), Some(v));
    }
}

#[test]
fn data_survives_flush_compaction_and_reopen() {
    let dir = TempDir::new("basics");
    let mut model = BTreeMap::new();
    let mut x = 1u64;
    for round in 0..4 {
        let db = Db::open(&dir.0, options()).unwrap();
        check(&db, &model);
        for _ in 0..3000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let key = format!("k{:05}", (x >> 33) % 2000).into_bytes();
            if (x >> 20).is_multiple_of(5) {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = vec![(x >> 40) as u8; ((x >> 50) % 200) as usize];
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        check(&db, &model);
        if round == 1 {
            db.admin().flush().unwrap();
            check(&db, &model);
        }
        if round == 2 {
            db.admin().compact().unwrap();
            check(&db, &model);
        }
        db.admin().wait_idle().unwrap();
        let report = db.admin().verify().unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        db.close().unwrap();
        assert_eq!(db.get("k").unwrap_err().kind(), ErrorKind::Closed);
    }
}

#[test]
fn batch_over_families_is_atomic() {
    let dir = TempDir::new("families");
    let db = Db::open(&dir.0, options()).unwrap();
    let a = db.create_family("a", tiny_family_options()).unwrap();
    assert_eq!(
        db.create_family("a", tiny_family_options()).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        db.create_family("", tiny_family_options()).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    let mut batch = WriteBatch::new();
    batch.put(&a, "x", "1").unwrap();
    batch.put(&db.default_family(), "x", "2").unwrap();
    batch.put(&a, "x", "3").unwrap();
    db.write(batch).unwrap();
    assert_eq!(a.get("x").unwrap().as_deref(), Some(&b"3"[..]));
    assert_eq!(db.get("x").unwrap().as_deref(), Some(&b"2"[..]));
    let before = db.snapshot().unwrap();
    a.put("x", "4").unwrap();
    assert_eq!(before.get(&a, "x").unwrap().as_deref(), Some(&b"3"[..]));
    db.drop_family("a").unwrap();
    assert_eq!(a.get("x").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(a.put("x", "5").unwrap_err().kind(), ErrorKind::NotFound);
    let again = db.create_family("a", tiny_family_options()).unwrap();
    assert_eq!(again.get("x").unwrap(), None);
    drop((before, a, again));
    db.close().unwrap();
    let db = Db::open(&dir.0, options()).unwrap();
    assert_eq!(db.families(), ["a", "default"]);
    assert_eq!(db.family("a").unwrap().get("x").unwrap(), None);
    assert_eq!(Db::open(&dir.0, options()).unwrap_err().kind(), ErrorKind::Locked);
}

#[test]
fn concurrent_writes_survive_close_and_reopen() {
    let dir = TempDir::new("threads");
    let family = FamilyOptions::new()
        .memtable_bytes(256 << 10)
        .target_file_bytes(64 << 10)
        .level1_bytes(256 << 10);
    let open = || {
        Db::open(&dir.0, Options::new().durability(Durability::None).default_family(family.clone()))
            .unwrap()
    };
    let (threads, batches, size) = (8u64, 40u64, 100u64);
    let key =
        |t: u64, i: u64| (t * 1_000_000 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
    let db = open();
    std::thread::scope(|s| {
        for t in 0..threads {
            let db = &db;
            s.spawn(move || {
                let f = db.default_family();
                for b in 0..batches {
                    let mut batch = WriteBatch::new();
                    for i in b * size..(b + 1) * size {
                        batch
                            .put(&f, key(t, i), [&t.to_le_bytes()[..], &i.to_le_bytes()].concat())
                            .unwrap();
                    }
                    db.write(batch).unwrap();
                }
            });
        }
    });
    db.close().unwrap();
    let db = open();
    for t in 0..threads {
        for i in 0..batches * size {
            let want = [&t.to_le_bytes()[..], &i.to_le_bytes()].concat();
            assert_eq!(db.get(key(t, i)).unwrap(), Some(want), "thread {t} key {i}");
        }
    }
    assert_eq!(db.iter().unwrap().count() as u64, threads * batches * size);
}

#[test]
fn empty_and_large_keys_and_values_round_trip() {
    let dir = TempDir::new("odd");
    let db = Db::open(&dir.0, Options::new()).unwrap();
    let long = vec![0xff; perigee::limits::KEY_BYTES_MAX];
    let big: Vec<u8> =
        (0..5_000_000u32).map(|i| (i.wrapping_mul(2654435761) >> 13) as u8).collect();
    for key in [&b""[..], b"\0", b"\0\0", b"a\0b", &long] {
        db.put(key, key).unwrap();
        db.put([key, b"!"].concat().get(..key.len().min(100)).unwrap(), b"").unwrap();
    }
    db.put("big", &big).unwrap();
    db.put("empty", b"").unwrap();
    assert_eq!(
        db.put([long.clone(), vec![1]].concat(), b"").unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    for _ in 0..2 {
        assert_eq!(db.get("big").unwrap().unwrap(), big);
        assert_eq!(db.get("empty").unwrap().unwrap(), b"");
        assert!(db.contains(&long).unwrap() && db.contains(b"").unwrap());
        db.admin().flush().unwrap();
    }
    db.admin().compact().unwrap();
    assert_eq!(db.get_pinned("big").unwrap().unwrap().len(), big.len());
    assert!(db.admin().verify().unwrap().errors.is_empty());
}
