//! The table of all options: name, trade-off, and the functions that format and parse the value.
//! The options file, the command `perigee options` and `docs/OPTIONS.md` are derived from it.
//! Independent of TOML.

use crate::Isolation;
use crate::history::History;
use crate::options::{Compression, Durability, FamilyOptions, Options};
use crate::value_syntax;
use perigee_base::{KeyComparator, MergeRule, limits};
use std::time::Duration;

/// An option with its current value and its default.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionValue {
    /// Name in the options file; also the name of the field of [`Options`] or [`FamilyOptions`].
    pub name: &'static str,
    /// Current value as written in the options file; text is in quotes.
    pub value: String,
    /// Default value in the same form.
    pub default: String,
    /// One sentence on what the option does, and what a higher or lower value costs.
    pub tradeoff: &'static str,
}

/// A value in an options file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Text(String),
    Integer(i64),
    Flag(bool),
}

pub(crate) struct Row<T: 'static> {
    pub name: &'static str,
    pub tradeoff: &'static str,
    pub get: fn(&T) -> String,
    pub set: fn(&mut T, &Scalar) -> Result<(), String>,
}

macro_rules! rows {
    ($($name:ident, $get:ident, $set:ident, $tradeoff:literal;)+) => {
        &[$(Row {
            name: stringify!($name),
            tradeoff: $tradeoff,
            get: |o| $get(&o.$name),
            set: |o, v| { o.$name = $set(v)?; Ok(()) },
        },)+]
    };
}

/// Options of a database, in the order of the fields of [`Options`].
pub(crate) const DATABASE: &[Row<Options>] = rows! {
    create_if_missing, format_flag, parse_flag,
        "Create the database at open if it does not exist; off makes a mistyped path an error.";
    error_if_exists, format_flag, parse_flag,
        "Fail the open if the database already exists.";
    read_only, format_flag, parse_flag,
        "Open without a lock and without changing a byte, also while another process writes: \
         later writes are not visible.";
    salvage_readonly, format_flag, parse_flag,
        "Open a damaged database read-only: what is readable can be read, everything else returns \
         an error and never `not found`.";
    durability, format_durability, parse_durability,
        "When a write is acknowledged: `full` waits for a sync and survives a power loss; \
         `interval 100 ms` and `none` are many times faster and can lose the most recent writes \
         in a power loss (never earlier ones).";
    isolation, format_isolation, parse_isolation,
        "Default isolation level of transactions: `read committed`, `repeatable read`, `snapshot` \
         or `serializable`; a stronger level means more conflicts.";
    memory_budget, format_budget, parse_budget,
        "Memory limit for cache, memtables, indexes, filters, background jobs and loads together, \
         `auto` for a quarter of the memory of the cgroup or machine: more means fewer disk \
         reads, larger memtables and tables, and less rewriting.";
    block_cache_bytes, format_size, parse_size,
        "Maximum size of the block cache, within the memory budget: larger means fewer disk reads.";
    max_open_files, format_count, parse_count,
        "Table files kept open, 0 for half of the process's limit, shared by its databases: fewer \
         leave more file descriptors to the application, but files are reopened more often.";
    min_free_space, format_size, parse_size,
        "Free disk space below which only deletes are accepted: more leaves space for compactions \
         that reclaim space, 0 lets the disk fill up.";
    verify_outputs, format_flag, parse_flag,
        "Read the output of a flush or compaction back before its inputs are deleted: costs one \
         read of new data, detects a faulty disk or memory while the inputs still exist.";
    background_rate, format_rate, parse_rate,
        "Limit in bytes per second for the I/O of flushes and compactions, or `none`: lower \
         leaves more disk bandwidth to reads and writes, too low stalls writers.";
    space_amplification, format_count, parse_count,
        "Target size of tables in percent of the data visible to readers, 0 for no target: lower \
         takes less space, but slows writers that overwrite keys faster than compaction keeps up.";
    scrub_interval, format_time, parse_time,
        "Period in which the background scrub verifies every table and value log once, 0 for \
         never: shorter finds damage sooner and reads more.";
    log_retention, format_size, parse_size,
        "Log kept for `Db::changes` beyond what recovery needs: more lets a consumer fall further \
         behind, and takes disk space.";
    history, format_history, parse_history,
        "How far back old versions are kept, `none`, `1000 operations` or `10 min`: more lets \
         snapshots read further back, and costs disk space and compaction work.";
    latency_stats, format_flag, parse_flag,
        "Measure the latency of operations; short ones are sampled, which costs less than 1 ns \
         each.";
    log_file_bytes, format_size, parse_size,
        "Size at which the info log `LOG` is rotated, 0 for no info log: larger keeps more \
         history.";
    log_files_kept, format_count, parse_count,
        "Number of rotated info logs to keep: more keep more history.";
};

/// Options of a column family, in the order of the fields of [`FamilyOptions`].
pub(crate) const FAMILY: &[Row<FamilyOptions>] = rows! {
    comparator, format_comparator, parse_comparator,
        "Comparator: how keys are sorted, and which are equal. Fixed when the column family is \
         created; `bytes` is the fastest.";
    memtable_bytes, format_size, parse_size,
        "Size at which a memtable is flushed: larger means fewer tables and less rewriting, but \
         more memory and a longer recovery.";
    value_threshold, format_length, parse_length,
        "Length from which values are stored in value logs: lower makes compactions cheaper and \
         scans that read values more expensive.";
    block_bytes, format_length, parse_length,
        "Uncompressed size of a data block: larger compresses better and needs a smaller index, \
         smaller makes single reads cheaper.";
    compression, format_compression, parse_compression,
        "Compression of new files: `none`, `lz4`, `lz4-fast N`, `snappy`, `zstd LEVEL`; smaller \
         files cost time to write and read them. `lz4` stores very compressible data in larger \
         blocks with Zstandard; `lz4-fast 1` never does.";
    filter_bits, format_filter_bits, parse_filter_bits,
        "Bloom filter bits per key (or `off`, or a false-positive rate such as `1 %`): more take \
         more memory and save more block reads for missing keys.";
    target_file_bytes, format_size, parse_size,
        "Size at which a new table file is started: larger means fewer files, smaller means \
         shorter compactions.";
    level1_bytes, format_size, parse_size,
        "Amount of data up to which there is only one level below level 0: larger means fewer \
         levels to read, and more expensive compactions out of level 0.";
    level_ratio, format_count, parse_count,
        "Size ratio between adjacent levels: larger means fewer levels and less space, but more \
         rewriting.";
    isolation, format_family_isolation, parse_family_isolation,
        "Default isolation level of transactions begun on the column family, `database` for the \
         option of the database: a stronger level means more conflicts.";
    merge_operator, format_merge_rule, parse_merge_rule,
        "How merge operands combine with values: `none`, `counter`, `append:SEPARATOR`, \
         `user:NAME` for a registered operator; writes need no read, but reads apply all operands \
         written since the last compaction.";
};

pub(crate) fn option_values<T>(rows: &'static [Row<T>], of: &T, default: &T) -> Vec<OptionValue> {
    let value = |row: &Row<T>| OptionValue {
        name: row.name,
        value: (row.get)(of),
        default: (row.get)(default),
        tradeoff: row.tradeoff,
    };
    rows.iter().map(value).collect()
}

impl Options {
    /// Returns the options of the database with their values as written in an options file. Options
    /// of column families are not included; see [`FamilyOptions::values`].
    ///
    /// ```
    /// let all = perigee::Options::new().values();
    /// let cache = all.iter().find(|o| o.name == "block_cache_bytes").expect("a known option");
    /// assert_eq!(cache.value, "\"1 TiB\"");
    /// ```
    pub fn values(&self) -> Vec<OptionValue> {
        option_values(DATABASE, self, &Options::new())
    }
}

impl FamilyOptions {
    /// Returns the options of a column family with their values as written in an options file.
    pub fn values(&self) -> Vec<OptionValue> {
        option_values(FAMILY, self, &FamilyOptions::new())
    }
}

/// Formats a TOML basic string.
pub(crate) fn toml_string(s: impl AsRef<str>) -> String {
    let mut out = String::from('"');
    for c in s.as_ref().chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out + "\""
}

fn describe_scalar(v: &Scalar) -> String {
    match v {
        Scalar::Text(s) => toml_string(s),
        Scalar::Integer(n) => n.to_string(),
        Scalar::Flag(b) => b.to_string(),
    }
}

fn format_flag(b: &bool) -> String {
    b.to_string()
}
fn parse_flag(v: &Scalar) -> Result<bool, String> {
    if let Scalar::Flag(b) = v {
        Ok(*b)
    } else {
        Err(format!("{} is not true or false", describe_scalar(v)))
    }
}

fn format_size(n: &u64) -> String {
    toml_string(value_syntax::format_bytes(*n))
}
fn parse_size(v: &Scalar) -> Result<u64, String> {
    match v {
        Scalar::Text(s) => value_syntax::parse_bytes(s),
        Scalar::Integer(n) => u64::try_from(*n).map_err(|_| format!("{n} is negative")),
        Scalar::Flag(_) => Err(format!("{} is not a size, such as \"64 MiB\"", describe_scalar(v))),
    }
}

fn format_budget(n: &u64) -> String {
    if *n == 0 { toml_string("auto") } else { format_size(n) }
}
fn parse_budget(v: &Scalar) -> Result<u64, String> {
    if *v == Scalar::Text("auto".into()) { Ok(0) } else { parse_size(v) }
}

fn format_length(n: &usize) -> String {
    format_size(&(*n as u64))
}
fn parse_length(v: &Scalar) -> Result<usize, String> {
    usize::try_from(parse_size(v)?).map_err(|_| format!("{} is too large", describe_scalar(v)))
}

fn format_count(n: &u32) -> String {
    n.to_string()
}
fn parse_count(v: &Scalar) -> Result<u32, String> {
    match v {
        Scalar::Integer(n) => u32::try_from(*n).map_err(|_| format!("{n} is out of range")),
        _ => Err(format!("{} is not a number", describe_scalar(v))),
    }
}

fn format_rate(rate: &Option<u64>) -> String {
    rate.map_or_else(|| toml_string("none"), |n| format_size(&n))
}
fn parse_rate(v: &Scalar) -> Result<Option<u64>, String> {
    if *v == Scalar::Text("none".into()) { Ok(None) } else { parse_size(v).map(Some) }
}

fn format_time(t: &Duration) -> String {
    toml_string(value_syntax::format_duration(*t))
}
fn parse_time(v: &Scalar) -> Result<Duration, String> {
    match v {
        Scalar::Text(s) => value_syntax::parse_duration(s),
        Scalar::Integer(0) => Ok(Duration::ZERO),
        _ => Err(format!("{} is not a duration, such as \"24 h\", or 0", describe_scalar(v))),
    }
}

fn format_durability(d: &Durability) -> String {
    match d {
        Durability::Full => toml_string("full"),
        Durability::Interval(t) => {
            toml_string(format!("interval {}", value_syntax::format_duration(*t)))
        }
        Durability::None => toml_string("none"),
    }
}
fn parse_durability(v: &Scalar) -> Result<Durability, String> {
    let wrong =
        || format!("{} is not one of \"full\", \"interval 100 ms\", \"none\"", describe_scalar(v));
    let Scalar::Text(s) = v else { return Err(wrong()) };
    value_syntax::parse_durability(s).map_err(|_| wrong())
}

fn format_history(h: &History) -> String {
    toml_string(match h {
        History::None => "none".to_owned(),
        History::Operations(n) => format!("{n} operations"),
        History::Time(t) => value_syntax::format_duration(*t),
    })
}
fn parse_history(v: &Scalar) -> Result<History, String> {
    let wrong = || {
        format!("{} is not one of \"none\", \"1000 operations\", \"10 min\"", describe_scalar(v))
    };
    let Scalar::Text(s) = v else { return Err(wrong()) };
    match s.trim() {
        "none" => Ok(History::None),
        other => match other.strip_suffix("operations") {
            Some(n) => n.trim().parse().map(History::Operations).map_err(|_| wrong()),
            None => value_syntax::parse_duration(other).map(History::Time).map_err(|_| wrong()),
        },
    }
}

fn format_isolation(level: &Isolation) -> String {
    toml_string(level.name())
}
fn parse_isolation(v: &Scalar) -> Result<Isolation, String> {
    let named = |s: &String| Isolation::ALL.into_iter().find(|level| level.name() == s.trim());
    let level = if let Scalar::Text(s) = v { named(s) } else { None };
    level.ok_or_else(|| {
        let all = Isolation::ALL.map(|level| toml_string(level.name())).join(", ");
        format!("{} is not one of {all}", describe_scalar(v))
    })
}

fn format_family_isolation(level: &Option<Isolation>) -> String {
    level.map_or_else(|| toml_string("database"), |level| format_isolation(&level))
}
fn parse_family_isolation(v: &Scalar) -> Result<Option<Isolation>, String> {
    if *v == Scalar::Text("database".into()) { Ok(None) } else { parse_isolation(v).map(Some) }
}

fn format_comparator(comparator: &KeyComparator) -> String {
    toml_string(comparator.name())
}
fn parse_comparator(v: &Scalar) -> Result<KeyComparator, String> {
    let Scalar::Text(name) = v else {
        return Err(format!("{} is not the name of a comparator", describe_scalar(v)));
    };
    KeyComparator::by_name(name).map_err(|e| match name.starts_with("user:") {
        true => e.message().to_owned(),
        false => format!(
            "{name:?} is not one of \"bytes\", \"reverse\", \"u64\", \"i64\", \
             \"case-insensitive\", \"lexicographic\", or \"user:NAME\" for a registered one"
        ),
    })
}

fn format_merge_rule(rule: &Option<MergeRule>) -> String {
    toml_string(rule.as_ref().map_or("none".into(), MergeRule::stored_name))
}
fn parse_merge_rule(v: &Scalar) -> Result<Option<MergeRule>, String> {
    let wrong = || {
        format!(
            "{} is not one of \"none\", \"counter\", \"append:, \", \"user:NAME\"",
            describe_scalar(v)
        )
    };
    match v {
        Scalar::Text(word) if word == "none" => Ok(None),
        Scalar::Text(word) => {
            let rule = MergeRule::from_stored_name(word).map_err(|_| wrong())?;
            rule.check().map_err(|_| wrong())?;
            Ok(Some(rule))
        }
        _ => Err(wrong()),
    }
}

fn format_compression(c: &Compression) -> String {
    toml_string(match c {
        Compression::None => "none".into(),
        Compression::Lz4 => "lz4".into(),
        Compression::Lz4Fast(a) => format!("lz4-fast {a}"),
        Compression::Snappy => "snappy".into(),
        Compression::Zstd(level) => format!("zstd {level}"),
    })
}
fn parse_compression(v: &Scalar) -> Result<Compression, String> {
    let wrong = || {
        format!(
            "{} is not one of \"none\", \"lz4\", \"lz4-fast 8\", \"snappy\", \"zstd 3\"",
            describe_scalar(v)
        )
    };
    let Scalar::Text(s) = v else { return Err(wrong()) };
    let mut words = s.split([' ', ':']).filter(|w| !w.is_empty());
    let (name, effort) = (words.next().unwrap_or_default(), words.next());
    if words.next().is_some() {
        return Err(wrong());
    }
    match (name, effort) {
        ("none", None) => Ok(Compression::None),
        ("lz4", None) => Ok(Compression::Lz4),
        ("snappy", None) => Ok(Compression::Snappy),
        ("lz4-fast", Some(a)) => a.parse().map(Compression::Lz4Fast).map_err(|_| wrong()),
        ("zstd", Some(level)) => level.parse().map(Compression::Zstd).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

fn format_filter_bits(bits: &u8) -> String {
    if *bits == 0 { toml_string("off") } else { bits.to_string() }
}
fn parse_filter_bits(v: &Scalar) -> Result<u8, String> {
    let wrong = || {
        format!(
            "{} is not a number of bits (at most {}), \"off\", or a rate such as \"1 %\"",
            describe_scalar(v),
            limits::FILTER_BITS_MAX
        )
    };
    match v {
        Scalar::Integer(n) => u8::try_from(*n).map_err(|_| wrong()),
        Scalar::Text(s) if s == "off" => Ok(0),
        Scalar::Text(s) => {
            let percent: Option<f64> =
                s.trim().strip_suffix('%').and_then(|n| n.trim().parse().ok());
            let percent = percent.filter(|p| (0.0..=100.0).contains(p)).ok_or_else(wrong)?;
            Ok(FamilyOptions::new().filter_rate(percent / 100.0).filter_bits)
        }
        Scalar::Flag(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source_fields(of: &str) -> Vec<&'static str> {
        let source = include_str!("options.rs");
        let body = source
            .split(&format!("pub struct {of} {{"))
            .nth(1)
            .unwrap()
            .split("\n}")
            .next()
            .unwrap();
        body.lines().filter_map(|l| l.trim().strip_prefix("pub ")?.split(':').next()).collect()
    }

    #[test]
    fn option_table_lists_every_field() {
        let names = |rows: Vec<OptionValue>| rows.iter().map(|r| r.name).collect::<Vec<_>>();
        let others = ["default_family", "families", "comparators", "env"];
        let mut database = source_fields("Options");
        database.retain(|f| !others.contains(f));
        assert_eq!(
            names(Options::new().values()),
            database,
            "every field of Options has a row, in the same order"
        );
        assert_eq!(names(FamilyOptions::new().values()), source_fields("FamilyOptions"));
    }

    #[test]
    fn option_values_parse_back() {
        let scalar = |text: &str| match text.strip_prefix('"') {
            Some(quoted) => Scalar::Text(quoted.trim_end_matches('"').into()),
            None => text.parse().map_or_else(|_| Scalar::Flag(text == "true"), Scalar::Integer),
        };
        let mut all = FamilyOptions::new();
        for compression in ["none", "lz4", "lz4-fast 8", "snappy", "zstd -3"] {
            all.compression = parse_compression(&Scalar::Text(compression.into())).unwrap();
            for row in FAMILY {
                let mut copy = all.clone();
                (row.set)(&mut copy, &scalar(&(row.get)(&all))).unwrap();
                assert_eq!(copy, all, "{}", row.name);
            }
        }
        for durability in ["full", "none", "interval 100 ms"] {
            let read = parse_durability(&Scalar::Text(durability.into())).unwrap();
            assert_eq!(format_durability(&read), toml_string(durability));
        }
        for history in ["none", "1000 operations", "10 min"] {
            let read = parse_history(&Scalar::Text(history.into())).unwrap();
            assert_eq!(
                parse_history(&Scalar::Text(format_history(&read).trim_matches('"').into())),
                Ok(read)
            );
        }
        assert!(parse_history(&Scalar::Text("some operations".into())).is_err());
        assert_eq!(parse_filter_bits(&Scalar::Text("1 %".into())), Ok(11));
        assert_eq!(parse_filter_bits(&Scalar::Text("off".into())), Ok(0));
    }

    #[test]
    fn options_page_lists_every_option() {
        let page = include_str!("../../../docs/OPTIONS.md");
        for o in Options::new().values().iter().chain(&FamilyOptions::new().values()) {
            let row =
                format!("| `{}` | `{}` | {} |", o.name, o.default.replace('"', ""), o.tradeoff);
            assert!(page.contains(&row), "docs/OPTIONS.md lacks the row\n{row}");
        }
    }
}
