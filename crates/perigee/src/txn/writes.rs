//! Writes and locks of a transaction.

use crate::txn::options::to_micros;
use crate::write::range_delete;
use crate::{Family, Result, Slice, Txn, limits};
use perigee_engine::{Batch, Expiry, KeyBoundary, KeyOrRangeRef, LockMode};
use std::ops::RangeBounds;
use std::time::Duration;

impl Txn {
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
    /// `Busy` if the lock was not granted within
    /// [`TxnOptions::lock_timeout`](crate::TxnOptions::lock_timeout); `Interrupted` if
    /// [`TxnHandle::cancel_wait`](crate::TxnHandle::cancel_wait) ended the wait; `Conflict` if this
    /// transaction is the victim of a deadlock, or if the key was changed after the moment that its
    /// reads see; as [`Family::get`] otherwise.
    pub fn get_for_update(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        mode: LockMode,
    ) -> Result<Option<Slice>> {
        let family = family.inner_for(&self.engine)?;
        let value = self.engine.get_for_update(family, &mut self.inner(), key.as_ref(), mode)?;
        Ok(value.map(Slice))
    }
    /// Locks `key` without reading it. See [`Txn::get_for_update`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let options = TxnOptions::new().pessimistic(true).lock_timeout(std::time::Duration::ZERO);
    /// # let txn = db.begin(options.clone())?;
    /// # let other = db.begin(options)?;
    /// txn.lock(&family, "seat 12", LockMode::Exclusive)?;
    /// assert_eq!(other.put(&family, "seat 12", "bob").unwrap_err().kind(), ErrorKind::Busy);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn lock(&self, family: &Family, key: impl AsRef<[u8]>, mode: LockMode) -> Result<()> {
        let target = KeyOrRangeRef::Key(key.as_ref());
        self.inner().lock(self.engine.runtime(), family.inner_for(&self.engine)?, target, mode)
    }
    /// Locks all keys in a range, including keys that do not exist yet. See [`LockMode`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let options = TxnOptions::new().pessimistic(true).lock_timeout(std::time::Duration::ZERO);
    /// # let txn = db.begin(options.clone())?;
    /// # let other = db.begin(options)?;
    /// txn.lock_range(&family, "seat 10".."seat 20", LockMode::Exclusive)?; // every key
    /// assert_eq!(other.put(&family, "seat 12", "bob").unwrap_err().kind(), ErrorKind::Busy);
    /// other.put(&family, "seat 20", "bob")?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn lock_range<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
        mode: LockMode,
    ) -> Result<()> {
        let (begin, end) = range_delete::range_to_cuts(&range);
        self.inner().lock(
            self.engine.runtime(),
            family.inner_for(&self.engine)?,
            KeyOrRangeRef::Range(begin.as_ref(), end.as_ref()),
            mode,
        )
    }
    /// Undoes the newest call of [`Txn::lock`] or [`Txn::get_for_update`] for `key`, so that another
    /// transaction can lock it: for a program that locks what it reads and then finds that it does
    /// not need the key. Returns true if the lock was released.
    ///
    /// Returns false, and the key stays locked,
    /// - if it was locked by more calls: a key that was locked twice needs two calls, so that a part
    ///   of a program does not release what another part has locked;
    /// - if the transaction has written the key (a write that was rolled back does not count);
    /// - if it is locked by [`Txn::lock_range`] only, or not at all.
    ///
    /// After an upgrade from a shared to an exclusive lock, the first call releases the exclusive
    /// one. A rollback to a savepoint does not lock again what was unlocked since, and releases
    /// what was locked since. What [`Txn::get_for_update`] has read still counts for the conflict
    /// check of the commit.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let options = TxnOptions::new().pessimistic(true).lock_timeout(std::time::Duration::ZERO);
    /// # let txn = db.begin(options.clone())?;
    /// # let other = db.begin(options)?;
    /// txn.get_for_update(&family, "seat 12", LockMode::Exclusive)?;
    /// assert!(txn.unlock(&family, "seat 12")?);
    /// other.put(&family, "seat 12", "bob")?;
    /// assert!(!other.unlock(&family, "seat 12")?); // it has written the key
    /// # Ok::<(), Error>(())
    /// ```
    pub fn unlock(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<bool> {
        let inner_family = family.inner_for(&self.engine)?;
        self.inner().unlock(self.engine.runtime(), inner_family, key.as_ref())
    }
    /// Sets the longest wait of later calls for a lock, in place of
    /// [`TxnOptions::lock_timeout`](crate::TxnOptions::lock_timeout). With zero they do not wait.
    /// [`Txn::reset`] keeps the new value.
    ///
    /// ```
    /// # use perigee::*;
    /// # use std::time::Duration;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let holder = db.begin(TxnOptions::new().pessimistic(true))?;
    /// holder.lock(&family, "seat 12", LockMode::Exclusive)?;
    /// let txn = db.begin(TxnOptions::new().lock_timeout(Duration::from_secs(3600)))?;
    /// txn.set_lock_timeout(Duration::ZERO); // skip what is locked
    /// let locked = txn.lock(&family, "seat 12", LockMode::Exclusive);
    /// assert_eq!(locked.unwrap_err().kind(), ErrorKind::Busy);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn set_lock_timeout(&self, timeout: Duration) {
        self.inner().set_lock_timeout_us(to_micros(timeout));
    }

    pub(crate) fn write_key(
        &self,
        family: &Family,
        key: &[u8],
        mode: LockMode,
        write: impl FnOnce(&mut Batch) -> Result<()>,
    ) -> Result<()> {
        let inner_family = family.inner_for(&self.engine)?;
        let lock_target = || (KeyOrRangeRef::Key(key), mode);
        let mut inner = self.inner();
        self.engine.spill_if_full(&mut inner)?;
        inner.write(self.engine.runtime(), inner_family, lock_target, write)
    }
    /// Sets `key` to `value`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&family, "moon", "full")?;
    /// assert!(txn.contains(&family, "moon")? && !family.contains("moon")?);
    /// txn.commit()?;
    /// assert!(family.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The write is not applied:
    /// - `InvalidArgument` if a limit is exceeded
    ///   ([`TxnOptions::max_bytes`](crate::TxnOptions::max_bytes) included), or the transaction is
    ///   read-only or has ended.
    /// - `Busy` or `Conflict` as for [`Txn::get_for_update`], if the transaction is pessimistic.
    /// - `NoSpace` or `Io` if the writes exceed
    ///   [`TxnOptions::spill_bytes`](crate::TxnOptions::spill_bytes) and cannot be spilled to disk.
    /// - `Aborted` after [`TxnHandle::abort`](crate::TxnHandle::abort) or
    ///   [`TxnOptions::timeout`](crate::TxnOptions::timeout).
    pub fn put(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (id, key, value) = (family.inner.id, key.as_ref(), value.as_ref());
        if value.len() > limits::VALUE_BYTES_MAX {
            return self.put_long(family, key, value, None);
        }
        self.write_key(family, key, LockMode::Insert, |batch| batch.put(id, key, value))
    }
    /// Sets `key` to `value` with a time to live of `ttl`, which starts now, not at the commit. See
    /// [`Family::put_with_ttl`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// txn.put_with_ttl(&family, "session", "alice", std::time::Duration::from_secs(60))?;
    /// txn.commit()?;
    /// assert!(family.get_with_ttl("session")?.expect("not expired").expires_at_ms.is_some());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn put_with_ttl(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.put_until(family, key, value, family.expiry_after(ttl).0)
    }
    /// Sets `key` to `value` until `expires_at_ms`, in milliseconds since the Unix epoch. See
    /// [`Family::put_until`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// let tomorrow = db.admin().clock().now_ms + 24 * 60 * 60 * 1000;
    /// txn.put_until(&family, "session", "alice", tomorrow)?;
    /// txn.commit()?;
    /// assert_eq!(family.get_with_ttl("session")?.and_then(|v| v.expires_at_ms), Some(tomorrow));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn put_until(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_at_ms: u64,
    ) -> Result<()> {
        let (id, key, value) = (family.inner.id, key.as_ref(), value.as_ref());
        let expiry = Expiry(expires_at_ms);
        if value.len() > limits::VALUE_BYTES_MAX {
            return self.put_long(family, key, value, Some(expiry));
        }
        self.write_key(family, key, LockMode::Insert, |batch| {
            batch.put_expiring(id, key, value, expiry)
        })
    }
    /// Deletes `key`. Fails like [`Txn::put`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let txn = db.begin(TxnOptions::new())?;
    /// # txn.put(&family, "tide", "high")?;
    /// txn.delete(&family, "moon")?;
    /// txn.commit()?;
    /// assert!(!family.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn delete(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        let (id, key) = (family.inner.id, key.as_ref());
        self.write_key(family, key, LockMode::Exclusive, |batch| batch.delete(id, key))
    }
    /// Deletes a key that was put at most once. See [`Family::single_delete`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let txn = db.begin(TxnOptions::new())?;
    /// # txn.put(&family, "tide", "high")?;
    /// txn.single_delete(&family, "moon")?; // was put only once
    /// txn.commit()?;
    /// assert!(!family.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
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
        let range = KeyOrRangeRef::Range(begin.as_ref(), end.as_ref());
        let lock_target = || (range, LockMode::Exclusive);
        let write = |batch: &mut Batch| range_delete::add_range_delete(batch, family, &begin, &end);
        let mut inner = self.inner();
        self.engine.spill_if_full(&mut inner)?;
        inner.write(self.engine.runtime(), inner_family, lock_target, write)
    }
    /// Deletes all keys in a range with one range tombstone. See [`Family::delete_range`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let txn = db.begin(TxnOptions::new())?;
    /// # txn.put(&family, "tide", "high")?;
    /// txn.delete_range(&family, "a".."n")?;
    /// txn.commit()?;
    /// assert_eq!(family.keys()?.count(), 1); // "tide"
    /// # Ok::<(), Error>(())
    /// ```
    pub fn delete_range<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        self.write_range_delete(family, range_delete::range_to_cuts(&range))
    }
    /// Deletes all keys that start with `prefix` with one range tombstone. See
    /// [`Family::delete_prefix`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let txn = db.begin(TxnOptions::new())?;
    /// # txn.put(&family, "tide", "high")?;
    /// txn.delete_prefix(&family, "mo")?;
    /// txn.commit()?;
    /// assert_eq!(family.keys()?.count(), 1); // "tide"
    /// # Ok::<(), Error>(())
    /// ```
    pub fn delete_prefix(&self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<()> {
        family.inner_for(&self.engine)?;
        self.write_range_delete(family, range_delete::prefix_to_cuts(family, prefix.as_ref())?)
    }
}
