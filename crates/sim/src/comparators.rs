//! Comparators as the oracle implements them: written independently of the engine, in the simplest
//! form, from their documentation.

use crate::history::Bytes;
use perigee::{KeyComparator, Result};
use std::cmp::Ordering;
use std::sync::Arc;

/// A key in the oracle's maps, sorted by its comparator.
#[derive(Clone, Debug)]
pub struct OrderedKey {
    /// Key bytes.
    pub bytes: Arc<[u8]>,
    /// Comparator of the key.
    pub comparator: KeyComparator,
}

impl OrderedKey {
    /// Creates a key.
    pub fn new(comparator: KeyComparator, bytes: &[u8]) -> OrderedKey {
        OrderedKey { bytes: Arc::from(bytes), comparator }
    }
}

impl Ord for OrderedKey {
    fn cmp(&self, other: &OrderedKey) -> Ordering {
        compare(self.comparator, &self.bytes, &other.bytes)
    }
}
impl PartialOrd for OrderedKey {
    fn partial_cmp(&self, other: &OrderedKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for OrderedKey {
    fn eq(&self, other: &OrderedKey) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for OrderedKey {}

fn lower(key: &[u8]) -> Bytes {
    key.iter().map(|b| if b.is_ascii_uppercase() { b + 32 } else { *b }).collect()
}

fn text(key: &[u8]) -> &[u8] {
    key.split(|b| *b == 0).next().unwrap_or_default()
}

/// Sort rank for the integer comparators: keys shorter than 8 bytes first, then keys of 8 bytes,
/// then longer ones; each by number, then by bytes.
fn rank(key: &[u8], signed: bool) -> (u8, i128, Bytes) {
    match key.len() {
        0..8 => (0, 0, key.to_vec()),
        8 => {
            let unsigned = key.iter().rev().fold(0i128, |n, b| n * 256 + i128::from(*b));
            let number =
                if signed && unsigned >= 1 << 63 { unsigned - (1 << 64) } else { unsigned };
            (1, number, Vec::new())
        }
        _ => (2, 0, key.to_vec()),
    }
}

/// User-defined comparator in which different bytes can be the same key: by length, then ignoring
/// case.
fn by_length(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| lower(a).cmp(&lower(b)))
}

/// User-defined comparator in which all keys are distinct: from the last byte to the first.
fn backward(a: &[u8], b: &[u8]) -> Ordering {
    a.iter().rev().cmp(b.iter().rev())
}

/// Registers and returns the user-defined comparators.
pub fn user_comparators() -> Result<[KeyComparator; 2]> {
    Ok([
        KeyComparator::register("by length", by_length)?,
        KeyComparator::register_canonical("backward", backward, <[u8]>::to_vec)?,
    ])
}

/// Returns all comparators, including the user-defined ones.
pub fn all_comparators() -> Result<Vec<KeyComparator>> {
    let built_in = [
        KeyComparator::Bytes,
        KeyComparator::Reverse,
        KeyComparator::U64,
        KeyComparator::I64,
        KeyComparator::CaseInsensitive,
        KeyComparator::Lexicographic,
    ];
    Ok(built_in.into_iter().chain(user_comparators()?).collect())
}

/// Compares two keys as the comparator's documentation says.
pub fn compare(comparator: KeyComparator, a: &[u8], b: &[u8]) -> Ordering {
    match comparator.name() {
        "reverse" => b.cmp(a),
        "u64" => rank(a, false).cmp(&rank(b, false)),
        "i64" => rank(a, true).cmp(&rank(b, true)),
        "case-insensitive" => lower(a).cmp(&lower(b)),
        "lexicographic" => text(a).cmp(text(b)),
        "user:by length" => by_length(a, b),
        "user:backward" => backward(a, b),
        _ => a.cmp(b),
    }
}

/// Returns true if the comparator supports prefix scans.
pub fn supports_prefix(comparator: KeyComparator) -> bool {
    !matches!(comparator.name(), "u64" | "i64" | "user:by length" | "user:backward")
}

/// Returns true if the key begins with the prefix under this comparator.
pub fn has_prefix(comparator: KeyComparator, key: &[u8], prefix: &[u8]) -> bool {
    match comparator.name() {
        "case-insensitive" => lower(key).starts_with(&lower(prefix)),
        "lexicographic" => text(key).starts_with(text(prefix)),
        _ => key.starts_with(prefix),
    }
}
