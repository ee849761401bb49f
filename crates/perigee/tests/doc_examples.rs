//! Public methods have an example of their own in their documentation.
#![allow(clippy::unwrap_used)]

#[path = "common/sources.rs"]
mod sources;

use sources::rust_files;
use std::fs;
use std::path::{Path, PathBuf};

/// Files of `perigee` without methods that need one: setters of options, whose type has the
/// example.
const OPTION_FILES: [&str; 2] = ["options/mod.rs", "options/table.rs"];

/// Crates above `perigee` that are checked, too. Their functions are `pub` for other modules of the
/// crate, so only those of exported names count.
const TABLE_CRATES: [&str; 3] = ["tables", "tables_derive", "sql"];

fn src_of(crate_name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(crate_name).join("src")
}

/// Returns the names that the root of a crate exports, except hidden ones.
fn exported_names(lib: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut parts = lib.split("\npub use ");
    let mut hidden = parts.next().is_some_and(|before| before.ends_with("#[doc(hidden)]"));
    for part in parts {
        let list = part.split(';').next().unwrap();
        let list = list.rsplit_once("::").map_or(list, |(_, list)| list);
        if !hidden {
            let list = list.split(['{', '}', ',']).map(str::trim).filter(|n| !n.is_empty());
            names.extend(list.map(str::to_owned));
        }
        hidden = part.ends_with("#[doc(hidden)]");
    }
    names
}

/// Returns the type of an inherent `impl` block that begins in this line; `None` for an
/// implementation of a trait.
fn implemented_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let mut depth = 0;
    let end = rest.char_indices().find(|(i, c)| {
        depth += i32::from(*c == '<');
        depth -= i32::from(*c == '>' && !rest[..*i].ends_with('-'));
        depth == 0 && !c.is_whitespace() && *c != '>'
    });
    let rest = &rest[end?.0..];
    if rest.contains(" for ") {
        return None;
    }
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Returns the public functions of a source file without an example, as `file: name`. Setters
/// (`mut self`), hidden functions and methods defined by macros are exempt. With `exported`, only
/// functions and methods of types with these names count.
fn functions_without_example(file: &str, text: &str, exported: Option<&[String]>) -> Vec<String> {
    let (mut found, mut example, mut hidden, mut in_macro) = (Vec::new(), false, false, false);
    let mut in_type = None;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        in_macro = line.starts_with("macro_rules!") || in_macro && line != "}";
        if line.starts_with("impl") {
            in_type = implemented_type(line);
        }
        if code.starts_with("///") {
            example |= code.starts_with("/// ```");
        } else if code.starts_with("#[") {
            hidden |= code == "#[doc(hidden)]";
        } else {
            let signature = ["pub fn ", "pub async fn "].iter().find_map(|p| code.strip_prefix(p));
            if let Some(rest) = signature {
                let name = rest.split(['(', '<']).next().unwrap();
                let next = lines.peek().map_or("", |l| l.trim_start());
                let setter = rest.contains("(mut self") || next.starts_with("mut self");
                let owner = if line.starts_with(' ') { in_type } else { Some(name) };
                let is_public = exported.is_none_or(|exported| {
                    owner.is_some_and(|owner| exported.iter().any(|n| n == owner))
                });
                if is_public && !(example || hidden || in_macro || setter) {
                    found.push(format!("{file}: {name}"));
                }
            }
            (example, hidden) = (false, false);
        }
    }
    found
}

#[test]
fn functions_without_example_are_found() {
    let text = "/// Text.\n///\n/// ```\n/// ```\n#[inline]\npub fn a() {}\n/// Text.\n    pub fn b() {}\n\
                pub fn c(mut self) {}\n#[doc(hidden)]\npub fn d() {}\nmacro_rules! m {\n    pub fn e() {}\n}\n\
                pub fn f<T>() {}\npub(crate) fn g() {}\npub async fn h() {}\npub fn i(\n    mut self,\n) {}\n";
    assert_eq!(functions_without_example("x.rs", text, None), ["x.rs: b", "x.rs: f", "x.rs: h"]);
}

#[test]
fn functions_of_exported_names_count() {
    let lib = "mod a;\npub use a::{A, B};\n#[doc(hidden)]\npub use a::Hidden;\npub use a::C;\n\
               pub mod m {\n    pub use a::Inner;\n}\n";
    assert_eq!(exported_names(lib), ["A", "B", "C"]);
    let text = "impl<'a, R: Fn(u8) -> u8> A<'a, R> {\n    pub fn a(&self) {}\n}\nimpl Hidden {\n    \
                pub fn b(&self) {}\n}\nimpl X for B {\n    pub fn c() {}\n}\npub fn C() {}\npub fn D() {}\n";
    let found = functions_without_example("x.rs", text, Some(&exported_names(lib)));
    assert_eq!(found, ["x.rs: a", "x.rs: C"]);
}

/// Returns the functions of a crate without an example, and the number of files read.
fn check_crate(crate_name: &str, exported: Option<&[String]>) -> (Vec<String>, usize) {
    let src = src_of(crate_name);
    let (mut missing, mut files) = (Vec::new(), 0);
    for file in rust_files(&src) {
        let name = file.strip_prefix(&src).unwrap().to_str().unwrap();
        if crate_name != "perigee" || !OPTION_FILES.contains(&name) {
            files += 1;
            let text = fs::read_to_string(&file).unwrap();
            missing.extend(functions_without_example(name, &text, exported));
        }
    }
    missing.sort();
    (missing, files)
}

#[test]
fn public_methods_have_an_example() {
    let (missing, files) = check_crate("perigee", None);
    assert!(files > 30, "only {files} files were read");
    assert!(missing.is_empty(), "{} without an example: {missing:#?}", missing.len());
}

#[test]
fn public_methods_of_tables_and_sql_have_an_example() {
    for crate_name in TABLE_CRATES {
        let lib = fs::read_to_string(src_of(crate_name).join("lib.rs")).unwrap();
        let exported = exported_names(&lib);
        assert_eq!(exported.is_empty(), crate_name == "tables_derive", "{crate_name}");
        let (missing, _) = check_crate(crate_name, Some(&exported));
        assert!(missing.is_empty(), "{crate_name}, without an example: {missing:#?}");
    }
}
