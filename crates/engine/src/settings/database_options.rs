//! The table of the options of a database: an option is added by one entry here.
//!
//! An entry consists of the documentation, name, type and default of the option; its syntax in
//! options files (a type of `options::syntax` in `perigee`); the range of its value, if it
//! is limited (a function of [`crate::settings::value_limits`]); one sentence on its trade-off; and
//! the parameter name of its builder method, with more documentation of the method, if any.
//!
//! Generated from it: the fields of `Settings`, their defaults and range checks; the fields and
//! builder methods of `perigee::Options` with their documentation; and the names, values and
//! trade-offs in options files, `docs/OPTIONS.md` and the command `perigee options`.

/// Calls the macro `$generate` with `$head` and the options of a database. Types and default values
/// are resolved where the macro is called.
#[doc(hidden)]
#[macro_export]
macro_rules! database_options {
    ($generate:ident $($head:tt)*) => { $generate! { $($head)*

    /// Creates the database if it does not exist (default true).
    create_if_missing: bool = true,
        syntax Flag,
        tradeoff "Create the database at open if it does not exist; off makes a mistyped path an \
         error.",
        set(yes);

    /// Fails with `AlreadyExists` if the database exists (default false).
    error_if_exists: bool = false,
        syntax Flag,
        tradeoff "Fail the open if the database already exists.",
        set(yes);

    /// Opens without taking a lock and without changing a byte (default false). Other processes,
    /// including one that writes, can have the database open at the same time. Never creates a
    /// database. Writes fail with [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly).
    ///
    /// Shows the state of all column families at one sequence number, bulk loads and column-family
    /// changes included. It contains every write that was acknowledged before this open began, with
    /// any durability, and may contain commits that are not yet acknowledged or synced. Later
    /// writes do not appear; open again to see them.
    ///
    /// A busy writer does not disturb a reader: files that the writer deletes stay open here, and
    /// its log is read into memory.
    read_only: bool = false,
        syntax Flag,
        tradeoff "Open without a lock and without changing a byte, even while another process \
         writes: later writes are not visible.",
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
        set(yes);

    /// Opens a damaged database read-only to read what is still readable (default false). Reading a
    /// key whose block is damaged returns `Corruption`, never `None`. `perigee repair` or
    /// [`repair`](fn@crate::repair) writes a new database from the readable data.
    ///
    /// If a part of the log is lost, the keys written in it are unknown. Then `Corruption` is also
    /// returned for a key that is not found, and for a key whose newest readable version is older
    /// than the lost part and is a deletion or has expired; and every scan ends with `Corruption`.
    /// A key whose newest readable version is a *value* older than the lost part returns this
    /// value: it was acknowledged once, but a newer version or a deletion may have been lost.
    /// `reason` in [`RecoveryReport`](crate::recovery::RecoveryReport) describes the damage.
    salvage_readonly: bool = false,
        syntax Flag,
        tradeoff "Open a damaged database read-only: what is readable can be read, everything else \
         returns an error and never `not found`.",
        set(yes);

    /// Durability of writes without a durability of their own (default [`Durability::Full`]).
    durability: Durability = Durability::Full,
        syntax Text,
        tradeoff "When a write is acknowledged: `full` waits for a sync and survives a power loss; \
         `interval 100 ms` and `none` are many times faster and can lose the most recent writes in \
         a power loss (never earlier ones).",
        set(durability);

    /// Isolation level of transactions without one of their own (default [`Isolation::Snapshot`]).
    isolation: Isolation = Isolation::Snapshot,
        syntax Text,
        tradeoff "Default isolation level of transactions: `read uncommitted`, `read committed`, \
         `repeatable read`, `snapshot` or `serializable`; a stronger level means more conflicts.",
        set(isolation);

    /// Memory limit in bytes (at least 64 KiB) for the block cache, memtables, resident indexes and
    /// filters, flushes, compactions and bulk loads together. Default 0: a quarter of the memory of
    /// the cgroup or machine. To stay within it, memtables are flushed early, tables are cut
    /// smaller, writers are slowed and the cache shrinks; [`crate::stats::Stats::memory`] lists the
    /// use by owner. Not included: the program itself (a few MiB), batches under construction, and
    /// blocks pinned by iterators and [`Slice`](crate::Slice)s.
    memory_budget: u64 = 0,
        syntax SizeOrAuto, limits zero_or_at_least(64 << 10),
        tradeoff "Memory limit for cache, memtables, indexes, filters, background jobs and loads \
         together, `auto` for a quarter of the memory of the cgroup or machine: more means fewer \
         disk reads, larger memtables and tables, and less rewriting.",
        /// ```
        /// # use perigee::{Db, Options};
        /// # fn main() -> perigee::Result<()> {
        /// # use perigee::env::{Env, fs::memory::SimDisk};
        /// # let options = Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() });
        /// let options = options.memory_budget(64 << 20).max_open_files(100);
        /// let options = options.min_free_space(1 << 20);
        /// let db = Db::open("/doc", options)?;
        /// db.put("moon", "full")?;
        /// let used: u64 = db.admin().stats().memory_bytes();
        /// assert!(used > 0 && used < db.admin().stats().memory_budget);
        /// # Ok(())
        /// # }
        /// ```
        set(bytes);

    /// Maximum size in bytes of the block cache, which contains decompressed blocks (default 1 TiB:
    /// limited only by the memory budget).
    block_cache_bytes: u64 = 1 << 40,
        syntax Size,
        tradeoff "Maximum size of the block cache, within the memory budget: larger means fewer \
         disk reads.",
        set(bytes);

    /// Maximum size in bytes of the row cache, which contains results of gets by key (default 0: no
    /// row cache; at most half of the memory budget, of which it is a part). A hit takes a fraction
    /// of a get from cached blocks. Serves gets of the newest state and of snapshots; scans,
    /// multi-gets and reads of transactions bypass it. If few gets hit, most of them bypass it, too.
    ///
    /// Every write looks its key up in the row cache. Column families with a compaction filter, or
    /// with a comparator under which different bytes are the same key, are not cached; merge
    /// operands are not cached. A range delete and a bulk load discard the cached rows of the column
    /// family.
    row_cache_bytes: u64 = 0,
        syntax Size,
        tradeoff "Maximum size of the row cache, within the memory budget: faster gets of keys that \
         are read often, for memory that the block cache does not have, and slower writes.",
        /// ```
        /// # use perigee::{Db, Options};
        /// # fn main() -> perigee::Result<()> {
        /// # use perigee::env::{Env, fs::memory::SimDisk};
        /// # let options = Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() });
        /// let db = Db::open("/doc", options.memory_budget(64 << 20).row_cache_bytes(8 << 20))?;
        /// db.put("moon", "full")?;
        /// for _ in 0..3 {
        ///     assert_eq!(db.get("moon")?.as_deref(), Some(&b"full"[..]));
        /// }
        /// assert_eq!(db.admin().stats().row_cache.hits, 2);
        /// # Ok(())
        /// # }
        /// ```
        set(bytes);

    /// Approximate number of table files kept open. Default 0: half of the process's limit on open
    /// files, shared by all its databases with this default. With a lower number files are reopened
    /// more often. Files in use are never closed; idle files are also closed when the system runs
    /// out of file descriptors.
    max_open_files: u32 = 0,
        syntax Count,
        tradeoff "Table files kept open, 0 for half of the process's limit, shared by its \
         databases: fewer leave more file descriptors to the application, but files are reopened \
         more often.",
        set(files);

    /// Minimum free disk space in bytes. Below it, writes fail with `NoSpace`; deletes and
    /// compactions continue, and writes succeed again when there is more space (default 16 MiB; 0
    /// disables the check).
    min_free_space: u64 = 16 << 20,
        syntax Size,
        tradeoff "Free disk space below which only deletes are accepted: more leaves space for \
         compactions that reclaim space, 0 lets the disk fill up.",
        set(bytes);

    /// Reads every output of a flush or compaction back before it replaces its inputs (default
    /// true). Costs one read of new data; detects a faulty disk or memory while the inputs still
    /// exist.
    verify_outputs: bool = true,
        syntax Flag,
        tradeoff "Read the output of a flush or compaction back before its inputs are deleted: \
         costs one read of new data, detects a faulty disk or memory while the inputs still \
         exist.",
        set(yes);

    /// Limit in bytes per second for the writes of flushes and the reads and writes of compactions
    /// (default `None`: no limit). Flushes have priority: a compaction never delays a flush. Can be
    /// changed with [`crate::Admin::set_background_rate`].
    background_rate: Option<u64> = None,
        syntax SizeOrNone,
        tradeoff "Limit in bytes per second for the I/O of flushes and compactions, or `none`: \
         lower leaves more disk bandwidth to reads and writes, too low stalls writers.",
        set(bytes_per_second);

    /// Target for the size of tables and value logs in percent of the data visible to readers
    /// (default 150; 120 to 1000, or 0 for no target). Value logs are collected once their garbage
    /// exceeds half of what the target allows. If keys are overwritten or deleted faster than
    /// compaction removes old versions, writers are slowed gradually, starting halfway to the
    /// target; they are never stopped. A lower target costs write throughput, because entries are
    /// rewritten more often. Writers of new keys are not slowed. Versions kept for snapshots and
    /// iterators do not count.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// let db = Db::open("/doc", Options::in_env(env).space_amplification(130))?;
    /// assert!(db.admin().stats().stalls.iter().all(|s| s.reason != "space"));
    /// # Ok(())
    /// # }
    /// ```
    space_amplification: u32 = 150,
        syntax Count, limits zero_or_percent(120..=1000),
        tradeoff "Target size of tables and value logs in percent of the data visible to \
         readers, 0 for no target: lower takes less space, but slows writers that overwrite keys faster than \
         compaction keeps up.",
        set(percent);

    /// Period in which the background scrub reads and verifies every table and value log once
    /// (default 7 days; zero disables it). The scrub counts against [`Options::background_rate`],
    /// gives way to flushes and compactions, stops while background work is paused or cancelled,
    /// and catches up at no more than 200 MiB/s. Damage does not stop the database: it is reported
    /// in [`crate::stats::Stats::scrub_errors`], the info log and the counter `scrub_errors`. After
    /// an open the scrub starts at a random file. Log and manifest are not scrubbed: every open
    /// reads them completely.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # use std::time::Duration;
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// let daily = Options::in_env(env).scrub_interval(Duration::from_secs(24 * 3600));
    /// let db = Db::open("/doc", daily)?;
    /// assert!(db.admin().stats().scrub_errors.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    scrub_interval: Duration = Duration::from_secs(7 * 24 * 3600),
        syntax Time,
        tradeoff "Period in which the background scrub verifies every table and value log once, 0 \
         for never: shorter finds damage sooner and reads more.",
        set(interval);

    /// Bytes of log kept for [`History::changes`](crate::History::changes) beyond what recovery
    /// needs (default 0): how far a consumer may fall behind. The newest segments that fit are kept
    /// as a whole; a segment is about as large as a memtable. With 0, log that recovery no longer
    /// needs is deleted after each flush.
    log_retention: u64 = 0,
        syntax Size,
        tradeoff "Log kept for `History::changes` beyond what recovery needs: more lets a consumer \
         fall further behind, and takes disk space.",
        set(bytes);

    /// How far back old versions are kept for [`History::snapshot_at`](crate::History::snapshot_at)
    /// (default: not at all). Applies to versions written or overwritten while the option is set.
    history: HistoryPolicy = HistoryPolicy::None,
        syntax Text,
        tradeoff "How far back old versions are kept, `none`, `1000 operations` or `10 min`: more \
         lets snapshots read further back, and costs disk space and compaction work.",
        /// ```
        /// # use perigee::{Db, HistoryPolicy, Options};
        /// # fn main() -> perigee::Result<()> {
        /// # use perigee::env::{Env, fs::memory::SimDisk};
        /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
        /// let options = Options::in_env(env).history(HistoryPolicy::Operations(1000));
        /// let db = Db::open("/doc", options)?;
        /// db.put("moon", "new")?;
        /// db.put("moon", "full")?;
        /// db.admin().compact()?; // without history, this drops the older version
        /// let then = db.history().snapshot_at(1)?;
        /// assert_eq!(then.get(&db.default_family(), "moon")?.as_deref(), Some(&b"new"[..]));
        /// # Ok(())
        /// # }
        /// ```
        set(history);

    /// Measures the latency of operations (default true). Short operations are sampled, which costs
    /// less than 1 ns each.
    latency_stats: bool = true,
        syntax Flag,
        tradeoff "Measure the latency of operations; short ones are sampled, which costs less than \
         1 ns each.",
        set(yes);

    /// Size in bytes at which the info log (`LOG` in the database directory) is rotated (default 1
    /// MiB; 0: no info log).
    log_file_bytes: u64 = 1 << 20,
        syntax Size,
        tradeoff "Size at which the info log `LOG` is rotated, 0 for no info log: larger keeps \
         more history.",
        set(bytes);

    /// Number of rotated info logs (`LOG.1`, ...) to keep (default 4).
    log_files_kept: u32 = 4,
        syntax Count,
        tradeoff "Number of rotated info logs to keep: more keep more history.",
        set(files);
    } };
}
