//! The compression libraries, each behind one compressor and one decompressing function. A codec
//! whose library this build lacks compresses nothing, and its payloads cannot be read.
//!
//! | codec | library | feature |
//! |---|---|---|
//! | LZ4 | `lz4_flex` (Rust), or `lz4` (C) | none, or `lz4-c` |
//! | Snappy | `snap` (Rust) | `snappy` |
//! | Zstandard | `zstd` (C) | `zstd` |

use perigee_base::Error;

/// Returns the error for a payload that a library refuses.
fn damaged(e: impl std::fmt::Display) -> Error {
    Error::corruption(format!("payload does not decompress: {e}"))
}

/// LZ4 block format.
pub mod lz4 {
    use super::damaged;
    use perigee_base::Result;

    /// Compresses blocks.
    #[derive(Default)]
    pub struct Lz4Compressor {
        /// The C library keeps nothing between blocks.
        #[cfg(not(feature = "lz4-c"))]
        table: lz4_flex::block::CompressTable,
    }

    impl Lz4Compressor {
        /// Returns the longest output for `len` bytes; `None` if they are too many.
        pub fn bound(len: usize) -> Option<usize> {
            #[cfg(feature = "lz4-c")]
            {
                lz4::block::compress_bound(len).ok()
            }
            #[cfg(not(feature = "lz4-c"))]
            {
                i32::try_from(len).ok().map(|_| lz4_flex::block::get_maximum_output_size(len))
            }
        }
        /// Compresses `raw` into `out`. Returns the length of the output. The Rust library has one
        /// effort: there the acceleration has no effect.
        #[cfg_attr(not(feature = "lz4-c"), allow(unused_variables))]
        pub fn compress(&mut self, raw: &[u8], acceleration: i32, out: &mut [u8]) -> Option<usize> {
            #[cfg(feature = "lz4-c")]
            {
                let mode = lz4::block::CompressionMode::FAST(acceleration);
                lz4::block::compress_to_buffer(raw, Some(mode), false, out).ok()
            }
            #[cfg(not(feature = "lz4-c"))]
            {
                lz4_flex::block::compress_into_with_table(raw, out, &mut self.table).ok()
            }
        }
    }

    /// Decompresses `stored` into `raw`. Returns the number of bytes written.
    pub fn decompress(stored: &[u8], raw: &mut [u8]) -> Result<usize> {
        #[cfg(feature = "lz4-c")]
        {
            let most = i32::try_from(raw.len()).map_err(damaged)?;
            lz4::block::decompress_to_buffer(stored, Some(most), raw).map_err(damaged)
        }
        #[cfg(not(feature = "lz4-c"))]
        {
            lz4_flex::block::decompress_into(stored, raw).map_err(damaged)
        }
    }
}

/// Snappy block format, which starts with its own length.
pub mod snappy {
    use perigee_base::Result;

    /// Compresses blocks; keeps the hash table.
    #[derive(Default)]
    pub struct SnappyCompressor {
        #[cfg(feature = "snappy")]
        encoder: Option<snap::raw::Encoder>,
    }

    #[cfg(feature = "snappy")]
    impl SnappyCompressor {
        /// Returns the longest output for `len` bytes; `None` if they are too many.
        pub fn bound(len: usize) -> Option<usize> {
            Some(snap::raw::max_compress_len(len))
        }
        /// Compresses `raw` into `out`. Returns the length of the output.
        pub fn compress(&mut self, raw: &[u8], out: &mut [u8]) -> Option<usize> {
            self.encoder.get_or_insert_with(snap::raw::Encoder::new).compress(raw, out).ok()
        }
    }

    /// Decompresses `stored` into `raw`. Returns the number of bytes written.
    #[cfg(feature = "snappy")]
    pub fn decompress(stored: &[u8], raw: &mut [u8]) -> Result<usize> {
        snap::raw::Decoder::new().decompress(stored, raw).map_err(super::damaged)
    }

    #[cfg(not(feature = "snappy"))]
    impl SnappyCompressor {
        /// Returns `None`: this build does not compress with Snappy.
        pub fn bound(_: usize) -> Option<usize> {
            None
        }
        /// Returns `None`.
        pub fn compress(&mut self, _: &[u8], _: &mut [u8]) -> Option<usize> {
            None
        }
    }

    /// Fails: this build cannot read such payloads.
    #[cfg(not(feature = "snappy"))]
    pub fn decompress(_: &[u8], _: &mut [u8]) -> Result<usize> {
        Err(super::super::Codec::Snappy.missing())
    }
}

/// One Zstandard frame, without a dictionary.
pub mod zstd {
    use perigee_base::Result;
    #[cfg(feature = "zstd")]
    use perigee_base::{Error, ErrorKind};
    #[cfg(feature = "zstd")]
    use std::cell::RefCell;

    /// Compresses frames.
    #[derive(Default)]
    pub struct ZstdCompressor {
        /// The context of the last level.
        #[cfg(feature = "zstd")]
        context: Option<(i32, zstd::bulk::Compressor<'static>)>,
    }

    #[cfg(feature = "zstd")]
    impl ZstdCompressor {
        /// Returns the longest output for `len` bytes; `None` if they are too many.
        pub fn bound(len: usize) -> Option<usize> {
            Some(zstd::zstd_safe::compress_bound(len))
        }
        /// Compresses `raw` into `out`. Returns the length of the output.
        pub fn compress(&mut self, raw: &[u8], level: i32, out: &mut [u8]) -> Option<usize> {
            if self.context.as_ref().is_none_or(|(l, _)| *l != level) {
                self.context = Some((level, zstd::bulk::Compressor::new(level).ok()?));
            }
            self.context.as_mut()?.1.compress_to_buffer(raw, out).ok()
        }
    }

    #[cfg(feature = "zstd")]
    thread_local! {
        /// Creating a context takes four times as long as decompressing a block of 16 KiB.
        static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> =
            const { RefCell::new(None) };
    }

    /// Decompresses `stored` directly into `raw`, so no window is allocated, whatever the frame
    /// declares. Returns the number of bytes written.
    #[cfg(feature = "zstd")]
    pub fn decompress(stored: &[u8], raw: &mut [u8]) -> Result<usize> {
        let mut run = |slot: &mut Option<zstd::bulk::Decompressor<'static>>| {
            let context = match slot {
                Some(context) => context,
                none => {
                    let created = zstd::bulk::Decompressor::new().map_err(|e| {
                        Error::new(
                            ErrorKind::NoMemory,
                            format!("no memory to decompress Zstandard: {e}"),
                        )
                    })?;
                    none.insert(created)
                }
            };
            context.decompress_to_buffer(stored, raw).map_err(super::damaged)
        };
        // While a thread exits, its context may already be destroyed; it may still read.
        match DECOMPRESSOR.try_with(|slot| run(&mut slot.borrow_mut())) {
            Ok(done) => done,
            Err(_) => run(&mut None),
        }
    }

    #[cfg(not(feature = "zstd"))]
    impl ZstdCompressor {
        /// Returns `None`: this build does not compress with Zstandard.
        pub fn bound(_: usize) -> Option<usize> {
            None
        }
        /// Returns `None`.
        pub fn compress(&mut self, _: &[u8], _: i32, _: &mut [u8]) -> Option<usize> {
            None
        }
    }

    /// Fails: this build cannot read such payloads.
    #[cfg(not(feature = "zstd"))]
    pub fn decompress(_: &[u8], _: &mut [u8]) -> Result<usize> {
        Err(super::super::Codec::Zstd.missing())
    }
}
