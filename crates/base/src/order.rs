//! The order of a family's keys. Byte order is the fast path; others are registered by name, and the name is
//! stored, so that a family is never read under another order than it was written in.

use crate::{Error, Result};
use std::cmp::Ordering;

/// A total order over keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyOrder {
    /// Unsigned bytes, shorter first (`memcmp`).
    #[default]
    Bytes,
}

impl KeyOrder {
    /// The name in the manifest.
    pub fn name(self) -> &'static str {
        match self {
            KeyOrder::Bytes => "bytes",
        }
    }
    /// The order of that name.
    pub fn by_name(name: &str) -> Result<KeyOrder> {
        match name {
            "bytes" => Ok(KeyOrder::Bytes),
            other => Err(Error::new(
                crate::ErrorKind::FormatTooNew,
                format!("the family uses the key order {other:?}, which this version does not know"),
            )),
        }
    }
    /// Compares two user keys.
    #[inline]
    pub fn cmp(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            KeyOrder::Bytes => a.cmp(b),
        }
    }
}
