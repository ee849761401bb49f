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

/// What an acknowledged write has survived. Ordered: more is safer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurabilityLevel {
    /// Handed to the kernel.
    None,
    /// Handed to the kernel, synced within so many microseconds.
    Interval(u64),
    /// On stable storage.
    Full,
}

/// With less memory nothing useful can be done.
const MEMORY_BUDGET_MIN: u64 = 64 << 10;

/// Below this compaction would not have begun; above it, the limits of level 0 come first.
const SPACE_PERCENT: std::ops::RangeInclusive<u32> = 120..=1000;

/// Settings of a database.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Create it if there is none.
    pub create_if_missing: bool,
    /// Change nothing on disk, take no lock.
    pub read_only: bool,
    /// The same for a damaged database: what cannot be read answers so.
    pub salvage: bool,
    /// Refuse if there is one.
    pub error_if_exists: bool,
    /// Durability of writes that do not say.
    pub durability: DurabilityLevel,
    /// Isolation of transactions that ask for none.
    pub isolation: IsolationLevel,
    /// Memory for cache, memtables, indexes, filters and jobs together; 0: a quarter of what there
    /// is.
    pub memory_budget: u64,
    /// The block cache holds this at most, and no more than the budget leaves.
    pub block_cache_bytes: u64,
    /// Table files open at once, about; 0: half of what the process may have open.
    pub max_open_files: u64,
    /// Below this much free space on the disk only deletes are accepted; 0: no guard.
    pub min_free_space: u64,
    /// Read outputs of jobs again before they replace their inputs.
    pub verify_outputs: bool,
    /// The users' compaction filters.
    pub compaction_filters: CompactionFilters,
    /// The users' key orders that families may have.
    pub comparators: Vec<KeyComparator>,
    /// The users' merge operators that families may have.
    pub merge_operators: MergeOperators,
    /// Bytes per second that flushes write and compactions read and write; 0: no limit.
    pub background_bytes_per_second: u64,
    /// Writers are slowed so that tables stay below so many percent of what readers see of them,
    /// about; 0: they are not.
    pub space_amplification: u32,
    /// The scrub reads every table and value log once in so many microseconds; 0: never.
    pub scrub_interval_us: u64,
    /// Bytes of the log that stay for readers behind what recovery needs.
    pub log_retention: u64,
    /// How far back every version stays.
    pub history: HistoryRetention,
    /// Measure how long operations take.
    pub latency_stats: bool,
    /// Bytes of a file of the log for people; 0: none is written.
    pub log_file_bytes: u64,
    /// How many older ones are kept.
    pub log_files_kept: u32,
    /// Who is told the lines of that log.
    pub listener: Option<LogListener>,
    /// Settings for the default family, if they are to be set.
    pub default_family: Option<FamilySettings>,
    /// Settings for other families that there may be, by name.
    pub families: BTreeMap<String, FamilySettings>,
}

impl Settings {
    /// Refuses values that cannot work.
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

/// Settings of a family, stored in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilySettings {
    /// Order of keys.
    pub comparator: KeyComparator,
    /// Size at which a memtable is sealed.
    pub memtable_bytes: u64,
    /// Values of this length and up are separated.
    pub value_threshold: u64,
    /// Raw bytes of a data block.
    pub block_bytes: u64,
    /// Compression of new files.
    pub compression: CompressionMethod,
    /// Filter bits per key.
    pub filter_bits: u8,
    /// Size at which tables are cut.
    pub target_file_bytes: u64,
    /// Capacity of level 1.
    pub level1_bytes: u64,
    /// Ratio of the levels.
    pub level_ratio: u32,
    /// Isolation of transactions that are begun on the family and ask for none; none: the
    /// database's.
    pub isolation: Option<IsolationLevel>,
    /// How operands are merged into values.
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
    /// Refuses values that cannot work, naming the option and its range.
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

    /// Refuses to become `wanted`, for the family `name`, where that would make stored bytes wrong.
    pub fn check_change(&self, wanted: &FamilySettings, name: &str) -> Result<()> {
        if self.comparator == wanted.comparator {
            return self.check_merge_operator_change(wanted, name);
        }
        let what = format!(
            "the key order of the family {name:?} cannot change, its tables are sorted by it: open it with the order it \
             has, or copy its entries into a new family"
        );
        Err(Error::invalid(what).expected(self.comparator.name(), wanted.comparator.name()))
    }

    /// A merge operator may come, and then stays: operands that are stored mean nothing without it.
    fn check_merge_operator_change(&self, wanted: &FamilySettings, name: &str) -> Result<()> {
        let word = |s: &FamilySettings| {
            s.merge_operator.as_ref().map_or("none".into(), MergeRule::stored_name)
        };
        if self.merge_operator.is_none() || self.merge_operator == wanted.merge_operator {
            return Ok(());
        }
        let what = format!(
            "the merge operator of the family {name:?} cannot change, nor be given up: open it with the one it has, or \
             copy its entries into a new family"
        );
        Err(Error::invalid(what).expected(word(self), word(wanted)))
    }

    /// What would change if these became `wanted`: `name: old -> new`.
    pub fn describe_changes(&self, wanted: &FamilySettings) -> Vec<String> {
        let line = |name: &str, old: &dyn Debug, new: &dyn Debug| {
            let (old, new) = (format!("{old:?}"), format!("{new:?}"));
            (old != new).then(|| format!("{name}: {old} -> {new}"))
        };
        let (a, b) = (self, wanted);
        let word = |s: &FamilySettings| s.merge_operator.as_ref().map(MergeRule::stored_name);
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
            line("merge_operator", &word(a), &word(b)),
        ];
        all.into_iter().flatten().collect()
    }
}
