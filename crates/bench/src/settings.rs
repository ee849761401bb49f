//! What every engine is given alike. Plain data; goes to the measuring process and into the record.

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
    /// When the operating system has it (the seed's).
    None,
    /// When the disk has it.
    Full,
}

/// Compression of data at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    None,
    Lz4,
}

/// What transactions are protected from, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// All reads see one moment; the second to commit of two that wrote the same key has lost.
    #[default]
    Snapshot,
    /// As if one ran after the other (engines without it: all keys that were read are checked).
    Serializable,
    /// Reads of what will be written lock it and wait for others that hold it; other reads see the
    /// newest.
    Locks,
}

/// Orders of keys and choices among them, as in TidesDB's benchtool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Ascending.
    Seq,
    /// Scattered as `--keys` says.
    Random,
    /// Scattered, hot keys more often.
    Zipfian,
    /// Scattered, each choice independent of those before.
    Uniform,
    /// Ascending microseconds with irregular gaps.
    Timestamp,
    /// Descending.
    Reverse,
}

/// Settings of a run.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct Settings {
    /// Keys in the database, such as 300k or 10M
    #[arg(long, short = 'n', value_parser = count, default_value = "1M")]
    pub num: u64,
    /// Operations (default: what suits the workload, mostly one for each key)
    #[arg(long, value_parser = count)]
    pub ops: Option<u64>,
    /// Seconds after which a measured phase ends, done or not; the figures are of what was done
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    pub seconds: Option<u64>,
    /// Do the reads once, unmeasured, before they are measured (workloads that only read)
    #[arg(long)]
    #[serde(default)]
    pub warm: bool,
    /// Threads that ask
    #[arg(long, short = 't', default_value_t = 2)]
    pub threads: usize,
    /// Operations in a write batch (default: the workload's, mostly 1000)
    #[arg(long)]
    pub batch: Option<usize>,
    /// Bytes of a key, at least 8 (default: the workload's, mostly 16)
    #[arg(long, value_parser = length)]
    pub key_bytes: Option<usize>,
    /// Bytes of a value, at least 8 (default: the workload's, mostly 100)
    #[arg(long, value_parser = length)]
    pub value_bytes: Option<usize>,
    /// What transactions are protected from (workloads `txn_...`)
    #[arg(long, value_enum, default_value = "snapshot")]
    #[serde(default)]
    pub level: Level,
    /// Bytes of a value of the giant workloads
    #[arg(long, value_parser = parse_bytes, default_value = "1G")]
    pub giant_bytes: u64,
    /// Entries that a range reads (default: the workload's, 100 or 1000)
    #[arg(long)]
    pub range: Option<usize>,
    /// Order of keys and choice among them (default: the workload's)
    #[arg(long, value_enum)]
    pub pattern: Option<Pattern>,
    /// Families of the workloads with many
    #[arg(long = "families", default_value_t = 1000)]
    pub many_families: usize,
    /// Seconds that entries live in workloads with a time to live
    #[arg(long = "ttl", value_name = "DURATION", value_parser = seconds, default_value = "2")]
    pub ttl_seconds: u64,
    /// Keys of workloads in scattered order
    #[arg(long, value_enum, default_value = "counter")]
    pub keys: KeyChoice,
    /// Data in values
    #[arg(long, value_enum, default_value = "ramp")]
    pub values: ValueChoice,
    /// When a write is acknowledged
    #[arg(long, value_enum, default_value = "none")]
    pub sync: Sync,
    /// Compression
    #[arg(long, value_enum, default_value = "lz4")]
    pub compression: Compression,
    /// Write buffer
    #[arg(long, value_parser = parse_bytes, default_value = "64M")]
    pub memtable: u64,
    /// Cache of data read
    #[arg(long, value_parser = parse_bytes, default_value = "64M")]
    pub cache: u64,
    /// Calls per second of all threads together; latency then counts from when a call was due (no
    /// coordinated omission)
    #[arg(long)]
    pub rate: Option<u64>,
    /// Seed of all choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Memory of the measuring process with its page cache, by a cgroup
    #[arg(long, value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Drop the page cache between loading and measuring
    #[arg(long)]
    pub cold: bool,
    /// TidesDB's shared library, major version 9 or newer, for the engine `tidesdb`
    #[arg(long, value_name = "PATH")]
    pub tidesdb_lib: Option<PathBuf>,
    /// The recorded operations that the workload `replay` does again
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Where databases are made (and removed again)
    #[arg(long, default_value = "target/bench-data")]
    pub dir: PathBuf,
    /// What the workload at hand needs of the engine.
    #[arg(skip)]
    pub shape: WorkloadNeeds,
}

/// What a workload needs of an engine beyond one family of entries that stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadNeeds {
    /// Families, if more than one.
    pub families: Option<usize>,
    /// What transactions are protected from, if it must have them.
    pub level: Option<Level>,
    /// Seconds that every entry lives.
    pub ttl: Option<u64>,
    /// File that gets every operation.
    pub record: Option<PathBuf>,
}

impl Settings {
    /// How many families an engine makes.
    pub fn families(&self) -> usize {
        self.shape.families.unwrap_or(1).max(1)
    }
    /// Write buffer of each family: its part, and not less than 64 KiB.
    pub fn memtable_per_family(&self) -> u64 {
        (self.memtable / self.families() as u64).max(self.memtable.min(64 << 10))
    }
}

/// A size that is a length in memory.
fn length(text: &str) -> Result<usize, String> {
    usize::try_from(parse_bytes(text)?).map_err(|_| format!("{text:?} is too large"))
}

/// Whole seconds, from a number or a duration such as `2m`.
fn seconds(text: &str) -> Result<u64, String> {
    let time = parse_seconds(text)?;
    if time.subsec_nanos() > 0 {
        return Err(format!("{text:?} is not a whole number of seconds"));
    }
    Ok(time.as_secs())
}

/// `300k`, `10M`, `4096`: thousands and millions, not powers of two.
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

/// `64 MiB`, for people.
pub fn human_bytes(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b => format!("{} KiB", b >> 10),
    }
}

#[cfg(test)]
pub mod tests {
    use super::Settings;

    /// Settings from a command line.
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
