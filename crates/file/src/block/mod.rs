//! Frames and blocks.

/// A verified block in memory, searchable as it lies.
#[derive(Debug)]
pub struct Block {}
