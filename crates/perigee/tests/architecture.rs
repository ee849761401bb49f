//! Structural rules as tests: layers, module order, system calls only in `env`, unique type names,
//! line width, plain English.
//!
//! Most single-crate engines have nearly all modules in one dependency cycle, and engines with a
//! simulator lose determinism through one stray call of the system clock. Reviews miss such
//! changes; a test does not.
#![allow(clippy::unwrap_used)]

#[path = "common/sources.rs"]
mod sources;

use sources::rust_files;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers, bottom-up: a crate depends only on those before it.
const LAYERS: [&str; 18] = [
    "base",
    "env",
    "file",
    "tree",
    "engine",
    "perigee",
    "learned",
    "compaction_sim",
    "tables_derive",
    "tables",
    "tokio",
    "sql",
    "c_boundary",
    "c",
    "capi",
    "cli",
    "bench",
    "sim",
];

/// Crates that the engine must not depend on, directly or indirectly.
const OUTSIDE_THE_ENGINE: [&str; 6] =
    ["learned", "compaction_sim", "tables_derive", "tables", "tokio", "sql"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the code of a file without its tests and comments.
fn code_without_tests(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
    text.lines().filter(|l| !l.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_test(path: &Path) -> bool {
    let name = path.file_stem().unwrap().to_str().unwrap();
    // The path of the repository itself may contain such a name.
    let inside = path.strip_prefix(root()).unwrap_or(path);
    name == "tests"
        || name.ends_with("_tests")
        || name == "testing"
        || inside.iter().any(|p| p == "tests")
}

#[test]
fn a_crate_uses_only_the_layers_below_it() {
    for (level, name) in LAYERS.iter().enumerate() {
        let manifest =
            fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        for line in manifest.lines().filter(|l| l.starts_with("perigee")) {
            let dep = line.split([' ', '=', '.']).next().unwrap();
            let dep = dep.strip_prefix("perigee-").unwrap_or("perigee").replace('-', "_");
            let below = LAYERS
                .iter()
                .position(|l| *l == dep)
                .unwrap_or_else(|| panic!("{dep} has no layer"));
            // A crate is its own dev-dependency to test with its features on.
            assert!(below < level || dep == *name, "crates/{name} may not use {dep}");
        }
    }
}

#[test]
fn engine_does_not_depend_on_tools() {
    for name in ["base", "env", "file", "tree", "engine", "perigee", "capi"] {
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).unwrap();
        for tool in OUTSIDE_THE_ENGINE {
            let package = format!("perigee-{}", tool.replace('_', "-"));
            assert!(!manifest.contains(&package), "crates/{name} must not depend on {package}");
        }
    }
}

/// Modules that `mod.rs` or `lib.rs` declares, in order.
fn declared_modules(file: &Path) -> Vec<String> {
    let take = |l: &str| {
        Some(
            l.trim_start_matches("pub ")
                .trim_start_matches("pub(crate) ")
                .strip_prefix("mod ")?
                .strip_suffix(';')?
                .to_owned(),
        )
    };
    code_without_tests(file).lines().filter_map(take).collect()
}

/// Every mention of `from::NAME` in the file.
fn mentions(text: &str, from: &str) -> Vec<String> {
    let word =
        |s: &str| s.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut all = Vec::new();
    for rest in text.split(from).skip(1) {
        match rest.strip_prefix('{') {
            Some(list) => {
                all.extend(list.split('}').next().unwrap_or("").split(',').map(|i| word(i.trim())))
            }
            None => all.push(word(rest)),
        }
    }
    all
}

#[test]
fn modules_use_only_those_declared_before_them() {
    let mut checked = 0;
    let mut wrong: Vec<String> = Vec::new();
    let crates = LAYERS.iter().filter(|n| !["cli", "bench", "sim"].contains(n));
    for crate_name in crates {
        let src = root().join("crates").join(crate_name).join("src");
        for parent in
            rust_files(&src).iter().filter(|p| p.ends_with("lib.rs") || p.ends_with("mod.rs"))
        {
            let order = declared_modules(parent);
            let dir = parent.parent().unwrap();
            let top = parent.ends_with("lib.rs");
            for (i, module) in order.iter().enumerate() {
                let mut files = rust_files(&dir.join(module));
                files.push(dir.join(format!("{module}.rs")));
                for file in files.iter().filter(|f| f.exists() && !is_test(f)) {
                    let text = code_without_tests(file);
                    // Neighbors in a directory are named by their full path or from `super`.
                    let direct =
                        file.parent() == Some(dir) || file.ends_with(format!("{module}/mod.rs"));
                    let path = dir.strip_prefix(&src).unwrap_or(dir);
                    let path: String = path.iter().map(|p| format!("{}::", p.display())).collect();
                    let mut names = mentions(&text, &format!("crate::{path}"));
                    if !top && direct {
                        names.extend(mentions(&text, "super::"));
                    }
                    for name in &names {
                        if let Some(j) = order.iter().position(|m| m == name) {
                            checked += 1;
                            if j > i {
                                wrong.push(format!("{}: `{module}` uses `{name}`", file.display()));
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "modules that use modules declared after them: {wrong:#?}");
    assert!(checked > 150, "only {checked} uses of modules were found");
}

/// Most source files that a directory of a crate may have. May only fall.
const SIBLING_FILES_MAX: [(&str, usize); 9] = [
    ("base", 27),
    ("env", 11),
    ("file", 20),
    ("tree", 20),
    ("engine", 16),
    ("perigee", 12),
    ("tables", 22),
    ("tables_derive", 4),
    ("sql", 19),
];

#[test]
fn directories_have_few_sibling_files() {
    for (crate_name, max) in SIBLING_FILES_MAX {
        let mut files: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for file in rust_files(&root().join("crates").join(crate_name).join("src")) {
            *files.entry(file.parent().unwrap().to_owned()).or_default() += 1;
        }
        assert!(!files.is_empty(), "no directory of {crate_name} was found");
        files.retain(|_, count| *count > max);
        assert!(files.is_empty(), "directories with too many files: {files:#?}");
    }
}

/// Most public fields that a struct of the engine may have.
const PUBLIC_FIELDS_MAX: usize = 15;

/// Structs without behavior that may have more: the options, the statistics, the parts of an edit
/// in the manifest format, and what a replay of the log has found.
const LARGE_RECORDS: [&str; 4] = ["Settings", "Stats", "ManifestEdit", "ReplayResult"];

/// Returns the structs that a file defines, each with the number of its public fields.
fn public_fields(text: &str) -> Vec<(String, usize)> {
    let mut structs: Vec<(String, usize)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.contains("struct ") && line.ends_with('{') && !line.starts_with(' ') {
            structs.extend(defined_type(line).map(|name| (name.to_owned(), 0)));
            inside = true;
        } else if line.starts_with('}') {
            inside = false;
        } else if inside && line.starts_with("    pub") {
            structs.last_mut().unwrap().1 += 1;
        }
    }
    structs
}

#[test]
fn engine_structs_have_few_public_fields() {
    let sample = "pub struct One {\n    pub a: u8,\n    pub(crate) b: u8,\n    c: u8,\n}\n";
    assert_eq!(public_fields(sample), [("One".to_owned(), 2)]);
    let mut large = Vec::new();
    for file in rust_files(&root().join("crates/engine/src")) {
        for (name, fields) in public_fields(&code_without_tests(&file)) {
            if fields > PUBLIC_FIELDS_MAX && !LARGE_RECORDS.contains(&name.as_str()) {
                large.push(format!("{}: {name} has {fields}", file.display()));
            }
        }
    }
    assert!(large.is_empty(), "structs with too many public fields: {large:#?}");
}

/// The subsystems of the engine, bottom-up, with the directories that they are defined in.
const SUBSYSTEMS: [(&str, &str); 6] = [
    ("runtime", "Runtime"),
    ("resources", "Resources"),
    ("catalog", "Catalog"),
    ("txn", "TxnManager"),
    ("log", "Log"),
    ("maintenance", "Maintenance"),
];

#[test]
fn subsystems_are_in_layer_order_with_private_state() {
    let src = root().join("crates/engine/src");
    let modules = declared_modules(&src.join("lib.rs"));
    let position = |name: &str| modules.iter().position(|m| m == name).unwrap();
    assert!(SUBSYSTEMS.windows(2).all(|pair| position(pair[0].0) < position(pair[1].0)));
    // Above the lowest subsystem, only the subsystems below are public.
    for (level, (directory, name)) in SUBSYSTEMS.iter().enumerate().skip(1) {
        let text = code_without_tests(&src.join(directory).join("mod.rs"));
        let (_, fields) = text.split_once(&format!("pub struct {name} {{")).unwrap();
        let public = fields.split("\n}").next().unwrap().matches("    pub ").count();
        assert!(public <= level, "{name} has {public} public fields");
    }
}

#[test]
fn system_calls_only_in_env() {
    let banned = [
        "std::fs",
        "std::time::Instant",
        "std::time::SystemTime",
        "SystemTime::now",
        "Instant::now",
        "std::thread",
        "std::net",
        "std::env::",
        "rand::random",
    ];
    // A server is sockets and the files of its certificate: the simulator does not run it.
    let server = root().join("crates/sql/src/server");
    let mut files = 0;
    let outside = ["env", "c_boundary", "capi", "cli", "bench", "sim"];
    for crate_name in LAYERS.iter().filter(|n| !outside.contains(n)) {
        for file in rust_files(&root().join("crates").join(crate_name).join("src"))
            .iter()
            .filter(|f| !is_test(f) && !f.starts_with(&server))
        {
            files += 1;
            let text = code_without_tests(file);
            for word in banned {
                assert!(
                    !text.contains(word),
                    "{} uses {word}: system calls belong in env",
                    file.display()
                );
            }
        }
    }
    assert!(files > 300, "only {files} files were read");
}

#[test]
fn files_have_module_docs_and_at_most_700_lines() {
    for file in rust_files(&root().join("crates")) {
        if file.iter().any(|p| p == "target") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//!"), "{} does not start with a //! comment", file.display());
        let lines = text.lines().count();
        assert!(lines <= 700, "{} has {lines} lines: split it", file.display());
    }
}

#[test]
fn unsafe_code_only_in_listed_files() {
    // LMDB (memory maps) and TidesDB (a C library) are unsafe to use. `env` calls the system where
    // the standard library does not. `AppendBuffer` is read before its end while it grows.
    let may = [
        "bench/src/engines/lmdb.rs",
        "bench/src/engines/tidesdb.rs",
        "cli/src/foreign/lmdb.rs",
        "cli/tests/foreign_lmdb.rs",
        "cli/src/foreign/tidesdb/api.rs",
        "cli/src/foreign/tidesdb/expiry_chain.rs",
        "env/src/fs/posix/heap.rs",
        "env/src/fs/posix/macos.rs",
        "env/src/fs/posix/write_back.rs",
        "env/src/fs/windows/system.rs",
        "env/src/fork.rs",
        "base/src/raw_bytes.rs",
        "base/src/append_buffer.rs",
        "base/tests/append_buffer_loom.rs",
    ]
    .map(|f| root().join("crates").join(f));
    // The C interfaces cannot be written without unsafe code.
    let c_interfaces = ["c_boundary", "c", "capi"].map(|name| root().join("crates").join(name));
    let is_c_interface = |f: &PathBuf| c_interfaces.iter().any(|dir| f.starts_with(dir));
    let ours = |f: &&PathBuf| !may.contains(f) && !is_c_interface(f);
    for file in rust_files(&root().join("crates")).iter().filter(ours) {
        let text = code_without_tests(file);
        let word = ["un", "safe "].concat();
        for (n, line) in text.lines().enumerate() {
            let allowed = line.contains("unsafe_code") || line.contains("unsafe_op");
            assert!(
                allowed || !line.contains(&word) || line.contains('"'),
                "{}:{n}: unsafe",
                file.display()
            );
        }
    }
}

#[test]
fn documentation_links_resolve() {
    let mut dead = BTreeMap::new();
    let docs =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs", "docs/format"];
    let pages = docs.iter().flat_map(|d| {
        let path = root().join(d);
        if path.is_dir() {
            fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect()
        } else {
            vec![path]
        }
    });
    for page in pages.filter(|p| p.extension().is_some_and(|e| e == "md")) {
        let text = fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap();
            if !target.is_empty()
                && !target.contains("://")
                && !page.parent().unwrap().join(target).exists()
            {
                dead.insert(page.display().to_string(), link.to_owned());
            }
        }
    }
    assert!(dead.is_empty(), "dead links: {dead:#?}");
}

#[test]
fn only_install_changes_the_catalog_of_an_open_database() {
    let calls = [
        ".commit_edit(",
        ".rewrite_if_large(",
        ".install_version(",
        ".mark_dropped(",
        ".begin_epoch(",
        ".add_replaced(",
    ];
    let mut calls_found = 0;
    for file in rust_files(&root().join("crates/engine/src")).iter().filter(|f| !is_test(f)) {
        let text = code_without_tests(file);
        let found: Vec<_> = calls.iter().filter(|call| text.contains(**call)).collect();
        // The path of the repository itself may contain such a name.
        let inside_src = file.strip_prefix(root()).unwrap_or(file);
        let [install, manifest] =
            ["install", "manifest"].map(|dir| inside_src.iter().any(|p| p == dir));
        // A read-only open changes versions before the database is in use.
        let may = install || file.ends_with("recover/read_only.rs");
        calls_found += usize::from(install) * found.len();
        assert!(may || found.is_empty(), "{} calls {found:?}", file.display());
        assert!(
            !(install || manifest) || !text.contains("FnOnce"),
            "{} takes a closure",
            file.display()
        );
    }
    assert!(calls_found >= 5, "only {calls_found} calls were found");
}

/// The crates whose type names are unique together.
const ENGINE_CRATES: [&str; 7] = ["base", "learned", "env", "file", "tree", "engine", "perigee"];

/// Returns the name of the type that a line of code defines.
fn defined_type(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
        Some(restricted) => restricted.split_once(')').map_or("", |(_, rest)| rest),
        None => rest,
    });
    let keywords = ["struct ", "enum ", "trait ", "unsafe trait ", "union ", "type "];
    let name = keywords.iter().find_map(|k| line.trim_start().strip_prefix(k))?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|n| !n.is_empty())
}

#[test]
fn type_names_are_unique_within_engine_crates() {
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for crate_name in ENGINE_CRATES {
        let files = rust_files(&root().join("crates").join(crate_name).join("src"));
        for file in files.iter().filter(|f| !is_test(f)) {
            let text = code_without_tests(file);
            // An indented `type` is an associated type of an implementation.
            let associated = |l: &str| l.starts_with(' ') && l.trim_start().starts_with("type ");
            for name in text.lines().filter(|l| !associated(l)).filter_map(defined_type) {
                let file = file.strip_prefix(root().join("crates")).unwrap_or(file);
                defined.entry(name.to_owned()).or_default().push(file.display().to_string());
            }
        }
    }
    assert!(defined.len() > 500, "only {} types were found", defined.len());
    defined.retain(|_, files| files.len() > 1);
    assert!(defined.is_empty(), "types with the same name: {defined:#?}");
}

/// Maximum number of code lines per assertion, by crate: lower it when a crate has become denser.
const LINES_PER_ASSERTION_MAX: [(&str, usize); 6] =
    [("base", 70), ("env", 84), ("file", 72), ("tree", 80), ("engine", 80), ("perigee", 230)];

/// Assertions are `check!`, `check_slow!` and constant ones. `fuzz.rs` contains tests.
#[test]
fn code_states_its_invariants() {
    let mut failed = Vec::new();
    for (crate_name, max) in LINES_PER_ASSERTION_MAX {
        let (mut lines, mut assertions) = (0, 0);
        let files = rust_files(&root().join("crates").join(crate_name).join("src"));
        for file in files.iter().filter(|f| !is_test(f) && !f.ends_with("fuzz.rs")) {
            let text = code_without_tests(file);
            for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
                lines += 1;
                let own = line.starts_with("check!(") || line.starts_with("check_slow!(");
                let constant = line.starts_with("const _: () =");
                assertions += usize::from(own || constant);
                // `check!` says what is wrong, and a constant assertion fails at compile time.
                let plain = line.starts_with("assert") || line.starts_with("debug_assert");
                let in_constant = line.starts_with("assert!(") && text.contains("const _: () =");
                if plain && !in_constant {
                    failed.push(format!("{}: use check! for {line}", file.display()));
                }
            }
        }
        let density = lines / assertions.max(1);
        println!("{crate_name}: {assertions} assertions, one in {density} of {lines} lines");
        if density > max {
            failed.push(format!("{crate_name}: one assertion in {density} lines, not in {max}"));
        }
    }
    assert!(failed.is_empty(), "assertions: {failed:#?}");
}

/// Maximum number of limits outside of `limits.rs`. May only fall.
const LIMITS_ELSEWHERE_MAX: usize = 15;

/// Returns the constants of a file that are limits: durations, and quantities that bound others.
/// The size of something stored or allocated is not a limit, because a layout or the allocator
/// determines it and not a choice: such a constant ends in `_BYTES`, and its comment starts with
/// "Size of".
fn limits_defined_in(text: &str) -> Vec<String> {
    let (mut limits, mut comment) = (Vec::new(), None);
    for line in text.split("#[cfg(test)]\nmod ").next().unwrap().lines().map(str::trim_start) {
        if let Some(doc) = line.strip_prefix("/// ") {
            comment.get_or_insert(doc);
            continue;
        }
        let is_size = comment.take().is_some_and(|doc| doc.starts_with("Size of "));
        let item = ["pub ", "pub(crate) ", "pub(super) "]
            .iter()
            .find_map(|visibility| line.strip_prefix(visibility))
            .unwrap_or(line);
        let constant = item.strip_prefix("const ").and_then(|rest| rest.split_once(':'));
        let Some((name, _)) = constant else { continue };
        let bounds = ["_MAX", "_MIN", "_US"].iter().any(|suffix| name.ends_with(suffix));
        if bounds || (name.ends_with("_BYTES") && !is_size) {
            limits.push(name.to_owned());
        }
    }
    limits
}

#[test]
fn limits_are_in_limits_files() {
    let sample = "/// Size of a header.\nconst HEADER_BYTES: usize = 8;\n/// Size of a row.\n\
        pub const ROW_BYTES_MAX: usize = 9;\nconst BUFFER_BYTES: usize = 7;\nconst NAME: u8 = 1;\n";
    assert_eq!(limits_defined_in(sample), ["ROW_BYTES_MAX", "BUFFER_BYTES"]);
    let mut found = Vec::new();
    for crate_name in ENGINE_CRATES.iter().chain(&["tables", "tables_derive", "sql"]) {
        let files = rust_files(&root().join("crates").join(crate_name).join("src"));
        for file in files.iter().filter(|f| !is_test(f) && !f.ends_with("limits.rs")) {
            let names = limits_defined_in(&fs::read_to_string(file).unwrap());
            found.extend(names.iter().map(|name| format!("{}: {name}", file.display())));
        }
    }
    let count = found.len();
    assert!(count <= LIMITS_ELSEWHERE_MAX, "move limits to limits.rs: {found:#?}");
    assert!(count + 5 > LIMITS_ELSEWHERE_MAX, "lower LIMITS_ELSEWHERE_MAX to {count}");
}

#[test]
fn lines_have_at_most_100_columns() {
    let mut long = Vec::new();
    for file in rust_files(&root().join("crates")) {
        let text = fs::read_to_string(&file).unwrap();
        for (n, line) in text.lines().enumerate() {
            // rustfmt does not break string literals; a table in a comment may be wider.
            let text = line.contains('"') || line.ends_with('\\');
            let comment = line.trim_start().starts_with("//");
            let table = comment && (line.contains("   ") || line.contains('|'));
            if line.chars().count() > 100 && comment && !table && !text {
                long.push(format!("{}:{}", file.display(), n + 1));
            }
        }
    }
    assert!(long.is_empty(), "comments wider than 100 columns: {long:#?}");
}

/// Words of earlier, metaphorical prose that have a standard term (see CONTRIBUTING.md).
const REJECTED_WORDS: [&str; 16] = [
    "told",
    "somebody",
    "nobody",
    "everybody",
    "whoever",
    "befell",
    "befallen",
    "stratum",
    "strata",
    "bury",
    "buried",
    "mends",
    "mended",
    "is had",
    "taken back",
    "goes home",
];

#[test]
fn comments_and_documents_use_standard_terms() {
    let mut pages = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    for dir in ["docs", "docs/format"] {
        pages.extend(fs::read_dir(root().join(dir)).unwrap().map(|e| e.unwrap().path()));
    }
    pages.retain(|p| p.extension().is_some_and(|e| e == "md") && !p.ends_with("LAB_NOTEBOOK.md"));
    let this_file = Path::new(file!()).file_name();
    pages.extend(
        rust_files(&root().join("crates")).into_iter().filter(|f| f.file_name() != this_file),
    );
    let mut found = Vec::new();
    for page in &pages {
        let rust = page.extension().is_some_and(|e| e == "rs");
        let text = fs::read_to_string(page).unwrap();
        for (n, line) in text.lines().enumerate() {
            let prose = if rust { line.split_once("//").map_or("", |(_, c)| c) } else { line };
            let prose = prose.to_lowercase();
            let words = prose.split(|c: char| !c.is_alphanumeric()).collect::<Vec<_>>().join(" ");
            let hits =
                REJECTED_WORDS.iter().filter(|w| format!(" {words} ").contains(&format!(" {w} ")));
            found.extend(hits.map(|w| format!("{}:{}: {w}", page.display(), n + 1)));
        }
    }
    assert!(pages.len() > 500, "only {} files were read", pages.len());
    assert!(found.is_empty(), "{} rejected words: {found:#?}", found.len());
}

/// Returns the first sentence of a file's `//!` comment, or its first paragraph.
fn module_summary(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let docs = text.lines().map_while(|l| l.strip_prefix("//!")).map(str::trim);
    let paragraph = docs.take_while(|l| !l.is_empty()).collect::<Vec<_>>().join(" ");
    let end = paragraph.find(". ").map_or(paragraph.len(), |i| i + 1);
    paragraph[..end].trim_end_matches(['.', ':']).replace(['[', ']'], "")
}

/// Appends a line for each module that `parent` declares, in order, with those inside it.
fn list_modules(parent: &Path, depth: usize, out: &mut String) {
    let dir = match parent.file_name().and_then(|n| n.to_str()) {
        Some("lib.rs" | "mod.rs") => parent.parent().unwrap().to_owned(),
        _ => parent.with_extension(""),
    };
    for module in declared_modules(parent) {
        let file = dir.join(format!("{module}.rs"));
        let file = if file.exists() { file } else { dir.join(&module).join("mod.rs") };
        if !file.exists() || is_test(&file) || module.ends_with("testing") {
            continue;
        }
        let link = file.strip_prefix(root()).unwrap().display();
        let summary = module_summary(&file);
        *out += &format!("{}- [{module}](../{link}): {summary}\n", "  ".repeat(depth));
        list_modules(&file, depth + 1, out);
    }
}

#[test]
fn module_list_matches_sources() {
    let mut list = "# Modules\n\nGenerated from the first sentence of each module's `//!` comment, in \
                    dependency order\n(`UPDATE_DOCS=1 cargo test -p perigeedb --test architecture`). A \
                    module uses only modules above it.\n"
        .to_owned();
    for name in LAYERS.iter().filter(|n| !["cli", "bench", "sim"].contains(n)) {
        let lib = root().join("crates").join(name).join("src/lib.rs");
        list += &format!("\n## {name}\n{}\n\n", module_summary(&lib));
        list_modules(&lib, 0, &mut list);
    }
    let page = root().join("docs/MODULES.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, &list).unwrap();
    }
    let written = fs::read_to_string(&page).unwrap_or_default();
    let same = written == list;
    assert!(
        same,
        "docs/MODULES.md is out of date: UPDATE_DOCS=1 cargo test -p perigeedb --test architecture"
    );
}

/// Most methods that the public type [`Db`](perigee::Db) may have.
const DB_METHODS_MAX: usize = 28;

#[test]
fn db_has_few_methods() {
    let mut methods = Vec::new();
    let mut files = Vec::new();
    for file in rust_files(&root().join("crates/perigee/src")) {
        let text = code_without_tests(&file);
        let blocks: Vec<_> = text.split("\nimpl Db {").skip(1).collect();
        if !blocks.is_empty() {
            files.push(file.display().to_string());
        }
        for block in blocks {
            let body = block.split("\n}").next().unwrap();
            let name =
                |l: &str| Some(l.strip_prefix("    pub fn ")?.split(['(', '<']).next()?.into());
            methods.extend(body.lines().filter_map(name).collect::<Vec<String>>());
        }
    }
    assert!(methods.iter().any(|m| m == "open"), "the methods of Db were not found");
    let n = methods.len();
    assert!(n <= DB_METHODS_MAX, "Db has {n} methods, use a handle: {methods:?}");
    assert!(files.len() <= 3, "`impl Db` in {files:?}");
}

/// Names that the crate `perigee` exports from itself and from the crates below it.
fn exported_names() -> Vec<String> {
    let lib = code_without_tests(&root().join("crates/perigee/src/lib.rs"));
    let lists = lib.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    lists
        .flat_map(|list| list.rsplit("::").next().unwrap().split(['{', '}', ',']))
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn public_fields_are_not_tuples() {
    let exported = exported_names();
    let (mut checked, mut tuples) = (0, Vec::new());
    for crate_name in ENGINE_CRATES {
        for file in rust_files(&root().join("crates").join(crate_name).join("src")) {
            let text = code_without_tests(&file);
            for item in text.split("\npub struct ").skip(1) {
                let name: String = item.chars().take_while(|c| c.is_alphanumeric()).collect();
                let body = item.split("\n}").next().unwrap();
                if !exported.contains(&name) || !item[name.len()..].trim_start().starts_with('{') {
                    continue;
                }
                let fields = body.lines().filter(|l| l.starts_with("    pub "));
                for field in fields {
                    checked += 1;
                    if field.contains('(') && !field.contains("Fn(") {
                        tuples.push(format!("{}: {name}: {}", file.display(), field.trim()));
                    }
                }
            }
        }
    }
    assert!(checked > 150, "only {checked} public fields were found");
    assert!(tuples.is_empty(), "give these tuples a struct with named fields: {tuples:#?}");
}
