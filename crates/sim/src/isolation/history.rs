//! Record of a concurrent run as its clients saw it. Every write has a unique number, so that a
//! read identifies the write it saw. Deletes have numbers too, although a read only sees that the
//! key is absent.

use perigee::Isolation;
use std::collections::{BTreeMap, BTreeSet};

/// A key.
pub type Key = u16;
/// Unique number of a write; 0 means that the key was absent.
pub type Version = u32;

/// A version that was read: key, version, and true if by a range scan.
pub type ReadVersion = (Key, Version, bool);
/// Writer of each version, and true if it was its transaction's last write to the key.
pub type VersionWriters = BTreeMap<Version, (usize, bool)>;

/// First of the keys that are inserted once each and read by ranges. They come in groups of eight
/// with a common prefix.
pub const RANGE_KEYS_START: Key = 16;
/// Number of keys in a group.
pub const KEYS_PER_GROUP: Key = 8;

/// An operation with its result.
#[derive(Clone, Debug)]
pub enum ClientOp {
    /// Read one key; true if under a lock.
    Read(Key, Version, bool),
    /// Wrote one key.
    Write(Key, Version),
    /// Deleted one key, alone or as part of a range; every deleted key gets its own version.
    Delete(Key, Version),
    /// Read all keys from the first to before the second; true if under a lock.
    Scan(Key, Key, Vec<(Key, Version)>, bool),
    /// A locked read of the key was refused.
    LockRefused(Key),
    /// Released the lock on the key.
    Unlocked(Key),
    /// Another thread ended its wait for a lock.
    Interrupted,
    /// Rolled back its writes from that operation on.
    RolledBack(usize),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnEnd {
    /// Committed, with this sequence number if it wrote anything.
    Committed(u64),
    /// Refused with a conflict, when this was the latest sequence number or before.
    Conflict(u64),
    /// Did not get a lock, was aborted by another thread, or rolled back voluntarily.
    RolledBack,
}

/// A transaction as its client saw it.
#[derive(Clone, Debug)]
pub struct TxnRecord {
    /// Isolation level.
    pub level: Isolation,
    /// True if it locks what it writes.
    pub locks: bool,
    /// Sequence number of its snapshot, if it read from one.
    pub snapshot: Option<u64>,
    /// Operations in order.
    pub ops: Vec<ClientOp>,
    /// How it ended.
    pub end: TxnEnd,
    /// Logical times: before it began, and after its commit returned.
    pub span: (u64, u64),
}

/// Record of a whole run.
#[derive(Clone, Debug, Default)]
pub struct TxnHistory {
    /// All transactions.
    pub records: Vec<TxnRecord>,
    /// Versions of each key in commit order, with the sequence numbers of their commits.
    pub version_order: BTreeMap<Key, Vec<(u64, Version)>>,
    /// Versions that are deletes.
    pub delete_versions: BTreeSet<Version>,
    /// The puts among them, as reported to commit hooks.
    pub hook_puts: BTreeMap<Key, Vec<Version>>,
    /// Contents of appended lists, by version.
    pub lists: BTreeMap<Version, Vec<Version>>,
    /// Contents at the end.
    pub final_versions: BTreeMap<Key, Version>,
}

impl ClientOp {
    /// Returns the key and version that the operation wrote.
    pub fn written_version(&self) -> Option<(Key, Version)> {
        match self {
            ClientOp::Write(key, version) | ClientOp::Delete(key, version) => {
                Some((*key, *version))
            }
            _ => None,
        }
    }
}

/// Returns what operations have written and not rolled back: for each key the last write, with the
/// index of its operation and its version.
pub fn live_writes(ops: &[ClientOp]) -> BTreeMap<Key, (usize, Version)> {
    let mut live: Vec<(usize, Key, Version)> = Vec::new();
    for (i, did) in ops.iter().enumerate() {
        match did {
            ClientOp::RolledBack(from) => live.retain(|(i, ..)| i < from),
            did => live.extend(did.written_version().map(|(key, version)| (i, key, version))),
        }
    }
    live.into_iter().map(|(i, key, version)| (key, (i, version))).collect()
}

impl TxnRecord {
    /// Returns true if it committed.
    pub fn committed(&self) -> bool {
        matches!(self.end, TxnEnd::Committed(_))
    }
    /// Returns what it had written before operation `at` and not rolled back: for each key the last
    /// write, with the index of its operation and its version.
    pub fn own_writes(&self, at: usize) -> BTreeMap<Key, (usize, Version)> {
        live_writes(&self.ops[..at])
    }
    /// Returns its last write to each key.
    pub fn last_writes(&self) -> BTreeMap<Key, Version> {
        self.own_writes(self.ops.len())
            .into_iter()
            .map(|(key, (_, version))| (key, version))
            .collect()
    }
    /// Returns true if it held the lock taken by operation `at` until it ended.
    pub fn keeps_lock(&self, at: usize) -> bool {
        !self.ops[at..].iter().any(|did| match (did, &self.ops[at]) {
            (ClientOp::RolledBack(from), _) => *from <= at,
            (ClientOp::Unlocked(key), ClientOp::Read(locked, ..)) => key == locked,
            _ => false,
        })
    }
}

impl TxnHistory {
    /// Builds the commit order of each key from the results of the commits.
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
    /// Returns the version of a key as of a sequence number; 0 if the key is absent.
    pub fn version_at(&self, key: Key, seq: u64) -> Version {
        let all = self.version_order.get(&key).map_or(&[][..], |v| v);
        all.iter().take_while(|(s, _)| *s <= seq).last().map_or(0, |(_, v)| *v)
    }
    /// Returns true if a key was written between two sequence numbers, the first excluded.
    pub fn changed_between(&self, key: Key, (since, until): (u64, u64)) -> bool {
        self.version_order
            .get(&key)
            .is_some_and(|all| all.iter().any(|(seq, _)| *seq > since && *seq <= until))
    }
    /// Returns the delete that a transaction saw when it found no value: the last one before its
    /// snapshot. `None` if that is not known.
    fn observed_delete(&self, r: &TxnRecord, key: Key) -> Option<Version> {
        let all = self.version_order.get(&key).map_or(&[][..], |v| v);
        let Some(snapshot) = r.snapshot else {
            return (!all.iter().any(|(_, v)| self.delete_versions.contains(v))).then_some(0);
        };
        let before = all.iter().take_while(|(seq, _)| *seq <= snapshot);
        Some(before.filter(|(_, v)| self.delete_versions.contains(v)).last().map_or(0, |(_, v)| *v))
    }
    /// Returns the versions by other transactions that operation `at` read, including absent keys:
    /// key, version, and true if by a range scan.
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
    /// Returns all versions by other transactions that transaction `i` read.
    pub fn reads_of_txn(&self, i: usize) -> Vec<ReadVersion> {
        let r = &self.records[i];
        (0..r.ops.len()).flat_map(|at| self.reads_of_op(r, at)).collect()
    }
}
