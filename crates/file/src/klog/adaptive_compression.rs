//! How the data blocks of a table are compressed, and how large they are: as the family says, or,
//! under the default codec and where data is regular, larger and with Zstandard. Pure: hears what
//! each block became, says what to do with the next.
//!
//! Regular data (counters, repeated records) becomes long copies, which Zstandard describes in half
//! the bytes; undoing them costs two microseconds a block more. Text it would undo four times
//! slower than LZ4, for a third less: there LZ4 stays.

use crate::compression::{Codec, CompressionMethod};

/// Regular: the family's codec leaves a quarter, Zstandard an eighth, and no more than three
/// quarters of what the other would.
const LZ4_RATIO_MIN: usize = 4;
const ZSTD_RATIO_MIN: usize = 8;
/// So many halves of a block of the usual size together: their first record and their tables of
/// codes are then stored once.
const BLOCK_GROWTH_HALVES: usize = 5;
/// Blocks do not grow beyond this.
const LARGE_BLOCK_BYTES_MAX: usize = 64 << 10;
/// After a failed attempt so many blocks are written as usual.
const COOLDOWN_BLOCKS: u32 = 32;
/// Higher levels gain nothing on such data.
const ZSTD_LEVEL: i32 = 1;

/// The policy of one table.
#[derive(Clone, Debug)]
pub struct AdaptiveCompression {
    enabled: bool,
    configured: CompressionMethod,
    block_bytes: usize,
    /// The next block is a dense one.
    use_zstd: bool,
    /// Blocks to write as usual before the next attempt.
    cooldown_blocks: u32,
    /// Raw and stored bytes of the last usual block.
    last_usual_bytes: (usize, usize),
    /// The last block was not worth compressing.
    incompressible: bool,
}

impl AdaptiveCompression {
    /// For a table of a family. One that asked for anything but plain LZ4 gets what it asked for.
    pub fn new(usual: CompressionMethod, block_bytes: usize) -> AdaptiveCompression {
        let on = usual == CompressionMethod::Lz4
            && block_bytes * BLOCK_GROWTH_HALVES / 2 <= LARGE_BLOCK_BYTES_MAX;
        AdaptiveCompression {
            enabled: on,
            configured: usual,
            block_bytes,
            use_zstd: false,
            cooldown_blocks: 0,
            last_usual_bytes: (0, 1),
            incompressible: false,
        }
    }

    /// How the next block is compressed.
    pub fn compression(&self) -> CompressionMethod {
        if self.use_zstd { CompressionMethod::Zstd(ZSTD_LEVEL) } else { self.configured }
    }
    /// Raw bytes that the next block stays under.
    pub fn block_bytes(&self) -> usize {
        if self.use_zstd { self.block_bytes * BLOCK_GROWTH_HALVES / 2 } else { self.block_bytes }
    }

    /// Whether a block under that codec could be one of the table's; one that did not compress,
    /// only where others do not.
    pub fn may_use_codec(&self, codec: Codec) -> bool {
        match codec {
            Codec::None => self.incompressible || self.configured == CompressionMethod::None,
            codec => codec == self.configured.codec() || (self.enabled && codec == Codec::Zstd),
        }
    }

    /// The block became `stored` of `raw` bytes.
    pub fn record_block(&mut self, raw: usize, stored: usize) {
        self.incompressible = stored >= raw;
        if !self.enabled {
            return;
        }
        if self.use_zstd {
            let (usual_raw, usual_stored) = self.last_usual_bytes;
            let saves = stored * usual_raw * 4 <= usual_stored * raw * 3;
            if stored * ZSTD_RATIO_MIN > raw || !saves {
                (self.use_zstd, self.cooldown_blocks) = (false, COOLDOWN_BLOCKS);
            }
            return;
        }
        self.last_usual_bytes = (raw, stored);
        self.use_zstd = self.cooldown_blocks == 0 && stored * LZ4_RATIO_MIN <= raw;
        self.cooldown_blocks = self.cooldown_blocks.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_data_switches_to_zstd() {
        let mut d = AdaptiveCompression::new(CompressionMethod::Lz4, 4096);
        assert_eq!((d.compression(), d.block_bytes()), (CompressionMethod::Lz4, 4096));
        d.record_block(4000, 1001);
        assert_eq!(d.compression(), CompressionMethod::Lz4, "not regular");
        assert!(d.may_use_codec(Codec::Lz4) && d.may_use_codec(Codec::Zstd));
        assert!(!d.may_use_codec(Codec::None) && !d.may_use_codec(Codec::Snappy));
        d.record_block(4000, 4024);
        assert!(d.may_use_codec(Codec::None), "nor would it be compressed here");
        d.record_block(4000, 600);
        assert_eq!((d.compression(), d.block_bytes()), (CompressionMethod::Zstd(1), 10_240));
        d.record_block(10_000, 1000);
        assert_eq!(d.compression(), CompressionMethod::Zstd(1), "it goes on");
        d.record_block(10_000, 1251);
        assert_eq!((d.compression(), d.block_bytes()), (CompressionMethod::Lz4, 4096), "not dense");
        for _ in 0..COOLDOWN_BLOCKS {
            d.record_block(4000, 600);
            assert_eq!(d.compression(), CompressionMethod::Lz4, "no other attempt so soon");
        }
        d.record_block(4000, 600);
        d.record_block(10_000, 1200);
        assert_eq!(
            d.compression(),
            CompressionMethod::Lz4,
            "an eighth, but not a quarter less than the other"
        );
    }

    #[test]
    fn explicit_compression_is_kept() {
        for how in [
            CompressionMethod::None,
            CompressionMethod::Lz4Fast(1),
            CompressionMethod::Snappy,
            CompressionMethod::Zstd(3),
        ] {
            let mut d = AdaptiveCompression::new(how, 4096);
            d.record_block(4000, 100);
            assert_eq!((d.compression(), d.block_bytes()), (how, 4096));
        }
        let mut large = AdaptiveCompression::new(CompressionMethod::Lz4, 32 << 10);
        large.record_block(32_000, 100);
        assert_eq!((large.compression(), large.block_bytes()), (CompressionMethod::Lz4, 32 << 10));
    }
}
