//! Random numbers, for database ids and the simulation. Not suitable for secrets.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of random numbers.
pub trait Rand: Send + Sync + Debug {
    /// Returns the next number.
    fn next_u64(&self) -> u64;
    /// Fills `bytes` so that no other call, in any process, returns the same bytes, except with
    /// negligible probability. From 16 bytes on; for nonces.
    fn fill_unique(&self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.next_u64().to_le_bytes()[..part.len()]);
        }
    }
}

/// A random source that differs in every process.
#[derive(Debug)]
pub struct RealRand {
    state: AtomicU64,
}

impl RealRand {
    /// Creates a source seeded by the operating system.
    pub fn new() -> Self {
        // The hash keys of the standard library also come from the system; they suffice where its
        // random source cannot be used.
        let mut seed = RandomState::new().build_hasher().finish();
        let mut bytes = [0; 8];
        fill_from_system(&mut bytes);
        seed ^= u64::from_le_bytes(bytes);
        RealRand { state: AtomicU64::new(seed) }
    }
}

impl Default for RealRand {
    fn default() -> Self {
        Self::new()
    }
}

impl Rand for RealRand {
    fn next_u64(&self) -> u64 {
        mix64(self.state.fetch_add(SPLITMIX_STEP, Ordering::Relaxed).wrapping_add(SPLITMIX_STEP))
    }
    /// Random bytes of the operating system, combined with this source's own numbers in case that
    /// the system has none.
    fn fill_unique(&self, bytes: &mut [u8]) {
        fill_from_system(bytes);
        for part in bytes.chunks_mut(8) {
            let own = self.next_u64().to_le_bytes();
            part.iter_mut().zip(own).for_each(|(byte, own)| *byte ^= own);
        }
    }
}

/// Fills `bytes` with random bytes of the operating system; leaves the rest unchanged on an error.
#[cfg(target_os = "linux")]
fn fill_from_system(bytes: &mut [u8]) {
    let flags = rustix::rand::GetRandomFlags::empty();
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes[filled..], flags)) {
            Ok(n) if n > 0 => filled += n,
            _ => break,
        }
    }
}

/// Fills `bytes` with random bytes of the operating system, unless there is an error.
#[cfg(not(target_os = "linux"))]
fn fill_from_system(bytes: &mut [u8]) {
    let _ = getrandom::fill(bytes);
}

/// A seeded generator (SplitMix64, Steele et al., OOPSLA 2014). The sequence of a seed never
/// changes.
#[derive(Clone, Debug)]
pub struct SeededRng {
    state: u64,
}

impl SeededRng {
    /// Creates the generator with seed `seed`.
    pub fn new(seed: u64) -> Self {
        // The seed is mixed once, so that neighbouring seeds do not give shifted copies of one
        // sequence.
        SeededRng { state: mix64(seed ^ 0x5045_5249_4745_4521) }
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(SPLITMIX_STEP);
        mix64(self.state)
    }

    /// Returns a number below `bound` (0 if `bound` is 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns an index below `len` (0 if `len` is 0).
    pub fn index(&mut self, len: usize) -> usize {
        check!(len > 0, "an index is chosen among at least one");
        self.below(len as u64) as usize
    }

    /// Returns true with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        check!((0.0..=1.0).contains(&p), "a probability is between 0 and 1", p);
        // 53 bits: exact for p = 0 (never) and p = 1 (always).
        ((self.next_u64() >> 11) as f64) < p * (1_u64 << 53) as f64
    }

    /// Returns an independent generator seeded from this one.
    pub fn fork(&mut self) -> SeededRng {
        SeededRng::new(self.next_u64())
    }
}

const SPLITMIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_same_numbers() {
        let (mut a, mut b, mut c) = (SeededRng::new(7), SeededRng::new(7), SeededRng::new(8));
        let (x, y, z) = (a.next_u64(), b.next_u64(), c.next_u64());
        assert_eq!(x, y);
        assert_ne!(x, z);
    }

    #[test]
    fn below_and_chance_stay_in_bounds() {
        let mut r = SeededRng::new(1);
        assert!((0..1000).all(|_| r.below(3) < 3));
        assert_eq!(r.below(0), 0);
        assert!((0..100).all(|_| r.chance(1.0) && !r.chance(0.0)));
    }

    #[test]
    fn two_real_sources_differ() {
        assert_ne!(RealRand::new().next_u64(), RealRand::new().next_u64());
    }

    #[test]
    fn system_fills_every_byte() {
        let mut seen = [0; 100];
        for _ in 0..20 {
            let mut bytes = [0; 100];
            fill_from_system(&mut bytes);
            seen.iter_mut().zip(bytes).for_each(|(seen, byte)| *seen |= byte);
        }
        assert!(seen.iter().all(|b| *b != 0), "{seen:?}");
    }
}
