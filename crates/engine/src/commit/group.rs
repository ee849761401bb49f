//! Group commit: writers that want a sync queue, one of them leads for all that wait, the others sleep. (A writer that wants
//! none has nothing to share, and does not come here.)
//!
//! While a group is being synced the next one gathers. A writer that finds nobody before it leads at once, with neither a
//! request nor an allocation.

use super::work::Work;
use perigee_base::{Error, ErrorKind, Result, limits};
use perigee_env::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex as Short, MutexGuard, PoisonError};

/// A writer in the queue. `work` is taken by the leader, `outcome` is set by it.
#[derive(Debug)]
struct Request {
    work: Short<Option<Work>>,
    outcome: Short<Option<Result<()>>>,
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
}

/// The writers' queue.
#[derive(Debug, Default)]
pub struct Queue {
    waiting: Mutex<Waiting>,
}

impl Queue {
    /// Empty.
    pub fn new() -> Queue {
        Queue::default()
    }

    /// Waits until `mine` is committed, leading a group when it is this thread's turn.
    pub fn submit(&self, mut mine: Work, lead: impl Fn(&mut [Work]) -> Result<()>) -> Result<()> {
        let mut waiting = self.waiting.lock();
        if !waiting.leading && waiting.queue.is_empty() {
            waiting.leading = true;
            let _led = Led { queue: self, members: Vec::new(), outcome: None };
            drop(waiting);
            lead(std::slice::from_mut(&mut mine))?;
            return mine.refused.map_or(Ok(()), Err);
        }
        let request = Arc::new(Request {
            bytes: mine.bytes(),
            work: Short::new(Some(mine)),
            outcome: Short::new(None),
            turn: Condvar::new(),
        });
        waiting.queue.push_back(Arc::clone(&request));
        loop {
            if let Some(outcome) = held(&request.outcome).take() {
                return outcome;
            }
            if waiting.leading {
                waiting = request.turn.wait(waiting);
                continue;
            }
            waiting.leading = true;
            let members = gather(&mut waiting.queue);
            let mut group: Vec<Work> = members.iter().filter_map(|m| held(&m.work).take()).collect();
            let mut led = Led { queue: self, members, outcome: None };
            drop(waiting);
            led.outcome = Some(lead(&mut group));
            led.answer_refused(group);
            drop(led);
            waiting = self.waiting.lock();
        }
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
    /// The requests that are led; none when a writer leads for itself alone.
    members: Vec<Arc<Request>>,
    outcome: Option<Result<()>>,
}

impl Led<'_> {
    /// Those that were left out hear why.
    fn answer_refused(&self, group: Vec<Work>) {
        for (member, work) in self.members.iter().zip(group) {
            if let Some(e) = work.refused {
                *held(&member.outcome) = Some(Err(e));
            }
        }
    }
}

impl Drop for Led<'_> {
    fn drop(&mut self) {
        let died = || Err(Error::new(ErrorKind::OutcomeUnknown, "the thread that led the commit panicked"));
        let outcome = self.outcome.take().unwrap_or_else(died);
        let mut waiting = self.queue.waiting.lock();
        waiting.leading = false;
        for member in &self.members {
            held(&member.outcome).get_or_insert_with(|| outcome.clone());
            member.turn.notify_one();
        }
        if let Some(next) = waiting.queue.front() {
            next.turn.notify_one();
        }
    }
}
