//! The locks on single keys, [`KeyLocks`]: a hash table with chains. An entry keeps its position,
//! so its owner needs neither the key nor the hash to release it.

use super::granted_lock::{GrantedLock, LockOwner};
use smallvec::SmallVec;

/// The end of a chain.
const NIL: u32 = u32::MAX;
/// Number of entries above which the memory is released when the last lock is.
const RETAINED_ENTRIES: usize = 1024;
/// Number of chains of a table with few locks.
const INITIAL_CHAINS: usize = 16;

/// An exclusive lock that became one for an insert: undone before the lock itself.
#[derive(Clone, Copy, Debug)]
pub struct LockUpgrade {
    /// The number of the upgrade among its owner's locks.
    pub number: u64,
    /// Number of requests that it has served.
    pub requests: u32,
}

/// A lock on a key.
#[derive(Debug)]
pub struct KeyLock {
    hash: u64,
    key: SmallVec<[u8; 32]>,
    /// The lock. Its owner is 0 if the entry is unused.
    pub held: GrantedLock,
    /// Set while an exclusive lock is one for an insert.
    pub upgrade: Option<LockUpgrade>,
    /// Its node in the index of keys that are locked for an insert.
    pub insert_node: Option<u32>,
    next: u32,
}

impl KeyLock {
    /// Returns the key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.key
    }
    /// Returns the number of the newest request that took a lock or upgraded it.
    pub fn newest_number(&self) -> u64 {
        self.upgrade.map_or(self.held.number, |u| u.number)
    }
    /// Counts a request that is covered.
    pub fn count_request(&mut self) {
        let requests = match &mut self.upgrade {
            Some(upgrade) => &mut upgrade.requests,
            None => &mut self.held.requests,
        };
        *requests = requests.saturating_add(1);
    }
}

/// The locks on single keys of a column family.
#[derive(Debug, Default)]
pub struct KeyLocks {
    chains: Vec<u32>,
    entries: Vec<KeyLock>,
    unused: Vec<u32>,
}

impl KeyLocks {
    /// Returns the number of locks.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len() - self.unused.len()
    }
    /// Returns the position of the first lock of the chain of a hash.
    #[inline]
    fn first(&self, hash: u64) -> u32 {
        match self.chains.len() {
            0 => NIL,
            n => self.chains[hash as usize & (n - 1)],
        }
    }
    /// Returns the locks on keys with this hash, and their positions.
    #[inline]
    pub fn with_hash(&self, hash: u64) -> impl Iterator<Item = (u32, &KeyLock)> {
        let mut next = self.first(hash);
        std::iter::from_fn(move || {
            while next != NIL {
                let (at, entry) = (next, &self.entries[next as usize]);
                next = entry.next;
                if entry.hash == hash {
                    return Some((at, entry));
                }
            }
            None
        })
    }
    /// Returns all locks and their positions, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &KeyLock)> {
        let all = self.entries.iter().enumerate().map(|(at, e)| (at as u32, e));
        all.filter(|(_, e)| e.held.owner != 0)
    }
    /// Returns the lock at a position.
    #[inline]
    pub fn get(&self, at: u32) -> &KeyLock {
        &self.entries[at as usize]
    }
    /// Returns the lock at a position. Its key and owner must not be changed.
    #[inline]
    pub fn get_mut(&mut self, at: u32) -> &mut KeyLock {
        &mut self.entries[at as usize]
    }
    /// Adds a lock. Returns its position.
    pub fn insert(&mut self, hash: u64, key: &[u8], held: GrantedLock) -> u32 {
        check_slow!(held.owner != 0, "the owner 0 marks unused entries", held);
        if self.len() >= self.chains.len() {
            self.grow();
        }
        let chain = hash as usize & (self.chains.len() - 1);
        let next = self.chains[chain];
        let at = match self.unused.pop() {
            Some(at) => {
                let entry = &mut self.entries[at as usize];
                (entry.hash, entry.held, entry.next) = (hash, held, next);
                entry.key.extend_from_slice(key);
                at
            }
            None => {
                let (key, at) = (SmallVec::from_slice(key), self.entries.len() as u32);
                let (upgrade, insert_node) = (None, None);
                self.entries.push(KeyLock { hash, key, held, upgrade, insert_node, next });
                at
            }
        };
        self.chains[chain] = at;
        at
    }
    fn grow(&mut self) {
        let chains = (self.chains.len() * 2).max(INITIAL_CHAINS);
        self.chains.clear();
        self.chains.resize(chains, NIL);
        for (at, entry) in self.entries.iter_mut().enumerate().filter(|(_, e)| e.held.owner != 0) {
            let chain = entry.hash as usize & (chains - 1);
            entry.next = std::mem::replace(&mut self.chains[chain], at as u32);
        }
    }
    /// Removes the lock at a position.
    pub fn remove(&mut self, at: u32, owner: LockOwner) {
        let entry = &mut self.entries[at as usize];
        check!(
            entry.held.owner == owner,
            "the lock at a position belongs to the owner that releases it",
            entry.held,
            owner
        );
        let (hash, next) = (entry.hash, entry.next);
        entry.held.owner = 0;
        (entry.upgrade, entry.insert_node) = (None, None);
        if entry.key.spilled() {
            entry.key = SmallVec::new();
        } else {
            entry.key.clear();
        }
        check_slow!(
            self.chains.len().is_power_of_two() && self.chains.len() >= self.entries.len() / 2,
            "the chains are short",
            self.chains.len(),
            self.entries.len()
        );
        let chain = hash as usize & (self.chains.len() - 1);
        let mut before = self.chains[chain];
        if before == at {
            self.chains[chain] = next;
        } else {
            while self.entries[before as usize].next != at {
                before = self.entries[before as usize].next;
            }
            self.entries[before as usize].next = next;
        }
        self.unused.push(at);
        if self.unused.len() == self.entries.len() && self.entries.len() > RETAINED_ENTRIES {
            *self = KeyLocks::default();
        }
    }
}
