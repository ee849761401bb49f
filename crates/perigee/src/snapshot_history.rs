//! Reads of past states, named snapshots, and the options that keep old versions and log.

use crate::{Db, History, Options, Result, Snapshot};
use perigee_base::SeqNo;
use perigee_engine::snapshot::SnapshotHandle;
use std::sync::Arc;

impl Db {
    fn new_snapshot(&self, handle: SnapshotHandle) -> Snapshot {
        Snapshot { handle, engine: Arc::clone(&self.engine) }
    }

    /// Takes a snapshot of the state right after operation `seq`: a number returned by a commit
    /// ([`Db::write`], [`crate::Txn::commit`]), [`Snapshot::sequence`] or
    /// [`crate::Change::sequence`]. A number in the middle of a commit shows a part of that commit.
    ///
    /// Possible as long as no flush or compaction has dropped a version that is needed: for every
    /// number from [`Db::oldest_readable_seq`] on, and for numbers at which another snapshot
    /// exists. [`crate::Options::history`] sets how much of the past is kept.
    ///
    /// Limits: column families that were cleared, or created by [`Db::clone_family`], after `seq`
    /// cannot be read (`NotFound`); entries that a compaction filter has dropped, or that have
    /// expired by now, are missing.
    ///
    /// ```
    /// # use perigee::{Db, ErrorKind, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let family = db.default_family();
    /// db.put("moon", "new")?;
    /// let seq = db.latest_seq();
    /// db.put("moon", "full")?;
    /// assert_eq!(db.snapshot_at(seq)?.get(&family, "moon")?.as_deref(), Some(&b"new"[..]));
    /// db.compact()?; // drops the older version
    /// assert_eq!(db.oldest_readable_seq(), 2);
    /// assert_eq!(db.snapshot_at(seq).unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    /// # Errors
    /// `NotFound` if `seq` may no longer be readable; the message names the oldest readable number.
    /// `InvalidArgument` if `seq` is greater than [`Db::latest_seq`].
    pub fn snapshot_at(&self, seq: u64) -> Result<Snapshot> {
        Ok(self.new_snapshot(self.engine.snapshot_at(SeqNo(seq))?))
    }
    /// Returns the oldest sequence number from which on every number is readable with
    /// [`Db::snapshot_at`]. A flush or compaction raises it, when it starts, to the newest sequence
    /// number in its inputs, but never beyond the start of the history kept by
    /// [`crate::Options::history`]. It never decreases while the database is open. After a crash it
    /// can be lower than before, because flushes and compactions that did not finish have raised it
    /// only in memory.
    pub fn oldest_readable_seq(&self) -> u64 {
        self.engine.oldest_readable().0
    }

    /// Creates a named snapshot of the current state and returns its sequence number; durable when
    /// the call returns. It stays readable under this name, also after restarts, until
    /// [`Db::drop_snapshot`]. Checkpoints and backups contain it. Compactions keep the versions
    /// that it sees. It cannot read column families that are cleared or dropped later.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// let db = Db::open("/doc", Options::in_env(env.clone()))?;
    /// db.put("moon", "new")?;
    /// db.create_snapshot("before the eclipse")?;
    /// db.put("moon", "dark")?;
    /// db.close()?;
    ///
    /// let db = Db::open("/doc", Options::in_env(env))?;
    /// db.compact()?;
    /// let then = db.named_snapshot("before the eclipse")?;
    /// assert_eq!(then.get(&db.default_family(), "moon")?.as_deref(), Some(&b"new"[..]));
    /// assert_eq!(db.named_snapshots(), [("before the eclipse".to_string(), 1)]);
    /// db.drop_snapshot("before the eclipse")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` for a name that is empty, longer than 255 bytes or
    /// contains NUL; as [`Db::write`] otherwise.
    pub fn create_snapshot(&self, name: &str) -> Result<u64> {
        Ok(self.engine.create_named_snapshot(name)?.0)
    }
    /// Returns a snapshot that reads the state of the named snapshot `name`.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn named_snapshot(&self, name: &str) -> Result<Snapshot> {
        Ok(self.new_snapshot(self.engine.named_snapshot(name)?))
    }
    /// Returns the names and sequence numbers of all named snapshots, sorted by name.
    pub fn named_snapshots(&self) -> Vec<(String, u64)> {
        self.engine.named_snapshots().into_iter().map(|(name, seq)| (name, seq.0)).collect()
    }
    /// Deletes a named snapshot; durable when the call returns. Compactions may then drop the
    /// versions that only it needed. A [`Snapshot`] already returned for it stays readable.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn drop_snapshot(&self, name: &str) -> Result<()> {
        self.engine.drop_named_snapshot(name)
    }
}

impl Options {
    /// Sets [`Options::log_retention`].
    #[must_use]
    pub fn log_retention(mut self, bytes: u64) -> Self {
        self.log_retention = bytes;
        self
    }
    /// Sets [`Options::history`].
    ///
    /// ```
    /// # use perigee::{Db, History, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// let db = Db::open("/doc", Options::in_env(env).history(History::Operations(1000)))?;
    /// db.put("moon", "new")?;
    /// db.put("moon", "full")?;
    /// db.compact()?; // without history, this drops the older version
    /// let then = db.snapshot_at(1)?;
    /// assert_eq!(then.get(&db.default_family(), "moon")?.as_deref(), Some(&b"new"[..]));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn history(mut self, history: History) -> Self {
        self.history = history;
        self
    }
}
