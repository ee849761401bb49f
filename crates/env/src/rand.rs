//! Randomness: for database ids and the simulation. Never for anything that must be secret.

use std::fmt::Debug;

/// A source of random numbers.
pub trait Rand: Send + Sync + Debug {
    /// The next number.
    fn next_u64(&self) -> u64;
}
