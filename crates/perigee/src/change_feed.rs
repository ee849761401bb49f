//! The feed of changes: everything that was committed, in order, from a position on.

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

/// What a feed tells next.
#[derive(Debug)]
#[non_exhaustive]
pub enum Change {
    /// A commit, whole.
    Commit(Commit),
    /// A family changed in another way than by operations.
    Family(FamilyChange),
}

impl Change {
    /// Its number (of a commit: of its last operation). Every change has a number of its own: a
    /// load of several families is told by one change for each, with numbers that follow each
    /// other.
    pub fn sequence(&self) -> u64 {
        match self {
            Change::Commit(commit) => commit.sequence(),
            Change::Family(change) => change.sequence,
        }
    }
}

/// The operations of one commit, over all families.
pub struct Commit(change_feed::FeedCommit);

/// Short: its numbers, not its operations.
impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last, count) =
            (self.first_sequence(), self.sequence(), self.0.operations().len());
        write!(f, "Commit({first} to {last}, {count} operations)")
    }
}

/// An operation of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeOperation<'a> {
    /// Its sequence number.
    pub sequence: u64,
    /// Number of its family.
    pub family: u32,
    /// What the family was called then.
    pub family_name: &'a str,
    /// What it does.
    pub kind: ChangeKind<'a>,
}

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind<'a> {
    /// A key is set.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// When it ends, in milliseconds since 1970.
        expires_ms: Option<u64>,
    },
    /// A key is removed.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// A key that was put at most once is removed.
    SingleDelete {
        /// The key.
        key: &'a [u8],
    },
    /// An operand is merged into the value ([`crate::MergeOperator`]).
    Merge {
        /// The key.
        key: &'a [u8],
        /// The operand.
        operand: &'a [u8],
    },
    /// A range of keys is removed.
    DeleteRange {
        /// Where it begins.
        start: Bound<&'a [u8]>,
        /// Where it ends.
        end: Bound<&'a [u8]>,
    },
}

/// Short: the first bytes of keys and values.
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
    /// Number of its last operation.
    pub fn sequence(&self) -> u64 {
        self.0.seq_range().1.0
    }
    /// Number of its first.
    pub fn first_sequence(&self) -> u64 {
        self.0.seq_range().0.0
    }
    /// Its operations in order.
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

/// How a family changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyChange {
    /// Its number, which no operation has.
    pub sequence: u64,
    /// Number of the family.
    pub family: u32,
    /// What happened to it.
    pub kind: FamilyChangeKind,
}

/// What happens to families beside operations.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FamilyChangeKind {
    /// It was created, empty.
    Created {
        /// Its name.
        name: String,
    },
    /// It was dropped with everything in it.
    Dropped {
        /// The name that it had.
        name: String,
    },
    /// It has another name from here on.
    Renamed {
        /// The old name.
        from: String,
        /// The new one.
        to: String,
    },
    /// Everything in it was removed.
    Cleared,
    /// It was created with everything that another one held.
    Cloned {
        /// Its name.
        name: String,
        /// Number of the other one.
        source: u32,
    },
    /// Entries were loaded into it ([`crate::BulkLoad`], ingest), which are in tables only: read
    /// them in the family.
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

/// A feed of changes ([`Db::changes`]). It holds nothing back: a feed that lags too far hears an
/// error and begins anew.
pub struct Changes {
    feed: ChangeFeed,
    engine: Arc<Engine>,
}

/// Short: where it is.
impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Changes({:?}, position {})", self.engine, self.position())
    }
}

impl Changes {
    /// What was told is all up to here: [`Db::changes`] from this number goes on with what follows.
    /// A consumer that stores it after each change, and opens a new feed there, sees each change
    /// exactly once.
    pub fn position(&self) -> u64 {
        self.feed.position().0
    }
    /// The next change, if it is there already; never waits for one.
    ///
    /// # Errors
    /// `NotFound` if the log that follows is gone ([`crate::Options::log_retention`]); `Corruption`
    /// or `Io` if it cannot be read, and then the feed stays where it is; `Closed`.
    pub fn next_change(&mut self) -> Result<Option<Change>> {
        Ok(self.feed.next_item(self.engine.core())?.map(change_from_item))
    }
    /// The next change; waits for it at most so long.
    ///
    /// # Errors
    /// As [`Changes::next_change`].
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
    /// A feed of everything that was committed after operation `since` (0: from the beginning), in
    /// order, commit by commit; it goes on with what is committed from now on. Only what is durable
    /// is told, so nothing that a consumer has seen is ever taken back; under
    /// [`crate::Durability::None`] that is after a flush or [`Db::sync`].
    ///
    /// Keep [`Changes::position`] with what you made of the changes: a feed from there tells the
    /// rest, over restarts too. A commit that `since` lies in is told whole. How far back the log
    /// reaches says [`crate::Options::log_retention`]. Checkpoints and backups begin with a log of
    /// their own.
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
    /// let Some(Change::Commit(commit)) = changes.next_change()? else { panic!("it is durable") };
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
    /// `NotFound` if the log does not reach back so far, naming the oldest position;
    /// `InvalidArgument` if there is no operation `since` yet; `ReadOnly`.
    pub fn changes(&self, since: u64) -> Result<Changes> {
        Ok(Changes {
            feed: self.engine.change_feed(SeqNo(since))?,
            engine: Arc::clone(&self.engine),
        })
    }
}
