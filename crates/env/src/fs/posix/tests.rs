//! Tests specific to real files: permissions, links, locks between processes.

use super::*;
use crate::fs::{Fs, RealFs};
use std::os::unix::fs::{PermissionsExt, symlink};
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
            std::env::temp_dir().join(format!("perigee-env-posix-{}-{n}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
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

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn files_and_dirs_are_owner_only() {
    let scratch = ScratchDir::new();
    let dir = scratch.open();
    dir.create("f").unwrap();
    let _lock = dir.lock("LOCK").unwrap();
    dir.subdir("sub").unwrap();
    let at = |name: &str| mode(&dir.path().join(name));
    assert_eq!((mode(dir.path()), at("f"), at("LOCK"), at("sub")), (0o700, 0o600, 0o600, 0o700));
}

#[test]
fn modes_ignore_the_umask() {
    // Runs in a separate process, because the umask applies to all threads.
    let run = Command::new("sh")
        .args([
            "-c",
            "umask 0377; exec \"$0\" --exact fs::posix::tests::files_and_dirs_are_owner_only",
        ])
        .arg(std::env::current_exe().unwrap())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && output.contains("1 passed"), "{output}");
}

#[test]
fn world_writable_directory_is_refused() {
    let scratch = ScratchDir::new();
    let set = |bits| std::fs::set_permissions(&scratch.0, PermissionsExt::from_mode(bits)).unwrap();
    set(0o777);
    let e = RealFs::new().open_dir(&scratch.0, DirOpenMode::Existing).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.message().contains("chmod o-w"), "{e}");
    set(0o1777);
    RealFs::new().open_dir(&scratch.0, DirOpenMode::Existing).unwrap();
}

#[test]
fn open_errors_explain_wrong_paths() {
    let scratch = ScratchDir::new();
    std::fs::write(scratch.0.join("file"), "x").unwrap();
    symlink("nowhere", scratch.0.join("dangling")).unwrap();
    let message = |name: &str, mode| {
        RealFs::new().open_dir(&scratch.0.join(name), mode).unwrap_err().to_string()
    };
    for mode in [DirOpenMode::Existing, DirOpenMode::CreateIfMissing] {
        assert!(message("file", mode).contains("is not a directory"));
        assert!(message("dangling", mode).contains("dangling symbolic link"));
    }
    assert!(message("no/where", DirOpenMode::CreateIfMissing).contains("does not exist"));
    assert!(message("none", DirOpenMode::Existing).contains("does not exist"));
}

#[test]
fn symlinked_directory_is_followed_symlinked_file_is_not() {
    let scratch = ScratchDir::new();
    let dir = scratch.open();
    symlink("db", scratch.0.join("link")).unwrap();
    RealFs::new().open_dir(&scratch.0.join("link"), DirOpenMode::CreateIfMissing).unwrap();

    std::fs::write(scratch.0.join("secret"), "x").unwrap();
    symlink("../secret", dir.path().join("f")).unwrap();
    for e in
        [dir.open("f").err(), dir.append_to("f").err(), dir.lock("f").err(), dir.remove("f").err()]
    {
        assert_eq!(e.unwrap().kind(), ErrorKind::InvalidArgument);
    }
    assert_eq!(dir.create("f").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(dir.list().unwrap().is_empty());
    symlink("..", dir.path().join("up")).unwrap();
    assert_eq!(dir.subdir("up").unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn opening_a_fifo_does_not_block() {
    let scratch = ScratchDir::new();
    let dir = scratch.open();
    if !Command::new("mkfifo").arg(dir.path().join("pipe")).status().is_ok_and(|s| s.success()) {
        eprintln!("skipped: no mkfifo");
        return;
    }
    assert_eq!(dir.open("pipe").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(dir.append_to("pipe").unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn lock_excludes_other_processes() {
    let scratch = ScratchDir::new();
    let dir = scratch.open();
    drop(dir.lock("LOCK").unwrap());
    // The child holds the lock until its standard input is closed.
    let child = Command::new("flock")
        .arg("--exclusive")
        .arg(dir.path().join("LOCK"))
        .args(["sh", "-c", "echo held; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: no flock command");
        return;
    };
    let mut line = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(dir.lock("LOCK").unwrap_err().kind(), ErrorKind::Locked);
    drop(child.stdin.take());
    child.wait().unwrap();
    dir.lock("LOCK").unwrap();
}

#[test]
fn failed_append_keeps_the_append_position() {
    // Every write to /dev/full fails with ENOSPC.
    let Ok(full) = File::options().write(true).open("/dev/full") else { return };
    let w = super::file::PosixWritableFile::new(full, "full", 0);
    let w: &dyn crate::WritableFile = &w;
    for parts in [&[&b"one"[..]][..], &[b"two", b"parts"]] {
        let e = w.append(parts).unwrap_err();
        assert_eq!((e.kind(), e.file(), e.offset()), (ErrorKind::NoSpace, Some("full"), Some(0)));
    }
    assert_eq!(w.len(), 0);
}

#[test]
fn sync_failing_with_full_disk_is_not_retryable() {
    let e = crate::fs::sync_error("sync", &std::io::Error::from_raw_os_error(28));
    assert_eq!(e.kind(), ErrorKind::Io);
    assert!(!e.is_retryable());
}

/// Appends and syncs of random lengths in allocated space: the file holds what was appended,
/// followed by zeros up to the allocated length, also after truncations.
#[test]
fn zeros_written_ahead_are_overwritten() {
    let scratch = ScratchDir::new();
    let dir = scratch.open();
    let file = dir.create("f").unwrap();
    let mut rand = crate::rand::SeededRng::new(7);
    let (mut expected, mut allocated) = (Vec::new(), 0);
    for step in 0..400u64 {
        match rand.index(12) {
            0 => {
                allocated = allocated.max(expected.len() as u64 + 1 + rand.index(200_000) as u64);
                assert!(file.allocate(allocated).unwrap());
            }
            1 => {
                expected.truncate(rand.index(expected.len() + 1));
                file.truncate(expected.len() as u64).unwrap();
                allocated = 0;
            }
            _ => {
                let bytes = vec![
                    step as u8 | 1;
                    1 + rand.index(if step % 20 == 0 { 90_000 } else { 3_000 })
                ];
                expected.extend_from_slice(&bytes);
                file.append(&[&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]]).unwrap();
            }
        }
        if rand.chance(0.7) {
            file.sync().unwrap();
        }
        let on_disk = std::fs::read(scratch.0.join("db/f")).unwrap();
        let end = (allocated as usize).max(expected.len());
        assert_eq!((on_disk.len(), file.len()), (end, expected.len() as u64), "step {step}");
        assert!(on_disk.starts_with(&expected), "step {step}");
        assert!(on_disk[expected.len()..].iter().all(|b| *b == 0), "step {step}");
    }
}
