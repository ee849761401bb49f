//! Two-phase commit: a transaction that is part of something larger is prepared here and decided
//! when everybody else is prepared, too.

use crate::{Db, Isolation, Result, Txn, translate};
use perigee_base::pinned_slice::BytesPreview;
use perigee_engine::TwoPhaseDecision;
use perigee_engine::prepared_txns::PreparedTxn;
use perigee_engine::txn::IsolationLevel as Level;

/// A prepared transaction that nobody has decided: what [`Db::recover_prepared`] lists.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreparedTxnInfo {
    /// The identifier under which it was prepared.
    pub gid: Vec<u8>,
    /// Operations that it will make.
    pub operations: u64,
    /// Bytes that it takes in the log, and in memory.
    pub bytes: u64,
    /// When it was prepared, in milliseconds since the Unix epoch.
    pub prepared_ms: u64,
    /// What it is protected from.
    pub isolation: Isolation,
}

/// Short: the identifier by its first bytes.
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
    fn from_prepared(undecided: &PreparedTxn) -> PreparedTxnInfo {
        PreparedTxnInfo {
            gid: undecided.gid.clone(),
            operations: u64::from(undecided.operations),
            bytes: undecided.payload().len() as u64,
            prepared_ms: undecided.prepared_ms,
            isolation: translate::isolation_of(
                Level::decode(undecided.level).unwrap_or(Level::Serializable),
            ),
        }
    }
}

impl Txn {
    /// Prepares the transaction under an identifier of 1 to 255 bytes: from the answer on it can be
    /// committed for certain, or rolled back, by whoever knows the identifier, in this process or
    /// after any crash. The record is synced before the answer, whatever the durability. The
    /// transaction takes no more calls then; [`Txn::reset`] begins it anew.
    ///
    /// Until the decision nobody else commits a write to what it wrote, or to what it read as far
    /// as its level protects that: `Conflict`. Its locks stay held. What it wrote is not visible.
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
    /// db.commit_prepared("transfer 12")?; // when the other database is prepared, too
    /// assert_eq!(accounts.get("alice")?.as_deref(), Some(&b"70"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for such an identifier, `AlreadyExists` for one that is in use: the
    /// transaction goes on. After all others it has ended, and nothing of it will happen:
    /// `Conflict`, as of [`Txn::commit`], and also where a serializable transaction might still
    /// commit but has read what was overwritten, or is about to be by another prepared one;
    /// `InvalidArgument` if it is too large together with what it has read (2 GiB); `NoSpace`.
    /// After `OutcomeUnknown` the next open says whether it is prepared.
    pub fn prepare(&self, gid: impl AsRef<[u8]>) -> Result<()> {
        self.engine.prepare_txn(&mut self.inner(), gid.as_ref())
    }
}

impl Db {
    /// Commits a prepared transaction, durably, whatever the durability. That never fails over a
    /// conflict. The sequence number of its last operation.
    ///
    /// # Errors
    /// `NotFound`: nothing is prepared under that identifier; it was decided already, or never
    /// prepared. `Busy`: another thread is deciding it. `NoSpace`: it is still undecided.
    /// `OutcomeUnknown`: after reopen it is committed, or still undecided. See [`Txn::prepare`] for
    /// an example.
    pub fn commit_prepared(&self, gid: impl AsRef<[u8]>) -> Result<u64> {
        Ok(self.engine().decide_prepared(gid.as_ref(), TwoPhaseDecision::Commit)?.0)
    }
    /// Rolls a prepared transaction back, durably: nothing of it happens, and others may write
    /// again what it wrote.
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
    /// As [`Db::commit_prepared`]; after `OutcomeUnknown` it is rolled back, or still undecided.
    pub fn rollback_prepared(&self, gid: impl AsRef<[u8]>) -> Result<()> {
        self.engine().decide_prepared(gid.as_ref(), TwoPhaseDecision::RollBack).map(drop)
    }
    /// The prepared transactions that nobody has decided, by identifier: those that an open has
    /// found, and those of this process. Each holds memory and keeps others from what it is about
    /// until [`Db::commit_prepared`] or [`Db::rollback_prepared`].
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
    ///     db.commit_prepared(&prepared.gid)?; // or not, as the coordinator says
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
            .map(|undecided| PreparedTxnInfo::from_prepared(undecided))
            .collect())
    }
}
