//! The interface between a transaction and the store for writes that do not fit into its memory.
//! Independent of files, budgets and the way tables are installed; the implementation handles
//! those.

use super::locks::{LockOwner, TxnLocks};
use super::validate::CommitConditions;
use crate::settings::isolation::Isolation;
use perigee_base::{Expiry, FamilyId, Result, SeqNo};
use perigee_file::WrittenValue;
use perigee_tree::bulk::TxnSeqInfo;
use perigee_tree::{Memtable, OverlayRuns};
use std::fmt::Debug;
use std::sync::Arc;

/// What a spilled transaction hands over to be prepared, besides its writes.
#[derive(Debug)]
pub struct SpilledPrepare<'a> {
    /// Its global identifier.
    pub gid: &'a [u8],
    /// Its isolation level.
    pub level: Isolation,
    /// Number of its operations.
    pub operations: u64,
    /// What must hold now and until the decision.
    pub conditions: Option<Box<CommitConditions>>,
    /// Lock owner, and the locks held.
    pub locks: (LockOwner, TxnLocks),
}

/// An entry whose value is in a value log of its own.
#[derive(Clone, Debug)]
pub struct SeparatedEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The sequence number that the transaction assigned.
    pub seq: SeqNo,
    /// When it expires; `None`: never.
    pub expiry: Option<Expiry>,
    /// The value. Its file is synced, and in no version.
    pub value: &'a WrittenValue,
}

/// The spilled writes of a transaction. Dropping it removes them.
pub trait SpillStore: Debug + Send {
    /// Sets the memory held by the transaction, in bytes.
    fn set_memory_bytes(&mut self, bytes: u64);
    /// Returns the spilled runs of a column family.
    fn spilled_in(&self, family: FamilyId) -> Option<Arc<OverlayRuns>>;
    /// Writes memtables of the transaction's entries, none of them rolled back, as the newest runs
    /// of their column families.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: nothing was added; retry or give up. `NotFound`: a column family was
    /// dropped.
    fn add_runs(
        &mut self,
        memtables: &[(FamilyId, Arc<Memtable>)],
        numbers: &TxnSeqInfo,
    ) -> Result<()>;
    /// Adds an entry as the newest one, with the file that holds its value.
    ///
    /// # Errors
    /// Those of [`SpillStore::add_runs`]; the file is still the caller's then.
    fn add_separated(
        &mut self,
        family: FamilyId,
        entry: SeparatedEntry<'_>,
        numbers: &TxnSeqInfo,
    ) -> Result<()>;
    /// Rolls back everything from sequence number `number` on.
    fn roll_back_from(&mut self, number: SeqNo);
    /// Makes all runs visible atomically and durable if the conditions hold; the transaction has
    /// spilled its memory before. Returns the sequence number of all of it.
    ///
    /// # Errors
    /// `Conflict`; same as for the publication of a bulk load.
    fn commit_spilled(
        self: Box<Self>,
        numbers: &TxnSeqInfo,
        conditions: Option<Box<CommitConditions>>,
        operations: usize,
    ) -> Result<SeqNo>;
    /// Prepares the transaction durably, with all runs, if the conditions hold; the transaction has
    /// spilled its memory before.
    ///
    /// # Errors
    /// `Conflict`, `NoSpace`, `Io`: it is not prepared and has no effect, and its locks are
    /// released. `OutcomeUnknown`: after reopen it may be prepared.
    fn prepare_spilled(
        self: Box<Self>,
        numbers: &TxnSeqInfo,
        request: SpilledPrepare<'_>,
    ) -> Result<()>;
}
