//! Commit hooks: users' code that is called for every batch of a column family, on the thread that committed it, in commit order,
//! after the batch was acknowledged as its durability says, with no lock held.
//!
//! 1. Events enter the queue of their family in the commit section, so each queue is in commit order; the thread that made the
//!    commit runs them before its commit returns, and no other thread does. So a thread that holds a lock of the program's while
//!    it commits to a family without a hook is never made to run a hook that wants this lock.
//! 2. Before it calls a hook a thread waits for earlier commits to the same family, and for nothing else.
//! 3. A commit made inside a hook does not wait: its events run on the same thread, after the hook has returned and before the
//!    outer commit returns. So a thread runs its events in the order of its commits, and every wait is for an earlier commit:
//!    no cycle of waits is possible, also with several databases.
//! 4. A panic in a hook ends that call and nothing else; it is counted.

use perigee_base::bug::{self, Bug};
use perigee_base::{FamilyId, SeqNo};
use perigee_env::sync::{Condvar, Mutex, MutexGuard};
use perigee_file::log::Op;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A user's code.
pub type Hook = Arc<dyn Fn(&Event) + Send + Sync>;

/// The operations of one batch on one family, or the news that a transaction larger than memory was committed.
#[derive(Debug)]
pub struct Event {
    buffer: Arc<Vec<u8>>,
    base: u64,
    ops: Vec<(Op, SeqNo)>,
    loaded: Option<u64>,
}

impl Event {
    /// Of a batch whose first operation has number `base`; each operation has its place in the batch beside it.
    pub fn new(buffer: Arc<Vec<u8>>, base: u64, ops: Vec<(Op, SeqNo)>) -> Event {
        Event { buffer, base, ops, loaded: None }
    }
    /// Of a transaction larger than memory, which has number `base` as a whole: so many entries came into the family.
    pub fn loaded(base: SeqNo, entries: u64) -> Event {
        Event { buffer: Arc::default(), base: base.0, ops: Vec::new(), loaded: Some(entries) }
    }
    /// The entries, if there are too many of them to be listed.
    pub fn entries_loaded(&self) -> Option<u64> {
        self.loaded
    }
    /// The number of the first operation.
    pub fn sequence(&self) -> SeqNo {
        self.ops.first().map_or(SeqNo(self.base), |(_, at)| at.plus(self.base))
    }
    /// The number of the whole batch, the same for each of its families: that of its first operation.
    pub fn batch(&self) -> SeqNo {
        SeqNo(self.base)
    }
    /// Every operation with its number.
    pub fn operations(&self) -> impl Iterator<Item = (SeqNo, &Op)> {
        self.ops.iter().map(|(op, at)| (at.plus(self.base), op))
    }
    /// The bytes that the operations point into.
    pub fn buffer(&self) -> &[u8] {
        &self.buffer
    }
}

/// An event that the thread `owner` is to run.
#[derive(Clone)]
pub struct Due {
    /// The thread that made the commit: [`this_thread`] there.
    pub owner: u64,
    /// The family.
    pub family: FamilyId,
    /// Its hook.
    pub hook: Hook,
    /// The event that is passed to the hook.
    pub event: Arc<Event>,
}

/// The queue of a family: positions are given out in commit order.
#[derive(Debug, Default)]
struct Line {
    /// The next position.
    issued: u64,
    /// The position whose hook may run.
    serving: u64,
    /// Later positions that were given up.
    given_up: BTreeSet<u64>,
}

#[derive(Default)]
struct State {
    /// Events that their threads have not taken yet, in commit order, each with its position.
    waiting: BTreeMap<u64, VecDeque<(Due, u64)>>,
    lines: BTreeMap<FamilyId, Line>,
}

/// What the threads of a database share. The mutex is a leaf: no hook runs, and no other lock is taken, inside.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// A position was served.
    moved: Condvar,
    panics: AtomicU64,
}

/// The commit hooks of a database.
#[derive(Default)]
pub struct Hooks {
    shared: Arc<Shared>,
    /// Threads with events that they have not taken, written under the mutex: a thread that has pushed, or waited for one that
    /// pushed for it, sees it.
    waiting: AtomicUsize,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hooks({} waiting)", self.waiting.load(Relaxed))
    }
}

/// An event that this thread has taken. Dropping it lets the next one in its family's queue run.
struct Taken {
    shared: Arc<Shared>,
    due: Due,
    position: u64,
}

impl Taken {
    /// Waits for earlier commits to the family, then calls the hook.
    fn run(self) {
        let mut state = self.shared.state.lock();
        while state.lines.get(&self.due.family).is_some_and(|line| line.serving != self.position) {
            state = self.shared.moved.wait(state);
        }
        drop(state);
        if catch_unwind(AssertUnwindSafe(|| (self.due.hook)(&self.due.event))).is_err() {
            self.shared.panics.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut state: MutexGuard<'_, State> = self.shared.state.lock();
        let Some(line) = state.lines.get_mut(&self.due.family) else { return };
        line.given_up.insert(self.position);
        while line.given_up.remove(&line.serving) {
            line.serving += 1;
        }
        if line.serving == line.issued {
            state.lines.remove(&self.due.family);
        }
        self.shared.moved.notify_all();
    }
}

thread_local! {
    /// This thread's number; 0: it has none yet.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    /// Events that this thread has taken and not run, while it runs hooks; of all databases, in the order of its commits.
    static AGENDA: RefCell<Option<VecDeque<Taken>>> = const { RefCell::new(None) };
}

/// A number of this thread that no other thread has, or has had.
pub fn this_thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    let number = |n: &Cell<u64>| {
        if n.get() == 0 {
            n.set(THREADS.fetch_add(1, Relaxed) + 1);
        }
        n.get()
    };
    NUMBER.try_with(number).unwrap_or(u64::MAX)
}

/// This thread runs hooks. Dropped when it has run all of its events, or when a wait for one was unwound.
struct Agenda;

impl Agenda {
    /// Adds the events to those of this thread; `None` if it runs hooks already, or is ending.
    fn begin(taken: Vec<Taken>) -> Option<Agenda> {
        let begun = AGENDA.try_with(|agenda| {
            let mut agenda = agenda.borrow_mut();
            let begun = agenda.is_none();
            agenda.get_or_insert_default().extend(taken);
            begun
        });
        // Not `then_some`: an `Agenda` that is dropped ends the one that runs.
        if begun.unwrap_or(false) { Some(Agenda) } else { None }
    }
    fn next(&self) -> Option<Taken> {
        AGENDA.try_with(|agenda| agenda.borrow_mut().as_mut()?.pop_front()).ok().flatten()
    }
}

impl Drop for Agenda {
    fn drop(&mut self) {
        let rest = AGENDA.try_with(|agenda| agenda.borrow_mut().take());
        drop(rest);
    }
}

impl Hooks {
    /// Adds an event, in the commit section.
    pub fn push(&self, due: Due) {
        let mut state = self.shared.state.lock();
        let line = state.lines.entry(due.family).or_default();
        let position = line.issued;
        line.issued += 1;
        state.waiting.entry(due.owner).or_default().push_back((due, position));
        self.waiting.store(state.waiting.len(), Relaxed);
    }
    /// Runs the hooks of the commits that this thread has made; inside a hook, leaves that to the call that runs it. The caller
    /// holds no lock.
    pub fn call(&self) {
        if self.waiting.load(Relaxed) == 0 {
            return;
        }
        let taken = self.take(this_thread());
        if taken.is_empty() {
            return;
        }
        if let Some(agenda) = Agenda::begin(taken) {
            while let Some(next) = agenda.next() {
                next.run();
            }
        }
    }
    fn take(&self, owner: u64) -> Vec<Taken> {
        let mut state = self.shared.state.lock();
        let mine: Vec<(Due, u64)> = if bug::on(Bug::HooksOnAnyThread) {
            std::mem::take(&mut state.waiting).into_values().flatten().collect()
        } else {
            state.waiting.remove(&owner).into_iter().flatten().collect()
        };
        self.waiting.store(state.waiting.len(), Relaxed);
        let take = |(due, position)| Taken { shared: Arc::clone(&self.shared), due, position };
        mine.into_iter().map(take).collect()
    }
    /// How many calls panicked.
    pub fn panics(&self) -> u64 {
        self.shared.panics.load(Relaxed)
    }
}
