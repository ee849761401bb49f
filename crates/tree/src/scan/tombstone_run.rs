//! Consecutive tombstones that a forward scan skips: a key range that later scans need not read.

use crate::limits::EMPTY_RANGE_LOOKUP_MIN;

/// The tombstones skipped since the last entry of another kind.
#[derive(Debug, Default)]
pub struct TombstoneRun {
    /// Key of the first one.
    begin: Vec<u8>,
    len: u64,
    /// The next tombstone may hide behind a version that only later readers see.
    after_newer: bool,
}

impl TombstoneRun {
    /// Key of the first tombstone.
    pub fn begin(&self) -> &[u8] {
        &self.begin
    }
    /// Number of tombstones.
    pub fn len(&self) -> u64 {
        self.len
    }
    /// Forgets what was passed before a new search.
    pub fn reset(&mut self) {
        (self.len, self.after_newer) = (0, false);
    }
    /// Ends the run.
    pub fn end(&mut self) {
        self.len = 0;
    }
    /// Ends the run at a version that only later readers see.
    pub fn pass_newer(&mut self) {
        (self.len, self.after_newer) = (0, true);
    }
    /// Adds the tombstone of `key`, or ends the run at another entry that is not live.
    pub fn pass(&mut self, key: &[u8], is_tombstone: bool) {
        if !is_tombstone || std::mem::take(&mut self.after_newer) {
            return self.reset();
        }
        if self.len == 0 {
            self.begin.clear();
            self.begin.extend_from_slice(key);
        }
        self.len += 1;
    }
    /// Returns true if it is time to look for an empty range around the last tombstone: more and
    /// more seldom.
    pub fn should_look(&self) -> bool {
        self.len >= EMPTY_RANGE_LOOKUP_MIN && self.len.is_power_of_two()
    }
}
