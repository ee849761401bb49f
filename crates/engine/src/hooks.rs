//! Commit hooks: users' code that hears of every batch, in commit order, after it was acknowledged as its durability
//! says, with no lock held.
//!
//! 1. Events enter the queue in the commit section, so the queue is in commit order.
//! 2. One thread at a time calls hooks. Whoever comes while another one does leaves its event to that one: a hook that writes
//!    finds itself calling, and its batch is told when it has returned.
//! 3. A panic in a hook ends that call and nothing else; it is counted.

use perigee_base::SeqNo;
use perigee_file::log::Op;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

#[derive(Default)]
struct State {
    queue: VecDeque<(Hook, Event)>,
    calling: bool,
}

/// What hooks have not heard yet. The mutex guards the queue; no hook runs inside.
#[derive(Default)]
pub struct Hooks {
    state: Mutex<State>,
    /// Events in the queue, written under the mutex: who has pushed, or waited for one who pushed, sees it.
    waiting: AtomicUsize,
    panics: AtomicU64,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hooks({} waiting)", self.state().queue.len())
    }
}

impl Hooks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Adds an event, in the commit section.
    pub fn push(&self, hook: Hook, event: Event) {
        let mut state = self.state();
        state.queue.push_back((hook, event));
        self.waiting.store(state.queue.len(), Relaxed);
    }
    /// Calls hooks until there is nothing to tell, unless another thread (or a hook further up this one) does.
    pub fn call(&self) {
        if self.waiting.load(Relaxed) == 0 {
            return;
        }
        loop {
            let (hook, event) = {
                let mut state = self.state();
                if state.calling {
                    return;
                }
                let Some(next) = state.queue.pop_front() else { return };
                self.waiting.store(state.queue.len(), Relaxed);
                state.calling = true;
                next
            };
            if catch_unwind(AssertUnwindSafe(|| hook(&event))).is_err() {
                self.panics.fetch_add(1, Relaxed);
            }
            self.state().calling = false;
        }
    }
    /// How many calls panicked.
    pub fn panics(&self) -> u64 {
        self.panics.load(Relaxed)
    }
}
