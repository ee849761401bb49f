//! The change feed: every commit and column-family change, in commit order, from a given position.

use crate::Result;
use crate::history::commit_hook::cut_to_bound;
use perigee_engine::change_feed::{FamilyEvent, FamilyEventKind, FeedCommit, FeedItem, LogFeed};
use perigee_engine::{BytesPreview, Engine, ValueRef};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// One item of a change feed.
#[derive(Debug)]
#[non_exhaustive]
pub enum FeedEvent {
    /// A commit with all its operations.
    Commit(CommittedBatch),
    /// A column family was created, dropped, renamed, cleared, cloned or bulk-loaded.
    Family(FamilyChange),
}

impl FeedEvent {
    /// Returns its sequence number; for a commit, that of its last operation. Sequence numbers of
    /// changes are unique: a bulk load of several column families appears as one change per column
    /// family, with consecutive numbers.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let mut feed = db.history().changes(0)?;
    /// let seq = db.write([("moon", "full")].into_iter().collect())?;
    /// let event = feed.next_change()?.expect("the commit");
    /// assert_eq!(event.sequence(), seq);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn sequence(&self) -> u64 {
        match self {
            FeedEvent::Commit(commit) => commit.sequence(),
            FeedEvent::Family(change) => change.sequence,
        }
    }
}

/// One commit with its operations on all column families.
pub struct CommittedBatch(FeedCommit);

/// Prints the sequence numbers and the number of operations, not the operations.
impl fmt::Debug for CommittedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last, count) =
            (self.first_sequence(), self.sequence(), self.0.operations().len());
        write!(f, "CommittedBatch({first} to {last}, {count} operations)")
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
        expires_at_ms: Option<u64>,
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
            ChangeKind::Put { key, value, expires_at_ms: None } => {
                write!(f, "Put({:?}, {:?})", BytesPreview(key), BytesPreview(value))
            }
            ChangeKind::Put { key, value, expires_at_ms: Some(ms) } => {
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

impl CommittedBatch {
    /// Returns the sequence number of its last operation.
    ///
    /// ```
    /// # use perigee::*;
    /// # use perigee::changes::FeedEvent;
    /// # let db = example_db()?;
    /// # let mut feed = db.history().changes(0)?;
    /// db.write([("moon", "full"), ("tide", "high")].into_iter().collect())?;
    /// let Some(FeedEvent::Commit(commit)) = feed.next_change()? else { panic!("no commit") };
    /// assert_eq!(commit.sequence(), 2); // of its last operation
    /// # Ok::<(), Error>(())
    /// ```
    pub fn sequence(&self) -> u64 {
        self.0.seq_range().1.0
    }
    /// Returns the sequence number of its first operation.
    ///
    /// ```
    /// # use perigee::*;
    /// # use perigee::changes::FeedEvent;
    /// # let db = example_db()?;
    /// # let mut feed = db.history().changes(0)?;
    /// db.write([("moon", "full"), ("tide", "high")].into_iter().collect())?;
    /// let Some(FeedEvent::Commit(commit)) = feed.next_change()? else { panic!("no commit") };
    /// assert_eq!((commit.first_sequence(), commit.sequence()), (1, 2));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn first_sequence(&self) -> u64 {
        self.0.seq_range().0.0
    }
    /// Returns the operations in the order of the batch.
    ///
    /// ```
    /// # use perigee::*;
    /// # use perigee::changes::FeedEvent;
    /// # let db = example_db()?;
    /// # let mut feed = db.history().changes(0)?;
    /// db.put("moon", "full")?;
    /// let Some(FeedEvent::Commit(commit)) = feed.next_change()? else { panic!("no commit") };
    /// for operation in commit.operations() {
    ///     assert_eq!((operation.family_name, operation.sequence), ("default", 1));
    /// }
    /// # Ok::<(), Error>(())
    /// ```
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
                    ChangeKind::Put { key, value, expires_at_ms: None }
                }
                (None, Ok(ValueRef::InlineExpiring(value, expiry))) => {
                    ChangeKind::Put { key, value, expires_at_ms: Some(expiry.0) }
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

/// A change to a column family as a whole, or one whose operations are not in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyChange {
    /// Sequence number of the change, unique among all operations and changes.
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
    /// The contents of the column family were removed
    /// ([`Admin::clear_family`](crate::Admin::clear_family)).
    Cleared,
    /// The column family was created with the contents of another one
    /// ([`Admin::clone_family`](crate::Admin::clone_family)).
    Cloned {
        /// Its name.
        name: String,
        /// Id of the source column family.
        source: u32,
    },
    /// Entries were added by a bulk load ([`crate::load::BulkLoad`]), an ingestion
    /// ([`Family::ingest`](crate::Family::ingest)) or a spilled transaction
    /// ([`crate::TxnOptions::spill_bytes`]). The feed does not contain them, because they are not
    /// in the log: read them from the column family.
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

/// A change feed, opened by [`History::changes`](crate::History::changes). It does not keep log
/// files from being deleted: a consumer that falls too far behind gets `NotFound` and must start
/// again from the current contents.
pub struct ChangeFeed {
    pub(crate) reader: LogFeed,
    pub(crate) engine: Arc<Engine>,
}

/// Prints the position.
impl fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChangeFeed({:?}, position {})", self.engine, self.position())
    }
}

impl ChangeFeed {
    /// Returns the sequence number up to which all changes have been returned.
    /// [`History::changes`](crate::History::changes) with this number continues after it. A
    /// consumer that stores the position atomically with the effect of each change processes each
    /// change exactly once.
    ///
    /// ```
    /// # use perigee::*;
    /// # use perigee::changes::FeedEvent;
    /// # let db = example_db()?;
    /// # let mut feed = db.history().changes(0)?;
    /// db.put("moon", "full")?;
    /// feed.next_change()?;
    /// let position = feed.position(); // store it with the result of processing
    /// assert!(db.history().changes(position)?.next_change()?.is_none());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn position(&self) -> u64 {
        self.reader.position().0
    }
    /// Returns the next change, or `None` if there is none yet. Does not block.
    ///
    /// ```
    /// # use perigee::*;
    /// # use perigee::changes::FeedEvent;
    /// # let db = example_db()?;
    /// # let mut feed = db.history().changes(0)?;
    /// assert!(feed.next_change()?.is_none()); // nothing was committed yet
    /// db.put("moon", "full")?;
    /// assert!(feed.next_change()?.is_some());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if the log at this position was deleted ([`crate::Options::log_retention`]);
    /// `Corruption` or `Io` if it cannot be read: the position stays the same, so the call can be
    /// repeated; `Closed`.
    pub fn next_change(&mut self) -> Result<Option<FeedEvent>> {
        let before = self.position();
        let next = self.reader.next_item(self.engine.log())?.map(change_from_item);
        self.check_progress(before, next.as_ref());
        Ok(next)
    }
    /// Returns the next change; blocks until there is one, for at most `timeout`. Returns `None`
    /// after the timeout.
    ///
    /// ```
    /// # use perigee::*;
    /// # use perigee::changes::FeedEvent;
    /// # let db = example_db()?;
    /// # let mut feed = db.history().changes(0)?;
    /// db.put("moon", "full")?;
    /// let timeout = std::time::Duration::from_secs(1);
    /// assert!(feed.wait(timeout)?.is_some()); // at once, because there is a commit
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`ChangeFeed::next_change`].
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<FeedEvent>> {
        let us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        let before = self.position();
        let next = self.reader.wait_next_item(self.engine.log(), us)?.map(change_from_item);
        self.check_progress(before, next.as_ref());
        Ok(next)
    }
    fn check_progress(&self, before: u64, next: Option<&FeedEvent>) {
        check!(before <= self.position(), "a feed moves forward", before, self.position());
        check!(
            next.is_none_or(|event| event.sequence() > before),
            "a feed delivers only what is after its position",
            next,
            before
        );
    }
}

fn change_from_item(item: FeedItem) -> FeedEvent {
    match item {
        FeedItem::Commit(commit) => FeedEvent::Commit(CommittedBatch(commit)),
        FeedItem::FamilyEvent(event) => FeedEvent::Family(event.into()),
    }
}
