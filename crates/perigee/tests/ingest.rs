//! Standalone tables: written without a database, ingested completely or refused completely.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::load::TableWriter;
use perigee::{Db, ErrorKind, FamilyOptions, Options};
use perigee_base::{EntryRef, FamilyId, KeyBoundaryRef, KeyComparator, SeqNo, ValueRef};
use perigee_file::{KlogOptions, RangeTombstones, standalone};
use std::path::PathBuf;
use std::sync::Arc;

fn env(disk: &Arc<SimDisk>) -> Env {
    Env { fs: disk.clone(), ..Env::real() }
}

fn open() -> (Arc<SimDisk>, Db) {
    let disk = SimDisk::new(3);
    let family = FamilyOptions::new().target_file_bytes(4 << 10).value_threshold(100);
    let db = Db::open("/db", Options::in_env(env(&disk)).default_family(family)).unwrap();
    (disk, db)
}

fn table(disk: &Arc<SimDisk>, name: &str, keys: std::ops::Range<u32>) -> PathBuf {
    let path = PathBuf::from("/db").join(name);
    let mut w =
        TableWriter::create_in(env(disk), &path, FamilyOptions::new().block_bytes(512)).unwrap();
    for i in keys {
        w.put(format!("{i:05}"), vec![b'v'; (i % 200) as usize]).unwrap();
    }
    w.finish().unwrap();
    path
}

#[test]
fn ingest_is_atomic_and_frees_source_files() {
    let (disk, db) = open();
    let other = db.create_family("other", FamilyOptions::new()).unwrap();
    db.put("00007", "older").unwrap();
    db.put("50000", "stays").unwrap();
    let before = db.snapshot().unwrap();
    let files = vec![table(&disk, "a.table", 0..500), table(&disk, "b.table", 500..900)];
    let third = table(&disk, "c.table", 0..10);
    let report = db
        .admin()
        .ingest_many(&[(db.default_family(), files.clone()), (other.clone(), vec![third.clone()])]);
    let report = report.unwrap();
    assert_eq!(report.entries, 910);
    assert_eq!(db.get("00007").unwrap().unwrap(), vec![b'v'; 7]);
    assert_eq!(before.get(&db.default_family(), "00007").unwrap().unwrap(), b"older");
    assert_eq!(db.iter().unwrap().count(), 901);
    assert_eq!(other.iter().unwrap().count(), 10);
    // Ingest the same files again after newer writes: their entries are newer than these.
    db.put("00003", "newer").unwrap();
    db.default_family().ingest(&files).unwrap();
    assert_eq!(db.get("00003").unwrap().unwrap(), b"vvv");
    let root = env(&disk).fs.open_dir("/db".as_ref(), perigee::env::DirOpenMode::Existing).unwrap();
    ["a.table", "b.table", "c.table"].iter().for_each(|f| root.remove(f).unwrap());
    assert!(db.admin().verify().unwrap().errors.is_empty());
    db.close().unwrap();
    drop((before, other));
    let again = Db::open("/db", Options::in_env(env(&disk))).unwrap();
    assert_eq!(again.iter().unwrap().count(), 901);
    again.admin().compact().unwrap();
    assert_eq!(again.get("00899").unwrap().unwrap().len(), 99);
}

#[test]
fn ingested_tombstone_deletes() {
    let (disk, db) = open();
    db.put("k", "v").unwrap();
    let mut w = TableWriter::create_in(env(&disk), "/db/d.table", FamilyOptions::new()).unwrap();
    w.delete("k").unwrap();
    assert_eq!(w.finish().unwrap().tombstones, 1);
    db.default_family().ingest(&["/db/d.table"]).unwrap();
    assert_eq!(db.get("k").unwrap(), None);
}

/// Regression test: only entries were ingested and a range-tombstone frame was silently skipped, so
/// entries that it covers would have stayed visible.
#[test]
fn ingest_refuses_range_tombstones() {
    let (disk, db) = open();
    db.put("k2", "stays").unwrap();
    let dir = env(&disk).fs.open_dir("/db".as_ref(), perigee::env::DirOpenMode::Existing).unwrap();
    for (name, seq, with_entry) in [("a", 0, true), ("b", 0, false), ("c", 9, true)] {
        let format = KlogOptions {
            database: standalone::DATABASE,
            family: FamilyId::NONE,
            comparator: KeyComparator::Bytes,
            block_bytes: 512,
            compression: perigee_file::Compression::None,
            filter_bits: 0,
        };
        let mut w = standalone::create(&*dir, name, format).unwrap();
        if with_entry {
            w.add(EntryRef { key: b"k1", seq: SeqNo::ZERO, value: ValueRef::Inline(b"v") })
                .unwrap();
        }
        let mut ranges = RangeTombstones::default();
        ranges.add(
            KeyComparator::Bytes,
            KeyBoundaryRef::Before(b"k"),
            KeyBoundaryRef::Before(b"l"),
            SeqNo(seq),
        );
        w.set_range_tombstones(ranges);
        w.finish().unwrap();
        let e = db.default_family().ingest(&[format!("/db/{name}")]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
        assert!(e.to_string().contains("range tombstones"), "{e}");
    }
    assert_eq!(db.iter().unwrap().count(), 1);
}

#[test]
fn ingest_refuses_invalid_files_atomically() {
    let (disk, db) = open();
    let (a, b) = (table(&disk, "a.table", 0..500), table(&disk, "b.table", 400..900));
    let c = table(&disk, "c.table", 900..950);
    let family = db.default_family();
    let why = |files: &[PathBuf]| {
        let e = family.ingest(files).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
        e.to_string()
    };
    assert!(why(&[a.clone(), b.clone()]).contains("share keys"));
    assert!(why(&[c.clone(), a.clone()]).contains("list a.table before c.table"));
    assert!(why(&[PathBuf::from("/")]).contains("names no file"));
    assert_eq!(family.ingest(&["/db/none.table"]).unwrap_err().kind(), ErrorKind::NotFound);
    let twice =
        db.admin().ingest_many(&[(family.clone(), vec![a.clone()]), (family.clone(), vec![c])]);
    assert!(twice.unwrap_err().to_string().contains("named twice"));
    // A table that belongs to a database is not a standalone table.
    db.put("x", "y").unwrap();
    db.admin().flush().unwrap();
    let own = PathBuf::from("/db").join(&db.admin().files()[0].file);
    assert_eq!(family.ingest(&[own]).unwrap_err().kind(), ErrorKind::Corruption);
    assert_eq!(db.iter().unwrap().count(), 1);
}

#[test]
fn ingest_detects_any_damaged_byte() {
    let (disk, db) = open();
    let good = table(&disk, "good.table", 0..60);
    let bytes = disk.read_raw(&good);
    for at in (0..bytes.len()).step_by(7) {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        disk.write_raw("/db/bad.table", bad);
        let e = db.default_family().ingest(&["/db/bad.table"]).unwrap_err();
        let kinds = [ErrorKind::Corruption, ErrorKind::FormatTooNew];
        assert!(kinds.contains(&e.kind()), "byte {at}: {e}");
    }
    for cut in [0, 10, 100, bytes.len() - 1] {
        disk.write_raw("/db/bad.table", bytes[..cut].to_vec());
        assert!(
            db.default_family().ingest(&["/db/bad.table"]).unwrap_err().is_corruption(),
            "cut at {cut}"
        );
    }
    assert_eq!(db.iter().unwrap().count(), 0);
    db.default_family().ingest(&[good]).unwrap();
    assert_eq!(db.iter().unwrap().count(), 60);
}

#[test]
fn table_writer_refuses_invalid_input() {
    let (disk, _db) = open();
    let options = FamilyOptions::new;
    let mut w = TableWriter::create_in(env(&disk), "/db/w.table", options()).unwrap();
    w.put("b", "1").unwrap();
    for key in ["a", "b"] {
        assert_eq!(w.put(key, "2").unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert!(w.put("c", vec![0; (1 << 20) + 1]).unwrap_err().to_string().contains("bulk_load"));
    assert!(w.put(vec![b'c'; 70_000], "").is_err());
    w.put("c", "3").unwrap();
    assert_eq!(w.finish().unwrap().entries, 2);
    let again = TableWriter::create_in(env(&disk), "/db/w.table", options());
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let empty = TableWriter::create_in(env(&disk), "/db/e.table", options()).unwrap();
    assert_eq!(empty.finish().unwrap_err().kind(), ErrorKind::InvalidArgument);
    drop(TableWriter::create_in(env(&disk), "/db/f.table", options()).unwrap());
    let left = |name: &str| disk.paths().iter().any(|p| p.ends_with(name));
    assert!(left("w.table") && !left("e.table") && !left("f.table"));
    assert!(TableWriter::create_in(env(&disk), "/", options()).is_err());
}
