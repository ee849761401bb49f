//! Settings. Plain data; every one has an effect, and its doc says what it trades.

use perigee_base::KeyOrder;
use perigee_env::Env;
use std::time::Duration;

/// What an acknowledged write has survived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The log record is on stable storage: survives power loss. Concurrent writers share a sync.
    #[default]
    Full,
    /// Handed to the operating system, synced in the background at this interval: survives a crash of the
    /// process; after a power loss a prefix of the commits survives, missing at most the last interval (plus one sync).
    Interval(Duration),
    /// Handed to the operating system: survives a crash of the process; after a power loss a prefix survives.
    None,
}

/// How blocks and separated values of new files are compressed. Every block says for itself how it is stored (as it
/// is, if compression would not save an eighth), so this may change at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4: fast both ways.
    #[default]
    Lz4,
    /// LZ4 that looks for repetitions less often, by this acceleration (1 to 65537; 1 is `Lz4`, 8 compresses about three
    /// times as fast and a little less). Read like `Lz4`.
    Lz4Fast(u32),
    /// Snappy: about as fast as LZ4 and about as small.
    Snappy,
    /// Zstandard at this level (-7 to 22, not 0; 3 is usual): a quarter to a half smaller than LZ4 where there is
    /// something to find, about three times as slow to read, and slower to write the higher the level.
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
    /// Durability of writes that do not say otherwise (default [`Durability::Full`]).
    pub durability: Durability,
    /// One number for the memory of block cache, memtables, resident indexes and filters, flushes and compactions (default
    /// 0: a quarter of the memory of the control group, or of the machine). Memtables are flushed early, writers
    /// slowed and the cache shrunk to keep it; 64 KiB at least. [`crate::Stats::memory`] says who holds what.
    pub memory_budget: u64,
    /// Bytes of decompressed blocks kept in memory, at most (default: whatever the memory budget leaves).
    pub block_cache_bytes: u64,
    /// Table files open at once, about (default 0: half of what the process may have open). Fewer cost
    /// a reopening now and then; files in use are never closed.
    pub max_open_files: u64,
    /// Below this much free space on the disk writes are refused with `NoSpace`, deletes and compactions go on, and writes
    /// resume by themselves when there is room (default 16 MiB; 0 turns the guard off).
    pub min_free_space: u64,
    /// Re-read every output of a flush or compaction before it replaces its inputs (default true): costs one
    /// read of freshly written data, catches a bad disk or memory before the good copy is gone.
    pub verify_outputs: bool,
    /// Bytes per second that flushes may write and compactions may read and write (default `None`: no limit). Flushes come
    /// first: a compaction never makes a flush wait. Can be changed while open: [`crate::Db::set_background_rate`].
    pub background_rate: Option<u64>,
    /// Settings of the `default` family. On reopen, `None` keeps
    /// what is stored; `Some` is stored and used for new files.
    pub default_family: Option<FamilyOptions>,
    /// The world to run in (default: the real one).
    pub env: Env,
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Options {
            create_if_missing: true,
            error_if_exists: false,
            durability: Durability::Full,
            memory_budget: 0,
            block_cache_bytes: u64::MAX,
            max_open_files: 0,
            min_free_space: 16 << 20,
            verify_outputs: true,
            background_rate: None,
            default_family: None,
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
    /// let memory = db.stats().memory;
    /// assert_eq!(memory.budget, 64 << 20);
    /// assert!(memory.memtables > 0 && memory.total() < memory.budget);
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
    pub fn max_open_files(mut self, files: u64) -> Self {
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
    /// Sets [`Options::background_rate`].
    #[must_use]
    pub fn background_rate(mut self, bytes_per_second: Option<u64>) -> Self {
        self.background_rate = bytes_per_second;
        self
    }
    /// Sets [`Options::default_family`].
    #[must_use]
    pub fn default_family(mut self, options: FamilyOptions) -> Self {
        self.default_family = Some(options);
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// Settings of one column family, stored with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilyOptions {
    /// The order of keys (fixed for the family's life).
    pub order: KeyOrder,
    /// A memtable of this size is sealed and flushed (default 64 MiB): larger means fewer, larger files and
    /// less rewriting, more memory and a longer recovery.
    pub memtable_bytes: u64,
    /// Values of this length and up go to a value log (default 4096): lower makes compaction cheaper, scans of
    /// values dearer.
    pub value_threshold: usize,
    /// Raw bytes in a data block (default 16 KiB).
    pub block_bytes: usize,
    /// Compression of new files.
    pub compression: Compression,
    /// Bloom filter bits per key, 0 for none (default 10: 1.3 % false positives).
    pub filter_bits: u8,
    /// Size at which a table file is cut (default 64 MiB).
    pub target_file_bytes: u64,
    /// Size of level 1 (default 256 MiB).
    pub level1_bytes: u64,
    /// How much larger each deeper level is (default 10).
    pub level_ratio: u32,
}

impl FamilyOptions {
    /// The defaults.
    pub fn new() -> Self {
        FamilyOptions {
            order: KeyOrder::Bytes,
            memtable_bytes: 64 << 20,
            value_threshold: 4096,
            block_bytes: 16 << 10,
            compression: Compression::Lz4,
            filter_bits: 10,
            target_file_bytes: 64 << 20,
            level1_bytes: 256 << 20,
            level_ratio: 10,
        }
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
