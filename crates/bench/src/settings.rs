//! Settings that apply to every engine alike. Plain data; passed to the measuring process and
//! stored in the record.

use crate::keys::KeyChoice;
use crate::values::ValueChoice;
use clap::{Args, ValueEnum};
use perigee::value_syntax::{parse_bytes, parse_seconds};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    /// When it is in the operating system's cache (as in TidesDB's benchmark).
    None,
    /// When it is on disk.
    Full,
}

/// Compression of data at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    None,
    Lz4,
}

/// Isolation of transactions, and how it is achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// All reads use one snapshot; of two transactions that wrote the same key, the second to
    /// commit fails.
    #[default]
    Snapshot,
    /// Equivalent to serial execution (engines without it: all keys that were read are checked).
    Serializable,
    /// Reads of keys that will be written lock them and wait for other holders; other reads see the
    /// newest value.
    Locks,
}

/// Key orders and distributions, as in TidesDB's benchtool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Ascending.
    Seq,
    /// Scattered as `--keys` says.
    Random,
    /// Scattered, Zipfian distribution.
    Zipfian,
    /// Scattered, each choice independent of the previous ones.
    Uniform,
    /// Ascending microseconds with irregular gaps.
    Timestamp,
    /// Descending.
    Reverse,
}

/// Primary keys of the suite `tables`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKeys {
    /// Even numbers without gaps, as an automatic increment assigns them.
    #[default]
    Ascending,
    /// Random numbers of 63 bits.
    Random,
    /// Random UUIDs.
    Uuid4,
    /// UUIDs that ascend with the time.
    Uuid7,
}

/// What commits of the suite `tables` survive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowDurability {
    /// A power loss: SQLite's `synchronous=FULL`.
    #[default]
    Power,
    /// A crash of the process; after a power loss a prefix of the commits: `synchronous=NORMAL`.
    Crash,
    /// A close; after a power loss the file may be damaged: `synchronous=OFF`.
    Close,
}

/// Which kind of table SQLite gets in the suite `tables`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SqliteTable {
    /// The faster one: with row ids for numbers, without for UUIDs.
    #[default]
    Auto,
    Rowid,
    WithoutRowid,
}

/// Settings of the suite `tables`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct RowSettings {
    /// Primary keys of the suite `tables`
    #[arg(long, value_enum, default_value = "ascending")]
    pub row_keys: RowKeys,
    /// SQLite's table in the suite `tables`
    #[arg(long, value_enum, default_value = "auto")]
    pub sqlite_table: SqliteTable,
    /// Part of the cache that is perigee's row cache in the suite `tables`
    #[arg(long, value_parser = parse_bytes, default_value = "0")]
    pub row_cache: u64,
    /// Durability of the current workload.
    #[arg(skip)]
    pub durability: RowDurability,
}

/// Settings of a run.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct Settings {
    /// Keys in the database, such as 300k or 10M
    #[arg(long, short = 'n', value_parser = count, default_value = "1M")]
    pub num: u64,
    /// Operations (default: depends on the workload, mostly one per key)
    #[arg(long, value_parser = count)]
    pub ops: Option<u64>,
    /// Seconds after which a measured phase ends, even if not done; the figures cover the work done
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    pub seconds: Option<u64>,
    /// Do the reads once, unmeasured, before they are measured (read-only workloads)
    #[arg(long)]
    #[serde(default)]
    pub warm: bool,
    /// Client threads
    #[arg(long, short = 't', default_value_t = 2)]
    pub threads: usize,
    /// Operations per write batch (default: the workload's, mostly 1000)
    #[arg(long)]
    pub batch: Option<usize>,
    /// Bytes per key, at least 8 (default: the workload's, mostly 16)
    #[arg(long, value_parser = length)]
    pub key_bytes: Option<usize>,
    /// Bytes per value, at least 8 (default: the workload's, mostly 100)
    #[arg(long, value_parser = length)]
    pub value_bytes: Option<usize>,
    /// Isolation of transactions (workloads `txn_...`)
    #[arg(long, value_enum, default_value = "snapshot")]
    #[serde(default)]
    pub level: Level,
    /// Bytes per value of the giant workloads
    #[arg(long, value_parser = parse_bytes, default_value = "1G")]
    pub giant_bytes: u64,
    /// Entries per range read (default: the workload's, 100 or 1000)
    #[arg(long)]
    pub range: Option<usize>,
    /// Key order and distribution (default: the workload's)
    #[arg(long, value_enum)]
    pub pattern: Option<Pattern>,
    /// Families of the many-family workloads
    #[arg(long = "families", default_value_t = 1000)]
    pub many_families: usize,
    /// Time to live, in seconds, in workloads that use one
    #[arg(long = "ttl", value_name = "DURATION", value_parser = seconds, default_value = "2")]
    pub ttl_seconds: u64,
    /// Keys of workloads in scattered order
    #[arg(long, value_enum, default_value = "counter")]
    pub keys: KeyChoice,
    /// Contents of values
    #[arg(long, value_enum, default_value = "ramp")]
    pub values: ValueChoice,
    /// When a write is acknowledged
    #[arg(long, value_enum, default_value = "none")]
    pub sync: Sync,
    /// Compression
    #[arg(long, value_enum, default_value = "lz4")]
    pub compression: Compression,
    /// Write buffer size
    #[arg(long, value_parser = parse_bytes, default_value = "64M")]
    pub memtable: u64,
    /// Read cache size
    #[arg(long, value_parser = parse_bytes, default_value = "64M")]
    pub cache: u64,
    /// Calls per second of all threads together; latency then counts from the time a call was due
    /// (no coordinated omission)
    #[arg(long)]
    pub rate: Option<u64>,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Memory limit of the measuring process including its page cache, by a cgroup
    #[arg(long, value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Drop the page cache between loading and measuring
    #[arg(long)]
    pub cold: bool,
    /// TidesDB's shared library, major version 9 or newer, for the engine `tidesdb`
    #[arg(long, value_name = "PATH")]
    pub tidesdb_lib: Option<PathBuf>,
    /// Trace file that the workload `replay` executes
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    #[serde(default)]
    pub rows: RowSettings,
    /// Directory in which databases are created and removed
    #[arg(long, default_value = "target/bench-data")]
    pub dir: PathBuf,
    /// Engine features that the current workload needs.
    #[arg(skip)]
    pub shape: WorkloadNeeds,
}

/// Engine features that a workload needs beyond one family of permanent entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadNeeds {
    /// Number of families, if more than one.
    pub families: Option<usize>,
    /// Isolation level, if it needs transactions.
    pub level: Option<Level>,
    /// Time to live of every entry, in seconds.
    pub ttl: Option<u64>,
    /// Trace file to which every operation is recorded.
    pub record: Option<PathBuf>,
}

impl Settings {
    /// Returns the number of families to create.
    pub fn families(&self) -> usize {
        self.shape.families.unwrap_or(1).max(1)
    }
    /// Returns the write buffer size of each family: its share, and at least 64 KiB.
    pub fn memtable_per_family(&self) -> u64 {
        (self.memtable / self.families() as u64).max(self.memtable.min(64 << 10))
    }
}

/// Parses a size that is a length in memory.
fn length(text: &str) -> Result<usize, String> {
    usize::try_from(parse_bytes(text)?).map_err(|_| format!("{text:?} is too large"))
}

/// Parses whole seconds, from a number or a duration such as `2m`.
fn seconds(text: &str) -> Result<u64, String> {
    let time = parse_seconds(text)?;
    if time.subsec_nanos() > 0 {
        return Err(format!("{text:?} is not a whole number of seconds"));
    }
    Ok(time.as_secs())
}

/// Parses `300k`, `10M` or `4096`: thousands and millions, not powers of two.
pub fn count(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, unit) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 1_000),
        Some('M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1u64),
    };
    let n: u64 = digits.parse().map_err(|_| format!("`{text}` is not a number such as 10M"))?;
    n.checked_mul(unit).ok_or_else(|| format!("`{text}` is too large"))
}

/// Formats a size as `64 MiB`, for display.
pub fn human_bytes(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b => format!("{} KiB", b >> 10),
    }
}

#[cfg(test)]
pub mod tests {
    use super::Settings;

    /// Parses settings from a command line.
    pub fn parse_settings(args: &[&str]) -> Settings {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            settings: Settings,
        }
        let words = std::iter::once(&"test").chain(args);
        <Line as clap::Parser>::parse_from(words).settings
    }

    #[test]
    fn sizes_are_read() {
        let settings =
            parse_settings(&["--memtable", "64M", "--cache", "64 MiB", "--giant-bytes", "64MB"]);
        assert_eq!(
            (settings.memtable, settings.cache, settings.giant_bytes),
            (64 << 20, 64 << 20, 64_000_000)
        );
        let settings = parse_settings(&["--seconds", "2m", "--ttl", "3"]);
        assert_eq!((settings.seconds, settings.ttl_seconds), (Some(120), 3));
        assert!(super::seconds("1500ms").is_err() && super::seconds("x").is_err());
        assert_eq!(
            (super::count("10M"), super::count("300k"), super::count("7")),
            (Ok(10_000_000), Ok(300_000), Ok(7))
        );
        assert!(super::count("M").is_err() && super::count("99999999999999M").is_err());
    }
}
