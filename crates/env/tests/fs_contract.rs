//! The contract of the file system, checked on real files and on the simulated disk, inside and
//! outside a simulation.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use perigee_base::ErrorKind;
use perigee_env::fs::RealFs;
use perigee_env::fs::memory::SimDisk;
use perigee_env::sim::SimWorld;
use perigee_env::{Dir, DirOpenMode, Fs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary directory, removed when dropped.
struct ContractScratchDir(PathBuf);

impl ContractScratchDir {
    fn new() -> ContractScratchDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("perigee-env-contract-{}-{n}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        ContractScratchDir(path)
    }
}

impl Drop for ContractScratchDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn is_wine() -> bool {
    cfg!(windows) && Path::new("C:\\windows\\system32\\wineboot.exe").exists()
}

fn on_both(check: fn(&dyn Fs, &Path)) {
    let scratch = ContractScratchDir::new();
    check(&RealFs::new(), &scratch.0.join("db"));
    check(&*SimDisk::new(1), Path::new("/db"));
    for seed in 0..10 {
        SimWorld::new(seed).run(SimDisk::new(seed), |env| check(&*env.fs, Path::new("/db")));
    }
}

fn open_dir(fs: &dyn Fs, path: &Path) -> Arc<dyn Dir> {
    fs.open_dir(path, DirOpenMode::CreateIfMissing).unwrap()
}

fn write_file(dir: &dyn Dir, name: &str, bytes: &[u8]) {
    dir.create(name).unwrap().append(&[bytes]).unwrap();
}

fn read_file(dir: &dyn Dir, name: &str) -> Vec<u8> {
    let file = dir.open(name).unwrap();
    let mut buf = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut buf, 0).unwrap();
    buf
}

#[test]
fn open_dir_obeys_its_mode() {
    on_both(|fs, path| {
        let missing = fs.open_dir(path, DirOpenMode::Existing).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(missing.message().contains("db"), "{missing}");
        let orphan = fs.open_dir(&path.join("a/b"), DirOpenMode::CreateIfMissing).unwrap_err();
        assert_eq!(
            orphan.kind(),
            ErrorKind::NotFound,
            "only the last component is created: {orphan}"
        );

        let dir = open_dir(fs, path);
        assert_eq!(dir.path(), path);
        fs.open_dir(path, DirOpenMode::Existing).unwrap();
        open_dir(fs, path);
        write_file(&*dir, "f", b"x");
        let file = fs.open_dir(&path.join("f"), DirOpenMode::CreateIfMissing).unwrap_err();
        assert_eq!(file.kind(), ErrorKind::InvalidArgument, "{file}");
    });
}

#[test]
fn file_names_are_checked() {
    on_both(|fs, path| {
        let dir = open_dir(fs, path);
        write_file(&*dir, "ok", b"x");
        let long = "n".repeat(256);
        for bad in ["", ".", "..", "a/b", "/a", "a\0b", &long] {
            let errors = [
                dir.create(bad).err(),
                dir.append_to(bad).err(),
                dir.open(bad).err(),
                dir.remove(bad).err(),
                dir.rename("ok", bad).err(),
                dir.rename(bad, "ok").err(),
                dir.file_len(bad).err(),
                dir.lock(bad).err(),
                dir.subdir(bad).err(),
                dir.move_into("ok", bad).err(),
                dir.move_into(bad, "sub").err(),
            ];
            for (i, e) in errors.into_iter().enumerate() {
                assert_eq!(
                    e.map(|e| e.kind()),
                    Some(ErrorKind::InvalidArgument),
                    "{bad:?}, call {i}"
                );
            }
        }
        assert_eq!(dir.list().unwrap(), ["ok"]);
    });
}

#[test]
fn allocate_extends_with_zeros() {
    on_both(|fs, path| {
        let dir = open_dir(fs, path);
        let w = dir.create("f").unwrap();
        w.append(&[b"head"]).unwrap();
        if !w.allocate(100).unwrap() {
            return;
        }
        assert_eq!((w.len(), dir.file_len("f").unwrap()), (4, Some(100)));
        assert!(w.allocate(50).unwrap(), "allocate never shortens the file");
        w.append(&[b"tail"]).unwrap();
        w.sync().unwrap();
        let bytes = read_file(&*dir, "f");
        assert!(
            bytes.len() == 100
                && bytes.starts_with(b"headtail")
                && bytes[8..].iter().all(|b| *b == 0)
        );
        w.truncate(8).unwrap();
        assert_eq!(read_file(&*dir, "f"), b"headtail");
        w.append(&[b"!"]).unwrap();
        assert_eq!(read_file(&*dir, "f"), b"headtail!");
    });
}

#[test]
fn appended_bytes_are_read_until_truncated() {
    on_both(|fs, path| {
        let dir = open_dir(fs, path);
        let w = dir.create("f").unwrap();
        assert!(w.is_empty());
        w.append(&[]).unwrap();
        w.append(&[b"", b""]).unwrap();
        w.append(&[b"hello", b"", b" ", b"world"]).unwrap();
        w.append(&[b"!"]).unwrap();
        assert_eq!(w.len(), 12);
        w.sync().unwrap();
        let many: Vec<&[u8]> = (0..3000).map(|_| &b"ab"[..]).collect();
        w.append(&many).unwrap();
        assert_eq!(read_file(&*dir, "f")[12..], *b"ab".repeat(3000));

        w.overwrite(1, b"el").unwrap();
        assert_eq!(w.overwrite(w.len(), b"x").unwrap_err().kind(), ErrorKind::InvalidArgument);
        w.truncate(5).unwrap();
        assert_eq!(w.truncate(6).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!((w.len(), read_file(&*dir, "f")), (5, b"hello".to_vec()));
        w.append(&[b"."]).unwrap();
        let again = dir.append_to("f").unwrap();
        assert_eq!(again.len(), 6);
        again.append(&[b"?"]).unwrap();
        assert_eq!(read_file(&*dir, "f"), b"hello.?");
        assert_eq!(dir.file_len("f").unwrap(), Some(7));

        let r = dir.open("f").unwrap();
        let mut buf = [0; 3];
        r.read_exact_at(&mut buf, 4).unwrap();
        assert_eq!(&buf, b"o.?");
        r.read_exact_at(&mut [], 7).unwrap();
        for offset in [5, 7, 1 << 40] {
            let e = r.read_exact_at(&mut buf, offset).unwrap_err();
            assert_eq!(
                (e.kind(), e.file(), e.offset()),
                (ErrorKind::Corruption, Some("f"), Some(offset))
            );
            assert!(e.message().contains("ends early"));
        }
    });
}

#[test]
fn files_are_created_renamed_and_removed() {
    on_both(|fs, path| {
        let dir = open_dir(fs, path);
        write_file(&*dir, "b", b"bee");
        write_file(&*dir, "a", b"ay");
        let taken = dir.create("a").unwrap_err();
        assert_eq!((taken.kind(), taken.file()), (ErrorKind::AlreadyExists, Some("a")));
        assert_eq!(dir.list().unwrap(), ["a", "b"]);
        assert_eq!(dir.file_len("c").unwrap(), None);
        for e in [
            dir.open("c").err(),
            dir.append_to("c").err(),
            dir.remove("c").err(),
            dir.rename("c", "d").err(),
        ] {
            let e = e.unwrap();
            assert_eq!((e.kind(), e.file()), (ErrorKind::NotFound, Some("c")), "{e}");
        }
        let old = dir.open("b").unwrap();
        match dir.rename("a", "b") {
            Err(e) if is_wine() => {
                eprintln!("skipped: this version of Wine does not replace an open file: {e}");
                return;
            }
            renamed => renamed.unwrap(),
        }
        dir.rename("b", "b").unwrap();
        assert_eq!(dir.list().unwrap(), ["b"]);
        assert_eq!(read_file(&*dir, "b"), b"ay");
        let mut buf = [0; 3];
        old.read_exact_at(&mut buf, 0).unwrap();
        assert_eq!(&buf, b"bee", "an open file remains readable without its name");
        dir.remove("b").unwrap();
        dir.sync().unwrap();
        assert!(dir.list().unwrap().is_empty());
    });
}

#[test]
fn subdirectories_have_separate_names() {
    on_both(|fs, path| {
        let dir = open_dir(fs, path);
        write_file(&*dir, "x", b"1");
        dir.move_into("x", "lost").unwrap();
        dir.sync().unwrap();
        assert!(dir.list().unwrap().is_empty(), "a directory is not a file");
        let lost = dir.subdir("lost").unwrap();
        assert_eq!(lost.path(), path.join("lost"));
        assert_eq!(read_file(&*lost, "x"), b"1");
        assert_eq!(
            fs.open_dir(&path.join("lost"), DirOpenMode::Existing).unwrap().list().unwrap(),
            ["x"]
        );

        write_file(&*dir, "x", b"2");
        assert_eq!(dir.move_into("x", "lost").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!((read_file(&*lost, "x"), read_file(&*dir, "x")), (b"1".to_vec(), b"2".to_vec()));
        assert_eq!(dir.move_into("y", "lost").unwrap_err().kind(), ErrorKind::NotFound);
        let errors = [
            dir.create("lost").err().map(|e| e.kind()),
            dir.open("lost").err().map(|e| e.kind()),
            dir.remove("lost").err().map(|e| e.kind()),
            dir.rename("x", "lost").err().map(|e| e.kind()),
            dir.subdir("x").err().map(|e| e.kind()),
            dir.file_len("lost").err().map(|e| e.kind()),
        ];
        assert_eq!(errors[0], Some(ErrorKind::AlreadyExists));
        assert_eq!(errors[1..], [Some(ErrorKind::InvalidArgument); 5]);
    });
}

#[test]
fn lock_is_exclusive() {
    on_both(|fs, path| {
        let (dir, other) = (open_dir(fs, path), open_dir(fs, path));
        let held = dir.lock("LOCK").unwrap();
        for d in [&dir, &other] {
            let e = d.lock("LOCK").unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Locked);
            assert!(e.message().contains("LOCK") && e.message().contains("another process"), "{e}");
        }
        let _second = dir.lock("LOCK2").unwrap();
        drop(held);
        let _again = other.lock("LOCK").unwrap();
        assert_eq!(dir.list().unwrap(), ["LOCK", "LOCK2"], "lock files are not removed");
    });
}

#[test]
fn boot_id_is_stable() {
    let (a, b) = (RealFs::new(), RealFs::new());
    if cfg!(target_os = "linux") && Path::new("/proc/sys/kernel/random/boot_id").exists() {
        assert_eq!(a.boot_id(), b.boot_id());
    }
    assert_eq!(a.boot_id(), a.boot_id());
}

#[test]
fn linked_file_lives_until_its_last_name_is_removed() {
    on_both(|fs, path| {
        let dir = open_dir(fs, path);
        let other = open_dir(fs, &path.with_file_name("other"));
        write_file(&*dir, "f", b"x");
        assert!(dir.link_into("f", &*other).unwrap());
        assert_eq!(dir.link_into("f", &*other).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(dir.link_into("g", &*other).unwrap_err().kind(), ErrorKind::NotFound);
        dir.append_to("f").unwrap().append(&[b"y"]).unwrap();
        dir.remove("f").unwrap();
        other.sync().unwrap();
        assert_eq!(read_file(&*other, "f"), b"xy");
        assert_eq!(dir.list().unwrap().len(), 0);
    });
}

#[test]
fn directories_are_renamed_and_removed() {
    on_both(|fs, path| {
        let (new, full) = (path.with_file_name("new"), path.with_file_name("full"));
        write_file(&*open_dir(fs, path), "f", b"x");
        write_file(&*open_dir(fs, &full), "g", b"x");
        assert_eq!(fs.rename_dir(path, &full).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs.remove_dir(path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        open_dir(fs, &new);
        let before = fs.open_dir(path, DirOpenMode::Existing).unwrap();
        assert!(before.is_located_at(path).unwrap() && !before.is_located_at(&new).unwrap());
        fs.rename_dir(path, &new).unwrap();
        assert!(
            !before.is_located_at(path).unwrap() && before.is_located_at(&new).unwrap(),
            "the lock follows the renamed directory"
        );
        assert_eq!(
            fs.open_dir(path, DirOpenMode::Existing).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        let dir = fs.open_dir(&new, DirOpenMode::Existing).unwrap();
        assert_eq!(read_file(&*dir, "f"), b"x");
        assert_eq!(fs.rename_dir(path, &full).unwrap_err().kind(), ErrorKind::NotFound);
        dir.remove("f").unwrap();
        // Windows may keep the name of a removed directory until its last handle is closed.
        drop((dir, before));
        fs.remove_dir(&new).unwrap();
        assert_eq!(
            fs.open_dir(&new, DirOpenMode::Existing).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    });
}
