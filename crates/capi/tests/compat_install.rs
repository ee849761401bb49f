//! `make install-tidesdb-compat`: the names of TidesDB are installed on request only, and the files
//! of a real TidesDB are not overwritten.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

struct Destination(PathBuf);

impl Destination {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("perigee-compat-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn run(&self, arguments: &[&str], force: bool) -> Output {
        let mut command = Command::new(root().join("tools/install.sh"));
        command.args(arguments).env("DESTDIR", &self.0).env("PREFIX", "/usr/local");
        command.env("LIBDIR", "/usr/local/lib").env("FORCE", if force { "1" } else { "0" });
        command.output().unwrap()
    }
    fn install(&self, force: bool) -> Output {
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        self.run(&["tidesdb-compat", deps.to_str().unwrap()], force)
    }
    fn remove(&self) -> Output {
        self.run(&["--remove", "tidesdb-compat"], false)
    }
    fn lib(&self, name: &str) -> PathBuf {
        self.0.join("usr/local/lib").join(name)
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn has_tools() -> bool {
    ["ld", "objcopy", "nm"].iter().all(|program| {
        let has = Command::new(program).arg("--version").output().is_ok();
        if !has {
            eprintln!("\n*** {program} is not installed: SKIPPED ***\n");
        }
        has
    })
}

#[test]
fn files_of_a_real_tidesdb_are_not_overwritten() {
    if !has_tools() {
        return;
    }
    let there = Destination::new("foreign");
    fs::create_dir_all(there.lib("")).unwrap();
    fs::write(there.lib("libtidesdb.so.9"), "the real one").unwrap();
    let refused = there.install(false);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success(), "{text}");
    assert!(text.contains("usr/local/lib/libtidesdb.so.9\n") && text.contains("FORCE=1"), "{text}");
    assert_eq!(fs::read_dir(there.lib("")).unwrap().count(), 1, "something was installed");
    assert_eq!(fs::read_to_string(there.lib("libtidesdb.so.9")).unwrap(), "the real one");

    let forced = there.install(true);
    assert!(forced.status.success(), "{}", String::from_utf8_lossy(&forced.stderr));
    assert!(fs::metadata(there.lib("libtidesdb.so.9")).unwrap().len() > 1000);
}

#[test]
fn own_files_are_replaced_and_removed() {
    if !has_tools() {
        return;
    }
    let there = Destination::new("own");
    assert!(there.install(false).status.success());
    let again = there.install(false);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    assert!(there.lib("libtidesdb.so.9").exists() && there.lib("pkgconfig/tidesdb.pc").exists());
    // A real TidesDB that was installed afterwards.
    fs::remove_file(there.lib("libtidesdb.a")).unwrap();
    fs::write(there.lib("libtidesdb.a"), "the real one").unwrap();
    assert!(!there.install(false).status.success());
    assert!(!there.remove().status.success());
    assert_eq!(fs::read_to_string(there.lib("libtidesdb.a")).unwrap(), "the real one");
    assert!(!there.lib("libtidesdb.so.9").exists());
    fs::remove_dir_all(there.0.join("usr")).unwrap();
    assert!(there.install(false).status.success());
    assert!(there.remove().status.success());
    assert_eq!(fs::read_dir(&there.0).unwrap().count(), 0, "something is left");
}
