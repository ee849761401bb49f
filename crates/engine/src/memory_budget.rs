//! The memory budget: one number for block cache, memtables, resident indexes and filters, jobs,
//! loads. Pure functions say what each may have; [`Memory`] keeps what they look at. Must not know
//! families or files.
//!
//! Indexes, filters, jobs, loads and old memtables that readers keep take what they need. Memtables
//! get half of what is left: at half of that the best candidates are sealed, and writers are
//! delayed, then stopped, before sealed and active ones together exceed it. The block cache has the
//! rest, and gives way when the others grow. What was freed is handed back to the system now and
//! then ([`Memory::give_back`]): an allocator that keeps it would hold the budget by its own
//! account only.

use perigee_base::limits::READ_AHEAD_BYTES_MAX;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where the machine does not say how much memory there is.
const MACHINE_BYTES_DEFAULT: u64 = 4 << 30;
/// Writers' buffers, at most.
const FILE_BUFFER_BYTES_MAX: u64 = 512 << 10;
/// A family without tables: its names, settings, views (striped by thread), empty memtable, and its
/// place in the catalog (measured).
const FAMILY_BYTES: u64 = 4_150;
/// What its first table adds to that: levels, runs, maps (measured).
const FIRST_TABLE_BYTES: u64 = 1_200;
/// A table beside its index and filter: what version, catalog, shelf and reader say of it
/// (measured).
const TABLE_BYTES: u64 = 1_000;
/// Most merges at once: their outputs all lie beside their inputs until the last of them is done.
const PARALLEL_MERGES_MAX: usize = 4;
/// So much freed memory is handed back even if the budget does not need it, but not more often than
/// this.
const RELEASE_BURST_BYTES: u64 = 64 << 20;
const RELEASE_INTERVAL_US: u64 = 5_000_000;

/// The budget of a database that does not say: a quarter of what the machine allows.
pub fn default_budget(machine: Option<u64>) -> u64 {
    machine.unwrap_or(MACHINE_BYTES_DEFAULT) / 4
}

/// Who holds how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Active memtables.
    pub active: u64,
    /// Sealed memtables.
    pub immutable: u64,
    /// What batches over several families hold for families that are flushed, until the last of
    /// them is.
    pub shared: u64,
    /// Memtables that are in tables already, but not yet free: readers hold them, or the job that
    /// wrote them.
    pub retained: u64,
    /// The block cache.
    pub cache: u64,
    /// Resident indexes.
    pub indexes: u64,
    /// Resident filters.
    pub filters: u64,
    /// Families and descriptions of tables.
    pub objects: u64,
    /// Flushes and compactions that are running.
    pub jobs: u64,
    /// Bulk loads.
    pub loads: u64,
}

impl MemoryUsage {
    /// By name: what statistics show. Together they are [`MemoryUsage::total`].
    pub fn by_owner(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("active memtables", self.active),
            ("sealed memtables", self.immutable),
            ("batches shared by families", self.shared),
            ("memtables kept by readers", self.retained),
            ("block cache", self.cache),
            ("indexes", self.indexes),
            ("filters", self.filters),
            ("families and tables", self.objects),
            ("flushes and compactions", self.jobs),
            ("bulk loads", self.loads),
        ]
    }
    /// Everything.
    pub fn total(&self) -> u64 {
        self.by_owner().iter().map(|(_, bytes)| bytes).sum()
    }
    /// Those that take what they need.
    fn fixed_bytes(&self) -> u64 {
        self.shared
            + self.retained
            + self.indexes
            + self.filters
            + self.objects
            + self.jobs
            + self.loads
    }
}

/// Families and tables, beside what is counted of them elsewhere.
pub fn object_bytes(families: usize, tables: usize) -> u64 {
    let with_tables = families.min(tables) as u64;
    families as u64 * FAMILY_BYTES + with_tables * FIRST_TABLE_BYTES + tables as u64 * TABLE_BYTES
}

/// What is divided: three of 32 parts stay for what the allocator adds (headers, pages of which a
/// part is in use). Measured: 5 to 15 parts are needed, and the account is seldom full.
fn usable_bytes(budget: u64) -> u64 {
    budget - budget / 32 * 3
}

/// The share of the memtables, active and sealed: never less than an eighth of the budget, or
/// nothing could be written.
pub fn memtable_share(budget: u64, owners: &MemoryUsage) -> u64 {
    (usable_bytes(budget).saturating_sub(owners.fixed_bytes()) / 2).max(budget / 8).max(1)
}

/// What the block cache may hold, in coarse steps, so that it does not follow every write.
pub fn block_cache_capacity(budget: u64, cache_max: u64, owners: &MemoryUsage) -> u64 {
    let step = rebalance_step(budget);
    let others = owners.active + owners.immutable + owners.fixed_bytes();
    let left = usable_bytes(budget).saturating_sub(others.saturating_add(step));
    (left / step * step).min(cache_max)
}

/// How tight memory is: 0 while less than half is in use of the budget (without the block cache,
/// which gives way), and of the memtables' share of it; 1 below three quarters, 2 below nine
/// tenths, then 3.
pub fn memory_pressure_level(budget: u64, owners: &MemoryUsage) -> u8 {
    let above = |percent: u128| {
        let over = |used: u64, of: u64| u128::from(used) * 100 >= u128::from(of.max(1)) * percent;
        let memtables = over(owners.active + owners.immutable, memtable_share(budget, owners));
        u8::from(memtables || over(owners.total().saturating_sub(owners.cache), budget))
    };
    above(50) + above(75) + above(90)
}

/// The memtables may grow by this before the cache is told.
pub fn rebalance_step(budget: u64) -> u64 {
    (budget / 64).max(1)
}

/// What writers of files gather before they call the system.
pub fn file_buffer_bytes(budget: u64) -> usize {
    (budget / 128).clamp(16 << 10, FILE_BUFFER_BYTES_MAX) as usize
}

/// Where tables are cut: what a table's writer holds grows with it (8 bytes a key), and must stay a
/// small part of the budget.
pub fn target_table_bytes(budget: u64, wanted: u64) -> u64 {
    wanted.min((budget / 8).max(64 << 10))
}

/// What a job holds of its inputs, `bytes` altogether: of each source one block (dense ones are two
/// and a half times as large), and what was read ahead.
pub fn job_input_bytes(sources: usize, block_bytes: u64, bytes: u64) -> u64 {
    let ahead = (sources as u64 * READ_AHEAD_BYTES_MAX).min(bytes);
    sources as u64 * (block_bytes * 5 / 2) + ahead
}

/// How many merges run at once, on a machine of so many cores: on half of them, each holding about
/// an eighth of a table (8 bytes a key) and its buffers, together no more than an eighth of the
/// budget. Writers and flushes have the other cores; with two there is nothing to share.
pub fn max_parallel_merges(budget: u64, table_bytes: u64, cores: usize) -> usize {
    let each = table_bytes / 8 + 2 * file_buffer_bytes(budget) as u64;
    let room = usize::try_from(budget / 8 / each.max(1)).unwrap_or(usize::MAX);
    (cores / 2).min(room).clamp(1, PARALLEL_MERGES_MAX)
}

/// Entries that a bulk load may gather, if it asks for `wanted` bytes.
pub fn bulk_load_bytes(budget: u64, wanted: usize) -> usize {
    wanted.min(usize::try_from(budget / 8).unwrap_or(usize::MAX).max(16 << 10))
}

/// What a transaction may keep in memory; the rest goes to files. While it is written there is
/// twice as much for a moment.
pub fn txn_memory_bytes(budget: u64) -> u64 {
    (budget / 16).clamp(16 << 10, 64 << 20)
}

/// Whether it is time to hand freed memory back: where the process is near or above the budget,
/// when a sixteenth of it was freed; else after a burst.
pub fn should_release_memory(
    budget: u64,
    freed: u64,
    resident: Option<u64>,
    since_us: u64,
) -> bool {
    let tight = resident.is_some_and(|r| r > budget - budget / 8);
    (tight && freed >= (budget / 16).max(1))
        || (freed >= RELEASE_BURST_BYTES && since_us >= RELEASE_INTERVAL_US)
}

/// An active memtable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActiveMemtable {
    /// Number of its first operation.
    pub first_seq: u64,
    /// Its bytes; 0 if it is empty.
    pub bytes: u64,
    /// Those of them in batches that other families share.
    pub shared_bytes: u64,
}

/// Which active memtables to seal, so that `excess` bytes go. Where most bytes are in batches that
/// families share, flushing one of them frees nothing: all go that hold the oldest batches, those
/// up to number `oldest(excess)`. Else by size.
pub fn pick_memtables_to_seal(
    active: &[ActiveMemtable],
    (sealed, shared): (u64, u64),
    excess: u64,
    oldest: impl FnOnce(u64) -> u64,
) -> Vec<usize> {
    let sum = |of: fn(&ActiveMemtable) -> u64| active.iter().map(of).sum::<u64>();
    if (sum(|a| a.shared_bytes) + shared) * 2 <= sum(|a| a.bytes) + shared {
        return pick_largest_memtables(active, excess);
    }
    let oldest = oldest(excess);
    let seal: Vec<usize> = (0..active.len())
        .filter(|i| active[*i].shared_bytes > 0 && active[*i].first_seq <= oldest)
        .collect();
    // Where no flush is to come, a reader holds the oldest batches: then by size again, once that
    // is worth it.
    if seal.is_empty() && sealed == 0 && sum(|a| a.bytes) >= excess.saturating_mul(2) {
        return pick_largest_memtables(active, excess);
    }
    seal
}

/// Which active memtables to seal, so that `excess` bytes go: the largest first, because a
/// flush costs a file whatever its size; among equals the oldest, because it holds the log back.
fn pick_largest_memtables(active: &[ActiveMemtable], excess: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..active.len()).filter(|i| active[*i].bytes > 0).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(active[*i].bytes), active[*i].first_seq));
    let mut going = 0;
    let mut enough = |i: &usize| {
        let more = going < excess;
        going += active[*i].bytes;
        more
    };
    order.into_iter().take_while(|i| enough(i)).collect()
}

/// What the functions look at, without a lock. `active` grows with every commit and is counted anew
/// where memtables are sealed or go, so that it is never wrong for long.
#[derive(Debug)]
pub struct MemoryBudget {
    /// The budget.
    pub limit: u64,
    /// The cache may hold this at most.
    pub block_cache_max: u64,
    active: AtomicU64,
    immutable: AtomicU64,
    shared: AtomicU64,
    retained: AtomicU64,
    objects: AtomicU64,
    loads: AtomicU64,
    /// Below this there was nothing to seal the last time.
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
    /// Nothing held yet.
    pub fn new(budget: u64, cache_max: u64) -> MemoryBudget {
        let share = AtomicU64::new(memtable_share(budget, &MemoryUsage::default()));
        let (active, sealed, shared, kept, objects, loads, barren) = Default::default();
        let (told, told_jobs, capacity, freed, rung, given_us) = Default::default();
        MemoryBudget {
            limit: budget,
            block_cache_max: cache_max,
            active,
            immutable: sealed,
            shared,
            retained: kept,
            objects,
            loads,
            nothing_to_seal_below: barren,
            memtable_share: share,
            balanced_active: told,
            balanced_jobs: told_jobs,
            block_cache_capacity: capacity,
            freed,
            freed_at_last_check: rung,
            last_release_us: given_us,
        }
    }
    /// Active and sealed memtables.
    pub fn memtable_bytes(&self) -> (u64, u64) {
        (self.active.load(Relaxed), self.immutable.load(Relaxed))
    }
    /// Copies of a log that is larger than memory are cut into segments of this size.
    pub fn relog_segment_bytes(&self) -> u64 {
        (self.limit / 4).clamp(4 << 10, 16 << 20)
    }
    /// What memtables and the batches that families share hold, wherever they are.
    pub fn total_memtable_bytes(&self) -> u64 {
        let (active, sealed) = self.memtable_bytes();
        active + sealed + self.shared.load(Relaxed) + self.retained.load(Relaxed)
    }
    /// The share of the memtables.
    pub fn memtable_share(&self) -> u64 {
        self.memtable_share.load(Relaxed)
    }
    /// They were counted; and what shared batches and readers hold beside them.
    pub fn set_memtable_usage(
        &self,
        (active, sealed): (u64, u64),
        (shared, kept): (u64, u64),
        objects: u64,
    ) {
        let swap = |at: &AtomicU64, to: u64| at.swap(to, Relaxed);
        let before = swap(&self.active, active)
            + swap(&self.immutable, sealed)
            + swap(&self.shared, shared)
            + swap(&self.retained, kept);
        self.objects.store(objects, Relaxed);
        self.add_freed_bytes(before.saturating_sub(active + sealed + shared + kept));
    }
    /// Active memtables grew; whether so much that the balance is due.
    pub fn add_active_bytes(&self, bytes: u64) -> bool {
        let active = self.active.fetch_add(bytes, Relaxed) + bytes;
        active.abs_diff(self.balanced_active.load(Relaxed)) >= rebalance_step(self.limit)
    }
    /// Whether jobs and loads hold so much more or less than when the balance was last made that it
    /// is due again.
    pub fn is_job_memory_changed(&self, jobs: u64) -> bool {
        let now = jobs + self.loads.load(Relaxed);
        now.abs_diff(self.balanced_jobs.load(Relaxed)) >= rebalance_step(self.limit)
    }
    /// A bulk load that held `before` holds `now`.
    pub fn set_load_bytes(&self, before: &mut u64, now: u64) {
        self.loads.fetch_add(now, Relaxed);
        self.loads.fetch_sub(std::mem::replace(before, now), Relaxed);
    }
    /// All owners: what was counted, and what others know.
    pub fn usage(&self, cache: u64, (indexes, filters): (u64, u64), jobs: u64) -> MemoryUsage {
        let (active, sealed) = self.memtable_bytes();
        let load = |at: &AtomicU64| at.load(Relaxed);
        let (shared, kept) = (load(&self.shared), load(&self.retained));
        let (objects, loads) = (load(&self.objects), load(&self.loads));
        MemoryUsage {
            active,
            immutable: sealed,
            shared,
            retained: kept,
            cache,
            indexes,
            filters,
            objects,
            jobs,
            loads,
        }
    }
    /// Divides the budget; returns what the cache may hold now.
    pub fn rebalance(&self, owners: &MemoryUsage) -> u64 {
        self.memtable_share.store(memtable_share(self.limit, owners), Relaxed);
        self.balanced_active.store(owners.active, Relaxed);
        self.balanced_jobs.store(owners.jobs + owners.loads, Relaxed);
        let capacity = block_cache_capacity(self.limit, self.block_cache_max, owners);
        self.add_freed_bytes(
            self.block_cache_capacity.swap(capacity, Relaxed).saturating_sub(capacity),
        );
        capacity
    }
    /// Whether memtables are to be sealed although none is full, and how many bytes of them: active
    /// ones have half of the share, or flushed ones have left a quarter of it behind in batches
    /// that others share.
    pub fn bytes_to_seal(&self) -> Option<u64> {
        let (share, active, shared) =
            (self.memtable_share(), self.memtable_bytes().0, self.shared.load(Relaxed));
        let due = active >= share / 2 || shared >= (share / 4).max(1);
        (due && active + shared >= self.nothing_to_seal_below.load(Relaxed)).then_some(share / 4)
    }
    /// There was nothing to seal: no need to look again before something changes.
    pub fn mark_nothing_to_seal(&self) {
        let now = self.memtable_bytes().0 + self.shared.load(Relaxed);
        self.nothing_to_seal_below.store(now + rebalance_step(self.limit), Relaxed);
    }
    /// Something did.
    pub fn clear_nothing_to_seal(&self) {
        self.nothing_to_seal_below.store(0, Relaxed);
    }
    /// So much was freed.
    pub fn add_freed_bytes(&self, bytes: u64) {
        self.freed.fetch_add(bytes, Relaxed);
    }
    /// Whether so much more was freed that somebody should look whether it goes back.
    pub fn take_release_check(&self) -> bool {
        let (freed, rung) = (self.freed.load(Relaxed), self.freed_at_last_check.load(Relaxed));
        let due = freed >= rung + (self.limit / 16).max(1);
        if due {
            self.freed_at_last_check.store(freed, Relaxed);
        }
        due
    }
    /// Whether freed memory is to be handed back now; then the count begins anew. `resident` is
    /// asked only if something was freed.
    pub fn take_release(&self, now_us: u64, resident: impl FnOnce() -> Option<u64>) -> bool {
        let freed = self.freed.load(Relaxed);
        if freed < (self.limit / 16).clamp(1, RELEASE_BURST_BYTES) {
            return false;
        }
        let since_us = now_us.saturating_sub(self.last_release_us.load(Relaxed));
        let due = should_release_memory(self.limit, freed, resident(), since_us);
        if due {
            self.freed.fetch_sub(freed, Relaxed);
            self.freed_at_last_check.store(0, Relaxed);
            self.last_release_us.store(now_us, Relaxed);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn total_usage_stays_within_the_budget() {
        for budget in [1, 64, 1000] {
            let budget = budget * MIB;
            for filters in [0, budget / 10, budget / 2] {
                for jobs in [0, budget / 20] {
                    let mut o = MemoryUsage {
                        filters,
                        jobs,
                        retained: jobs,
                        loads: jobs,
                        ..MemoryUsage::default()
                    };
                    let share = memtable_share(budget, &o);
                    for part in 0..=10 {
                        (o.active, o.immutable) = (share / 2 * part / 10, share / 2);
                        o.cache = block_cache_capacity(budget, u64::MAX, &o);
                        assert!(o.total() <= budget, "{o:?}");
                        assert_eq!(
                            o.total(),
                            o.cache + o.active + o.immutable + filters + 3 * jobs
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn block_cache_shrinks_and_grows_with_other_usage() {
        let at = |active, tables| {
            block_cache_capacity(
                64 * MIB,
                u64::MAX,
                &MemoryUsage { active, indexes: tables, ..MemoryUsage::default() },
            )
        };
        assert_eq!(at(0, 0), 57 * MIB);
        assert_eq!(at(10 * MIB, 20 * MIB), 27 * MIB);
        assert_eq!(at(10 * MIB + 1, 20 * MIB), 26 * MIB, "in steps");
        assert_eq!(at(30 * MIB, 40 * MIB), 0);
        assert_eq!(
            block_cache_capacity(64 * MIB, MIB, &MemoryUsage::default()),
            MIB,
            "never more than was allowed"
        );
    }

    #[test]
    fn memtables_keep_a_minimum_share() {
        let o = MemoryUsage { filters: 100 * MIB, ..MemoryUsage::default() };
        assert_eq!(memtable_share(64 * MIB, &o), 8 * MIB);
        assert_eq!(memtable_share(64 * MIB, &MemoryUsage::default()), 29 * MIB);
    }

    #[test]
    fn largest_memtable_is_sealed_first_then_oldest() {
        let alone = |(first, bytes)| ActiveMemtable { first_seq: first, bytes, shared_bytes: 0 };
        let active = [(50, 10), (7, 30), (0, 0), (9, 40), (3, 30)].map(alone);
        assert_eq!(pick_largest_memtables(&active, 1), [3]);
        assert_eq!(pick_largest_memtables(&active, 41), [3, 4]);
        assert_eq!(pick_largest_memtables(&active, 71), [3, 4, 1]);
        assert_eq!(pick_largest_memtables(&active, 10_000), [3, 4, 1, 0], "an empty one never");
        assert_eq!(pick_largest_memtables(&[], 5), [] as [usize; 0]);
    }

    #[test]
    fn memtables_sharing_batches_are_sealed_together() {
        let of =
            |first, bytes, parts| ActiveMemtable { first_seq: first, bytes, shared_bytes: parts };
        let active = [of(50, 10, 8), of(7, 30, 30), of(0, 0, 0), of(9, 4, 3), of(3, 9, 0)];
        let oldest = |excess| move |asked| (asked == excess).then_some(10).unwrap();
        assert_eq!(pick_memtables_to_seal(&active, (0, 0), 5, oldest(5)), [1, 3]);
        assert_eq!(
            pick_memtables_to_seal(&[of(9, 400, 3), of(3, 9, 1)], (0, 0), 5, |_| panic!()),
            [0]
        );
        assert_eq!(
            pick_memtables_to_seal(&[of(9, 400, 3), of(3, 9, 1)], (1, 500), 5, |_| 8),
            [1],
            "a small one that holds much"
        );
        assert_eq!(
            pick_memtables_to_seal(&[of(9, 400, 3)], (1, 500), 5, |_| 8),
            [0; 0],
            "sealed ones hold it"
        );
        assert_eq!(
            pick_memtables_to_seal(&[of(9, 400, 3)], (0, 500), 5, |_| 8),
            [0],
            "a reader holds it"
        );
        assert_eq!(
            pick_memtables_to_seal(&[of(9, 4, 3)], (0, 500), 5, |_| 8),
            [0; 0],
            "which is not worth a flush"
        );
    }

    #[test]
    fn failed_seal_attempt_is_retried_after_a_change() {
        let m = MemoryBudget::new(64 * MIB, u64::MAX);
        m.set_memtable_usage((MIB, 0), (20 * MIB, 0), 0);
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
        let m = MemoryBudget::new(64 * MIB, u64::MAX);
        assert_eq!(m.bytes_to_seal(), None);
        assert!(!m.add_active_bytes(MIB / 2));
        assert!(m.add_active_bytes(13 * MIB));
        assert_eq!(m.bytes_to_seal(), None);
        m.add_active_bytes(MIB);
        assert_eq!(m.bytes_to_seal(), Some(29 * MIB / 4));
        assert_eq!(m.rebalance(&m.usage(0, (0, 0), 0)), 58 * MIB - 15 * MIB - MIB);
    }

    #[test]
    fn freed_memory_is_released_when_tight_or_after_bursts() {
        let due = |freed, resident, since| {
            should_release_memory(64 * MIB, freed * MIB, Some(resident * MIB), since)
        };
        assert!(due(4, 60, 0) && !due(3, 60, 0));
        assert!(!due(60, 50, u64::MAX), "nobody needs it");
        assert!(due(64, 50, RELEASE_INTERVAL_US) && !due(64, 50, 0));
        assert!(!should_release_memory(64 * MIB, 4 * MIB, None, u64::MAX));
        let m = MemoryBudget::new(64 * MIB, u64::MAX);
        m.set_memtable_usage((10 * MIB, 10 * MIB), (0, 0), 0);
        assert!(!m.take_release_check());
        m.set_memtable_usage((0, 10 * MIB), (0, 0), 0);
        assert!(m.take_release_check() && !m.take_release_check());
        assert!(!m.take_release(0, || Some(0)), "freed, but there is room");
        assert!(m.take_release(0, || Some(64 * MIB)));
        assert!(!m.take_release(0, || Some(64 * MIB)), "it went already");
    }

    #[test]
    fn finished_bulk_load_releases_its_memory() {
        let m = MemoryBudget::new(64 * MIB, u64::MAX);
        let mut held = 0;
        m.set_load_bytes(&mut held, 5 * MIB);
        m.set_load_bytes(&mut held, 3 * MIB);
        assert_eq!(m.usage(0, (0, 0), 0).loads, 3 * MIB);
        assert!(m.is_job_memory_changed(0));
        m.set_load_bytes(&mut held, 0);
        assert_eq!(m.usage(0, (0, 0), 0).total(), 0);
        assert_eq!(
            (bulk_load_bytes(64 * MIB, 64 << 20), bulk_load_bytes(1 << 40, 64 << 20)),
            (8 << 20, 64 << 20)
        );
    }

    #[test]
    fn default_budget_is_a_quarter_of_the_machine() {
        assert_eq!(default_budget(Some(8 << 30)), 2 << 30);
        assert_eq!(default_budget(None), 1 << 30);
    }
}
