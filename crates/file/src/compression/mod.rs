//! Compression codecs. Only the module `libraries` depends on compression libraries.
//!
//! A [`Codec`] is how a payload is stored, one code in its frame; a [`Compression`] is the option
//! that a writer is configured with, a codec and a level. A reader needs only the codec, so a
//! column family may change the option at any time: existing files stay readable, frame by frame.
//!
//! Invariants: decompression yields exactly the declared number of bytes or an error, and never
//! writes beyond them; the output of [`Compressor::compress`] satisfies [`is_length_plausible`].

mod libraries;

use libraries::{lz4, snappy, zstd};
use perigee_base::limits::{
    LZ4_ACCELERATION_MAX, LZ4_RATIO_MAX, SNAPPY_RATIO_MAX, ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN,
    ZSTD_RATIO_MAX,
};
use perigee_base::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// How a frame's payload is stored. The codes are part of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// Stored raw.
    None,
    /// LZ4 block format.
    #[default]
    Lz4,
    /// Snappy block format, which starts with its own length.
    Snappy,
    /// One Zstandard frame, without a dictionary.
    Zstd,
}

/// Every codec, indexed by its code.
pub const CODECS: [Codec; 4] = [Codec::None, Codec::Lz4, Codec::Snappy, Codec::Zstd];

impl Codec {
    /// Returns the code on disk.
    pub fn code(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Lz4 => 1,
            Codec::Snappy => 2,
            Codec::Zstd => 3,
        }
    }

    /// Decodes a codec; an unknown code is corruption (a new codec comes with a feature bit in the
    /// file header).
    pub fn decode(code: u8) -> Result<Codec> {
        let found = CODECS.get(usize::from(code)).copied();
        found.ok_or_else(|| Error::corruption("unknown codec").expected("0 to 3", code))
    }

    /// Returns the name used in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Lz4 => "lz4",
            Codec::Snappy => "snappy",
            Codec::Zstd => "zstd",
        }
    }

    /// Returns true if this build can read and write the codec.
    pub fn is_available(self) -> bool {
        match self {
            Codec::None | Codec::Lz4 => true,
            Codec::Snappy => cfg!(feature = "snappy"),
            Codec::Zstd => cfg!(feature = "zstd"),
        }
    }

    /// Returns the error for data in a codec that this build lacks.
    pub fn missing(self) -> Error {
        let name = self.name();
        Error::new(
            ErrorKind::FormatTooNew,
            format!(
                "this build cannot read data compressed with {name}: \
                 enable the feature `{name}` of the crate `perigeedb`"
            ),
        )
    }

    /// Returns the maximum number of raw bytes per stored byte.
    pub fn ratio_max(self) -> usize {
        match self {
            Codec::None => 1,
            Codec::Lz4 => LZ4_RATIO_MAX,
            Codec::Snappy => SNAPPY_RATIO_MAX,
            Codec::Zstd => ZSTD_RATIO_MAX,
        }
    }
}

/// Compression of blocks and separated values in new files. Every block records how it is stored,
/// so the option can be changed at any time. A block is stored uncompressed if compression would
/// save less than an eighth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// No compression.
    None,
    /// LZ4: fast to write and to read. With the feature `zstd`, very compressible data (for example
    /// counters or repeated records) is stored in blocks 2.5 times as large and compressed with
    /// Zstandard instead, if LZ4 reduces it to at most a quarter, and Zstandard to at most an eighth
    /// and at most three quarters of the LZ4 size. Such tables are about half as large, and a read
    /// that misses the cache costs about 2 us more.
    #[default]
    Lz4,
    /// Only LZ4, with this acceleration (1 to 65537): higher is faster to write and compresses
    /// less. 1 searches as thoroughly as `Lz4`; 8 compresses about three times as fast and slightly
    /// less. Reads cost the same as with LZ4. Without the feature `lz4-c` it is `Lz4`.
    Lz4Fast(u32),
    /// Snappy (feature `snappy`): about as fast and about as small as LZ4.
    Snappy,
    /// Zstandard (feature `zstd`) at this level (-7 to 22, but not 0; 3 is typical): compressible
    /// data is a quarter to a half smaller than with LZ4, about three times slower to read, and
    /// slower to write with each level.
    Zstd(i32),
}

impl Compression {
    /// Returns the codec of the output.
    #[doc(hidden)]
    pub fn codec(self) -> Codec {
        match self {
            Compression::None => Codec::None,
            Compression::Lz4 | Compression::Lz4Fast(_) => Codec::Lz4,
            Compression::Snappy => Codec::Snappy,
            Compression::Zstd(_) => Codec::Zstd,
        }
    }

    /// Returns the acceleration or level; 0 if it has none.
    #[doc(hidden)]
    pub fn level(self) -> i32 {
        match self {
            Compression::Lz4Fast(acceleration) => acceleration.min(i32::MAX as u32) as i32,
            Compression::Zstd(level) => level,
            _ => 0,
        }
    }

    /// Returns the compression with this codec and level; fails if the level is out of range.
    #[doc(hidden)]
    pub fn new(codec: Codec, level: i32) -> Result<Compression> {
        let method = match codec {
            Codec::Lz4 if level != 0 => Compression::Lz4Fast(u32::try_from(level).unwrap_or(0)),
            Codec::Zstd => Compression::Zstd(level),
            Codec::None | Codec::Lz4 | Codec::Snappy if level != 0 => {
                return Err(Error::invalid(format!(
                    "the compression {} has no level",
                    codec.name()
                )));
            }
            Codec::None => Compression::None,
            Codec::Lz4 => Compression::Lz4,
            Codec::Snappy => Compression::Snappy,
        };
        method.validate()?;
        Ok(method)
    }

    /// Fails if the level or acceleration is out of the library's range, or if this build lacks the
    /// library.
    #[doc(hidden)]
    pub fn validate(self) -> Result<()> {
        match self {
            _ if !self.codec().is_available() => {
                let name = self.codec().name();
                Err(Error::invalid(format!(
                    "this build cannot compress with {name}: \
                     enable the feature `{name}` of the crate `perigeedb`"
                )))
            }
            Compression::Lz4Fast(a) if !(1..=LZ4_ACCELERATION_MAX).contains(&a) => {
                Err(Error::invalid("LZ4 acceleration is out of range")
                    .expected(format_args!("1 to {LZ4_ACCELERATION_MAX}"), a))
            }
            Compression::Zstd(l) if l == 0 || !(ZSTD_LEVEL_MIN..=ZSTD_LEVEL_MAX).contains(&l) => {
                Err(Error::invalid("Zstandard level is out of range")
                    .expected(format_args!("{ZSTD_LEVEL_MIN} to {ZSTD_LEVEL_MAX}, not 0"), l))
            }
            _ => Ok(()),
        }
    }
}

/// Formats as in an options file: `none`, `lz4`, `lz4-fast 8`, `snappy`, `zstd 3`.
impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::None => f.pad("none"),
            Compression::Lz4 => f.pad("lz4"),
            Compression::Lz4Fast(acceleration) => f.pad(&format!("lz4-fast {acceleration}")),
            Compression::Snappy => f.pad("snappy"),
            Compression::Zstd(level) => f.pad(&format!("zstd {level}")),
        }
    }
}

/// Parses what `Display` formats, and `zstd:3`. Whether the number is in range is checked when the
/// option is used.
///
/// ```
/// # use perigee_file::Compression;
/// assert_eq!("zstd 3".parse::<Compression>()?, Compression::Zstd(3));
/// assert_eq!(Compression::Lz4Fast(8).to_string(), "lz4-fast 8");
/// assert!("zip".parse::<Compression>().is_err());
/// # Ok::<(), perigee_base::Error>(())
/// ```
impl FromStr for Compression {
    type Err = Error;
    fn from_str(text: &str) -> Result<Compression> {
        let wrong = || {
            let forms = "\"none\", \"lz4\", \"lz4-fast 8\", \"snappy\", \"zstd 3\"";
            Error::invalid(format!("{text:?} is not one of {forms}"))
        };
        let mut words = text.split([' ', ':']).filter(|word| !word.is_empty());
        let (name, effort) = (words.next().unwrap_or_default(), words.next());
        if words.next().is_some() {
            return Err(wrong());
        }
        match (name, effort) {
            ("none", None) => Ok(Compression::None),
            ("lz4", None) => Ok(Compression::Lz4),
            ("snappy", None) => Ok(Compression::Snappy),
            ("lz4-fast", Some(a)) => a.parse().map(Compression::Lz4Fast).map_err(|_| wrong()),
            ("zstd", Some(level)) => level.parse().map(Compression::Zstd).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

#[cfg(feature = "serde")]
perigee_base::serialize_as_text!(Compression);

/// Compresses the blocks of one writer; reuses its buffers from block to block.
#[derive(Default)]
pub struct Compressor {
    out: Vec<u8>,
    lz4: lz4::Lz4Compressor,
    snappy: snappy::SnappyCompressor,
    zstd: zstd::ZstdCompressor,
}

impl Compressor {
    /// Creates a compressor with empty buffers.
    pub fn new() -> Self {
        Compressor::default()
    }

    /// Returns the memory of the buffers (not of the libraries), in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.out.capacity()
    }

    /// Returns the codec and the bytes to store: `Codec::None` and the input itself unless
    /// compression saves at least one eighth.
    pub fn compress<'a>(&'a mut self, method: Compression, raw: &'a [u8]) -> (Codec, &'a [u8]) {
        let codec = method.codec();
        let stored = if raw.is_empty() { None } else { self.try_compress(method, raw) };
        match stored {
            Some(n)
                if n <= raw.len() - raw.len() / 8
                    && is_length_plausible(codec, StoredBytes { raw: raw.len(), stored: n }) =>
            {
                check_slow!(
                    decompresses_to(codec, &self.out[..n], raw),
                    "a compressed payload decompresses to the original",
                    method,
                    raw.len()
                );
                (codec, &self.out[..n])
            }
            _ => (Codec::None, raw),
        }
    }

    /// Compresses into `self.out`. A library failure (out of memory) only loses the saving.
    fn try_compress(&mut self, method: Compression, raw: &[u8]) -> Option<usize> {
        let most = match method.codec() {
            Codec::None => return None,
            Codec::Lz4 => lz4::Lz4Compressor::bound(raw.len())?,
            Codec::Snappy => snappy::SnappyCompressor::bound(raw.len())?,
            Codec::Zstd => zstd::ZstdCompressor::bound(raw.len())?,
        };
        if self.out.len() < most {
            self.out.resize(most, 0);
        }
        match method {
            Compression::None => None,
            Compression::Lz4 => self.lz4.compress(raw, 1, &mut self.out),
            Compression::Lz4Fast(_) => self.lz4.compress(raw, method.level(), &mut self.out),
            Compression::Snappy => self.snappy.compress(raw, &mut self.out),
            Compression::Zstd(level) => self.zstd.compress(raw, level, &mut self.out),
        }
    }
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compressor")
    }
}

/// The length of data before and after compression, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoredBytes {
    /// Length of the raw form.
    pub raw: usize,
    /// Length as stored.
    pub stored: usize,
}

/// Returns true if `stored` decompresses to `raw`.
fn decompresses_to(codec: Codec, stored: &[u8], raw: &[u8]) -> bool {
    let mut out = vec![0; raw.len()];
    decompress(codec, stored, &mut out).is_ok() && out == raw
}
/// Returns true if the stored bytes can decompress to the raw ones. Called before memory is
/// allocated for them.
pub fn is_length_plausible(codec: Codec, bytes: StoredBytes) -> bool {
    let StoredBytes { raw, stored } = bytes;
    match codec {
        Codec::None => stored == raw,
        codec => stored < raw && raw <= stored.saturating_mul(codec.ratio_max()),
    }
}

/// Decompresses `stored` into `raw`; any other length than `raw.len()` is corruption.
pub fn decompress(codec: Codec, stored: &[u8], raw: &mut [u8]) -> Result<()> {
    let got = match codec {
        Codec::None if stored.len() == raw.len() => {
            raw.copy_from_slice(stored);
            stored.len()
        }
        Codec::None => stored.len(),
        Codec::Lz4 => lz4::decompress(stored, raw)?,
        Codec::Snappy => snappy::decompress(stored, raw)?,
        Codec::Zstd => zstd::decompress(stored, raw)?,
    };
    if got != raw.len() {
        return Err(Error::corruption("payload length differs from the declared length")
            .expected(raw.len(), got));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestRng, mutate};

    const ALL: [Compression; 7] = [
        Compression::None,
        Compression::Lz4,
        Compression::Lz4Fast(8),
        Compression::Snappy,
        Compression::Zstd(-3),
        Compression::Zstd(1),
        Compression::Zstd(19),
    ];

    /// The compressions of this build.
    fn available() -> Vec<Compression> {
        ALL.into_iter().filter(|how| how.codec().is_available()).collect()
    }

    #[test]
    fn missing_codecs_are_named() {
        for how in ALL {
            let (codec, name) = (how.codec(), how.codec().name());
            if codec.is_available() {
                how.validate().unwrap();
                continue;
            }
            let hint = format!("enable the feature `{name}`");
            let e = how.validate().unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidArgument);
            assert!(e.to_string().contains(&hint), "{e}");
            let e = decompress(codec, &[1; 100], &mut [0; 200]).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::FormatTooNew);
            assert!(e.to_string().contains(&hint), "{e}");
            let zeros = [0; 4096];
            assert_eq!(Compressor::new().compress(how, &zeros), (Codec::None, &zeros[..]));
        }
        assert!(available().contains(&Compression::Lz4));
    }

    #[test]
    fn round_trips_and_declared_lengths() {
        let mut rng = TestRng::new(1);
        let mut c = Compressor::new();
        for len in [0usize, 1, 7, 100, 4096, 70_000] {
            for (noise, how) in [1u64, 4, 256]
                .into_iter()
                .flat_map(|n| available().into_iter().map(move |how| (n, how)))
            {
                let raw: Vec<u8> = (0..len).map(|_| rng.below(noise) as u8).collect();
                let (codec, stored) = c.compress(how, &raw);
                assert!(
                    is_length_plausible(
                        codec,
                        StoredBytes { raw: raw.len(), stored: stored.len() }
                    ),
                    "{len} {noise} {how:?}"
                );
                assert!(codec == how.codec() || codec == Codec::None);
                let mut back = vec![0xaa; len];
                decompress(codec, stored, &mut back).unwrap();
                assert_eq!(back, raw);
                for wrong in [len.saturating_sub(1), len + 1] {
                    if wrong != len {
                        assert!(
                            decompress(codec, stored, &mut vec![0; wrong]).is_err(),
                            "{len} as {wrong}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn damaged_payload_is_error_or_has_declared_length() {
        let mut rng = TestRng::new(3);
        let (all, mut c) = (available(), Compressor::new());
        for case in 0..4000 {
            let len = 64 + rng.below(4000) as usize;
            let raw: Vec<u8> = (0..len).map(|_| rng.below(3) as u8).collect();
            let (codec, stored) = c.compress(all[1 + case % (all.len() - 1)], &raw);
            let bad = mutate(&mut rng, stored);
            let other = CODECS[1 + case / 7 % 3];
            for codec in [codec, other] {
                let _ = decompress(codec, &bad, &mut vec![0; len]);
            }
        }
    }

    #[test]
    fn incompressible_bytes_are_stored_raw() {
        let mut rng = TestRng::new(2);
        let raw: Vec<u8> = (0..4096).map(|_| rng.next() as u8).collect();
        let zeros = [0u8; 4096];
        for how in available() {
            assert_eq!(Compressor::new().compress(how, &raw), (Codec::None, &raw[..]), "{how:?}");
            assert_eq!(Compressor::new().compress(how, &zeros).0, how.codec());
        }
        let chunk = vec![0u8; 1 << 20];
        for how in available() {
            let mut c = Compressor::new();
            let (codec, stored) = c.compress(how, &chunk);
            assert!(
                codec == how.codec()
                    && is_length_plausible(
                        codec,
                        StoredBytes { raw: chunk.len(), stored: stored.len() }
                    ),
                "{how:?}"
            );
        }
    }

    #[test]
    fn codec_codes_and_levels_are_stable() {
        for (n, c) in CODECS.into_iter().enumerate() {
            assert_eq!((c.code(), Codec::decode(n as u8).unwrap()), (n as u8, c));
        }
        assert!(Codec::decode(4).is_err());
        for how in available() {
            assert_eq!(Compression::new(how.codec(), how.level()).unwrap(), how);
        }
        for bad in [
            (Codec::None, 1),
            (Codec::Snappy, 1),
            (Codec::Zstd, 0),
            (Codec::Zstd, 23),
            (Codec::Lz4, -1),
        ] {
            let e = Compression::new(bad.0, bad.1).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{bad:?}");
        }
    }
}
