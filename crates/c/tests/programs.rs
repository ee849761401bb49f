//! Compiles the programs in `tests/c` and the examples as a user does, with the shared library that
//! cargo has built, and runs them; once more under AddressSanitizer if the compiler has it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    SANITIZED, TempDir, assert_succeeds, compile, crate_path, has_program, has_sanitizer, stdout_of,
};
use std::fs;
use std::process::Command;

/// Runs a program of `tests/c`, which must make at least this many checks.
fn run(name: &str, compiler: &str, standard: &str, checks_min: u32) {
    let scratch = TempDir::new(name);
    if !has_program(compiler) {
        return;
    }
    let mut builds = vec![vec![standard]];
    if has_sanitizer(compiler, &scratch) {
        builds.push(vec![standard, SANITIZED[0], SANITIZED[1]]);
    }
    for flags in builds {
        let (program, data) = (scratch.path(name), scratch.path("data"));
        fs::create_dir_all(&data).unwrap();
        let source = crate_path("tests/c").join(name);
        let program = program.with_extension("program");
        compile(compiler, &source, &program, &flags);
        let text =
            stdout_of(Command::new(&program).arg(&data).env("ASAN_OPTIONS", "detect_leaks=1"));
        let checks: u32 = text.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(checks >= checks_min, "{name}: only {checks} checks");
        fs::remove_dir_all(&data).unwrap();
    }
}

#[test]
fn reads_writes_and_iterators() {
    run("basics.c", "cc", "-std=gnu99", 150);
}

#[test]
fn errors_and_closing_order() {
    run("errors.c", "cc", "-std=gnu99", 1000);
}

#[test]
fn transactions_and_locks() {
    run("transactions.c", "cc", "-std=gnu99", 80);
}

#[test]
fn large_values_feeds_and_backups() {
    run("maintenance.c", "cc", "-std=gnu99", 5000);
}

#[test]
fn handles_shared_by_threads() {
    run("threads.c", "cc", "-std=gnu99", 10000);
}

#[test]
fn cpp_wrapper() {
    run("wrapper.cpp", "c++", "-std=c++17", 40);
}

/// The header alone, in every dialect, and together with that of the compatible library.
#[test]
fn header_compiles_in_every_dialect() {
    let scratch = TempDir::new("dialects");
    let alone = scratch.path("alone.c");
    fs::write(&alone, "#include <perigee.h>\nint main(void) { return 0; }\n").unwrap();
    let both = crate_path("tests/c/both_headers.c");
    for (compiler, language, standards) in [
        ("cc", "c", &["-std=c99", "-std=c11", "-std=c17"][..]),
        ("c++", "c++", &["-std=c++11", "-std=c++17", "-std=c++20"][..]),
        ("clang", "c", &["-std=c99"][..]),
    ] {
        if !has_program(compiler) {
            continue;
        }
        for standard in standards {
            let mut command = Command::new(compiler);
            command.args(common::STRICT).args([standard, "-fsyntax-only", "-x", language]);
            command.arg("-I").arg(crate_path("include")).arg(&alone);
            assert_succeeds(&mut command);
        }
        let mut command = Command::new(compiler);
        // The other header is not pedantic.
        command.args(["-Wall", "-Wextra", "-Werror", standards[1 % standards.len()]]);
        command.args(["-fsyntax-only", "-x", language, "-I"]).arg(crate_path("include"));
        command.arg("-I").arg(crate_path("../capi/include")).arg(&both);
        assert_succeeds(&mut command);
    }
}

#[test]
fn examples_run() {
    let scratch = TempDir::new("examples");
    for (compiler, source, standard, says) in [
        ("cc", "tour.c", "-std=c99", ["06:12 high", "retries after conflicts"]),
        ("c++", "tour.cpp", "-std=c++17", ["06:12 high", "visits: "]),
    ] {
        if !has_program(compiler) {
            continue;
        }
        let (program, data) = (scratch.path("tour"), scratch.path(&format!("{source}.db")));
        compile(compiler, &crate_path("examples/c").join(source), &program, &[standard]);
        // The second run finds the database of the first one.
        for _ in 0..2 {
            let text = stdout_of(Command::new(&program).arg(&data));
            assert!(says.iter().all(|s| text.contains(s)), "{text}");
        }
    }
}
