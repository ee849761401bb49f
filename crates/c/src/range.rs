//! Ranges of keys, as `perigee_range`.

use crate::boundary::{Bytes, Struct};
use perigee::{Error, Family, Result, limits};
use std::ffi::{c_uint, c_void};
use std::ops::Bound;
use std::ptr::null;

pub const LOWER_EXCLUSIVE: c_uint = 1;
pub const UPPER_INCLUSIVE: c_uint = 2;
pub const PREFIX: c_uint = 4;

/// `perigee_range`.
#[repr(C)]
pub struct Range {
    lower: *const c_void,
    lower_size: usize,
    upper: *const c_void,
    upper_size: usize,
    flags: c_uint,
}

/// Bounds of keys.
pub type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A range from C with its bounds checked.
pub enum KeyRange<'a> {
    /// The keys that begin with this prefix.
    Prefix(&'a [u8]),
    /// The keys between two bounds.
    Bounds(Bound<&'a [u8]>, Bound<&'a [u8]>),
}

impl Struct<Range> {
    /// Returns the range; null is all keys.
    pub fn key_range(&self) -> Result<KeyRange<'_>> {
        let Some(range) = self.get() else {
            return Ok(KeyRange::Bounds(Bound::Unbounded, Bound::Unbounded));
        };
        if range.flags & !(LOWER_EXCLUSIVE | UPPER_INCLUSIVE | PREFIX) != 0 {
            return Err(Error::invalid(format!(
                "{:#x} is not a combination of the flags of a perigee_range",
                range.flags
            )));
        }
        let key = |data, size| Bytes(data).optional(size, limits::KEY_BYTES_MAX);
        let lower = key(range.lower, range.lower_size)?;
        if range.flags & PREFIX != 0 {
            return Ok(KeyRange::Prefix(lower.unwrap_or_default()));
        }
        let lower = lower.map_or(Bound::Unbounded, |key| match range.flags & LOWER_EXCLUSIVE {
            0 => Bound::Included(key),
            _ => Bound::Excluded(key),
        });
        let upper = key(range.upper, range.upper_size)?;
        let upper = upper.map_or(Bound::Unbounded, |key| match range.flags & UPPER_INCLUSIVE {
            0 => Bound::Excluded(key),
            _ => Bound::Included(key),
        });
        Ok(KeyRange::Bounds(lower, upper))
    }
    /// Returns the bounds of the range in the order of a column family.
    ///
    /// # Errors
    /// `InvalidArgument` for a prefix if the comparator does not support prefixes.
    pub fn bounds(&self, family: &Family) -> Result<KeyBounds> {
        match self.key_range()? {
            KeyRange::Prefix(prefix) => family.options().comparator.prefix_range(prefix),
            KeyRange::Bounds(lower, upper) => {
                Ok((lower.map(<[u8]>::to_vec), upper.map(<[u8]>::to_vec)))
            }
        }
    }
}

/// Splits a bound into pointer, size and whether it is set and inclusive.
pub fn bound_parts(bound: Bound<&[u8]>) -> (*const c_void, usize, bool) {
    match bound {
        Bound::Included(key) => (key.as_ptr().cast(), key.len(), true),
        Bound::Excluded(key) => (key.as_ptr().cast(), key.len(), false),
        Bound::Unbounded => (null(), 0, false),
    }
}
