//! Read-only opens: beside a writer, on a torn log, and on a database too damaged to be opened
//! otherwise.
#![allow(clippy::unwrap_used)]

use perigee::env::fs::memory::SimDisk;
use perigee::env::sim::SimWorld;
use perigee::env::{Dir, DirLock, DirOpenMode, Env, Fs, RandomAccessFile, WritableFile};
use perigee::load::TableWriter;
use perigee::{Db, Error, ErrorKind, FamilyOptions, Options, TxnOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

fn new_env() -> (Arc<SimDisk>, Env) {
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

fn disk_image(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.paths().into_iter().map(|p| (p.clone(), disk.read_raw(&p))).collect()
}

#[test]
fn read_only_view_is_stable_beside_writer() {
    let disk = SimDisk::new(1);
    SimWorld::new(1).run(disk.clone(), |env| check_reader_beside_writer(&disk, &env));
}

fn check_reader_beside_writer(disk: &SimDisk, env: &Env) {
    let db = writer(env);
    fill(&db, 0, 300);
    db.admin().wait_idle().unwrap();
    let expected = dump(&db);
    // Obsolete files of the last job may still be removed. Simulated time advances only while every
    // thread waits.
    env.clock.sleep_us(1_000_000);
    let before = disk.mutating_calls();
    drop(Db::open("/db", options(env).read_only(true)).unwrap());
    assert_eq!(
        disk.mutating_calls(),
        before,
        "a read-only open changes nothing and creates no lock file"
    );
    let reader = Db::open("/db", options(env).read_only(true)).unwrap();
    let second = Db::open("/db", options(env).read_only(true)).unwrap();
    for n in 0..300 {
        db.delete(key(n)).unwrap();
    }
    fill(&db, 1000, 1400);
    db.admin().compact().unwrap();
    assert_eq!(dump(&reader), expected, "the reader keeps files that the writer removed");
    assert_eq!(reader.get(key(77)).unwrap().unwrap(), vec![77; 77]);
    assert_eq!(reader.get(key(1077)).unwrap(), None);
    let third = Db::open("/db", options(env).read_only(true)).unwrap();
    assert_eq!(dump(&third), dump(&db));
    let refused: Vec<Error> = vec![
        reader.put("a", "b").unwrap_err(),
        reader.delete("a").unwrap_err(),
        reader.admin().flush().unwrap_err(),
        reader.admin().compact().unwrap_err(),
        reader.sync().unwrap_err(),
        reader.create_family("x", small()).unwrap_err(),
        reader.drop_family("x").unwrap_err(),
        reader.backups().checkpoint("/copy").unwrap_err(),
        reader.backups().create("/backup").unwrap_err(),
    ];
    for e in refused {
        assert!(e.kind() == ErrorKind::ReadOnly && e.message().contains("read-only"), "{e}");
    }
    assert!(third.admin().verify().unwrap().errors.is_empty());
    second.close().unwrap();
    reader.close().unwrap();
    db.close().unwrap();
    drop(writer(env));
}

/// Strips the zeros at the end of a log, which are preallocated space.
fn trim_zeros(mut log: Vec<u8>) -> Vec<u8> {
    log.truncate(log.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1));
    log
}

#[test]
fn read_only_open_creates_and_truncates_nothing() {
    let (disk, env) = new_env();
    assert_eq!(
        Db::open("/db", options(&env).read_only(true)).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert!(disk.paths().is_empty());
    let db = writer(&env);
    fill(&db, 0, 20);
    drop(db);
    let log = disk.paths().into_iter().find(|p| p.extension().is_some_and(|e| e == "wal")).unwrap();
    let whole = disk.read_raw(&log);
    // The writer crashes during its last append, so there is no clean-close record.
    let env2 = Env { fs: disk.clone(), ..Env::real() };
    let db = writer(&env2);
    fill(&db, 20, 40);
    db.admin().wait_idle().unwrap();
    db.put("last", "x").unwrap();
    let crashed = disk.deep_clone();
    // The newest segment that contains a record: the next segment may already be preallocated.
    let written = |p: &std::path::PathBuf| {
        p.extension().is_some_and(|e| e == "wal") && trim_zeros(crashed.read_raw(p)).len() > 100
    };
    let log = crashed.paths().into_iter().rfind(written).unwrap_or(log);
    let torn = trim_zeros(crashed.read_raw(&log));
    assert_ne!(torn, whole);
    crashed.write_raw(&log, torn[..torn.len() - 5].to_vec());
    let before = disk_image(&crashed);
    let env3 = Env { fs: crashed.clone(), ..Env::real() };
    let reader = Db::open("/db", options(&env3).read_only(true)).unwrap();
    let recovery = reader.admin().stats().recovery;
    assert!(recovery.truncated_bytes > 0, "{recovery:?}");
    assert_eq!(dump(&reader).len(), 40);
    reader.close().unwrap();
    assert!(disk_image(&crashed) == before, "no byte was changed");
    assert_eq!(dump(&writer(&env3)).len(), 40, "a writer recovers the same entries");
}

#[test]
fn salvage_reads_around_damage_others_refuse() {
    let (disk, env) = new_env();
    let db = writer(&env);
    fill(&db, 0, 250);
    db.admin().compact().unwrap();
    let expected = dump(&db);
    db.close().unwrap();
    let tables = disk.paths().into_iter().filter(|p| {
        p.starts_with("/db") && p.extension().is_some_and(|e| e == "klog" || e == "vlog")
    });
    for path in tables.collect::<Vec<_>>() {
        let good = disk.read_raw(&path);
        for (at, strict) in
            [(good.len() / 3, false), (good.len() - 20, true), (3, true), (usize::MAX, true)]
        {
            let mut bad = good.clone();
            match at {
                usize::MAX => bad.truncate(good.len() / 2),
                at => bad[at] ^= 0x10,
            }
            disk.write_raw(&path, bad);
            let before = disk_image(&disk);
            let klog = path.extension().is_some_and(|e| e == "klog");
            if strict && klog {
                assert!(Db::open("/db", options(&env)).unwrap_err().is_corruption());
                assert!(
                    Db::open("/db", options(&env).read_only(true)).unwrap_err().is_corruption()
                );
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
            assert_eq!(db.get("z").unwrap(), None, "keys outside all lost ranges are absent");
            db.close().unwrap();
            assert!(disk_image(&disk) == before, "no byte was changed");
        }
        disk.write_raw(&path, good);
    }
}

#[test]
fn salvage_with_log_gap_never_reports_absence() {
    let (disk, env) = new_env();
    let db = Db::open("/db", options(&env)).unwrap();
    for n in 0..50 {
        db.put(key(n), "v").unwrap();
    }
    let crashed = disk.deep_clone();
    let log =
        crashed.paths().into_iter().find(|p| p.extension().is_some_and(|e| e == "wal")).unwrap();
    let mut bytes = trim_zeros(crashed.read_raw(&log));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    crashed.write_raw(&log, bytes);
    let env = Env { fs: crashed, ..Env::real() };
    assert!(Db::open("/db", options(&env).read_only(true)).unwrap_err().is_corruption());
    let db = Db::open("/db", options(&env).salvage_readonly(true)).unwrap();
    let lost: Vec<u32> = (0..50).filter(|n| db.get(key(*n)).is_err()).collect();
    assert_eq!(lost.len(), 1, "records on both sides of the gap are kept");
    assert!(db.get("never written").unwrap_err().is_corruption());
    assert!(db.contains("never written").unwrap_err().is_corruption());
    let scan: Vec<_> = db.iter().unwrap().collect();
    assert_eq!(scan.len(), 50);
    assert!(
        scan[49].as_ref().unwrap_err().is_corruption(),
        "reaching the end of the scan would claim that no entry is missing"
    );
    assert!(db.admin().stats().recovery.reason.contains(".wal"));
}

/// Regression test: a key was deleted and put again, the put was lost, and the older tombstone was
/// returned as the current state.
#[test]
fn salvage_ignores_tombstones_older_than_log_gap() {
    let (disk, env) = new_env();
    let db = Db::open("/db", options(&env)).unwrap();
    let family = db.default_family();
    for name in ["delete", "single", "range", "expired", "later"] {
        db.put(name, "old").unwrap();
    }
    db.delete("delete").unwrap();
    db.default_family().single_delete("single").unwrap();
    db.default_family().delete_range("range".."rangf").unwrap();
    family.put_until("expired", "old", 1).unwrap();
    let mark = trim_zeros(disk.read_raw(first_log(&disk))).len();
    let mut batch = perigee::WriteBatch::new();
    ["delete", "single", "range", "expired"]
        .iter()
        .for_each(|k| batch.put(&family, k, "new").unwrap());
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
        assert!(db.default_family().get_with_ttl(name).unwrap_err().is_corruption(), "{name}");
        assert!(
            db.default_family().multi_get([name])[0].as_ref().unwrap_err().is_corruption(),
            "{name}"
        );
    }
    assert_eq!(db.get("later").unwrap(), None, "the tombstone is newer than the gap");
    assert!(db.iter().unwrap().last().unwrap().unwrap_err().is_corruption());
}

fn first_log(disk: &SimDisk) -> std::path::PathBuf {
    disk.paths().into_iter().find(|p| p.extension().is_some_and(|e| e == "wal")).unwrap()
}

type DatabaseContents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn contents(db: &Db) -> DatabaseContents {
    let entries = |name: &String| {
        let all = db.family(name).unwrap().iter().unwrap();
        all.map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
    };
    db.families().iter().map(|name| (name.clone(), entries(name))).collect()
}

/// Called before (false) and after (true) a log segment is opened for reading.
type OpenCallback = Box<dyn FnMut(bool) + Send>;

#[derive(Clone)]
struct OpenHook(Arc<Mutex<OpenCallback>>);

impl OpenHook {
    fn new(on_open: impl FnMut(bool) + Send + 'static) -> OpenHook {
        OpenHook(Arc::new(Mutex::new(Box::new(on_open))))
    }
    fn call(&self, file: &str, opened: bool) {
        if file.ends_with(".wal") {
            (self.0.lock().unwrap())(opened);
        }
    }
}

impl std::fmt::Debug for OpenHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

#[derive(Debug)]
struct HookedFs(Arc<SimDisk>, OpenHook);

impl Fs for HookedFs {
    fn open_dir(&self, path: &Path, mode: DirOpenMode) -> perigee::Result<Arc<dyn Dir>> {
        Ok(Arc::new(HookedDir(self.0.open_dir(path, mode)?, self.1.clone())))
    }
    fn boot_id(&self) -> u64 {
        self.0.boot_id()
    }
    fn rename_dir(&self, from: &Path, to: &Path) -> perigee::Result<()> {
        self.0.rename_dir(from, to)
    }
    fn remove_dir(&self, path: &Path) -> perigee::Result<()> {
        self.0.remove_dir(path)
    }
}

#[derive(Debug)]
struct HookedDir(Arc<dyn Dir>, OpenHook);

impl Dir for HookedDir {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn is_located_at(&self, path: &Path) -> perigee::Result<bool> {
        self.0.is_located_at(path)
    }
    fn list(&self) -> perigee::Result<Vec<String>> {
        self.0.list()
    }
    fn list_non_files(&self) -> perigee::Result<Vec<String>> {
        self.0.list_non_files()
    }
    fn file_len(&self, name: &str) -> perigee::Result<Option<u64>> {
        self.0.file_len(name)
    }
    fn create(&self, name: &str) -> perigee::Result<Arc<dyn WritableFile>> {
        self.0.create(name)
    }
    fn append_to(&self, name: &str) -> perigee::Result<Arc<dyn WritableFile>> {
        self.0.append_to(name)
    }
    fn open(&self, name: &str) -> perigee::Result<Arc<dyn RandomAccessFile>> {
        self.1.call(name, false);
        let file = self.0.open(name);
        self.1.call(name, true);
        file
    }
    fn rename(&self, from: &str, to: &str) -> perigee::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> perigee::Result<()> {
        self.0.remove(name)
    }
    fn sync(&self) -> perigee::Result<()> {
        self.0.sync()
    }
    fn lock(&self, name: &str) -> perigee::Result<Box<dyn DirLock>> {
        self.0.lock(name)
    }
    fn subdir(&self, name: &str) -> perigee::Result<Arc<dyn Dir>> {
        self.0.subdir(name)
    }
    fn move_into(&self, name: &str, subdir: &str) -> perigee::Result<()> {
        self.0.move_into(name, subdir)
    }
}

/// An operation that changes the contents through a manifest edit.
type ManifestChange = (&'static str, fn(&Db, &Env));

const MANIFEST_CHANGES: [ManifestChange; 8] = [
    ("clear", |db, _| db.admin().clear_family("a").unwrap()),
    ("drop", |db, _| db.drop_family("a").unwrap()),
    ("rename", |db, _| db.admin().rename_family("a", "renamed").unwrap()),
    ("clone", |db, _| drop(db.admin().clone_family("a", "cloned").unwrap())),
    ("create", |db, _| db.create_family("new", small()).unwrap().put("in", "new").unwrap()),
    ("load", |db, _| {
        let mut load = db.family("b").unwrap().bulk_load().unwrap();
        load.put("loaded", "x").unwrap();
        load.finish().unwrap();
    }),
    ("spill", |db, _| {
        let txn = db.begin(TxnOptions::new().spill_bytes(1)).unwrap();
        txn.put(&db.family("b").unwrap(), "spilled", "x").unwrap();
        txn.commit().unwrap();
    }),
    ("ingest", |db, env| {
        let mut table = TableWriter::create_in(env.clone(), "/db/in.table", small()).unwrap();
        table.put("ingested", "x").unwrap();
        table.finish().unwrap();
        db.family("b").unwrap().ingest(&["/db/in.table"]).unwrap();
    }),
];

/// Regression test: the manifest was read before the log. Changes made in between by a manifest
/// edit were missing, while later commits from the log were visible.
#[test]
fn read_only_open_beside_writer_sees_prefix() {
    for (name, change) in MANIFEST_CHANGES {
        let (disk, env) = new_env();
        let db = writer(&env);
        for family in ["a", "b"] {
            db.create_family(family, small()).unwrap();
        }
        db.family("a").unwrap().put("k", "v").unwrap();
        let states = Arc::new(Mutex::new(vec![contents(&db)]));
        let (writer, seen) = (db.clone(), Arc::clone(&states));
        let hook = OpenHook::new(move |opened| {
            let mut seen = seen.lock().unwrap();
            if opened && seen.len() == 1 {
                change(&writer, &env);
                seen.push(contents(&writer));
                writer.put("after", name).unwrap();
                seen.push(contents(&writer));
            }
        });
        let reads = Env { fs: Arc::new(HookedFs(disk, hook)), ..Env::real() };
        let reader = Db::open("/db", options(&reads).read_only(true)).unwrap();
        let states = states.lock().unwrap().clone();
        assert_eq!(states.len(), 3, "{name}: the writer ran during the open");
        let shown = contents(&reader);
        // Creating a column family and writing its first entry are two commits.
        let mut empty = states[1].clone();
        empty.entry("new".into()).and_modify(BTreeMap::clear);
        assert!(
            states.contains(&shown) || (name == "create" && shown == empty),
            "{name}: {shown:?}"
        );
        let next = Db::open("/db", options(&reads).read_only(true)).unwrap();
        assert_eq!(contents(&next), states[2], "{name}");
    }
}

/// Regression test: an open read the whole manifest again whenever a file was removed before it was
/// opened, and failed with `Busy` beside a writer that flushes continuously. Now it continues after
/// the last manifest edit it has read and keeps its open files.
#[test]
fn read_only_open_retries_when_files_vanish() {
    let (disk, env) = new_env();
    let db = writer(&env);
    fill(&db, 0, 200);
    db.admin().flush().unwrap();
    let (writer, flushes) = (db.clone(), Arc::new(Mutex::new(0u32)));
    let count = Arc::clone(&flushes);
    // Flush and remove each segment before it is opened.
    let hook = OpenHook::new(move |opened| {
        let mut n = count.lock().unwrap();
        if !opened && *n < 600 {
            *n += 1;
            writer.put("newest", n.to_be_bytes()).unwrap();
            writer.admin().flush().unwrap();
            writer.admin().wait_idle().unwrap();
        }
    });
    let reads = Env { fs: Arc::new(HookedFs(disk, hook)), ..Env::real() };
    let reader = Db::open("/db", options(&reads).read_only(true)).unwrap();
    assert!(*flushes.lock().unwrap() > 0, "the writer has flushed during the open");
    assert_eq!(dump(&reader).keys().filter(|k| k.starts_with(b"k")).count(), 200);
}

/// Real files: a writer loads, clears and spills in a loop, and a reader opens the database
/// repeatedly.
#[test]
fn read_only_open_beside_load_sees_prefix() {
    let path = std::env::temp_dir().join(format!("perigee-beside-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let db = Db::open(&path, Options::new().default_family(small())).unwrap();
    let a = db.create_family("a", small()).unwrap();
    // Every state so far, the last of which may be incomplete, and the number of completed
    // operations.
    let states = Mutex::new((vec![contents(&db)], 0));
    let done = AtomicBool::new(false);
    let step = |change: &dyn Fn(&mut DatabaseContents),
                perform: &dyn Fn() -> perigee::Result<()>| {
        let mut next = states.lock().unwrap().0.last().unwrap().clone();
        change(&mut next);
        states.lock().unwrap().0.push(next);
        perform().unwrap();
        let mut all = states.lock().unwrap();
        all.1 = all.0.len() - 1;
    };
    let set = |family: &'static str, key: &'static str, n: u32| {
        move |state: &mut DatabaseContents| {
            drop(state.get_mut(family).unwrap().insert(key.into(), n.to_be_bytes().into()));
        }
    };
    let round = |n: u32| {
        let value = n.to_be_bytes();
        step(&set("default", "round", n), &|| db.put("round", value));
        step(&set("a", "loaded", n), &|| {
            let mut load = a.bulk_load()?;
            load.put("loaded", value)?;
            load.finish().map(drop)
        });
        step(&set("a", "behind", n), &|| a.put("behind", value));
        step(&|state| state.get_mut("a").unwrap().clear(), &|| db.admin().clear_family("a"));
        step(&set("default", "cleared", n), &|| db.put("cleared", value));
        step(&set("a", "spilled", n), &|| {
            let txn = db.begin(TxnOptions::new().spill_bytes(1))?;
            txn.put(&a, "spilled", value)?;
            txn.commit().map(drop)
        });
        step(&set("default", "after", n), &|| db.put("after", value));
    };
    std::thread::scope(|s| {
        s.spawn(|| (0..20_000).take_while(|_| !done.load(SeqCst)).for_each(round));
        let check = || {
            for _ in 0..60 {
                let first = states.lock().unwrap().1;
                let reader =
                    Db::open(&path, Options::new().read_only(true)).map_err(|e| e.to_string())?;
                let shown = contents(&reader);
                let all = states.lock().unwrap();
                if !all.0[first..].contains(&shown) {
                    let from = &all.0[first];
                    return Err(format!(
                        "{shown:?} is not a state since state {first}, which is {from:?}"
                    ));
                }
            }
            Ok(())
        };
        let checked: Result<(), String> = check();
        done.store(true, SeqCst);
        checked.unwrap();
    });
    db.close().unwrap();
    std::fs::remove_dir_all(&path).unwrap();
}
