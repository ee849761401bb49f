//! **Perigee**: an embedded, ordered key-value store: a log-structured merge tree (LSM) with column
//! families, atomic write batches, snapshots, iterators and transactions. It is designed never to
//! lose an acknowledged write and never to return corrupted data: everything on disk is covered by
//! checksums, which are verified when it is read from disk.
//!
//! Start with [`Db::open`], [`Options`] and [`Family`]. Errors carry an [`ErrorKind`] that says
//! what the caller can do.
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
//! - *Sealed memtable*: a memtable that is full and waits for its flush (an immutable memtable in
//!   RocksDB).
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

mod history;
mod txn_options;
mod options;
// Public for the command-line tool and the benchmark, which parse their arguments with the grammar
// of the options file.
#[doc(hidden)]
pub mod value_syntax;
mod callbacks;
mod option_table;
mod batch;
mod slice;
mod stats;
mod json;
mod backup_reports;
mod translate;
mod options_file;
mod iter;
mod family;
mod snapshot;
mod db;
mod backups;
mod repair;
mod ttl;
mod range_delete;
mod maintenance;
mod metrics;
mod explain;
mod multi_get;
mod estimate;
mod bulk_load;
mod table_writer;
mod commit_hook;
mod txn;
mod merge;
mod change_feed;
mod snapshot_history;
mod two_phase;

pub use backup_reports::{
    BackupFile, BackupInfo, BackupOptions, BackupReport, BackupVerifyReport, CheckpointReport,
    PruneReport, RestoreReport,
};
pub use backups::Backups;
pub use batch::WriteBatch;
pub use bulk_load::{BulkLoad, LoadProgress, LoadReport};
pub use change_feed::{
    Change, ChangeKind, ChangeOperation, Changes, Commit, FamilyChange, FamilyChangeKind,
};
pub use commit_hook::{CommitEvent, CommitOperation};
pub use db::{Db, DirectoryLock};
pub use estimate::{Cardinality, RangeCost, RangeEstimate};
pub use explain::{ExplainStep, Explanation};
pub use family::Family;
pub use history::History;
pub use iter::{Cursor, Iter};
pub use maintenance::Pause;
pub use option_table::OptionValue;
pub use options::{Compression, Durability, FamilyOptions, Options, WriteOptions};
pub use options_file::FILE_NAME as OPTIONS_FILE_NAME;
pub use perigee_base::comparator::REGISTERED_COMPARATOR;
pub use perigee_base::{Error, ErrorKind, KeyComparator, MergeOperator, MergeRule, Result};
pub use perigee_engine::locks::LockMode;
pub use perigee_engine::log_listener::LogLevel;
pub use perigee_tree::rewrite::{CompactionFilter, FilterDecision, FilterEntry};
pub use repair::{DataLoss, RepairReport, repair, repair_in};
pub use slice::Slice;
pub use snapshot::Snapshot;
pub use stats::{
    BackgroundStats, CacheStats, FamilyStats, FileStats, IoStats, JobStats, LatencyStats,
    LevelStats, MemtableStats, RecoveryReport, StallStats, Stats, TransactionStats, VerifyReport,
};
pub use table_writer::{TableSummary, TableWriter};
pub use ttl::{ClockStatus, ValueWithTtl};
pub use two_phase::PreparedTxnInfo;
pub use txn::{Txn, TxnHandle};
pub use txn_options::{Isolation, TxnOptions};

/// The environment of the engine (file system, clock, random numbers): the operating system by
/// default, simulated in tests. See [`Options::env`].
pub mod env {
    pub use perigee_env::*;
}

/// Limits on keys, values, batches and names.
pub mod limits {
    pub use perigee_base::limits::*;
}

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
