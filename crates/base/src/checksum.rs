//! The checksum used by all file formats: XXH3-64, seeded with the file id and the offset of the
//! bytes. A block written to the wrong offset, or swapped with another one, therefore fails its
//! check like a damaged block.

use crate::FileId;
use std::hash::Hasher;
use twox_hash::XxHash3_64;

/// Returns the checksum of `bytes`, which start at `offset` in file `file`.
pub fn checksum(file: FileId, offset: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed(file, offset), bytes)
}

/// Returns the checksum of a log payload. It does not depend on file or offset, because it is
/// computed before the payload is assigned a log position. The record header, which contains this
/// checksum, has a checksum that does.
pub fn payload_checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(bytes.len() as u64, bytes)
}

/// Returns the hash of a user key for filters. (It is never stored next to a key, so its seed is
/// arbitrary.)
pub fn key_hash(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key)
}

/// Returns the hash of a user key for in-memory hash tables. Without the seed, an attacker cannot
/// construct keys with colliding hashes.
pub fn seeded_key_hash(seed: u64, key: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, key)
}

/// Incremental checksum of a whole file.
#[derive(Clone)]
pub struct FileChecksum(Box<XxHash3_64>);

impl FileChecksum {
    /// Starts the checksum of file `file`.
    pub fn new(file: FileId) -> Self {
        FileChecksum(Box::new(XxHash3_64::with_seed(seed(file, u64::MAX))))
    }
    /// Adds the next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
    /// Returns the checksum of all bytes added so far.
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

impl std::fmt::Debug for FileChecksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FileChecksum")
    }
}

fn seed(file: FileId, offset: u64) -> u64 {
    // Multiplying by an odd constant permutes the ids, so two (file, offset) pairs collide only
    // with probability 2^-64.
    file.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_depends_on_file_and_offset() {
        let b = b"the same bytes";
        assert_ne!(checksum(FileId(1), 0, b), checksum(FileId(1), 8, b));
        assert_ne!(checksum(FileId(1), 0, b), checksum(FileId(2), 0, b));
    }

    const REFERENCE_SUMS: [(usize, u64, u64); 9] = [
        (0, 0xe7a2_4c12_cc48_56bf, 0x2d06_8005_38d3_94c2),
        (5, 0x4fa3_79cc_9210_dccf, 0x5599_35c0_f3f7_327f),
        (16, 0x6130_5ad9_5a35_0bf5, 0x9da2_3836_adf2_be1e),
        (100, 0xdb63_1deb_6f8f_1d81, 0x6dbb_812c_f19d_012e),
        (200, 0xbbd5_12d2_5b21_c002, 0x7c64_f3b1_7285_e96a),
        (241, 0x0af9_86ff_0f6f_1692, 0x541b_1922_6f00_52e8),
        (1024, 0x3434_30b4_e818_c11a, 0xdc5a_cf0b_043c_445b),
        (1025, 0xa9bb_6de4_bdbd_e439, 0xe1d9_cd94_6277_ae26),
        (5000, 0xfa0c_3874_aefc_f745, 0x6abe_8be5_abcb_2760),
    ];
    const REFERENCE_FILE_SUM: u64 = 0x2708_5cbc_b6f8_50d5;

    /// Reference values from another implementation: the checksum must not depend on the
    /// instruction set of the processor.
    #[test]
    fn checksums_match_reference_values() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7) as u8).collect();
        for (len, sum, hash) in REFERENCE_SUMS {
            let b = &bytes[..len];
            assert_eq!((checksum(FileId(7), 72, b), key_hash(b)), (sum, hash), "{len} bytes");
        }
        for cut in [0, 1, 300, 4999] {
            let mut running = FileChecksum::new(FileId(7));
            running.update(&bytes[..cut]);
            running.update(&bytes[cut..]);
            assert_eq!(running.finish(), REFERENCE_FILE_SUM);
        }
    }
}
