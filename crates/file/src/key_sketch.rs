//! Estimates the number of distinct keys in a table, and in several tables together: a HyperLogLog
//! sketch over key hashes (Flajolet et al., 2007). Sketches are merged by taking the maximum of
//! each register.
//!
//! With 2048 registers the standard error is 1.04 / sqrt(2048) = 2.3 %; an error of 7 % is exceeded
//! once in 400 cases. Small sets are estimated from the number of empty registers (linear
//! counting), which is more accurate.

use perigee_base::{Error, Result};

/// Hash bits that select a register.
const INDEX_BITS: u32 = 11;
/// Number of registers, which is also the size of the raw form in bytes.
pub const REGISTERS: usize = 1 << INDEX_BITS;
/// Maximum value of a register: the rank when none of the remaining hash bits is set.
const RANK_MAX: u8 = (64 - INDEX_BITS + 1) as u8;

/// A sketch of a set of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySketch {
    registers: Vec<u8>,
}

impl KeySketch {
    /// Creates the sketch of the empty set.
    pub fn new() -> KeySketch {
        KeySketch { registers: vec![0; REGISTERS] }
    }
    /// Adds a key by its hash.
    pub fn add(&mut self, hash: u64) {
        let at = (hash >> (64 - INDEX_BITS)) as usize;
        let rank = ((hash << INDEX_BITS).leading_zeros() as u8 + 1).min(RANK_MAX);
        self.registers[at] = self.registers[at].max(rank);
    }
    /// Merges another sketch; the result is the sketch of the union.
    pub fn merge(&mut self, other: &KeySketch) {
        check!(
            self.registers.len() == other.registers.len(),
            "sketches have the same registers",
            other.registers.len()
        );
        self.registers.iter_mut().zip(&other.registers).for_each(|(a, b)| *a = (*a).max(*b));
    }
    /// Returns the estimated number of distinct keys.
    pub fn estimate(&self) -> u64 {
        check_slow!(
            self.registers.iter().all(|rank| *rank <= RANK_MAX),
            "ranks of a sketch are bounded"
        );
        let m = REGISTERS as f64;
        let alpha = 0.7213 / (1.0 + 1.079 / m);
        let mut ranks = [0u32; RANK_MAX as usize + 1];
        self.registers.iter().for_each(|r| ranks[usize::from(*r)] += 1);
        let share = |(rank, n): (usize, &u32)| f64::from(*n) / (1u64 << rank) as f64;
        let sum: f64 = ranks.iter().enumerate().map(share).sum();
        let raw = alpha * m * m / sum;
        let empty = ranks[0];
        let counted =
            if raw <= 2.5 * m && empty > 0 { m * (m / f64::from(empty)).ln() } else { raw };
        counted.round() as u64
    }
    /// Returns the raw form: one byte per register.
    pub fn raw(&self) -> &[u8] {
        &self.registers
    }
    /// Decodes the raw form.
    pub fn decode(raw: &[u8]) -> Result<KeySketch> {
        if raw.len() != REGISTERS || raw.iter().any(|r| *r > RANK_MAX) {
            return Err(Error::corruption("malformed key sketch")
                .expected(format_args!("{REGISTERS} registers of at most {RANK_MAX}"), raw.len()));
        }
        Ok(KeySketch { registers: raw.to_vec() })
    }
}

impl Default for KeySketch {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::checksum::key_hash;

    fn sketch_of(keys: std::ops::Range<u64>) -> KeySketch {
        let mut s = KeySketch::new();
        keys.for_each(|k| s.add(key_hash(&k.to_be_bytes())));
        s
    }

    fn assert_near(got: u64, want: u64) {
        let off = (got as f64 - want as f64).abs() / want.max(1) as f64;
        assert!(off < 0.07, "{got} instead of {want}");
    }

    #[test]
    fn estimate_is_within_stated_error() {
        assert_eq!(KeySketch::new().estimate(), 0);
        for n in [1, 10, 100, 1000, 3000, 5000, 8000, 20_000, 300_000] {
            assert_near(sketch_of(0..n).estimate(), n);
        }
    }

    #[test]
    fn merge_counts_common_keys_once() {
        let mut a = sketch_of(0..50_000);
        a.merge(&sketch_of(25_000..75_000));
        assert_eq!(a, sketch_of(0..75_000));
        assert_near(a.estimate(), 75_000);
        a.merge(&a.clone());
        assert_near(a.estimate(), 75_000);
    }

    #[test]
    fn raw_form_round_trips_and_bad_forms_are_refused() {
        let s = sketch_of(0..9000);
        assert_eq!(KeySketch::decode(s.raw()).unwrap(), s);
        assert!(KeySketch::decode(&s.raw()[1..]).is_err());
        assert!(KeySketch::decode(&[RANK_MAX + 1; REGISTERS]).is_err());
        let mut extreme = KeySketch::new();
        extreme.add(0);
        assert_eq!(KeySketch::decode(extreme.raw()).unwrap(), extreme);
    }
}
