//! [`Txn`]: a transaction, its savepoints, commit and rollback. See `docs/transactions.md`.

pub mod limits;
pub mod options;
pub mod reads;
pub mod writes;
pub mod begin;
pub mod value_writer;
pub mod read_modify_write;
pub mod two_phase;

use crate::{Durability, Isolation, Result};
use perigee_engine::env::{Mutex, MutexGuard};
use perigee_engine::{Engine, EngineTxn as Inner, EngineTxnHandle};
use std::sync::Arc;

/// A transaction over any number of column families. Its writes are private until [`Txn::commit`],
/// which applies all of them atomically. Dropping the transaction rolls it back. The [`Isolation`]
/// level defines what its reads see and which concurrent commits make its own commit fail with
/// `Conflict`.
///
/// Gets and scans see the transaction's own writes. A cursor or iterator sees the writes made
/// before it was created; later writes, and rollbacks to a savepoint, do not change it.
///
/// A transaction whose writes exceed [`TxnOptions::spill_bytes`](crate::TxnOptions::spill_bytes)
/// spills them to files and is called *spilled* in this documentation; `docs/transactions.md` lists
/// how it differs from others.
///
/// Methods take `&self` and lock the transaction for the duration of the call, except for
/// [`Txn::commit`] and [`Txn::rollback`], which take the transaction itself: a transaction that has
/// ended cannot be used by mistake. [`Db::write_txn`](crate::Db::write_txn) commits, and begins
/// again after a conflict.
///
/// ```
/// # use perigee::{Db, ErrorKind, Options, TxnOptions};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// let accounts = db.create_family("accounts", Default::default())?;
/// accounts.put("alice", "100")?;
///
/// let txn = db.begin(TxnOptions::new())?;
/// txn.put(&accounts, "alice", "70")?;
/// txn.put(&accounts, "bob", "30")?;
/// assert_eq!(txn.get(&accounts, "bob")?.as_deref(), Some(&b"30"[..]));
/// assert_eq!(accounts.get("bob")?, None); // not visible to others yet
/// txn.commit()?;
/// assert_eq!(accounts.get("bob")?.as_deref(), Some(&b"30"[..]));
///
/// let late = db.begin(TxnOptions::new())?;
/// accounts.put("alice", "0")?; // a concurrent commit
/// late.put(&accounts, "alice", "71")?;
/// let e = late.commit().unwrap_err();
/// assert_eq!((e.kind(), e.key()), (ErrorKind::Conflict, Some(&b"alice"[..])));
/// # Ok(())
/// # }
/// ```
pub struct Txn {
    inner: Mutex<Inner>,
    pub(crate) engine: Arc<Engine>,
}

/// Aborts a transaction, or ends its wait for a lock, from another thread. See [`Txn::handle`].
#[derive(Clone)]
pub struct TxnHandle(EngineTxnHandle);

/// Prints the database only, because a lock that may be held guards the other fields.
impl std::fmt::Debug for Txn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Txn({:?})", self.engine)
    }
}

impl std::fmt::Debug for TxnHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TxnHandle")
    }
}

impl TxnHandle {
    /// Aborts the transaction: from now on all calls on it fail with `Aborted`, and nothing is
    /// committed. Returns false if the transaction has already ended or is being committed.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// let handle = txn.handle();
    /// assert!(handle.abort()); // usually from another thread
    /// assert_eq!(txn.put(&family, "moon", "full").unwrap_err().kind(), ErrorKind::Aborted);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn abort(&self) -> bool {
        self.0.abort()
    }
    /// Like [`TxnHandle::cancel_wait`], and also ends every later wait at once, until
    /// [`TxnHandle::allow_waits`]; so a stop shortly before a wait is not lost. The handle stays
    /// valid for this and the next two functions when the transaction is reset.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let holder = db.begin(TxnOptions::new())?;
    /// holder.lock(&family, "seat 12", LockMode::Exclusive)?;
    /// let txn = db.begin(TxnOptions::new())?;
    /// let handle = txn.handle();
    /// handle.stop_waits(); // usually from another thread
    /// let stopped = txn.lock(&family, "seat 12", LockMode::Exclusive).unwrap_err();
    /// assert_eq!(stopped.kind(), ErrorKind::Interrupted);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn stop_waits(&self) {
        self.0.stop_waits();
    }
    /// Undoes [`TxnHandle::stop_waits`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let handle = db.begin(TxnOptions::new())?.handle();
    /// handle.stop_waits();
    /// handle.allow_waits();
    /// assert!(!handle.has_stopped_waits());
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn allow_waits(&self) {
        self.0.allow_waits();
    }
    /// Returns true between [`TxnHandle::stop_waits`] and [`TxnHandle::allow_waits`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let handle = db.begin(TxnOptions::new())?.handle();
    /// assert!(!handle.has_stopped_waits());
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn has_stopped_waits(&self) -> bool {
        self.0.has_stopped_waits()
    }
    /// Ends a wait for a lock that is in progress in the transaction: the waiting call fails with
    /// `Interrupted`, without an effect, and the transaction goes on with everything that it has
    /// written and locked. Never waits itself.
    ///
    /// Returns false if the transaction does not wait for a lock; then the call has no effect on
    /// later waits either. So a program that stops a transaction sets a flag, which the
    /// transaction's thread checks between its calls, before it calls this function, and calls it
    /// again until the thread has seen the flag.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let holder = db.begin(TxnOptions::new())?;
    /// holder.lock(&family, "seat 12", LockMode::Exclusive)?;
    /// let txn = db.begin(TxnOptions::new().lock_timeout(std::time::Duration::MAX))?;
    /// let handle = txn.handle();
    /// assert!(!handle.cancel_wait()); // it does not wait
    /// std::thread::scope(|scope| {
    ///     let waiting = scope.spawn(|| txn.lock(&family, "seat 12", LockMode::Exclusive));
    ///     while !handle.cancel_wait() {
    ///         std::thread::yield_now();
    ///     }
    ///     let error = waiting.join().expect("no panic").unwrap_err();
    ///     assert_eq!(error.kind(), ErrorKind::Interrupted);
    /// });
    /// txn.put(&family, "seat 13", "bob")?;
    /// txn.commit()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cancel_wait(&self) -> bool {
        self.0.cancel_wait()
    }
}

impl Txn {
    pub(crate) fn new(inner: Inner, engine: Arc<Engine>) -> Txn {
        Txn { inner: Mutex::new(inner), engine }
    }
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Sets a savepoint at the current end of the writes. Savepoints nest; if a name is used again,
    /// it refers to the newest savepoint of that name. Costs O(1), however much was written.
    ///
    /// ```
    /// # use perigee::{Db, Options, TxnOptions};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let family = db.default_family();
    /// let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&family, "kept", "")?;
    /// txn.savepoint("row")?;
    /// txn.put(&family, "wrong", "")?;
    /// txn.rollback_to("row")?; // the savepoint stays set
    /// txn.put(&family, "right", "")?;
    /// txn.release_savepoint("row")?;
    /// txn.commit()?;
    /// assert_eq!(db.iter()?.count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn savepoint(&self, name: impl AsRef<str>) -> Result<()> {
        self.inner().set_savepoint(self.engine.runtime(), name.as_ref())
    }
    /// Undoes all writes since the savepoint, and releases the locks taken since then. The
    /// savepoint stays set; later ones are removed.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// txn.savepoint("row")?;
    /// txn.put(&family, "moon", "full")?;
    /// txn.rollback_to("row")?;
    /// assert!(txn.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is no savepoint with this name.
    pub fn rollback_to(&self, name: impl AsRef<str>) -> Result<()> {
        self.inner().roll_back_to_savepoint(self.engine.runtime(), name.as_ref())
    }
    /// Removes a savepoint and all later ones. The writes stay.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// txn.savepoint("row")?;
    /// txn.put(&family, "moon", "full")?;
    /// txn.release_savepoint("row")?;
    /// assert_eq!(txn.rollback_to("row").unwrap_err().kind(), ErrorKind::NotFound);
    /// assert_eq!(txn.len(), 1); // the write stays
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is no savepoint with this name.
    pub fn release_savepoint(&self, name: impl AsRef<str>) -> Result<()> {
        self.inner().release_savepoint(self.engine.runtime(), name.as_ref())
    }

    /// Commits the transaction with the durability in
    /// [`Options::durability`](crate::Options::durability), and returns the sequence number of its
    /// last operation (if it wrote nothing, the current
    /// [`History::latest_seq`](crate::History::latest_seq)).
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&family, "moon", "full")?;
    /// txn.put(&family, "tide", "high")?;
    /// assert_eq!(txn.commit()?, 2);
    /// assert!(db.contains("tide")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The transaction has ended, and its work is lost. A second commit is not possible: to try
    /// again, begin a new transaction and repeat its reads and writes. The kind of the error says
    /// what is known:
    /// - `Conflict`: a concurrent commit came first and nothing was committed.
    ///   [`Error::family`](crate::Error::family) and [`Error::key`](crate::Error::key) say where;
    ///   begin again, or use [`Db::write_txn`](crate::Db::write_txn).
    /// - `OutcomeUnknown`: after the next open, the transaction is either committed as a whole or
    ///   not at all.
    /// - Nothing was committed after any other error: `Aborted` after [`TxnHandle::abort`] or
    ///   [`TxnOptions::timeout`](crate::TxnOptions::timeout); `Busy` if the transaction is spilled
    ///   and background work is paused; `InvalidArgument` after [`Txn::prepare`]; as
    ///   [`Db::write`](crate::Db::write) otherwise.
    pub fn commit(self) -> Result<u64> {
        self.commit_in_place(None)
    }
    /// Commits like [`Txn::commit`] with another durability. The commit of a spilled transaction is
    /// always synced.
    ///
    /// ```
    /// # use perigee::{Db, Durability, Options, TxnOptions};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&db.default_family(), "session", "a power loss may delete this")?;
    /// txn.commit_with(Durability::None)?;
    /// assert!(db.contains("session")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Txn::commit`].
    pub fn commit_with(self, durability: Durability) -> Result<u64> {
        self.commit_in_place(Some(durability))
    }
    /// Commits like [`Txn::commit`] and keeps the ended transaction for [`Txn::reset`]. For
    /// bindings to other languages, in which a call cannot consume an object.
    #[doc(hidden)]
    pub fn commit_in_place(&self, durability: Option<Durability>) -> Result<u64> {
        let done = self.engine.commit_txn(&mut self.inner(), durability);
        self.engine.run_commit_hooks();
        Ok(done?.0)
    }
    /// Rolls the transaction back: nothing is committed. Dropping it does the same.
    ///
    /// ```
    /// # use perigee::{Db, Options, TxnOptions};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&db.default_family(), "moon", "full")?;
    /// txn.rollback();
    /// assert_eq!(db.get("moon")?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn rollback(self) {
        self.rollback_in_place();
    }
    /// Rolls back like [`Txn::rollback`] and keeps the ended transaction for [`Txn::reset`].
    #[doc(hidden)]
    pub fn rollback_in_place(&self) {
        let mut inner = self.inner();
        inner.end();
        check!(
            inner.written() == (0, 0),
            "a rolled-back transaction has no writes",
            inner.written()
        );
    }
    /// Begins a new transaction in the same object, with the same options, on the current state. A
    /// transaction that has not ended (by [`Txn::prepare`] or [`TxnHandle::abort`]) is rolled back
    /// first. Deadlock detection keeps its age: a transaction that is retried eventually becomes
    /// the oldest, and the oldest is never chosen as the victim of a deadlock.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&family, "moon", "full")?;
    /// txn.reset()?; // rolls back and begins again
    /// assert!(txn.is_empty());
    /// txn.commit()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn reset(&self) -> Result<()> {
        self.engine.reset_txn(&mut self.inner())
    }
    /// Returns a handle that can abort the transaction, or end its wait for a lock, from another
    /// thread. It is valid until the transaction ends; [`Txn::reset`] begins one that needs a new
    /// handle.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// let handle = txn.handle();
    /// std::thread::spawn(move || handle.abort()).join().expect("no panic");
    /// assert_eq!(txn.get(&family, "moon").unwrap_err().kind(), ErrorKind::Aborted);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn handle(&self) -> TxnHandle {
        TxnHandle(self.inner().handle())
    }
    /// Returns the number by which [`Admin::lock_waits`](crate::Admin::lock_waits) and a
    /// [`LockListener`](crate::locks::LockListener) identify this transaction; a larger number is younger.
    /// [`Txn::reset`] keeps it for a retry, and takes a new one after a commit or a
    /// [`Txn::prepare`]: a prepared transaction keeps its number. 0 in between.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let (txn, later) = (db.begin(TxnOptions::new())?, db.begin(TxnOptions::new())?);
    /// assert!(txn.lock_owner() < later.lock_owner());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn lock_owner(&self) -> u64 {
        self.inner().lock_owner()
    }
    /// Returns the number of locks that the transaction holds.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// txn.lock(&family, "seat 12", LockMode::Exclusive)?;
    /// txn.lock(&family, "seat 12", LockMode::Insert)?; // the same lock
    /// assert_eq!(txn.lock_count(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn lock_count(&self) -> usize {
        self.inner().lock_count()
    }
    /// Returns the sequence number that all reads see; `None` if every read sees the newest commits
    /// (read committed).
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// let txn = db.begin(TxnOptions::new().isolation(Isolation::Snapshot))?;
    /// assert_eq!(txn.sequence(), Some(1));
    /// let txn = db.begin(TxnOptions::new().isolation(Isolation::ReadCommitted))?;
    /// assert_eq!(txn.sequence(), None);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn sequence(&self) -> Option<u64> {
        self.inner().snapshot().map(|seq| seq.0)
    }
    /// Returns the number of operations written so far.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&family, "moon", "full")?;
    /// txn.delete(&family, "sun")?;
    /// assert_eq!(txn.len(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.inner().written().0
    }
    /// Returns true if nothing was written.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// assert!(txn.is_empty());
    /// txn.put(&family, "moon", "full")?;
    /// assert!(!txn.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the size in bytes of its writes, encoded as in the log.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&family, "moon", vec![7; 1000])?;
    /// assert!(txn.encoded_bytes() > 1000);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn encoded_bytes(&self) -> u64 {
        self.inner().written().1
    }
    /// Returns the isolation level.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let txn = db.begin(TxnOptions::new().isolation(Isolation::Serializable))?;
    /// assert_eq!(txn.isolation(), Isolation::Serializable);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn isolation(&self) -> Isolation {
        self.inner().settings().isolation
    }
}
