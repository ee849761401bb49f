//! Compression per column family: every codec round-trips, also when the codec is changed on a live
//! database.
#![allow(clippy::unwrap_used)]

use perigee::env::{Env, fs::memory::SimDisk};
use perigee::{Compression, Db, ErrorKind, FamilyOptions, Options, Result};

const ALL_CODECS: [Compression; 6] = [
    Compression::None,
    Compression::Lz4,
    Compression::Lz4Fast(16),
    Compression::Snappy,
    Compression::Zstd(-1),
    Compression::Zstd(9),
];

fn new_env() -> Env {
    Env { fs: SimDisk::new(1), ..Env::real() }
}

fn family(compression: Compression) -> FamilyOptions {
    FamilyOptions::new().compression(compression).value_threshold(500).memtable_bytes(64 << 10)
}

fn value(i: u32) -> Vec<u8> {
    format!("value {i} ").repeat(1 + i as usize % 150).into_bytes()
}

fn fill(f: &perigee::Family, keys: std::ops::Range<u32>) -> Result<()> {
    keys.clone().try_for_each(|i| f.put(i.to_be_bytes(), value(i)))?;
    f.flush()
}

fn check(f: &perigee::Family, keys: std::ops::Range<u32>) {
    for i in keys.clone() {
        assert_eq!(f.get(i.to_be_bytes()).unwrap(), Some(value(i)), "{i}");
    }
    assert_eq!(f.iter().unwrap().count(), keys.len());
}

#[test]
fn every_codec_round_trips_and_compresses() {
    let env = new_env();
    let mut sizes = Vec::new();
    {
        let db = Db::open("/db", Options::in_env(env.clone())).unwrap();
        for (i, how) in ALL_CODECS.into_iter().enumerate() {
            // A job removes its log segment and the files it replaced after its tables are
            // installed.
            db.admin().wait_idle().unwrap();
            let before = db.admin().stats().disk_bytes;
            let f = db.create_family(&format!("f{i}"), family(how)).unwrap();
            fill(&f, 0..2000).unwrap();
            db.admin().compact().unwrap();
            db.admin().wait_idle().unwrap();
            sizes.push(db.admin().stats().disk_bytes - before);
            assert_eq!(f.options().compression, how);
        }
        db.close().unwrap();
    }
    let db = Db::open("/db", Options::in_env(env)).unwrap();
    for (i, how) in ALL_CODECS.into_iter().enumerate() {
        let f = db.family(&format!("f{i}")).unwrap();
        assert_eq!(f.options().compression, how, "stored with the column family");
        check(&f, 0..2000);
    }
    assert!(db.admin().verify().unwrap().errors.is_empty());
    assert!(sizes[1..].iter().all(|s| *s < sizes[0] / 2), "{sizes:?}");
}

#[test]
fn changed_codec_applies_to_new_files() {
    let env = new_env();
    for (i, how) in ALL_CODECS.into_iter().enumerate() {
        let options = Options::in_env(env.clone()).default_family(family(how));
        let db = Db::open("/db", options).unwrap();
        let (from, to) = (i as u32 * 300, (i as u32 + 1) * 300);
        fill(&db.default_family(), from..to).unwrap();
        check(&db.default_family(), 0..to);
        db.close().unwrap();
    }
    let db = Db::open("/db", Options::in_env(env)).unwrap();
    check(&db.default_family(), 0..1800);
    db.admin().compact().unwrap();
    check(&db.default_family(), 0..1800);
    assert!(db.admin().verify().unwrap().errors.is_empty());
}

#[test]
fn invalid_compression_levels_are_refused() {
    let db = Db::open("/db", Options::in_env(new_env())).unwrap();
    for bad in [
        Compression::Zstd(0),
        Compression::Zstd(23),
        Compression::Zstd(-8),
        Compression::Lz4Fast(0),
    ] {
        let e = db.create_family("x", family(bad)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
        assert!(e.to_string().contains("out of range"), "{e}");
    }
    assert_eq!(db.families(), ["default"]);
}
