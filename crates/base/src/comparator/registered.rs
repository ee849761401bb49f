//! A user's own orders: functions with a name, kept for the life of the process, so that an order
//! is a word that is copied like a number. Must not know the built-in orders.
//!
//! Invariant: one name is one order. A function is asked about fixed probe keys when it is
//! registered; what it answers must be an order, and its fingerprint is stored with every family,
//! so that another function under the same name is noticed.

use crate::limits::{COMPARATOR_NAME_BYTES_MAX, COMPARATORS_MAX};
use crate::{Error, Result, checksum};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{PoisonError, RwLock};

/// What stored names of users' orders begin with.
pub const USER_PREFIX: &str = "user:";

/// Compares two keys; whatever it needs to know beside them, it captures.
pub type CompareFn = Box<dyn Fn(&[u8], &[u8]) -> Ordering + Send + Sync>;
/// Gives equal keys, and only those, the same bytes.
pub type CanonicalFn = Box<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// A registered order.
pub struct RegisteredComparator {
    name: String,
    pub(super) compare: CompareFn,
    pub(super) canonical: Option<CanonicalFn>,
    fingerprint: u64,
}

impl RegisteredComparator {
    /// The stored name, [`PREFIX`] included.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// What it answered about the probes.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl fmt::Debug for RegisteredComparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Names are unique in a process.
impl PartialEq for RegisteredComparator {
    fn eq(&self, other: &RegisteredComparator) -> bool {
        self.name == other.name
    }
}
impl Eq for RegisteredComparator {}

static REGISTRY: RwLock<BTreeMap<String, &'static RegisteredComparator>> =
    RwLock::new(BTreeMap::new());

/// The order registered under that stored name.
pub fn find_registered(stored_name: &str) -> Option<&'static RegisteredComparator> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner).get(stored_name).copied()
}

/// Registers an order. Registering the same again gives the first.
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
            "the name of a key order has 1 to {COMPARATOR_NAME_BYTES_MAX} bytes and no control characters"
        ))
        .expected(format_args!("1 to {COMPARATOR_NAME_BYTES_MAX} bytes"), format_args!("{name:?}")));
    }
    let fingerprint = check_and_fingerprint(name, &compare, canonical.as_ref())?;
    let name = format!("{USER_PREFIX}{name}");
    let mut orders = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = orders.get(&name) {
        return if known.fingerprint == fingerprint {
            Ok(known)
        } else {
            Err(mismatch_error(&name))
        };
    }
    if orders.len() >= COMPARATORS_MAX {
        return Err(Error::invalid("too many key orders are registered in this process")
            .expected(format_args!("at most {COMPARATORS_MAX}"), orders.len() + 1));
    }
    // An order is never forgotten, because families, tables and cursors hold it by reference: hence
    // the bound.
    let order: &'static RegisteredComparator = Box::leak(Box::new(RegisteredComparator {
        name: name.clone(),
        compare,
        canonical,
        fingerprint,
    }));
    orders.insert(name, order);
    Ok(order)
}

/// The error for a function that is not the one its name stands for.
pub fn mismatch_error(stored_name: &str) -> Error {
    Error::invalid(format!(
        "the key order {stored_name:?} answers otherwise than the one it is the name of: register that one, or give the \
         new one a name of its own"
    ))
}

/// Keys that tell orders apart.
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

/// Asks about every pair of probes and refuses what is no order. A checksum of the answers.
fn check_and_fingerprint(
    name: &str,
    compare: &CompareFn,
    canonical: Option<&CanonicalFn>,
) -> Result<u64> {
    let n = PROBES.len();
    let answers: Vec<Ordering> =
        PROBES.iter().flat_map(|a| PROBES.iter().map(move |b| compare(a, b))).collect();
    let at = |i: usize, j: usize| answers[i * n + j];
    let wrong = |what: &str, i: usize, j: usize| {
        let (a, b) = (PROBES[i].escape_ascii(), PROBES[j].escape_ascii());
        Error::invalid(format!(
            "the function {name:?} is no order of keys: {what}, for \"{a}\" and \"{b}\""
        ))
    };
    let forms: Vec<Vec<u8>> =
        canonical.map_or_else(Vec::new, |c| PROBES.iter().map(|key| c(key)).collect());
    for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
        if (i == j && !at(i, j).is_eq()) || at(i, j) != at(j, i).reverse() {
            return Err(wrong("it contradicts itself", i, j));
        }
        if (0..n).any(|k| at(i, k).is_le() && at(k, j).is_le() && at(i, j).is_gt()) {
            return Err(wrong("it goes in a circle", i, j));
        }
        if canonical.is_some() && (forms[i] == forms[j]) != at(i, j).is_eq() {
            return Err(wrong(
                "equal keys, and only they, have the same canonical form; not so",
                i,
                j,
            ));
        }
    }
    let mut all: Vec<u8> = answers.iter().map(|o| *o as i8 as u8).collect();
    for form in &forms {
        crate::codec::put_bytes(&mut all, form);
    }
    Ok(checksum::payload_checksum(&all))
}
