//! Counts the places where a plain integer stands for a unit, so that the number can only fall:
//! sequence numbers, batch positions, block handles, bytes and times have types of their own
//! (`base/src/ids.rs`), because two integers can be swapped in a call without a compile error.
//!
//! The test reads the sources as text, without tests and without tools.
#![allow(clippy::unwrap_used)]

#[path = "common/sources.rs"]
mod sources;

use sources::rust_files;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates that are counted.
const CRATES: [&str; 10] = [
    "base",
    "learned",
    "env",
    "file",
    "tree",
    "engine",
    "perigee",
    "tables_derive",
    "tables",
    "sql",
];

/// The plain integer types.
const INTEGERS: [&str; 12] =
    ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize"];

/// Maximum number of functions outside a private scope (`pub`, `pub(...)`, trait methods) with two
/// or more parameters of the same plain integer type. May only fall.
const SWAPPABLE_PARAMETERS_MAX: usize = 2;
/// Maximum number of parameters and struct fields that hold a sequence number or LSN, by their
/// name, in a plain integer. May only fall. Most are public fields of reports: the crate `perigee`
/// has no type for sequence numbers, and `tables` returns them as `perigee` does.
const PLAIN_SEQUENCE_NUMBERS_MAX: usize = 29;
/// Maximum number of parameters, of any function, that are tuples with two or more integers. May
/// only fall.
const INTEGER_TUPLE_PARAMETERS_MAX: usize = 0;
/// Maximum number of parameters, of any function, that are destructured in the signature as a
/// tuple: several arguments in the place of one. May only fall.
const TUPLE_PATTERNS_MAX: usize = 2;
/// Maximum number of struct fields and type aliases that contain a tuple with two or more integers.
/// May only fall.
const INTEGER_TUPLE_FIELDS_MAX: usize = 5;

fn crates_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns true for a file that only tests use.
fn is_test_file(path: &Path) -> bool {
    let name = path.file_stem().unwrap().to_str().unwrap();
    let inside = path.strip_prefix(crates_dir()).unwrap_or(path);
    name == "tests"
        || name == "testing"
        || name == "fuzz"
        || name.ends_with("_tests")
        || inside.iter().any(|p| p == "tests")
}

/// Returns `text` up to its test module, without comments and with empty strings.
fn code_of(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let (mut out, mut i) = (String::with_capacity(text.len()), 0);
    while i < chars.len() {
        match (at(i), at(i + 1)) {
            ('/', '/') => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            // A raw string with hash marks ends at a quote with as many.
            ('r', '"' | '#') if !out.ends_with(|c: char| c.is_alphanumeric() || c == '_') => {
                let hashes = chars[i + 1..].iter().take_while(|c| **c == '#').count();
                if at(i + 1 + hashes) != '"' {
                    out.push('r');
                    i += 1;
                    continue;
                }
                i += hashes + 2;
                while i < chars.len() && !(at(i) == '"' && (1..=hashes).all(|h| at(i + h) == '#')) {
                    i += 1;
                }
                i += hashes + 1;
                out.push_str("\"\"");
            }
            ('"', _) => {
                i += 1;
                while i < chars.len() && at(i) != '"' {
                    i += if at(i) == '\\' { 2 } else { 1 };
                }
                i += 1;
                out.push_str("\"\"");
            }
            // A character, not a lifetime.
            ('\'', next) if at(i + 2) == '\'' || next == '\\' => {
                i += if next == '\\' { 3 } else { 2 };
                while i < chars.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
                out.push_str("' '");
            }
            (c, _) => {
                out.push(c);
                i += 1;
            }
        }
    }
    out
}

/// Returns what stands between the bracket that starts `text` and its counterpart, and the rest.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth -= 1;
                if depth == 0 {
                    return Some((&text[1..i], &text[i + 1..]));
                }
            }
            _ => {}
        }
    }
    None
}

/// Splits at the commas outside brackets.
fn split_commas(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start, mut last) = (Vec::new(), 0i32, 0, ' ');
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if last == '-' || last == '=' => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
        last = c;
    }
    parts.push(text[start..].trim());
    parts.retain(|p| !p.is_empty());
    parts
}

/// Returns the type without references, mutability and lifetimes.
fn bare_type(of: &str) -> &str {
    let mut of = of.trim();
    loop {
        let shorter = of.trim_start_matches('&').trim_start();
        let shorter = shorter.strip_prefix("mut ").unwrap_or(shorter);
        let shorter = match shorter.strip_prefix('\'') {
            Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest),
            None => shorter,
        };
        if shorter == of {
            return of;
        }
        of = shorter;
    }
}

/// Returns the name of the type if it is a plain integer or an option of one.
fn plain_integer(of: &str) -> Option<&str> {
    let of = of.trim();
    let of = of.strip_prefix("Option<").and_then(|o| o.strip_suffix('>')).unwrap_or(of);
    INTEGERS.contains(&of).then_some(of)
}

/// Returns true if an item with this name holds a sequence number.
fn is_seq_name(name: &str) -> bool {
    let name = name.rsplit([' ', '\n']).next().unwrap_or(name);
    name.split('_').any(|word| ["seq", "seqno", "lsn", "sequence"].contains(&word))
        && !name.ends_with("_count")
}

/// Returns true if the type contains a tuple with two or more integers. The parameters of closures
/// and function pointers inside it count, too.
fn contains_integer_tuple(of: &str) -> bool {
    of.char_indices().filter(|(_, c)| *c == '(').any(|(i, _)| {
        let Some((inside, _)) = bracketed(&of[i..]) else { return false };
        split_commas(inside).into_iter().filter(|t| plain_integer(t).is_some()).count() >= 2
    })
}

/// A function signature.
struct Signature {
    /// Its name and line.
    place: String,
    /// True if code outside the module can call it.
    shared: bool,
    /// Patterns and types of its parameters, without `self`.
    parameters: Vec<(String, String)>,
}

/// Returns the signatures of all functions in `code`.
fn signatures(code: &str) -> Vec<Signature> {
    let mut found = Vec::new();
    let mut trait_depth = None;
    let (mut depth, mut line_no, mut offset) = (0i32, 0, 0);
    for line in code.split_inclusive('\n') {
        line_no += 1;
        let start = offset;
        offset += line.len();
        let text = line.trim_start();
        let item = text.strip_prefix("pub").map_or(text, |rest| match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(')').map_or("", |(_, rest)| rest),
            None => rest,
        });
        let item = item.trim_start();
        let item = ["const ", "unsafe ", "async "]
            .iter()
            .fold(item, |item, word| item.strip_prefix(word).unwrap_or(item));
        if item.starts_with("trait ") {
            trait_depth = Some(depth);
        }
        if let Some(rest) = item.strip_prefix("fn ") {
            let at = start + line.len() - rest.len();
            let shared = text.starts_with("pub") || trait_depth.is_some_and(|d| depth == d + 1);
            if let Some(s) = signature(&code[at..], shared, line_no) {
                found.push(s);
            }
        }
        for c in line.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
        }
        if trait_depth.is_some_and(|d| depth <= d) && line.contains('}') {
            trait_depth = None;
        }
    }
    found
}

/// Parses a signature from the name of the function.
fn signature(text: &str, shared: bool, line_no: usize) -> Option<Signature> {
    let name: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let mut rest = &text[name.len()..];
    if rest.starts_with('<') {
        let (mut depth, mut last, mut end) = (0, ' ', 0);
        for (i, c) in rest.char_indices() {
            match c {
                '<' => depth += 1,
                '>' if last != '-' && last != '=' => depth -= 1,
                _ => {}
            }
            last = c;
            if depth == 0 {
                end = i + 1;
                break;
            }
        }
        rest = &rest[end..];
    }
    let (inside, _) = bracketed(rest.trim_start())?;
    let parameters = split_commas(inside)
        .into_iter()
        .filter_map(|p| {
            // The colon after the pattern; a path in a pattern has two.
            let mut depth = 0;
            let bytes = p.as_bytes();
            let colon = p.char_indices().find_map(|(i, c)| {
                match c {
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth -= 1,
                    ':' if depth == 0
                        && bytes.get(i + 1) != Some(&b':')
                        && (i == 0 || bytes[i - 1] != b':') =>
                    {
                        return Some(i);
                    }
                    _ => {}
                }
                None
            })?;
            Some((p[..colon].trim().to_owned(), p[colon + 1..].trim().to_owned()))
        })
        .collect();
    Some(Signature { place: format!("{line_no}: {name}"), shared, parameters })
}

/// Returns the declarations of struct fields and type aliases in `code` that hold integer tuples.
fn integer_tuple_fields(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut line_no, mut offset) = (0, 0);
    for line in code.split_inclusive('\n') {
        line_no += 1;
        let start = offset;
        offset += line.len();
        let text = line.trim_start();
        let item = text.strip_prefix("pub").map_or(text, |rest| match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(')').map_or("", |(_, rest)| rest),
            None => rest,
        });
        let item = item.trim_start();
        let rest = &code[start + line.len() - item.len()..];
        let declared = if let Some(alias) = item.strip_prefix("type ") {
            let end = rest.find(';').unwrap_or(rest.len());
            let kind = rest[..end].split_once('=').map_or("", |(_, of)| of);
            contains_integer_tuple(kind).then(|| name_of(alias))
        } else if item.starts_with("struct ") {
            let open = rest.find(['{', '(', ';']).unwrap_or(0);
            let tuple = rest[open..].starts_with('(');
            bracketed(&rest[open..]).filter(|_| !rest[open..].starts_with(';')).and_then(
                |(inside, _)| {
                    let fields = split_commas(inside);
                    let name = name_of(&item["struct ".len()..]);
                    if tuple && fields.iter().filter(|f| is_integer_field(f)).count() >= 2 {
                        return Some(name);
                    }
                    let held = fields.iter().filter(|f| {
                        contains_integer_tuple(f.split_once(": ").map_or(*f, |(_, of)| of))
                    });
                    let held: Vec<_> = held.map(|f| f.split('\n').next_back().unwrap()).collect();
                    (!held.is_empty()).then(|| format!("{name} {{ {} }}", held.join(", ")))
                },
            )
        } else {
            None
        };
        found.extend(declared.map(|d| format!("{line_no}: {d}")));
    }
    found
}

fn name_of(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Returns true if a field of a tuple struct is a plain integer.
fn is_integer_field(field: &str) -> bool {
    let field = field.rsplit([' ', '\n']).next().unwrap_or(field);
    plain_integer(field).is_some()
}

/// Calls `visit` with the path and code of each file that counts.
fn visit_sources(mut visit: impl FnMut(String, &str)) {
    let mut files = 0;
    for name in CRATES {
        for file in rust_files(&crates_dir().join(name).join("src")) {
            if !is_test_file(&file) {
                let code = code_of(&fs::read_to_string(&file).unwrap());
                let path = file.strip_prefix(crates_dir()).unwrap().display().to_string();
                visit(path, &code);
                files += 1;
            }
        }
    }
    assert!(files > 200, "only {files} files were read");
}

/// Fails if `found` has more items than `max`, or fewer.
fn check_count(what: &str, found: &[String], max: usize) {
    let n = found.len();
    assert!(n <= max, "{n} {what}, at most {max} may exist; give them types: {found:#?}");
    assert!(
        n == max,
        "{n} {what}: lower the maximum from {max} to {n}, so that no new one appears"
    );
}

/// Returns the items of a list whose signatures satisfy `counts`.
fn count_signatures(counts: impl Fn(&Signature) -> usize) -> Vec<String> {
    let mut found = Vec::new();
    visit_sources(|path, code| {
        for s in signatures(code) {
            let n = counts(&s);
            found.extend((0..n).map(|_| format!("{path}:{}", s.place)));
        }
    });
    found
}

#[test]
fn few_functions_have_two_parameters_of_one_integer_type() {
    let found = count_signatures(|s| {
        let types: Vec<_> = s.parameters.iter().filter_map(|(_, of)| plain_integer(of)).collect();
        let twice = (1..types.len()).any(|i| types[..i].contains(&types[i]));
        usize::from(s.shared && twice)
    });
    check_count("functions with swappable integers", &found, SWAPPABLE_PARAMETERS_MAX);
}

#[test]
fn few_sequence_numbers_are_plain_integers() {
    let is_plain = |name: &str, of: &str| is_seq_name(name) && plain_integer(of).is_some();
    let mut found =
        count_signatures(|s| s.parameters.iter().filter(|(name, of)| is_plain(name, of)).count());
    visit_sources(|path, code| {
        for (line_no, line) in code.lines().enumerate() {
            let field = line.trim().strip_suffix(',').and_then(|f| f.split_once(": "));
            if field.is_some_and(|(name, of)| is_plain(name, of)) && !line.contains("fn ") {
                found.push(format!("{path}:{}: {}", line_no + 1, line.trim()));
            }
        }
    });
    found.sort();
    found.dedup();
    check_count("sequence numbers in plain integers", &found, PLAIN_SEQUENCE_NUMBERS_MAX);
}

#[test]
fn few_parameters_are_tuples_of_integers() {
    let is_tuple = |of: &str| bare_type(of).starts_with('(') && contains_integer_tuple(of);
    let found = count_signatures(|s| s.parameters.iter().filter(|(_, of)| is_tuple(of)).count());
    check_count("parameters that are integer tuples", &found, INTEGER_TUPLE_PARAMETERS_MAX);
}

#[test]
fn few_parameters_are_destructured_tuples() {
    let found =
        count_signatures(|s| s.parameters.iter().filter(|(p, _)| p.starts_with('(')).count());
    check_count("parameters that are destructured tuples", &found, TUPLE_PATTERNS_MAX);
}

#[test]
fn few_fields_are_tuples_of_integers() {
    let mut found = Vec::new();
    visit_sources(|path, code| {
        found.extend(integer_tuple_fields(code).into_iter().map(|f| format!("{path}:{f}")));
    });
    check_count("fields and aliases with integer tuples", &found, INTEGER_TUPLE_FIELDS_MAX);
}

#[test]
fn counters_find_what_they_count() {
    let code = code_of(
        "pub trait T { // (u64, u64)\n    fn a(&self, x: u64, y: Option<u64>, z: &mut u64);\n}\n\
         pub(crate) fn b<F: Fn(u8) -> u8>(x: u32, s: &str, y: Option<u32>, f: F) {}\n\
         fn private(x: u64, y: u64, (m, n): (u64, u64), t: (u64, SeqNo), z: &mut (u8, u16)) {}\n\
         struct S {\n    pub x: Vec<(u64, u64)>,\n    y: (FileId, u64),\n}\n\
         type P = (u32, u64);\nstruct U(pub u64, u64);\nstruct V(u64);\n\
         const X: &str = \"fn (u64, u64)\";\n",
    );
    let all = signatures(&code);
    let shared: Vec<_> = all.iter().filter(|s| s.shared).map(|s| &s.place[..]).collect();
    assert_eq!(shared, ["2: a", "4: b"]);
    let integers = |s: &Signature| s.parameters.iter().filter_map(|p| plain_integer(&p.1)).count();
    assert_eq!(all.iter().map(integers).collect::<Vec<_>>(), [2, 2, 2]);
    let tuples = all[2].parameters.iter().filter(|(_, of)| contains_integer_tuple(of));
    assert_eq!(tuples.map(|(p, _)| &p[..]).collect::<Vec<_>>(), ["(m, n)", "z"]);
    let fields = integer_tuple_fields(&code);
    assert_eq!(fields, ["6: S { pub x: Vec<(u64, u64)> }", "10: P", "11: U"]);
}
