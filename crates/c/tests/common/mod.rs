//! Compilers, scratch directories and the library built by cargo.
#![allow(dead_code, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"];
pub const SANITIZED: [&str; 2] = ["-fsanitize=address", "-fno-omit-frame-pointer"];

pub fn crate_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub fn root() -> PathBuf {
    crate_path("../..").canonicalize().unwrap()
}

/// Directory in which cargo puts the libraries of this build: `target/PROFILE/deps`.
pub fn library_dir() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    assert!(deps.join("libperigee_c.so").exists(), "no libperigee_c.so in {}", deps.display());
    deps
}

/// Returns true if the program can be run; tests that need a missing one are skipped with a
/// message.
pub fn has_program(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    if !there {
        eprintln!("\n*** {program} is not installed: a test of the C library was SKIPPED ***\n");
    }
    there
}

/// A temporary directory that is removed at the end.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("perigee-c-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn assert_succeeds(command: &mut Command) -> Output {
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

pub fn stdout_of(command: &mut Command) -> String {
    String::from_utf8(assert_succeeds(command).stdout).unwrap()
}

/// Returns true if the compiler has AddressSanitizer with its runtime library.
pub fn has_sanitizer(compiler: &str, scratch: &TempDir) -> bool {
    let (source, out) = (scratch.path("none.c"), scratch.path("none"));
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let linked = Command::new(compiler).args(SANITIZED).arg(&source).arg("-o").arg(&out).output();
    let has = linked.is_ok_and(|o| o.status.success())
        && Command::new(&out).output().is_ok_and(|o| o.status.success());
    if !has {
        eprintln!("\n*** {compiler} has no AddressSanitizer: SKIPPED ***\n");
    }
    has
}

/// Compiles a program against the headers of the source tree and the library built by cargo.
pub fn compile(compiler: &str, source: &Path, out: &Path, flags: &[&str]) {
    let (built, lib) = (library_dir(), out.parent().unwrap());
    for name in ["libperigee.so", "libperigee.so.0"] {
        if !lib.join(name).exists() {
            std::os::unix::fs::symlink(built.join("libperigee_c.so"), lib.join(name)).unwrap();
        }
    }
    let mut command = Command::new(compiler);
    command.args(STRICT).args(flags).arg("-I").arg(crate_path("include")).arg(source);
    command.arg("-o").arg(out).arg("-L").arg(lib).arg(format!("-Wl,-rpath,{}", lib.display()));
    assert_succeeds(command.args(["-lperigee", "-lpthread"]));
}

/// Returns the names of the defined global symbols of a library.
pub fn symbols(flags: &[&str], library: &Path) -> Vec<String> {
    let text = stdout_of(Command::new("nm").args(flags).arg("--defined-only").arg(library));
    text.lines().filter_map(|l| l.split_whitespace().nth(2)).map(str::to_owned).collect()
}

/// A function of the header: its name, its declaration and the comment above it.
pub struct Function {
    pub name: String,
    pub declaration: String,
    pub comment: String,
}

/// An item of the header, in order.
pub enum HeaderItem {
    /// A heading: `/* ==== Text ==== */`.
    Section(String),
    Function(Function),
    /// A type, with the comment above it.
    Type {
        comment: String,
        text: String,
    },
}

/// Returns the text of a comment, without its delimiters; paragraphs are separated by blank lines.
fn comment_text(comment: &str) -> String {
    let inner = comment.trim_start_matches("/*").trim_end_matches("*/");
    let lines = inner.lines().map(|l| l.trim().trim_start_matches('*').trim());
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// Parses the part of the header after `extern "C"`.
pub fn header_items() -> Vec<HeaderItem> {
    let header = fs::read_to_string(crate_path("include/perigee.h")).unwrap();
    let (_, body) = header.split_once("extern \"C\" {\n#endif\n").unwrap();
    let (body, _) = body.split_once("#ifdef __cplusplus").unwrap();
    let mut items = Vec::new();
    for block in body.split("\n\n").map(str::trim).filter(|b| !b.is_empty()) {
        if let Some(title) = block.strip_prefix("/* ==== ") {
            items.push(HeaderItem::Section(title.trim_end_matches(" ==== */").to_owned()));
            continue;
        }
        assert!(block.starts_with("/*"), "without a comment: {block}");
        let (comment, text) = block.split_once("*/\n").unwrap_or_else(|| panic!("{block}"));
        let (comment, text) = (comment_text(comment), text.trim().to_owned());
        if text.starts_with("typedef") || text.starts_with("enum") {
            items.push(HeaderItem::Type { comment, text });
        } else {
            let name = text.split('(').next().unwrap().rsplit([' ', '*']).next().unwrap();
            let name = name.to_owned();
            items.push(HeaderItem::Function(Function { name, declaration: text, comment }));
        }
    }
    items
}

/// Returns the functions of the header.
pub fn header_functions() -> Vec<Function> {
    let functions = header_items().into_iter().filter_map(|item| match item {
        HeaderItem::Function(function) => Some(function),
        _ => None,
    });
    functions.collect()
}
