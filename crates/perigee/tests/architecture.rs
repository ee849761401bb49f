//! Structural rules as tests: layers, module order, system calls only in `env`, unique type names,
//! line width, plain English.
//!
//! Most single-crate engines have nearly all modules in one dependency cycle, and engines with a
//! simulator lose determinism through one stray call of the system clock. Reviews miss such
//! changes; a test does not.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers, bottom-up: a crate depends only on those before it.
const LAYERS: [&str; 11] =
    ["base", "learned", "env", "file", "tree", "engine", "perigee", "capi", "cli", "bench", "sim"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let Ok(entries) = fs::read_dir(dir) else { return all };
    for entry in entries.map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            all.extend(sources(&entry));
        } else if entry.extension().is_some_and(|e| e == "rs") {
            all.push(entry);
        }
    }
    all.sort();
    all
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
            let dep = dep.strip_prefix("perigee-").unwrap_or("perigee");
            let below = LAYERS
                .iter()
                .position(|l| *l == dep)
                .unwrap_or_else(|| panic!("{dep} has no layer"));
            assert!(below < level, "crates/{name} may not use {dep}");
        }
    }
}

/// Modules that `mod.rs` or `lib.rs` declares, in order.
fn declared_modules(file: &Path) -> Vec<String> {
    let take = |l: &str| {
        Some(l.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';')?.to_owned())
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
    for crate_name in ["base", "learned", "env", "file", "tree", "engine", "perigee", "capi"] {
        let src = root().join("crates").join(crate_name).join("src");
        for parent in
            sources(&src).iter().filter(|p| p.ends_with("lib.rs") || p.ends_with("mod.rs"))
        {
            let order = declared_modules(parent);
            let dir = parent.parent().unwrap();
            let top = parent.ends_with("lib.rs");
            for (i, module) in order.iter().enumerate() {
                let mut files = sources(&dir.join(module));
                files.push(dir.join(format!("{module}.rs")));
                for file in files.iter().filter(|f| f.exists() && !is_test(f)) {
                    let text = code_without_tests(file);
                    // Inside a crate rooms are named from the crate; inside a room, neighbours from
                    // `super`.
                    let direct =
                        file.parent() == Some(dir) || file.ends_with(format!("{module}/mod.rs"));
                    let names =
                        if top { mentions(&text, "crate::") } else { mentions(&text, "super::") };
                    for name in names.iter().filter(|_| top || direct) {
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
    let mut files = 0;
    for crate_name in ["base", "learned", "file", "tree", "engine", "perigee"] {
        for file in sources(&root().join("crates").join(crate_name).join("src"))
            .iter()
            .filter(|f| !is_test(f))
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
    assert!(files > 60);
}

#[test]
fn files_have_module_docs_and_at_most_700_lines() {
    for file in sources(&root().join("crates")) {
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
    // LMDB maps files into memory, which its crate declares unsafe; TidesDB is a C library loaded
    // at run time. The benchmark and the importer use both. `heap.rs` calls `malloc_trim`;
    // `fork.rs` registers a handler that increments a counter in forked children. `AppendBuffer`
    // is appended to by one thread while other threads read the bytes before its end.
    let may = [
        "bench/src/engines/lmdb.rs",
        "bench/src/engines/tidesdb.rs",
        "cli/src/foreign/lmdb.rs",
        "cli/tests/foreign_lmdb.rs",
        "cli/src/foreign/tidesdb/api.rs",
        "cli/src/foreign/tidesdb/expiry_chain.rs",
        "env/src/fs/posix/heap.rs",
        "env/src/fork.rs",
        "base/src/raw_bytes.rs",
        "base/src/append_buffer.rs",
        "base/tests/append_buffer_loom.rs",
    ]
    .map(|f| root().join("crates").join(f));
    // The C interface cannot be written without unsafe code.
    let c_interface = root().join("crates/capi");
    let ours = |f: &&PathBuf| !may.contains(f) && !f.starts_with(&c_interface);
    for file in sources(&root().join("crates")).iter().filter(ours) {
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
        let files = sources(&root().join("crates").join(crate_name).join("src"));
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

#[test]
fn lines_have_at_most_100_columns() {
    let mut long = Vec::new();
    for file in sources(&root().join("crates")) {
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
    pages
        .extend(sources(&root().join("crates")).into_iter().filter(|f| f.file_name() != this_file));
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
                    dependency order\n(`UPDATE_DOCS=1 cargo test -p perigee --test architecture`). A \
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
        "docs/MODULES.md is out of date: UPDATE_DOCS=1 cargo test -p perigee --test architecture"
    );
}
