//! Quantities with a unit. Each is a newtype for functions that take several quantities, so that
//! they cannot be swapped in a call.

use std::time::Duration;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Bytes(pub u64);

/// A duration, or a monotonic point in time, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Micros(pub u64);

impl Micros {
    /// Converts a duration, rounded up so that only zero becomes zero.
    pub fn from_duration_rounded_up(t: Duration) -> Micros {
        Micros(u64::try_from(t.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX))
    }
}

/// A number of tombstones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Tombstones(pub u64);
