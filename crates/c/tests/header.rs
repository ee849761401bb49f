//! The header: it declares what the library exports, documents every function, and shares no name
//! with the header of the compatible library. `docs/c-reference.md` is generated from it
//! (`UPDATE_DOCS=1 cargo test -p perigeedb-c --test header`).
#![allow(clippy::unwrap_used)]

mod common;

use common::{Function, HeaderItem, crate_path, header_functions, header_items, root};
use std::collections::BTreeSet;
use std::fs;

#[test]
fn declared_functions_are_exported_and_nothing_else() {
    if !common::has_program("nm") {
        return;
    }
    let exported: BTreeSet<String> =
        common::symbols(&["-D"], &common::library_dir().join("libperigee_c.so"))
            .into_iter()
            .collect();
    let declared: BTreeSet<String> = header_functions().into_iter().map(|f| f.name).collect();
    assert!(declared.len() > 100, "only {} functions were found", declared.len());
    let missing: Vec<_> = declared.difference(&exported).collect();
    assert!(missing.is_empty(), "declared, but not exported: {missing:?}");
    let others: Vec<_> = exported.difference(&declared).collect();
    assert!(others.is_empty(), "exported, but not declared: {others:?}");
}

/// Returns the documentation of a tag, such as `Errors`, if there is one.
fn tag<'a>(comment: &'a str, name: &str) -> Option<&'a str> {
    comment.split_once(&format!("{name}:")).map(|(_, rest)| rest.trim_start())
}

#[test]
fn every_function_is_documented() {
    for Function { name, declaration, comment } in header_functions() {
        assert!(tag(&comment, "Errors").is_some(), "{name}: no line \"Errors:\"");
        let threads = tag(&comment, "Threads").unwrap_or_else(|| panic!("{name}: no \"Threads:\""));
        assert!(threads.starts_with("any") || threads.starts_with("one"), "{name}: {threads}");
        let first = comment.split([' ', '.', ',', ':']).next().unwrap();
        assert!(first.ends_with('s') || first == "With", "{name}: starts with {first:?}");
        // A pointer to a pointer is a result that the caller owns, except for the error.
        let results = declaration.replace("perigee_error **error", "");
        if results.contains("**") || results.contains("perigee_pinned *") {
            let is_release = name.ends_with("_release");
            assert!(
                is_release || tag(&comment, "Ownership").is_some(),
                "{name}: no \"Ownership:\""
            );
        }
        for word in comment.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if word.starts_with("perigee_") && !word.ends_with('_') {
                let header = fs::read_to_string(crate_path("include/perigee.h")).unwrap();
                assert!(header.matches(word).count() > 1, "{name} mentions {word}");
            }
        }
    }
}

/// Returns the words of a header that begin with the prefix of the library.
fn names(path: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(crate_path(path)).unwrap();
    let mut code = String::new();
    for part in text.split("/*") {
        code.push_str(part.split_once("*/").map_or(part, |(_, code)| code));
    }
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    let ours = |w: &&str| w.to_lowercase().starts_with("perigee_") || w.starts_with("PERIGEE");
    words.filter(ours).map(str::to_owned).collect()
}

#[test]
fn no_name_is_also_in_the_header_of_the_compatible_library() {
    let theirs = names("../capi/include/tidesdb/perigee.h");
    assert!(theirs.len() > 40 && theirs.contains("perigee_open"));
    let both: Vec<_> = names("include/perigee.h").intersection(&theirs).cloned().collect();
    assert!(both.is_empty(), "in both headers: {both:?}");
}

#[test]
fn version_of_the_header_is_that_of_the_package() {
    let header = fs::read_to_string(crate_path("include/perigee.h")).unwrap();
    for (name, value) in [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ] {
        assert!(header.contains(&format!("#define PERIGEE_VERSION_{name} {value}\n")), "{name}");
    }
}

/// Returns the introduction of the header: its first comment.
fn introduction() -> String {
    let header = fs::read_to_string(crate_path("include/perigee.h")).unwrap();
    let (comment, _) = header.split_once("\n */").unwrap();
    let lines = comment.trim_start_matches("/*").lines();
    let lines = lines.map(|l| l.strip_prefix(" * ").unwrap_or(l.trim_start_matches(" *")));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// Wraps text to 118 columns.
fn wrap(text: &str) -> String {
    let (mut out, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > 118 {
            out += &(std::mem::take(&mut line) + "\n");
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    out + &line
}

/// Escapes characters that Markdown would interpret.
fn plain(text: &str) -> String {
    text.replace('*', "\\*").replace('<', "\\<")
}

fn reference() -> String {
    let mut out = String::from(
        "# Reference of the C library\n\n<!-- Generated from crates/c/include/perigee.h by `UPDATE_DOCS=1 \
         cargo test -p perigeedb-c --test header`: do not edit. -->\n\n\
         The header [perigee.h](../crates/c/include/perigee.h) as a page. How to install and link the library:\n\
         [c-api.md](c-api.md).\n\n",
    );
    out += "```text\n";
    out += &introduction();
    out += "\n```\n";
    for item in header_items() {
        match item {
            HeaderItem::Section(title) => out += &format!("\n## {title}\n"),
            HeaderItem::Function(f) => {
                out += &format!("\n### {}\n```c\n{}\n```\n", f.name, f.declaration);
                let text = plain(&f.comment.replace('\n', " "));
                let start = ["Ownership:", "Errors:", "Threads:"];
                let at = start.iter().filter_map(|t| text.find(t)).min().unwrap_or(text.len());
                out += &format!("{}\n", wrap(&text[..at]));
                out += &format!("\n{}\n", wrap(&text[at..]));
            }
            HeaderItem::Type { comment, text } => {
                let comment = plain(&comment.replace('\n', " "));
                out += &format!("\n{}\n```c\n{text}\n```\n", wrap(&comment));
            }
        }
    }
    out
}

#[test]
fn reference_page_is_up_to_date() {
    let path = root().join("docs/c-reference.md");
    let expected = reference();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, expected).unwrap();
        return;
    }
    let current = fs::read_to_string(&path).unwrap_or_default();
    let command = "UPDATE_DOCS=1 cargo test -p perigeedb-c --test header";
    assert!(current == expected, "docs/c-reference.md is not up to date: run {command}");
}
