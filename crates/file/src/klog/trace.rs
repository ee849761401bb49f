//! A point read that records what it did, for `explain`. It uses the same path through the reader
//! as every read, including counters and cache.

use super::reader::{EntryValue, KlogReader};
use perigee_base::{BlockHandle, IoActivity, Result, SeqNo};

/// Trace of a lookup in one klog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KlogLookupTrace {
    /// Filter result; `None` if the klog has no filter.
    pub filter_passed: Option<bool>,
    /// The data block that was searched; `None` if the filter or the index excluded the key.
    pub block: Option<BlockLookupTrace>,
}

/// A data block that was searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLookupTrace {
    /// Its index in the klog.
    pub index: usize,
    /// Its offset in the file.
    pub offset: u64,
    /// Its stored length in bytes.
    pub bytes: u64,
    /// True if the block was in the cache; otherwise it was read.
    pub was_cached: bool,
}

impl KlogReader {
    /// Like [`KlogReader::get`]; also returns the trace.
    pub fn get_traced(
        &self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
    ) -> (Result<Option<(SeqNo, EntryValue)>>, KlogLookupTrace) {
        let mut block = None;
        let answer = self.get_with(key, hash, at, |index| {
            let BlockHandle { offset, len: bytes } = self.metadata.index.block_handle(index);
            let cached = self.cache.contains(index);
            block = Some(BlockLookupTrace { index, offset, bytes, was_cached: cached });
            self.load_block(index, true, IoActivity::Get)
        });
        let filter = self.metadata.filter.as_ref().map(|f| f.may_contain(hash));
        (answer, KlogLookupTrace { filter_passed: filter, block })
    }
}
