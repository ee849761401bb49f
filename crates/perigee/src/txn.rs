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

/// A transaction over any number of families: its writes are its own until [`Txn::commit`], and
/// then all of them happen at once or none does. Dropping it rolls it back. What its reads see, and
/// what makes its commit a `Conflict`, says its [`Isolation`].
///
/// Its own writes are seen by its reads, in every direction. Cursors and iterators show the
/// transaction as it was when they were made: what it writes or takes back later does not disturb
/// them.
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
/// assert_eq!(accounts.get("bob")?, None); // nobody else sees it yet
/// txn.commit()?;
/// assert_eq!(accounts.get("bob")?.as_deref(), Some(&b"30"[..]));
///
/// let late = db.begin(TxnOptions::new())?;
/// accounts.put("alice", "0")?; // somebody is faster
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

/// Ends a transaction from another thread. See [`Txn::handle`].
#[derive(Clone)]
pub struct TxnHandle(TxnAbortHandle);

/// Short: of which database. The rest is behind a lock that the caller may hold.
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
    /// From now on the transaction answers every call with `Aborted`, and nothing of it happens.
    /// False if it has ended already or is being committed.
    pub fn abort(&self) -> bool {
        self.0.abort()
    }
}

impl Txn {
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// The value of `key`, copied.
    pub fn get(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.get_pinned(family, key)?.map(Vec::from))
    }
    /// The value of `key`, without a copy.
    pub fn get_pinned(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.read_key(family, key.as_ref(), true)
    }
    /// The value of `key`, by a read that the transaction does not depend on: a later change of the
    /// key is no conflict.
    pub fn get_untracked(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.read_key(family, key.as_ref(), false)
    }
    /// Whether `key` is there.
    pub fn contains(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<bool> {
        self.key_exists(family, key.as_ref(), true)
    }
    /// Whether `key` is there, by a read that the transaction does not depend on.
    pub fn contains_untracked(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<bool> {
        self.key_exists(family, key.as_ref(), false)
    }
    fn key_exists(&self, family: &Family, key: &[u8], tracked: bool) -> Result<bool> {
        let started = self.engine.start_get_timer();
        let there = self.inner().contains(
            self.engine.core(),
            family.inner_for(&self.engine)?,
            key,
            tracked,
        )?;
        self.engine.finish_get(started, there);
        Ok(there)
    }
    fn read_key(&self, family: &Family, key: &[u8], tracked: bool) -> Result<Option<Slice>> {
        let started = self.engine.start_get_timer();
        let value =
            self.inner().get(self.engine.core(), family.inner_for(&self.engine)?, key, tracked)?;
        self.engine.finish_get(started, value.is_some());
        Ok(value.map(Slice))
    }
    /// The values of many keys, in the order of the keys.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Slice>>> {
        keys.into_iter().map(|key| self.get_pinned(family, key)).collect()
    }

    /// All entries.
    pub fn iter(&self, family: &Family) -> Result<Iter> {
        self.new_iter(family, ScanBounds::all())
    }
    /// The entries of a range.
    pub fn range<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<Iter> {
        self.new_iter(family, range_to_bounds(&range))
    }
    /// The entries whose key starts with `prefix`.
    pub fn prefix(&self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.new_iter(
            family,
            ScanBounds::prefix(family.inner_for(&self.engine)?.tree.comparator(), prefix.as_ref())?,
        )
    }
    /// A cursor over all entries.
    pub fn cursor(&self, family: &Family) -> Result<Cursor> {
        self.new_cursor(family, ScanBounds::all())
    }
    /// A cursor that stays within a range.
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
        let walk = inner.scan_tracker(&family.inner);
        Ok(Cursor::new(&self.engine, view, at, bounds.clone()).with_read_tracking(walk, &bounds))
    }

    /// Locks `key`, then reads it: nobody who locks it too gets in between this read and the
    /// commit. The lock is held until the transaction ends, or goes back to a savepoint set before.
    /// Writers that take no locks are not kept out: the commit sees them.
    ///
    /// ```
    /// # use perigee::{Db, LockMode, Options, TxnOptions};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let family = db.default_family();
    /// let pessimist = TxnOptions::new().pessimistic(true).lock_timeout(std::time::Duration::ZERO);
    /// let txn = db.begin(pessimist.clone())?;
    /// assert_eq!(txn.get_for_update(&family, "seat 12", LockMode::Exclusive)?, None);
    /// let other = db.begin(pessimist)?;
    /// assert!(other.put(&family, "seat 12", "bob").unwrap_err().is_retryable()); // would have to wait
    /// txn.put(&family, "seat 12", "alice")?;
    /// txn.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Busy` if the lock was not to be had in time; `Conflict` for the victim of a deadlock, or if
    /// the key was changed since the moment that all reads see.
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
    /// Locks a key. See [`Txn::get_for_update`].
    pub fn lock(&self, family: &Family, key: impl AsRef<[u8]>, mode: LockMode) -> Result<()> {
        let place = KeyOrRange::Key(key.as_ref().to_vec());
        self.inner().lock(self.engine.core(), family.inner_for(&self.engine)?, place, mode)
    }
    /// Locks every key of a range, those that are not there too. See [`LockMode::Gap`].
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
        let own = family.inner_for(&self.engine)?;
        let place = || (KeyOrRange::Key(key.to_vec()), mode);
        let mut inner = self.inner();
        self.engine.spill_if_full(&mut inner)?;
        inner.write(self.engine.core(), own, place, write)
    }
    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `InvalidArgument` if a limit would be broken, or the transaction only reads; the transaction
    /// is unchanged. Those of [`Txn::get_for_update`] if it is pessimistic.
    pub fn put(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (id, key) = (family.inner.id, key.as_ref());
        self.write_key(family, key, LockMode::Insert, |batch| batch.put(id, key, value.as_ref()))
    }
    /// Sets `key` to `value` for as long as `ttl`, counted from now. See [`Family::put_with_ttl`].
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
    /// Sets `key` to `value` up to a time, in milliseconds since the Unix epoch. See
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
    /// Removes `key`.
    pub fn delete(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        let (id, key) = (family.inner.id, key.as_ref());
        self.write_key(family, key, LockMode::Exclusive, |batch| batch.delete(id, key))
    }
    /// Removes a key that was put at most once. See [`Family::single_delete`].
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
        let own = family.inner_for(&self.engine)?;
        let place = || (KeyOrRange::Range(begin.clone(), end.clone()), LockMode::Exclusive);
        let write = |batch: &mut Batch| range_delete::add_range_delete(batch, family, &begin, &end);
        let mut inner = self.inner();
        self.engine.spill_if_full(&mut inner)?;
        inner.write(self.engine.core(), own, place, write)
    }
    /// Removes every key of a range, in one operation. See [`Family::delete_range`].
    pub fn delete_range<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        self.write_range_delete(family, range_delete::range_to_cuts(&range))
    }
    /// Removes every key that starts with `prefix`, in one operation. See
    /// [`Family::delete_prefix`].
    pub fn delete_prefix(&self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<()> {
        family.inner_for(&self.engine)?;
        self.write_range_delete(family, range_delete::prefix_to_cuts(family, prefix.as_ref())?)
    }

    /// Sets a savepoint, whatever was written before. Names may repeat; the newest is meant then.
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
    /// txn.rollback_to("row")?; // it stays set
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
    /// Takes back what was written since a savepoint. It stays; those set after it go.
    ///
    /// # Errors
    /// `NotFound` if there is none of that name.
    pub fn rollback_to(&self, name: impl AsRef<str>) -> Result<()> {
        self.inner().roll_back_to_savepoint(self.engine.core(), name.as_ref())
    }
    /// Forgets a savepoint and those set after it; what was written stays.
    ///
    /// # Errors
    /// `NotFound` if there is none of that name.
    pub fn release(&self, name: impl AsRef<str>) -> Result<()> {
        self.inner().release_savepoint(self.engine.core(), name.as_ref())
    }

    /// Commits with the database's durability; the transaction has ended then, whatever the answer.
    /// The number of its last operation; if it wrote nothing, that of the present.
    ///
    /// # Errors
    /// `Conflict`: another transaction came first, and nothing of this one happened;
    /// [`Error::family`] and [`Error::key`] say where. `Aborted`: its time was over. Those of
    /// [`Db::write`].
    pub fn commit(&self) -> Result<u64> {
        let done = self.engine.commit_txn(&mut self.inner(), None);
        self.engine.run_commit_hooks();
        Ok(done?.0)
    }
    /// Commits with that durability.
    pub fn commit_with(&self, durability: Durability) -> Result<u64> {
        let done =
            self.engine.commit_txn(&mut self.inner(), Some(translate::durability(durability)));
        self.engine.run_commit_hooks();
        Ok(done?.0)
    }
    /// Ends it; nothing of it happened.
    pub fn rollback(&self) {
        self.inner().end();
    }
    /// Begins it anew, on the present, with the same options. What it had not committed is
    /// forgotten.
    pub fn reset(&self) -> Result<()> {
        self.inner().reset(self.engine.core())
    }
    /// To end it from another thread.
    pub fn handle(&self) -> TxnHandle {
        TxnHandle(self.inner().abort_handle())
    }
    /// The sequence number that its reads see, if they all see the same.
    pub fn sequence(&self) -> Option<u64> {
        self.inner().snapshot().map(|seq| seq.0)
    }
    /// Operations written so far.
    pub fn len(&self) -> usize {
        self.inner().written().0
    }
    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes that it takes in the log.
    pub fn encoded_bytes(&self) -> u64 {
        self.inner().written().1
    }
    /// What it is protected from.
    pub fn isolation(&self) -> Isolation {
        translate::isolation_of(self.inner().settings().isolation)
    }
}

/// So often does [`Db::write_txn`] try.
const MAX_CONFLICT_RETRIES: u32 = 100;
/// The first pause between two tries, and the longest.
const RETRY_PAUSE_US: (u64, u64) = (20, 20_000);

impl Db {
    /// Begins a transaction; what it is protected from says [`TxnOptions::isolation`], or else
    /// [`Options::isolation`](crate::Options).
    pub fn begin(&self, options: TxnOptions) -> Result<Txn> {
        begin_txn(&self.engine, &options, None)
    }

    /// Runs `work` in a transaction and commits it; after a conflict all of it once more, on the
    /// present, with pauses that grow. If `work` fails, nothing happened. It must not depend on
    /// having run only once.
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
    ///
    /// # Errors
    /// Those of `work` and of the commit; `Conflict` if a hundred tries were in vain.
    pub fn write_txn<T>(
        &self,
        options: TxnOptions,
        mut work: impl FnMut(&Txn) -> Result<T>,
    ) -> Result<T> {
        let txn = self.begin(options)?;
        let mut pause = RETRY_PAUSE_US.0;
        for tried in 1.. {
            let done = work(&txn).and_then(|out| txn.commit().map(|_| out));
            match done {
                Err(e) if e.kind() == ErrorKind::Conflict && tried < MAX_CONFLICT_RETRIES => {}
                done => return done,
            }
            // What it has locked is free meanwhile.
            txn.rollback();
            let env = self.engine.env();
            env.clock.sleep_us(pause / 2 + env.rand.next_u64() % pause);
            pause = (pause * 2).min(RETRY_PAUSE_US.1);
            txn.reset()?;
        }
        Err(Error::internal("a loop without an end has ended"))
    }
}

fn begin_txn(engine: &Arc<Engine>, options: &TxnOptions, family: Option<&Family>) -> Result<Txn> {
    let default = family.and_then(|f| f.inner.settings().isolation);
    let default = default.unwrap_or(engine.core().settings.isolation);
    let inner = engine.begin_txn(translate::txn_settings(options, default))?;
    Ok(Txn { inner: Mutex::new(inner), engine: Arc::clone(engine) })
}

impl Family {
    /// Begins a transaction, which may be about other families, too: what it is protected from says
    /// [`TxnOptions::isolation`], or else this family's
    /// [`FamilyOptions::isolation`](crate::FamilyOptions), or else the database's.
    ///
    /// ```
    /// # use perigee::{Db, FamilyOptions, Isolation, Options, TxnOptions};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// let db = Db::open("/doc", Options::in_env(env).isolation(Isolation::ReadCommitted))?;
    /// let ledger = db.create_family("ledger", FamilyOptions::new().isolation(Some(Isolation::Serializable)))?;
    /// assert_eq!(ledger.begin(TxnOptions::new())?.isolation(), Isolation::Serializable);
    /// assert_eq!(db.begin(TxnOptions::new())?.isolation(), Isolation::ReadCommitted);
    /// let asked = TxnOptions::new().isolation(Isolation::Snapshot);
    /// assert_eq!(ledger.begin(asked)?.isolation(), Isolation::Snapshot);
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
