//! Frames (checksummed byte sequences) and blocks (sorted entries in columns, searchable in place).
//! Format: `docs/format/block.md`.

pub mod column;
pub mod frame;
pub mod layout;
pub mod writer;
pub mod fingerprints;
pub mod reader;
pub mod fingerprint_lookup;
pub(crate) mod entry_window;
pub(crate) mod buffer_pool;

pub use entry_window::EntryWindowView;
pub use frame::{FRAME_HEADER_BYTES, FRAME_OVERHEAD_BYTES, Frame, FrameKind, declared_frame_bytes};
pub use reader::TableBlock;

#[cfg(test)]
mod tests;
