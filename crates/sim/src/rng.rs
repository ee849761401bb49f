//! Random numbers of the drivers: SplitMix64, seeded, so that a case is a number. Not for the
//! engine, which gets its randomness from the simulated environment.

/// A seeded random number generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// Mixes two numbers into a seed.
pub fn mix(a: u64, b: u64) -> u64 {
    let mut rng = Rng(a ^ b.wrapping_mul(0xD6E8_FEB8_6659_FD93));
    rng.next();
    rng.next()
}

impl Rng {
    /// Creates the generator for `seed`.
    pub fn new(seed: u64) -> Self {
        Rng(mix(seed, 0x5EED))
    }
    /// Returns the next number.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// Returns a number below `n` (0 if `n` is 0).
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }
    /// Returns an index below `n`.
    pub fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).expect("below a usize")
    }
    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.index(high + 1 - low)
    }
    /// Returns true with this probability in percent.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    /// Returns a random element.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }
    /// Returns a random index, by weight.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut at = self.below(weights.iter().map(|&w| u64::from(w)).sum());
        for (i, &w) in weights.iter().enumerate() {
            if at < u64::from(w) {
                return i;
            }
            at -= u64::from(w);
        }
        weights.len() - 1
    }
    /// Returns a number from 1 to `max`, small ones more likely: every power of two has the same
    /// chance.
    pub fn log_uniform(&mut self, max: u64) -> u64 {
        let bits = u64::from(64 - max.max(1).leading_zeros());
        let top = 1u64 << self.below(bits);
        (top + self.below(top)).min(max.max(1))
    }
}

/// Returns the bytes of a unique value: starts with `id`, followed by noise or (for even ids) a
/// compressible pattern.
pub fn value_bytes(id: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(id);
    let mut out = Vec::with_capacity(len + 8);
    out.extend_from_slice(&id.to_le_bytes());
    while out.len() < len {
        if id.is_multiple_of(2) {
            out.extend_from_slice(b"tide tide");
        } else {
            out.extend_from_slice(&rng.next().to_le_bytes());
        }
    }
    out.truncate(len);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_in_range_and_repeats() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for _ in 0..10_000 {
            let n = a.log_uniform(600);
            assert!((1..=600).contains(&n));
            assert_eq!(n, b.log_uniform(600));
            assert!((3..=5).contains(&a.between(3, 5)));
            b.between(3, 5);
        }
        assert_eq!(value_bytes(3, 20).len(), 20);
        assert_eq!(value_bytes(3, 0), b"");
    }
}
