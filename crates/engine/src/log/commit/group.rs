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

/// A writer in the queue. The leader takes `request` and sets `outcome`.
#[derive(Debug)]
struct QueuedWriter {
    request: StdMutex<Option<CommitRequest>>,
    outcome: StdMutex<Option<Result<SeqNo>>>,
    bytes: usize,
    woken: Condvar,
}

fn lock_std<T>(mutex: &StdMutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
        if !state.has_leader && state.queue.is_empty() && state.expected_writers < 2 {
            state.has_leader = true;
            let _led = CommitGroup::new(self, clock, Vec::new());
            drop(state);
            lead(std::slice::from_mut(&mut request))?;
            return request.into_result();
        }
        let writer = Arc::new(QueuedWriter {
            bytes: request.log_bytes(),
            request: StdMutex::new(Some(request)),
            outcome: StdMutex::new(None),
            woken: Condvar::new(),
        });
        state.queue.push_back(Arc::clone(&writer));
        if state.is_gathering && state.queue.len() >= state.expected_writers {
            self.writers_arrived.notify_one();
        }
        loop {
            if let Some(outcome) = lock_std(&writer.outcome).take() {
                return outcome;
            }
            if state.has_leader {
                state = writer.woken.wait(state);
                continue;
            }
            state.has_leader = true;
            let mut led = CommitGroup::new(self, clock, Vec::new());
            state = self.wait_for_writers(clock, state);
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
            led.deliver_results(lead(&mut group), group);
            drop(led);
            state = self.state.lock();
        }
    }

    /// Waits, as the leader, for the expected writers.
    fn wait_for_writers<'a>(
        &'a self,
        clock: &dyn Clock,
        mut state: EnvMutexGuard<'a, CommitQueueState>,
    ) -> EnvMutexGuard<'a, CommitQueueState> {
        let patience = (state.group_us / 2).min(GROUP_WAIT_US_MAX);
        let until = clock.monotonic_us() + patience;
        check_slow!(
            state.has_leader && !state.is_gathering,
            "one leader at a time waits for writers",
            state
        );
        state.is_gathering = true;
        while state.queue.len() < state.expected_writers {
            let now = clock.monotonic_us();
            if now >= until {
                break;
            }
            state = self.writers_arrived.wait_timeout_us(state, until - now).0;
        }
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
/// panicked.
struct CommitGroup<'a> {
    queue: &'a CommitQueue,
    clock: &'a dyn Clock,
    started_us: u64,
    /// The members; empty if a writer leads only for itself.
    members: Vec<Arc<QueuedWriter>>,
    /// The failure of the whole group, if it failed.
    error: Option<Error>,
}

impl<'a> CommitGroup<'a> {
    fn new(
        queue: &'a CommitQueue,
        clock: &'a dyn Clock,
        members: Vec<Arc<QueuedWriter>>,
    ) -> CommitGroup<'a> {
        CommitGroup { queue, clock, started_us: clock.monotonic_us(), members, error: None }
    }
    /// Delivers its sequence number to each member of the group, or the reason for its rejection.
    fn deliver_results(&mut self, led: Result<()>, group: Vec<CommitRequest>) {
        check_slow!(
            self.members.len() == group.len(),
            "each member of a group gets the result of its own request",
            self.members.len(),
            group.len()
        );
        self.error = led.err();
        for (member, request) in self.members.iter().zip(group) {
            if self.error.is_none() || request.rejected.is_some() {
                *lock_std(&member.outcome) = Some(request.into_result());
            }
        }
    }
}

impl Drop for CommitGroup<'_> {
    fn drop(&mut self) {
        let died =
            || Error::new(ErrorKind::OutcomeUnknown, "the leader of the commit group panicked");
        let failed = self.error.take().unwrap_or_else(died);
        let took = self.clock.monotonic_us().saturating_sub(self.started_us);
        let mut state = self.queue.state.lock();
        state.has_leader = false;
        state.is_gathering = false;
        state.group_us = (state.group_us * 3 + took) / 4;
        state.expected_writers = self.members.len().max(1) + state.queue.len();
        for member in &self.members {
            lock_std(&member.outcome).get_or_insert_with(|| Err(failed.clone()));
            member.woken.notify_one();
        }
        if let Some(next) = state.queue.front() {
            next.woken.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
