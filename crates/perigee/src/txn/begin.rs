//! Begins transactions, and repeats them after a conflict ([`Db::write_txn`]).

use crate::txn::limits::{TXN_ATTEMPTS_MAX, TXN_RETRY_US_MAX, TXN_RETRY_US_MIN};
use crate::{Db, Error, ErrorKind, Family, Result, Txn, TxnOptions};
use perigee_engine::Engine;
use std::sync::Arc;

impl Db {
    /// Begins a transaction. Its isolation level is [`TxnOptions::isolation`], or else
    /// [`Options::isolation`](crate::Options).
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// let txn = db.begin(TxnOptions::new().isolation(Isolation::Serializable))?;
    /// let visits = txn.get(&family, "visits")?.map_or(0, |v| v[0]);
    /// txn.put(&family, "visits", [visits + 1])?;
    /// txn.commit()?;
    /// assert_eq!(db.get("visits")?, Some(vec![1]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn begin(&self, options: TxnOptions) -> Result<Txn> {
        begin_txn(&self.engine, &options, None)
    }

    /// Runs `work` in a transaction, commits it, and returns the result of `work`. After a
    /// conflict, runs `work` again on the current state, with increasing pauses, up to 100 times.
    /// So `work` can run more than once and must not have other side effects. If it returns an
    /// error, nothing is committed.
    ///
    /// `work` can fail with any error type that an [`Error`] converts into, such as the
    /// program's own error type, [`std::io::Error`] or `Box<dyn std::error::Error>`. Usually the
    /// compiler cannot infer the type, so annotate it: `|txn| -> perigee::Result<_> { ... }`.
    ///
    /// ```
    /// # use perigee::{Db, Options, TxnOptions};
    /// #[derive(Debug)]
    /// enum Refused {
    ///     Full,
    ///     Db(perigee::Error),
    /// }
    /// impl From<perigee::Error> for Refused {
    ///     fn from(e: perigee::Error) -> Refused {
    ///         Refused::Db(e)
    ///     }
    /// }
    /// # fn main() -> Result<(), Refused> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    ///
    /// let family = db.default_family();
    /// let enter = || {
    ///     db.write_txn(TxnOptions::new(), |txn| {
    ///         let visitors = txn.get(&family, "visitors")?.map_or(0, |v| v[0]);
    ///         if visitors == 2 {
    ///             return Err(Refused::Full); // ends the transaction
    ///         }
    ///         txn.put(&family, "visitors", [visitors + 1])?; // an error becomes a `Refused::Db`
    ///         Ok(visitors + 1)
    ///     })
    /// };
    /// assert_eq!(enter()?, 1);
    /// assert_eq!(enter()?, 2);
    /// assert!(matches!(enter(), Err(Refused::Full)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - An error of `work`, at once, unless one of its calls on the transaction had failed with
    ///   `Conflict`. Then the transaction is out of date, or the victim of a deadlock, and `work`
    ///   runs again, even if it returned another error; after 100 attempts its error is returned.
    /// - Those of [`Txn::commit`], converted; of these only `Conflict` leads to another attempt.
    /// - Those of [`Db::begin`], converted.
    pub fn write_txn<T, E: From<Error>>(
        &self,
        options: TxnOptions,
        work: impl FnMut(&Txn) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        retry_on_conflict(&self.begin(options)?, work)
    }
}

/// Runs `work` and commits; after a conflict resets the transaction and tries again.
pub(crate) fn retry_on_conflict<T, E: From<Error>>(
    txn: &Txn,
    mut work: impl FnMut(&Txn) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let mut pause = TXN_RETRY_US_MIN;
    for attempt in 1.. {
        let may_retry = attempt < TXN_ATTEMPTS_MAX;
        match work(txn) {
            Ok(out) => match txn.commit_in_place(None) {
                Err(e) if may_retry && e.kind() == ErrorKind::Conflict => {}
                done => return Ok(done.map(|_| out)?),
            },
            Err(_) if may_retry && txn.inner().had_conflict() => {}
            Err(e) => return Err(e),
        }
        // Release the locks during the pause.
        txn.rollback_in_place();
        let env = txn.engine.env();
        env.clock.sleep_us(pause / 2 + env.rand.next_u64() % pause);
        pause = (pause * 2).min(TXN_RETRY_US_MAX);
        txn.reset()?;
        check!(txn.is_empty(), "another attempt begins without the writes of the last", txn.len());
    }
    Err(Error::internal("the retry loop ended without a result").into())
}

pub(crate) fn begin_txn(
    engine: &Arc<Engine>,
    options: &TxnOptions,
    family: Option<&Family>,
) -> Result<Txn> {
    let default = family.and_then(|f| f.inner.settings().isolation);
    let default = default.unwrap_or(engine.runtime().settings.isolation);
    let inner = engine.begin_txn(options.to_settings(default))?;
    Ok(Txn::new(inner, Arc::clone(engine)))
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
