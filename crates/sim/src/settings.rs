//! Option sets with tiny buffers, so that a history of a few hundred operations constantly flushes,
//! compacts and separates values.

use crate::comparators;
use crate::rng::{Rng, mix};
use perigee::encryption::{KEY_BYTES, KeyRing};
use perigee::env::Env;
use perigee::{
    Compression, Durability, FamilyOptions, HistoryPolicy, KeyComparator, MergeRule, Options,
};
use std::sync::Arc;
use std::time::Duration;

/// Separator that the merge operator puts between operands.
pub const SEPARATOR: &str = "+";

/// One option set as plain, printable data.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Options of every column family.
    pub family: FamilyOptions,
    /// Block cache size in bytes.
    pub cache_bytes: u64,
    /// Row cache size in bytes; 0: none.
    pub row_cache_bytes: u64,
    /// Budget for all memory together (0: ample).
    pub memory_budget: u64,
    /// Disk space that only deletes may use.
    pub min_free_space: u64,
    /// Default durability.
    pub durability: Durability,
    /// Re-read compaction outputs.
    pub verify_outputs: bool,
    /// Maximum size of an event log file in bytes; 0: no event log.
    pub log_file_bytes: u64,
    /// Maximum number of files that the database may have open; 0: its share of the process limit.
    pub open_files: u32,
    /// Bytes of the log kept for the change feed.
    pub log_retention: u64,
    /// How far back versions are kept.
    pub history: HistoryPolicy,
    /// Scrub interval in microseconds; 0: off. Without the scrub, a simulation in which all threads
    /// wait forever is detected at once.
    pub scrub_us: u64,
    /// Files are encrypted.
    pub encrypted: bool,
}

const ENCRYPTION_SALT: u64 = 0xE4C;

/// Returns the keys of all encrypted databases.
pub fn test_keys() -> KeyRing {
    KeyRing::new([0x5A; KEY_BYTES])
}

/// Effectively unlimited.
const RETAIN_ALL_BYTES: u64 = 1 << 50;

impl Settings {
    /// Returns a random set.
    pub fn random(rng: &mut Rng) -> Self {
        let memtable = rng.pick(&[1 << 10, 2 << 10, 4 << 10]);
        let merges = rng.percent(50);
        let mut family = FamilyOptions::new()
            .memtable_bytes(memtable)
            .block_bytes(rng.pick(&[64, 64, 256, 4096]))
            .target_file_bytes(2 << 10)
            .level1_bytes(4 << 10)
            .level_ratio(rng.pick(&[2, 3, 4]))
            .value_threshold(rng.pick(&[0, 16, 4096]))
            .filter_bits(rng.pick(&[0, 10]))
            .compression(rng.pick(&[
                Compression::None,
                Compression::Lz4,
                Compression::Lz4Fast(8),
                Compression::Snappy,
                Compression::Zstd(1),
            ]));
        family.merge_operator = merges.then(|| MergeRule::Append(String::new()));
        Settings {
            family,
            cache_bytes: rng.pick(&[0, 4 << 10, 1 << 20]),
            // The other settings of a case do not depend on it.
            row_cache_bytes: rng.clone().pick(&[0, 16 << 10]),
            memory_budget: rng.pick(&[0, 0, 64 << 10]),
            min_free_space: rng.pick(&[0, 2 << 10]),
            durability: Durability::None,
            verify_outputs: rng.percent(50),
            open_files: 4,
            log_file_bytes: rng.pick(&[0, 0, 0, 500]),
            scrub_us: rng.pick(&[0, 0, 1, 200_000]),
            encrypted: false,
            log_retention: rng.pick(&[0, 3 << 10, RETAIN_ALL_BYTES, RETAIN_ALL_BYTES]),
            history: rng.pick(&[
                HistoryPolicy::None,
                HistoryPolicy::None,
                HistoryPolicy::Operations(25),
                HistoryPolicy::Operations(RETAIN_ALL_BYTES),
                HistoryPolicy::Time(Duration::from_millis(2)),
            ]),
        }
    }

    /// Replaces the comparator with another one in half of the cases.
    pub fn with_random_comparator(mut self, rng: &mut Rng) -> Result<Self, String> {
        if rng.percent(50) {
            self.family.comparator =
                rng.pick(&comparators::all_comparators().map_err(|e| e.to_string())?);
        }
        Ok(self)
    }

    /// Encrypts the database in a quarter of the cases; the other settings of a case do not depend
    /// on it.
    #[must_use]
    pub fn with_random_encryption(mut self, case_seed: u64) -> Self {
        self.encrypted = mix(case_seed, ENCRYPTION_SALT).is_multiple_of(4);
        self
    }

    /// Returns true if no part of the log is deleted that the change feed may need.
    pub fn retains_log(&self) -> bool {
        self.log_retention == RETAIN_ALL_BYTES
    }
    /// Returns true if every version is kept.
    pub fn retains_history(&self) -> bool {
        self.history == HistoryPolicy::Operations(RETAIN_ALL_BYTES)
    }
    /// Sets the merge operator that the oracle implements, or none.
    #[must_use]
    pub fn with_merge_operator(mut self, merges: bool) -> Self {
        self.family.merge_operator = merges.then(|| MergeRule::Append(SEPARATOR.into()));
        self
    }
    /// Sets the durability.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Returns the options of the database.
    pub fn options(&self, env: Env) -> Options {
        let known = comparators::user_comparators().unwrap_or([KeyComparator::Bytes; 2]);
        let options = Options::in_env(env);
        let options = match self.encrypted {
            true => options.encryption(Arc::new(test_keys())),
            false => options,
        };
        known
            .into_iter()
            .fold(options, Options::register_comparator)
            .durability(self.durability)
            .block_cache_bytes(self.cache_bytes)
            .row_cache_bytes(self.row_cache_bytes)
            .memory_budget(self.memory_budget)
            .min_free_space(self.min_free_space)
            .max_open_files(self.open_files)
            .verify_outputs(self.verify_outputs)
            .scrub_interval(Duration::from_micros(self.scrub_us))
            .log_retention(self.log_retention)
            .history(self.history)
            .log_file_bytes(self.log_file_bytes)
            .log_files_kept(1)
            .default_family(self.family.clone())
    }
}
