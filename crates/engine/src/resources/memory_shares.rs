//! How the memory budget is divided: pure functions of the budget and of the bytes in use.
//!
//! Indexes, filters, jobs, loads and flushed memtables that readers hold take what they need.
//! Memtables get half of the rest: when active ones reach half of that, the best candidates are
//! sealed, and writers are delayed and then stopped before sealed and active ones together exceed
//! it. The block cache gets what is left and shrinks when the others grow. The row cache,
//! if there is one, gets at most half of that.

use crate::limits::{
    FILE_BUFFER_BYTES_MAX, LOAD_PARTS_MAX, LOAD_PARTS_PER_TABLE_MAX, PARALLEL_MERGES_MAX,
    RELEASE_BURST_BYTES, RELEASE_INTERVAL_US,
};
use perigee_base::limits::READ_AHEAD_BYTES_MAX;
use perigee_base::{Bytes, Micros};

/// Assumed memory of a machine that does not report it.
const MACHINE_BYTES_DEFAULT: u64 = 4 << 30;
/// Size of a column family without tables: names, settings, view, empty memtable and catalog
/// entry. Measured as resident memory after the recovery of 10,000 column families, including the
/// overhead of the allocator. The stripes of a view and the contents of a memtable are counted
/// where they exist.
const FAMILY_BYTES: u64 = 2_100;
/// Size of what the first table of a column family adds: levels, runs, maps (measured in the same
/// way).
const FIRST_TABLE_BYTES: u64 = 1_300;
/// Size of a table besides its index and filter: its descriptions in version, catalog and table
/// cache (measured in the same way).
const TABLE_BYTES: u64 = 500;
const _: () = assert!(TABLE_BYTES < FIRST_TABLE_BYTES && FIRST_TABLE_BYTES < FAMILY_BYTES);

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
    /// The row cache.
    pub rows: u64,
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
            ("row cache", self.rows),
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
            + self.rows
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
    let capacity = (left / step * step).min(cache_max);
    check!(
        capacity == 0 || capacity.saturating_add(others) <= budget,
        "the block cache and the other owners fit in the budget",
        capacity,
        others,
        budget
    );
    capacity
}

/// Returns the capacity of the row cache, at most `wanted` bytes: the row cache and the block cache
/// each get half of what the others leave. Rounded down as the capacity of the block cache is.
pub fn row_cache_capacity(limit: MemoryLimit, wanted: u64, owners: &MemoryUsage) -> u64 {
    let step = rebalance_step(limit);
    let others = owners.active + owners.immutable + owners.fixed_bytes() - owners.rows;
    let left = usable_bytes(limit.0).saturating_sub(others.saturating_add(step)) / 2;
    wanted.min(left / step * step)
}

/// Returns the memory pressure, 0 to 3: 0 while less than half is in use of both the budget
/// (without the caches) and the memtables' share; 1 below three quarters, 2
/// below nine tenths, then 3.
pub fn memory_pressure_level(MemoryLimit(budget): MemoryLimit, owners: &MemoryUsage) -> u8 {
    let above = |percent: u128| {
        let over = |used: u64, of: u64| u128::from(used) * 100 >= u128::from(of.max(1)) * percent;
        let memtables =
            over(owners.active + owners.immutable, memtable_share(MemoryLimit(budget), owners));
        u8::from(
            memtables || over(owners.total().saturating_sub(owners.cache + owners.rows), budget),
        )
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
    (cores / 2).min(affordable_writers(budget, table_bytes)).clamp(1, PARALLEL_MERGES_MAX)
}

/// Returns how many tables can be written at the same time with an eighth of the budget.
fn affordable_writers(budget: u64, table_bytes: u64) -> usize {
    let each = table_bytes / 8 + 2 * file_buffer_bytes(MemoryLimit(budget)) as u64;
    usize::try_from(budget / 8 / each.max(1)).unwrap_or(usize::MAX)
}

/// Returns the number of parts in which `bytes` of a bulk load are written at the same time on a
/// machine with `cores` cores, to tables of `table_bytes`: one for each core, because the caller
/// waits for them, if there is memory for that and no table becomes small because of it.
pub fn load_parts(limit: MemoryLimit, bytes: Bytes, table_bytes: u64, cores: usize) -> usize {
    let part_bytes_min = (table_bytes / LOAD_PARTS_PER_TABLE_MAX).max(1);
    let useful = usize::try_from(bytes.0 / part_bytes_min).unwrap_or(usize::MAX);
    let MemoryLimit(budget) = limit;
    useful.min(cores).min(affordable_writers(budget, table_bytes)).clamp(1, LOAD_PARTS_MAX)
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
    fn default_budget_is_a_quarter_of_the_machine() {
        assert_eq!(default_budget(Some(8 << 30)), 2 << 30);
        assert_eq!(default_budget(None), 1 << 30);
    }
}
