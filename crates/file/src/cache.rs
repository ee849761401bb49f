//! The block cache.

use crate::block::Block;
use perigee_base::FileId;
use std::sync::Arc;

/// Verified blocks by file and offset, within a budget of bytes.
#[derive(Debug)]
pub struct BlockCache {}

impl BlockCache {
    /// A cache of `capacity` bytes; 0 caches nothing.
    pub fn new(capacity: u64) -> Self {
        let _ = capacity;
        todo!()
    }
    /// The block, if it is here.
    pub fn get(&self, _file: FileId, _offset: u64) -> Option<Arc<Block>> {
        todo!()
    }
    /// Keeps a block, at the cost of others.
    pub fn insert(&self, _file: FileId, _offset: u64, _block: Arc<Block>) {
        todo!()
    }
    /// Drops every block of a file.
    pub fn forget_file(&self, _file: FileId) {
        todo!()
    }
    /// Bytes held now.
    pub fn used_bytes(&self) -> u64 {
        todo!()
    }
    /// The budget.
    pub fn capacity(&self) -> u64 {
        todo!()
    }
}
