//! Commit hooks: users' code that is called for every batch of a column family, on the thread that
//! committed it, in commit order, after the batch was acknowledged as its durability says, with no
//! lock held.
//!
//! 1. Events enter the queue of their family in the commit section, so each queue is in commit
//!    order; the thread that made the commit runs them before its commit returns, and no other
//!    thread does. So a thread that holds a lock of the program's while it commits to a family
//!    without a hook is never made to run a hook that wants this lock.
//! 2. Before it calls a hook a thread waits for earlier commits to the same family, and for nothing
//!    else.
//! 3. A commit made inside a hook does not wait: its events run on the same thread, after the hook
//!    has returned and before the outer commit returns. So a thread runs its events in the order of
//!    its commits, and every wait is for an earlier commit: no cycle of waits is possible, also
//!    with several databases.
//! 4. A panic in a hook ends that call and nothing else; it is counted.

use perigee_base::bug::{self, Bug};
use perigee_base::{FamilyId, SeqNo};
use perigee_env::sync::{Condvar, Mutex, MutexGuard};
use perigee_file::log::BatchOp;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A user's code.
pub type CommitHook = Arc<dyn Fn(&HookEvent) + Send + Sync>;

/// The operations of one batch on one family, or the news that a transaction larger than memory was
/// committed.
#[derive(Debug)]
pub struct HookEvent {
    buffer: Arc<Vec<u8>>,
    base_seq: u64,
    ops: Vec<(BatchOp, SeqNo)>,
    loaded: Option<u64>,
}

impl HookEvent {
    /// Of a batch whose first operation has number `base`; each operation has its place in the
    /// batch beside it.
    pub fn new(buffer: Arc<Vec<u8>>, base: u64, ops: Vec<(BatchOp, SeqNo)>) -> HookEvent {
        HookEvent { buffer, base_seq: base, ops, loaded: None }
    }
    /// Of a transaction larger than memory, which has number `base` as a whole: so many entries
    /// came into the family.
    pub fn of_spilled_txn(base: SeqNo, entries: u64) -> HookEvent {
        HookEvent {
            buffer: Arc::default(),
            base_seq: base.0,
            ops: Vec::new(),
            loaded: Some(entries),
        }
    }
    /// The entries, if there are too many of them to be listed.
    pub fn entries_loaded(&self) -> Option<u64> {
        self.loaded
    }
    /// The number of the first operation.
    pub fn first_seq(&self) -> SeqNo {
        self.ops.first().map_or(SeqNo(self.base_seq), |(_, at)| at.plus(self.base_seq))
    }
    /// The number of the whole batch, the same for each of its families: that of its first
    /// operation.
    pub fn batch_seq(&self) -> SeqNo {
        SeqNo(self.base_seq)
    }
    /// Every operation with its number.
    pub fn operations(&self) -> impl Iterator<Item = (SeqNo, &BatchOp)> {
        self.ops.iter().map(|(op, at)| (at.plus(self.base_seq), op))
    }
    /// The bytes that the operations point into.
    pub fn buffer(&self) -> &[u8] {
        &self.buffer
    }
}

/// An event that the thread `owner` is to run.
#[derive(Clone)]
pub struct PendingHook {
    /// The thread that made the commit: [`this_thread_id`] there.
    pub thread_id: u64,
    /// The family.
    pub family: FamilyId,
    /// Its hook.
    pub hook: CommitHook,
    /// The event that is passed to the hook.
    pub event: Arc<HookEvent>,
}

/// The queue of a family: positions are given out in commit order.
#[derive(Debug, Default)]
struct HookQueue {
    /// The next position.
    next_position: u64,
    /// The position whose hook may run.
    running_position: u64,
    /// Later positions that were given up.
    released: BTreeSet<u64>,
}

#[derive(Default)]
struct HookState {
    /// Events that their threads have not taken yet, in commit order, each with its position.
    pending: BTreeMap<u64, VecDeque<(PendingHook, u64)>>,
    queues: BTreeMap<FamilyId, HookQueue>,
}

/// What the threads of a database share. The mutex is a leaf: no hook runs, and no other lock is
/// taken, inside.
#[derive(Default)]
struct SharedHookState {
    state: Mutex<HookState>,
    /// A position was served.
    position_released: Condvar,
    panics: AtomicU64,
}

/// The commit hooks of a database.
#[derive(Default)]
pub struct CommitHooks {
    shared: Arc<SharedHookState>,
    /// Threads with events that they have not taken, written under the mutex: a thread that has
    /// pushed, or waited for one that pushed for it, sees it.
    pending_threads: AtomicUsize,
}

impl std::fmt::Debug for CommitHooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hooks({} waiting)", self.pending_threads.load(Relaxed))
    }
}

/// An event that this thread has taken. Dropping it lets the next one in its family's queue run.
struct ClaimedHook {
    shared: Arc<SharedHookState>,
    pending: PendingHook,
    position: u64,
}

impl ClaimedHook {
    /// Waits for earlier commits to the family, then calls the hook.
    fn run_in_order(self) {
        let mut state = self.shared.state.lock();
        while state
            .queues
            .get(&self.pending.family)
            .is_some_and(|line| line.running_position != self.position)
        {
            state = self.shared.position_released.wait(state);
        }
        drop(state);
        if catch_unwind(AssertUnwindSafe(|| (self.pending.hook)(&self.pending.event))).is_err() {
            self.shared.panics.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for ClaimedHook {
    fn drop(&mut self) {
        let mut state: MutexGuard<'_, HookState> = self.shared.state.lock();
        let Some(line) = state.queues.get_mut(&self.pending.family) else { return };
        line.released.insert(self.position);
        while line.released.remove(&line.running_position) {
            line.running_position += 1;
        }
        if line.running_position == line.next_position {
            state.queues.remove(&self.pending.family);
        }
        self.shared.position_released.notify_all();
    }
}

thread_local! {
    /// This thread's number; 0: it has none yet.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    /// Events that this thread has taken and not run, while it runs hooks; of all databases, in the
    /// order of its commits.
    static AGENDA: RefCell<Option<VecDeque<ClaimedHook>>> = const { RefCell::new(None) };
}

/// A number of this thread that no other thread has, or has had.
pub fn this_thread_id() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    let number = |n: &Cell<u64>| {
        if n.get() == 0 {
            n.set(THREADS.fetch_add(1, Relaxed) + 1);
        }
        n.get()
    };
    NUMBER.try_with(number).unwrap_or(u64::MAX)
}

/// This thread runs hooks. Dropped when it has run all of its events, or when a wait for one was
/// unwound.
struct ThreadHookRunner;

impl ThreadHookRunner {
    /// Adds the events to those of this thread; `None` if it runs hooks already, or is ending.
    fn start(taken: Vec<ClaimedHook>) -> Option<ThreadHookRunner> {
        let begun = AGENDA.try_with(|agenda| {
            let mut agenda = agenda.borrow_mut();
            let begun = agenda.is_none();
            agenda.get_or_insert_default().extend(taken);
            begun
        });
        // Not `then_some`: an `ThreadHookRunner` that is dropped ends the one that runs.
        if begun.unwrap_or(false) { Some(ThreadHookRunner) } else { None }
    }
    fn next_hook(&self) -> Option<ClaimedHook> {
        AGENDA.try_with(|agenda| agenda.borrow_mut().as_mut()?.pop_front()).ok().flatten()
    }
}

impl Drop for ThreadHookRunner {
    fn drop(&mut self) {
        let rest = AGENDA.try_with(|agenda| agenda.borrow_mut().take());
        drop(rest);
    }
}

impl CommitHooks {
    /// Adds an event, in the commit section.
    pub fn enqueue(&self, due: PendingHook) {
        let mut state = self.shared.state.lock();
        let line = state.queues.entry(due.family).or_default();
        let position = line.next_position;
        line.next_position += 1;
        state.pending.entry(due.thread_id).or_default().push_back((due, position));
        self.pending_threads.store(state.pending.len(), Relaxed);
    }
    /// Runs the hooks of the commits that this thread has made; inside a hook, leaves that to the
    /// call that runs it. The caller holds no lock.
    pub fn run_pending(&self) {
        if self.pending_threads.load(Relaxed) == 0 {
            return;
        }
        let taken = self.claim_pending(this_thread_id());
        if taken.is_empty() {
            return;
        }
        if let Some(agenda) = ThreadHookRunner::start(taken) {
            while let Some(next) = agenda.next_hook() {
                next.run_in_order();
            }
        }
    }
    fn claim_pending(&self, owner: u64) -> Vec<ClaimedHook> {
        let mut state = self.shared.state.lock();
        let mine: Vec<(PendingHook, u64)> = if bug::is_active(Bug::HooksOnAnyThread) {
            std::mem::take(&mut state.pending).into_values().flatten().collect()
        } else {
            state.pending.remove(&owner).into_iter().flatten().collect()
        };
        self.pending_threads.store(state.pending.len(), Relaxed);
        let take = |(due, position)| ClaimedHook {
            shared: Arc::clone(&self.shared),
            pending: due,
            position,
        };
        mine.into_iter().map(take).collect()
    }
    /// How many calls panicked.
    pub fn panic_count(&self) -> u64 {
        self.shared.panics.load(Relaxed)
    }
}
