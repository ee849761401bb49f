//! Group commit: writers that want a sync queue, one of them leads for all that wait, the others sleep. (A writer that wants
//! none has nothing to share, and does not come here.)
//!
//! While a group is being synced the next one gathers. A writer that has no company leads at once, with neither a request
//! nor an allocation.
//!
//! Those who were just answered come back a moment after the next leader has begun, and would wait for a whole sync: with two
//! writers every sync would serve one. So a leader waits until as many have come as were about at the end of the last group
//! (those answered and those queued), but for no longer than a part of what a group takes. A wait in vain makes the company
//! smaller, so a writer that is left alone waits once.

use super::work::Work;
use perigee_base::{Error, ErrorKind, Result, SeqNo, limits};
use perigee_env::clock::Clock;
use perigee_env::sync::{Condvar, Mutex, MutexGuard as Held};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex as Short, MutexGuard, PoisonError};

/// A leader waits for its company no longer than this.
const COMPANY_US_MAX: u64 = 2_000;

/// A writer in the queue. `work` is taken by the leader, `outcome` is set by it.
#[derive(Debug)]
struct Request {
    work: Short<Option<Work>>,
    outcome: Short<Option<Result<SeqNo>>>,
    bytes: usize,
    turn: Condvar,
}

fn held<T>(short: &Short<T>) -> MutexGuard<'_, T> {
    short.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<Arc<Request>>,
    leading: bool,
    /// Writers that were about when the last group ended.
    company: usize,
    /// The leader waits for them.
    gathering: bool,
    /// How long a group takes, about.
    took_us: u64,
}

/// The writers' queue.
#[derive(Debug, Default)]
pub struct Queue {
    waiting: Mutex<Waiting>,
    /// The company is complete.
    complete: Condvar,
}

impl Queue {
    /// Empty.
    pub fn new() -> Queue {
        Queue::default()
    }

    /// Waits until `mine` is committed, leading a group when it is this thread's turn.
    pub fn submit(
        &self,
        clock: &dyn Clock,
        mut mine: Work,
        lead: impl Fn(&mut [Work]) -> Result<()>,
    ) -> Result<SeqNo> {
        let mut waiting = self.waiting.lock();
        if !waiting.leading && waiting.queue.is_empty() && waiting.company < 2 {
            waiting.leading = true;
            let _led = Led::new(self, clock, Vec::new());
            drop(waiting);
            lead(std::slice::from_mut(&mut mine))?;
            return mine.answer();
        }
        let request = Arc::new(Request {
            bytes: mine.bytes(),
            work: Short::new(Some(mine)),
            outcome: Short::new(None),
            turn: Condvar::new(),
        });
        waiting.queue.push_back(Arc::clone(&request));
        if waiting.gathering && waiting.queue.len() >= waiting.company {
            self.complete.notify_one();
        }
        loop {
            if let Some(outcome) = held(&request.outcome).take() {
                return outcome;
            }
            if waiting.leading {
                waiting = request.turn.wait(waiting);
                continue;
            }
            waiting.leading = true;
            let mut led = Led::new(self, clock, Vec::new());
            waiting = self.company(clock, waiting);
            led.since_us = clock.monotonic_us();
            led.members = gather(&mut waiting.queue);
            drop(waiting);
            let mut group: Vec<Work> = led.members.iter().filter_map(|m| held(&m.work).take()).collect();
            led.answer(lead(&mut group), group);
            drop(led);
            waiting = self.waiting.lock();
        }
    }

    /// Waits, as the leader, for those that are about to come.
    fn company<'a>(&'a self, clock: &dyn Clock, mut waiting: Held<'a, Waiting>) -> Held<'a, Waiting> {
        let patience = (waiting.took_us / 2).min(COMPANY_US_MAX);
        let until = clock.monotonic_us() + patience;
        waiting.gathering = true;
        while waiting.queue.len() < waiting.company {
            let now = clock.monotonic_us();
            if now >= until {
                break;
            }
            waiting = self.complete.wait_timeout_us(waiting, until - now).0;
        }
        waiting.gathering = false;
        waiting
    }
}

/// The oldest writers, up to the group's size.
fn gather(queue: &mut VecDeque<Arc<Request>>) -> Vec<Arc<Request>> {
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
struct Led<'a> {
    queue: &'a Queue,
    clock: &'a dyn Clock,
    since_us: u64,
    /// The requests that are led; none when a writer leads for itself alone.
    members: Vec<Arc<Request>>,
    /// Why nobody's batch is there, if it went wrong.
    failed: Option<Error>,
}

impl<'a> Led<'a> {
    fn new(queue: &'a Queue, clock: &'a dyn Clock, members: Vec<Arc<Request>>) -> Led<'a> {
        Led { queue, clock, since_us: clock.monotonic_us(), members, failed: None }
    }
    /// Everybody hears the number of his batch, and those that were left out why.
    fn answer(&mut self, led: Result<()>, group: Vec<Work>) {
        self.failed = led.err();
        for (member, work) in self.members.iter().zip(group) {
            if self.failed.is_none() || work.refused.is_some() {
                *held(&member.outcome) = Some(work.answer());
            }
        }
    }
}

impl Drop for Led<'_> {
    fn drop(&mut self) {
        let died = || Error::new(ErrorKind::OutcomeUnknown, "the thread that led the commit panicked");
        let failed = self.failed.take().unwrap_or_else(died);
        let took = self.clock.monotonic_us().saturating_sub(self.since_us);
        let mut waiting = self.queue.waiting.lock();
        waiting.leading = false;
        waiting.gathering = false;
        waiting.took_us = (waiting.took_us * 3 + took) / 4;
        waiting.company = self.members.len().max(1) + waiting.queue.len();
        for member in &self.members {
            held(&member.outcome).get_or_insert_with(|| Err(failed.clone()));
            member.turn.notify_one();
        }
        if let Some(next) = waiting.queue.front() {
            next.turn.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
