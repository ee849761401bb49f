//! Where an output table ends. Pure.

use perigee_base::limits;

/// When to cut.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    /// Bytes at which a table is cut.
    pub target_bytes: u64,
}

impl Split {
    /// Whether to cut before the next entry. Versions of one key stay together.
    pub fn cut(&self, new_key: bool, table_bytes: u64, index_bytes: usize) -> bool {
        new_key && (table_bytes >= self.target_bytes || index_bytes >= limits::INDEX_BYTES_CUT)
    }
}
