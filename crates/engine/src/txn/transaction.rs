//! A transaction: snapshot, writes, savepoints, commit and rollback.

mod ending;

pub use ending::PrepareRequest;

use super::settings::{Isolation, TxnSettings};
use super::spill_store::SpillStore;
use super::writes::{TxnWrites, WritesPosition};
use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::catalog::snapshot::SnapshotHandle;
use crate::resources::Resources;
use crate::runtime::Runtime;
use crate::txn::TxnManager;
use crate::txn::locks::{LockManager, LockMode, LockOwner, LockScope, LockWaitLimits, TxnLocks};
use crate::txn::open_txns::{OpenTxnToken, OpenTxns};
use crate::txn::read_write_sets::{KeyOrRangeRef, ReadSet};
use crate::txn::serializable_txns::{SerializableTxn, SerializableTxns};
use perigee_base::bug::Bug;
use perigee_base::{
    Error, ErrorKind, Expiry, FamilyId, KeyBoundaryRef, KeyComparator, PinnedSlice, Result, SeqNo,
    VlogPointer, bug, limits,
};
use perigee_file::log::Batch;
use perigee_file::{EntryValue, WrittenValue};
use perigee_tree::{TxnOverlay, Vlog, read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Accepts calls.
const ACTIVE: u64 = 0;
/// Committed or rolled back.
const ENDED: u64 = 1;
/// Aborted by its deadline or from another thread.
const ABORTED: u64 = 2;
/// Number of bits of a state.
const STATE_BITS: u32 = 2;

/// The name of a column family, which is read only if it is printed.
struct LazyFamilyName<'a>(&'a FamilyState);

impl std::fmt::Display for LazyFamilyName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.name())
    }
}

/// A savepoint.
#[derive(Clone, Debug)]
struct Savepoint {
    name: String,
    position: WritesPosition,
    /// Number of the first lock after it.
    next_lock: u64,
}

/// What other threads see of a transaction object.
#[derive(Debug, Default)]
struct SharedTxnState {
    /// The state, and above [`STATE_BITS`] the number of the transaction in this object.
    state: AtomicU64,
    /// Its number as a lock owner.
    owner: AtomicU64,
    /// It does not wait for locks.
    waits_stopped: AtomicBool,
}

impl SharedTxnState {
    /// Replaces the state of a transaction that is active. Returns false if it is not.
    fn leave_active(&self, txn: u64, to: u64) -> bool {
        let (before, after) = (txn << STATE_BITS | ACTIVE, txn << STATE_BITS | to);
        self.state.compare_exchange(before, after, SeqCst, SeqCst).is_ok()
    }
}

/// Acts on a transaction from another thread. Valid until the transaction ends.
#[derive(Clone, Debug)]
pub struct EngineTxnHandle {
    shared: Arc<SharedTxnState>,
    locks: Arc<LockManager>,
    /// The number of the transaction in its object.
    txn: u64,
    owner: LockOwner,
}

impl EngineTxnHandle {
    /// Aborts the transaction: from now on every call, including one that waits for a lock, returns
    /// `Aborted`. Returns false if it has already ended.
    pub fn abort(&self) -> bool {
        let aborted = self.shared.leave_active(self.txn, ABORTED);
        if aborted {
            self.locks.abort_waits(self.owner);
        }
        aborted
    }
    /// Ends a wait for a lock that is in progress: that call fails with `Interrupted`, and the
    /// transaction goes on. Returns false, without an effect, if the transaction does not wait.
    pub fn cancel_wait(&self) -> bool {
        self.shared.state.load(SeqCst) == self.txn << STATE_BITS | ACTIVE
            && self.locks.cancel_wait(self.owner)
    }
    /// Ends a wait for a lock that is in progress, and every later one of the same transaction
    /// object, with `Interrupted`. Stays valid when the transaction is reset.
    pub fn stop_waits(&self) {
        self.shared.waits_stopped.store(true, SeqCst);
        // A request that comes later sees the flag once it is in the list of waiting requests.
        self.locks.cancel_wait(self.shared.owner.load(SeqCst));
    }
    /// Undoes [`EngineTxnHandle::stop_waits`].
    #[inline]
    pub fn allow_waits(&self) {
        if self.shared.waits_stopped.load(SeqCst) {
            self.shared.waits_stopped.store(false, SeqCst);
        }
    }
    /// Returns true after [`EngineTxnHandle::stop_waits`].
    #[inline]
    pub fn has_stopped_waits(&self) -> bool {
        self.shared.waits_stopped.load(Relaxed)
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
    shared: Arc<SharedTxnState>,
    /// The number of the transaction in this object.
    number: u64,
    /// Monotonic time at which it is aborted (0: never).
    deadline_us: u64,
    /// True if a call since the beginning failed with `Conflict`.
    had_conflict: bool,
}

impl EngineTxn {
    /// Begins a transaction. `enter_commit_section` waits until no commit is in progress, and keeps
    /// others from starting while its result exists.
    pub fn begin<G>(
        txns: &TxnManager,
        settings: TxnSettings,
        enter_commit_section: impl FnOnce() -> G,
    ) -> Result<EngineTxn> {
        let spill_bytes_max = txns.resources.txn_memory_bytes();
        let spill_bytes = match settings.spill_bytes {
            0 => spill_bytes_max,
            wanted => wanted.min(spill_bytes_max),
        };
        let mut txn = EngineTxn {
            settings,
            held_snapshot: None,
            writes: TxnWrites::new(),
            spill_bytes,
            next_check_bytes: 0,
            reads: ReadSet::default(),
            serial_member: None,
            registry: Arc::clone(&txns.serializable_txns),
            open_txns: Arc::clone(&txns.open_txns),
            open_entry: None,
            savepoints: Vec::new(),
            owner: 0,
            held_locks: TxnLocks::default(),
            locks: Arc::clone(&txns.locks),
            shared: Arc::default(),
            number: 0,
            deadline_us: 0,
            had_conflict: false,
        };
        txn.reset(txns, enter_commit_section)?;
        Ok(txn)
    }
    /// Discards all state and begins again.
    pub fn reset<G>(
        &mut self,
        txns: &TxnManager,
        enter_commit_section: impl FnOnce() -> G,
    ) -> Result<()> {
        txns.runtime.health.check_open()?;
        self.end();
        // A retry keeps its age as a lock owner: eventually it is the oldest and never the victim.
        if self.owner == 0 {
            self.owner = self.locks.next_owner();
            self.shared.owner.store(self.owner, SeqCst);
        }
        let take = || match bug::is_active(Bug::StaleSnapshot) {
            true => {
                let stale = txns.catalog.snapshot_at(txns.catalog.visible_seq().prev());
                stale.unwrap_or_else(|_| txns.catalog.acquire_snapshot())
            }
            false => txns.catalog.acquire_snapshot(),
        };
        if self.settings.isolation == Isolation::Serializable {
            // A read-only one never fails: it must not begin between a check and its publication.
            let _section = self.settings.read_only.then(enter_commit_section);
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
            us => txns.runtime.env.clock.monotonic_us().saturating_add(us),
        };
        check!(
            self.writes.written_size().ops == 0 && self.held_locks.count() == 0,
            "a transaction begins without writes and locks",
            self.writes.written_size(),
            self.held_locks.count()
        );
        // Handles of the transaction before are not valid any more.
        self.number += 1;
        self.shared.state.store(self.number << STATE_BITS | ACTIVE, SeqCst);
        self.had_conflict = false;
        self.open_entry = Some(self.open_txns.begin());
        self.next_check_bytes = self.spill_bytes.min(txns.resources.charge_step());
        Ok(())
    }
    /// Ends the transaction: discards all state and accepts no more calls.
    pub fn end(&mut self) {
        self.shared.leave_active(self.number, ENDED);
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
    /// Returns a handle for other threads.
    pub fn handle(&self) -> EngineTxnHandle {
        EngineTxnHandle {
            shared: Arc::clone(&self.shared),
            locks: Arc::clone(&self.locks),
            txn: self.number,
            owner: self.owner,
        }
    }
    /// Returns its number as a lock owner.
    pub fn lock_owner(&self) -> LockOwner {
        self.owner
    }
    /// Returns the number of locks that it holds.
    pub fn lock_count(&self) -> usize {
        self.held_locks.count()
    }
    /// Returns the settings.
    pub fn settings(&self) -> &TxnSettings {
        &self.settings
    }
    /// Sets the maximum wait of later lock requests, in microseconds.
    pub fn set_lock_timeout_us(&mut self, timeout_us: u64) {
        self.settings.lock_timeout_us = timeout_us;
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
        resources: &Resources,
        make: impl FnOnce() -> Box<dyn SpillStore>,
    ) -> Result<()> {
        self.check(&resources.runtime)?;
        self.writes.ensure_spill_store(make);
        if self.writes.memory_bytes() >= self.spill_bytes && self.writes.can_spill() {
            self.writes.spill(self.savepoints.iter().map(|s| s.position))?;
        }
        let memory = self.writes.report_memory();
        self.report_memory();
        let next = memory.saturating_add(resources.charge_step());
        self.next_check_bytes =
            if self.writes.can_spill() { next.min(self.spill_bytes).max(1) } else { next };
        Ok(())
    }

    /// Returns true if a call failed with `Conflict` since the transaction began or was reset. The
    /// commit does not count.
    pub fn had_conflict(&self) -> bool {
        self.had_conflict
    }
    /// Checks that the transaction accepts calls.
    pub fn check(&mut self, runtime: &Runtime) -> Result<()> {
        runtime.health.check_open()?;
        if self.deadline_us != 0 && runtime.env.clock.monotonic_us() >= self.deadline_us {
            self.handle().abort();
        }
        match self.shared.state.load(SeqCst) & ((1 << STATE_BITS) - 1) {
            ACTIVE => {
                self.check_active();
                Ok(())
            }
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

    fn check_active(&self) {
        let isolation = self.settings.isolation;
        check_slow!(
            self.owner != 0 && self.open_entry.is_some(),
            "an active transaction is counted and can own locks",
            self.owner
        );
        check_slow!(
            self.held_snapshot.is_some() == isolation.uses_snapshot()
                && self.serial_member.is_some() == (isolation == Isolation::Serializable),
            "an active transaction has the snapshot that its isolation level reads",
            isolation,
            self.snapshot()
        );
    }

    /// Returns the sequence number for reads of a column family whose view was taken before.
    ///
    /// # Errors
    /// `NotFound` if the column family was dropped; `Conflict` if its contents were replaced.
    pub fn read_seq(&mut self, catalog: &Catalog, family: &FamilyState) -> Result<SeqNo> {
        family.check_not_dropped()?;
        match &self.held_snapshot {
            Some(snapshot) => {
                let checked = check_not_replaced(family, snapshot).map(|()| snapshot.seq());
                checked.inspect_err(|_| self.had_conflict = true)
            }
            None => Ok(catalog.visible_seq()),
        }
    }
    /// Returns its writes in a column family as an overlay that later writes do not change; `None`
    /// if it wrote nothing there.
    pub fn read_overlay(&mut self, family: &FamilyState) -> Result<Option<TxnOverlay>> {
        let overlay = self.writes.read_overlay(family.id)?;
        Ok(overlay.filter(|_| !bug::is_active(Bug::CursorMissesOwnWrites)))
    }
    /// Returns its newest entry for `key`, if it has one.
    pub fn find_own(&mut self, family: &FamilyState, key: &[u8]) -> Result<Option<EntryValue>> {
        self.writes.find(family.id, family.tree.comparator(), key)
    }
    /// Returns the bytes of a live value found by [`EngineTxn::find_own`].
    pub fn own_value(&self, family: &FamilyState, found: EntryValue) -> Result<PinnedSlice> {
        self.writes.value(family.id, found)
    }
    /// Returns the value log of a separated value found by [`EngineTxn::find_own`].
    pub fn own_vlog(&self, family: &FamilyState, p: &VlogPointer) -> Result<Arc<Vlog>> {
        self.writes.find_vlog(family.id, p)
    }
    /// Returns the tracker for the ranges that a scan reads, if they must be tracked.
    pub fn scan_tracker(&self, family: &FamilyState) -> Option<ScanTracker> {
        let is_tracked = !self.settings.read_only && !bug::is_active(Bug::RangeNotTracked);
        let member = self.serial_member.as_ref().filter(|_| is_tracked)?;
        let (family, comparator) = (family.id, family.tree.comparator());
        Some(ScanTracker { member: Arc::clone(member), family, comparator, range_index: None })
    }
    /// Records that the transaction depends on the committed state of `key`.
    pub fn track_key(&mut self, family: &FamilyState, key: &[u8]) {
        let comparator = family.tree.comparator();
        match &self.serial_member {
            _ if self.settings.read_only => {}
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
    /// `Busy` if it was not available in time; `Interrupted` if another thread ended the wait;
    /// `Conflict` for the victim of a deadlock.
    pub fn lock(
        &mut self,
        runtime: &Runtime,
        family: &FamilyState,
        target: KeyOrRangeRef<'_>,
        mode: LockMode,
    ) -> Result<()> {
        self.check(runtime)?;
        family.check_not_dropped()?;
        let (name, comparator) = (LazyFamilyName(family), family.tree.comparator());
        let scope = LockScope { family: family.id, name: &name, comparator };
        let (shared, active) = (&*self.shared, self.number << STATE_BITS | ACTIVE);
        let limits = LockWaitLimits {
            clock: &*runtime.env.clock,
            timeout_us: self.settings.lock_timeout_us,
            deadline_us: self.deadline_us,
            may_wait: &|| !shared.waits_stopped.load(SeqCst) && shared.state.load(SeqCst) == active,
        };
        let (owner, mine) = (self.owner, &mut self.held_locks);
        let locked = self.locks.lock(limits, scope, owner, mine, target, mode);
        if locked.is_ok() && self.deadline_us == 0 && self.shared.state.load(SeqCst) == active {
            return Ok(());
        }
        self.check(runtime)?;
        locked.inspect_err(|e| self.had_conflict |= e.kind() == ErrorKind::Conflict)
    }
    /// Undoes the newest request for a lock on one key, unless the transaction has written the
    /// key. Returns true if that releases the lock.
    ///
    /// # Errors
    /// Those of a read of spilled writes.
    pub fn unlock(&mut self, runtime: &Runtime, family: &FamilyState, key: &[u8]) -> Result<bool> {
        self.check(runtime)?;
        family.check_not_dropped()?;
        if self.find_own(family, key)?.is_some() {
            return Ok(false);
        }
        Ok(self.locks.unlock(family.id, self.owner, &mut self.held_locks, key))
    }
    /// Locks a key that is about to be read. With a snapshot, a change of the key since then is a
    /// conflict now, not only at commit.
    pub fn lock_for_update(
        &mut self,
        runtime: &Runtime,
        family: &FamilyState,
        key: &[u8],
        mode: LockMode,
    ) -> Result<()> {
        self.lock(runtime, family, KeyOrRangeRef::Key(key), mode)?;
        if let Some(snapshot) = &self.held_snapshot {
            let view = family.tree.pin();
            if read::newest_version_since(&view, key, snapshot.seq())?.is_some() {
                self.had_conflict = true;
                let text = "the key was changed after the transaction began; begin it anew";
                return Err(Error::conflict(&family.name(), key, text));
            }
        }
        // It must not change before the commit, at any level: writers without locks do not wait.
        if self.held_snapshot.is_some() && self.serial_member.is_none() && !self.settings.read_only
        {
            self.reads.add_key(family.id, family.tree.comparator(), key);
        }
        Ok(())
    }

    /// Locks what `lock_target` returns, if the transaction takes locks, and checks that it accepts
    /// writes to the column family.
    #[inline]
    fn begin_write<'k>(
        &mut self,
        runtime: &Runtime,
        family: &FamilyState,
        lock_target: impl FnOnce() -> (KeyOrRangeRef<'k>, LockMode),
    ) -> Result<()> {
        if self.settings.pessimistic {
            let (target, mode) = lock_target();
            self.lock(runtime, family, target, mode)?;
        }
        self.check(runtime)?;
        family.check_not_dropped()?;
        if self.settings.read_only {
            return Err(Error::invalid("the transaction is read-only"));
        }
        Ok(())
    }
    /// Adds the operations that `write` writes to a batch; `lock_target` returns what to lock.
    pub fn write<'k>(
        &mut self,
        runtime: &Runtime,
        family: &FamilyState,
        lock_target: impl FnOnce() -> (KeyOrRangeRef<'k>, LockMode),
        write: impl FnOnce(&mut Batch) -> Result<()>,
    ) -> Result<()> {
        self.begin_write(runtime, family, lock_target)?;
        let position = self.writes.position();
        let comparator = family.tree.comparator();
        self.writes.add_family(family.id, comparator);
        self.writes.add_ops(comparator, write)?;
        let bytes = self.writes.written_size().bytes;
        check_written_bytes(self.settings.max_bytes, bytes)
            .inspect_err(|_| self.writes.roll_back(position))?;
        self.report_memory();
        Ok(())
    }

    /// Puts a value that is in a file of its own; `make` creates the spill store.
    ///
    /// # Errors
    /// Those of a write; `InvalidArgument` if the transaction contains merge operands. The file is
    /// still the caller's then.
    pub fn put_separated(
        &mut self,
        resources: &Resources,
        family: &FamilyState,
        key: &[u8],
        expiry: Option<Expiry>,
        value: &WrittenValue,
        make: impl FnOnce() -> Box<dyn SpillStore>,
    ) -> Result<()> {
        let lock_target = || (KeyOrRangeRef::Key(key), LockMode::Insert);
        self.begin_write(&resources.runtime, family, lock_target)?;
        if !self.writes.can_spill() {
            return Err(Error::invalid(
                "a transaction with merge operands accepts no values larger than a chunk that are                  written in parts: commit it, and put the value in another transaction",
            ));
        }
        if key.len() > limits::KEY_BYTES_MAX {
            return Err(Error::invalid("the key is too long")
                .expected(format_args!("at most {} bytes", limits::KEY_BYTES_MAX), key.len()));
        }
        let bytes = self.writes.written_size().bytes + key.len() as u64 + value.pointer.value_bytes;
        check_written_bytes(self.settings.max_bytes, bytes)?;
        self.writes.ensure_spill_store(make);
        self.writes.add_family(family.id, family.tree.comparator());
        let savepoints = self.savepoints.iter().map(|s| s.position);
        self.writes.add_separated(family.id, key, expiry, value, savepoints)?;
        check!(
            self.writes.is_spilled() && self.writes.can_spill(),
            "a transaction with a value in a file is spilled",
            self.writes.written_size()
        );
        self.writes.report_memory();
        self.report_memory();
        Ok(())
    }

    /// Sets a savepoint. Names may repeat: the newest one counts.
    pub fn set_savepoint(&mut self, runtime: &Runtime, name: &str) -> Result<()> {
        self.check(runtime)?;
        let (position, next_lock) = (self.writes.position(), self.held_locks.next_number());
        check!(
            self.savepoints.last().is_none_or(|s| s.next_lock <= next_lock),
            "a later savepoint has later locks",
            self.savepoints.last(),
            next_lock
        );
        self.savepoints.push(Savepoint { name: name.to_string(), position, next_lock });
        Ok(())
    }
    fn find_savepoint(&self, name: &str) -> Result<usize> {
        self.savepoints.iter().rposition(|s| s.name == name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("the transaction has no savepoint {name:?}"))
        })
    }
    /// Rolls back to a savepoint and keeps it; removes later ones.
    pub fn roll_back_to_savepoint(&mut self, runtime: &Runtime, name: &str) -> Result<()> {
        self.check(runtime)?;
        let at = self.find_savepoint(name)?;
        check!(
            self.savepoints[at].next_lock <= self.held_locks.next_number(),
            "the numbers of locks are not used again",
            self.savepoints[at],
            self.held_locks.next_number()
        );
        self.writes.roll_back(self.savepoints[at].position);
        self.report_memory();
        if !bug::is_active(Bug::RollbackKeepsLock) {
            self.locks.release(self.owner, &mut self.held_locks, self.savepoints[at].next_lock);
        }
        self.savepoints.truncate(at + 1);
        Ok(())
    }
    /// Removes a savepoint and later ones; the writes stay.
    pub fn release_savepoint(&mut self, runtime: &Runtime, name: &str) -> Result<()> {
        self.check(runtime)?;
        let at = self.find_savepoint(name)?;
        self.savepoints.truncate(at);
        Ok(())
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

/// Fails if a transaction of this size exceeds its limit (0: none).
fn check_written_bytes(limit: u64, bytes: u64) -> Result<()> {
    if limit != 0 && bytes > limit {
        return Err(Error::invalid(
            "the transaction is too large: commit it, or raise TxnOptions::max_bytes",
        )
        .expected(format_args!("at most {limit} bytes"), bytes));
    }
    Ok(())
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
