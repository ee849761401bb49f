//! The memory budget: one limit for block cache, memtables, resident indexes and filters, jobs and
//! bulk loads. Pure functions compute the shares; [`MemoryBudget`] keeps their inputs. Independent
//! of column families and files.
//!
//! Indexes, filters, jobs, loads and flushed memtables that readers hold take what they need.
//! Memtables get half of the rest: when active ones reach half of that, the best candidates are
//! sealed, and writers are delayed and then stopped before sealed and active ones together exceed
//! it. The block cache gets what is left and shrinks when the others grow. Freed memory is returned
//! to the operating system from time to time ([`MemoryBudget::take_release`]): otherwise the
//! process would stay above the budget, because the allocator keeps it.

use perigee_base::limits::READ_AHEAD_BYTES_MAX;
use perigee_base::{Bytes, Micros, SeqNo};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Assumed memory of a machine that does not report it.
const MACHINE_BYTES_DEFAULT: u64 = 4 << 30;
/// Maximum size of a file writer's buffer.
const FILE_BUFFER_BYTES_MAX: u64 = 512 << 10;
/// Bytes of a column family without tables: names, settings, view, empty memtable and catalog
/// entry. Measured as resident memory after the recovery of 10,000 column families, including the
/// overhead of the allocator. The stripes of a view and the contents of a memtable are counted
/// where they exist.
const FAMILY_BYTES: u64 = 2_100;
/// Additional bytes for the first table of a column family: levels, runs, maps (measured in the
/// same way).
const FIRST_TABLE_BYTES: u64 = 1_300;
/// Bytes of a table besides its index and filter: its descriptions in version, catalog and table
/// cache (measured in the same way).
const TABLE_BYTES: u64 = 500;
/// Maximum number of parallel merges: their outputs all coexist with their inputs until the last of
/// them is done.
const PARALLEL_MERGES_MAX: usize = 4;
/// This much freed memory is returned to the operating system even if the budget does not require
/// it, but not more often than this interval.
const RELEASE_BURST_BYTES: u64 = 64 << 20;
const RELEASE_INTERVAL_US: u64 = 5_000_000;

/// The memory budget of a database, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct MemoryLimit(pub u64);

/// Returns the default budget: a quarter of the memory of the machine.
pub fn default_budget(machine: Option<u64>) -> u64 {
    machine.unwrap_or(MACHINE_BYTES_DEFAULT) / 4
}

/// Bytes of memtables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemtableUsage {
    /// Active memtables.
    pub active: u64,
    /// Sealed memtables.
    pub sealed: u64,
    /// Batches shared by several column families, some of them flushed.
    pub shared: u64,
    /// Flushed memtables that readers or the flush job hold.
    pub retained: u64,
}

impl MemtableUsage {
    /// Returns the sum.
    pub fn total(&self) -> u64 {
        self.active + self.sealed + self.shared + self.retained
    }
}

/// Bytes in use, by owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Active memtables.
    pub active: u64,
    /// Sealed memtables.
    pub immutable: u64,
    /// Batches shared by several column families, some of them flushed: bytes held until the last
    /// of them is flushed.
    pub shared: u64,
    /// Flushed memtables that are not yet free: readers or the flush job hold them.
    pub retained: u64,
    /// The block cache.
    pub cache: u64,
    /// Resident indexes.
    pub indexes: u64,
    /// Resident filters.
    pub filters: u64,
    /// Objects of column families and tables.
    pub objects: u64,
    /// Running flushes and compactions.
    pub jobs: u64,
    /// Bulk loads.
    pub loads: u64,
}

impl MemoryUsage {
    /// Returns the bytes by name, as shown in statistics. Their sum is [`MemoryUsage::total`].
    pub fn by_owner(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("active memtables", self.active),
            ("immutable memtables", self.immutable),
            ("shared batches", self.shared),
            ("memtables kept by readers", self.retained),
            ("block cache", self.cache),
            ("indexes", self.indexes),
            ("filters", self.filters),
            ("column families and tables", self.objects),
            ("flushes and compactions", self.jobs),
            ("bulk loads", self.loads),
        ]
    }
    /// Returns the sum of all owners.
    pub fn total(&self) -> u64 {
        self.by_owner().iter().map(|(_, bytes)| bytes).sum()
    }
    /// Returns the sum of the owners that take what they need.
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

/// The number of objects in memory.
#[derive(Clone, Copy, Debug)]
pub struct ObjectCounts {
    /// Column families.
    pub families: usize,
    /// Open tables.
    pub tables: usize,
}

/// Returns the bytes of column family and table objects that are not accounted for elsewhere.
pub fn object_bytes(count: ObjectCounts) -> u64 {
    let ObjectCounts { families, tables } = count;
    let with_tables = families.min(tables) as u64;
    families as u64 * FAMILY_BYTES + with_tables * FIRST_TABLE_BYTES + tables as u64 * TABLE_BYTES
}

/// Returns the part of the budget that is distributed: 3/32 are reserved for the overhead of the
/// allocator (headers, partly used pages). Measured: 5 to 15 of 32 parts are needed, but the budget
/// is rarely used up.
fn usable_bytes(budget: u64) -> u64 {
    budget - budget / 32 * 3
}

/// Returns the share of the memtables, active and sealed: at least an eighth of the budget, so that
/// writes are always possible.
pub fn memtable_share(MemoryLimit(budget): MemoryLimit, owners: &MemoryUsage) -> u64 {
    (usable_bytes(budget).saturating_sub(owners.fixed_bytes()) / 2).max(budget / 8).max(1)
}

/// Returns the capacity of the block cache, rounded down to coarse steps, so that it does not
/// change with every write.
pub fn block_cache_capacity(
    MemoryLimit(budget): MemoryLimit,
    cache_max: u64,
    owners: &MemoryUsage,
) -> u64 {
    let step = rebalance_step(MemoryLimit(budget));
    let others = owners.active + owners.immutable + owners.fixed_bytes();
    let left = usable_bytes(budget).saturating_sub(others.saturating_add(step));
    (left / step * step).min(cache_max)
}

/// Returns the memory pressure, 0 to 3: 0 while less than half is in use of both the budget
/// (without the block cache, which can shrink) and the memtables' share; 1 below three quarters, 2
/// below nine tenths, then 3.
pub fn memory_pressure_level(MemoryLimit(budget): MemoryLimit, owners: &MemoryUsage) -> u8 {
    let above = |percent: u128| {
        let over = |used: u64, of: u64| u128::from(used) * 100 >= u128::from(of.max(1)) * percent;
        let memtables =
            over(owners.active + owners.immutable, memtable_share(MemoryLimit(budget), owners));
        u8::from(memtables || over(owners.total().saturating_sub(owners.cache), budget))
    };
    above(50) + above(75) + above(90)
}

/// Returns the bytes by which usage may change before the budget is rebalanced.
pub fn rebalance_step(MemoryLimit(budget): MemoryLimit) -> u64 {
    (budget / 64).max(1)
}

/// Returns the buffer size of file writers.
pub fn file_buffer_bytes(MemoryLimit(budget): MemoryLimit) -> usize {
    (budget / 128).clamp(16 << 10, FILE_BUFFER_BYTES_MAX) as usize
}

/// Returns the size at which tables are cut: the memory of a table's writer grows with it (8 bytes
/// per key) and must stay a small part of the budget.
pub fn target_table_bytes(MemoryLimit(budget): MemoryLimit, wanted: u64) -> u64 {
    wanted.min((budget / 8).max(64 << 10))
}

/// Returns the bytes that a job holds for its `inputs`: one block per source (dense
/// ones are two and a half times as large), and the read-ahead.
pub fn job_input_bytes(sources: usize, block_bytes: u64, inputs: Bytes) -> u64 {
    let ahead = (sources as u64 * READ_AHEAD_BYTES_MAX).min(inputs.0);
    sources as u64 * (block_bytes * 5 / 2) + ahead
}

/// Returns the number of parallel merges on a machine with `cores` cores: half of them, each merge
/// holding about an eighth of a table (8 bytes per key) and its buffers, together at most an eighth
/// of the budget. The other cores are for writers and flushes; with two cores there is one merge.
pub fn max_parallel_merges(
    MemoryLimit(budget): MemoryLimit,
    table_bytes: u64,
    cores: usize,
) -> usize {
    let each = table_bytes / 8 + 2 * file_buffer_bytes(MemoryLimit(budget)) as u64;
    let affordable = usize::try_from(budget / 8 / each.max(1)).unwrap_or(usize::MAX);
    (cores / 2).min(affordable).clamp(1, PARALLEL_MERGES_MAX)
}

/// Returns the bytes of entries that a bulk load may buffer if it requests `wanted`.
pub fn bulk_load_bytes(MemoryLimit(budget): MemoryLimit, wanted: usize) -> usize {
    wanted.min(usize::try_from(budget / 8).unwrap_or(usize::MAX).max(16 << 10))
}

/// Returns the bytes that a transaction may keep in memory; the rest is spilled to files. During a
/// spill, twice as much is in use for a moment.
pub fn txn_memory_bytes(MemoryLimit(budget): MemoryLimit) -> u64 {
    (budget / 16).clamp(16 << 10, 64 << 20)
}

/// Returns true if freed memory should be returned to the operating system now: if the process is
/// near or above the budget and a sixteenth of the budget was freed, or else after a burst.
pub fn should_release_memory(
    MemoryLimit(budget): MemoryLimit,
    freed: Bytes,
    resident: Option<u64>,
    since: Micros,
) -> bool {
    let tight = resident.is_some_and(|r| r > budget - budget / 8);
    (tight && freed.0 >= (budget / 16).max(1))
        || (freed.0 >= RELEASE_BURST_BYTES && since.0 >= RELEASE_INTERVAL_US)
}

/// The size of an active memtable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActiveMemtable {
    /// Sequence number of its first operation.
    pub first_seq: SeqNo,
    /// Its bytes; 0 if it is empty.
    pub bytes: u64,
    /// Bytes of it in batches shared with other column families.
    pub shared_bytes: u64,
}

/// Returns the indexes of the active memtables to seal in order to free `excess` bytes. If most
/// bytes are in batches shared by column families, flushing one of them frees nothing: then all
/// that hold the oldest batches are sealed, those up to sequence number `oldest(excess)`. Otherwise
/// by size. `all`: the bytes of all memtables.
pub fn pick_memtables_to_seal(
    active: &[ActiveMemtable],
    all: MemtableUsage,
    excess: u64,
    oldest: impl FnOnce(u64) -> SeqNo,
) -> Vec<usize> {
    let sum = |of: fn(&ActiveMemtable) -> u64| active.iter().map(of).sum::<u64>();
    if (sum(|a| a.shared_bytes) + all.shared) * 2 <= sum(|a| a.bytes) + all.shared {
        return pick_largest_memtables(active, excess);
    }
    let oldest = oldest(excess);
    let seal: Vec<usize> = (0..active.len())
        .filter(|i| active[*i].shared_bytes > 0 && active[*i].first_seq <= oldest)
        .collect();
    // If no flush is pending, a reader holds the oldest batches: then by size again, once that
    // frees enough.
    if seal.is_empty() && all.sealed == 0 && sum(|a| a.bytes) >= excess.saturating_mul(2) {
        return pick_largest_memtables(active, excess);
    }
    seal
}

/// Returns the indexes of the active memtables to seal in order to free `excess` bytes: the largest
/// first, because a flush costs a file whatever its size; among equals the oldest, because it keeps
/// log segments alive.
fn pick_largest_memtables(active: &[ActiveMemtable], excess: u64) -> Vec<usize> {
    let mut by_size: Vec<usize> = (0..active.len()).filter(|i| active[*i].bytes > 0).collect();
    by_size.sort_by_key(|i| (std::cmp::Reverse(active[*i].bytes), active[*i].first_seq));
    let mut picked_bytes = 0;
    let mut is_needed = |i: &usize| {
        let needed = picked_bytes < excess;
        picked_bytes += active[*i].bytes;
        needed
    };
    by_size.into_iter().take_while(|i| is_needed(i)).collect()
}

/// The inputs of the functions, without a lock. `active` grows with every commit and is recomputed
/// when memtables are sealed or freed, so that errors do not accumulate.
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
        self.loads.fetch_sub(std::mem::replace(before, now), Relaxed);
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
                    let share = memtable_share(MemoryLimit(budget), &o);
                    for part in 0..=10 {
                        (o.active, o.immutable) = (share / 2 * part / 10, share / 2);
                        o.cache = block_cache_capacity(MemoryLimit(budget), u64::MAX, &o);
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
                MemoryLimit(64 * MIB),
                u64::MAX,
                &MemoryUsage { active, indexes: tables, ..MemoryUsage::default() },
            )
        };
        assert_eq!(at(0, 0), 57 * MIB);
        assert_eq!(at(10 * MIB, 20 * MIB), 27 * MIB);
        assert_eq!(at(10 * MIB + 1, 20 * MIB), 26 * MIB, "in steps");
        assert_eq!(at(30 * MIB, 40 * MIB), 0);
        assert_eq!(
            block_cache_capacity(MemoryLimit(64 * MIB), MIB, &MemoryUsage::default()),
            MIB,
            "never more than the configured maximum"
        );
    }

    #[test]
    fn memtables_keep_a_minimum_share() {
        let o = MemoryUsage { filters: 100 * MIB, ..MemoryUsage::default() };
        assert_eq!(memtable_share(MemoryLimit(64 * MIB), &o), 8 * MIB);
        assert_eq!(memtable_share(MemoryLimit(64 * MIB), &MemoryUsage::default()), 29 * MIB);
    }

    #[test]
    fn largest_memtable_is_sealed_first_then_oldest() {
        let alone =
            |(first, bytes)| ActiveMemtable { first_seq: SeqNo(first), bytes, shared_bytes: 0 };
        let active = [(50, 10), (7, 30), (0, 0), (9, 40), (3, 30)].map(alone);
        assert_eq!(pick_largest_memtables(&active, 1), [3]);
        assert_eq!(pick_largest_memtables(&active, 41), [3, 4]);
        assert_eq!(pick_largest_memtables(&active, 71), [3, 4, 1]);
        assert_eq!(pick_largest_memtables(&active, 10_000), [3, 4, 1, 0], "never an empty one");
        assert_eq!(pick_largest_memtables(&[], 5), [] as [usize; 0]);
    }

    #[test]
    fn memtables_sharing_batches_are_sealed_together() {
        let of = |first, bytes, parts| ActiveMemtable {
            first_seq: SeqNo(first),
            bytes,
            shared_bytes: parts,
        };
        let active = [of(50, 10, 8), of(7, 30, 30), of(0, 0, 0), of(9, 4, 3), of(3, 9, 0)];
        let held = |sealed, shared| MemtableUsage { sealed, shared, ..MemtableUsage::default() };
        let oldest = |excess| move |requested| (requested == excess).then_some(SeqNo(10)).unwrap();
        assert_eq!(pick_memtables_to_seal(&active, MemtableUsage::default(), 5, oldest(5)), [1, 3]);
        assert_eq!(
            pick_memtables_to_seal(
                &[of(9, 400, 3), of(3, 9, 1)],
                MemtableUsage::default(),
                5,
                |_| panic!()
            ),
            [0]
        );
        assert_eq!(
            pick_memtables_to_seal(&[of(9, 400, 3), of(3, 9, 1)], held(1, 500), 5, |_| SeqNo(8)),
            [1],
            "a small one that holds large shared batches"
        );
        assert_eq!(
            pick_memtables_to_seal(&[of(9, 400, 3)], held(1, 500), 5, |_| SeqNo(8)),
            [0; 0],
            "immutable memtables hold the batches"
        );
        assert_eq!(
            pick_memtables_to_seal(&[of(9, 400, 3)], held(0, 500), 5, |_| SeqNo(8)),
            [0],
            "a reader holds the batches"
        );
        assert_eq!(
            pick_memtables_to_seal(&[of(9, 4, 3)], held(0, 500), 5, |_| SeqNo(8)),
            [0; 0],
            "too small to be worth a flush"
        );
    }

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

    #[test]
    fn default_budget_is_a_quarter_of_the_machine() {
        assert_eq!(default_budget(Some(8 << 30)), 2 << 30);
        assert_eq!(default_budget(None), 1 << 30);
    }
}
