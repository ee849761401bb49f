//! **Perigee**: an embedded, ordered key-value store: a log-structured merge tree (LSM) with column
//! families, atomic write batches, snapshots, iterators and transactions. It is designed never to
//! lose an acknowledged write and never to return corrupted data: everything on disk is covered by
//! checksums, which are verified when it is read from disk.
//!
//! Start with [`Db::open`], [`Options`] and [`Family`]. The [`guide`] covers transactions,
//! durability, errors, tuning, backups and async programs; the directory `examples/` contains
//! programs to start from.
//!
//! # Items by subject
//! | subject | items |
//! |---|---|
//! | opening and options | [`Db`], [`Options`], [`FamilyOptions`], [`Compression`], [`Durability`], [`DirectoryLock`], [`check_directory`], [`list_families`] |
//! | reading | [`Readable`], [`Family`], [`Slice`], [`Iter`], [`Cursor`], [`Keys`], [`Values`], [`Snapshot`], [`SnapshotFamily`], [`ValueWithTtl`] |
//! | writing | [`WriteBatch`], [`WriteOptions`], [`CompareAndSwapError`]; bulk loads: module [`load`] |
//! | transactions | [`Txn`], [`TxnOptions`], [`TxnFamily`], [`TxnHandle`], [`Isolation`], [`LockMode`], [`TwoPhaseCommit`], [`PreparedTxnInfo`]; lock waits: module [`locks`] |
//! | extensions | [`KeyComparator`], [`MergeOperator`], [`MergeRule`], [`CompactionFilter`], [`FilterDecision`], [`FilterEntry`] |
//! | history | [`History`], [`HistoryPolicy`], [`NamedSnapshot`]; change feed and commit hooks: module [`changes`] |
//! | backups and repair | [`Backups`], [`repair()`]; backup directories: module [`backup`]; reports: modules [`backup`] and [`recovery`] |
//! | maintenance and statistics | [`Admin`], [`PauseGuard`]; module [`stats`] |
//! | errors | [`Error`], [`ErrorKind`], [`Result`] |
//!
//! # Terms
//! The terms are those of LevelDB and RocksDB, with these additions:
//! - *Table*: an immutable file of sorted entries (an SST file in RocksDB), such as `000012.klog`.
//! - *Value log*: a file of values that are separated from their tables because of their length (a
//!   blob file in RocksDB), such as `000013.vlog`. Such values are called *separated*. See
//!   [`FamilyOptions::value_threshold`].
//! - *Log*: the write-ahead log, in segments such as `000011.wal`. The *info log* is the
//!   human-readable file `LOG`.
//! - *Sorted run*: tables with disjoint key ranges. Level 0 has several sorted runs, each deeper
//!   level at most one.
//! - *Immutable memtable*: a memtable that takes no more writes and waits for its flush. It was
//!   *sealed* when a new active memtable took its place.
//! - *Sequence number*: every operation (put, delete, merge, ...) has one. A commit of several
//!   operations has consecutive numbers and becomes visible as a whole. All entries of a bulk load
//!   have the same one.
//!
//! ```
//! use perigee::{Db, Options, WriteBatch};
//! # fn main() -> perigee::Result<()> {
//! # let dir = std::env::temp_dir().join(format!("perigee-doc-{}", std::process::id()));
//! # let _ = std::fs::remove_dir_all(&dir);
//! let db = Db::open(&dir, Options::new())?;
//! db.put(b"moon", b"full")?;
//! assert_eq!(db.get(b"moon")?.as_deref(), Some(&b"full"[..]));
//!
//! let tides = db.create_family("tides", Default::default())?;
//! let mut batch = WriteBatch::new();
//! batch.put(&tides, b"06:12", b"high")?;
//! batch.put(&tides, b"12:31", b"low")?;
//! batch.delete(&db.default_family(), b"moon")?;
//! db.write(batch)?; // atomic over both column families
//!
//! for entry in tides.iter()? {
//!     let (key, value) = entry?;
//!     println!("{} {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
//! }
//! db.close()?;
//! # std::fs::remove_dir_all(&dir).unwrap();
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

#[macro_use(check)]
extern crate perigee_engine;
pub mod guide;
mod options;
mod read;
mod write;
mod history;
mod backups;
mod txn;
mod db;

pub use backups::Backups;
pub use backups::repair::{repair, repair_in};
pub use db::Db;
pub use db::admin::{Admin, PauseGuard};
pub use db::directory::{DirectoryLock, StoredFamily, check_directory, list_families};
pub use db::family::Family;
pub use history::{History, NamedSnapshot};
pub use options::file::FILE_NAME as OPTIONS_FILE_NAME;
pub use options::table::OptionValue;
pub use options::write_options::WriteOptions;
pub use options::{FamilyOptions, Options};
pub use perigee_engine::callbacks::{
    CompactionFilter, FilterDecision, FilterEntry, KeyComparator, LogLevel, MergeOperator,
    MergeRule, REGISTERED_COMPARATOR,
};
pub use perigee_engine::{Compression, Durability, HistoryPolicy, Isolation};
pub use perigee_engine::{Error, ErrorKind, LockMode, Result};
// Public for the command-line tool and the benchmark, which parse their arguments with the grammar
// of the options file.
#[doc(hidden)]
pub use perigee_engine::value_syntax;
pub use read::Readable;
pub use read::iter::{Cursor, Iter, Keys, Values};
pub use read::slice::Slice;
pub use read::snapshot::{Snapshot, SnapshotFamily};
pub use txn::options::TxnOptions;
pub use txn::read_modify_write::CompareAndSwapError;
pub use txn::reads::TxnFamily;
pub use txn::two_phase::{PreparedTxnInfo, TwoPhaseCommit};
pub use txn::{Txn, TxnHandle};
pub use write::batch::WriteBatch;
pub use write::ttl::ValueWithTtl;

/// Values that are written and read in parts; see `docs/large-values.md`.
pub mod values {
    pub use crate::read::value_reader::ValueReader;
    pub use crate::txn::value_writer::ValueWriter;
}

/// Bulk loads ([`Family::bulk_load`]) and tables written outside a database, to be ingested
/// ([`Admin::ingest_many`]).
pub mod load {
    pub use crate::write::bulk_load::{BulkLoad, LoadProgress, LoadReport};
    pub use crate::write::table_writer::{TableSummary, TableWriter};
}

/// The change feed ([`History::changes`]) and commit hooks ([`Family::on_commit`]).
pub mod changes {
    pub use crate::history::change_feed::{
        ChangeFeed, ChangeKind, ChangeOperation, CommittedBatch, FamilyChange, FamilyChangeKind,
        FeedEvent,
    };
    pub use crate::history::commit_hook::{CommitEvent, CommitOperation};
}

/// Backup directories, and what checkpoints, backups and restores report ([`Db::backups`]).
pub mod backup {
    pub use crate::backups::backup_dir::BackupDir;
    pub use perigee_engine::backup::{
        BackupDamage, BackupFile, BackupInfo, BackupList, BackupOptions, BackupReport,
        BackupVerifyReport, CheckpointReport, PruneReport, RestoreReport,
    };
}

/// What an open and a repair report: work done, and data lost ([`Db::open`], [`repair()`]).
pub mod recovery {
    pub use perigee_engine::backup::{DataLoss, LostSequences, RepairReport, RepairedFamily};
    pub use perigee_engine::stats::RecoveryReport;
}

/// Statistics ([`Admin::stats`]), results of checks ([`Admin::verify`]), and estimates and
/// explanations of reads ([`Family::estimate_range`], [`Family::explain`]).
pub mod stats {
    pub use crate::read::estimate::{Cardinality, RangeCost, RangeEstimate};
    pub use crate::read::explain::{ExplainStep, ExplainedBlock, Explanation};
    pub use crate::write::ttl::ClockStatus;
    pub use perigee_engine::stats::{
        ActiveMemtableStats, BackgroundStats, CacheStats, CounterValue, FamilyStats, FileStats,
        FinishedJobStats, ImmutableMemtableStats, IoStats, JobStats, LatencyBucket, LatencyStats,
        LevelStats, MemtableStats, OpenFileStats, OwnerMemory, RawByteTotals, RowCacheStats,
        SequenceRange, StallStats, Stats, TransactionStats, VerifyReport, VlogStats, WalStats,
    };
}

/// The environment of the engine (file system, clock, random numbers, threads): the operating
/// system by default ([`Env::real`](env::Env::real)). See [`Options::env`]. With the feature `sim`,
/// the module also contains a simulated environment for tests: a disk, a clock and threads whose
/// behaviour is determined by a seed.
pub mod env {
    pub use perigee_engine::env::{
        Clock, Dir, DirLock, DirOpenMode, Env, Fs, Join, Rand, RandomAccessFile, RealClock,
        RealRand, RealSpawn, Spawn, WritableFile,
    };
    // For the C library.
    #[doc(hidden)]
    pub use perigee_engine::env::fork_count;
    #[cfg(feature = "sim")]
    pub use perigee_engine::env::{Condvar, Mutex, MutexGuard, SeededRng, sim};

    /// File systems.
    pub mod fs {
        #[cfg(feature = "sim")]
        pub use perigee_engine::env::fs::memory;
        pub use perigee_engine::env::fs::{IdleFileHolder, OpenFileLimiter, RealFs};
    }
}

/// Waits for locks, and deadlocks ([`Admin::lock_waits`], [`Admin::set_lock_listener`]).
pub mod locks {
    pub use perigee_engine::locks::{Deadlock, LockListener, LockWait};
}

/// Encryption at rest ([`Options::encryption`]).
pub mod encryption {
    pub use perigee_engine::encryption::encrypt_env;
    pub use perigee_engine::env::encryption::{
        EncryptionKey, KEY_BYTES, KeyId, KeyProvider, KeyRing,
    };
}

/// Limits on keys, values, batches and names.
pub mod limits {
    pub use perigee_engine::base_limits::*;
}

/// Returns a new simulated disk with the real clock, for examples of the documentation.
#[cfg(feature = "sim")]
#[doc(hidden)]
pub fn example_env() -> env::Env {
    env::Env { fs: env::fs::memory::SimDisk::new(1), ..env::Env::real() }
}

/// Opens an empty database on a new simulated disk, for examples of the documentation.
#[cfg(feature = "sim")]
#[doc(hidden)]
pub fn example_db() -> Result<Db> {
    Db::open("/db", Options::in_env(example_env()))
}

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles the example in the README of the package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct PackageReadme;
