//! One transaction: its snapshot, its writes, its savepoints, its end.

use super::settings::{IsolationLevel, TxnSettings};
use super::spill_store::SpillStore;
use super::validate::{CommitConditions, ReadDependencies, serialization_error};
use super::writes::{TxnWrites, WritesPosition};
use crate::core::EngineCore;
use crate::family::FamilyState;
use crate::locks::{LockManager, LockMode, LockOwner, TxnLocks};
use crate::memory_budget;
use crate::open_txns::{OpenTxnToken, OpenTxns};
use crate::read_write_sets::{KeyOrRange as Locked, ReadSet};
use crate::serializable_txns::{SerializableTxn, SerializableTxns};
use crate::snapshot::SnapshotHandle;
use perigee_base::bug::{self, Bug};
use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::{Error, ErrorKind, FamilyId, KeyComparator, PinnedSlice, Result, SeqNo};
use perigee_file::EntryValue;
use perigee_file::log::Batch;
use perigee_tree::{View, conflict_check, get};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// Goes on.
const ACTIVE: u8 = 0;
/// Committed or rolled back.
const ENDED: u8 = 1;
/// Ended from outside.
const ABORTED: u8 = 2;

/// A savepoint.
#[derive(Clone, Debug)]
struct Savepoint {
    name: String,
    position: WritesPosition,
    /// Locks taken before it.
    lock_count: u64,
}

/// Ends a transaction from outside.
#[derive(Clone, Debug)]
pub struct TxnAbortHandle {
    state: Arc<AtomicU8>,
    locks: Arc<LockManager>,
    owner: LockOwner,
}

impl TxnAbortHandle {
    /// From now on the transaction answers every call with `Aborted`, also one that waits for a
    /// lock; false if it has ended already.
    pub fn abort(&self) -> bool {
        let aborted = self.state.compare_exchange(ACTIVE, ABORTED, SeqCst, SeqCst).is_ok();
        if aborted {
            self.locks.abort_waits(self.owner);
        }
        aborted
    }
}

/// A transaction. Calls of one are not made at the same time.
#[derive(Debug)]
pub struct EngineTxn {
    settings: TxnSettings,
    held_snapshot: Option<SnapshotHandle>,
    writes: TxnWrites,
    /// Memory from which on it goes to files; memory at which somebody has to look.
    spill_bytes: u64,
    next_check_bytes: u64,
    reads: ReadSet,
    /// Its place among the serializable ones, if it is one.
    serial_member: Option<Arc<SerializableTxn>>,
    registry: Arc<SerializableTxns>,
    /// Where it counts while it is open, and as what.
    open_txns: Arc<OpenTxns>,
    open_entry: Option<OpenTxnToken>,
    savepoints: Vec<Savepoint>,
    /// As which it takes locks; those it holds.
    owner: LockOwner,
    held_locks: TxnLocks,
    locks: Arc<LockManager>,
    state: Arc<AtomicU8>,
    /// When its time is over (0: never).
    deadline_us: u64,
}

impl EngineTxn {
    /// Begins one.
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
    /// Begins anew, everything forgotten.
    pub fn reset(&mut self, core: &EngineCore) -> Result<()> {
        core.health.check_open()?;
        self.end();
        // Tried again, it is not younger than before: in the end it is the oldest, and gives way to
        // nobody.
        if self.owner == 0 {
            self.owner = self.locks.next_owner();
        }
        let take = || match bug::is_active(Bug::StaleSnapshot) {
            true => core.snapshots.acquire(&core.visible_seq().0.saturating_sub(1).into()),
            false => core.snapshots.acquire(&core.visible_seq),
        };
        if self.settings.isolation == IsolationLevel::Serializable {
            // One that only reads is never refused: so it must not begin between a commit's check
            // and its publication.
            let _section = self.settings.read_only.then(|| core.wal.appender());
            let begun = self.registry.begin(self.settings.read_only, || {
                let held = take();
                (held.seq(), held)
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
    /// Forgets everything and takes no more calls.
    pub fn end(&mut self) {
        let _ = self.state.compare_exchange(ACTIVE, ENDED, SeqCst, SeqCst);
        self.release_all();
    }
    /// Forgets what it has written and read, its snapshot and its locks.
    fn release_all(&mut self) {
        if let Some(counted) = self.open_entry.take() {
            self.open_txns.end(counted);
        }
        self.held_snapshot = None;
        self.writes.clear();
        self.reads = ReadSet::default();
        if let Some(member) = self.serial_member.take() {
            // What it has seen was seen, however it ends.
            if !self.settings.read_only || self.registry.end_read_only(&member).is_err() {
                self.registry.remove(&member);
            }
        }
        self.savepoints.clear();
        self.locks.release(self.owner, &mut self.held_locks, 0);
    }
    /// Says how much memory its writes hold.
    #[inline]
    fn report_memory(&mut self) {
        if let Some(counted) = &mut self.open_entry {
            self.open_txns.set_bytes(counted, self.writes.memory_bytes());
        }
    }
    /// To end it from outside.
    pub fn abort_handle(&self) -> TxnAbortHandle {
        TxnAbortHandle {
            state: Arc::clone(&self.state),
            locks: Arc::clone(&self.locks),
            owner: self.owner,
        }
    }
    /// Its settings.
    pub fn settings(&self) -> &TxnSettings {
        &self.settings
    }
    /// The sequence number that it reads at, if it holds one.
    pub fn snapshot(&self) -> Option<SeqNo> {
        self.held_snapshot.as_ref().map(SnapshotHandle::seq)
    }
    /// Operations written, and bytes that they take in the log.
    pub fn written(&self) -> (usize, u64) {
        self.writes.written_size()
    }
    /// Whether what it has written lies in files, beyond its memory.
    pub fn is_spilled(&self) -> bool {
        self.writes.is_spilled()
    }
    /// Whether [`Txn::make_room`] is due before more is written.
    #[inline]
    pub fn needs_spill_check(&self) -> bool {
        self.writes.memory_bytes() >= self.next_check_bytes
    }
    /// Tells the budget what it holds, and empties its memory into files if that is too much.
    /// `make` makes the room for them.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: what it has written is as it was, and nothing else has changed.
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

    /// Whether it takes calls.
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
                    "the transaction was ended by its time limit or from another thread: begin it anew",
                ))
            }
        }
    }

    /// The number to read a family at, whose view was taken before.
    fn read_seq(&self, core: &EngineCore, family: &FamilyState) -> Result<SeqNo> {
        family.check_not_dropped()?;
        match &self.held_snapshot {
            Some(held) => check_not_replaced(family, held).map(|()| held.seq()),
            None => Ok(core.visible_seq()),
        }
    }
    /// What a walk through a family reads: a picture that later writes do not change.
    pub fn read_view(
        &mut self,
        core: &EngineCore,
        family: &FamilyState,
    ) -> Result<(Arc<View>, SeqNo)> {
        self.check(core)?;
        let view = family.tree.view();
        let at = self.read_seq(core, family)?;
        Ok(match self.writes.read_overlay(family.id)? {
            Some(own) if !bug::is_active(Bug::OwnUnseenByCursor) => {
                (Arc::new(view.with_overlay(own)), at)
            }
            _ => (view, at),
        })
    }
    /// Where a walk lists what it passes, if that matters.
    pub fn scan_tracker(&self, family: &FamilyState) -> Option<ScanTracker> {
        let listed = !self.settings.read_only && !bug::is_active(Bug::RangeNotTracked);
        let member = self.serial_member.as_ref().filter(|_| listed)?;
        let (family, order) = (family.id, family.tree.comparator());
        Some(ScanTracker { member: Arc::clone(member), family, order, range_index: None })
    }
    /// The value of `key`; `tracked`: as a read that the transaction depends on.
    pub fn get(
        &mut self,
        core: &EngineCore,
        family: &FamilyState,
        key: &[u8],
        tracked: bool,
    ) -> Result<Option<PinnedSlice>> {
        self.check(core)?;
        let order = family.tree.comparator();
        let own = self.writes.find(family.id, order, key)?;
        // Of an own operand's value a part is what others committed.
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
    /// Whether `key` is there; its value is not asked for.
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
    /// Notes a read that the transaction depends on.
    fn track_read(&mut self, family: &FamilyState, key: &[u8], tracked: bool) {
        let order = family.tree.comparator();
        match &self.serial_member {
            _ if !tracked || self.settings.read_only => {}
            Some(member) => member.record_reads(|reads| reads.add_key(family.id, order, key)),
            None if self.settings.isolation.checks_reads() => {
                self.reads.add_key(family.id, order, key)
            }
            None => {}
        }
    }

    /// Locks a key or a stretch until the end, or until a savepoint set before is gone back to.
    ///
    /// # Errors
    /// `Busy` if it was not to be had in time; `Conflict` for the victim of a deadlock.
    pub fn lock(
        &mut self,
        core: &EngineCore,
        family: &FamilyState,
        place: Locked,
        mode: LockMode,
    ) -> Result<()> {
        self.check(core)?;
        family.check_not_dropped()?;
        let whose = (self.owner, &mut self.held_locks);
        let place_of = (family.id, &*family.name(), family.tree.comparator());
        let now = core.env.clock.monotonic_us();
        let left =
            if self.deadline_us == 0 { u64::MAX } else { self.deadline_us.saturating_sub(now) };
        let patience = self.settings.lock_timeout_us.min(left);
        let locked = self.locks.lock(&*core.env.clock, place_of, whose, place, mode, patience);
        self.check(core)?;
        locked
    }
    /// Locks a key, then reads it. If all reads see one moment and the key was changed since, it is
    /// a conflict now and not only at commit.
    pub fn get_for_update(
        &mut self,
        core: &EngineCore,
        family: &FamilyState,
        key: &[u8],
        mode: LockMode,
    ) -> Result<Option<PinnedSlice>> {
        self.lock(core, family, Locked::Key(key.to_vec()), mode)?;
        if let Some(held) = &self.held_snapshot {
            let view = family.tree.pin();
            if conflict_check::newest_version_since(&view, key, held.seq())?.is_some() {
                let text = "the key was changed after the transaction began; begin it anew";
                return Err(Error::conflict(&family.name(), key, text));
            }
        }
        // At commit it must not have changed, whatever the level: who takes no locks does not wait.
        if self.held_snapshot.is_some() && self.serial_member.is_none() && !self.settings.read_only
        {
            self.reads.add_key(family.id, family.tree.comparator(), key);
        }
        self.get(core, family, key, true)
    }

    /// Writes what `write` adds to a batch; `place` is what it is about.
    pub fn write(
        &mut self,
        core: &EngineCore,
        family: &FamilyState,
        place: impl FnOnce() -> (Locked, LockMode),
        write: impl FnOnce(&mut Batch) -> Result<()>,
    ) -> Result<()> {
        if self.settings.pessimistic {
            let (place, mode) = place();
            self.lock(core, family, place, mode)?;
        }
        self.check(core)?;
        family.check_not_dropped()?;
        if self.settings.read_only {
            return Err(Error::invalid("the transaction was begun for reading only"));
        }
        let place = self.writes.position();
        let order = family.tree.comparator();
        self.writes.add_family(family.id, order);
        self.writes.add_ops(order, write)?;
        let (limit, bytes) = (self.settings.max_bytes, self.writes.written_size().1);
        if limit != 0 && bytes > limit {
            self.writes.roll_back(place);
            return Err(Error::invalid(
                "the transaction is too large: commit what it has, or raise its limit",
            )
            .expected(format_args!("at most {limit} bytes"), bytes));
        }
        self.report_memory();
        Ok(())
    }

    /// Sets a savepoint. Names may repeat: the newest is meant.
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
    /// Takes back what was written since a savepoint, which stays; later ones go.
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
    /// Forgets a savepoint and later ones; what was written stays.
    pub fn release_savepoint(&mut self, core: &EngineCore, name: &str) -> Result<()> {
        self.check(core)?;
        let at = self.find_savepoint(name)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    /// Takes no more calls; what is to be committed, and under which conditions. The snapshot stays
    /// until [`Txn::end`].
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
    /// Takes no more calls, unless somebody ended it just now: then that is the answer.
    fn mark_ended(&mut self, core: &EngineCore) -> Result<()> {
        match self.state.compare_exchange(ACTIVE, ENDED, SeqCst, SeqCst) {
            Ok(_) => Ok(()),
            Err(_) => self.check(core),
        }
    }
    fn take_conditions(&mut self) -> Option<Box<CommitConditions>> {
        let held = self.held_snapshot.as_ref()?;
        let depends = match &self.serial_member {
            Some(member) => {
                ReadDependencies::Serial(Arc::clone(&self.registry), Arc::clone(member))
            }
            None => ReadDependencies::Reads(std::mem::take(&mut self.reads)),
        };
        let (since, era) = (held.seq(), held.epoch());
        Some(Box::new(CommitConditions {
            checked_seq: since,
            era,
            depends,
            reads_overwritten: false,
        }))
    }
    /// Takes no more calls, and commits what lies in files; what is in memory goes there first. The
    /// snapshot stays until [`Txn::end`].
    pub fn commit_spilled(&mut self, core: &EngineCore) -> Result<SeqNo> {
        self.check(core)?;
        self.writes.spill(self.savepoints.iter().map(|s| s.position))?;
        self.mark_ended(core)?;
        let (numbers, operations) =
            (self.writes.numbers(std::iter::empty()), self.writes.written_size().0);
        let runs = self
            .writes
            .take_spill_store()
            .ok_or_else(|| Error::internal("a spilled transaction has no runs"))?;
        runs.commit_spilled(&numbers, self.take_conditions(), operations)
    }
}

/// What a transaction leaves behind that is to be prepared.
#[derive(Debug)]
pub struct PrepareRequest {
    /// What it writes.
    pub batch: Batch,
    /// What must hold, and then go on to hold.
    pub conditions: Option<Box<CommitConditions>>,
    /// As which it holds locks, and which.
    pub locks: (LockOwner, TxnLocks),
}

impl EngineTxn {
    /// Whether it can be prepared.
    ///
    /// # Errors
    /// `InvalidArgument` if what it has written lies in files; it goes on.
    pub fn check_preparable(&self) -> Result<()> {
        if !self.is_spilled() {
            return Ok(());
        }
        let text = "the transaction is larger than its memory, and cannot be prepared: commit it, or split it";
        Err(Error::invalid(text))
    }
    /// It could not be prepared, and its locks are released: tried again, it is no younger than it
    /// was.
    pub fn restore_lock_owner(&mut self, owner: LockOwner) {
        self.owner = owner;
    }
    /// The same for one that is to be prepared: its locks stay behind, too. One that wrote nothing
    /// is prepared like any other.
    pub fn finish_prepare(&mut self, core: &EngineCore) -> Result<PrepareRequest> {
        self.check(core)?;
        self.mark_ended(core)?;
        let batch = self.writes.take_batch();
        let conditions = if self.settings.read_only { None } else { self.take_conditions() };
        // While this one is undecided, the next is another owner of locks.
        let locks = (std::mem::take(&mut self.owner), std::mem::take(&mut self.held_locks));
        Ok(PrepareRequest { batch, conditions, locks })
    }
}

/// Lists what a walk has passed, as one stretch that grows. A clone is a walk of its own.
#[derive(Debug)]
pub struct ScanTracker {
    member: Arc<SerializableTxn>,
    family: FamilyId,
    order: KeyComparator,
    range_index: Option<usize>,
}

impl Clone for ScanTracker {
    fn clone(&self) -> ScanTracker {
        ScanTracker { member: Arc::clone(&self.member), range_index: None, ..*self }
    }
}

impl ScanTracker {
    /// The walk knows now what is between two places.
    pub fn record_range(&mut self, begin: KeyBoundaryRef<'_>, end: KeyBoundaryRef<'_>) {
        let (number, family, order) = (self.range_index, self.family, self.order);
        self.range_index = Some(self.member.record_reads(|reads| match number {
            Some(number) => {
                reads.widen_range(number, order, (begin, end));
                number
            }
            None => reads.add_range(family, (begin, end)),
        }));
    }
}

impl Drop for EngineTxn {
    fn drop(&mut self) {
        self.end();
    }
}

/// A conflict if the family's contents are no longer those that the transaction's snapshot knows.
fn check_not_replaced(family: &FamilyState, held: &SnapshotHandle) -> Result<()> {
    family.check_contents_epoch(held.epoch()).map_err(|_| {
        Error::conflict(
            &family.name(),
            b"",
            "the family was cleared or replaced after the transaction began",
        )
    })
}
