//! The order of a family's keys. Byte order is the fast path; the name of every order is stored, so
//! that a family is never read under another order than it was written in.
//!
//! Two keys that an order calls equal are **one key**, whatever their bytes: equality goes through
//! [`KeyComparator::equal`], filters hash [`KeyComparator::filter_hash`]. Invariant: `equal(a, b)`
//! exactly if `cmp(a, b)` is `Equal` exactly if the canonical forms are the same bytes.

mod registered;

use crate::{Error, ErrorKind, Result, checksum};
use registered::RegisteredComparator;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Bound;

/// A total order over keys.
///
/// ```
/// use perigee_base::KeyComparator;
/// use std::cmp::Ordering::*;
/// assert_eq!(KeyComparator::Reverse.cmp(b"a", b"b"), Greater);
/// assert_eq!(KeyComparator::I64.cmp(&(-1i64).to_le_bytes(), &1i64.to_le_bytes()), Less);
/// assert_eq!(KeyComparator::CaseInsensitive.cmp(b"Tide", b"tIDE"), Equal);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyComparator {
    /// Unsigned bytes, shorter first (`memcmp`). The fastest.
    #[default]
    Bytes,
    /// Bytes, backward: largest first.
    Reverse,
    /// Keys of 8 bytes by their value as a little-endian unsigned integer; all shorter keys come
    /// before them and all longer keys behind them, each in byte order.
    U64,
    /// The same with signed integers.
    I64,
    /// Bytes after `A` to `Z` became `a` to `z` (ASCII only). Keys that differ only in case are the
    /// same key; it is shown as it was last written.
    CaseInsensitive,
    /// Text as C compares it: a key ends before its first NUL byte. Keys that differ only behind it
    /// are the same key; it is shown as it was last written.
    Lexicographic,
    /// A user's own; see [`KeyComparator::register`].
    Registered(&'static RegisteredComparator),
}

/// What an error expects ([`Error::expected_value`]) if it misses a user's order; what it got is
/// the order's name, without what stored names begin with.
pub const REGISTERED_COMPARATOR: &str = "a registered key order";

/// The built-in orders, each with its stored name.
pub const BUILT_IN_COMPARATORS: [(KeyComparator, &str); 6] = [
    (KeyComparator::Bytes, "bytes"),
    (KeyComparator::Reverse, "reverse"),
    (KeyComparator::U64, "u64"),
    (KeyComparator::I64, "i64"),
    (KeyComparator::CaseInsensitive, "case-insensitive"),
    (KeyComparator::Lexicographic, "lexicographic"),
];

impl KeyComparator {
    /// Registers a user's own order under a name, for the life of the process. The function must be
    /// a total order over all byte strings (it is tried on some), must always answer the same, and
    /// stands for its name for ever: a changed function needs a new name. What it needs to know
    /// beside the keys, it captures.
    ///
    /// Files of families with such an order have no filters, because equal keys may have different
    /// bytes; see [`KeyComparator::register_canonical`]. Registering the same function again gives
    /// the same order.
    ///
    /// # Errors
    /// `InvalidArgument`: a bad name, no order, another function under a name that is taken, more
    /// than 65,536 orders.
    pub fn register(
        name: &str,
        compare: impl Fn(&[u8], &[u8]) -> Ordering + Send + Sync + 'static,
    ) -> Result<KeyComparator> {
        registered::register(name, Box::new(compare), None).map(KeyComparator::Registered)
    }

    /// The same with a canonical form: bytes that are the same exactly for keys that the order
    /// calls equal. Filters hash it, so files have filters. If only identical keys are equal, it is
    /// `|key| key.to_vec()`.
    ///
    /// # Errors
    /// As [`KeyComparator::register`].
    pub fn register_canonical(
        name: &str,
        compare: impl Fn(&[u8], &[u8]) -> Ordering + Send + Sync + 'static,
        canonical: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Result<KeyComparator> {
        registered::register(name, Box::new(compare), Some(Box::new(canonical)))
            .map(KeyComparator::Registered)
    }

    /// The name in the manifest; that of a user's order begins with `user:`.
    pub fn name(self) -> &'static str {
        match self {
            KeyComparator::Registered(r) => r.name(),
            order => {
                BUILT_IN_COMPARATORS.iter().find(|(o, _)| *o == order).map_or("", |(_, name)| name)
            }
        }
    }

    /// The order of that name.
    ///
    /// # Errors
    /// `InvalidArgument` for a user's order that is not registered in this process; `FormatTooNew`
    /// for an unknown name.
    pub fn by_name(name: &str) -> Result<KeyComparator> {
        if let Some((order, _)) = BUILT_IN_COMPARATORS.iter().find(|(_, n)| *n == name) {
            return Ok(*order);
        }
        match name.strip_prefix(registered::USER_PREFIX) {
            Some(own) => registered::find_registered(name)
                .map(KeyComparator::Registered)
                .ok_or_else(|| unregistered_error(own)),
            None => Err(Error::new(
                ErrorKind::FormatTooNew,
                format!("the family uses the key order {name:?}, which this version does not know"),
            )),
        }
    }

    /// For a user's order: what tells it from another function under its name.
    pub fn fingerprint(self) -> Option<u64> {
        if let KeyComparator::Registered(r) = self { Some(r.fingerprint()) } else { None }
    }

    /// Fails unless `stored` is the order's fingerprint.
    pub fn check_fingerprint(self, stored: Option<u64>) -> Result<()> {
        if self.fingerprint() == stored {
            Ok(())
        } else {
            Err(registered::mismatch_error(self.name()))
        }
    }

    /// Fails for a user's order that is not in `known`, the orders that the caller of `open`
    /// registered.
    pub fn check_registered(self, known: &[KeyComparator]) -> Result<()> {
        match self {
            KeyComparator::Registered(r) if !known.contains(&self) => {
                Err(unregistered_error(r.name().trim_start_matches(registered::USER_PREFIX)))
            }
            _ => Ok(()),
        }
    }

    /// Compares two user keys.
    #[inline]
    pub fn cmp(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            KeyComparator::Bytes => a.cmp(b),
            other => other.cmp_special(a, b),
        }
    }

    /// Whether two user keys are the same key.
    #[inline]
    pub fn keys_equal(self, a: &[u8], b: &[u8]) -> bool {
        if self.has_bytewise_equality() { a == b } else { self.cmp_special(a, b).is_eq() }
    }

    /// Whether only identical bytes are the same key.
    #[inline]
    pub fn has_bytewise_equality(self) -> bool {
        matches!(
            self,
            KeyComparator::Bytes | KeyComparator::Reverse | KeyComparator::U64 | KeyComparator::I64
        )
    }

    #[cold]
    #[inline(never)]
    fn cmp_special(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            KeyComparator::Bytes => a.cmp(b),
            KeyComparator::Reverse => b.cmp(a),
            KeyComparator::U64 => cmp_integer_keys(a, b, u64::from_le_bytes),
            KeyComparator::I64 => cmp_integer_keys(a, b, i64::from_le_bytes),
            KeyComparator::CaseInsensitive => {
                a.iter().map(u8::to_ascii_lowercase).cmp(b.iter().map(u8::to_ascii_lowercase))
            }
            KeyComparator::Lexicographic => text_before_nul(a).cmp(text_before_nul(b)),
            KeyComparator::Registered(r) => (r.compare)(a, b),
        }
    }

    /// The bytes that all keys equal to this one have in common; the key itself where that is not
    /// known.
    pub fn canonical(self, key: &[u8]) -> Cow<'_, [u8]> {
        match self {
            KeyComparator::CaseInsensitive if key.iter().any(u8::is_ascii_uppercase) => {
                Cow::Owned(key.to_ascii_lowercase())
            }
            KeyComparator::Lexicographic => Cow::Borrowed(text_before_nul(key)),
            KeyComparator::Registered(RegisteredComparator {
                canonical: Some(canonical), ..
            }) => Cow::Owned(canonical(key)),
            _ => Cow::Borrowed(key),
        }
    }

    /// Whether filters work: the canonical form of a key is known.
    pub fn supports_filters(self) -> bool {
        !matches!(self, KeyComparator::Registered(RegisteredComparator { canonical: None, .. }))
    }
    /// A hash that equal keys share in every order: [`KeyComparator::filter_hash`] where that is
    /// one, else always the same.
    #[inline]
    pub fn equality_hash(self, key: &[u8]) -> u64 {
        if self.supports_filters() { self.filter_hash(key) } else { 0 }
    }

    /// The hash of a key for filters: equal keys have the same.
    #[inline]
    pub fn filter_hash(self, key: &[u8]) -> u64 {
        if self.has_bytewise_equality() {
            checksum::key_hash(key)
        } else {
            checksum::key_hash(&self.canonical(key))
        }
    }

    /// The range of the keys that begin with `prefix`, first bound first in this order; case and
    /// text as the order sees them.
    ///
    /// # Errors
    /// `InvalidArgument` where such keys are no range: `u64`, `i64` and users' orders (unless the
    /// prefix is empty).
    #[allow(clippy::type_complexity)]
    pub fn prefix_range(self, prefix: &[u8]) -> Result<(Bound<Vec<u8>>, Bound<Vec<u8>>)> {
        if prefix.is_empty() {
            return Ok((Bound::Unbounded, Bound::Unbounded));
        }
        let low = self.canonical(prefix).into_owned();
        match self {
            KeyComparator::Bytes
            | KeyComparator::Lexicographic
            | KeyComparator::CaseInsensitive => {
                let high = prefix_successor(low.clone(), self == KeyComparator::CaseInsensitive);
                Ok((Bound::Included(low), high.map_or(Bound::Unbounded, Bound::Excluded)))
            }
            KeyComparator::Reverse => {
                let high = prefix_successor(low.clone(), false);
                Ok((high.map_or(Bound::Unbounded, Bound::Excluded), Bound::Included(low)))
            }
            KeyComparator::U64 | KeyComparator::I64 | KeyComparator::Registered(_) => {
                Err(Error::invalid(format!(
                    "keys with one prefix do not lie together in the key order {:?}: ask for a range",
                    self.name()
                )))
            }
        }
    }
}

fn unregistered_error(name: &str) -> Error {
    Error::invalid(format!(
        "the family uses the user's key order {name:?}, which is not registered: pass it to Options::register_comparator, as \
         the program that wrote the database does"
    ))
    .expected(REGISTERED_COMPARATOR, name)
}

/// The key as text ends before its first NUL.
fn text_before_nul(key: &[u8]) -> &[u8] {
    key.iter().position(|b| *b == 0).map_or(key, |end| &key[..end])
}

fn cmp_integer_keys<N: Ord>(a: &[u8], b: &[u8], number: impl Fn([u8; 8]) -> N) -> Ordering {
    match (<[u8; 8]>::try_from(a), <[u8; 8]>::try_from(b)) {
        (Ok(a), Ok(b)) => number(a).cmp(&number(b)),
        _ => a.len().cmp(&8).cmp(&b.len().cmp(&8)).then_with(|| a.cmp(b)),
    }
}

/// The first bytes behind everything that begins with `prefix`; none if nothing is. Folded: among
/// lower-case bytes.
fn prefix_successor(mut prefix: Vec<u8>, folded: bool) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        let next = match last.checked_add(1) {
            Some(b'A') if folded => b'Z' + 1,
            Some(next) => next,
            None => continue,
        };
        prefix.push(next);
        return Some(prefix);
    }
    None
}

#[cfg(test)]
mod tests;
