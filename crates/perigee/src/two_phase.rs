//! Two-phase commit: prepared transactions, for transactions that span several databases.

use crate::{Db, Isolation, Result, Txn, translate};
use perigee_base::pinned_slice::BytesPreview;
use perigee_engine::TwoPhaseDecision;
use perigee_engine::prepared_txns::PreparedTxn;
use perigee_engine::txn::IsolationLevel as Level;

/// A prepared transaction that is neither committed nor rolled back, as listed by
/// [`Db::recover_prepared`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreparedTxnInfo {
    /// The identifier passed to [`Txn::prepare`].
    pub gid: Vec<u8>,
    /// Number of operations it will commit.
    pub operations: u64,
    /// Size in bytes of its writes, encoded as in the log.
    pub bytes: u64,
    /// Time of the prepare in milliseconds since the Unix epoch.
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
        PreparedTxnInfo {
            gid: txn.gid.clone(),
            operations: u64::from(txn.operations),
            bytes: txn.payload().len() as u64,
            prepared_ms: txn.prepared_ms,
            isolation: translate::isolation_of(
                Level::decode(txn.level).unwrap_or(Level::Serializable),
            ),
        }
    }
}

impl Txn {
    /// Prepares the transaction for two-phase commit under the global identifier `gid` (1 to 255
    /// bytes). After `Ok`, [`Db::commit_prepared`] with this identifier cannot fail with a
    /// conflict, in this process or after a crash; [`Db::rollback_prepared`] discards the
    /// transaction. The prepare record is synced before the call returns, whatever the durability
    /// of the database. The transaction object has then ended; [`Txn::reset`] begins a new
    /// transaction with it.
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
    /// db.commit_prepared("transfer 12")?; // once all participants are prepared
    /// assert_eq!(accounts.get("alice")?.as_deref(), Some(&b"70"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The transaction stays open after:
    /// - `InvalidArgument` if `gid` is empty or longer than 255 bytes, or if the transaction is
    ///   spilled ([`TxnOptions::spill_bytes`](crate::TxnOptions::spill_bytes)).
    /// - `AlreadyExists` if `gid` is in use.
    ///
    /// After all other errors the transaction has ended and will not be committed:
    /// - `Conflict` as for [`Txn::commit`]. A serializable transaction is also rejected, even if it
    ///   could still be committed, if another transaction has overwritten something that it read,
    ///   or is prepared to do so.
    /// - `InvalidArgument` if its writes and read set together exceed 2 GiB.
    /// - `NoSpace`, `Io`, `Aborted`.
    /// - `OutcomeUnknown`: after the next open, [`Db::recover_prepared`] shows whether it is
    ///   prepared.
    pub fn prepare(&self, gid: impl AsRef<[u8]>) -> Result<()> {
        self.engine.prepare_txn(&mut self.inner(), gid.as_ref())
    }
}

impl Db {
    /// Commits a prepared transaction and returns the sequence number of its last operation. Always
    /// durable, whatever the durability of the database. Cannot fail with a conflict. See
    /// [`Txn::prepare`] for an example.
    ///
    /// # Errors
    /// `NotFound` if no transaction is prepared under `gid`: it was never prepared, or is already
    /// committed or rolled back. `Busy` if another thread is committing it or rolling it back.
    /// `NoSpace`: it is still prepared. `OutcomeUnknown`: after the next open it is either
    /// committed or still prepared.
    pub fn commit_prepared(&self, gid: impl AsRef<[u8]>) -> Result<u64> {
        Ok(self.engine().decide_prepared(gid.as_ref(), TwoPhaseDecision::Commit)?.0)
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
    /// db.rollback_prepared("booking 7")?;
    /// db.put("seat 12", "alice")?;
    /// assert_eq!(db.rollback_prepared("booking 7").unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Db::commit_prepared`]; after `OutcomeUnknown` it is either rolled back or still
    /// prepared.
    pub fn rollback_prepared(&self, gid: impl AsRef<[u8]>) -> Result<()> {
        self.engine().decide_prepared(gid.as_ref(), TwoPhaseDecision::RollBack).map(drop)
    }
    /// Returns the prepared transactions that are neither committed nor rolled back, sorted by
    /// identifier, including those found at open. Each uses memory and blocks conflicting commits
    /// until [`Db::commit_prepared`] or [`Db::rollback_prepared`] is called.
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
    /// for prepared in db.recover_prepared()? {
    ///     assert_eq!((&prepared.gid[..], prepared.operations), (&b"tide 3"[..], 1));
    ///     db.commit_prepared(&prepared.gid)?; // or roll back, as the coordinator decided
    /// }
    /// assert!(db.contains("moon")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn recover_prepared(&self) -> Result<Vec<PreparedTxnInfo>> {
        Ok(self
            .engine()
            .prepared_txns()?
            .iter()
            .map(|txn| PreparedTxnInfo::from_prepared(txn))
            .collect())
    }
}
