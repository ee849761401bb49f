//! The database as it was at one moment.

use crate::{Cursor, Family, Iter, Result, Slice};
use std::ops::RangeBounds;

/// All families as they were when the snapshot was taken. It is a number and a place in a list: it costs nothing to keep but
/// the old versions that compaction may not drop.
#[derive(Debug)]
pub struct Snapshot {}

impl Snapshot {
    /// The sequence number of the last operation it sees.
    pub fn sequence(&self) -> u64 {
        unimplemented!()
    }
    /// The value of `key` then, copied.
    pub fn get(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.get_pinned(family, key)?.map(Vec::from))
    }
    /// The value of `key` then, without a copy.
    pub fn get_pinned(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let _ = (family, key);
        unimplemented!()
    }
    /// Whether `key` was there.
    pub fn contains(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<bool> {
        let _ = (family, key);
        unimplemented!()
    }
    /// The entries of a range then.
    pub fn iter<K: AsRef<[u8]>>(&self, family: &Family, range: impl RangeBounds<K>) -> Result<Iter> {
        let _ = (family, range);
        unimplemented!()
    }
    /// The entries whose key starts with `prefix` then.
    pub fn prefix(&self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        let _ = (family, prefix);
        unimplemented!()
    }
    /// A cursor over a range then.
    pub fn cursor<K: AsRef<[u8]>>(&self, family: &Family, range: impl RangeBounds<K>) -> Result<Cursor> {
        let _ = (family, range);
        unimplemented!()
    }
}
