//! Public methods have an example of their own in their documentation.
#![allow(clippy::unwrap_used)]

#[path = "common/sources.rs"]
mod sources;

use sources::rust_files;
use std::fs;
use std::path::Path;

/// Files without methods that need one: setters of options, whose type has the example.
const OPTION_FILES: [&str; 2] = ["options/mod.rs", "options/table.rs"];

/// Returns the public functions of a source file without an example, as `file: name`. Setters
/// (`mut self`), hidden functions and methods defined by macros are exempt.
fn functions_without_example(file: &str, text: &str) -> Vec<String> {
    let (mut found, mut example, mut hidden, mut in_macro) = (Vec::new(), false, false, false);
    for line in text.lines() {
        let code = line.trim_start();
        in_macro = line.starts_with("macro_rules!") || in_macro && line != "}";
        if code.starts_with("///") {
            example |= code.starts_with("/// ```");
        } else if code.starts_with("#[") {
            hidden |= code == "#[doc(hidden)]";
        } else {
            if let Some(rest) = code.strip_prefix("pub fn ") {
                let name = rest.split(['(', '<']).next().unwrap();
                let setter = rest.contains("(mut self");
                if !(example || hidden || in_macro || setter) {
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
                pub fn f<T>() {}\npub(crate) fn g() {}\n";
    assert_eq!(functions_without_example("x.rs", text), ["x.rs: b", "x.rs: f"]);
}

#[test]
fn public_methods_have_an_example() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut missing, mut files) = (Vec::new(), 0);
    for file in rust_files(&src) {
        let name = file.strip_prefix(&src).unwrap().to_str().unwrap();
        if !OPTION_FILES.contains(&name) {
            files += 1;
            missing.extend(functions_without_example(name, &fs::read_to_string(&file).unwrap()));
        }
    }
    missing.sort();
    assert!(files > 30, "only {files} files were read");
    assert!(missing.is_empty(), "{} without an example: {missing:#?}", missing.len());
}
