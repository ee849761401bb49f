//! How a transaction ends: what it hands over to be committed or prepared.

use super::{ENDED, EngineTxn};
use crate::catalog::Catalog;
use crate::runtime::Runtime;
use crate::txn::locks::{LockOwner, TxnLocks};
use crate::txn::spill_store::SpilledPrepare;
use crate::txn::validate::{CommitConditions, ReadDependencies, serialization_error};
use perigee_base::{Error, Result, SeqNo};
use perigee_file::log::Batch;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// What a transaction hands over to be prepared.
#[derive(Debug)]
pub struct PrepareRequest {
    /// Its writes.
    pub batch: Batch,
    /// What must hold now and until the decision.
    pub conditions: Option<Box<CommitConditions>>,
    /// Lock owner, and the locks held.
    pub locks: (LockOwner, TxnLocks),
}

impl EngineTxn {
    /// Ends the transaction and returns the batch to commit with its conditions. The snapshot is
    /// held until [`EngineTxn::end`].
    pub fn finish_commit(
        &mut self,
        catalog: &Catalog,
    ) -> Result<(Batch, Option<Box<CommitConditions>>)> {
        self.check(&catalog.runtime)?;
        self.mark_ended(&catalog.runtime)?;
        let batch = self.writes.take_batch();
        if self.held_snapshot.is_some() && batch.count() == 0 {
            if let Some(member) = self.serial_member.take() {
                self.registry.end_read_only(&member).map_err(|why| {
                    self.registry.remove(&member);
                    serialization_error(catalog, why)
                })?;
            }
            return Ok((batch, None));
        }
        Ok((batch, self.take_conditions()))
    }
    /// Marks the transaction as ended, unless it was just aborted: then returns that error.
    fn mark_ended(&mut self, runtime: &Runtime) -> Result<()> {
        match self.shared.leave_active(self.number, ENDED) {
            true => Ok(()),
            false => self.check(runtime),
        }
    }
    fn take_conditions(&mut self) -> Option<Box<CommitConditions>> {
        let snapshot = self.held_snapshot.as_ref()?;
        let depends = match &self.serial_member {
            Some(member) => {
                ReadDependencies::Serial(Arc::clone(&self.registry), Arc::clone(member))
            }
            None => ReadDependencies::Reads(std::mem::take(&mut self.reads)),
        };
        let (since, contents_epoch) = (snapshot.seq(), snapshot.epoch());
        Some(Box::new(CommitConditions {
            checked_seq: since,
            contents_epoch,
            depends,
            reads_overwritten: false,
        }))
    }
    /// Spills the memory, ends the transaction and commits the spilled writes. The snapshot is held
    /// until [`EngineTxn::end`].
    pub fn commit_spilled(&mut self, runtime: &Runtime) -> Result<SeqNo> {
        self.check(runtime)?;
        self.writes.spill(self.savepoints.iter().map(|s| s.position))?;
        self.mark_ended(runtime)?;
        let (numbers, operations) =
            (self.writes.numbers(std::iter::empty()), self.writes.written_size().ops);
        let runs = self
            .writes
            .take_spill_store()
            .ok_or_else(|| Error::internal("a spilled transaction has no runs"))?;
        runs.commit_spilled(&numbers, self.take_conditions(), operations)
    }
    /// Spills the memory, ends the transaction and prepares the spilled writes. The snapshot is held
    /// until [`EngineTxn::end`].
    pub fn prepare_spilled(&mut self, runtime: &Runtime, gid: &[u8]) -> Result<()> {
        self.check(runtime)?;
        self.writes.spill(self.savepoints.iter().map(|s| s.position))?;
        self.mark_ended(runtime)?;
        let (numbers, operations) =
            (self.writes.numbers(std::iter::empty()), self.writes.written_size().ops as u64);
        let runs = self
            .writes
            .take_spill_store()
            .ok_or_else(|| Error::internal("a spilled transaction has no runs"))?;
        let conditions = self.take_conditions();
        let owner = self.owner;
        let locks = (std::mem::take(&mut self.owner), std::mem::take(&mut self.held_locks));
        check!(
            owner != 0 && self.held_locks.count() == 0,
            "a prepared transaction takes the owner and its locks with it",
            locks
        );
        let level = self.settings.isolation;
        let request = SpilledPrepare { gid, level, operations, conditions, locks };
        let prepared = runs.prepare_spilled(&numbers, request);
        prepared.inspect_err(|_| self.restore_lock_owner(owner))
    }
    /// Restores the lock owner after a failed prepare released its locks: a retry keeps its age.
    pub fn restore_lock_owner(&mut self, owner: LockOwner) {
        self.owner = owner;
        self.shared.owner.store(owner, SeqCst);
    }
    /// Called after a commit: the next transaction in this object is no retry, and takes a new
    /// number as a lock owner.
    pub fn forget_lock_owner(&mut self) {
        check!(
            self.held_locks.count() == 0,
            "a transaction that was committed holds no locks",
            self.held_locks.count()
        );
        self.owner = 0;
    }
    /// Like [`finish_commit`](EngineTxn::finish_commit), but hands over the locks as well. A
    /// transaction without writes is prepared like any other.
    pub fn finish_prepare(&mut self, runtime: &Runtime) -> Result<PrepareRequest> {
        self.check(runtime)?;
        self.mark_ended(runtime)?;
        let batch = self.writes.take_batch();
        let conditions = if self.settings.read_only { None } else { self.take_conditions() };
        // Until the decision this owner stays in use: the next transaction needs another.
        let locks = (std::mem::take(&mut self.owner), std::mem::take(&mut self.held_locks));
        check!(
            locks.0 != 0 && self.held_locks.count() == 0,
            "a prepared transaction takes the owner and its locks with it",
            locks
        );
        Ok(PrepareRequest { batch, conditions, locks })
    }
}
