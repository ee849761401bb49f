//! What a concurrent run did, as its clients saw it. Every write has a number of its own, so that a read says whose write it saw.

use std::collections::BTreeMap;

/// A key.
pub type Key = u16;
/// A write's number; 0: the key was not there.
pub type Version = u32;

/// Keys from here on are inserted once each, and read by ranges.
pub const RANGES: Key = 12;

/// An operation and its answer.
#[derive(Clone, Debug)]
pub enum Did {
    /// Read one key.
    Read(Key, Version),
    /// Wrote one key.
    Wrote(Key, Version),
    /// Read all keys from the first to before the second.
    Scanned(Key, Key, Vec<(Key, Version)>),
}

/// A transaction as its client saw it.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its operations in their order.
    pub ops: Vec<Did>,
    /// Whether it was committed.
    pub committed: bool,
    /// Moments on a common clock: before it began, and after its commit was answered.
    pub span: (u64, u64),
}

/// A whole run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// All transactions.
    pub records: Vec<Record>,
    /// Of each key the versions in the order in which they were committed.
    pub order: BTreeMap<Key, Vec<Version>>,
    /// Of appended lists: what stood there, by version.
    pub lists: BTreeMap<Version, Vec<Version>>,
    /// What was there at the end.
    pub end: BTreeMap<Key, Version>,
}

impl Record {
    /// The last write to each key.
    pub fn last_writes(&self) -> BTreeMap<Key, Version> {
        let wrote =
            |did: &Did| if let Did::Wrote(key, version) = did { Some((*key, *version)) } else { None };
        self.ops.iter().filter_map(wrote).collect()
    }
}
