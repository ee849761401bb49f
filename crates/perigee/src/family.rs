//! A handle of a column family: a sorted map of its own, sharing the log with its siblings.

use crate::{Cursor, FamilyOptions, Iter, Result, Slice, WriteOptions};
use std::ops::RangeBounds;

/// A column family of an open database. Cheap to clone. Calls on a dropped family fail with `NotFound`.
#[derive(Clone, Debug)]
pub struct Family {}

impl Family {
    /// Its name.
    pub fn name(&self) -> &str {
        unimplemented!()
    }
    /// Its number, never reused.
    pub fn id(&self) -> u32 {
        unimplemented!()
    }
    /// Its effective options.
    pub fn options(&self) -> FamilyOptions {
        unimplemented!()
    }
    /// Sets `key` to `value`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, WriteOptions::new())
    }
    /// Sets `key` to `value`, with options.
    pub fn put_with(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, options: WriteOptions) -> Result<()> {
        let _ = (key, value, options);
        unimplemented!()
    }
    /// Removes `key`; no error if it is not there.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, WriteOptions::new())
    }
    /// Removes `key`, with options.
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: WriteOptions) -> Result<()> {
        let _ = (key, options);
        unimplemented!()
    }
    /// The value of `key`, copied. `None` is an assertion: every place that could hold the key was read.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.get_pinned(key)?.map(Vec::from))
    }
    /// The value of `key` without a copy.
    pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let _ = key;
        unimplemented!()
    }
    /// Whether `key` is there. Does not fetch a separated value.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let _ = key;
        unimplemented!()
    }
    /// The entries of a range in key order, from both ends.
    pub fn iter<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        let _ = range;
        unimplemented!()
    }
    /// The entries whose key starts with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        let _ = prefix;
        unimplemented!()
    }
    /// A cursor over a range.
    pub fn cursor<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Cursor> {
        let _ = range;
        unimplemented!()
    }
    /// Writes the memtable to table files; returns when they are installed.
    pub fn flush(&self) -> Result<()> {
        unimplemented!()
    }
    /// Merges everything into the deepest level, dropping what nothing can see.
    pub fn compact(&self) -> Result<()> {
        unimplemented!()
    }
}
