//! Settings. Plain data; every one has an effect, and its doc says what it trades.

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

/// What an acknowledged write has survived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The log record is on stable storage: survives power loss. Concurrent writers share a sync.
    #[default]
    Full,
    /// Handed to the operating system, synced in the background at this interval: survives a crash
    /// of the process; after a power loss a prefix of the commits survives, missing at most the
    /// last interval (plus one sync).
    Interval(Duration),
    /// Handed to the operating system: survives a crash of the process; after a power loss a prefix
    /// survives.
    None,
}

/// How blocks and separated values of new files are compressed. Every block says for itself how it
/// is stored (as it is, if compression would not save an eighth), so this may change at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4: fast both ways. Where data is regular (counters, repeated records: LZ4 leaves a quarter
    /// of it or less, and Zstandard half of that or so), blocks are two and a half times as large
    /// and under Zstandard: such tables are half as large, and a read that misses the cache costs
    /// about two microseconds more.
    #[default]
    Lz4,
    /// LZ4 and nothing else, which looks for repetitions less often, by this acceleration (1 to
    /// 65537; 1 as often as `Lz4`, 8 compresses about three times as fast and a little less). Read
    /// like `Lz4`.
    Lz4Fast(u32),
    /// Snappy: about as fast as LZ4 and about as small.
    Snappy,
    /// Zstandard at this level (-7 to 22, not 0; 3 is usual): a quarter to a half smaller than LZ4
    /// where there is something to find, about three times as slow to read, and slower to write the
    /// higher the level.
    Zstd(i32),
}

/// Settings of a database. `Options::new()` is what we would use.
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
    /// Create the database if there is none (default true).
    pub create_if_missing: bool,
    /// Refuse to open if there is one already (default false).
    pub error_if_exists: bool,
    /// Open without changing a byte and without a lock, also beside the process that writes
    /// (default false).
    ///
    /// Shows the state after a prefix of the commit order: everything up to one sequence number,
    /// over all column families, bulk loads and column-family changes included. The prefix is not
    /// shorter than what was acknowledged before this open began, whatever the durability; it may
    /// hold commits that are not yet acknowledged or synced. Later writes are not seen.
    ///
    /// Safe beside a writer, however busy: files that it removes are held open, its log is read
    /// into memory and never cut. Writes fail with
    /// [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly). Never creates a database.
    pub read_only: bool,
    /// Read-only, and for a database too damaged to open: whatever can be read is; a key whose
    /// place cannot be read answers `Corruption`, never "not there" (default false). `perigee
    /// repair` makes a new database of it.
    ///
    /// If part of the log is lost, the keys that were written there are unknown. Then `Corruption`
    /// is also the answer for every key that is not found, or whose newest readable version is a
    /// deletion (of any kind) or has expired and is older than the last lost part; and it is the
    /// end of every scan. A key whose newest readable version is a *value* older than the lost part
    /// is answered with that value, although a newer one or a deletion may have been lost: the
    /// value was once acknowledged, and `reason` in [`RecoveryReport`](crate::RecoveryReport) names
    /// the damage.
    pub salvage_readonly: bool,
    /// Durability of writes that do not say otherwise (default [`Durability::Full`]).
    pub durability: Durability,
    /// What transactions are protected from that do not say otherwise (default
    /// [`Isolation::Snapshot`]).
    pub isolation: Isolation,
    /// One number for the memory of block cache, memtables, resident indexes and filters, flushes,
    /// compactions and loads (default 0: a quarter of the memory of the control group, or of the
    /// machine). Memtables are flushed early, tables cut small, writers slowed and the cache shrunk
    /// to keep it; 64 KiB at least. [`crate::Stats::memory`] says who holds what. What the process
    /// has beyond it: the program (a few MiB), batches that are being built, and blocks that
    /// iterators and `Slice`s hold.
    pub memory_budget: u64,
    /// Bytes of decompressed blocks kept in memory, at most (default 1 TiB: whatever the memory
    /// budget leaves).
    pub block_cache_bytes: u64,
    /// Table files open at once, about (default 0: all databases of the process that say so share
    /// half of what it may have open). Fewer cost a reopening now and then; files in use are never
    /// closed. Whatever is said here, files that are idle are closed where the system has no more
    /// of them. [`Db::close`](crate::Db::close) closes all.
    pub max_open_files: u32,
    /// Below this much free space on the disk writes are refused with `NoSpace`, deletes and
    /// compactions go on, and writes resume by themselves when there is room (default 16 MiB; 0
    /// turns the guard off).
    pub min_free_space: u64,
    /// Re-read every output of a flush or compaction before it replaces its inputs (default true):
    /// costs one read of freshly written data, catches a bad disk or memory before the good copy is
    /// gone.
    pub verify_outputs: bool,
    /// Bytes per second that flushes may write and compactions may read and write (default `None`:
    /// no limit). Flushes come first: a compaction never makes a flush wait. Can be changed while
    /// open: [`crate::Db::set_background_rate`].
    pub background_rate: Option<u64>,
    /// Tables may take up so many percent of what readers see of them, about, when keys are
    /// overwritten or deleted faster than compaction can take away what is hidden: from half of the
    /// way on writers are slowed, smoothly, never stopped (default 150; 120 to 1000, or 0: writers
    /// go on). Less space costs writers time, since every entry is then rewritten more often.
    /// Writers of new keys never meet it. What snapshots and iterators keep alive is not counted.
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
    /// Every table and value log is read and checked once in so much time, slowly, in the
    /// background (default 7 days; zero: never). It keeps within [`Options::background_rate`],
    /// makes way for flushes and compactions, rests while background work is paused or cancelled,
    /// and a pass that is late is made up for at no more than 200 MiB a second. Damage stops
    /// nothing: it is in [`crate::Stats::scrub_errors`], in `LOG` and in the counter
    /// `scrub_errors`. A pass begins anew, at a random file, when the database is opened. Log and
    /// manifest are read whole at every open, and not by the scrub.
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
    /// Bytes of the log that stay for [`Db::changes`](crate::Db::changes), behind what recovery
    /// needs: so far may a consumer lag, or be away (default 0: only what recovery needs, which a
    /// flush takes away). Whole segments of about a memtable each, the newest that fit.
    pub log_retention: u64,
    /// How far back every version is kept (default: not at all). Only what is written while it is
    /// kept can be read again.
    pub history: History,
    /// Measure how long operations take (default true); short ones are sampled, which costs less
    /// than a nanosecond each.
    pub latency_stats: bool,
    /// Size of the file `LOG` in the database directory, which tells people what happens (default 1
    /// MiB); 0: none is written.
    pub log_file_bytes: u64,
    /// How many older ones (`LOG.1`, ...) are kept (default 4).
    pub log_files_kept: u32,
    /// Settings of the `default` family. On reopen, `None` keeps
    /// what is stored; `Some` is stored and used for new files.
    pub default_family: Option<FamilyOptions>,
    /// Settings of other families, by name. On open those that exist are compared: what may differ
    /// is stored and used for new files (see `stats().recovery.changed_options`), what may not (the
    /// key order) is refused; those that do not exist are created. Families not named here keep
    /// what is stored.
    pub families: BTreeMap<String, FamilyOptions>,
    /// The users' key orders that families of this database have or may get: a stored one that is
    /// not here refuses the open.
    pub comparators: Vec<KeyComparator>,
    /// Set by [`Options::register_merge_operator`].
    pub(crate) merge_operators: MergeOperators,
    /// Set by [`Options::compaction_filter`].
    pub(crate) compaction_filters: CompactionFilters,
    pub(crate) listener: Option<LogListener>,
    /// The world to run in (default: the real one).
    pub env: Env,
}

impl Options {
    /// The defaults.
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
    /// The defaults in another world (see `perigee::env`).
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
    /// let db = Db::open("/doc", options.memory_budget(64 << 20).max_open_files(100).min_free_space(1 << 20))?;
    /// db.put("moon", "full")?;
    /// let held: u64 = db.stats().memory.iter().map(|(_owner, bytes)| bytes).sum();
    /// assert!(held > 0 && held < db.stats().memory_budget);
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
    /// Adds to [`Options::orders`] (see [`KeyComparator::register`]).
    ///
    /// ```
    /// # use perigee::{Db, FamilyOptions, KeyComparator, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// let short_first = |a: &[u8], b: &[u8]| a.len().cmp(&b.len()).then_with(|| a.cmp(b));
    /// // Only identical keys are equal, so a key is its own canonical form.
    /// let order = KeyComparator::register_canonical("short-first", short_first, |key| key.to_vec())?;
    /// let db = Db::open("/doc", Options::in_env(env.clone()).register_comparator(order))?;
    /// let words = db.create_family("words", FamilyOptions::new().order(order))?;
    /// for word in ["neap", "ebb", "slack"] {
    ///     words.put(word, "")?;
    /// }
    /// let first = words.iter()?.next().expect("there are words")?;
    /// assert_eq!(&first.0[..], b"ebb");
    /// db.close()?;
    /// assert!(Db::open("/doc", Options::in_env(env)).is_err(), "without its order it is not opened");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn register_comparator(mut self, order: KeyComparator) -> Self {
        self.comparators.push(order);
        self
    }
    /// Adds to [`Options::families`].
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

/// Settings of one column family, stored with it.
///
/// ```
/// # use perigee::{Compression, Db, FamilyOptions, Options};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// let options = FamilyOptions::new().compression(Compression::Zstd(3)).filter_rate(0.001);
/// let archive = db.create_family("archive", options)?;
/// assert_eq!(archive.options().filter_bits, 17);
/// // Later, while it is in use: new files are written so, old ones stay readable as they are.
/// archive.set_options(archive.options().compression(Compression::Lz4).block_bytes(4096))?;
/// assert_eq!(archive.options().block_bytes, 4096);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilyOptions {
    /// The order of keys: fixed for the family's life; everything else may change at any time
    /// ([`Family::set_options`](crate::Family::set_options)).
    pub order: KeyComparator,
    /// A memtable of this size is sealed and flushed (default 64 MiB): larger means fewer, larger
    /// files and less rewriting, more memory and a longer recovery.
    pub memtable_bytes: u64,
    /// Values of this length and up go to a value log (default 4096): lower makes compaction
    /// cheaper, scans of values dearer.
    pub value_threshold: usize,
    /// Raw bytes in a data block (default 4 KiB).
    pub block_bytes: usize,
    /// Compression of new files.
    pub compression: Compression,
    /// Bloom filter bits per key, 0 for none (default 10: 1.3 % false positives).
    pub filter_bits: u8,
    /// Size at which a table file is cut (default 64 MiB).
    pub target_file_bytes: u64,
    /// Up to this much data there is one level below level 0 (default 256 MiB): fewer levels to
    /// look into, against rewriting all of it more often.
    pub level1_bytes: u64,
    /// How much larger each deeper level is (default 10): all levels above the last add up to about
    /// 1/(ratio-1) of it, which is the space that overwritten entries may take; a lower ratio
    /// writes less and keeps more of them.
    pub level_ratio: u32,
    /// What transactions that are begun by [`Family::begin`](crate::Family::begin) are protected
    /// from if they do not say (default: none, as [`Options::isolation`]).
    pub isolation: Option<Isolation>,
    /// How operands are merged into values ([`Family::merge`](crate::Family::merge); default: not
    /// at all). A family that has none may get one at any time; then it stays.
    pub merge_operator: Option<MergeRule>,
}

impl FamilyOptions {
    /// The defaults.
    pub fn new() -> Self {
        FamilyOptions {
            order: KeyComparator::Bytes,
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
    /// Sets [`FamilyOptions::order`].
    #[must_use]
    pub fn order(mut self, order: KeyComparator) -> Self {
        self.order = order;
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
    /// Sets [`FamilyOptions::filter_bits`] to the fewest that answer at most this share of absent
    /// keys with "perhaps": 0.01 takes 11 bits a key, 0.001 takes 17; 1.0 is no filter.
    #[must_use]
    pub fn filter_rate(mut self, rate: f64) -> Self {
        self.filter_bits = filter::bits_per_key_for_rate(rate, limits::FILTER_BITS_MAX);
        self
    }
    /// The share of absent keys that the filters answer with "perhaps", and so cost a block read.
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

/// Settings of one write.
///
/// ```
/// # use perigee::{Db, Durability, Options, WriteOptions};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// // A cache entry that may be lost at a power cut, in a database that is durable otherwise:
/// let quick = WriteOptions::new().durability(Durability::None);
/// db.default_family().put_with("cache", "value", quick)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Durability of this write (default: the database's).
    pub durability: Option<Durability>,
}

impl WriteOptions {
    /// The defaults.
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
