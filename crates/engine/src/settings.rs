//! Settings of the engine, as plain data. The public options are translated into these in one file.

use crate::compaction_filters::CompactionFilters;
use crate::history::HistoryRetention;
use crate::isolation::IsolationLevel;
use crate::log_listener::LogListener;
use perigee_base::merge::MergeOperators;
use perigee_base::{Error, KeyComparator, MergeRule, Result, limits};
use perigee_file::CompressionMethod;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// What an acknowledged write survives. Variants in ascending order of safety.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurabilityLevel {
    /// Passed to the kernel.
    None,
    /// Passed to the kernel, and synced within this many microseconds.
    Interval(u64),
    /// On stable storage.
    Full,
}

/// Minimum memory budget.
const MEMORY_BUDGET_MIN: u64 = 64 << 10;

/// Valid range of `space_amplification`: below it, compaction would not have begun; above it, the
/// limits of level 0 apply first.
const SPACE_PERCENT: std::ops::RangeInclusive<u32> = 120..=1000;

/// Settings of a database.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Create the database if it does not exist.
    pub create_if_missing: bool,
    /// Change nothing on disk and take no lock.
    pub read_only: bool,
    /// Like `read_only`, for a damaged database: reads of unreadable parts return an error.
    pub salvage: bool,
    /// Return an error if the database exists.
    pub error_if_exists: bool,
    /// Default durability of writes.
    pub durability: DurabilityLevel,
    /// Default isolation level of transactions.
    pub isolation: IsolationLevel,
    /// Total memory for block cache, memtables, indexes, filters and jobs; 0: a quarter of the
    /// memory of the machine.
    pub memory_budget: u64,
    /// Maximum size of the block cache, which also gets no more than the budget leaves.
    pub block_cache_bytes: u64,
    /// Approximate maximum number of open table files; 0: half of the open-file limit of the
    /// process.
    pub max_open_files: u64,
    /// If less than this is free on the disk, only deletes are accepted; 0: no limit.
    pub min_free_space: u64,
    /// Read and verify the outputs of jobs before they replace their inputs.
    pub verify_outputs: bool,
    /// The user's compaction filters.
    pub compaction_filters: CompactionFilters,
    /// The user-defined comparators available to column families.
    pub comparators: Vec<KeyComparator>,
    /// The user's merge operators available to column families.
    pub merge_operators: MergeOperators,
    /// Bytes per second that flushes write and compactions read and write; 0: no limit.
    pub background_bytes_per_second: u64,
    /// Writers are delayed so that the tables stay below approximately this percentage of their
    /// live data; 0: never.
    pub space_amplification: u32,
    /// Interval in microseconds in which the scrub reads every table and value log once; 0: never.
    pub scrub_interval_us: u64,
    /// Bytes of the log retained for log readers, beyond what recovery needs.
    pub log_retention: u64,
    /// How far back every version is kept.
    pub history: HistoryRetention,
    /// Record latencies of operations.
    pub latency_stats: bool,
    /// Maximum bytes of a file of the info log; 0: it is not written.
    pub log_file_bytes: u64,
    /// Number of older files kept.
    pub log_files_kept: u32,
    /// The listener that receives the lines of that log.
    pub listener: Option<LogListener>,
    /// Settings for the default column family, if they are to be changed.
    pub default_family: Option<FamilySettings>,
    /// Settings for other column families that may exist, by name.
    pub families: BTreeMap<String, FamilySettings>,
}

impl Settings {
    /// Returns an error for invalid values.
    pub fn check(&self) -> Result<()> {
        if self.memory_budget != 0 && self.memory_budget < MEMORY_BUDGET_MIN {
            return Err(Error::invalid("the option memory_budget is out of range")
                .expected(format_args!("at least {MEMORY_BUDGET_MIN}, or 0"), self.memory_budget));
        }
        for wanted in self.families.values().chain(&self.default_family) {
            self.merge_operators.check_registered(wanted.merge_operator.as_ref())?;
        }
        if self.space_amplification != 0 && !SPACE_PERCENT.contains(&self.space_amplification) {
            return Err(Error::invalid("the option space_amplification is out of range").expected(
                format_args!("{SPACE_PERCENT:?} percent, or 0"),
                self.space_amplification,
            ));
        }
        Ok(())
    }
}

/// Settings of a column family, stored in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilySettings {
    /// The comparator.
    pub comparator: KeyComparator,
    /// Size at which a memtable is sealed.
    pub memtable_bytes: u64,
    /// Values of this length or longer are stored in value logs.
    pub value_threshold: u64,
    /// Uncompressed size of a data block.
    pub block_bytes: u64,
    /// Compression of new files.
    pub compression: CompressionMethod,
    /// Filter bits per key.
    pub filter_bits: u8,
    /// Size at which tables are cut.
    pub target_file_bytes: u64,
    /// Capacity of level 1.
    pub level1_bytes: u64,
    /// Size ratio of adjacent levels.
    pub level_ratio: u32,
    /// Default isolation level of transactions begun on the column family; `None`: that of the
    /// database.
    pub isolation: Option<IsolationLevel>,
    /// The operator that merges operands into values.
    pub merge_operator: Option<MergeRule>,
}

impl Default for FamilySettings {
    fn default() -> Self {
        FamilySettings {
            comparator: KeyComparator::Bytes,
            memtable_bytes: 64 << 20,
            value_threshold: 4096,
            block_bytes: 4 << 10,
            compression: CompressionMethod::Lz4,
            filter_bits: 10,
            target_file_bytes: 64 << 20,
            level1_bytes: 256 << 20,
            level_ratio: 10,
            isolation: None,
            merge_operator: None,
        }
    }
}

impl FamilySettings {
    /// Returns an error for an invalid value, naming the option and its range.
    pub fn check(&self) -> Result<()> {
        let checks = [
            ("memtable_bytes", self.memtable_bytes, 1 << 10, 2 << 30),
            ("value_threshold", self.value_threshold, 0, limits::INLINE_VALUE_BYTES_MAX as u64),
            ("block_bytes", self.block_bytes, 64, 1 << 20),
            ("filter_bits", u64::from(self.filter_bits), 0, limits::FILTER_BITS_MAX.into()),
            ("target_file_bytes", self.target_file_bytes, 1 << 10, 64 << 30),
            ("level1_bytes", self.level1_bytes, 1 << 10, 1 << 50),
            ("level_ratio", u64::from(self.level_ratio), 2, 100),
        ];
        for (name, got, min, max) in checks {
            if got < min || got > max {
                return Err(Error::invalid(format!("the option {name} is out of range"))
                    .expected(format_args!("{min} to {max}"), got));
            }
        }
        self.merge_operator.as_ref().map_or(Ok(()), MergeRule::check)?;
        self.compression.validate()
    }

    /// Returns an error if the column family `name` cannot change to the settings `wanted` because
    /// stored data would become invalid.
    pub fn check_change(&self, wanted: &FamilySettings, name: &str) -> Result<()> {
        if self.comparator == wanted.comparator {
            return self.check_merge_operator_change(wanted, name);
        }
        let what = format!(
            "the comparator of the column family {name:?} cannot be changed, its tables are \
            sorted by it: open it with the same comparator, or copy its entries into a new \
             column family"
        );
        Err(Error::invalid(what).expected(self.comparator.name(), wanted.comparator.name()))
    }

    /// A merge operator can be added, but not changed or removed: stored operands are meaningless
    /// without it.
    fn check_merge_operator_change(&self, wanted: &FamilySettings, name: &str) -> Result<()> {
        let operator_name = |s: &FamilySettings| {
            s.merge_operator.as_ref().map_or("none".into(), MergeRule::stored_name)
        };
        if self.merge_operator.is_none() || self.merge_operator == wanted.merge_operator {
            return Ok(());
        }
        let what = format!(
            "the merge operator of the column family {name:?} cannot be changed or removed: open \
             it with the same operator, or copy its entries into a new column family"
        );
        Err(Error::invalid(what).expected(operator_name(self), operator_name(wanted)))
    }

    /// Returns the differences to the settings `wanted`, as `name: old -> new`.
    pub fn describe_changes(&self, wanted: &FamilySettings) -> Vec<String> {
        let line = |name: &str, old: &dyn Debug, new: &dyn Debug| {
            let (old, new) = (format!("{old:?}"), format!("{new:?}"));
            (old != new).then(|| format!("{name}: {old} -> {new}"))
        };
        let (a, b) = (self, wanted);
        let operator_name =
            |s: &FamilySettings| s.merge_operator.as_ref().map(MergeRule::stored_name);
        let all = [
            line("memtable_bytes", &a.memtable_bytes, &b.memtable_bytes),
            line("value_threshold", &a.value_threshold, &b.value_threshold),
            line("block_bytes", &a.block_bytes, &b.block_bytes),
            line("compression", &a.compression, &b.compression),
            line("filter_bits", &a.filter_bits, &b.filter_bits),
            line("target_file_bytes", &a.target_file_bytes, &b.target_file_bytes),
            line("level1_bytes", &a.level1_bytes, &b.level1_bytes),
            line("level_ratio", &a.level_ratio, &b.level_ratio),
            line("isolation", &a.isolation, &b.isolation),
            line("merge_operator", &operator_name(a), &operator_name(b)),
        ];
        all.into_iter().flatten().collect()
    }
}
