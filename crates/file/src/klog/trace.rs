//! A point read that tells what it did: for `explain`. It takes the same way through the reader as
//! every read, and counts and caches as one does.

use super::reader::{EntryValue, KlogReader};
use perigee_base::io_stats::IoActivity;
use perigee_base::{Result, SeqNo};

/// What a look-up in one klog asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KlogLookupTrace {
    /// Whether the filter let the key pass; `None`: the klog has none.
    pub filter_passed: Option<bool>,
    /// The data block that was asked; `None`: the filter or the index said that none could hold the
    /// key.
    pub block: Option<BlockLookupTrace>,
}

/// A data block that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLookupTrace {
    /// Its number in the klog.
    pub index: usize,
    /// Where it lies.
    pub offset: u64,
    /// Its stored bytes.
    pub bytes: u64,
    /// Whether the block cache had it; otherwise its bytes were read.
    pub was_cached: bool,
}

impl KlogReader {
    /// [`KlogReader::get`], and what it asked.
    pub fn get_traced(
        &self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
    ) -> (Result<Option<(SeqNo, EntryValue)>>, KlogLookupTrace) {
        let mut block = None;
        let answer = self.get_with(key, hash, at, |number| {
            let (offset, bytes) = self.metadata.index.block_handle(number);
            let cached = self.cache.contains(number);
            block = Some(BlockLookupTrace { index: number, offset, bytes, was_cached: cached });
            self.load_block(number, true, IoActivity::Get)
        });
        let filter = self.metadata.filter.as_ref().map(|f| f.may_contain(hash));
        (answer, KlogLookupTrace { filter_passed: filter, block })
    }
}
