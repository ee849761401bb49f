//! Tests specific to Windows: open files that are renamed and removed, locks between processes,
//! paths.

use super::*;
use crate::fs::{Fs, RealFs};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary directory, removed when dropped.
struct ScratchDir(PathBuf);

impl ScratchDir {
    fn new() -> ScratchDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("perigee-env-windows-{}-{n}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        ScratchDir(path)
    }
    fn open(&self) -> Arc<dyn Dir> {
        RealFs::new().open_dir(&self.0.join("db"), DirOpenMode::CreateIfMissing).unwrap()
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns true under Wine, whose older versions neither replace an open file nor return the new
/// path of a renamed directory; Windows does both.
fn is_wine() -> bool {
    Path::new("C:\\windows\\system32\\wineboot.exe").exists()
}

fn read_file(dir: &dyn Dir, name: &str) -> Vec<u8> {
    let file = dir.open(name).unwrap();
    let mut buf = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut buf, 0).unwrap();
    buf
}

#[test]
fn open_files_are_replaced_and_removed() {
    let scratch = ScratchDir::new();
    let dir = scratch.open();
    let old = dir.create("MANIFEST").unwrap();
    old.append(&[b"old"]).unwrap();
    let new = dir.create("MANIFEST.tmp").unwrap();
    new.append(&[b"new"]).unwrap();
    let reader = dir.open("MANIFEST").unwrap();
    match dir.rename("MANIFEST.tmp", "MANIFEST") {
        Err(e) if is_wine() => {
            eprintln!("skipped: this version of Wine does not replace an open file: {e}");
            return;
        }
        renamed => renamed.unwrap(),
    }
    let mut buf = [0; 3];
    reader.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"old");
    new.append(&[b"er"]).unwrap();
    new.sync().unwrap();
    assert_eq!(read_file(&*dir, "MANIFEST"), b"newer");
    dir.remove("MANIFEST").unwrap();
    new.append(&[b"!"]).unwrap();
    drop((old, new, reader));
    assert!(dir.list().unwrap().is_empty());
    dir.create("MANIFEST").unwrap();
}

#[test]
fn one_handle_serves_concurrent_reads() {
    let scratch = ScratchDir::new();
    let dir = scratch.open();
    let writer = dir.create("f").unwrap();
    let numbers: Vec<u8> = (0..20_000u32).flat_map(u32::to_le_bytes).collect();
    writer.append(&[&numbers[..5], &[], &numbers[5..]]).unwrap();
    let reader = dir.open("f").unwrap();
    std::thread::scope(|s| {
        for thread in 0..4u32 {
            let reader = &reader;
            s.spawn(move || {
                for i in (thread..20_000).step_by(7) {
                    let mut buf = [0; 4];
                    reader.read_exact_at(&mut buf, u64::from(i) * 4).unwrap();
                    assert_eq!(u32::from_le_bytes(buf), i);
                }
            });
        }
        for i in 0..2_000u32 {
            writer.overwrite(u64::from(i) * 4, &i.to_le_bytes()).unwrap();
            writer.append(&[b"tail"]).unwrap();
        }
    });
    assert_eq!(writer.len(), 4 * 22_000);
    assert_eq!(read_file(&*dir, "f")[..80_000], numbers);
}

#[test]
fn large_appends_of_several_parts_are_written_in_order() {
    let scratch = ScratchDir::new();
    let dir = scratch.open();
    let file = dir.create("f").unwrap();
    let parts: Vec<Vec<u8>> = (0..5u8).map(|n| vec![n; 300_000 + usize::from(n)]).collect();
    let slices: Vec<&[u8]> = parts.iter().map(|p| &p[..]).collect();
    file.append(&slices).unwrap();
    file.append(&slices[..2]).unwrap();
    assert_eq!(read_file(&*dir, "f"), [parts.concat(), parts[..2].concat()].concat());
}

#[test]
fn directory_is_renamed_while_its_lock_is_held() {
    let scratch = ScratchDir::new();
    let dir = scratch.open();
    let fs = RealFs::new();
    dir.create("f").unwrap().append(&[b"x"]).unwrap();
    let held = dir.lock("LOCK").unwrap();
    let new = scratch.0.join("new");
    std::fs::create_dir(&new).unwrap();
    fs.rename_dir(&scratch.0.join("db"), &new).unwrap();
    assert!(dir.is_located_at(&new).unwrap());
    if is_wine() && dir.open("f").is_err() {
        eprintln!("skipped: this version of Wine does not return the new path of a directory");
    } else {
        assert_eq!(read_file(&*dir, "f"), b"x", "the handle follows the directory");
    }
    let again = fs.open_dir(&new, DirOpenMode::Existing).unwrap();
    assert_eq!(again.lock("LOCK").unwrap_err().kind(), ErrorKind::Locked);
    let open = std::fs::File::options().read(true).write(true).open(new.join("LOCK")).unwrap();
    assert!(open.try_lock().is_err(), "the file is locked after the rename");
    drop(held);
    again.lock("LOCK").unwrap();
}

#[test]
fn a_lock_lost_in_a_rename_forbids_changes() {
    let scratch = ScratchDir::new();
    let dir = scratch.open();
    let held = dir.lock("LOCK").unwrap();
    let handle = open_dir_handle(&scratch.0.join("db")).unwrap();
    let identity = system::identity(&handle).unwrap();
    // The lock file cannot be opened again under this name: as if another process had locked it.
    let (from, to) = (scratch.0.join("none"), scratch.0.join("new"));
    assert!(lock::rename_dir_unlocked(identity, &from, &to).is_err());
    for e in [dir.create("f").err(), dir.remove("LOCK").err(), dir.lock("LOCK2").err()] {
        assert_eq!(e.unwrap().kind(), ErrorKind::Locked);
    }
    drop(held);
    dir.create("f").unwrap();
}

/// Not a test of its own: the child of `lock_excludes_other_processes`.
#[test]
fn hold_lock_for_parent() {
    let Some(path) = std::env::var_os("PERIGEE_TEST_LOCK_DIR") else { return };
    let dir = RealFs::new().open_dir(path.as_ref(), DirOpenMode::Existing).unwrap();
    let _held = dir.lock("LOCK").unwrap();
    println!("\nheld");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn lock_excludes_other_processes() {
    let scratch = ScratchDir::new();
    let dir = scratch.open();
    drop(dir.lock("LOCK").unwrap());
    // The child holds the lock until its standard input is closed.
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fs::windows::tests::hold_lock_for_parent", "--nocapture"])
        .env("PERIGEE_TEST_LOCK_DIR", dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = String::new();
    let mut out = child.stdout.take().unwrap();
    let mut byte = [0];
    while !output.contains("held") && out.read(&mut byte).unwrap() > 0 {
        output.push(char::from(byte[0]));
    }
    assert!(output.contains("held"), "{output}");
    let e = dir.lock("LOCK").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Locked);
    assert!(e.message().contains("another process"), "{e}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    dir.lock("LOCK").unwrap();
}

#[test]
fn open_errors_explain_wrong_paths() {
    let scratch = ScratchDir::new();
    std::fs::write(scratch.0.join("file"), "x").unwrap();
    let message = |name: &str, mode| {
        RealFs::new().open_dir(&scratch.0.join(name), mode).unwrap_err().to_string()
    };
    for mode in [DirOpenMode::Existing, DirOpenMode::CreateIfMissing] {
        assert!(message("file", mode).contains("is not a directory"));
    }
    assert!(message("no/where", DirOpenMode::CreateIfMissing).contains("does not exist"));
    assert!(message("none", DirOpenMode::Existing).contains("does not exist"));
}

#[test]
fn reserved_names_are_refused() {
    let dir = ScratchDir::new();
    let dir = dir.open();
    for bad in ["NUL", "a:b", "..\\a", "C:\\a", "a."] {
        assert_eq!(dir.create(bad).unwrap_err().kind(), ErrorKind::InvalidArgument, "{bad}");
    }
    assert!(dir.list().unwrap().is_empty());
}

#[test]
fn long_paths_are_supported() {
    let scratch = ScratchDir::new();
    let fs = RealFs::new();
    let mut path = scratch.0.clone();
    for _ in 0..4 {
        path.push("d".repeat(100));
        fs.open_dir(&path, DirOpenMode::CreateIfMissing).unwrap();
    }
    let dir = fs.open_dir(&path, DirOpenMode::Existing).unwrap();
    dir.create("f").unwrap().append(&[b"x"]).unwrap();
    dir.rename("f", "g").unwrap();
    dir.sync().unwrap();
    assert_eq!(read_file(&*dir, "g"), b"x");
    assert!(dir.free_space().unwrap() > 0);
}
