//! The vlog: separated values, written once. Format: `docs/format/vlog.md`.

pub mod writer;
pub mod reader;

pub use reader::VlogReader;
pub use writer::VlogWriter;

#[cfg(test)]
mod tests;
