//! The memory budget: one number for block cache, memtables, resident indexes and filters, and jobs. Pure functions say
//! what each may have; [`Memory`] keeps what they look at. Must not know families or files.
//!
//! Indexes, filters and jobs take what they need. Memtables get half of what is left: at half of that the best candidates
//! are sealed, and writers are delayed, then stopped, before sealed and active ones together exceed it. The
//! block cache has the rest, and gives way when the others grow.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where the machine does not say how much memory there is.
const UNKNOWN_BYTES: u64 = 4 << 30;
/// Buffers of a job beside its filter and index.
const JOB_BYTES: u64 = 2 << 20;

/// The budget of a database that does not say: a quarter of what the machine allows.
pub fn default_budget(machine: Option<u64>) -> u64 {
    machine.unwrap_or(UNKNOWN_BYTES) / 4
}

/// Who holds how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Active memtables.
    pub active: u64,
    /// Sealed memtables.
    pub sealed: u64,
    /// Resident indexes and filters.
    pub tables: u64,
    /// Flushes and compactions that are running.
    pub jobs: u64,
}

/// The share of the memtables, active and sealed: never less than an eighth of the budget, or nothing could be written.
pub fn memtable_share(budget: u64, owners: &Owners) -> u64 {
    (budget.saturating_sub(owners.tables + owners.jobs) / 2).max(budget / 8).max(1)
}

/// What the block cache may hold, in coarse steps, so that it does not follow every write.
pub fn cache_capacity(budget: u64, cache_max: u64, owners: &Owners) -> u64 {
    let step = step(budget);
    let others = owners.active + owners.sealed + owners.tables + owners.jobs;
    let left = budget.saturating_sub(others.saturating_add(step));
    (left / step * step).min(cache_max)
}

/// The memtables may grow by this before the cache is told.
pub fn step(budget: u64) -> u64 {
    (budget / 64).max(1)
}

/// What a job over so many bytes of input holds: buffers, and filter and index of the table that it writes.
pub fn job_bytes(input: u64) -> u64 {
    (input / 4).min(JOB_BYTES)
}

/// Which active memtables to seal, by (first sequence number, bytes), so that `excess` bytes go: the largest first, because a
/// flush costs a file whatever its size; among equals the oldest, because it holds the log back.
pub fn candidates(active: &[(u64, u64)], excess: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..active.len()).filter(|i| active[*i].1 > 0).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(active[*i].1), active[*i].0));
    let mut going = 0;
    let mut enough = |i: &usize| {
        let more = going < excess;
        going += active[*i].1;
        more
    };
    order.into_iter().take_while(|i| enough(i)).collect()
}

/// What the functions look at, without a lock. `active` grows with every commit and is counted anew where memtables are
/// sealed or go, so that it is never wrong for long.
#[derive(Debug)]
pub struct Memory {
    /// The budget.
    pub budget: u64,
    /// The cache may hold this at most.
    pub cache_max: u64,
    active: AtomicU64,
    sealed: AtomicU64,
    share: AtomicU64,
    told: AtomicU64,
}

impl Memory {
    /// Nothing held yet.
    pub fn new(budget: u64, cache_max: u64) -> Memory {
        let share = AtomicU64::new(memtable_share(budget, &Owners::default()));
        let (active, sealed, told) = Default::default();
        Memory { budget, cache_max, active, sealed, share, told }
    }
    /// Active and sealed memtables.
    pub fn memtables(&self) -> (u64, u64) {
        (self.active.load(Relaxed), self.sealed.load(Relaxed))
    }
    /// The share of the memtables.
    pub fn share(&self) -> u64 {
        self.share.load(Relaxed)
    }
    /// They were counted.
    pub fn count(&self, active: u64, sealed: u64) {
        self.active.store(active, Relaxed);
        self.sealed.store(sealed, Relaxed);
    }
    /// Active memtables grew; whether so much that the balance is due.
    pub fn grew(&self, bytes: u64) -> bool {
        let active = self.active.fetch_add(bytes, Relaxed) + bytes;
        active.abs_diff(self.told.load(Relaxed)) >= step(self.budget)
    }
    /// Takes the others' bytes; returns what the cache may hold now.
    pub fn balance(&self, tables: u64, jobs: u64) -> u64 {
        let (active, sealed) = self.memtables();
        let owners = Owners { active, sealed, tables, jobs };
        self.share.store(memtable_share(self.budget, &owners), Relaxed);
        self.told.store(active, Relaxed);
        cache_capacity(self.budget, self.cache_max, &owners)
    }
    /// Whether memtables are to be sealed although none is full, and how many bytes of them.
    pub fn excess(&self) -> Option<u64> {
        let share = self.share();
        (self.memtables().0 >= share / 2).then_some(share / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn everything_together_stays_within_the_budget() {
        for budget in [1, 64, 1000] {
            let budget = budget * MIB;
            for tables in [0, budget / 10, budget / 2] {
                for jobs in [0, budget / 20] {
                    let mut o = Owners { tables, jobs, ..Owners::default() };
                    let share = memtable_share(budget, &o);
                    for part in 0..=10 {
                        (o.active, o.sealed) = (share / 2 * part / 10, share / 2);
                        let cache = cache_capacity(budget, u64::MAX, &o);
                        assert!(cache + o.active + o.sealed + tables + jobs <= budget, "{o:?} {cache}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_cache_gives_way_and_comes_back() {
        let at = |active, tables| {
            cache_capacity(64 * MIB, u64::MAX, &Owners { active, tables, ..Owners::default() })
        };
        assert_eq!(at(0, 0), 63 * MIB);
        assert_eq!(at(10 * MIB, 20 * MIB), 33 * MIB);
        assert_eq!(at(10 * MIB + 1, 20 * MIB), 32 * MIB, "in steps");
        assert_eq!(at(30 * MIB, 40 * MIB), 0);
        assert_eq!(cache_capacity(64 * MIB, MIB, &Owners::default()), MIB, "never more than was allowed");
    }

    #[test]
    fn memtables_can_be_written_however_much_the_filters_take() {
        let o = Owners { tables: 100 * MIB, ..Owners::default() };
        assert_eq!(memtable_share(64 * MIB, &o), 8 * MIB);
        assert_eq!(memtable_share(64 * MIB, &Owners::default()), 32 * MIB);
    }

    #[test]
    fn the_largest_goes_first_and_the_oldest_of_equals() {
        let active = [(50, 10), (7, 30), (0, 0), (9, 40), (3, 30)];
        assert_eq!(candidates(&active, 1), [3]);
        assert_eq!(candidates(&active, 41), [3, 4]);
        assert_eq!(candidates(&active, 71), [3, 4, 1]);
        assert_eq!(candidates(&active, 10_000), [3, 4, 1, 0], "an empty one never");
        assert_eq!(candidates(&[], 5), [] as [usize; 0]);
    }

    #[test]
    fn sealing_begins_at_half_of_the_share() {
        let m = Memory::new(64 * MIB, u64::MAX);
        assert_eq!(m.excess(), None);
        assert!(!m.grew(MIB / 2));
        assert!(m.grew(15 * MIB));
        assert_eq!(m.excess(), None);
        m.grew(MIB / 2);
        assert_eq!(m.excess(), Some(8 * MIB));
        assert_eq!(m.balance(0, 0), 64 * MIB - 16 * MIB - MIB);
    }

    #[test]
    fn a_quarter_of_the_machine() {
        assert_eq!(default_budget(Some(8 << 30)), 2 << 30);
        assert_eq!(default_budget(None), 1 << 30);
    }
}
