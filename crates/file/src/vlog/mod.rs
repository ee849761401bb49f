//! The vlog: separated values, written once. Format: `docs/format/vlog.md`.

pub mod writer;
pub mod streamed_value;
pub mod reader;
pub mod chunk_reader;

pub use chunk_reader::ChunkReader;
pub use reader::VlogReader;
pub use streamed_value::{StreamedValueWriter, WrittenValue};
pub use writer::{VlogSummary, VlogWriter};

#[cfg(test)]
mod chunk_tests;
#[cfg(test)]
mod tests;
