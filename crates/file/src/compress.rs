//! Codecs: bytes to fewer bytes and back. The only room that knows a compression library.
//!
//! Invariant: decompression never yields more bytes than were declared, and never less without an error.

/// How a frame's payload is stored. Numbers are part of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// As it is.
    None,
    /// LZ4 block format.
    #[default]
    Lz4,
}
