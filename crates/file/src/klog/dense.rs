//! How the data blocks of a table are compressed, and how large they are: as the family says, or, under the default codec and
//! where data is regular, larger and with Zstandard. Pure: hears what each block became, says what to do with the next.
//!
//! Regular data (counters, repeated records) becomes long copies, which Zstandard describes in half the bytes; undoing them
//! costs two microseconds a block more. Text it would undo four times slower than LZ4, for a third less: there LZ4 stays.

use crate::compress::{Codec, Compression};

/// Regular: the family's codec leaves a quarter, Zstandard an eighth, and no more than three quarters of what the other would.
const USUAL_RATIO: usize = 4;
const DENSE_RATIO: usize = 8;
/// So many halves of a block of the usual size together: their first record and their tables of codes are then stored once.
const GROWTH: usize = 5;
/// Blocks do not grow beyond this.
const GROWN_BYTES_MAX: usize = 64 << 10;
/// After a failed attempt so many blocks are written as usual.
const REST: u32 = 32;
/// Higher levels gain nothing on such data.
const LEVEL: i32 = 1;

/// The policy of one table.
#[derive(Clone, Debug)]
pub struct Dense {
    on: bool,
    usual: Compression,
    block_bytes: usize,
    /// The next block is a dense one.
    dense: bool,
    /// Blocks to write as usual before the next attempt.
    rest: u32,
    /// Raw and stored bytes of the last usual block.
    last: (usize, usize),
    /// The last block was not worth compressing.
    plain: bool,
}

impl Dense {
    /// For a table of a family. One that asked for anything but plain LZ4 gets what it asked for.
    pub fn new(usual: Compression, block_bytes: usize) -> Dense {
        let on = usual == Compression::Lz4 && block_bytes * GROWTH / 2 <= GROWN_BYTES_MAX;
        Dense { on, usual, block_bytes, dense: false, rest: 0, last: (0, 1), plain: false }
    }

    /// How the next block is compressed.
    pub fn compression(&self) -> Compression {
        if self.dense { Compression::Zstd(LEVEL) } else { self.usual }
    }
    /// Raw bytes that the next block stays under.
    pub fn block_bytes(&self) -> usize {
        if self.dense { self.block_bytes * GROWTH / 2 } else { self.block_bytes }
    }

    /// Whether a block under that codec could be one of the table's; one that did not compress, only where others do not.
    pub fn would_write(&self, codec: Codec) -> bool {
        match codec {
            Codec::None => self.plain || self.usual == Compression::None,
            codec => codec == self.usual.codec() || (self.on && codec == Codec::Zstd),
        }
    }

    /// The block became `stored` of `raw` bytes.
    pub fn wrote(&mut self, raw: usize, stored: usize) {
        self.plain = stored >= raw;
        if !self.on {
            return;
        }
        if self.dense {
            let (usual_raw, usual_stored) = self.last;
            let saves = stored * usual_raw * 4 <= usual_stored * raw * 3;
            if stored * DENSE_RATIO > raw || !saves {
                (self.dense, self.rest) = (false, REST);
            }
            return;
        }
        self.last = (raw, stored);
        self.dense = self.rest == 0 && stored * USUAL_RATIO <= raw;
        self.rest = self.rest.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_data_becomes_dense_and_other_data_does_not() {
        let mut d = Dense::new(Compression::Lz4, 4096);
        assert_eq!((d.compression(), d.block_bytes()), (Compression::Lz4, 4096));
        d.wrote(4000, 1001);
        assert_eq!(d.compression(), Compression::Lz4, "not regular");
        assert!(d.would_write(Codec::Lz4) && d.would_write(Codec::Zstd));
        assert!(!d.would_write(Codec::None) && !d.would_write(Codec::Snappy));
        d.wrote(4000, 4024);
        assert!(d.would_write(Codec::None), "nor would it be compressed here");
        d.wrote(4000, 600);
        assert_eq!((d.compression(), d.block_bytes()), (Compression::Zstd(1), 10_240));
        d.wrote(10_000, 1000);
        assert_eq!(d.compression(), Compression::Zstd(1), "it goes on");
        d.wrote(10_000, 1251);
        assert_eq!((d.compression(), d.block_bytes()), (Compression::Lz4, 4096), "not dense");
        for _ in 0..REST {
            d.wrote(4000, 600);
            assert_eq!(d.compression(), Compression::Lz4, "no other attempt so soon");
        }
        d.wrote(4000, 600);
        d.wrote(10_000, 1200);
        assert_eq!(d.compression(), Compression::Lz4, "an eighth, but not a quarter less than the other");
    }

    #[test]
    fn families_that_chose_otherwise_get_what_they_chose() {
        for how in [Compression::None, Compression::Lz4Fast(1), Compression::Snappy, Compression::Zstd(3)] {
            let mut d = Dense::new(how, 4096);
            d.wrote(4000, 100);
            assert_eq!((d.compression(), d.block_bytes()), (how, 4096));
        }
        let mut large = Dense::new(Compression::Lz4, 32 << 10);
        large.wrote(32_000, 100);
        assert_eq!((large.compression(), large.block_bytes()), (Compression::Lz4, 32 << 10));
    }
}
