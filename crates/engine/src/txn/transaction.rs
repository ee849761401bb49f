//! One transaction: its snapshot, its writes, its savepoints, its end.

use super::runs::Runs;
use super::settings::{Isolation, TxnSettings};
use super::validate::{Conditions, Depends, refused};
use super::writes::{Place, Writes};
use crate::core::Core;
use crate::family::Family;
use crate::footprint::{Place as Locked, Reads};
use crate::locks::{LockMode, Locks, Mine, Owner};
use crate::memory;
use crate::open_txns::{Counted, OpenTxns};
use crate::serial::{Member, Registry};
use crate::snapshot::Held;
use perigee_base::bug::{self, Bug};
use perigee_base::cut::CutRef;
use perigee_base::{Error, ErrorKind, FamilyId, KeyOrder, Result, SeqNo, Shared};
use perigee_file::Found;
use perigee_file::log::Batch;
use perigee_tree::{View, get, since};
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
    place: Place,
    /// Locks taken before it.
    locks: u64,
}

/// Ends a transaction from outside.
#[derive(Clone, Debug)]
pub struct Mark {
    state: Arc<AtomicU8>,
    locks: Arc<Locks>,
    owner: Owner,
}

impl Mark {
    /// From now on the transaction answers every call with `Aborted`, also one that waits for a lock; false if it has ended
    /// already.
    pub fn abort(&self) -> bool {
        let aborted = self.state.compare_exchange(ACTIVE, ABORTED, SeqCst, SeqCst).is_ok();
        if aborted {
            self.locks.give_way(self.owner);
        }
        aborted
    }
}

/// A transaction. Calls of one are not made at the same time.
#[derive(Debug)]
pub struct Txn {
    settings: TxnSettings,
    held: Option<Held>,
    writes: Writes,
    /// Memory from which on it goes to files; memory at which somebody has to look.
    spill_bytes: u64,
    look_bytes: u64,
    reads: Reads,
    /// Its place among the serializable ones, if it is one.
    serial: Option<Arc<Member>>,
    registry: Arc<Registry>,
    /// Where it counts while it is open, and as what.
    open: Arc<OpenTxns>,
    counted: Option<Counted>,
    savepoints: Vec<Savepoint>,
    /// As which it takes locks; those it holds.
    owner: Owner,
    mine: Mine,
    locks: Arc<Locks>,
    state: Arc<AtomicU8>,
    /// When its time is over (0: never).
    until_us: u64,
}

impl Txn {
    /// Begins one.
    pub fn begin(core: &Core, settings: TxnSettings) -> Result<Txn> {
        let budget = core.memory.budget;
        let spill_bytes = match settings.spill_bytes {
            0 => memory::txn_bytes(budget),
            wanted => wanted.min(memory::txn_bytes(budget)),
        };
        let mut txn = Txn {
            settings,
            held: None,
            writes: Writes::new(),
            spill_bytes,
            look_bytes: 0,
            reads: Reads::default(),
            serial: None,
            registry: Arc::clone(&core.serial),
            open: Arc::clone(&core.open_txns),
            counted: None,
            savepoints: Vec::new(),
            owner: 0,
            mine: Mine::default(),
            locks: Arc::clone(&core.locks),
            state: Arc::default(),
            until_us: 0,
        };
        txn.reset(core)?;
        Ok(txn)
    }
    /// Begins anew, everything forgotten.
    pub fn reset(&mut self, core: &Core) -> Result<()> {
        core.health.check_open()?;
        self.end();
        // Tried again, it is not younger than before: in the end it is the oldest, and gives way to nobody.
        if self.owner == 0 {
            self.owner = self.locks.newcomer();
        }
        let take = || match bug::on(Bug::StaleSnapshot) {
            true => core.snapshots.take(&core.visible().0.saturating_sub(1).into()),
            false => core.snapshots.take(&core.visible),
        };
        if self.settings.isolation == Isolation::Serializable {
            // One that only reads is never refused: so it must not begin between a commit's check and its publication.
            let _section = self.settings.read_only.then(|| core.wal.appender());
            let begun = self.registry.begin(self.settings.read_only, || {
                let held = take();
                (held.seq(), held)
            });
            (self.serial, self.held) = (Some(begun.0), Some(begun.1));
        } else {
            self.held = self.settings.isolation.holds_snapshot().then(take);
        }
        self.until_us = match self.settings.timeout_us {
            0 => 0,
            us => core.env.clock.monotonic_us().saturating_add(us),
        };
        self.state = Arc::default();
        self.counted = Some(self.open.begin());
        self.look_bytes = self.spill_bytes.min(memory::step(core.memory.budget));
        Ok(())
    }
    /// Forgets everything and takes no more calls.
    pub fn end(&mut self) {
        let _ = self.state.compare_exchange(ACTIVE, ENDED, SeqCst, SeqCst);
        self.let_go();
    }
    /// Forgets what it has written and read, its snapshot and its locks.
    fn let_go(&mut self) {
        if let Some(counted) = self.counted.take() {
            self.open.end(counted);
        }
        self.held = None;
        self.writes.clear();
        self.reads = Reads::default();
        if let Some(member) = self.serial.take() {
            // What it has seen was seen, however it ends.
            if !self.settings.read_only || self.registry.end_reading(&member).is_err() {
                self.registry.leave(&member);
            }
        }
        self.savepoints.clear();
        self.locks.release(self.owner, &mut self.mine, 0);
    }
    /// Says how much memory its writes hold.
    #[inline]
    fn tell_held(&mut self) {
        if let Some(counted) = &mut self.counted {
            self.open.holds(counted, self.writes.memory_bytes());
        }
    }
    /// To end it from outside.
    pub fn mark(&self) -> Mark {
        Mark { state: Arc::clone(&self.state), locks: Arc::clone(&self.locks), owner: self.owner }
    }
    /// Its settings.
    pub fn settings(&self) -> &TxnSettings {
        &self.settings
    }
    /// The sequence number that it reads at, if it holds one.
    pub fn snapshot(&self) -> Option<SeqNo> {
        self.held.as_ref().map(Held::seq)
    }
    /// Operations written, and bytes that they take in the log.
    pub fn written(&self) -> (usize, u64) {
        self.writes.written()
    }
    /// Whether what it has written lies in files, beyond its memory.
    pub fn is_spilled(&self) -> bool {
        self.writes.is_spilled()
    }
    /// Whether [`Txn::make_room`] is due before more is written.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.writes.memory_bytes() >= self.look_bytes
    }
    /// Tells the budget what it holds, and empties its memory into files if that is too much. `make` makes the room for them.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: what it has written is as it was, and nothing else has changed.
    pub fn make_room(&mut self, core: &Core, make: impl FnOnce() -> Box<dyn Runs>) -> Result<()> {
        self.check(core)?;
        self.writes.have_runs(make);
        if self.writes.memory_bytes() >= self.spill_bytes && self.writes.may_spill() {
            self.writes.spill(self.savepoints.iter().map(|s| s.place))?;
        }
        let memory = self.writes.tell_memory();
        self.tell_held();
        let next = memory.saturating_add(memory::step(core.memory.budget));
        self.look_bytes = if self.writes.may_spill() { next.min(self.spill_bytes).max(1) } else { next };
        Ok(())
    }

    /// Whether it takes calls.
    pub fn check(&mut self, core: &Core) -> Result<()> {
        core.health.check_open()?;
        if self.until_us != 0 && core.env.clock.monotonic_us() >= self.until_us {
            self.mark().abort();
        }
        match self.state.load(SeqCst) {
            ACTIVE => Ok(()),
            ENDED => Err(Error::invalid("the transaction has ended: reset it, or begin another")),
            _ => {
                self.let_go();
                Err(Error::new(
                    ErrorKind::Aborted,
                    "the transaction was ended by its time limit or from another thread: begin it anew",
                ))
            }
        }
    }

    /// The number to read a family at, whose view was taken before.
    fn at(&self, core: &Core, family: &Family) -> Result<SeqNo> {
        family.check()?;
        match &self.held {
            Some(held) => replaced(family, held).map(|()| held.seq()),
            None => Ok(core.visible()),
        }
    }
    /// What a walk through a family reads: a picture that later writes do not change.
    pub fn view(&mut self, core: &Core, family: &Family) -> Result<(Arc<View>, SeqNo)> {
        self.check(core)?;
        let view = family.tree.view();
        let at = self.at(core, family)?;
        Ok(match self.writes.own(family.id)? {
            Some(own) if !bug::on(Bug::OwnUnseenByCursor) => (Arc::new(view.under(own)), at),
            _ => (view, at),
        })
    }
    /// Where a walk lists what it passes, if that matters.
    pub fn walk(&self, family: &Family) -> Option<Walk> {
        let listed = !self.settings.read_only && !bug::on(Bug::RangeNotTracked);
        let member = self.serial.as_ref().filter(|_| listed)?;
        let (family, order) = (family.id, family.tree.order());
        Some(Walk { member: Arc::clone(member), family, order, number: None })
    }
    /// The value of `key`; `tracked`: as a read that the transaction depends on.
    pub fn get(&mut self, core: &Core, family: &Family, key: &[u8], tracked: bool) -> Result<Option<Shared>> {
        self.check(core)?;
        let order = family.tree.order();
        let own = self.writes.find(family.id, order, key)?;
        // Of an own operand's value a part is what others committed.
        let merged = own.as_ref().is_some_and(Found::is_operand);
        if let Some(found) = own.filter(|_| !merged) {
            let live = get::is_live(&found, &*core.now);
            return live.then(|| self.writes.value(family.id, found)).transpose();
        }
        self.track(family, key, tracked);
        if merged {
            let (view, at) = self.view(core, family)?;
            return get::get(&view, key, at);
        }
        let view = family.tree.pin();
        let at = self.at(core, family)?;
        get::get(&view, key, at)
    }
    /// Whether `key` is there; its value is not asked for.
    pub fn contains(&mut self, core: &Core, family: &Family, key: &[u8], tracked: bool) -> Result<bool> {
        self.check(core)?;
        if let Some(found) = self.writes.find(family.id, family.tree.order(), key)? {
            if found.is_operand() {
                self.track(family, key, tracked);
            }
            return Ok(found.is_operand() || get::is_live(&found, &*core.now));
        }
        self.track(family, key, tracked);
        let view = family.tree.pin();
        let at = self.at(core, family)?;
        get::contains(&view, key, at)
    }
    /// Notes a read that the transaction depends on.
    fn track(&mut self, family: &Family, key: &[u8], tracked: bool) {
        let order = family.tree.order();
        match &self.serial {
            _ if !tracked || self.settings.read_only => {}
            Some(member) => member.list(|reads| reads.key(family.id, order, key)),
            None if self.settings.isolation.checks_reads() => self.reads.key(family.id, order, key),
            None => {}
        }
    }

    /// Locks a key or a stretch until the end, or until a savepoint set before is gone back to.
    ///
    /// # Errors
    /// `Busy` if it was not to be had in time; `Conflict` for the victim of a deadlock.
    pub fn lock(&mut self, core: &Core, family: &Family, place: Locked, mode: LockMode) -> Result<()> {
        self.check(core)?;
        family.check()?;
        let whose = (self.owner, &mut self.mine);
        let place_of = (family.id, &*family.name(), family.tree.order());
        let now = core.env.clock.monotonic_us();
        let left = if self.until_us == 0 { u64::MAX } else { self.until_us.saturating_sub(now) };
        let patience = self.settings.lock_timeout_us.min(left);
        let locked = self.locks.lock(&*core.env.clock, place_of, whose, place, mode, patience);
        self.check(core)?;
        locked
    }
    /// Locks a key, then reads it. If all reads see one moment and the key was changed since, it is a conflict now and not only
    /// at commit.
    pub fn get_for_update(
        &mut self,
        core: &Core,
        family: &Family,
        key: &[u8],
        mode: LockMode,
    ) -> Result<Option<Shared>> {
        self.lock(core, family, Locked::Key(key.to_vec()), mode)?;
        if let Some(held) = &self.held {
            let view = family.tree.pin();
            if since::newest(&view, key, held.seq())?.is_some() {
                let text = "the key was changed after the transaction began; begin it anew";
                return Err(Error::conflict(&family.name(), key, text));
            }
        }
        // At commit it must not have changed, whatever the level: who takes no locks does not wait.
        if self.held.is_some() && self.serial.is_none() && !self.settings.read_only {
            self.reads.key(family.id, family.tree.order(), key);
        }
        self.get(core, family, key, true)
    }

    /// Writes what `write` adds to a batch; `place` is what it is about.
    pub fn write(
        &mut self,
        core: &Core,
        family: &Family,
        place: impl FnOnce() -> (Locked, LockMode),
        write: impl FnOnce(&mut Batch) -> Result<()>,
    ) -> Result<()> {
        if self.settings.pessimistic {
            let (place, mode) = place();
            self.lock(core, family, place, mode)?;
        }
        self.check(core)?;
        family.check()?;
        if self.settings.read_only {
            return Err(Error::invalid("the transaction was begun for reading only"));
        }
        let place = self.writes.place();
        let order = family.tree.order();
        self.writes.know(family.id, order);
        self.writes.add(order, write)?;
        let (limit, bytes) = (self.settings.max_bytes, self.writes.written().1);
        if limit != 0 && bytes > limit {
            self.writes.roll_back(place);
            return Err(Error::invalid(
                "the transaction is too large: commit what it has, or raise its limit",
            )
            .expected(format_args!("at most {limit} bytes"), bytes));
        }
        self.tell_held();
        Ok(())
    }

    /// Sets a savepoint. Names may repeat: the newest is meant.
    pub fn savepoint(&mut self, core: &Core, name: &str) -> Result<()> {
        self.check(core)?;
        self.savepoints.push(Savepoint {
            name: name.to_string(),
            place: self.writes.place(),
            locks: self.mine.count(),
        });
        Ok(())
    }
    fn position(&self, name: &str) -> Result<usize> {
        self.savepoints.iter().rposition(|s| s.name == name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("the transaction has no savepoint {name:?}"))
        })
    }
    /// Takes back what was written since a savepoint, which stays; later ones go.
    pub fn roll_back_to(&mut self, core: &Core, name: &str) -> Result<()> {
        self.check(core)?;
        let at = self.position(name)?;
        self.writes.roll_back(self.savepoints[at].place);
        self.tell_held();
        if !bug::on(Bug::RollbackKeepsLock) {
            self.locks.release(self.owner, &mut self.mine, self.savepoints[at].locks);
        }
        self.savepoints.truncate(at + 1);
        Ok(())
    }
    /// Forgets a savepoint and later ones; what was written stays.
    pub fn release(&mut self, core: &Core, name: &str) -> Result<()> {
        self.check(core)?;
        let at = self.position(name)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    /// Takes no more calls; what is to be committed, and under which conditions. The snapshot stays until [`Txn::end`].
    pub fn finish(&mut self, core: &Core) -> Result<(Batch, Option<Box<Conditions>>)> {
        self.check(core)?;
        self.close(core)?;
        let batch = self.writes.take();
        if self.held.is_some() && batch.count() == 0 {
            if let Some(member) = self.serial.take() {
                self.registry.end_reading(&member).map_err(|why| {
                    self.registry.leave(&member);
                    refused(core, why)
                })?;
            }
            return Ok((batch, None));
        }
        Ok((batch, self.conditions()))
    }
    /// Takes no more calls, unless somebody ended it just now: then that is the answer.
    fn close(&mut self, core: &Core) -> Result<()> {
        match self.state.compare_exchange(ACTIVE, ENDED, SeqCst, SeqCst) {
            Ok(_) => Ok(()),
            Err(_) => self.check(core),
        }
    }
    fn conditions(&mut self) -> Option<Box<Conditions>> {
        let held = self.held.as_ref()?;
        let depends = match &self.serial {
            Some(member) => Depends::Serial(Arc::clone(&self.registry), Arc::clone(member)),
            None => Depends::Reads(std::mem::take(&mut self.reads)),
        };
        let (since, era) = (held.seq(), held.era());
        Some(Box::new(Conditions { since, era, depends, overwritten: false }))
    }
    /// Takes no more calls, and commits what lies in files; what is in memory goes there first. The snapshot stays until
    /// [`Txn::end`].
    pub fn commit_spilled(&mut self, core: &Core) -> Result<SeqNo> {
        self.check(core)?;
        self.writes.spill(self.savepoints.iter().map(|s| s.place))?;
        self.close(core)?;
        let (numbers, operations) = (self.writes.numbers(std::iter::empty()), self.writes.written().0);
        let runs =
            self.writes.take_runs().ok_or_else(|| Error::internal("a spilled transaction has no runs"))?;
        runs.commit(&numbers, self.conditions(), operations)
    }
}

/// What a transaction leaves behind that is to be prepared.
#[derive(Debug)]
pub struct Leaving {
    /// What it writes.
    pub batch: Batch,
    /// What must hold, and then go on to hold.
    pub conditions: Option<Box<Conditions>>,
    /// As which it holds locks, and which.
    pub locks: (Owner, Mine),
}

impl Txn {
    /// Whether it can be prepared.
    ///
    /// # Errors
    /// `InvalidArgument` if what it has written lies in files; it goes on.
    pub fn check_small(&self) -> Result<()> {
        if !self.is_spilled() {
            return Ok(());
        }
        let text =
            "the transaction is larger than its memory, and cannot be prepared: commit it, or split it";
        Err(Error::invalid(text))
    }
    /// It could not be prepared, and its locks are released: tried again, it is no younger than it was.
    pub fn stays(&mut self, owner: Owner) {
        self.owner = owner;
    }
    /// The same for one that is to be prepared: its locks stay behind, too. One that wrote nothing is prepared like any other.
    pub fn finish_prepare(&mut self, core: &Core) -> Result<Leaving> {
        self.check(core)?;
        self.close(core)?;
        let batch = self.writes.take();
        let conditions = if self.settings.read_only { None } else { self.conditions() };
        // While this one is undecided, the next is another owner of locks.
        let locks = (std::mem::take(&mut self.owner), std::mem::take(&mut self.mine));
        Ok(Leaving { batch, conditions, locks })
    }
}

/// Lists what a walk has passed, as one stretch that grows. A clone is a walk of its own.
#[derive(Debug)]
pub struct Walk {
    member: Arc<Member>,
    family: FamilyId,
    order: KeyOrder,
    number: Option<usize>,
}

impl Clone for Walk {
    fn clone(&self) -> Walk {
        Walk { member: Arc::clone(&self.member), number: None, ..*self }
    }
}

impl Walk {
    /// The walk knows now what is between two places.
    pub fn passed(&mut self, begin: CutRef<'_>, end: CutRef<'_>) {
        let (number, family, order) = (self.number, self.family, self.order);
        self.number = Some(self.member.list(|reads| match number {
            Some(number) => {
                reads.widen(number, order, (begin, end));
                number
            }
            None => reads.range(family, (begin, end)),
        }));
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        self.end();
    }
}

/// A conflict if the family's contents are no longer those that the transaction's snapshot knows.
fn replaced(family: &Family, held: &Held) -> Result<()> {
    family.check_since(held.era()).map_err(|_| {
        Error::conflict(&family.name(), b"", "the family was cleared or replaced after the transaction began")
    })
}
