//! Pseudo-random numbers for randomised tests.

/// A generator whose state must not be 0.
pub struct Rng(pub u64);

impl Rng {
    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
