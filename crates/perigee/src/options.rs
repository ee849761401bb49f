//! Options of databases, column families and single writes. Plain data.

use crate::history::History;
use crate::txn_options::Isolation;
use perigee_base::merge::MergeOperators;
use perigee_base::{KeyComparator, MergeRule, limits};
use perigee_engine::compaction_filters::CompactionFilters;
use perigee_engine::log_listener::LogListener;
use perigee_env::Env;
use perigee_file::filter;
use std::collections::BTreeMap;
use std::time::Duration;

/// When a write is acknowledged, and what it survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged after the log record is synced. Survives a power loss. Concurrent writers share
    /// a sync (group commit).
    #[default]
    Full,
    /// Acknowledged after the log record is handed to the operating system; the log is synced in
    /// the background at this interval. Survives a crash of the process. After a power loss a
    /// prefix of the commits survives; at most those of the last interval plus one sync are lost.
    Interval(Duration),
    /// Acknowledged after the log record is handed to the operating system; no periodic sync.
    /// Survives a crash of the process. After a power loss a prefix of the commits survives.
    None,
}

/// Compression of blocks and separated values in new files. Every block records how it is stored,
/// so the option can be changed at any time. A block is stored uncompressed if compression would
/// save less than an eighth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    None,
    /// LZ4: fast to write and to read. Very compressible data (for example counters or repeated
    /// records) is stored in blocks 2.5 times as large and compressed with Zstandard instead, if
    /// LZ4 reduces it to at most a quarter, and Zstandard to at most an eighth and at most three
    /// quarters of the LZ4 size. Such tables are about half as large, and a read that misses the
    /// cache costs about 2 us more.
    #[default]
    Lz4,
    /// Only LZ4, with this acceleration (1 to 65537): higher is faster to write and compresses
    /// less. 1 searches as thoroughly as `Lz4`; 8 compresses about three times as fast and slightly
    /// less. Reads cost the same as with LZ4.
    Lz4Fast(u32),
    /// Snappy: about as fast and about as small as LZ4.
    Snappy,
    /// Zstandard at this level (-7 to 22, but not 0; 3 is typical): compressible data is a quarter
    /// to a half smaller than with LZ4, about three times slower to read, and slower to write with
    /// each level.
    Zstd(i32),
}

/// Options of a database, given at each open. Except for [`Options::default_family`] and
/// [`Options::families`] they are not stored. The defaults suit most databases; `docs/OPTIONS.md`
/// lists all options with their trade-offs.
///
/// ```
/// use perigee::{Durability, FamilyOptions, Options};
/// use std::time::Duration;
///
/// let options = Options::new()
///     .durability(Durability::Interval(Duration::from_millis(100)))
///     .block_cache_bytes(256 << 20)
///     .default_family(FamilyOptions::new().memtable_bytes(16 << 20));
/// assert!(options.create_if_missing);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Creates the database if it does not exist (default true).
    pub create_if_missing: bool,
    /// Fails with `AlreadyExists` if the database exists (default false).
    pub error_if_exists: bool,
    /// Opens without taking a lock and without changing a byte (default false). Other processes,
    /// including one that writes, can have the database open at the same time. Never creates a
    /// database. Writes fail with [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly).
    ///
    /// The view is as of one sequence number for all column families, bulk loads and column-family
    /// changes included. It contains at least every write acknowledged before this open began,
    /// whatever their durability, and may contain commits that are not yet acknowledged or synced.
    /// Later writes do not appear; open again to see them.
    ///
    /// A busy writer does not disturb a reader: files that the writer deletes stay open here, and
    /// its log is read into memory.
    pub read_only: bool,
    /// Opens a damaged database read-only to read what is still readable (default false). Reading a
    /// key whose block is damaged returns `Corruption`, never `None`. `perigee repair` or
    /// [`repair`](fn@crate::repair) writes a new database from the readable data.
    ///
    /// If a part of the log is lost, the keys written in it are unknown. Then `Corruption` is also
    /// returned for a key that is not found, and for a key whose newest readable version is older
    /// than the lost part and is a deletion or has expired; and every scan ends with `Corruption`.
    /// A key whose newest readable version is a *value* older than the lost part returns this
    /// value: it was acknowledged once, but a newer version or a deletion may have been lost.
    /// `reason` in [`RecoveryReport`](crate::RecoveryReport) describes the damage.
    pub salvage_readonly: bool,
    /// Durability of writes without a durability of their own (default [`Durability::Full`]).
    pub durability: Durability,
    /// Isolation level of transactions without one of their own (default [`Isolation::Snapshot`]).
    pub isolation: Isolation,
    /// Memory limit in bytes (at least 64 KiB) for the block cache, memtables, resident indexes and
    /// filters, flushes, compactions and bulk loads together. Default 0: a quarter of the memory of
    /// the cgroup or machine. To stay within it, memtables are flushed early, tables are cut
    /// smaller, writers are slowed and the cache shrinks; [`crate::Stats::memory`] lists the use by
    /// owner. Not included: the program itself (a few MiB), batches under construction, and blocks
    /// pinned by iterators and [`Slice`](crate::Slice)s.
    pub memory_budget: u64,
    /// Maximum size in bytes of the block cache, which contains decompressed blocks (default 1 TiB:
    /// limited only by the memory budget).
    pub block_cache_bytes: u64,
    /// Approximate number of table files kept open. Default 0: half of the process's limit on open
    /// files, shared by all its databases with this default. With a lower number files are reopened
    /// more often. Files in use are never closed; idle files are also closed when the system runs
    /// out of file descriptors.
    pub max_open_files: u32,
    /// Minimum free disk space in bytes. Below it, writes fail with `NoSpace`; deletes and
    /// compactions continue, and writes succeed again when there is more space (default 16 MiB; 0
    /// disables the check).
    pub min_free_space: u64,
    /// Reads every output of a flush or compaction back before it replaces its inputs (default
    /// true). Costs one read of new data; detects a faulty disk or memory while the inputs still
    /// exist.
    pub verify_outputs: bool,
    /// Limit in bytes per second for the writes of flushes and the reads and writes of compactions
    /// (default `None`: no limit). Flushes have priority: a compaction never delays a flush. Can be
    /// changed with [`crate::Db::set_background_rate`].
    pub background_rate: Option<u64>,
    /// Target for the size of tables in percent of the data visible to readers (default 150; 120 to
    /// 1000, or 0 for no target). If keys are overwritten or deleted faster than compaction removes
    /// old versions, writers are slowed gradually, starting halfway to the target; they are never
    /// stopped. A lower target costs write throughput, because entries are rewritten more often.
    /// Writers of new keys are not slowed. Versions kept for snapshots and iterators do not count.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// let db = Db::open("/doc", Options::in_env(env).space_amplification(130))?;
    /// assert!(db.stats().stalls.iter().all(|s| s.reason != "space"));
    /// # Ok(())
    /// # }
    /// ```
    pub space_amplification: u32,
    /// Period in which the background scrub reads and verifies every table and value log once
    /// (default 7 days; zero disables it). It counts against [`Options::background_rate`], gives
    /// way to flushes and compactions, stops while background work is paused or cancelled, and
    /// catches up at no more than 200 MiB/s. Damage does not stop the database: it is reported in
    /// [`crate::Stats::scrub_errors`], the info log and the counter `scrub_errors`. After an open
    /// the scrub starts at a random file. Log and manifest are not scrubbed: every open reads them
    /// completely.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # use std::time::Duration;
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// let daily = Options::in_env(env).scrub_interval(Duration::from_secs(24 * 3600));
    /// let db = Db::open("/doc", daily)?;
    /// assert!(db.stats().scrub_errors.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub scrub_interval: Duration,
    /// Bytes of log kept for [`Db::changes`](crate::Db::changes) beyond what recovery needs
    /// (default 0): how far a consumer may fall behind. The newest segments that fit are kept as a
    /// whole; a segment is about as large as a memtable. With 0, log that recovery no longer needs
    /// is deleted after each flush.
    pub log_retention: u64,
    /// How far back old versions are kept for [`Db::snapshot_at`](crate::Db::snapshot_at) (default:
    /// not at all). Applies to versions written or overwritten while the option is set.
    pub history: History,
    /// Measures the latency of operations (default true). Short operations are sampled, which costs
    /// less than 1 ns each.
    pub latency_stats: bool,
    /// Size in bytes at which the info log (`LOG` in the database directory) is rotated (default 1
    /// MiB; 0: no info log).
    pub log_file_bytes: u64,
    /// Number of rotated info logs (`LOG.1`, ...) to keep (default 4).
    pub log_files_kept: u32,
    /// Options of the column family `default`. `None`: a new database gets the default options, an
    /// existing one keeps the stored options; `Some` replaces them.
    pub default_family: Option<FamilyOptions>,
    /// Options of other column families, by name. At open a column family that does not exist is
    /// created; one that exists gets these options if they differ, as reported in
    /// `stats().recovery.changed_options`. The open fails if the comparator differs, or if a merge
    /// operator is replaced or removed. Column families that are not listed keep their stored
    /// options.
    pub families: BTreeMap<String, FamilyOptions>,
    /// The user-defined comparators that column families may use. An open fails if a column family
    /// uses one that is not listed.
    pub comparators: Vec<KeyComparator>,
    /// Set by [`Options::register_merge_operator`].
    pub(crate) merge_operators: MergeOperators,
    /// Set by [`Options::compaction_filter`].
    pub(crate) compaction_filters: CompactionFilters,
    pub(crate) listener: Option<LogListener>,
    /// The environment to run in (default: the operating system).
    pub env: Env,
}

impl Options {
    /// Returns the default options.
    pub fn new() -> Self {
        Options {
            create_if_missing: true,
            error_if_exists: false,
            read_only: false,
            salvage_readonly: false,
            durability: Durability::Full,
            isolation: Isolation::Snapshot,
            memory_budget: 0,
            block_cache_bytes: 1 << 40,
            max_open_files: 0,
            min_free_space: 16 << 20,
            verify_outputs: true,
            background_rate: None,
            space_amplification: 150,
            scrub_interval: Duration::from_secs(7 * 24 * 3600),
            log_retention: 0,
            history: History::None,
            latency_stats: true,
            log_file_bytes: 1 << 20,
            log_files_kept: 4,
            default_family: None,
            families: BTreeMap::new(),
            comparators: Vec::new(),
            merge_operators: MergeOperators::default(),
            compaction_filters: CompactionFilters::default(),
            listener: None,
            env: Env::real(),
        }
    }
    /// Returns the default options with the environment `env` (see [`crate::env`]).
    pub fn in_env(env: Env) -> Self {
        Options { env, ..Self::new() }
    }
    /// Sets [`Options::create_if_missing`].
    #[must_use]
    pub fn create_if_missing(mut self, yes: bool) -> Self {
        self.create_if_missing = yes;
        self
    }
    /// Sets [`Options::error_if_exists`].
    #[must_use]
    pub fn error_if_exists(mut self, yes: bool) -> Self {
        self.error_if_exists = yes;
        self
    }
    /// Sets [`Options::read_only`].
    ///
    /// ```
    /// # use perigee::{Db, ErrorKind, Options, env::{Env, fs::memory::SimDisk}};
    /// # fn main() -> perigee::Result<()> {
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// let writer = Db::open("/db", Options::in_env(env.clone()))?;
    /// writer.put("moon", "full")?;
    /// let reader = Db::open("/db", Options::in_env(env).read_only(true))?;
    /// writer.put("moon", "new")?;
    /// assert_eq!(reader.get("moon")?.as_deref(), Some(&b"full"[..]));
    /// assert_eq!(reader.put("moon", "half").unwrap_err().kind(), ErrorKind::ReadOnly);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn read_only(mut self, yes: bool) -> Self {
        self.read_only = yes;
        self
    }
    /// Sets [`Options::salvage_readonly`].
    #[must_use]
    pub fn salvage_readonly(mut self, yes: bool) -> Self {
        self.salvage_readonly = yes;
        self
    }
    /// Sets [`Options::durability`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }
    /// Sets [`Options::memory_budget`].
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let options = Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() });
    /// let options = options.memory_budget(64 << 20).max_open_files(100).min_free_space(1 << 20);
    /// let db = Db::open("/doc", options)?;
    /// db.put("moon", "full")?;
    /// let used: u64 = db.stats().memory.iter().map(|(_owner, bytes)| bytes).sum();
    /// assert!(used > 0 && used < db.stats().memory_budget);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn memory_budget(mut self, bytes: u64) -> Self {
        self.memory_budget = bytes;
        self
    }
    /// Sets [`Options::max_open_files`].
    #[must_use]
    pub fn max_open_files(mut self, files: u32) -> Self {
        self.max_open_files = files;
        self
    }
    /// Sets [`Options::min_free_space`].
    #[must_use]
    pub fn min_free_space(mut self, bytes: u64) -> Self {
        self.min_free_space = bytes;
        self
    }
    /// Sets [`Options::block_cache_bytes`].
    #[must_use]
    pub fn block_cache_bytes(mut self, bytes: u64) -> Self {
        self.block_cache_bytes = bytes;
        self
    }
    /// Sets [`Options::verify_outputs`].
    #[must_use]
    pub fn verify_outputs(mut self, yes: bool) -> Self {
        self.verify_outputs = yes;
        self
    }
    /// Sets [`Options::log_file_bytes`].
    #[must_use]
    pub fn log_file_bytes(mut self, bytes: u64) -> Self {
        self.log_file_bytes = bytes;
        self
    }
    /// Sets [`Options::log_files_kept`].
    #[must_use]
    pub fn log_files_kept(mut self, files: u32) -> Self {
        self.log_files_kept = files;
        self
    }
    /// Sets [`Options::latency_stats`].
    #[must_use]
    pub fn latency_stats(mut self, yes: bool) -> Self {
        self.latency_stats = yes;
        self
    }
    /// Sets [`Options::background_rate`].
    #[must_use]
    pub fn background_rate(mut self, bytes_per_second: Option<u64>) -> Self {
        self.background_rate = bytes_per_second;
        self
    }
    /// Sets [`Options::space_amplification`].
    #[must_use]
    pub fn space_amplification(mut self, percent: u32) -> Self {
        self.space_amplification = percent;
        self
    }
    /// Sets [`Options::scrub_interval`]; zero turns the scrub off.
    #[must_use]
    pub fn scrub_interval(mut self, interval: Duration) -> Self {
        self.scrub_interval = interval;
        self
    }
    /// Sets [`Options::default_family`].
    #[must_use]
    pub fn default_family(mut self, options: FamilyOptions) -> Self {
        self.default_family = Some(options);
        self
    }
    /// Adds a comparator to [`Options::comparators`] (see [`KeyComparator::register`]).
    ///
    /// ```
    /// # use perigee::{Db, FamilyOptions, KeyComparator, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// let short_first = |a: &[u8], b: &[u8]| a.len().cmp(&b.len()).then_with(|| a.cmp(b));
    /// // Only identical keys are equal, so a key is its own canonical form.
    /// let same = |key: &[u8]| key.to_vec();
    /// let comparator = KeyComparator::register_canonical("short-first", short_first, same)?;
    /// let db = Db::open("/doc", Options::in_env(env.clone()).register_comparator(comparator))?;
    /// let words = db.create_family("words", FamilyOptions::new().comparator(comparator))?;
    /// for word in ["neap", "ebb", "slack"] {
    ///     words.put(word, "")?;
    /// }
    /// let first = words.iter()?.next().expect("there are words")?;
    /// assert_eq!(&first.0[..], b"ebb");
    /// db.close()?;
    /// assert!(Db::open("/doc", Options::in_env(env)).is_err(), "not registered");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn register_comparator(mut self, comparator: KeyComparator) -> Self {
        self.comparators.push(comparator);
        self
    }
    /// Adds options of a column family to [`Options::families`].
    #[must_use]
    pub fn family(mut self, name: impl Into<String>, options: FamilyOptions) -> Self {
        self.families.insert(name.into(), options);
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// Options of one column family, stored with it. All but the comparator and an existing merge
/// operator can be changed while the database is open
/// ([`Family::set_options`](crate::Family::set_options)). See also `docs/OPTIONS.md`.
///
/// ```
/// # use perigee::{Compression, Db, FamilyOptions, Options};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// let options = FamilyOptions::new().compression(Compression::Zstd(3)).filter_rate(0.001);
/// let archive = db.create_family("archive", options)?;
/// assert_eq!(archive.options().filter_bits, 17);
/// // At any time: the new options apply to new files, and old files stay readable.
/// archive.set_options(archive.options().compression(Compression::Lz4).block_bytes(4096))?;
/// assert_eq!(archive.options().block_bytes, 4096);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilyOptions {
    /// The comparator, which defines the order of keys and which keys are equal (default: byte
    /// order). Fixed when the column family is created.
    pub comparator: KeyComparator,
    /// Size in bytes at which a memtable is sealed and flushed (default 64 MiB). Larger means fewer
    /// and larger files and less write amplification, but more memory and a longer recovery.
    pub memtable_bytes: u64,
    /// Length in bytes from which a value is separated: stored in a value log instead of the table
    /// (default 4096). Lower makes compactions cheaper and scans that read values more expensive.
    pub value_threshold: usize,
    /// Uncompressed size in bytes of a data block (default 4 KiB). Larger compresses better;
    /// smaller makes single reads cheaper.
    pub block_bytes: usize,
    /// Compression of new files (default [`Compression::Lz4`]).
    pub compression: Compression,
    /// Bloom filter bits per key; 0 for no filter (default 10: 1.3 % false positives).
    pub filter_bits: u8,
    /// Size in bytes at which a compaction starts a new table file (default 64 MiB).
    pub target_file_bytes: u64,
    /// Amount of data in bytes up to which there is only one level below level 0 (default 256 MiB).
    /// Larger means fewer levels to read, but more rewriting of level 1.
    pub level1_bytes: u64,
    /// Size ratio between adjacent levels (default 10). All levels above the deepest add up to
    /// about 1/(ratio-1) of it, which bounds the space of overwritten entries. A lower ratio
    /// rewrites less but keeps more of them.
    pub level_ratio: u32,
    /// Isolation level of transactions begun with [`Family::begin`](crate::Family::begin) that have
    /// none of their own (default `None`: as [`Options::isolation`]).
    pub isolation: Option<Isolation>,
    /// The merge operator (default none; see [`Family::merge`](crate::Family::merge)). It can be
    /// set on a column family that has none at any time, but not changed or removed.
    pub merge_operator: Option<MergeRule>,
}

impl FamilyOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        FamilyOptions {
            comparator: KeyComparator::Bytes,
            memtable_bytes: 64 << 20,
            value_threshold: 4096,
            block_bytes: 4 << 10,
            compression: Compression::Lz4,
            filter_bits: 10,
            target_file_bytes: 64 << 20,
            level1_bytes: 256 << 20,
            level_ratio: 10,
            isolation: None,
            merge_operator: None,
        }
    }
    /// Sets [`FamilyOptions::comparator`].
    #[must_use]
    pub fn comparator(mut self, comparator: KeyComparator) -> Self {
        self.comparator = comparator;
        self
    }
    /// Sets [`FamilyOptions::memtable_bytes`].
    #[must_use]
    pub fn memtable_bytes(mut self, bytes: u64) -> Self {
        self.memtable_bytes = bytes;
        self
    }
    /// Sets [`FamilyOptions::value_threshold`].
    #[must_use]
    pub fn value_threshold(mut self, bytes: usize) -> Self {
        self.value_threshold = bytes;
        self
    }
    /// Sets [`FamilyOptions::block_bytes`].
    #[must_use]
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }
    /// Sets [`FamilyOptions::compression`].
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }
    /// Sets [`FamilyOptions::filter_bits`].
    #[must_use]
    pub fn filter_bits(mut self, bits: u8) -> Self {
        self.filter_bits = bits;
        self
    }
    /// Sets [`FamilyOptions::filter_bits`] to the smallest number with at most this rate of false
    /// positives: 0.01 takes 11 bits per key, 0.001 takes 17; 1.0 disables the filter.
    #[must_use]
    pub fn filter_rate(mut self, rate: f64) -> Self {
        self.filter_bits = filter::bits_per_key_for_rate(rate, limits::FILTER_BITS_MAX);
        self
    }
    /// Returns the rate of false positives of the filter: the share of gets of missing keys that
    /// read a block unnecessarily.
    pub fn false_positive_rate(&self) -> f64 {
        filter::false_positive_rate(self.filter_bits)
    }
    /// Sets [`FamilyOptions::target_file_bytes`].
    #[must_use]
    pub fn target_file_bytes(mut self, bytes: u64) -> Self {
        self.target_file_bytes = bytes;
        self
    }
    /// Sets [`FamilyOptions::level1_bytes`].
    #[must_use]
    pub fn level1_bytes(mut self, bytes: u64) -> Self {
        self.level1_bytes = bytes;
        self
    }
    /// Sets [`FamilyOptions::level_ratio`].
    #[must_use]
    pub fn level_ratio(mut self, ratio: u32) -> Self {
        self.level_ratio = ratio;
        self
    }
    /// Sets [`FamilyOptions::isolation`].
    #[must_use]
    pub fn isolation(mut self, isolation: Option<Isolation>) -> Self {
        self.isolation = isolation;
        self
    }
    /// Sets [`FamilyOptions::merge_operator`].
    #[must_use]
    pub fn merge_operator(mut self, rule: MergeRule) -> Self {
        self.merge_operator = Some(rule);
        self
    }
}

impl Default for FamilyOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Options of one write.
///
/// ```
/// # use perigee::{Db, Durability, Options, WriteOptions};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// // A cache entry that a power loss may delete, in a database that is otherwise durable:
/// let quick = WriteOptions::new().durability(Durability::None);
/// db.default_family().put_with("cache", "value", quick)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Durability of this write; `None`: [`Options::durability`].
    pub durability: Option<Durability>,
}

impl WriteOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }
    /// Sets [`WriteOptions::durability`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }
}
