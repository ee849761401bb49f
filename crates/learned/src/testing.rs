//! Seeded random numbers and key distributions for the tests of this crate.

/// A small random number generator.
pub struct LearnedTestRng(u64);

impl LearnedTestRng {
    pub fn new(seed: u64) -> LearnedTestRng {
        LearnedTestRng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        z = (z ^ (z >> 29)).wrapping_mul(0xA24B_AED4_963E_E407);
        z ^ (z >> 32)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// Returns a number between 0 and 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// The key distributions that a map is tested with.
pub const KEY_KINDS: [&str; 11] = [
    "ascending",
    "descending",
    "random",
    "lognormal",
    "heavy",
    "clustered",
    "duplicates",
    "extremes",
    "powers",
    "squeezed",
    "zigzag",
];

/// Returns key number `i` of a distribution.
pub fn key_of_kind(kind: &str, i: u64, rng: &mut LearnedTestRng) -> u64 {
    match kind {
        "ascending" => i * 3 + rng.below(3),
        "descending" => u64::MAX - i * 5,
        "random" => rng.next(),
        "lognormal" => {
            (rng.normal() * 2.0).exp().min(1e9) as u64 * 1_000_000 + rng.below(1_000_000)
        }
        // Pareto with a tail so heavy that it has no mean.
        "heavy" => (1.0 / (1.0 - rng.unit())).powf(3.0).min(1e19) as u64,
        "clustered" => (rng.below(20) << 55) + rng.below(2000),
        "duplicates" => rng.below(300),
        "extremes" => [0, 1, u64::MAX, u64::MAX - 1, 1 << 63][rng.below(5) as usize] ^ rng.below(2),
        "powers" => (1u64 << rng.below(64)).wrapping_add(rng.below(64)),
        // Always inserts into the same gap between two keys.
        "squeezed" => u64::MAX / 2 + if i.is_multiple_of(2) { i } else { u64::MAX / 4 - i },
        "zigzag" => {
            if i.is_multiple_of(2) {
                i
            } else {
                u64::MAX - i
            }
        }
        other => panic!("unknown key distribution {other}"),
    }
}
