//! Quantities with a unit. Each is a newtype for functions that take several quantities, so that
//! they cannot be swapped in a call.

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Bytes(pub u64);

/// A duration, or a monotonic point in time, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Micros(pub u64);

/// A number of tombstones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Tombstones(pub u64);
