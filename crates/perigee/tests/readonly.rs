//! Opening without writing: beside a writer, on a torn log, and on a database too damaged to be opened otherwise.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, Error, ErrorKind, FamilyOptions, Options};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

fn world() -> (Arc<SimDisk>, Env) {
    let disk = SimDisk::new(1);
    (disk.clone(), Env { fs: disk, ..Env::real() })
}

fn small() -> FamilyOptions {
    FamilyOptions::new()
        .memtable_bytes(4 << 10)
        .target_file_bytes(4 << 10)
        .block_bytes(256)
        .value_threshold(64)
}

fn options(env: &Env) -> Options {
    Options::in_env(env.clone())
}

fn writer(env: &Env) -> Db {
    Db::open("/db", options(env).default_family(small())).unwrap()
}

fn key(n: u32) -> String {
    format!("k{n:05}")
}

fn fill(db: &Db, from: u32, to: u32) {
    for n in from..to {
        db.put(key(n), vec![n as u8; (n % 150) as usize]).unwrap();
    }
}

fn dump(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    db.iter().unwrap().map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

fn image(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.paths().into_iter().map(|p| (p.clone(), disk.read_raw(&p))).collect()
}

#[test]
fn a_reader_beside_the_writer_keeps_its_picture() {
    let (disk, env) = world();
    let db = writer(&env);
    fill(&db, 0, 300);
    db.wait_idle().unwrap();
    let expected = dump(&db);
    // Removals of the last job may still be under way: an open that wrote anything would never leave the count alone.
    let untouched = (0..50).any(|_| {
        let before = disk.io_count();
        drop(Db::open("/db", options(&env).read_only(true)).unwrap());
        disk.io_count() == before
    });
    assert!(untouched, "nothing is changed, not even a lock file");
    let reader = Db::open("/db", options(&env).read_only(true)).unwrap();
    let second = Db::open("/db", options(&env).read_only(true)).unwrap();
    for n in 0..300 {
        db.delete(key(n)).unwrap();
    }
    fill(&db, 1000, 1400);
    db.compact().unwrap();
    assert_eq!(dump(&reader), expected, "its files were removed by the writer, and are held");
    assert_eq!(reader.get(key(77)).unwrap().unwrap(), vec![77; 77]);
    assert_eq!(reader.get(key(1077)).unwrap(), None);
    let third = Db::open("/db", options(&env).read_only(true)).unwrap();
    assert_eq!(dump(&third), dump(&db));
    let refused: Vec<Error> = vec![
        reader.put("a", "b").unwrap_err(),
        reader.delete("a").unwrap_err(),
        reader.flush().unwrap_err(),
        reader.compact().unwrap_err(),
        reader.sync().unwrap_err(),
        reader.create_family("x", small()).unwrap_err(),
        reader.drop_family("x").unwrap_err(),
        reader.checkpoint("/copy").unwrap_err(),
        reader.backup("/backup").unwrap_err(),
    ];
    for e in refused {
        assert!(e.kind() == ErrorKind::ReadOnly && e.message().contains("read-only"), "{e}");
    }
    assert!(third.verify().unwrap().errors.is_empty());
    second.close().unwrap();
    reader.close().unwrap();
    db.close().unwrap();
    drop(writer(&env));
}

/// A log without the zeros at its end, which are space taken ahead.
fn without_zeros(mut log: Vec<u8>) -> Vec<u8> {
    log.truncate(log.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1));
    log
}

#[test]
fn a_reader_never_creates_and_never_cuts() {
    let (disk, env) = world();
    assert_eq!(Db::open("/db", options(&env).read_only(true)).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(disk.paths().is_empty());
    let db = writer(&env);
    fill(&db, 0, 20);
    drop(db);
    let log = disk.paths().into_iter().find(|p| p.extension().is_some_and(|e| e == "wal")).unwrap();
    let whole = disk.read_raw(&log);
    // The writer dies in its last append: its process is gone, and so is the mark of a clean close.
    let env2 = Env { fs: disk.clone(), ..Env::real() };
    let db = writer(&env2);
    fill(&db, 20, 40);
    db.wait_idle().unwrap();
    db.put("last", "x").unwrap();
    let crashed = disk.deep_clone();
    // The newest segment that holds anything: the next one may be there already.
    let written = |p: &std::path::PathBuf| {
        p.extension().is_some_and(|e| e == "wal") && without_zeros(crashed.read_raw(p)).len() > 100
    };
    let log = crashed.paths().into_iter().rfind(written).unwrap_or(log);
    let torn = without_zeros(crashed.read_raw(&log));
    assert_ne!(torn, whole);
    crashed.write_raw(&log, torn[..torn.len() - 5].to_vec());
    let before = image(&crashed);
    let env3 = Env { fs: crashed.clone(), ..Env::real() };
    let reader = Db::open("/db", options(&env3).read_only(true)).unwrap();
    let recovery = reader.stats().recovery;
    assert!(recovery.truncated_bytes > 0, "{recovery:?}");
    assert_eq!(dump(&reader).len(), 40);
    reader.close().unwrap();
    assert!(image(&crashed) == before, "no byte was changed");
    assert_eq!(dump(&writer(&env3)).len(), 40, "the writer comes to the same end");
}

#[test]
fn strict_and_read_only_refuse_damage_and_salvage_answers_around_it() {
    let (disk, env) = world();
    let db = writer(&env);
    fill(&db, 0, 250);
    db.compact().unwrap();
    let expected = dump(&db);
    db.close().unwrap();
    let tables = disk
        .paths()
        .into_iter()
        .filter(|p| p.starts_with("/db") && p.extension().is_some_and(|e| e == "klog" || e == "vlog"));
    for path in tables.collect::<Vec<_>>() {
        let good = disk.read_raw(&path);
        for (at, strict) in [(good.len() / 3, false), (good.len() - 20, true), (3, true), (usize::MAX, true)]
        {
            let mut bad = good.clone();
            match at {
                usize::MAX => bad.truncate(good.len() / 2),
                at => bad[at] ^= 0x10,
            }
            disk.write_raw(&path, bad);
            let before = image(&disk);
            let klog = path.extension().is_some_and(|e| e == "klog");
            if strict && klog {
                assert!(Db::open("/db", options(&env)).unwrap_err().is_corruption());
                assert!(Db::open("/db", options(&env).read_only(true)).unwrap_err().is_corruption());
            }
            let db = Db::open("/db", options(&env).salvage_readonly(true)).unwrap();
            let mut damaged = 0;
            for (k, v) in &expected {
                match db.get(k) {
                    Ok(Some(got)) => assert_eq!(&got, v),
                    Err(e) if e.is_corruption() => damaged += 1,
                    other => panic!("{}: {other:?}", path.display()),
                }
            }
            assert!(klog || at >= good.len() - 20 || damaged > 0, "{}", path.display());
            assert!(damaged < expected.len(), "most of it can be read");
            assert_eq!(db.get("z").unwrap(), None, "outside all ranges nothing is there");
            db.close().unwrap();
            assert!(image(&disk) == before, "no byte was changed");
        }
        disk.write_raw(&path, good);
    }
}

#[test]
fn with_a_hole_in_the_log_nothing_is_said_to_be_absent() {
    let (disk, env) = world();
    let db = Db::open("/db", options(&env)).unwrap();
    for n in 0..50 {
        db.put(key(n), "v").unwrap();
    }
    let crashed = disk.deep_clone();
    let log = crashed.paths().into_iter().find(|p| p.extension().is_some_and(|e| e == "wal")).unwrap();
    let mut bytes = without_zeros(crashed.read_raw(&log));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    crashed.write_raw(&log, bytes);
    let env = Env { fs: crashed, ..Env::real() };
    assert!(Db::open("/db", options(&env).read_only(true)).unwrap_err().is_corruption());
    let db = Db::open("/db", options(&env).salvage_readonly(true)).unwrap();
    let lost: Vec<u32> = (0..50).filter(|n| db.get(key(*n)).is_err()).collect();
    assert_eq!(lost.len(), 1, "records on both sides are there");
    assert!(db.get("never written").unwrap_err().is_corruption());
    assert!(db.contains("never written").unwrap_err().is_corruption());
    let scan: Vec<_> = db.iter().unwrap().collect();
    assert_eq!(scan.len(), 50);
    assert!(
        scan[49].as_ref().unwrap_err().is_corruption(),
        "the end of a scan would say that nothing is missing"
    );
    assert!(db.stats().recovery.reason.contains(".wal"));
}

/// The story: a key was deleted and put again, the put was lost, and the older tombstone was believed.
#[test]
fn a_tombstone_older_than_a_hole_in_the_log_is_not_believed() {
    let (disk, env) = world();
    let db = Db::open("/db", options(&env)).unwrap();
    let family = db.default_family();
    for name in ["delete", "single", "range", "expired", "later"] {
        db.put(name, "old").unwrap();
    }
    db.delete("delete").unwrap();
    db.single_delete("single").unwrap();
    db.delete_range("range".."rangf").unwrap();
    family.put_until("expired", "old", 1).unwrap();
    let mark = without_zeros(disk.read_raw(first_log(&disk))).len();
    let mut batch = perigee::WriteBatch::new();
    ["delete", "single", "range", "expired"].iter().for_each(|k| batch.put(&family, k, "new").unwrap());
    db.write(batch).unwrap();
    db.delete("later").unwrap();
    let crashed = disk.deep_clone();
    let log = first_log(&crashed);
    let mut bytes = crashed.read_raw(&log);
    bytes[mark + 70] ^= 1;
    crashed.write_raw(&log, bytes);
    let env = Env { fs: crashed, ..Env::real() };
    let db = Db::open("/db", options(&env).salvage_readonly(true)).unwrap();
    for name in ["delete", "single", "range", "expired"] {
        assert!(db.get(name).unwrap_err().is_corruption(), "{name}");
        assert!(db.contains(name).unwrap_err().is_corruption(), "{name}");
        assert!(db.get_with_ttl(name).unwrap_err().is_corruption(), "{name}");
        assert!(db.multi_get([name])[0].as_ref().unwrap_err().is_corruption(), "{name}");
    }
    assert_eq!(db.get("later").unwrap(), None, "that tombstone is newer than the hole");
    assert!(db.iter().unwrap().last().unwrap().unwrap_err().is_corruption());
}

fn first_log(disk: &SimDisk) -> std::path::PathBuf {
    disk.paths().into_iter().find(|p| p.extension().is_some_and(|e| e == "wal")).unwrap()
}

/// The story: an open beside a writer began again when anything was flushed while its tables were opened and checked, and
/// gave up with `Busy`. Now only files that vanish between the manifest and their opening count.
#[test]
fn an_open_beside_a_busy_writer_sees_a_whole_picture() {
    let (_disk, env) = world();
    let db = writer(&env);
    fill(&db, 0, 200);
    db.flush().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let opened = std::thread::scope(|s| {
        s.spawn(|| {
            for n in 1..100_000u32 {
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                db.put("newest", n.to_be_bytes()).unwrap();
                fill(&db, n % 100, n % 100 + 50);
                db.flush().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let opened: Vec<_> = (0..8).map(|_| Db::open("/db", options(&env).read_only(true))).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        opened
    });
    let (mut last, mut whole) = (0, 0);
    for reader in opened {
        let reader = match reader {
            Ok(reader) => reader,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
                continue;
            }
        };
        whole += 1;
        let newest =
            reader.get("newest").unwrap().map_or(0, |v| u32::from_be_bytes(v[..].try_into().unwrap()));
        assert!(newest >= last, "what was seen once is not lost");
        last = newest;
        assert_eq!(dump(&reader).keys().filter(|k| k.starts_with(b"k")).count(), 200);
    }
    assert!(whole > 0, "none of 8 opens came through");
}
