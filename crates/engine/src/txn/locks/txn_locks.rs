//! The locks of one transaction, [`TxnLocks`], and the lock tables that it uses.

use super::family_locks::{FamilyLocks, LockPosition};
use perigee_base::{FamilyId, KeyComparator};
use perigee_env::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;

/// Number of lock tables up to which a transaction keeps them for the next one in the same object.
const RETAINED_TABLES: usize = 8;
/// Number of locks up to which the memory of the list is kept.
const RETAINED_LOCKS: usize = 1024;

/// The lock table of a column family. A thread locks one at a time, except for the detection of
/// deadlocks, which locks several in the order of their ids.
#[derive(Debug)]
pub struct LockTable {
    /// The column family.
    pub family: FamilyId,
    /// Its locks.
    pub locks: Mutex<FamilyLocks>,
}

impl LockTable {
    /// Creates a table without locks.
    pub fn new(family: FamilyId, comparator: KeyComparator) -> LockTable {
        LockTable { family, locks: Mutex::new(FamilyLocks::new(comparator)) }
    }
}

/// A lock in the list of its owner.
#[derive(Clone, Copy, Debug)]
pub struct HeldLock {
    /// Its number.
    pub number: u64,
    /// Index of its table.
    pub table: u32,
    /// Where it is; `None` if it was unlocked.
    pub position: Option<LockPosition>,
}

/// The locks of one transaction, by number. Numbers ascend in the order in which the locks were
/// granted and are not used again, so that a savepoint is a number, whatever is unlocked later.
#[derive(Default)]
pub struct TxnLocks {
    next_number: u64,
    /// In ascending order of numbers.
    held: Vec<HeldLock>,
    /// Number of entries of `held` that were unlocked.
    unlocked: usize,
    /// Number of locks: without upgrades.
    count: usize,
    tables: SmallVec<[Arc<LockTable>; 4]>,
}

/// Prints the number of locks.
impl std::fmt::Debug for TxnLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TxnLocks").field("count", &self.count).finish_non_exhaustive()
    }
}

impl TxnLocks {
    /// Returns the index of the table of a column family, if the transaction has used it.
    #[inline]
    pub fn find_table(&self, family: FamilyId) -> Option<usize> {
        self.tables.iter().position(|t| t.family == family)
    }
    /// Adds a table. Returns its index.
    pub fn add_table(&mut self, table: Arc<LockTable>) -> usize {
        self.tables.push(table);
        self.tables.len() - 1
    }
    /// Returns the tables.
    #[inline]
    pub fn tables(&self) -> &[Arc<LockTable>] {
        &self.tables
    }
    /// Returns the locks and upgrades that were not unlocked, in ascending order of numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&HeldLock, LockPosition)> {
        self.held.iter().filter_map(|held| held.position.map(|position| (held, position)))
    }
    /// Adds the lock that was granted with the next number.
    #[inline]
    pub fn add(&mut self, table: usize, position: LockPosition) {
        let (number, table) = (self.next_number, table as u32);
        check_slow!(
            self.held.last().is_none_or(|held| held.number < number),
            "the locks of a transaction are in ascending order of numbers",
            self.held.last(),
            number
        );
        self.held.push(HeldLock { number, table, position: Some(position) });
        self.count += usize::from(!matches!(position, LockPosition::Upgrade(_)));
        self.next_number += 1;
    }
    /// Removes the lock with this number, which was unlocked. Returns false if there is none.
    pub fn remove(&mut self, number: u64) -> bool {
        let Ok(at) = self.held.binary_search_by_key(&number, |held| held.number) else {
            return false;
        };
        let Some(position) = self.held[at].position.take() else { return false };
        self.count -= usize::from(!matches!(position, LockPosition::Upgrade(_)));
        self.unlocked += 1;
        while self.held.last().is_some_and(|held| held.position.is_none()) {
            self.held.pop();
            self.unlocked -= 1;
        }
        if self.unlocked > self.held.len() / 2 + 16 {
            self.held.retain(|held| held.position.is_some());
            self.unlocked = 0;
        }
        true
    }
    /// Takes the list out, to release the locks from the returned index on: those with a number of
    /// at least `from`.
    pub fn take_from(&mut self, from: u64) -> (Vec<HeldLock>, usize) {
        let first = match from {
            0 => 0,
            from => self.held.partition_point(|held| held.number < from),
        };
        (std::mem::take(&mut self.held), first)
    }
    /// Puts the list back after the locks from index `first` on were released.
    pub fn put_back(&mut self, mut held: Vec<HeldLock>, first: usize) {
        for released in &held[first..] {
            match released.position {
                None => self.unlocked -= 1,
                Some(LockPosition::Upgrade(_)) => {}
                Some(_) => self.count -= 1,
            }
        }
        check_slow!(
            self.held.is_empty() && first <= held.len(),
            "the list of locks is put back once",
            self.held.len(),
            first
        );
        held.truncate(first);
        if held.is_empty() {
            if held.capacity() > RETAINED_LOCKS {
                held = Vec::new();
            }
            if self.tables.len() > RETAINED_TABLES {
                self.tables.clear();
            }
        }
        self.held = held;
    }
    /// Returns the number of the next lock: the position of a savepoint.
    #[inline]
    pub fn next_number(&self) -> u64 {
        self.next_number
    }
    /// Returns how many locks there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }
}
