//! Values that follow from a number and a version, so that every value read can be compared in
//! full.
//!
//! Invariant: the value of one number is not accepted for another (a ramp repeats after 256
//! numbers), nor an old version for a new one.

use crate::keys::mix;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Choices of `--values`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueChoice {
    /// Values of TidesDB's benchmark: consecutive bytes; LZ4 makes them ten times smaller.
    Ramp,
    /// Half of the bytes are random.
    Half,
    /// All bytes are random.
    Random,
}

/// Format of all values of a run.
#[derive(Clone, Copy, Debug)]
pub struct ValueFormat {
    pub choice: ValueChoice,
    pub bytes: usize,
}

/// Two periods of the ramp, so that it can be copied from any start.
const RAMP: [u8; 512] = {
    let mut r = [0; 512];
    let mut i = 0;
    while i < 512 {
        r[i] = i as u8;
        i += 1;
    }
    r
};

/// A ramp's start moves by this amount per version (odd: 256 versions differ).
const VERSION_STEP: u8 = 37;

impl ValueFormat {
    /// Writes the value of `i` at `version` to `out`, which is resized to the value length.
    pub fn write_value<'a>(&self, i: u64, version: u16, out: &'a mut Vec<u8>) -> &'a [u8] {
        out.resize(self.bytes, b'v');
        match self.choice {
            ValueChoice::Ramp => {
                let start = (i as u8).wrapping_add((version as u8).wrapping_mul(VERSION_STEP));
                for chunk in out.chunks_mut(256) {
                    let n = chunk.len();
                    chunk.copy_from_slice(&RAMP[usize::from(start)..][..n]);
                }
            }
            ValueChoice::Half => {
                let n = (self.bytes / 2).max(8).min(self.bytes);
                noise(header(i, version), &mut out[..n]);
                out[n..].fill(b'v');
            }
            ValueChoice::Random => noise(header(i, version), out),
        }
        out
    }
    /// Returns true if `got` is the value of `i` at this version or, with `None`, at any version.
    pub fn matches(&self, got: &[u8], i: u64, version: Option<u16>, scratch: &mut Vec<u8>) -> bool {
        if got.len() != self.bytes {
            return false;
        }
        match version.or_else(|| self.version_of(got, i)) {
            Some(v) => self.write_value(i, v, scratch) == got,
            None => false,
        }
    }
    /// Returns the version that `got` would have as a value of `i`.
    pub fn version_of(&self, got: &[u8], i: u64) -> Option<u16> {
        if self.choice == ValueChoice::Ramp {
            let offset = got.first()?.wrapping_sub(i as u8);
            return (0..256).find(|v| (*v as u8).wrapping_mul(VERSION_STEP) == offset);
        }
        let head = u64::from_le_bytes(*got.first_chunk()?);
        (head >> 16 == i & (u64::MAX >> 16)).then_some(head as u16)
    }
}

fn header(i: u64, version: u16) -> u64 {
    i << 16 | u64::from(version)
}

/// Writes the header, then noise derived from it.
fn noise(head: u64, out: &mut [u8]) {
    let mut word = head;
    for chunk in out.chunks_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        word = mix(word.wrapping_add(0x9e37_79b9_7f4a_7c15));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_matches_only_its_number_and_version() {
        for choice in [ValueChoice::Ramp, ValueChoice::Half, ValueChoice::Random] {
            for bytes in [8, 64, 100, 4096] {
                let values = ValueFormat { choice, bytes };
                let (mut v, mut s) = (Vec::new(), Vec::new());
                values.write_value(7, 3, &mut v);
                assert!(values.matches(&v, 7, Some(3), &mut s));
                assert!(values.matches(&v, 7, None, &mut s));
                assert!(!values.matches(&v, 7, Some(2), &mut s));
                assert!(!values.matches(&v, 8, Some(3), &mut s));
                assert!(choice == ValueChoice::Ramp || !values.matches(&v, 8, None, &mut s));
                assert!(!values.matches(&v[1..], 7, Some(3), &mut s));
                v[bytes - 1] ^= 1;
                assert!(!values.matches(&v, 7, None, &mut s));
            }
        }
    }
}
