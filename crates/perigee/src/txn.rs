//! Transactions: see [`Txn`] and `docs/transactions.md`.

use crate::iter::range_to_bounds;
use crate::{
    Cursor, Db, Durability, Error, ErrorKind, Family, Isolation, Iter, Options, Result, Slice,
    TxnOptions,
};
use crate::{range_delete, translate};
use perigee_base::Expiry;
use perigee_base::key_boundary::KeyBoundary;
use perigee_engine::Engine;
use perigee_engine::locks::LockMode;
use perigee_engine::read_write_sets::KeyOrRange;
use perigee_engine::txn::{EngineTxn as Inner, TxnAbortHandle};
use perigee_env::sync::{Mutex, MutexGuard};
use perigee_file::log::Batch;
use perigee_tree::scan::ScanBounds;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

/// A transaction over any number of column families. Its writes are private until [`Txn::commit`],
/// which applies all of them atomically. Dropping the transaction rolls it back. The [`Isolation`]
/// level defines what its reads see and which concurrent commits make its own commit fail with
/// `Conflict`.
///
/// Reads see the transaction's own writes, in gets and in scans of both directions. A cursor or
/// iterator shows the transaction as of the cursor's creation: later writes and rollbacks to a
/// savepoint do not change it.
///
/// A transaction whose writes exceed [`TxnOptions::spill_bytes`] spills them to files and is called
/// *spilled* in this documentation; `docs/transactions.md` lists how it differs from others.
///
/// Methods take `&self` and lock the transaction for the duration of the call. Calls after the end
/// of the transaction fail with `InvalidArgument`; [`Txn::reset`] begins a new one.
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

/// Aborts a transaction from another thread. See [`Txn::handle`].
#[derive(Clone)]
pub struct TxnHandle(TxnAbortHandle);

/// Prints the database only, because the other fields are behind a lock that may be held.
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
    pub fn abort(&self) -> bool {
        self.0.abort()
    }
}

impl Txn {
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Returns a copy of the value of `key`; see [`Family::get`].
    pub fn get(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.get_pinned(family, key)?.map(Vec::from))
    }
    /// Returns the value of `key` without copying it; see [`Family::get_pinned`].
    pub fn get_pinned(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.read_key(family, key.as_ref(), true)
    }
    /// Returns the value of `key` without adding the key to the read set: a later change of the key
    /// by another commit is not a conflict.
    pub fn get_untracked(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.read_key(family, key.as_ref(), false)
    }
    /// Returns true if `key` exists.
    pub fn contains(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<bool> {
        self.key_exists(family, key.as_ref(), true)
    }
    /// Returns true if `key` exists, without adding the key to the read set.
    pub fn contains_untracked(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<bool> {
        self.key_exists(family, key.as_ref(), false)
    }
    fn key_exists(&self, family: &Family, key: &[u8], tracked: bool) -> Result<bool> {
        let started = self.engine.start_get_timer();
        let exists = self.inner().contains(
            self.engine.core(),
            family.inner_for(&self.engine)?,
            key,
            tracked,
        )?;
        self.engine.finish_get(started, exists);
        Ok(exists)
    }
    fn read_key(&self, family: &Family, key: &[u8], tracked: bool) -> Result<Option<Slice>> {
        let started = self.engine.start_get_timer();
        let value =
            self.inner().get(self.engine.core(), family.inner_for(&self.engine)?, key, tracked)?;
        self.engine.finish_get(started, value.is_some());
        Ok(value.map(Slice))
    }
    /// Returns the values of many keys, in the order of `keys`, each with its own result. Reads
    /// them one by one: unlike [`Family::multi_get`] it is not faster than single gets.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Slice>>> {
        keys.into_iter().map(|key| self.get_pinned(family, key)).collect()
    }

    /// Returns an iterator over all entries.
    pub fn iter(&self, family: &Family) -> Result<Iter> {
        self.new_iter(family, ScanBounds::all())
    }
    /// Returns an iterator over the entries of a key range.
    pub fn range<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<Iter> {
        self.new_iter(family, range_to_bounds(&range))
    }
    /// Returns an iterator over the entries whose key starts with `prefix`; see [`Family::prefix`].
    pub fn prefix(&self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.new_iter(
            family,
            ScanBounds::prefix(family.inner_for(&self.engine)?.tree.comparator(), prefix.as_ref())?,
        )
    }
    /// Returns an unpositioned cursor over all entries.
    pub fn cursor(&self, family: &Family) -> Result<Cursor> {
        self.new_cursor(family, ScanBounds::all())
    }
    /// Returns an unpositioned cursor over a key range.
    pub fn cursor_within<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<Cursor> {
        self.new_cursor(family, range_to_bounds(&range))
    }
    fn new_iter(&self, family: &Family, bounds: ScanBounds) -> Result<Iter> {
        let mut inner = self.inner();
        let (view, at) = inner.read_view(self.engine.core(), family.inner_for(&self.engine)?)?;
        Ok(Iter::new(&self.engine, view, at, bounds)
            .with_read_tracking(inner.scan_tracker(&family.inner)))
    }
    fn new_cursor(&self, family: &Family, bounds: ScanBounds) -> Result<Cursor> {
        let mut inner = self.inner();
        let (view, at) = inner.read_view(self.engine.core(), family.inner_for(&self.engine)?)?;
        let tracker = inner.scan_tracker(&family.inner);
        Ok(Cursor::new(&self.engine, view, at, bounds.clone()).with_read_tracking(tracker, &bounds))
    }

    /// Locks `key` in `mode` and returns its value. Until this transaction ends, or rolls back to
    /// an earlier savepoint, no other transaction gets a conflicting lock on the key. Writers that
    /// take no locks are not blocked: if one of them changes the key, the commit of this
    /// transaction fails with `Conflict` (except at read committed).
    ///
    /// ```
    /// # use perigee::{Db, LockMode, Options, TxnOptions};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let family = db.default_family();
    /// let options = TxnOptions::new().pessimistic(true).lock_timeout(std::time::Duration::ZERO);
    /// let txn = db.begin(options.clone())?;
    /// assert_eq!(txn.get_for_update(&family, "seat 12", LockMode::Exclusive)?, None);
    /// let other = db.begin(options)?;
    /// assert!(other.put(&family, "seat 12", "bob").unwrap_err().is_retryable()); // locked
    /// txn.put(&family, "seat 12", "alice")?;
    /// txn.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Busy` if the lock was not granted within [`TxnOptions::lock_timeout`]; `Conflict` if this
    /// transaction is the victim of a deadlock, or if the key was changed after the moment that its
    /// reads see; as [`Family::get`] otherwise.
    pub fn get_for_update(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        mode: LockMode,
    ) -> Result<Option<Slice>> {
        let (core, key) = (self.engine.core(), key.as_ref());
        Ok(self
            .inner()
            .get_for_update(core, family.inner_for(&self.engine)?, key, mode)?
            .map(Slice))
    }
    /// Locks `key` without reading it. See [`Txn::get_for_update`].
    pub fn lock(&self, family: &Family, key: impl AsRef<[u8]>, mode: LockMode) -> Result<()> {
        let target = KeyOrRange::Key(key.as_ref().to_vec());
        self.inner().lock(self.engine.core(), family.inner_for(&self.engine)?, target, mode)
    }
    /// Locks all keys in a range, including keys that do not exist yet. See [`LockMode`].
    pub fn lock_range<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
        mode: LockMode,
    ) -> Result<()> {
        let (begin, end) = range_delete::range_to_cuts(&range);
        self.inner().lock(
            self.engine.core(),
            family.inner_for(&self.engine)?,
            KeyOrRange::Range(begin, end),
            mode,
        )
    }

    pub(crate) fn write_key(
        &self,
        family: &Family,
        key: &[u8],
        mode: LockMode,
        write: impl FnOnce(&mut Batch) -> Result<()>,
    ) -> Result<()> {
        let inner_family = family.inner_for(&self.engine)?;
        let lock_target = || (KeyOrRange::Key(key.to_vec()), mode);
        let mut inner = self.inner();
        self.engine.spill_if_full(&mut inner)?;
        inner.write(self.engine.core(), inner_family, lock_target, write)
    }
    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// The write is not applied:
    /// - `InvalidArgument` if a limit is exceeded ([`TxnOptions::max_bytes`] included), or the
    ///   transaction is read-only or has ended.
    /// - `Busy` or `Conflict` as for [`Txn::get_for_update`], if the transaction is pessimistic.
    /// - `NoSpace` or `Io` if the writes exceed [`TxnOptions::spill_bytes`] and cannot be spilled
    ///   to disk.
    /// - `Aborted` after [`TxnHandle::abort`] or [`TxnOptions::timeout`].
    pub fn put(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (id, key) = (family.inner.id, key.as_ref());
        self.write_key(family, key, LockMode::Insert, |batch| batch.put(id, key, value.as_ref()))
    }
    /// Sets `key` to `value` with a time to live of `ttl`, which starts now, not at the commit. See
    /// [`Family::put_with_ttl`].
    pub fn put_with_ttl(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let (id, key, until) = (family.inner.id, key.as_ref(), family.expiry_after(ttl));
        self.write_key(family, key, LockMode::Insert, |batch| {
            batch.put_expiring(id, key, value.as_ref(), until)
        })
    }
    /// Sets `key` to `value` until `expires_at_ms`, in milliseconds since the Unix epoch. See
    /// [`Family::put_until`].
    pub fn put_until(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_at_ms: u64,
    ) -> Result<()> {
        let (id, key, until) = (family.inner.id, key.as_ref(), Expiry(expires_at_ms));
        self.write_key(family, key, LockMode::Insert, |batch| {
            batch.put_expiring(id, key, value.as_ref(), until)
        })
    }
    /// Deletes `key`. Fails like [`Txn::put`].
    pub fn delete(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        let (id, key) = (family.inner.id, key.as_ref());
        self.write_key(family, key, LockMode::Exclusive, |batch| batch.delete(id, key))
    }
    /// Deletes a key that was put at most once. See [`Family::single_delete`].
    pub fn single_delete(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        self.write_key(family, key, LockMode::Exclusive, |batch| {
            range_delete::add_single_delete(batch, family, key)
        })
    }
    fn write_range_delete(
        &self,
        family: &Family,
        (begin, end): (KeyBoundary, KeyBoundary),
    ) -> Result<()> {
        let inner_family = family.inner_for(&self.engine)?;
        let lock_target = || (KeyOrRange::Range(begin.clone(), end.clone()), LockMode::Exclusive);
        let write = |batch: &mut Batch| range_delete::add_range_delete(batch, family, &begin, &end);
        let mut inner = self.inner();
        self.engine.spill_if_full(&mut inner)?;
        inner.write(self.engine.core(), inner_family, lock_target, write)
    }
    /// Deletes all keys in a range with one range tombstone. See [`Family::delete_range`].
    pub fn delete_range<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        self.write_range_delete(family, range_delete::range_to_cuts(&range))
    }
    /// Deletes all keys that start with `prefix` with one range tombstone. See
    /// [`Family::delete_prefix`].
    pub fn delete_prefix(&self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<()> {
        family.inner_for(&self.engine)?;
        self.write_range_delete(family, range_delete::prefix_to_cuts(family, prefix.as_ref())?)
    }

    /// Sets a savepoint at the current end of the writes. Savepoints nest; if a name is used again,
    /// it refers to the newest. Costs O(1), however much was written.
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
    /// txn.release("row")?;
    /// txn.commit()?;
    /// assert_eq!(db.iter()?.count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn savepoint(&self, name: impl AsRef<str>) -> Result<()> {
        self.inner().set_savepoint(self.engine.core(), name.as_ref())
    }
    /// Undoes all writes since the savepoint, and releases the locks taken since then. The
    /// savepoint stays set; later ones are removed.
    ///
    /// # Errors
    /// `NotFound` if there is no savepoint with this name.
    pub fn rollback_to(&self, name: impl AsRef<str>) -> Result<()> {
        self.inner().roll_back_to_savepoint(self.engine.core(), name.as_ref())
    }
    /// Removes a savepoint and all later ones. The writes stay.
    ///
    /// # Errors
    /// `NotFound` if there is no savepoint with this name.
    pub fn release(&self, name: impl AsRef<str>) -> Result<()> {
        self.inner().release_savepoint(self.engine.core(), name.as_ref())
    }

    /// Commits the transaction with the durability in [`Options::durability`], and returns the
    /// sequence number of its last operation (if it wrote nothing, the current [`Db::latest_seq`]).
    /// The transaction has ended when this returns, even with an error.
    ///
    /// # Errors
    /// - `Conflict`: a concurrent commit came first and nothing was committed. [`Error::family`]
    ///   and [`Error::key`] say where; begin again, or use [`Db::write_txn`].
    /// - `Aborted` after [`TxnHandle::abort`] or [`TxnOptions::timeout`].
    /// - `Busy` if the transaction is spilled and background work is paused.
    /// - As [`Db::write`] otherwise.
    pub fn commit(&self) -> Result<u64> {
        let done = self.engine.commit_txn(&mut self.inner(), None);
        self.engine.run_commit_hooks();
        Ok(done?.0)
    }
    /// Commits like [`Txn::commit`] with another durability. The commit of a spilled transaction is
    /// always synced.
    ///
    /// # Errors
    /// Same as [`Txn::commit`].
    pub fn commit_with(&self, durability: Durability) -> Result<u64> {
        let done =
            self.engine.commit_txn(&mut self.inner(), Some(translate::durability(durability)));
        self.engine.run_commit_hooks();
        Ok(done?.0)
    }
    /// Rolls the transaction back: it has ended and nothing is committed.
    pub fn rollback(&self) {
        self.inner().end();
    }
    /// Rolls the transaction back if it is open, and begins a new one in the same object, with the
    /// same options, on the current state. Deadlock detection keeps its age: a transaction that is
    /// retried eventually becomes the oldest, and the oldest is never chosen as the victim of a
    /// deadlock.
    pub fn reset(&self) -> Result<()> {
        self.inner().reset(self.engine.core())
    }
    /// Returns a handle that can abort the transaction from another thread.
    pub fn handle(&self) -> TxnHandle {
        TxnHandle(self.inner().abort_handle())
    }
    /// Returns the sequence number that all reads see; `None` if every read sees the newest commits
    /// (read committed).
    pub fn sequence(&self) -> Option<u64> {
        self.inner().snapshot().map(|seq| seq.0)
    }
    /// Returns the number of operations written so far.
    pub fn len(&self) -> usize {
        self.inner().written().0
    }
    /// Returns true if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the size in bytes of its writes, encoded as in the log.
    pub fn encoded_bytes(&self) -> u64 {
        self.inner().written().1
    }
    /// Returns the isolation level.
    pub fn isolation(&self) -> Isolation {
        translate::isolation_of(self.inner().settings().isolation)
    }
}

/// Maximum number of attempts of [`Db::write_txn`].
const MAX_ATTEMPTS: u32 = 100;
/// First and longest pause between two attempts, in microseconds.
const RETRY_PAUSE_US: (u64, u64) = (20, 20_000);

impl Db {
    /// Begins a transaction. Its isolation level is [`TxnOptions::isolation`], or else
    /// [`Options::isolation`](crate::Options).
    pub fn begin(&self, options: TxnOptions) -> Result<Txn> {
        begin_txn(&self.engine, &options, None)
    }

    /// Runs `work` in a transaction and commits it. After a `Conflict` runs it again on the current
    /// state, with increasing pauses, up to 100 times. So `work` can run more than once and must
    /// not have other side effects. If `work` returns an error, nothing is committed.
    ///
    /// ```
    /// # use perigee::{Db, Options, TxnOptions};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let family = db.default_family();
    /// let visits = db.write_txn(TxnOptions::new(), |txn| {
    ///     let seen = txn.get(&family, "visits")?.map_or(0, |v| v[0]);
    ///     txn.put(&family, "visits", [seen + 1])?;
    ///     Ok(seen + 1)
    /// })?;
    /// assert_eq!(visits, 1);
    /// # Ok(())
    /// # }
    /// ```
    /// # Errors
    /// Those of `work` and of [`Txn::commit`]; `Conflict` after 100 attempts.
    pub fn write_txn<T>(
        &self,
        options: TxnOptions,
        mut work: impl FnMut(&Txn) -> Result<T>,
    ) -> Result<T> {
        let txn = self.begin(options)?;
        let mut pause = RETRY_PAUSE_US.0;
        for attempt in 1.. {
            let result = work(&txn).and_then(|out| txn.commit().map(|_| out));
            match result {
                Err(e) if e.kind() == ErrorKind::Conflict && attempt < MAX_ATTEMPTS => {}
                result => return result,
            }
            // Release the locks during the pause.
            txn.rollback();
            let env = self.engine.env();
            env.clock.sleep_us(pause / 2 + env.rand.next_u64() % pause);
            pause = (pause * 2).min(RETRY_PAUSE_US.1);
            txn.reset()?;
        }
        Err(Error::internal("the retry loop ended without a result"))
    }
}

fn begin_txn(engine: &Arc<Engine>, options: &TxnOptions, family: Option<&Family>) -> Result<Txn> {
    let default = family.and_then(|f| f.inner.settings().isolation);
    let default = default.unwrap_or(engine.core().settings.isolation);
    let inner = engine.begin_txn(translate::txn_settings(options, default))?;
    Ok(Txn { inner: Mutex::new(inner), engine: Arc::clone(engine) })
}

impl Family {
    /// Begins a transaction, which may also use other column families. Its isolation level is
    /// [`TxnOptions::isolation`], or else the [`FamilyOptions::isolation`](crate::FamilyOptions) of
    /// this column family, or else [`Options::isolation`](crate::Options).
    ///
    /// ```
    /// # use perigee::{Db, FamilyOptions, Isolation, Options, TxnOptions};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// let db = Db::open("/doc", Options::in_env(env).isolation(Isolation::ReadCommitted))?;
    /// let options = FamilyOptions::new().isolation(Some(Isolation::Serializable));
    /// let ledger = db.create_family("ledger", options)?;
    /// assert_eq!(ledger.begin(TxnOptions::new())?.isolation(), Isolation::Serializable);
    /// assert_eq!(db.begin(TxnOptions::new())?.isolation(), Isolation::ReadCommitted);
    /// let options = TxnOptions::new().isolation(Isolation::Snapshot);
    /// assert_eq!(ledger.begin(options)?.isolation(), Isolation::Snapshot);
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin(&self, options: TxnOptions) -> Result<Txn> {
        begin_txn(&self.engine, &options, Some(self))
    }
}

impl Options {
    /// Sets [`Options::isolation`].
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }
}
