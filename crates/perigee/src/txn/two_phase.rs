//! Two-phase commit: prepared transactions, for transactions that span several databases.

use crate::{Durability, Isolation, Result, Txn};
use perigee_engine::{BytesPreview, Engine, PreparedTxn, TwoPhaseDecision};

/// A prepared transaction that is neither committed nor rolled back, as listed by
/// [`TwoPhaseCommit::prepared`].
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreparedTxnInfo {
    /// The identifier passed to [`Txn::prepare`].
    pub gid: Vec<u8>,
    /// Number of operations it will commit.
    pub operations: u64,
    /// Size in bytes of its writes, encoded as in the log; if it was spilled, of their keys and
    /// values.
    pub bytes: u64,
    /// Time at which it was prepared, in milliseconds since the Unix epoch.
    pub prepared_ms: u64,
    /// Isolation level.
    pub isolation: Isolation,
}

/// Prints only the first bytes of the identifier.
impl std::fmt::Debug for PreparedTxnInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedTxnInfo")
            .field("gid", &BytesPreview(&self.gid))
            .field("operations", &self.operations)
            .field("bytes", &self.bytes)
            .field("prepared_ms", &self.prepared_ms)
            .field("isolation", &self.isolation)
            .finish()
    }
}

impl PreparedTxnInfo {
    fn from_prepared(txn: &PreparedTxn) -> PreparedTxnInfo {
        check!(
            Isolation::decode(txn.level).is_some(),
            "the isolation level of a prepared transaction was checked when it was found",
            txn.level
        );
        PreparedTxnInfo {
            gid: txn.gid.clone(),
            operations: txn.operations,
            bytes: txn.written_bytes(),
            prepared_ms: txn.prepared_ms,
            isolation: Isolation::decode(txn.level).unwrap_or(Isolation::Serializable),
        }
    }
}

impl Txn {
    /// Prepares the transaction for two-phase commit under the global identifier `gid` (1 to 255
    /// bytes). After `Ok`, [`TwoPhaseCommit::commit`] with this identifier cannot fail with a
    /// conflict, in this process or after a crash; [`TwoPhaseCommit::rollback`] discards the
    /// transaction. The prepare record is synced before the call returns, with every
    /// [`Durability`](crate::Durability). The transaction object has then ended; [`Txn::reset`]
    /// begins a new transaction with it.
    ///
    /// Until it is committed or rolled back, its writes are not visible and its locks stay held.
    /// Every other commit fails with `Conflict` if it writes a key that the prepared transaction
    /// wrote, or one that it read and that its isolation level protects.
    ///
    /// ```
    /// # use perigee::{Db, ErrorKind, Options, TxnOptions};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let accounts = db.default_family();
    /// let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&accounts, "alice", "70")?;
    /// txn.prepare("transfer 12")?;
    /// assert_eq!(accounts.get("alice")?, None);
    /// assert_eq!(accounts.put("alice", "0").unwrap_err().kind(), ErrorKind::Conflict);
    /// db.two_phase().commit("transfer 12")?; // once all participants are prepared
    /// assert_eq!(accounts.get("alice")?.as_deref(), Some(&b"70"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The transaction stays open after:
    /// - `InvalidArgument` if `gid` is empty or longer than 255 bytes.
    /// - `AlreadyExists` if `gid` is in use.
    ///
    /// After all other errors the transaction has ended and will not be committed:
    /// - `Conflict` as for [`Txn::commit`]. A serializable transaction is also rejected, even if it
    ///   could still be committed, if another transaction has overwritten something that it read,
    ///   or is prepared to do so.
    /// - `InvalidArgument` if its writes and read set together exceed 2 GiB.
    /// - `NoSpace`, `Io`, `Aborted`.
    /// - `OutcomeUnknown`: after the next open, [`TwoPhaseCommit::prepared`] shows whether it is
    ///   prepared.
    pub fn prepare(&self, gid: impl AsRef<[u8]>) -> Result<()> {
        let mut inner = self.inner();
        let prepared = self.engine.prepare_txn(&mut inner, gid.as_ref());
        check!(
            prepared.is_err() || inner.written() == (0, 0),
            "a prepared transaction has left its writes to the log",
            inner.written()
        );
        prepared
    }
}

/// Two-phase commit of the prepared transactions of a database
/// ([`Db::two_phase`](crate::Db::two_phase)).
#[derive(Clone, Copy, Debug)]
pub struct TwoPhaseCommit<'a> {
    pub(crate) engine: &'a Engine,
}

impl TwoPhaseCommit<'_> {
    /// Commits a prepared transaction and returns the sequence number of its last operation. The
    /// commit is synced with every [`Durability`](crate::Durability), and cannot fail with a
    /// conflict.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&family, "moon", "full")?;
    /// txn.prepare("transfer 7")?;
    /// db.two_phase().commit("transfer 7")?;
    /// assert!(db.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if no transaction is prepared under `gid`: it was never prepared, or is already
    /// committed or rolled back. `Busy` if another thread is committing it or rolling it back, or if
    /// it is spilled ([`TxnOptions::spill_bytes`](crate::TxnOptions::spill_bytes)) and background
    /// work is paused. `NoSpace`, `Io`: it is still prepared. `OutcomeUnknown`: after the next open it is either
    /// committed or still prepared.
    pub fn commit(&self, gid: impl AsRef<[u8]>) -> Result<u64> {
        self.commit_with(gid, Durability::Full)
    }
    /// Commits like [`TwoPhaseCommit::commit`] with another durability: for a coordinator whose own
    /// log has the decision and repeats it after a crash, so that one sync per transaction is saved.
    ///
    /// With less than [`Durability::Full`], a crash of the machine may lose the decision. The
    /// transaction is then prepared again: as a whole, with everything that it protects, and
    /// together with all later commits, which are lost as well. A crash of the process loses
    /// nothing. [`Db::sync`](crate::Db::sync) and every later synced commit make the decision
    /// durable.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&family, "moon", "full")?;
    /// txn.prepare("transfer 7")?; // synced
    /// // ... the coordinator syncs its own log, which now contains the decision ...
    /// db.two_phase().commit_with("transfer 7", Durability::None)?;
    /// assert!(db.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`TwoPhaseCommit::commit`].
    pub fn commit_with(&self, gid: impl AsRef<[u8]>, durability: Durability) -> Result<u64> {
        let decision = TwoPhaseDecision::Commit;
        Ok(self.engine.decide_prepared(gid.as_ref(), decision, durability)?.0)
    }
    /// Rolls a prepared transaction back, durably. Its writes are discarded and its keys can be
    /// written again.
    ///
    /// ```
    /// # use perigee::{Db, ErrorKind, Options, TxnOptions};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&db.default_family(), "seat 12", "bob")?;
    /// txn.prepare("booking 7")?;
    /// db.two_phase().rollback("booking 7")?;
    /// db.put("seat 12", "alice")?;
    /// assert_eq!(db.two_phase().rollback("booking 7").unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`TwoPhaseCommit::commit`]; after `OutcomeUnknown` it is either rolled back or still
    /// prepared.
    pub fn rollback(&self, gid: impl AsRef<[u8]>) -> Result<()> {
        let decision = TwoPhaseDecision::RollBack;
        self.engine.decide_prepared(gid.as_ref(), decision, Durability::Full).map(drop)
    }
    /// Returns the prepared transactions that are neither committed nor rolled back, sorted by
    /// identifier, including those found at open. Each uses memory and blocks conflicting commits
    /// until [`TwoPhaseCommit::commit`] or [`TwoPhaseCommit::rollback`] is called.
    ///
    /// ```
    /// # use perigee::{Db, Options, TxnOptions};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// # let options = Options::in_env(env);
    /// # let db = Db::open("/doc", options.clone())?;
    /// let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&db.default_family(), "moon", "full")?;
    /// txn.prepare("tide 3")?;
    /// drop(txn);
    /// db.close()?; // or a crash
    ///
    /// # let db = Db::open("/doc", options)?;
    /// for prepared in db.two_phase().prepared()? {
    ///     assert_eq!((&prepared.gid[..], prepared.operations), (&b"tide 3"[..], 1));
    ///     db.two_phase().commit(&prepared.gid)?; // or roll back, as the coordinator decided
    /// }
    /// assert!(db.contains("moon")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prepared(&self) -> Result<Vec<PreparedTxnInfo>> {
        Ok(self
            .engine
            .prepared_txns()?
            .iter()
            .map(|txn| PreparedTxnInfo::from_prepared(txn))
            .collect())
    }
}
