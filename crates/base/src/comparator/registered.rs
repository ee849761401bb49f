//! User-defined comparators: named functions, kept for the life of the process, so that
//! `KeyComparator` stays `Copy`. Independent of the built-in comparators.
//!
//! Invariant: one name stands for one order. At registration the function is called for fixed probe
//! keys; its results must form a total order. Their fingerprint is stored with every column family
//! that uses the comparator, so that a different function under the same name is detected.

use crate::limits::{COMPARATOR_NAME_BYTES_MAX, COMPARATORS_MAX};
use crate::{Error, Result, checksum};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{PoisonError, RwLock};

/// Prefix of the stored names of user-defined comparators.
pub const USER_PREFIX: &str = "user:";

/// Compares two keys. Additional state is captured by the closure.
pub type CompareFn = Box<dyn Fn(&[u8], &[u8]) -> Ordering + Send + Sync>;
/// Maps keys to a canonical form: the same bytes if and only if the keys compare equal.
pub type CanonicalFn = Box<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// A registered comparator.
pub struct RegisteredComparator {
    name: String,
    pub(super) compare: CompareFn,
    pub(super) canonical: Option<CanonicalFn>,
    fingerprint: u64,
}

impl RegisteredComparator {
    /// Returns the stored name, including [`USER_PREFIX`].
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Returns the checksum of its results for the probe keys.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl fmt::Debug for RegisteredComparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Compares names, which are unique in a process.
impl PartialEq for RegisteredComparator {
    fn eq(&self, other: &RegisteredComparator) -> bool {
        self.name == other.name
    }
}
impl Eq for RegisteredComparator {}

static REGISTRY: RwLock<BTreeMap<String, &'static RegisteredComparator>> =
    RwLock::new(BTreeMap::new());

/// Returns the comparator registered under that stored name.
pub fn find_registered(stored_name: &str) -> Option<&'static RegisteredComparator> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner).get(stored_name).copied()
}

/// Registers a comparator. Registering the same function again returns the first registration.
pub fn register(
    name: &str,
    compare: CompareFn,
    canonical: Option<CanonicalFn>,
) -> Result<&'static RegisteredComparator> {
    if name.is_empty()
        || name.len() > COMPARATOR_NAME_BYTES_MAX
        || name.chars().any(char::is_control)
    {
        return Err(Error::invalid(format!(
            "the name of a comparator must have 1 to {COMPARATOR_NAME_BYTES_MAX} bytes and no \
             control characters"
        ))
        .expected(
            format_args!("1 to {COMPARATOR_NAME_BYTES_MAX} bytes"),
            format_args!("{name:?}"),
        ));
    }
    let fingerprint = check_and_fingerprint(name, &compare, canonical.as_ref())?;
    let name = format!("{USER_PREFIX}{name}");
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = registry.get(&name) {
        return if known.fingerprint == fingerprint {
            Ok(known)
        } else {
            Err(mismatch_error(&name))
        };
    }
    if registry.len() >= COMPARATORS_MAX {
        return Err(Error::invalid("too many comparators are registered in this process")
            .expected(format_args!("at most {COMPARATORS_MAX}"), registry.len() + 1));
    }
    // A comparator is never freed, because column families, tables and cursors refer to it: hence
    // the limit.
    let comparator: &'static RegisteredComparator = Box::leak(Box::new(RegisteredComparator {
        name: name.clone(),
        compare,
        canonical,
        fingerprint,
    }));
    let replaced = registry.insert(name, comparator);
    check!(replaced.is_none(), "a comparator is never replaced", replaced);
    Ok(comparator)
}

/// Returns the error for a function that differs from the one its name stands for.
pub fn mismatch_error(stored_name: &str) -> Error {
    Error::invalid(format!(
        "the comparator {stored_name:?} differs from the function that was registered under this \
         name before: register that function, or register the new one under another name"
    ))
}

/// Keys that distinguish comparators.
const PROBES: [&[u8]; 24] = [
    b"",
    b"\0",
    b"\0\0",
    b"a",
    b"A",
    b"a\0b",
    b"ab",
    b"aB",
    b"b",
    b"B",
    b"1",
    b"2",
    b"10",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\x01\0\0\0\0\0\0\0",
    b"\0\x01\0\0\0\0\0\0",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\0\0\0\0\0\0\0\x80",
    b"key-000001",
    b"KEY-000002",
    b"0123456789abcdef0123456789abcdef",
];

/// Compares every pair of probe keys and refuses a function that is not a total order. Returns a
/// checksum of the results.
fn check_and_fingerprint(
    name: &str,
    compare: &CompareFn,
    canonical: Option<&CanonicalFn>,
) -> Result<u64> {
    let n = PROBES.len();
    let results: Vec<Ordering> =
        PROBES.iter().flat_map(|a| PROBES.iter().map(move |b| compare(a, b))).collect();
    let at = |i: usize, j: usize| results[i * n + j];
    let wrong = |what: &str, i: usize, j: usize| {
        let (a, b) = (PROBES[i].escape_ascii(), PROBES[j].escape_ascii());
        Error::invalid(format!(
            "the function {name:?} is not a total order of keys: {what} for \"{a}\" and \"{b}\""
        ))
    };
    let forms: Vec<Vec<u8>> =
        canonical.map_or_else(Vec::new, |c| PROBES.iter().map(|key| c(key)).collect());
    for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
        if (i == j && !at(i, j).is_eq()) || at(i, j) != at(j, i).reverse() {
            return Err(wrong("results contradict each other", i, j));
        }
        if (0..n).any(|k| at(i, k).is_le() && at(k, j).is_le() && at(i, j).is_gt()) {
            return Err(wrong("results are not transitive", i, j));
        }
        if canonical.is_some() && (forms[i] == forms[j]) != at(i, j).is_eq() {
            return Err(wrong(
                "canonical forms must be the same exactly for equal keys, but are not",
                i,
                j,
            ));
        }
    }
    let mut all: Vec<u8> = results.iter().map(|o| *o as i8 as u8).collect();
    for form in &forms {
        crate::codec::put_bytes(&mut all, form);
    }
    Ok(checksum::payload_checksum(&all))
}
