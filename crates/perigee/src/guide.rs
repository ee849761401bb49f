//! Guide: transactions, durability, error handling, tuning, backups, and use in async programs.
//!
//! This module contains no items.
//!
//! - [Reading and writing](#reading-and-writing)
//! - [Transactions](#transactions)
//! - [Durability](#durability)
//! - [Handling errors](#handling-errors)
//! - [Memory and tuning](#memory-and-tuning)
//! - [Backups](#backups)
//! - [Async programs](#async-programs)
//!
//! # Reading and writing
//! A database consists of column families, each a sorted map from keys to values. [`Db`] has
//! methods for the column family `default`; [`Family`](crate::Family) has the same methods, and
//! more, for any column family. A [`WriteBatch`](crate::WriteBatch) changes several column families
//! atomically. The trait [`Readable`](crate::Readable) is implemented by everything that can be
//! read: the database, a column family, a snapshot and a transaction.
//!
//! ```
//! use perigee::{Db, Options, Readable};
//!
//! /// Counts the keys with a prefix, now, as of a snapshot, or in a transaction.
//! fn count(source: &impl Readable, prefix: &str) -> perigee::Result<usize> {
//!     let mut entries = 0;
//!     for entry in source.prefix(prefix)? {
//!         entry?;
//!         entries += 1;
//!     }
//!     Ok(entries)
//! }
//! # fn main() -> perigee::Result<()> {
//! # use perigee::env::{Env, fs::memory::SimDisk};
//! # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
//! let tides = db.family_or_create("tides", Default::default())?;
//! tides.put("2026-11-22 06:12", "high")?;
//! let yesterday = db.snapshot()?;
//! tides.put("2026-11-23 07:01", "high")?;
//! assert_eq!(count(&tides, "2026-11")?, 2);
//! assert_eq!(count(&yesterday.family(&tides), "2026-11")?, 1);
//! # Ok(())
//! # }
//! ```
//!
//! A value returned by `get` is copied; [`Family::get_pinned`](crate::Family::get_pinned) returns a
//! [`Slice`](crate::Slice) that refers to the block cache or the memtable instead, and keeps that
//! memory in use until it is dropped.
//!
//! # Transactions
//! [`Db::write_txn`] runs a closure in a transaction, commits, and runs it again if another commit
//! came first. The closure may return the program's own error type.
//!
//! ```
//! use perigee::{Db, Options, TxnOptions};
//!
//! #[derive(Debug)]
//! enum TransferError {
//!     Insufficient,
//!     Storage(perigee::Error),
//! }
//! impl From<perigee::Error> for TransferError {
//!     fn from(e: perigee::Error) -> Self {
//!         TransferError::Storage(e)
//!     }
//! }
//! fn transfer(db: &Db, from: &str, to: &str, amount: u64) -> Result<(), TransferError> {
//!     let accounts = db.family("accounts")?;
//!     db.write_txn(TxnOptions::new(), |txn| {
//!         let read = |key: &str| -> perigee::Result<u64> {
//!             let value = txn.get(&accounts, key)?;
//!             Ok(value.map_or(0, |v| u64::from_be_bytes(v.try_into().expect("8 bytes"))))
//!         };
//!         let (a, b) = (read(from)?, read(to)?);
//!         let rest = a.checked_sub(amount).ok_or(TransferError::Insufficient)?;
//!         txn.put(&accounts, from, rest.to_be_bytes())?;
//!         txn.put(&accounts, to, (b + amount).to_be_bytes())?;
//!         Ok(())
//!     })
//! }
//! # fn main() -> perigee::Result<()> {
//! # use perigee::env::{Env, fs::memory::SimDisk};
//! # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
//! let accounts = db.family_or_create("accounts", Default::default())?;
//! accounts.put("ada", 100u64.to_be_bytes())?;
//! transfer(&db, "ada", "bob", 30).expect("ada has 100");
//! assert_eq!(accounts.get("bob")?.as_deref(), Some(&30u64.to_be_bytes()[..]));
//! assert!(matches!(transfer(&db, "bob", "ada", 31), Err(TransferError::Insufficient)));
//! # Ok(())
//! # }
//! ```
//!
//! The default isolation level is snapshot: all reads see the state at the beginning, and of two
//! transactions that write the same key the first to commit wins. An invariant over several keys,
//! of which each transaction writes only some, needs
//! [`Isolation::Serializable`](crate::Isolation::Serializable), or
//! [`Txn::get_for_update`](crate::Txn::get_for_update) for the keys that are only read. Where many
//! threads change the same few keys, [`TxnOptions::pessimistic`](crate::TxnOptions::pessimistic)
//! makes them wait for each other instead of failing at the commit. For a single key,
//! [`Family::compare_and_swap`](crate::Family::compare_and_swap),
//! [`Family::update`](crate::Family::update) and [`Family::take`](crate::Family::take) are shorter;
//! a counter that many threads increment is fastest as a merge operator
//! ([`MergeRule::Counter`](crate::MergeRule::Counter)).
//!
//! # Durability
//! A write with [`Durability::Full`](crate::Durability::Full), the default, is on stable storage
//! when it returns. Writers that commit at the same time share one sync, so throughput grows with
//! the number of threads; a single thread commits as often as the disk can sync. Larger batches, or
//! [`Durability::Interval`](crate::Durability::Interval), are faster. In every durability mode,
//! acknowledged writes survive a crash of the process, and after a power failure the database
//! contains a prefix of the commits, never a part of a batch. [`Db::sync`] makes everything written
//! so far durable.
//!
//! ```
//! # use perigee::{Db, Durability, Options, WriteBatch, WriteOptions};
//! # use std::time::Duration;
//! # fn main() -> perigee::Result<()> {
//! # use perigee::env::{Env, fs::memory::SimDisk};
//! # let env = Env { fs: SimDisk::new(1), ..Env::real() };
//! # let options = Options::in_env(env);
//! let options = options.durability(Durability::Interval(Duration::from_millis(100)));
//! # let db = Db::open("/doc", options)?;
//! let mut payment = WriteBatch::new();
//! payment.put_default("invoice 17", "paid")?;
//! db.write_with(payment, WriteOptions::new().durability(Durability::Full))?; // this one at once
//! # Ok(())
//! # }
//! ```
//!
//! # Handling errors
//! [`Error::kind`](crate::Error::kind) says what a program can do:
//!
//! | kind | meaning | what to do |
//! |---|---|---|
//! | `Conflict` | another commit came first; nothing was applied | run the whole transaction again ([`Db::write_txn`] does) |
//! | `Busy` | a lock or another operation is in the way | try again later |
//! | `NoSpace` | the disk is full; nothing was applied | free space: writes then succeed again, without a reopen |
//! | `OutcomeUnknown` | the write may or may not survive | reopen the database and read what is there |
//! | `Poisoned` | an earlier failure of unknown extent stopped all writes; reads go on | reopen the database |
//! | `Corruption` | stored bytes are damaged; the message names file and offset | `perigee verify`, restore a backup or `perigee repair` |
//! | `Locked` | the database is already open for writing, in another process or in this one | close it there, or open with [`Options::read_only`](crate::Options::read_only) |
//! | `Aborted` | the transaction exceeded its time limit, or another thread aborted it | begin a new one |
//! | `Interrupted` | another thread ended the wait for a lock; the transaction goes on | what that thread wants, usually to end the transaction |
//! | `Io`, `NoMemory` | a system call or a large allocation failed; nothing was applied | remove the cause, then try again |
//! | `FormatTooNew` | a newer version wrote the database, or one with a codec that this build lacks; nothing was changed | use that version, or enable the feature that the message names |
//! | `InvalidArgument`, `NotFound`, `AlreadyExists`, `ReadOnly`, `Closed` | the call does not fit the state of the database | change the call |
//! | `Internal` | a bug in the engine | report it |
//!
//! A damaged byte is reported as `Corruption`; it is never returned as data, and never makes a key
//! look missing.
//!
//! # Memory and tuning
//! One option matters: [`Options::memory_budget`](crate::Options::memory_budget), by default a
//! quarter of the memory of the machine or cgroup. It covers the block cache, memtables, indexes,
//! filters, flushes, compactions and bulk loads. Other options, for special cases:
//! - values of several kilobytes that are rarely read in scans:
//!   [`FamilyOptions::value_threshold`](crate::FamilyOptions::value_threshold);
//! - data that compresses well and is read rarely:
//!   [`Compression::Zstd`](crate::Compression::Zstd);
//! - an initial load of sorted or unsorted data: [`Family::bulk_load`](crate::Family::bulk_load)
//!   writes tables directly, without the log;
//! - background I/O that disturbs other programs:
//!   [`Options::background_rate`](crate::Options::background_rate).
//!
//! `docs/OPTIONS.md` in the repository lists every option with its trade-off.
//! [`Admin::stats`](crate::Admin::stats) and [`Admin::metrics`](crate::Admin::metrics) (OpenMetrics
//! text) show what the engine does; [`Family::explain`](crate::Family::explain) shows which
//! memtables, filters and blocks a get of one key reads, with the cost of each.
//!
//! # Backups
//! [`Backups::checkpoint`](crate::Backups::checkpoint) creates a second database from hard links in
//! milliseconds, on the same file system. [`Backups::create`](crate::Backups::create) writes an
//! incremental backup to any directory; [`BackupDir`](crate::backup::BackupDir) lists, verifies,
//! restores and prunes its generations. Both run while the database is in use. Never copy the files
//! of an open database by other means.
//!
//! # Async programs
//! All calls block. Gets of cached entries take about a microsecond and may be called directly from
//! an async task; calls that may wait for the disk (commits with `Durability::Full`, reads of data
//! that is not cached, scans) belong on a blocking thread. [`Db`] and [`Family`](crate::Family) are
//! cheap to clone and can be moved there:
//!
//! ```ignore
//! let (db, key) = (db.clone(), key.to_owned());
//! let value = tokio::task::spawn_blocking(move || db.get(key)).await??;
//! ```
//!
//! The crate [`perigeedb-tokio`](https://docs.rs/perigeedb-tokio) does that for all calls, and
//! makes streams of ranges.
//!
//! A [`Txn`](crate::Txn), a [`Cursor`](crate::Cursor) and an [`Iter`](crate::Iter) are `Send`: they
//! can be moved to a blocking thread, but a transaction that stays open across slow awaits retains
//! old versions and may conflict; give it a [`TxnOptions::timeout`](crate::TxnOptions::timeout).
//!
//! [`Db`]: crate::Db
//! [`Db::write_txn`]: crate::Db::write_txn
//! [`Db::sync`]: crate::Db::sync
