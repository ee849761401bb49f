//! Iteration over the versions of a key in a memtable.

use super::{Memtable, MemtableIndex};
use perigee_base::{SeqNo, ValueRef};

/// The versions of a key, newest first.
#[derive(Debug)]
pub struct KeyVersions<'a> {
    memtable: &'a Memtable,
    key: &'a [u8],
    next: Option<u32>,
}

impl KeyVersions<'_> {
    /// Returns the position of the next version.
    pub fn position(&self) -> Option<u32> {
        self.next
    }
    /// Continues at a position of the same key.
    pub fn continue_at(&mut self, position: Option<u32>) {
        self.next = position;
    }
}

impl<'a> Iterator for KeyVersions<'a> {
    type Item = (SeqNo, ValueRef<'a>);

    fn next(&mut self) -> Option<(SeqNo, ValueRef<'a>)> {
        let i = self.next?;
        let entry = match &self.memtable.existing_contents().index {
            MemtableIndex::Hash(table) => {
                self.next = table.older_version(i);
                table.node(i)
            }
            MemtableIndex::SkipList(list) => {
                self.next = list.next(i);
                let entry = list.node(i);
                let key = self.memtable.key_of(&entry);
                if !self.memtable.comparator.keys_equal(key, self.key) {
                    self.next = None;
                    return None;
                }
                entry
            }
        };
        check_slow!(self.next != Some(i), "a version is older than the one before", i);
        Some((entry.seq, self.memtable.value_of(&entry)))
    }
}

impl Memtable {
    /// Returns the versions of `key` visible at `at`, newest first.
    pub fn key_versions<'a>(&'a self, key: &'a [u8], at: SeqNo) -> KeyVersions<'a> {
        let next = self.contents.get().and_then(|contents| match &contents.index {
            MemtableIndex::Hash(table) => table.find_entry(key, at, &contents.batches),
            MemtableIndex::SkipList(list) => {
                list.seek(key, at, |n| self.key_of(n), self.comparator)
            }
        });
        KeyVersions { memtable: self, key, next }
    }
}
