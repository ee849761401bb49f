//! Uniform and Zipfian choice of keys. Seeded, so that every engine gets the same sequence.

use crate::keys::mix;

/// A small random number generator (SplitMix64, Steele et al. 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    /// Returns a uniform number below `n` (at least 1), by multiplication: the bias is below 2^-40
    /// for the sizes used here.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
    fn unit_interval(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Zipfian ranks with the exponent of YCSB, by the method of Gray et al. (SIGMOD 1994).
#[derive(Clone, Debug)]
pub struct Zipf {
    n: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    pub fn new(n: u64) -> Self {
        let theta = 0.99;
        // Beyond a million terms, an integral approximates the sum to five digits.
        let exact = n.min(1_000_000);
        let mut zeta: f64 = (1..=exact).map(|i| (i as f64).powf(-theta)).sum();
        if n > exact {
            zeta +=
                ((n as f64).powf(1.0 - theta) - (exact as f64).powf(1.0 - theta)) / (1.0 - theta);
        }
        let zeta2 = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0 / n as f64).powf(1.0 - theta)) / (1.0 - zeta2 / zeta);
        Zipf { n, theta, alpha: 1.0 / (1.0 - theta), zeta, eta }
    }
    /// Returns a rank below `n`; 0 is the most frequent.
    pub fn rank(&self, rng: &mut Rng) -> u64 {
        let u = rng.unit_interval();
        let uz = u * self.zeta;
        if uz < 1.0 || self.n < 2 {
            return 0;
        }
        if uz < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let rank = self.n as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.n - 1)
    }
    /// Returns a rank scattered over all numbers below `n`, so that hot keys are not neighbours.
    pub fn scattered_rank(&self, rng: &mut Rng) -> u64 {
        mix(self.rank(rng).wrapping_add(1)) % self.n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_first_rank_has_expected_frequency() {
        let (zipf, mut rng) = (Zipf::new(1000), Rng::new(1));
        let mut hits = [0u32; 1000];
        for _ in 0..100_000 {
            hits[zipf.rank(&mut rng) as usize] += 1;
        }
        let expected = 100_000.0 / (1..=1000).map(|i| f64::from(i).powf(-0.99)).sum::<f64>();
        assert!((f64::from(hits[0]) / expected - 1.0).abs() < 0.05, "{} for {expected}", hits[0]);
        assert!(hits[0] > hits[10] && hits[10] > hits[200]);
    }
}
