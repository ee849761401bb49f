//! Group commit: writers that need a sync queue here; one of them leads for all that wait, and the
//! others sleep. Writers that do not need a sync bypass this module.
//!
//! While one group is being synced, the next one gathers. A writer without competitors leads at
//! once, without a queue entry and without an allocation.
//!
//! Writers whose commit has just finished come back shortly after the next leader has started and
//! would have to wait for a whole sync: with two writers, every sync would serve only one. So a
//! leader waits until as many writers have arrived as were active at the end of the last group
//! (committed plus queued), but no longer than a fraction of the duration of a group. After an
//! unsuccessful wait fewer writers are expected, so a writer that remains alone waits only once.

use super::request::CommitRequest;
use crate::limits::GROUP_WAIT_US_MAX;
use perigee_base::{Error, ErrorKind, Result, SeqNo, limits};
use perigee_env::{Clock, Condvar, Mutex, MutexGuard as EnvMutexGuard};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};

/// A writer in the queue. Each waits on a lock of its own, so that woken writers do not contend for
/// the lock of the queue.
#[derive(Debug)]
struct QueuedWriter {
    request: StdMutex<Option<CommitRequest>>,
    bytes: usize,
    turn: Mutex<Turn>,
    woken: Condvar,
}

/// What a queued writer waits for.
#[derive(Debug)]
enum Turn {
    /// Its group is not yet committed.
    Waiting,
    /// It leads the next group.
    Lead,
    /// Its batch is committed or rejected.
    Done(Result<SeqNo>),
}

impl QueuedWriter {
    /// Waits for the end of [`Turn::Waiting`] and returns the new state.
    fn wait(&self) -> Turn {
        let mut turn = self.turn.lock();
        while matches!(*turn, Turn::Waiting) {
            turn = self.woken.wait(turn);
        }
        std::mem::replace(&mut *turn, Turn::Waiting)
    }
    fn set_turn(&self, turn: Turn) {
        *self.turn.lock() = turn;
    }
    /// Sets the state and wakes the writer, which finds the lock free.
    fn wake(&self, turn: Turn) {
        self.set_turn(turn);
        self.woken.notify_one();
    }
}

fn lock_std<T>(mutex: &StdMutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Invariant: writers are queued only while there is a leader, and the first of them leads next.
#[derive(Debug, Default)]
struct CommitQueueState {
    queue: VecDeque<Arc<QueuedWriter>>,
    has_leader: bool,
    /// Writers that were active when the last group ended.
    expected_writers: usize,
    /// True while the leader waits for more writers.
    is_gathering: bool,
    /// Moving average of the duration of a group, in microseconds.
    group_us: u64,
}

/// The queue of writers that need a sync.
#[derive(Debug, Default)]
pub struct CommitQueue {
    state: Mutex<CommitQueueState>,
    /// Notified when the expected number of writers has arrived.
    writers_arrived: Condvar,
}

impl CommitQueue {
    /// Creates an empty queue.
    pub fn new() -> CommitQueue {
        CommitQueue::default()
    }

    /// Waits until `request` is committed; leads a group if no other thread does.
    pub fn submit(
        &self,
        clock: &dyn Clock,
        mut request: CommitRequest,
        lead: impl Fn(&mut [CommitRequest]) -> Result<()>,
    ) -> Result<SeqNo> {
        let mut state = self.state.lock();
        if !state.has_leader && state.expected_writers < 2 {
            state.has_leader = true;
            drop(state);
            let _led = CommitGroup::new(self, clock);
            lead(std::slice::from_mut(&mut request))?;
            return request.into_result();
        }
        let writer = Arc::new(QueuedWriter {
            bytes: request.log_bytes(),
            request: StdMutex::new(Some(request)),
            turn: Mutex::new(Turn::Waiting),
            woken: Condvar::new(),
        });
        check_slow!(
            state.has_leader || state.queue.is_empty(),
            "writers are queued only while there is a leader",
            state
        );
        let leads = !std::mem::replace(&mut state.has_leader, true);
        state.queue.push_back(Arc::clone(&writer));
        let is_last = state.is_gathering && state.queue.len() >= state.expected_writers;
        drop(state);
        if is_last {
            self.writers_arrived.notify_one();
        }
        if !leads && let Turn::Done(outcome) = writer.wait() {
            return outcome;
        }
        self.lead_group(clock, &lead);
        match writer.wait() {
            Turn::Done(outcome) => outcome,
            turn => Err(Error::internal(format!("a leader is in its group, not {turn:?}"))),
        }
    }

    /// Commits the writers at the front of the queue, of which the calling thread is the first.
    fn lead_group(&self, clock: &dyn Clock, lead: &impl Fn(&mut [CommitRequest]) -> Result<()>) {
        let mut led = CommitGroup::new(self, clock);
        let mut state = self.wait_for_writers(clock, self.state.lock());
        led.started_us = clock.monotonic_us();
        led.members = take_group(&mut state.queue);
        drop(state);
        let mut group: Vec<CommitRequest> =
            led.members.iter().filter_map(|m| lock_std(&m.request).take()).collect();
        check_slow!(
            group.len() == led.members.len() && !group.is_empty(),
            "each member of a group has a request",
            group.len(),
            led.members.len()
        );
        led.set_results(lead(&mut group), group);
    }

    /// Waits, as the leader, for the expected writers.
    fn wait_for_writers<'a>(
        &'a self,
        clock: &dyn Clock,
        mut state: EnvMutexGuard<'a, CommitQueueState>,
    ) -> EnvMutexGuard<'a, CommitQueueState> {
        let patience = (state.group_us / 2).min(GROUP_WAIT_US_MAX);
        check_slow!(
            state.has_leader && !state.is_gathering,
            "one leader at a time waits for writers",
            state
        );
        state.is_gathering = true;
        let is_short = |state: &CommitQueueState| state.queue.len() < state.expected_writers;
        state = self.writers_arrived.wait_timeout_while_us(state, clock, patience, is_short);
        state.is_gathering = false;
        state
    }
}

/// Takes the oldest writers from the queue, up to the maximum size of a group.
fn take_group(queue: &mut VecDeque<Arc<QueuedWriter>>) -> Vec<Arc<QueuedWriter>> {
    let (mut members, mut bytes) = (Vec::new(), 0);
    while let Some(next) = queue.front() {
        if !members.is_empty() && bytes + next.bytes > limits::COMMIT_GROUP_BYTES_MAX {
            break;
        }
        bytes += next.bytes;
        members.extend(queue.pop_front());
    }
    check_slow!(
        bytes <= limits::COMMIT_GROUP_BYTES_MAX || members.len() == 1,
        "only a single batch is larger than a group",
        bytes,
        members.len()
    );
    members
}

/// A group with its leader. Dropping it sends a result to every member, even if the leader
/// panicked, and hands the lead to the next writer.
struct CommitGroup<'a> {
    queue: &'a CommitQueue,
    clock: &'a dyn Clock,
    started_us: u64,
    /// The members; empty if a writer leads only for itself.
    members: Vec<Arc<QueuedWriter>>,
    /// Their results, in the same order; empty if the leader panicked.
    results: Vec<Result<SeqNo>>,
}

impl<'a> CommitGroup<'a> {
    fn new(queue: &'a CommitQueue, clock: &'a dyn Clock) -> CommitGroup<'a> {
        let (members, results) = (Vec::new(), Vec::new());
        CommitGroup { queue, clock, started_us: clock.monotonic_us(), members, results }
    }
    /// Notes the result of each member: its sequence number, the reason for its rejection, or the
    /// failure of the whole group.
    fn set_results(&mut self, led: Result<()>, group: Vec<CommitRequest>) {
        check_slow!(
            self.members.len() == group.len(),
            "each member of a group gets the result of its own request",
            self.members.len(),
            group.len()
        );
        let result = |request: CommitRequest| match &led {
            Err(e) if request.rejected.is_none() => Err(e.clone()),
            _ => request.into_result(),
        };
        self.results = group.into_iter().map(result).collect();
    }
}

impl Drop for CommitGroup<'_> {
    fn drop(&mut self) {
        let took = self.clock.monotonic_us().saturating_sub(self.started_us);
        let mut state = self.queue.state.lock();
        state.is_gathering = false;
        state.group_us = (state.group_us * 3 + took) / 4;
        state.expected_writers = self.members.len().max(1) + state.queue.len();
        let next = state.queue.front().cloned();
        state.has_leader = next.is_some();
        drop(state);
        if let Some(next) = next {
            next.wake(Turn::Lead);
        }
        let died = || {
            Err(Error::new(ErrorKind::OutcomeUnknown, "the leader of the commit group panicked"))
        };
        let mut results = std::mem::take(&mut self.results).into_iter();
        let mut result = || Turn::Done(results.next().unwrap_or_else(died));
        let Some((leader, others)) = self.members.split_first() else { return };
        leader.set_turn(result()); // of this thread, which is awake
        others.iter().for_each(|member| member.wake(result()));
    }
}

#[cfg(test)]
mod tests;
