//! A point read that tells what it did: for `explain`. It takes the same way through the reader as every read, and counts and
//! caches as one does.

use super::reader::{Found, KlogReader};
use perigee_base::io::Cause;
use perigee_base::{Result, SeqNo};

/// What a look-up in one klog asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Whether the filter let the key pass; `None`: the klog has none.
    pub filter: Option<bool>,
    /// The data block that was asked; `None`: the filter or the index said that none could hold the key.
    pub block: Option<BlockTrace>,
}

/// A data block that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockTrace {
    /// Its number in the klog.
    pub number: usize,
    /// Where it lies.
    pub offset: u64,
    /// Its stored bytes.
    pub bytes: u64,
    /// Whether the block cache had it; otherwise its bytes were read.
    pub cached: bool,
}

impl KlogReader {
    /// [`KlogReader::get`], and what it asked.
    pub fn get_traced(&self, key: &[u8], hash: u64, at: SeqNo) -> (Result<Option<(SeqNo, Found)>>, Trace) {
        let mut block = None;
        let answer = self.find(key, hash, at, |number| {
            let (offset, bytes) = self.parts.index.place(number);
            let cached = self.cache.has(number);
            block = Some(BlockTrace { number, offset, bytes, cached });
            self.block(number, true, Cause::Get)
        });
        let filter = self.parts.filter.as_ref().map(|f| f.may_hold(hash));
        (answer, Trace { filter, block })
    }
}
