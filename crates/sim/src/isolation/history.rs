//! What a concurrent run did, as its clients saw it. Every write has a number of its own, so that a
//! read says whose write it saw; deletes have numbers too, though a read sees only that nothing is
//! there.

use perigee::Isolation;
use std::collections::{BTreeMap, BTreeSet};

/// A key.
pub type Key = u16;
/// A write's number; 0: the key was not there.
pub type Version = u32;

/// What was read: key, version, whether by a range.
pub type ReadVersion = (Key, Version, bool);
/// Who wrote a version, and whether it was the last that its transaction wrote there.
pub type VersionWriters = BTreeMap<Version, (usize, bool)>;

/// Keys from here on are inserted once each, and read by ranges. They come in groups of eight with
/// a prefix of their own.
pub const RANGE_KEYS_START: Key = 16;
/// Keys of a group.
pub const KEYS_PER_GROUP: Key = 8;

/// An operation and its answer.
#[derive(Clone, Debug)]
pub enum ClientOp {
    /// Read one key; whether under a lock.
    Read(Key, Version, bool),
    /// Wrote one key.
    Write(Key, Version),
    /// Removed one key, or the keys of a range, each by a version of its own.
    Delete(Key, Version),
    /// Read all keys from the first to before the second; whether under a lock.
    Scan(Key, Key, Vec<(Key, Version)>, bool),
    /// Was refused when it asked for a key under a lock.
    LockRefused(Key),
    /// Took back what it wrote from that operation on.
    RolledBack(usize),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnEnd {
    /// Committed, as that sequence number if it wrote anything.
    Committed(u64),
    /// Refused as a conflict, no later than the moment of that sequence number.
    Conflict(u64),
    /// It did not get a lock, was ended from outside, or thought better of it.
    RolledBack,
}

/// A transaction as its client saw it.
#[derive(Clone, Debug)]
pub struct TxnRecord {
    /// Its level.
    pub level: Isolation,
    /// It locks what it writes.
    pub locks: bool,
    /// The moment that it read, if it was one.
    pub snapshot: Option<u64>,
    /// Its operations in their order.
    pub ops: Vec<ClientOp>,
    /// How it ended.
    pub end: TxnEnd,
    /// Moments on a common clock: before it began, and after its commit was answered.
    pub span: (u64, u64),
}

/// A whole run.
#[derive(Clone, Debug, Default)]
pub struct TxnHistory {
    /// All transactions.
    pub records: Vec<TxnRecord>,
    /// Of each key the versions in the order in which they were committed, with their commits.
    pub version_order: BTreeMap<Key, Vec<(u64, Version)>>,
    /// Versions that are deletes.
    pub delete_versions: BTreeSet<Version>,
    /// The puts among them, as commit hooks heard them.
    pub hook_puts: BTreeMap<Key, Vec<Version>>,
    /// Of appended lists: what stood there, by version.
    pub lists: BTreeMap<Version, Vec<Version>>,
    /// What was there at the end.
    pub final_versions: BTreeMap<Key, Version>,
}

impl ClientOp {
    /// The version that it made.
    pub fn written_version(&self) -> Option<(Key, Version)> {
        match self {
            ClientOp::Write(key, version) | ClientOp::Delete(key, version) => {
                Some((*key, *version))
            }
            _ => None,
        }
    }
}

impl TxnRecord {
    /// Whether it was committed.
    pub fn committed(&self) -> bool {
        matches!(self.end, TxnEnd::Committed(_))
    }
    /// What it had written before operation `at` and not taken back: its place, key and version,
    /// the last of each key.
    pub fn own_writes(&self, at: usize) -> BTreeMap<Key, (usize, Version)> {
        let mut live: Vec<(usize, Key, Version)> = Vec::new();
        for (i, did) in self.ops[..at].iter().enumerate() {
            match did {
                ClientOp::RolledBack(from) => live.retain(|(i, ..)| i < from),
                did => live.extend(did.written_version().map(|(key, version)| (i, key, version))),
            }
        }
        live.into_iter().map(|(i, key, version)| (key, (i, version))).collect()
    }
    /// The last write to each key.
    pub fn last_writes(&self) -> BTreeMap<Key, Version> {
        self.own_writes(self.ops.len())
            .into_iter()
            .map(|(key, (_, version))| (key, version))
            .collect()
    }
    /// Whether what it locked in operation `at` was locked to the end.
    pub fn keeps_lock(&self, at: usize) -> bool {
        !self.ops[at..].iter().any(|did| matches!(did, ClientOp::RolledBack(from) if *from <= at))
    }
}

impl TxnHistory {
    /// Builds the order of commits of each key from what was answered.
    pub fn build_version_order(&mut self) {
        for r in &self.records {
            let erased = r
                .ops
                .iter()
                .filter_map(|d| if let ClientOp::Delete(_, v) = d { Some(*v) } else { None });
            self.delete_versions.extend(erased);
            if let TxnEnd::Committed(seq) = r.end {
                r.last_writes()
                    .into_iter()
                    .for_each(|(k, v)| self.version_order.entry(k).or_default().push((seq, v)));
            }
        }
        self.version_order.values_mut().for_each(|all| all.sort_unstable());
    }
    /// What stands under a key after a commit: its version and whether a reader sees it.
    pub fn version_at(&self, key: Key, seq: u64) -> Version {
        let all = self.version_order.get(&key).map_or(&[][..], |v| v);
        all.iter().take_while(|(s, _)| *s <= seq).last().map_or(0, |(_, v)| *v)
    }
    /// Whether a key was written in a stretch of the order, its beginning excluded.
    pub fn changed_between(&self, key: Key, (since, until): (u64, u64)) -> bool {
        self.version_order
            .get(&key)
            .is_some_and(|all| all.iter().any(|(seq, _)| *seq > since && *seq <= until))
    }
    /// Which version a transaction saw when it saw none: the delete before the moment that it read.
    /// `None`: that cannot be told.
    fn observed_delete(&self, r: &TxnRecord, key: Key) -> Option<Version> {
        let all = self.version_order.get(&key).map_or(&[][..], |v| v);
        let Some(snapshot) = r.snapshot else {
            return (!all.iter().any(|(_, v)| self.delete_versions.contains(v))).then_some(0);
        };
        let before = all.iter().take_while(|(seq, _)| *seq <= snapshot);
        Some(before.filter(|(_, v)| self.delete_versions.contains(v)).last().map_or(0, |(_, v)| *v))
    }
    /// What operation `at` of a transaction read of others: key, version, whether by a range. Keys
    /// that were not there too.
    pub fn reads_of_op(&self, r: &TxnRecord, at: usize) -> Vec<ReadVersion> {
        let own = r.own_writes(at);
        let foreign = |key: Key, version: Version, range: bool| {
            let version = if version == 0 { self.observed_delete(r, key) } else { Some(version) };
            version.filter(|_| !own.contains_key(&key)).map(|v| (key, v, range))
        };
        match &r.ops[at] {
            ClientOp::Read(key, version, _) => foreign(*key, *version, false).into_iter().collect(),
            ClientOp::Scan(from, to, seen, _) => {
                let seen: BTreeMap<_, _> = seen.iter().copied().collect();
                let all = (*from..*to).map(|key| (key, seen.get(&key).copied().unwrap_or(0)));
                all.filter_map(|(key, version)| foreign(key, version, true)).collect()
            }
            _ => Vec::new(),
        }
    }
    /// All that transaction `i` read of others.
    pub fn reads_of_txn(&self, i: usize) -> Vec<ReadVersion> {
        let r = &self.records[i];
        (0..r.ops.len()).flat_map(|at| self.reads_of_op(r, at)).collect()
    }
}
