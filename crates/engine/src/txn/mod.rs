//! Transactions, [`TxnManager`]: private writes over a snapshot, validated and committed in the
//! same commit section as batches.
//!
//! A transaction holds no shared state: its writes are a batch in log format ([`writes`]) and,
//! beyond a size limit, private tables ([`spill_store`]). Its snapshot is a sequence number, and
//! its reads are a list that [`validate`] checks at commit. What transactions share is here: locks
//! on keys and ranges ([`locks`]), the registry of serializable transactions
//! ([`serializable_txns`]), and prepared transactions ([`prepared_txns`]). Writers without
//! transactions pay nothing.

pub mod settings;
pub mod read_write_sets;
pub mod locks;
pub mod serializable_txns;
pub mod guarded_keys;
pub mod spilled_tables;
pub mod prepared_txn;
pub mod prepared_txns;
pub mod open_txns;
pub mod validate;
pub mod spill_store;
mod hash_chains;
pub mod writes;
mod transaction;

use crate::catalog::Catalog;
use crate::catalog::manifest::PreparedTables;
use crate::resources::Resources;
use crate::runtime::Runtime;
use crate::stats::TransactionStats;
use locks::{LockManager, LockMode, LockOwner, TxnLocks};
use open_txns::OpenTxns;
use perigee_base::{FamilyId, KeyComparator, Result, SeqNo};
use prepared_txn::PreparedTxn;
use prepared_txns::PreparedTxns;
use read_write_sets::{KeyOrRange, WriteSet};
use serializable_txns::{SerializableTxn, SerializableTxns};
pub use settings::TxnSettings;
use spilled_tables::SpilledTables;
use std::sync::Arc;
use std::time::Duration;
pub use transaction::{EngineTxn, EngineTxnHandle, PrepareRequest, ScanTracker};

/// What the transactions of a database share.
#[derive(Debug)]
pub struct TxnManager {
    /// The runtime.
    pub runtime: Arc<Runtime>,
    /// The limited resources.
    pub resources: Arc<Resources>,
    /// The catalog.
    pub catalog: Arc<Catalog>,
    prepared_txns: PreparedTxns,
    serializable_txns: Arc<SerializableTxns>,
    locks: Arc<LockManager>,
    open_txns: Arc<OpenTxns>,
}

impl TxnManager {
    /// Creates the manager without transactions.
    pub fn new(catalog: Arc<Catalog>) -> TxnManager {
        TxnManager {
            runtime: Arc::clone(&catalog.runtime),
            resources: Arc::clone(&catalog.resources),
            catalog,
            prepared_txns: PreparedTxns::default(),
            serializable_txns: Arc::default(),
            locks: Arc::default(),
            open_txns: Arc::default(),
        }
    }
    /// Returns the prepared transactions.
    #[inline]
    pub fn prepared_txns(&self) -> &PreparedTxns {
        &self.prepared_txns
    }
    /// Returns the lock manager.
    pub fn locks(&self) -> &LockManager {
        &self.locks
    }
    /// Returns the locks that an owner holds, with their modes.
    pub fn held_locks(
        &self,
        owner: LockOwner,
        locks: &TxnLocks,
    ) -> Vec<(FamilyId, KeyOrRange, LockMode)> {
        self.locks.locks_of(owner, locks)
    }
    /// Releases all locks of an owner.
    pub fn release_locks(&self, owner: LockOwner, locks: &mut TxnLocks) {
        self.locks.release(owner, locks, 0);
    }
    /// Releases the locks and the memory of a transaction that was decided, or whose preparation
    /// failed.
    pub fn end_prepared(&self, prepared: &PreparedTxn) {
        prepared.release_locks(&self.locks);
        self.resources.charge(&mut prepared.memory_bytes(), 0);
    }
    /// Records that a prepared serializable transaction commits with the next sequence number.
    /// Called in the commit section.
    pub fn commit_prepared(&self, member: &Arc<SerializableTxn>, writes: WriteSet) {
        let seq = self.catalog.visible_seq().plus(1);
        self.serializable_txns.commit_prepared(member, writes, seq);
    }
    /// Returns the comparators of the column families.
    pub fn comparator_of(&self, id: FamilyId) -> Option<KeyComparator> {
        self.catalog.families().by_id(id).map(|f| f.tree.comparator())
    }
    /// Returns a new lock owner.
    pub fn next_lock_owner(&self) -> LockOwner {
        self.locks.next_owner()
    }
    /// Returns the numbers of open and prepared transactions.
    pub fn stats(&self) -> TransactionStats {
        let (open, bytes) = self.open_txns.totals();
        let prepared = self.prepared_txns.all();
        let now_ms = self.runtime.env.clock.wall_ms();
        let oldest = prepared.iter().map(|p| p.prepared_ms).min();
        let oldest_prepared = oldest.map(|at| Duration::from_millis(now_ms.saturating_sub(at)));
        TransactionStats { open, bytes, prepared: prepared.len() as u64, oldest_prepared }
    }
    /// Called when the database closes: ends all waits for locks; later requests do not wait.
    pub fn close(&self) {
        self.locks.close();
    }
    /// Registers the prepared transactions that recovery found: in the log, given as LSN and
    /// payload, and in the manifest, with their tables.
    pub fn restore_prepared(
        &self,
        logged: Vec<(SeqNo, Arc<Vec<u8>>)>,
        spilled: Vec<(Arc<PreparedTables>, SpilledTables)>,
    ) -> Result<()> {
        let comparator_of = |id| self.comparator_of(id);
        let count = logged.len() + spilled.len();
        for (lsn, payload) in logged {
            let owner = self.locks.next_owner();
            self.restore(PreparedTxn::decode(payload, &comparator_of, owner)?, lsn)?;
        }
        for (tables, open) in spilled {
            let owner = self.locks.next_owner();
            let txn = PreparedTxn::of_tables(&tables, open, &comparator_of, owner)?;
            self.restore(txn, self.catalog.visible_seq())?;
        }
        check!(
            self.prepared_txns.all().len() == count,
            "each transaction that was prepared and not decided is prepared again",
            self.prepared_txns.all().len(),
            count
        );
        Ok(())
    }
    fn restore(&self, txn: PreparedTxn, lsn: SeqNo) -> Result<()> {
        let prepared = Arc::new(txn);
        prepared.set_lsn(lsn);
        prepared.restore_locks(&self.locks, &|id| self.comparator_of(id))?;
        self.prepared_txns.insert(&prepared)?;
        self.resources.charge(&mut 0, prepared.memory_bytes());
        Ok(())
    }
}
