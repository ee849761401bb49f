//! Format versions and feature bits: a file of any kind that a newer version wrote is refused with
//! an error that names it, and no byte of the directory changes; unknown compatible features are
//! accepted.
#![allow(clippy::unwrap_used)]

use perigee::{Db, ErrorKind, FamilyOptions, Options};
use perigee_base::{FileId, checksum};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Bytes = BTreeMap<String, Vec<u8>>;

fn bytes_of(dir: &Path) -> Bytes {
    let files = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path());
    files
        .map(|p| {
            let bytes = if p.is_dir() { b"directory".to_vec() } else { std::fs::read(&p).unwrap() };
            (p.file_name().unwrap().to_string_lossy().into(), bytes)
        })
        .collect()
}

/// Creates a closed database with all kinds of files.
fn database(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("perigee-formats-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let db =
        Db::open(&dir, Options::new().default_family(FamilyOptions::new().value_threshold(10)))
            .unwrap();
    db.put("long", [b'v'; 100]).unwrap();
    db.admin().flush().unwrap();
    db.put("in the log", "v").unwrap();
    db.close().unwrap();
    dir
}

/// Writes `bytes` at offset `at` of the file's header and updates the header checksum.
fn patch_header(path: &Path, at: usize, bytes: &[u8]) {
    let mut all = std::fs::read(path).unwrap();
    all[at..at + bytes.len()].copy_from_slice(bytes);
    let id = FileId(u64::from_le_bytes(all[32..40].try_into().unwrap()));
    let sum = checksum::checksum(id, 0, &all[..64]);
    all[64..72].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(path, all).unwrap();
}

fn find_file(dir: &Path, kind: &str) -> PathBuf {
    let name = bytes_of(dir).into_keys().find(|n| n.ends_with(kind));
    dir.join(name.unwrap_or_else(|| panic!("there is a {kind}")))
}

const KINDS: [&str; 4] = ["MANIFEST", ".wal", ".klog", ".vlog"];

#[test]
fn newer_format_version_is_refused_in_every_file_kind() {
    let dir = database("newer");
    for kind in KINDS {
        let path = find_file(&dir, kind);
        let good = std::fs::read(&path).unwrap();
        for (what, at, bytes) in [
            ("version", 8, &[2u8, 0][..]),
            ("incompatible feature", 12, &[0, 0, 0, 0x80]),
            ("feature that refuses writing", 16, &[1, 0, 0, 0]),
            ("key id", 56, &[1, 0, 0, 0]),
        ] {
            patch_header(&path, at, bytes);
            let before = bytes_of(&dir);
            let e = Db::open(&dir, Options::new()).expect_err(what);
            assert_eq!(e.kind(), ErrorKind::FormatTooNew, "{what} of {kind}: {e}");
            assert!(e.to_string().contains("newer Perigee"), "{e}");
            assert_eq!(bytes_of(&dir), before, "{what} of {kind}");
            std::fs::write(&path, &good).unwrap();
        }
    }
    let db = Db::open(&dir, Options::new()).unwrap();
    assert_eq!(
        (db.get("long").unwrap().unwrap().len(), db.get("in the log").unwrap().is_some()),
        (100, true)
    );
    db.close().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn compatible_feature_bit_is_accepted() {
    for kind in [".klog", ".vlog"] {
        let dir = database(&format!("compatible{kind}"));
        patch_header(&find_file(&dir, kind), 20, &[1, 0, 0, 0]);
        let db = Db::open(&dir, Options::new()).unwrap();
        assert_eq!(db.get("long").unwrap().unwrap().len(), 100);
        db.close().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
