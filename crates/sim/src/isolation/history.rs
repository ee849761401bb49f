//! What a concurrent run did, as its clients saw it. Every write has a number of its own, so that a read says whose write it saw;
//! deletes have numbers too, though a read sees only that nothing is there.

use perigee::Isolation;
use std::collections::{BTreeMap, BTreeSet};

/// A key.
pub type Key = u16;
/// A write's number; 0: the key was not there.
pub type Version = u32;

/// What was read: key, version, whether by a range.
pub type Read = (Key, Version, bool);
/// Who wrote a version, and whether it was the last that its transaction wrote there.
pub type Writers = BTreeMap<Version, (usize, bool)>;

/// Keys from here on are inserted once each, and read by ranges. They come in groups of eight with a prefix of their own.
pub const RANGES: Key = 16;
/// Keys of a group.
pub const GROUP: Key = 8;

/// An operation and its answer.
#[derive(Clone, Debug)]
pub enum Did {
    /// Read one key; whether under a lock.
    Read(Key, Version, bool),
    /// Wrote one key.
    Wrote(Key, Version),
    /// Removed one key, or the keys of a range, each by a version of its own.
    Erased(Key, Version),
    /// Read all keys from the first to before the second; whether under a lock.
    Scanned(Key, Key, Vec<(Key, Version)>, bool),
    /// Was refused when it asked for a key under a lock.
    Asked(Key),
    /// Took back what it wrote from that operation on.
    TookBack(usize),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Committed, as that sequence number if it wrote anything.
    Committed(u64),
    /// Refused as a conflict, no later than the moment of that sequence number.
    Refused(u64),
    /// It did not get a lock, was ended from outside, or thought better of it.
    GaveUp,
}

/// A transaction as its client saw it.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its level.
    pub level: Isolation,
    /// It locks what it writes.
    pub locks: bool,
    /// The moment that it read, if it was one.
    pub snapshot: Option<u64>,
    /// Its operations in their order.
    pub ops: Vec<Did>,
    /// How it ended.
    pub end: End,
    /// Moments on a common clock: before it began, and after its commit was answered.
    pub span: (u64, u64),
}

/// A whole run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// All transactions.
    pub records: Vec<Record>,
    /// Of each key the versions in the order in which they were committed, with their commits.
    pub order: BTreeMap<Key, Vec<(u64, Version)>>,
    /// Versions that are deletes.
    pub erasures: BTreeSet<Version>,
    /// The puts among them, as commit hooks heard them.
    pub heard: BTreeMap<Key, Vec<Version>>,
    /// Of appended lists: what stood there, by version.
    pub lists: BTreeMap<Version, Vec<Version>>,
    /// What was there at the end.
    pub end: BTreeMap<Key, Version>,
}

impl Did {
    /// The version that it made.
    pub fn write(&self) -> Option<(Key, Version)> {
        match self {
            Did::Wrote(key, version) | Did::Erased(key, version) => Some((*key, *version)),
            _ => None,
        }
    }
}

impl Record {
    /// Whether it was committed.
    pub fn committed(&self) -> bool {
        matches!(self.end, End::Committed(_))
    }
    /// What it had written before operation `at` and not taken back: its place, key and version, the last of each key.
    pub fn own(&self, at: usize) -> BTreeMap<Key, (usize, Version)> {
        let mut live: Vec<(usize, Key, Version)> = Vec::new();
        for (i, did) in self.ops[..at].iter().enumerate() {
            match did {
                Did::TookBack(from) => live.retain(|(i, ..)| i < from),
                did => live.extend(did.write().map(|(key, version)| (i, key, version))),
            }
        }
        live.into_iter().map(|(i, key, version)| (key, (i, version))).collect()
    }
    /// The last write to each key.
    pub fn last_writes(&self) -> BTreeMap<Key, Version> {
        self.own(self.ops.len()).into_iter().map(|(key, (_, version))| (key, version)).collect()
    }
    /// Whether what it locked in operation `at` was locked to the end.
    pub fn keeps(&self, at: usize) -> bool {
        !self.ops[at..].iter().any(|did| matches!(did, Did::TookBack(from) if *from <= at))
    }
}

impl History {
    /// Builds the order of commits of each key from what was answered.
    pub fn line_up(&mut self) {
        for r in &self.records {
            let erased = r.ops.iter().filter_map(|d| if let Did::Erased(_, v) = d { Some(*v) } else { None });
            self.erasures.extend(erased);
            if let End::Committed(seq) = r.end {
                r.last_writes()
                    .into_iter()
                    .for_each(|(k, v)| self.order.entry(k).or_default().push((seq, v)));
            }
        }
        self.order.values_mut().for_each(|all| all.sort_unstable());
    }
    /// What stands under a key after a commit: its version and whether a reader sees it.
    pub fn at(&self, key: Key, seq: u64) -> Version {
        let all = self.order.get(&key).map_or(&[][..], |v| v);
        all.iter().take_while(|(s, _)| *s <= seq).last().map_or(0, |(_, v)| *v)
    }
    /// Whether a key was written in a stretch of the order, its beginning excluded.
    pub fn changed(&self, key: Key, (since, until): (u64, u64)) -> bool {
        self.order.get(&key).is_some_and(|all| all.iter().any(|(seq, _)| *seq > since && *seq <= until))
    }
    /// Which version a transaction saw when it saw none: the delete before the moment that it read. `None`: that cannot be told.
    fn absence(&self, r: &Record, key: Key) -> Option<Version> {
        let all = self.order.get(&key).map_or(&[][..], |v| v);
        let Some(snapshot) = r.snapshot else {
            return (!all.iter().any(|(_, v)| self.erasures.contains(v))).then_some(0);
        };
        let before = all.iter().take_while(|(seq, _)| *seq <= snapshot);
        Some(before.filter(|(_, v)| self.erasures.contains(v)).last().map_or(0, |(_, v)| *v))
    }
    /// What operation `at` of a transaction read of others: key, version, whether by a range. Keys that were not there too.
    pub fn read(&self, r: &Record, at: usize) -> Vec<Read> {
        let own = r.own(at);
        let foreign = |key: Key, version: Version, range: bool| {
            let version = if version == 0 { self.absence(r, key) } else { Some(version) };
            version.filter(|_| !own.contains_key(&key)).map(|v| (key, v, range))
        };
        match &r.ops[at] {
            Did::Read(key, version, _) => foreign(*key, *version, false).into_iter().collect(),
            Did::Scanned(from, to, seen, _) => {
                let seen: BTreeMap<_, _> = seen.iter().copied().collect();
                let all = (*from..*to).map(|key| (key, seen.get(&key).copied().unwrap_or(0)));
                all.filter_map(|(key, version)| foreign(key, version, true)).collect()
            }
            _ => Vec::new(),
        }
    }
    /// All that transaction `i` read of others.
    pub fn reads(&self, i: usize) -> Vec<Read> {
        let r = &self.records[i];
        (0..r.ops.len()).flat_map(|at| self.read(r, at)).collect()
    }
}
