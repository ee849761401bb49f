//! Frames (bytes with a checksum) and blocks (sorted entries in columns, searchable as they lie).
//! Format: `docs/format/block.md`.

pub mod column;
pub mod frame;
pub mod layout;
pub mod writer;
pub mod prints;
pub mod reader;
pub mod find;
pub(crate) mod window;
pub(crate) mod spare;

pub use reader::Block;

#[cfg(test)]
mod tests;
