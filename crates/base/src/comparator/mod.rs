//! Comparators: the order of the keys of a column family. Byte order has a fast path. The name of
//! the comparator is stored, so that a column family is never read under another comparator than
//! the one it was written with.
//!
//! Two keys that compare equal are **one key**, even if their bytes differ: equality is tested by
//! [`KeyComparator::keys_equal`], and filters hash [`KeyComparator::filter_hash`]. Invariant:
//! `keys_equal(a, b)` if and only if `cmp(a, b)` is `Equal`, and if and only if the canonical forms
//! are the same bytes.

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
    /// Unsigned bytes, a prefix before longer keys (`memcmp`). The fastest.
    #[default]
    Bytes,
    /// Reverse byte order: largest first.
    Reverse,
    /// Keys of 8 bytes compare as little-endian unsigned integers; all shorter keys come before
    /// them and all longer keys after them, each in byte order.
    U64,
    /// Like `U64`, with signed integers.
    I64,
    /// Byte order after mapping `A` to `Z` to `a` to `z` (ASCII only). Keys that differ only in
    /// case are the same key; reads return the key as it was last written.
    CaseInsensitive,
    /// C string order: a key ends before its first NUL byte. Keys that differ only after it are the
    /// same key; reads return the key as it was last written.
    Lexicographic,
    /// A user-defined comparator; see [`KeyComparator::register`].
    Registered(&'static RegisteredComparator),
}

/// The expected value ([`Error::expected_value`]) of the error for a comparator that is not
/// registered; the actual value is the name of the comparator, without the prefix of stored names.
pub const REGISTERED_COMPARATOR: &str = "a registered comparator";

/// The built-in comparators, each with its stored name.
pub const BUILT_IN_COMPARATORS: [(KeyComparator, &str); 6] = [
    (KeyComparator::Bytes, "bytes"),
    (KeyComparator::Reverse, "reverse"),
    (KeyComparator::U64, "u64"),
    (KeyComparator::I64, "i64"),
    (KeyComparator::CaseInsensitive, "case-insensitive"),
    (KeyComparator::Lexicographic, "lexicographic"),
];

impl KeyComparator {
    /// Registers a user-defined comparator under a name, for the life of the process. The function
    /// must be a total order over all byte strings (it is checked for some) and must be
    /// deterministic. The name must always refer to this function: a changed function needs a new
    /// name. Additional state is captured by the closure.
    ///
    /// Files of column families with such a comparator have no filters, because equal keys may have
    /// different bytes; see [`KeyComparator::register_canonical`]. Registering the same function
    /// again returns the same comparator.
    ///
    /// # Errors
    /// `InvalidArgument`: an invalid name, a function that is not a total order, another function
    /// under a name in use, or more than 65,536 comparators.
    pub fn register(
        name: &str,
        compare: impl Fn(&[u8], &[u8]) -> Ordering + Send + Sync + 'static,
    ) -> Result<KeyComparator> {
        registered::register(name, Box::new(compare), None).map(KeyComparator::Registered)
    }

    /// Registers a comparator like [`KeyComparator::register`], with a canonical form: bytes that
    /// are the same if and only if the keys compare equal. Filters hash the canonical form, so
    /// files have filters. If only identical keys are equal, it is `|key| key.to_vec()`.
    ///
    /// # Errors
    /// Same as [`KeyComparator::register`].
    pub fn register_canonical(
        name: &str,
        compare: impl Fn(&[u8], &[u8]) -> Ordering + Send + Sync + 'static,
        canonical: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Result<KeyComparator> {
        registered::register(name, Box::new(compare), Some(Box::new(canonical)))
            .map(KeyComparator::Registered)
    }

    /// Returns the name stored in the manifest; that of a user-defined comparator begins with
    /// `user:`.
    pub fn name(self) -> &'static str {
        match self {
            KeyComparator::Registered(r) => r.name(),
            built_in => BUILT_IN_COMPARATORS
                .iter()
                .find(|(o, _)| *o == built_in)
                .map_or("", |(_, name)| name),
        }
    }

    /// Returns the comparator with a stored name.
    ///
    /// # Errors
    /// `InvalidArgument` for a user-defined comparator that is not registered in this process;
    /// `FormatTooNew` for an unknown name.
    pub fn by_name(name: &str) -> Result<KeyComparator> {
        if let Some((comparator, _)) = BUILT_IN_COMPARATORS.iter().find(|(_, n)| *n == name) {
            return Ok(*comparator);
        }
        match name.strip_prefix(registered::USER_PREFIX) {
            Some(user_name) => registered::find_registered(name)
                .map(KeyComparator::Registered)
                .ok_or_else(|| unregistered_error(user_name)),
            None => Err(Error::new(
                ErrorKind::FormatTooNew,
                format!(
                    "the column family uses the comparator {name:?}, which this version does not \
                     support: open it with a newer Perigee"
                ),
            )),
        }
    }

    /// Returns the fingerprint of a user-defined comparator, which distinguishes it from other
    /// functions of the same name; `None` for a built-in one.
    pub fn fingerprint(self) -> Option<u64> {
        if let KeyComparator::Registered(r) = self { Some(r.fingerprint()) } else { None }
    }

    /// Fails unless `stored` is the fingerprint of this comparator.
    pub fn check_fingerprint(self, stored: Option<u64>) -> Result<()> {
        if self.fingerprint() == stored {
            Ok(())
        } else {
            Err(registered::mismatch_error(self.name()))
        }
    }

    /// Fails for a user-defined comparator that is not in `known`, the comparators that the caller
    /// of `open` registered.
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

    /// Returns true if two user keys are the same key.
    #[inline]
    pub fn keys_equal(self, a: &[u8], b: &[u8]) -> bool {
        if self.has_bytewise_equality() { a == b } else { self.cmp_special(a, b).is_eq() }
    }

    /// Returns true if only identical bytes are the same key.
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

    /// Returns the canonical form of a key, which all equal keys share; the key itself if the
    /// comparator has no canonical form.
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

    /// Returns true if files can have filters, which requires a canonical form.
    pub fn supports_filters(self) -> bool {
        !matches!(self, KeyComparator::Registered(RegisteredComparator { canonical: None, .. }))
    }
    /// Returns a hash that equal keys share under every comparator: [`KeyComparator::filter_hash`]
    /// if filters are supported, else a constant.
    #[inline]
    pub fn equality_hash(self, key: &[u8]) -> u64 {
        if self.supports_filters() { self.filter_hash(key) } else { 0 }
    }

    /// Returns the hash of a key for filters; equal keys have the same hash.
    #[inline]
    pub fn filter_hash(self, key: &[u8]) -> u64 {
        if self.has_bytewise_equality() {
            checksum::key_hash(key)
        } else {
            checksum::key_hash(&self.canonical(key))
        }
    }

    /// Returns the range of the keys that begin with `prefix`, lower bound first under this
    /// comparator. Prefixes are compared by canonical form (case-folded, or up to the first NUL
    /// byte).
    ///
    /// # Errors
    /// `InvalidArgument` if keys with a common prefix are not contiguous: `u64`, `i64` and
    /// user-defined comparators (unless the prefix is empty).
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
                    "keys with a common prefix are not contiguous under the comparator {:?}: \
                     use a key range instead",
                    self.name()
                )))
            }
        }
    }
}

/// Formats as [`KeyComparator::name`].
impl std::fmt::Display for KeyComparator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Parses a name, as in an options file.
///
/// # Errors
/// `InvalidArgument` for an unknown name, or if a user-defined comparator is not registered.
impl std::str::FromStr for KeyComparator {
    type Err = Error;
    fn from_str(name: &str) -> Result<KeyComparator> {
        KeyComparator::by_name(name).map_err(|e| match e.kind() {
            ErrorKind::FormatTooNew => Error::invalid(format!(
                "{name:?} is not one of \"bytes\", \"reverse\", \"u64\", \"i64\", \
                 \"case-insensitive\", \"lexicographic\", or \"user:NAME\" for a registered one"
            )),
            _ => e,
        })
    }
}

fn unregistered_error(name: &str) -> Error {
    Error::invalid(format!(
        "the column family uses the user-defined comparator {name:?}, which is not registered: \
         pass it to Options::register_comparator, as the program that wrote the database does"
    ))
    .expected(REGISTERED_COMPARATOR, name)
}

/// Returns the key up to its first NUL byte.
fn text_before_nul(key: &[u8]) -> &[u8] {
    key.iter().position(|b| *b == 0).map_or(key, |end| &key[..end])
}

fn cmp_integer_keys<N: Ord>(a: &[u8], b: &[u8], number: impl Fn([u8; 8]) -> N) -> Ordering {
    match (<[u8; 8]>::try_from(a), <[u8; 8]>::try_from(b)) {
        (Ok(a), Ok(b)) => number(a).cmp(&number(b)),
        _ => a.len().cmp(&8).cmp(&b.len().cmp(&8)).then_with(|| a.cmp(b)),
    }
}

/// Returns the smallest bytes greater than everything that begins with `prefix`; `None` if there
/// are none. If `folded`, among bytes without uppercase letters.
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
