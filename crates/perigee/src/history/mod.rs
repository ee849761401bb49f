//! [`History`]: reads of past states, named snapshots, and the change feed.

pub mod commit_hook;
pub mod change_feed;

use crate::changes::ChangeFeed;
use crate::{Result, Snapshot};
use perigee_engine::{Engine, SeqNo, SnapshotHandle};
use std::sync::Arc;

/// A named snapshot ([`History::create_snapshot`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedSnapshot {
    /// Its name.
    pub name: String,
    /// Sequence number of the last operation that it sees.
    pub sequence: u64,
}

/// Past states of a database ([`Db::history`](crate::Db::history)): snapshots of earlier sequence
/// numbers, named snapshots, and the change feed.
#[derive(Clone, Copy, Debug)]
pub struct History<'a> {
    pub(crate) engine: &'a Arc<Engine>,
}

impl History<'_> {
    fn new_snapshot(&self, handle: SnapshotHandle) -> Snapshot {
        Snapshot { handle, engine: Arc::clone(self.engine) }
    }

    /// Takes a snapshot of the state right after operation `seq`: a number returned by a commit
    /// ([`Db::write`](crate::Db::write), [`crate::Txn::commit`]), [`Snapshot::sequence`] or
    /// [`crate::changes::FeedEvent::sequence`]. A number in the middle of a commit shows a part of
    /// that commit.
    ///
    /// This is possible as long as no flush or compaction has dropped a version that is needed: for
    /// every number from [`History::oldest_readable_seq`] on, and for numbers at which another
    /// snapshot exists. [`crate::Options::history`] sets how much of the past is kept.
    ///
    /// Limits: column families that were cleared, or created by
    /// [`Admin::clone_family`](crate::Admin::clone_family), after `seq` cannot be read
    /// (`NotFound`); entries that a compaction filter has dropped, or that have expired by now, are
    /// missing.
    ///
    /// ```
    /// # use perigee::{Db, ErrorKind, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let family = db.default_family();
    /// db.put("moon", "new")?;
    /// let seq = db.history().latest_seq();
    /// db.put("moon", "full")?;
    /// assert_eq!(db.history().snapshot_at(seq)?.get(&family, "moon")?.as_deref(), Some(&b"new"[..]));
    /// db.admin().compact()?; // drops the older version
    /// assert_eq!(db.history().oldest_readable_seq(), 2);
    /// assert_eq!(db.history().snapshot_at(seq).unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    /// # Errors
    /// `NotFound` if `seq` may no longer be readable; the message names the oldest readable number.
    /// `InvalidArgument` if `seq` is greater than [`History::latest_seq`].
    pub fn snapshot_at(&self, seq: u64) -> Result<Snapshot> {
        let handle = self.engine.snapshot_at(SeqNo(seq))?;
        check!(handle.seq().0 == seq, "a snapshot shows the state that was asked for", handle, seq);
        Ok(self.new_snapshot(handle))
    }
    /// Returns the sequence number of the newest operation that is visible to reads.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// assert_eq!(db.history().latest_seq(), 0);
    /// db.put("moon", "full")?;
    /// assert_eq!(db.history().latest_seq(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn latest_seq(&self) -> u64 {
        self.engine.visible_seq().0
    }
    /// Returns the oldest sequence number such that it and all later ones are readable with
    /// [`History::snapshot_at`]. A flush or compaction raises it, when it starts, to the newest
    /// sequence number in its inputs, but never beyond the start of the history kept by
    /// [`crate::Options::history`]. It never decreases while the database is open. After a crash it
    /// can be lower than before, because flushes and compactions that did not finish have raised it
    /// only in memory.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "new")?;
    /// db.put("moon", "full")?;
    /// db.admin().flush()?;
    /// let oldest = db.history().oldest_readable_seq();
    /// assert!(oldest <= db.history().latest_seq());
    /// assert!(db.history().snapshot_at(oldest).is_ok());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn oldest_readable_seq(&self) -> u64 {
        self.engine.oldest_readable().0
    }
    /// Creates a named snapshot of the current state and returns its sequence number; durable when
    /// the call returns. It stays readable under this name, even after restarts, until
    /// [`History::drop_snapshot`]. Checkpoints and backups contain it. Compactions keep the
    /// versions that it sees. It cannot read column families that are cleared or dropped later.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// let db = Db::open("/doc", Options::in_env(env.clone()))?;
    /// db.put("moon", "new")?;
    /// db.history().create_snapshot("before the eclipse")?;
    /// db.put("moon", "dark")?;
    /// db.close()?;
    ///
    /// let db = Db::open("/doc", Options::in_env(env))?;
    /// db.admin().compact()?;
    /// let then = db.history().named_snapshot("before the eclipse")?;
    /// assert_eq!(then.get(&db.default_family(), "moon")?.as_deref(), Some(&b"new"[..]));
    /// assert_eq!(db.history().named_snapshots()[0].name, "before the eclipse");
    /// db.history().drop_snapshot("before the eclipse")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` for a name that is empty or longer than 255 bytes, or
    /// contains NUL; as [`Db::write`](crate::Db::write) otherwise.
    pub fn create_snapshot(&self, name: &str) -> Result<u64> {
        let seq = self.engine.create_named_snapshot(name)?;
        check!(
            seq <= self.engine.visible_seq(),
            "a named snapshot is not in the future",
            seq,
            self.engine.visible_seq()
        );
        Ok(seq.0)
    }
    /// Returns a snapshot that reads the state of the named snapshot `name`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// db.put("moon", "new")?;
    /// db.history().create_snapshot("monday")?;
    /// db.put("moon", "full")?;
    /// let monday = db.history().named_snapshot("monday")?;
    /// assert_eq!(monday.get(&family, "moon")?.as_deref(), Some(&b"new"[..]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn named_snapshot(&self, name: &str) -> Result<Snapshot> {
        Ok(self.new_snapshot(self.engine.named_snapshot(name)?))
    }
    /// Returns the names and sequence numbers of all named snapshots, sorted by name.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let sequence = db.history().create_snapshot("monday")?;
    /// let snapshots = db.history().named_snapshots();
    /// assert_eq!((snapshots[0].name.as_str(), snapshots[0].sequence), ("monday", sequence));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn named_snapshots(&self) -> Vec<NamedSnapshot> {
        let named = |(name, seq): (String, SeqNo)| NamedSnapshot { name, sequence: seq.0 };
        self.engine.named_snapshots().into_iter().map(named).collect()
    }
    /// Deletes a named snapshot; durable when the call returns. Compactions may then drop the
    /// versions that only it needed. A [`Snapshot`] already returned for it stays readable.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.history().create_snapshot("monday")?;
    /// db.history().drop_snapshot("monday")?;
    /// assert!(db.history().named_snapshots().is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn drop_snapshot(&self, name: &str) -> Result<()> {
        self.engine.drop_named_snapshot(name)
    }
    /// Opens a feed of everything committed after sequence number `since` (0: from the beginning),
    /// commit by commit in commit order, including future commits. Only durable commits are
    /// returned, so a change is never undone by a crash; with [`crate::Durability::None`] commits
    /// appear after a flush or [`Db::sync`](crate::Db::sync).
    ///
    /// To resume, for example after a restart, store [`ChangeFeed::position`] with the result of
    /// processing and open the next feed there. If `since` is in the middle of a commit, that
    /// commit is returned as a whole. [`crate::Options::log_retention`] determines how far back a
    /// feed can start. A checkpoint or a restored backup starts with a new log.
    ///
    /// ```
    /// # use perigee::changes::{ChangeKind, FeedEvent};
    /// # use perigee::{Db, Options, WriteBatch};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let mut changes = db.history().changes(0)?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(&db.default_family(), "moon", "full")?;
    /// batch.delete(&db.default_family(), "stars")?;
    /// let seq = db.write(batch)?;
    /// let Some(FeedEvent::Commit(commit)) = changes.next_change()? else {
    ///     panic!("the commit is durable")
    /// };
    /// let kinds: Vec<_> = commit.operations().map(|o| o.kind).collect();
    /// assert_eq!(kinds[0], ChangeKind::Put { key: b"moon", value: b"full", expires_at_ms: None });
    /// assert_eq!(kinds[1], ChangeKind::Delete { key: b"stars" });
    /// assert_eq!((commit.sequence(), changes.position()), (seq, seq));
    /// assert!(changes.wait(std::time::Duration::from_millis(1))?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` if the log does not reach back to `since`; the message names the oldest possible
    /// position. `InvalidArgument` if `since` is greater than
    /// [`History::latest_seq`]. `ReadOnly` if the database was opened read-only.
    pub fn changes(&self, since: u64) -> Result<ChangeFeed> {
        Ok(ChangeFeed {
            reader: self.engine.change_feed(SeqNo(since))?,
            engine: Arc::clone(self.engine),
        })
    }
}
