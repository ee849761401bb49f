//! Reads of the past, snapshots with a name, and what is kept for them: the doors on [`Db`] and
//! [`Options`].

use crate::{Db, History, Options, Result, Snapshot};
use perigee_base::SeqNo;
use perigee_engine::snapshot::SnapshotHandle;
use std::sync::Arc;

impl Db {
    fn new_snapshot(&self, held: SnapshotHandle) -> Snapshot {
        Snapshot { handle: held, engine: Arc::clone(&self.engine) }
    }

    /// The database as it was right after operation `seq`, held until the snapshot is dropped.
    /// `seq` is the answer of a commit ([`Db::write`], [`crate::Txn::commit`]), of
    /// [`Snapshot::sequence`] or the [`crate::Changes`]; between two operations of one commit it
    /// would show half of it.
    ///
    /// It can be read as long as no rewrite has dropped a version that it needs: from
    /// [`Db::oldest_readable_seq`] on, and where another snapshot holds the same number.
    /// [`crate::Options::history`] keeps a stretch of the past readable. A family that was cleared
    /// or made by [`Db::clone_family`] since then cannot be read (`NotFound`), a compaction
    /// filter's work shows, and what has expired by now is not there.
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
    ///
    /// # Errors
    /// `NotFound` if it may be gone, naming the oldest number that can be read; `InvalidArgument`
    /// if there is no such operation yet.
    pub fn snapshot_at(&self, seq: u64) -> Result<Snapshot> {
        Ok(self.new_snapshot(self.engine.snapshot_at(SeqNo(seq))?))
    }
    /// From this number on every one can be read. Flushes and compactions raise it, when they
    /// begin, to the newest operation that they rewrite, but never into the stretch that
    /// [`crate::Options::history`] keeps. It never goes back; only after a crash is it what the
    /// rewrites left that were finished.
    pub fn oldest_readable_seq(&self) -> u64 {
        self.engine.oldest_readable().0
    }

    /// Gives the present a name, durably: it can be read, under this name, after restarts too,
    /// until it is dropped. Its number. Checkpoints and backups carry it along. What it sees stays
    /// on the disk meanwhile. A family that is cleared or dropped is gone for it as well.
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
    /// contains NUL.
    pub fn create_snapshot(&self, name: &str) -> Result<u64> {
        Ok(self.engine.create_named_snapshot(name)?.0)
    }
    /// What the snapshot of that name sees.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn named_snapshot(&self, name: &str) -> Result<Snapshot> {
        Ok(self.new_snapshot(self.engine.named_snapshot(name)?))
    }
    /// Names of snapshots, sorted, with their numbers.
    pub fn named_snapshots(&self) -> Vec<(String, u64)> {
        self.engine.named_snapshots().into_iter().map(|(name, seq)| (name, seq.0)).collect()
    }
    /// Forgets a snapshot's name, durably; who reads it goes on. Compactions take what nobody else
    /// sees.
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
    /// db.compact()?; // would have dropped the older one
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
