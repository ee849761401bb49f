//! Group commit: writers that want a sync queue, one of them leads for all that wait, the others
//! sleep. (A writer that wants none has nothing to share, and does not come here.)
//!
//! While a group is being synced the next one gathers. A writer that has no company leads at once,
//! with neither a request nor an allocation.
//!
//! Those who were just answered come back a moment after the next leader has begun, and would wait
//! for a whole sync: with two writers every sync would serve one. So a leader waits until as many
//! have come as were about at the end of the last group (those answered and those queued), but for
//! no longer than a part of what a group takes. A wait in vain makes the company smaller, so a
//! writer that is left alone waits once.

use super::request::CommitRequest;
use perigee_base::{Error, ErrorKind, Result, SeqNo, limits};
use perigee_env::clock::Clock;
use perigee_env::sync::{Condvar, Mutex, MutexGuard as Held};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex as Short, MutexGuard, PoisonError};

/// A leader waits for its company no longer than this.
const GROUP_WAIT_US_MAX: u64 = 2_000;

/// A writer in the queue. `work` is taken by the leader, `outcome` is set by it.
#[derive(Debug)]
struct QueuedWriter {
    request: Short<Option<CommitRequest>>,
    outcome: Short<Option<Result<SeqNo>>>,
    bytes: usize,
    woken: Condvar,
}

fn lock_short<T>(short: &Short<T>) -> MutexGuard<'_, T> {
    short.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct CommitQueueState {
    queue: VecDeque<Arc<QueuedWriter>>,
    has_leader: bool,
    /// Writers that were about when the last group ended.
    expected_writers: usize,
    /// The leader waits for them.
    is_gathering: bool,
    /// How long a group takes, about.
    group_us: u64,
}

/// The writers' queue.
#[derive(Debug, Default)]
pub struct CommitQueue {
    state: Mutex<CommitQueueState>,
    /// The company is complete.
    writers_arrived: Condvar,
}

impl CommitQueue {
    /// Empty.
    pub fn new() -> CommitQueue {
        CommitQueue::default()
    }

    /// Waits until `mine` is committed, leading a group when it is this thread's turn.
    pub fn submit(
        &self,
        clock: &dyn Clock,
        mut mine: CommitRequest,
        lead: impl Fn(&mut [CommitRequest]) -> Result<()>,
    ) -> Result<SeqNo> {
        let mut waiting = self.state.lock();
        if !waiting.has_leader && waiting.queue.is_empty() && waiting.expected_writers < 2 {
            waiting.has_leader = true;
            let _led = CommitGroup::new(self, clock, Vec::new());
            drop(waiting);
            lead(std::slice::from_mut(&mut mine))?;
            return mine.into_result();
        }
        let request = Arc::new(QueuedWriter {
            bytes: mine.log_bytes(),
            request: Short::new(Some(mine)),
            outcome: Short::new(None),
            woken: Condvar::new(),
        });
        waiting.queue.push_back(Arc::clone(&request));
        if waiting.is_gathering && waiting.queue.len() >= waiting.expected_writers {
            self.writers_arrived.notify_one();
        }
        loop {
            if let Some(outcome) = lock_short(&request.outcome).take() {
                return outcome;
            }
            if waiting.has_leader {
                waiting = request.woken.wait(waiting);
                continue;
            }
            waiting.has_leader = true;
            let mut led = CommitGroup::new(self, clock, Vec::new());
            waiting = self.wait_for_writers(clock, waiting);
            led.started_us = clock.monotonic_us();
            led.members = take_group(&mut waiting.queue);
            drop(waiting);
            let mut group: Vec<CommitRequest> =
                led.members.iter().filter_map(|m| lock_short(&m.request).take()).collect();
            led.deliver_results(lead(&mut group), group);
            drop(led);
            waiting = self.state.lock();
        }
    }

    /// Waits, as the leader, for those that are about to come.
    fn wait_for_writers<'a>(
        &'a self,
        clock: &dyn Clock,
        mut waiting: Held<'a, CommitQueueState>,
    ) -> Held<'a, CommitQueueState> {
        let patience = (waiting.group_us / 2).min(GROUP_WAIT_US_MAX);
        let until = clock.monotonic_us() + patience;
        waiting.is_gathering = true;
        while waiting.queue.len() < waiting.expected_writers {
            let now = clock.monotonic_us();
            if now >= until {
                break;
            }
            waiting = self.writers_arrived.wait_timeout_us(waiting, until - now).0;
        }
        waiting.is_gathering = false;
        waiting
    }
}

/// The oldest writers, up to the group's size.
fn take_group(queue: &mut VecDeque<Arc<QueuedWriter>>) -> Vec<Arc<QueuedWriter>> {
    let (mut members, mut bytes) = (Vec::new(), 0);
    while let Some(next) = queue.front() {
        if !members.is_empty() && bytes + next.bytes > limits::COMMIT_GROUP_BYTES_MAX {
            break;
        }
        bytes += next.bytes;
        members.extend(queue.pop_front());
    }
    members
}

/// A group with its leader. Dropping it answers everybody, also when the leader panicked.
struct CommitGroup<'a> {
    queue: &'a CommitQueue,
    clock: &'a dyn Clock,
    started_us: u64,
    /// The requests that are led; none when a writer leads for itself alone.
    members: Vec<Arc<QueuedWriter>>,
    /// Why nobody's batch is there, if it went wrong.
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
    /// Everybody hears the number of his batch, and those that were left out why.
    fn deliver_results(&mut self, led: Result<()>, group: Vec<CommitRequest>) {
        self.error = led.err();
        for (member, work) in self.members.iter().zip(group) {
            if self.error.is_none() || work.rejected.is_some() {
                *lock_short(&member.outcome) = Some(work.into_result());
            }
        }
    }
}

impl Drop for CommitGroup<'_> {
    fn drop(&mut self) {
        let died =
            || Error::new(ErrorKind::OutcomeUnknown, "the thread that led the commit panicked");
        let failed = self.error.take().unwrap_or_else(died);
        let took = self.clock.monotonic_us().saturating_sub(self.started_us);
        let mut waiting = self.queue.state.lock();
        waiting.has_leader = false;
        waiting.is_gathering = false;
        waiting.group_us = (waiting.group_us * 3 + took) / 4;
        waiting.expected_writers = self.members.len().max(1) + waiting.queue.len();
        for member in &self.members {
            lock_short(&member.outcome).get_or_insert_with(|| Err(failed.clone()));
            member.woken.notify_one();
        }
        if let Some(next) = waiting.queue.front() {
            next.woken.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
