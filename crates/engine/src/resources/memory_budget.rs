//! The memory budget: one limit for block cache, memtables, resident indexes and filters, jobs and
//! bulk loads. [`MemoryBudget`] counts what is in use; [`memory_shares`](super::memory_shares)
//! computes from it what each of them may use. Independent of column families and files.
//!
//! Freed memory is returned to the operating system from time to time
//! ([`MemoryBudget::take_release`]): otherwise the process would stay above the budget, because the
//! allocator keeps it.

use super::memory_shares::{
    MemoryLimit, MemoryUsage, MemtableUsage, block_cache_capacity, memtable_share, rebalance_step,
    should_release_memory,
};
use crate::limits::RELEASE_BURST_BYTES;
use perigee_base::{Bytes, Micros};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The bytes in use and the shares computed from them, without a lock. `active` grows with every
/// commit and is recomputed when memtables are sealed or freed, so that errors do not accumulate.
#[derive(Debug)]
pub struct MemoryBudget {
    /// The budget.
    pub limit: MemoryLimit,
    /// Maximum capacity of the block cache.
    pub block_cache_max: u64,
    active: AtomicU64,
    immutable: AtomicU64,
    shared: AtomicU64,
    retained: AtomicU64,
    objects: AtomicU64,
    loads: AtomicU64,
    /// Memtable bytes below which there was nothing to seal the last time.
    nothing_to_seal_below: AtomicU64,
    memtable_share: AtomicU64,
    balanced_active: AtomicU64,
    balanced_jobs: AtomicU64,
    block_cache_capacity: AtomicU64,
    freed: AtomicU64,
    freed_at_last_check: AtomicU64,
    last_release_us: AtomicU64,
}

impl MemoryBudget {
    /// Creates the budget with nothing in use.
    pub fn new(budget: MemoryLimit, cache_max: u64) -> MemoryBudget {
        let share = AtomicU64::new(memtable_share(budget, &MemoryUsage::default()));
        let (active, immutable, shared, retained, objects, loads) = Default::default();
        let (balanced_active, balanced_jobs, block_cache_capacity) = Default::default();
        let (nothing_to_seal_below, freed) = Default::default();
        let (freed_at_last_check, last_release_us) = Default::default();
        MemoryBudget {
            limit: budget,
            block_cache_max: cache_max,
            active,
            immutable,
            shared,
            retained,
            objects,
            loads,
            nothing_to_seal_below,
            memtable_share: share,
            balanced_active,
            balanced_jobs,
            block_cache_capacity,
            freed,
            freed_at_last_check,
            last_release_us,
        }
    }
    /// Returns the bytes of active memtables.
    pub fn active_bytes(&self) -> u64 {
        self.active.load(Relaxed)
    }
    /// Returns the bytes of sealed memtables.
    pub fn sealed_bytes(&self) -> u64 {
        self.immutable.load(Relaxed)
    }
    /// Returns the bytes of memtables.
    pub fn memtable_usage(&self) -> MemtableUsage {
        MemtableUsage {
            active: self.active_bytes(),
            sealed: self.sealed_bytes(),
            shared: self.shared.load(Relaxed),
            retained: self.retained.load(Relaxed),
        }
    }
    /// Returns the segment size for copies of a log that is larger than memory.
    pub fn relog_segment_bytes(&self) -> u64 {
        (self.limit.0 / 4).clamp(4 << 10, 16 << 20)
    }
    /// Returns the bytes of all memtables and shared batches, including those held by readers.
    pub fn total_memtable_bytes(&self) -> u64 {
        self.memtable_usage().total()
    }
    /// Returns the share of the memtables.
    pub fn memtable_share(&self) -> u64 {
        self.memtable_share.load(Relaxed)
    }
    /// Sets the recomputed bytes of memtables and of objects.
    pub fn set_memtable_usage(&self, usage: MemtableUsage, object_bytes: u64) {
        let swap = |at: &AtomicU64, to: u64| at.swap(to, Relaxed);
        let before = swap(&self.active, usage.active)
            + swap(&self.immutable, usage.sealed)
            + swap(&self.shared, usage.shared)
            + swap(&self.retained, usage.retained);
        self.objects.store(object_bytes, Relaxed);
        self.add_freed_bytes(before.saturating_sub(usage.total()));
    }
    /// Adds to the bytes of active memtables; returns true if the budget must be rebalanced.
    pub fn add_active_bytes(&self, bytes: u64) -> bool {
        let active = self.active.fetch_add(bytes, Relaxed) + bytes;
        active.abs_diff(self.balanced_active.load(Relaxed)) >= rebalance_step(self.limit)
    }
    /// Returns true if the memory of jobs and loads has changed so much since the last rebalancing
    /// that the budget must be rebalanced.
    pub fn is_job_memory_changed(&self, jobs: u64) -> bool {
        let now = jobs + self.loads.load(Relaxed);
        now.abs_diff(self.balanced_jobs.load(Relaxed)) >= rebalance_step(self.limit)
    }
    /// Updates the bytes of a bulk load from `before` to `now`.
    pub fn set_load_bytes(&self, before: &mut u64, now: u64) {
        self.loads.fetch_add(now, Relaxed);
        let gone = std::mem::replace(before, now);
        let loads = self.loads.fetch_sub(gone, Relaxed);
        check!(loads >= gone, "loads include what was charged for this one", loads, gone);
    }
    /// Returns the usage of all owners: memtables, objects and loads, which are counted here, and
    /// the `others`.
    pub fn usage(&self, others: MemoryUsage) -> MemoryUsage {
        let MemtableUsage { active, sealed, shared, retained } = self.memtable_usage();
        let (objects, loads) = (self.objects.load(Relaxed), self.loads.load(Relaxed));
        MemoryUsage { active, immutable: sealed, shared, retained, objects, loads, ..others }
    }
    /// Rebalances the budget; returns the new capacity of the block cache.
    pub fn rebalance(&self, owners: &MemoryUsage) -> u64 {
        self.memtable_share.store(memtable_share(self.limit, owners), Relaxed);
        self.balanced_active.store(owners.active, Relaxed);
        self.balanced_jobs.store(owners.jobs + owners.loads, Relaxed);
        check_slow!(
            owners.by_owner().iter().all(|(_, bytes)| *bytes < u64::MAX / 2),
            "no owner of memory gives back more than it has taken",
            owners
        );
        let capacity = block_cache_capacity(self.limit, self.block_cache_max, owners);
        self.add_freed_bytes(
            self.block_cache_capacity.swap(capacity, Relaxed).saturating_sub(capacity),
        );
        capacity
    }
    /// Returns the bytes of memtables to seal although none is full, or `None`: if active ones use
    /// half of the share, or if flushed ones leave a quarter of it in batches shared with others.
    pub fn bytes_to_seal(&self) -> Option<u64> {
        let (share, active, shared) =
            (self.memtable_share(), self.active_bytes(), self.shared.load(Relaxed));
        let due = active >= share / 2 || shared >= (share / 4).max(1);
        (due && active + shared >= self.nothing_to_seal_below.load(Relaxed)).then_some(share / 4)
    }
    /// Records that there was nothing to seal: no need to check again before something changes.
    pub fn mark_nothing_to_seal(&self) {
        let now = self.active_bytes() + self.shared.load(Relaxed);
        self.nothing_to_seal_below.store(now + rebalance_step(self.limit), Relaxed);
    }
    /// Clears what `mark_nothing_to_seal` recorded, after a change.
    pub fn clear_nothing_to_seal(&self) {
        self.nothing_to_seal_below.store(0, Relaxed);
    }
    /// Adds to the bytes freed since the last release.
    pub fn add_freed_bytes(&self, bytes: u64) {
        self.freed.fetch_add(bytes, Relaxed);
    }
    /// Returns true once per step of freed memory: the caller should check whether to release it.
    pub fn take_release_check(&self) -> bool {
        let (freed, last_check) =
            (self.freed.load(Relaxed), self.freed_at_last_check.load(Relaxed));
        let due = freed >= last_check + (self.limit.0 / 16).max(1);
        if due {
            self.freed_at_last_check.store(freed, Relaxed);
        }
        due
    }
    /// Returns true if freed memory must be returned to the operating system now, and resets the
    /// count. `resident` is called only if something was freed.
    pub fn take_release(&self, now_us: u64, resident: impl FnOnce() -> Option<u64>) -> bool {
        let freed = self.freed.load(Relaxed);
        if freed < (self.limit.0 / 16).clamp(1, RELEASE_BURST_BYTES) {
            return false;
        }
        let since = Micros(now_us.saturating_sub(self.last_release_us.load(Relaxed)));
        let due = should_release_memory(self.limit, Bytes(freed), resident(), since);
        // Another thread may have released them since the load.
        if due && self.freed.swap(0, Relaxed) == 0 {
            return false;
        }
        if due {
            self.freed_at_last_check.store(0, Relaxed);
            self.last_release_us.store(now_us, Relaxed);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::RELEASE_INTERVAL_US;
    use crate::resources::memory_shares::bulk_load_bytes;

    const MIB: u64 = 1 << 20;

    #[test]
    fn failed_seal_attempt_is_retried_after_a_change() {
        let m = MemoryBudget::new(MemoryLimit(64 * MIB), u64::MAX);
        m.set_memtable_usage(
            MemtableUsage { active: MIB, shared: 20 * MIB, ..MemtableUsage::default() },
            0,
        );
        assert!(m.bytes_to_seal().is_some());
        m.mark_nothing_to_seal();
        assert_eq!(m.bytes_to_seal(), None);
        m.add_active_bytes(MIB);
        assert!(m.bytes_to_seal().is_some());
        m.mark_nothing_to_seal();
        m.clear_nothing_to_seal();
        assert!(m.bytes_to_seal().is_some());
    }

    #[test]
    fn sealing_starts_at_half_of_the_memtable_share() {
        let m = MemoryBudget::new(MemoryLimit(64 * MIB), u64::MAX);
        assert_eq!(m.bytes_to_seal(), None);
        assert!(!m.add_active_bytes(MIB / 2));
        assert!(m.add_active_bytes(13 * MIB));
        assert_eq!(m.bytes_to_seal(), None);
        m.add_active_bytes(MIB);
        assert_eq!(m.bytes_to_seal(), Some(29 * MIB / 4));
        assert_eq!(m.rebalance(&m.usage(MemoryUsage::default())), 58 * MIB - 15 * MIB - MIB);
    }

    #[test]
    fn freed_memory_is_released_by_one_of_two_threads() {
        let m = MemoryBudget::new(MemoryLimit(64 * MIB), u64::MAX);
        m.add_freed_bytes(64 * MIB);
        // The second thread comes between the first one's decision and its release.
        let mut by_second = false;
        let by_first = m.take_release(u64::MAX, || {
            by_second = m.take_release(u64::MAX, || Some(60 * MIB));
            Some(60 * MIB)
        });
        assert!(by_second && !by_first);
        assert!(!m.take_release(u64::MAX, || Some(60 * MIB)), "nothing is left to release");
    }

    #[test]
    fn freed_memory_is_released_when_tight_or_after_bursts() {
        let due = |freed, resident, since| {
            should_release_memory(
                MemoryLimit(64 * MIB),
                Bytes(freed * MIB),
                Some(resident * MIB),
                Micros(since),
            )
        };
        assert!(due(4, 60, 0) && !due(3, 60, 0));
        assert!(!due(60, 50, u64::MAX), "the memory is not needed");
        assert!(due(64, 50, RELEASE_INTERVAL_US) && !due(64, 50, 0));
        assert!(!should_release_memory(
            MemoryLimit(64 * MIB),
            Bytes(4 * MIB),
            None,
            Micros(u64::MAX)
        ));
        let m = MemoryBudget::new(MemoryLimit(64 * MIB), u64::MAX);
        let of = |active, sealed| MemtableUsage { active, sealed, ..MemtableUsage::default() };
        m.set_memtable_usage(of(10 * MIB, 10 * MIB), 0);
        assert!(!m.take_release_check());
        m.set_memtable_usage(of(0, 10 * MIB), 0);
        assert!(m.take_release_check() && !m.take_release_check());
        assert!(!m.take_release(0, || Some(0)), "freed, but memory is not tight");
        assert!(m.take_release(0, || Some(64 * MIB)));
        assert!(!m.take_release(0, || Some(64 * MIB)), "already released");
    }

    #[test]
    fn finished_bulk_load_releases_its_memory() {
        let m = MemoryBudget::new(MemoryLimit(64 * MIB), u64::MAX);
        let mut held = 0;
        m.set_load_bytes(&mut held, 5 * MIB);
        m.set_load_bytes(&mut held, 3 * MIB);
        assert_eq!(m.usage(MemoryUsage::default()).loads, 3 * MIB);
        assert!(m.is_job_memory_changed(0));
        m.set_load_bytes(&mut held, 0);
        assert_eq!(m.usage(MemoryUsage::default()).total(), 0);
        assert_eq!(
            (
                bulk_load_bytes(MemoryLimit(64 * MIB), 64 << 20),
                bulk_load_bytes(MemoryLimit(1 << 40), 64 << 20)
            ),
            (8 << 20, 64 << 20)
        );
    }
}
