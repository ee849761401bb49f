//! A transaction: snapshot, writes, savepoints, commit and rollback.

use super::settings::{IsolationLevel, TxnSettings};
use super::spill_store::SpillStore;
use super::validate::{CommitConditions, ReadDependencies, serialization_error};
use super::writes::{TxnWrites, WritesPosition};
use crate::core::EngineCore;
use crate::family::FamilyState;
use crate::locks::{LockManager, LockMode, LockOwner, LockScope, TxnLocks};
use crate::memory_budget;
use crate::open_txns::{OpenTxnToken, OpenTxns};
use crate::read_write_sets::{KeyOrRange, ReadSet};
use crate::serializable_txns::{SerializableTxn, SerializableTxns};
use crate::snapshot::SnapshotHandle;
use perigee_base::bug::{self, Bug};
use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::{
    AtomicSeqNo, Error, ErrorKind, FamilyId, KeyComparator, PinnedSlice, Result, SeqNo,
};
use perigee_file::EntryValue;
use perigee_file::log::Batch;
use perigee_tree::{View, conflict_check, get};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// Accepts calls.
const ACTIVE: u8 = 0;
/// Committed or rolled back.
const ENDED: u8 = 1;
/// Aborted by its deadline or from another thread.
const ABORTED: u8 = 2;

/// A savepoint.
#[derive(Clone, Debug)]
struct Savepoint {
    name: String,
    position: WritesPosition,
    /// Number of locks held when it was set.
    lock_count: u64,
}

/// Aborts a transaction from another thread.
#[derive(Clone, Debug)]
pub struct TxnAbortHandle {
    state: Arc<AtomicU8>,
    locks: Arc<LockManager>,
    owner: LockOwner,
}

impl TxnAbortHandle {
    /// Aborts the transaction: from now on every call, including one that waits for a lock, returns
    /// `Aborted`. Returns false if it has already ended.
    pub fn abort(&self) -> bool {
        let aborted = self.state.compare_exchange(ACTIVE, ABORTED, SeqCst, SeqCst).is_ok();
        if aborted {
            self.locks.abort_waits(self.owner);
        }
        aborted
    }
}

/// A transaction. Its methods must not be called concurrently.
#[derive(Debug)]
pub struct EngineTxn {
    settings: TxnSettings,
    held_snapshot: Option<SnapshotHandle>,
    writes: TxnWrites,
    /// Memory at which it spills to files; memory at which the next check is due.
    spill_bytes: u64,
    next_check_bytes: u64,
    reads: ReadSet,
    /// Its registration as a serializable transaction, if it is one.
    serial_member: Option<Arc<SerializableTxn>>,
    registry: Arc<SerializableTxns>,
    /// The registry of open transactions, and its entry there.
    open_txns: Arc<OpenTxns>,
    open_entry: Option<OpenTxnToken>,
    savepoints: Vec<Savepoint>,
    /// Its identity as a lock owner, and the locks it holds.
    owner: LockOwner,
    held_locks: TxnLocks,
    locks: Arc<LockManager>,
    state: Arc<AtomicU8>,
    /// Monotonic time at which it is aborted (0: never).
    deadline_us: u64,
}

impl EngineTxn {
    /// Begins a transaction.
    pub fn begin(core: &EngineCore, settings: TxnSettings) -> Result<EngineTxn> {
        let budget = core.memory_budget.limit;
        let spill_bytes = match settings.spill_bytes {
            0 => memory_budget::txn_memory_bytes(budget),
            wanted => wanted.min(memory_budget::txn_memory_bytes(budget)),
        };
        let mut txn = EngineTxn {
            settings,
            held_snapshot: None,
            writes: TxnWrites::new(),
            spill_bytes,
            next_check_bytes: 0,
            reads: ReadSet::default(),
            serial_member: None,
            registry: Arc::clone(&core.serializable_txns),
            open_txns: Arc::clone(&core.open_txns),
            open_entry: None,
            savepoints: Vec::new(),
            owner: 0,
            held_locks: TxnLocks::default(),
            locks: Arc::clone(&core.locks),
            state: Arc::default(),
            deadline_us: 0,
        };
        txn.reset(core)?;
        Ok(txn)
    }
    /// Discards all state and begins again.
    pub fn reset(&mut self, core: &EngineCore) -> Result<()> {
        core.health.check_open()?;
        self.end();
        // A retry keeps its age as a lock owner: eventually it is the oldest and never the victim.
        if self.owner == 0 {
            self.owner = self.locks.next_owner();
        }
        let take = || match bug::is_active(Bug::StaleSnapshot) {
            true => core.snapshots.acquire(&AtomicSeqNo::new(core.visible_seq().prev())),
            false => core.snapshots.acquire(&core.visible_seq),
        };
        if self.settings.isolation == IsolationLevel::Serializable {
            // A read-only one never fails: it must not begin between a check and its publication.
            let _section = self.settings.read_only.then(|| core.wal.appender());
            let begun = self.registry.begin(self.settings.read_only, || {
                let snapshot = take();
                (snapshot.seq(), snapshot)
            });
            (self.serial_member, self.held_snapshot) = (Some(begun.0), Some(begun.1));
        } else {
            self.held_snapshot = self.settings.isolation.uses_snapshot().then(take);
        }
        self.deadline_us = match self.settings.timeout_us {
            0 => 0,
            us => core.env.clock.monotonic_us().saturating_add(us),
        };
        self.state = Arc::default();
        self.open_entry = Some(self.open_txns.begin());
        self.next_check_bytes =
            self.spill_bytes.min(memory_budget::rebalance_step(core.memory_budget.limit));
        Ok(())
    }
    /// Ends the transaction: discards all state and accepts no more calls.
    pub fn end(&mut self) {
        let _ = self.state.compare_exchange(ACTIVE, ENDED, SeqCst, SeqCst);
        self.release_all();
    }
    /// Releases its writes, reads, snapshot and locks.
    fn release_all(&mut self) {
        if let Some(entry) = self.open_entry.take() {
            self.open_txns.end(entry);
        }
        self.held_snapshot = None;
        self.writes.clear();
        self.reads = ReadSet::default();
        if let Some(member) = self.serial_member.take() {
            // What it has read counts, however it ends.
            if !self.settings.read_only || self.registry.end_read_only(&member).is_err() {
                self.registry.remove(&member);
            }
        }
        self.savepoints.clear();
        self.locks.release(self.owner, &mut self.held_locks, 0);
    }
    /// Reports the memory of its writes.
    #[inline]
    fn report_memory(&mut self) {
        if let Some(entry) = &mut self.open_entry {
            self.open_txns.set_bytes(entry, self.writes.memory_bytes());
        }
    }
    /// Returns a handle to abort it from another thread.
    pub fn abort_handle(&self) -> TxnAbortHandle {
        TxnAbortHandle {
            state: Arc::clone(&self.state),
            locks: Arc::clone(&self.locks),
            owner: self.owner,
        }
    }
    /// Returns the settings.
    pub fn settings(&self) -> &TxnSettings {
        &self.settings
    }
    /// Returns the sequence number of its snapshot, if it has one.
    pub fn snapshot(&self) -> Option<SeqNo> {
        self.held_snapshot.as_ref().map(SnapshotHandle::seq)
    }
    /// Returns the number of operations written, and their bytes in the log.
    pub fn written(&self) -> (usize, u64) {
        let size = self.writes.written_size();
        (size.ops, size.bytes)
    }
    /// Returns true if writes were spilled to files.
    pub fn is_spilled(&self) -> bool {
        self.writes.is_spilled()
    }
    /// Returns true if [`EngineTxn::spill_if_needed`] is due before the next write.
    #[inline]
    pub fn needs_spill_check(&self) -> bool {
        self.writes.memory_bytes() >= self.next_check_bytes
    }
    /// Reports the memory to the budget, and spills it to files if it is too large. `make` creates
    /// the spill store.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: its writes and everything else are unchanged.
    pub fn spill_if_needed(
        &mut self,
        core: &EngineCore,
        make: impl FnOnce() -> Box<dyn SpillStore>,
    ) -> Result<()> {
        self.check(core)?;
        self.writes.ensure_spill_store(make);
        if self.writes.memory_bytes() >= self.spill_bytes && self.writes.can_spill() {
            self.writes.spill(self.savepoints.iter().map(|s| s.position))?;
        }
        let memory = self.writes.report_memory();
        self.report_memory();
        let next = memory.saturating_add(memory_budget::rebalance_step(core.memory_budget.limit));
        self.next_check_bytes =
            if self.writes.can_spill() { next.min(self.spill_bytes).max(1) } else { next };
        Ok(())
    }

    /// Checks that the transaction accepts calls.
    pub fn check(&mut self, core: &EngineCore) -> Result<()> {
        core.health.check_open()?;
        if self.deadline_us != 0 && core.env.clock.monotonic_us() >= self.deadline_us {
            self.abort_handle().abort();
        }
        match self.state.load(SeqCst) {
            ACTIVE => Ok(()),
            ENDED => Err(Error::invalid("the transaction has ended: reset it, or begin another")),
            _ => {
                self.release_all();
                Err(Error::new(
                    ErrorKind::Aborted,
                    "the transaction was aborted by its time limit or from another thread: begin \
                     a new one",
                ))
            }
        }
    }

    /// Returns the sequence number for reads of a column family whose view was taken before.
    fn read_seq(&self, core: &EngineCore, family: &FamilyState) -> Result<SeqNo> {
        family.check_not_dropped()?;
        match &self.held_snapshot {
            Some(snapshot) => check_not_replaced(family, snapshot).map(|()| snapshot.seq()),
            None => Ok(core.visible_seq()),
        }
    }
    /// Returns the view for a scan of a column family; later writes do not change it.
    pub fn read_view(
        &mut self,
        core: &EngineCore,
        family: &FamilyState,
    ) -> Result<(Arc<View>, SeqNo)> {
        self.check(core)?;
        let view = family.tree.view();
        let at = self.read_seq(core, family)?;
        Ok(match self.writes.read_overlay(family.id)? {
            Some(own) if !bug::is_active(Bug::CursorMissesOwnWrites) => {
                (Arc::new(view.with_overlay(own)), at)
            }
            _ => (view, at),
        })
    }
    /// Returns the tracker for the ranges that a scan reads, if they must be tracked.
    pub fn scan_tracker(&self, family: &FamilyState) -> Option<ScanTracker> {
        let is_tracked = !self.settings.read_only && !bug::is_active(Bug::RangeNotTracked);
        let member = self.serial_member.as_ref().filter(|_| is_tracked)?;
        let (family, comparator) = (family.id, family.tree.comparator());
        Some(ScanTracker { member: Arc::clone(member), family, comparator, range_index: None })
    }
    /// Returns the value of `key`; `tracked`: records the read as a dependency of the transaction.
    pub fn get(
        &mut self,
        core: &EngineCore,
        family: &FamilyState,
        key: &[u8],
        tracked: bool,
    ) -> Result<Option<PinnedSlice>> {
        self.check(core)?;
        let comparator = family.tree.comparator();
        let own = self.writes.find(family.id, comparator, key)?;
        // The value of an operand also depends on committed data.
        let merged = own.as_ref().is_some_and(EntryValue::is_operand);
        if let Some(found) = own.filter(|_| !merged) {
            let live = get::is_live(&found, &*core.logical_clock);
            return live.then(|| self.writes.value(family.id, found)).transpose();
        }
        self.track_read(family, key, tracked);
        if merged {
            let (view, at) = self.read_view(core, family)?;
            return get::get(&view, key, at);
        }
        let view = family.tree.pin();
        let at = self.read_seq(core, family)?;
        get::get(&view, key, at)
    }
    /// Returns true if `key` exists; does not read the value.
    pub fn contains(
        &mut self,
        core: &EngineCore,
        family: &FamilyState,
        key: &[u8],
        tracked: bool,
    ) -> Result<bool> {
        self.check(core)?;
        if let Some(found) = self.writes.find(family.id, family.tree.comparator(), key)? {
            if found.is_operand() {
                self.track_read(family, key, tracked);
            }
            return Ok(found.is_operand() || get::is_live(&found, &*core.logical_clock));
        }
        self.track_read(family, key, tracked);
        let view = family.tree.pin();
        let at = self.read_seq(core, family)?;
        get::contains(&view, key, at)
    }
    /// Records a read that the transaction depends on.
    fn track_read(&mut self, family: &FamilyState, key: &[u8], tracked: bool) {
        let comparator = family.tree.comparator();
        match &self.serial_member {
            _ if !tracked || self.settings.read_only => {}
            Some(member) => member.record_reads(|reads| reads.add_key(family.id, comparator, key)),
            None if self.settings.isolation.checks_reads() => {
                self.reads.add_key(family.id, comparator, key)
            }
            None => {}
        }
    }

    /// Locks a key or key range until the end, or until a rollback to an earlier savepoint.
    ///
    /// # Errors
    /// `Busy` if it was not available in time; `Conflict` for the victim of a deadlock.
    pub fn lock(
        &mut self,
        core: &EngineCore,
        family: &FamilyState,
        target: KeyOrRange,
        mode: LockMode,
    ) -> Result<()> {
        self.check(core)?;
        family.check_not_dropped()?;
        let name = family.name();
        let scope =
            LockScope { family: family.id, name: &name, comparator: family.tree.comparator() };
        let (owner, mine) = (self.owner, &mut self.held_locks);
        let now = core.env.clock.monotonic_us();
        let left =
            if self.deadline_us == 0 { u64::MAX } else { self.deadline_us.saturating_sub(now) };
        let patience = self.settings.lock_timeout_us.min(left);
        let locked = self.locks.lock(&*core.env.clock, scope, owner, mine, target, mode, patience);
        self.check(core)?;
        locked
    }
    /// Locks a key, then reads it. With a snapshot, a change of the key since then is a conflict
    /// now, not only at commit.
    pub fn get_for_update(
        &mut self,
        core: &EngineCore,
        family: &FamilyState,
        key: &[u8],
        mode: LockMode,
    ) -> Result<Option<PinnedSlice>> {
        self.lock(core, family, KeyOrRange::Key(key.to_vec()), mode)?;
        if let Some(snapshot) = &self.held_snapshot {
            let view = family.tree.pin();
            if conflict_check::newest_version_since(&view, key, snapshot.seq())?.is_some() {
                let text = "the key was changed after the transaction began; begin it anew";
                return Err(Error::conflict(&family.name(), key, text));
            }
        }
        // It must not change before the commit, at any level: writers without locks do not wait.
        if self.held_snapshot.is_some() && self.serial_member.is_none() && !self.settings.read_only
        {
            self.reads.add_key(family.id, family.tree.comparator(), key);
        }
        self.get(core, family, key, true)
    }

    /// Adds the operations that `write` writes to a batch; `lock_target` returns what to lock.
    pub fn write(
        &mut self,
        core: &EngineCore,
        family: &FamilyState,
        lock_target: impl FnOnce() -> (KeyOrRange, LockMode),
        write: impl FnOnce(&mut Batch) -> Result<()>,
    ) -> Result<()> {
        if self.settings.pessimistic {
            let (target, mode) = lock_target();
            self.lock(core, family, target, mode)?;
        }
        self.check(core)?;
        family.check_not_dropped()?;
        if self.settings.read_only {
            return Err(Error::invalid("the transaction is read-only"));
        }
        let position = self.writes.position();
        let comparator = family.tree.comparator();
        self.writes.add_family(family.id, comparator);
        self.writes.add_ops(comparator, write)?;
        let (limit, bytes) = (self.settings.max_bytes, self.writes.written_size().bytes);
        if limit != 0 && bytes > limit {
            self.writes.roll_back(position);
            return Err(Error::invalid(
                "the transaction is too large: commit what it has, or raise its limit",
            )
            .expected(format_args!("at most {limit} bytes"), bytes));
        }
        self.report_memory();
        Ok(())
    }

    /// Sets a savepoint. Names may repeat: the newest one counts.
    pub fn set_savepoint(&mut self, core: &EngineCore, name: &str) -> Result<()> {
        self.check(core)?;
        self.savepoints.push(Savepoint {
            name: name.to_string(),
            position: self.writes.position(),
            lock_count: self.held_locks.count(),
        });
        Ok(())
    }
    fn find_savepoint(&self, name: &str) -> Result<usize> {
        self.savepoints.iter().rposition(|s| s.name == name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("the transaction has no savepoint {name:?}"))
        })
    }
    /// Rolls back to a savepoint and keeps it; removes later ones.
    pub fn roll_back_to_savepoint(&mut self, core: &EngineCore, name: &str) -> Result<()> {
        self.check(core)?;
        let at = self.find_savepoint(name)?;
        self.writes.roll_back(self.savepoints[at].position);
        self.report_memory();
        if !bug::is_active(Bug::RollbackKeepsLock) {
            self.locks.release(self.owner, &mut self.held_locks, self.savepoints[at].lock_count);
        }
        self.savepoints.truncate(at + 1);
        Ok(())
    }
    /// Removes a savepoint and later ones; the writes stay.
    pub fn release_savepoint(&mut self, core: &EngineCore, name: &str) -> Result<()> {
        self.check(core)?;
        let at = self.find_savepoint(name)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    /// Ends the transaction and returns the batch to commit with its conditions. The snapshot is
    /// held until [`EngineTxn::end`].
    pub fn finish_commit(
        &mut self,
        core: &EngineCore,
    ) -> Result<(Batch, Option<Box<CommitConditions>>)> {
        self.check(core)?;
        self.mark_ended(core)?;
        let batch = self.writes.take_batch();
        if self.held_snapshot.is_some() && batch.count() == 0 {
            if let Some(member) = self.serial_member.take() {
                self.registry.end_read_only(&member).map_err(|why| {
                    self.registry.remove(&member);
                    serialization_error(core, why)
                })?;
            }
            return Ok((batch, None));
        }
        Ok((batch, self.take_conditions()))
    }
    /// Marks the transaction as ended, unless it was just aborted: then returns that error.
    fn mark_ended(&mut self, core: &EngineCore) -> Result<()> {
        match self.state.compare_exchange(ACTIVE, ENDED, SeqCst, SeqCst) {
            Ok(_) => Ok(()),
            Err(_) => self.check(core),
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
    pub fn commit_spilled(&mut self, core: &EngineCore) -> Result<SeqNo> {
        self.check(core)?;
        self.writes.spill(self.savepoints.iter().map(|s| s.position))?;
        self.mark_ended(core)?;
        let (numbers, operations) =
            (self.writes.numbers(std::iter::empty()), self.writes.written_size().ops);
        let runs = self
            .writes
            .take_spill_store()
            .ok_or_else(|| Error::internal("a spilled transaction has no runs"))?;
        runs.commit_spilled(&numbers, self.take_conditions(), operations)
    }
}

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
    /// Checks that it can be prepared.
    ///
    /// # Errors
    /// `InvalidArgument` if writes were spilled to files; the transaction can continue.
    pub fn check_preparable(&self) -> Result<()> {
        if !self.is_spilled() {
            return Ok(());
        }
        let text = "the transaction is larger than its memory and cannot be prepared: commit it, \
            or split it";
        Err(Error::invalid(text))
    }
    /// Restores the lock owner after a failed prepare released its locks: a retry keeps its age.
    pub fn restore_lock_owner(&mut self, owner: LockOwner) {
        self.owner = owner;
    }
    /// Like [`finish_commit`](EngineTxn::finish_commit), but hands over the locks as well. A
    /// transaction without writes is prepared like any other.
    pub fn finish_prepare(&mut self, core: &EngineCore) -> Result<PrepareRequest> {
        self.check(core)?;
        self.mark_ended(core)?;
        let batch = self.writes.take_batch();
        let conditions = if self.settings.read_only { None } else { self.take_conditions() };
        // Until the decision this owner stays in use: the next transaction needs another.
        let locks = (std::mem::take(&mut self.owner), std::mem::take(&mut self.held_locks));
        Ok(PrepareRequest { batch, conditions, locks })
    }
}

/// Records the range that a scan has read, as it grows. A clone tracks a range of its own.
#[derive(Debug)]
pub struct ScanTracker {
    member: Arc<SerializableTxn>,
    family: FamilyId,
    comparator: KeyComparator,
    range_index: Option<usize>,
}

impl Clone for ScanTracker {
    fn clone(&self) -> ScanTracker {
        ScanTracker { member: Arc::clone(&self.member), range_index: None, ..*self }
    }
}

impl ScanTracker {
    /// Records that the scan has read everything between two boundaries.
    pub fn record_range(&mut self, begin: KeyBoundaryRef<'_>, end: KeyBoundaryRef<'_>) {
        let (number, family, comparator) = (self.range_index, self.family, self.comparator);
        self.range_index = Some(self.member.record_reads(|reads| match number {
            Some(number) => {
                reads.widen_range(number, comparator, begin..end);
                number
            }
            None => reads.add_range(family, begin..end),
        }));
    }
}

impl Drop for EngineTxn {
    fn drop(&mut self) {
        self.end();
    }
}

/// Conflict if the contents of the column family are not those of the snapshot any more.
fn check_not_replaced(family: &FamilyState, snapshot: &SnapshotHandle) -> Result<()> {
    family.check_contents_epoch(snapshot.epoch()).map_err(|_| {
        Error::conflict(
            &family.name(),
            b"",
            "the column family was cleared or replaced after the transaction began",
        )
    })
}
