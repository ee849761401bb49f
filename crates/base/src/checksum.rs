//! The one checksum: XXH3-64, seeded with the file's id and the offset of the bytes, so that a block that
//! was written to the wrong place, or swapped with its neighbour, fails like a damaged one.

use crate::FileId;
use xxhash_rust::xxh3;

/// The checksum of `bytes` that start at `offset` of file `file`.
pub fn checksum(file: FileId, offset: u64, bytes: &[u8]) -> u64 {
    xxh3::xxh3_64_with_seed(bytes, seed(file, offset))
}

/// The checksum of a log payload, which is computed before the payload has a place. The record header,
/// which carries it, is checksummed in place.
pub fn checksum_placeless(bytes: &[u8]) -> u64 {
    xxh3::xxh3_64_with_seed(bytes, bytes.len() as u64)
}

/// The hash of a user key for filters (never stored next to a key, so its seed is free).
pub fn key_hash(key: &[u8]) -> u64 {
    xxh3::xxh3_64(key)
}

/// A running checksum over a whole file.
#[derive(Clone)]
pub struct Running(Box<xxh3::Xxh3>);

impl Running {
    /// Starts for file `file`.
    pub fn new(file: FileId) -> Self {
        Running(Box::new(xxh3::Xxh3::with_seed(seed(file, u64::MAX))))
    }
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    /// The checksum of everything added.
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Running")
    }
}

fn seed(file: FileId, offset: u64) -> u64 {
    // An odd multiplier permutes the ids, so two (file, offset) pairs meet only by a 2^-64 accident.
    file.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_matters() {
        let b = b"the same bytes";
        assert_ne!(checksum(FileId(1), 0, b), checksum(FileId(1), 8, b));
        assert_ne!(checksum(FileId(1), 0, b), checksum(FileId(2), 0, b));
    }
}
