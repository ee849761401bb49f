//! Installation with the scripts that `make install` and `make uninstall` call: files, symbols,
//! pkg-config, CMake, shared and static linking, and what is left afterwards.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    TempDir, assert_succeeds, crate_path, has_program, library_dir, root, stdout_of, symbols,
};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns a directory like `target/release`, with the libraries of this build. The tool is that of
/// this build if it was built, otherwise another program.
fn build_dir(scratch: &TempDir) -> PathBuf {
    let (from, deps) = (scratch.path("from"), library_dir());
    fs::create_dir_all(&from).unwrap();
    symlink(deps.join("libperigee_c.so"), from.join("libperigee_c.so")).unwrap();
    let files = fs::read_dir(&deps).unwrap().map(|e| e.unwrap().path());
    let archives = files.filter(|p| {
        let name = p.file_name().unwrap().to_str().unwrap();
        name.starts_with("libperigee_c") && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|p| p.metadata().unwrap().modified().unwrap()).unwrap();
    symlink(newest, from.join("libperigee_c.a")).unwrap();
    let tool = deps.parent().unwrap().join("perigee");
    let tool = if tool.exists() { tool } else { PathBuf::from("/bin/true") };
    fs::copy(tool, from.join("perigee")).unwrap();
    from
}

fn has_tools() -> bool {
    ["cc", "ld", "objcopy", "nm", "sha256sum"].iter().all(|p| has_program(p))
}

struct Installation {
    prefix: PathBuf,
    libdir: PathBuf,
    destdir: String,
}

impl Installation {
    fn script(&self) -> Command {
        let mut command = Command::new(root().join("tools/install.sh"));
        command.env("PREFIX", &self.prefix).env("LIBDIR", &self.libdir);
        command.env("DESTDIR", &self.destdir);
        command
    }
    fn install(&self, from: &Path) -> Output {
        assert_succeeds(self.script().arg("perigee").arg(from))
    }
    fn uninstall(&self) -> Output {
        self.script().args(["--remove", "perigee"]).output().unwrap()
    }
    fn pkg_config(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(arguments).env("PKG_CONFIG_PATH", self.libdir.join("pkgconfig"));
        stdout_of(&mut command).split_whitespace().map(str::to_owned).collect()
    }
}

/// Returns all files below a directory.
fn files_below(dir: &Path) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            files.extend(files_below(&path));
        } else {
            files.insert(path);
        }
    }
    files
}

#[test]
fn installed_library_is_found_and_removed_again() {
    if !has_tools() {
        return;
    }
    let scratch = TempDir::new("install");
    let from = build_dir(&scratch);
    let prefix = scratch.path("opt/perigee");
    let libdir = prefix.join("lib/multi-arch");
    let here =
        Installation { prefix: prefix.clone(), libdir: libdir.clone(), destdir: String::new() };
    here.install(&from);

    // Only functions of the header, all with a version.
    let shared = libdir.join("libperigee.so.0.1.0");
    let declared: BTreeSet<String> =
        common::header_functions().into_iter().map(|f| f.name + "@@PERIGEE_0").collect();
    let exported: BTreeSet<String> =
        symbols(&["-D"], &shared).into_iter().filter(|s| s != "PERIGEE_0").collect();
    assert_eq!(exported, declared);
    let archived = symbols(&["-g"], &libdir.join("libperigee.a"));
    let wrong: Vec<_> =
        archived.iter().filter(|s| !declared.contains(&format!("{s}@@PERIGEE_0"))).collect();
    assert!(wrong.is_empty() && archived.len() == declared.len(), "{wrong:?}");
    // Nothing but what cc links anyway, and no debug symbols.
    let size = fs::metadata(&shared).unwrap().len();
    assert!(size < 30 << 20, "{size} bytes: not stripped");
    if has_program("readelf") {
        let dynamic = stdout_of(Command::new("readelf").arg("-d").arg(&shared));
        assert!(dynamic.contains("[libperigee.so.0]") && !dynamic.contains("TEXTREL"), "{dynamic}");
    }
    assert_eq!(fs::read_link(libdir.join("libperigee.so")).unwrap(), Path::new("libperigee.so.0"));

    link_and_run(&scratch, &here);
    found_by_cmake(&scratch, &here);

    // A file that was changed is kept; everything else is removed.
    let (changed, manifest) =
        (prefix.join("include/perigee.hpp"), prefix.join("share/perigee/perigee.installed"));
    fs::write(&changed, "changed").unwrap();
    let out = here.uninstall();
    let text = String::from_utf8(out.stderr).unwrap();
    assert!(!out.status.success() && text.contains("perigee.hpp was changed"), "{text}");
    assert_eq!(files_below(&prefix), BTreeSet::from([changed, manifest]));
    assert_succeeds(here.script().args(["--remove", "perigee"]).env("FORCE", "1"));
    assert!(!scratch.path("opt").exists(), "a directory is left");
}

/// Links the examples with the flags of pkg-config only: shared, against the static library, and
/// completely static.
fn link_and_run(scratch: &TempDir, here: &Installation) {
    if !has_program("pkg-config") {
        return;
    }
    let tour = crate_path("examples/c/tour.c");
    let link = |name: &str, compiler: &str, source: &Path, flags: &[String]| {
        let program = scratch.path(name);
        let mut command = Command::new(compiler);
        command.arg(source).args(flags).arg("-o").arg(&program);
        assert_succeeds(&mut command);
        let data = scratch.path(&format!("{name}.db"));
        assert_succeeds(Command::new(&program).arg(data).env("LD_LIBRARY_PATH", &here.libdir));
        program
    };
    let shared = link("shared", "cc", &tour, &here.pkg_config(&["--cflags", "--libs", "perigee"]));
    let archive = here.pkg_config(&["--cflags", "--libs", "perigee-static"]);
    let archive = link("archive", "cc", &tour, &archive);
    let mut flags = vec!["-static".to_owned()];
    flags.extend(here.pkg_config(&["--static", "--cflags", "--libs", "perigee"]));
    let whole = link("whole", "cc", &tour, &flags);
    if has_program("readelf") {
        let needed = |program: &Path| stdout_of(Command::new("readelf").arg("-d").arg(program));
        assert!(needed(&shared).contains("libperigee.so.0"));
        assert!(!needed(&archive).contains("libperigee"));
        assert!(!needed(&whole).contains("NEEDED"));
    }
    if has_program("c++") {
        let mut flags = here.pkg_config(&["--cflags", "--libs", "perigee"]);
        flags.push("-std=c++17".to_owned());
        link("wrapper", "c++", &crate_path("examples/c/tour.cpp"), &flags);
    }
}

fn found_by_cmake(scratch: &TempDir, here: &Installation) {
    if !has_program("cmake") || !has_program("make") {
        return;
    }
    let project = scratch.path("project");
    fs::create_dir_all(&project).unwrap();
    let write = |version: &str| {
        let text = format!(
            "cmake_minimum_required(VERSION 3.13)\nproject(tour C)\n\
             find_package(Perigee {version} REQUIRED)\nadd_executable(tour \"{}\")\n\
             target_link_libraries(tour Perigee::perigee)\nadd_executable(tour_static \"{0}\")\n\
             target_link_libraries(tour_static Perigee::perigee_static)\n",
            crate_path("examples/c/tour.c").display()
        );
        fs::write(project.join("CMakeLists.txt"), text).unwrap();
    };
    let configure = |build: &Path| {
        let directory = here.libdir.join("cmake/Perigee");
        let mut command = Command::new("cmake");
        command.arg("-S").arg(&project).arg("-B").arg(build);
        command.arg(format!("-DPerigee_DIR={}", directory.display()));
        command
    };
    let build = project.join("build");
    write("0.1");
    assert_succeeds(&mut configure(&build));
    assert_succeeds(Command::new("cmake").arg("--build").arg(&build));
    for program in ["tour", "tour_static"] {
        assert_succeeds(Command::new(build.join(program)).arg(scratch.path(program)));
    }
    for other in ["0.2", "1.0"] {
        write(other);
        assert!(!configure(&project.join(other)).output().unwrap().status.success(), "{other}");
    }
}

#[test]
fn packagers_can_install_below_another_root() {
    if !has_tools() {
        return;
    }
    let scratch = TempDir::new("destdir");
    let from = build_dir(&scratch);
    let dest = scratch.path("dest");
    let (prefix, libdir) = (PathBuf::from("/usr"), PathBuf::from("/usr/lib/multi-arch"));
    let destdir = dest.display().to_string();
    let there = Installation { prefix, libdir, destdir: destdir.clone() };
    there.install(&from);
    let pc = fs::read_to_string(dest.join("usr/lib/multi-arch/pkgconfig/perigee.pc")).unwrap();
    assert!(pc.contains("libdir=/usr/lib/multi-arch\n") && !pc.contains(&destdir), "{pc}");
    assert!(dest.join("usr/include/perigee.h").exists() && dest.join("usr/bin/perigee").exists());
    // A second installation replaces the first one, and what it does not have any more is removed.
    let manifest = dest.join("usr/share/perigee/perigee.installed");
    let first = fs::read_to_string(&manifest).unwrap();
    fs::write(dest.join("usr/include/old.h"), "old").unwrap();
    let sum = stdout_of(Command::new("sha256sum").arg(dest.join("usr/include/old.h")));
    fs::write(&manifest, format!("{first}f\t{}\t/usr/include/old.h\n", &sum[..64])).unwrap();
    there.install(&from);
    assert_eq!(fs::read_to_string(&manifest).unwrap(), first);
    assert!(!dest.join("usr/include/old.h").exists());
    // A file of another program stays, and so does its directory.
    fs::write(dest.join("usr/include/other.h"), "other").unwrap();
    assert!(there.uninstall().status.success());
    assert_eq!(files_below(&dest), BTreeSet::from([dest.join("usr/include/other.h")]));
    let nothing = there.uninstall();
    assert!(!nothing.status.success());
    fs::remove_dir_all(dest.join("usr")).unwrap();
    there.install(&from);
    assert!(there.uninstall().status.success());
    assert_eq!(fs::read_dir(&dest).unwrap().count(), 0, "something is left");
    // Paths that would break the files for pkg-config and CMake.
    let mut bad = there.script();
    bad.env("PREFIX", "/opt/a b").arg("perigee").arg(&from);
    let out = bad.output().unwrap();
    assert!(!out.status.success() && String::from_utf8(out.stderr).unwrap().contains("PREFIX"));
}
