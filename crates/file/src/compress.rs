//! Codecs: bytes to fewer bytes and back. The only room that knows a compression library.
//!
//! Invariant: decompression yields exactly the declared number of bytes or an error, and never writes past them.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use perigee_base::limits::LZ4_RATIO_MAX;
use perigee_base::{Error, Result};

/// How a frame's payload is stored. Numbers are part of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// As it is.
    None,
    /// LZ4 block format.
    #[default]
    Lz4,
}

impl Codec {
    /// The number on disk.
    pub fn code(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Lz4 => 1,
        }
    }

    /// Decodes a number; an unknown one is damage (a new codec comes with a feature bit in the file header).
    pub fn decode(code: u8) -> Result<Codec> {
        match code {
            0 => Ok(Codec::None),
            1 => Ok(Codec::Lz4),
            other => Err(Error::corruption("unknown codec").expected("0 or 1", other)),
        }
    }

    /// The name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Lz4 => "lz4",
        }
    }
}

/// Compresses for one writer: keeps the buffers that every block needs.
pub struct Compressor {
    table: CompressTable,
    out: Vec<u8>,
}

impl Compressor {
    /// With empty buffers.
    pub fn new() -> Self {
        Compressor { table: CompressTable::default(), out: Vec::new() }
    }

    /// The bytes to store and the codec they are under: `Codec::None` and the input itself unless compression
    /// saves at least one eighth.
    pub fn compress<'a>(&'a mut self, codec: Codec, raw: &'a [u8]) -> (Codec, &'a [u8]) {
        if codec == Codec::None || raw.is_empty() {
            return (Codec::None, raw);
        }
        let most = get_maximum_output_size(raw.len());
        if self.out.len() < most {
            self.out.resize(most, 0);
        }
        match compress_into_with_table(raw, &mut self.out, &mut self.table) {
            Ok(n) if n <= raw.len() - raw.len() / 8 && n < raw.len() => (codec, &self.out[..n]),
            _ => (Codec::None, raw),
        }
    }
}

impl Default for Compressor {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compressor")
    }
}

/// Whether `raw` bytes can come out of `stored` bytes at all: asked before memory is taken for them.
pub fn plausible(codec: Codec, stored: usize, raw: usize) -> bool {
    match codec {
        Codec::None => stored == raw,
        Codec::Lz4 => stored < raw && raw <= stored.saturating_mul(LZ4_RATIO_MAX),
    }
}

/// Fills `raw` from `stored`; anything but exactly `raw.len()` bytes is damage.
pub fn decompress(codec: Codec, stored: &[u8], raw: &mut [u8]) -> Result<()> {
    let got = match codec {
        Codec::None if stored.len() == raw.len() => {
            raw.copy_from_slice(stored);
            stored.len()
        }
        Codec::None => stored.len(),
        Codec::Lz4 => decompress_into(stored, raw)
            .map_err(|e| Error::corruption(format!("payload does not decompress: {e}")))?,
    };
    if got != raw.len() {
        return Err(Error::corruption("payload has another length than declared").expected(raw.len(), got));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    #[test]
    fn round_trips_and_declared_lengths() {
        let mut rng = Rng::new(1);
        let mut c = Compressor::new();
        for len in [0usize, 1, 7, 100, 4096, 70_000] {
            for noise in [1u64, 4, 256] {
                let raw: Vec<u8> = (0..len).map(|_| rng.below(noise) as u8).collect();
                let (codec, stored) = c.compress(Codec::Lz4, &raw);
                assert!(plausible(codec, stored.len(), raw.len()), "{len} {noise}");
                let mut back = vec![0xaa; len];
                decompress(codec, stored, &mut back).unwrap();
                assert_eq!(back, raw);
                for wrong in [len.saturating_sub(1), len + 1] {
                    if wrong != len {
                        assert!(decompress(codec, stored, &mut vec![0; wrong]).is_err(), "{len} as {wrong}");
                    }
                }
            }
        }
    }

    #[test]
    fn incompressible_bytes_stay_as_they_are() {
        let mut rng = Rng::new(2);
        let raw: Vec<u8> = (0..4096).map(|_| rng.next() as u8).collect();
        assert_eq!(Compressor::new().compress(Codec::Lz4, &raw), (Codec::None, &raw[..]));
        let zeros = [0u8; 4096];
        assert_eq!(Compressor::new().compress(Codec::Lz4, &zeros).0, Codec::Lz4);
        assert_eq!(Compressor::new().compress(Codec::None, &zeros).0, Codec::None);
    }

    #[test]
    fn codes_are_stable() {
        for c in [Codec::None, Codec::Lz4] {
            assert_eq!(Codec::decode(c.code()).unwrap(), c);
        }
        assert_eq!((Codec::None.code(), Codec::Lz4.code()), (0, 1));
        assert!(Codec::decode(2).is_err());
    }
}
