//! Commit hooks: user code that is called for every batch of a column family, on the thread that
//! committed it, in commit order, after the batch has been acknowledged with its durability mode,
//! with no lock held.
//!
//! 1. Events enter the queue of their column family in the commit section, so each queue is in
//!    commit order. The thread that made the commit runs them before its commit returns; no other
//!    thread does. So a thread that holds one of the application's locks while it commits to a
//!    column family without a hook never runs a hook that needs this lock.
//! 2. Before it calls a hook, a thread waits for earlier commits to the same column family, and for
//!    nothing else.
//! 3. A commit made inside a hook does not wait: its events run on the same thread, after the hook
//!    has returned and before the outer commit returns. So a thread runs its events in the order of
//!    its commits, and every wait is for an earlier commit: no cycle of waits is possible, even
//!    with several databases.
//! 4. A panic in a hook ends only that call; it is counted.

use crate::catalog::hook_event::{CommitHook, HookEvent};
use perigee_base::FamilyId;
use perigee_base::bug::{self, Bug};
use perigee_env::{Condvar, Mutex, MutexGuard};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A hook call that a thread has to make.
#[derive(Clone)]
pub struct PendingHook {
    /// The thread that made the commit: its [`this_thread_id`].
    pub thread_id: u64,
    /// The column family.
    pub family: FamilyId,
    /// Its hook.
    pub hook: CommitHook,
    /// The event that is passed to the hook.
    pub event: Arc<HookEvent>,
}

/// The queue of a column family: positions are assigned in commit order.
#[derive(Debug, Default)]
struct HookQueue {
    /// The position to assign next.
    next_position: u64,
    /// The position whose hook may run now.
    running_position: u64,
    /// Later positions that have been released already.
    released: BTreeSet<u64>,
}

#[derive(Default)]
struct HookState {
    /// Hook calls not yet claimed by their threads (by thread id), in commit order, each with its
    /// position.
    pending: BTreeMap<u64, VecDeque<(PendingHook, u64)>>,
    queues: BTreeMap<FamilyId, HookQueue>,
}

/// State shared by the threads of a database. The mutex is a leaf: no hook runs and no other lock
/// is taken while it is held.
#[derive(Default)]
struct SharedHookState {
    state: Mutex<HookState>,
    /// Notified when a position is released.
    position_released: Condvar,
    panics: AtomicU64,
}

/// The commit hooks of a database.
#[derive(Default)]
pub struct CommitHooks {
    shared: Arc<SharedHookState>,
    /// Number of threads with unclaimed hook calls; written under the mutex. A thread that has
    /// enqueued one, or has waited for the thread that enqueued it, sees the update.
    pending_threads: AtomicUsize,
}

impl std::fmt::Debug for CommitHooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CommitHooks({} threads pending)", self.pending_threads.load(Relaxed))
    }
}

/// A hook call that this thread has claimed. Dropping it lets the next one in the queue of its
/// column family run.
struct ClaimedHook {
    shared: Arc<SharedHookState>,
    pending: PendingHook,
    position: u64,
}

impl ClaimedHook {
    /// Waits for earlier commits to the column family, then calls the hook.
    fn run_in_order(self) {
        let mut state = self.shared.state.lock();
        while state
            .queues
            .get(&self.pending.family)
            .is_some_and(|queue| queue.running_position != self.position)
        {
            state = self.shared.position_released.wait(state);
        }
        check_slow!(
            state.queues.contains_key(&self.pending.family),
            "the queue of a column family exists until its last hook call was made",
            self.pending.family,
            self.position
        );
        drop(state);
        if catch_unwind(AssertUnwindSafe(|| (self.pending.hook)(&self.pending.event))).is_err() {
            self.shared.panics.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for ClaimedHook {
    fn drop(&mut self) {
        let mut state: MutexGuard<'_, HookState> = self.shared.state.lock();
        let Some(queue) = state.queues.get_mut(&self.pending.family) else { return };
        queue.released.insert(self.position);
        while queue.released.remove(&queue.running_position) {
            queue.running_position += 1;
        }
        if queue.running_position == queue.next_position {
            state.queues.remove(&self.pending.family);
        }
        self.shared.position_released.notify_all();
    }
}

thread_local! {
    /// Id of this thread; 0 if it has none yet.
    static THREAD_ID: Cell<u64> = const { Cell::new(0) };
    /// Hook calls that this thread has claimed but not made; `Some` while it runs hooks. Contains
    /// those of all databases, in the order of its commits.
    static CLAIMED: RefCell<Option<VecDeque<ClaimedHook>>> = const { RefCell::new(None) };
}

/// Returns the id of this thread, which is never reused.
pub fn this_thread_id() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    let assign = |n: &Cell<u64>| {
        if n.get() == 0 {
            n.set(THREADS.fetch_add(1, Relaxed) + 1);
        }
        n.get()
    };
    THREAD_ID.try_with(assign).unwrap_or(u64::MAX)
}

/// Marks that this thread runs hooks. Dropped when all of its hook calls are done, or when a wait
/// for one was unwound.
struct ThreadHookRunner;

impl ThreadHookRunner {
    /// Adds the hook calls to those of this thread; returns `None` if it runs hooks already, or is
    /// exiting.
    fn start(taken: Vec<ClaimedHook>) -> Option<ThreadHookRunner> {
        let started = CLAIMED.try_with(|claimed| {
            let mut claimed = claimed.borrow_mut();
            let started = claimed.is_none();
            claimed.get_or_insert_default().extend(taken);
            started
        });
        // Not `then_some`: dropping an unused `ThreadHookRunner` would end the one that is active.
        if started.unwrap_or(false) { Some(ThreadHookRunner) } else { None }
    }
    fn next_hook(&self) -> Option<ClaimedHook> {
        CLAIMED.try_with(|claimed| claimed.borrow_mut().as_mut()?.pop_front()).ok().flatten()
    }
}

impl Drop for ThreadHookRunner {
    fn drop(&mut self) {
        let rest = CLAIMED.try_with(|claimed| claimed.borrow_mut().take());
        drop(rest);
    }
}

impl CommitHooks {
    /// Adds a hook call. Called in the commit section.
    pub fn enqueue(&self, due: PendingHook) {
        let mut state = self.shared.state.lock();
        let queue = state.queues.entry(due.family).or_default();
        let position = queue.next_position;
        check_slow!(
            queue.running_position <= position
                && queue.released.first().is_none_or(|at| *at > queue.running_position),
            "hook calls are released in the order of the commits",
            queue
        );
        queue.next_position += 1;
        state.pending.entry(due.thread_id).or_default().push_back((due, position));
        self.pending_threads.store(state.pending.len(), Relaxed);
    }
    /// Runs the hooks of the commits that this thread has made. Inside a hook it does nothing: the
    /// outer call runs them. The caller must not hold a lock.
    pub fn run_pending(&self) {
        if self.pending_threads.load(Relaxed) == 0 {
            return;
        }
        let taken = self.claim_pending(this_thread_id());
        if taken.is_empty() {
            return;
        }
        if let Some(claimed) = ThreadHookRunner::start(taken) {
            while let Some(next) = claimed.next_hook() {
                next.run_in_order();
            }
        }
    }
    fn claim_pending(&self, thread: u64) -> Vec<ClaimedHook> {
        let mut state = self.shared.state.lock();
        let mine: Vec<(PendingHook, u64)> = if bug::is_active(Bug::HooksOnAnyThread) {
            std::mem::take(&mut state.pending).into_values().flatten().collect()
        } else {
            state.pending.remove(&thread).into_iter().flatten().collect()
        };
        self.pending_threads.store(state.pending.len(), Relaxed);
        let take = |(due, position)| ClaimedHook {
            shared: Arc::clone(&self.shared),
            pending: due,
            position,
        };
        mine.into_iter().map(take).collect()
    }
    /// Returns the number of hook calls that panicked.
    pub fn panic_count(&self) -> u64 {
        self.shared.panics.load(Relaxed)
    }
}
