//! Chooses compression and size of the data blocks of a table: as configured for the column family,
//! or, with the default codec and regular data, larger blocks with Zstandard. Pure logic: takes the
//! result of each block and decides about the next.
//!
//! Regular data (counters, repeated records) becomes long matches, which Zstandard encodes in half
//! the bytes; decompressing them costs two microseconds more per block. Text decompresses four
//! times slower than with LZ4 and gets only a third smaller, so LZ4 is kept for it.

use crate::compression::{Codec, Compression, StoredBytes};
use crate::limits::{LARGE_BLOCK_BYTES_MAX, LZ4_RATIO_MIN, ZSTD_RATIO_MIN};

/// Size of a Zstandard block in halves of the configured block size: the first record and the code
/// tables are then stored once for all of them.
const BLOCK_GROWTH_HALVES: usize = 5;
/// After a failed attempt this many blocks are written as configured.
const COOLDOWN_BLOCKS: u32 = 32;
/// Higher levels gain nothing on regular data.
const ZSTD_LEVEL: i32 = 1;

/// The compression policy of one table.
#[derive(Clone, Debug)]
pub struct AdaptiveCompression {
    enabled: bool,
    configured: Compression,
    block_bytes: usize,
    /// The next block uses Zstandard.
    use_zstd: bool,
    /// Blocks to write as configured before the next attempt.
    cooldown_blocks: u32,
    /// Raw and stored bytes of the last block written as configured.
    last_usual_bytes: StoredBytes,
    /// Compression did not make the last block smaller.
    incompressible: bool,
}

impl AdaptiveCompression {
    /// Creates the policy for a table. Any configured method other than plain LZ4 is used
    /// unchanged.
    pub fn new(configured: Compression, block_bytes: usize) -> AdaptiveCompression {
        let enabled = configured == Compression::Lz4
            && Codec::Zstd.is_available()
            && block_bytes * BLOCK_GROWTH_HALVES / 2 <= LARGE_BLOCK_BYTES_MAX;
        AdaptiveCompression {
            enabled,
            configured,
            block_bytes,
            use_zstd: false,
            cooldown_blocks: 0,
            last_usual_bytes: StoredBytes { raw: 0, stored: 1 },
            incompressible: false,
        }
    }

    /// Returns the compression method of the next block.
    pub fn compression(&self) -> Compression {
        if self.use_zstd { Compression::Zstd(ZSTD_LEVEL) } else { self.configured }
    }
    /// Returns the size limit of the next block, in raw bytes.
    pub fn block_bytes(&self) -> usize {
        if self.use_zstd { self.block_bytes * BLOCK_GROWTH_HALVES / 2 } else { self.block_bytes }
    }

    /// Returns true if a block with this codec could have been written here; an uncompressed block
    /// only if the table is not compressed or its last block was incompressible too.
    pub fn may_use_codec(&self, codec: Codec) -> bool {
        match codec {
            Codec::None => self.incompressible || self.configured == Compression::None,
            codec => codec == self.configured.codec() || (self.enabled && codec == Codec::Zstd),
        }
    }

    /// Records the size of a block that was written.
    pub fn record_block(&mut self, bytes: StoredBytes) {
        check!(bytes.stored > 0, "a block has bytes", bytes);
        let StoredBytes { raw, stored } = bytes;
        self.incompressible = stored >= raw;
        if !self.enabled {
            return;
        }
        if self.use_zstd {
            let StoredBytes { raw: usual_raw, stored: usual_stored } = self.last_usual_bytes;
            let saves = stored * usual_raw * 4 <= usual_stored * raw * 3;
            if stored * ZSTD_RATIO_MIN > raw || !saves {
                (self.use_zstd, self.cooldown_blocks) = (false, COOLDOWN_BLOCKS);
            }
            return;
        }
        self.last_usual_bytes = bytes;
        self.use_zstd = self.cooldown_blocks == 0 && stored * LZ4_RATIO_MIN <= raw;
        self.cooldown_blocks = self.cooldown_blocks.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "zstd")]
    #[test]
    fn regular_data_switches_to_zstd() {
        let mut d = AdaptiveCompression::new(Compression::Lz4, 4096);
        assert_eq!((d.compression(), d.block_bytes()), (Compression::Lz4, 4096));
        d.record_block(StoredBytes { raw: 4000, stored: 1001 });
        assert_eq!(d.compression(), Compression::Lz4, "not regular");
        assert!(d.may_use_codec(Codec::Lz4) && d.may_use_codec(Codec::Zstd));
        assert!(!d.may_use_codec(Codec::None) && !d.may_use_codec(Codec::Snappy));
        d.record_block(StoredBytes { raw: 4000, stored: 4024 });
        assert!(d.may_use_codec(Codec::None), "this table would not compress it either");
        d.record_block(StoredBytes { raw: 4000, stored: 600 });
        assert_eq!((d.compression(), d.block_bytes()), (Compression::Zstd(1), 10_240));
        d.record_block(StoredBytes { raw: 10_000, stored: 1000 });
        assert_eq!(d.compression(), Compression::Zstd(1), "still regular");
        d.record_block(StoredBytes { raw: 10_000, stored: 1251 });
        assert_eq!((d.compression(), d.block_bytes()), (Compression::Lz4, 4096), "not regular");
        for _ in 0..COOLDOWN_BLOCKS {
            d.record_block(StoredBytes { raw: 4000, stored: 600 });
            assert_eq!(d.compression(), Compression::Lz4, "no attempt during the cooldown");
        }
        d.record_block(StoredBytes { raw: 4000, stored: 600 });
        d.record_block(StoredBytes { raw: 10_000, stored: 1200 });
        assert_eq!(
            d.compression(),
            Compression::Lz4,
            "an eighth, but more than three quarters of the LZ4 size"
        );
    }

    #[test]
    fn explicit_compression_is_kept() {
        for method in
            [Compression::None, Compression::Lz4Fast(1), Compression::Snappy, Compression::Zstd(3)]
        {
            let mut d = AdaptiveCompression::new(method, 4096);
            d.record_block(StoredBytes { raw: 4000, stored: 100 });
            assert_eq!((d.compression(), d.block_bytes()), (method, 4096));
        }
        let mut large = AdaptiveCompression::new(Compression::Lz4, 32 << 10);
        large.record_block(StoredBytes { raw: 32_000, stored: 100 });
        assert_eq!((large.compression(), large.block_bytes()), (Compression::Lz4, 32 << 10));
    }
}
