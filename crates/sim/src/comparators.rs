//! Key orders as the oracle sees them: written again, in the plainest form, from what their
//! documentation says.

use crate::history::Bytes;
use perigee::{KeyComparator, Result};
use std::cmp::Ordering;
use std::sync::Arc;

/// A key in the oracle's maps, which are sorted by its order.
#[derive(Clone, Debug)]
pub struct OrderedKey {
    /// As it was written.
    pub bytes: Arc<[u8]>,
    /// How it compares.
    pub order: KeyComparator,
}

impl OrderedKey {
    /// A key.
    pub fn new(order: KeyComparator, bytes: &[u8]) -> OrderedKey {
        OrderedKey { bytes: Arc::from(bytes), order }
    }
}

impl Ord for OrderedKey {
    fn cmp(&self, other: &OrderedKey) -> Ordering {
        compare(self.order, &self.bytes, &other.bytes)
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

/// Shorter than 8 bytes, 8 bytes, longer: then by number, then by bytes.
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

/// A user's order in which different bytes are one key: by length, and then in any case.
fn by_length(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| lower(a).cmp(&lower(b)))
}

/// A user's order in which every key is its own: from the last byte to the first.
fn backward(a: &[u8], b: &[u8]) -> Ordering {
    a.iter().rev().cmp(b.iter().rev())
}

/// The users' orders, registered.
pub fn user_comparators() -> Result<[KeyComparator; 2]> {
    Ok([
        KeyComparator::register("by length", by_length)?,
        KeyComparator::register_canonical("backward", backward, <[u8]>::to_vec)?,
    ])
}

/// Every order, the users' included.
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

/// Compares two keys.
pub fn compare(order: KeyComparator, a: &[u8], b: &[u8]) -> Ordering {
    match order.name() {
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

/// Whether the keys with a prefix can be asked for.
pub fn supports_prefix(order: KeyComparator) -> bool {
    !matches!(order.name(), "u64" | "i64" | "user:by length" | "user:backward")
}

/// Whether a key begins with a prefix.
pub fn has_prefix(order: KeyComparator, key: &[u8], prefix: &[u8]) -> bool {
    match order.name() {
        "case-insensitive" => lower(key).starts_with(&lower(prefix)),
        "lexicographic" => text(key).starts_with(text(prefix)),
        _ => key.starts_with(prefix),
    }
}
