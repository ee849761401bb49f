//! Tests the C library as its users use it: with a C and a C++ compiler, the headers, and the
//! shared library built by cargo. Checks the layout of every public struct, the conformance suite
//! of `tests/c`, the examples, and an installation into an empty prefix; the suite and the examples
//! also under AddressSanitizer.
//!
//! Does not use the library's Rust side. Without a C compiler it reports clearly that nothing was
//! tested.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-g"];
const SANITIZED: [&str; 2] = ["-fsanitize=address", "-fno-omit-frame-pointer"];

fn crate_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Directory in which cargo puts the libraries of this build: `target/PROFILE/deps`.
fn library_dir() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    assert!(deps.join("libtidesdb.so").exists(), "no libtidesdb.so in {}", deps.display());
    deps
}

/// Returns true if the program can be run; tests that need a missing one are skipped with a
/// message.
fn has_program(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    if !there {
        eprintln!(
            "\n*** {program} is not there: this part of the C library's proof was SKIPPED ***\n"
        );
    }
    there
}

/// Returns true if the compiler has AddressSanitizer with its runtime library.
fn has_sanitizer(compiler: &str, scratch: &TempDir) -> bool {
    let (source, out) = (scratch.0.join("none.c"), scratch.0.join("none"));
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let linked = Command::new(compiler).args(SANITIZED).arg(&source).arg("-o").arg(&out).output();
    let has = linked.is_ok_and(|o| o.status.success())
        && Command::new(&out).output().is_ok_and(|o| o.status.success());
    if !has {
        eprintln!("\n*** {compiler} has no AddressSanitizer: SKIPPED ***\n");
    }
    has
}

/// Returns true if a gigabyte is free there: column families reserve a tenth of that by default.
fn has_free_space(dir: &Path) -> bool {
    let df = Command::new("df").args(["--output=avail", "-BM"]).arg(dir).output();
    let text = df.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines()
        .nth(1)
        .is_some_and(|l| l.trim().trim_end_matches('M').parse().is_ok_and(|m: u64| m > 1024))
}

/// A temporary directory, in memory if the machine has a memory file system.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let memory = Path::new("/dev/shm");
        let parent =
            if has_free_space(memory) { memory.to_path_buf() } else { std::env::temp_dir() };
        let path = parent.join(format!("perigee-capi-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn assert_succeeds(command: &mut Command) -> Output {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        out.status.success(),
        "{command:?}: {}\n{}\n{}",
        out.status,
        text(&out.stdout),
        text(&out.stderr)
    );
    out
}

/// Compiles against the headers of the source tree and the library of the build; sets the run path
/// so that the program finds the library.
fn compile(compiler: &str, sources: &[PathBuf], out: &Path, flags: &[&str]) {
    let built = library_dir();
    let mut command = Command::new(compiler);
    command
        .args(STRICT)
        .args(flags)
        .arg("-I")
        .arg(crate_path("include"))
        .args(sources)
        .arg("-o")
        .arg(out);
    command.arg("-L").arg(&built).arg(format!("-Wl,-rpath,{}", built.display()));
    // The build has no file with the library's soname: create a link beside the program.
    let soname = out.parent().unwrap().join("libtidesdb.so.9");
    if !soname.exists() {
        let _ = std::os::unix::fs::symlink(built.join("libtidesdb.so"), &soname);
    }
    command.arg(format!("-Wl,-rpath,{}", out.parent().unwrap().display()));
    assert_succeeds(command.args(["-ltidesdb", "-lpthread", "-lm", "-ldl"]));
}

fn suite() -> Vec<PathBuf> {
    let files = fs::read_dir(crate_path("tests/c")).unwrap().map(|e| e.unwrap().path());
    files.filter(|p| p.extension().is_some_and(|e| e == "c")).collect()
}

fn run_suite(name: &str, flags: &[&str], sanitized: bool) {
    let scratch = TempDir::new(name);
    if !has_program("cc") || (sanitized && !has_sanitizer("cc", &scratch)) {
        return;
    }
    let program = scratch.0.join("conformance");
    compile("cc", &suite(), &program, flags);
    let out = assert_succeeds(
        Command::new(&program).arg("--dir").arg(&scratch.0).env("ASAN_OPTIONS", "detect_leaks=0"),
    );
    let text = String::from_utf8_lossy(&out.stdout);
    println!("{text}");
    let checks: u32 = text.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(checks >= 1000, "only {checks} checks ran");
}

#[test]
fn conformance_suite_passes() {
    run_suite("suite", &["-std=gnu11", "-O1"], false);
}

#[test]
fn conformance_suite_passes_under_asan() {
    run_suite("asan", &["-std=gnu11", "-O1", SANITIZED[0], SANITIZED[1]], true);
}

#[test]
fn abi_layout_matches_tidesdb() {
    let scratch = TempDir::new("layout");
    if !has_program("cc") {
        return;
    }
    let program = scratch.0.join("layout");
    compile("cc", &[crate_path("tests/layout/layout.c")], &program, &["-std=c11"]);
    let ours = String::from_utf8(assert_succeeds(&mut Command::new(&program)).stdout).unwrap();
    let theirs = fs::read_to_string(crate_path("tests/layout/tidesdb-9.3.14.txt")).unwrap();
    let wrong: Vec<_> = theirs.lines().filter(|l| !ours.lines().any(|o| o == *l)).collect();
    assert!(wrong.is_empty(), "the layout differs from TidesDB's: {wrong:#?}");
    assert_eq!(ours, theirs);
}

/// The examples, compiled as by a user, and once more under AddressSanitizer.
#[test]
fn c_examples_run() {
    let scratch = TempDir::new("examples");
    let examples = [
        ("cc", "tour.c", "-std=c11", "backward: cherry banana apple"),
        ("c++", "tour.cpp", "-std=c++17", "first 1, second 0"),
        ("cc", "beyond.c", "-std=c11", "100000 of 100000 bytes in parts"),
    ];
    for (compiler, source, standard, says) in examples {
        if !has_program(compiler) {
            continue;
        }
        let sanitized = has_sanitizer(compiler, &scratch);
        for flags in [vec![standard], vec![standard, SANITIZED[0], SANITIZED[1]]] {
            if flags.len() > 1 && !sanitized {
                continue;
            }
            let (program, data) = (scratch.0.join("tour"), scratch.0.join("data"));
            compile(compiler, &[crate_path("examples/c").join(source)], &program, &flags);
            let out = assert_succeeds(
                Command::new(&program).arg(&data).env("ASAN_OPTIONS", "detect_leaks=1"),
            );
            let text = String::from_utf8(out.stdout).unwrap();
            assert!(text.contains(says), "{text}");
            // A second run finds the database of the first one.
            assert_succeeds(
                Command::new(&program).arg(&data).env("ASAN_OPTIONS", "detect_leaks=1"),
            );
            fs::remove_dir_all(&data).unwrap();
        }
    }
}

fn public_symbols(name: &str) -> bool {
    ["tidesdb_", "perigee_", "_tidesdb_log_"].iter().any(|p| name.starts_with(p))
}

/// Returns the names of the defined global symbols of a library.
fn symbols(flags: &[&str], library: &Path) -> Vec<String> {
    let out = assert_succeeds(Command::new("nm").args(flags).arg("--defined-only").arg(library));
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().filter_map(|l| l.split_whitespace().nth(2)).map(str::to_owned).collect()
}

#[test]
fn only_api_symbols_are_exported() {
    if !has_program("nm") {
        return;
    }
    let names = symbols(&["-D"], &library_dir().join("libtidesdb.so"));
    let others: Vec<_> = names.iter().filter(|n| !public_symbols(n)).collect();
    assert!(others.is_empty(), "exported, but not part of the API: {others:?}");
    let declared = fs::read_to_string(crate_path("include/tidesdb/db.h")).unwrap();
    let words = declared.split(|c: char| !c.is_alphanumeric() && c != '_');
    let functions =
        words.filter(|w| w.starts_with("tidesdb_") && declared.contains(&format!("{w}(")));
    let missing: Vec<_> = functions.filter(|f| !names.iter().any(|n| n == f)).collect();
    // The S3 connector is declared, but missing in a build without it, as in TidesDB.
    let missing: Vec<_> =
        missing.into_iter().filter(|f| !f.starts_with("tidesdb_objstore_s3")).collect();
    assert!(missing.is_empty(), "declared, but not exported: {missing:?}");
}

/// Installs with `install.sh` into an empty prefix and builds with the flags of pkg-config only,
/// shared and static, then with CMake.
#[test]
fn installation_is_found_by_pkg_config_and_cmake() {
    if !has_program("cc") || !has_program("pkg-config") || !has_program("ld") {
        return;
    }
    let scratch = TempDir::new("install");
    let prefix = scratch.0.join("prefix");
    assert_succeeds(
        Command::new("sh").arg(crate_path("install.sh")).arg(library_dir()).arg(&prefix),
    );
    let lib = prefix.join("lib");
    let leaked = symbols(&["-g"], &lib.join("libtidesdb.a"))
        .into_iter()
        .filter(|n| !public_symbols(n))
        .collect::<Vec<_>>();
    assert!(leaked.is_empty(), "global in the static library, but not part of the API: {leaked:?}");
    let pkg_config = |arguments: &[&str]| {
        let out = assert_succeeds(
            Command::new("pkg-config")
                .args(arguments)
                .arg("tidesdb")
                .env("PKG_CONFIG_PATH", lib.join("pkgconfig")),
        );
        String::from_utf8(out.stdout)
            .unwrap()
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let tour = crate_path("examples/c/tour.c");
    let shared = scratch.0.join("shared");
    assert_succeeds(
        Command::new("cc")
            .arg(&tour)
            .args(pkg_config(&["--cflags", "--libs"]))
            .arg("-o")
            .arg(&shared),
    );
    assert_succeeds(Command::new(&shared).arg(scratch.0.join("one")).env("LD_LIBRARY_PATH", &lib));
    let with_static = scratch.0.join("static");
    // The linker would prefer the shared library: name the archive instead of `-ltidesdb`.
    let libraries = pkg_config(&["--static", "--libs"])
        .into_iter()
        .map(|l| l.replace("-ltidesdb", "-l:libtidesdb.a"));
    assert_succeeds(
        Command::new("cc")
            .arg(&tour)
            .args(pkg_config(&["--cflags"]))
            .args(libraries)
            .arg("-o")
            .arg(&with_static),
    );
    assert_succeeds(Command::new(&with_static).arg(scratch.0.join("two")));
    found_by_cmake(&scratch, &prefix);
}

/// The headers that TideSQL includes, against an empty prefix, in C and C++: all of them, including
/// `xxhash.h`, come from the prefix alone, also with its inner directory on the path; and the
/// hashes equal those of xxHash.
#[test]
fn tidesql_headers_are_self_contained() {
    if !has_program("cc") || !has_program("ld") {
        return;
    }
    let scratch = TempDir::new("headers");
    let prefix = scratch.0.join("prefix");
    assert_succeeds(
        Command::new("sh").arg(crate_path("install.sh")).arg(library_dir()).arg(&prefix),
    );
    let include = prefix.join("include");
    let inner = include.join("tidesdb");
    let paths: [&[&Path]; 3] = [&[&include], &[&include, &inner], &[&inner, &include]];
    for (compiler, standard) in [("cc", "-std=c11"), ("c++", "-std=c++17")] {
        if !has_program(compiler) {
            continue;
        }
        for (i, path) in paths.iter().enumerate() {
            let source = crate_path("tests/headers/tidesql.c");
            let language = if compiler == "cc" { "c" } else { "c++" };
            let command = |extra: &[&str]| {
                let mut command = Command::new(compiler);
                command.args(STRICT).arg(standard).args(extra);
                for p in *path {
                    command.arg("-I").arg(p);
                }
                if i > 0 {
                    command.arg("-DINNER_PATH");
                }
                command.args(["-x", language]).arg(&source).args(["-x", "none"]);
                command
            };
            let read = String::from_utf8(assert_succeeds(&mut command(&["-M"])).stdout).unwrap();
            let hashes: Vec<&str> =
                read.split_whitespace().filter(|f| f.contains("xxhash")).collect();
            assert!(
                !hashes.is_empty() && hashes.iter().all(|f| Path::new(f).starts_with(&prefix)),
                "{hashes:?}"
            );
            let program = scratch.0.join(format!("tidesql-{language}-{i}"));
            let lib = prefix.join("lib");
            let mut link = command(&["-o", program.to_str().unwrap()]);
            assert_succeeds(
                link.arg("-L")
                    .arg(&lib)
                    .arg("-ltidesdb")
                    .arg(format!("-Wl,-rpath,{}", lib.display())),
            );
            assert_succeeds(&mut Command::new(&program));
        }
    }
}

fn found_by_cmake(scratch: &TempDir, prefix: &Path) {
    if !has_program("cmake") || !has_program("make") {
        return;
    }
    let project = scratch.0.join("project");
    fs::create_dir_all(&project).unwrap();
    let text = format!(
        "cmake_minimum_required(VERSION 3.13)\nproject(tour C)\nfind_package(TidesDB 9.3 REQUIRED)\n\
         add_executable(tour \"{}\")\ntarget_link_libraries(tour TidesDB::tidesdb)\n\
         add_executable(tour_static \"{0}\")\ntarget_link_libraries(tour_static TidesDB::tidesdb_static)\n",
        crate_path("examples/c/tour.c").display()
    );
    fs::write(project.join("CMakeLists.txt"), text).unwrap();
    let build = project.join("build");
    let root = format!("-DCMAKE_PREFIX_PATH={}", prefix.display());
    assert_succeeds(Command::new("cmake").arg("-S").arg(&project).arg("-B").arg(&build).arg(root));
    assert_succeeds(Command::new("cmake").arg("--build").arg(&build));
    for program in ["tour", "tour_static"] {
        assert_succeeds(Command::new(build.join(program)).arg(scratch.0.join(program)));
    }
}

/// Regression programs for faults found in reviews.
#[test]
fn regression_programs_pass() {
    if !has_program("cc") {
        return;
    }
    let scratch = TempDir::new("found");
    let mut ran = 0;
    for entry in fs::read_dir(crate_path("tests/regressions")).unwrap() {
        let source = entry.unwrap().path();
        if source.extension().is_none_or(|e| e != "c") {
            continue;
        }
        let name = source.file_stem().unwrap().to_str().unwrap().to_owned();
        let program = scratch.0.join(&name);
        compile("cc", &[source], &program, &["-std=gnu11", "-w"]);
        let ways: &[&str] = match &name[..] {
            "hook_after_close" | "hook_called_after_removal" => &["close", "drop", "null"],
            "close_during_calls" => &["1"],
            _ => &[""],
        };
        for way in ways {
            let data = scratch.0.join("data");
            fs::create_dir_all(&data).unwrap();
            let mut run = Command::new(&program);
            run.current_dir(&data).env("FOUND_DIR", &data);
            if name.starts_with("documented_") {
                run.arg(&data);
            } else if !way.is_empty() {
                run.arg(way);
            }
            assert_succeeds(&mut run);
            fs::remove_dir_all(&data).unwrap();
            ran += 1;
        }
    }
    assert!(ran > 20, "only {ran} programs ran");
}
