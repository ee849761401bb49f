//! Repair: identity on a healthy database; recovery around damage in every kind of file; without a
//! manifest; and a complete report of losses.
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::recovery::RepairReport;
use perigee::{Db, ErrorKind, FamilyOptions, Options, repair_in};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

type Dump = BTreeMap<(String, Vec<u8>), Vec<u8>>;

fn small() -> FamilyOptions {
    FamilyOptions::new()
        .memtable_bytes(2 << 10)
        .target_file_bytes(4 << 10)
        .block_bytes(256)
        .value_threshold(64)
}

/// Creates a closed database with every kind of file. Returns its contents.
fn sample_database() -> (Arc<SimDisk>, Env, Dump) {
    let disk = SimDisk::new(1);
    let env = Env { fs: disk.clone(), ..Env::real() };
    let db = Db::open("/db", Options::in_env(env.clone()).default_family(small())).unwrap();
    let b = db.create_family("b", small()).unwrap();
    for n in 0..200u32 {
        let family = if n % 3 == 0 { b.clone() } else { db.default_family() };
        family.put(format!("k{n:05}"), vec![n as u8; (n % 120) as usize]).unwrap();
        if n % 7 == 0 {
            family.delete(format!("k{:05}", n / 2)).unwrap();
        }
    }
    db.default_family().delete_range("k00020".."k00040").unwrap();
    db.admin().flush().unwrap();
    db.default_family().delete_range("k00150".."k00160").unwrap();
    db.admin().wait_idle().unwrap();
    for n in 0..8u32 {
        db.put(format!("log{n}"), "in the log").unwrap();
    }
    let all = dump(&db);
    db.close().unwrap();
    (disk, env, all)
}

fn dump(db: &Db) -> Dump {
    let mut all = Dump::new();
    for name in db.families() {
        for entry in db.family(&name).unwrap().iter().unwrap() {
            let (key, value) = entry.unwrap();
            all.insert((name.clone(), key.to_vec()), value.to_vec());
        }
    }
    all
}

fn disk_image(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.paths()
        .into_iter()
        .filter(|p| p.starts_with("/db"))
        .map(|p| (p.clone(), disk.read_raw(&p)))
        .collect()
}

/// Repairs a copy of the disk, and checks that the source is untouched and the result is
/// consistent.
fn repair_and_dump(disk: &SimDisk) -> (RepairReport, Dump) {
    let disk = disk.deep_clone();
    let env = Env { fs: disk.clone(), ..Env::real() };
    let before = disk_image(&disk);
    let report = repair_in(&env, "/db", "/repaired", |_, _| {}).unwrap();
    assert!(disk_image(&disk) == before, "the source was changed");
    let db = Db::open("/repaired", Options::in_env(env)).unwrap();
    assert!(db.admin().verify().unwrap().errors.is_empty());
    db.put("and it", "goes on").unwrap();
    db.delete("and it").unwrap();
    let all = dump(&db);
    db.close().unwrap();
    (report, all)
}

#[test]
fn repair_of_healthy_database_is_identity() {
    let (disk, env, expected) = sample_database();
    let (report, got) = repair_and_dump(&disk);
    assert!(report.lost.is_empty() && report.warnings.is_empty(), "{report:?}");
    assert!(got == expected);
    let names: Vec<&str> = report.families.iter().map(|f| &f.name[..]).collect();
    assert_eq!(names, ["default", "b"]);
    let e = repair_in(&env, "/nowhere", "/x", |_, _| {}).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotFound);
    let e = repair_in(&env, "/db", "/db", |_, _| {}).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::AlreadyExists);
    let open = Db::open("/db", Options::in_env(env.clone())).unwrap();
    assert_eq!(repair_in(&env, "/db", "/x", |_, _| {}).unwrap_err().kind(), ErrorKind::Locked);
    drop(open);
}

#[test]
fn repair_recovers_around_damage_in_any_file() {
    let (disk, _, expected) = sample_database();
    let names = expected.keys().map(|(_, k)| k.clone()).collect::<std::collections::BTreeSet<_>>();
    for (path, good) in disk_image(&disk) {
        if path.ends_with("LOCK") || path.extension().is_some_and(|e| e == "toml" || e == "log") {
            continue;
        }
        let step = (good.len() / 9).max(1);
        for at in (1..good.len()).step_by(step) {
            let mut bad = good.clone();
            bad[at] ^= 0x20;
            disk.write_raw(&path, bad);
            let (report, got) = repair_and_dump(&disk);
            // Damage to a value that nothing refers to loses no data.
            assert!(
                !report.lost.is_empty() || got == expected,
                "{} at {at}: no loss was reported",
                path.display()
            );
            let kept = expected.iter().filter(|(k, v)| got.get(*k) == Some(*v)).count();
            let manifest = path.ends_with("MANIFEST");
            assert!(
                manifest || kept * 10 >= expected.len() * 5,
                "{} at {at}: {kept} kept",
                path.display()
            );
            if manifest {
                // Names of column families are lost with the manifest, entries are not.
                let found =
                    got.keys().map(|(_, k)| k.clone()).collect::<std::collections::BTreeSet<_>>();
                assert!(names.iter().all(|k| found.contains(k)), "at {at}");
            }
            let wrong =
                expected.iter().filter(|(k, v)| got.get(*k).is_some_and(|g| g != *v)).count();
            assert!(
                wrong == 0 || !report.warnings.is_empty(),
                "{} at {at}: an old value without a warning",
                path.display()
            );
            assert!(
                got.len() <= expected.len() || !report.warnings.is_empty(),
                "deleted entries returned without a warning"
            );
        }
        disk.write_raw(&path, good);
    }
}

#[test]
fn repair_without_manifest_keeps_all_entries() {
    let (disk, env, expected) = sample_database();
    let dir = env.fs.open_dir("/db".as_ref(), perigee::env::DirOpenMode::Existing).unwrap();
    dir.remove("MANIFEST").unwrap();
    let (report, got) = repair_and_dump(&disk);
    assert!(report.warnings.iter().any(|w| w.contains("may have come back")), "{report:?}");
    for ((family, key), value) in &expected {
        let name = if family == "default" { "default" } else { "family-1" };
        assert_eq!(got.get(&(name.to_owned(), key.clone())), Some(value));
    }
}

#[test]
fn repair_keeps_records_on_both_sides_of_log_gap() {
    let disk = SimDisk::new(1);
    let env = Env { fs: disk.clone(), ..Env::real() };
    let db = Db::open("/db", Options::in_env(env)).unwrap();
    for n in 0..50u32 {
        db.put(format!("k{n:05}"), "v").unwrap();
    }
    let crashed = disk.deep_clone();
    let log =
        crashed.paths().into_iter().rfind(|p| p.extension().is_some_and(|e| e == "wal")).unwrap();
    let mut bytes = crashed.read_raw(&log);
    // Zeros at the end are preallocated space.
    let middle = bytes.iter().rposition(|b| *b != 0).unwrap() / 2;
    bytes[middle] ^= 1;
    crashed.write_raw(&log, bytes);
    let (report, got) = repair_and_dump(&crashed);
    assert_eq!((report.lost.len(), got.len()), (1, 49));
    let hole = &report.lost[0];
    assert!(
        hole.offset.is_some() && hole.bytes.is_some_and(|b| b < 200) && hole.file.ends_with(".wal")
    );
}

/// Creates a closed database with all entries in its log. Returns the path of that log.
fn closed_log(puts: u32) -> (Arc<SimDisk>, PathBuf) {
    let disk = SimDisk::new(1);
    let env = Env { fs: disk.clone(), ..Env::real() };
    let db = Db::open("/db", Options::in_env(env)).unwrap();
    for n in 0..puts {
        db.put(format!("k{n:05}"), "v").unwrap();
    }
    db.close().unwrap();
    let log =
        disk.paths().into_iter().rfind(|p| p.extension().is_some_and(|e| e == "wal")).unwrap();
    (disk, log)
}

/// Regression test: 151 of 200 operations were lost, and the report listed no loss.
#[test]
fn repair_reports_truncated_log_of_closed_database() {
    let (disk, log) = closed_log(200);
    let whole = disk.read_raw(&log);
    for len in [whole.len() / 4, whole.len() / 2, whole.len() - 1, 72] {
        disk.write_raw(&log, whole[..len].to_vec());
        let (report, got) = repair_and_dump(&disk);
        let kept = got.len() as u64;
        let lost = &report.lost[..];
        assert_eq!(lost.len(), 1, "{len}: {lost:?}");
        let offset = lost[0].offset.unwrap();
        assert!(offset <= len as u64 && lost[0].file.ends_with(".wal"), "{len}: {lost:?}");
        if kept == 200 {
            assert_eq!(lost[0].sequences, None, "only the clean-close record is lost");
        } else {
            assert_eq!(
                lost[0].sequences.map(|s| (s.first, s.last)),
                Some((kept + 1, Some(200))),
                "{len}"
            );
        }
    }
    let mut longer = whole.clone();
    longer.extend([0; 50]);
    disk.write_raw(&log, longer);
    let (report, got) = repair_and_dump(&disk);
    assert_eq!(
        (report.lost.len(), report.lost[0].entries, got.len()),
        (1, Some(0), 200),
        "{report:?}"
    );
    disk.write_raw(&log, whole);
    assert!(repair_and_dump(&disk).0.lost.is_empty());
}

#[test]
fn repair_reports_missing_log_segment() {
    let (disk, log) = closed_log(200);
    let env = Env { fs: disk.clone(), ..Env::real() };
    let dir = env.fs.open_dir("/db".as_ref(), perigee::env::DirOpenMode::Existing).unwrap();
    dir.remove(log.file_name().unwrap().to_str().unwrap()).unwrap();
    let (report, got) = repair_and_dump(&disk);
    assert!(got.is_empty());
    assert_eq!(report.lost.len(), 1, "{:?}", report.lost);
    assert_eq!(report.lost[0].sequences.map(|s| (s.first, s.last)), Some((1, Some(200))));
}

#[test]
fn repair_reports_zeroed_durable_records() {
    let disk = SimDisk::new(1);
    let env = Env { fs: disk.clone(), ..Env::real() };
    let db = Db::open("/db", Options::in_env(env)).unwrap();
    for n in 0..50u32 {
        db.put(format!("k{n:05}"), "v").unwrap();
    }
    // The manifest edit records how far the log is durable.
    db.history().create_snapshot("here").unwrap();
    let crashed = disk.deep_clone();
    let log =
        crashed.paths().into_iter().rfind(|p| p.extension().is_some_and(|e| e == "wal")).unwrap();
    let mut bytes = crashed.read_raw(&log);
    let middle = (0..bytes.len() / 4).rev().find(|i| &bytes[*i..*i + 4] == b"PRLG").unwrap() - 8;
    bytes[middle..].fill(0);
    crashed.write_raw(&log, bytes);
    let (report, got) = repair_and_dump(&crashed);
    assert_eq!(report.lost.len(), 1, "{report:?}");
    assert_eq!(
        report.lost[0].sequences.map(|s| (s.first, s.last)),
        Some((got.len() as u64 + 1, None)),
        "the number of later lost records is unknown"
    );
}

/// A log may refer to manifest edits that the manifest lacks: then the manifest is not trusted.
#[test]
fn repair_reports_truncated_manifest() {
    let disk = SimDisk::new(1);
    let env = Env { fs: disk.clone(), ..Env::real() };
    let db = Db::open("/db", Options::in_env(env)).unwrap();
    let before = disk.read_raw("/db/MANIFEST");
    let family = db.create_family("new", FamilyOptions::new()).unwrap();
    family.put("k", "v").unwrap();
    let crashed = disk.deep_clone();
    crashed.write_raw("/db/MANIFEST", before);
    let (report, got) = repair_and_dump(&crashed);
    assert!(report.lost.iter().any(|l| l.file == "MANIFEST"), "{report:?}");
    assert!(
        got.values().any(|v| v == b"v"),
        "entries are recovered into a column family without a name"
    );
}
