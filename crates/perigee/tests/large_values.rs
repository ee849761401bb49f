//! Values that are written and read in parts.
#![allow(clippy::unwrap_used)]

use crate::common::Rng;
use perigee::env::Env;
use perigee::env::fs::memory::{Crash, Fault, SimDisk};
use perigee::limits::{STREAMED_VALUE_BYTES_MAX, VLOG_CHUNK_BYTES};
use perigee::{Db, Error, ErrorKind, Family, FamilyOptions, MergeRule, Options, Txn, TxnOptions};
use std::collections::BTreeMap;
use std::io::{BufRead, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

const MIB: usize = 1 << 20;
const _: () = assert!(VLOG_CHUNK_BYTES == MIB);

fn open(disk: &Arc<SimDisk>) -> Db {
    let env = Env { fs: disk.clone(), ..Env::real() };
    Db::open("/db", Options::in_env(env)).unwrap()
}
fn new() -> (Arc<SimDisk>, Db) {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    (disk, db)
}
/// Bytes of the files in use with an extension.
fn stored_bytes(disk: &SimDisk, extension: &str) -> u64 {
    let is_meant = |path: &std::path::PathBuf| {
        path.extension().is_some_and(|e| e == extension) && !path.starts_with("/db/trash")
    };
    disk.paths().iter().filter(|p| is_meant(p)).map(|p| disk.read_raw(p).len() as u64).sum()
}
/// A value of which a third does not compress.
fn sample(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|i| if i % 3 == 0 { rng.below(256) as u8 } else { (i >> 12) as u8 }).collect()
}
fn write_in_parts(family: &Family, key: &str, value: &[u8], part: usize) -> u64 {
    let mut writer = family.writer(key).unwrap();
    value.chunks(part).for_each(|part| writer.write_all(part).unwrap());
    assert_eq!(writer.len(), value.len() as u64);
    writer.finish().unwrap()
}
fn read_all(family: &Family, key: &str) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    family.reader(key).unwrap()?.read_to_end(&mut value).unwrap();
    Some(value)
}
/// The error of the engine inside of an error of the standard library.
fn engine_error(e: &std::io::Error) -> &Error {
    e.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).expect("an error of the engine")
}

#[test]
fn values_of_all_lengths_round_trip() {
    let (disk, mut db) = new();
    let mut rng = Rng(1);
    let mut expected = BTreeMap::new();
    for (n, len) in [0, 1, 5000, MIB - 1, MIB, MIB + 1, 3 * MIB, 4 * MIB + 77].iter().enumerate() {
        let value = sample(&mut rng, *len);
        let part = [10_007, 64 << 10, MIB, 5 * MIB][n % 4];
        let key = format!("k{n}");
        assert_eq!(write_in_parts(&db.default_family(), &key, &value, part), *len as u64);
        expected.insert(key, value);
    }
    for round in 0..3 {
        let family = db.default_family();
        for (key, value) in &expected {
            assert!(family.get(key).unwrap().as_ref() == Some(value), "{key}, {round}");
            assert!(read_all(&family, key).as_ref() == Some(value), "{key}, {round}");
        }
        let seen = family.iter().unwrap().map(Result::unwrap).map(|(_, v)| v.to_vec());
        assert!(seen.eq(expected.values().cloned()));
        match round {
            0 => db.admin().compact().unwrap(),
            1 => {
                assert_eq!(db.admin().verify().unwrap().errors.len(), 0);
                db.close().unwrap();
                drop(family);
                db = open(&disk);
            }
            _ => {}
        }
    }
    assert!(db.default_family().reader("absent").unwrap().is_none());
}

#[test]
fn long_value_is_written_once() {
    let (disk, db) = new();
    let value = sample(&mut Rng(2), 20 * MIB);
    let log_before = stored_bytes(&disk, "wal");
    db.default_family().put_stream("video", &mut &value[..]).unwrap();
    assert!(stored_bytes(&disk, "wal") < log_before + (1 << 20));
    let stored = stored_bytes(&disk, "vlog");
    assert!(stored > 7 * MIB as u64 && stored < 15 * MIB as u64, "{stored} bytes");
    assert!(stored_bytes(&disk, "klog") < 10_000);
    db.admin().compact().unwrap();
    assert_eq!(stored_bytes(&disk, "vlog"), stored, "a compaction moves only the key");
    assert!(read_all(&db.default_family(), "video").unwrap() == value);
}

#[test]
fn reads_from_any_position() {
    let (_, db) = new();
    let mut rng = Rng(3);
    let value = sample(&mut rng, 3 * MIB + 1000);
    let family = db.default_family();
    family.put_stream("v", &mut &value[..]).unwrap();
    family.put("short", &value[..5000]).unwrap();
    for (key, len) in [("v", value.len()), ("short", 5000)] {
        let value = &value[..len];
        let mut reader = family.reader(key).unwrap().unwrap();
        assert_eq!((reader.len(), reader.is_empty()), (len as u64, false));
        for _ in 0..100 {
            let at = rng.below(len as u64 + 10);
            let mut buf = vec![0; rng.below(2 * MIB as u64) as usize];
            let rest = &value[len.min(at as usize)..];
            let read = reader.read_at(at, &mut buf).unwrap();
            assert_eq!(read, rest.len().min(buf.len()));
            assert!(buf[..read] == rest[..read]);
        }
        assert_eq!(reader.seek(SeekFrom::End(-10)).unwrap(), len as u64 - 10);
        let mut last = Vec::new();
        reader.read_to_end(&mut last).unwrap();
        assert_eq!(last, value[len - 10..]);
        assert_eq!(reader.stream_position().unwrap(), len as u64);
        assert!(reader.fill_buf().unwrap().is_empty());
        assert_eq!(reader.seek(SeekFrom::Start(1 << 40)).unwrap(), 1 << 40);
        assert_eq!(reader.read(&mut [0; 10]).unwrap(), 0);
        assert!(reader.seek(SeekFrom::Current(-(1 << 41))).is_err());
        reader.seek(SeekFrom::Start(7)).unwrap();
        let part = reader.fill_buf().unwrap();
        assert!(!part.is_empty() && part == &value[7..7 + part.len()]);
        reader.consume(3);
        assert_eq!(reader.stream_position().unwrap(), 10);
    }
}

#[test]
fn reader_keeps_what_is_overwritten_or_deleted() {
    let (disk, db) = new();
    let (one, two) = (sample(&mut Rng(4), 2 * MIB), sample(&mut Rng(5), 3 * MIB));
    let family = db.default_family();
    family.put_stream("v", &mut &one[..]).unwrap();
    let snapshot = db.snapshot().unwrap();
    let mut reader = family.reader("v").unwrap().unwrap();
    family.put_stream("v", &mut &two[..]).unwrap();
    let mut old = snapshot.reader(&family, "v").unwrap().unwrap();
    family.delete("v").unwrap();
    assert!(family.reader("v").unwrap().is_none());
    drop(snapshot);
    db.admin().compact().unwrap();
    for reader in [&mut reader, &mut old] {
        let mut value = Vec::new();
        reader.read_to_end(&mut value).unwrap();
        assert!(value == one);
    }
    assert!(stored_bytes(&disk, "vlog") > 0);
    drop((reader, old));
    assert_eq!(stored_bytes(&disk, "vlog"), 0, "the last reader has deleted the file");
    family.put_stream("v", &mut &one[..]).unwrap();
    let mut late = family.reader("v").unwrap().unwrap();
    db.close().unwrap();
    let e = late.read(&mut [0; 8]).unwrap_err();
    assert_eq!(engine_error(&e).kind(), ErrorKind::Closed);
}

/// Random puts in parts, other writes, savepoints and rollbacks in one transaction.
#[test]
fn transactions_with_long_values_match_a_model() {
    for seed in 0..12 {
        let (disk, mut db) = new();
        let mut rng = Rng(seed + 100);
        let mut committed = BTreeMap::<String, Vec<u8>>::new();
        for round in 0..4 {
            let family = db.default_family();
            let options = TxnOptions::new().pessimistic(rng.below(2) == 0);
            let txn = db.begin(options.spill_bytes(rng.below(100_000))).unwrap();
            let (mut model, mut saved) = (committed.clone(), Vec::new());
            for n in 0..30 {
                let key = format!("{}", rng.below(6));
                match rng.below(10) {
                    0..=3 => {
                        let length = MIB + rng.below(MIB as u64) as usize;
                        let len = if rng.below(4) == 0 { 1000 } else { length };
                        let value = vec![n as u8; len];
                        txn.put_stream(&family, &key, &mut &value[..]).unwrap();
                        model.insert(key, value);
                    }
                    4 | 5 => {
                        txn.put(&family, &key, [n as u8; 20]).unwrap();
                        model.insert(key, vec![n as u8; 20]);
                    }
                    6 => {
                        txn.delete(&family, &key).unwrap();
                        model.remove(&key);
                    }
                    7 => {
                        txn.savepoint("s").unwrap();
                        saved.push(model.clone());
                    }
                    8 if !saved.is_empty() => {
                        txn.rollback_to("s").unwrap();
                        model = saved.last().unwrap().clone();
                    }
                    _ => check_txn(&txn, &family, &model),
                }
            }
            check_txn(&txn, &family, &model);
            check_family(&family, &committed);
            match rng.below(4) {
                0 => txn.rollback(),
                1 => {
                    txn.prepare("gid").unwrap();
                    db.two_phase().commit("gid").unwrap();
                    committed = model;
                }
                _ => {
                    txn.commit().unwrap();
                    committed = model;
                }
            }
            check_family(&family, &committed);
            if round == 1 {
                let after = disk.crash_clone(seed, Crash::Power);
                drop(family);
                drop(db);
                db = open(&after);
                check_family(&db.default_family(), &committed);
            }
        }
        db.admin().compact().unwrap();
        check_family(&db.default_family(), &committed);
        assert_eq!(db.admin().verify().unwrap().errors.len(), 0);
    }
}
fn check_txn(txn: &Txn, family: &Family, model: &BTreeMap<String, Vec<u8>>) {
    for key in 0..6 {
        let key = key.to_string();
        let mut value = Vec::new();
        let found = txn.reader(family, &key).unwrap();
        let exists = found.map(|mut reader| reader.read_to_end(&mut value).unwrap()).is_some();
        assert!(exists.then_some(&value) == model.get(&key), "{key}");
    }
    let entries = txn.iter(family).unwrap().map(Result::unwrap);
    assert!(entries.map(|(_, v)| v.to_vec()).eq(model.values().cloned()));
}
fn check_family(family: &Family, model: &BTreeMap<String, Vec<u8>>) {
    let keys = || model.keys().map(String::as_str);
    assert!(keys().all(|key| read_all(family, key).as_ref() == model.get(key)));
    assert_eq!(family.keys().unwrap().count(), model.len());
}

#[test]
fn unfinished_value_leaves_nothing() {
    let (disk, db) = new();
    let family = db.default_family();
    family.put("v", "before").unwrap();
    let mut writer = family.writer("v").unwrap();
    writer.write_all(&[5; 3 * MIB]).unwrap();
    assert!(disk.paths().iter().any(|p| p.extension().is_some_and(|e| e == "vlog")));
    drop(writer);
    assert_eq!(stored_bytes(&disk, "vlog"), 0, "a dropped writer removes its file");
    // A crash in the middle.
    let mut writer = family.writer("v").unwrap();
    writer.write_all(&[5; 9 * MIB]).unwrap();
    for crash in [Crash::Power, Crash::Process] {
        let after = disk.crash_clone(3, crash);
        let db = open(&after);
        assert_eq!(db.get("v").unwrap().as_deref(), Some(&b"before"[..]));
        assert_eq!(stored_bytes(&after, "vlog"), 0);
    }
    // The database is closed meanwhile.
    db.close().unwrap();
    let e = writer.write_all(&[5; 3 * MIB]).unwrap_err();
    assert_eq!(engine_error(&e).kind(), ErrorKind::Closed);
    assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Closed);
    drop((family, db));
    let db = open(&disk);
    assert_eq!(db.get("v").unwrap().as_deref(), Some(&b"before"[..]));
    assert_eq!(stored_bytes(&disk, "vlog"), 0);
}

#[test]
fn full_disk_in_the_middle_of_a_value_releases_its_space() {
    let disk = SimDisk::new(1);
    let env = Env { fs: disk.clone(), ..Env::real() };
    let db = Db::open("/db", Options::in_env(env).min_free_space(64 << 10)).unwrap();
    let family = db.default_family();
    family.put("v", "before").unwrap();
    let used = disk.total_bytes();
    disk.set_capacity(used + 6 * MIB as u64);
    let noise = sample(&mut Rng(6), 30 * MIB);
    let e = family.put_stream("v", &mut &noise[..]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
    assert!(disk.total_bytes() < used + 100_000, "{} of {used} bytes", disk.total_bytes());
    // Nothing else is affected, not even the transaction.
    family.put("other", "x").unwrap();
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put(&family, "in txn", "1").unwrap();
    let e = txn.put_stream(&family, "v", &mut &noise[..]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
    txn.put(&family, "in txn", "2").unwrap();
    txn.commit().unwrap();
    assert_eq!(family.get("v").unwrap().as_deref(), Some(&b"before"[..]));
    assert_eq!(family.get("in txn").unwrap().as_deref(), Some(&b"2"[..]));
    disk.set_capacity(u64::MAX);
    family.put_stream("v", &mut &noise[..]).unwrap();
    assert!(read_all(&family, "v").unwrap() == noise);
}

/// Every call of the file system fails in turn: a put that returns an error has no effect, or its
/// outcome is unknown until the next open, which has the old or the new value.
#[test]
fn errors_of_the_file_system_lose_nothing() {
    let value = sample(&mut Rng(7), 2 * MIB + 5);
    for fault in [Fault::Eio, Fault::Enospc] {
        let mut ended = false;
        for n in 1..200 {
            let (disk, db) = new();
            db.put("v", "before").unwrap();
            let calls = disk.mutating_calls();
            disk.fail_at(n, fault, false);
            let put = db.default_family().put_stream("v", &mut &value[..]);
            let is_done = disk.mutating_calls() < calls + n;
            disk.clear_faults();
            let is_new = |db: &Db| match db.get("v") {
                Ok(Some(found)) if found == b"before" => false,
                Ok(Some(found)) => {
                    assert!(found == value);
                    true
                }
                other => panic!("{n}: {other:?}"),
            };
            if put.is_ok() {
                assert!(is_new(&db), "{n}");
            }
            let after = disk.crash_clone(n, Crash::Power);
            drop(db);
            let db = open(&after);
            if put.is_ok() {
                assert!(is_new(&db), "{n}: an acknowledged value is lost");
            } else if put.as_ref().is_err_and(|e| e.kind() != ErrorKind::OutcomeUnknown) {
                assert!(!is_new(&db), "{n}: {put:?}");
            } else {
                is_new(&db);
            }
            assert_eq!(db.admin().verify().unwrap().errors.len(), 0);
            ended = is_done;
            if ended {
                break;
            }
        }
        assert!(ended, "every call was reached");
    }
}

#[test]
fn damage_is_reported_with_its_file_and_affects_one_chunk() {
    let (disk, db) = new();
    let value = sample(&mut Rng(8), 3 * MIB);
    db.default_family().put_stream("v", &mut &value[..]).unwrap();
    db.close().unwrap();
    drop(db);
    let name = disk.paths().into_iter().find(|p| p.extension().is_some_and(|e| e == "vlog"));
    let path = name.unwrap();
    let mut bytes = disk.read_raw(&path);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    disk.write_raw(&path, bytes);
    let db = open(&disk);
    let mut reader = db.default_family().reader("v").unwrap().unwrap();
    let mut buf = vec![0; MIB];
    assert_eq!(reader.read_at(0, &mut buf).unwrap(), MIB);
    assert!(buf == value[..MIB]);
    let e = reader.read_at(MIB as u64, &mut buf).unwrap_err();
    assert!(e.is_corruption() && e.to_string().contains("vlog"), "{e}");
    assert_eq!(reader.read_at(2 * MIB as u64, &mut buf).unwrap(), MIB);
    assert!(buf == value[2 * MIB..]);
    assert!(db.get("v").unwrap_err().is_corruption());
    assert!(!db.admin().verify().unwrap().errors.is_empty());
}

#[test]
fn calls_that_cannot_work_are_refused() {
    let (_, db) = new();
    let family = db.default_family();
    let long_key = vec![b'k'; 70_000];
    assert_eq!(family.writer(&long_key).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let failing = || {
        struct Failing(u32);
        impl Read for Failing {
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.0 += 1;
                if self.0 > 200 {
                    return Err(std::io::Error::other("the network is down"));
                }
                Ok(buf.len().min(10_000))
            }
        }
        Failing(0)
    };
    let e = family.put_stream("v", &mut failing()).unwrap_err();
    assert!(e.kind() == ErrorKind::Io && e.to_string().contains("the network is down"), "{e}");
    assert!(!family.contains("v").unwrap());

    let txn = db.begin(TxnOptions::new().read_only(true)).unwrap();
    let mut writer = txn.writer(&family, "v").unwrap();
    writer.write_all(&[1; 2 * MIB]).unwrap();
    assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::InvalidArgument);

    let txn = db.begin(TxnOptions::new().max_bytes(3 * MIB as u64)).unwrap();
    txn.put_stream(&family, "a", &mut &[1; 2 * MIB][..]).unwrap();
    let e = txn.put_stream(&family, "b", &mut &[1; 2 * MIB][..]).unwrap_err();
    assert!(e.to_string().contains("too large"), "{e}");
    txn.put(&family, "c", "").unwrap();
    txn.commit().unwrap();
    assert_eq!(family.keys().unwrap().count(), 2);

    let counted = FamilyOptions::new().merge_operator(MergeRule::Counter);
    let counters = db.create_family("counters", counted).unwrap();
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.merge(&counters, "n", 1i64.to_le_bytes()).unwrap();
    let e = txn.put_stream(&family, "d", &mut &[1; 2 * MIB][..]).unwrap_err();
    assert!(e.kind() == ErrorKind::InvalidArgument && e.to_string().contains("merge"), "{e}");
    txn.put_stream(&family, "d", &mut &[1; 1000][..]).unwrap();
    txn.commit().unwrap();
    assert!(family.contains("d").unwrap() && counters.contains("n").unwrap());

    let pause = db.admin().pause_background_work().unwrap();
    let e = family.put_stream("e", &mut &[1; 2 * MIB][..]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy);
    pause.resume();

    let mut writer = counters.writer("late").unwrap();
    db.drop_family("counters").unwrap();
    assert!(writer.write_all(&[1; 2 * MIB]).is_err());
    assert_eq!(counters.writer("late").unwrap_err().kind(), ErrorKind::NotFound);
    let (_, other) = new();
    let txn = other.begin(TxnOptions::new()).unwrap();
    assert_eq!(txn.writer(&family, "f").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(STREAMED_VALUE_BYTES_MAX, 4 << 30);
}

#[test]
fn conflicts_and_expiry_are_as_for_other_puts() {
    let (_, db) = new();
    let family = db.default_family();
    let value = vec![3; 2 * MIB];
    let txn = db.begin(TxnOptions::new()).unwrap();
    txn.put_stream(&family, "v", &mut &value[..]).unwrap();
    family.put("v", "concurrent").unwrap();
    assert_eq!(txn.commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(family.get("v").unwrap().as_deref(), Some(&b"concurrent"[..]));
    // A put outside of a transaction is the last write, and wins.
    let mut writer = family.writer("v").unwrap();
    writer.write_all(&value).unwrap();
    family.put("v", "concurrent").unwrap();
    writer.finish().unwrap();
    assert!(family.get("v").unwrap().unwrap() == value);
    let mut writer = family.writer("v").unwrap();
    writer.write_all(&value).unwrap();
    writer.set_ttl(std::time::Duration::ZERO);
    writer.finish().unwrap();
    assert!(family.reader("v").unwrap().is_none(), "it has expired, and hides the older value");
}

#[test]
fn backups_and_checkpoints_contain_long_values() {
    let (disk, db) = new();
    let value = sample(&mut Rng(9), 3 * MIB);
    db.default_family().put_stream("v", &mut &value[..]).unwrap();
    db.backups().checkpoint("/copy").unwrap();
    db.default_family().put_stream("v", &mut &value[..2 * MIB]).unwrap();
    let env = Env { fs: disk.clone(), ..Env::real() };
    let copy = Db::open("/copy", Options::in_env(env)).unwrap();
    assert!(read_all(&copy.default_family(), "v").unwrap() == value);
}

/// One key, overwritten and deleted again and again: the disk space stays bounded without manual
/// calls, also beside much other data, whose levels have room for the tables of the versions.
#[test]
fn overwritten_values_are_collected() {
    for others in [0, 60_000u32] {
        let disk = SimDisk::new(1);
        let env = Env { fs: disk.clone(), ..Env::real() };
        let small = FamilyOptions::new()
            .memtable_bytes(64 << 10)
            .level1_bytes(128 << 10)
            .target_file_bytes(32 << 10);
        let db = Db::open("/db", Options::in_env(env).default_family(small)).unwrap();
        let family = db.default_family();
        for n in 0..others {
            family.put(format!("{n:08}"), format!("{:0>50}", n.wrapping_mul(7919))).unwrap();
        }
        db.admin().flush().unwrap();
        db.admin().wait_idle().unwrap();
        let mut most = 0;
        for n in 0..40u8 {
            let value = sample(&mut Rng(u64::from(n)), 3 * MIB);
            family.put_stream("00030000v", &mut &value[..]).unwrap();
            if n % 10 == 9 {
                family.delete("00030000v").unwrap();
                db.admin().flush().unwrap();
            }
            db.admin().wait_idle().unwrap();
            most = most.max(stored_bytes(&disk, "vlog"));
            if n % 10 == 9 {
                assert_eq!(stored_bytes(&disk, "vlog"), 0, "{others}, {n}: after a delete");
            }
        }
        assert!(most < 7 * MIB as u64, "{others}: at most {most} bytes");
        assert_eq!(family.keys().unwrap().count(), others as usize);
    }
}

#[test]
fn source_that_fails_for_a_moment_loses_no_bytes() {
    struct Interrupted(u32);
    impl Read for Interrupted {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            self.0 += 1;
            let len = buf.len().min(10_000);
            match self.0 {
                150 => Err(std::io::ErrorKind::TimedOut.into()),
                300.. => Ok(0),
                n => {
                    buf[..len].fill(n as u8);
                    Ok(len)
                }
            }
        }
    }
    let (_, db) = new();
    let family = db.default_family();
    let mut writer = family.writer("v").unwrap();
    let mut source = Interrupted(0);
    assert_eq!(writer.copy_from(&mut source).unwrap_err().kind(), ErrorKind::Io);
    writer.copy_from(&mut source).unwrap();
    let bytes = writer.finish().unwrap();
    let value = family.get("v").unwrap().unwrap();
    assert_eq!(value.len() as u64, bytes);
    let calls = (1..300u32).filter(|n| *n != 150).map(|n| n as u8);
    let mut seen = value.clone();
    seen.dedup();
    assert_eq!(seen, calls.collect::<Vec<_>>());
}
