//! Atomic changes of one key that depend on its value: compare and swap, update, take. Each is a
//! short transaction that is retried after a conflict.

use crate::txn::begin::{begin_txn, retry_on_conflict};
use crate::{Family, Isolation, Result, Slice, Txn, TxnOptions};

/// The key did not have the expected value. Returned by [`Family::compare_and_swap`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompareAndSwapError {
    /// The value that the key has instead; `None` if it does not exist.
    pub current: Option<Slice>,
}

impl std::fmt::Display for CompareAndSwapError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.current {
            Some(value) => write!(f, "the key does not have the expected value, but {value:?}"),
            None => f.write_str("the key does not have the expected value: it does not exist"),
        }
    }
}

impl std::error::Error for CompareAndSwapError {}

impl Family {
    /// Replaces the value of `key` with `new` if it is `expected`, where `None` stands for a key
    /// that does not exist. So `None` as `expected` only inserts, and `None` as `new` deletes.
    /// Atomic: no other write of the key, of any kind, comes between the comparison and the change.
    /// Returns `Ok(Err(_))`, and changes nothing, if the key has another value. The new value does
    /// not expire.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let locks = db.create_family("locks", Default::default())?;
    /// assert!(locks.compare_and_swap("leader", None, Some(b"node 1"))?.is_ok());
    /// let refused = locks.compare_and_swap("leader", None, Some(b"node 2"))?.unwrap_err();
    /// assert_eq!(refused.current.expect("a leader"), "node 1");
    /// assert!(locks.compare_and_swap("leader", Some(b"node 1"), None)?.is_ok());
    /// assert_eq!(locks.get("leader")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Conflict` if other commits changed the key during each of 100 attempts, or if a prepared
    /// transaction holds it; as [`Family::get`] and [`Family::put`] otherwise.
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<std::result::Result<(), CompareAndSwapError>> {
        let key = key.as_ref();
        self.run_short_txn(|txn| {
            let current = txn.get_pinned(self, key)?;
            if current.as_deref() != expected {
                return Ok(Err(CompareAndSwapError { current }));
            }
            match new {
                Some(value) => txn.put(self, key, value)?,
                None if current.is_some() => txn.delete(self, key)?,
                None => {}
            }
            Ok(Ok(()))
        })
    }

    /// Replaces the value of `key` with what `change` returns for it, where `None` stands for a key
    /// that does not exist, and returns the new value. Atomic like [`Family::compare_and_swap`].
    /// `change` is called again if another commit changed the key in the meantime, so it must not
    /// have other side effects. The new value does not expire.
    ///
    /// A counter that is changed often is cheaper as a [`Family::merge`], which reads nothing and
    /// has no conflicts.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let visits = db.create_family("visits", Default::default())?;
    /// let add_one = |old: Option<&[u8]>| {
    ///     let number = old.map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap_or_default()));
    ///     Some((number + 1).to_le_bytes())
    /// };
    /// visits.update("alice", add_one)?;
    /// assert_eq!(visits.update("alice", add_one)?, Some(2u64.to_le_bytes().to_vec()));
    /// visits.update("alice", |_| None::<Vec<u8>>)?; // deletes the key
    /// assert!(!visits.contains("alice")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::compare_and_swap`].
    pub fn update<V: Into<Vec<u8>>>(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Vec<u8>>> {
        let key = key.as_ref();
        self.run_short_txn(|txn| {
            let current = txn.get_pinned(self, key)?;
            let new = change(current.as_deref()).map(Into::into);
            match &new {
                Some(value) => txn.put(self, key, value)?,
                None if current.is_some() => txn.delete(self, key)?,
                None => {}
            }
            Ok(new)
        })
    }

    /// Deletes `key` and returns the value that it had; `None` if it did not exist. Atomic like
    /// [`Family::compare_and_swap`]: if several threads take the same key, only one gets the value.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let jobs = db.create_family("jobs", Default::default())?;
    /// jobs.put("job 1", "send the letter")?;
    /// assert_eq!(jobs.take("job 1")?.as_deref(), Some(&b"send the letter"[..]));
    /// assert_eq!(jobs.take("job 1")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::compare_and_swap`].
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let key = key.as_ref();
        self.run_short_txn(|txn| {
            let current = txn.get(self, key)?;
            if current.is_some() {
                txn.delete(self, key)?;
            }
            Ok(current)
        })
    }

    /// Runs `work` in transactions with snapshot isolation, not the default level: weaker levels
    /// lose updates.
    fn run_short_txn<T>(&self, work: impl FnMut(&Txn) -> Result<T>) -> Result<T> {
        let options = TxnOptions::new().isolation(Isolation::Snapshot);
        retry_on_conflict(&begin_txn(&self.engine, &options, None)?, work)
    }
}
