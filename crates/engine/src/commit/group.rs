//! Group commit: writers queue, one of them leads for all that wait, the others sleep.

use crate::core::Core;
use crate::family::Family;
use crate::settings::Durability;
use perigee_base::{Error, ErrorKind, FamilyId, Result, SeqNo, limits};
use perigee_env::sync::{Condvar, Mutex};
use perigee_file::log::batch::Finished;
use perigee_file::log::{Batch, Op, Ops};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex as Short, PoisonError};

/// The operations of a batch that one family receives, each with its position in the batch as a sequence number.
pub type Part = (Arc<Family>, Vec<(Op, SeqNo)>);

/// A batch ready to be logged: sealed but for its place, its operations sorted by family.
#[derive(Debug)]
pub struct Work {
    /// The record.
    pub record: Finished,
    /// Operations by family, each with its position in the batch as a sequence number.
    pub parts: Vec<Part>,
    /// What the writer asked for.
    pub durability: Durability,
}

/// A writer in the queue. `work` is taken by the leader, `outcome` is set by it.
#[derive(Debug)]
pub struct Request {
    work: Short<Option<Work>>,
    outcome: Short<Option<Result<()>>>,
    bytes: usize,
    /// Not only deletes.
    grows: bool,
    turn: Condvar,
}

impl Request {
    /// Checks and prepares a batch outside the commit section.
    pub fn new(core: &Core, batch: Batch, durability: Durability) -> Result<Arc<Request>> {
        let record = batch.finish();
        let mut parts: Vec<Part> = Vec::with_capacity(1);
        for (i, op) in Ops::new(&record.buf, record.payload()).enumerate() {
            let op = op?;
            let at = match parts.iter().position(|(f, _)| f.id == op.family) {
                Some(at) => at,
                None => {
                    parts.push((find(core, op.family)?, Vec::new()));
                    parts.len() - 1
                }
            };
            parts[at].1.push((op, SeqNo(i as u64)));
        }
        let grows = parts.iter().flat_map(|(_, ops)| ops).any(|(op, _)| !op.kind.deletes());
        Ok(Arc::new(Request {
            grows,
            bytes: record.buf.len(),
            work: Short::new(Some(Work { record, parts, durability })),
            outcome: Short::new(None),
            turn: Condvar::new(),
        }))
    }
    /// Whether it does anything but delete.
    pub fn grows(&self) -> bool {
        self.grows
    }
    /// Bytes it takes in the log.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    fn take_outcome(&self) -> Option<Result<()>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
    fn finish(&self, outcome: Result<()>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }
}

fn find(core: &Core, id: FamilyId) -> Result<Arc<Family>> {
    core.families.by_id(id).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("the batch writes to family {id}, which was dropped"))
    })
}

#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<Arc<Request>>,
    leading: bool,
}

/// The writers' queue.
#[derive(Debug)]
pub struct Queue {
    waiting: Mutex<Waiting>,
}

impl Queue {
    /// Empty.
    pub fn new() -> Queue {
        Queue { waiting: Mutex::new(Waiting::default()) }
    }

    /// Waits until `mine` is committed, leading a group when it is this thread's turn.
    pub fn submit(&self, mine: Arc<Request>, lead: impl Fn(&mut Group) -> Result<()>) -> Result<()> {
        let mut waiting = self.waiting.lock();
        waiting.queue.push_back(Arc::clone(&mine));
        loop {
            if let Some(outcome) = mine.take_outcome() {
                return outcome;
            }
            if waiting.leading {
                waiting = mine.turn.wait(waiting);
                continue;
            }
            waiting.leading = true;
            let mut group = Led { queue: self, group: Group::gather(&mut waiting.queue), outcome: None };
            drop(waiting);
            group.outcome = Some(lead(&mut group.group));
            drop(group);
            waiting = self.waiting.lock();
        }
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

/// Batches that are committed together.
#[derive(Debug)]
pub struct Group {
    members: Vec<Arc<Request>>,
    /// Their work, in the same order; `None` once answered.
    pub work: Vec<Option<Work>>,
}

impl Group {
    /// The oldest writers, up to the group's size.
    fn gather(queue: &mut VecDeque<Arc<Request>>) -> Group {
        let mut group = Group { members: Vec::new(), work: Vec::new() };
        let mut bytes = 0;
        while let Some(next) = queue.front() {
            if !group.members.is_empty() && bytes + next.bytes > limits::COMMIT_GROUP_BYTES_MAX {
                break;
            }
            bytes += next.bytes;
            group.work.push(next.work.lock().unwrap_or_else(PoisonError::into_inner).take());
            group.members.extend(queue.pop_front());
        }
        group
    }

    /// The families that the group writes to, each once.
    pub fn families(&self) -> Vec<Arc<Family>> {
        let mut all: Vec<Arc<Family>> = Vec::new();
        for (f, _) in self.work.iter().flatten().flat_map(|w| &w.parts) {
            if !all.iter().any(|known| known.id == f.id) {
                all.push(Arc::clone(f));
            }
        }
        all
    }

    /// Answers the batches whose family was dropped while they waited.
    pub fn drop_orphans(&mut self) {
        for (member, work) in self.members.iter().zip(&mut self.work) {
            let dropped = work.as_ref().and_then(|w| w.parts.iter().find_map(|(f, _)| f.check().err()));
            if let Some(e) = dropped {
                *work = None;
                member.finish(Err(e));
            }
        }
    }
}

/// A group with its leader. Dropping it answers everybody, also when the leader panicked.
struct Led<'a> {
    queue: &'a Queue,
    group: Group,
    outcome: Option<Result<()>>,
}

impl Drop for Led<'_> {
    fn drop(&mut self) {
        let died = || Err(Error::new(ErrorKind::OutcomeUnknown, "the thread that led the commit panicked"));
        let outcome = self.outcome.take().unwrap_or_else(died);
        let mut waiting = self.queue.waiting.lock();
        waiting.leading = false;
        for member in &self.group.members {
            let mut slot = member.outcome.lock().unwrap_or_else(PoisonError::into_inner);
            slot.get_or_insert_with(|| outcome.clone());
            drop(slot);
            member.turn.notify_one();
        }
        if let Some(next) = waiting.queue.front() {
            next.turn.notify_one();
        }
    }
}
