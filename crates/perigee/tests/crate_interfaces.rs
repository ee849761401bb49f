//! Interfaces between the crates as tests: what a crate depends on, how many modules it makes
//! public, and how many names it re-exports. A crate is used through a short list of names in its
//! `lib.rs`; then its modules can be moved without changes elsewhere.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of public modules in the `lib.rs` of each crate. May only fall. Modules that
/// contain only documentation or, written in `lib.rs`, only re-exports do not count.
const PUBLIC_MODULES_MAX: [(&str, usize); 11] = [
    ("base", 4),
    ("learned", 0),
    ("env", 2),
    ("file", 3),
    ("tree", 4),
    ("engine", 7),
    ("perigee", 0),
    ("tables_derive", 0),
    ("tables", 0),
    ("sql", 0),
    ("capi", 10),
];

/// Maximum number of names at the root of the public crate, without those in its modules. May only
/// fall.
const ROOT_NAMES_MAX: usize = 51;

/// Maximum number of names that the `lib.rs` of a crate re-exports from its own modules and from
/// the crates below it.
const REEXPORTED_NAMES_MAX: [(&str, usize, usize); 5] =
    [("base", 51, 0), ("env", 23, 0), ("file", 40, 0), ("tree", 23, 0), ("engine", 19, 19)];

/// Maximum number of names in each public module of `engine` that only groups names by subject.
const GROUPED_NAMES_MAX: [(&str, usize); 4] =
    [("backup", 19), ("bulk_load", 4), ("callbacks", 12), ("change_feed", 5)];

/// Maximum number of names in the public modules that are lists of names.
const MODULE_NAMES_MAX: [(&str, usize); 6] = [
    ("env/src/fs/mod.rs", 7),
    ("file/src/log/mod.rs", 27),
    ("tree/src/bulk/mod.rs", 7),
    ("tree/src/compact/mod.rs", 23),
    ("tree/src/read.rs", 27),
    ("tree/src/rewrite/mod.rs", 15),
];

fn crate_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// Returns the code of `lib.rs` without comments.
fn lib_code(name: &str) -> String {
    code_of(name, "lib.rs")
}

/// Returns the code of a file of the crate without comments.
fn code_of(name: &str, file: &str) -> String {
    let text = fs::read_to_string(crate_dir(name).join("src").join(file)).unwrap();
    text.lines().filter(|l| !l.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Returns the names that a list of `pub use` declares; true for those of other crates.
fn reexports(code: &str) -> Vec<(String, bool)> {
    let mut names = Vec::new();
    for statement in code.split(';').filter_map(|s| s.trim().strip_prefix("pub use ")) {
        let foreign = statement.starts_with("perigee_");
        let list = statement.split_once('{').map_or(statement, |(_, list)| list);
        let list = list.trim_end_matches(['}', ' ', '\n']);
        for name in list.split(',').map(str::trim).filter(|n| !n.is_empty()) {
            names.push((name.rsplit([' ', ':']).next().unwrap().to_owned(), foreign));
        }
    }
    names
}

#[test]
fn reexports_are_counted() {
    let names =
        reexports("pub mod a;\npub use a::{B, C as D};\npub use perigee_base::E;\nuse x::F;");
    assert_eq!(names, [("B".into(), false), ("D".into(), false), ("E".into(), true)]);
}

#[test]
fn public_crate_depends_only_on_engine() {
    let manifest = fs::read_to_string(crate_dir("perigee").join("Cargo.toml")).unwrap();
    let dependencies =
        manifest.split("[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
    let layers: Vec<_> = dependencies.lines().filter(|l| l.starts_with("perigee")).collect();
    assert_eq!(layers, ["perigee-engine = { workspace = true }"]);
}

/// Returns `code` without its inline modules.
fn without_inline_modules(code: &str) -> String {
    let mut parts = code.split("\npub mod ");
    let mut root = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let inline = part.lines().next().is_some_and(|l| l.ends_with('{'));
        let rest = if inline { part.split_once("\n}").map_or("", |(_, rest)| rest) } else { part };
        root += "\n";
        root += rest;
    }
    root
}

#[test]
fn inline_modules_are_removed() {
    let code = "mod a;\npub mod b {\n    pub use a::C;\n}\npub use a::D;\npub mod e;\nuse f::G;";
    let root = without_inline_modules(code);
    assert_eq!(reexports(&root), [("D".into(), false)]);
    assert!(root.contains("use f::G;") && !root.contains('C'));
}

#[test]
fn root_of_the_public_crate_exports_few_names() {
    let names = reexports(&without_inline_modules(&lib_code("perigee")));
    let n = names.len();
    assert!(n > 30, "only {n} names were found");
    assert!(n <= ROOT_NAMES_MAX, "{n} names at the root: group them in a module: {names:#?}");
}

#[test]
fn number_of_public_modules_only_falls() {
    for (name, max) in PUBLIC_MODULES_MAX {
        let code = lib_code(name);
        let declared = |l: &&str| l.starts_with("pub mod ") && l.ends_with(';');
        let public: Vec<_> =
            code.lines().filter(declared).filter(|l| *l != "pub mod guide;").collect();
        let n = public.len();
        assert!(n <= max, "{n} public modules in {name}, at most {max} may exist: {public:#?}");
    }
}

#[test]
fn public_modules_reexport_few_names() {
    for (path, max) in MODULE_NAMES_MAX {
        let (name, file) = path.split_once("/src/").unwrap();
        let code = code_of(name, file);
        let n = reexports(&code).len();
        assert!((1..=max).contains(&n), "{path} re-exports {n} names, at most {max}");
        let public: Vec<_> = code.lines().filter(|l| l.starts_with("pub mod ")).collect();
        assert!(public.is_empty() || public == ["pub mod memory;"], "{path} has {public:?}");
    }
}

#[test]
fn layers_reexport_few_names() {
    for (name, own_max, foreign_max) in REEXPORTED_NAMES_MAX {
        let names = reexports(&lib_code(name));
        let (foreign, own): (Vec<_>, Vec<_>) = names.into_iter().partition(|(_, foreign)| *foreign);
        let (n, m) = (own.len(), foreign.len());
        assert!(n <= own_max, "{name} re-exports {n} names of its own, at most {own_max}");
        assert!(
            m <= foreign_max,
            "{name} re-exports {m} names of other crates, at most {foreign_max}"
        );
    }
}

#[test]
fn modules_of_engine_group_few_names() {
    for (module, max) in GROUPED_NAMES_MAX {
        let code = code_of("engine", &format!("{module}.rs"));
        let names = reexports(&code);
        assert!(names.len() <= max, "engine::{module} has {} names, at most {max}", names.len());
        let others = code.lines().filter(|l| l.starts_with("pub ") && !l.starts_with("pub use "));
        assert_eq!(others.count(), 0, "engine::{module} only groups names");
    }
}
