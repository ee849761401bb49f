//! The change feed: every commit and column-family change, in commit order, from a given position.

use crate::commit_hook::cut_to_bound;
use crate::{Db, Result};
use perigee_base::pinned_slice::BytesPreview;
use perigee_base::{SeqNo, ValueRef};
use perigee_engine::Engine;
use perigee_engine::change_feed::{self, ChangeFeed, FeedItem};
use perigee_engine::manifest::{FamilyEvent, FamilyEventKind};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// One item of a change feed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Change {
    /// A commit with all its operations.
    Commit(Commit),
    /// A column family was created, dropped, renamed, cleared, cloned or bulk-loaded.
    Family(FamilyChange),
}

impl Change {
    /// Returns its sequence number; for a commit, that of its last operation. Sequence numbers of
    /// changes are unique: a bulk load of several column families appears as one change per column
    /// family, with consecutive numbers.
    pub fn sequence(&self) -> u64 {
        match self {
            Change::Commit(commit) => commit.sequence(),
            Change::Family(change) => change.sequence,
        }
    }
}

/// One commit with its operations on all column families.
pub struct Commit(change_feed::FeedCommit);

/// Prints the sequence numbers and the number of operations, not the operations.
impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last, count) =
            (self.first_sequence(), self.sequence(), self.0.operations().len());
        write!(f, "Commit({first} to {last}, {count} operations)")
    }
}

/// One operation of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeOperation<'a> {
    /// Sequence number of the operation.
    pub sequence: u64,
    /// Id of the column family.
    pub family: u32,
    /// Name of the column family at the time of the commit.
    pub family_name: &'a str,
    /// The operation.
    pub kind: ChangeKind<'a>,
}

/// An operation with its key and value.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind<'a> {
    /// Sets a key.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// Expiry time in milliseconds since the Unix epoch; `None`: never expires.
        expires_ms: Option<u64>,
    },
    /// Deletes a key.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Deletes a key that was put at most once ([`crate::Family::single_delete`]).
    SingleDelete {
        /// The key.
        key: &'a [u8],
    },
    /// Merges an operand into the value of a key ([`crate::MergeOperator`]).
    Merge {
        /// The key.
        key: &'a [u8],
        /// The operand.
        operand: &'a [u8],
    },
    /// Deletes a range of keys.
    DeleteRange {
        /// Start of the range.
        start: Bound<&'a [u8]>,
        /// End of the range.
        end: Bound<&'a [u8]>,
    },
}

/// Prints only the first bytes of keys and values.
impl fmt::Debug for ChangeKind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ChangeKind::Put { key, value, expires_ms: None } => {
                write!(f, "Put({:?}, {:?})", BytesPreview(key), BytesPreview(value))
            }
            ChangeKind::Put { key, value, expires_ms: Some(ms) } => {
                write!(f, "Put({:?}, {:?}, until {ms} ms)", BytesPreview(key), BytesPreview(value))
            }
            ChangeKind::Delete { key } => write!(f, "Delete({:?})", BytesPreview(key)),
            ChangeKind::SingleDelete { key } => write!(f, "SingleDelete({:?})", BytesPreview(key)),
            ChangeKind::Merge { key, operand } => {
                write!(f, "Merge({:?}, {:?})", BytesPreview(key), BytesPreview(operand))
            }
            ChangeKind::DeleteRange { start, end } => {
                write!(f, "DeleteRange({:?}, {:?})", start.map(BytesPreview), end.map(BytesPreview))
            }
        }
    }
}

impl Commit {
    /// Returns the sequence number of its last operation.
    pub fn sequence(&self) -> u64 {
        self.0.seq_range().1.0
    }
    /// Returns the sequence number of its first operation.
    pub fn first_sequence(&self) -> u64 {
        self.0.seq_range().0.0
    }
    /// Returns the operations in the order of the batch.
    pub fn operations(&self) -> impl Iterator<Item = ChangeOperation<'_>> {
        let buf = self.0.payload();
        self.0.operations().iter().map(move |(op, seq)| {
            let key = &buf[op.key.clone()];
            let kind = match (op.deleted_range_in(buf), op.value_in(buf)) {
                (Some((begin, end)), _) => ChangeKind::DeleteRange {
                    start: cut_to_bound(begin, true),
                    end: cut_to_bound(end, false),
                },
                (None, Ok(ValueRef::Inline(value))) => {
                    ChangeKind::Put { key, value, expires_ms: None }
                }
                (None, Ok(ValueRef::InlineExpiring(value, expiry))) => {
                    ChangeKind::Put { key, value, expires_ms: Some(expiry.0) }
                }
                (None, Ok(ValueRef::Operand(operand))) => ChangeKind::Merge { key, operand },
                (None, Ok(ValueRef::SingleDelete)) => ChangeKind::SingleDelete { key },
                (None, _) => ChangeKind::Delete { key },
            };
            ChangeOperation {
                sequence: seq.0,
                family: op.family.0,
                family_name: self.0.family_name(op.family),
                kind,
            }
        })
    }
}

/// A change of a column family that is not a list of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyChange {
    /// Sequence number of the change, which no operation and no other change has.
    pub sequence: u64,
    /// Id of the column family.
    pub family: u32,
    /// The change.
    pub kind: FamilyChangeKind,
}

/// The kinds of [`FamilyChange`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FamilyChangeKind {
    /// The column family was created, empty.
    Created {
        /// Its name.
        name: String,
    },
    /// The column family and its contents were dropped.
    Dropped {
        /// Its last name.
        name: String,
    },
    /// The column family was renamed.
    Renamed {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
    /// The contents of the column family were removed ([`Db::clear_family`]).
    Cleared,
    /// The column family was created with the contents of another one ([`Db::clone_family`]).
    Cloned {
        /// Its name.
        name: String,
        /// Id of the source column family.
        source: u32,
    },
    /// Entries were added by a bulk load ([`crate::BulkLoad`]), an ingestion ([`Db::ingest`]) or a
    /// spilled transaction ([`crate::TxnOptions::spill_bytes`]). The feed does not contain them,
    /// because they are not in the log: read them from the column family.
    Loaded,
}

impl From<FamilyEvent> for FamilyChange {
    fn from(event: FamilyEvent) -> FamilyChange {
        use FamilyChangeKind as Kind;
        let kind = match event.kind {
            FamilyEventKind::Created { name } => Kind::Created { name },
            FamilyEventKind::Dropped { name } => Kind::Dropped { name },
            FamilyEventKind::Renamed { from, to } => Kind::Renamed { from, to },
            FamilyEventKind::Cleared => Kind::Cleared,
            FamilyEventKind::Cloned { name, source } => Kind::Cloned { name, source: source.0 },
            FamilyEventKind::Loaded => Kind::Loaded,
        };
        FamilyChange { sequence: event.seq.0, family: event.family.0, kind }
    }
}

/// A change feed, opened by [`Db::changes`]. It does not keep log files from being deleted: a
/// consumer that falls too far behind gets `NotFound` and must start again from the current
/// contents.
pub struct Changes {
    feed: ChangeFeed,
    engine: Arc<Engine>,
}

/// Prints the position.
impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Changes({:?}, position {})", self.engine, self.position())
    }
}

impl Changes {
    /// Returns the sequence number up to which all changes have been returned. [`Db::changes`] with
    /// this number continues after it. A consumer that stores the position atomically with the
    /// effect of each change processes each change exactly once.
    pub fn position(&self) -> u64 {
        self.feed.position().0
    }
    /// Returns the next change, or `None` if there is none yet. Does not block.
    ///
    /// # Errors
    /// `NotFound` if the log at this position was deleted ([`crate::Options::log_retention`]);
    /// `Corruption` or `Io` if it cannot be read: the position stays the same, so the call can be
    /// repeated; `Closed`.
    pub fn next_change(&mut self) -> Result<Option<Change>> {
        Ok(self.feed.next_item(self.engine.core())?.map(change_from_item))
    }
    /// Returns the next change; blocks until there is one, for at most `timeout`. Returns `None`
    /// after the timeout.
    ///
    /// # Errors
    /// Same as [`Changes::next_change`].
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Change>> {
        let us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        Ok(self.feed.wait_next_item(self.engine.core(), us)?.map(change_from_item))
    }
}

fn change_from_item(item: FeedItem) -> Change {
    match item {
        FeedItem::Commit(commit) => Change::Commit(Commit(commit)),
        FeedItem::FamilyEvent(event) => Change::Family(event.into()),
    }
}

impl Db {
    /// Opens a feed of everything committed after sequence number `since` (0: from the beginning),
    /// commit by commit in commit order, including future commits. Only durable commits are
    /// returned, so a change is never undone by a crash; with [`crate::Durability::None`] commits
    /// appear after a flush or [`Db::sync`].
    ///
    /// To resume, also after a restart, store [`Changes::position`] with the result of processing
    /// and open the next feed there. If `since` is in the middle of a commit, that commit is
    /// returned as a whole. [`crate::Options::log_retention`] determines how far back a feed can
    /// start. A checkpoint or a restored backup starts with a new log.
    ///
    /// ```
    /// # use perigee::{Change, ChangeKind, Db, Options, WriteBatch};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let mut changes = db.changes(0)?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(&db.default_family(), "moon", "full")?;
    /// batch.delete(&db.default_family(), "stars")?;
    /// let seq = db.write(batch)?;
    /// let Some(Change::Commit(commit)) = changes.next_change()? else {
    ///     panic!("the commit is durable")
    /// };
    /// let kinds: Vec<_> = commit.operations().map(|o| o.kind).collect();
    /// assert_eq!(kinds[0], ChangeKind::Put { key: b"moon", value: b"full", expires_ms: None });
    /// assert_eq!(kinds[1], ChangeKind::Delete { key: b"stars" });
    /// assert_eq!((commit.sequence(), changes.position()), (seq, seq));
    /// assert!(changes.wait(std::time::Duration::from_millis(1))?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` if the log does not reach back to `since`; the message names the oldest possible
    /// position. `InvalidArgument` if `since` is greater than [`Db::latest_seq`]. `ReadOnly` if the
    /// database was opened read-only.
    pub fn changes(&self, since: u64) -> Result<Changes> {
        Ok(Changes {
            feed: self.engine.change_feed(SeqNo(since))?,
            engine: Arc::clone(&self.engine),
        })
    }
}
