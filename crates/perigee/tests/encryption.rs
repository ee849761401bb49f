//! Encryption at rest: what is on the disk, which keys are needed, rotation and conversion.
#![allow(clippy::unwrap_used)]

use perigee::backup::BackupDir;
use perigee::encryption::{EncryptionKey, KEY_BYTES, KeyId, KeyProvider, KeyRing, encrypt_env};
use perigee::env::Env;
use perigee::env::fs::memory::{Fault, SimDisk};
use perigee::load::TableWriter;
use perigee::{Db, Error, ErrorKind, FamilyOptions, Options, Readable, Result, TxnOptions};
use std::path::Path;
use std::sync::Arc;

const MARKERS: [&str; 3] = ["markerkey", "markervalue", "markerfamily"];
const ENCRYPTED_MAGIC: &[u8; 8] = b"PERIGENC";

fn plain(disk: &Arc<SimDisk>) -> Options {
    Options::in_env(Env { fs: disk.clone(), ..Env::real() })
}

fn encrypted(disk: &Arc<SimDisk>, keys: KeyRing) -> Options {
    plain(disk).encryption(Arc::new(keys))
}

fn ring(byte: u8) -> KeyRing {
    KeyRing::new([byte; KEY_BYTES])
}

fn small_tables() -> FamilyOptions {
    FamilyOptions::new().memtable_bytes(16 << 10).value_threshold(500)
}

fn key(i: u32) -> String {
    format!("markerkey {i:05}")
}

fn value(i: u32) -> String {
    format!("markervalue {i} ").repeat(if i.is_multiple_of(9) { 60 } else { 2 })
}

/// Returns the files in which a marker occurs, with the marker.
fn files_with_markers(disk: &Arc<SimDisk>) -> Vec<String> {
    // A copy, because background threads delete files.
    let (disk, mut found) = (disk.deep_clone(), Vec::new());
    for path in disk.paths() {
        let bytes = disk.read_raw(&path);
        for marker in MARKERS {
            let contains = bytes.windows(marker.len()).any(|w| w == marker.as_bytes());
            let is_log = path.file_name().unwrap().to_str().unwrap().starts_with("LOG");
            // The info log may name column families.
            if contains && !(is_log && marker == MARKERS[2]) {
                found.push(format!("{marker} in {}", path.display()));
            }
        }
    }
    found
}

/// Returns the names of the data files in `/db` that are not encrypted.
fn plain_files(disk: &Arc<SimDisk>) -> Vec<String> {
    let disk = disk.deep_clone(); // background threads delete files
    let data = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        path.starts_with("/db")
            && (name == "MANIFEST" || name.ends_with("log") || name.ends_with("wal"))
    };
    let all = disk.paths().into_iter().filter(|path| data(path));
    all.filter(|path| !disk.read_raw(path).starts_with(ENCRYPTED_MAGIC))
        .map(|path| path.display().to_string())
        .collect()
}

/// Writes by every way: log, tables, value logs, bulk loads, spilled transactions.
fn fill(db: &Db) {
    let family = db.create_family("markerfamily", small_tables()).unwrap();
    for i in 0..2000 {
        family.put(key(i), value(i)).unwrap();
    }
    let mut load = db.default_family().bulk_load().unwrap();
    (0..500).for_each(|i| load.put(key(i), value(i)).unwrap());
    load.finish().unwrap();
    let txn = db.begin(TxnOptions::new().spill_bytes(4096)).unwrap();
    (3000..3500).for_each(|i| txn.put(&family, key(i), value(i)).unwrap());
    txn.commit().unwrap();
    db.admin().flush().unwrap();
    db.admin().compact().unwrap();
    for i in 4000..4100 {
        family.put(key(i), value(i)).unwrap();
    }
}

fn check_contents(db: &Db) {
    let family = db.family("markerfamily").unwrap();
    for i in (0..2000).chain(3000..3500).chain(4000..4100) {
        assert_eq!(family.get(key(i)).unwrap().as_deref(), Some(value(i).as_bytes()), "{i}");
    }
    assert_eq!(family.iter().unwrap().count(), 2600);
    assert_eq!(db.iter().unwrap().count(), 500);
    let report = db.admin().verify().unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

#[test]
fn no_key_value_or_family_name_is_on_the_disk() {
    let options = |disk| plain(disk).default_family(small_tables());
    // The control: without encryption, the markers are found.
    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk)).unwrap();
    fill(&db);
    assert!(files_with_markers(&disk).len() > 5);
    drop(db);

    let disk = SimDisk::new(1);
    let db = Db::open("/db", options(&disk).encryption(Arc::new(ring(1)))).unwrap();
    fill(&db);
    db.backups().checkpoint("/checkpoint").unwrap();
    db.backups().create("/backup").unwrap();
    assert_eq!(files_with_markers(&disk), Vec::<String>::new());
    assert_eq!(plain_files(&disk), Vec::<String>::new());
    let crashed = disk.deep_clone();
    check_contents(&db);
    db.close().unwrap();
    for disk in [disk, crashed] {
        let db = Db::open("/db", encrypted(&disk, ring(1))).unwrap();
        check_contents(&db);
        db.admin().compact().unwrap();
        check_contents(&db);
        drop(db);
        assert_eq!(files_with_markers(&disk), Vec::<String>::new());
    }
}

#[test]
fn missing_and_wrong_keys_are_reported_and_change_nothing() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", encrypted(&disk, ring(1))).unwrap();
    db.put("a", "b").unwrap();
    db.close().unwrap();
    let files = |disk: &Arc<SimDisk>| {
        disk.paths().iter().map(|p| (p.clone(), disk.read_raw(p))).collect::<Vec<_>>()
    };
    let before = files(&disk);
    let refused = |options: Options, text: &str| {
        for options in [options.clone(), options.read_only(true)] {
            let e = Db::open("/db", options).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
            assert!(e.to_string().contains(text) && e.to_string().contains("MANIFEST"), "{e}");
        }
    };
    refused(plain(&disk), "the file is encrypted: open the database with its encryption keys");
    refused(encrypted(&disk, ring(2)), "wrong encryption key");
    let e = perigee::repair_in(&plain(&disk).env, "/db", "/repaired", |_, _| {}).unwrap_err();
    assert!(e.to_string().contains("encrypted"), "{e}");
    assert_eq!(files(&disk), before);
    // A key that a provider does not have.
    let newer = ring(1).with_version(2, [7; KEY_BYTES]);
    Db::open("/db", encrypted(&disk, newer)).unwrap().close().unwrap();
    refused(encrypted(&disk, ring(1)), "encryption key 1 version 2");
}

/// Returns the key versions of the data files.
fn key_versions(disk: &Arc<SimDisk>) -> Vec<u32> {
    let headers = disk.paths().into_iter().map(|path| disk.read_raw(path));
    let encrypted = headers.filter(|bytes| bytes.starts_with(ENCRYPTED_MAGIC));
    let mut versions: Vec<u32> =
        encrypted.map(|b| u32::from_le_bytes(b[20..24].try_into().unwrap())).collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

#[test]
fn rotation_uses_the_newest_key_for_new_files() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", encrypted(&disk, ring(1))).unwrap();
    fill(&db);
    db.close().unwrap();
    assert_eq!(key_versions(&disk), [1]);
    let newer = ring(1).with_version(2, [7; KEY_BYTES]);
    let db = Db::open("/db", encrypted(&disk, newer.clone())).unwrap();
    assert_eq!(key_versions(&disk), [1, 2], "the log and the manifest are new");
    check_contents(&db);
    db.close().unwrap();
    Db::open("/db", encrypted(&disk, newer)).map(|db| check_contents(&db)).unwrap();
}

/// Decrypts: new files are not encrypted.
struct Decrypting(KeyRing);

impl KeyProvider for Decrypting {
    fn current(&self) -> Result<(KeyId, EncryptionKey)> {
        Err(Error::new(ErrorKind::Internal, "no current key is needed"))
    }
    fn key(&self, id: KeyId) -> Result<EncryptionKey> {
        self.0.key(id)
    }
    fn encrypts_new_files(&self) -> bool {
        false
    }
}

#[test]
fn an_existing_database_is_encrypted_and_decrypted_by_rewriting() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", plain(&disk)).unwrap();
    fill(&db);
    db.close().unwrap();
    let rewrite = |options: Options| {
        let db = Db::open("/db", options).unwrap();
        check_contents(&db);
        let family = db.family("markerfamily").unwrap();
        for family in [&family, &db.default_family()] {
            // A compaction rewrites what overlaps: all tables.
            family.put("", "first").unwrap();
            family.put("zzz", "last").unwrap();
            family.flush().unwrap();
            family.compact().unwrap();
            family.delete("").unwrap();
            family.delete("zzz").unwrap();
            family.flush().unwrap();
            family.compact().unwrap();
        }
        check_contents(&db);
        db.close().unwrap();
    };
    assert!(!plain_files(&disk).is_empty());
    rewrite(encrypted(&disk, ring(1)));
    // Value logs and tables that no compaction had to rewrite may remain; the log and the manifest
    // are always new.
    assert!(
        plain_files(&disk).iter().all(|name| name.ends_with("vlog")),
        "{:?}",
        plain_files(&disk)
    );
    rewrite(plain(&disk).encryption(Arc::new(Decrypting(ring(1)))));
    assert!(plain_files(&disk).len() > 3);
    assert!(plain_files(&disk).contains(&"/db/MANIFEST".to_owned()));
}

#[test]
fn checkpoints_and_backups_need_the_keys() {
    let disk = SimDisk::new(1);
    let db = Db::open("/db", encrypted(&disk, ring(1))).unwrap();
    fill(&db);
    db.backups().checkpoint("/checkpoint").unwrap();
    db.backups().create("/backup").unwrap();
    db.put("later", "x").unwrap();
    db.backups().create("/backup").unwrap();
    db.close().unwrap();
    assert!(Db::open("/checkpoint", plain(&disk)).is_err());
    Db::open("/checkpoint", encrypted(&disk, ring(1))).map(|db| check_contents(&db)).unwrap();
    let generation = {
        let e = BackupDir::open_in(plain(&disk).env, "/backup").list();
        assert!(e.map_or(true, |list| list.is_empty()), "needs the keys");
        let env = encrypt_env(plain(&disk).env, Arc::new(ring(1)));
        let backups = BackupDir::open_in(env, "/backup");
        let first = backups.list().unwrap().first().unwrap().generation;
        assert!(backups.verify(Some(first)).unwrap().errors.is_empty());
        backups.restore(Some(first), "/restored").unwrap();
        first
    };
    assert_eq!(generation, 1);
    assert_eq!(files_with_markers(&disk), Vec::<String>::new());
    Db::open("/restored", encrypted(&disk, ring(1))).map(|db| check_contents(&db)).unwrap();
}

#[test]
fn a_plain_table_is_encrypted_when_it_is_ingested() {
    let disk = SimDisk::new(1);
    let env = plain(&disk).env;
    env.fs.open_dir("/tables".as_ref(), perigee::env::DirOpenMode::CreateIfMissing).unwrap();
    let mut table = TableWriter::create_in(env, "/tables/t.klog", FamilyOptions::new()).unwrap();
    table.put(key(1), value(1)).unwrap();
    table.finish().unwrap();
    let db = Db::open("/db", encrypted(&disk, ring(1))).unwrap();
    db.default_family().ingest(&["/tables/t.klog"]).unwrap();
    assert_eq!(db.get(key(1)).unwrap().as_deref(), Some(value(1).as_bytes()));
    assert_eq!(plain_files(&disk), Vec::<String>::new());
}

/// A full disk rolls the end of the log back; what is written there next is read after a reopen, by
/// readers of the log too.
#[test]
fn log_continues_after_a_full_disk() {
    let disk = SimDisk::new(1);
    let options = || encrypted(&disk, ring(1)).log_retention(1 << 30).min_free_space(0);
    let db = Db::open("/db", options()).unwrap();
    let mut expected = Vec::new();
    for i in 0..40 {
        if i % 10 == 5 {
            disk.fail_at(1, Fault::Enospc, false);
            let e = db.put(key(i), value(i)).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
        } else {
            db.put(key(i), value(i)).unwrap();
            expected.push(key(i));
        }
    }
    let keys = |db: &Db| -> Vec<String> {
        let all = db.keys().unwrap();
        all.map(|k| String::from_utf8(k.unwrap().to_vec()).unwrap()).collect()
    };
    assert_eq!(keys(&db), expected);
    let mut feed = db.history().changes(0).unwrap();
    let mut logged = 0;
    while feed.next_change().unwrap().is_some() {
        logged += 1;
    }
    assert!(logged >= expected.len(), "{logged}");
    drop(feed);
    let crashed = disk.deep_clone();
    drop(db);
    for disk in [disk, crashed] {
        let db = Db::open("/db", encrypted(&disk, ring(1))).unwrap();
        assert_eq!(keys(&db), expected);
    }
}
